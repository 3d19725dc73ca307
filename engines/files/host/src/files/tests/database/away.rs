//! Data nodes while the database is away.

use std::sync::atomic::Ordering;

use savanna_files::blocks::Duties;

use super::super::super::nodes::Told;
use super::super::nodes::{DISK, NODE};
use super::*;
use crate::upkeep::Task;

#[test]
fn nothing_is_removed_elsewhere_while_the_database_is_away() {
    let mut place = Scene::new();
    let running = place.open(1, 1_000);
    let block = running.write("/f", b"x");
    running.flushed();
    running.join(&[]);
    // One more than there should be, which is decided to go.
    let replica = Replica { block: block.id, stamp: block.stamp, length: 1 };
    running.files.node_tells(NODE, DISK, 1, &[Told::Whole(replica)]).unwrap();
    running.files.tend_nodes().unwrap();
    place.server.kill();
    running.mkdirs("/a");
    until(|| running.files.behind().is_some_and(|behind| behind.is_away()));
    for _ in 0..3 {
        running.files.tend_nodes().unwrap();
        assert_eq!((running.beat().duties, running.files.take_copies()), (Duties::default(), vec![]));
    }
    place.server.run();
    running.flushed();
    until(|| running.beat().duties.removals == [(block.id, block.stamp)]);
    running.stop();
}

/// Changes wait for room, and are refused when it does not come; what is in memory is read meanwhile.
#[test]
fn changes_are_refused_while_the_database_is_too_far_behind() {
    let mut place = Scene::new();
    let running = place.open(1, 1_000_000);
    running.mkdirs("/hot");
    running.flushed();
    place.server.kill();
    let name = |number: usize| format!("/hot/{number}");
    let refused = (0..behind::UNFLUSHED_MAX).find_map(|number| match running.call(&mkdirs(&name(number))) {
        Ok(_) => None,
        Err(Unanswered::Refused(error)) => Some((number, error)),
        Err(Unanswered::Gone) => panic!("it has ended"),
    });
    let (number, error) = refused.expect("changes that are refused");
    assert_eq!(error.class, Class::Retriable);
    assert!(error.to_string().contains("too far behind"), "{error}");
    assert!(running.database().unflushed as usize >= behind::UNFLUSHED_MAX, "there was room");
    assert_eq!((running.length(&name(number - 1)), running.length(&name(number))), (Some(0), None));
    place.server.run();
    running.flushed();
    running.mkdirs(&name(number));
    running.stop();
}

/// It is looked for a while each time whether the database is there again.
#[test]
fn tasks_are_done_while_the_database_is_away_that_a_delete_needs() {
    const TASKS: u64 = 100;
    let mut place = Scene::new();
    let running = place.open(1, 10);
    for number in 0..50 {
        running.mkdirs(&format!("/d/{number}"));
    }
    running.flushed();
    until(|| running.database().cached <= 12);
    assert_eq!(running.length("/d"), Some(0));
    place.server.kill();
    running.delete("/d");
    let is_left = |running: &Running| {
        let state = running.files.0.state.read();
        state.namespace.dismantle(now(), 1, None) != Ok(None)
    };
    assert!(is_left(&running), "it is taken apart without the database");
    // It waits for what is to be taken apart.
    std::thread::sleep(Duration::from_secs(1));
    for number in 0..TASKS {
        running.files.0.tasks.send(Task::Remove(vec![BlockId(1 << 40 | number)])).unwrap();
    }
    let done = || running.files.0.state.removals.load(Ordering::Relaxed) as u64;
    let end = Instant::now() + Duration::from_secs(30);
    while done() < TASKS {
        assert!(Instant::now() < end, "{} of {TASKS} were done", done());
        std::thread::sleep(Duration::from_millis(100));
    }
    place.server.run();
    until(|| !is_left(&running));
    running.stop();
}
