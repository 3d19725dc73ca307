//! Tenants over many seeds, and the broken variants that the checks must find.

use std::panic::{UnwindSafe, catch_unwind};

use savanna_sim::tenants::{flushing, nodes, nodes::moves, owner};

use crate::{run_all, seeds};

/// Whether a run of a broken variant is noticed by the checker that says this. That the product itself refuses what it finds then, and the run
/// ends in another way, does not count.
fn notices<T>(words: &str, run: impl FnOnce() -> Result<T, String> + UnwindSafe) -> bool {
    catch_unwind(run).is_ok_and(|ran| ran.is_err_and(|error| error.contains(words)))
}

#[test]
fn tenants_their_list_and_their_rows_survive_whatever_happens_to_their_owner() {
    let sum = run_all(|seed, happened| owner::run(seed, owner::Variant::Sound, happened));
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.replaced > runs && sum.tried_late > runs, "{sum:?}");
    assert!(sum.made > 6 * runs && sum.removed > runs && sum.reserved > 3 * runs && sum.saved > 6 * runs, "{sum:?}");
    assert!(sum.copied > runs && 2 * sum.unanswered > runs && sum.slept > runs && sum.woken_later > 0, "{sum:?}");
    assert!(sum.cuts > runs && 2 * sum.full > runs && sum.crashes > 3 * runs, "{sum:?}");
}

#[test]
fn owners_that_do_it_wrong_are_noticed() {
    use owner::Variant::{
        CutsForAwake, CutsForSleepers, CutsForWaking, FenceIgnored, NamedBeforeRestored, SleepsUnflushed, TellsAtOnce,
    };
    let wrong = [
        (CutsForAwake, "expected Told"),
        (CutsForSleepers, "expected Told"),
        (CutsForWaking, "expected Told"),
        (FenceIgnored, "a former owner tells"),
        (NamedBeforeRestored, "expected Told"),
        (SleepsUnflushed, "expected Told"),
        (TellsAtOnce, "expected Told"),
    ];
    for (variant, words) in wrong {
        let run = |seed| notices(words, || owner::run(seed, variant, owner::Happened::default()));
        assert!((0..200).any(run), "{variant:?}");
    }
}

#[test]
fn what_tenants_told_survives_flushes_cuts_and_crashes() {
    let sum = run_all(|seed, happened| flushing::run(seed, flushing::Variant::Sound, happened));
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.flushes > 10 * runs && sum.failed > runs && sum.cuts > runs, "{sum:?}");
    assert!(sum.crashes > 2 * runs && 2 * sum.compactions > runs, "{sum:?}");
}

#[test]
fn threads_that_flush_and_cut_wrong_lose_something_and_are_noticed() {
    use flushing::Variant::{CutsBeforeSaved, CutsForOne, NoRedo, TemporaryForAll};
    for variant in [CutsForOne, CutsBeforeSaved, NoRedo, TemporaryForAll] {
        let run = |seed| flushing::run(seed, variant, flushing::Happened::default()).is_err();
        assert!((0..40).any(run), "{variant:?}");
    }
}

#[test]
fn the_process_may_end_before_or_after_any_request_to_the_store() {
    let mut requests = 0;
    for (puts, is_done) in (0..60).flat_map(|puts| [(puts, false), (puts, true)]) {
        let happened = flushing::run_until_put(puts, is_done);
        requests += u32::from(happened.unwrap_or_else(|error| panic!("after {puts} puts: {error}")));
    }
    assert!((60..120).contains(&requests), "all of them: {requests}");
}

#[test]
fn tenants_outlive_their_nodes_and_are_served_by_one_at_a_time() {
    let sum = run_all(|seed, happened| nodes::run(seed, nodes::Variant::Sound, happened));
    println!("{sum:?}");
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.commits > 40 * runs && sum.reads > runs && sum.made > 5 * runs && sum.removed > runs, "{sum:?}");
    assert!(sum.killed > 3 * runs && sum.paused > 2 * runs && sum.returned > 6 * runs && sum.cuts > runs, "{sum:?}");
    assert!(sum.adopted > 6 * runs && sum.deleted > 4 * runs && sum.overtaken > runs, "{sum:?}");
    assert!(2 * sum.restarted > runs && 10 * sum.late > runs, "{sum:?}");
    assert!(sum.unanswered > 2 * runs && 2 * sum.tried_late > runs && 10 * sum.died_adopting > runs, "{sum:?}");
    // What the log has is not told when the lease is over, and told when it is not.
    assert!(10 * sum.told_late > runs && 10 * sum.held_back > runs && 10 * sum.woken > runs, "{sum:?}");
    assert!(10 * sum.left > runs && 2 * sum.cut_off > runs && 2 * sum.slow > runs, "{sum:?}");
    assert!(2 * sum.moved > runs && 10 * sum.ended_writing > runs && 10 * sum.half_copied > runs, "{sum:?}");
    assert!(sum.died_in_a_row >= 3, "{sum:?}");
    assert!(sum.crashes.iter().all(|crashes| 20 * crashes > runs), "{sum:?}");
}

#[test]
fn nodes_and_controllers_that_do_it_wrong_are_noticed() {
    use nodes::Variant::{
        CoordinatorForgets, CoordinatorNotFenced, CutsForAwake, DeletesAtOnce, EndsBeforeRecord, EndsCopies,
        ExpectsNothing, FenceIgnored, LeaseIgnored, ServesBeforeHistory, TellsAtOnce,
    };
    let wrong = [
        (CoordinatorForgets, "the coordinator is after"),
        (CoordinatorNotFenced, "a coordinator that was replaced says"),
        (CutsForAwake, "expected Told"),
        (DeletesAtOnce, "cannot be ended: expected a log"),
        (EndsBeforeRecord, "takes no commit"),
        (EndsCopies, "has ended"),
        (ExpectsNothing, "expected Told"),
        (FenceIgnored, "has ended"),
        (LeaseIgnored, "which has no right to it"),
        (ServesBeforeHistory, "and its history names another"),
        (TellsAtOnce, "expected Told"),
    ];
    for (variant, words) in wrong {
        let run = |seed| notices(words, || nodes::run(seed, variant, nodes::Happened::default()));
        let seed = (0..200).find(|seed| run(*seed));
        println!("{variant:?} is noticed with seed {seed:?}");
        assert!(seed.is_some(), "{variant:?}");
    }
}

#[test]
fn tenants_move_with_what_is_open_in_them_whatever_ends_and_is_lost_meanwhile() {
    let sum = run_all(|seed, happened| moves::run(seed, moves::Variant::Sound, happened));
    println!("{sum:?}");
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.begun > 6 * runs && sum.moved > 2 * runs && sum.stayed > 2 * runs && 50 * sum.lost > runs, "{sum:?}");
    assert!(sum.hops >= 5 && 20 * sum.far > runs, "{sum:?}");
    assert!(sum.followed > runs && sum.returned > runs && 5 * sum.taken_back > runs && sum.unclaimed > 0, "{sum:?}");
    assert!(2 * sum.tails > runs && sum.images > runs && sum.read_ahead > 100 * u64::from(runs), "{sum:?}");
    assert!(sum.commits > 50 * runs && 2 * sum.commits_moved > runs && sum.unknown > runs / 2, "{sum:?}");
    assert!(sum.ended > runs && sum.held_back > runs && 20 * sum.half_written > runs, "{sum:?}");
    // Answers of commits are lost, too, and commits arrive when nobody waits for them any more.
    assert!(sum.unanswered > runs / 2 && sum.late > runs / 2 && 20 * sum.decided_late > runs, "{sum:?}");
    assert!(sum.nodes.killed > runs && sum.nodes.paused > runs / 2 && 4 * sum.nodes.woken > runs, "{sum:?}");
    for (at, reached) in moves::POINTS.iter().zip(sum.points) {
        assert!(2 * reached > runs, "{at}: {reached} times");
    }
    for (who, ends) in moves::ENDS.iter().zip(sum.ends) {
        for (at, ended) in moves::POINTS.iter().zip(ends) {
            assert!(ended > 0 || runs < 500, "{who} never ended at `{at}`: {sum:?}");
        }
    }
    // In fewer runs each moment is hit by somebody.
    let by_somebody = |at: usize| sum.ends.iter().map(|ends| ends[at]).sum::<u32>();
    assert!((0..moves::POINTS.len()).all(|at| by_somebody(at) > 0), "{sum:?}");
}

#[test]
fn moves_that_are_done_wrong_are_noticed() {
    use moves::Variant::{
        AnswersAfterRelease, CommitLeftBehind, ExportsBeforeDrain, FencedBeforeCommit, PartsUncounted, ReadAheadIsKept,
        ReadyAtOnce, ServesUndecided, TailLeftBehind, UnclaimedIsKept,
    };
    let wrong = [
        (AnswersAfterRelease, "which has no right to it"),
        (CommitLeftBehind, "{Lost"),
        (ExportsBeforeDrain, "{Lost"),
        (FencedBeforeCommit, "takes no commit"),
        (PartsUncounted, "{Lost"),
        (ReadAheadIsKept, "keeps what it has read ahead"),
        (ReadyAtOnce, "{Lost"),
        (ServesUndecided, "and has no right to it"),
        (TailLeftBehind, "{Lost"),
        (UnclaimedIsKept, "that is nobody's"),
    ];
    for (variant, words) in wrong {
        let run = |seed| notices(words, || moves::run(seed, variant, moves::Happened::default()));
        let seed = (0..200).find(|seed| run(*seed));
        println!("{variant:?} is noticed with seed {seed:?}");
        assert!(seed.is_some(), "{variant:?}");
    }
}
