//! Where the storage has rows that memory may lack. Everywhere else whoever reads asks memory alone.
//!
//! A tenant that began with nothing in the storage has all of its rows in memory until some are evicted, also those that were flushed. Of a key that memory
//! knows it then has what every snapshot in use sees, and of one that it does not know there is nothing.

use std::{
    collections::BTreeMap,
    ops::Bound::{self, Excluded, Included, Unbounded},
};

use savanna_transaction::KeyRange;

/// Ranges that are told apart; if there are more, all is one.
const RANGES_MAX: usize = 1_024;

/// Ranges that do not touch, by where they begin. One without an end is the last.
#[derive(Debug, Default)]
pub(crate) struct Below(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Below {
    /// Memory may lack any row.
    pub(super) fn everywhere() -> Self {
        Self(BTreeMap::from([(Vec::new(), None)]))
    }

    /// Memory may lack a row of a range.
    pub(super) fn touches(&self, range: &KeyRange) -> bool {
        let last = self.last(range.end.as_deref().map_or(Unbounded, Excluded));
        last.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| *end > range.start))
    }

    /// Memory may lack the row of a key.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.last(Included(key)).is_some_and(|(_, end)| end.as_deref().is_none_or(|end| end > key))
    }

    /// From now on memory may lack the rows of a range, too.
    pub(crate) fn add(&mut self, range: KeyRange) {
        if range.is_empty() {
            return;
        }
        let KeyRange { mut start, mut end } = range;
        // What it touches is one with it.
        while let Some((other, other_end)) = self.last(end.as_deref().map_or(Unbounded, Included))
            && other_end.as_ref().is_none_or(|other_end| *other_end >= start)
        {
            let (other, other_end) = (other.clone(), other_end.clone());
            self.0.remove(&other);
            start = start.min(other);
            end = later(end, other_end);
        }
        self.0.insert(start, end);
        if self.0.len() > RANGES_MAX {
            *self = Self::everywhere();
        }
    }

    /// The last range that begins before a key.
    fn last(&self, key: Bound<&[u8]>) -> Option<(&Vec<u8>, &Option<Vec<u8>>)> {
        self.0.range::<[u8], _>((Unbounded, key)).next_back()
    }
}

/// The later of two ends, of which none is later than any.
fn later(a: Option<Vec<u8>>, b: Option<Vec<u8>>) -> Option<Vec<u8>> {
    Some(a?.max(b?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0_u8..4, 0..3)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        (key(), prop::option::weighted(0.9, key())).prop_map(|(start, end)| KeyRange { start, end })
    }

    proptest! {
        #[test]
        fn a_range_is_touched_by_those_that_have_a_key_in_common(
            added in prop::collection::vec(range(), 0..8),
            asked in prop::collection::vec(range(), 20),
            keys in prop::collection::vec(key(), 20),
        ) {
            let mut below = Below::default();
            for range in &added {
                below.add(range.clone());
            }
            for key in keys {
                prop_assert_eq!(below.has(&key), added.iter().any(|range| range.contains(&key)), "{:?}", key);
            }
            for range in asked.iter().filter(|range| !range.is_empty()) {
                let later_start = |other: &KeyRange| other.start.clone().max(range.start.clone());
                // Two ranges have a key in common if they have the later of their starts.
                let expected = added.iter().any(|other| other.contains(&later_start(other)) && range.contains(&later_start(other)));
                prop_assert_eq!(below.touches(range), expected, "{:?} {:?}", range, below);
            }
            let ranges: Vec<_> = below.0.iter().collect();
            let apart = |pair: &[(&Vec<u8>, &Option<Vec<u8>>)]| pair[0].1.as_ref().is_some_and(|end| end < pair[1].0);
            prop_assert!(ranges.windows(2).all(apart), "{:?}", below);
        }
    }

    #[test]
    fn of_very_many_ranges_all_are_one() {
        let mut below = Below::default();
        for start in 0..=RANGES_MAX as u32 {
            assert!(!below.has(&u32::MAX.to_be_bytes()));
            let start = (2 * start).to_be_bytes();
            below.add(KeyRange { start: start.to_vec(), end: Some([&start[..], &[0]].concat()) });
        }
        assert!(below.has(&u32::MAX.to_be_bytes()) && below.touches(&KeyRange::ALL));
        assert_eq!(below.0.len(), 1);
    }
}
