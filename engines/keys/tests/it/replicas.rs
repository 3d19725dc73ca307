//! Replicas of keys become equal, and what was deleted stays deleted, whatever order they hear of each other in.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, Options};
use savanna_keys::actor::gossip::PERIOD;
use savanna_keys::config::Config;
use savanna_keys::delta;
use savanna_keys::hyperloglog::HyperLogLog;
use savanna_keys::keyspace::replica::ABSENCE;
use savanna_keys::keyspace::{Keyspace, Value};
use savanna_keys::log::recover;
use savanna_keys::placement::Routes;
use savanna_keys::reply::Tape;
use savanna_keys::session::Ticket;
use savanna_lattice::UnixMillis;

use crate::log::SimLog;
use crate::whole::key_of;
use crate::world::{Client, Fault, World, new_actors};

const KEYS: [&str; 6] = ["string", "number", "sketch", "hash", "set", "zset"];

/// A world whose keys of these names have replicas at all of its actors, which serve them.
pub(crate) fn replicated(actors: u16, seed: u64, keys: &[&str]) -> (World, Vec<Client>) {
    let mut world = World::new(actors, seed);
    let clients: Vec<Client> = (0..usize::from(actors)).map(|actor| world.client(actor)).collect();
    for key in keys {
        assert_eq!(world.call(clients[0], &["SAV.REPLICATE", key, "FULL"]), "OK");
    }
    world.quiesce().expect("an end");
    for actor in world.actors() {
        for key in keys {
            let is_here = actor.keys().serves(0, key.as_bytes());
            assert!(is_here || actor.keys().is_first_replica(key.as_bytes()), "{key} at {}", actor.id());
        }
    }
    (world, clients)
}

/// What a keyspace shows of the keys with replicas.
fn shown(keys: &Keyspace, now: UnixMillis) -> BTreeMap<String, String> {
    // Replicas of a HyperLogLog have the same registers, and one may have them in another form.
    let text = |bytes: &[u8]| match HyperLogLog::open(bytes).and_then(|sketch| sketch.registers()) {
        Ok(registers) => {
            format!("{:?}", registers.iter().enumerate().filter(|(_, value)| **value > 0).collect::<Vec<_>>())
        }
        Err(_) => bytes.escape_ascii().to_string(),
    };
    let mut shown = BTreeMap::new();
    for (_, database) in keys.databases() {
        for entry in database.iter().filter(|entry| !entry.has_expired(now)) {
            let value = match &entry.value {
                Value::String(bytes) => text(bytes),
                Value::Buffer(bytes) => text(bytes),
                Value::Hash(hash) => {
                    let fields: BTreeMap<_, _> = hash.iter().map(|(field, value)| (text(field), text(value))).collect();
                    format!("{fields:?}")
                }
                Value::Set(set) => format!("{:?}", set.iter().map(text).collect::<BTreeSet<_>>()),
                Value::SortedSet(set) => format!("{:?}", set.iter().map(|(m, s)| (text(m), s)).collect::<Vec<_>>()),
                Value::List(list) => format!("{:?}", list.iter().map(text).collect::<Vec<_>>()),
                Value::Stream(stream) => format!("{} {}", stream.added(), stream.last()),
            };
            shown.insert(text(&entry.key), format!("{value} {:?}", entry.expires_at()));
        }
    }
    shown
}

/// The keys that expire, as far as any replica knows.
fn expiring(world: &World) -> BTreeSet<String> {
    let keys = world.actors().flat_map(|actor| actor.keys().databases()).flat_map(|(_, database)| database.iter());
    let expiring = keys.filter(|entry| entry.expires_at() != UnixMillis::NEVER);
    expiring.map(|entry| entry.key.escape_ascii().to_string()).collect()
}

/// A random command about one of the keys.
fn command(world: &mut World, number: usize) -> Vec<String> {
    let chance = &mut world.chance;
    let element = format!("e{}", chance.below(6));
    let value = number.to_string();
    let words: &[&str] = match chance.below(28) {
        0..2 => &["SET", "string", &format!("s{value}")],
        2 => &["APPEND", "string", "+"],
        3 => &["SET", "string", &value, "PX", "450"],
        4 => &["SET", "number", &value],
        5..8 => &["INCRBY", "number", &value],
        8..10 => &["HSET", "hash", &element, &value],
        10 => &["HDEL", "hash", &element],
        11 => &["HINCRBY", "hash", "count", "1"],
        12..14 => &["SADD", "set", &element],
        14 => &["SREM", "set", &element],
        15 => &["SPOP", "set"],
        16..18 => &["ZADD", "zset", &value, &element],
        18 => &["ZREM", "zset", &element],
        19 => &["ZPOPMIN", "zset"],
        20 => &["PEXPIRE", KEYS[chance.below(6)], "250"],
        21 => &["PERSIST", KEYS[chance.below(6)]],
        22 => &["DEL", KEYS[chance.below(6)]],
        23..26 => &["PFADD", "sketch", &element, &value],
        26 => &["PFMERGE", "sketch", "sketch"],
        _ => &["RENAME", KEYS[4 + chance.below(2)], KEYS[chance.below(6)]],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn send(world: &mut World, client: Client, words: &[String]) -> Result<Tape, Ticket> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    world.request(client, &words)
}

/// Random commands of clients at all actors, with random delays.
fn disturb(world: &mut World, clients: &[Client], count: usize) {
    for number in 0..count {
        let words = command(world, number);
        // A new client, which has not been at any key's first replica before.
        let actor = clients[world.chance.below(clients.len())].actor;
        let client = world.client(actor);
        // Whoever has to wait for a reply gets it in the end.
        let _ = send(world, client, &words);
        for _ in 0..world.chance.below(6) {
            world.deliver_one();
        }
        if world.chance.below(4) == 0 {
            world.pass(40);
        }
    }
}

/// Random commands of clients at all actors; then what is wrong with what the actors came to, if anything.
fn objection(seed: u64, fault: Fault) -> Option<String> {
    let (mut world, clients) = replicated(3, seed, &KEYS);
    world.fault = fault;
    disturb(&mut world, &clients, 150);
    disagreement(&mut world)
}

/// What the first replicas show when all have told each other everything, which is what the others show, too.
fn agreement(world: &mut World) -> Result<BTreeMap<String, String>, String> {
    world.quiesce().ok_or("they go on telling each other")?;
    let (mut first, now) = (BTreeMap::new(), world.now);
    for actor in world.actors() {
        first.extend(
            shown(actor.keys(), now).into_iter().filter(|(key, _)| actor.keys().is_first_replica(key.as_bytes())),
        );
    }
    for actor in world.actors() {
        let has = |key: &str| actor.keys().is_first_replica(key.as_bytes()) || actor.keys().serves(0, key.as_bytes());
        let mut expected = first.clone();
        expected.retain(|key, _| has(key));
        let shown = shown(actor.keys(), now);
        if shown != expected {
            return Err(format!("{} has {shown:?}, the first replicas are {expected:?}", actor.id()));
        }
    }
    Ok(first)
}

/// What is wrong with what the actors come to when they have told each other everything.
fn disagreement(world: &mut World) -> Option<String> {
    let first = match agreement(world) {
        Ok(first) => first,
        Err(objection) => return Some(objection),
    };
    // All that was ever changed, merged in another order.
    (0..world.actor_count()).for_each(|actor| world.append(actor));
    let mut changes = Vec::new();
    for (_, appended) in world.log.records().iter() {
        let mut rest = &appended[..];
        while let Some(length) = rest.first_chunk().map(|length| 4 + u32::from_le_bytes(*length) as usize) {
            changes.push(rest[..length].to_vec());
            rest = &rest[length..];
        }
    }
    let mut model = Keyspace::new(Routes::over(1), 0);
    model.set_now(world.now);
    for _ in 0..changes.len() * 2 {
        let change = &changes[world.chance.below(changes.len())];
        delta::read_all(change, &mut |header, body| model.replay(header, body)).expect("a delta");
    }
    for change in changes.iter().rev() {
        delta::read_all(change, &mut |header, body| model.replay(header, body)).expect("a delta");
    }
    let merged = shown(&model, world.now);
    if merged != first {
        return Some(format!("the log merges to {merged:?}, the actors have {first:?}"));
    }
    // Nothing is left of what stays away.
    for _ in 0..2 {
        world.pass(ABSENCE); // some expire only now
        world.quiesce();
    }
    let tombstones: usize = world.actors().map(|actor| actor.keys().tombstones()).sum();
    (tombstones > 0).then(|| format!("{tombstones} deletions are still remembered"))
}

#[test]
fn replicas_become_equal_to_the_merge_of_all_changes_and_deletions_are_forgotten() {
    for seed in 0..300 {
        assert_eq!(objection(seed, Fault::Disorder), None, "seed {seed}");
    }
}

#[test]
fn the_checker_finds_what_is_lost_echoed_or_without_a_life() {
    for fault in [Fault::Loss, Fault::Echo, Fault::NoDeletions, Fault::NoLives] {
        let found = (0..8).filter(|seed| objection(*seed, fault).is_some()).count();
        assert!(found > 1, "{fault:?}: found in {found} of 8 runs");
    }
}

/// Members that come back after somebody who had seen them deleted the set.
fn resurrected(seed: u64, fault: Fault) -> usize {
    let (mut world, clients) = replicated(3, seed, &["set"]);
    world.fault = fault;
    let mut deleted = HashSet::new();
    for number in 0..120 {
        let client = clients[world.chance.below(clients.len())];
        if world.chance.below(5) == 0 {
            let reply = world.request(client, &["SMEMBERS", "set"]).expect("every actor has a replica");
            deleted.extend(reply.values().filter_map(|value| match value {
                savanna_keys::reply::Value::Bulk(member) => Some(member.to_vec()),
                _ => None,
            }));
            world.request(client, &["DEL", "set"]).expect("every actor has a replica");
        } else {
            world.request(client, &["SADD", "set", &number.to_string()]).expect("every actor has a replica");
        }
        for _ in 0..world.chance.below(4) {
            world.deliver_one();
        }
        if world.chance.below(3) == 0 {
            world.pass(40);
        }
    }
    world.quiesce();
    let mut back = HashSet::new();
    for client in clients {
        let reply = world.request(client, &["SMEMBERS", "set"]).expect("every actor has a replica");
        back.extend(reply.values().filter_map(|value| match value {
            savanna_keys::reply::Value::Bulk(member) => deleted.contains(member).then(|| member.to_vec()),
            _ => None,
        }));
    }
    back.len()
}

#[test]
fn what_was_deleted_does_not_come_back() {
    for seed in 0..300 {
        assert_eq!(resurrected(seed, Fault::Disorder), 0, "seed {seed}");
    }
}

#[test]
fn the_checker_finds_what_comes_back_where_lives_are_not_told_apart() {
    let found = (0..100).filter(|seed| resurrected(*seed, Fault::NoLives) > 0).count();
    assert!(found > 2, "found in {found} of 100 runs");
}

/// The replies to all commands, of clients at all actors at once.
fn replies(seed: u64, count: usize, key: &str, words: &[&str]) -> Vec<String> {
    let (mut world, clients) = replicated(2, seed, &[key]);
    if words[0] == "SPOP" || words[0] == "ZPOPMIN" {
        for number in 0..count {
            let (number, client) = (number.to_string(), clients[number % 2]);
            match words[0] {
                "SPOP" => world.call(client, &["SADD", key, &number]),
                _ => world.call(client, &["ZADD", key, &number, &number]),
            };
        }
        world.pass(7);
    }
    let mut awaited = Vec::new();
    let mut replies = Vec::new();
    for _ in 0..count {
        let client = clients[world.chance.below(2)];
        match world.request(client, words) {
            Ok(tape) => replies.push(tape.to_string()),
            Err(ticket) => awaited.push((client, ticket)),
        }
        for _ in 0..world.chance.below(3) {
            world.deliver_one();
        }
    }
    world.quiesce().expect("an end");
    for (client, ticket) in awaited {
        replies.push(world.arrived(client, ticket).expect("a reply").to_string());
    }
    replies
}

#[test]
fn what_tests_and_returns_is_answered_once() {
    for seed in 0..100 {
        let counts = replies(seed, 40, "n", &["INCR", "n"]);
        assert_eq!(counts.iter().collect::<HashSet<_>>().len(), 40, "seed {seed}: {counts:?}");
        let wins = replies(seed, 20, "n", &["SET", "n", "x", "NX"]);
        assert_eq!(wins.iter().filter(|reply| *reply == "OK").count(), 1, "seed {seed}: {wins:?}");
        for (key, words) in [("s", ["SPOP", "s"]), ("z", ["ZPOPMIN", "z"])] {
            let popped = replies(seed, 30, key, &words);
            let popped: Vec<_> = popped.into_iter().filter(|reply| reply != "nil" && reply != "[0]").collect();
            assert_eq!(popped.iter().collect::<HashSet<_>>().len(), popped.len(), "seed {seed}: {popped:?}");
            assert!(popped.len() >= 15, "seed {seed}: {popped:?}");
        }
    }
}

#[test]
fn changes_of_a_period_are_told_as_one_and_where_nothing_changes_nothing_is_told() {
    let (mut world, clients) = replicated(3, 1, &["set"]);
    let before = world.told;
    for number in 0..1_000 {
        world.request(clients[0], &["SADD", "set", &number.to_string()]).expect("here");
    }
    world.quiesce().expect("an end");
    assert!(world.told - before <= 2 + 2 * 2, "one message to each, and what they have heard: {}", world.told - before);
    let before = world.told;
    for _ in 0..100 {
        world.pass(1_000);
    }
    assert_eq!(world.told, before);
}

#[test]
fn a_transaction_changes_the_first_replica() {
    for seed in 0..50 {
        let (mut world, clients) = replicated(3, seed, &["set", "number"]);
        for client in &clients {
            for words in [&["MULTI"][..], &["SADD", "set", "a", "b"], &["INCR", "number"], &["SET", "plain", "1"]] {
                world.request(*client, words).expect("at once");
            }
            assert!(world.call(*client, &["EXEC"]).starts_with("[3] "));
        }
        world.quiesce().expect("an end");
        for client in &clients {
            assert_eq!(world.call(*client, &["SCARD", "set"]), "2");
            assert_eq!(world.call(*client, &["GET", "number"]), "\"3\"", "seed {seed}");
        }
        assert_eq!(world.call(clients[0], &["DBSIZE"]), "3", "a copy is no key of its own");
        assert_eq!(world.call(clients[1], &["KEYS", "set"]), "[1] \"set\"");
    }
}

#[test]
fn a_transaction_does_not_repeat_what_an_earlier_one_changed() {
    let (mut world, clients) = replicated(3, 1, &[]);
    for (number, client) in clients.iter().cycle().take(12).enumerate() {
        let (key, other) = (format!("key{number}"), format!("other{number}"));
        for (member, copies) in [("a", "2"), ("b", "2")] {
            for words in [&["MULTI"][..], &["SADD", &key, member], &["SET", &other, "1"], &["SET", "far", "1"]] {
                world.request(*client, words).expect("at once");
            }
            world.call(*client, &["EXEC"]);
            if member == "a" {
                assert_eq!(world.call(clients[0], &["SREM", &key, "a"]), "1");
            }
            assert_eq!(world.call(clients[0], &["SAV.REPLICATE", &key, copies]), "OK");
        }
        world.quiesce().expect("an end");
        assert_eq!(world.call(*client, &["SMEMBERS", &key]), "~1 \"b\"");
    }
}

/// What is wrong, if anything, after a set was filled while the number of its replicas changed.
fn objection_to_vectors(seed: u64, fault: Fault) -> Option<String> {
    let (mut world, clients) = replicated(3, seed, &[]);
    world.fault = fault;
    let mut awaited = Vec::new();
    let mut added = 0;
    for number in 0..60 {
        let client = clients[world.chance.below(3)];
        let copies = (1 + world.chance.below(3)).to_string();
        let member = number.to_string();
        let words: &[&str] = match world.chance.below(6) {
            0 => &["SAV.REPLICATE", "set", &copies],
            _ => &["SADD", "set", &member],
        };
        added += usize::from(words[0] == "SADD");
        if let Err(ticket) = world.request(client, words) {
            awaited.push((client, ticket));
        }
        for _ in 0..world.chance.below(5) {
            world.deliver_one();
        }
        if world.chance.below(4) == 0 {
            world.pass(60);
        }
    }
    world.quiesce().expect("an end");
    for (client, ticket) in awaited {
        world.arrived(client, ticket).expect("a reply");
    }
    let counts: Vec<String> = clients.iter().map(|client| world.call(*client, &["SCARD", "set"])).collect();
    if counts.iter().any(|count| *count != added.to_string()) {
        return Some(format!("of {added} members there are {counts:?}"));
    }
    assert_eq!(world.call(clients[0], &["SAV.REPLICATE", "set", "1"]), "OK");
    world.quiesce().expect("an end");
    let holding = world.actors().filter(|actor| actor.keys().has_replicas()).count();
    (holding > 0).then(|| format!("{holding} actors remember that there were replicas"))
}

#[test]
fn a_key_gets_replicas_and_loses_them_while_it_is_written() {
    for seed in 0..150 {
        assert_eq!(objection_to_vectors(seed, Fault::Disorder), None, "seed {seed}");
    }
}

#[test]
fn the_checker_finds_replication_that_ends_before_all_have_heard_of_it() {
    let found = (0..300).filter(|seed| objection_to_vectors(*seed, Fault::Boast).is_some()).count();
    assert!(found > 2, "found in {found} of 300 runs");
}

#[test]
fn a_copy_that_was_given_up_stays_away_and_is_no_deletion() {
    for seed in 0..150 {
        let (mut world, clients) = replicated(3, seed, &KEYS);
        let mut given_up = BTreeSet::new();
        for _ in 0..12 {
            disturb(&mut world, &clients, 12);
            let (actor, key) = (world.chance.below(3), KEYS[world.chance.below(KEYS.len())]);
            if world.actor_mut(actor).give_up_copy(0, key.as_bytes()) {
                given_up.insert((actor, key));
            }
        }
        assert_eq!(disagreement(&mut world), None, "seed {seed}");
        assert!(!given_up.is_empty(), "seed {seed}");
        for (actor, key) in given_up {
            assert!(!world.actor(actor).keys().serves(0, key.as_bytes()), "seed {seed}: {key} came back");
            assert_eq!(
                world.call(clients[actor], &["TYPE", key]),
                world.call(clients[(actor + 1) % 3], &["TYPE", key])
            );
        }
        // Asked for anew, it is there again. (Without a value it would have one replica again after a while.)
        world.call(clients[0], &["SET", KEYS[0], "x"]);
        assert_eq!(world.call(clients[0], &["SAV.REPLICATE", KEYS[0], "FULL"]), "OK");
        agreement(&mut world).unwrap_or_else(|objection| panic!("seed {seed}: {objection}"));
        let served = world.actors().filter(|actor| actor.keys().serves(0, KEYS[0].as_bytes())).count();
        assert_eq!(served, 3, "seed {seed}");
    }
}

#[test]
fn a_list_is_refused_by_name() {
    let mut world = World::new(2, 1);
    let client = world.client(0);
    world.call(client, &["RPUSH", "list", "a"]);
    let refused = world.call(client, &["SAV.REPLICATE", "list", "2"]);
    assert!(refused.contains("or a string, hash, set or sorted set, came a list"), "{refused}");
    let refused = world.call(client, &["SAV.REPLICATE", "x", "3"]);
    assert!(refused.contains("from 1 to 2"), "{refused}");
}

/// Appends what the actors changed to a log, and reads it back into a new world.
fn restarted(world: &mut World, folder: &Path, opening: u64) -> (World, Vec<Client>) {
    (0..world.actor_count()).for_each(|actor| world.append(actor));
    let nothing = &mut |_: savanna_journal::Record| Ok::<(), &str>(());
    let journal = Journal::open(Options::dir(folder), NodeEpoch(opening), nothing).expect("opens");
    for (shard, payload) in world.log.records().iter() {
        journal.append(&[Draft { shard: *shard, kind: 1, payload }]).expect("takes it");
    }
    journal.close().expect("flushes");
    drop(journal);
    let mut actors = new_actors(world.actor_count() as u16, &Config::default(), opening);
    actors.iter_mut().for_each(|actor| {
        actor.tick(world.now);
    });
    recover(Options::dir(folder), NodeEpoch(opening + 1), &mut actors).expect("reads");
    let mut after = World::of(actors, SimLog::default(), opening);
    after.now = world.now;
    let clients = (0..after.actor_count()).map(|actor| after.client(actor)).collect();
    (after, clients)
}

#[test]
fn after_a_crash_the_replicas_are_equal_and_nothing_that_was_logged_is_missing() {
    for seed in 0..60 {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut world, mut clients) = replicated(3, seed, &KEYS);
        for opening in [1, 3] {
            disturb(&mut world, &clients, 60);
            world.settle_requests();
            // What replicas were telling each other is lost; what was changed is in the log.
            let (after, new_clients) = restarted(&mut world, folder.path(), opening);
            // Where nobody died, time comes before a first replica hears that a key is to last longer.
            let expiring = expiring(&world);
            world.fault = Fault::Disorder;
            world.quiesce().expect("an end");
            let mut expected = shown(world.actor(0).keys(), world.now);
            expected.retain(|key, _| !expiring.contains(key));
            for actor in after.actors() {
                let mut shown = shown(actor.keys(), world.now);
                shown.retain(|key, _| !expiring.contains(key));
                assert_eq!(shown, expected, "seed {seed}, {}", actor.id());
            }
            (world, clients) = (after, new_clients);
        }
    }
}

#[test]
fn what_was_written_once_more_is_enough() {
    for seed in 0..30 {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut world, clients) = replicated(3, seed, &KEYS);
        disturb(&mut world, &clients, 100);
        world.forget_log();
        world.call(clients[0], &["BGREWRITEAOF"]);
        disturb(&mut world, &clients, 5);
        world.finish_rewrite();
        let (after, _) = restarted(&mut world, folder.path(), 1);
        world.quiesce().expect("an end");
        for actor in after.actors() {
            assert_eq!(shown(actor.keys(), world.now), shown(world.actor(0).keys(), world.now), "seed {seed}");
        }
    }
}

#[test]
fn what_a_copy_told_before_it_was_given_up_is_written_once_more_by_who_hears_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut world, clients) = replicated(2, 1, &["set"]);
    let (first, other) = at_first_and_other(&world, &clients, "set");
    world.call(other, &["SADD", "set", "a"]);
    world.forget_log(); // it is before the rewrite
    world.pass(PERIOD);
    world.pass(PERIOD);
    assert!(world.actor_mut(other.actor).give_up_copy(0, b"set"), "it is told");
    world.call(clients[0], &["BGREWRITEAOF"]);
    world.finish_rewrite();
    let (mut after, clients) = restarted(&mut world, folder.path(), 1);
    assert_eq!(after.call(clients[first.actor], &["SISMEMBER", "set", "a"]), "1");
}

/// How many bytes are written about a key.
fn length_of(key: &[u8], mut changes: &[u8]) -> usize {
    let mut length = 0;
    while let Some(next) = changes.first_chunk().map(|length| 4 + u32::from_le_bytes(*length) as usize) {
        let (change, rest) = changes.split_at(next);
        delta::read_all(change, &mut |header, _| {
            length += if header.key == key { next } else { 0 };
            Ok(())
        })
        .expect("a delta");
        changes = rest;
    }
    length
}

#[test]
fn a_copy_that_comes_and_goes_makes_no_other_key_longer() {
    let (mut world, clients) = replicated(2, 1, &["count", "set"]);
    let (_, other) = at_first_and_other(&world, &clients, "set");
    let mut lengths = Vec::new();
    for _ in 0..20 {
        clients.iter().for_each(|client| drop(world.call(*client, &["INCR", "count"])));
        world.call(other, &["SADD", "set", "a"]);
        world.quiesce().expect("an end");
        assert!(world.actor_mut(other.actor).give_up_copy(0, b"set"));
        world.quiesce().expect("an end");
        world.call(clients[0], &["SAV.REPLICATE", "set", "FULL"]);
        world.quiesce().expect("an end");
        world.call(clients[0], &["DEL", "set"]);
        world.quiesce().expect("an end");
        lengths.push(
            world
                .actors_mut()
                .map(|actor| {
                    actor.forget_changes();
                    actor.begin_rewrite();
                    while !actor.rewrite_some(1 << 20) {}
                    actor.settle_rewrite();
                    length_of(b"count", actor.changes())
                })
                .sum::<usize>(),
        );
    }
    assert!(lengths[19] <= lengths[2] + 8, "{lengths:?}");
}

/// What is wrong with what the log leads to, if anything, after random commands on keys with replicas or without.
fn objection_to_log(seed: u64, fault: Fault, copies: &str) -> Option<String> {
    let mut world = World::new(3, seed);
    world.begin_log();
    let clients: Vec<Client> = (0..3).map(|actor| world.client(actor)).collect();
    for key in KEYS {
        world.call(clients[0], &["SAV.REPLICATE", key, copies]);
    }
    world.quiesce().expect("an end");
    world.fault = fault;
    disturb(&mut world, &clients, 150);
    world.quiesce().expect("an end");
    (0..3).for_each(|actor| world.append(actor));
    let model = world.replayed(&world.log.records());
    let (model, mut all) = (shown(&model, world.now), BTreeMap::new());
    world.actors().for_each(|actor| all.extend(shown(actor.keys(), world.now)));
    (model != all).then(|| format!("the log leads to {model:?}, the actors have {all:?}"))
}

#[test]
fn the_log_leads_to_what_the_actors_have_whenever_they_append() {
    for copies in ["1", "FULL"] {
        for seed in 0..100 {
            assert_eq!(objection_to_log(seed, Fault::Disorder, copies), None, "seed {seed}, {copies} replicas");
        }
    }
}

#[test]
fn the_checker_finds_messages_that_leave_before_the_changes_are_appended() {
    let found = (0..100).filter(|seed| objection_to_log(*seed, Fault::LateAppend, "1").is_some()).count();
    assert!(found > 2, "found in {found} of 100 runs");
}

#[test]
fn a_crash_while_a_key_loses_its_replicas_loses_nothing_of_it() {
    for seed in 0..40 {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut world, clients) = replicated(3, seed, &["set"]);
        world.call(clients[0], &["SADD", "set", "a", "b", "c"]);
        world.quiesce().expect("an end");
        world.call(clients[1], &["SADD", "set", "d"]);
        world.call(clients[0], &["SAV.REPLICATE", "set", "1"]);
        world.call(clients[2], &["SADD", "set", "e"]);
        for _ in 0..world.chance.below(4) {
            world.pass(10);
            world.deliver_one();
        }
        let (mut after, clients) = restarted(&mut world, folder.path(), 1);
        assert_eq!(after.call(clients[0], &["SCARD", "set"]), "5", "seed {seed}");
        assert!(after.actors().all(|actor| !actor.keys().has_replicas()), "seed {seed}: it has one replica");
    }
}

#[test]
fn what_was_told_with_an_expiry_that_has_passed_is_shown_where_the_life_goes_on() {
    let (mut world, clients) = replicated(2, 1, &["set"]);
    let first = usize::from(!world.actor(0).keys().is_first_replica(b"set"));
    let (first, other) = (clients[first], clients[1 - first]);
    world.call(first, &["SADD", "set", "a"]);
    world.call(first, &["PEXPIRE", "set", "10000"]);
    world.quiesce().expect("an end");
    world.request(other, &["SADD", "set", "b"]).expect("here");
    world.request(other, &["PEXPIRE", "set", "50"]).expect("here");
    world.pass(1);
    world.request(first, &["PERSIST", "set"]).expect("here");
    world.pass(60);
    world.quiesce().expect("an end");
    for client in clients {
        assert_eq!(world.call(client, &["SISMEMBER", "set", "b"]), "1", "at actor {}", client.actor);
    }
}

#[test]
fn what_expires_without_a_request_is_seen_by_the_replicas() {
    let (mut world, clients) = replicated(2, 1, &["set"]);
    world.call(clients[0], &["SADD", "set", "a"]);
    world.call(clients[0], &["PEXPIRE", "set", "5000"]);
    world.quiesce().expect("an end");
    world.pass(6000);
    let dead: usize = world.actors().map(|actor| actor.keys().tombstones()).sum();
    assert_eq!(dead, 1, "the first replica has ended the life");
}

#[test]
fn replicas_are_written_once_more_a_few_at_a_time() {
    let (mut world, clients) = replicated(2, 1, &KEYS);
    disturb(&mut world, &clients, 50);
    world.quiesce().expect("an end");
    let actor = world.actor_mut(0);
    actor.begin_rewrite();
    let turns = (1..).find(|_| actor.rewrite_some(1)).expect("an end");
    assert!(turns >= KEYS.len(), "{turns} turns");
}

/// The clients at the first replica of a key and at the other actor.
fn at_first_and_other(world: &World, clients: &[Client], key: &str) -> (Client, Client) {
    let first = usize::from(!world.actor(0).keys().is_first_replica(key.as_bytes()));
    (clients[first], clients[1 - first])
}

#[test]
fn what_two_threads_create_at_the_same_time_is_one_also_after_a_deletion() {
    let (mut world, clients) = replicated(2, 1, &["set"]);
    for round in 0..3 {
        for client in &clients {
            world.request(*client, &["SADD", "set", &client.actor.to_string()]).expect("here");
            world.pass(2);
        }
        world.quiesce().expect("an end");
        assert_eq!(world.call(clients[0], &["SCARD", "set"]), "2", "round {round}");
        world.call(clients[1], &["DEL", "set"]);
        world.quiesce().expect("an end");
    }
}

#[test]
fn what_is_added_to_replicas_of_a_hyperloglog_is_added_up() {
    let (mut world, clients) = replicated(2, 1, &["sketch"]);
    let (first, other) = at_first_and_other(&world, &clients, "sketch");
    for number in 0..3000 {
        let client = if number % 2 == 0 { first } else { other };
        world.request(client, &["PFADD", "sketch", &number.to_string()]).expect("here");
    }
    world.quiesce().expect("an end");
    (0..3000).for_each(|number| {
        world.call(first, &["PFADD", "alone", &number.to_string()]);
    });
    let count = world.call(first, &["PFCOUNT", "alone"]);
    for client in [first, other] {
        let came = world.request(client, &["PFCOUNT", "sketch"]).expect("here");
        assert_eq!(came.to_string(), count, "at actor {}", client.actor);
    }
}

#[test]
fn what_is_added_to_a_hyperloglog_while_it_is_deleted_elsewhere_survives_also_if_it_was_there() {
    let (mut world, clients) = replicated(2, 1, &["sketch"]);
    let (first, other) = at_first_and_other(&world, &clients, "sketch");
    world.call(first, &["PFADD", "sketch", "old", "again"]);
    world.quiesce().expect("an end");
    world.request(first, &["DEL", "sketch"]).expect("here");
    assert_eq!(world.request(other, &["PFADD", "sketch", "again"]).expect("here").to_string(), "0");
    world.quiesce().expect("an end");
    for client in [first, other] {
        assert_eq!(world.request(client, &["PFCOUNT", "sketch"]).expect("here").to_string(), "1");
    }
}

#[test]
fn the_bytes_of_a_hyperloglog_that_are_written_are_read_at_each_replica() {
    let (mut world, clients) = replicated(2, 1, &["sketch"]);
    let (first, other) = at_first_and_other(&world, &clients, "sketch");
    world.call(first, &["PFADD", "alone", "a", "b", "c"]);
    world.call(first, &["RENAME", "alone", "sketch"]);
    let written = world.call(first, &["GET", "sketch"]);
    world.quiesce().expect("an end");
    assert_eq!(world.request(other, &["GET", "sketch"]).expect("here").to_string(), written);
    world.request(first, &["PFADD", "sketch", "d"]).expect("here");
    world.request(other, &["PFADD", "sketch", "e"]).expect("here");
    world.quiesce().expect("an end");
    for client in [first, other] {
        assert_eq!(world.call(client, &["PFCOUNT", "sketch"]), "5");
    }
    // One without elements is a key, too.
    world.call(first, &["DEL", "sketch"]);
    world.quiesce().expect("an end");
    world.request(other, &["PFADD", "sketch"]).expect("here");
    world.quiesce().expect("an end");
    for client in [first, other] {
        assert_eq!(world.call(client, &["EXISTS", "sketch"]), "1");
        assert_eq!(world.call(client, &["PFCOUNT", "sketch"]), "0");
    }
}

#[test]
fn a_hyperloglog_is_added_to_by_transactions_scripts_and_merges_of_other_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut world, clients) = replicated(2, 1, &["sketch"]);
    let (first, other) = at_first_and_other(&world, &clients, "sketch");
    world.call(first, &["PFADD", "source", "a", "b"]);
    world.call(first, &["PFDEBUG", "TODENSE", "source"]);
    // A register that no element leads to: all of its bits.
    world.call(first, &["SETRANGE", "source", "16", "\u{7f}"]);
    for (number, client) in [first, other].into_iter().enumerate() {
        let element = format!("of {number}");
        world.call(client, &["MULTI"]);
        world.call(client, &["PFADD", "sketch", &element]);
        world.call(client, &["PFMERGE", "sketch", "source"]);
        world.call(client, &["SET", &format!("other{number}"), "kept"]);
        world.call(client, &["EXEC"]);
        world.call(client, &["EVAL", "return redis.call('PFADD', KEYS[1], ARGV[1])", "1", "sketch", &element]);
    }
    let agreed = agreement(&mut world).expect("they are equal");
    assert!(agreed["sketch"].contains("(0, 63)"), "{}", agreed["sketch"]);
    let (mut after, clients) = restarted(&mut world, folder.path(), 1);
    assert_eq!(agreement(&mut after).expect("they are equal"), agreed);
    assert_eq!(after.call(clients[0], &["MGET", "other0", "other1"]), "[2] \"kept\" \"kept\"");
}

#[test]
fn the_registers_of_a_hyperloglog_with_replicas_count_as_memory() {
    let (mut world, clients) = replicated(2, 1, &["sketch"]);
    let before = world.actor(0).keys().byte_count();
    for number in 0..2000 {
        world.call(clients[0], &["PFADD", "sketch", &number.to_string()]);
    }
    world.quiesce().expect("an end");
    let more = world.actor(0).keys().byte_count() - before;
    assert!((100_000..400_000).contains(&more), "{more}");
    world.call(clients[0], &["DEL", "sketch"]);
    world.quiesce().expect("an end");
    let left = world.actor(0).keys().byte_count().saturating_sub(before);
    assert!(left < 2_000, "{left}");
}

#[test]
fn with_fewer_replicas_than_threads_nothing_is_left_of_what_is_deleted() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    world.call(client, &["SAV.REPLICATE", "set", "2"]);
    world.call(client, &["SADD", "set", "a"]);
    world.quiesce().expect("an end");
    world.call(client, &["DEL", "set"]);
    world.quiesce().expect("an end");
    assert_eq!(world.call(client, &["SAV.REPLICAS", "set"]), "2");
    world.pass(ABSENCE);
    world.quiesce().expect("an end");
    assert!(world.actors().all(|actor| !actor.keys().has_replicas()));
    assert_eq!(world.call(client, &["SAV.REPLICAS", "set"]), "1");
}

#[test]
fn what_is_watched_is_read_where_it_is_watched() {
    let (mut world, clients) = replicated(2, 1, &["n"]);
    let (first, other) = at_first_and_other(&world, &clients, "n");
    world.call(first, &["SET", "n", "5"]);
    world.quiesce().expect("an end");
    world.call(first, &["SET", "n", "10"]);
    world.call(other, &["WATCH", "n"]);
    assert_eq!(world.call(other, &["GET", "n"]), "\"10\"");
}

#[test]
fn a_client_sees_what_it_did_to_a_key_through_another_thread() {
    let (mut world, clients) = replicated(2, 1, &["n", "lock", "text"]);
    world.is_orderly = true;
    for key in ["n", "lock", "text"] {
        let (_, other) = at_first_and_other(&world, &clients, key);
        let other = world.client(other.actor);
        match key {
            "n" => {
                assert_eq!(world.call(other, &["INCR", "n"]), "1");
                assert_eq!(world.call(other, &["EXPIRE", "n", "60"]), "1");
            }
            "lock" => {
                assert_eq!(world.call(other, &["SET", "lock", "x", "NX"]), "OK");
                assert_eq!(world.call(other, &["DEL", "lock"]), "1");
                assert_eq!(world.call(other, &["SET", "lock", "y", "NX"]), "OK");
            }
            _ => {
                assert_eq!(world.call(other, &["SET", "text", "10"]), "OK");
                assert_eq!(world.call(other, &["INCR", "text"]), "11");
                world.request(other, &["MULTI"]).expect("here");
                world.request(other, &["GET", "text"]).expect("here");
                assert_eq!(world.call(other, &["EXEC"]), "[1] \"11\"");
            }
        }
    }
}

#[test]
fn a_command_over_several_keys_is_one_step_also_where_all_have_a_copy() {
    let (mut world, clients) = replicated(2, 1, &["a", "b", "c", "d", "e"]);
    for client in clients {
        // Keys of both actors.
        world.request(client, &["MSET", "a", "1", "b", "1", "c", "1", "d", "1", "e", "1"]).expect_err("a transaction");
        world.settle();
    }
}

#[test]
fn the_same_number_of_replicas_once_more_tells_nobody_anything() {
    let (mut world, clients) = replicated(3, 1, &["set"]);
    world.call(clients[0], &["SADD", "set", "a"]);
    world.quiesce().expect("an end");
    let before = world.told;
    world.call(clients[0], &["SAV.REPLICATE", "set", "FULL"]);
    world.quiesce().expect("an end");
    assert_eq!(world.told, before);
}

/// A world whose keys get replicas by themselves when they had a thousand requests of late.
fn spreading(actors: u16, seed: u64) -> World {
    let config =
        Config { is_logged: true, hot_keys_memory: 1 << 20, hot_keys_requests_min: 1_000, ..Config::default() };
    let actors = new_actors(actors, &config, seed);
    let mut world = World::of(actors, SimLog::default(), seed);
    world.pass(1);
    world
}

#[test]
fn a_key_that_is_read_often_gets_replicas_by_itself_and_loses_them_when_it_cools() {
    let mut world = spreading(3, 5);
    let clients: Vec<Client> = (0..3).map(|actor| world.client(actor)).collect();
    for key in ["hot", "written"] {
        world.call(clients[0], &["SET", key, "1"]);
    }
    world.call(clients[0], &["RPUSH", "list", "x"]);
    for round in 0..4_000_usize {
        let client = clients[round % 3];
        assert_eq!(world.call(client, &["GET", "hot"]), "\"1\"");
        world.call(client, &["LLEN", "list"]);
        world.call(client, &["SET", "written", "2"]);
    }
    for _ in 0..3 {
        world.pass(1_000);
        world.quiesce().expect("an end");
    }
    let replicas = |world: &mut World, key| world.call(clients[0], &["SAV.REPLICAS", key]);
    assert_eq!(["hot", "written", "list"].map(|key| replicas(&mut world, key)), ["3", "1", "1"]);
    assert!(world.actors().all(|actor| actor.keys().is_first_replica(b"hot") || actor.keys().serves(0, b"hot")));
    // Who changes it sees that, whoever asks.
    assert_eq!(world.call(clients[1], &["APPEND", "hot", "2"]), "2");
    assert_eq!(world.call(clients[1], &["GET", "hot"]), "\"12\"");
    world.quiesce().expect("an end");
    for client in &clients {
        assert_eq!(world.call(*client, &["GET", "hot"]), "\"12\"");
    }
    for _ in 0..12 {
        world.pass(60_000);
        world.quiesce().expect("an end");
    }
    assert_eq!(replicas(&mut world, "hot"), "1");
    assert!(world.actors().all(|actor| !actor.keys().has_replicas()), "nothing is left of it");
    assert_eq!(world.call(clients[2], &["GET", "hot"]), "\"12\"");
}

#[test]
fn a_hot_key_that_a_transaction_has_at_a_look_is_undone_at_a_later_one() {
    let mut world = spreading(3, 7);
    let client = world.client(0);
    let (hot, other) = (key_of(0), key_of(2));
    world.call(client, &["SET", &hot, "1"]);
    for _ in 0..4_000 {
        world.call(client, &["GET", &hot]);
    }
    for _ in 0..3 {
        world.pass(1_000);
        world.quiesce().expect("an end");
    }
    assert_eq!(world.call(client, &["SAV.REPLICAS", &hot]), "3");
    assert_eq!(world.call(client, &["CONFIG", "SET", "hot-keys-memory", "0"]), "OK");
    world
        .request(client, &["MGET", &hot, &other])
        .expect_err("a transaction, which holds the key until the other is there");
    for _ in 0..3 {
        world.pass(1_000);
    }
    world.settle();
    assert_eq!(world.call(client, &["SAV.REPLICAS", &hot]), "3");
    world.pass(1_000);
    assert_eq!(world.call(client, &["SAV.REPLICAS", &hot]), "1");
}

#[test]
fn what_somebody_has_replicated_is_not_undone() {
    let mut world = spreading(2, 6);
    let client = world.client(0);
    world.call(client, &["SET", "a", "1"]);
    world.call(client, &["SAV.REPLICATE", "a", "FULL"]);
    for _ in 0..5 {
        world.pass(60_000);
        world.quiesce().expect("an end");
    }
    assert_eq!(world.call(client, &["SAV.REPLICAS", "a"]), "2");
}
