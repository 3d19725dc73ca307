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
