//! Key groups: the unit in which keyed state is hashed, moved, snapshotted and assigned.
//!
//! ```text
//! key bytes --XXH3-64, top 15 bits--> KeyGroup --contiguous ranges--> VirtualNode --table--> member
//! ```
//!
//! The number of key groups is fixed for ever, so that parallelism, group size and place can change without rehashing.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::hash::stable_hash;

/// How many key groups there are, in every keyed service. Part of every stored format.
pub const KEY_GROUPS: u16 = 32_768;

/// One of the [`KEY_GROUPS`] classes into which keys are hashed; always below that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct KeyGroup(u16);

/// A number that is no key group, or a range that is no range of key groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyGroupError {
    /// A number past the last key group.
    #[error("expected a key group below {KEY_GROUPS}, came {0}; key groups are the top 15 bits of the key's hash")]
    OutOfRange(u16),
    /// A range that is empty, reversed, too long, or that overlaps or touches the one before it.
    #[error(
        "expected key group ranges that ascend without touching, each `start < end <= {KEY_GROUPS}`; came {start}..{end} \
         after {previous_end}; sort and join the ranges first"
    )]
    BadRange {
        /// First key group of the range that came.
        start: u16,
        /// One past the last key group of the range that came.
        end: u16,
        /// One past the end of the range before it, 0 for none.
        previous_end: u16,
    },
}

impl KeyGroup {
    /// The key group with this number.
    ///
    /// # Errors
    /// [`KeyGroupError::OutOfRange`] at [`KEY_GROUPS`] and above.
    pub const fn new(number: u16) -> Result<Self, KeyGroupError> {
        if number < KEY_GROUPS { Ok(Self(number)) } else { Err(KeyGroupError::OutOfRange(number)) }
    }

    /// The key group of a key whose [`stable_hash`] is already known: its top 15 bits.
    #[must_use]
    pub const fn from_hash(hash: u64) -> Self {
        Self((hash >> (u64::BITS - KEY_GROUPS.trailing_zeros())) as u16)
    }

    /// The number, below [`KEY_GROUPS`].
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for KeyGroup {
    type Error = KeyGroupError;

    fn try_from(number: u16) -> Result<Self, KeyGroupError> {
        Self::new(number)
    }
}

impl From<KeyGroup> for u16 {
    fn from(group: KeyGroup) -> Self {
        group.0
    }
}

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The key group of a key, from the bytes of its canonical encoding.
#[must_use]
pub fn key_group_of(key: &[u8]) -> KeyGroup {
    KeyGroup::from_hash(stable_hash(key))
}

/// A set of key groups as ascending ranges that do not touch: a few bytes for the contiguous sets that are usual.
///
/// Serialised as a list of `[start, end)` pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u16, u16)>", into = "Vec<(u16, u16)>")]
pub struct KeyGroupSet {
    /// Invariant: `start < end <= KEY_GROUPS`, ascending, and each start above the end before it.
    ranges: Vec<Range<u16>>,
}

impl KeyGroupSet {
    /// The set without members.
    #[must_use]
    pub const fn empty() -> Self {
        Self { ranges: Vec::new() }
    }

    /// All [`KEY_GROUPS`].
    #[must_use]
    pub fn full() -> Self {
        Self { ranges: std::iter::once(0..KEY_GROUPS).collect() }
    }

    /// The key groups of one range; an empty range gives the empty set.
    ///
    /// # Errors
    /// [`KeyGroupError::BadRange`] if the range is reversed or ends past [`KEY_GROUPS`].
    pub fn from_range(range: Range<u16>) -> Result<Self, KeyGroupError> {
        if range.start > range.end || range.end > KEY_GROUPS {
            return Err(KeyGroupError::BadRange { start: range.start, end: range.end, previous_end: 0 });
        }
        Ok(if range.is_empty() { Self::empty() } else { Self { ranges: std::iter::once(range).collect() } })
    }

    /// How many key groups are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether no key group is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether this key group is in the set; logarithmic in the number of ranges.
    #[must_use]
    pub fn contains(&self, group: KeyGroup) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= group.0);
        after > 0 && group.0 < self.ranges[after - 1].end
    }

    /// The key groups, ascending.
    pub fn iter(&self) -> impl Iterator<Item = KeyGroup> + '_ {
        self.ranges.iter().flat_map(|range| range.clone().map(KeyGroup))
    }

    /// The ranges that make up the set, ascending and not touching.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u16>] {
        &self.ranges
    }

    /// Key groups that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all: Vec<Range<u16>> = self.ranges.iter().chain(&other.ranges).cloned().collect();
        all.sort_by_key(|range| range.start);
        let mut ranges: Vec<Range<u16>> = Vec::with_capacity(all.len());
        for range in all {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }

    /// Key groups that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut ranges = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let both = a.start.max(b.start)..a.end.min(b.end);
            if !both.is_empty() {
                ranges.push(both);
            }
            if a.end <= b.end {
                left.next();
            } else {
                right.next();
            }
        }
        Self { ranges }
    }

    /// Key groups that are in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// Key groups that are not in this set.
    #[must_use]
    pub fn complement(&self) -> Self {
        let starts = std::iter::once(0).chain(self.ranges.iter().map(|range| range.end));
        let ends = self.ranges.iter().map(|range| range.start).chain(std::iter::once(KEY_GROUPS));
        Self { ranges: starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty()).collect() }
    }

    /// Splits the set, in ascending order, into `parts` sets whose sizes differ by at most one (the larger ones first).
    /// With more parts than key groups, the last parts are empty. No parts give no sets.
    #[must_use]
    pub fn split(&self, parts: usize) -> Vec<Self> {
        let Some((share, larger)) = self.len().checked_div(parts).zip(self.len().checked_rem(parts)) else {
            return Vec::new();
        };
        let mut pending = self.ranges.iter().cloned();
        let mut current = pending.next();
        (0..parts)
            .map(|part| {
                let mut wanted = share + usize::from(part < larger);
                let mut ranges = Vec::new();
                while wanted > 0
                    && let Some(range) = current.take()
                {
                    let taken = range.len().min(wanted);
                    // `taken` is at most the range's length, which fits its own type.
                    let cut = range.start + taken as u16;
                    ranges.push(range.start..cut);
                    wanted -= taken;
                    current = if cut < range.end { Some(cut..range.end) } else { pending.next() };
                }
                Self { ranges }
            })
            .collect()
    }
}

impl FromIterator<KeyGroup> for KeyGroupSet {
    fn from_iter<I: IntoIterator<Item = KeyGroup>>(groups: I) -> Self {
        let mut numbers: Vec<u16> = groups.into_iter().map(KeyGroup::get).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut ranges: Vec<Range<u16>> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => ranges.push(number..number + 1),
            }
        }
        Self { ranges }
    }
}

impl TryFrom<Vec<(u16, u16)>> for KeyGroupSet {
    type Error = KeyGroupError;

    fn try_from(pairs: Vec<(u16, u16)>) -> Result<Self, KeyGroupError> {
        let mut previous_end = None;
        for &(start, end) in &pairs {
            if start >= end || end > KEY_GROUPS || previous_end.is_some_and(|previous| start <= previous) {
                return Err(KeyGroupError::BadRange { start, end, previous_end: previous_end.unwrap_or(0) });
            }
            previous_end = Some(end);
        }
        Ok(Self { ranges: pairs.into_iter().map(|(start, end)| start..end).collect() })
    }
}

impl From<KeyGroupSet> for Vec<(u16, u16)> {
    fn from(set: KeyGroupSet) -> Self {
        set.ranges.into_iter().map(|range| (range.start, range.end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn key_groups_are_the_top_15_bits_of_the_hash() {
        assert_eq!(KeyGroup::from_hash(u64::MAX).get(), KEY_GROUPS - 1);
        assert_eq!(KeyGroup::from_hash(1 << 49).get(), 1);
        assert_eq!(KeyGroup::from_hash((1 << 49) - 1).get(), 0);
        assert_eq!(key_group_of(b"auction").get(), (stable_hash(b"auction") >> 49) as u16);
    }

    #[test]
    fn a_number_past_the_last_key_group_is_refused() {
        assert_eq!(KeyGroup::new(KEY_GROUPS), Err(KeyGroupError::OutOfRange(KEY_GROUPS)));
        assert!(serde_json::from_str::<KeyGroup>("32768").is_err());
        assert!(serde_json::from_str::<KeyGroupSet>("[[0,32769]]").is_err());
        assert!(serde_json::from_str::<KeyGroupSet>("[[5,9],[9,10]]").is_err());
        assert!(serde_json::from_str::<KeyGroupSet>("[[5,9],[0,2]]").is_err());
    }

    #[test]
    fn the_full_set_splits_evenly_without_gap_or_overlap() {
        for parts in [1, 2, 3, 7, 24, 32_768, 40_000] {
            let sets = KeyGroupSet::full().split(parts);
            assert_eq!(sets.len(), parts);
            let sizes: Vec<usize> = sets.iter().map(KeyGroupSet::len).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            let joined = sets.iter().fold(KeyGroupSet::empty(), |all, set| all.union(set));
            assert_eq!(joined, KeyGroupSet::full());
            assert_eq!(sizes.iter().sum::<usize>(), usize::from(KEY_GROUPS));
        }
        assert!(KeyGroupSet::full().split(0).is_empty());
    }

    fn groups() -> impl Strategy<Value = BTreeSet<u16>> {
        // A small universe at the edges, so that ranges touch, join and reach the last key group.
        prop::collection::btree_set(prop_oneof![0_u16..40, KEY_GROUPS - 40..KEY_GROUPS], 0..60)
    }

    fn set_of(numbers: &BTreeSet<u16>) -> KeyGroupSet {
        numbers.iter().map(|&number| KeyGroup(number)).collect()
    }

    fn numbers_of(set: &KeyGroupSet) -> BTreeSet<u16> {
        set.iter().map(KeyGroup::get).collect()
    }

    proptest! {
        #[test]
        fn sets_behave_like_sets_of_numbers(a in groups(), b in groups(), parts in 1_usize..9) {
            let (left, right) = (set_of(&a), set_of(&b));
            prop_assert_eq!(numbers_of(&left), a.clone());
            prop_assert_eq!(left.len(), a.len());
            prop_assert_eq!(numbers_of(&left.union(&right)), &a | &b);
            prop_assert_eq!(numbers_of(&left.intersection(&right)), &a & &b);
            prop_assert_eq!(numbers_of(&left.difference(&right)), &a - &b);
            prop_assert_eq!(left.complement().len() + left.len(), usize::from(KEY_GROUPS));
            for number in (0..50).chain(KEY_GROUPS - 50..KEY_GROUPS) {
                prop_assert_eq!(left.contains(KeyGroup(number)), a.contains(&number));
            }
            let split = left.split(parts);
            let together: Vec<u16> = split.iter().flat_map(KeyGroupSet::iter).map(KeyGroup::get).collect();
            prop_assert_eq!(together, a.into_iter().collect::<Vec<_>>());
            let json = serde_json::to_string(&left).unwrap();
            prop_assert_eq!(serde_json::from_str::<KeyGroupSet>(&json).unwrap(), left);
        }
    }
}
