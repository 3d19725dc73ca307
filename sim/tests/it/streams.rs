//! Queries of streams that outlive their process over many seeds, and the broken variants that the checks must find.

use savanna_sim::streams::{Happened, Home, Variant, run};

use crate::{run_all, seeds};

fn sound(home: Home) -> (Happened, u32) {
    let happened = run_all(|seed, happened| run(seed, home, Variant::Sound, happened));
    (happened, u32::try_from(seeds()).expect("a few"))
}

#[test]
fn each_row_is_written_once_whatever_becomes_of_processes_and_their_disk() {
    let (sum, runs) = sound(Home::Disk);
    assert!(sum.crashes > 3 * runs && sum.disk_faults > runs && sum.late_rows > 3 * runs, "{sum:?}");
    assert!(sum.by_snapshot > runs && sum.by_reach > runs / 8, "{sum:?}");
    assert!(sum.rests > runs / 4 && sum.dropped > 10 * runs, "{sum:?}");
}

#[test]
fn each_row_is_written_once_whatever_becomes_of_processes_two_owners_and_a_bucket() {
    let (sum, runs) = sound(Home::Bucket);
    assert!(sum.crashes > 3 * runs && sum.taken_over > 2 * runs && sum.late_rows > 3 * runs, "{sum:?}");
    assert!(sum.shut_out > runs / 2 && sum.late > runs / 10, "{sum:?}");
    assert!(sum.by_snapshot > runs, "{sum:?}");
    assert!(sum.rests > runs / 4 && sum.dropped > 10 * runs, "{sum:?}");
}

#[test]
fn queries_that_do_it_wrong_are_noticed() {
    use Home::{Bucket, Disk};
    use Variant::{ConfirmsEarly, FormerCommits, MarksOfTheClock, SinkWaitsForNothing, SnapshotBeforeSinks};
    let wrong = [
        (Disk, SinkWaitsForNothing),
        (Bucket, SinkWaitsForNothing),
        (Disk, SnapshotBeforeSinks),
        (Bucket, SnapshotBeforeSinks),
        (Disk, ConfirmsEarly),
        (Bucket, ConfirmsEarly),
        (Disk, MarksOfTheClock),
        (Bucket, MarksOfTheClock),
        (Bucket, FormerCommits),
    ];
    for (home, variant) in wrong {
        let found = (0..100).filter(|seed| run(*seed, home, variant, Happened::default()).is_err()).count();
        assert!(found >= 10, "{variant:?} {home:?}: {found} of 100 seeds");
    }
}
