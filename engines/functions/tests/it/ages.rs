//! How old an event may become.

use std::sync::Arc;

use savanna_functions::core::{
    Action, Build, Cause, Core, End, EventId, EventSettings, Input, InstanceId, Options, Outcome, Route, Settings, Work,
};

const SECOND: u64 = 1_000_000;

/// A function whose events may become a second old, and whose destination is told of those that do not succeed.
fn core(reserved: Option<u32>, told: Option<&str>) -> Core {
    let build = Build { number: 1, timeout: 900 * SECOND, megabytes: 128 };
    let events = EventSettings { age: SECOND, on_failure: told.map(Arc::from), ..EventSettings::default() };
    let settings = Settings {
        reserved,
        routes: [(Arc::from("$LATEST"), Route { build, other: None })].into(),
        events: [(Arc::from("$LATEST"), events)].into(),
        dead_letter: None,
    };
    let mut core = Core::new(Options::default(), 1);
    core.step(Input::Configure { function: "f".into(), settings }, 0);
    core
}

fn accept(core: &mut Core, at: u64) -> Vec<Action> {
    let (function, qualifier) = (Arc::from("f"), Arc::from("$LATEST"));
    core.step(Input::Accept { event: EventId(1), function, qualifier, accepted: at, attempts: 0, due: at }, at)
}

/// How the only event ends by these actions, if it does: how, why, and after how many attempts.
fn end(actions: &[Action]) -> Option<(End, Cause, u32)> {
    actions.iter().find_map(|action| match action {
        Action::End { end, cause, attempts, .. } => Some((end.clone(), *cause, *attempts)),
        _ => None,
    })
}

#[test]
fn an_event_that_waits_too_long_ends_by_its_age() {
    let mut core = core(Some(0), None);
    assert_eq!(accept(&mut core, 5 * SECOND), []);
    assert_eq!(core.wake(5 * SECOND), Some(6 * SECOND), "somebody has to look then");
    assert_eq!(end(&core.step(Input::Tick, 6 * SECOND - 1)), None);
    assert_eq!(end(&core.step(Input::Tick, 6 * SECOND)), Some((End::Dropped, Cause::AgeExceeded, 0)));
    core.step(Input::Recorded { event: EventId(1) }, 6 * SECOND);
    assert!(!core.has_event(EventId(1)));
}

#[test]
fn an_event_that_would_be_too_old_for_its_next_attempt_ends_at_once_and_its_destination_is_told() {
    let mut core = core(None, Some("told"));
    let started = accept(&mut core, 0);
    assert!(matches!(started[..], [Action::Start { .. }]), "{started:?}");
    let instance = InstanceId(1);
    let delivered = core.step(Input::Next { instance }, 0);
    assert!(matches!(delivered[..], [Action::Deliver { work: Work::Event(EventId(1)), .. }]), "{delivered:?}");
    let failed = core.step(Input::Answered { instance, outcome: Outcome::Failed }, SECOND / 2);
    assert_eq!(end(&failed), Some((End::Destination("told".into()), Cause::AgeExceeded, 1)));
}

#[test]
fn an_event_that_runs_is_not_ended_by_its_age() {
    let mut core = core(None, None);
    accept(&mut core, 0);
    core.step(Input::Next { instance: InstanceId(1) }, 0);
    assert_eq!(end(&core.step(Input::Tick, 5 * SECOND)), None);
    let done = core.step(Input::Answered { instance: InstanceId(1), outcome: Outcome::Success }, 5 * SECOND);
    assert_eq!(end(&done), Some((End::Success, Cause::Success, 1)));
}
