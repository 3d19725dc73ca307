//! Why a transaction cannot go on: reasons as data, which a face turns into its protocol's errors.

use crate::{Csn, TxnId};

/// What a commit met that came between a transaction's snapshot and itself. The transaction may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("commit {with} changed something that the transaction {kind}, after the transaction's snapshot; try again")]
pub struct Conflict {
    /// What was changed.
    pub kind: ConflictKind,
    /// The commit that changed it. It may be given up yet, if it was still being decided.
    pub with: Csn,
}

/// Which part of a transaction a concurrent commit met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// A row that it writes or locks: the first committer won.
    Write,
    /// A row that it read by key.
    Read,
    /// A range of keys that it read: a row in it came, went or changed.
    Range,
    /// A row whose presence or absence a constraint was checked against.
    Probe,
}

impl std::fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Write => "writes",
            Self::Read => "read",
            Self::Range => "scanned",
            Self::Probe => "checked a constraint against",
        })
    }
}

/// Why a call was refused. Except after [`Conflict`](Self::Conflict) out of a commit, the transaction lives on until it
/// is rolled back, to a savepoint or altogether.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// A concurrent commit came first (SQLSTATE 40001).
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Waiting for a lock closed a circle, and this transaction is the youngest in it (SQLSTATE 40P01).
    #[error("transaction {0} waits for others that wait for it, and is the youngest of them; roll back and try again")]
    Deadlock(TxnId),
    /// There is no such transaction.
    #[error("expected a running transaction, came {0}, which has ended or never began; begin another")]
    Unknown(TxnId),
    /// It waits for a lock.
    #[error("transaction {0} waits for a lock; wait for its event, or cancel the wait first")]
    Waiting(TxnId),
    /// No statement has begun, so there is no snapshot to read from.
    #[error("transaction {0} has no snapshot; begin a statement first")]
    NoSnapshot(TxnId),
    /// A write at READ COMMITTED whose row is not locked strongly enough.
    #[error("transaction {0} writes a row that it has not locked; lock it first, READ COMMITTED has no validation")]
    NotLocked(TxnId),
    /// A savepoint behind the state that it was rolled back to.
    #[error("expected a valid savepoint, came one that transaction {0} rolled back; name an earlier one")]
    NoSavepoint(TxnId),
    /// A commit that was never numbered.
    #[error("expected a commit that was numbered, came {0}; report each commit under its own number")]
    UnknownCsn(Csn),
}

/// Commits are on their way, so that what there is cannot be written down yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected every commit up to {last} to be published and durable, came {told}; drain the commits first")]
pub struct NotDrained {
    /// The commit numbered last.
    pub last: Csn,
    /// Commits up to here are published and durable.
    pub told: Csn,
}

/// Bytes that are no image of a transaction manager.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Of a version that this release does not know.
    #[error("expected an image in version 1 to {known}, came version {found}; move to a node of that release, or a later one", known = crate::IMAGE_VERSION)]
    Version {
        /// The version that came.
        found: u8,
    },
    /// Cut short, too long, or no image at all.
    #[error("expected a whole image, came {came} bytes: {reason}; send it again")]
    Malformed {
        /// How many bytes there were.
        came: usize,
        /// What is wrong with them.
        reason: String,
    },
    /// Its parts contradict each other.
    #[error("expected an image whose parts agree, came one where {0}; give the move up")]
    Inconsistent(&'static str),
    /// A value that has no form.
    #[error("expected values that can be encoded, came one that cannot: {0}; give its type a serde form of plain data")]
    Unrepresentable(String),
    /// Commits are on their way.
    #[error(transparent)]
    NotDrained(#[from] NotDrained),
}
