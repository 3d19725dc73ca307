//! Values that know which changes they have seen, so that *removed* can be told from *not heard of yet*.
//!
//! A [`Causal`] value is a store of what is alive, each part under the dot of the change that made it, and a context: all
//! dots ever seen. Where two replicas meet, a part that only one of them has was removed by the other one if its dot is
//! in the other's context, and is news to it if not. (Dotted version vectors; delta-state CRDTs.)
//!
//! Two stores build everything: values by dot ([`DotFun`]), and stores by key ([`DotMap`]).

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::sorted::Sorted;
use crate::{Dot, Dots, Lattice};

/// A store of living parts and the context of all changes seen.
///
/// [`SiblingSet`](crate::SiblingSet), [`OrMap`](crate::OrMap) and [`OrSet`](crate::OrSet) are values of this type with
/// methods of their own. Their deltas are small values of the same type.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Encoded<S>", bound(serialize = "S: Serialize", deserialize = "S: DotStore + Deserialize<'de>"))]
pub struct Causal<S> {
    pub(crate) store: S,
    pub(crate) seen: Dots,
    /// Whether every key that `seen` says something about is in the store, if only to say that nothing is left under
    /// it. So it is with deltas, and merging one looks at its keys only, not at the whole store. It is a hint about
    /// cost and no part of the value.
    pub(crate) named: bool,
}

impl<S: DotStore> Causal<S> {
    /// A value that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { store: S::default(), seen: Dots::new(), named: false }
    }

    /// All changes seen: what a client is given with a value that it reads, and hands back when it overwrites it.
    #[must_use]
    pub const fn seen(&self) -> &Dots {
        &self.seen
    }

    /// Whether nothing is alive. (It may have seen much.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Removes all that this replica has seen; what it has not seen survives. Returns the delta for the other replicas.
    /// That names no key, so it is small, and merging it looks at the whole store.
    pub fn clear(&mut self) -> Self {
        self.store = S::default();
        Self { store: S::default(), seen: self.seen.clone(), named: false }
    }

    /// Merges a delta made here, and hands it out for the other replicas.
    pub(crate) fn apply(&mut self, store: S, seen: Dots) -> Self
    where
        S: Clone,
    {
        let delta = Self { store, seen, named: true };
        self.merge(delta.clone());
        delta
    }
}

impl<S: DotStore> Lattice for Causal<S> {
    fn merge(&mut self, other: Self) -> bool {
        let named = self.named && other.named;
        let meeting = Meeting { mine: &self.seen, theirs: &other.seen, theirs_named: other.named, named };
        let changed = self.store.join(other.store, &meeting);
        self.named = named;
        self.seen.merge(other.seen) | changed
    }
}

impl<S: DotStore> Default for Causal<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: DotStore> PartialEq for Causal<S> {
    fn eq(&self, other: &Self) -> bool {
        self.seen == other.seen && self.store.same_life(&other.store)
    }
}

impl<S: DotStore> Eq for Causal<S> {}

/// The contexts of two values that merge.
#[derive(Debug)]
pub struct Meeting<'a> {
    mine: &'a Dots,
    theirs: &'a Dots,
    /// Whether the other value names all keys that it says something about.
    theirs_named: bool,
    /// Whether the result does, and keeps keys with nothing alive for that.
    named: bool,
}

/// A store of living parts by dot. The crate's two stores implement it; it is public so that they can be combined.
pub trait DotStore: Default {
    /// Whether nothing is alive.
    fn is_empty(&self) -> bool;

    /// Shows every living dot to `visit`.
    fn visit_dots(&self, visit: &mut dyn FnMut(Dot));

    /// Takes in what is new in `other` and gives up what `other` has seen and no longer has. Says whether what is alive
    /// changed.
    fn join(&mut self, other: Self, meeting: &Meeting<'_>) -> bool;

    /// Whether the same parts are alive in both.
    fn same_life(&self, other: &Self) -> bool;
}

/// Values by the dot of the write that made them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "V: Deserialize<'de>"))]
pub struct DotFun<V> {
    pub(crate) values: Sorted<Dot, V>,
}

impl<V> DotFun<V> {
    pub(crate) const fn of(dot: Dot, value: V) -> Self {
        Self { values: Sorted::One(dot, value) }
    }
}

impl<V> Default for DotFun<V> {
    fn default() -> Self {
        Self { values: Sorted::new() }
    }
}

impl<V: Ord> DotStore for DotFun<V> {
    fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn visit_dots(&self, visit: &mut dyn FnMut(Dot)) {
        self.values.iter().for_each(|(dot, _)| visit(*dot));
    }

    fn join(&mut self, other: Self, meeting: &Meeting<'_>) -> bool {
        let before = self.values.len();
        self.values.retain(|dot, _| other.values.contains(dot) || !meeting.theirs.contains(*dot));
        let mut changed = self.values.len() != before;
        for (dot, value) in other.values {
            if self.values.contains(&dot) || !meeting.mine.contains(dot) {
                // One dot, one value; if a writer broke that, the larger value wins, so that replicas still agree.
                changed |= self.values.upsert(dot, value, |mine, theirs| {
                    let grows = theirs > *mine;
                    if grows {
                        *mine = theirs;
                    }
                    grows
                });
            }
        }
        changed
    }

    fn same_life(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

/// Stores by key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "K: Deserialize<'de> + Ord, S: Deserialize<'de>"))]
pub struct DotMap<K, S> {
    /// A key with an empty store only where all keys are named (in deltas).
    pub(crate) stores: Sorted<K, S>,
}

impl<K: Ord, S: DotStore> DotMap<K, S> {
    pub(crate) const fn of(key: K, store: S) -> Self {
        Self { stores: Sorted::One(key, store) }
    }

    /// The store of a key with something alive.
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&S>
    where
        K: Borrow<Q>,
    {
        self.stores.get(key).filter(|store| !store.is_empty())
    }

    /// Keys with something alive, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &S)> {
        self.stores.iter().filter(|(_, store)| !store.is_empty())
    }
}

impl<K, S> Default for DotMap<K, S> {
    fn default() -> Self {
        Self { stores: Sorted::new() }
    }
}

impl<K: Ord, S: DotStore> DotStore for DotMap<K, S> {
    fn is_empty(&self) -> bool {
        self.stores.iter().all(|(_, store)| store.is_empty())
    }

    fn visit_dots(&self, visit: &mut dyn FnMut(Dot)) {
        self.stores.iter().for_each(|(_, store)| store.visit_dots(visit));
    }

    fn join(&mut self, other: Self, meeting: &Meeting<'_>) -> bool {
        let mut changed = false;
        if !meeting.theirs_named {
            self.stores.retain(|key, mine| {
                if !other.stores.contains(key) {
                    changed |= mine.join(S::default(), meeting);
                }
                meeting.named || !mine.is_empty()
            });
        }
        for (key, theirs) in other.stores {
            match self.stores.get_mut(&key) {
                Some(mine) => {
                    changed |= mine.join(theirs, meeting);
                    if mine.is_empty() && !meeting.named {
                        self.stores.remove(&key);
                    }
                }
                None => {
                    let mut fresh = S::default();
                    changed |= fresh.join(theirs, meeting);
                    if meeting.named || !fresh.is_empty() {
                        self.stores.upsert(key, fresh, |_, _| false);
                    }
                }
            }
        }
        changed
    }

    fn same_life(&self, other: &Self) -> bool {
        let mut others = other.iter();
        self.iter().all(|(key, mine)| others.next().is_some_and(|(k, theirs)| key == k && mine.same_life(theirs)))
            && others.next().is_none()
    }
}

/// What is encoded, before it is checked.
#[derive(Deserialize)]
#[serde(rename = "Causal")]
struct Encoded<S> {
    store: S,
    seen: Dots,
    named: bool,
}

impl<S: DotStore> TryFrom<Encoded<S>> for Causal<S> {
    type Error = String;

    fn try_from(Encoded { store, seen, named }: Encoded<S>) -> Result<Self, Self::Error> {
        let mut unseen = None;
        store.visit_dots(&mut |dot| {
            if !seen.contains(dot) {
                unseen.get_or_insert(dot);
            }
        });
        match unseen {
            Some(dot) => Err(format!("expected every living dot in the context, came {dot} outside of it")),
            None => Ok(Self { store, seen, named }),
        }
    }
}
