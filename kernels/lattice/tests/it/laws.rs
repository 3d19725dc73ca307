//! The laws, for every type and the compositions that the platform uses.

use savanna_lattice::{
    Dots, Incarnated, Map, Max, Min, NestedPair, OrMap, OrSet, Pair, PnCounter, Set, SiblingSet, Stamp, VectorClock,
};

use crate::histories::{bottom_holds, for_all_histories, laws_hold};
use crate::subjects::Register;

/// One test per type.
macro_rules! for_all_histories {
    ($check:ident { $($name:ident: $subject:ty),+ $(,)? }) => {
        $(
            #[test]
            fn $name() {
                for_all_histories($check::<$subject>);
            }
        )+
    };
}

for_all_histories! { laws_hold {
    max: Max<i64>,
    min: Min<u8>,
    set: Set<u8>,
    map: Map<u8, Max<i64>>,
    both: (Set<u8>, PnCounter),
    maybe: Option<Max<i64>>,
    pair: Pair<Stamp, Set<u8>>,
    nested_pair: NestedPair<Set<u8>>,
    lww: Register,
    vector_clock: VectorClock,
    dots: Dots,
    sibling_set: SiblingSet<u8>,
    or_set: OrSet<u8>,
    or_map: OrMap<u8, u8>,
    pn_counter: PnCounter,
    incarnated_counter: Incarnated<PnCounter>,
    incarnated_set: Incarnated<OrSet<u8>>,
    map_of_maps: Map<u8, Map<u8, Min<u8>>>,
    store_of_read_committed: Map<u8, Pair<Stamp, Set<u8>>>,
    store_of_causal: Map<u8, SiblingSet<u8>>,
    store_of_incarnations: Map<u8, Incarnated<OrMap<u8, u8>>>,
    incarnated_base_and_counter: Incarnated<(Max<i64>, PnCounter)>,
    nested_pair_of_sets_with_removal: NestedPair<OrSet<u8>>,
    maybe_siblings: Option<SiblingSet<u8>>,
} }

for_all_histories! { bottom_holds {
    an_empty_set_is_a_bottom: Set<u8>,
    an_empty_map_is_a_bottom: Map<u8, OrSet<u8>>,
    nothing_is_a_bottom: Option<Incarnated<PnCounter>>,
    a_clock_that_saw_nothing_is_a_bottom: VectorClock,
    no_dots_are_a_bottom: Dots,
    no_siblings_are_a_bottom: SiblingSet<u8>,
    an_empty_or_set_is_a_bottom: OrSet<u8>,
    an_empty_or_map_is_a_bottom: OrMap<u8, u8>,
    a_counter_at_0_is_a_bottom: PnCounter,
} }
