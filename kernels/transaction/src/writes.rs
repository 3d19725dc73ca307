//! What a transaction is going to write: private until it commits, with savepoints.

use std::{collections::BTreeMap, ops::Bound};

use crate::{
    Change, KeyRange,
    row::{Key, Row},
};

/// One key's new value; `None` deletes it.
#[derive(Debug)]
pub(crate) struct Write<V> {
    pub(crate) key: Key,
    pub(crate) row: Row,
    pub(crate) value: Option<V>,
    pub(crate) change: Change,
    /// What this transaction had written to the key before the last savepoint.
    earlier: Option<u32>,
}

/// A write set: what was written in order, and which is the newest of each key. Rolling back to a savepoint takes writes
/// off the end.
#[derive(Debug)]
pub(crate) struct WriteSet<V> {
    written: Vec<Write<V>>,
    newest: BTreeMap<Key, u32>,
    /// Writes before this one belong to savepoints and are not overwritten.
    mark: usize,
}

impl<V> Default for WriteSet<V> {
    fn default() -> Self {
        Self { written: Vec::new(), newest: BTreeMap::new(), mark: 0 }
    }
}

impl<V> WriteSet<V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    pub(crate) fn put(&mut self, key: &[u8], row: Row, value: Option<V>, change: Change) {
        let place = self.written.len() as u32;
        let Some(newest) = self.newest.get_mut(key) else {
            let key = Key::from(key);
            self.newest.insert(Key::clone(&key), place);
            self.written.push(Write { key, row, value, change, earlier: None });
            return;
        };
        let before = &mut self.written[*newest as usize];
        let change = change.max(before.change);
        if *newest as usize >= self.mark {
            before.value = value;
            before.change = change;
            return;
        }
        let write = Write { key: Key::clone(&before.key), row, value, change, earlier: Some(*newest) };
        *newest = place;
        self.written.push(write);
    }

    /// What was written to a key before there were `mark` writes.
    pub(crate) fn get(&self, key: &[u8], mark: usize) -> Option<&Write<V>> {
        if self.newest.is_empty() { None } else { self.before(*self.newest.get(key)?, mark) }
    }

    /// What was written to the keys of a range before there were `mark` writes.
    pub(crate) fn range<'a>(
        &'a self,
        range: &KeyRange,
        mark: usize,
    ) -> impl DoubleEndedIterator<Item = &'a Write<V>> + use<'a, V> {
        self.newest.range::<[u8], _>(bounds(range)).filter_map(move |(_, newest)| self.before(*newest, mark))
    }

    /// Whether anything was written in a range.
    pub(crate) fn touches(&self, range: &KeyRange) -> bool {
        self.newest.range::<[u8], _>(bounds(range)).next().is_some()
    }

    fn before(&self, newest: u32, mark: usize) -> Option<&Write<V>> {
        let mut write = &self.written[newest as usize];
        if (newest as usize) < mark {
            return Some(write);
        }
        while let Some(earlier) = write.earlier {
            write = &self.written[earlier as usize];
            if (earlier as usize) < mark {
                return Some(write);
            }
        }
        None
    }

    /// The newest write of each key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Write<V>> {
        self.newest.values().map(|newest| &self.written[*newest as usize])
    }

    /// The newest write of each key from one on, in the order of keys.
    pub(crate) fn from(&self, key: &[u8]) -> impl Iterator<Item = &Write<V>> {
        let keys = self.newest.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        keys.map(|(_, newest)| &self.written[*newest as usize])
    }

    /// Marks a savepoint: how many writes there are.
    pub(crate) fn save(&mut self) -> usize {
        self.mark = self.written.len();
        self.mark
    }

    /// Goes back to when there were `mark` writes.
    pub(crate) fn roll_back(&mut self, mark: usize) {
        while self.written.len() > mark {
            let Some(write) = self.written.pop() else { break };
            match write.earlier {
                Some(earlier) => self.newest.insert(write.key, earlier),
                None => self.newest.remove(&write.key),
            };
        }
        self.mark = mark;
    }

    /// Everything that was written, in order, with what savepoints keep.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Write<V>> {
        self.written.iter()
    }

    /// How many of the writes belong to savepoints.
    pub(crate) fn mark(&self) -> usize {
        self.mark
    }

    /// Puts back what was [written](Self::written), in that order. Writes of one key are behind each other's savepoints.
    pub(crate) fn restored(writes: impl Iterator<Item = (Key, Option<V>, Change)>, mark: usize) -> Self {
        let mut set = Self { mark, ..Self::default() };
        for (key, value, change) in writes {
            let earlier = set.newest.insert(Key::clone(&key), set.written.len() as u32);
            set.written.push(Write { row: Row::of(&key), key, value, change, earlier });
        }
        set
    }

    pub(crate) fn len(&self) -> usize {
        self.written.len()
    }

    /// For how many writes it has room.
    pub(crate) fn capacity(&self) -> usize {
        self.written.capacity()
    }

    /// Takes the newest write of each key out, in the order in which the keys were last written.
    pub(crate) fn take(&mut self) -> Vec<Write<V>> {
        let mut written = std::mem::take(&mut self.written);
        if written.len() > self.newest.len() {
            let mut place = 0;
            written.retain(|write| {
                let newest = self.newest.get(&write.key) == Some(&place);
                place += 1;
                newest
            });
        }
        self.clear();
        written
    }

    pub(crate) fn clear(&mut self) {
        self.written.clear();
        self.newest.clear();
        self.mark = 0;
    }
}

/// A range's bounds. An empty range must not reach a `BTreeMap`, which panics at an end before the start.
pub(crate) fn bounds(range: &KeyRange) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let start = range.start.as_slice();
    match &range.end {
        Some(_) if range.is_empty() => (Bound::Included(start), Bound::Excluded(start)),
        Some(end) => (Bound::Included(start), Bound::Excluded(end.as_slice())),
        None => (Bound::Included(start), Bound::Unbounded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(writes: &mut WriteSet<u32>, key: &[u8], value: u32, change: Change) {
        writes.put(key, Row::of(key), Some(value), change);
    }

    fn all(writes: &WriteSet<u32>) -> Vec<(&[u8], Option<u32>)> {
        writes.iter().map(|write| (&*write.key, write.value)).collect()
    }

    #[test]
    fn rolling_back_to_a_savepoint_brings_earlier_writes_back() {
        let mut writes = WriteSet::default();
        put(&mut writes, b"a", 1, Change::Content);
        let mark = writes.save();
        put(&mut writes, b"a", 2, Change::Content);
        put(&mut writes, b"b", 3, Change::Existence);
        let inner = writes.save();
        put(&mut writes, b"a", 4, Change::Content);
        assert_eq!(all(&writes), [(&b"a"[..], Some(4)), (b"b", Some(3))]);
        writes.roll_back(inner);
        assert_eq!(all(&writes), [(&b"a"[..], Some(2)), (b"b", Some(3))]);
        writes.roll_back(mark);
        assert_eq!(all(&writes), [(&b"a"[..], Some(1))]);
        put(&mut writes, b"a", 5, Change::Content);
        writes.roll_back(mark);
        assert_eq!(all(&writes), [(&b"a"[..], Some(1))], "the savepoint is still there");
    }

    #[test]
    fn one_write_of_each_key_is_taken_and_it_is_as_strong_as_the_strongest() {
        let mut writes = WriteSet::default();
        put(&mut writes, b"a", 1, Change::Existence);
        put(&mut writes, b"b", 2, Change::Content);
        writes.save();
        put(&mut writes, b"a", 3, Change::Content);
        put(&mut writes, b"a", 4, Change::Content);
        let taken = writes.take();
        let taken: Vec<_> = taken.iter().map(|write| (&*write.key, write.value, write.change)).collect();
        assert_eq!(taken, [(&b"b"[..], Some(2), Change::Content), (b"a", Some(4), Change::Existence)]);
        assert!(writes.is_empty());
    }

    #[test]
    fn an_empty_range_holds_nothing_and_does_not_panic() {
        let mut writes = WriteSet::default();
        put(&mut writes, b"b", 1, Change::Content);
        assert_eq!(writes.range(&KeyRange::new(*b"c", *b"a"), usize::MAX).count(), 0);
        assert_eq!(writes.range(&KeyRange::new(*b"b", *b"b"), usize::MAX).count(), 0);
        assert_eq!(writes.range(&KeyRange::ALL, usize::MAX).count(), 1);
    }
}
