//! A simulated cluster: the product's own cores ([`CoordinatorCore`](savanna_ownership::core::CoordinatorCore),
//! [`LeaseHolder`](savanna_ownership::LeaseHolder), the transition rules) with clocks that drift up to what the margin
//! allows, a network that delays, repeats and loses messages, and processes and a coordinator that pause and crash.
//!
//! Checked after every event: no granule of a shard has two servers at one true instant, no name two holders, no epoch two
//! owners, no id two receivers, the durable history obeys the epochs, and the commits of a shard stay
//! where a record says that they are, in a log whose owner writes it. Broken variants show that the checks bite.

mod checker;
mod directory;
mod process;
mod world;

use checker::Violation;
use world::{Counts, Sabotage, World};

/// Seeds that the sound variant must survive; `SAVANNA_SIM_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(400)
}

/// Seeds within which each broken variant must be caught.
const SEEDS_TO_CATCH: u64 = 400;

fn run(seed: u64, sabotage: Sabotage) -> Result<Counts, Violation> {
    World::new(seed, sabotage).run()
}

#[test]
fn no_seed_finds_two_owners_at_one_instant() {
    let mut total = Counts::default();
    for seed in 0..seeds() {
        match run(seed, Sabotage::None) {
            Ok(counts) => total.add(&counts),
            Err(violation) => panic!("seed {seed}: {violation:?}"),
        }
    }
    // What never happened was not tested.
    println!("{total:?}");
    assert!(total.all_seen(), "some kind of event never happened: {total:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [1, 77, 4_000_000_000] {
        assert_eq!(run(seed, Sabotage::None), run(seed, Sabotage::None), "seed {seed}");
    }
}

fn assert_caught(sabotage: Sabotage, expected: fn(&Violation) -> bool) {
    let caught = (0..SEEDS_TO_CATCH).filter_map(|seed| run(seed, sabotage).err().map(|found| (seed, found)));
    let mut others = Vec::new();
    for (seed, violation) in caught {
        if expected(&violation) {
            println!("{sabotage:?} caught by seed {seed}: {violation:?}");
            return;
        }
        others.push((seed, violation));
    }
    panic!("{sabotage:?} was not caught in {SEEDS_TO_CATCH} seeds; found instead: {others:?}");
}

#[test]
fn without_a_margin_two_nodes_serve_at_once() {
    assert_caught(Sabotage::NoMargin, |violation| {
        matches!(violation, Violation::TwoServers { .. } | Violation::TwoHolders { .. })
    });
}

#[test]
fn a_lease_counted_from_the_answer_lets_two_nodes_serve_at_once() {
    assert_caught(Sabotage::CountFromReply, |violation| {
        matches!(violation, Violation::TwoServers { .. } | Violation::TwoHolders { .. })
    });
}

#[test]
fn a_coordinator_that_forgets_leases_when_it_restarts_lets_two_nodes_serve_at_once() {
    assert_caught(Sabotage::NoGraceAfterRestart, |violation| {
        matches!(violation, Violation::TwoServers { .. } | Violation::TwoHolders { .. })
    });
}

#[test]
fn an_epoch_that_is_not_bumped_is_noticed() {
    assert_caught(Sabotage::EpochNotBumped, |violation| {
        matches!(violation, Violation::EpochReused { .. } | Violation::HistoryEpoch { .. })
    });
}

#[test]
fn ids_told_before_they_are_durable_are_handed_out_twice() {
    assert_caught(Sabotage::ReplyBeforeDurable, |violation| matches!(violation, Violation::IdsTwice { .. }));
}

#[test]
fn a_server_that_resumes_before_it_knows_what_became_of_its_proposal_is_noticed() {
    assert_caught(Sabotage::ResumeAfterTimeout, |violation| matches!(violation, Violation::TwoServers { .. }));
}

#[test]
fn a_batch_that_is_done_by_half_is_noticed() {
    assert_caught(Sabotage::HalfBatches, |violation| {
        matches!(violation, Violation::TwoServers { .. } | Violation::EpochReused { .. })
    });
}

#[test]
fn a_grant_that_forgets_in_which_log_the_commits_are_is_noticed() {
    assert_caught(Sabotage::GrantTakesHistory, |violation| matches!(violation, Violation::CommitsLost { .. }));
}

#[test]
fn a_history_in_a_log_that_its_owner_does_not_hold_is_noticed() {
    assert_caught(Sabotage::FormerLog, |violation| matches!(violation, Violation::CommitsLost { .. }));
}

#[test]
fn an_owner_that_hands_a_shard_over_and_keeps_its_commits_is_noticed() {
    assert_caught(Sabotage::LeavesHistory, |violation| matches!(violation, Violation::LeftBehind { .. }));
}
