//! The encoded form: pinned bytes of version 1, and what decoding refuses.

use std::fmt::Debug;

use proptest::prelude::*;
use savanna_lattice::{
    Dots, FORM_VERSION, FormError, Hlc, Incarnated, Incarnation, Lattice, Lww, Map, Max, Min, NestedPair, OrMap, OrSet,
    Pair, PnCounter, Set, SiblingSet, Stamp, TypeTag, UnixMillis, VectorClock, WriterId, decode, encode,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::histories::{Step, Subject, for_all_histories, play};

const X: WriterId = WriterId(1);
const Y: WriterId = WriterId(200);

fn stamp(millis: u64, writer: WriterId) -> Stamp {
    Stamp::new(Hlc::new(UnixMillis(millis), 1), writer)
}

/// Checks both ways: what is written today, and that what was written once is still read.
fn pinned<L: Serialize + DeserializeOwned + PartialEq + Debug>(value: &L, expected: &str) {
    let hex: String = encode(value).expect("encodes").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected, "{value:?}");
    let fixture: Vec<u8> =
        (0..expected.len()).step_by(2).map(|at| u8::from_str_radix(&expected[at..at + 2], 16).expect("hex")).collect();
    assert_eq!(&decode::<L>(&fixture).expect("decodes"), value);
}

#[test]
fn version_1_of_plain_lattices() {
    pinned(&Max(300_u64), "01ac02");
    pinned(&Min(-1_i64), "0101");
    pinned(&Set::from([3_u8, 1]), "01020103");
    pinned(&Map::from([("k".to_owned(), Max(7_u8))]), "0101016b07");
    pinned(&(Max(1_u8), Some(Min(2_u8))), "01010102");
    pinned(&Pair::new(4_u8, Set::from([9_u8])), "01040109");
    pinned(&NestedPair::new(stamp(2, X), Pair::new(3, Set::from([9_u8]))), "0181800801030109");
    pinned(&Lww::write(stamp(1_800_000_000_000, Y), "v".to_owned()), "0181808080c58bc6d101c8010176");
}

#[test]
fn version_1_of_what_counts_and_remembers() {
    pinned(&[(X, 2), (Y, 1)].into_iter().collect::<VectorClock>(), "01020102c80101");
    let mut counter = PnCounter::new();
    counter.add(X, 5).expect("fits");
    counter.add(X, -7).expect("fits");
    pinned(&counter, "0101010507");
    let mut siblings = SiblingSet::new();
    siblings.write(X, &Dots::new(), "a".to_owned());
    siblings.write(Y, &Dots::new(), "b".to_owned());
    pinned(siblings.seen(), "0102010100c8010100");
    pinned(&siblings, "010201010161c80101016202010100c801010000");
    let mut set = OrSet::new();
    set.add(X, 7_u8);
    set.add(Y, 8_u8);
    let removal = set.remove(&7);
    pinned(&set, "01010801c8010102010100c801010000");
    pinned(&removal, "010107000101010001");
    let mut map = OrMap::new();
    map.insert(X, "f".to_owned(), 1_u8);
    pinned(&map, "01010166010101010101010000");
}

#[test]
fn version_1_of_an_incarnation() {
    let mut key = Incarnated::begin(Incarnation::new(stamp(10, X), TypeTag(3)), Max(1_u8));
    pinned(&key, "01818028010300000101");
    key.merge(key.expiring(stamp(20, X).hlc, UnixMillis(5_000)));
    pinned(&key, "01818028010381805088270101");
    pinned(&key.delta(Max(2_u8)), "01818028010300000102");
    pinned(&Incarnated::<Max<u8>>::deleted(stamp(30, Y)), "01818078c80100000000");
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = encode(&Max(1_u8)).expect("encodes");
    bytes[0] = FORM_VERSION + 1;
    let refused = decode::<Max<u8>>(&bytes).expect_err("a later version");
    assert_eq!(refused, FormError::Version { found: 2 });
    assert_eq!(
        refused.to_string(),
        "expected a value in form 1 to 1, came form 2; read it with the release that wrote it, or a later one"
    );
}

#[test]
fn too_few_and_too_many_bytes_are_refused() {
    let bytes = encode(&Set::from([1_u8, 2, 3])).expect("encodes");
    for cut in 0..bytes.len() {
        decode::<Set<u8>>(&bytes[..cut]).expect_err("cut short");
    }
    let refused = decode::<Set<u8>>(&[&bytes[..], &[0]].concat()).expect_err("one more");
    assert!(refused.to_string().ends_with("1 bytes too many; discard them and ask another replica"), "{refused}");
}

#[test]
fn a_living_dot_outside_of_the_context_is_refused() {
    let mut set = OrSet::new();
    set.add(X, 7_u8);
    let mut bytes = encode(&set).expect("encodes");
    let sequence_in_the_context = bytes.len() - 3;
    bytes[sequence_in_the_context] += 1;
    decode::<OrSet<u8>>(&bytes).expect_err("the element's dot was never seen");
}

/// What a history leads to is decoded as it was; cut, it is refused.
fn round_trip<S: Subject + Serialize + DeserializeOwned>(history: &[Step]) -> Result<(), TestCaseError> {
    let outcome = play::<S>(history).map_err(|violation| TestCaseError::fail(violation.to_string()))?;
    for value in outcome.replicas.iter().chain(&outcome.deltas) {
        let bytes = encode(value).expect("encodes");
        prop_assert_eq!(&decode::<S>(&bytes).expect("decodes"), value);
        prop_assert!(decode::<S>(&bytes[..bytes.len() - 1]).is_err());
    }
    Ok(())
}

#[test]
fn what_is_encoded_is_decoded() {
    for_all_histories(round_trip::<NestedPair<Set<u8>>>);
    for_all_histories(round_trip::<VectorClock>);
    for_all_histories(round_trip::<SiblingSet<u8>>);
    for_all_histories(round_trip::<Map<u8, Incarnated<OrMap<u8, u8>>>>);
    for_all_histories(round_trip::<Incarnated<(Max<i64>, PnCounter)>>);
}

proptest! {
    /// Hostile bytes give an error or a value that merges, never a panic.
    #[test]
    fn any_bytes_are_refused_or_make_a_sound_value(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Some(version) = bytes.first_mut() {
            *version = FORM_VERSION;
        }
        if let Ok(mut value) = decode::<Map<u8, Incarnated<OrMap<u8, u8>>>>(&bytes) {
            value.merge(value.clone());
        }
        if let Ok(mut siblings) = decode::<SiblingSet<u8>>(&bytes) {
            let read = siblings.seen().clone();
            siblings.write(X, &read, 1);
            prop_assert!(siblings.values().eq(&[1]));
        }
        if let Ok(mut clock) = decode::<VectorClock>(&bytes) {
            clock.advance(X, 0);
        }
        if let Ok(mut counter) = decode::<PnCounter>(&bytes) {
            let _ = (counter.add(X, i64::MIN), counter.value());
        }
    }
}
