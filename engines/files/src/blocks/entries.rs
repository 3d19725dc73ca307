//! All blocks by their numbers, with counts of how they stand, so that nobody has to look at all of them to know that. They have places in an order in which
//! they can be looked at a part at a time, while others come and go.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
#[cfg(any(test, feature = "flaws"))]
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Entry;
use crate::ids::{BlockId, InodeId};

/// How many blocks stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of files that are not being written.
    pub closed: u64,
    /// Those of them that no data node has.
    pub lacking: u64,
    /// Those that no data node has, as far as it is known, whatever is known of their files.
    pub missing: u64,
    /// Those of them of which there should be one replica.
    pub missing_of_one: u64,
    /// Those of which there are replicas, and all were found damaged.
    pub corrupt: u64,
}

impl Counts {
    fn of(entry: &Entry) -> Self {
        let is_closed = entry.wanted.is_some_and(|wanted| !wanted.is_open);
        let is_missing = entry.is_missing();
        let is_of_one = entry.wanted.is_some_and(|wanted| wanted.replication <= 1);
        Self {
            closed: u64::from(is_closed),
            lacking: u64::from(is_closed && is_missing),
            missing: u64::from(is_missing),
            missing_of_one: u64::from(is_missing && is_of_one),
            corrupt: u64::from(!is_missing && entry.is_corrupt()),
        }
    }

    fn all(&mut self) -> [&mut u64; 5] {
        [&mut self.closed, &mut self.lacking, &mut self.missing, &mut self.missing_of_one, &mut self.corrupt]
    }

    fn add(&mut self, mut other: Self) {
        self.all().into_iter().zip(other.all()).for_each(|(sum, count)| *sum += *count);
    }

    fn take(&mut self, mut other: Self) {
        self.all().into_iter().zip(other.all()).for_each(|(sum, count)| *sum -= *count);
    }
}

/// A block that may be changed: what it counts for is counted anew behind that.
pub(super) struct Changing<'e> {
    entry: &'e mut Entry,
    counts: &'e mut Counts,
}

impl<'e> Changing<'e> {
    fn new(entry: &'e mut Entry, counts: &'e mut Counts) -> Self {
        counts.take(Counts::of(entry));
        Self { entry, counts }
    }
}

impl Deref for Changing<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.entry
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Entry {
        self.entry
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.counts.add(Counts::of(self.entry));
    }
}

/// All blocks.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Where each is.
    index: HashMap<BlockId, u32>,
    /// In any order; a place that is free is taken by the next that comes.
    slots: Vec<Option<(BlockId, Entry)>>,
    free: Vec<u32>,
    counts: Counts,
    /// Where the next place is that is to be looked at in a round, behind which it begins in front again, and how many are left. What comes during a round, perhaps
    /// behind its end, is no part of it.
    next: usize,
    end: usize,
    left: usize,
    #[cfg(any(test, feature = "flaws"))]
    looks: AtomicUsize,
}

impl Entries {
    /// One is looked at, which is counted where somebody asks how long looks are.
    fn look(&self) {
        #[cfg(any(test, feature = "flaws"))]
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were looked at since this was asked last.
    #[cfg(any(test, feature = "flaws"))]
    pub(super) fn take_looks(&self) -> usize {
        self.looks.swap(0, Ordering::Relaxed)
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn get(&self, block: &BlockId) -> Option<&Entry> {
        self.look();
        let slot = *self.index.get(block)? as usize;
        self.slots.get(slot)?.as_ref().map(|(_, entry)| entry)
    }

    pub(super) fn get_mut(&mut self, block: &BlockId) -> Option<Changing<'_>> {
        self.look();
        let slot = *self.index.get(block)? as usize;
        let (_, entry) = self.slots.get_mut(slot)?.as_mut()?;
        Some(Changing::new(entry, &mut self.counts))
    }

    /// The block of this number, which belongs to an inode if it is new.
    pub(super) fn get_or_new(&mut self, block: BlockId, inode: InodeId) -> Changing<'_> {
        self.look();
        let slot = match self.index.get(&block) {
            Some(slot) => *slot as usize,
            None => self.insert(block, Entry::of(inode)),
        };
        let (_, entry) = self.slots[slot].as_mut().expect("a place whose block is known is not free");
        Changing::new(entry, &mut self.counts)
    }

    fn insert(&mut self, block: BlockId, entry: Entry) -> usize {
        self.counts.add(Counts::of(&entry));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer blocks than memory has room for")
        });
        self.slots[slot as usize] = Some((block, entry));
        self.index.insert(block, slot);
        slot as usize
    }

    pub(super) fn remove(&mut self, block: &BlockId) -> Option<Entry> {
        self.look();
        let slot = self.index.remove(block)?;
        let (_, entry) = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.counts.take(Counts::of(&entry));
        Some(entry)
    }

    /// So many places from one on, and what is there.
    pub(super) fn part(&self, from: usize, most: usize) -> impl Iterator<Item = (BlockId, &Entry)> {
        let part = self.slots.iter().skip(from).take(most);
        part.inspect(|_| self.look()).flatten().map(|(block, entry)| (*block, entry))
    }

    /// Whether there are places behind so many.
    pub(super) fn is_behind(&self, from: usize) -> bool {
        from < self.slots.len()
    }

    /// All are to be looked at. Those that come later are looked at because they come.
    pub(super) fn begin_round(&mut self) {
        self.end = self.slots.len();
        self.left = self.end;
    }

    /// Whether all were looked at that were to be.
    pub(super) const fn is_round_over(&self) -> bool {
        self.left == 0
    }

    /// What is in the next place that is to be looked at; nothing if it is free, or there is none.
    pub(super) fn next_of_round(&mut self) -> Option<BlockId> {
        self.left = self.left.checked_sub(1)?;
        self.look();
        let at = self.next % self.end;
        self.next = at + 1;
        self.slots.get(at)?.as_ref().map(|(block, _)| *block)
    }
}
