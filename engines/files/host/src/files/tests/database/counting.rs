//! What large directories count for in quotas of which not all is in memory, and large directories that are read.

use savanna_files::request::Limit;

use super::super::counting;
use super::*;

const INODES: usize = 1_200;

#[test]
fn a_directory_that_is_not_in_memory_is_moved_between_quotas_while_others_write_in_it() {
    let place = Scene::new();
    let running = place.open(1, 20);
    for number in 0..INODES / 2 {
        running.make(&format!("/d/{number}/in"));
    }
    for quota in ["/q", "/r"] {
        running.make(quota);
        running.limit(quota, Limit::Most(1 << 20));
    }
    running.flushed();
    running.stop();
    let running = place.open(2, 20);
    let before = running.database().reads;
    running.shift("/d", "/q/d");
    assert_eq!(running.used("/q"), 2 + INODES as u64);
    assert!(running.database().reads > before);
    let id = running.id("/q/d");
    let made = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Wherever it is by now.
            (0..30).for_each(|number| running.make(&format!("/.reserved/.inodes/{id}/{}/{number}", number * 17)));
            30
        });
        running.shift("/q/d", "/r/d");
        running.shift("/r/d", "/q/d");
        writer.join().unwrap()
    });
    assert_eq!((running.used("/q"), running.used("/r")), (2 + INODES as u64 + made, 1));
    running.delete("/q/d");
    assert_eq!(running.used("/q"), 1, "at once");
    running.stop();
}

/// Who waits for a count has no turns: one reads.
#[test]
fn what_is_not_in_memory_is_read_once_for_all_who_wait_for_its_count() {
    let place = Scene::new();
    let running = place.open(1, 10_000);
    for number in 0..1_500 {
        running.make(&format!("/d/{number}"));
    }
    running.flushed();
    running.stop();
    let running = place.open(2, 10_000);
    running.make("/q");
    running.limit("/q", Limit::Most(1 << 20));
    running.id("/d");
    running.flushed();
    let before = running.database().reads;
    let held = counting::hold_threads(&running);
    let answers: Vec<_> =
        (0..100).map(|number| counting::begin(&running, &counting::rename2("/d", &format!("/q/{number}")))).collect();
    drop(held);
    let done = answers.into_iter().filter(|answer| answer.recv().unwrap() == Ok(Reply::Done)).count();
    assert_eq!((done, running.used("/q")), (1, 1 + 1 + 1_500));
    assert_eq!(running.database().reads - before, 2, "so many pages it has");
    running.stop();
}

/// A page of a large directory is taken in a part at a time.
#[test]
fn what_is_read_of_a_large_directory_is_taken_in_by_parts() {
    let place = Scene::new();
    let running = place.open(1, 10_000);
    for number in 0..1_500 {
        running.make(&format!("/d/{number}"));
    }
    running.flushed();
    running.stop();
    let running = place.open(2, 10_000);
    let request = Request::Listing { path: "/d".into(), after: Vec::new(), with_locations: false };
    let Ok(Reply::Listing(Some(listing))) = running.call(&request) else { panic!("no listing") };
    assert_eq!(listing.entries.len(), 1_000);
    let longest = running.files.behind().unwrap().longest.load(std::sync::atomic::Ordering::Relaxed);
    assert!(longest <= 256, "{longest} at once");
    running.stop();
}
