//! Anna's hazard A-1: the published merge of the causal pair is not associative; the sibling set's is.

use savanna_lattice::laws::{Law, check_lattice};
use savanna_lattice::{Causality, Dots, Lattice, Set, SiblingSet, VectorClock, WriterId};

const X: WriterId = WriterId(1);
const Y: WriterId = WriterId(2);

/// Every order of three.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The causal pair as published (A5.2, Listing 2).
#[derive(Clone, Debug, PartialEq)]
struct PublishedPair {
    clock: VectorClock,
    value: Set<&'static str>,
}

impl PublishedPair {
    fn new(clock: &[(WriterId, u64)], value: &'static str) -> Self {
        Self { clock: clock.iter().copied().collect(), value: Set::from([value]) }
    }
}

impl Lattice for PublishedPair {
    fn merge(&mut self, other: Self) -> bool {
        match self.clock.compare(&other.clock) {
            Causality::Equal | Causality::After => false,
            Causality::Before => {
                *self = other;
                true
            }
            Causality::Concurrent => self.clock.merge(other.clock) | self.value.merge(other.value),
        }
    }
}

/// The triple: x writes p, y writes q without having read p, and x reads p and overwrites it with r.
fn published() -> [PublishedPair; 3] {
    [PublishedPair::new(&[(X, 1)], "p"), PublishedPair::new(&[(Y, 1)], "q"), PublishedPair::new(&[(X, 2)], "r")]
}

fn siblings() -> [SiblingSet<&'static str>; 3] {
    let mut at_x = SiblingSet::new();
    let p = at_x.write(X, &Dots::new(), "p");
    let read = at_x.seen().clone();
    let r = at_x.write(X, &read, "r");
    let q = SiblingSet::new().write(Y, &Dots::new(), "q");
    [p, q, r]
}

fn merged<L: Lattice + Clone>(triple: &[L; 3], order: [usize; 3]) -> L {
    let mut value = triple[order[0]].clone();
    value.merge(triple[order[1]].clone());
    value.merge(triple[order[2]].clone());
    value
}

#[test]
fn the_published_causal_pair_depends_on_the_order_and_never_reconverges() {
    let triple = published();
    let pqr = merged(&triple, [0, 1, 2]);
    let prq = merged(&triple, [0, 2, 1]);
    assert_eq!(pqr.value, Set::from(["p", "q", "r"]), "p came back");
    assert_eq!(prq.value, Set::from(["q", "r"]));
    assert_eq!(pqr.clock, prq.clock, "equal clocks, different values");

    let (mut one, mut other) = (pqr.clone(), prq.clone());
    assert!(!one.merge(prq) && !other.merge(pqr), "neither learns from the other");
    assert_ne!(one, other);

    assert_eq!(check_lattice(&triple).expect_err("no lattice").law, Law::Associative);
}

#[test]
fn the_sibling_set_comes_to_the_same_in_every_order() {
    let triple = siblings();
    for order in ORDERS {
        let value = merged(&triple, order);
        assert!(value.values().eq(&["r", "q"]), "{order:?}: {value:?}");
        assert_eq!(value, merged(&triple, ORDERS[0]));
    }
    check_lattice(&triple).expect("a lattice");
}

/// The worked cases of A5.2, whose answers are right and stay so.
#[test]
fn a_write_that_read_the_other_replaces_it_and_concurrent_writes_stay() {
    let mut at_x = SiblingSet::new();
    let mut at_y = SiblingSet::new();
    at_y.merge(at_x.write(X, &Dots::new(), "a"));
    let read = at_y.seen().clone();
    at_x.merge(at_y.write(Y, &read, "b"));
    assert!(at_x.values().eq(&["b"]));

    let from_both = at_x.seen().clone();
    let a = at_x.write(X, &from_both, "a");
    let b = at_y.write(Y, &from_both, "b");
    at_x.merge(b);
    at_y.merge(a);
    assert!(at_x.values().eq(&["a", "b"]) && at_x == at_y);
}
