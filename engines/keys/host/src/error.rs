//! What ends the service, or keeps it from beginning.

use savanna_journal::JournalError;

/// Why the service did not begin, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The users could not be read.
    #[error("{0}; correct the file that aclfile names (an empty one is a beginning), or start without")]
    Users(String),
    /// The log could not be opened.
    #[error("could not read the log of the keys service: {0}")]
    Log(#[source] JournalError),
    /// The log ended. Nothing more is told to anybody.
    #[error(transparent)]
    Ended(JournalError),
    /// The last changes did not become durable when the service stopped.
    #[error(
        "the last changes of keys are not on the disk: {0}; what was acknowledged under another appendfsync than always may be lost"
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
