//! One tenant's rows: the transaction manager over versions, the storage below, the log beside, the catalog within.

mod below;
mod catalogs;
mod gaps;
mod moving;
mod numbers;
mod replaying;
mod sweep;
mod temporary;
mod walk;

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    sync::Arc,
};

use bytes::Bytes;
use savanna_journal::Lsn;
use savanna_tenants_catalog::Catalog;
use savanna_tenants_values::error::Result;
use savanna_transaction::{
    Change, Commit, Committed, Csn, Direction, Event, HolderId, Isolation, KeyRange, Lock, RowLock, Savepoint, Seen,
    TransactionError, Transactions, TxnId, View, Wait,
};

pub use self::temporary::{TemporaryImage, is_temporary};
use self::{below::Below, gaps::Gaps, temporary::Temporary};
pub use self::{
    moving::DatabaseImage,
    replaying::{ReplayError, Replaying},
    sweep::Swept,
};
use crate::{
    Reading, Store, Want,
    fault::{Fault, Rules},
    flush::{Flushing, Unflushed},
    large::{Large, Parts},
    log::{self, InParts, Log},
    points,
    spills::Spills,
};

/// The bytes that a transaction may write whose writes are in its record.
pub const RECORD_BYTES_MAX: usize = 48 << 20;

/// Whom keys are given to, with their values; it may stop their coming.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

/// What came of something that may have to wait for a lock.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// It is done.
    Done(T),
    /// It waits, and has changed nothing. Ask again after the event for its transaction.
    Wait,
}

impl<T> Step<T> {
    /// The same step with what was made of its value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::Done(value) => Step::Done(f(value)),
            Self::Wait => Step::Wait,
        }
    }
}

/// The number of a session, unique in its tenant since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The rows of one tenant.
#[derive(Debug)]
pub struct Database {
    pub(crate) transactions: Transactions<Box<[u8]>>,
    pub(crate) store: Box<dyn Store>,
    log: Box<dyn Log>,
    /// Commits that are logged and perhaps not durable yet, in both orders at once.
    undurable: VecDeque<(Csn, Lsn)>,
    /// The last commit that the log has for certain.
    pub(crate) durable: Csn,
    pub(crate) unflushed: Unflushed,
    pub(crate) flushing: Flushing,
    pub(crate) large: Large,
    /// The catalog after each commit that changed it and that a snapshot may still need.
    catalogs: VecDeque<(Csn, Arc<Catalog>)>,
    own_catalog: Option<catalogs::OwnCatalog>,
    next_relation: u32,
    /// The next number of a row, for each table without primary key that was inserted into.
    next_numbers: HashMap<u32, i64>,
    /// Whether there may be keys that no table has.
    doomed: bool,
    /// Up to where these were removed.
    swept_to: Vec<u8>,
    /// The rules that a test has not switched off.
    pub rules: Rules,
    /// What the statement that runs has read of the storage.
    reading: Reading,
    /// What the tenant's own work has read of it.
    chores: Reading,
    /// The value that was found last in the storage.
    found: Bytes,
    gaps: Gaps,
    /// Where the storage has rows that memory may lack.
    pub(crate) below: Below,
    /// The session whose statement runs.
    session: SessionId,
    /// The temporary rows of sessions that have any.
    temporaries: HashMap<SessionId, Temporary>,
    next_temporary: u32,
    /// Where statements put rows that they have no memory for.
    spills: Option<Arc<Spills>>,
    /// Whether all rows, temporary ones too, are somebody else's and can only be [read](crate::pages).
    pub(crate) over_pages: bool,
}

impl Database {
    /// What the tenant's own work waits for is brought here.
    pub fn chores(&mut self) -> &mut Reading {
        &mut self.chores
    }

    /// Lets statements put rows into files that they have no memory for.
    pub fn spill_to(&mut self, spills: Arc<Spills>) {
        self.spills = Some(spills);
    }

    /// Where statements put rows that they have no memory for; without it they are refused then.
    pub fn spills(&self) -> Option<&Arc<Spills>> {
        self.spills.as_ref()
    }

    /// The reading of the statement that runs next, for that of the one before.
    pub fn swap_reading(&mut self, reading: Reading) -> Reading {
        std::mem::replace(&mut self.reading, reading)
    }

    /// What the statement that runs has read of the storage, and perhaps waits for.
    pub fn reading(&mut self) -> &mut Reading {
        &mut self.reading
    }

    /// Does work of the tenant's own; if a block is wanted for it, which.
    fn chore<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<std::result::Result<T, Want>> {
        let mut chores = std::mem::take(&mut self.chores);
        let done = self.read_with(&mut chores, work);
        if matches!(done, Ok(Err(_))) {
            self.chores = chores;
        }
        done
    }

    /// Does work with what was fetched for it; if a block is wanted for it, which.
    pub fn read_with<T>(
        &mut self,
        reading: &mut Reading,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<std::result::Result<T, Want>> {
        std::mem::swap(&mut self.reading, reading);
        let done = work(self);
        std::mem::swap(&mut self.reading, reading);
        match reading.wanted() {
            Some(want) => Ok(Err(want)),
            None => done.map(Ok),
        }
    }

    /// Begins a transaction.
    pub fn begin(&mut self, isolation: Isolation) -> TxnId {
        self.transactions.begin(isolation)
    }

    /// Begins a statement, after noting what has become durable.
    ///
    /// # Errors
    /// If the transaction does not live.
    pub fn statement(&mut self, txn: TxnId) -> Result<Csn> {
        self.note_durable()?;
        Ok(self.transactions.statement(txn)?)
    }

    /// Fails a transaction that is certain to fail when it commits; `first` is its first savepoint.
    pub fn refuse_overtaken(&mut self, txn: TxnId, first: Option<Savepoint>) -> Result<()> {
        match self.transactions.overtaken(txn, first)? {
            Some(conflict) => Err(TransactionError::from(conflict).into()),
            None => Ok(()),
        }
    }

    /// Ends a statement of a transaction, whose snapshot is given back at READ COMMITTED.
    pub fn end_statement(&mut self, txn: TxnId) -> Result<()> {
        Ok(self.transactions.end_statement(txn)?)
    }

    /// What a transaction sees of a key.
    ///
    /// # Errors
    /// If the transaction does not live.
    pub fn get(&mut self, txn: TxnId, key: &[u8]) -> Result<Option<&[u8]>> {
        if is_temporary(key) && !self.over_pages {
            return Ok(self.temporary().get(key));
        }
        let Self { transactions, store, below, reading, found, .. } = self;
        match transactions.get(txn, key)? {
            Seen::Here(value) => Ok(Some(value)),
            Seen::Gone => Ok(None),
            Seen::Below if lacks(&**store, below, key) => stored(&**store, key, reading, found),
            Seen::Below => Ok(None),
        }
    }

    /// Whether a key is there, for a constraint.
    pub fn probe(&mut self, txn: TxnId, key: &[u8]) -> Result<Option<&[u8]>> {
        self.expect_rows_here()?;
        if is_temporary(key) {
            return Ok(self.temporary().get(key));
        }
        let Self { transactions, store, below, reading, found, .. } = self;
        match transactions.probe(txn, key)? {
            Seen::Here(value) => Ok(Some(value)),
            Seen::Gone => Ok(None),
            Seen::Below if lacks(&**store, below, key) => stored(&**store, key, reading, found),
            Seen::Below => Ok(None),
        }
    }

    /// Visits the keys of a range as a transaction sees them, until it is told to stop. What was visited counts as read.
    ///
    /// # Errors
    /// Those of the visitor; and if the transaction does not live.
    pub fn scan(&mut self, txn: TxnId, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        self.scan_some(txn, range, (direction, usize::MAX), visit).map(drop)
    }

    /// The same, until it has passed so many keys, also of those that have gone. The last key, if it stopped.
    pub(crate) fn scan_some(
        &mut self,
        txn: TxnId,
        range: &KeyRange,
        (direction, keys_max): (Direction, usize),
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        if is_temporary(&range.start) && !self.over_pages {
            return self.temporary().walk(range, direction, visit);
        }
        let last = self.walk(txn, range, (direction, keys_max), visit)?;
        if self.rules.exclude(Fault::RangesAreNotReported) {
            let read = match (&last, direction) {
                (None, _) => range.clone(),
                (Some(last), _) if !self.rules.exclude(Fault::PassedKeysAreNotReported) => {
                    KeyRange { start: last.clone(), end: Some([&last[..], &[0]].concat()) }
                }
                (Some(last), Direction::Ascending) => {
                    KeyRange { start: range.start.clone(), end: Some([&last[..], &[0]].concat()) }
                }
                (Some(last), Direction::Descending) => KeyRange { start: last.clone(), end: range.end.clone() },
            };
            self.transactions.read_range(txn, read)?;
        }
        Ok(last)
    }

    /// Visits the keys of a range for a constraint, in order: all of the range counts, and only what comes or goes.
    pub fn probe_range(&mut self, txn: TxnId, range: &KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        self.expect_rows_here()?;
        if is_temporary(&range.start) {
            return self.temporary().walk(range, Direction::Ascending, visit).map(drop);
        }
        self.walk(txn, range, (Direction::Ascending, usize::MAX), visit)?;
        if self.rules.exclude(Fault::ChildrenAreNotProbed) {
            self.transactions.probe_range(txn, range.clone())?;
        }
        Ok(())
    }

    /// Whether a parent's key is there, and stays there until the transaction ends.
    pub fn hold_parent(&mut self, txn: TxnId, isolation: Isolation, key: &[u8]) -> Result<Step<bool>> {
        if !self.rules.exclude(Fault::ParentsAreNotHeld) {
            return Ok(Step::Done(self.get(txn, key)?.is_some()));
        }
        if isolation == Isolation::ReadCommitted && self.lock(txn, key, RowLock::KeyShare, Wait::Queue)? == Step::Wait {
            return Ok(Step::Wait);
        }
        Ok(Step::Done(self.probe(txn, key)?.is_some()))
    }

    /// Switches a rule off.
    #[cfg(feature = "faults")]
    pub fn break_rule(&mut self, fault: Fault) {
        self.rules.broken = Some(fault);
    }

    /// Locks a row; `Ok(false)` if it is somebody else's and the request was not to wait.
    pub fn lock(&mut self, txn: TxnId, key: &[u8], mode: RowLock, wait: Wait) -> Result<Step<bool>> {
        self.expect_rows_here()?;
        if is_temporary(key) {
            return Ok(Step::Done(true));
        }
        Ok(locked(self.transactions.lock(txn, key, mode, wait)?))
    }

    /// Somebody who holds locks over the ends of transactions.
    pub fn add_holder(&mut self) -> HolderId {
        self.transactions.add_holder()
    }

    /// Lets a transaction run for a holder.
    pub fn run_for(&mut self, txn: TxnId, holder: HolderId) -> Result<()> {
        self.expect_rows_here()?;
        Ok(self.transactions.run_for(txn, holder)?)
    }

    /// As [`lock`](Self::lock), for the transaction's holder.
    pub fn lock_for_holder(&mut self, txn: TxnId, key: &[u8], mode: RowLock, wait: Wait) -> Result<Step<bool>> {
        self.expect_rows_here()?;
        Ok(locked(self.transactions.lock_for_holder(txn, key, mode, wait)?))
    }

    /// Says which keys a holder holds from now on.
    pub fn settle<'k>(&mut self, holder: HolderId, keys: impl Iterator<Item = (&'k [u8], Option<RowLock>)>) {
        self.transactions.settle(holder, keys);
    }

    /// Gives back what a holder has.
    pub fn remove_holder(&mut self, holder: HolderId) {
        self.transactions.remove_holder(holder);
    }

    /// Keeps what the statement that runs sees.
    pub fn keep_view(&mut self, txn: TxnId) -> Result<View> {
        Ok(self.transactions.keep_view(txn)?)
    }

    /// Begins a statement that sees what was kept; whether that is still there.
    pub fn statement_in(&mut self, txn: TxnId, view: View) -> Result<bool> {
        self.note_durable()?;
        match self.transactions.statement_in(txn, view) {
            Ok(_) => Ok(true),
            Err(TransactionError::NoSnapshot(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives up what was kept.
    pub fn drop_view(&mut self, txn: TxnId, view: View) {
        self.transactions.drop_view(txn, view);
    }

    /// Writes a key, privately until the commit.
    ///
    /// # Errors
    /// If the transaction does not live or, at READ COMMITTED, has not locked the key.
    pub fn write(&mut self, txn: TxnId, key: &[u8], value: Option<Box<[u8]>>, change: Change) -> Result<()> {
        self.expect_rows_here()?;
        if is_temporary(key) {
            self.temporary().write(key, value);
            return Ok(());
        }
        Ok(self.transactions.write(txn, key, value, change)?)
    }

    /// A place in a transaction that it can go back to.
    pub fn savepoint(&mut self, txn: TxnId) -> Result<Savepoint> {
        Ok(self.transactions.savepoint(txn)?)
    }

    /// Undoes what a transaction has done since a savepoint.
    pub fn roll_back_to(&mut self, txn: TxnId, savepoint: Savepoint) -> Result<()> {
        Ok(self.transactions.roll_back_to(txn, savepoint)?)
    }

    /// Commits. The answer is the place in the log after which the client may hear of it.
    ///
    /// # Errors
    /// 40001 and 40P01, after which the transaction is over; those of the log.
    pub fn commit(&mut self, txn: TxnId) -> Result<Step<Lsn>> {
        self.commit_with(txn, &mut None)
    }

    /// The same, of a transaction whose writes are durable in parts, if there are any. They are taken, unless it has to wait.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_with(&mut self, txn: TxnId, parts: &mut Option<Parts>) -> Result<Step<Lsn>> {
        self.forget_own_catalog(txn);
        let outcome = self.transactions.commit(txn);
        if outcome.is_err() {
            self.transactions.abort(txn);
        }
        let committed = match outcome? {
            Commit::Waiting => return Ok(Step::Wait),
            Commit::ReadOnly(csn) => return Ok(Step::Done(self.logged_at(csn))),
            Commit::Committed(committed) => committed,
        };
        let (csn, keys) = (committed.csn(), committed.writes().count());
        let parts = parts.take();
        let appended = self.record_of(&committed, keys, parts.as_ref()).and_then(|(record, bytes)| {
            let lsn = self.log.append(&record)?;
            Ok((lsn, bytes))
        });
        let (lsn, bytes) = match appended {
            Ok(appended) => appended,
            Err(error) => {
                self.transactions.withdraw(committed);
                return Err(error);
            }
        };
        // From here on they are what the log has of it.
        if let Some(parts) = parts {
            points::reached("a large commit is in the log");
            self.keep_parts(csn, parts);
        }
        let catalog = self.changed_catalog(committed.writes());
        for (key, value) in committed.writes() {
            if value.is_some() && !self.gaps.is_empty() && self.rules.exclude(Fault::GapsAreNotFilled) {
                self.gaps.fill(key);
            }
        }
        self.transactions.install(committed);
        self.undurable.push_back((csn, lsn));
        self.unflushed.push(csn, lsn, (bytes, keys));
        if let Some(catalog) = catalog? {
            self.doomed = true;
            self.push_catalog(csn, catalog);
        }
        Ok(Step::Done(lsn))
    }

    /// The record of a commit, and how many bytes its writes are.
    fn record_of(
        &self,
        committed: &Committed<Box<[u8]>>,
        keys: usize,
        parts: Option<&Parts>,
    ) -> Result<(Vec<u8>, usize)> {
        let before = self.unflushed.last.max(self.store.flushed());
        let Some(parts) = parts else {
            let record = log::encode(before, committed);
            let bytes = record.len();
            return Ok((record, bytes));
        };
        parts.expect_keys(keys)?;
        let Parts { objects, keys, bytes, .. } = parts;
        let named = InParts { before, csn: committed.csn(), keys: *keys, bytes: *bytes, objects: objects.clone() };
        Ok((named.encode(), *bytes as usize))
    }

    /// Ends a transaction and all that it did.
    pub fn abort(&mut self, txn: TxnId) {
        self.forget_own_catalog(txn);
        self.transactions.abort(txn);
    }

    /// Ends a wait for a lock without it.
    pub fn cancel_wait(&mut self, txn: TxnId) -> Result<()> {
        Ok(self.transactions.cancel_wait(txn)?)
    }

    /// What happened to those who waited.
    pub fn events(&mut self) -> Vec<Event> {
        self.transactions.events().collect()
    }

    /// The place in the log after which a transaction's client may hear of what it has read.
    pub fn reply_after(&mut self, txn: TxnId) -> Result<Lsn> {
        let csn = self.transactions.reply_after(txn)?;
        Ok(self.logged_at(csn))
    }

    /// How much the transaction manager holds.
    #[must_use]
    pub fn counts(&self) -> savanna_transaction::Counts {
        self.transactions.counts()
    }

    /// Whether a commit came between a transaction's snapshot and now.
    pub fn is_behind(&self, snapshot: Csn) -> bool {
        snapshot < self.transactions.published()
    }

    /// Tells the transaction manager what the log has made durable.
    pub(crate) fn note_durable(&mut self) -> Result<()> {
        let durable = self.log.durable();
        while let Some((csn, _)) = self.undurable.pop_front_if(|(_, lsn)| *lsn <= durable) {
            self.durable = csn;
            self.transactions.durable(csn)?;
        }
        Ok(())
    }

    /// Where the first commit from one on is in the log that is not durable.
    pub(crate) fn logged_from(&self, csn: Csn) -> Lsn {
        let place = self.undurable.partition_point(|(other, _)| *other < csn);
        self.undurable.get(place).map_or(Lsn::NONE, |(_, lsn)| *lsn)
    }

    /// Where a commit is in the log, unless it is durable.
    pub(crate) fn logged_at(&self, csn: Csn) -> Lsn {
        let place = self.undurable.partition_point(|(other, _)| *other < csn);
        self.undurable.get(place).filter(|(other, _)| *other == csn).map_or(Lsn::NONE, |(_, lsn)| *lsn)
    }
}

fn locked(lock: Lock) -> Step<bool> {
    match lock {
        Lock::Granted { .. } => Step::Done(true),
        Lock::Busy => Step::Done(false),
        Lock::Waiting => Step::Wait,
    }
}

/// Whether memory may lack the row of a key that the storage has.
fn lacks(store: &dyn Store, below: &Below, key: &[u8]) -> bool {
    store.has_rows_of_others() || below.has(key)
}

/// A key's value in the storage, which is kept in `found`.
fn stored<'a>(store: &dyn Store, key: &[u8], reading: &mut Reading, found: &'a mut Bytes) -> Result<Option<&'a [u8]>> {
    let Some(value) = store.get(key, reading)? else { return Ok(None) };
    *found = value;
    Ok(Some(&*found))
}
