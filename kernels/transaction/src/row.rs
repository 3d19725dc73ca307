//! Keys, ranges of keys, and the 64-bit hash by which rows are locked and validated.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// A key that the version table, a commit's record and a write set share.
pub(crate) type Key = Arc<[u8]>;

/// The name of a row in lock table and read sets: the hash of its key, so that to remember a read takes 8 bytes and no
/// allocation. Two keys with one hash are locked and validated as one: a wait or an abort too many, never one too few.
/// What a row holds is always found by the whole key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Row(pub(crate) u64);

impl Row {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(XxHash3_64::oneshot(key))
    }
}

/// The keys from `start` up to and without `end`; without an end, all from `start` on. Keys are in the order of their
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// The first key of the range.
    pub start: Vec<u8>,
    /// The first key behind the range.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub const ALL: Self = Self { start: Vec::new(), end: None };

    /// The keys from `start` up to and without `end`.
    #[must_use]
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        // The first key behind: the last byte that can grow does, what follows it goes.
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return Self { start: prefix.to_vec(), end: Some(end) };
            }
        }
        Self { start: prefix.to_vec(), end: None }
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// Whether no key can lie in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end <= &self.start)
    }
}

/// A map by a number that is spread already or becomes so by one multiplication.
pub(crate) type NumberMap<K, T> = HashMap<K, T, BuildHasherDefault<Spread>>;

/// Multiplies by an odd number with bits everywhere (2^64 divided by the golden ratio).
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_its_keys_and_no_others() {
        let range = KeyRange::prefix(b"ab");
        assert!(range.contains(b"ab") && range.contains(b"ab\xff\xff"));
        assert!(!range.contains(b"aa\xff") && !range.contains(b"ac"));
        assert_eq!(KeyRange::prefix(b"a\xff").end, Some(b"b".to_vec()));
        assert_eq!(KeyRange::prefix(b"\xff\xff").end, None);
        assert_eq!(KeyRange::prefix(b""), KeyRange::ALL);
    }

    #[test]
    fn a_range_contains_its_start_and_not_its_end() {
        let range = KeyRange::new(*b"b", *b"d");
        assert!(range.contains(b"b") && range.contains(b"c\xff"));
        assert!(!range.contains(b"d") && !range.contains(b"a"));
        assert!(KeyRange::new(*b"d", *b"b").is_empty() && !range.is_empty());
    }
}
