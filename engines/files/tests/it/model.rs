//! Random operations against a map of paths, which knows nothing of inodes, changes and logs.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_files::change::{File, Kind, Row, Usage};
use savanna_files::ids::{BlockId, InodeId};
use savanna_files::request::Limit;
use savanna_files::{Class, FilesError, Key, Reply, Request};

use crate::world::{World, concat, create, mkdirs, rename2, truncate};

/// What is at a path: a directory, or a file of so many bytes that is being written or not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File(u64, bool),
}

/// An answer without what only the engine knows.
type Answer = Result<bool, Class>;

#[derive(Default)]
struct Model(BTreeMap<String, Entry>);

impl Model {
    fn new() -> Self {
        Self(BTreeMap::from([(String::new(), Entry::Directory)]))
    }

    fn get(&self, path: &str) -> Option<&Entry> {
        self.0.get(path)
    }

    fn parent(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// Whether something on the way to a path is a file.
    fn goes_through_file(&self, path: &str) -> bool {
        path.match_indices('/').any(|(at, _)| matches!(self.get(&path[..at]), Some(Entry::File(..))))
    }

    fn is_empty(&self, path: &str) -> bool {
        !self.0.keys().any(|key| key.starts_with(&format!("{path}/")))
    }

    fn make_parents(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Entry::Directory);
        }
    }

    fn mkdirs(&mut self, path: &str) -> Answer {
        match self.get(path) {
            Some(Entry::Directory) => return Ok(true),
            Some(Entry::File(..)) => return Err(Class::FileAlreadyExists),
            None if self.goes_through_file(path) => return Err(Class::ParentNotDirectory),
            None => {}
        }
        self.make_parents(path);
        self.0.insert(path.to_owned(), Entry::Directory);
        Ok(true)
    }

    fn write(&mut self, path: &str, length: u64) -> Answer {
        match self.get(path) {
            Some(Entry::Directory) => return Err(Class::FileAlreadyExists),
            None if self.goes_through_file(path) => return Err(Class::ParentNotDirectory),
            Some(Entry::File(..)) | None => {}
        }
        self.make_parents(path);
        self.0.insert(path.to_owned(), Entry::File(length, false));
        Ok(true)
    }

    fn create_new(&self, path: &str) -> Answer {
        match self.get(path) {
            // It is the client's own.
            Some(Entry::File(_, true)) => Err(Class::AlreadyBeingCreated),
            Some(_) => Err(Class::FileAlreadyExists),
            None if self.goes_through_file(path) => Err(Class::ParentNotDirectory),
            None => Ok(true),
        }
    }

    /// A file that is there, to be written.
    fn closed(&mut self, path: &str) -> Result<&mut u64, Class> {
        match self.0.get_mut(path) {
            Some(Entry::File(_, true)) => Err(Class::AlreadyBeingCreated),
            Some(Entry::File(length, false)) => Ok(length),
            Some(Entry::Directory) | None => Err(Class::FileNotFound),
        }
    }

    fn append(&mut self, path: &str, bytes: u64) -> Answer {
        if self.get(path) == Some(&Entry::Directory) {
            return Err(Class::FileAlreadyExists);
        }
        *self.closed(path)? += bytes;
        Ok(true)
    }

    fn truncate(&mut self, path: &str, to: u64) -> Answer {
        let length = self.closed(path)?;
        if to > *length {
            return Err(Class::IllegalArgument);
        }
        *length = to;
        Ok(true)
    }

    fn concat(&mut self, path: &str, sources: &[String]) -> Answer {
        let being_written = |class| if class == Class::AlreadyBeingCreated { Class::IllegalArgument } else { class };
        self.closed(path).map_err(being_written)?;
        let mut more = 0;
        for source in sources {
            let length = *self.closed(source).map_err(being_written)?;
            if source == path || length == 0 || Self::parent(source) != Self::parent(path) {
                return Err(Class::IllegalArgument);
            }
            more += length;
        }
        let different: std::collections::BTreeSet<_> = sources.iter().collect();
        if different.len() < sources.len() {
            return Err(Class::IllegalArgument);
        }
        for source in sources {
            self.0.remove(source);
        }
        *self.closed(path)? += more;
        Ok(true)
    }

    fn delete(&mut self, path: &str, is_recursive: bool) -> Answer {
        if self.get(path).is_none() {
            return Ok(false);
        }
        if !is_recursive && !self.is_empty(path) {
            return Err(Class::PathIsNotEmptyDirectory);
        }
        // The root stays.
        if path.is_empty() {
            return Ok(false);
        }
        let below = format!("{path}/");
        self.0.retain(|key, _| key != path && !key.starts_with(&below));
        Ok(true)
    }

    fn rename(&mut self, from: &str, to: &str) -> Answer {
        if from.is_empty() || self.get(from).is_none() || from == to && self.get(from) == Some(&Entry::Directory) {
            return Ok(false);
        }
        let to = match self.get(to) {
            Some(Entry::Directory) => format!("{to}/{}", &from[from.rfind('/').unwrap_or(0) + 1..]),
            _ => to.to_owned(),
        };
        if from == to {
            return Ok(true);
        }
        if self.get(&to).is_some() || to.starts_with(&format!("{from}/")) && self.get(from) == Some(&Entry::Directory) {
            return Ok(false);
        }
        if self.goes_through_file(&to) {
            return Err(Class::ParentNotDirectory);
        }
        if self.get(Self::parent(&to)).is_none() {
            return Ok(false);
        }
        self.shift(from, &to);
        Ok(true)
    }

    fn rename2(&mut self, from: &str, to: &str, overwrites: bool) -> Answer {
        let Some(source) = self.get(from).cloned() else { return Err(Class::FileNotFound) };
        if from.is_empty() || to.is_empty() {
            return Err(Class::Io);
        }
        if from == to {
            return Err(Class::FileAlreadyExists);
        }
        if to.starts_with(&format!("{from}/")) {
            return Err(Class::Io);
        }
        match (self.get(to), &source) {
            (Some(Entry::Directory), Entry::File(..)) | (Some(Entry::File(..)), Entry::Directory) => {
                return Err(Class::Io);
            }
            (Some(_), _) if !overwrites => return Err(Class::FileAlreadyExists),
            (Some(Entry::Directory), _) if !self.is_empty(to) => return Err(Class::Io),
            (Some(_), _) => {}
            (None, _) if self.goes_through_file(to) => return Err(Class::ParentNotDirectory),
            (None, _) if self.get(Self::parent(to)).is_none() => return Err(Class::FileNotFound),
            (None, _) => {}
        }
        self.0.remove(to);
        self.shift(from, to);
        Ok(true)
    }

    fn shift(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moves = |key: &str| key == from || key.starts_with(&below);
        let moved: Vec<_> = self.0.iter().filter(|(key, _)| moves(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
        for (key, entry) in moved {
            self.0.remove(&key);
            self.0.insert(format!("{to}{}", &key[from.len()..]), entry);
        }
    }

    /// The names in a directory with their lengths, in the order of bytes.
    fn list(&self, path: &str) -> Option<Vec<(String, u64)>> {
        let below = format!("{path}/");
        let in_it = |key: &String| key.strip_prefix(&below).filter(|rest| !rest.contains('/')).map(str::to_owned);
        let length = |entry: &Entry| if let Entry::File(length, _) = entry { *length } else { 0 };
        match self.get(path)? {
            Entry::Directory => {
                let mut names: Vec<_> = self.0.iter().filter_map(|(k, e)| Some((in_it(k)?, length(e)))).collect();
                names.sort();
                Some(names)
            }
            Entry::File(length, _) => Some(vec![(String::new(), *length)]),
        }
    }
}

/// The engine's answer to what the model answered.
fn simply(answer: Result<Reply, FilesError>) -> Answer {
    match answer {
        Ok(Reply::Bool(answer)) => Ok(answer),
        Ok(_) => Ok(true),
        Err(error) => Err(error.class),
    }
}

/// All of a directory, a page after the other.
fn list(world: &mut World, path: &str) -> Option<Vec<(String, u64)>> {
    let (mut names, mut after) = (Vec::new(), Vec::new());
    loop {
        let request = Request::Listing { path: path.to_owned(), after, with_locations: false };
        let Reply::Listing(listing) = world.root(&request).expect("a listing") else { panic!("no listing") };
        let listing = listing?;
        let name = |name: &[u8]| String::from_utf8(name.to_vec()).expect("a text");
        names.extend(listing.entries.iter().map(|entry| (name(&entry.name), entry.length)));
        if listing.remaining == 0 {
            return Some(names);
        }
        after = listing.entries.last().expect("an entry").name.to_vec();
    }
}

fn name(random: &mut ChaCha8Rng) -> String {
    const NAMES: [&str; 8] = ["a", "ab", "b", "%", "_", "ü", "a b", "z"];
    format!("/{}", NAMES[random.random_range(0..NAMES.len())])
}

fn path(random: &mut ChaCha8Rng) -> String {
    (0..random.random_range(0..4)).map(|_| name(random)).collect()
}

/// A file is cut; the process may end before the data node has done it.
fn cut(world: &mut World, path: &str, to: u64, random: &mut ChaCha8Rng) -> Answer {
    let answer = world.root(&truncate(path, to));
    if let Some(mut recovery) = world.recovery.take() {
        assert_eq!(answer, Ok(Reply::Bool(false)), "{path}");
        if random.random() {
            recovery = world.restarted(recovery);
        }
        world.close(recovery);
    }
    answer.map(|_| true).map_err(|error| error.class)
}

/// A path as clients write it.
fn written(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

/// A path as somebody writes it; perhaps with the number of something on the way in the place of its names.
fn called(world: &mut World, path: &str, random: &mut ChaCha8Rng) -> String {
    let path = written(path);
    if random.random_bool(0.7) {
        return path;
    }
    let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]).collect();
    let (above, below) = path.split_at(ends[random.random_range(0..ends.len())]);
    match world.status(above) {
        Some(status) => format!("/.reserved/.inodes/{}{below}", status.id),
        None => path,
    }
}

fn step(world: &mut World, model: &mut Model, random: &mut ChaCha8Rng) {
    let (one, other) = (path(random), path(random));
    let (a, b) = (called(world, &one, random), called(world, &other, random));
    let (expected, got, what) = match random.random_range(0..17) {
        0 | 1 => (model.mkdirs(&one), simply(world.root(&mkdirs(&a))), "mkdirs"),
        2 | 3 => {
            let lengths: Vec<u64> = (0..random.random_range(0..3)).map(|_| random.random_range(1..=64)).collect();
            // What takes the place of a file has another number.
            let got = world.write(&written(&one), &lengths).map(|_| true).map_err(|error| error.class);
            (model.write(&one, lengths.iter().sum()), got, "write")
        }
        4 => {
            let expected = model.create_new(&one);
            let got = simply(world.root(&create(&a, false)));
            if expected.is_ok() {
                model.write(&one, 0).expect("it was free");
                model.0.insert(one.clone(), Entry::File(0, true));
            }
            (expected, got, "create")
        }
        5 | 6 => {
            let is_recursive = random.random();
            let got = simply(world.root(&Request::Delete { path: a.clone(), is_recursive }));
            (model.delete(&one, is_recursive), got, "delete")
        }
        7 | 8 => {
            let got = simply(world.root(&Request::Rename { from: a.clone(), to: b.clone() }));
            (model.rename(&one, &other), got, "rename")
        }
        9 | 10 => {
            let overwrites = random.random();
            (model.rename2(&one, &other, overwrites), simply(world.root(&rename2(&a, &b, overwrites))), "rename2")
        }
        11 => {
            let (bytes, is_in_new_block) = (random.random_range(0..150), random.random());
            let got = world.append(&a, bytes, is_in_new_block).map(|()| true).map_err(|error| error.class);
            (model.append(&one, bytes), got, "append")
        }
        12 => {
            let to = random.random_range(0..200);
            (model.truncate(&one, to), cut(world, &a, to, random), "truncate")
        }
        13 | 14 => {
            let count = random.random_range(1..4);
            let sources: Vec<String> = (0..count).map(|_| Model::parent(&one).to_owned() + &name(random)).collect();
            let named: Vec<&str> = sources.iter().map(|source| &**source).collect();
            (model.concat(&one, &sources), simply(world.root(&concat(&a, &named))), "concat")
        }
        15 => {
            let expected = match model.get(&one) {
                Some(Entry::Directory) => Ok(true),
                Some(Entry::File(..)) => Err(Class::PathIsNotDirectory),
                None => Err(Class::FileNotFound),
            };
            // Never exceeded: what is counted is compared elsewhere.
            let limits = [Limit::Most(1 << 40), Limit::None, Limit::Same];
            let [names, space] = [0; 2].map(|_| limits[random.random_range(0..limits.len())]);
            (expected, simply(world.root(&Request::SetQuota { path: a.clone(), names, space })), "quota")
        }
        _ => {
            assert_eq!(list(world, &a), model.list(&one), "list {a}");
            return;
        }
    };
    assert_eq!(got, expected, "{what} {a} {b}");
}

/// That the engine has what the model has, and the data node every block of it and no other.
fn compare(world: &mut World, model: &Model) {
    for (path, entry) in &model.0 {
        let status = world.status(&written(path)).unwrap_or_else(|| panic!("{path} is missing"));
        let expected = if let Entry::File(length, _) = entry { (false, *length) } else { (true, 0) };
        assert_eq!((status.is_directory, status.length), expected, "{path}");
        if status.is_directory {
            let names = model.list(path).expect("a directory");
            assert_eq!(status.children, names.len(), "names in {path}");
            assert_eq!(list(world, &written(path)), Some(names), "{path}");
        }
    }
}

/// Blocks of files.
fn blocks<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<BlockId> {
    let mut blocks: Vec<BlockId> = rows
        .flat_map(|row| match &row.kind {
            Kind::File(file) => file.blocks.iter().map(|block| block.id).collect(),
            Kind::Directory => Vec::new(),
        })
        .collect();
    blocks.sort();
    blocks
}

/// That each directory with a quota has what it says.
fn check_quotas<'a>(rows: impl Iterator<Item = &'a Row>) {
    let mut below: BTreeMap<InodeId, Vec<&Row>> = BTreeMap::new();
    let (mut limited, mut parents) = (Vec::new(), BTreeMap::new());
    for row in rows {
        below.entry(row.parent).or_default().push(row);
        parents.insert(row.id, row.parent);
        limited.extend(row.more.as_ref().and_then(|more| Some((row, more.quota?.used))));
    }
    for (row, used) in limited {
        let (mut sum, mut open) = (Usage::default(), vec![row]);
        while let Some(row) = open.pop() {
            sum.names += 1;
            sum.space += row.file().map_or(0, File::space);
            open.extend(below.get(&row.id).into_iter().flatten());
        }
        // One that was deleted is not counted any more.
        let mut above = std::iter::successors(Some(row.id), |id| parents.get(id).copied());
        assert!(!above.any(|id| id == InodeId::ROOT) || used == sum, "{row:?} has {sum:?}");
    }
}

fn rows(namespace: &savanna_files::Namespace) -> Vec<Row> {
    let mut rows: Vec<_> = namespace.tree().rows().collect();
    rows.sort_by_key(|row| row.id);
    rows
}

#[test]
fn a_namespace_answers_like_a_plain_tree_and_its_log_makes_it_again() {
    for seed in 0..40 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut world, mut model) = (World::new(), Model::new());
        for number in 0..400 {
            step(&mut world, &mut model, &mut random);
            check_quotas(rows(&world.namespace).iter());
            if random.random_bool(0.02) {
                let before = rows(&world.namespace);
                world.restart();
                assert_eq!(rows(&world.namespace), before, "seed {seed}, step {number}");
            }
            if random.random_bool(0.02) {
                world.dismantle(3);
            }
        }
        while world.dismantle(3) {}
        compare(&mut world, &model);
        assert_eq!(world.namespace.inode_count(), model.0.len() - 1, "the root is not counted");
        assert_eq!(blocks(rows(&world.namespace).iter()).len(), world.namespace.blocks.len());
        let mut copy = savanna_files::Namespace::new("other", savanna_files::Limits::default());
        world.namespace.snapshot(7).for_each(|part| copy.restore(&part));
        assert_eq!(rows(&copy), rows(&world.namespace), "seed {seed}: a snapshot has all");
        assert_eq!((copy.txid(), copy.counters()), (world.namespace.txid(), world.namespace.counters()));
    }
}

/// All that is not being written may be given up at any moment, batches are of any size, the database is away for a while, and the process ends
/// without one.
#[test]
fn a_namespace_with_a_database_answers_like_a_plain_tree() {
    for seed in 0..60 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut world, mut model) = (World::with_database(), Model::new());
        world.chance = Some(ChaCha8Rng::seed_from_u64(seed));
        // Seldom flushed and given up, or all the time.
        let (flushes, gives_up) = [(0.02, 0.5), (0.3, 0.3), (1.0, 1.0)][seed as usize % 3];
        for _ in 0..400 {
            step(&mut world, &mut model, &mut random);
            if random.random_bool(flushes) {
                let rows_max = random.random_range(1..20);
                world.flush(rows_max);
            }
            if random.random_bool(gives_up) {
                let here = random.random_range(2..8);
                while world.namespace.give_up(here, 3) > 0 {}
            }
            if random.random_bool(0.02) {
                world.restart();
            }
            if random.random_bool(0.05) {
                world.dismantle(3);
            }
        }
        while world.dismantle(3) {}
        compare(&mut world, &model);
        while world.database.as_ref().is_some_and(|database| database.txid < world.namespace.txid()) {
            world.flush(5);
        }
        world.restart();
        let read = world.database.as_ref().map_or(0, |database| database.beginning().rows.len());
        let here = world.namespace.tree().len();
        assert!(world.log.is_empty() && here <= read + 2, "seed {seed}: it begins without reading all");
        compare(&mut world, &model);
        let database = world.database.as_ref().expect("a database");
        let count = database.rows().filter(|stored| stored.row.id != InodeId::ROOT).count();
        assert_eq!(count, model.0.len() - 1, "seed {seed}: the database has all, and nothing else");
        check_quotas(database.rows().map(|stored| &stored.row));
        let named = blocks(database.rows().map(|stored| &stored.row));
        assert_eq!(world.replicas(), named, "seed {seed}: replicas of its blocks, and no others");
    }
}

#[test]
fn a_directory_that_was_given_up_between_a_miss_and_its_answer_is_not_empty() {
    let mut world = World::with_database();
    for name in ["/d/a", "/d/b"] {
        world.root(&mkdirs(name)).expect("a directory");
    }
    while world.database.as_ref().is_some_and(|database| database.txid < world.namespace.txid()) {
        world.flush(9);
    }
    while world.namespace.give_up(0, 9) > 0 {}
    let id = world.status("/d").expect("a directory").id;
    let listing = Request::Listing { path: "/d".into(), after: Vec::new(), with_locations: false };
    let context = world.context("root", None);
    let missing = world.namespace.decide(&listing, &context, None).expect_err("it is not here").0;
    assert_eq!(missing, [Key::Children(id, Box::default())]);
    let database = world.database.clone().expect("a database");
    let fetched: Vec<_> = missing.iter().map(|key| database.fetch(key)).collect();
    while world.namespace.give_up(0, 9) > 0 {}
    let known = world.namespace.learn(&fetched).expect("it is new");
    let context = world.context("root", None);
    let more = world.namespace.decide(&listing, &context, Some(&known)).expect_err("it is not here").0;
    let fetched: Vec<_> = missing.iter().chain(&more).map(|key| database.fetch(key)).collect();
    let known = world.namespace.learn(&fetched).expect("it is new");
    let context = world.context("root", None);
    let answer = world.namespace.decide(&listing, &context, Some(&known)).expect("all of it").answer;
    let Ok(Reply::Listing(Some(listing))) = answer else { panic!("{answer:?}") };
    assert_eq!(listing.entries.len(), 2);
}

#[test]
fn what_was_read_before_something_newer_was_given_up_is_not_taken_in() {
    let mut world = World::with_database();
    world.root(&mkdirs("/a")).expect("a directory");
    world.flush(9);
    let before = world.database.clone().expect("a database");
    let mode = Request::SetPermission { path: "/a".into(), mode: 0o700 };
    world.root(&mode).expect("a change");
    world.flush(9);
    while world.namespace.give_up(0, 9) > 0 {}
    let key = Key::Path(InodeId::ROOT, vec![Box::from(&b"a"[..])]);
    assert!(world.namespace.learn(&[before.fetch(&key)]).is_err());
    assert_eq!(world.status("/a").expect("a directory").mode, 0o700);
}
