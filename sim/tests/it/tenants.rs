//! Tenants over many seeds, and the broken variants that the checks must find.

use std::panic::catch_unwind;

use savanna_sim::tenants::{flushing, owner};

use crate::seeds;

/// Whether a run of a broken variant is noticed, by a checker or by the product itself.
fn notices<T>(run: impl FnOnce() -> Result<T, String> + std::panic::UnwindSafe) -> bool {
    catch_unwind(run).map_or(true, |ran| ran.is_err())
}

#[test]
fn tenants_their_list_and_their_rows_survive_whatever_happens_to_their_owner() {
    let mut sum = owner::Happened::default();
    for seed in 0..seeds() {
        let happened = owner::run(seed, owner::Variant::Sound).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        sum.made += happened.made;
        sum.removed += happened.removed;
        sum.reserved += happened.reserved;
        sum.saved += happened.saved;
        sum.cuts += happened.cuts;
        sum.full += happened.full;
        sum.crashes += happened.crashes;
        sum.replaced += happened.replaced;
        sum.tried_late += happened.tried_late;
    }
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.replaced > runs && sum.tried_late > runs, "{sum:?}");
    assert!(sum.made > 6 * runs && sum.removed > runs && sum.reserved > 3 * runs && sum.saved > 6 * runs, "{sum:?}");
    assert!(sum.cuts > runs && 2 * sum.full > runs && sum.crashes > 3 * runs, "{sum:?}");
}

#[test]
fn owners_that_do_it_wrong_are_noticed() {
    use owner::Variant::{CutsForAwake, CutsForSleepers, FenceIgnored, TellsAtOnce};
    for variant in [CutsForAwake, CutsForSleepers, FenceIgnored, TellsAtOnce] {
        assert!((0..200).any(|seed| notices(|| owner::run(seed, variant))), "{variant:?}");
    }
}

#[test]
fn what_tenants_told_survives_flushes_cuts_and_crashes() {
    let mut sum = flushing::Happened::default();
    for seed in 0..seeds() {
        let happened =
            flushing::run(seed, flushing::Variant::Sound).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        sum.flushes += happened.flushes;
        sum.failed += happened.failed;
        sum.cuts += happened.cuts;
        sum.crashes += happened.crashes;
        sum.compactions += happened.compactions;
    }
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.flushes > 10 * runs && sum.failed > runs && sum.cuts > runs, "{sum:?}");
    assert!(sum.crashes > 2 * runs && 2 * sum.compactions > runs, "{sum:?}");
}

#[test]
fn threads_that_flush_and_cut_wrong_lose_something_and_are_noticed() {
    use flushing::Variant::{CutsBeforeSaved, CutsForOne, NoRedo};
    for variant in [CutsForOne, CutsBeforeSaved, NoRedo] {
        assert!((0..40).any(|seed| flushing::run(seed, variant).is_err()), "{variant:?}");
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
