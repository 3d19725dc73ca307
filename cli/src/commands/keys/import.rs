//! Keys of a file, one after the other.

use std::io::Read;

use savanna_keys_rdb::{Entry, FileError, FileReader, Item};

use super::target::Target;
use crate::error::CliError;
use crate::progress::LiveLine;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) keys: u64,
    pub(super) libraries: u64,
}

/// Brings all that a file has to a server. `all` is how many bytes it has, if that is known.
pub(super) fn all_of<R: Read>(
    file: &mut FileReader<R>,
    all: Option<u64>,
    target: &mut Target,
    replaces: bool,
) -> Result<Counts, CliError> {
    let mut counts = Counts::default();
    let mut line = LiveLine::new();
    while let Some(item) = file.next_item().map_err(|error| unread(&error))? {
        match item {
            Item::Field { .. } => {}
            Item::Functions(code) => {
                counts.libraries += 1;
                target.put(|| "a library of functions".into(), &[b"FUNCTION", b"LOAD", b"REPLACE", &code])?;
            }
            Item::Key(entry) => {
                counts.keys += 1;
                put(target, &entry, replaces)?;
            }
        }
        if line.due() {
            line.show_bytes(file.position(), all.unwrap_or_else(|| file.position()));
        }
    }
    line.clear();
    target.finish()?;
    Ok(counts)
}

fn put(target: &mut Target, entry: &Entry, replaces: bool) -> Result<(), CliError> {
    target.select(entry.database)?;
    let expires_at = entry.expires_at.unwrap_or(0).to_string();
    let words: [&[u8]; 6] = [b"RESTORE", &entry.key, expires_at.as_bytes(), &entry.payload, b"ABSTTL", b"REPLACE"];
    let words = if replaces { &words[..] } else { &words[..5] };
    target.put(|| entry.key.escape_ascii().to_string(), words)
}

pub(super) fn unread(error: &FileError) -> CliError {
    CliError::Refused(error.to_string())
}
