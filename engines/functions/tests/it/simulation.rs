//! Seeds, and what they have to find.

use crate::world::{Flaw, World};

const TURNS: usize = 1_500;

fn seeds() -> u64 {
    std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

fn run(seed: u64, flaw: Flaw) -> World {
    let mut world = World::new(seed, flaw);
    for _ in 0..TURNS {
        world.turn();
    }
    world.settle();
    world
}

/// Every accepted event ends exactly once, every call has one answer, and no more run at once than may.
#[test]
fn events_end_once_and_limits_hold() {
    let (mut events, mut refused, mut answered, mut deaths) = (0, 0, 0, 0);
    for seed in 0..seeds() {
        let world = run(seed, Flaw::None);
        assert!(world.objections.is_empty(), "seed {seed}: {:#?}", world.objections);
        events += world.seen.len();
        refused += world.refused;
        answered += world.answered;
        deaths += world.deaths;
    }
    // A world in which nothing happens would show nothing.
    assert!(
        events > 1_000 && refused > 100 && answered > 1_000 && deaths > 50,
        "{events} {refused} {answered} {deaths}"
    );
}

fn is_noticed(flaw: Flaw) -> bool {
    (0..40).any(|seed| !run(seed, flaw).objections.is_empty())
}

#[test]
fn a_host_that_tells_before_the_log_has_it_is_noticed() {
    assert!(is_noticed(Flaw::TellsEarly));
}

#[test]
fn a_host_that_forgets_ends_is_noticed() {
    assert!(is_noticed(Flaw::ForgetsEnds));
}

#[test]
fn a_host_that_does_not_end_processes_is_noticed() {
    assert!(is_noticed(Flaw::CountsTheKilledAsGone));
}

#[test]
fn a_host_that_runs_again_what_had_ended_is_noticed() {
    assert!(is_noticed(Flaw::RunsAllAgain));
}

#[test]
fn a_host_that_tells_of_an_end_apart_from_it_is_noticed() {
    assert!(is_noticed(Flaw::TellsApart));
}
