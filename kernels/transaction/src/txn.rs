//! One transaction while it runs: what it keeps to itself.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use crate::{
    Csn, Isolation, RowLock, TransactionError, TxnId,
    reads::ReadSet,
    row::{NumberMap, Row},
    transaction::View,
    writes::{Write, WriteSet},
};

/// Every write of its own.
pub(crate) const ALL_WRITES: usize = usize::MAX;

/// A lock that a transaction has, over what it had before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) row: Row,
    pub(crate) before: Option<RowLock>,
}

/// Writes and locks that an ended transaction has room for whose memory is kept.
pub(crate) const SPARE_ENTRIES_MAX: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Txn<V> {
    pub(crate) isolation: Isolation,
    pub(crate) snapshot: Option<Csn>,
    pub(crate) waiting: bool,
    pub(crate) reads: ReadSet,
    pub(crate) writes: WriteSet<V>,
    /// In the order in which they were taken, so that a savepoint is a length.
    pub(crate) locks: Vec<Held>,
    /// The holder that it runs for.
    pub(crate) holder: Option<TxnId>,
    /// It sees what it wrote itself before there were so many writes.
    pub(crate) sees: usize,
    /// What it has kept to see again.
    pub(crate) views: Vec<View>,
    /// It was compared with the commits up to here before it commits.
    pub(crate) compared: Csn,
    /// The newest commit that it has read and that was not durable then. In a cell, because scans read on their own.
    pub(crate) reply_after: Cell<Csn>,
}

impl<V> Txn<V> {
    pub(crate) fn new(isolation: Isolation) -> Self {
        Self {
            isolation,
            snapshot: None,
            waiting: false,
            reads: ReadSet::default(),
            writes: WriteSet::default(),
            locks: Vec::new(),
            holder: None,
            sees: ALL_WRITES,
            views: Vec::new(),
            compared: Csn::NONE,
            reply_after: Cell::new(Csn::NONE),
        }
    }

    /// What it has written to a key and sees.
    pub(crate) fn own(&self, key: &[u8]) -> Option<&Write<V>> {
        self.writes.get(key, self.sees)
    }

    pub(crate) fn snapshot(&self, id: TxnId) -> Result<Csn, TransactionError> {
        self.snapshot.ok_or(TransactionError::NoSnapshot(id))
    }

    /// Whether it has more memory than another one is likely to need.
    pub(crate) fn is_large(&self) -> bool {
        self.writes.capacity() > SPARE_ENTRIES_MAX || self.locks.capacity() > SPARE_ENTRIES_MAX
    }

    /// Notes that what it says from now on depends on `csn`.
    pub(crate) fn depend(&self, csn: Csn, durable: Csn) {
        if csn > durable {
            self.reply_after.set(self.reply_after.get().max(csn));
        }
    }

    /// Whether it is compared with others when it commits.
    pub(crate) fn is_validated(&self) -> bool {
        self.isolation != Isolation::ReadCommitted
    }
}

/// The transaction that a call is about, if it lives and does not wait.
pub(crate) fn running<V>(txns: &mut NumberMap<TxnId, Box<Txn<V>>>, id: TxnId) -> Result<&mut Txn<V>, TransactionError> {
    match txns.get_mut(&id) {
        Some(txn) if txn.waiting => Err(TransactionError::Waiting(id)),
        Some(txn) => Ok(txn),
        None => Err(TransactionError::Unknown(id)),
    }
}
