//! Every scenario over many seeds, the broken variants that the checkers must find, and reproducibility.
//!
//! `SAVANNA_SIM_SEEDS` sets the seeds per scenario, and of tenants (100 if not set).

mod candidates;
mod files;
mod streams;
mod tenants;

use std::collections::{BTreeMap, BTreeSet};

use savanna_sim::{Variant, checker::Guarantee, run, scenario, sweep};

/// Runs every seed; what happened in all of them together.
fn run_all<H: Default>(run: impl Fn(u64, H) -> Result<H, String>) -> H {
    let run = |happened, seed| run(seed, happened).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (0..seeds()).fold(H::default(), run)
}

fn seeds() -> u64 {
    std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

fn holds(name: &str) {
    let scenario = scenario(name).expect("the scenario exists");
    let (failed, _) = sweep(scenario, 0, seeds(), Variant::SOUND);
    if let Some(first) = failed.first() {
        let report = run(scenario, first.seed, Variant::SOUND, 300);
        panic!("{} of {} seeds failed; the first is {}:\n{report}", failed.len(), seeds(), first.seed);
    }
}

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { holds(stringify!($name)); })*

        #[test]
        fn every_scenario_is_tested() {
            let tested = [$(stringify!($name)),*];
            for scenario in savanna_sim::SCENARIOS {
                assert!(tested.contains(&scenario.name), "{} is not", scenario.name);
            }
        }
    };
}

scenarios!(
    quiet,
    kill_owner,
    kill_before_flush,
    pause_past_the_lease,
    pause_within_the_lease,
    coordinator_cut,
    coordinator_crash,
    lossy_network,
    clock_skew,
    disk_full,
    moves,
    everything,
);

/// In how many of the first forty seeds of a scenario a broken variant violates each guarantee.
fn violations(name: &str, variant: Variant) -> BTreeMap<Guarantee, usize> {
    let scenario = scenario(name).expect("the scenario exists");
    let (failed, _) = sweep(scenario, 0, 40, variant);
    let mut seeds = BTreeMap::new();
    for report in failed {
        let guarantees: BTreeSet<Guarantee> = report.violations.iter().map(|violation| violation.guarantee).collect();
        guarantees.into_iter().for_each(|guarantee| *seeds.entry(guarantee).or_default() += 1);
    }
    seeds
}

/// The guarantees that a broken variant violates within the first forty seeds of a scenario.
fn violated(name: &str, variant: Variant) -> Vec<Guarantee> {
    violations(name, variant).into_keys().collect()
}

#[test]
fn without_the_gate_told_values_are_lost_in_nearly_every_run() {
    let found = violations("kill_before_flush", Variant { no_gate: true, ..Variant::SOUND });
    assert!(found[&Guarantee::Durable] >= 38 && found[&Guarantee::Linearizable] >= 35, "{found:?}");
}

#[test]
fn without_the_gate_for_reads_values_that_were_read_are_lost_in_most_runs() {
    let found = violations("kill_before_flush", Variant { reads_ungated: true, ..Variant::SOUND });
    assert!(found[&Guarantee::Durable] >= 34, "{found:?}");
}

#[test]
fn without_a_margin_skewed_clocks_let_a_former_owner_answer_but_the_fence_keeps_what_was_written() {
    let found = violated("clock_skew", Variant { no_margin: true, ..Variant::SOUND });
    assert!(found.contains(&Guarantee::Linearizable) && !found.contains(&Guarantee::Durable), "{found:?}");
}

#[test]
fn without_margin_and_fence_two_owners_acknowledge() {
    let found = violated("clock_skew", Variant { no_margin: true, fence_ignored: true, ..Variant::SOUND });
    assert!(found.contains(&Guarantee::OneOwner) && found.contains(&Guarantee::Durable), "{found:?}");
}

#[test]
fn the_faults_of_each_scenario_bite() {
    let took_over = |name: &str| {
        let scenario = scenario(name).expect("the scenario exists");
        let reports = (0..5).map(|seed| run(scenario, seed, Variant::SOUND, 0));
        reports.fold((0, 0, 0), |sum, report| {
            let (recoveries, exits) = report.recoveries_and_exits;
            // Each shard is recovered at the start and after the end of a run.
            (sum.0 + recoveries - 2 * scenario.shards as u64, sum.1 + exits, sum.2 + report.operations.2)
        })
    };
    assert_eq!(took_over("quiet"), (0, 0, 0), "nothing fails, nothing moves, every operation is answered");
    for name in [
        "kill_owner",
        "kill_before_flush",
        "pause_past_the_lease",
        "coordinator_cut",
        "clock_skew",
        "moves",
        "everything",
    ] {
        assert!(took_over(name).0 >= 5, "{name}: shards change hands");
    }
    for name in ["pause_past_the_lease", "coordinator_cut"] {
        assert!(took_over(name).1 >= 2, "{name}: processes end themselves");
    }
    assert!(took_over("disk_full").2 >= 5, "writes wait for space for longer than their clients");
    assert!(took_over("lossy_network").2 >= 5, "replies get lost");
}

#[test]
fn one_seed_is_one_run() {
    for name in ["everything", "kill_owner", "kill_before_flush", "moves"] {
        let scenario = scenario(name).expect("the scenario exists");
        let first = run(scenario, 17, Variant::SOUND, 0);
        let again = run(scenario, 17, Variant::SOUND, 50);
        assert_eq!((first.trace_hash, first.events), (again.trace_hash, again.events), "{name}");
        assert_ne!(first.trace_hash, run(scenario, 18, Variant::SOUND, 0).trace_hash, "{name}");
    }
}
