//! What a table has answered, by key, bounded by rows and by age.
//!
//! A key that was used since it came to be the next one to go gets another round (the clock algorithm): about the least recently used go first.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::common::HashMap;
use savanna_streams_model::join::CacheBounds;
use savanna_streams_model::time::EventTime;

/// A key, in arrow's row format.
pub(super) type Key = Arc<[u8]>;
/// The rows of a key, each in arrow's row format. None if the table has none, which is an answer, too.
pub(super) type Rows = Arc<[Box<[u8]>]>;

/// The memory of an answer, in bytes.
pub(super) fn bytes_of(key: &Key, rows: &Rows) -> usize {
    let row = |row: &Box<[u8]>| row.len() + size_of::<Box<[u8]>>();
    key.len() + rows.iter().map(row).sum::<usize>() + size_of::<(Key, Entry)>() + size_of::<Key>()
}

#[derive(Debug)]
struct Entry {
    rows: Rows,
    asked_at: EventTime,
    used: bool,
}

/// Answers that may be used again.
#[derive(Debug)]
pub(super) struct Cache {
    bounds: CacheBounds,
    entries: HashMap<Key, Entry>,
    /// Each key that has an entry, once; the next to go first.
    next: VecDeque<Key>,
    rows: usize,
    bytes: usize,
}

impl Cache {
    pub(super) fn new(bounds: CacheBounds) -> Self {
        Self { bounds, entries: HashMap::default(), next: VecDeque::new(), rows: 0, bytes: 0 }
    }

    /// Memory held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the table has answered for a key, if that is not too old.
    pub(super) fn get(&mut self, key: &[u8], now: EventTime) -> Option<Rows> {
        let bounds = self.bounds;
        let entry = self.entries.get_mut(key).filter(|entry| is_fresh(&bounds, entry, now))?;
        entry.used = true;
        Some(Arc::clone(&entry.rows))
    }

    /// Takes an answer of an instant. Others go if there is no room.
    pub(super) fn put(&mut self, key: Key, rows: Rows, asked_at: EventTime) {
        if weight(&rows) > self.bounds.max_rows {
            if self.take(&key) {
                self.next.retain(|other| *other != key);
            }
            return;
        }
        self.make_room(weight(&rows), asked_at);
        if !self.take(&key) {
            self.next.push_back(Arc::clone(&key));
        }
        self.rows += weight(&rows);
        self.bytes += bytes_of(&key, &rows);
        self.entries.insert(key, Entry { rows, asked_at, used: false });
    }

    fn make_room(&mut self, wanted: usize, now: EventTime) {
        let bounds = self.bounds;
        while let Some(key) = self.next.front().cloned() {
            let has_room = self.rows + wanted <= bounds.max_rows;
            if let Some(entry) = self.entries.get_mut(&key).filter(|entry| is_fresh(&bounds, entry, now)) {
                if has_room {
                    return;
                }
                if std::mem::take(&mut entry.used) {
                    self.next.rotate_left(1);
                    continue;
                }
            }
            self.take(&key);
            self.next.pop_front();
        }
    }

    fn take(&mut self, key: &Key) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.rows -= weight(&entry.rows);
        self.bytes -= bytes_of(key, &entry.rows);
        true
    }
}

/// That a key has no rows takes the room of one.
fn weight(rows: &Rows) -> usize {
    rows.len().max(1)
}

/// An answer of the future was made before the clock was set back: how old it is, nobody knows.
fn is_fresh(bounds: &CacheBounds, entry: &Entry, now: EventTime) -> bool {
    let age = now.0.checked_sub(entry.asked_at.0).and_then(|age| u128::try_from(age).ok());
    age.is_some_and(|age| age < bounds.ttl.as_micros())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn cache(max_rows: usize, micros: u64) -> Cache {
        Cache::new(CacheBounds { max_rows, ttl: Duration::from_micros(micros) })
    }

    fn key(number: u64) -> Key {
        number.to_be_bytes().as_slice().into()
    }

    fn rows(values: &[u8]) -> Rows {
        values.iter().map(|value| vec![*value].into_boxed_slice()).collect()
    }

    #[test]
    fn an_answer_is_used_until_it_is_as_old_as_it_may_be() {
        let mut cache = cache(10, 100);
        cache.put(key(1), rows(&[7]), EventTime(1_000));
        cache.put(key(2), rows(&[]), EventTime(1_050));
        assert_eq!(cache.get(&key(1), EventTime(1_099)), Some(rows(&[7])));
        assert_eq!(cache.get(&key(1), EventTime(1_100)), None);
        assert_eq!(cache.get(&key(2), EventTime(1_149)), Some(rows(&[])), "that it has no rows is an answer");
        assert_eq!(cache.get(&key(3), EventTime(1_050)), None);
        assert_eq!(cache.get(&key(1), EventTime(999)), None, "the clock was set back");
        cache.put(key(1), rows(&[8, 9]), EventTime(1_200));
        assert_eq!(cache.get(&key(1), EventTime(1_200)), Some(rows(&[8, 9])));
    }

    #[test]
    fn it_holds_no_more_rows_than_it_may_and_those_that_are_used_stay() {
        let mut cache = cache(4, 1_000);
        for number in 0..4 {
            cache.put(key(number), rows(&[1]), EventTime(0));
        }
        assert!(cache.get(&key(0), EventTime(1)).is_some());
        cache.put(key(4), rows(&[]), EventTime(1));
        let there: Vec<u64> = (0..5).filter(|number| cache.get(&key(*number), EventTime(1)).is_some()).collect();
        assert_eq!(there, [0, 2, 3, 4], "1 was the least recently used");
        cache.put(key(5), rows(&[1, 2, 3, 4]), EventTime(2));
        assert_eq!((cache.rows, cache.entries.len()), (4, 1));
        cache.put(key(6), rows(&[1, 2, 3, 4, 5]), EventTime(2));
        assert!(cache.get(&key(6), EventTime(2)).is_none(), "it has more rows than there is room");
        assert!(cache.get(&key(5), EventTime(2)).is_some());
    }

    #[test]
    fn whatever_comes_it_is_what_a_map_with_ages_says_and_its_account_is_right() {
        let mut dice = 7_u64;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % sides
        };
        let (mut cache, mut last, mut hits) = (cache(20, 50), BTreeMap::new(), 0);
        for now in (0..20_000).map(|step| EventTime(step / 3)) {
            let number = roll(40);
            match cache.get(&key(number), now) {
                Some(found) => {
                    let (rows, at): &(Rows, EventTime) = &last[&number];
                    assert_eq!(&found, rows);
                    assert!(now.0 - at.0 < 50);
                    hits += 1;
                }
                None => {
                    let answer: Vec<u8> = (0..roll(5)).map(|value| value as u8).collect();
                    cache.put(key(number), rows(&answer), now);
                    last.insert(number, (rows(&answer), now));
                }
            }
            assert!(cache.rows <= 20, "{}", cache.rows);
            assert_eq!(cache.next.len(), cache.entries.len());
        }
        assert!(hits > 1_000, "{hits}");
        let rows: usize = cache.entries.values().map(|entry| weight(&entry.rows)).sum();
        let bytes: usize = cache.entries.iter().map(|(key, entry)| bytes_of(key, &entry.rows)).sum();
        assert_eq!((cache.rows, cache.bytes), (rows, bytes));
    }
}
