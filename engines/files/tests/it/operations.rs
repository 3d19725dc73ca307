//! What the random operations do not say: permissions, leases, retries, large subtrees.

use savanna_files::blocks::Place;
use savanna_files::change::{BlockSize, CallId, RECOVERY};
use savanna_files::ids::{InodeId, Millis};
use savanna_files::operation::{Begun, Counted, Walk};
use savanna_files::request::{BlockName, Create, Written};
use savanna_files::{Class, Reply, Request};

use crate::world::{World, append, concat, create, delete, mkdirs, rename2, truncate, written};

const fn call(number: i32) -> Option<CallId> {
    Some(CallId { client: [7; 16], call: number })
}

#[test]
fn a_call_that_comes_again_gets_its_answer_also_after_a_restart() {
    let mut world = World::new();
    world.root(&mkdirs("/a")).unwrap();
    assert_eq!(world.call("root", &delete("/a"), call(1)), Ok(Reply::Bool(true)));
    world.restart();
    world.root(&mkdirs("/a")).unwrap();
    assert_eq!(world.call("root", &delete("/a"), call(1)), Ok(Reply::Bool(true)), "it was done");
    assert!(world.status("/a").is_some(), "it is not done again");
    let Ok(Reply::Status(Some(first))) = world.call("root", &create("/f", false), call(2)) else { panic!("no file") };
    let Ok(Reply::Status(Some(again))) = world.call("root", &create("/f", false), call(2)) else { panic!("no file") };
    assert_eq!(first.id, again.id);
    assert_eq!(world.refused("root", &create("/f", false)), Class::AlreadyBeingCreated);
}

#[test]
fn a_call_that_comes_again_gets_its_answer_whatever_its_user_may_do_by_then() {
    let mut world = World::new();
    world.root(&mkdirs("/home")).unwrap();
    world.root(&Request::SetPermission { path: "/home".into(), mode: 0o777 }).unwrap();
    world.call("ann", &mkdirs("/home/a"), None).unwrap();
    let rename = Request::Rename { from: "/home/a".into(), to: "/home/b".into() };
    assert_eq!(world.call("ann", &rename, call(1)), Ok(Reply::Bool(true)));
    world.root(&Request::SetPermission { path: "/home".into(), mode: 0o700 }).unwrap();
    assert_eq!(world.refused("ann", &rename), Class::AccessControl);
    assert_eq!(world.call("ann", &rename, call(1)), Ok(Reply::Bool(true)), "it was done");
    world.restart();
    world.namespace.is_safe = true;
    assert_eq!(world.call("ann", &rename, call(1)), Ok(Reply::Bool(true)), "also in safe mode");
}

#[test]
fn a_directory_is_listed_by_who_may_read_and_enter_it() {
    let mut world = World::new();
    world.root(&mkdirs("/d/deep")).unwrap();
    let listing = Request::Listing { path: "/d".into(), after: Vec::new(), with_locations: false };
    for (mode, may) in [(0o700, false), (0o704, false), (0o701, false), (0o705, true)] {
        world.root(&Request::SetPermission { path: "/d".into(), mode }).unwrap();
        assert_eq!(world.call("ann", &listing, None).is_ok(), may, "{mode:o}");
        let context = world.context("ann", None);
        assert_eq!(Walk::begin(&world.namespace, &context, "/d", None).unwrap().is_ok(), may, "{mode:o}");
    }
}

#[test]
fn a_block_is_neither_smaller_nor_larger_than_it_may_be() {
    let mut world = World::new();
    let sized = |block_size| match create("/f", false) {
        Request::Create(create) => Request::Create(Create { block_size, ..create }),
        _ => unreachable!(),
    };
    for size in [0, BlockSize::LARGEST + 1, u64::MAX] {
        assert_eq!(world.refused("root", &sized(size)), Class::Io, "{size}");
    }
    world.root(&sized(BlockSize::LARGEST)).unwrap();
    assert_eq!(world.status("/f").unwrap().block_size, BlockSize::LARGEST);
}

#[test]
fn a_directory_has_no_more_names_than_it_may() {
    let mut world = World::limited(3);
    for name in ["/d/a", "/d/b", "/d/c"] {
        world.root(&mkdirs(name)).unwrap();
    }
    for full in [mkdirs("/d/e"), create("/d/e", false), mkdirs("/d/e/f")] {
        assert_eq!(world.refused("root", &full), Class::DirectoryFull);
    }
    world.root(&mkdirs("/d/a/deep")).unwrap();
    world.root(&delete("/d/a")).unwrap();
    world.root(&create("/d/e", false)).unwrap();
}

#[test]
fn who_is_not_the_superuser_needs_permission() {
    let mut world = World::new();
    world.root(&mkdirs("/private/deep")).unwrap();
    world.root(&Request::SetPermission { path: "/private".into(), mode: 0o700 }).unwrap();
    let info = Request::FileInfo { path: "/private/deep".into() };
    assert_eq!(world.refused("ann", &info), Class::AccessControl);
    assert_eq!(world.refused("ann", &mkdirs("/x")), Class::AccessControl);
    assert_eq!(world.refused("ann", &delete("/private")), Class::AccessControl);
    assert_eq!(world.refused("ann", &Request::SetPermission { path: "/".into(), mode: 0o777 }), Class::AccessControl);
    world.root(&mkdirs("/home")).unwrap();
    let owner = Request::SetOwner { path: "/home".into(), owner: Some("ann".into()), group: None };
    assert_eq!(world.refused("ann", &owner), Class::AccessControl);
    world.root(&owner).unwrap();
    world.call("ann", &mkdirs("/home/x"), None).unwrap();
    assert_eq!(&*world.status("/home/x").unwrap().owner, "ann");
    assert_eq!(&*world.status("/home/x").unwrap().group, "supergroup", "the group of its directory");
    world.root(&mkdirs("/tmp")).unwrap();
    world.root(&Request::SetPermission { path: "/tmp".into(), mode: 0o1777 }).unwrap();
    world.call("ann", &mkdirs("/tmp/of-ann"), None).unwrap();
    assert_eq!(world.refused("bob", &delete("/tmp/of-ann")), Class::AccessControl, "the sticky bit");
    assert_eq!(world.refused("bob", &rename2("/tmp/of-ann", "/tmp/of-bob", false)), Class::AccessControl);
    assert_eq!(world.call("ann", &delete("/tmp/of-ann"), None), Ok(Reply::Bool(true)));
}

#[test]
fn a_writer_is_one_and_its_blocks_follow_each_other() {
    let mut world = World::new();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/f", false)) else { panic!("no file") };
    let file = written("/f", status.id);
    let other = Written { client: "other".into(), ..file.clone() };
    let add = |file: &Written, previous| Request::AddBlock { file: file.clone(), previous, excluded: Vec::new() };
    assert_eq!(world.refused("root", &add(&other, None)), Class::LeaseExpired);
    let Ok(Reply::Block(first)) = world.root(&add(&file, None)) else { panic!("no block") };
    assert_eq!(world.root(&add(&file, None)), Ok(Reply::Block(first.clone())), "asked again");
    let full = BlockName { length: 64, ..first.block };
    let Ok(Reply::Block(second)) = world.root(&add(&file, Some(full))) else { panic!("no block") };
    assert_eq!(second.offset, 64);
    let second = BlockName { length: 5, ..second.block };
    assert_eq!(world.refused("root", &add(&file, Some(second))), Class::NotReplicatedYet);
    let complete = Request::Complete { file: file.clone(), last: Some(second) };
    assert_eq!(world.root(&complete), Ok(Reply::Bool(false)), "the data node has nothing yet");
    for block in [full, second] {
        world.received(block);
    }
    assert_eq!(world.root(&complete), Ok(Reply::Bool(true)));
    assert_eq!(world.root(&complete), Ok(Reply::Bool(true)), "asked again");
    assert_eq!(world.status("/f").unwrap().length, 69);
    assert!(world.namespace.leases.is_empty());
    let Ok(Reply::Blocks(blocks)) = world.root(&Request::BlockLocations { path: "/f".into(), offset: 64, length: 1 })
    else {
        panic!("no blocks")
    };
    assert_eq!((blocks.length, blocks.blocks.len(), blocks.blocks[0].block), (69, 1, second));
}

#[test]
fn a_lease_follows_its_file_and_ends_with_it() {
    let mut world = World::new();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/d/f", false)) else { panic!("no file") };
    let file = written("/d/f", status.id);
    let add = Request::AddBlock { file: file.clone(), previous: None, excluded: Vec::new() };
    world.root(&rename2("/d", "/e", false)).unwrap();
    let Ok(Reply::Block(block)) = world.root(&add) else { panic!("no block") };
    let give_up = Request::AbandonBlock { file, block: block.block };
    world.root(&give_up).unwrap();
    assert!(world.namespace.blocks.is_empty());
    world.root(&delete("/e")).unwrap();
    assert_eq!(world.refused("root", &add), Class::FileNotFound);
    assert!(world.namespace.leases.is_empty());
}

#[test]
fn a_file_whose_writer_has_gone_is_closed_with_what_the_data_node_has() {
    let mut world = World::new();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/f", false)) else { panic!("no file") };
    let file = written("/f", status.id);
    let add = Request::AddBlock { file: file.clone(), previous: None, excluded: Vec::new() };
    let Ok(Reply::Block(block)) = world.root(&add) else { panic!("no block") };
    let context = world.context("root", None);
    let mine = world.namespace.recover_lease(&context, "/f", "writer", None).unwrap().unwrap_err();
    assert_eq!(mine.class, Class::AlreadyBeingCreated);
    let begun = world.namespace.recover_lease(&context, "/f", "other", None).unwrap().unwrap();
    let Begun::Recovery(change, recovery) = begun else { panic!("it is not closed") };
    world.take(&change);
    assert_eq!(world.refused("root", &add), Class::LeaseExpired, "the old writer");
    let (id, stamp) = recovery.block.unwrap();
    assert!(id == block.block.id && stamp > block.block.stamp);
    world.restart();
    world.received(BlockName { id, stamp, length: 9 });
    let change = world.namespace.finish_recovery(recovery, Some(9), Millis(world.now)).unwrap();
    world.take(&change);
    assert!(world.namespace.finish_recovery(recovery, Some(9), Millis(world.now)).is_none(), "it is closed");
    assert_eq!(world.status("/f").unwrap().length, 9);
    assert_eq!(world.root(&Request::IsFileClosed { path: "/f".into() }), Ok(Reply::Bool(true)));
}

#[test]
fn under_which_generation_a_file_was_written_is_known_however_often_its_end_is_begun_anew() {
    let mut world = World::new();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/f", false)) else { panic!("no file") };
    let add = Request::AddBlock { file: written("/f", status.id), previous: None, excluded: Vec::new() };
    let Ok(Reply::Block(block)) = world.root(&add) else { panic!("no block") };
    let (change, mut recovery) = world.namespace.close_left(status.id, Millis(world.now)).unwrap();
    world.take(&change);
    for _ in 0..3 {
        assert_eq!(recovery.old, Some(block.block.stamp));
        recovery = world.restarted(recovery);
    }
    world.write("/g", &[10]).unwrap();
    let Ok(Reply::Blocks(blocks)) = world.root(&Request::BlockLocations { path: "/g".into(), offset: 0, length: 1 })
    else {
        panic!("no blocks")
    };
    assert_eq!(world.root(&truncate("/g", 5)), Ok(Reply::Bool(false)));
    let mut recovery = world.recovery.take().unwrap();
    for _ in 0..3 {
        assert_eq!(recovery.old, Some(blocks.blocks[0].block.stamp));
        recovery = world.restarted(recovery);
    }
}

/// A file that is opened so that all of it counts, or nothing.
fn begun(world: &mut World, request: &Request) -> (Written, Option<BlockName>) {
    match world.root(request).unwrap() {
        Reply::Status(Some(status)) => (written("/f", status.id), None),
        Reply::Appended(last, status) => (written("/f", status.id), last.map(|last| last.block)),
        other => panic!("{other:?}"),
    }
}

/// How much later another may take a file from a writer that says nothing.
const LATER: u64 = savanna_files::lease::SOFT_LIMIT + 1;

#[test]
fn a_file_of_which_all_counts_or_nothing_goes_with_its_writer() {
    // When its lease is over, when somebody else recovers that, and when somebody wants to write it.
    for how in 0..3 {
        for restarts in [false, true] {
            let mut world = World::with_database();
            world.root(&mkdirs("/d")).unwrap();
            let Request::Create(new) = create("/f", false) else { unreachable!() };
            let (file, _) = begun(&mut world, &Request::Create(Create { is_all_or_nothing: true, ..new }));
            let add = Request::AddBlock { file: file.clone(), previous: None, excluded: Vec::new() };
            let Ok(Reply::Block(located)) = world.root(&add) else { panic!("no block") };
            world.received(BlockName { length: 9, ..located.block });
            world.flush(100);
            let mut recovery = match how {
                0 => {
                    let (change, recovery) = world.namespace.close_left(file.id.unwrap(), Millis(world.now)).unwrap();
                    world.take(&change);
                    recovery
                }
                1 => {
                    let context = world.context("root", None);
                    let begun = world.namespace.recover_lease(&context, "/f", "other", None).unwrap().unwrap();
                    let Begun::Recovery(change, recovery) = begun else { panic!("it is not closed") };
                    world.take(&change);
                    recovery
                }
                _ => {
                    world.now += LATER;
                    assert_eq!(world.refused("root", &append("/f", "other")), Class::RecoveryInProgress);
                    world.recovery.take().unwrap()
                }
            };
            assert!(world.status("/f").is_some());
            if restarts {
                recovery = world.restarted(recovery);
            }
            world.close(recovery);
            assert!(world.status("/f").is_none() && world.replicas().is_empty(), "{how} {restarts}");
            assert_eq!((world.namespace.leases.len(), world.namespace.blocks.len()), (0, 0));
            assert_eq!(world.status("/d").unwrap().children, 0);
        }
    }
}

#[test]
fn an_append_of_which_all_counts_or_nothing_leaves_the_file_as_it_was() {
    // Its last block has room, is full, or is none; its writer came that far.
    for (lengths, restarts) in
        [&[64, 9][..], &[64], &[]].into_iter().flat_map(|lengths| [(lengths, false), (lengths, true)])
    {
        for steps in 0..4 {
            let mut world = World::with_database();
            world.write("/f", lengths).unwrap();
            let client = "writer".to_owned();
            let append = Request::Append { path: "/f".into(), client, is_in_new_block: false, is_all_or_nothing: true };
            let (file, mut last) = begun(&mut world, &append);
            if steps > 0
                && let Some(old) = last
            {
                let Ok(Reply::Block(new)) = world.root(&Request::NewStamp { block: old, client: "writer".into() })
                else {
                    panic!("no generation")
                };
                world.received(BlockName { length: 60, ..new.block });
                if steps > 1 {
                    let pipeline = Request::UpdatePipeline {
                        client: "writer".into(),
                        old,
                        new: new.block,
                        places: vec![Place::HERE],
                        are_all: true,
                    };
                    world.root(&pipeline).unwrap();
                    last = Some(BlockName { length: 60, ..new.block });
                }
            }
            if steps > 2 {
                let add = Request::AddBlock { file: file.clone(), previous: last, excluded: Vec::new() };
                let Ok(Reply::Block(located)) = world.root(&add) else { panic!("no block") };
                world.received(BlockName { length: 33, ..located.block });
            }
            let (change, mut recovery) = world.namespace.close_left(file.id.unwrap(), Millis(world.now)).unwrap();
            world.take(&change);
            let whole: u64 = lengths.iter().sum();
            assert_eq!(world.status("/f").unwrap().length, whole, "{lengths:?} {steps}");
            if restarts {
                recovery = world.restarted(recovery);
            }
            world.close(recovery);
            assert_eq!(world.status("/f").unwrap().length, whole, "{lengths:?} {steps}");
            assert_eq!(world.replicas().len(), lengths.len(), "{lengths:?} {steps}");
            // It may be written on.
            world.append("/f", 100, false).unwrap();
            assert_eq!(world.status("/f").unwrap().length, whole + 100);
        }
    }
}

#[test]
fn the_root_is_not_deleted_and_refused_if_it_is_not_empty() {
    let mut world = World::new();
    let delete = |is_recursive| Request::Delete { path: "/".to_owned(), is_recursive };
    assert_eq!(world.root(&delete(false)), Ok(Reply::Bool(false)));
    world.write("/f", &[1]).unwrap();
    assert_eq!(world.refused("root", &delete(false)), Class::PathIsNotEmptyDirectory);
    assert_eq!(world.root(&delete(true)), Ok(Reply::Bool(false)));
    assert_eq!(world.status("/f").unwrap().length, 1);
}

#[test]
fn nobody_writes_a_file_that_the_name_node_closes_by_calling_itself_the_same() {
    let mut world = World::new();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/f", false)) else { panic!("no file") };
    let file = written("/f", status.id);
    let add = Request::AddBlock { file: file.clone(), previous: None, excluded: Vec::new() };
    let Ok(Reply::Block(block)) = world.root(&add) else { panic!("no block") };
    let (change, recovery) = world.namespace.close_left(status.id, Millis(world.now)).expect("a file to close");
    world.take(&change);
    let (id, stamp) = recovery.block.expect("a block");
    let file = Written { client: RECOVERY.to_owned(), ..file };
    let abandon = Request::AbandonBlock { file: file.clone(), block: BlockName { id, stamp, ..block.block } };
    assert_eq!(world.refused("root", &abandon), Class::LeaseExpired);
    assert_eq!(world.refused("root", &Request::Fsync { file, length: Some(9) }), Class::LeaseExpired);
    let stamp = Request::NewStamp { block: block.block, client: RECOVERY.to_owned() };
    assert_eq!(world.refused("root", &stamp), Class::LeaseExpired);
    world.received(BlockName { id, stamp: recovery.block.expect("a block").1, length: 9 });
    let change = world.namespace.finish_recovery(recovery, Some(9), Millis(world.now)).expect("it is closed");
    world.take(&change);
    assert_eq!(world.status("/f").expect("a file").length, 9);
}

#[test]
fn a_new_pipeline_writes_under_a_new_generation() {
    let mut world = World::new();
    let Ok(Reply::Status(Some(status))) = world.root(&create("/f", false)) else { panic!("no file") };
    let file = written("/f", status.id);
    let add = Request::AddBlock { file: file.clone(), previous: None, excluded: Vec::new() };
    let Ok(Reply::Block(block)) = world.root(&add) else { panic!("no block") };
    let client = "writer".to_owned();
    let stamp = Request::NewStamp { block: block.block, client: client.clone() };
    let Ok(Reply::Block(new)) = world.root(&stamp) else { panic!("no generation") };
    let new = BlockName { length: 7, ..new.block };
    assert!(new.stamp > block.block.stamp);
    world.restart();
    let update = Request::UpdatePipeline { client, old: block.block, new, places: Vec::new(), are_all: true };
    assert_eq!(world.root(&update), Ok(Reply::Done));
    assert_eq!(world.refused("root", &update), Class::Io, "no newer generation");
    world.received(new);
    assert_eq!(world.root(&Request::Complete { file, last: Some(new) }), Ok(Reply::Bool(true)));
}

#[test]
fn a_large_subtree_goes_at_once_and_is_taken_apart_later() {
    let mut world = World::new();
    for directory in 0..10 {
        for file in 0..100 {
            world.write(&format!("/big/{directory}/{file}"), &[1]).unwrap();
        }
    }
    world.write("/big/open", &[]).unwrap();
    assert_eq!(world.root(&delete("/big")), Ok(Reply::Bool(true)));
    assert!(world.status("/big").is_none());
    world.root(&mkdirs("/big")).unwrap();
    assert!(world.namespace.inode_count() > 1_000, "it is still there");
    assert_eq!(world.namespace.blocks.take_unwanted(), []);
    world.restart();
    let mut slices = 0;
    while world.dismantle(300) {
        slices += 1;
        world.restart();
    }
    assert_eq!((world.namespace.inode_count(), slices), (1, 4), "/big");
    assert!(world.namespace.blocks.is_empty());
}

#[test]
fn a_summary_counts_a_part_at_a_time() {
    let mut world = World::new();
    for file in 0..50 {
        world.write(&format!("/d/{}/{file}", file % 7), &[2, 3]).unwrap();
    }
    for inodes in [1, 2, 3, 10, 1_000] {
        let context = world.context("root", None);
        let mut walk = Walk::begin(&world.namespace, &context, "/d", None).unwrap().unwrap();
        let (summary, depends) = loop {
            match walk.go_on(&world.namespace, &context, inodes).unwrap() {
                Counted::More => {}
                Counted::All(summary, depends) => break (summary, depends),
                Counted::NotHere(_) => panic!("all is here"),
            }
        };
        assert_eq!((summary.files, summary.directories, summary.length, summary.space), (50, 8, 250, 250));
        assert_eq!(depends, world.namespace.txid());
    }
}

#[test]
fn a_name_is_found_behind_one_that_was_deleted() {
    let mut world = World::new();
    for name in ["a", "b", "c", "d"] {
        world.root(&mkdirs(&format!("/d/{name}"))).unwrap();
    }
    world.root(&delete("/d/b")).unwrap();
    let request = Request::Listing { path: "/d".into(), after: b"b".to_vec(), with_locations: false };
    let Ok(Reply::Listing(Some(listing))) = world.root(&request) else { panic!("no listing") };
    let names: Vec<&[u8]> = listing.entries.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, [b"c", b"d"]);
}

#[test]
fn a_page_with_locations_has_a_limit_of_blocks() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.write(&format!("/d/{name}"), &[1, 1, 1]).unwrap();
    }
    let mut page = |after: &[u8], with_locations| {
        let request = Request::Listing { path: "/d".into(), after: after.to_vec(), with_locations };
        let Ok(Reply::Listing(Some(listing))) = world.root(&request) else { panic!("no listing") };
        (listing.entries.len(), listing.remaining)
    };
    assert_eq!([page(b"", false), page(b"", true), page(b"b", true)], [(3, 0), (2, 1), (1, 0)]);
}

#[test]
fn a_thousand_levels_are_a_path() {
    let mut world = World::new();
    let deep = "/x".repeat(1_000);
    assert_eq!(world.root(&mkdirs(&deep)), Ok(Reply::Bool(true)));
    assert!(world.status(&deep).is_some());
    assert_eq!(world.refused("root", &mkdirs(&format!("{deep}/x"))), Class::InvalidPath);
    assert_eq!(world.root(&delete("/x")), Ok(Reply::Bool(true)));
    while world.dismantle(256) {}
    assert_eq!(world.namespace.inode_count(), 0);
}

#[test]
fn nothing_changes_in_safe_mode() {
    let mut world = World::new();
    world.namespace.is_safe = true;
    assert_eq!(world.refused("root", &mkdirs("/a")), Class::SafeMode);
    assert!(world.status("/").is_some());
    world.namespace.is_safe = false;
    world.root(&mkdirs("/a")).unwrap();
}

#[test]
fn an_inode_keeps_its_number_where_it_is_moved() {
    let mut world = World::new();
    world.root(&mkdirs("/a/b")).unwrap();
    let id = world.status("/a/b").unwrap().id;
    assert!(id > InodeId::ROOT);
    world.root(&rename2("/a/b", "/c", false)).unwrap();
    assert_eq!(world.status("/c").unwrap().id, id);
}

#[test]
fn a_file_is_written_on_where_it_ends() {
    let mut world = World::new();
    assert_eq!(world.refused("root", &append("/f", "writer")), Class::FileNotFound);
    let id = world.write("/d/f", &[64, 10]).unwrap();
    assert_eq!(world.refused("root", &append("/d", "writer")), Class::FileAlreadyExists);
    assert_eq!(world.refused("ann", &append("/d/f", "writer")), Class::AccessControl);
    for client in ["savanna_recovery", "savanna_truncation"] {
        assert_eq!(world.refused("root", &append("/d/f", client)), Class::IllegalArgument, "who the name node is");
    }
    let first = world.call("root", &append("/d/f", "writer"), call(1));
    let Ok(Reply::Appended(Some(last), status)) = &first else { panic!("{first:?}") };
    assert_eq!((last.offset, last.block.length, last.is_there(), status.id, status.length), (64, 10, true, id, 74));
    world.restart();
    assert_eq!(world.call("root", &append("/d/f", "writer"), call(1)), first, "asked again");
    assert_eq!(world.refused("root", &append("/d/f", "writer")), Class::AlreadyBeingCreated);
    assert_eq!(world.refused("root", &append("/d/f", "other")), Class::AlreadyBeingCreated);
    let give_up = Request::AbandonBlock { file: written("/d/f", id), block: last.block };
    assert_eq!(world.refused("root", &give_up), Class::Io, "its bytes were acknowledged");
}

#[test]
fn a_block_that_was_ended_keeps_its_length() {
    let mut world = World::new();
    let id = world.write("/f", &[10]).unwrap();
    let request =
        Request::Append { path: "/f".into(), client: "writer".into(), is_in_new_block: true, is_all_or_nothing: false };
    let Ok(Reply::Appended(Some(last), _)) = world.root(&request) else { panic!("no file") };
    assert!(!last.is_there(), "it is not to be written");
    let shorter = BlockName { length: 9, ..last.block };
    let file = written("/f", id);
    assert_eq!(world.refused("root", &Request::Complete { file: file.clone(), last: Some(shorter) }), Class::Io);
    assert_eq!(world.root(&Request::Complete { file, last: Some(last.block) }), Ok(Reply::Bool(true)));
    assert_eq!(world.status("/f").unwrap().length, 10);
}

#[test]
fn who_wants_to_write_on_a_file_that_its_writer_has_left_waits_until_it_is_closed() {
    let Request::Create(mine) = create("/f", false) else { panic!("no file") };
    let theirs = Request::Create(Create { client: "other".to_owned(), ..mine });
    for wish in [append("/f", "other"), truncate_as("/f", "other"), theirs] {
        let mut world = World::new();
        world.root(&create("/f", false)).unwrap();
        assert_eq!(world.refused("root", &wish), Class::AlreadyBeingCreated, "its writer is there");
        world.now += 60_000;
        assert_eq!(world.refused("root", &create("/f", false)), Class::AlreadyBeingCreated, "it is its own");
        assert_eq!(world.recovery, None);
        assert_eq!(world.refused("root", &wish), Class::RecoveryInProgress);
        let recovery = world.recovery.take().expect("it is to be closed");
        assert_eq!(world.refused("root", &append("/f", "third")), Class::RecoveryInProgress);
        assert_eq!(world.refused("root", &wish), Class::RecoveryInProgress);
        world.close(recovery);
        assert_eq!(world.refused("root", &create("/f", false)), Class::FileAlreadyExists);
        assert!(world.root(&append("/f", "other")).is_ok(), "nobody writes it");
    }
}

fn truncate_as(path: &str, client: &str) -> Request {
    Request::Truncate { path: path.to_owned(), length: 0, client: client.to_owned() }
}

#[test]
fn a_file_that_is_being_cut_is_as_long_as_it_will_be() {
    let mut world = World::new();
    world.write("/f", &[64, 64, 10]).unwrap();
    assert_eq!(world.refused("ann", &truncate("/f", 1)), Class::AccessControl);
    assert_eq!(world.refused("root", &truncate("/f", 139)), Class::IllegalArgument);
    assert_eq!(world.refused("root", &truncate("/f", u64::MAX)), Class::IllegalArgument);
    assert_eq!(world.root(&truncate("/f", 138)), Ok(Reply::Bool(true)));
    assert_eq!(world.root(&truncate("/f", 128)), Ok(Reply::Bool(true)), "whole blocks");
    assert_eq!(world.root(&truncate("/f", 70)), Ok(Reply::Bool(false)));
    let recovery = world.recovery.take().unwrap();
    assert_eq!(world.root(&truncate("/f", 70)), Ok(Reply::Bool(false)), "asked again");
    assert_eq!(world.refused("root", &truncate("/f", 69)), Class::AlreadyBeingCreated);
    assert_eq!(world.refused("root", &append("/f", "writer")), Class::RecoveryInProgress);
    assert_eq!(world.status("/f").unwrap().length, 70);
    let Ok(Reply::Blocks(blocks)) = world.root(&Request::BlockLocations { path: "/f".into(), offset: 0, length: 100 })
    else {
        panic!("no blocks")
    };
    assert_eq!((blocks.length, blocks.blocks.len(), blocks.is_last_complete), (70, 2, true));
    assert!(blocks.blocks[1].is_there() && blocks.blocks[1].block.length == 6);
    let again = world.restarted(recovery);
    let again = world.restarted(again);
    assert_eq!(again.length, recovery.length, "to what it is cut is kept");
    assert!(world.namespace.finish_recovery(recovery, Some(6), Millis(world.now)).is_none(), "it was begun anew");
    world.close(again);
    assert_eq!(world.root(&Request::IsFileClosed { path: "/f".into() }), Ok(Reply::Bool(true)));
    assert!(world.namespace.leases.is_empty());
    world.append("/f", 1, false).unwrap();
    assert_eq!(world.status("/f").unwrap().length, 71);
}

#[test]
fn a_block_that_the_data_node_has_lost_stays_in_its_file() {
    let mut world = World::new();
    world.write("/f", &[10]).unwrap();
    world.root(&append("/f", "writer")).unwrap();
    let id = world.status("/f").unwrap().id;
    let (change, recovery) = world.namespace.close_left(id, Millis(world.now)).unwrap();
    world.take(&change);
    let change = world.namespace.finish_recovery(recovery, None, Millis(world.now)).unwrap();
    world.take(&change);
    assert_eq!(world.status("/f").unwrap().length, 10, "it was acknowledged, and is missing");
}

#[test]
fn files_become_one_and_keep_their_blocks() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.write(&format!("/d/{name}"), &[3, 4]).unwrap();
    }
    world.write("/d/empty", &[]).unwrap();
    world.write("/e/f", &[1]).unwrap();
    world.root(&create("/d/open", false)).unwrap();
    for sources in [&["/d/a"][..], &["/d/b", "/d/b"], &["/e/f"], &["/d/empty"], &["/d/open"], &[]] {
        assert_eq!(world.refused("root", &concat("/d/a", sources)), Class::IllegalArgument, "{sources:?}");
    }
    assert_eq!(world.refused("root", &concat("/d/open", &["/d/b"])), Class::IllegalArgument);
    assert_eq!(world.refused("root", &concat("/d", &["/d/b"])), Class::FileNotFound);
    assert_eq!(world.refused("root", &concat("/d/a", &["/d/x"])), Class::FileNotFound);
    assert_eq!(world.refused("ann", &concat("/d/a", &["/d/b"])), Class::AccessControl);
    let replicas = world.replicas();
    assert_eq!(world.call("root", &concat("/d/a", &["/d/c", "/d/b"]), call(1)), Ok(Reply::Done));
    assert_eq!(world.replicas(), replicas);
    world.restart();
    assert_eq!(world.call("root", &concat("/d/a", &["/d/c", "/d/b"]), call(1)), Ok(Reply::Done), "asked again");
    assert_eq!((world.status("/d/a").unwrap().length, world.status("/d/b")), (21, None));
    let request = Request::BlockLocations { path: "/d/a".into(), offset: 0, length: 100 };
    let Ok(Reply::Blocks(blocks)) = world.root(&request) else { panic!("no blocks") };
    assert_eq!((blocks.blocks.len(), blocks.blocks.iter().all(|block| block.is_there())), (6, true));
    world.root(&delete("/d/a")).unwrap();
    assert_eq!(world.replicas().len(), 1, "that of /e/f");
}

#[test]
fn files_that_are_being_written_are_listed_in_pages() {
    let mut world = World::new();
    for name in ["/a/1", "/a/2", "/ab/3", "/a/4", "/a/5", "/a/6", "/a/7"] {
        world.root(&create(name, false)).unwrap();
    }
    world.write("/a/closed", &[1]).unwrap();
    let open = |path: &str, after| Request::OpenFiles { path: path.into(), after };
    assert_eq!(world.refused("ann", &open("/", InodeId(0))), Class::AccessControl);
    let mut page = |path, after| {
        let Ok(Reply::OpenFiles(files, has_more)) = world.root(&open(path, after)) else { panic!("no files") };
        let last = files.last().map_or(after, |file| file.id);
        (files.into_iter().map(|file| file.path).collect::<Vec<_>>(), has_more, last)
    };
    let (first, has_more, last) = page("/a", InodeId(0));
    assert_eq!((first, has_more), (["/a/1", "/a/2", "/a/4", "/a/5", "/a/6"].map(String::from).to_vec(), true));
    assert_eq!(page("/a/", last).0, ["/a/7"]);
    assert_eq!(page("/ab", InodeId(0)).0, ["/ab/3"]);
}

/// Before it is known which replicas the data node in the process has.
#[test]
fn what_says_where_blocks_are_is_refused_while_replicas_are_read() {
    let mut world = World::new();
    world.write("/f", &[10]).unwrap();
    world.call("root", &create("/g", false), call(1)).unwrap();
    world.call("root", &append("/f", "writer"), call(2)).unwrap();
    world.namespace.is_reading = true;
    assert!(world.call("root", &create("/g", false), call(1)).is_ok(), "it was done before");
    let again = world.call("root", &append("/f", "writer"), call(2)).unwrap_err();
    assert_eq!(again.class, Class::Retriable);
    assert_eq!(world.refused("root", &mkdirs("/d")), Class::SafeMode);
    let places = Request::BlockLocations { path: "/f".into(), offset: 0, length: 9 };
    assert_eq!(world.refused("root", &places), Class::Retriable);
    assert!(world.status("/f").is_some());
}
