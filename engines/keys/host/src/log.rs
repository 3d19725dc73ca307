//! What a host asks of its log.

use std::sync::Arc;
use std::time::Duration;

use savanna_journal::{Draft, Journal, JournalError, Lsn};
use savanna_keys::config::Sync;

/// How long to wait before a log that takes nothing more is tried again.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);

/// A log, in the process or in a simulation.
pub trait Log {
    /// Appends a record. With any `sync` but [`Sync::Always`] it survives the end of the process when this returns, if that is
    /// possible.
    ///
    /// # Errors
    /// The log has ended.
    fn append(&self, draft: Draft<'_>, sync: Sync) -> Result<Lsn, JournalError>;
    /// The position that was given last.
    fn appended(&self) -> Lsn;
    /// Bytes that were appended since it was opened, as [`Journal::read_cost`] counts them.
    fn appended_bytes(&self) -> u64;
    /// Everything up to here survives the end of the machine.
    fn durable(&self) -> Lsn;
    /// Whether everything up to a record survives the end of the process.
    fn survives(&self, lsn: Lsn) -> bool;
    /// Bytes that were appended and have not begun to be written.
    fn backlog(&self) -> usize;
    /// Why nothing more should be appended for now.
    fn full(&self) -> Option<JournalError>;
    /// Records before this are not needed any more.
    ///
    /// # Errors
    /// If later records are not durable, or the log has ended.
    fn truncate_before(&self, lsn: Lsn) -> Result<(), JournalError>;
}

impl Log for Arc<Journal> {
    /// Waits while the disk is behind, and clients with it.
    fn append(&self, draft: Draft<'_>, sync: Sync) -> Result<Lsn, JournalError> {
        loop {
            let appended = match sync {
                Sync::Always => Journal::append(self, &[draft]),
                Sync::EverySecond | Sync::No => self.append_staged(&[draft]),
            };
            match appended {
                Err(JournalError::Backlog { .. }) => std::thread::sleep(BACKLOG_PAUSE),
                appended => return appended,
            }
        }
    }

    fn appended(&self) -> Lsn {
        Journal::appended(self)
    }

    fn appended_bytes(&self) -> u64 {
        self.read_cost()
    }

    fn durable(&self) -> Lsn {
        Journal::durable(self)
    }

    fn survives(&self, lsn: Lsn) -> bool {
        Journal::survives(self, lsn)
    }

    fn backlog(&self) -> usize {
        Journal::backlog(self)
    }

    fn full(&self) -> Option<JournalError> {
        Journal::full(self)
    }

    fn truncate_before(&self, lsn: Lsn) -> Result<(), JournalError> {
        Journal::truncate_before(self, lsn)
    }
}
