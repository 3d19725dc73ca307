//! Merges and uses that are wrong on purpose: the checks notice them.

use std::collections::BTreeSet;

use savanna_lattice::laws::{Law, check_bottom, check_delta, check_deltas, check_lattice};
use savanna_lattice::{Lattice, Max, OrSet, PnCounter, Set, Stamp, VectorClock, WriterId};

const X: WriterId = WriterId(1);
const Y: WriterId = WriterId(2);

/// Defines a type that merges by the closure, which says whether it changed something.
macro_rules! merging {
    ($name:ident($inner:ty), $merge:expr) => {
        #[derive(Clone, Debug, Default, PartialEq)]
        struct $name($inner);

        impl Lattice for $name {
            fn merge(&mut self, other: Self) -> bool {
                let before = self.clone();
                let merge: fn(&mut $inner, $inner) = $merge;
                merge(&mut self.0, other.0);
                *self != before
            }
        }
    };
}

merging!(Sum(u64), |mine, theirs| *mine += theirs);
merging!(LastToArrive(u64), |mine, theirs| *mine = theirs);
merging!(Mean(u64), |mine, theirs| *mine = (*mine + theirs) / 2);
merging!(FirstOfEqualStamps((Stamp, u64)), |mine, theirs| if theirs.0 > mine.0 {
    *mine = theirs
});
merging!(LatestByVectorClock((VectorClock, u64)), |mine, theirs| if theirs.0 > mine.0 {
    *mine = theirs
});
merging!(LargestSigned(i64), |mine, theirs| *mine = theirs.max(*mine));

#[test]
fn merges_that_are_no_lattice_are_found() {
    assert_eq!(check_lattice(&[Sum(1), Sum(2)]).expect_err("counts twice").law, Law::Idempotent);
    assert_eq!(check_lattice(&[LastToArrive(1), LastToArrive(2)]).expect_err("by arrival").law, Law::Commutative);
    assert_eq!(check_lattice(&[Mean(0), Mean(4), Mean(8)]).expect_err("by grouping").law, Law::Associative);
}

#[test]
fn registers_without_a_total_order_are_found() {
    let same_stamp = [FirstOfEqualStamps((Stamp::default(), 1)), FirstOfEqualStamps((Stamp::default(), 2))];
    assert_eq!(check_lattice(&same_stamp).expect_err("a stamp twice").law, Law::Commutative);
    let concurrent =
        [(X, 1), (Y, 2)].map(|(writer, value)| LatestByVectorClock(([(writer, 1)].into_iter().collect(), value)));
    assert_eq!(check_lattice(&concurrent).expect_err("concurrent writes").law, Law::Commutative);
}

#[test]
fn a_default_that_is_no_bottom_is_found() {
    assert_eq!(check_bottom(&[LargestSigned(-5)]).expect_err("0 is above -5").law, Law::Bottom);
}

/// A merge that is right, and a report that is wrong: gossip would stop too early.
#[derive(Clone, Debug, PartialEq)]
struct Silent(Max<u64>);

impl Lattice for Silent {
    fn merge(&mut self, other: Self) -> bool {
        self.0.merge(other.0);
        false
    }
}

#[test]
fn a_merge_that_does_not_tell_its_change_is_found() {
    assert_eq!(check_lattice(&[Silent(Max(1)), Silent(Max(2))]).expect_err("says nothing").law, Law::TellsChange);
}

/// A set with removal that remembers removed elements, but not which of their additions were seen (two-phase set with
/// the last change winning): whether an element is there depends on what arrives last.
#[derive(Clone, Debug, Default, PartialEq)]
struct WithoutContext {
    added: BTreeSet<u8>,
    removed: BTreeSet<u8>,
}

impl Lattice for WithoutContext {
    fn merge(&mut self, other: Self) -> bool {
        let before = self.clone();
        self.added.retain(|element| !other.removed.contains(element));
        self.removed.retain(|element| !other.added.contains(element));
        self.added.extend(other.added);
        self.removed.extend(other.removed);
        *self != before
    }
}

#[test]
fn a_removal_without_a_context_is_found() {
    let added = WithoutContext { added: [1].into(), removed: [].into() };
    let removed = WithoutContext { added: [].into(), removed: [1].into() };
    check_deltas(&WithoutContext::default(), &[added.clone(), removed.clone()]).expect_err("an add that resurrects");
    check_lattice(&[added, removed]).expect_err("no lattice");
}

#[test]
fn a_delta_that_misses_a_part_of_the_change_is_found() {
    let before = Set::from([1]);
    let after = Set::from([1, 2, 3]);
    assert_eq!(check_delta(&before, &Set::from([2]), &after).expect_err("3 is missing").law, Law::DeltaIsTheChange);
}

#[test]
fn a_writer_that_forgot_and_kept_its_id_loses_changes_and_one_with_a_new_id_does_not() {
    const X_AGAIN: WriterId = WriterId(3);
    let mut kept = OrSet::new();
    kept.add(X, "before");
    let mut count = PnCounter::new();
    count.add(X, 10).expect("fits");

    for (writer, elements, total) in [(X, 1, 10), (X_AGAIN, 2, 11)] {
        let (mut set, mut counter) = (kept.clone(), count.clone());
        set.merge(OrSet::new().add(writer, "after"));
        counter.merge(PnCounter::new().add(writer, 1).expect("fits"));
        assert_eq!((set.len(), counter.value()), (elements, total), "as {writer}");
    }
}
