//! What was committed, in several versions: each snapshot reads its own.
//!
//! Rows are found by key in a hash table (one probe, no allocation) and in key order for scans. Below this table lies a
//! storage that holds an older state; [`Seen::Below`] says that it has the answer. A row keeps its newest version in
//! place and older ones behind it, as long as a snapshot needs them:
//!
//! ```text
//!          version 3      version 8        version 9
//!  ... ───────┬──────────────┬────────────────┬───────►  CSN
//!       needed by a     needed by a      needed always
//!       snapshot 3..8   snapshot 8..9
//! ```

use std::collections::{BTreeMap, VecDeque, btree_map};

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::{
    Csn, KeyRange,
    fault::{Rules, broken},
    row::{Key, NumberMap, Row},
    snapshots::Snapshots,
    writes::bounds,
};

/// What a reader sees of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a, V> {
    /// This value.
    Here(&'a V),
    /// Nothing: it was deleted.
    Gone,
    /// What the storage below has; this table knows nothing of the key that the snapshot may see.
    Below,
}

impl<'a, V> Seen<'a, V> {
    /// The value, where nothing lies below or nothing was found there.
    pub fn value(self) -> Option<&'a V> {
        match self {
            Self::Here(value) => Some(value),
            Self::Gone | Self::Below => None,
        }
    }

    pub(crate) fn of(value: Option<&'a V>) -> Self {
        value.map_or(Self::Gone, Self::Here)
    }
}

#[derive(Debug)]
struct Version<V> {
    csn: Csn,
    value: Option<V>,
}

#[derive(Debug)]
struct Stored<V> {
    row: Row,
    key: Key,
    newest: Version<V>,
    /// Oldest first.
    older: Vec<Version<V>>,
    /// Whether the row is among the crowded ones.
    listed: bool,
}

/// A row's versions, oldest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RowVersions<V> {
    pub(crate) key: Key,
    pub(crate) versions: Vec<(Csn, Option<V>)>,
}

/// The version table.
#[derive(Debug)]
pub(crate) struct Versions<V> {
    slots: Vec<Option<Stored<V>>>,
    free: Vec<u32>,
    by_hash: HashTable<u32>,
    by_key: BTreeMap<Key, u32>,
    /// Rows with older versions: once each, with the commit that made the newest of them old when they were put here.
    crowded: VecDeque<(Csn, u32)>,
    rules: Rules,
}

impl<V> Versions<V> {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_hash: HashTable::new(),
            by_key: BTreeMap::new(),
            crowded: VecDeque::new(),
            rules,
        }
    }

    /// What `snapshot` sees of a key, and the commit that wrote it.
    pub(crate) fn get(&self, key: &[u8], row: Row, snapshot: Csn) -> (Seen<'_, V>, Csn) {
        match self.find(key, row) {
            Some(slot) => self.seen(slot, snapshot),
            None => (Seen::Below, Csn::NONE),
        }
    }

    /// The commit that wrote a key last; 0 if that is not known here.
    pub(crate) fn written_by(&self, key: &[u8], row: Row) -> Csn {
        self.find(key, row).and_then(|slot| self.stored(slot)).map_or(Csn::NONE, |stored| stored.newest.csn)
    }

    /// The keys of a range in order, with what is stored of each.
    pub(crate) fn range(&self, range: &KeyRange) -> btree_map::Range<'_, Key, u32> {
        self.by_key.range::<[u8], _>(bounds(range))
    }

    /// What `snapshot` sees of the row in a slot, and the commit that wrote it.
    pub(crate) fn seen(&self, slot: u32, snapshot: Csn) -> (Seen<'_, V>, Csn) {
        let Some(stored) = self.stored(slot) else { return (Seen::Below, Csn::NONE) };
        let newest = &stored.newest;
        if newest.csn <= snapshot || broken!(self.rules, ReadsIgnoreSnapshots) {
            return (Seen::of(newest.value.as_ref()), newest.csn);
        }
        match stored.older.iter().rev().find(|version| version.csn <= snapshot) {
            Some(version) => (Seen::of(version.value.as_ref()), version.csn),
            None => (Seen::Below, Csn::NONE),
        }
    }

    /// Adds a version, and keeps the one before it if it is `needed`, which is asked with that version's number. A version
    /// that the row has already, or that is older than its newest, changes nothing: replaying a log twice is replaying it
    /// once. Returns the row's slot if something changed.
    pub(crate) fn install(
        &mut self,
        key: Key,
        row: Row,
        csn: Csn,
        value: Option<V>,
        needed: impl FnOnce(Csn) -> bool,
    ) -> Option<u32> {
        let version = Version { csn, value };
        let Some(slot) = self.find(&key, row) else {
            let stored = Stored { row, key: Key::clone(&key), newest: version, older: Vec::new(), listed: false };
            let slot = self.occupy(stored);
            self.by_key.insert(key, slot);
            let slots = &self.slots;
            self.by_hash.insert_unique(row.0, slot, |slot| hash_of(slots, *slot));
            return Some(slot);
        };
        let stored = self.slots[slot as usize].as_mut()?;
        if csn <= stored.newest.csn && !broken!(self.rules, ReplayIgnoresNumbers) {
            return None;
        }
        let old = std::mem::replace(&mut stored.newest, version);
        if !needed(old.csn) {
            return Some(slot);
        }
        stored.older.push(old);
        if !std::mem::replace(&mut stored.listed, true) {
            self.crowded.push_back((csn, slot));
        }
        Some(slot)
    }

    /// Whether a row has so many versions that looking for garbage pays now. Counted in powers of two, so that a row
    /// whose versions are all needed is not searched each time.
    pub(crate) fn is_crowded(&self, slot: u32) -> bool {
        self.stored(slot).is_some_and(|stored| stored.older.len() >= 4 && stored.older.len().is_power_of_two())
    }

    /// Removes the versions of a row that no snapshot in use and none of the future, at `published` or later, can see.
    pub(crate) fn prune(&mut self, slot: u32, snapshots: &Snapshots, published: Csn) {
        let rules = self.rules;
        let Some(stored) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let mut replaced_by = stored.newest.csn;
        let mut kept = stored.older.len();
        // From the newest to the oldest; those kept move to the end.
        for place in (0..stored.older.len()).rev() {
            let csn = stored.older[place].csn;
            let needed = replaced_by > published
                || (snapshots.any_between(csn, replaced_by) && !broken!(rules, GarbageIgnoresSnapshots));
            if needed {
                kept -= 1;
                stored.older.swap(place, kept);
                replaced_by = csn;
            }
        }
        stored.older.drain(..kept);
    }

    /// Prunes at most `rows_max` rows whose older versions were replaced before `horizon`, the oldest snapshot in use.
    pub(crate) fn collect(&mut self, rows_max: usize, snapshots: &Snapshots, published: Csn) {
        let horizon = snapshots.oldest().map_or(published, |oldest| oldest.min(published));
        for _ in 0..rows_max {
            match self.crowded.front() {
                Some((replaced_by, _)) if *replaced_by <= horizon => {}
                Some(_) if broken!(self.rules, GarbageIgnoresSnapshots) => {}
                _ => return,
            }
            let Some((_, slot)) = self.crowded.pop_front() else { return };
            self.prune(slot, snapshots, published);
            if let Some(stored) = self.slots[slot as usize].as_mut() {
                stored.listed = !stored.older.is_empty();
                if stored.listed {
                    self.crowded.push_back((stored.newest.csn, slot));
                }
            }
        }
    }

    /// Looks at the first rows of a range, at most so many, and forgets those that were not written after `flushed`; they are
    /// read from below from now on. Returns the first key that was not looked at, if there is one.
    pub(crate) fn evict(&mut self, flushed: Csn, range: &KeyRange, rows_max: usize) -> Option<Vec<u8>> {
        let mut gone = Vec::new();
        let mut rows = self.range(range);
        for (key, slot) in rows.by_ref().take(rows_max) {
            if self.stored(*slot).is_some_and(|stored| stored.newest.csn <= flushed && stored.older.is_empty()) {
                gone.push((Key::clone(key), *slot));
            }
        }
        let next = rows.next().map(|(key, _)| key.to_vec());
        for (key, slot) in gone {
            self.by_key.remove(&key);
            if let Some(stored) = self.slots[slot as usize].take()
                && let Ok(entry) = self.by_hash.find_entry(stored.row.0, |found| *found == slot)
            {
                entry.remove();
            }
            self.free.push(slot);
        }
        if self.by_key.is_empty() {
            // Nothing is left that would have a place.
            *self = Self::new(self.rules);
        }
        next
    }

    /// Every row in the order of keys, with its versions, oldest first.
    pub(crate) fn image<'a>(&'a self) -> Vec<RowVersions<&'a V>> {
        let stored = self.by_key.values().filter_map(|slot| self.stored(*slot));
        let row = |stored: &'a Stored<V>| RowVersions {
            key: Key::clone(&stored.key),
            versions: stored
                .older
                .iter()
                .chain([&stored.newest])
                .map(|version| (version.csn, version.value.as_ref()))
                .collect(),
        };
        stored.map(row).collect()
    }

    /// The versions that are newer than `csn`, with their keys.
    pub(crate) fn since(&self, csn: Csn) -> impl Iterator<Item = (&[u8], Csn, Option<&V>)> {
        let stored = self.slots.iter().flatten();
        let versions = stored
            .flat_map(|stored| stored.older.iter().chain([&stored.newest]).map(|version| (&*stored.key, version)));
        let newer = versions.filter(move |(_, version)| version.csn > csn);
        newer.map(|(key, version)| (key, version.csn, version.value.as_ref()))
    }

    /// The rows that are to be looked at for garbage, by their places in the order of keys.
    pub(crate) fn crowded(&self) -> Vec<(Csn, u64)> {
        let places: NumberMap<u64, u64> =
            self.by_key.values().zip(0..).map(|(slot, place)| (u64::from(*slot), place)).collect();
        let listed = |slot| self.stored(slot).is_some_and(|stored| stored.listed);
        let crowded = self.crowded.iter().filter(|(_, slot)| listed(*slot));
        crowded.filter_map(|(csn, slot)| Some((*csn, *places.get(&u64::from(*slot))?))).collect()
    }

    /// Puts a table back, made of what [`image`](Self::image) and [`crowded`](Self::crowded) said. `None` if keys or versions are not
    /// in order, or there is no such row.
    pub(crate) fn restored(rows: Vec<RowVersions<V>>, crowded: Vec<(Csn, u64)>, rules: Rules) -> Option<Self> {
        let mut table = Self::new(rules);
        let count = rows.len() as u64;
        for RowVersions { key, versions } in rows {
            let in_order = table.by_key.last_key_value().is_none_or(|(last, _)| *last < key);
            if !in_order || versions.is_empty() {
                return None;
            }
            let row = Row::of(&key);
            for (csn, value) in versions {
                table.install(Key::clone(&key), row, csn, value, |_| true)?;
            }
        }
        table.crowded.clear();
        for stored in table.slots.iter_mut().flatten() {
            stored.listed = false;
        }
        for (csn, place) in crowded {
            // Rows were put in one after the other, so that places are slots.
            let slot = u32::try_from(place).ok().filter(|_| place < count)?;
            table.slots[slot as usize].as_mut()?.listed = true;
            table.crowded.push_back((csn, slot));
        }
        Some(table)
    }

    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Rows, and versions of all rows.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let older: usize = self.slots.iter().flatten().map(|stored| stored.older.len()).sum();
        (self.by_key.len(), self.by_key.len() + older)
    }

    fn stored(&self, slot: u32) -> Option<&Stored<V>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn find(&self, key: &[u8], row: Row) -> Option<u32> {
        let is_it = |slot: &u32| self.stored(*slot).is_some_and(|stored| stored.row == row && *stored.key == *key);
        self.by_hash.find(row.0, is_it).copied()
    }

    fn occupy(&mut self, stored: Stored<V>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(stored);
            return slot;
        }
        self.slots.push(Some(stored));
        (self.slots.len() - 1) as u32
    }
}

fn hash_of<V>(slots: &[Option<Stored<V>>], slot: u32) -> u64 {
    slots[slot as usize].as_ref().map_or(0, |stored| stored.row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"key";

    /// A row with one version for each number; its value is the number.
    fn row_of(csns: &[u64]) -> Versions<u64> {
        let mut versions = Versions::new(Rules::default());
        for csn in csns {
            versions.install(Key::from(KEY), Row::of(KEY), Csn(*csn), Some(*csn), |_| true);
        }
        versions
    }

    fn at(versions: &Versions<u64>, snapshot: u64) -> Seen<'_, u64> {
        versions.get(KEY, Row::of(KEY), Csn(snapshot)).0
    }

    #[test]
    fn a_snapshot_sees_the_newest_version_that_is_not_newer_than_itself() {
        let versions = row_of(&[3, 8, 9]);
        assert_eq!(at(&versions, 2), Seen::Below);
        for (snapshot, value) in [(3, 3), (7, 3), (8, 8), (9, 9), (100, 9)] {
            assert_eq!(at(&versions, snapshot), Seen::Here(&value), "at {snapshot}");
        }
    }

    #[test]
    fn replaying_an_old_version_changes_nothing() {
        let mut versions = row_of(&[3, 8]);
        for csn in [1, 3, 8] {
            versions.install(Key::from(KEY), Row::of(KEY), Csn(csn), None, |_| true);
        }
        assert_eq!((at(&versions, 3), at(&versions, 8), versions.counts()), (Seen::Here(&3), Seen::Here(&8), (1, 2)));
    }

    #[test]
    fn versions_between_two_snapshots_are_garbage() {
        let mut versions = row_of(&(1..=100).collect::<Vec<_>>());
        let mut snapshots = Snapshots::default();
        for snapshot in [10, 50] {
            snapshots.take(Csn(snapshot));
        }
        versions.prune(0, &snapshots, Csn(98));
        assert_eq!(versions.counts(), (1, 5), "for 10, 50, new ones at 98, 99 and later");
        for snapshot in [10, 50, 98, 99, 100] {
            assert_eq!(at(&versions, snapshot), Seen::Here(&snapshot));
        }
        versions.collect(10, &snapshots, Csn(100));
        assert_eq!(versions.counts(), (1, 3), "for 10, 50, and the newest");
        snapshots.release(Csn(10));
        snapshots.release(Csn(50));
        versions.collect(10, &snapshots, Csn(100));
        assert_eq!(versions.counts(), (1, 1));
    }

    #[test]
    fn what_was_flushed_is_read_from_below_and_its_place_used_again() {
        let mut versions: Versions<u64> = Versions::new(Rules::default());
        for csn in 1..=10_u64 {
            let key = Key::from(csn.to_be_bytes());
            versions.install(Key::clone(&key), Row::of(&key), Csn(csn), Some(csn), |_| true);
        }
        let seventh = 7_u64.to_be_bytes();
        assert_eq!(versions.evict(Csn(7), &KeyRange::ALL, 6), Some(seventh.to_vec()), "the next time it goes on there");
        assert_eq!(versions.evict(Csn(7), &KeyRange { start: seventh.to_vec(), end: None }, 6), None);
        assert_eq!(versions.range(&KeyRange::ALL).count(), 3);
        for csn in 1..=10_u64 {
            let key = csn.to_be_bytes();
            let seen = versions.get(&key, Row::of(&key), Csn(10)).0;
            assert_eq!(seen, if csn <= 7 { Seen::Below } else { Seen::Here(&csn) });
        }
        let key = Key::from(b"new".as_slice());
        versions.install(Key::clone(&key), Row::of(&key), Csn(11), Some(11), |_| true);
        assert_eq!(versions.slots.len(), 10);
    }
}
