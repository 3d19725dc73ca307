//! Copies of values that clients keep: none is old when everything has been told.

use std::collections::HashMap;

use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;

use crate::world::{Client, World};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What clients that keep no copies do.
const CHANGES: [&[&str]; 12] = [
    &["SET", "a", "1"],
    &["INCR", "b"],
    &["DEL", "c"],
    &["MSET", "a", "2", "b", "3", "c", "4", "d", "5"],
    &["RENAME", "d", "e"],
    &["APPEND", "e", "x"],
    &["SET", "c", "6", "PX", "5"],
    &["GETDEL", "a"],
    &["EVAL", "redis.call('INCR', KEYS[1]) return redis.call('SET', KEYS[2], 'y')", "2", "b", "d"],
    &["EXPIRE", "b", "0"],
    &["SWAPDB", "0", "1"],
    &["FLUSHALL"],
];

/// A client that keeps copies of what it reads, with at most one read under way.
struct Keeper {
    client: Client,
    copies: HashMap<String, String>,
    read: Option<(&'static str, Ticket)>,
}

impl Keeper {
    fn new(world: &mut World, actor: usize, words: &[&str]) -> Self {
        let client = world.client(actor);
        world.call(client, &["HELLO", "3"]);
        assert_eq!(world.call(client, words), "OK");
        world.take_told(client);
        Self { client, copies: HashMap::new(), read: None }
    }

    /// Reads a key of which it has no copy.
    fn read(&mut self, world: &mut World, key: &'static str) {
        if self.read.is_some() || self.copies.contains_key(key) {
            return;
        }
        match world.request(self.client, &["GET", key]) {
            Ok(tape) => drop(self.copies.insert(key.to_owned(), tape.to_string())),
            Err(ticket) => self.read = Some((key, ticket)),
        }
    }

    /// Hears what it was told, in its order.
    fn hear(&mut self, world: &mut World) {
        for (ticket, tape) in world.take_told(self.client) {
            match (ticket, self.read) {
                (None, _) => self.drop_copies(&tape),
                (Some(ticket), Some((key, read))) if ticket == read => {
                    self.copies.insert(key.to_owned(), tape.to_string());
                    self.read = None;
                }
                (Some(_), _) => {}
            }
        }
    }

    fn drop_copies(&mut self, told: &Tape) {
        let values: Vec<Value<'_>> = told.values().collect();
        assert_eq!(&values[..2], &[Value::Push(2), Value::Bulk(b"invalidate")]);
        match values[2] {
            Value::Null => self.copies.clear(),
            _ => {
                for key in &values[3..] {
                    let Value::Bulk(key) = key else { panic!("expected a key, came {key:?}") };
                    self.copies.remove(&String::from_utf8_lossy(key).into_owned());
                }
            }
        }
    }
}

/// Ends turns until everything is told: what was changed, and what another actor heard of it.
fn tell_all(world: &mut World) {
    for _ in 0..3 {
        (0..world.actor_count()).for_each(|actor| world.append(actor));
        world.pass(0);
        world.settle();
    }
}

/// Lets clients read and others write, and gives the number of copies that are old when everything was told.
fn old_copies(seed: u64, words: &[&str]) -> usize {
    let actors = 1 + (seed % 4) as u16;
    let mut world = World::new(actors, seed);
    world.keep_told();
    world.is_orderly = true;
    world.begin_log();
    let mut keepers: Vec<Keeper> =
        (0..5).map(|index| Keeper::new(&mut world, index % usize::from(actors), words)).collect();
    let writers: Vec<Client> = (0..3).map(|index| world.client(index % usize::from(actors))).collect();
    let has_replicas = seed.is_multiple_of(3);
    if has_replicas {
        world.call(writers[0], &["SAV.REPLICATE", "a", "FULL"]);
        world.call(writers[0], &["SAV.REPLICATE", "b", "2"]);
        world.settle();
    }
    for _ in 0..400 {
        match world.chance.below(8) {
            0..4 => drop(world.deliver_one()),
            4 => world.pass(1),
            5 => {
                let change = CHANGES[world.chance.below(CHANGES.len())];
                let writer = writers[world.chance.below(writers.len())];
                // With replicas a database is not swapped.
                if !(has_replicas && change[0] == "SWAPDB") {
                    let _ = world.request(writer, change);
                }
            }
            _ => {
                let key = KEYS[world.chance.below(KEYS.len())];
                let index = world.chance.below(keepers.len());
                keepers[index].read(&mut world, key);
            }
        }
        keepers.iter_mut().for_each(|keeper| keeper.hear(&mut world));
    }
    world.settle();
    world.quiesce().expect("an end");
    tell_all(&mut world);
    keepers.iter_mut().for_each(|keeper| keeper.hear(&mut world));
    let mut old = 0;
    for keeper in &keepers {
        assert_eq!(keeper.read, None);
        for (key, copy) in &keeper.copies {
            old += usize::from(world.call(writers[0], &["GET", key]) != *copy);
        }
    }
    old
}

#[test]
fn no_copy_is_old_when_everything_was_told() {
    for seed in 0..400 {
        assert_eq!(old_copies(seed, &["CLIENT", "TRACKING", "ON"]), 0, "seed {seed}");
    }
}

#[test]
fn no_copy_is_old_where_all_changes_are_told() {
    for seed in 0..100 {
        assert_eq!(old_copies(seed, &["CLIENT", "TRACKING", "ON", "BCAST"]), 0, "seed {seed}");
    }
}

#[test]
fn who_does_not_want_to_hear_of_its_own_changes_hears_of_those_of_others() {
    for actors in 1..4 {
        let mut world = World::new(actors, 1);
        world.keep_told();
        world.begin_log();
        let mut keeper = Keeper::new(&mut world, 0, &["CLIENT", "TRACKING", "ON", "NOLOOP"]);
        let other = world.client(0);
        let invalidations = |world: &mut World, keeper: &mut Keeper| {
            tell_all(world);
            let told = world.take_told(keeper.client);
            told.into_iter().filter(|(ticket, _)| ticket.is_none()).count()
        };
        for key in KEYS {
            world.call(keeper.client, &["GET", key]);
            world.call(keeper.client, &["SET", key, "1"]);
            assert_eq!(invalidations(&mut world, &mut keeper), 0, "{key} of {actors}");
            world.call(other, &["SET", key, "2"]);
            assert_eq!(invalidations(&mut world, &mut keeper), 1, "{key} of {actors}");
        }
        // Also as a part of what needs several actors.
        world.call(keeper.client, &["MGET", "a", "b", "c", "d", "e"]);
        world.call(keeper.client, &["MSET", "a", "3", "b", "3", "c", "3", "d", "3", "e", "3"]);
        assert_eq!(invalidations(&mut world, &mut keeper), 0, "of {actors}");
    }
}

#[test]
fn a_client_hears_in_the_place_of_another_one_until_it_is_gone() {
    for (actors, place) in [(1, 0), (2, 0), (2, 1), (3, 2)] {
        let mut world = World::new(actors, 1);
        world.keep_told();
        world.begin_log();
        let (keeper, target) = (world.client(0), world.client(place));
        let told = |world: &mut World, client: Client| {
            tell_all(world);
            let told = world.take_told(client).into_iter().filter(|(ticket, _)| ticket.is_none());
            told.map(|(_, tape)| tape.to_string()).collect::<Vec<_>>()
        };
        world.call(keeper, &["HELLO", "3"]);
        let number = world.call(target, &["CLIENT", "ID"]);
        let nobody = (1_000 * i64::from(actors) + place as i64).to_string();
        let refused = world.call(keeper, &["CLIENT", "TRACKING", "ON", "REDIRECT", &nobody]);
        assert!(refused.contains("does not exist"), "{refused}");
        world.settle();
        assert_eq!(world.call(keeper, &["CLIENT", "GETREDIR"]), "-1");
        assert_eq!(world.call(keeper, &["CLIENT", "TRACKING", "ON", "REDIRECT", &number]), "OK");
        assert_eq!(world.call(keeper, &["CLIENT", "GETREDIR"]), number);
        world.call(target, &["SUBSCRIBE", "__redis__:invalidate"]);
        world.call(keeper, &["GET", "a"]);
        world.call(keeper, &["SET", "a", "1"]);
        assert_eq!(told(&mut world, keeper).len(), 0);
        let heard = told(&mut world, target);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].contains("__redis__:invalidate"), "{heard:?}");
        world.close(target);
        world.call(keeper, &["GET", "a"]);
        world.call(keeper, &["SET", "a", "2"]);
        let heard = told(&mut world, keeper);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].contains("tracking-redir-broken"), "{heard:?}");
    }
}
