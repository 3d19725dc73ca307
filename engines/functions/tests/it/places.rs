//! Which instance gets what, and which one makes room.

use std::sync::Arc;

use savanna_functions::core::{
    Action, Build, CallId, Core, Input, InstanceId, Options, Outcome, Route, Settings, Work,
};

const SECOND: u64 = 1_000_000;

fn core(concurrency: u32, functions: &[&str]) -> Core {
    let mut core = Core::new(Options { concurrency, idle: 300 * SECOND, ..Options::default() }, 1);
    for (number, name) in (1..).zip(functions) {
        let build = Build { number, timeout: 60 * SECOND, megabytes: 128 };
        let routes = [(Arc::from("$LATEST"), Route { build, other: None })].into();
        core.step(
            Input::Configure { function: Arc::from(*name), settings: Settings { routes, ..Settings::default() } },
            0,
        );
    }
    core
}

fn call(core: &mut Core, function: &str, number: u64, now: u64) -> Vec<Action> {
    let (function, qualifier) = (Arc::from(function), Arc::from("$LATEST"));
    core.step(Input::Invoke { call: CallId(number), function, qualifier }, now)
}

fn asks(core: &mut Core, instance: u64, now: u64) -> Vec<Action> {
    core.step(Input::Next { instance: InstanceId(instance) }, now)
}

fn answers(core: &mut Core, instance: u64, now: u64) {
    core.step(Input::Answered { instance: InstanceId(instance), outcome: Outcome::Success }, now);
}

/// Who is given which call.
fn given(actions: &[Action]) -> Option<(u64, u64)> {
    actions.iter().find_map(|action| match action {
        Action::Deliver { instance, work: Work::Call(call), .. } => Some((instance.0, call.0)),
        _ => None,
    })
}

/// Two instances of one function: the first is idle, and the second has answered later, at this time.
fn two(answered: u64) -> Core {
    let mut core = core(8, &["f"]);
    call(&mut core, "f", 1, 0);
    call(&mut core, "f", 2, 0);
    asks(&mut core, 1, 0);
    asks(&mut core, 2, 0);
    answers(&mut core, 1, SECOND);
    asks(&mut core, 1, SECOND);
    answers(&mut core, 2, answered);
    core
}

#[test]
fn who_has_worked_last_gets_the_next_call_though_another_one_asks_already() {
    let mut core = two(2 * SECOND);
    assert_eq!(given(&call(&mut core, "f", 3, 2 * SECOND + 100)), None, "it waits until the second one asks");
    assert_eq!(given(&asks(&mut core, 2, 2 * SECOND + 200)), Some((2, 3)));
    answers(&mut core, 2, 3 * SECOND);
    asks(&mut core, 2, 3 * SECOND);
    assert_eq!(given(&call(&mut core, "f", 4, 3 * SECOND)), Some((2, 4)));
    answers(&mut core, 2, 4 * SECOND);
    // The first one comes to its end by itself.
    let over = core.step(Input::Tick, 301 * SECOND);
    assert!(over.contains(&Action::Kill { instance: InstanceId(1) }), "{over:?}");
}

#[test]
fn who_does_not_ask_again_soon_is_not_waited_for_while_another_one_asks() {
    let mut core = two(2 * SECOND);
    assert_eq!(given(&call(&mut core, "f", 3, 3 * SECOND)), Some((1, 3)));
}

#[test]
fn a_call_that_waits_for_who_does_not_ask_goes_to_another_one_that_has_asked() {
    let mut core = two(2 * SECOND);
    let answered = 2 * SECOND;
    assert_eq!(given(&call(&mut core, "f", 3, answered + 100)), None);
    assert_eq!(core.wake(answered + 100), Some(answered + 50_000));
    let over = core.step(Input::Tick, answered + 50_000);
    assert_eq!((given(&over), over.len()), (Some((1, 3)), 1), "who has not asked goes on: {over:?}");
    assert_eq!(given(&asks(&mut core, 2, 3 * SECOND)), None);
    assert_eq!(given(&call(&mut core, "f", 4, 3 * SECOND)), Some((2, 4)));
}

#[test]
fn a_call_waits_for_who_does_not_ask_if_nobody_else_has() {
    let mut core = core(8, &["f"]);
    call(&mut core, "f", 1, 0);
    asks(&mut core, 1, 0);
    answers(&mut core, 1, SECOND);
    assert_eq!(given(&call(&mut core, "f", 2, SECOND + 100)), None);
    assert_eq!(core.step(Input::Tick, SECOND + 60_000), []);
    assert_eq!(given(&asks(&mut core, 1, SECOND + 70_000)), Some((1, 2)));
}

#[test]
fn a_process_that_is_ended_for_another_one_while_it_is_in_use_is_told_of_once_a_minute() {
    let mut core = core(2, &["a", "b", "c"]);
    let (mut told, mut instance) = (Vec::new(), 0);
    // Three functions in turns on two places: each call begins a process.
    for turn in 0..30 {
        let now = turn * 4 * SECOND;
        let name = ["a", "b", "c"][turn as usize % 3];
        let actions = call(&mut core, name, turn, now);
        told.extend(actions.iter().filter_map(|action| match action {
            Action::Crowded { function } => Some((now / SECOND, function.to_string())),
            _ => None,
        }));
        instance += 1;
        assert_eq!(given(&asks(&mut core, instance, now)), Some((instance, turn)));
        answers(&mut core, instance, now);
        asks(&mut core, instance, now);
        for action in actions {
            if let Action::Kill { instance } = action {
                core.step(Input::Ended { instance }, now);
            }
        }
    }
    assert_eq!(told, [(8, "a".to_owned()), (68, "a".to_owned())]);
}
