//! SCAN shows everything that stays, whatever else happens meanwhile.

use std::collections::{BTreeSet, HashMap, HashSet};

use savanna_keys::reply::{Tape, Value};
use savanna_keys::slot::HashSlot;

use crate::world::{Client, World};

fn step(world: &mut World, client: Client, words: &[&str]) -> (String, Vec<String>) {
    let reply = match world.request(client, words) {
        Ok(tape) => tape,
        Err(ticket) => {
            world.settle();
            world.arrived(client, ticket).expect("a reply")
        }
    };
    let mut texts = reply.values().filter_map(|value| match value {
        Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    let cursor = texts.next().expect("a cursor");
    (cursor, texts.collect())
}

#[test]
fn keys_that_stay_are_shown_while_others_come_and_go() {
    for actors in [1, 3] {
        let mut world = World::new(actors, 5);
        let client = world.client(0);
        let staying: HashSet<String> = (0..500).map(|number| format!("stays:{number}")).collect();
        for key in &staying {
            world.call(client, &["SET", key, "x"]);
        }
        let mut seen = HashSet::new();
        let mut cursor = "0".to_owned();
        let mut round = 0;
        loop {
            let (next, keys) = step(&mut world, client, &["SCAN", &cursor, "COUNT", "7"]);
            assert!(keys.len() < 20, "about as many as were asked for, not {}", keys.len());
            seen.extend(keys);
            for number in 0..20 {
                world.call(client, &["SET", &format!("comes:{round}:{number}"), "x"]);
                world.call(client, &["DEL", &format!("comes:{}:{number}", round - 1)]);
            }
            round += 1;
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        assert!(seen.is_superset(&staying), "{actors} actors");
    }
}

#[test]
fn members_that_stay_are_shown_while_others_come_and_go() {
    for (add, remove, scan) in [("SADD", "SREM", "SSCAN"), ("HSET", "HDEL", "HSCAN")] {
        let mut world = World::new(1, 5);
        let client = world.client(0);
        let write = |world: &mut World, member: &str| match add {
            "HSET" => world.call(client, &[add, "k", member, "v"]),
            _ => world.call(client, &[add, "k", member]),
        };
        let staying: HashSet<String> = (0..300).map(|number| format!("stays:{number}")).collect();
        for (number, member) in staying.iter().enumerate() {
            write(&mut world, member);
            write(&mut world, &format!("goes:{number}"));
        }
        let mut seen = HashSet::new();
        let mut cursor = "0".to_owned();
        let mut going = 0;
        loop {
            let (next, members) = step(&mut world, client, &[scan, "k", &cursor, "COUNT", "9"]);
            seen.extend(members);
            for _ in 0..5 {
                world.call(client, &[remove, "k", &format!("goes:{going}")]);
                write(&mut world, &format!("comes:{going}"));
                going += 1;
            }
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        assert!(seen.is_superset(&staying), "{scan}");
    }
}

#[test]
fn a_cursor_that_is_none_is_refused() {
    let mut world = World::new(2, 0);
    let client = world.client(0);
    for cursor in ["x", "-", "1.5", "18446744073709551616"] {
        assert_eq!(world.call(client, &["SCAN", cursor]), "!ERR invalid cursor");
    }
    let mut end = Tape::new();
    savanna_keys::reply::Reply::bulk(&mut end, b"0");
    // As in Redis, negative ones count down from the largest.
    for cursor in ["281474976710655", "-1", "18446744073709551615"] {
        assert!(world.call(client, &["SCAN", cursor]).starts_with("[2] \"0\""), "past the end");
    }
}

#[test]
fn a_slot_has_its_own_keys_once_whoever_keeps_copies_of_them() {
    for actors in [1, 3] {
        let mut world = World::new(actors, 5);
        let client = world.client(0);
        world.actor_mut(0).note_cluster_port(client.session);
        let mut slots: HashMap<u16, BTreeSet<String>> = HashMap::new();
        let tagged = (0..20).map(|number| format!("{{tag}}:{number}"));
        for key in tagged.chain((0..200).map(|number| format!("key:{number}"))) {
            world.call(client, &["SET", &key, "x"]);
            slots.entry(HashSlot::of(key.as_bytes()).get()).or_default().insert(key);
        }
        world.call(client, &["SAV.REPLICATE", "{tag}:0", "FULL"]);
        world.quiesce().expect("an end");
        let empty = (0..).find(|slot| !slots.contains_key(slot)).expect("not all have keys");
        slots.insert(empty, BTreeSet::new());
        for (slot, keys) in slots {
            let slot = slot.to_string();
            assert_eq!(world.call(client, &["CLUSTER", "COUNTKEYSINSLOT", &slot]), keys.len().to_string());
            let found = match world.request(client, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) {
                Ok(tape) => tape,
                Err(ticket) => {
                    world.settle();
                    world.arrived(client, ticket).expect("a reply")
                }
            };
            let found: Vec<String> = found
                .values()
                .filter_map(|value| match value {
                    Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                    _ => None,
                })
                .collect();
            assert_eq!(found.len(), keys.len(), "each once");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), keys, "slot {slot} of {actors} actors");
        }
    }
}
