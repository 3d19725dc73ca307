//! Row locks: who holds which row how strongly, who waits in which order, and who waits in a circle.
//!
//! Requests for a row queue in the order in which they came. One is granted when it conflicts with no holder and with
//! nobody who waits before it, so that a stream of readers does not starve a writer. A transaction that strengthens a
//! lock it holds goes before those who hold nothing: they would have to wait for it anyway.
//!
//! A transaction and the [holder](crate::HolderId) that it runs for are one *party*: neither is in the other's way, and who waits for
//! the one waits for the other.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{
    RowLock, TxnId,
    fault::{Rules, broken},
    row::{NumberMap, Row},
};

/// What to do about a lock that cannot be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Queue for it.
    Queue,
    /// Give up: `NOWAIT` and `SKIP LOCKED`.
    Never,
}

/// The place of somebody who waits for a row, among all who wait or have waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePlace {
    row: Row,
    number: u64,
}

/// Who holds a row and who waits for it, each in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LockedRow {
    pub(crate) row: Row,
    pub(crate) holders: Vec<(TxnId, RowLock)>,
    pub(crate) waiters: Vec<(TxnId, RowLock)>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// It was held as strongly before.
    Held,
    /// Granted, over what was held before.
    Granted(Option<RowLock>),
    Queued,
    Busy,
}

/// A lock that somebody who waited has now, over what was held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The transaction or the holder.
    pub(crate) txn: TxnId,
    pub(crate) row: Row,
    pub(crate) before: Option<RowLock>,
}

#[derive(Debug, Default)]
struct Queue {
    holders: Vec<(TxnId, RowLock)>,
    waiters: VecDeque<(TxnId, RowLock)>,
}

/// Transactions that run for holders. Both have numbers of one kind.
#[derive(Debug, Default)]
struct Parties {
    holders: NumberMap<TxnId, TxnId>,
    transactions: NumberMap<TxnId, TxnId>,
}

impl Parties {
    /// The name of the party that somebody belongs to.
    fn of(&self, id: TxnId) -> TxnId {
        if self.holders.is_empty() { id } else { self.holders.get(&id).copied().unwrap_or(id) }
    }

    /// The transaction that speaks for a party.
    fn transaction(&self, party: TxnId) -> TxnId {
        self.transactions.get(&party).copied().unwrap_or(party)
    }
}

impl Queue {
    fn held_by(&self, txn: TxnId) -> Option<RowLock> {
        self.holders.iter().find(|(holder, _)| *holder == txn).map(|(_, mode)| *mode)
    }

    fn held_by_party(&self, party: TxnId, parties: &Parties) -> Option<RowLock> {
        self.holders.iter().filter(|(holder, _)| parties.of(*holder) == party).map(|(_, mode)| *mode).max()
    }

    /// Whether a holder is in the way of a request.
    fn conflicts(&self, party: TxnId, mode: RowLock, parties: &Parties) -> bool {
        self.holders.iter().any(|(holder, held)| held.conflicts(mode) && parties.of(*holder) != party)
    }

    fn hold(&mut self, txn: TxnId, mode: RowLock) {
        match self.holders.iter_mut().find(|(holder, _)| *holder == txn) {
            Some((_, held)) => *held = mode,
            None => self.holders.push((txn, mode)),
        }
    }
}

/// The lock table.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    rows: NumberMap<Row, Queue>,
    /// Which party waits, and for which row.
    waiting: NumberMap<TxnId, Row>,
    /// The places of those who wait, and of those who had to stop and may come back.
    places: NumberMap<TxnId, QueuePlace>,
    /// The number of whoever came last to wait.
    arrivals: u64,
    parties: Parties,
    /// Emptied queues, for their memory.
    spare: Vec<Queue>,
    rules: Rules,
}

/// Room for so many rows stays.
const SHRUNK_MIN: usize = 1 << 16;
/// Emptied queues that are kept.
const SPARE_MAX: usize = 64;

impl Locks {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// How strongly a transaction holds a row.
    pub(crate) fn held(&self, txn: TxnId, row: Row) -> Option<RowLock> {
        self.rows.get(&row)?.held_by(txn)
    }

    /// Every row that is locked, in the order of their numbers.
    pub(crate) fn image(&self) -> Vec<LockedRow> {
        let locked = |(row, queue): (&Row, &Queue)| LockedRow {
            row: *row,
            holders: queue.holders.clone(),
            waiters: queue.waiters.iter().copied().collect(),
        };
        let mut rows: Vec<LockedRow> = self.rows.iter().map(locked).collect();
        rows.sort_unstable_by_key(|locked| locked.row);
        rows
    }

    /// Puts a row back, after the parties have [joined](Self::join); whether nobody who waits for it waits elsewhere.
    pub(crate) fn restore(&mut self, locked: LockedRow) -> bool {
        let LockedRow { row, holders, waiters } = locked;
        for (waiter, _) in &waiters {
            self.arrivals += 1;
            self.places.insert(*waiter, QueuePlace { row, number: self.arrivals });
        }
        let once = waiters.iter().all(|(waiter, _)| self.waiting.insert(self.parties.of(*waiter), row).is_none());
        self.rows.insert(row, Queue { holders, waiters: waiters.into() });
        once
    }

    /// Gives memory back if most of it was for rows that nobody holds any more.
    pub(crate) fn shrink(&mut self) {
        if self.rows.capacity() > SHRUNK_MIN && self.rows.capacity() / 8 > self.rows.len() {
            self.rows.shrink_to(2 * self.rows.len());
        }
    }

    /// Rows that somebody holds.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Lets a transaction run for a holder.
    pub(crate) fn join(&mut self, txn: TxnId, holder: TxnId) {
        self.parties.transactions.insert(holder, txn);
        if !broken!(self.rules, HoldersAreStrangers) {
            self.parties.holders.insert(txn, holder);
        }
    }

    /// Ends that.
    pub(crate) fn leave(&mut self, txn: TxnId, holder: TxnId) {
        self.parties.transactions.remove(&holder);
        self.parties.holders.remove(&txn);
    }

    /// The transaction that a lock's owner is or runs.
    pub(crate) fn transaction(&self, id: TxnId) -> TxnId {
        self.parties.transaction(id)
    }

    /// The number of whoever came last to wait: places of later ones are above it.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Others have counted up to here, if they were able to.
    pub(crate) fn count_on(&mut self, arrivals: u64) {
        // It may be of bytes that nobody has exported: half of all numbers are left.
        self.arrivals = self.arrivals.max(arrivals.min(u64::MAX / 2));
    }

    /// The place of somebody who waits, or who [has it again](Self::keep_place) and has not asked yet.
    pub(crate) fn place(&self, txn: TxnId) -> Option<QueuePlace> {
        self.places.get(&txn).copied()
    }

    /// Somebody who had a place and does not wait has it again when it asks for the same row.
    pub(crate) fn keep_place(&mut self, txn: TxnId, place: QueuePlace) {
        if !self.waiting.contains_key(&self.parties.of(txn)) {
            self.count_on(place.number);
            self.places.insert(txn, place);
        }
    }

    /// Somebody has ended, or what it asked for is over: it comes back to no place.
    pub(crate) fn forget_place(&mut self, txn: TxnId) {
        self.places.remove(&txn);
    }

    pub(crate) fn request(&mut self, txn: TxnId, row: Row, mode: RowLock, wait: Wait) -> Request {
        let answer = self.answer(txn, row, mode, wait);
        // Who has the lock needs its place no more: if it gives the lock back, it comes behind those who wait then.
        if matches!(answer, Request::Held | Request::Granted(_))
            && self.places.get(&txn).is_some_and(|place| place.row == row)
        {
            self.places.remove(&txn);
        }
        answer
    }

    fn answer(&mut self, txn: TxnId, row: Row, mode: RowLock, wait: Wait) -> Request {
        let Self { rows, waiting, places, arrivals, parties, spare, rules } = self;
        let party = parties.of(txn);
        debug_assert!(!waiting.contains_key(&party), "a transaction waits for one row at a time");
        let queue = rows.entry(row).or_insert_with(|| spare.pop().unwrap_or_default());
        let before = queue.held_by(txn);
        if before.is_some_and(|held| held >= mode) {
            return Request::Held;
        }
        let held = queue.held_by_party(party, parties);
        if held.is_some_and(|held| held >= mode) {
            queue.hold(txn, mode);
            return Request::Granted(before);
        }
        let place = places.get(&txn).copied().filter(|place| place.row == row);
        let queued_before = match (held, place) {
            (Some(_), _) => queue.strengthening(parties),
            (None, Some(place)) => queue.behind(place, places, parties),
            (None, None) => queue.waiters.len(),
        };
        let overtakes = queue.waiters.range(..queued_before).any(|(_, asked)| asked.conflicts(mode));
        if !queue.conflicts(party, mode, parties) && (!overtakes || broken!(rules, NewcomersOvertake)) {
            queue.hold(txn, mode);
            return Request::Granted(before);
        }
        match wait {
            Wait::Never => Request::Busy,
            Wait::Queue => {
                queue.waiters.insert(queued_before, (txn, mode));
                waiting.insert(party, row);
                if place.is_none() {
                    *arrivals += 1;
                    places.insert(txn, QueuePlace { row, number: *arrivals });
                }
                Request::Queued
            }
        }
    }

    /// Gives a row back as far as `to`, the lock held before, if any; tells whom it was granted to.
    pub(crate) fn release(&mut self, txn: TxnId, row: Row, to: Option<RowLock>, grants: &mut Vec<Grant>) {
        let Some(queue) = self.rows.get_mut(&row) else { return };
        match to {
            Some(mode) => queue.hold(txn, mode),
            None => queue.holders.retain(|(holder, _)| *holder != txn),
        }
        self.grant(row, grants);
    }

    /// Ends a transaction's wait, if it waits.
    pub(crate) fn cancel(&mut self, txn: TxnId, grants: &mut Vec<Grant>) {
        let Self { parties, places, .. } = self;
        let party = parties.of(txn);
        let Some(row) = self.waiting.remove(&party) else { return };
        if let Some(queue) = self.rows.get_mut(&row) {
            queue.waiters.retain(|(waiter, _)| {
                let stays = parties.of(*waiter) != party;
                if !stays {
                    places.remove(waiter);
                }
                stays
            });
        }
        self.grant(row, grants);
    }

    /// The transactions that wait in a circle with `txn`, it among them; nobody, if it waits for somebody who will go on.
    pub(crate) fn circle(&self, txn: TxnId) -> Vec<TxnId> {
        // Depth first along who waits for whom; `path` is the way from `txn` to where the search is.
        let first = self.parties.of(txn);
        let mut path = vec![(first, self.blockers(first))];
        let mut visited = NumberMap::from_iter([(first, ())]);
        while let Some((_, blockers)) = path.last_mut() {
            let Some(next) = blockers.pop() else {
                path.pop();
                continue;
            };
            if next == first {
                return path.into_iter().map(|(member, _)| self.parties.transaction(member)).collect();
            }
            if visited.insert(next, ()).is_none() {
                path.push((next, self.blockers(next)));
            }
        }
        Vec::new()
    }

    /// The parties that one waits for: holders in its way, and those in its way who wait before it.
    fn blockers(&self, party: TxnId) -> Vec<TxnId> {
        let of = |id: &TxnId| self.parties.of(*id);
        let Some(queue) = self.waiting.get(&party).and_then(|row| self.rows.get(row)) else { return Vec::new() };
        let Some(place) = queue.waiters.iter().position(|(waiter, _)| of(waiter) == party) else { return Vec::new() };
        let mode = queue.waiters[place].1;
        let before = queue.waiters.range(..place);
        let others = queue.holders.iter().chain(before).filter(|(_, held)| held.conflicts(mode));
        others.map(|(other, _)| of(other)).filter(|other| *other != party).collect()
    }

    /// Grants what can be granted, from the front of the queue on.
    fn grant(&mut self, row: Row, grants: &mut Vec<Grant>) {
        let parties = &self.parties;
        let Some(queue) = self.rows.get_mut(&row) else { return };
        let mut place = 0;
        while let Some((txn, mode)) = queue.waiters.get(place).copied() {
            let overtakes = queue.waiters.range(..place).any(|(_, asked)| asked.conflicts(mode));
            let party = parties.of(txn);
            if overtakes || queue.conflicts(party, mode, parties) {
                place += 1;
                continue;
            }
            queue.waiters.remove(place);
            let before = queue.held_by(txn);
            queue.hold(txn, mode);
            self.waiting.remove(&party);
            self.places.remove(&txn);
            grants.push(Grant { txn, row, before });
        }
        if queue.holders.is_empty() && queue.waiters.is_empty() {
            let queue = self.rows.remove(&row);
            if self.spare.len() < SPARE_MAX {
                self.spare.extend(queue);
            }
        }
    }
}

impl Queue {
    /// How many at the front of the queue hold the row already and want it more strongly.
    fn strengthening(&self, parties: &Parties) -> usize {
        let holds = |waiter: TxnId| self.held_by_party(parties.of(waiter), parties).is_some();
        self.waiters.iter().take_while(|(waiter, _)| holds(*waiter)).count()
    }

    /// Behind whom in the queue somebody comes who had a place: those who hold the row already, and those who came before it.
    fn behind(&self, place: QueuePlace, places: &NumberMap<TxnId, QueuePlace>, parties: &Parties) -> usize {
        let first = self.strengthening(parties);
        let came_before = |waiter: &TxnId| places.get(waiter).is_some_and(|other| other.number < place.number);
        first + self.waiters.range(first..).take_while(|(waiter, _)| came_before(waiter)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RowLock::{KeyShare, NoKeyUpdate, Share, Update};

    const ROW: Row = Row(1);
    const OTHER: Row = Row(2);

    fn ask(locks: &mut Locks, txn: u64, row: Row, mode: RowLock) -> Request {
        locks.request(TxnId(txn), row, mode, Wait::Queue)
    }

    fn release(locks: &mut Locks, txn: u64, to: Option<RowLock>) -> Vec<u64> {
        let mut grants = Vec::new();
        locks.release(TxnId(txn), ROW, to, &mut grants);
        grants.into_iter().map(|grant| grant.txn.0).collect()
    }

    #[test]
    fn a_reader_does_not_overtake_a_writer_who_waits() {
        let mut locks = Locks::default();
        assert_eq!(ask(&mut locks, 1, ROW, Share), Request::Granted(None));
        assert_eq!(ask(&mut locks, 2, ROW, Update), Request::Queued);
        assert_eq!(ask(&mut locks, 3, ROW, Share), Request::Queued);
        assert_eq!(locks.request(TxnId(4), ROW, Share, Wait::Never), Request::Busy);
        assert_eq!(release(&mut locks, 1, None), [2]);
        assert_eq!(release(&mut locks, 2, None), [3]);
        assert_eq!(release(&mut locks, 3, None), [0; 0]);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn a_reader_behind_a_writer_waits_also_when_another_reader_goes() {
        let mut locks = Locks::default();
        for reader in [1, 2] {
            assert_eq!(ask(&mut locks, reader, ROW, Share), Request::Granted(None));
        }
        assert_eq!(ask(&mut locks, 3, ROW, Update), Request::Queued);
        assert_eq!(ask(&mut locks, 4, ROW, Share), Request::Queued);
        assert_eq!(release(&mut locks, 1, None), [0; 0], "2 has it still, and 3 is before 4");
        assert_eq!(release(&mut locks, 2, None), [3]);
        assert_eq!(release(&mut locks, 3, None), [4]);
    }

    #[test]
    fn who_waits_for_nobody_before_it_is_granted_together_with_others() {
        let mut locks = Locks::default();
        ask(&mut locks, 1, ROW, Update);
        for (txn, mode) in [(2, Share), (3, KeyShare), (4, NoKeyUpdate), (5, KeyShare)] {
            assert_eq!(ask(&mut locks, txn, ROW, mode), Request::Queued);
        }
        assert_eq!(release(&mut locks, 1, None), [2, 3, 5], "4 conflicts with 2, and 5 with nobody");
        assert_eq!(release(&mut locks, 2, None), [4]);
    }

    #[test]
    fn strengthening_a_lock_goes_before_those_who_hold_nothing() {
        let mut locks = Locks::default();
        ask(&mut locks, 1, ROW, Share);
        ask(&mut locks, 2, ROW, KeyShare);
        assert_eq!(ask(&mut locks, 3, ROW, NoKeyUpdate), Request::Queued);
        assert_eq!(ask(&mut locks, 2, ROW, NoKeyUpdate), Request::Queued);
        assert_eq!(release(&mut locks, 1, None), [2]);
        assert_eq!(locks.held(TxnId(2), ROW), Some(NoKeyUpdate));
        assert_eq!(ask(&mut locks, 2, ROW, KeyShare), Request::Held);
        assert_eq!(release(&mut locks, 2, Some(KeyShare)), [3]);
    }

    #[test]
    fn who_had_to_stop_comes_back_to_its_place() {
        let mut locks = Locks::default();
        ask(&mut locks, 1, ROW, Update);
        for txn in 2..5 {
            assert_eq!(ask(&mut locks, txn, ROW, Update), Request::Queued);
        }
        let places: Vec<QueuePlace> = (2..5).map(|txn| locks.place(TxnId(txn)).expect("it waits")).collect();
        let mut grants = Vec::new();
        (2..5).for_each(|txn| locks.cancel(TxnId(txn), &mut grants));
        assert_eq!((locks.place(TxnId(2)), grants.len()), (None, 0));

        // As at another node, which counts on.
        let mut there = Locks::default();
        there.count_on(locks.arrivals());
        ask(&mut there, 1, ROW, Update);
        assert_eq!(ask(&mut there, 9, ROW, Update), Request::Queued, "it comes before they are back");
        for txn in [4, 2, 3] {
            there.keep_place(TxnId(txn), places[txn as usize - 2]);
            assert_eq!(ask(&mut there, txn, ROW, Update), Request::Queued);
        }
        assert_eq!(ask(&mut there, 8, ROW, Update), Request::Queued);
        let order: Vec<u64> = (1..=5)
            .scan(1_u64, |holder, _| {
                *holder = release(&mut there, *holder, None)[0];
                Some(*holder)
            })
            .collect();
        assert_eq!(order, [2, 3, 4, 9, 8]);
        assert!(there.places.is_empty(), "who has its lock needs no place");
        there.keep_place(TxnId(2), places[0]);
        assert_eq!(ask(&mut there, 8, OTHER, Update), Request::Granted(None));
        assert_eq!(ask(&mut there, 2, OTHER, Update), Request::Queued, "another row is another queue");
        there.forget_place(TxnId(7));
        assert_eq!(there.places.len(), 1);
    }

    #[test]
    fn who_has_its_lock_at_once_comes_to_the_end_when_it_asks_again() {
        let mut locks = Locks::default();
        ask(&mut locks, 1, ROW, Update);
        assert_eq!(ask(&mut locks, 2, ROW, Update), Request::Queued);
        let place = locks.place(TxnId(2)).expect("it waits");
        locks.cancel(TxnId(2), &mut Vec::new());
        release(&mut locks, 1, None);
        locks.keep_place(TxnId(2), place);
        assert_eq!(ask(&mut locks, 2, OTHER, Update), Request::Granted(None));
        assert_eq!(locks.place(TxnId(2)), Some(place), "it has not come to the row yet");
        assert_eq!(ask(&mut locks, 2, ROW, Update), Request::Granted(None));
        assert_eq!(locks.place(TxnId(2)), None);

        // It rolls back to a savepoint, and others have the row, or wait for it.
        release(&mut locks, 2, None);
        for (txn, comes) in [(3, Request::Granted(None)), (4, Request::Queued), (2, Request::Queued)] {
            assert_eq!(ask(&mut locks, txn, ROW, Update), comes);
        }
        assert_eq!(release(&mut locks, 3, None), [4]);
    }

    #[test]
    fn a_place_that_nobody_had_does_no_harm() {
        let mut locks = Locks::default();
        ask(&mut locks, 1, ROW, Update);
        locks.keep_place(TxnId(2), QueuePlace { row: ROW, number: u64::MAX });
        for txn in 3..6 {
            assert_eq!(ask(&mut locks, txn, ROW, Update), Request::Queued);
        }
        assert_eq!(ask(&mut locks, 2, ROW, Update), Request::Queued);
        assert_eq!(release(&mut locks, 1, None), [3]);
    }

    #[test]
    fn a_circle_is_found_also_through_those_who_wait_before() {
        let mut locks = Locks::default();
        ask(&mut locks, 1, ROW, Share);
        ask(&mut locks, 2, OTHER, Update);
        assert_eq!(ask(&mut locks, 2, ROW, Update), Request::Queued);
        assert_eq!(locks.circle(TxnId(2)), []);
        assert_eq!(ask(&mut locks, 3, ROW, Share), Request::Queued, "behind 2");
        assert_eq!(locks.circle(TxnId(3)), [], "3 waits for 2, which waits for 1, which goes on");
        assert_eq!(ask(&mut locks, 1, OTHER, KeyShare), Request::Queued);
        assert_eq!(locks.circle(TxnId(1)), [TxnId(1), TxnId(2)]);
        let mut grants = Vec::new();
        locks.cancel(TxnId(2), &mut grants);
        assert_eq!(grants, [Grant { txn: TxnId(3), row: ROW, before: None }], "nobody waits before it any more");
        assert_eq!(locks.circle(TxnId(1)), []);
    }

    #[test]
    fn two_who_strengthen_the_same_lock_wait_in_a_circle() {
        let mut locks = Locks::default();
        for txn in [1, 2] {
            ask(&mut locks, txn, ROW, Share);
        }
        assert_eq!(ask(&mut locks, 1, ROW, Update), Request::Queued);
        assert_eq!(ask(&mut locks, 2, ROW, Update), Request::Queued);
        assert_eq!(locks.circle(TxnId(2)).len(), 2);
    }
}
