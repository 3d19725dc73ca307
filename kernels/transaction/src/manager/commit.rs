//! The way of a commit through the manager: its locks, its number, its decision, and its place in the order that others
//! see.

use std::cmp::Reverse;

use super::{InFlight, Transactions};
use crate::{
    Checked, Commit, Committed, Conflict, Csn, Isolation, Prepared, RowLock, TransactionError, TxnId, Validation, Wait,
    fault::broken,
    history::{Record, Written, conflict},
    row::{Key, Row},
    txn::{SPARE_ENTRIES_MAX, Txn, running},
    writes::Write,
};

impl<V> Transactions<V> {
    /// Commits in one piece: prepares, checks, decides. The owner logs what comes out and [installs](Self::install) it.
    ///
    /// # Errors
    /// A [`Conflict`] ended the transaction. After [`TransactionError::Deadlock`] it lives and may be rolled back.
    /// [`TransactionError::Unknown`], [`TransactionError::Waiting`].
    pub fn commit(&mut self, id: TxnId) -> Result<Commit<V>, TransactionError> {
        let Some(mut txn) = self.lock_for_commit(id)? else { return Ok(Commit::Waiting) };
        if txn.writes.is_empty() {
            return Ok(Commit::ReadOnly(self.end_read_only(id, txn)));
        }
        let (record, writes) = self.number(id, &mut txn);
        let concurrent = self.concurrent(txn.snapshot, record.csn);
        let conflict = conflict(txn.isolation, &txn.reads, &record.written, concurrent, self.rules);
        self.retire(id, txn);
        Ok(Commit::Committed(self.decide(Checked { txn: id, csn: record.csn, writes, conflict })?))
    }

    /// Asks for the locks that a commit needs, and numbers it. From then on it is a value, and the transaction is no more.
    ///
    /// # Errors
    /// [`TransactionError::Deadlock`], after which the transaction lives. [`TransactionError::Unknown`],
    /// [`TransactionError::Waiting`].
    pub fn prepare(&mut self, id: TxnId) -> Result<Prepared<V>, TransactionError> {
        let Some(mut txn) = self.lock_for_commit(id)? else { return Ok(Prepared::Waiting) };
        if txn.writes.is_empty() {
            return Ok(Prepared::ReadOnly(self.end_read_only(id, txn)));
        }
        let (record, writes) = self.number(id, &mut txn);
        let isolation = txn.isolation;
        let concurrent = match isolation {
            Isolation::ReadCommitted => Vec::new(),
            _ => self.concurrent(txn.snapshot, record.csn).cloned().collect(),
        };
        let reads = std::mem::take(&mut txn.reads);
        self.retire(id, txn);
        Ok(Prepared::Numbered(Validation { txn: id, isolation, reads, writes, record, concurrent, rules: self.rules }))
    }

    /// Takes the result of a check: from here on the commit will be, if its owner logs it, or is no more.
    ///
    /// # Errors
    /// The [`Conflict`] that was found.
    pub fn decide(&mut self, checked: Checked<V>) -> Result<Committed<V>, Conflict> {
        let Checked { txn, csn, writes, conflict } = checked;
        let committed = Committed { csn, writes };
        match conflict {
            Some(conflict) => {
                self.withdraw(committed);
                Err(conflict)
            }
            None => {
                if broken!(self.rules, LocksEndBeforePublish)
                    && let Some(place) = self.place(csn)
                {
                    let locks = std::mem::take(&mut self.in_flight[place].locks);
                    self.release(txn, &locks);
                    self.hand_out();
                }
                Ok(committed)
            }
        }
    }

    /// Gives a decided commit up, because it could not be logged.
    pub fn withdraw(&mut self, committed: Committed<V>) {
        let csn = committed.csn;
        drop(committed);
        self.history.withdraw(csn);
        if let Some(in_flight) = self.place(csn).and_then(|place| self.in_flight.remove(place)) {
            self.release(in_flight.txn, &in_flight.locks);
        }
        self.durable.ready(csn);
        self.publish(csn);
    }

    /// Makes a logged commit's writes visible to the snapshots that are taken from now on, once all commits before it
    /// are; its locks end then. It need not be durable: who reads it waits with the reply.
    pub fn install(&mut self, committed: Committed<V>) {
        let Committed { csn, writes } = committed;
        let rows = writes.len();
        let Self { versions, snapshots, published, rules, .. } = self;
        // Nobody will take a snapshot without it any more: then only those in use need what it replaces.
        let last = published.reached().next() == csn;
        for write in writes {
            let needed = |old| !last || (snapshots.any_between(old, csn) && !broken!(rules, GarbageIgnoresSnapshots));
            if let Some(slot) = versions.install(write.key, write.row, csn, write.value, needed)
                && versions.is_crowded(slot)
            {
                versions.prune(slot, snapshots, published.reached());
            }
        }
        if let Some(place) = self.place(csn) {
            self.in_flight[place].installed = true;
        }
        self.publish(csn);
        self.collect(rows + 1);
    }

    /// Says that a commit's record is durable, in any order, and returns what may be [told](Self::told).
    ///
    /// # Errors
    /// [`TransactionError::UnknownCsn`].
    pub fn durable(&mut self, csn: Csn) -> Result<Csn, TransactionError> {
        if !self.durable.ready(csn) {
            return Err(TransactionError::UnknownCsn(csn));
        }
        Ok(self.told())
    }

    /// Commits up to here are published and durable, without a gap: their clients may hear of it, and so may those who
    /// read them.
    #[must_use]
    pub fn told(&self) -> Csn {
        if broken!(self.rules, ToldBeforeDurable) {
            return self.published.reached();
        }
        self.published.reached().min(self.durable.reached())
    }

    /// Snapshots are taken here.
    #[must_use]
    pub fn published(&self) -> Csn {
        self.published.reached()
    }

    /// Takes the locks that READ COMMITTED would have taken on the way, in one order for all; the transaction, out of the
    /// table, once it has them.
    fn lock_for_commit(&mut self, id: TxnId) -> Result<Option<Box<Txn<V>>>, TransactionError> {
        let txn = running(&mut self.txns, id)?;
        if txn.is_validated() && !txn.writes.is_empty() && !broken!(self.rules, CommitsIgnoreLocks) {
            let probes = txn.reads.probes.iter().map(|row| (row, RowLock::KeyShare));
            let mut needed: Vec<(Row, RowLock)> =
                txn.writes.iter().map(|write| (write.row, write.change.lock())).chain(probes).collect();
            needed.sort_unstable_by_key(|(row, mode)| (*row, Reverse(*mode)));
            for (row, mode) in needed {
                if !self.take(id, row, mode, Wait::Queue)? {
                    return Ok(None);
                }
            }
        }
        self.txns.remove(&id).map(Some).ok_or(TransactionError::Unknown(id))
    }

    fn end_read_only(&mut self, id: TxnId, txn: Box<Txn<V>>) -> Csn {
        let reply_after = if broken!(self.rules, ReadsAreNotGated) { Csn::NONE } else { txn.reply_after.get() };
        self.retire(id, txn);
        self.hand_out();
        reply_after
    }

    /// Gives a transaction that has its locks the next number.
    fn number(&mut self, id: TxnId, txn: &mut Txn<V>) -> (Record, Vec<Write<V>>) {
        let csn = self.published.open();
        let same = self.durable.open();
        debug_assert_eq!(csn, same, "both watermarks count the same commits");
        let writes = txn.writes.take();
        let written = writes
            .iter()
            .map(|write| Written { row: write.row, key: Key::clone(&write.key), change: write.change })
            .collect();
        let record = Record { csn, written };
        self.history.push(record.clone());
        let locks = std::mem::take(&mut txn.locks);
        self.in_flight.push_back(InFlight { csn, txn: id, locks, installed: false });
        (record, writes)
    }

    /// What a commit is to be validated against.
    fn concurrent(&self, snapshot: Option<Csn>, csn: Csn) -> impl Iterator<Item = &Record> + Clone {
        let undecided = if broken!(self.rules, UndecidedAreNotValidated) { self.published.reached() } else { csn };
        // Without a snapshot nothing was read.
        self.history.between(snapshot.unwrap_or(csn), csn).take_while(move |record| record.csn <= undecided)
    }

    /// Where a commit is among those in flight.
    fn place(&self, csn: Csn) -> Option<usize> {
        self.in_flight.binary_search_by_key(&csn, |commit| commit.csn).ok()
    }

    /// Notes that a commit needs nothing more before it is published, and ends the locks of those that are.
    fn publish(&mut self, csn: Csn) {
        self.published.ready(csn);
        #[cfg(feature = "faults")]
        if self.rules.broken(crate::Fault::PublishedOutOfOrder) {
            self.published.jump(csn);
        }
        let published = self.published.reached();
        while let Some(first) = self.in_flight.pop_front_if(|first| first.csn <= published && first.installed) {
            self.release(first.txn, &first.locks);
            if first.locks.len() > SPARE_ENTRIES_MAX {
                self.locks.shrink();
            }
        }
        let horizon = match self.snapshots.oldest() {
            Some(oldest) if !broken!(self.rules, HistoryForgetsTooEarly) => oldest.min(published),
            _ => published,
        };
        self.history.forget(horizon);
        self.hand_out();
    }
}
