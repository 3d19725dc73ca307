//! Every scenario over many seeds, the broken variants that the checkers must find, and reproducibility.
//!
//! `SAVANNA_SIM_SEEDS` sets the seeds per scenario, and of tenants (100 if not set).

mod tenants;

use savanna_sim::{Variant, checker::Guarantee, run, scenario, sweep};

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

/// The guarantees that a broken variant violates within the first forty seeds of a scenario.
fn violated(name: &str, variant: Variant) -> Vec<Guarantee> {
    let scenario = scenario(name).expect("the scenario exists");
    let (failed, _) = sweep(scenario, 0, 40, variant);
    let mut guarantees: Vec<_> =
        failed.iter().flat_map(|report| &report.violations).map(|violation| violation.guarantee).collect();
    guarantees.sort_unstable();
    guarantees.dedup();
    guarantees
}

#[test]
fn without_the_gate_told_values_are_lost() {
    let found = violated("kill_owner", Variant { no_gate: true, ..Variant::SOUND });
    assert!(found.contains(&Guarantee::Durable) && found.contains(&Guarantee::Linearizable), "{found:?}");
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
    for name in ["kill_owner", "pause_past_the_lease", "coordinator_cut", "clock_skew", "moves", "everything"] {
        assert!(took_over(name).0 >= 5, "{name}: shards change hands");
    }
    for name in ["pause_past_the_lease", "coordinator_cut", "disk_full"] {
        assert!(took_over(name).1 >= 2, "{name}: processes end themselves");
    }
    assert!(took_over("lossy_network").2 >= 5, "replies get lost");
}

#[test]
fn one_seed_is_one_run() {
    for name in ["everything", "kill_owner", "moves"] {
        let scenario = scenario(name).expect("the scenario exists");
        let first = run(scenario, 17, Variant::SOUND, 0);
        let again = run(scenario, 17, Variant::SOUND, 50);
        assert_eq!((first.trace_hash, first.events), (again.trace_hash, again.events), "{name}");
        assert_ne!(first.trace_hash, run(scenario, 18, Variant::SOUND, 0).trace_hash, "{name}");
    }
}
