//! What of a tenant's rows is neither in its storage nor in a log, for the node that goes on with them: open transactions, their locks, and numbers that were
//! given out. The rows themselves come out of the storage, and what that lacks out of the new node's log.
//!
//! ```text
//!  storage: all up to F     tail: commits behind F     image: transactions, reads, locks
//! ```
//!
//! F is never newer than the oldest snapshot in use, so that each snapshot finds there, or in the tail, what it has seen.

use std::collections::BTreeMap;

use bytes::Bytes;
use savanna_journal::Lsn;
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::{ImageError, QueuePlace, Transactions, TxnId};
use serde::{Deserialize, Serialize};

use super::{Database, ReplayError, Replaying};
use crate::{
    Store,
    flush::{Flushing, Unflushed},
    large::Large,
    log,
};

/// What another node needs beside the storage and the log to go on with a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseImage {
    transactions: Vec<u8>,
    /// How often somebody came to wait for a lock.
    arrivals: u64,
    next_relation: u32,
    next_numbers: BTreeMap<u32, i64>,
    next_temporary: u32,
}

impl DatabaseImage {
    /// The transactions that live in it.
    ///
    /// # Errors
    /// XX001 if these are not what somebody exported.
    pub fn living(&self) -> Result<Vec<TxnId>> {
        Ok(self.transactions()?.living())
    }

    fn transactions(&self) -> Result<Transactions<Box<[u8]>>> {
        Transactions::import(&self.transactions).map_err(|error| damaged(&error))
    }
}

/// What is written under a key; nothing if it is deleted.
type Written = Option<Box<[u8]>>;

fn damaged(error: &ImageError) -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, format!("the image of a database's transactions cannot be read: {error}"))
}

impl Replaying {
    /// Over what is stored already, with transactions that another node had.
    ///
    /// # Errors
    /// XX001 if the image is none.
    pub fn taking_over(store: Box<dyn Store>, image: &DatabaseImage) -> Result<Self> {
        let mut transactions = image.transactions()?;
        transactions.count_on(image.arrivals);
        let (unflushed, large) = (Unflushed::default(), Large::default());
        Ok(Self { transactions, store, unflushed, large, logged: None })
    }
}

impl Database {
    /// Whether the storage has everything that it may have now: what is newer than the oldest snapshot in use has to wait.
    #[must_use]
    pub fn is_written_down(&self) -> bool {
        // Numbers that were given up are nothing to write down.
        let due = self.transactions.horizon().min(self.unflushed.last);
        matches!(self.flushing, Flushing::Idle)
            && (self.unflushed.first().is_none() || due <= self.store.flushed().max(self.unflushed.upto()))
    }

    /// Whether all that the storage lacks fits into a [tail](Self::tail) of so many bytes of records, and nothing of it is on its way to the storage.
    #[must_use]
    pub fn fits_tail(&self, bytes_max: u64) -> bool {
        matches!(self.flushing, Flushing::Idle) && self.unflushed_bytes() <= bytes_max
    }

    /// The place of a transaction among those who wait for the same lock, if it waits, or has it [again](Self::keep_place) and has not asked for the lock since.
    #[must_use]
    pub fn place(&self, txn: TxnId) -> Option<QueuePlace> {
        self.transactions.queue_place(txn)
    }

    /// A transaction that had such a place comes before whoever came later when it asks for the same lock again.
    pub fn keep_place(&mut self, txn: TxnId, place: QueuePlace) {
        self.transactions.keep_place(txn, place);
    }

    /// The statement is over for which a transaction had such a place.
    pub fn forget_place(&mut self, txn: TxnId) {
        self.transactions.forget_place(txn);
    }

    /// The last commit that the storage may have now, if it has been made durable.
    #[must_use]
    pub fn may_be_stored(&self) -> savanna_transaction::Csn {
        self.transactions.horizon()
    }

    /// Where the last commit is in the log, if it may not be durable yet.
    #[must_use]
    pub fn last_logged(&self) -> Lsn {
        self.undurable.back().map_or(Lsn::NONE, |(_, lsn)| *lsn)
    }

    /// The records of the commits that the storage lacks, oldest first, with what anybody can see of them.
    #[must_use]
    pub fn tail(&self) -> Vec<Vec<u8>> {
        let mut before = self.store.flushed();
        let mut tail = Vec::new();
        for (csn, writes) in self.transactions.committed_since(before) {
            let writes = writes.into_iter().map(|(key, value)| (key, value.map(|value| &**value)));
            tail.push(log::encode_writes(before, csn, writes));
            before = csn;
        }
        tail
    }

    /// What another node goes on with. Nothing changes here.
    ///
    /// # Errors
    /// 55006 while a commit is not durable.
    pub fn image(&mut self) -> Result<DatabaseImage> {
        self.note_durable()?;
        let transactions = self.transactions.export_without_rows();
        let transactions =
            transactions.map_err(|error| SqlError::new("55006", format!("the database cannot leave yet: {error}")))?;
        let next_numbers = self.next_numbers.iter().map(|(relation, next)| (*relation, *next)).collect();
        let (next_relation, next_temporary) = (self.next_relation, self.next_temporary);
        let arrivals = self.transactions.arrivals();
        Ok(DatabaseImage { transactions, arrivals, next_relation, next_numbers, next_temporary })
    }

    /// Goes on where another node was: over the storage, of which the catalog was [loaded](Self::load) and nothing else was read, with the commits
    /// that it lacks, which are in this log.
    ///
    /// # Errors
    /// XX001 if a record is none, or one is missing.
    pub fn go_on(&mut self, image: &DatabaseImage, tail: &[(Lsn, Bytes)]) -> Result<()> {
        let flushed = self.store.flushed();
        // What was read is what the storage has.
        self.catalogs.iter_mut().for_each(|(csn, _)| *csn = flushed);
        let mut last = flushed;
        for (lsn, record) in tail {
            let mut writes: Vec<(Box<[u8]>, Written)> = Vec::new();
            let decoded = log::decode(record, |_, key, value| writes.push((key.into(), value.map(Box::from))));
            let (before, csn) = decoded.map_err(refused)?;
            if before > last {
                return Err(refused(ReplayError::Missing { before, csn, found: last }));
            }
            last = last.max(csn);
            if csn <= flushed {
                continue;
            }
            let catalog = self.changed_catalog(writes.iter().map(|(key, value)| (&**key, value.as_ref())))?;
            self.unflushed.push(csn, *lsn, (record.len(), writes.len()));
            for (key, value) in writes {
                self.transactions.replay(csn, &key, value);
            }
            if let Some(catalog) = catalog {
                self.push_catalog(csn, catalog);
            }
        }
        self.durable = self.unflushed.last.max(flushed);
        self.next_relation = self.next_relation.max(image.next_relation);
        self.next_temporary = self.next_temporary.max(image.next_temporary);
        self.next_numbers.extend(image.next_numbers.iter().map(|(relation, next)| (*relation, *next)));
        Ok(())
    }
}

fn refused(error: impl Into<ReplayError>) -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, error.into().to_string())
}
