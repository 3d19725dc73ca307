//! A tenant's log as it is read back, before anybody uses the tenant.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use savanna_journal::Lsn;
use savanna_transaction::Transactions;

use super::{Database, gaps::Gaps};
use crate::{
    catalog::FIRST_RELATION,
    fault::Rules,
    flush::{Flushing, Unflushed},
    log::{self, Log, RecordError},
    session::SessionId,
    store::{Reading, Store},
};

/// A tenant's log as it is read back, before anybody uses the tenant.
#[derive(Debug)]
pub struct Replaying {
    transactions: Transactions<Box<[u8]>>,
    store: Box<dyn Store>,
    unflushed: Unflushed,
}

impl Replaying {
    /// Over what is stored already.
    #[must_use]
    pub fn over(store: Box<dyn Store>) -> Self {
        Self { transactions: Transactions::recovered(store.flushed()), store, unflushed: Unflushed::default() }
    }

    /// Does a commit's record again that is at a place in the log. What is there already changes nothing.
    ///
    /// # Errors
    /// If it is no record of a commit.
    pub fn redo(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), RecordError> {
        // A damaged record does nothing, rather than half of it.
        let mut keys = 0;
        let csn = log::decode(record, |_, _, _| keys += 1)?;
        log::decode(record, |csn, key, value| self.transactions.replay(csn, key, value.map(Box::from)))?;
        if csn > self.store.flushed() {
            self.unflushed.push(csn, lsn, (record.len(), keys));
        }
        Ok(())
    }

    /// The tenant, which logs from now on. It must be [loaded](Database::load) before anybody uses it.
    #[must_use]
    pub fn serve(self, log: Box<dyn Log>) -> Database {
        let Self { transactions, store, unflushed } = self;
        let durable = unflushed.last.max(store.flushed());
        Database {
            transactions,
            store,
            log,
            undurable: VecDeque::new(),
            durable,
            unflushed,
            flushing: Flushing::default(),
            catalogs: VecDeque::new(),
            next_relation: FIRST_RELATION,
            next_numbers: HashMap::new(),
            doomed: true,
            swept_to: Vec::new(),
            rules: Rules::default(),
            reading: Reading::default(),
            chores: Reading::default(),
            found: Bytes::new(),
            gaps: Gaps::default(),
            session: SessionId(0),
            temporaries: HashMap::new(),
            next_temporary: FIRST_RELATION,
        }
    }
}
