//! What a lattice is, and the two plain ways to build one from others: *maybe* and *both*.

/// Values with a merge: a join semilattice.
///
/// For all values `a`, `b`, `c`, writing `+` for the merge:
///
/// * associative: `(a + b) + c = a + (b + c)`, so that changes may be merged where they are made, before they are sent;
/// * commutative: `a + b = b + a`, so that no order needs to be agreed on;
/// * idempotent: `a + a = a`, so that a message may come twice and a log may be replayed.
///
/// Replicas that merged the same changes, in whatever order and however often, then hold equal values, and nobody waits
/// for anybody (Anna A3). [`laws::check_lattice`](crate::laws::check_lattice) checks a type of your own.
pub trait Lattice: Sized {
    /// Merges `other` into `self`. Says whether `self` has become another value.
    fn merge(&mut self, other: Self) -> bool;
}

/// `None` is the bottom: what has heard of nothing yet. This gives a bottom to a lattice that has none of its own.
impl<L: Lattice> Lattice for Option<L> {
    fn merge(&mut self, other: Self) -> bool {
        match (&mut *self, other) {
            (_, None) => false,
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => {
                *self = theirs;
                true
            }
        }
    }
}

/// The product: each side merges for itself. (Where the first decides whether the second merges, use
/// [`Pair`](crate::Pair).)
impl<A: Lattice, B: Lattice> Lattice for (A, B) {
    fn merge(&mut self, other: Self) -> bool {
        // Both sides merge, whatever the first says.
        self.0.merge(other.0) | self.1.merge(other.1)
    }
}
