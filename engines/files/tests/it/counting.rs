//! What large subtrees count for in quotas is counted while others change them.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_files::change::{File, Row, Usage};
use savanna_files::counting::Counting;
use savanna_files::ids::InodeId;
use savanna_files::request::Limit;
use savanna_files::{Class, Namespace, Reply, Request};

use crate::world::{MEMBER, World, concat, create, delete, mkdirs, rename2, truncate};

fn set_quota(path: &str, names: Limit) -> Request {
    Request::SetQuota { path: path.to_owned(), names, space: Limit::Same }
}

fn used(world: &mut World, path: &str) -> (u64, u64) {
    match world.root(&Request::Quota { path: path.to_owned() }) {
        Ok(Reply::Quota(Some(quota))) => (quota.used.names, quota.used.space),
        other => panic!("{other:?}"),
    }
}

/// What each inode counts for with all that is in it, one after the other.
fn plain(rows: &[Row], root: InodeId) -> Usage {
    let mut below: BTreeMap<InodeId, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| below.entry(row.parent).or_default().push(row));
    let (mut sum, mut open) = (Usage { names: 1, space: 0 }, vec![root]);
    while let Some(directory) = open.pop() {
        for row in below.get(&directory).into_iter().flatten() {
            sum.names += 1;
            sum.space += row.file().map_or(0, File::space);
            open.push(row.id);
        }
    }
    sum
}

fn path(random: &mut ChaCha8Rng) -> String {
    let names = ["a", "b", "c", "d", "e", "f"];
    (0..random.random_range(1..5)).map(|_| format!("/{}", names[random.random_range(0..names.len())])).collect()
}

/// Somebody changes something, or tries to.
fn step(world: &mut World, random: &mut ChaCha8Rng) {
    let (one, other) = (path(random), path(random));
    let request = match random.random_range(0..20) {
        0..=4 => mkdirs(&one),
        5..=8 => {
            let lengths: Vec<u64> = (0..random.random_range(0..3)).map(|_| random.random_range(1..=64)).collect();
            drop(world.write(&one, &lengths));
            return;
        }
        9 => return drop(world.append(&one, random.random_range(0..100), random.random())),
        10 => {
            drop(world.root(&truncate(&one, random.random_range(0..64))));
            if let Some(recovery) = world.recovery.take() {
                world.close(recovery);
            }
            return;
        }
        11..=12 => delete(&one),
        13..=15 => rename2(&one, &other, random.random()),
        16 => {
            let (above, _) = one.rsplit_once('/').expect("a name");
            concat(&one, &[&format!("{above}/a"), &format!("{above}/b")])
        }
        17 => create(&one, false),
        18 => set_quota(&one, if random.random() { Limit::Most(1 << 40) } else { Limit::None }),
        _ => {
            world.dismantle(5);
            return;
        }
    };
    drop(world.root(&request));
}

/// A directory without a quota, if there is any in memory.
fn some_directory(namespace: &Namespace, random: &mut ChaCha8Rng) -> Option<InodeId> {
    let tree = namespace.tree();
    let is_one = |row: &Row| {
        tree.get(row.id)
            .is_some_and(|inode| inode.is_directory() && inode.quota().is_none() && namespace.path(inode.id).is_some())
    };
    let mut directories: Vec<InodeId> = tree.rows().filter(is_one).map(|row| row.id).collect();
    directories.sort();
    (!directories.is_empty()).then(|| directories[random.random_range(0..directories.len())])
}

/// Counts while others change what is counted, in memory or behind it. How many were done, and how many had to be begun again.
fn counted(seed: u64, mut world: World) -> [usize; 2] {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut ends = [0; 2];
    for _ in 0..30 {
        (0..random.random_range(5..40)).for_each(|_| step(&mut world, &mut random));
        let some = some_directory(&world.namespace, &mut random);
        let root = some.filter(|_| random.random()).unwrap_or(InodeId::ROOT);
        world.look = random.random_range(1..4);
        world.counts.push(Counting::of(&world.namespace, root));
        while world.count_on() {
            (0..random.random_range(0..4)).for_each(|_| step(&mut world, &mut random));
            if random.random_bool(0.2) {
                world.flush(random.random_range(1..20));
            }
            if world.database.is_some() && random.random_bool(0.2) {
                while world.namespace.give_up(random.random_range(2..20), 3) > 0 {}
            }
        }
        // It is used somewhat later.
        step(&mut world, &mut random);
        let usage = world.counts.pop().expect("a count").usage();
        while world.database.as_ref().is_some_and(|database| database.txid < world.namespace.txid()) {
            world.flush(100);
        }
        let rows: Vec<Row> = match &world.database {
            Some(database) => database.rows().map(|stored| stored.row.clone()).collect(),
            None => world.namespace.tree().rows().collect(),
        };
        match usage.filter(|_| {
            rows.iter().any(|row| row.id == root && row.more.as_ref().is_none_or(|more| more.quota.is_none()))
        }) {
            Some(usage) => assert_eq!(usage, plain(&rows, root), "seed {seed}"),
            None => {
                ends[1] += 1;
                continue;
            }
        }
        ends[0] += 1;
    }
    ends
}

#[test]
fn what_was_counted_is_what_there_is_whatever_changed_meanwhile() {
    for with_database in [false, true] {
        let mut sums = [0; 2];
        for seed in 0..100 {
            let world = if with_database { World::with_database() } else { World::new() };
            let ends = counted(seed, world);
            sums = [sums[0] + ends[0], sums[1] + ends[1]];
        }
        assert!(sums.iter().all(|sum| *sum > 60), "with a database {with_database}: {sums:?}");
    }
}

/// A directory of many, in two levels.
fn many(world: &mut World, path: &str) {
    for number in 0..40 {
        for name in 0..10 {
            world.root(&mkdirs(&format!("{path}/{number:02}/{name}"))).unwrap();
        }
    }
    world.write(&format!("{path}/20/file"), &[10]).unwrap();
}

const MANY: u64 = 1 + 40 * 11 + 1;

#[test]
fn what_is_changed_while_a_large_directory_is_counted_counts() {
    for with_database in [false, true] {
        let mut world = if with_database { World::with_database() } else { World::new() };
        many(&mut world, "/d");
        world.root(&mkdirs("/q")).unwrap();
        world.root(&set_quota("/q", Limit::Most(MANY + 3))).unwrap();
        if with_database {
            world.flush(usize::MAX);
            while world.namespace.give_up(0, 9) > 0 {}
        }
        // What is before and behind the walk, and the file's place.
        world.meanwhile.extend([
            mkdirs("/d/00/new"),
            mkdirs("/d/39/new"),
            delete("/d/39/9"),
            rename2("/d/20/file", "/d/00/file", false),
            mkdirs("/elsewhere"),
        ]);
        world.root(&rename2("/d", "/q/d", false)).unwrap();
        assert_eq!((world.counted, world.meanwhile.len()), (1, 0));
        assert_eq!(used(&mut world, "/q"), (1 + MANY + 1, 10));
        // For directories that come or go with what is in them it is counted again.
        many(&mut world, "/e");
        world.root(&mkdirs("/q/room")).unwrap();
        world.counted = 0;
        world.meanwhile.extend([rename2("/e", "/q/d/39/e", false), rename2("/q/d/10", "/back", false)]);
        world.root(&set_quota("/q", Limit::None)).unwrap();
        world.root(&set_quota("/q", Limit::Most(1 << 20))).unwrap();
        assert_eq!(world.counted, 3);
        assert_eq!(used(&mut world, "/q"), (1 + MANY + 1 + 1 + MANY - 11, 20));
        world.root(&delete("/q/d")).unwrap();
        assert_eq!(used(&mut world, "/q"), (2, 0), "at once");
        while world.dismantle(100) {}
        assert_eq!(used(&mut world, "/q"), (2, 0));
    }
}

#[test]
fn a_directory_in_which_full_ones_move_is_counted_once() {
    let mut world = World::new();
    many(&mut world, "/d");
    world.root(&mkdirs("/q")).unwrap();
    world.root(&set_quota("/q", Limit::Most(1 << 20))).unwrap();
    // One that was not counted yet to what was, and back; one that was counted to what was not; one in which the walk is, perhaps.
    world.meanwhile.extend([
        rename2("/d/39", "/d/00/x", false),
        mkdirs("/d/00/x/new"),
        rename2("/d/00", "/d/38/y", false),
        rename2("/d/38/y/x", "/d/39", false),
        delete("/d/39/5"),
        rename2("/d/38", "/d/zz", false),
        rename2("/d/20/file", "/d/39/file", false),
        rename2("/d/zz/y", "/d/00", false),
    ]);
    world.root(&rename2("/d", "/q/d", false)).unwrap();
    assert_eq!((world.counted, world.meanwhile.len()), (1, 0));
    assert_eq!(used(&mut world, "/q"), (1 + MANY, 10));
}

#[test]
fn a_large_directory_is_not_moved_to_where_it_is_too_much() {
    let mut world = World::new();
    many(&mut world, "/d");
    world.root(&mkdirs("/q")).unwrap();
    world.root(&set_quota("/q", Limit::Most(MANY + 1))).unwrap();
    // One more comes when it was nearly counted.
    world.look = 200;
    world.meanwhile.extend([mkdirs("/none/of/it"), mkdirs("/d/00/new")]);
    assert_eq!(world.refused("root", &rename2("/d", "/q/d", false)), Class::NamesQuota);
    assert!(world.meanwhile.is_empty());
    world.root(&delete("/d/00/new")).unwrap();
    world.root(&rename2("/d", "/q/d", false)).unwrap();
    assert_eq!(used(&mut world, "/q"), (1 + MANY, 10));
}

#[cfg(feature = "flaws")]
#[test]
fn nobody_looks_at_more_than_256_inodes_while_others_wait() {
    let mut world = World::wide();
    world.look = 256;
    world.root(&mkdirs("/q")).unwrap();
    world.root(&set_quota("/q", Limit::Most(200_000))).unwrap();
    for number in 0..100_000 {
        world.root(&mkdirs(&format!("/q/d/{}/{number}", number % 300))).unwrap();
        // The log is not what this is about.
        world.log.clear();
    }
    assert_eq!(used(&mut world, "/q"), (100_302, 0));
    world.longest_look();
    for request in [rename2("/q/d", "/d", false), rename2("/d", "/q/d", false), delete("/q/d")] {
        world.root(&request).unwrap();
        let longest = world.longest_look();
        assert!((1..=256).contains(&longest), "{longest} for {request:?}");
    }
    assert_eq!((used(&mut world, "/q"), world.counted), ((1, 0), 3));
    // Who is not the superuser is asked what is in it.
    let mode = Request::SetPermission { path: "/q".into(), mode: 0o777 };
    world.root(&mode).unwrap();
    for count in [100, 128, 200, 255, 300] {
        for number in 0..count {
            world.call(MEMBER, &mkdirs(&format!("/q/{count}/{number}")), None).unwrap();
        }
        world.longest_look();
        assert_eq!(world.call(MEMBER, &delete(&format!("/q/{count}")), None), Ok(Reply::Bool(true)));
        let longest = world.longest_look();
        assert!((count.min(128)..=256).contains(&longest), "{longest} for {count}");
    }
    assert_eq!(used(&mut world, "/q"), (1, 0));
    world.root(&set_quota("/q", Limit::None)).unwrap();
    while world.dismantle(256) {
        world.log.clear();
    }
    let longest = world.longest_look();
    assert!(longest <= 2 * 256, "{longest}: each that goes, and as many directories");
}
