//! Maps and sets whose keys can be removed.

use std::borrow::Borrow;

use crate::causal::{Causal, DotFun, DotMap, DotStore};
use crate::{Dots, WriterId};

/// A map whose keys can be removed. Writing a key replaces what the writing replica had under it; concurrent writes of a
/// key stay side by side ([`OrMap::get`] gives them all), and a write concurrent with a removal survives it.
///
/// Where one value per key is wanted, let `V` be [`Lww`](crate::Lww) and read the largest.
pub type OrMap<K, V> = Causal<DotMap<K, DotFun<V>>>;

/// A set whose elements can be removed (observed-remove set): a removal takes away the additions that its replica had
/// seen, so that a concurrent addition wins.
///
/// ```
/// use savanna_lattice::{Lattice, OrSet, WriterId};
///
/// let (east, west) = (WriterId(1), WriterId(2));
/// let mut here = OrSet::new();
/// let mut there = OrSet::new();
/// there.merge(here.add(east, "mango"));
///
/// let removed = here.remove("mango"); // here, while ...
/// let added = there.add(west, "mango"); // ... it is added there again
/// here.merge(added);
/// there.merge(removed);
/// assert!(here.contains("mango") && here == there);
/// ```
pub type OrSet<T> = OrMap<T, ()>;

impl<K: Ord + Clone, V: Ord + Clone> OrMap<K, V> {
    /// Writes a key in the name of the replica's writer. Returns the delta for the other replicas.
    pub fn insert(&mut self, writer: WriterId, key: K, value: V) -> Self {
        let dot = self.seen.next(writer);
        let mut seen = Dots::from(dot);
        if let Some(replaced) = self.store.get(&key) {
            replaced.visit_dots(&mut |dot| {
                seen.insert(dot);
            });
        }
        self.apply(DotMap::of(key, DotFun::of(dot, value)), seen)
    }

    /// Removes a key as far as this replica has seen it. Returns the delta for the other replicas; it is empty if the key
    /// is not here.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Self
    where
        K: Borrow<Q>,
    {
        let mut seen = Dots::new();
        let Some((key, removed)) = self.store.stores.get_key_value(key) else {
            return self.apply(DotMap::default(), seen);
        };
        removed.visit_dots(&mut |dot| {
            seen.insert(dot);
        });
        let gone = DotMap::of(key.clone(), DotFun::default());
        self.apply(gone, seen)
    }
}

impl<K: Ord, V: Ord> OrMap<K, V> {
    /// The values under a key: none, one, or those of concurrent writes.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = &V>
    where
        K: Borrow<Q>,
    {
        self.store.get(key).into_iter().flat_map(|store| store.values.iter().map(|(_, value)| value))
    }

    /// Whether the key is in the map.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.store.get(key).is_some()
    }

    /// How many keys there are. (A delta counts the keys that it adds, and takes time for those that it removes.)
    #[must_use]
    pub fn len(&self) -> usize {
        if self.named { self.store.iter().count() } else { self.store.stores.len() }
    }

    /// How many keys it says something about, also those that it removes. Takes no time.
    #[must_use]
    pub fn place_count(&self) -> usize {
        self.store.stores.len()
    }

    /// All keys that it says something about, ascending, also those that it removes; `None` of what is no delta, because
    /// its context alone removes keys.
    pub fn named(&self) -> Option<impl Iterator<Item = &K>> {
        self.named.then(|| self.store.stores.iter().map(|(key, _)| key))
    }

    /// The keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.store.iter().map(|(key, _)| key)
    }
}

impl<T: Ord + Clone> OrSet<T> {
    /// Adds an element in the name of the replica's writer. Returns the delta for the other replicas.
    pub fn add(&mut self, writer: WriterId, element: T) -> Self {
        self.insert(writer, element, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lattice;

    const X: WriterId = WriterId(1);
    const Y: WriterId = WriterId(2);

    #[test]
    fn a_removed_element_does_not_come_back_with_a_late_delta() {
        let mut set = OrSet::new();
        let added = set.add(X, "a");
        let removed = set.remove("a");
        let mut other = OrSet::new();
        other.merge(removed);
        other.merge(added);
        assert!(!other.contains("a"));
        assert_eq!(set, other);
    }

    #[test]
    fn clearing_removes_what_was_seen_and_nothing_else() {
        let mut here = OrSet::new();
        let mut there = OrSet::new();
        there.merge(here.add(X, "a"));
        let late = here.add(X, "b");
        let added = there.add(Y, "c");
        let again = there.add(Y, "a");
        let cleared = here.clear();
        assert!(here.is_empty());
        for delta in [added, again] {
            here.merge(delta);
        }
        there.merge(cleared);
        there.merge(late); // it was seen where all was removed
        assert!(here == there && here.keys().eq(&["a", "c"]));
    }

    #[test]
    fn an_addition_concurrent_with_a_removal_wins() {
        let mut here = OrSet::new();
        let mut there = OrSet::new();
        there.merge(here.add(X, "a"));
        let removed = here.remove("a");
        there.add(Y, "a");
        there.merge(removed);
        assert!(there.contains("a"));
    }

    #[test]
    fn what_is_removed_leaves_no_trace_but_the_context() {
        let mut set = OrSet::new();
        for round in 0..100 {
            set.add(X, round);
            set.remove(&round);
        }
        assert_eq!(set.store.stores.len(), 0);
        assert_eq!(postcard::to_stdvec(set.seen()).expect("encodes").len(), 4, "one run of dots");
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        let mut set = OrSet::new();
        set.add(X, "a");
        let before = set.clone();
        let delta = set.remove("b");
        assert_eq!(set, before);
        assert_eq!(delta, OrSet::new());
    }

    #[test]
    fn concurrent_writes_of_a_key_stay_side_by_side_until_one_follows() {
        let mut here = OrMap::new();
        let mut there = OrMap::new();
        let mine = here.insert(X, "k", 1);
        here.merge(there.insert(Y, "k", 2));
        there.merge(mine);
        assert!(here.get("k").eq(&[1, 2]));
        there.merge(here.insert(X, "k", 3));
        assert!(there.get("k").eq(&[3]));
        assert_eq!(there.len(), 1);
    }

    #[test]
    fn a_delta_counts_what_it_adds() {
        let mut set = OrSet::new();
        let mut changes = set.add(X, 1);
        changes.merge(set.add(X, 2));
        changes.merge(set.remove(&1));
        assert_eq!((changes.len(), set.len()), (1, 1));
        assert!(changes.keys().eq(&[2]));
        assert!(changes.named().expect("a delta").eq(&[1, 2]), "what it removes, too");
        assert!(set.named().is_none());
    }
}
