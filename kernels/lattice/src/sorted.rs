//! The one collection under all lattices of keys: sorted, with a form for each size.
//!
//! Most values of a key-value service are small, and a delta has one entry; a B-tree takes a node of eleven places for
//! it. So one entry lies in place, few are a sorted vector, many a B-tree. Heap bytes for 1, 4, 16 and 32 numbers of 8
//! bytes: 0, 32, 128, 256; as a B-tree 104, 104, 408, 616 (`benches/merge.rs`). A collection that has become large stays a
//! tree. The order of the keys makes the encoded form canonical.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::mem;
use std::{slice, vec};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most entries of a vector, whose insertion moves half of them: 16 moves of an entry, whatever its size.
const FEW_MAX: usize = 32;

#[derive(Clone)]
pub(crate) enum Sorted<K, V> {
    One(K, V),
    /// Ascending keys, at most [`FEW_MAX`]; also the empty form.
    Few(Vec<(K, V)>),
    #[expect(clippy::box_collection, reason = "unboxed, it would make small collections larger than a vector")]
    Many(Box<BTreeMap<K, V>>),
}

impl<K, V> Sorted<K, V> {
    pub(crate) const fn new() -> Self {
        Self::Few(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Few(entries) => entries.len(),
            Self::Many(tree) => tree.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        match self {
            Self::One(key, value) => Iter::One(Some((key, value))),
            Self::Few(entries) => Iter::Few(entries.iter()),
            Self::Many(tree) => Iter::Many(tree.iter()),
        }
    }
}

impl<K: Ord, V> Sorted<K, V> {
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// The entry of a key, with the key as it is kept.
    pub(crate) fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::One(only, value) => (<K as Borrow<Q>>::borrow(only) == key).then_some((only, value)),
            Self::Few(entries) => place(entries, key).ok().map(|at| (&entries[at].0, &entries[at].1)),
            Self::Many(tree) => tree.get_key_value(key),
        }
    }

    pub(crate) fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Puts `value` at a key that has none, or lets `meet` combine it with the one that is there. Says whether the
    /// collection changed; `meet` says so for its part.
    pub(crate) fn upsert(&mut self, key: K, value: V, meet: impl FnOnce(&mut V, V) -> bool) -> bool {
        match self {
            Self::One(only, present) if *only == key => meet(present, value),
            Self::One(..) => {
                let Self::One(only, present) = mem::take(self) else { unreachable!("matched above") };
                let entries =
                    if only < key { [(only, present), (key, value)] } else { [(key, value), (only, present)] };
                *self = Self::Few(Vec::from(entries));
                true
            }
            Self::Few(entries) => match place(entries, &key) {
                Ok(at) => meet(&mut entries[at].1, value),
                Err(_) if entries.is_empty() && entries.capacity() == 0 => {
                    *self = Self::One(key, value);
                    true
                }
                Err(_) if entries.len() == FEW_MAX => {
                    let mut tree: BTreeMap<K, V> = mem::take(entries).into_iter().collect();
                    tree.insert(key, value);
                    *self = Self::Many(Box::new(tree));
                    true
                }
                Err(at) => {
                    entries.insert(at, (key, value));
                    true
                }
            },
            Self::Many(tree) => match tree.entry(key) {
                btree_map::Entry::Occupied(mut present) => meet(present.get_mut(), value),
                btree_map::Entry::Vacant(place) => {
                    place.insert(value);
                    true
                }
            },
        }
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::One(only, value) => (<K as Borrow<Q>>::borrow(only) == key).then_some(value),
            Self::Few(entries) => place(entries, key).ok().map(|at| &mut entries[at].1),
            Self::Many(tree) => tree.get_mut(key),
        }
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        match self {
            Self::One(only, _) if <K as Borrow<Q>>::borrow(only) == key => *self = Self::new(),
            Self::One(..) => {}
            Self::Few(entries) => {
                if let Ok(at) = place(entries, key) {
                    entries.remove(at);
                }
            }
            Self::Many(tree) => {
                tree.remove(key);
            }
        }
    }

    /// Keeps the entries that `keep` says.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        match self {
            Self::One(key, value) => {
                if !keep(key, value) {
                    *self = Self::new();
                }
            }
            Self::Few(entries) => entries.retain_mut(|(key, value)| keep(key, value)),
            Self::Many(tree) => tree.retain(|key, value| keep(key, value)),
        }
    }
}

/// Where a key is, or where it would be.
fn place<K: Borrow<Q>, V, Q: Ord + ?Sized>(entries: &[(K, V)], key: &Q) -> Result<usize, usize> {
    entries.binary_search_by(|(present, _)| present.borrow().cmp(key))
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Sorted<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for Sorted<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Sorted<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Serialize, V: Serialize> Serialize for Sorted<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Sorted<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = Vec::<(K, V)>::deserialize(deserializer)?;
        if let Some(at) = entries.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            return Err(D::Error::custom(format_args!(
                "expected ascending keys, came key {} not above the one before",
                at + 1
            )));
        }
        Ok(match entries.len() {
            1 => entries.pop().map_or_else(Self::new, |(key, value)| Self::One(key, value)),
            len if len > FEW_MAX => Self::Many(Box::new(entries.into_iter().collect())),
            _ => Self::Few(entries),
        })
    }
}

/// Entries by reference, in the keys' order.
pub(crate) enum Iter<'a, K, V> {
    One(Option<(&'a K, &'a V)>),
    Few(slice::Iter<'a, (K, V)>),
    Many(btree_map::Iter<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(entry) => entry.take(),
            Self::Few(entries) => entries.next().map(|(key, value)| (key, value)),
            Self::Many(tree) => tree.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Self::One(entry) => usize::from(entry.is_some()),
            Self::Few(entries) => entries.len(),
            Self::Many(tree) => tree.len(),
        };
        (left, Some(left))
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}

/// Entries by value, in the keys' order.
pub(crate) enum IntoIter<K, V> {
    One(Option<(K, V)>),
    Few(vec::IntoIter<(K, V)>),
    Many(btree_map::IntoIter<K, V>),
}

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(entry) => entry.take(),
            Self::Few(entries) => entries.next(),
            Self::Many(tree) => tree.next(),
        }
    }
}

impl<K, V> IntoIterator for Sorted<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        match self {
            Self::One(key, value) => IntoIter::One(Some((key, value))),
            Self::Few(entries) => IntoIter::Few(entries.into_iter()),
            Self::Many(tree) => IntoIter::Many(tree.into_iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Upsert(u8, u32),
        Remove(u8),
        RetainBelow(u8),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (any::<u8>(), any::<u32>()).prop_map(|(key, value)| Step::Upsert(key, value)),
            3 => any::<u8>().prop_map(Step::Remove),
            1 => (128..=255_u8).prop_map(Step::RetainBelow),
        ]
    }

    proptest! {
        /// Over all three forms and the ways between them.
        #[test]
        fn it_does_what_a_map_does(steps in prop::collection::vec(any_step(), 0..150)) {
            let mut sorted = Sorted::new();
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Upsert(key, value) => {
                        let before = model.get(&key).copied();
                        let larger = before.map_or(value, |old: u32| old.max(value));
                        model.insert(key, larger);
                        let changed = sorted.upsert(key, value, |mine, theirs| {
                            let grows = theirs > *mine;
                            *mine = theirs.max(*mine);
                            grows
                        });
                        prop_assert_eq!(changed, before != Some(larger));
                    }
                    Step::Remove(key) => {
                        model.remove(&key);
                        sorted.remove(&key);
                    }
                    Step::RetainBelow(bound) => {
                        model.retain(|key, _| *key < bound);
                        sorted.retain(|key, _| *key < bound);
                    }
                }
                prop_assert_eq!(sorted.len(), model.len());
                prop_assert!(sorted.iter().eq(model.iter()));
            }
            for key in 0..=255 {
                prop_assert_eq!(sorted.get(&key), model.get(&key));
                prop_assert_eq!(sorted.get_mut(&key), model.get_mut(&key));
            }
            let bytes = postcard::to_stdvec(&sorted).expect("encodes");
            prop_assert_eq!(&postcard::from_bytes::<Sorted<u8, u32>>(&bytes).expect("decodes"), &sorted);
            prop_assert!(sorted.into_iter().eq(model));
        }
    }

    #[test]
    fn keys_that_do_not_ascend_are_refused() {
        for entries in [vec![(1_u8, 0_u8), (1, 1)], vec![(2, 0), (1, 0)]] {
            let bytes = postcard::to_stdvec(&entries).expect("encodes");
            postcard::from_bytes::<Sorted<u8, u8>>(&bytes).expect_err("twice, or descending");
        }
    }

    #[test]
    fn one_small_entry_needs_no_heap_and_no_more_room_than_a_vector() {
        assert_eq!(size_of::<Sorted<u64, u64>>(), size_of::<Vec<(u64, u64)>>());
    }
}
