//! A set that only grows.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::Lattice;
use crate::sorted::Sorted;

/// A set that only grows; merging is union. A delta is a set of what was added. (For elements that can be removed:
/// [`OrSet`](crate::OrSet).)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "T: Deserialize<'de> + Ord"))]
pub struct Set<T> {
    elements: Sorted<T, ()>,
}

impl<T: Ord> Set<T> {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { elements: Sorted::new() }
    }

    /// Adds an element. Says whether it is new.
    pub fn insert(&mut self, element: T) -> bool {
        self.elements.upsert(element, (), |(), ()| false)
    }

    /// Whether the element is in the set.
    pub fn contains<Q: Ord + ?Sized>(&self, element: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.elements.contains(element)
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The elements, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.elements.iter().map(|(element, ())| element)
    }
}

impl<T: Ord> Lattice for Set<T> {
    fn merge(&mut self, other: Self) -> bool {
        if self.is_empty() {
            *self = other;
            return !self.is_empty();
        }
        let mut changed = false;
        for (element, ()) in other.elements {
            changed |= self.insert(element);
        }
        changed
    }
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { elements: Sorted::new() }
    }
}

impl<T: Ord> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::new();
        for element in elements {
            set.insert(element);
        }
        set
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for Set<T> {
    fn from(elements: [T; N]) -> Self {
        elements.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_union() {
        let mut set = Set::from(["b", "a"]);
        assert!(set.merge(Set::from(["c", "a"])));
        assert!(!set.merge(Set::from(["b"])));
        assert!(set.iter().eq(&["a", "b", "c"]));
        assert!(set.contains("c") && !set.contains("d"));
        assert_eq!(set.len(), 3);
    }
}
