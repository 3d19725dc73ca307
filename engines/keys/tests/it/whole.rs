//! Transactions with steps about all keys say on several actors what they say on one, and are one step for whoever looks.

use savanna_keys::actor::gossip::PERIOD;
use savanna_keys::keyspace::Keyspace;
use savanna_keys::placement::{Routes, group_of};
use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;

use crate::world::{Chance, Client, World};

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A step of a transaction, by chance.
fn step(chance: &mut Chance) -> Vec<&'static str> {
    let key = KEYS[chance.below(KEYS.len())];
    let other = KEYS[chance.below(KEYS.len())];
    match chance.below(20) {
        0..3 => vec!["SET", key, other],
        3 => vec!["MSET", key, "1", other, "2"],
        4 => vec!["SADD", key, "x"],
        5 => vec!["DEL", key, other],
        6 => vec!["RENAME", key, other],
        7 => vec!["MGET", key, other],
        8..11 => vec!["DBSIZE"],
        11 | 12 => vec!["KEYS", "*"],
        13 => vec!["SCAN", "0", "COUNT", "100"],
        14 => vec!["SCAN", "0", "MATCH", "[a-d]", "TYPE", "string", "COUNT", "100"],
        15 | 16 => vec!["RANDOMKEY"],
        17 if chance.below(2) == 0 => vec![["FLUSHDB", "FLUSHALL"][chance.below(2)]],
        17 => vec!["SWAPDB", ["0", "1"][chance.below(2)], ["1", "2"][chance.below(2)]],
        18 => vec!["SELECT", ["0", "1", "99"][chance.below(3)]],
        _ => vec!["DEL", "a", "b", "c", "d", "e", "f", "g", "h"],
    }
}

/// What is compared of the replies to a transaction: without the order of keys.
fn normal(steps: &[Vec<&str>], reply: &Tape) -> Vec<String> {
    let text = |(words, reply): (&Vec<&str>, &Tape)| match words[0] {
        "KEYS" | "SCAN" => {
            let mut values: Vec<String> = reply.values().map(|value| format!("{value:?}")).collect();
            values.sort();
            values.concat()
        }
        "RANDOMKEY" => (reply.first() == Some(Value::Null)).to_string(),
        _ => reply.to_string(),
    };
    steps.iter().zip(&reply.elements()).map(text).collect()
}

fn exec(world: &mut World, client: Client, steps: &[Vec<&str>]) -> Tape {
    assert_eq!(world.call(client, &["MULTI"]), "OK");
    for words in steps {
        assert_eq!(world.call(client, words), "QUEUED", "{words:?}");
    }
    match world.request(client, &["EXEC"]) {
        Ok(tape) => tape,
        Err(ticket) => wait(world, client, ticket),
    }
}

fn wait(world: &mut World, client: Client, ticket: Ticket) -> Tape {
    loop {
        if let Some(tape) = world.arrived(client, ticket) {
            return tape;
        }
        assert!(world.deliver_one(), "no reply, and nothing is on its way");
    }
}

#[test]
fn steps_about_all_keys_say_what_they_say_on_one_actor() {
    for seed in 0..400 {
        let mut chance = Chance::new(seed);
        let actors = 2 + (seed % 3) as u16;
        let mut worlds = [World::new(1, seed), World::new(actors, seed)];
        worlds.iter_mut().for_each(World::begin_log);
        let at = chance.below(usize::from(actors));
        let clients = [worlds[0].client(0), worlds[1].client(at)];
        for _ in 0..6 {
            let steps: Vec<Vec<&str>> = (0..1 + chance.below(8)).map(|_| step(&mut chance)).collect();
            let [one, several] = [0, 1].map(|index| normal(&steps, &exec(&mut worlds[index], clients[index], &steps)));
            assert_eq!(one, several, "seed {seed}: {steps:?}");
        }
        // So does the log.
        let contents = [0, 1].map(|index| {
            let world = &mut worlds[index];
            world.settle();
            (0..world.actor_count()).for_each(|actor| world.append(actor));
            contents(&world.replayed(&world.log.records()))
        });
        assert_eq!(contents[0], contents[1], "seed {seed}");
        let here = worlds[1].actors().flat_map(|actor| contents_of(actor.keys())).collect::<Vec<_>>();
        assert_eq!(contents[1], sorted(here), "seed {seed}");
    }
}

fn contents(keys: &Keyspace) -> Vec<(u8, Vec<u8>, String)> {
    sorted(contents_of(keys))
}

fn contents_of(keys: &Keyspace) -> Vec<(u8, Vec<u8>, String)> {
    let entries = keys.databases().flat_map(|(number, database)| database.iter().map(move |entry| (number, entry)));
    entries.map(|(number, entry)| (number, entry.key.to_vec(), format!("{:?}", entry.value))).collect()
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

#[test]
fn nobody_sees_a_part_of_a_transaction_in_steps_about_all_keys() {
    for seed in 0..200 {
        let actors = 2 + (seed % 3) as u16;
        let mut world = World::new(actors, seed);
        let clients: Vec<Client> = (0..6).map(|index| world.client(index % usize::from(actors))).collect();
        let values: Vec<&str> = KEYS.iter().flat_map(|key| [*key, "x"]).collect();
        let all = [&["MSET"], &values[..]].concat();
        let none = [&["DEL"], &KEYS[..]].concat();
        let mut awaited: Vec<Option<(Ticket, bool)>> = vec![None; clients.len()];
        let mut looks = 0;
        while looks < 20 {
            if world.chance.below(3) > 0 && world.deliver_one() {
                continue;
            }
            let index = world.chance.below(clients.len());
            let client = clients[index];
            if let Some((ticket, has_looked)) = awaited[index] {
                let Some(reply) = world.arrived(client, ticket) else { continue };
                awaited[index] = None;
                if has_looked {
                    let counts: Vec<String> = reply.elements().iter().map(Tape::to_string).collect();
                    assert!(counts[0] == "0" || counts[0] == "8", "seed {seed}: {counts:?}");
                    assert_eq!(counts[0], counts[2], "seed {seed}: {counts:?}");
                    assert_eq!(reply.elements()[1].values().count() - 1, counts[0].parse::<usize>().expect("a count"));
                    looks += 1;
                }
                continue;
            }
            let (steps, looks_now): (Vec<&[&str]>, bool) = match world.chance.below(4) {
                0 => (vec![&all], false),
                1 => (vec![&["SWAPDB", "0", "1"], &all, &none], false),
                2 => (vec![&["SWAPDB", "1", "0"], &all], false),
                _ => (vec![&["DBSIZE"], &["KEYS", "*"], &["DBSIZE"]], true),
            };
            world.request(client, &["MULTI"]).expect("an answer at once");
            for words in steps {
                world.request(client, words).expect("an answer at once");
            }
            awaited[index] = world.request(client, &["EXEC"]).err().map(|ticket| (ticket, looks_now));
        }
        world.settle();
    }
}

#[test]
fn what_other_actors_do_for_a_transaction_is_done_when_it_is_answered() {
    let mut world = World::new(3, 1);
    let clients = [0, 1, 2].map(|actor| world.client(actor));
    let [here, there, third] = clients;
    let steps = [vec!["CONFIG", "SET", "timeout", "7"], vec!["CONFIG", "GET", "timeout"], vec!["SET", "a", "1"]];
    assert_eq!(exec(&mut world, there, &steps).to_string(), "[3] OK %1 \"timeout\" \"7\" OK");
    assert_eq!(world.call(third, &["CONFIG", "GET", "timeout"]), "%1 \"timeout\" \"7\"");
    let steps = [vec!["CLIENT", "KILL", "TYPE", "normal"], vec!["DBSIZE"], vec!["SCRIPT", "LOAD", "return 1"]];
    let reply = exec(&mut world, here, &steps).to_string();
    assert_eq!(reply, "[3] 2 1 \"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\"");
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let other = world.client(2);
    assert_eq!(world.call(other, &["EVALSHA", digest, "0"]), "1");
    // Later requests of the session are answered in their places.
    assert_eq!(world.call(here, &["GET", "a"]), "\"1\"");
}

#[test]
fn a_transaction_of_a_client_that_has_gone_is_run_as_a_whole_in_its_databases() {
    let mut world = World::new(2, 3);
    let (gone, other) = (world.client(0), world.client(0));
    world.call(other, &["MSET", "a", "old", "b", "old", "c", "old", "d", "old"]);
    world.call(gone, &["MULTI"]);
    for words in [
        &["DEL", "a", "b", "c", "d"][..],
        &["SWAPDB", "2", "3"],
        &["SELECT", "1"],
        &["MSET", "a", "new", "b", "new", "c", "new", "d", "new"],
    ] {
        world.call(gone, words);
    }
    world.request(gone, &["EXEC"]).expect_err("a reply later");
    world.close(gone);
    world.settle();
    assert_eq!(world.call(other, &["DBSIZE"]), "0");
    world.call(other, &["SELECT", "1"]);
    assert_eq!(world.call(other, &["MGET", "a", "b", "c", "d"]), "[4] \"new\" \"new\" \"new\" \"new\"");
}

/// All that the log has, also what is to come at the ends of turns that are not over.
fn records(world: &mut World) -> Vec<(u64, Vec<u8>)> {
    world.settle();
    (0..world.actor_count()).for_each(|actor| world.append(actor));
    world.log.records().to_vec()
}

#[test]
fn a_flush_is_in_the_log_in_its_order_with_a_swap() {
    for (steps, left) in [
        ([vec!["FLUSHDB"], vec!["SWAPDB", "0", "1"]], Some((0, "new"))),
        ([vec!["SWAPDB", "0", "1"], vec!["FLUSHDB"]], Some((1, "old"))),
        ([vec!["SWAPDB", "0", "1"], vec!["FLUSHALL"]], None),
    ] {
        for seed in 0..8 {
            let mut world = World::new(2 + (seed % 3) as u16, seed);
            world.begin_log();
            let client = world.client(0);
            for (database, value) in [("1", "new"), ("0", "old")] {
                world.call(client, &["SELECT", database]);
                KEYS.iter().for_each(|key| drop(world.call(client, &["SET", key, value])));
            }
            assert_eq!(exec(&mut world, client, &steps).to_string(), "[2] OK OK");
            let log = records(&mut world);
            let told: Vec<(u8, Vec<u8>, String)> = world.actors().flat_map(|actor| contents_of(actor.keys())).collect();
            assert_eq!(contents(&world.replayed(&log)), sorted(told.clone()), "{steps:?}");
            let is_left = |(number, _, value): &(u8, Vec<u8>, String)| {
                left.is_some_and(|(database, text)| *number == database && value.contains(text))
            };
            assert_eq!((told.iter().all(is_left), told.len()), (true, left.map_or(0, |_| KEYS.len())), "{steps:?}");
        }
    }
}

#[test]
fn wherever_the_log_ends_a_flush_is_in_it_for_all_keys_and_with_the_rest_of_its_transaction() {
    let renewal = [vec!["FLUSHALL"], vec!["MSET", "a", "x", "b", "x", "c", "x"]];
    type Way<'w> = (&'w [&'w str], &'w [Vec<&'w str>], usize);
    let ways: [Way<'_>; 4] =
        [(&["FLUSHALL"], &[], 0), (&["FLUSHDB"], &[], 8), (&["EXEC"], &renewal[..1], 0), (&["EXEC"], &renewal, 3)];
    for (words, steps, left) in ways {
        for seed in 0..20 {
            let mut world = World::new(2 + (seed % 3) as u16, seed);
            world.begin_log();
            let client = world.client(0);
            for database in ["1", "0"] {
                world.call(client, &["SELECT", database]);
                KEYS.iter().for_each(|key| drop(world.call(client, &["SET", key, "old"])));
            }
            let before = records(&mut world).len();
            match steps {
                [] => drop(world.call(client, words)),
                steps => drop(exec(&mut world, client, steps)),
            }
            let log = records(&mut world);
            assert!(log.len() > before);
            for end in before..=log.len() {
                let found = contents(&world.replayed(&log[..end])).len();
                assert!([16, left].contains(&found), "seed {seed}, {end} of {}: {found} keys, {steps:?}", log.len());
            }
        }
    }
}

#[test]
fn keys_with_replicas_are_flushed_with_the_others_wherever_the_log_ends() {
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        world.begin_log();
        let clients = [0, 1, 2].map(|actor| world.client(actor));
        for key in ["a", "b", "c", "n"] {
            world.call(clients[0], &["SAV.REPLICATE", key, "FULL"]);
        }
        world.quiesce().expect("an end");
        for (client, member) in clients.into_iter().zip(["x", "y", "z"]) {
            world.call(client, &["SADD", "a", member]);
            world.call(client, &["INCR", "n"]);
            world.call(client, &["SET", "d", member]);
        }
        if seed % 2 == 0 {
            world.quiesce().expect("an end");
        }
        let before = records(&mut world).len();
        let asker = clients[(seed % 3) as usize];
        assert_eq!(exec(&mut world, asker, &[vec!["FLUSHALL"], vec!["SET", "e", "1"]]).to_string(), "[2] OK OK");
        world.quiesce().expect("an end");
        for client in clients {
            assert_eq!(world.call(client, &["EXISTS", "a", "n", "d", "e"]), "1", "seed {seed}");
        }
        let log = records(&mut world);
        for end in before..=log.len() {
            let names: Vec<Vec<u8>> =
                contents(&world.replayed(&log[..end])).into_iter().map(|(_, key, _)| key).collect();
            assert!(
                [&[&b"a"[..], b"d", b"n"][..], &[b"e"]]
                    .contains(&&*names.iter().map(|name| &**name).collect::<Vec<_>>()),
                "seed {seed}, {end} of {}: {names:?}",
                log.len()
            );
        }
    }
}

/// A key that is an actor's, among three.
pub(crate) fn key_of(actor: usize) -> String {
    let is_its = |key: &String| Routes::over(3).actor_of(group_of(key.as_bytes())).index() == actor;
    (0..).map(|number| format!("key{number}")).find(is_its).expect("one")
}

/// Three actors with a log and a client each; the keys have replicas at all.
fn logged(seed: u64, keys: &[&str]) -> (World, [Client; 3]) {
    let mut world = World::new(3, seed);
    world.begin_log();
    let clients = [0, 1, 2].map(|actor| world.client(actor));
    for key in keys {
        world.call(clients[0], &["SAV.REPLICATE", key, "FULL"]);
    }
    world.quiesce().expect("an end");
    // New ones have not been at any key's first replica.
    let clients = [0, 1, 2].map(|actor| world.client(actor));
    (world, clients)
}

#[test]
fn keys_that_lose_their_replicas_during_a_flush_do_not_come_back() {
    for seed in 0..60 {
        let (mut world, clients) = logged(seed, &KEYS);
        for key in KEYS {
            world.call(clients[0], &["SET", key, "old"]);
        }
        world.quiesce().expect("an end");
        for key in KEYS {
            world.call(clients[0], &["SAV.REPLICATE", key, "1"]);
        }
        // All hear of that, and who has heard it says so meanwhile.
        for _ in 0..2 {
            world.pass(PERIOD);
            world.settle();
        }
        for _ in 0..2 {
            world.pass(PERIOD);
        }
        let asker = clients[(seed % 3) as usize];
        if seed % 2 == 0 {
            assert_eq!(world.call(asker, &["FLUSHALL"]), "OK");
        } else {
            assert_eq!(exec(&mut world, asker, &[vec!["FLUSHALL"], vec!["GET", "a"]]).to_string(), "[2] OK nil");
        }
        world.quiesce().expect("an end");
        assert!(world.actors().all(|actor| contents_of(actor.keys()).is_empty()), "seed {seed}");
        let log = records(&mut world);
        assert_eq!(contents(&world.replayed(&log)), [], "seed {seed}");
    }
}

#[test]
fn what_is_written_behind_a_flush_stays_where_others_hear_of_the_flush_later() {
    for seed in 0..60 {
        let (mut world, clients) = logged(seed, &KEYS);
        for key in KEYS {
            world.call(clients[0], &["SET", key, "old"]);
        }
        world.quiesce().expect("an end");
        let asker = clients[(seed % 3) as usize];
        world.call(asker, &["MULTI"]);
        world.call(asker, &["FLUSHALL"]);
        KEYS.iter().for_each(|key| drop(world.call(asker, &["SET", key, "new"])));
        world.request(asker, &["EXEC"]).expect_err("a reply later");
        for _ in 0..60 {
            if world.chance.below(4) == 0 {
                world.pass(PERIOD);
            } else {
                world.deliver_one();
            }
        }
        world.quiesce().expect("an end");
        for actor in world.actors() {
            let values = contents_of(actor.keys());
            assert_eq!(values.len(), KEYS.len(), "seed {seed}: {values:?}");
            assert!(values.iter().all(|(.., value)| value.contains("new")), "seed {seed}: {values:?}");
        }
        let log = records(&mut world);
        assert_eq!(contents(&world.replayed(&log)), contents(world.actor(0).keys()), "seed {seed}");
    }
}

#[test]
fn what_a_copy_has_not_told_is_flushed_by_the_actor_that_borrows_the_key() {
    for seed in 0..10 {
        let key = key_of(2);
        let (mut world, clients) = logged(seed, &[&key]);
        let other = world.client(1);
        world.call(clients[0], &["SADD", &key, "old"]);
        world.quiesce().expect("an end");
        for words in [&["MULTI"][..], &["FLUSHALL"], &["SADD", &key, "new"]] {
            world.call(clients[1], words);
        }
        world.request(clients[1], &["EXEC"]).expect_err("a reply later");
        let added = world.request(other, &["SADD", &key, "late"]).expect("the copy answers");
        assert_eq!(added.to_string(), "1");
        world.settle_requests();
        let seen = world.request(other, &["SISMEMBER", &key, "old"]).expect("the copy answers");
        assert_eq!(seen.to_string(), "0", "it was flushed");
        world.quiesce().expect("an end");
        let log = records(&mut world);
        let replayed = contents(&world.replayed(&log));
        assert!(world.actors().all(|actor| contents(actor.keys()) == replayed), "seed {seed}: {replayed:?}");
        assert_eq!(world.call(other, &["SMEMBERS", &key]), "~1 \"new\"", "seed {seed}");
    }
}

/// The last of three actors has added to its copy of a set of the second, and hears then that it has none any more.
fn given_up_with_something_untold(seed: u64) -> (World, [Client; 3]) {
    let key = key_of(1);
    let (mut world, clients) = logged(seed, &[&key]);
    world.call(clients[1], &["SADD", &key, "old"]);
    world.quiesce().expect("an end");
    world.is_orderly = true;
    world.call(clients[1], &["SAV.REPLICATE", &key, "1"]);
    for _ in 0..2 {
        world.pass(PERIOD);
    }
    let added = world.request(clients[2], &["SADD", &key, "late"]).expect("the copy answers");
    assert_eq!(added.to_string(), "1");
    world.deliver_from(1);
    assert!(!world.actor(2).keys().serves(0, key.as_bytes()));
    (world, clients)
}

fn assert_all_empty(mut world: World, seed: u64) {
    world.quiesce().expect("an end");
    for actor in world.actors() {
        assert_eq!(contents(actor.keys()), [], "seed {seed}");
    }
    let log = records(&mut world);
    assert_eq!(contents(&world.replayed(&log)), [], "seed {seed}");
}

#[test]
fn what_a_copy_that_was_given_up_has_not_told_is_flushed() {
    for seed in 0..10 {
        let (mut world, clients) = given_up_with_something_untold(seed);
        assert_eq!(world.call(clients[0], &["FLUSHALL"]), "OK");
        assert_all_empty(world, seed);
    }
}

#[test]
fn what_was_told_before_a_flush_is_flushed_though_it_is_heard_while_all_is_held() {
    for seed in 0..10 {
        let (mut world, clients) = given_up_with_something_untold(seed);
        for _ in 0..2 {
            world.pass(PERIOD);
        }
        world.request(clients[0], &["FLUSHALL"]).expect_err("a reply later");
        world.deliver_from(0);
        world.deliver_from(2);
        world.settle();
        assert_all_empty(world, seed);
    }
}

#[test]
fn a_transaction_of_a_client_that_has_gone_has_nobody_told_of_changes() {
    let mut world = World::new(2, 3);
    let (gone, other) = (world.client(0), world.client(1));
    world.call(gone, &["HELLO", "3"]);
    world.call(gone, &["MULTI"]);
    world.call(gone, &["CLIENT", "TRACKING", "ON", "BCAST"]);
    world.call(gone, &["MGET", "a", "b", "c", "d"]);
    world.request(gone, &["EXEC"]).expect_err("a reply later");
    world.close(gone);
    world.settle();
    let tracking = world.call(other, &["INFO", "clients"]);
    assert!(tracking.contains("tracking_clients:0"), "{tracking}");
    assert!(world.actors().all(|actor| !actor.keys().log.notes_changed_keys()));
}

#[test]
fn who_sends_itself_away_in_a_transaction_ends_behind_its_reply() {
    for (actors, others) in [(1, 0), (3, 0), (3, 2)] {
        let mut world = World::new(actors, 5);
        let client = world.client(others);
        let number = world.call(client, &["CLIENT", "ID"]);
        let kill = vec!["CLIENT", "KILL", "ID", &number, "SKIPME", "no"];
        for steps in [vec![vec!["SET", "a", "1"], kill.clone()], vec![kill.clone(), vec!["DBSIZE"]]] {
            world.call(client, &["MULTI"]);
            steps.iter().for_each(|words| drop(world.call(client, words)));
            let reply = match world.request(client, &["EXEC"]) {
                Ok(reply) => reply,
                Err(ticket) => {
                    assert!(world.actor_mut(others).take_closing().is_empty(), "before it is answered");
                    let reply = wait(&mut world, client, ticket);
                    assert_eq!(world.actor_mut(others).take_closing(), [client.session]);
                    reply
                }
            };
            assert!(world.actor_mut(others).take_dismissed().is_empty(), "it is to have all that it was told");
            assert_eq!(reply.elements().len(), 2, "{reply}");
        }
    }
}
