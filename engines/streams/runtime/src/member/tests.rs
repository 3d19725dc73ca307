use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use savanna_streams_api::ids::{QueryId, StageId};
use savanna_streams_model::payload::{Body, SetKey};
use savanna_streams_model::time::EventTime;

use super::*;

type Applied = Arc<Mutex<Vec<(Epoch, Vec<u32>)>>>;

/// Notes what it is given; sends one empty payload per epoch.
struct Recorder(Applied);

impl StageOperator for Recorder {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        let sequences = inputs.iter().flat_map(|input| &input.bodies).map(|(sequence, _)| *sequence).collect();
        self.0.lock().unwrap().push((epoch, sequences));
        Ok(vec![Outgoing { to: address(1), payload: payload(epoch.0, 1, 0, 1) }])
    }

    fn bytes(&self) -> usize {
        0
    }
}

fn query() -> QueryId {
    QueryId { code: "c".into(), job: 1 }
}

fn address(stage: u16) -> MemberId {
    MemberId { query: query(), stage: StageId(stage), member: 0 }
}

fn payload(epoch: u64, from: u16, sequence: u32, sequence_len: u32) -> Payload {
    let set = SetKey { query: query(), epoch: Epoch(epoch), from: StageId(from), shuffle: 0 };
    Payload { set, sequence, sequence_len, watermark: EventTime::MIN, body: Body::Rows(Vec::new()) }
}

fn member(rules: MemberRules) -> (Member, Applied) {
    let applied = Applied::default();
    let inputs = vec![InputKey { from: StageId(0), shuffle: 0 }];
    (Member::new(inputs, Box::new(Recorder(Arc::clone(&applied))), rules), applied)
}

fn receive(member: &mut Member, epoch: u64, sequence: u32, committed: u64) -> (Outcome, usize) {
    let mut send = Vec::new();
    let outcome = member.receive(payload(epoch, 0, sequence, 2), Epoch(committed), &mut send).unwrap();
    (outcome, send.len())
}

#[test]
fn a_complete_epoch_waits_for_the_one_before_it() {
    let (mut member, applied) = member(MemberRules::default());
    assert_eq!(receive(&mut member, 2, 0, 0), (Outcome::NotReady, 0));
    assert_eq!(receive(&mut member, 2, 1, 0), (Outcome::NotReady, 0));
    assert_eq!(receive(&mut member, 1, 1, 0), (Outcome::NotReady, 0));
    assert_eq!(receive(&mut member, 1, 0, 0), (Outcome::Ready, 2));
    assert_eq!(*applied.lock().unwrap(), [(Epoch(1), vec![0, 1]), (Epoch(2), vec![0, 1])]);
}

#[test]
fn an_epoch_that_is_not_committed_is_sent_again_when_an_input_comes_again() {
    let (mut member, applied) = member(MemberRules::default());
    receive(&mut member, 1, 0, 0);
    receive(&mut member, 1, 1, 0);
    assert_eq!(receive(&mut member, 1, 0, 0), (Outcome::Processed, 1));
    assert_eq!(receive(&mut member, 1, 0, 1), (Outcome::Processed, 0), "a committed one is not");
    assert_eq!(applied.lock().unwrap().len(), 1);
}

/// Delivers `epochs` epochs of two payloads in a shuffled order with repeats, and tells what is wrong with what the
/// operator saw.
fn check(rules: MemberRules, epochs: u64, deliveries: &[(u64, u32)]) -> Result<(), String> {
    let (mut member, applied) = member(rules);
    let everything = (1..=epochs).flat_map(|epoch| [(epoch, 0), (epoch, 1)]);
    for (epoch, sequence) in deliveries.iter().copied().chain(everything) {
        receive(&mut member, epoch, sequence, 0);
    }
    let expected: Vec<_> = (1..=epochs).map(|epoch| (Epoch(epoch), vec![0, 1])).collect();
    let applied = applied.lock().unwrap().clone();
    if applied == expected { Ok(()) } else { Err(format!("expected {expected:?}, but {applied:?} were applied")) }
}

proptest! {
    #[test]
    fn every_payload_is_applied_once_and_epochs_in_order(
        deliveries in prop::collection::vec((1_u64..6, 0_u32..2), 0..40),
    ) {
        prop_assert_eq!(check(MemberRules::default(), 5, &deliveries), Ok(()));
    }
}

#[test]
fn the_check_notices_a_member_that_counts_instead_of_marking() {
    let rules = MemberRules { ignore_duplicates: false, ..MemberRules::default() };
    assert!(check(rules, 2, &[(1, 0), (1, 0)]).is_err());
}

#[test]
fn the_check_notices_a_member_that_does_not_wait() {
    let rules = MemberRules { in_order: false, ..MemberRules::default() };
    assert!(check(rules, 2, &[(2, 0), (2, 1)]).is_err());
}

/// Whose state cannot be computed.
struct Stateless(Recorder);

impl StageOperator for Stateless {
    fn apply(&mut self, epoch: Epoch, inputs: Vec<CollectedInput>) -> Result<Vec<Outgoing>> {
        self.0.apply(epoch, inputs)
    }

    fn bytes(&self) -> usize {
        0
    }

    fn state(&mut self) -> Result<State> {
        Err(savanna_streams_api::StreamError::invalid("too long"))
    }
}

/// What was handed over.
#[derive(Default)]
struct Handed(Mutex<Vec<(Epoch, bool)>>);

impl Snapshots for Handed {
    fn is_due(&self, epoch: Epoch) -> bool {
        epoch == Epoch(2)
    }

    fn begins(&self, _: Epoch, _: StageId, _: u16) {}

    fn hand_over(&self, epoch: Epoch, _: StageId, _: u16, state: &mut dyn FnMut() -> Result<State>) {
        self.0.lock().unwrap().push((epoch, state().is_ok()));
    }
}

#[test]
fn a_state_that_cannot_be_computed_keeps_no_member_from_going_on() {
    let applied = Applied::default();
    let inputs = vec![InputKey { from: StageId(0), shuffle: 0 }];
    let operator = Box::new(Stateless(Recorder(Arc::clone(&applied))));
    let mut member = Member::new(inputs, operator, MemberRules::default());
    let handed = Arc::new(Handed::default());
    member.hand_over_to(Arc::clone(&handed) as _, StageId(1), 0);
    for epoch in 1..=3 {
        receive(&mut member, epoch, 0, 0);
        assert_eq!(receive(&mut member, epoch, 1, 0).0, Outcome::Ready);
    }
    assert_eq!(*handed.0.lock().unwrap(), [(Epoch(2), false)]);
}
