//! What can go wrong, in words that say what was expected, what came and what to do.

use std::{error::Error, io, sync::Arc};

use savanna_epoch::NodeEpoch;

use crate::record::Lsn;

/// Why a journal could not be opened, or refused or lost an append.
///
/// The errors [`Fenced`](Self::Fenced), [`Io`](Self::Io), [`Store`](Self::Store) and [`Stopped`](Self::Stopped) are
/// final once a journal is open: every held reply and every later append gets them, and the owner should stop; it may open
/// the log again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A newer owner has taken the log over.
    #[error(
        "the journal is fenced: expected to own it under epoch {ours}, but another owner took it over under epoch \
         {theirs}. Stop serving and exit; the new owner's log decides \
         which writes without a reply count"
    )]
    Fenced {
        /// The epoch this journal was opened, or asked to be opened, with.
        ours: NodeEpoch,
        /// The epoch that owns the log now. Equal to `ours` when the same epoch was opened a second time.
        theirs: NodeEpoch,
    },

    /// The epoch that nobody is ever granted.
    #[error("a journal needs an owner epoch of 1 or more, got 0. Open it with the epoch of the ownership grant")]
    NoEpoch,

    /// A file operation failed. It is not repeated: after a failed fsync nobody knows what is on the disk.
    #[error(
        "could not {doing} {file}: {source}. Writes without a reply may be lost. Stop the process, check the disk \
         (space, dmesg), then start it again: \
         it reads the log"
    )]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The file or directory.
        file: String,
        /// The operating system's reason.
        #[source]
        source: Arc<io::Error>,
    },

    /// There is no space for more. What was appended waits and is tried again until there is: nothing that had been flushed
    /// is in doubt.
    #[error(
        "could not {doing} {file}: {source}. The appended records wait in memory and are written when there is space; \
         append nothing more until then. \
         Free some space, or enlarge the disk"
    )]
    Full {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The file.
        file: String,
        /// The operating system's reason.
        #[source]
        source: Arc<io::Error>,
    },

    /// A request to the object store failed, after the store client's own retries.
    #[error(
        "could not {doing} {object}: {source}. Writes without a reply may be lost. Check that the object store is \
         reachable and that the credentials \
         allow access, then start the process again: it reads the log"
    )]
    Store {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The object's path.
        object: String,
        /// The store's reason.
        #[source]
        source: Arc<object_store::Error>,
    },

    /// Bytes that were durable have changed or vanished.
    #[error(
        "{file} is damaged at byte {offset}: expected {expected}, found {found}. These bytes were durable before, so \
         this is not a torn tail, and nothing was cut. Restore the file from a \
         backup. Do not move the log away alone: the data beside it belongs to this log"
    )]
    Corrupt {
        /// The damaged file or object.
        file: String,
        /// Where in it, in bytes from its start.
        offset: u64,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },

    /// A whole file or object of the log is not there.
    #[error(
        "the log has a hole before {file}: expected the record with LSN {needed}, found LSN {first}. A segment was \
         removed or not copied; restore it beside this one"
    )]
    Missing {
        /// The segment after the hole.
        file: String,
        /// The LSN that no segment holds.
        needed: Lsn,
        /// The first LSN after the hole.
        first: Lsn,
    },

    /// The end of the log is not there, or all of it.
    #[error(
        "expected the log {log} to end at LSN {durable} or later, as {note} says, but it ends at LSN {last}: \
         acknowledged writes may be missing. The newest segment was deleted, cut or damaged, or replaced by an \
         older copy. Nothing was changed. Restore the log from a backup; to go on without the missing writes, \
         delete {note}"
    )]
    Lost {
        /// The log's directory.
        log: String,
        /// Where it ends.
        last: Lsn,
        /// Where it should end at least.
        durable: Lsn,
        /// The file that says so.
        note: String,
    },

    /// The log has ended.
    #[error("expected a log that goes on, but {log} is sealed: it ends at LSN {last} for ever. Begin another log")]
    Sealed {
        /// The log's directory, or its last object.
        log: String,
        /// Where it ends.
        last: Lsn,
    },

    /// There is no log to end.
    #[error(
        "expected a log in {log}, found none: nobody ever opened one there. Check that this is the place of the log; if it \
         is, its owner died before it began, and nothing was ever in it"
    )]
    NoLog {
        /// The directory or prefix.
        log: String,
    },

    /// A sealed log is not what it was when it was sealed.
    #[error(
        "expected the sealed log {log} to end at LSN {last}, found {found}. Its files were removed or replaced since it was \
         sealed; restore it from a backup"
    )]
    Replaced {
        /// The log's directory or prefix.
        log: String,
        /// Where it ended when it was sealed.
        last: Lsn,
        /// What is there.
        found: String,
    },

    /// The file is of another format version.
    #[error(
        "{file} has journal format version {found}, this program reads versions up to {supported}. Open it with the release \
         that wrote it, or a later one"
    )]
    Version {
        /// The file or object.
        file: String,
        /// The version in its header.
        found: u8,
        /// The newest version that this program knows.
        supported: u8,
    },

    /// An append group does not fit into a segment.
    #[error(
        "an append group of {bytes} bytes does not fit into a segment: at most {limit} bytes go into one group. \
         Append less at once, or open the journal with larger segments"
    )]
    TooLarge {
        /// The group's size, encoded.
        bytes: usize,
        /// The most that fits.
        limit: usize,
    },

    /// More is waiting to be flushed than the journal may hold in memory.
    #[error(
        "{bytes} bytes are waiting to be flushed, at most {limit} may wait. Nothing was appended; wait for an earlier \
         LSN to become durable and append again"
    )]
    Backlog {
        /// What waits, with the refused group, encoded.
        bytes: usize,
        /// The most that may wait.
        limit: usize,
    },

    /// A truncation would drop records that are not durable.
    #[error("cannot truncate the journal before LSN {asked}: only LSNs up to {durable} are durable. Wait for it first")]
    BeyondDurable {
        /// The LSN asked for.
        asked: Lsn,
        /// The durable watermark.
        durable: Lsn,
    },

    /// The journal was closed by its owner.
    #[error("the journal is closed: expected an open one. Open it again, under a newer epoch")]
    Closed,

    /// The thread that writes the log ended unexpectedly.
    #[error("the journal's writer stopped: {reason}. Writes without a reply may be lost. Restart the process")]
    Stopped {
        /// Why.
        reason: String,
    },

    /// The function that the records were replayed into refused one.
    #[error("could not replay the record with LSN {lsn}: {source}")]
    Replay {
        /// The refused record.
        lsn: Lsn,
        /// The replay function's reason.
        #[source]
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl JournalError {
    /// An [`Io`](Self::Io) error from the operating system's.
    pub(crate) fn io(doing: &'static str, file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| Self::Io { doing, file, source: Arc::new(source) }
    }

    /// As [`io`](Self::io), of something that may be done again: [`Full`](Self::Full) if only space was missing.
    pub(crate) fn space(doing: &'static str, file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| {
            if is_full(&source) {
                Self::Full { doing, file, source: Arc::new(source) }
            } else {
                Self::io(doing, file)(source)
            }
        }
    }

    /// Whether only space was missing, so that the same may go well later.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io { source, .. } => is_full(source),
            _ => false,
        }
    }

    /// A [`Replaced`](Self::Replaced) error of a log that is sealed at `end` now, or not at all.
    pub(crate) fn replaced(log: String, last: Lsn, end: Option<Lsn>) -> Self {
        let found = end.map_or_else(|| "no end".to_owned(), |end| format!("an end at LSN {end}"));
        Self::Replaced { log, last, found }
    }

    /// A [`Store`](Self::Store) error from the object store's.
    pub(crate) fn store(
        doing: &'static str,
        object: &(impl ToString + ?Sized),
    ) -> impl FnOnce(object_store::Error) -> Self {
        let object = object.to_string();
        move |source| Self::Store { doing, object, source: Arc::new(source) }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
