//! `savanna keys export`: all keys of a running server, in a file that Redis reads.
//!
//! Each key is written as it is when it is read. A key that is written meanwhile is there as before or as after that.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use savanna_keys_rdb::FileWriter;
use tempfile::NamedTempFile;

use super::connection::{Connection, Reply};
use crate::error::CliError;
use crate::progress::LiveLine;

/// So many keys are asked for at once.
const KEYS_AT_ONCE: &[u8] = b"512";

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) keys: u64,
    pub(super) libraries: u64,
    pub(super) bytes: u64,
}

/// Writes all keys and libraries of a server to a new file, which is there whole or not at all.
pub(super) fn all_to(path: &Path, connection: &mut Connection) -> Result<Counts, CliError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let failed = || CliError::io(format!("writing {}", path.display()));
    if path.exists() {
        return Err(CliError::Usage(format!("{} is there already; expected the name of a new file", path.display())));
    }
    let file = NamedTempFile::new_in(directory).map_err(failed())?;
    let mut counts = Counts::default();
    let mut writer = FileWriter::new(BufWriter::with_capacity(1 << 20, file)).map_err(failed())?;
    writer.field("redis-ver", "7.0.15").map_err(failed())?;
    writer.field("written-by", concat!("savanna ", env!("CARGO_PKG_VERSION"))).map_err(failed())?;
    let mut export = Export { connection, writer, counts: &mut counts, line: LiveLine::new() };
    export.libraries().and_then(|()| export.databases()).inspect_err(|_| export.line.clear())?;
    export.line.clear();
    let file = export.writer.end().and_then(|writer| writer.into_inner().map_err(io::Error::from)).map_err(failed())?;
    file.as_file().sync_all().map_err(failed())?;
    counts.bytes = file.as_file().metadata().map_err(failed())?.len();
    file.persist_noclobber(path).map_err(|error| error.error).map_err(failed())?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed())?;
    Ok(counts)
}

struct Export<'a, W> {
    connection: &'a mut Connection,
    writer: FileWriter<W>,
    counts: &'a mut Counts,
    line: LiveLine,
}

impl<W: Write> Export<'_, W> {
    fn libraries(&mut self) -> Result<(), CliError> {
        let Reply::List(libraries) = self.connection.ask(&[b"FUNCTION", b"LIST", b"WITHCODE"])? else {
            return Err(unexpected("FUNCTION LIST", "a list"));
        };
        for library in libraries {
            let Reply::List(parts) = library else { return Err(unexpected("FUNCTION LIST", "lists")) };
            let name = parts.iter().position(|part| *part == Reply::Bytes(b"library_code".to_vec()));
            let Some(Reply::Bytes(code)) = name.and_then(|at| parts.get(at + 1)) else {
                return Err(unexpected("FUNCTION LIST", "the code of each library"));
            };
            self.writer.library(code).map_err(unwritten)?;
            self.counts.libraries += 1;
        }
        Ok(())
    }

    fn databases(&mut self) -> Result<(), CliError> {
        let Reply::Bytes(text) = self.connection.ask(&[b"INFO", b"keyspace"])? else {
            return Err(unexpected("INFO keyspace", "a text"));
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let databases: Vec<(u64, u64)> = text.lines().filter_map(database).collect();
        let all = databases.iter().map(|(_, keys)| keys).sum();
        for (number, _) in databases {
            self.connection.ask(&[b"SELECT", number.to_string().as_bytes()])?;
            self.keys(number, all)?;
        }
        Ok(())
    }

    fn keys(&mut self, database: u64, all: u64) -> Result<(), CliError> {
        // A scan may name a key twice, and Redis reads no file that does. Two keys with the same 128 bits are not to be expected.
        let hashers = [RandomState::new(), RandomState::new()];
        let mut written = HashSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let reply = self.connection.ask(&[b"SCAN", &cursor, b"COUNT", KEYS_AT_ONCE])?;
            let Reply::List(mut parts) = reply else { return Err(unexpected("SCAN", "a list")) };
            let (Some(Reply::List(keys)), Some(Reply::Bytes(next))) = (parts.pop(), parts.pop()) else {
                return Err(unexpected("SCAN", "a cursor and keys"));
            };
            let keys = keys.into_iter().filter_map(|key| if let Reply::Bytes(key) = key { Some(key) } else { None });
            let new: Vec<Vec<u8>> =
                keys.filter(|key| written.insert(hashers.each_ref().map(|hasher| hasher.hash_one(key)))).collect();
            self.batch(database, &new)?;
            if self.line.due() {
                self.line.show_keys(self.counts.keys, all);
            }
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn batch(&mut self, database: u64, keys: &[Vec<u8>]) -> Result<(), CliError> {
        let lost = |source| CliError::Io { doing: "the server that has the keys is gone".into(), source };
        for key in keys {
            // As one: what it is and when it expires are of one moment.
            self.connection.note(&[b"MULTI"]);
            self.connection.note(&[b"DUMP", key]);
            self.connection.note(&[b"PEXPIRETIME", key]);
            self.connection.note(&[b"EXEC"]);
        }
        self.connection.send().map_err(lost)?;
        for key in keys {
            for _ in 0..3 {
                self.connection.reply().map_err(lost)?;
            }
            let done = self.connection.reply().map_err(lost)?;
            let Reply::List(parts) = &done else {
                return Err(CliError::Refused(format!("{}: the server answers {done:?}", key.escape_ascii())));
            };
            let (payload, expires_at) = match parts.as_slice() {
                // It is gone meanwhile.
                [Reply::Nothing, _] => continue,
                [Reply::Bytes(payload), Reply::Number(at)] => (payload, u64::try_from(*at).ok()),
                _ => return Err(CliError::Refused(format!("{}: the server answers {done:?}", key.escape_ascii()))),
            };
            self.writer.key(database, key, expires_at, payload).map_err(unwritten)?;
            self.counts.keys += 1;
        }
        Ok(())
    }
}

/// The number and the count of keys out of a line such as `db0:keys=3,expires=0,avg_ttl=0`.
fn database(line: &str) -> Option<(u64, u64)> {
    let (number, rest) = line.trim().strip_prefix("db")?.split_once(":keys=")?;
    Some((number.parse().ok()?, rest.split(',').next()?.parse().ok()?))
}

fn unexpected(command: &str, expected: &str) -> CliError {
    CliError::Refused(format!("{command}: expected {expected}, the server answers something else"))
}

fn unwritten(source: io::Error) -> CliError {
    CliError::Io { doing: "writing the file".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_a_database_and_its_keys() {
        assert_eq!(database("db3:keys=12,expires=0,avg_ttl=0\r"), Some((3, 12)));
        assert_eq!(database("# Keyspace"), None);
    }
}
