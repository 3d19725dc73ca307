//! A value under a version: the later version wins, equal versions merge.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::{Lattice, Stamp};

/// The timestamp form of Anna's pair (A5.3): of two versions the later one replaces the earlier one with its value; equal
/// versions mean the same transaction, and their values merge.
///
/// `A` must be a total order. With an order in which two versions may be concurrent (a vector clock) this rule is *not*
/// a lattice: that is the published causal pair, which [`SiblingSet`](crate::SiblingSet) replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pair<A, B> {
    /// Decides which value counts.
    pub version: A,
    /// The value under it.
    pub value: B,
}

/// A version of two levels, transaction and command within it (Anna A3, nested pair): a later transaction replaces,
/// within one transaction a later command replaces, within one command values merge.
pub type NestedPair<B> = Pair<Stamp, Pair<u32, B>>;

impl<A, B> Pair<A, B> {
    /// A value under a version.
    pub const fn new(version: A, value: B) -> Self {
        Self { version, value }
    }
}

impl<A: Ord, B: Lattice> Lattice for Pair<A, B> {
    fn merge(&mut self, other: Self) -> bool {
        match other.version.cmp(&self.version) {
            Ordering::Greater => {
                *self = other;
                true
            }
            Ordering::Equal => self.value.merge(other.value),
            Ordering::Less => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Set;

    #[test]
    fn a_later_version_replaces_and_an_equal_one_merges() {
        let mut pair = Pair::new(1, Set::from(["a"]));
        assert!(pair.merge(Pair::new(1, Set::from(["b"]))));
        assert_eq!(pair.value, Set::from(["a", "b"]));
        assert!(pair.merge(Pair::new(2, Set::from(["c"]))));
        assert!(!pair.merge(Pair::new(1, Set::from(["late"]))));
        assert_eq!(pair, Pair::new(2, Set::from(["c"])));
    }

    #[test]
    fn a_nested_pair_compares_the_transaction_before_the_command() {
        let write = |transaction, command, value| Pair::new(transaction, Pair::new(command, Set::from([value])));
        let mut pair = write(1, 9, "first transaction, last command");
        assert!(pair.merge(write(2, 0, "second transaction, first command")));
        assert!(pair.merge(write(2, 1, "second command")));
        assert!(!pair.merge(write(2, 0, "late")));
        assert_eq!(pair, write(2, 1, "second command"));
    }
}
