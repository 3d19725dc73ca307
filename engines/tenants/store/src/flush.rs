//! How a tenant's rows go from memory to its storage, a few at a time and beside its statements.
//!
//! ```text
//!  freeze: what all snapshots see alike        it is durable      somebody writes it down
//!  Idle ───────────────────────────────► Collecting ──────► Sealed ─────────────────────► Idle
//! ```
//!
//! The rows stay in memory, too, until there is need of room: what was read or written lately is found by one probe.

use std::collections::VecDeque;

use savanna_journal::Lsn;
use savanna_tenants_values::error::Result;
use savanna_transaction::{Csn, KeyRange, Seen};

use crate::{database::Database, points};

/// Bytes of records between two places in the log that are remembered.
const PLACE_BYTES: u64 = 64 << 10;
/// What a key takes in memory beside its bytes and its value's.
const KEY_OVERHEAD: u64 = 160;

/// The commits that are in the log and not in the storage yet: where the first of them is, and how much they are.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// Some of the commits, with their places and the bytes of records before them.
    places: VecDeque<(Csn, Lsn, u64)>,
    pub(crate) last: Csn,
    bytes: u64,
    keys: u64,
    /// No commit up to here is missing in the storage. It may be later than what the storage says of itself: numbers that were given
    /// up are nothing to write down.
    upto: Csn,
}

impl Unflushed {
    /// A commit is at a place in the log, with a record of so many bytes and keys.
    pub(crate) fn push(&mut self, csn: Csn, lsn: Lsn, (bytes, keys): (usize, usize)) {
        if csn <= self.last {
            return;
        }
        if self.places.back().is_none_or(|(.., before)| self.bytes - before >= PLACE_BYTES) {
            self.places.push_back((csn, lsn, self.bytes));
        }
        self.last = csn;
        self.bytes += bytes as u64;
        self.keys += keys as u64;
    }

    /// The commits up to here are in the storage.
    fn flushed(&mut self, upto: Csn) {
        self.upto = self.upto.max(upto);
        if upto >= self.last {
            self.places.clear();
        }
        while self.places.get(1).is_some_and(|(csn, ..)| *csn <= upto.next()) {
            self.places.pop_front();
        }
    }

    /// No commit up to here is missing in the storage.
    pub(crate) const fn upto(&self) -> Csn {
        self.upto
    }

    /// The log is needed from here on, if at all.
    pub(crate) fn first(&self) -> Option<Lsn> {
        self.places.front().map(|(_, lsn, _)| *lsn)
    }

    /// Bytes of records.
    fn len(&self) -> u64 {
        self.places.front().map_or(0, |(.., before)| self.bytes - before)
    }
}

/// A flush on its way.
#[derive(Debug, Default)]
pub(crate) enum Flushing {
    #[default]
    Idle,
    /// What is seen at this commit is collected, and the keys from here on are still to come.
    Collecting { at: Csn, from: Vec<u8> },
    /// All of it is collected.
    Collected { at: Csn },
    /// The storage is to write down what was collected.
    Sealed { at: Csn },
}

/// What came of a step of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The storage has everything that it may have now.
    Clean,
    /// Ask again.
    More,
    /// Ask again when the log is durable up to here.
    Wait(Lsn),
    /// The storage is to write it down; ask again then.
    Sealed,
    /// The storage has what was frozen. Later commits are for the next flush.
    Done,
}

impl Database {
    /// Goes on with a flush, or begins one: looks at some keys at most.
    ///
    /// # Errors
    /// Those of the log.
    pub fn flush(&mut self, keys_max: usize) -> Result<Flush> {
        self.note_durable()?;
        let flushing = std::mem::take(&mut self.flushing);
        let (next, came) = match flushing {
            Flushing::Idle => self.begin_flush(),
            Flushing::Collecting { at, from } => self.collect(at, from, keys_max),
            Flushing::Collected { at } => self.seal(at),
            Flushing::Sealed { at } if self.store.flushed() < at => (Flushing::Sealed { at }, Flush::Sealed),
            Flushing::Sealed { at } => {
                self.unflushed.flushed(at);
                (Flushing::Idle, Flush::Done)
            }
        };
        if self.large.flushed(self.store.flushed()) {
            points::reached("a large commit is flushed");
        }
        self.flushing = next;
        Ok(came)
    }

    fn begin_flush(&mut self) -> (Flushing, Flush) {
        let at = self.transactions.freeze();
        // Whoever still needs an older state holds up the first of what is not flushed.
        if self.unflushed.first().is_none() || at <= self.store.flushed().max(self.unflushed.upto) {
            self.transactions.thaw(at);
            return (Flushing::Idle, Flush::Clean);
        }
        (Flushing::Collecting { at, from: Vec::new() }, Flush::More)
    }

    fn collect(&mut self, at: Csn, from: Vec<u8>, keys_max: usize) -> (Flushing, Flush) {
        let flushed = self.store.flushed();
        let range = KeyRange { start: from, end: None };
        let mut keys = self.transactions.at(at, &range);
        let mut writes = keys.by_ref().take(keys_max).filter_map(|(key, seen, csn)| match seen {
            Seen::Here(value) if csn > flushed => Some((key, Some(&**value))),
            Seen::Gone if csn > flushed => Some((key, None)),
            _ => None,
        });
        self.store.apply(at, &mut writes);
        drop(writes);
        match keys.next().map(|(key, ..)| key.to_vec()) {
            Some(from) => (Flushing::Collecting { at, from }, Flush::More),
            None => {
                drop(keys);
                self.transactions.thaw(at);
                (Flushing::Collected { at }, Flush::More)
            }
        }
    }

    /// What was collected is complete up to a commit that the log has. Numbers behind it were given up, and if somebody else has taken
    /// the log over, they are commits of his, which must not count as flushed.
    fn seal(&mut self, at: Csn) -> (Flushing, Flush) {
        let upto = at.min(self.unflushed.last);
        if self.durable < upto {
            let lsn = self.logged_from(upto);
            return (Flushing::Collected { at }, Flush::Wait(lsn));
        }
        if self.store.seal(upto) {
            return (Flushing::Sealed { at: upto }, Flush::Sealed);
        }
        self.unflushed.flushed(upto);
        (Flushing::Idle, Flush::Done)
    }

    /// Whether the storage has everything.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unflushed.first().is_none() && matches!(self.flushing, Flushing::Idle)
    }

    /// The storage has all commits up to here.
    #[must_use]
    pub fn flushed(&self) -> Csn {
        self.store.flushed()
    }

    /// The last commit that whoever begins now sees.
    #[must_use]
    pub fn published(&self) -> Csn {
        self.transactions.published()
    }

    /// The log is needed from here on, if at all.
    #[must_use]
    pub fn needs_log_from(&self) -> Option<Lsn> {
        self.unflushed.first()
    }

    /// Bytes of records whose rows only memory and the log have.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed.len()
    }

    /// Bytes of records that were logged since the tenant woke, what was redone included.
    #[must_use]
    pub fn logged_bytes(&self) -> u64 {
        self.unflushed.bytes
    }

    /// About how many bytes of memory the rows take that were read from the log or written.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let bytes_per_key = self.unflushed.bytes.checked_div(self.unflushed.keys).unwrap_or(0);
        self.transactions.keys() as u64 * (KEY_OVERHEAD + bytes_per_key)
    }

    /// Whether a snapshot is in use that is older than the last commit. What was committed since stays in memory and in the log.
    pub fn has_old_snapshot(&self) -> bool {
        self.transactions.horizon() < self.transactions.published()
    }

    /// Forgets rows that the storage has, of some keys from `from` on. Returns where to go on.
    pub fn evict(&mut self, from: Vec<u8>, keys_max: usize) -> Option<Vec<u8>> {
        let (flushed, before) = (self.store.flushed(), self.transactions.keys());
        let range = KeyRange { start: from, end: None };
        let next = self.transactions.evict(flushed, &range, keys_max);
        if self.transactions.keys() < before {
            self.below.add(KeyRange { end: next.clone(), ..range });
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_needed_from_the_first_commit_that_is_not_flushed_or_somewhat_before() {
        let mut unflushed = Unflushed::default();
        assert_eq!((unflushed.first(), unflushed.len()), (None, 0));
        for csn in 1..=100 {
            unflushed.push(Csn(csn), Lsn(csn * 10), (8 << 10, 1));
        }
        assert_eq!(unflushed.first(), Some(Lsn(10)));
        for upto in 1..100 {
            unflushed.flushed(Csn(upto));
            let first = unflushed.first().expect("not all are flushed");
            assert!(first <= Lsn((upto + 1) * 10) && first.0 + 80 > (upto + 1) * 10, "{upto}: {first:?}");
        }
        unflushed.flushed(Csn(100));
        assert_eq!((unflushed.first(), unflushed.len()), (None, 0));
    }
}
