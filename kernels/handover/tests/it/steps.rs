//! Each row of the table of crashes, and the order of each technique, step by step.

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_handover::{
    Action, Answer, Change, Ending, Input, Limits, Obstacle, Record, Source, Target, TargetAction, TargetInput,
    Technique, ToSource, ToTarget, Why,
};

use crate::simulation::{handover, log};

const VERSION: u64 = 7;

/// A source that heard these one after the other, and what it did about the last.
fn after(technique: Technique, inputs: &[Input]) -> (Source, Vec<Action>) {
    let (mut source, mut actions) = Source::new(handover(), technique, Limits::default(), VERSION, 0);
    for input in inputs {
        actions = source.step(0, input.clone());
    }
    (source, actions)
}

/// What an Albatross hears up to its commit.
fn up_to_the_commit() -> Vec<Input> {
    let mut inputs = vec![Input::Proposed(Change::Announce, Answer::Won(8)), Input::Heard(ToSource::Opened)];
    for (round, bytes) in [(0, 1000), (1, 100), (2, 95)] {
        inputs.extend([Input::Round(round, bytes), Input::Heard(ToSource::Synced(round))]);
    }
    inputs.extend([
        Input::Frozen,
        Input::InTheWay(Vec::new()),
        Input::Exported,
        Input::Heard(ToSource::Ready(log("t"))),
    ]);
    inputs
}

fn frozen_and_preparing() -> Vec<Input> {
    let mut inputs = up_to_the_commit();
    inputs.pop();
    inputs
}

fn commit() -> Change {
    Change::Commit(log("t"))
}

fn undecided() -> Source {
    let unknown = Input::Proposed(commit(), Answer::Unknown);
    let (source, actions) = after(Technique::Albatross, &[up_to_the_commit(), vec![unknown]].concat());
    assert_eq!(actions, [Action::Propose(8, Change::GiveUp)], "it stays frozen, and one of the two is done");
    source
}

#[test]
fn rounds_end_when_they_converge_and_then_it_freezes() {
    let inputs = up_to_the_commit();
    let (_, second) = after(Technique::Albatross, &inputs[..6]);
    assert_eq!(second, [Action::Round(2)], "1000 and 100 are far apart");
    let (_, third) = after(Technique::Albatross, &inputs[..8]);
    assert_eq!(third, [Action::Freeze], "100 and 95 are not");
    let (_, last) = after(Technique::Albatross, &inputs);
    assert_eq!(last, [Action::Propose(8, commit())]);
}

#[test]
fn a_round_that_takes_long_to_work_out_is_no_silence_of_the_other_node() {
    let opened = [Input::Proposed(Change::Announce, Answer::Won(8)), Input::Heard(ToSource::Opened)];
    let (mut source, _) = after(Technique::Albatross, &opened);
    let silence = Limits::default().silence;
    let ready = 10 * silence;
    source.step(ready, Input::Round(0, 50));
    let again = [Action::Send(ToTarget::Round(0))];
    assert_eq!(source.step(ready + silence, Input::Tick), again);
    assert_eq!(source.step(ready + silence, Input::Round(0, 50)), again, "and again is no news");
    assert_eq!(source.step(ready + silence + 1, Input::Tick), [Action::Propose(8, Change::GiveUp)]);
}

#[test]
fn stop_and_copy_freezes_first_and_flush_and_move_after_one_round() {
    let opened = [Input::Proposed(Change::Announce, Answer::Won(8)), Input::Heard(ToSource::Opened)];
    assert_eq!(after(Technique::StopAndCopy, &opened).1, [Action::Freeze]);
    let drained = [Input::Frozen, Input::InTheWay(Vec::new())];
    assert_eq!(after(Technique::StopAndCopy, &[&opened[..], &drained].concat()).1, [Action::Round(0)]);
    let round = [Input::Round(0, 50), Input::Heard(ToSource::Synced(0))];
    assert_eq!(after(Technique::FlushAndMove, &[&opened[..], &round].concat()).1, [Action::Freeze]);
    assert_eq!(after(Technique::FlushAndMove, &[&opened[..], &round, &drained].concat()).1, [Action::Round(1)]);
}

#[test]
fn nothing_is_exported_while_something_is_in_the_way() {
    let mut inputs = up_to_the_commit()[..9].to_vec();
    for obstacle in [Obstacle::Statement, Obstacle::Aside, Obstacle::Commit, Obstacle::IndexBuild, Obstacle::Flush] {
        inputs.push(Input::InTheWay(vec![obstacle]));
        assert_eq!(after(Technique::Albatross, &inputs).1, [], "{obstacle:?}");
    }
    let (mut source, _) = after(Technique::Albatross, &inputs);
    assert_eq!(source.step(1, Input::Tick), [Action::Drain], "it asks again");
    let late = source.step(Limits::default().drain + 1, Input::Tick);
    assert_eq!(late, [Action::Resume, Action::Propose(8, Change::GiveUp)]);
}

#[test]
fn a_source_that_dies_before_the_commit_leaves_its_log_to_be_taken_over() {
    let (mut target, _) = Target::new(handover(), log("t"));
    target.step(TargetInput::Opened);
    let granted = Record::Serving { owner: NodeId::new("t"), epoch: OwnerEpoch(5), log: log("s") };
    assert_eq!(target.step(TargetInput::Read(granted.clone())).0, [TargetAction::Discard]);
    let mut prepared = Target::recovered(handover(), log("t"), 3);
    assert_eq!(prepared.step(TargetInput::Read(granted)).0, [TargetAction::Discard], "its own log is not the shard's");
}

#[test]
fn a_target_that_dies_or_is_silent_is_given_up_and_the_source_serves_at_once() {
    for last in [Input::Heard(ToSource::Refuse(Why::UnknownMove)), Input::Failed] {
        let (mut source, actions) = after(Technique::Albatross, &[frozen_and_preparing(), vec![last]].concat());
        assert_eq!(actions, [Action::Resume, Action::Propose(8, Change::GiveUp)]);
        let given_up = source.step(0, Input::Proposed(Change::GiveUp, Answer::Won(9)));
        assert_eq!(given_up, [Action::Unpin, Action::Send(ToTarget::Abort)]);
        source.step(0, Input::Heard(ToSource::Discarded));
        assert_eq!(source.ending(), Some(Ending::Stayed));
    }
    let (mut source, _) = after(Technique::Albatross, &frozen_and_preparing());
    assert_eq!(source.step(1, Input::Tick), [Action::Send(ToTarget::Prepare(3))]);
    let late = source.step(Limits::default().silence + 1, Input::Tick);
    assert_eq!(late, [Action::Resume, Action::Propose(8, Change::GiveUp)]);
}

#[test]
fn a_target_that_was_drained_takes_nothing_that_is_not_decided_and_the_source_serves_at_once() {
    let refuses = Some(ToSource::Refuse(Why::Drained));
    for said in [ToTarget::Begin, ToTarget::Round(3), ToTarget::Prepare(3)] {
        assert_eq!(said.answer_of_a_drained_node(), refuses);
    }
    for decided in [ToTarget::Commit, ToTarget::Abort] {
        assert_eq!(decided.answer_of_a_drained_node(), None, "it has the shard, or is to forget it");
    }
    let refused = Input::Heard(ToSource::Refuse(Why::Drained));
    let announced = vec![Input::Proposed(Change::Announce, Answer::Won(8))];
    let (_, actions) = after(Technique::Albatross, &[announced, vec![refused.clone()]].concat());
    assert_eq!(actions, [Action::Propose(8, Change::GiveUp)], "nobody has noticed anything");
    let (_, actions) = after(Technique::Albatross, &[frozen_and_preparing(), vec![refused.clone()]].concat());
    assert_eq!(actions, [Action::Resume, Action::Propose(8, Change::GiveUp)]);
    // It was ready, and was drained then: the shard is on its way, and whoever drains the node sees that in the records.
    let (source, actions) = after(Technique::Albatross, &[up_to_the_commit(), vec![refused]].concat());
    assert_eq!((source.ending(), actions), (None, Vec::new()));
}

#[test]
fn a_source_that_dies_behind_the_commit_is_not_needed() {
    let mut target = Target::recovered(handover(), log("t"), 3);
    let committed = handover().record(&commit());
    assert_eq!(target.step(TargetInput::Read(committed)).0, [TargetAction::Serve(OwnerEpoch(5))]);
    assert_eq!(target.step(TargetInput::Saved).1, Some(ToSource::Saved));
}

#[test]
fn a_target_that_dies_behind_the_commit_serves_again_from_its_log() {
    let won = Input::Proposed(commit(), Answer::Won(9));
    let (mut source, actions) = after(Technique::Albatross, &[up_to_the_commit(), vec![won]].concat());
    assert_eq!(actions, [Action::Release, Action::Send(ToTarget::Commit)], "the pin stays until the target has saved");
    let mut target = Target::recovered(handover(), log("t"), 3);
    let (actions, _) = target.step(TargetInput::Heard(ToTarget::Commit));
    assert_eq!(actions, [TargetAction::Serve(OwnerEpoch(5))]);
    assert_eq!(source.step(0, Input::Heard(ToSource::Saved)), [Action::Unpin]);
    assert_eq!(source.ending(), Some(Ending::Moved));
}

#[test]
fn a_source_that_does_not_know_stays_frozen_until_it_reads_a_later_version() {
    let mut source = undecided();
    let still = handover().record(&Change::Announce);
    assert_eq!(source.step(0, Input::Read(8, still)), [], "the commit may be on its way yet");
    let again = source.step(100_000, Input::Tick);
    assert_eq!(again, [Action::Propose(8, Change::GiveUp), Action::Read], "however long it takes");
    let stays = undecided().step(0, Input::Read(9, handover().record(&Change::GiveUp)));
    assert_eq!(stays, [Action::Resume, Action::Unpin, Action::Send(ToTarget::Abort)]);
    let moved = undecided().step(0, Input::Read(9, handover().record(&commit())));
    assert_eq!(moved, [Action::Release, Action::Send(ToTarget::Commit)]);
}

#[test]
fn a_source_does_not_take_the_announcement_of_the_next_process_for_its_own() {
    let announced = handover().record(&Change::Announce);
    let (mut deciding, _) = after(Technique::Albatross, &up_to_the_commit());
    assert_eq!(deciding.step(0, Input::Proposed(commit(), Answer::Lost)), [Action::Read]);
    for mut source in [deciding, undecided()] {
        assert_eq!(source.step(0, Input::Read(10, announced.clone())), [Action::Stop, Action::Unpin]);
        assert_eq!(source.ending(), Some(Ending::Lost), "what it would decide has not got what was committed since");
    }
}

#[test]
fn the_lease_ends_a_source_that_is_never_answered() {
    let mut source = undecided();
    assert_eq!(source.step(0, Input::LeaseEnded), [Action::Stop, Action::Unpin]);
    assert_eq!(source.ending(), Some(Ending::Lost));
}

#[test]
fn what_comes_twice_is_answered_twice_and_done_once() {
    let (mut target, actions) = Target::new(handover(), log("t"));
    assert_eq!(actions, [TargetAction::Open]);
    let mut heard = |message| target.step(TargetInput::Heard(message));
    assert_eq!(heard(ToTarget::Round(0)), (vec![], None), "it is not open");
    target.step(TargetInput::Opened);
    let mut heard = |message| target.step(TargetInput::Heard(message));
    assert_eq!(heard(ToTarget::Round(1)), (vec![], None), "round 0 did not come");
    assert_eq!(heard(ToTarget::Round(0)), (vec![TargetAction::Apply(0)], None));
    assert_eq!(target.step(TargetInput::Applied(0)).1, Some(ToSource::Synced(0)));
    let mut heard = |message| target.step(TargetInput::Heard(message));
    assert_eq!(heard(ToTarget::Round(0)), (vec![], Some(ToSource::Synced(0))));
    assert_eq!(heard(ToTarget::Prepare(2)), (vec![], None), "round 1 did not come");
    assert_eq!(heard(ToTarget::Commit), (vec![], None), "nothing is durable");
    assert_eq!(heard(ToTarget::Abort), (vec![TargetAction::Discard], Some(ToSource::Discarded)));
    assert_eq!(heard(ToTarget::Abort), (vec![], Some(ToSource::Discarded)));
}
