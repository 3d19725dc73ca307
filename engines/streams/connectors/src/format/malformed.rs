//! What happens to a row that cannot be read.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use savanna_streams_api::{Result, StreamError};
use serde::Serialize;

use crate::roots::{Roots, is_url};

/// The choice of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnError {
    /// The query fails.
    Fail,
    /// The row is skipped and counted.
    Skip,
    /// It is also appended to a file.
    DeadLetter(PathBuf),
}

impl OnError {
    /// Whether the file for rows may be written.
    pub(crate) fn check(&self, roots: &Roots) -> Result<()> {
        match self {
            Self::DeadLetter(path) if path.to_str().is_some_and(is_url) => Err(StreamError::invalid(format!(
                "'on-error' = 'dead-letter:{}': dead letters go to a local file; give its path",
                path.display()
            ))),
            Self::DeadLetter(path) => roots.check(path),
            Self::Fail | Self::Skip => Ok(()),
        }
    }

    /// Reads the option's value.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "fail" => Some(Self::Fail),
            "skip" => Some(Self::Skip),
            _ => text.strip_prefix("dead-letter:").map(|path| Self::DeadLetter(path.into())),
        }
    }
}

/// A row that cannot be read.
#[derive(Debug)]
pub(crate) struct BadRow<'a> {
    /// The line it starts on, from 1.
    pub(crate) line: u64,
    /// The column, if it is one column's fault.
    pub(crate) column: Option<&'a str>,
    /// What was expected, what came.
    pub(crate) message: String,
    /// The row as it stands in the input.
    pub(crate) raw: &'a [u8],
}

/// Takes malformed rows of one reader.
#[derive(Debug)]
pub(crate) struct Malformed {
    on_error: OnError,
    /// What is being read, for messages.
    pub(crate) place: String,
    /// What [`BadRow::line`] counts there; nothing if it counts nothing.
    unit: &'static str,
    /// How many rows were skipped.
    pub(crate) skipped: u64,
    letters: Option<File>,
}

/// A line of the dead-letter file.
#[derive(Serialize)]
struct DeadLetter<'a> {
    file: &'a str,
    line: u64,
    column: Option<&'a str>,
    message: &'a str,
    row: &'a str,
}

impl Malformed {
    /// Nothing malformed yet. Opens the dead-letter file, so that a wrong path is told at once.
    pub(crate) fn new(on_error: OnError, place: impl Into<String>) -> Result<Self> {
        let letters = match &on_error {
            OnError::DeadLetter(path) => {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                Some(opened.map_err(|e| StreamError::io(format!("open dead-letter file {}", path.display()), &e))?)
            }
            OnError::Fail | OnError::Skip => None,
        };
        Ok(Self { on_error, place: place.into(), unit: "line", skipped: 0, letters })
    }

    /// The same for messages of a topic, which have offsets for lines.
    pub(crate) fn of_messages(on_error: OnError, place: impl Into<String>) -> Result<Self> {
        Ok(Self { unit: "offset", ..Self::new(on_error, place)? })
    }

    /// The same for keys of a server, which are named by the place.
    pub(crate) fn of_keys(on_error: OnError, place: impl Into<String>) -> Result<Self> {
        Ok(Self { unit: "", ..Self::new(on_error, place)? })
    }

    /// Takes a row: an error if the query is to fail on it.
    pub(crate) fn row(&mut self, bad: &BadRow<'_>) -> Result<()> {
        if self.on_error == OnError::Fail {
            let column = bad.column.map_or_else(String::new, |c| format!(", column {c}"));
            let line = if self.unit.is_empty() { String::new() } else { format!(" {} {}", self.unit, bad.line) };
            return Err(StreamError::Data {
                place: format!("{}{line}{column}", self.place),
                message: format!("{}; fix the row or set 'on-error' = 'skip'", bad.message),
            });
        }
        self.skipped += 1;
        let Some(letters) = &mut self.letters else { return Ok(()) };
        let row = String::from_utf8_lossy(bad.raw);
        let row = row.trim_end_matches(['\r', '\n']);
        let letter = DeadLetter { file: &self.place, line: bad.line, column: bad.column, message: &bad.message, row };
        let line = serde_json::to_string(&letter).map_err(|e| StreamError::Internal(e.to_string()))? + "\n";
        letters
            .write_all(line.as_bytes())
            .map_err(|e| StreamError::io(format!("write a dead letter of {}", self.place), &e))
    }
}

/// A value for a message, cut if it is long.
pub(crate) fn excerpt(value: &[u8]) -> String {
    const CHARS_MAX: usize = 100;
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * CHARS_MAX + 4)]);
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("'{}...'", &text[..end]),
        None => format!("'{text}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_go_to_no_bucket() {
        let roots = Roots::below(vec!["s3://shop/out".into()], Vec::new(), "start it with --files DIR");
        for roots in [roots, Roots::anywhere()] {
            for url in ["s3://shop/out/bad", "s3://shop/out/../../../../srv/bad"] {
                let error = OnError::DeadLetter(url.into()).check(&roots).unwrap_err().to_string();
                assert!(error.contains("local file"), "{error}");
            }
        }
    }

    #[test]
    fn long_values_are_cut_for_messages() {
        assert_eq!(excerpt(b"abc"), "'abc'");
        let cut = excerpt("\u{e9}".repeat(500).as_bytes());
        assert_eq!(cut.chars().count(), 105);
    }
}
