//! Data nodes while the database is away.

use savanna_files::blocks::Duties;

use super::super::super::nodes::Told;
use super::super::nodes::{DISK, NODE};
use super::*;

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
