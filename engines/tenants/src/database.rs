//! One tenant's rows: the transaction manager over versions, the storage below, the log beside, the catalog within.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    sync::Arc,
};

use bytes::Bytes;
use savanna_journal::Lsn;
use savanna_tenants_encoding::{KeyReader, Order};
use savanna_transaction::{
    Change, Commit, Csn, Direction, Event, Isolation, KeyRange, Lock, RowLock, Savepoint, Seen, Transactions, TxnId,
    Wait,
};

use crate::{
    catalog::{Catalog, DOOMED, FIRST_RELATION, OBJECTS, SEQUENCES, Sequence, sequence_key},
    error::{Result, SqlError, state},
    fault::Rules,
    flush::{Flushing, Unflushed},
    log::{self, Log, RecordError},
    row,
    sequence::{Reserved, exhausted, left},
    store::{Reading, Store, Want},
};

/// The bytes that one transaction may write.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 48 << 20;

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
    pub fn redo(&mut self, lsn: Lsn, record: &[u8]) -> std::result::Result<(), RecordError> {
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
        Database {
            transactions,
            store,
            log,
            undurable: VecDeque::new(),
            unflushed,
            flushing: Flushing::default(),
            catalogs: VecDeque::new(),
            next_relation: FIRST_RELATION,
            next_numbers: HashMap::new(),
            doomed: true,
            rules: Rules::default(),
            reading: Reading::default(),
            chores: Reading::default(),
            found: Bytes::new(),
        }
    }
}

/// What came of [`Database::sweep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// There is nothing more.
    Clean,
    /// There is more.
    More,
    /// There is more when this was brought.
    Wants(Want),
}

/// The rows of one tenant.
#[derive(Debug)]
pub struct Database {
    pub(crate) transactions: Transactions<Box<[u8]>>,
    pub(crate) store: Box<dyn Store>,
    log: Box<dyn Log>,
    /// Commits that are logged and perhaps not durable yet, in both orders at once.
    undurable: VecDeque<(Csn, Lsn)>,
    pub(crate) unflushed: Unflushed,
    pub(crate) flushing: Flushing,
    /// The catalog after each commit that changed it and that a snapshot may still need.
    catalogs: VecDeque<(Csn, Arc<Catalog>)>,
    next_relation: u32,
    /// The next number of a row, for each table without primary key that was inserted into.
    next_numbers: HashMap<u32, i64>,
    /// Whether there may be keys that no table has.
    doomed: bool,
    rules: Rules,
    /// What the statement that runs has read of the storage.
    reading: Reading,
    /// What the tenant's own work has read of it.
    chores: Reading,
    /// The value that was found last in the storage.
    found: Bytes,
}

impl Database {
    /// Reads the catalog. If a block is wanted for that, give it to [`chores`](Self::chores) and ask again.
    ///
    /// # Errors
    /// XX001 if the catalog cannot be read.
    pub fn load(&mut self) -> Result<Option<Want>> {
        self.chore(Self::read_whole_catalog).map(|loaded| loaded.err())
    }

    fn read_whole_catalog(&mut self) -> Result<()> {
        let reader = self.begin(Isolation::ReadCommitted);
        let at = self.statement(reader)?;
        let read = self.read_catalog_below(reader).and_then(|catalog| {
            // A number is not given again while there are keys with it, though no table has them any more; nor one under
            // which a sequence is kept that was never committed.
            let taken = [self.doomed_relations(reader)?, self.numbered(reader, SEQUENCES)?].concat();
            Ok((catalog, taken))
        });
        self.abort(reader);
        let (catalog, taken) = read?;
        let last = catalog.numbers().chain(taken.into_iter().map(|(number, _)| number)).max();
        self.next_relation = last.map_or(FIRST_RELATION, |last| last.saturating_add(1));
        self.catalogs.push_back((at, Arc::new(catalog)));
        Ok(())
    }

    /// What the tenant's own work waits for is brought here.
    pub fn chores(&mut self) -> &mut Reading {
        &mut self.chores
    }

    /// The reading of the statement that runs next, for that of the one before.
    pub(crate) fn swap_reading(&mut self, reading: Reading) -> Reading {
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
    pub(crate) fn read_with<T>(
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

    pub(crate) fn end_statement(&mut self, txn: TxnId) -> Result<()> {
        Ok(self.transactions.end_statement(txn)?)
    }

    /// What a transaction sees of a key.
    ///
    /// # Errors
    /// If the transaction does not live.
    pub fn get(&mut self, txn: TxnId, key: &[u8]) -> Result<Option<&[u8]>> {
        let Self { transactions, store, reading, found, .. } = self;
        match transactions.get(txn, key)? {
            Seen::Here(value) => Ok(Some(value)),
            Seen::Gone => Ok(None),
            Seen::Below => below(&**store, key, reading, found),
        }
    }

    /// Whether a key is there, for a constraint.
    pub(crate) fn probe(&mut self, txn: TxnId, key: &[u8]) -> Result<Option<&[u8]>> {
        let Self { transactions, store, reading, found, .. } = self;
        match transactions.probe(txn, key)? {
            Seen::Here(value) => Ok(Some(value)),
            Seen::Gone => Ok(None),
            Seen::Below => below(&**store, key, reading, found),
        }
    }

    /// Visits the keys of a range as a transaction sees them, until it is told to stop. What was visited counts as read.
    ///
    /// # Errors
    /// Those of the visitor; and if the transaction does not live.
    pub fn scan(&mut self, txn: TxnId, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let read = match (self.walk(txn, range, direction, visit)?, direction) {
            (None, _) => range.clone(),
            (Some(mut last), Direction::Ascending) => {
                last.push(0);
                KeyRange { start: range.start.clone(), end: Some(last) }
            }
            (Some(last), Direction::Descending) => KeyRange { start: last, end: range.end.clone() },
        };
        Ok(self.transactions.read_range(txn, read)?)
    }

    /// Visits the keys of a range for a constraint, in order: all of the range counts, and only what comes or goes.
    pub(crate) fn probe_range(&mut self, txn: TxnId, range: &KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        self.walk(txn, range, Direction::Ascending, visit)?;
        if self.rules.probe_children() {
            self.transactions.probe_range(txn, range.clone())?;
        }
        Ok(())
    }

    /// Whether a parent's key is there, and stays there until the transaction ends.
    pub(crate) fn hold_parent(&mut self, txn: TxnId, isolation: Isolation, key: &[u8]) -> Result<Step<bool>> {
        if !self.rules.hold_parents() {
            return Ok(Step::Done(self.get(txn, key)?.is_some()));
        }
        if isolation == Isolation::ReadCommitted && self.lock(txn, key, RowLock::KeyShare, Wait::Queue)? == Step::Wait {
            return Ok(Step::Wait);
        }
        Ok(Step::Done(self.probe(txn, key)?.is_some()))
    }

    /// Switches a rule off.
    #[cfg(feature = "faults")]
    pub fn break_rule(&mut self, fault: crate::fault::Fault) {
        self.rules.broken = Some(fault);
    }

    /// Visits the keys of a range until it is told to stop: the last key then.
    fn walk(
        &mut self,
        txn: TxnId,
        range: &KeyRange,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        if range.is_empty() {
            return Ok(None);
        }
        let mut above = self.transactions.peek(txn, range, direction)?.peekable();
        let mut below = self.store.scan(range, direction, &mut self.reading);
        let mut more = below.step()?;
        loop {
            let order = match (above.peek(), more) {
                (None, false) => return Ok(None),
                (Some(_), false) => std::cmp::Ordering::Less,
                (None, true) => std::cmp::Ordering::Greater,
                (Some((a, _)), true) if direction == Direction::Ascending => (*a).cmp(below.key()),
                (Some((a, _)), true) => below.key().cmp(a),
            };
            let seen = if order.is_le() { above.next() } else { None };
            let row = match seen {
                Some((key, Seen::Here(value))) => Some((key, &**value)),
                Some((_, Seen::Gone)) => None,
                Some((_, Seen::Below)) | None => order.is_ge().then(|| (below.key(), below.value())),
            };
            if let Some((key, value)) = row
                && visit(key, value)?.is_break()
            {
                return Ok(Some(key.to_vec()));
            }
            if order.is_ge() {
                more = below.step()?;
            }
        }
    }

    /// Locks a row; `Ok(false)` if it is somebody else's and the request was not to wait.
    pub(crate) fn lock(&mut self, txn: TxnId, key: &[u8], mode: RowLock, wait: Wait) -> Result<Step<bool>> {
        Ok(match self.transactions.lock(txn, key, mode, wait)? {
            Lock::Granted { .. } => Step::Done(true),
            Lock::Busy => Step::Done(false),
            Lock::Waiting => Step::Wait,
        })
    }

    /// Writes a key, privately until the commit.
    ///
    /// # Errors
    /// If the transaction does not live or, at READ COMMITTED, has not locked the key.
    pub fn write(&mut self, txn: TxnId, key: &[u8], value: Option<Box<[u8]>>, change: Change) -> Result<()> {
        Ok(self.transactions.write(txn, key, value, change)?)
    }

    pub(crate) fn savepoint(&mut self, txn: TxnId) -> Result<Savepoint> {
        Ok(self.transactions.savepoint(txn)?)
    }

    pub(crate) fn roll_back_to(&mut self, txn: TxnId, savepoint: Savepoint) -> Result<()> {
        Ok(self.transactions.roll_back_to(txn, savepoint)?)
    }

    /// Commits. The answer is the place in the log after which the client may hear of it.
    ///
    /// # Errors
    /// 40001 and 40P01, after which the transaction is over; those of the log.
    pub fn commit(&mut self, txn: TxnId) -> Result<Step<Lsn>> {
        let outcome = self.transactions.commit(txn);
        if outcome.is_err() {
            self.transactions.abort(txn);
        }
        let committed = match outcome? {
            Commit::Waiting => return Ok(Step::Wait),
            Commit::ReadOnly(csn) => return Ok(Step::Done(self.logged_at(csn))),
            Commit::Committed(committed) => committed,
        };
        let record = log::encode(&committed);
        let lsn = match self.log.append(&record) {
            Ok(lsn) => lsn,
            Err(error) => {
                self.transactions.withdraw(committed);
                return Err(error.into());
            }
        };
        let (csn, keys) = (committed.csn(), committed.writes().count());
        let catalog = self.changed_catalog(committed.writes());
        self.transactions.install(committed);
        self.undurable.push_back((csn, lsn));
        self.unflushed.push(csn, lsn, (record.len(), keys));
        if let Some(catalog) = catalog? {
            self.doomed = true;
            self.push_catalog(csn, catalog);
        }
        Ok(Step::Done(lsn))
    }

    /// Ends a transaction and all that it did.
    pub fn abort(&mut self, txn: TxnId) {
        self.transactions.abort(txn);
    }

    /// Ends a wait for a lock without it.
    pub(crate) fn cancel_wait(&mut self, txn: TxnId) -> Result<()> {
        Ok(self.transactions.cancel_wait(txn)?)
    }

    /// What happened to those who waited.
    pub fn events(&mut self) -> Vec<Event> {
        self.transactions.events().collect()
    }

    /// The place in the log after which a transaction's client may hear of what it has read.
    pub(crate) fn reply_after(&mut self, txn: TxnId) -> Result<Lsn> {
        let csn = self.transactions.reply_after(txn)?;
        Ok(self.logged_at(csn))
    }

    /// Removes at most so many keys that no table has any more.
    ///
    /// # Errors
    /// Those of the log and of the storage.
    pub fn sweep(&mut self, keys_max: usize) -> Result<Swept> {
        if !self.doomed {
            return Ok(Swept::Clean);
        }
        let txn = self.begin(Isolation::Snapshot);
        let swept = self.chore(|database| database.sweep_in(txn, keys_max));
        // Committed or not, it is over.
        self.abort(txn);
        Ok(match swept? {
            Ok(true) => Swept::More,
            Ok(false) => Swept::Clean,
            Err(want) => Swept::Wants(want),
        })
    }

    fn sweep_in(&mut self, txn: TxnId, keys_max: usize) -> Result<bool> {
        self.statement(txn)?;
        let mut more = false;
        let mut keys = Vec::new();
        for (relation, mark) in self.doomed_relations(txn)? {
            self.scan(txn, &row::whole(relation), Direction::Ascending, &mut |key, _| {
                let more = keys.len() < keys_max;
                if more {
                    keys.push(key.to_vec());
                }
                Ok(if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            if keys.len() == keys_max {
                more = true;
                break;
            }
            keys.push(mark);
        }
        for key in keys {
            self.write(txn, &key, None, Change::Existence)?;
        }
        // If somebody has a lock there, another time will do.
        if matches!(self.commit(txn)?, Step::Wait) {
            return Ok(false);
        }
        self.doomed = more;
        Ok(more)
    }

    /// The numbers of keys that no table has any more, with the keys of their marks.
    fn doomed_relations(&mut self, txn: TxnId) -> Result<Vec<(u32, Vec<u8>)>> {
        self.numbered(txn, DOOMED)
    }

    /// The keys of a table of the catalog, with the numbers that they are of.
    fn numbered(&mut self, txn: TxnId, relation: u32) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut found = Vec::new();
        self.scan(txn, &row::whole(relation), Direction::Ascending, &mut |key, _| {
            let mut reader = KeyReader::new(key)?;
            found.push((reader.int64(Order::Ascending)?.unwrap_or_default() as u32, key.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// How much the transaction manager holds.
    #[must_use]
    pub fn counts(&self) -> savanna_transaction::Counts {
        self.transactions.counts()
    }

    /// The catalog that a snapshot sees.
    ///
    /// # Errors
    /// XX000 if it was forgotten, which cannot be.
    pub(crate) fn catalog(&self, snapshot: Csn) -> Result<Arc<Catalog>> {
        let found = self.catalogs.iter().rev().find(|(csn, _)| *csn <= snapshot);
        let (_, catalog) =
            found.ok_or_else(|| SqlError::internal(format_args!("no catalog is as old as {snapshot}")))?;
        Ok(Arc::clone(catalog))
    }

    /// The catalog after the last commit.
    pub(crate) fn newest_catalog(&self) -> Arc<Catalog> {
        self.catalogs.back().map(|(_, catalog)| Arc::clone(catalog)).unwrap_or_default()
    }

    /// The catalog as a transaction that changes it sees it. All of it is in memory.
    pub(crate) fn read_catalog(&mut self, txn: TxnId, snapshot: Csn) -> Result<Catalog> {
        let mut catalog = Catalog::clone(&*self.catalog(snapshot)?);
        for (key, seen) in self.transactions.peek(txn, &row::whole(OBJECTS), Direction::Ascending)? {
            match seen {
                Seen::Here(value) => catalog.apply(key, Some(value))?,
                Seen::Gone => catalog.apply(key, None)?,
                Seen::Below => {}
            }
        }
        self.transactions.read_range(txn, row::whole(OBJECTS))?;
        Ok(catalog)
    }

    /// The catalog as it is stored.
    fn read_catalog_below(&mut self, txn: TxnId) -> Result<Catalog> {
        let mut catalog = Catalog::default();
        self.scan(txn, &row::whole(OBJECTS), Direction::Ascending, &mut |key, value| {
            catalog.apply(key, Some(value))?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(catalog)
    }

    /// Whether a commit came between a transaction's snapshot and now.
    pub(crate) fn is_behind(&self, snapshot: Csn) -> bool {
        snapshot < self.transactions.published()
    }

    /// A number for a new table or index. One that is not used is lost.
    pub(crate) fn new_relation(&mut self) -> Result<u32> {
        let relation = self.next_relation;
        let more = || SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "there were too many tables in this database");
        self.next_relation = relation.checked_add(1).ok_or_else(more)?;
        Ok(relation)
    }

    /// Reserves numbers of a sequence, in a transaction of its own.
    pub(crate) fn reserve(&mut self, sequence: &Sequence, count: u64) -> Result<Reserved> {
        let mut first = 0;
        let mut reserved = 0;
        let logged = self.move_sequence(sequence, &mut |next| {
            let begin = if sequence.increment > 0 { sequence.min } else { sequence.max };
            first = if left(sequence, next) == 0 && sequence.cycle { i128::from(begin) } else { next };
            reserved = count.min(left(sequence, first));
            if reserved == 0 {
                return Err(exhausted(sequence));
            }
            Ok(first + i128::from(reserved) * i128::from(sequence.increment))
        })?;
        Ok(Reserved { first, count: reserved, logged })
    }

    /// Lets a sequence go on with a number, in a transaction of its own.
    pub(crate) fn set_sequence(&mut self, sequence: &Sequence, next: i128) -> Result<Lsn> {
        self.move_sequence(sequence, &mut |_| Ok(next))
    }

    /// The number that a sequence goes on with, as far as a transaction sees it.
    pub(crate) fn sequence_next(&mut self, txn: TxnId, sequence: &Sequence) -> Result<i128> {
        let Some(bytes) = self.get(txn, &sequence_key(sequence.state))? else { return Ok(sequence.first) };
        let damaged = || SqlError::new(state::DATA_CORRUPTED, "a sequence's row is damaged");
        Ok(i128::from_le_bytes(bytes.try_into().map_err(|_| damaged())?))
    }

    fn move_sequence(&mut self, sequence: &Sequence, next: &mut dyn FnMut(i128) -> Result<i128>) -> Result<Lsn> {
        let txn = self.begin(Isolation::ReadCommitted);
        let moved = self.move_sequence_in(txn, sequence, next);
        // Committed or not, it is over.
        self.abort(txn);
        moved
    }

    fn move_sequence_in(
        &mut self,
        txn: TxnId,
        sequence: &Sequence,
        next: &mut dyn FnMut(i128) -> Result<i128>,
    ) -> Result<Lsn> {
        self.statement(txn)?;
        let busy = || SqlError::new(state::LOCK_NOT_AVAILABLE, "the sequence is being changed or dropped");
        let key = sequence_key(sequence.state);
        if self.lock(txn, &key, RowLock::Update, Wait::Never)? != Step::Done(true) {
            return Err(busy());
        }
        let next = next(self.sequence_next(txn, sequence)?)?;
        self.write(txn, &key, Some(Box::from(next.to_le_bytes())), Change::Existence)?;
        match self.commit(txn)? {
            Step::Done(logged) => Ok(logged),
            Step::Wait => Err(busy()),
        }
    }

    /// A number for a new row of a table without primary key. One that is not used is lost.
    pub(crate) fn new_row_number(&mut self, txn: TxnId, relation: u32) -> Result<i64> {
        if !self.next_numbers.contains_key(&relation) {
            // Nobody has inserted into the table since the process began, so that a snapshot of now sees all rows.
            let all = row::whole(relation);
            let newest = self.transactions.begin(Isolation::ReadCommitted);
            self.transactions.statement(newest)?;
            let mut found = None;
            for reader in [newest, txn] {
                let above = self.transactions.peek(reader, &all, Direction::Descending)?;
                found = found.max(above.map(|(key, _)| key.to_vec()).next());
            }
            let mut below = self.store.scan(&all, Direction::Descending, &mut self.reading);
            // Keys of one table are as long as each other, and the larger number is the larger key.
            match below.step() {
                Ok(true) => found = found.max(Some(below.key().to_vec())),
                Ok(false) => {}
                Err(error) => {
                    drop(below);
                    self.transactions.abort(newest);
                    return Err(error);
                }
            }
            drop(below);
            let last = match found {
                Some(key) => KeyReader::new(&key)?.int64(Order::Ascending)?.unwrap_or(0),
                None => 0,
            };
            self.transactions.abort(newest);
            self.next_numbers.insert(relation, last + 1);
        }
        let next = self.next_numbers.entry(relation).or_insert(1);
        *next += 1;
        Ok(*next - 1)
    }

    /// Tells the transaction manager what the log has made durable.
    pub(crate) fn note_durable(&mut self) -> Result<()> {
        let durable = self.log.durable();
        while let Some((csn, _)) = self.undurable.pop_front_if(|(_, lsn)| *lsn <= durable) {
            self.transactions.durable(csn)?;
        }
        Ok(())
    }

    /// Where a commit is in the log, unless it is durable.
    pub(crate) fn logged_at(&self, csn: Csn) -> Lsn {
        let place = self.undurable.partition_point(|(other, _)| *other < csn);
        self.undurable.get(place).filter(|(other, _)| *other == csn).map_or(Lsn::NONE, |(_, lsn)| *lsn)
    }

    fn changed_catalog<'a>(
        &self,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a Box<[u8]>>)>,
    ) -> Result<Option<Catalog>> {
        let prefix = OBJECTS.to_be_bytes();
        let mut changed = None;
        for (key, value) in writes.filter(|(key, _)| key.starts_with(&prefix)) {
            let newest = || self.catalogs.back().map(|(_, catalog)| Catalog::clone(catalog)).unwrap_or_default();
            changed.get_or_insert_with(newest).apply(key, value.map(|value| &**value))?;
        }
        Ok(changed)
    }

    fn push_catalog(&mut self, csn: Csn, catalog: Catalog) {
        self.catalogs.push_back((csn, Arc::new(catalog)));
        let needed = self.transactions.horizon();
        while self.catalogs.get(1).is_some_and(|(csn, _)| *csn <= needed) {
            self.catalogs.pop_front();
        }
    }
}

/// A key's value in the storage, which is kept in `found`.
fn below<'a>(store: &dyn Store, key: &[u8], reading: &mut Reading, found: &'a mut Bytes) -> Result<Option<&'a [u8]>> {
    let Some(value) = store.get(key, reading)? else { return Ok(None) };
    *found = value;
    Ok(Some(&*found))
}
