//! The server that keys are brought to.

use crate::commands::keys::connection::{Connection, Reply};
use crate::error::CliError;

/// So many requests or bytes are sent at once, and then their replies are read.
const BATCH_REQUESTS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;
/// So many refusals are shown one by one.
const SHOWN_MAX: u64 = 10;

/// A server that takes keys.
pub(super) struct Target {
    connection: Connection,
    database: u64,
    /// What was sent, or will be, and is not answered, for who is refused.
    pending: Vec<String>,
    /// How many requests were refused.
    refused: u64,
}

impl Target {
    pub(super) const fn new(connection: Connection) -> Self {
        Self { connection, database: 0, pending: Vec::new(), refused: 0 }
    }

    /// How many keys it has in all databases.
    pub(super) fn keys(&mut self) -> Result<u64, CliError> {
        let Reply::Bytes(text) = self.connection.ask(&[b"INFO", b"keyspace"])? else {
            return Err(CliError::Refused("INFO keyspace: the server answers something else".into()));
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let counts = text.lines().filter_map(|line| line.split_once("keys=")?.1.split(',').next()?.parse::<u64>().ok());
        Ok(counts.sum())
    }

    /// Notes a request about what `subject` names.
    pub(super) fn put(&mut self, subject: impl FnOnce() -> String, words: &[&[u8]]) -> Result<(), CliError> {
        self.connection.note(words);
        self.pending.push(subject());
        if self.pending.len() >= BATCH_REQUESTS || self.connection.noted_bytes() >= BATCH_BYTES {
            self.finish()?;
        }
        Ok(())
    }

    /// Makes sure that what follows is about a database.
    pub(super) fn select(&mut self, database: u64) -> Result<(), CliError> {
        if database != self.database {
            self.database = database;
            let number = database.to_string();
            self.put(|| format!("database {database}"), &[b"SELECT", number.as_bytes()])?;
        }
        Ok(())
    }

    /// Sends what was noted, and reads all replies.
    pub(super) fn finish(&mut self) -> Result<(), CliError> {
        let lost = |source| CliError::Io {
            doing: "the server that takes the keys is gone (begin again with --replace)".into(),
            source,
        };
        self.connection.send().map_err(lost)?;
        for subject in self.pending.drain(..) {
            if let Reply::Error(error) = self.connection.reply().map_err(lost)? {
                self.refused += 1;
                match self.refused {
                    1..=SHOWN_MAX => eprintln!("not taken: {subject}: {error}"),
                    count if count == SHOWN_MAX + 1 => eprintln!("not taken: others, which are counted"),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// How many requests were refused so far.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }
}
