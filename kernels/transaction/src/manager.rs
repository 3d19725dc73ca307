//! The transaction manager of one database: it puts snapshots, locks, validation and publishing together.

mod commit;
mod holder;
mod image;
mod overtaken;
mod view;

use std::collections::VecDeque;

use self::holder::Holder;
pub use self::image::{CommittedWrites, IMAGE_VERSION};
use crate::{
    Change, Conflict, ConflictKind, Csn, Direction, Event, Isolation, KeyRange, Lock, RowLock, Savepoint, Scan, Seen,
    TransactionError, TxnId, Wait,
    fault::{Rules, broken},
    history::History,
    locks::{Grant, Locks, QueuePlace, Request},
    row::{Key, NumberMap, Row},
    snapshots::Snapshots,
    txn::{ALL_WRITES, Held, Txn, running},
    versions::Versions,
    watermark::Watermark,
};

/// Ended transactions that are kept for their memory.
const SPARE_MAX: usize = 256;

/// A commit between its number and its publication.
#[derive(Debug)]
struct InFlight {
    csn: Csn,
    txn: TxnId,
    locks: Vec<Held>,
    installed: bool,
}

/// How much a transaction manager holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that live.
    pub transactions: usize,
    /// Keys in the version table.
    pub keys: usize,
    /// Versions of them.
    pub versions: usize,
    /// Rows that are locked.
    pub locked_rows: usize,
    /// Commits that are kept for validation.
    pub recent_commits: usize,
}

/// The transactions of one database, its rows' versions and its locks. See the [crate's page](crate).
///
/// It has one caller at a time. Nothing in it waits: what has to be waited for is an [`Event`] later.
#[derive(Debug)]
pub struct Transactions<V> {
    txns: NumberMap<TxnId, Box<Txn<V>>>,
    begun: u64,
    versions: Versions<V>,
    snapshots: Snapshots,
    locks: Locks,
    holders: NumberMap<TxnId, Holder>,
    history: History,
    /// In the order of their numbers.
    in_flight: VecDeque<InFlight>,
    /// Snapshots are taken here: everything up to it is installed.
    published: Watermark,
    durable: Watermark,
    events: Vec<Event>,
    /// Filled and emptied by one call; kept for its memory.
    grants: Vec<Grant>,
    #[expect(clippy::vec_box, reason = "they move between here and the table as pointers")]
    spare: Vec<Box<Txn<V>>>,
    /// Commits up to here lie below and are not replayed.
    recovered: Csn,
    rules: Rules,
}

impl<V> Default for Transactions<V> {
    fn default() -> Self {
        Self::recovered(Csn::NONE)
    }
}

impl<V> Transactions<V> {
    /// A database whose commits up to `last` are in the storage below; later ones may be [replayed](Self::replay).
    #[must_use]
    pub fn recovered(last: Csn) -> Self {
        Self::with_rules(last, Rules::default())
    }

    /// A database in which one rule does not hold, to show that somebody notices.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn broken(fault: crate::Fault) -> Self {
        Self::with_rules(Csn::NONE, Rules::without(fault))
    }

    fn with_rules(last: Csn, rules: Rules) -> Self {
        Self {
            txns: NumberMap::default(),
            begun: 0,
            versions: Versions::new(rules),
            snapshots: Snapshots::default(),
            locks: Locks::new(rules),
            holders: NumberMap::default(),
            history: History::default(),
            in_flight: VecDeque::new(),
            published: Watermark::at(last),
            durable: Watermark::at(last),
            events: Vec::new(),
            grants: Vec::new(),
            spare: Vec::new(),
            recovered: last,
            rules,
        }
    }

    /// Puts a write back that was logged under `csn`, before any transaction begins, or those that were [imported](Self::import) go on: what
    /// their snapshots need of it is kept. What is there already, here or below, changes nothing, so that a log may be replayed again
    /// from any earlier place.
    pub fn replay(&mut self, csn: Csn, key: &[u8], value: Option<V>) {
        if csn <= self.recovered && !broken!(self.rules, ReplayIgnoresNumbers) {
            return;
        }
        while self.published.last() < csn {
            let next = self.published.open();
            self.durable.open();
            self.published.ready(next);
            self.durable.ready(next);
        }
        let Self { versions, snapshots, .. } = self;
        versions.install(Key::from(key), Row::of(key), csn, value, |old| snapshots.any_between(old, csn));
    }

    /// Begins a transaction. It has no snapshot before its first [statement](Self::statement).
    pub fn begin(&mut self, isolation: Isolation) -> TxnId {
        self.begun += 1;
        let id = TxnId(self.begun);
        let mut txn = self.spare.pop().unwrap_or_else(|| Box::new(Txn::new(isolation)));
        txn.isolation = isolation;
        self.txns.insert(id, txn);
        id
    }

    /// Begins a statement: at READ COMMITTED with a new snapshot, at the other levels with the transaction's one.
    /// Returns the snapshot.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn statement(&mut self, id: TxnId) -> Result<Csn, TransactionError> {
        let txn = running(&mut self.txns, id)?;
        let now = self.published.reached();
        txn.sees = ALL_WRITES;
        match txn.snapshot {
            Some(snapshot) if txn.is_validated() || snapshot == now => return Ok(snapshot),
            Some(snapshot) => self.snapshots.release(snapshot),
            None => {}
        }
        self.snapshots.take(now);
        txn.snapshot = Some(now);
        Ok(now)
    }

    /// Ends a statement: at READ COMMITTED the snapshot is given back, so that a client that thinks holds up nothing.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn end_statement(&mut self, id: TxnId) -> Result<(), TransactionError> {
        let txn = running(&mut self.txns, id)?;
        txn.sees = ALL_WRITES;
        if !txn.is_validated()
            && let Some(snapshot) = txn.snapshot.take()
        {
            self.snapshots.release(snapshot);
        }
        Ok(())
    }

    /// What the transaction sees of a key: its own write, or what its snapshot has. One hash probe.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`], [`TransactionError::NoSnapshot`].
    pub fn get(&mut self, id: TxnId, key: &[u8]) -> Result<Seen<'_, V>, TransactionError> {
        let row = Row::of(key);
        let txn = running(&mut self.txns, id)?;
        let snapshot = txn.snapshot(id)?;
        if txn.isolation == Isolation::Serializable && txn.own(key).is_none() {
            txn.reads.row(row);
        }
        if let Some(write) = txn.own(key) {
            return Ok(Seen::of(write.value.as_ref()));
        }
        let (seen, csn) = self.versions.get(key, row, snapshot);
        txn.depend(csn, self.durable.reached());
        Ok(seen)
    }

    /// As [`get`](Self::get), for a constraint: whether a row is there, at every level. SNAPSHOT and SERIALIZABLE lock
    /// the row's key when they commit, and validate that the row neither came nor went. READ COMMITTED does not
    /// validate: lock the row with [`RowLock::KeyShare`] before, then this reads what was committed last.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`], [`TransactionError::NoSnapshot`],
    /// [`TransactionError::NotLocked`].
    pub fn probe(&mut self, id: TxnId, key: &[u8]) -> Result<Seen<'_, V>, TransactionError> {
        let row = Row::of(key);
        if !running(&mut self.txns, id)?.is_validated() {
            return match self.locks.held(id, row) {
                Some(_) => self.latest(id, key),
                None => Err(TransactionError::NotLocked(id)),
            };
        }
        let txn = running(&mut self.txns, id)?;
        txn.reads.probe(row);
        let snapshot = txn.snapshot(id)?;
        if let Some(write) = txn.own(key) {
            return Ok(Seen::of(write.value.as_ref()));
        }
        let (seen, csn) = self.versions.get(key, row, snapshot);
        txn.depend(csn, self.durable.reached());
        Ok(seen)
    }

    /// What was committed last of a key, under the transaction's own write: what READ COMMITTED goes by once it has the
    /// row's lock. At the other levels the same as [`get`](Self::get): a lock there means that nothing was changed.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn latest(&mut self, id: TxnId, key: &[u8]) -> Result<Seen<'_, V>, TransactionError> {
        if running(&mut self.txns, id)?.is_validated() {
            return self.get(id, key);
        }
        let txn = running(&mut self.txns, id)?;
        if let Some(write) = txn.own(key) {
            return Ok(Seen::of(write.value.as_ref()));
        }
        let (seen, csn) = self.versions.get(key, Row::of(key), self.published.reached());
        txn.depend(csn, self.durable.reached());
        Ok(seen)
    }

    /// The keys of a range as the transaction sees them, all of which count as read.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan(&mut self, id: TxnId, range: &KeyRange, direction: Direction) -> Result<Scan<'_, V>, TransactionError> {
        self.read_range(id, range.clone())?;
        self.peek(id, range, direction)
    }

    /// As [`scan`](Self::scan), and nothing counts as read: say with [`read_range`](Self::read_range) how far the answer
    /// depends on what was seen. For a scan that stops early.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn peek(&self, id: TxnId, range: &KeyRange, direction: Direction) -> Result<Scan<'_, V>, TransactionError> {
        let txn = self.txns.get(&id).ok_or(TransactionError::Unknown(id))?;
        if txn.waiting {
            return Err(TransactionError::Waiting(id));
        }
        let at = (txn.snapshot(id)?, self.durable.reached());
        Ok(Scan::new(&self.versions, (&txn.writes, txn.sees), range, direction, at, &txn.reply_after))
    }

    /// The transaction's snapshot, and whether it sees every commit that has a number.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`]; if it has no snapshot.
    pub fn snapshot(&self, id: TxnId) -> Result<(Csn, bool), TransactionError> {
        let snapshot = self.txns.get(&id).ok_or(TransactionError::Unknown(id))?.snapshot(id)?;
        Ok((snapshot, snapshot == self.published.last()))
    }

    /// Whether the transaction itself has written in a range.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`].
    pub fn wrote_in(&self, id: TxnId, range: &KeyRange) -> Result<bool, TransactionError> {
        let txn = self.txns.get(&id).ok_or(TransactionError::Unknown(id))?;
        Ok(txn.writes.touches(range))
    }

    /// What the transaction has written to the keys from one on, in the order of keys: the newest of each, `None` where it deletes.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`].
    pub fn written_from(
        &self,
        id: TxnId,
        from: &[u8],
    ) -> Result<impl Iterator<Item = (&[u8], Option<&V>)>, TransactionError> {
        let txn = self.txns.get(&id).ok_or(TransactionError::Unknown(id))?;
        Ok(txn.writes.from(from).map(|write| (&*write.key, write.value.as_ref())))
    }

    /// Says that what was read depends on a commit, too, whose versions were not looked at.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`].
    pub fn depends_on(&self, id: TxnId, csn: Csn) -> Result<(), TransactionError> {
        let txn = self.txns.get(&id).ok_or(TransactionError::Unknown(id))?;
        txn.depend(csn, self.durable.reached());
        Ok(())
    }

    /// Counts a range as read.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn read_range(&mut self, id: TxnId, range: KeyRange) -> Result<(), TransactionError> {
        let txn = running(&mut self.txns, id)?;
        if txn.isolation == Isolation::Serializable {
            txn.reads.range(range);
        }
        Ok(())
    }

    /// Counts a range as one that a constraint was checked against: at SNAPSHOT and SERIALIZABLE no row in it may have
    /// come or gone when the transaction commits. At READ COMMITTED, lock the row that the range's rows refer to, begin a
    /// statement, and scan.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn probe_range(&mut self, id: TxnId, range: KeyRange) -> Result<(), TransactionError> {
        let txn = running(&mut self.txns, id)?;
        if txn.is_validated() {
            txn.reads.probed_range(range);
        }
        Ok(())
    }

    /// Writes a key, privately until the commit; `None` deletes it. At READ COMMITTED the row must be locked for the
    /// change before; at the other levels the commit does that.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`], [`TransactionError::NotLocked`].
    pub fn write(&mut self, id: TxnId, key: &[u8], value: Option<V>, change: Change) -> Result<(), TransactionError> {
        let row = Row::of(key);
        let txn = running(&mut self.txns, id)?;
        if !txn.is_validated() && self.locks.held(id, row) < Some(change.lock()) {
            return Err(TransactionError::NotLocked(id));
        }
        txn.writes.put(key, row, value, change);
        Ok(())
    }

    /// Locks a row until the transaction's writes are published, it ends, or it rolls back to an earlier savepoint.
    ///
    /// After [`Lock::Waiting`] comes an [`Event`] for the transaction; until then nothing else can be done with it. Ask
    /// again then: a lock that is held is granted at once.
    ///
    /// # Errors
    /// [`TransactionError::Deadlock`], after which the transaction does not wait; at SNAPSHOT and SERIALIZABLE a
    /// [`Conflict`] if the row was changed since the snapshot. [`TransactionError::Unknown`],
    /// [`TransactionError::Waiting`], [`TransactionError::NoSnapshot`].
    pub fn lock(&mut self, id: TxnId, key: &[u8], mode: RowLock, wait: Wait) -> Result<Lock, TransactionError> {
        let row = Row::of(key);
        let txn = running(&mut self.txns, id)?;
        let snapshot = txn.snapshot(id)?;
        if txn.isolation == Isolation::Serializable {
            txn.reads.row(row);
        }
        if !self.take(id, row, mode, wait)? {
            return Ok(if wait == Wait::Never { Lock::Busy } else { Lock::Waiting });
        }
        let with = self.versions.written_by(key, row);
        let changed = with > snapshot;
        let txn = running(&mut self.txns, id)?;
        if changed && txn.is_validated() && !broken!(self.rules, WritesAreNotValidated) {
            return Err(Conflict { kind: ConflictKind::Write, with }.into());
        }
        Ok(Lock::Granted { changed })
    }

    /// Ends a wait without its lock: a timeout, or a client that asks for it.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`].
    pub fn cancel_wait(&mut self, id: TxnId) -> Result<(), TransactionError> {
        let txn = self.txns.get_mut(&id).ok_or(TransactionError::Unknown(id))?;
        txn.waiting = false;
        self.locks.cancel(id, &mut self.grants);
        self.hand_out();
        Ok(())
    }

    /// The place of a transaction among those who wait for the same row, if it waits, or was given it back and has not asked for the row since: for
    /// [`keep_place`](Self::keep_place), when it was [made to stop](Self::cancel_wait).
    #[must_use]
    pub fn queue_place(&self, id: TxnId) -> Option<QueuePlace> {
        self.locks.place(id)
    }

    /// Gives a transaction its place back, also one that it had in another process that this one has taken over from: if it asks for the same row again, it comes before
    /// whoever asked later.
    pub fn keep_place(&mut self, id: TxnId, place: QueuePlace) {
        if self.txns.contains_key(&id) {
            self.locks.keep_place(id, place);
        }
    }

    /// What a transaction had a place for is over.
    pub fn forget_place(&mut self, id: TxnId) {
        if self.txns.get(&id).is_some_and(|txn| !txn.waiting) {
            self.locks.forget_place(id);
        }
    }

    /// How often somebody came to wait. Whoever takes over [counts on](Self::count_on), so that places are in order.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.locks.arrivals()
    }

    /// Another process has counted up to here.
    pub fn count_on(&mut self, arrivals: u64) {
        self.locks.count_on(arrivals);
    }

    /// Marks a place to roll back to.
    ///
    /// # Errors
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn savepoint(&mut self, id: TxnId) -> Result<Savepoint, TransactionError> {
        let txn = running(&mut self.txns, id)?;
        Ok(Savepoint { writes: txn.writes.save(), locks: txn.locks.len() })
    }

    /// Undoes what was written since a savepoint and gives locks back that were taken since; one that was only
    /// strengthened becomes what it was. What was read stays read. The savepoint is still there.
    ///
    /// # Errors
    /// [`TransactionError::NoSavepoint`] if the transaction was rolled back behind it. [`TransactionError::Unknown`],
    /// [`TransactionError::Waiting`].
    pub fn roll_back_to(&mut self, id: TxnId, savepoint: Savepoint) -> Result<(), TransactionError> {
        let txn = running(&mut self.txns, id)?;
        if savepoint.writes > txn.writes.len() || savepoint.locks > txn.locks.len() {
            return Err(TransactionError::NoSavepoint(id));
        }
        if !broken!(self.rules, SavepointsKeepWrites) {
            txn.writes.roll_back(savepoint.writes);
        }
        while txn.locks.len() > savepoint.locks && !broken!(self.rules, SavepointsKeepLocks) {
            let Some(held) = txn.locks.pop() else { break };
            let before = if broken!(self.rules, SavepointsDropEarlierLocks) { None } else { held.before };
            self.locks.release(id, held.row, before, &mut self.grants);
        }
        self.hand_out();
        Ok(())
    }

    /// The newest commit that what was read so far depends on: a reply may leave once it is [told](Self::told).
    ///
    /// # Errors
    /// [`TransactionError::Unknown`].
    pub fn reply_after(&self, id: TxnId) -> Result<Csn, TransactionError> {
        let txn = self.txns.get(&id).ok_or(TransactionError::Unknown(id))?;
        Ok(if broken!(self.rules, ReadsAreNotGated) { Csn::NONE } else { txn.reply_after.get() })
    }

    /// Ends a transaction and everything it did. One that is no more is no error: whoever hangs up need not know.
    pub fn abort(&mut self, id: TxnId) {
        let Some(txn) = self.txns.remove(&id) else { return };
        self.locks.cancel(id, &mut self.grants);
        self.retire(id, txn);
        self.hand_out();
    }

    /// What happened to those who waited, since the last time. Who was aborted or cancelled meanwhile may be among them.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }

    /// Keeps what every snapshot in use sees alike, until it is [thawed](Self::thaw): the versions at the answer, one of each
    /// key, are what the storage below may be moved forward to once they are [told](Self::told).
    pub fn freeze(&mut self) -> Csn {
        self.snapshots.take_oldest(self.published.reached())
    }

    /// The transactions that live, in the order in which they began.
    #[must_use]
    pub fn living(&self) -> Vec<TxnId> {
        let mut living: Vec<TxnId> = self.txns.keys().copied().collect();
        living.sort_unstable();
        living
    }

    /// The oldest snapshot in use; if there is none, the one that would be taken now.
    #[must_use]
    pub fn horizon(&self) -> Csn {
        self.snapshots.oldest().unwrap_or_else(|| self.published.reached())
    }

    /// Gives up what was frozen.
    pub fn thaw(&mut self, frozen: Csn) {
        self.snapshots.release(frozen);
    }

    /// What was frozen of a range: its keys in order, with what is seen of each and the commit that wrote it.
    pub fn at(&self, frozen: Csn, range: &KeyRange) -> impl Iterator<Item = (&[u8], Seen<'_, V>, Csn)> {
        self.versions.range(range).map(move |(key, slot)| {
            let (seen, csn) = self.versions.seen(*slot, frozen);
            (&**key, seen, csn)
        })
    }

    /// Forgets the versions that the storage below holds, of at most `rows_max` keys of a range. `flushed` is up to where the
    /// storage has everything. Returns the first key that was not looked at, if there is one.
    pub fn evict(&mut self, flushed: Csn, range: &KeyRange, rows_max: usize) -> Option<Vec<u8>> {
        self.collect(rows_max);
        // Older snapshots would find newer rows below.
        self.versions.evict(flushed.min(self.horizon()), range, rows_max)
    }

    /// Removes versions that nobody can see any more, of at most `rows_max` rows. Every commit does a little of it; this
    /// is for what is left when an old snapshot ends.
    pub fn collect(&mut self, rows_max: usize) {
        self.versions.collect(rows_max, &self.snapshots, self.published.reached());
    }

    /// Keys in the version table.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.versions.len()
    }

    /// How much there is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (keys, versions) = self.versions.counts();
        Counts {
            transactions: self.txns.len(),
            keys,
            versions,
            locked_rows: self.locks.len(),
            recent_commits: self.history.len(),
        }
    }

    /// Takes or asks for one lock; whether it is held now.
    fn take(&mut self, id: TxnId, row: Row, mode: RowLock, wait: Wait) -> Result<bool, TransactionError> {
        let txn = running(&mut self.txns, id)?;
        match self.locks.request(id, row, mode, wait) {
            Request::Held => Ok(true),
            Request::Granted(before) => {
                txn.locks.push(Held { row, before });
                Ok(true)
            }
            Request::Busy => Ok(false),
            Request::Queued => self.queued(id),
        }
    }

    /// A transaction waits from here on.
    fn queued(&mut self, id: TxnId) -> Result<bool, TransactionError> {
        let txn = running(&mut self.txns, id)?;
        txn.waiting = true;
        // Who holds nothing is waited for by nobody who came before it.
        let holds = !txn.locks.is_empty() || txn.holder.is_some();
        if holds && !broken!(self.rules, DeadlocksAreNotFound) {
            self.break_circles(id)?;
        }
        Ok(false)
    }

    /// Ends the wait of the youngest of each circle that a new wait closed.
    fn break_circles(&mut self, id: TxnId) -> Result<(), TransactionError> {
        let outcome = loop {
            let Some(victim) = self.locks.circle(id).into_iter().max() else { break Ok(()) };
            self.locks.cancel(victim, &mut self.grants);
            if let Some(txn) = self.txns.get_mut(&victim) {
                txn.waiting = false;
            }
            if victim == id {
                break Err(TransactionError::Deadlock(id));
            }
            self.events.push(Event::Deadlocked(victim));
        };
        self.hand_out();
        outcome
    }

    fn release(&mut self, id: TxnId, locks: &[Held]) {
        for held in locks {
            self.locks.release(id, held.row, None, &mut self.grants);
        }
    }

    /// Frees what a transaction holds and keeps its memory.
    fn retire(&mut self, id: TxnId, mut txn: Box<Txn<V>>) {
        self.locks.forget_place(id);
        self.release(id, &txn.locks);
        txn.locks.clear();
        if let Some(holder) = txn.holder.take() {
            self.locks.leave(id, holder);
        }
        for snapshot in txn.snapshot.take().into_iter().chain(txn.views.drain(..).map(|view| view.snapshot)) {
            self.snapshots.release(snapshot);
        }
        txn.sees = ALL_WRITES;
        if txn.is_large() {
            self.locks.shrink();
        } else if self.spare.len() < SPARE_MAX {
            txn.reads.clear();
            txn.writes.clear();
            txn.waiting = false;
            txn.compared = Csn::NONE;
            txn.reply_after.set(Csn::NONE);
            self.spare.push(txn);
        }
    }

    /// Writes granted locks down with those who have them now, and tells them.
    fn hand_out(&mut self) {
        for grant in self.grants.drain(..) {
            let id = self.locks.transaction(grant.txn);
            if let Some(txn) = self.txns.get_mut(&id) {
                if id == grant.txn {
                    txn.locks.push(Held { row: grant.row, before: grant.before });
                }
                txn.waiting = false;
                self.events.push(Event::Granted(id));
            }
        }
    }
}
