//! What ends the service, or keeps it from beginning.

use std::path::PathBuf;

use savanna_journal::JournalError;

/// Why the service did not begin, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The users could not be read.
    #[error("the users of keys cannot be used: {0}")]
    Users(String),
    /// The log could not be opened.
    #[error("could not read the log of the keys service: {0}")]
    Log(#[source] JournalError),
    /// The file of Redis that there is for the first start cannot be used.
    #[error(
        "the file {path} of Redis is to be read because there are no keys yet, and cannot be: {reason}; nothing of it is kept. Move it away to \
         start without it"
    )]
    Dump {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The log ended. Nothing more is told to anybody.
    #[error(transparent)]
    Ended(JournalError),
    /// The last changes did not become durable when the service stopped.
    #[error(
        "the last changes of keys could not be written to the disk: {0}; changes that were acknowledged under appendfsync everysec or no \
         may be lost"
    )]
    LastFlush(#[source] JournalError),
}

impl HostError {
    /// Whether the log could not be opened because there is no space, which may pass.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Log(error) if error.is_full())
    }
}
