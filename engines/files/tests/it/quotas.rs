//! How much may be in a directory.

use savanna_files::change::{Quota, Usage};
use savanna_files::request::Limit;
use savanna_files::{Class, Reply, Request};

use crate::world::{BLOCK_SIZE, World, append, create, delete, mkdirs, rename2, truncate, written};

fn set(path: &str, names: Limit, space: Limit) -> Request {
    Request::SetQuota { path: path.to_owned(), names, space }
}

fn quota(world: &mut World, path: &str) -> Option<Quota> {
    match world.root(&Request::Quota { path: path.to_owned() }).unwrap() {
        Reply::Quota(quota) => quota,
        other => panic!("{other:?}"),
    }
}

fn used(world: &mut World, path: &str) -> (u64, u64) {
    let Usage { names, space } = quota(world, path).expect("a quota").used;
    (names, space)
}

#[test]
fn a_directory_has_no_more_names_than_it_may() {
    let mut world = World::new();
    world.root(&mkdirs("/q/a")).unwrap();
    world.root(&mkdirs("/other/deep")).unwrap();
    world.root(&set("/q", Limit::Most(4), Limit::Same)).unwrap();
    assert_eq!(used(&mut world, "/q"), (2, 0));
    world.root(&mkdirs("/q/b")).unwrap();
    assert_eq!(world.refused("root", &mkdirs("/q/c/d")), Class::NamesQuota);
    world.root(&create("/q/f", false)).unwrap();
    let error = world.root(&create("/q/a/g", false)).unwrap_err();
    assert_eq!(
        (error.class, &*error.message),
        (
            Class::NamesQuota,
            "The NameSpace quota (directories and files) of directory /q is exceeded: quota=4 file count=5"
        )
    );
    assert_eq!(world.refused("root", &rename2("/other", "/q/a/other", false)), Class::NamesQuota);
    world.root(&rename2("/q/b", "/q/a/b", false)).unwrap();
    world.root(&create("/q/f", true)).unwrap();
    world.restart();
    assert_eq!(used(&mut world, "/q"), (4, 0));
    world.root(&delete("/q/a")).unwrap();
    assert_eq!(used(&mut world, "/q"), (2, 0));
    world.root(&rename2("/other", "/q/other", false)).unwrap();
    assert_eq!(used(&mut world, "/q"), (4, 0));
    world.root(&set("/q", Limit::Most(1), Limit::Same)).unwrap();
    world.root(&rename2("/q/other", "/back", false)).expect("what is too much may go");
    assert_eq!(used(&mut world, "/q"), (2, 0));
    world.root(&set("/q", Limit::None, Limit::Same)).unwrap();
    assert_eq!(quota(&mut world, "/q"), None);
    world.root(&mkdirs("/q/many/more")).unwrap();
}

#[test]
fn a_directory_has_no_more_bytes_than_it_may() {
    let mut world = World::new();
    world.root(&mkdirs("/q")).unwrap();
    world.write("/q/before", &[10]).unwrap();
    world.root(&set("/q", Limit::Same, Limit::Most(100))).unwrap();
    assert_eq!(used(&mut world, "/q"), (2, 10));
    world.write("/q/f", &[5]).unwrap();
    assert_eq!(used(&mut world, "/q"), (3, 15), "what a block has when it is whole");
    world.write("/out", &[60, 60]).unwrap();
    assert_eq!(world.refused("root", &rename2("/out", "/q/in", false)), Class::SpaceQuota);
    let Ok(Reply::Status(Some(status))) = world.root(&create("/q/g", false)) else { panic!("no file") };
    let file = written("/q/g", status.id);
    let add = Request::AddBlock { file: file.clone(), previous: None, excluded: Vec::new() };
    let Ok(Reply::Block(block)) = world.root(&add) else { panic!("no block") };
    assert_eq!(used(&mut world, "/q"), (4, 15 + BLOCK_SIZE), "as much as the block may have");
    assert_eq!(world.refused("root", &append("/q/f", "other")), Class::SpaceQuota);
    let replicated = Request::SetReplication { path: "/q/f".into(), replication: 6 };
    let error = world.root(&replicated).unwrap_err();
    assert_eq!(
        (error.class, &*error.message),
        (Class::SpaceQuota, "The DiskSpace quota of /q is exceeded: quota = 100 B but diskspace consumed = 104 B")
    );
    world.root(&Request::AbandonBlock { file, block: block.block }).unwrap();
    world.root(&replicated).unwrap();
    assert_eq!(used(&mut world, "/q"), (4, 40));
    world.root(&truncate("/q/before", 4)).unwrap();
    let recovery = world.recovery.take().expect("a block to cut");
    world.close(recovery);
    assert_eq!(used(&mut world, "/q"), (4, 34));
    world.restart();
    world.root(&delete("/q/f")).unwrap();
    assert_eq!(used(&mut world, "/q"), (3, 4));
}

#[test]
fn a_file_that_its_writer_left_counts_with_what_it_has() {
    let mut world = World::new();
    world.root(&mkdirs("/q")).unwrap();
    world.root(&set("/q", Limit::Same, Limit::Most(100))).unwrap();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/q/f", false)) else { panic!("no file") };
    let add = Request::AddBlock { file: written("/q/f", status.id), previous: None, excluded: Vec::new() };
    let Ok(Reply::Block(block)) = world.root(&add) else { panic!("no block") };
    world.received(savanna_files::request::BlockName { length: 9, ..block.block });
    let now = savanna_files::ids::Millis(world.now);
    let (change, recovery) = world.namespace.close_left(status.id, now).expect("a file to close");
    world.take(&change);
    world.close(recovery);
    assert_eq!(used(&mut world, "/q"), (2, 9));
}

#[test]
fn quotas_within_quotas_count_what_comes_and_goes_in_both() {
    let mut world = World::with_database();
    for number in 0..30 {
        world.write(&format!("/out/in/{number}"), &[2]).unwrap();
    }
    world.root(&set("/out", Limit::Most(1_000), Limit::Same)).unwrap();
    world.root(&set("/out/in", Limit::Most(1_000), Limit::Same)).unwrap();
    world.flush(1_000);
    while world.namespace.give_up(0, 9) > 0 {}
    assert_eq!(used(&mut world, "/out"), (32, 60));
    world.root(&mkdirs("/away")).unwrap();
    world.root(&set("/away", Limit::Most(31), Limit::Same)).unwrap();
    assert_eq!(world.refused("root", &rename2("/out/in", "/away/in", false)), Class::NamesQuota);
    world.root(&set("/away", Limit::Most(32), Limit::Same)).unwrap();
    world.root(&rename2("/out/in", "/away/in", false)).unwrap();
    assert_eq!((used(&mut world, "/out"), used(&mut world, "/away")), ((1, 0), (32, 60)));
    world.root(&delete("/away/in/7")).unwrap();
    assert_eq!((used(&mut world, "/away/in"), used(&mut world, "/away")), ((30, 58), (31, 58)));
    world.root(&delete("/away/in")).unwrap();
    while world.dismantle(3) {}
    assert_eq!(used(&mut world, "/away"), (1, 0));
}

#[test]
fn only_the_superuser_says_how_much_may_be_in_a_directory() {
    let mut world = World::new();
    world.root(&mkdirs("/d")).unwrap();
    world.root(&create("/f", false)).unwrap();
    assert_eq!(world.refused("ann", &set("/d", Limit::Most(9), Limit::Same)), Class::AccessControl);
    assert_eq!(world.refused("root", &set("/f", Limit::Most(9), Limit::Same)), Class::PathIsNotDirectory);
    assert_eq!(world.refused("root", &set("/x", Limit::Most(9), Limit::Same)), Class::FileNotFound);
}
