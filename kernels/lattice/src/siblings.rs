//! The values of concurrent writes, kept side by side until somebody who saw them writes again.

use crate::causal::{Causal, DotFun};
use crate::{Dots, Lattice, WriterId};

/// A register under causal consistency: a write replaces the values that its writer had read, and stays beside those
/// that it had not. (A dotted version vector set.)
///
/// It replaces the published causal pair, a vector clock with one merged value (Anna A5.2), whose merge is not
/// associative: replicas that heard of the same writes in different orders hold different values under equal clocks and
/// never agree again (hazard A-1; `tests/it/causal_pair.rs` shows both). Here each sibling keeps the dot of its own
/// write, so that the one that was overwritten goes, whatever arrives first.
///
/// A client needs no id. It hands back the context that it read; the replica that takes the write numbers it in its own
/// name, so that a stale read cannot number two writes alike (hazard A-2), and the context's size is the number of
/// replicas, not of clients.
///
/// ```
/// use savanna_lattice::{Dots, Lattice, SiblingSet, WriterId};
///
/// let (east, west) = (WriterId(1), WriterId(2));
/// let (mut here, mut there) = (SiblingSet::new(), SiblingSet::new());
///
/// // Two clients write without having read anything.
/// let delta = here.write(east, &Dots::new(), "tea");
/// there.write(west, &Dots::new(), "coffee");
/// there.merge(delta);
/// assert!(there.values().eq(&["tea", "coffee"]));
///
/// // A third one reads both, and its write replaces both.
/// let read = there.seen().clone();
/// let delta = there.write(west, &read, "water");
/// here.merge(delta);
/// assert!(here.values().eq(&["water"]));
/// ```
pub type SiblingSet<V> = Causal<DotFun<V>>;

impl<V: Ord + Clone> SiblingSet<V> {
    /// Writes `value` over the values of the context `read`, in the name of the replica's writer. Returns the delta for
    /// the other replicas.
    ///
    /// `read` must come from a replica of this value, as [`Causal::seen`] gave it: what it names is overwritten
    /// everywhere, heard of here or not.
    pub fn write(&mut self, writer: WriterId, read: &Dots, value: V) -> Self {
        let mut dot = self.seen.next(writer);
        dot.sequence = dot.sequence.max(read.next(writer).sequence);
        let mut seen = read.clone();
        seen.insert(dot);
        self.apply(DotFun::of(dot, value), seen)
    }

    /// Removes the values of the context `read`; concurrent ones stay. Returns the delta for the other replicas.
    pub fn erase(&mut self, read: &Dots) -> Self {
        self.apply(DotFun::default(), read.clone())
    }
}

impl<V> SiblingSet<V> {
    /// The siblings, by the dot of their write: none, one, or those of concurrent writes.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.store.values.iter().map(|(_, value)| value)
    }

    /// The merge of the siblings, where the value is a lattice: what a reader gets who wants one value (Anna's reveal).
    #[must_use]
    pub fn revealed(&self) -> Option<V>
    where
        V: Lattice + Clone,
    {
        let mut merged = None;
        for value in self.values() {
            merged.merge(Some(value.clone()));
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Max;

    const X: WriterId = WriterId(1);
    const Y: WriterId = WriterId(2);

    #[test]
    fn an_overwritten_value_does_not_come_back_with_a_late_delta() {
        let mut here = SiblingSet::new();
        let first = here.write(X, &Dots::new(), "first");
        let second = here.write(X, &first.seen, "second");
        let mut there = SiblingSet::new();
        there.merge(second);
        assert!(!there.merge(first), "seen already, as overwritten");
        assert!(there.values().eq(&["second"]));
        assert_eq!(here, there);
    }

    #[test]
    fn erasing_removes_what_was_read_and_nothing_else() {
        let mut here = SiblingSet::new();
        let read = here.write(X, &Dots::new(), "read").seen;
        here.write(X, &Dots::new(), "not read");
        here.erase(&read);
        assert!(here.values().eq(&["not read"]));
    }

    #[test]
    fn a_context_that_is_ahead_of_the_replica_does_not_number_two_writes_alike() {
        let mut ahead = SiblingSet::new();
        let stale = SiblingSet::new();
        ahead.write(X, &Dots::new(), 1);
        ahead.write(X, &Dots::new(), 2);
        let mut replica = stale;
        let delta = replica.write(X, ahead.seen(), 3);
        ahead.merge(delta);
        assert!(ahead.values().eq(&[3]));
    }

    #[test]
    fn the_revealed_value_is_the_merge_of_the_siblings() {
        let mut siblings = SiblingSet::new();
        assert_eq!(siblings.revealed(), None);
        siblings.write(X, &Dots::new(), Max(3));
        siblings.write(Y, &Dots::new(), Max(8));
        assert_eq!(siblings.revealed(), Some(Max(8)));
    }
}
