//! Databases are swapped and emptied at all actors as one, for whoever looks; and swapped so for the log.

use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;

use crate::world::{Client, World};

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// How readers look at the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looking {
    /// At all at once, which sees one database.
    AtOnce,
    /// At one after the other.
    OneByOne,
}

struct Worker {
    client: Client,
    awaited: Option<Ticket>,
    seen: Vec<String>,
}

impl Worker {
    fn of(client: Client) -> Self {
        Self { client, awaited: None, seen: Vec::new() }
    }

    /// The reply of a request, now or from before; `None` while one is under way.
    fn ask(&mut self, world: &mut World, words: &[&str]) -> Option<Tape> {
        if let Some(ticket) = self.awaited {
            let reply = world.arrived(self.client, ticket)?;
            self.awaited = None;
            return Some(reply);
        }
        match world.request(self.client, words) {
            Ok(reply) => Some(reply),
            Err(ticket) => {
                self.awaited = Some(ticket);
                None
            }
        }
    }
}

fn texts(reply: &Tape) -> Vec<String> {
    let text = |value: Value<'_>| match value {
        Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Null => Some("none".to_owned()),
        _ => None,
    };
    reply.values().filter_map(text).collect()
}

fn are_equal(texts: &[String]) -> bool {
    texts.windows(2).all(|pair| pair[0] == pair[1])
}

/// The keys of the first database have one value, those of the second another, and a client swaps them, while others write
/// all values of one database anew, and look. Says whether somebody saw values of both; gives the world in the end.
fn sees_both(seed: u64, looking: Looking) -> (bool, usize, World) {
    let actors = 1 + (seed % 4) as u16;
    let mut world = World::new(actors, seed);
    world.begin_log();
    let mut clients =
        (0..6).map(|index| world.client((seed as usize + index) % usize::from(actors))).collect::<Vec<_>>();
    let setter = clients.remove(0);
    for database in ["0", "1"] {
        world.call(setter, &["SELECT", database]);
        let words: Vec<&str> = KEYS.iter().flat_map(|key| [*key, database]).collect();
        world.call(setter, &[&["MSET"], &words[..]].concat());
    }
    let (mut swappers, mut readers): (Vec<Worker>, Vec<Worker>) =
        (clients.drain(..2).map(Worker::of).collect(), clients.drain(..).map(Worker::of).collect());
    let (mut swapped, mut looks, mut is_mixed) = (0, 0, false);
    while swapped < 20 {
        match world.chance.below(6) {
            0..4 => drop(world.deliver_one()),
            4 => {
                let index = world.chance.below(swappers.len());
                if let Some(reply) = swappers[index].ask(&mut world, &["SWAPDB", "0", "1"]) {
                    assert_eq!(reply.to_string(), "OK");
                    swapped += 1;
                }
            }
            _ => {
                let index = world.chance.below(readers.len());
                let reader = &mut readers[index];
                let words = match looking {
                    Looking::AtOnce => [&["MGET"], &KEYS[..]].concat(),
                    Looking::OneByOne => vec!["GET", KEYS[reader.seen.len()]],
                };
                if let Some(reply) = reader.ask(&mut world, &words) {
                    reader.seen.extend(texts(&reply));
                    if reader.seen.len() == KEYS.len() {
                        is_mixed |= !are_equal(&reader.seen);
                        looks += 1;
                        reader.seen.clear();
                    }
                }
            }
        }
    }
    world.settle();
    (is_mixed, looks, world)
}

#[test]
fn nobody_sees_some_keys_before_a_swap_and_others_after_it() {
    let mut looks = 0;
    for seed in 0..300 {
        let (is_mixed, count, _) = sees_both(seed, Looking::AtOnce);
        assert!(!is_mixed, "seed {seed}");
        looks += count;
    }
    assert!(looks > 1_000, "{looks}");
}

#[test]
fn who_looks_at_one_key_after_the_other_may_see_both_databases() {
    assert!((0..300).any(|seed| sees_both(seed, Looking::OneByOne).0));
}

/// A client writes all keys anew, another one deletes them, others look. Says whether somebody saw some and not all of them.
fn sees_a_part(seed: u64, looking: Looking) -> (bool, usize) {
    let actors = 1 + (seed % 4) as u16;
    let mut world = World::new(actors, seed);
    let mut workers: Vec<Worker> =
        (0..6).map(|index| Worker::of(world.client((seed as usize + index) % usize::from(actors)))).collect();
    if seed.is_multiple_of(3) {
        world.call(workers[0].client, &["SET", KEYS[0], "x"]);
        world.call(workers[0].client, &["SAV.REPLICATE", KEYS[0], "FULL"]);
        world.call(workers[0].client, &["DEL", KEYS[0]]);
    }
    let words: Vec<&str> = KEYS.iter().flat_map(|key| [*key, "x"]).collect();
    let (all, each) = ([&["MSET"], &words[..]].concat(), [&["EXISTS"], &KEYS[..]].concat());
    let (mut flushed, mut looks, mut is_mixed) = (0, 0, false);
    while flushed < 20 || workers[1].awaited.is_some() {
        if world.chance.below(3) > 0 && world.deliver_one() {
            continue;
        }
        let index = world.chance.below(workers.len());
        let worker = &mut workers[index];
        let words: &[&str] = match (index, looking) {
            (0, _) => &all,
            (1, _) => [&["FLUSHALL"], &["FLUSHDB"]][flushed % 2],
            (_, Looking::AtOnce) => &each,
            (_, Looking::OneByOne) => &["EXISTS", KEYS[worker.seen.len()]],
        };
        let Some(reply) = worker.ask(&mut world, words) else { continue };
        match index {
            0 => assert_eq!(reply.to_string(), "OK"),
            1 => flushed += 1,
            _ => {
                worker.seen.push(reply.to_string());
                if looking == Looking::AtOnce {
                    is_mixed |= !["0", "6"].contains(&worker.seen[0].as_str());
                } else if worker.seen.len() < KEYS.len() {
                    continue;
                }
                is_mixed |= !are_equal(&worker.seen);
                looks += 1;
                worker.seen.clear();
            }
        }
    }
    (is_mixed, looks)
}

#[test]
fn nobody_sees_some_keys_of_a_database_that_is_emptied() {
    let mut looks = 0;
    for seed in 0..300 {
        let (is_mixed, count) = sees_a_part(seed, Looking::AtOnce);
        assert!(!is_mixed, "seed {seed}");
        looks += count;
    }
    assert!(looks > 1_000, "{looks}");
    assert!((0..300).any(|seed| sees_a_part(seed, Looking::OneByOne).0), "who looks at one after the other may");
}

#[test]
fn wherever_the_log_ends_a_swap_is_in_it_for_all_keys_or_for_none() {
    for seed in 0..100 {
        let (_, _, mut world) = sees_both(seed, Looking::AtOnce);
        (0..world.actor_count()).for_each(|actor| world.append(actor));
        let log = world.log.records().to_vec();
        let end = world.chance.below(log.len() + 1);
        let mut keys = world.replayed(&log[..end]);
        let mut values = Vec::new();
        for database in [0, 1] {
            keys.select(database);
            let found: Vec<String> = KEYS
                .iter()
                .filter_map(|key| keys.string(key.as_bytes()).expect("a string").map(<[u8]>::to_vec))
                .map(|v| String::from_utf8(v).expect("text"))
                .collect();
            assert!(are_equal(&found), "seed {seed}, {end} of {}: {found:?}", log.len());
            values.extend(found.first().cloned());
        }
        assert!(values.len() < 2 || values[0] != values[1], "seed {seed}");
        if end == log.len() {
            assert_eq!(values.len(), 2);
        }
    }
}

#[test]
fn what_is_acknowledged_between_swaps_is_counted_once() {
    for seed in 0..200 {
        let actors = 1 + (seed % 4) as u16;
        let mut world = World::new(actors, seed);
        let mut workers: Vec<Worker> =
            (0..5).map(|index| Worker::of(world.client(index % usize::from(actors)))).collect();
        let (mut counted, mut swaps) = (0, 0);
        while counted < 200 || workers.iter().any(|worker| worker.awaited.is_some()) {
            if world.chance.below(3) > 0 && world.deliver_one() {
                continue;
            }
            let index = world.chance.below(workers.len());
            let is_over = counted >= 200 && workers[index].awaited.is_none();
            if is_over {
                continue;
            }
            let key = KEYS[world.chance.below(KEYS.len())];
            let words: &[&str] = if index == 0 { &["SWAPDB", "0", "1"] } else { &["INCR", key] };
            if workers[index].ask(&mut world, words).is_some() {
                (counted, swaps) = if index == 0 { (counted, swaps + 1) } else { (counted + 1, swaps) };
            }
        }
        let client = world.client(0);
        let mut sum = 0;
        for database in ["0", "1"] {
            world.call(client, &["SELECT", database]);
            for key in KEYS {
                sum += world.call(client, &["GET", key]).trim_matches('"').parse::<u64>().unwrap_or(0);
            }
        }
        assert_eq!(sum, counted, "seed {seed}, after {swaps} swaps");
    }
}

#[test]
fn a_rewrite_of_the_log_begins_anew_when_databases_are_swapped() {
    for seed in 0..50 {
        let (_, _, mut world) = sees_both(seed, Looking::AtOnce);
        let client = world.client(0);
        world.forget_log();
        assert_eq!(world.call(client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
        for _ in 0..seed % 8 {
            world.pass(1);
            world.deliver_one();
        }
        let swap = world.request(client, &["SWAPDB", "0", "1"]).err();
        while swap.is_some_and(|ticket| world.arrived(client, ticket).is_none()) {
            world.pass(1);
            world.deliver_one();
        }
        world.finish_rewrite();
        let records = world.log.records().to_vec();
        let mut again = world.replayed(&records);
        for database in ["0", "1"] {
            world.call(client, &["SELECT", database]);
            again.select(database.parse().expect("a number"));
            for key in KEYS {
                let mine = again
                    .string(key.as_bytes())
                    .expect("a string")
                    .map(|bytes| format!("\"{}\"", bytes.escape_ascii()));
                assert_eq!(mine, Some(world.call(client, &["GET", key])), "seed {seed}, database {database}, {key}");
            }
        }
    }
}

#[test]
fn keys_with_replicas_keep_their_database() {
    let mut world = World::new(3, 1);
    let client = world.client(1);
    world.call(client, &["SET", "a", "x"]);
    world.call(client, &["SAV.REPLICATE", "a", "2"]);
    assert!(world.call(client, &["SWAPDB", "0", "1"]).starts_with("!ERR keys with replicas"));
    assert_eq!(world.call(client, &["GET", "a"]), "\"x\"");
}
