//! Names of files over many seeds, and the broken variants that the checks must find.

use savanna_sim::files::{Happened, Variant, nodes, run};

use crate::{run_all, seeds};

#[test]
fn clients_of_files_are_answered_like_by_a_plain_tree_whatever_fails_behind_them() {
    let sum = run_all(|seed, happened| run(seed, Variant::Sound, happened));
    println!("{sum:?}");
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.told > 100 * runs && sum.changes > 50 * runs && sum.lost > 50 * runs && sum.repeated > runs, "{sum:?}");
    assert!(sum.missed > 100 * runs && sum.given_up > 100 * runs && sum.flushes > 10 * runs, "{sum:?}");
    assert!(sum.too_old > runs && 10 * sum.crowded > runs && sum.refused > runs && sum.outages > runs, "{sum:?}");
    assert!(
        sum.ended.0 > 10 * runs && sum.ended.1 > 5 * runs && sum.replaced > runs && sum.forgotten > runs,
        "{sum:?}"
    );
    assert!(sum.closed.0 > runs && 2 * sum.closed.1 > runs && sum.dismantled > runs && sum.cuts > runs, "{sum:?}");
    assert!(2 * sum.gone.0 > runs && 4 * sum.gone.1 > runs && 4 * sum.recovered > runs, "{sum:?}");
    assert!(4 * sum.redone > runs && sum.halfway > runs && sum.removed > runs && 20 * sum.rewritten > runs, "{sum:?}");
}

#[test]
fn one_seed_of_files_is_one_run() {
    let run = |seed| run(seed, Variant::Sound, Happened::default());
    assert_eq!(run(17), run(17));
    assert_ne!(run(17), run(18));
}

#[test]
fn name_nodes_that_do_it_wrong_are_noticed() {
    use Variant::{
        CompleteSurvives, EndedBeforeLog, FlushedBeforeLog, LeaseIgnored, MarkerApart, ReadsAtOnce, RenamedNotDeleted,
        SentForgotten, TellsAtOnce, TombstonesDropped, WritersAtOnce,
    };
    let wrong = [
        (CompleteSurvives, "is answered"),
        (EndedBeforeLog, "of generation"),
        (FlushedBeforeLog, "the log cannot be gone on with: Behindhand"),
        (LeaseIgnored, "which is not so since change"),
        (MarkerApart, "is answered"),
        (ReadsAtOnce, "somebody was told of"),
        (RenamedNotDeleted, "the database refuses a batch"),
        (SentForgotten, "the newest owner has lost the database"),
        (TellsAtOnce, "somebody was told of"),
        (TombstonesDropped, "is answered"),
        (WritersAtOnce, "somebody was told of"),
    ];
    for (variant, words) in wrong {
        let noticed = |seed| run(seed, variant, Happened::default()).is_err_and(|error| error.contains(words));
        let seed = (0..200).find(|seed| noticed(*seed));
        println!("{variant:?} is noticed with seed {seed:?}");
        assert!(seed.is_some(), "{variant:?}");
    }
}

#[test]
fn what_was_acknowledged_stays_and_nothing_goes_that_is_needed_whatever_becomes_of_data_nodes() {
    let sum = run_all(|seed, happened| nodes::run(seed, nodes::Variant::Sound, happened));
    println!("{sum:?}");
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.acknowledged > 40 * runs && sum.pipelines > 8 * runs && sum.partly > runs, "{sum:?}");
    assert!(sum.ended > 5 * runs && sum.powers > runs && sum.restarts > 10 * runs && sum.disks > 4 * runs, "{sum:?}");
    assert!(sum.registered > 10 * runs && sum.reports > 5 * runs && sum.late > 5 * runs, "{sum:?}");
    assert!(8 * sum.buried > runs && sum.closed > 20 * runs && sum.here > 20 * runs, "{sum:?}");
    assert!(sum.elsewhere > 2 * runs && sum.waited > runs && 2 * sum.refused > runs, "{sum:?}");
    assert!(sum.copied > 8 * runs && sum.removed > runs, "{sum:?}");
}

#[test]
fn one_seed_of_data_nodes_is_one_run() {
    let run = |seed| nodes::run(seed, nodes::Variant::Sound, nodes::Happened::default());
    assert_eq!(run(17), run(17));
    assert_ne!(run(17), run(18));
}

#[test]
fn block_managers_that_do_it_wrong_are_noticed() {
    use nodes::Variant::{
        KnownPartIsAll, LateIsBelieved, LeftHasAll, MissedGenerationsCount, OneSpeaksForAll, RemovalsStand,
        UnreportedHasAll,
    };
    let wrong = [
        (KnownPartIsAll, "that were acknowledged"),
        (LateIsBelieved, "is to remove block"),
        (LeftHasAll, "that were acknowledged"),
        (MissedGenerationsCount, "that were acknowledged"),
        (OneSpeaksForAll, "that were acknowledged"),
        (RemovalsStand, "is to remove block"),
        (UnreportedHasAll, "that were acknowledged"),
    ];
    for (variant, words) in wrong {
        let noticed =
            |seed| nodes::run(seed, variant, nodes::Happened::default()).is_err_and(|error| error.contains(words));
        let seed = (0..2_000).find(|seed| noticed(*seed));
        println!("{variant:?} is noticed with seed {seed:?}");
        assert!(seed.is_some(), "{variant:?}");
    }
}
