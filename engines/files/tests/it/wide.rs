//! A directory of many names: as many as FILES_NAMES says, in the long tests a million.

use savanna_files::{Reply, Request};

use crate::world::{World, delete, mkdirs};

fn names() -> usize {
    std::env::var("FILES_NAMES").map_or(20_000, |names| names.parse().expect("a number"))
}

fn path(number: usize) -> String {
    format!("/d/{number:07}")
}

/// All names, a page after the other.
fn listed(world: &mut World) -> Vec<Box<[u8]>> {
    let (mut all, mut after): (Vec<Box<[u8]>>, Vec<u8>) = (Vec::new(), Vec::new());
    loop {
        let request = Request::Listing { path: "/d".to_owned(), after, with_locations: false };
        let Ok(Reply::Listing(Some(page))) = world.root(&request) else { panic!("no listing") };
        all.extend(page.entries.into_iter().map(|entry| entry.name));
        if page.remaining == 0 {
            return all;
        }
        after = all[all.len() - 1].to_vec();
    }
}

fn expected(numbers: impl Iterator<Item = usize>) -> Vec<Box<[u8]>> {
    numbers.map(|number| format!("{number:07}").into_bytes().into_boxed_slice()).collect()
}

#[test]
fn a_directory_of_many_names_is_listed_found_and_taken_apart() {
    let count = names();
    let mut world = World::wide();
    // In an order that is not that of names.
    let step = 7_919;
    assert!(count % step != 0);
    for number in 0..count {
        world.root(&mkdirs(&path(number * step % count))).unwrap();
        // The log is not what this is about.
        world.log.clear();
    }
    assert_eq!(world.status("/d").unwrap().children, count);
    assert!(listed(&mut world) == expected(0..count), "all, in the order of names");
    for number in (0..count).step_by(97) {
        assert!(world.status(&path(number)).is_some() && world.status(&format!("{}x", path(number))).is_none());
    }
    for number in (0..count).step_by(2) {
        assert_eq!(world.root(&delete(&path(number))), Ok(Reply::Bool(true)));
        world.log.clear();
    }
    assert!(listed(&mut world) == expected((1..count).step_by(2)), "every other is left");
    // A name that is gone is a place to go on from.
    let request = Request::Listing { path: "/d".to_owned(), after: b"0000100".to_vec(), with_locations: false };
    let Ok(Reply::Listing(Some(page))) = world.root(&request) else { panic!("no listing") };
    assert_eq!(*page.entries[0].name, *b"0000101");
    assert_eq!(world.root(&delete("/d")), Ok(Reply::Bool(true)));
    assert!(world.status("/d").is_none());
    world.root(&mkdirs("/d")).unwrap();
    let mut turns = 0;
    while world.dismantle(256) {
        world.log.clear();
        turns += 1;
    }
    assert!(turns >= count / 2 / 256, "{turns} parts");
    assert_eq!(world.namespace.inode_count(), 1, "what was made since");
}
