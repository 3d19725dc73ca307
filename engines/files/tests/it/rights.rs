//! Who may do what, in all combinations of owners, groups, modes and the sticky bit, against rules that are written here once more.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_files::change::{Attribute, AttributeSpace, CallId};
use savanna_files::{Asking, Class, Context, Reply, Request};

use crate::world::{MEMBER, World, append, create, delete, mkdirs, rename2};

/// What somebody is to an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Owner,
    Group,
    Other,
}

const RELATIONS: [Relation; 3] = [Relation::Owner, Relation::Group, Relation::Other];
/// Somebody else.
const ELSE: &str = "zoe";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    File,
    Empty,
    Full,
}

/// A directory, and what is in it, as they look to a member of `staff`.
#[derive(Clone, Copy, Debug)]
struct Scene {
    directory: (Relation, u16),
    is_sticky: bool,
    entry: (Relation, u16),
    what: What,
}

impl Relation {
    const fn owner(self) -> &'static str {
        if matches!(self, Self::Owner) { MEMBER } else { ELSE }
    }

    const fn group(self) -> &'static str {
        if matches!(self, Self::Group) { "staff" } else { "others" }
    }

    /// A mode with these bits for who is that, and all others for who is not.
    const fn mode(self, bits: u16) -> u16 {
        let shift = match self {
            Self::Owner => 6,
            Self::Group => 3,
            Self::Other => 0,
        };
        0o777 & !(7 << shift) | bits << shift
    }
}

fn own(world: &mut World, path: &str, owner: &str, group: &str, mode: u16) {
    let (owner, group) = (Some(owner.to_owned()), Some(group.to_owned()));
    world.root(&Request::SetOwner { path: path.to_owned(), owner, group }).unwrap();
    world.root(&Request::SetPermission { path: path.to_owned(), mode }).unwrap();
}

impl Scene {
    /// Makes it anew below a path.
    fn make(&self, world: &mut World, at: &str) {
        let (directory, entry, free) = (format!("{at}/p"), format!("{at}/p/e"), format!("{at}/free"));
        world.root(&mkdirs(&format!("{free}/d"))).unwrap();
        world.write(&format!("{free}/f"), &[]).unwrap();
        own(world, &free, ELSE, "others", 0o777);
        match self.what {
            What::File => drop(world.write(&entry, &[1]).unwrap()),
            What::Empty => drop(world.root(&mkdirs(&entry)).unwrap()),
            What::Full => drop(world.root(&mkdirs(&format!("{entry}/in"))).unwrap()),
        }
        let sticky = if self.is_sticky { 0o1000 } else { 0 };
        let ((of_entry, bits), (of_directory, more)) = (self.entry, self.directory);
        own(world, &entry, of_entry.owner(), of_entry.group(), of_entry.mode(bits));
        own(world, &directory, of_directory.owner(), of_directory.group(), of_directory.mode(more) | sticky);
    }

    /// What may be tried there, and what becomes of it.
    fn attempts(&self, at: &str) -> Vec<(Request, Result<(), Class>)> {
        let (directory, entry, new) = (format!("{at}/p"), format!("{at}/p/e"), format!("{at}/p/new"));
        let (nothing, away) = (format!("{at}/p/nothing"), format!("{at}/free/x"));
        let like = format!("{at}/free/{}", if self.what == What::File { "f" } else { "d" });
        let [to_directory, to_entry] =
            [self.directory.1, self.entry.1].map(|bits| move |wanted| bits & wanted == wanted);
        let owns_entry = self.entry.0 == Relation::Owner;
        let allowed = |is_allowed: bool| if is_allowed { Ok(()) } else { Err(Class::AccessControl) };
        let sees = to_directory(1);
        let changes = sees && to_directory(2);
        let takes = changes && (!self.is_sticky || owns_entry || self.directory.0 == Relation::Owner);
        let is_file = self.what == What::File;
        let or = |outcome: Result<(), Class>, refusal: Option<Class>| match (outcome, refusal) {
            (Ok(()), Some(class)) => Err(class),
            (outcome, _) => outcome,
        };
        let is_full = self.what == What::Full;
        let path = || entry.clone();
        let owner = |owner: Option<&str>, group: Option<&str>| Request::SetOwner {
            path: path(),
            owner: owner.map(str::to_owned),
            group: group.map(str::to_owned),
        };
        let rename = |from: &str, to: &str| Request::Rename { from: from.to_owned(), to: to.to_owned() };
        let listing = |path: &str| Request::Listing { path: path.to_owned(), after: Vec::new(), with_locations: false };
        let info = |path: &str| Request::FileInfo { path: path.to_owned() };
        let remove = |path: &str| Request::Delete { path: path.to_owned(), is_recursive: false };
        let attribute = Attribute { space: AttributeSpace::User, name: "a".into(), value: [].into() };
        let mut attempts = vec![
            (info(&entry), allowed(sees)),
            (info(&nothing), allowed(sees)),
            (listing(&directory), allowed(to_directory(5))),
            (listing(&entry), allowed(sees && (is_file || to_entry(5)))),
            (mkdirs(&new), allowed(changes)),
            (mkdirs(&format!("{new}/deep")), allowed(changes)),
            (create(&new, false), allowed(changes)),
            (create(&entry, false), or(allowed(changes), Some(Class::FileAlreadyExists))),
            (
                create(&entry, true),
                match is_file {
                    true => allowed(changes && to_entry(2)),
                    false => or(allowed(changes), Some(Class::FileAlreadyExists)),
                },
            ),
            (delete(&entry), allowed(takes && (!is_full || to_entry(7)))),
            (remove(&entry), or(allowed(takes), is_full.then_some(Class::PathIsNotEmptyDirectory))),
            (remove(&nothing), allowed(changes)),
            (rename(&entry, &away), allowed(takes)),
            (rename(&entry, &format!("{at}/free")), allowed(takes)),
            (rename(&nothing, &away), allowed(changes)),
            (rename(&like, &new), allowed(changes)),
            (rename2(&entry, &away, false), allowed(takes)),
            (rename2(&like, &new, false), allowed(changes)),
            (rename2(&like, &entry, false), or(allowed(changes), Some(Class::FileAlreadyExists))),
            (
                rename2(&like, &entry, true),
                match is_full {
                    true => or(allowed(changes), Some(Class::Io)),
                    false => allowed(takes),
                },
            ),
            (Request::SetPermission { path: path(), mode: 0o700 }, allowed(sees && owns_entry)),
            (owner(Some(MEMBER), None), allowed(sees && owns_entry)),
            (owner(Some(ELSE), None), allowed(false)),
            (owner(None, Some("guests")), allowed(sees && owns_entry)),
            (owner(None, Some("wheel")), allowed(false)),
            (Request::SetTimes { path: path(), mtime: None, atime: None }, allowed(sees && to_entry(2))),
            (Request::SetReplication { path: path(), replication: 2 }, allowed(sees && to_entry(2))),
            (
                Request::SetAttribute { path: path(), attribute, creates: true, replaces: false },
                allowed(sees && to_entry(2)),
            ),
        ];
        attempts
            .extend((1..8).map(|mode| (Request::CheckAccess { path: path(), mode }, allowed(sees && to_entry(mode)))));
        if is_file {
            let read = Request::BlockLocations { path: path(), offset: 0, length: 9 };
            attempts.extend([
                (read, allowed(sees && to_entry(4))),
                (append(&entry, "writer"), allowed(sees && to_entry(2))),
            ]);
        }
        attempts
    }
}

#[test]
fn each_may_what_its_bits_say() {
    let (mut world, mut number, mut counts) = (World::new(), 0, [0, 0]);
    let bits = || RELATIONS.into_iter().flat_map(|relation| (0..8).map(move |bits| (relation, bits)));
    let directories = bits().flat_map(|directory| [false, true].map(|is_sticky| (directory, is_sticky)));
    let entries = || bits().flat_map(|entry| [What::File, What::Empty, What::Full].map(|what| (entry, what)));
    for (directory, is_sticky) in directories {
        for (entry, what) in entries() {
            let scene = Scene { directory, is_sticky, entry, what };
            let mut at = String::new();
            // It is made anew behind each change.
            let mut is_used = true;
            for index in 0..scene.attempts("").len() {
                if is_used {
                    number += 1;
                    at = format!("/{}/{number}", number / 1_000);
                    scene.make(&mut world, &at);
                }
                let (request, expected) = scene.attempts(&at).swap_remove(index);
                let came = world.call(MEMBER, &request, None);
                assert_eq!(came.map(drop).map_err(|error| error.class), expected, "{scene:?}: {request:?}");
                is_used = request.changes() && expected.is_ok();
                counts[usize::from(expected.is_ok())] += 1;
            }
        }
        // Nothing of it is needed any more.
        world = World::new();
    }
    assert!(counts.into_iter().all(|count| count > 10_000), "{counts:?}");
}

#[test]
fn who_may_do_everything_is_not_asked() {
    for what in [What::File, What::Empty, What::Full] {
        let scene = Scene { directory: (Relation::Other, 0), is_sticky: true, entry: (Relation::Other, 0), what };
        let all = Scene { directory: (Relation::Owner, 7), is_sticky: false, entry: (Relation::Owner, 7), what };
        let mut world = World::new();
        for (number, (_, mut expected)) in all.attempts("").into_iter().enumerate() {
            let at = format!("/{number}");
            scene.make(&mut world, &at);
            let (request, _) = scene.attempts(&at).swap_remove(number);
            if matches!(request, Request::SetOwner { .. }) {
                expected = Ok(());
            }
            assert_eq!(world.root(&request).map(drop).map_err(|error| error.class), expected, "{request:?}");
        }
    }
}

/// A directory, or a file if it can have nothing in it, that is to be deleted with what is in it.
struct Node {
    owner: &'static str,
    mode: u16,
    children: Vec<Node>,
}

impl Node {
    fn random(random: &mut ChaCha8Rng, depth: usize, others: u32, most: usize) -> Self {
        let children = if depth == 0 { 0 } else { random.random_range(0..=most) };
        let is_odd = random.random_ratio(others, 200);
        let owner = if random.random_bool(0.5) { MEMBER } else { ELSE };
        let mode = match (is_odd, owner) {
            (true, _) if random.random_bool(0.5) => 0o1777,
            (true, _) => random.random_range(0..0o2000),
            (false, MEMBER) => 0o700,
            (false, _) => 0o777,
        };
        let children = (0..children).map(|_| Self::random(random, depth - 1, others, most)).collect();
        Self { owner, mode, children }
    }

    fn make(&self, world: &mut World, path: &str) {
        world.root(&mkdirs(path)).unwrap();
        for (number, child) in self.children.iter().enumerate() {
            child.make(world, &format!("{path}/{number}"));
        }
        own(world, path, self.owner, "others", self.mode);
    }

    fn may_be_emptied(&self) -> bool {
        let bits = if self.owner == MEMBER { self.mode >> 6 } else { self.mode } & 7;
        let keeps = |child: &Self| self.mode & 0o1000 != 0 && self.owner != MEMBER && child.owner != MEMBER;
        self.children.is_empty()
            || bits == 7 && self.children.iter().all(|child| !keeps(child) && child.may_be_emptied())
    }

    fn count(&self) -> usize {
        1 + self.children.iter().map(Self::count).sum::<usize>()
    }
}

#[test]
fn what_is_in_a_directory_is_asked_when_it_is_deleted() {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let (mut counts, mut largest) = ([[0; 2]; 3], 0);
    for round in 0..120 {
        // Small ones are asked in the change, large ones before it, and some of them by what the database has.
        let (depth, most, others) = if round % 2 == 0 { (3, 4, 20) } else { (3, 12, 2) };
        let node = Node::random(&mut random, depth, others, most);
        for kind in 0..3 {
            let mut world = if kind == 0 { World::new() } else { World::with_database() };
            node.make(&mut world, "/d/e");
            own(&mut world, "/d", MEMBER, "others", 0o700);
            if kind == 2 {
                world.flush(usize::MAX);
                while world.namespace.give_up(3, 100) > 0 {}
            }
            let may = node.may_be_emptied();
            let call = Some(CallId { client: [7; 16], call: round });
            let came = world.call(MEMBER, &delete("/d/e"), call).map_err(|error| error.class);
            assert_eq!(came, if may { Ok(Reply::Bool(true)) } else { Err(Class::AccessControl) }, "{round} {kind}");
            assert_eq!(world.status("/d/e").is_none(), may);
            assert_eq!(world.root(&delete("/d/e")), Ok(Reply::Bool(!may)), "who may do everything");
            counts[kind][usize::from(may)] += 1;
            largest = largest.max(node.count());
        }
    }
    assert!(counts.as_flattened().iter().all(|count| *count > 10) && largest > 600, "{counts:?} {largest}");
}

#[test]
fn the_answer_for_one_directory_says_nothing_of_another() {
    let mut world = World::new();
    for name in ["/d/a", "/d/b"] {
        for number in 0..300 {
            world.root(&mkdirs(&format!("{name}/{number}"))).unwrap();
        }
        own(&mut world, name, MEMBER, "others", 0o700);
    }
    own(&mut world, "/d", MEMBER, "others", 0o700);
    let [a, b] = ["/d/a", "/d/b"].map(|path| world.status(path).unwrap().id);
    for (asked, lacks) in [(None, Some(b)), (Some(a), Some(b)), (Some(b), None)] {
        let context = Context { may_empty: asked, ..world.context(MEMBER, None) };
        let decided = world.namespace.decide(&delete("/d/b"), &context, None);
        assert_eq!(decided.err().and_then(|missing| missing.asking()), lacks.map(Asking::Emptying));
    }
}
