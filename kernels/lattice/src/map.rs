//! Values by key: what a key-value store is.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::Lattice;
use crate::sorted::Sorted;

/// Lattices by key; merging is the union of the keys, and values of common keys merge. No key ever goes away. (For keys
/// that can be removed: [`OrMap`](crate::OrMap).)
///
/// A delta is a map of the keys that changed, each with a delta of its value; so is a changeset, which collects deltas
/// until they are sent (Anna A6, merge at the sender).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "K: Deserialize<'de> + Ord, L: Deserialize<'de>"))]
pub struct Map<K, L> {
    entries: Sorted<K, L>,
}

impl<K: Ord, L: Lattice> Map<K, L> {
    /// The empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Sorted::new() }
    }

    /// Merges `value` into the key's value; an absent key takes it as it is. Says whether the map changed.
    pub fn merge_at(&mut self, key: K, value: L) -> bool {
        self.entries.upsert(key, value, L::merge)
    }

    /// The key's value.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&L>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key)
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values, by ascending key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &L)> {
        self.entries.iter()
    }
}

impl<K: Ord, L: Lattice> Lattice for Map<K, L> {
    fn merge(&mut self, other: Self) -> bool {
        if self.is_empty() {
            *self = other;
            return !self.is_empty();
        }
        let mut changed = false;
        for (key, value) in other.entries {
            changed |= self.merge_at(key, value);
        }
        changed
    }
}

impl<K, L> Default for Map<K, L> {
    fn default() -> Self {
        Self { entries: Sorted::new() }
    }
}

impl<K, L> IntoIterator for Map<K, L> {
    type Item = (K, L);
    type IntoIter = IntoIter<K, L>;

    fn into_iter(self) -> IntoIter<K, L> {
        IntoIter(self.entries.into_iter())
    }
}

/// Keys and values of a [`Map`], by ascending key.
pub struct IntoIter<K, L>(crate::sorted::IntoIter<K, L>);

impl<K, L> Iterator for IntoIter<K, L> {
    type Item = (K, L);

    fn next(&mut self) -> Option<(K, L)> {
        self.0.next()
    }
}

impl<K: Ord, L: Lattice> FromIterator<(K, L)> for Map<K, L> {
    /// Values of a key that comes twice merge.
    fn from_iter<I: IntoIterator<Item = (K, L)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (key, value) in entries {
            map.merge_at(key, value);
        }
        map
    }
}

impl<K: Ord, L: Lattice, const N: usize> From<[(K, L); N]> for Map<K, L> {
    fn from(entries: [(K, L); N]) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Max;

    #[test]
    fn values_of_common_keys_merge() {
        let mut map = Map::from([("a", Max(1)), ("b", Max(5))]);
        assert!(map.merge(Map::from([("b", Max(4)), ("c", Max(2))])));
        assert!(!map.merge_at("a", Max(0)));
        assert_eq!(map, Map::from([("a", Max(1)), ("b", Max(5)), ("c", Max(2))]));
        assert_eq!(map.get("b"), Some(&Max(5)));
        assert!(map.into_iter().map(|(key, _)| key).eq(["a", "b", "c"]));
    }
}
