//! Candidates for the coordinator over many seeds, and the broken variants that the checks must find.

use savanna_sim::candidates::{Happened, Variant, run};

use crate::{run_all, seeds};

#[test]
fn one_node_runs_the_coordinator_and_one_does_again_after_whatever_happens() {
    let sum = run_all(|seed, happened| run(seed, Variant::Sound, happened));
    let runs = u32::try_from(seeds()).expect("a few");
    assert!(sum.began > 3 * runs && sum.claimed > runs / 2 && sum.stood_still > runs / 4, "{sum:?}");
    assert!(sum.left_cut_off > runs / 2 && sum.left_ill > runs / 4, "{sum:?}");
    assert!(sum.cuts_moved > runs / 10 && sum.cuts_stayed > runs / 5 && sum.links_cut > runs / 5, "{sum:?}");
    assert!(sum.halves > runs / 30 && sum.without_majority > runs / 30, "{sum:?}");
}

#[test]
fn candidates_that_do_it_wrong_are_noticed() {
    use Variant::{ClaimsAtOnce, SeesNoClaims, StaysCutOff, TakesBeyondCuts, WaitsForNobody};
    let wrong = [
        (ClaimsAtOnce, "missed one node"),
        (SeesNoClaims, "both act"),
        (StaysCutOff, "of parts"),
        (TakesBeyondCuts, "of parts"),
        (WaitsForNobody, "both act"),
    ];
    for (variant, words) in wrong {
        let says = |seed| run(seed, variant, Happened::default()).is_err_and(|error| error.contains(words));
        assert!((0..100).any(says), "{variant:?}");
    }
}
