//! What a caller says to a transaction and hears of it.

use serde::{Deserialize, Serialize};

use crate::{Csn, TxnId};

/// What a transaction is kept apart from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// Each statement sees what was committed when it began. Writers lock rows on the way and wait for each other;
    /// nothing is validated. (Adya's PL-2; PostgreSQL's default.)
    ReadCommitted,
    /// The transaction sees what was committed when its first statement began; of two that write the same row the first
    /// to commit wins. (Snapshot isolation; PostgreSQL's REPEATABLE READ.)
    Snapshot,
    /// As if transactions ran one after the other, in the order of their numbers: what was read, ranges included, must
    /// not have changed when it commits. Also in the order in which clients hear of commits. (Adya's PL-3, strict.)
    Serializable,
}

/// The answer to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is held.
    Granted {
        /// Whether the row was written since the snapshot: read it again and look whether it still qualifies.
        changed: bool,
    },
    /// It is queued for; an [`Event`] follows.
    Waiting,
    /// Somebody else has it, or waits for it, and the request was not to wait.
    Busy,
}

/// What became of one who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// It has its lock: ask again, with the same request.
    Granted(TxnId),
    /// It waited in a circle and was the youngest there. It does not wait any more; roll it back, to a savepoint before
    /// the locks that others wait for or altogether.
    Deadlocked(TxnId),
}

/// What a statement of a transaction saw: a snapshot under the transaction's writes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    pub(crate) snapshot: Csn,
    pub(crate) writes: usize,
}

impl View {
    /// The snapshot under the transaction's own writes.
    #[must_use]
    pub const fn snapshot(self) -> Csn {
        self.snapshot
    }

    /// Whether the transaction had written more than at a savepoint, so that a roll back to it ends the view.
    #[must_use]
    pub fn is_behind(self, savepoint: Savepoint) -> bool {
        self.writes > savepoint.writes
    }
}

/// A place in a transaction to roll back to. It belongs to that transaction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Savepoint {
    pub(crate) writes: usize,
    pub(crate) locks: usize,
}
