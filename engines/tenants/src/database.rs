//! One tenant's rows: the transaction manager over versions, the storage below, the log beside, the catalog within.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    sync::Arc,
};

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
    log::{self, Log, RecordError},
    row,
    sequence::{Reserved, exhausted, left},
    store::Store,
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
}

impl Replaying {
    /// Over what is stored already.
    #[must_use]
    pub fn over(store: Box<dyn Store>) -> Self {
        Self { transactions: Transactions::recovered(store.flushed()), store }
    }

    /// Does a commit's record again. What is there already changes nothing.
    ///
    /// # Errors
    /// If it is no record of a commit.
    pub fn redo(&mut self, record: &[u8]) -> std::result::Result<(), RecordError> {
        // A damaged record does nothing, rather than half of it.
        log::decode(record, |_, _, _| ())?;
        log::decode(record, |csn, key, value| self.transactions.replay(csn, key, value.map(Box::from)))?;
        Ok(())
    }

    /// The tenant, which logs from now on.
    ///
    /// # Errors
    /// XX001 if its catalog cannot be read.
    pub fn serve(self, log: Box<dyn Log>) -> Result<Database> {
        let Self { transactions, store } = self;
        let mut database = Database {
            transactions,
            store,
            log,
            undurable: VecDeque::new(),
            catalogs: VecDeque::new(),
            next_relation: FIRST_RELATION,
            next_numbers: HashMap::new(),
            doomed: true,
            rules: Rules::default(),
        };
        let reader = database.begin(Isolation::ReadCommitted);
        let at = database.statement(reader)?;
        let catalog = database.read_catalog(reader)?;
        // A number is not given again while there are keys with it, though no table has them any more.
        let doomed = database.doomed_relations(reader)?;
        // Nor one under which a sequence is kept that was never committed.
        let sequences = database.numbered(reader, SEQUENCES)?;
        database.abort(reader);
        let last = catalog.numbers().chain(doomed.into_iter().chain(sequences).map(|(number, _)| number)).max();
        database.next_relation = last.map_or(FIRST_RELATION, |last| last.saturating_add(1));
        database.catalogs.push_back((at, Arc::new(catalog)));
        Ok(database)
    }
}

/// The rows of one tenant.
#[derive(Debug)]
pub struct Database {
    transactions: Transactions<Box<[u8]>>,
    store: Box<dyn Store>,
    log: Box<dyn Log>,
    /// Commits that are logged and perhaps not durable yet, in both orders at once.
    undurable: VecDeque<(Csn, Lsn)>,
    /// The catalog after each commit that changed it and that a snapshot may still need.
    catalogs: VecDeque<(Csn, Arc<Catalog>)>,
    next_relation: u32,
    /// The next number of a row, for each table without primary key that was inserted into.
    next_numbers: HashMap<u32, i64>,
    /// Whether there may be keys that no table has.
    doomed: bool,
    rules: Rules,
}

impl Database {
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
        Ok(match self.transactions.get(txn, key)? {
            Seen::Here(value) => Some(value),
            Seen::Gone => None,
            Seen::Below => self.store.get(key),
        })
    }

    /// Whether a key is there, for a constraint.
    pub(crate) fn probe(&mut self, txn: TxnId, key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(match self.transactions.probe(txn, key)? {
            Seen::Here(value) => Some(value),
            Seen::Gone => None,
            Seen::Below => self.store.get(key),
        })
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
        &self,
        txn: TxnId,
        range: &KeyRange,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        if range.is_empty() {
            return Ok(None);
        }
        let mut above = self.transactions.peek(txn, range, direction)?.peekable();
        let mut below = self.store.scan(range, direction).peekable();
        loop {
            let order = match (above.peek(), below.peek()) {
                (None, None) => return Ok(None),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((a, _)), Some((b, _))) if direction == Direction::Ascending => a.cmp(b),
                (Some((a, _)), Some((b, _))) => b.cmp(a),
            };
            let stored = if order.is_ge() { below.next() } else { None };
            let seen = if order.is_le() { above.next() } else { None };
            let row = match seen {
                Some((key, Seen::Here(value))) => Some((key, &**value)),
                Some((_, Seen::Gone)) => None,
                Some((_, Seen::Below)) | None => stored,
            };
            let Some((key, value)) = row else { continue };
            if visit(key, value)?.is_break() {
                return Ok(Some(key.to_vec()));
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
        let lsn = match self.log.append(&log::encode(&committed)) {
            Ok(lsn) => lsn,
            Err(error) => {
                self.transactions.withdraw(committed);
                return Err(error.into());
            }
        };
        let csn = committed.csn();
        let catalog = self.changed_catalog(committed.writes());
        self.transactions.install(committed);
        self.undurable.push_back((csn, lsn));
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

    /// Moves what every snapshot sees alike to the storage below. Returns how many keys went.
    ///
    /// # Errors
    /// Those of the log.
    pub fn flush(&mut self) -> Result<usize> {
        self.note_durable()?;
        let at = self.transactions.flushable();
        let everything = KeyRange::ALL;
        let mut writes = self.transactions.at(at, &everything).filter_map(|(key, seen)| match seen {
            Seen::Here(value) => Some((key, Some(&**value))),
            Seen::Gone => Some((key, None)),
            Seen::Below => None,
        });
        self.store.apply(at, &mut writes);
        drop(writes);
        Ok(self.transactions.evict(at))
    }

    /// Removes at most so many keys that no table has any more. Returns whether there are others.
    ///
    /// # Errors
    /// Those of the log.
    pub fn sweep(&mut self, keys_max: usize) -> Result<bool> {
        if !std::mem::take(&mut self.doomed) {
            return Ok(false);
        }
        let txn = self.begin(Isolation::Snapshot);
        self.statement(txn)?;
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
                self.doomed = true;
                break;
            }
            keys.push(mark);
        }
        for key in keys {
            self.write(txn, &key, None, Change::Existence)?;
        }
        match self.commit(txn)? {
            Step::Done(_) => Ok(self.doomed),
            Step::Wait => {
                // Somebody has a lock there; another time will do.
                self.abort(txn);
                self.doomed = true;
                Ok(false)
            }
        }
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

    /// The catalog as a transaction that changes it sees it.
    pub(crate) fn read_catalog(&mut self, txn: TxnId) -> Result<Catalog> {
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
            let mut last = 0;
            let newest = self.transactions.begin(Isolation::ReadCommitted);
            self.transactions.statement(newest)?;
            for reader in [newest, txn] {
                let mut found = None;
                let above = self.transactions.peek(reader, &all, Direction::Descending)?;
                let above = above.map(|(key, _)| key).next();
                let below = self.store.scan(&all, Direction::Descending).map(|(key, _)| key).next();
                for key in above.into_iter().chain(below) {
                    found = found.max(KeyReader::new(key)?.int64(Order::Ascending)?);
                }
                last = last.max(found.unwrap_or(0));
            }
            self.transactions.abort(newest);
            self.next_numbers.insert(relation, last + 1);
        }
        let next = self.next_numbers.entry(relation).or_insert(1);
        *next += 1;
        Ok(*next - 1)
    }

    /// Tells the transaction manager what the log has made durable.
    fn note_durable(&mut self) -> Result<()> {
        let durable = self.log.durable();
        while let Some((csn, _)) = self.undurable.pop_front_if(|(_, lsn)| *lsn <= durable) {
            self.transactions.durable(csn)?;
        }
        Ok(())
    }

    /// Where a commit is in the log, unless it is durable.
    fn logged_at(&self, csn: Csn) -> Lsn {
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
        let needed = self.transactions.flushable();
        while self.catalogs.get(1).is_some_and(|(csn, _)| *csn <= needed) {
            self.catalogs.pop_front();
        }
    }
}
