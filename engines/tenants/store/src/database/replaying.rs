//! A tenant's log as it is read back, before anybody uses the tenant.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use savanna_journal::Lsn;
use savanna_tenants_catalog::FIRST_RELATION;
use savanna_transaction::{Csn, Transactions};

use super::{Database, SessionId, below::Below, gaps::Gaps};
use crate::{
    Reading, Store,
    fault::Rules,
    flush::{Flushing, Unflushed},
    large::{Large, MAGIC},
    log::{self, InParts, Log, RecordError},
};

/// Why a tenant's log cannot be done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A commit's record is none.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A commit is neither in the log nor in the storage, though a later one names it.
    #[error(
        "expected commit {before} before commit {csn} of the tenant, found {found}: a part of the log or of the \
         tenant's segments was deleted. Nothing was changed; restore the log and the storage from one backup"
    )]
    Missing {
        /// The commit that is missing.
        before: Csn,
        /// Who names it.
        csn: Csn,
        /// The last one that is there.
        found: Csn,
    },
    /// The parts of a commit are not those that it was committed with.
    #[error(
        "expected {expected} keys in the parts of commit {csn}, found {found}: the log or these objects of the storage were changed. Restore \
         the log and the storage from one backup"
    )]
    Keys {
        /// The commit.
        csn: Csn,
        /// As its record says.
        expected: u64,
        /// As is in them.
        found: u64,
    },
    /// The log ends before what the storage has, though nothing comes there before it is in the log.
    #[error(
        "expected the tenant's commits up to {stored} in the log, because its segments contain them, found commits \
         up to {logged}: the end of the log was deleted, or the log was replaced by an older copy. Nothing was \
         changed; restore the log and the storage from one backup"
    )]
    LogBehind {
        /// The last commit in the storage.
        stored: Csn,
        /// The last one in the log.
        logged: Csn,
    },
}

/// A tenant's log as it is read back, before anybody uses the tenant.
#[derive(Debug)]
pub struct Replaying {
    pub(super) transactions: Transactions<Box<[u8]>>,
    pub(super) store: Box<dyn Store>,
    pub(super) unflushed: Unflushed,
    pub(super) large: Large,
    /// The last commit that was read, if any was.
    pub(super) logged: Option<Csn>,
}

impl Replaying {
    /// Over what is stored already.
    #[must_use]
    pub fn over(store: Box<dyn Store>) -> Self {
        let transactions = Transactions::recovered(store.flushed());
        let (unflushed, large) = (Unflushed::default(), Large::default());
        Self { transactions, store, unflushed, large, logged: None }
    }

    /// The commit of a record whose writes are in parts that are to be [brought](Self::redo_part), as the storage lacks it. Of others nothing is
    /// needed but the record.
    ///
    /// # Errors
    /// If it is no record of a commit, or the commit before it is missing.
    pub fn wants_parts(&mut self, record: &[u8]) -> Result<Option<InParts>, ReplayError> {
        let Some(named) = InParts::of(record)?.filter(|named| named.csn > self.store.flushed()) else {
            return Ok(None);
        };
        self.expect_before(named.before, named.csn)?;
        Ok(Some(named))
    }

    /// Does one of the parts of a commit again. How many keys it has.
    ///
    /// # Errors
    /// If it is none.
    pub fn redo_part(&mut self, named: &InParts, part: &[u8]) -> Result<u64, ReplayError> {
        if !part.starts_with(MAGIC) {
            return Err(RecordError { expected: "the beginning of a part", at: 0 }.into());
        }
        let mut keys = 0;
        log::decode_part(part, MAGIC.len(), |key, value| {
            keys += 1;
            self.transactions.replay(named.csn, key, value.map(Box::from));
        })?;
        Ok(keys)
    }

    /// All parts of a commit are done again, which have so many keys.
    ///
    /// # Errors
    /// If these are not all.
    pub fn redone(&mut self, lsn: Lsn, named: InParts, found: u64) -> Result<(), ReplayError> {
        let InParts { csn, keys: expected, bytes, objects, .. } = named;
        if found != expected {
            return Err(ReplayError::Keys { csn, expected, found });
        }
        self.logged = self.logged.max(Some(csn));
        self.unflushed.push(csn, lsn, (bytes as usize, expected as usize));
        self.large.push(csn, objects);
        Ok(())
    }

    /// The commit before another is there.
    fn expect_before(&self, before: Csn, csn: Csn) -> Result<(), ReplayError> {
        let found = self.logged.unwrap_or_else(|| self.store.flushed());
        if before > found { Err(ReplayError::Missing { before, csn, found }) } else { Ok(()) }
    }

    /// Does a commit's record again that is at a place in the log. What is there already changes nothing.
    ///
    /// # Errors
    /// If it is no record of a commit, or the commit before it is missing.
    pub fn redo(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), ReplayError> {
        if let Some(InParts { before, csn, .. }) =
            InParts::of(record)?.filter(|named| named.csn <= self.store.flushed())
        {
            self.expect_before(before, csn)?;
            self.logged = self.logged.max(Some(csn));
            return Ok(());
        }
        // A damaged record does nothing, rather than half of it.
        let mut keys = 0;
        let (before, csn) = log::decode(record, |_, _, _| keys += 1)?;
        self.expect_before(before, csn)?;
        self.logged = self.logged.max(Some(csn));
        log::decode(record, |csn, key, value| self.transactions.replay(csn, key, value.map(Box::from)))?;
        if csn > self.store.flushed() {
            self.unflushed.push(csn, lsn, (record.len(), keys));
        }
        Ok(())
    }

    /// The tenant, which logs from now on. It must be [loaded](Database::load) before anybody uses it.
    ///
    /// # Errors
    /// If the log ends before what the storage has.
    pub fn serve(self, log: Box<dyn Log>) -> Result<Database, ReplayError> {
        let Self { transactions, store, unflushed, large, logged } = self;
        let stored = store.flushed();
        if let Some(logged) = logged.filter(|logged| *logged < stored) {
            return Err(ReplayError::LogBehind { stored, logged });
        }
        let durable = unflushed.last.max(store.flushed());
        let below = if stored == Csn::NONE { Below::default() } else { Below::everywhere() };
        Ok(Database {
            transactions,
            store,
            log,
            undurable: VecDeque::new(),
            durable,
            unflushed,
            flushing: Flushing::default(),
            large,
            catalogs: VecDeque::new(),
            own_catalog: None,
            next_relation: FIRST_RELATION,
            next_numbers: HashMap::new(),
            doomed: true,
            swept_to: Vec::new(),
            rules: Rules::default(),
            reading: Reading::default(),
            chores: Reading::default(),
            found: Bytes::new(),
            gaps: Gaps::default(),
            below,
            session: SessionId(0),
            temporaries: HashMap::new(),
            next_temporary: FIRST_RELATION,
            spills: None,
            over_pages: false,
        })
    }
}
