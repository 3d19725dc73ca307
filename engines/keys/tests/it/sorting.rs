//! Sorting by keys that patterns name is one step, wherever these keys are and whatever becomes of the elements meanwhile.

use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;

use crate::world::{Client, World};

/// How a reader gets the weights of all elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// By one `SORT`, which is right.
    Sorting,
    /// It asks for the elements first, and then for the weights of these.
    Twice,
}

fn words(reply: &Tape) -> Vec<String> {
    let text = |value: Value<'_>| match value {
        Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Null => Some("none".to_owned()),
        _ => None,
    };
    reply.values().filter_map(text).collect()
}

/// A client with a request under way.
struct Worker {
    client: Client,
    awaited: Option<Ticket>,
}

impl Worker {
    /// Whether it may ask again; gives the reply that came.
    fn reply(&mut self, world: &mut World) -> Option<Option<Tape>> {
        let Some(ticket) = self.awaited else { return Some(None) };
        let reply = world.arrived(self.client, ticket)?;
        self.awaited = None;
        Some(Some(reply))
    }

    fn ask(&mut self, world: &mut World, words: &[String]) -> Option<Tape> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match world.request(self.client, &words) {
            Ok(reply) => Some(reply),
            Err(ticket) => {
                self.awaited = Some(ticket);
                None
            }
        }
    }
}

/// A writer puts other elements into the set, with their weights, in one step; elements have weights as long as they are in
/// it. Says whether a reader saw one without, and how many of its requests were answered.
fn sees_a_part(seed: u64, reading: Reading) -> (bool, usize) {
    let actors = 1 + (seed % 4) as u16;
    let mut world = World::new(actors, seed);
    let mut writer = Worker { client: world.client(0), awaited: None };
    let mut reader = Worker { client: world.client(seed as usize % usize::from(actors)), awaited: None };
    let (mut generation, mut answered, mut is_part_seen) = (0, 0, false);
    let mut elements: Option<Vec<String>> = None;
    while generation < 25 {
        match world.chance.below(6) {
            0..4 => drop(world.deliver_one()),
            4 => {
                if writer.reply(&mut world).is_some() {
                    let here = |words: &[&str], world: &mut World| drop(world.request(writer.client, words));
                    here(&["MULTI"], &mut world);
                    for place in ["a", "b", "c"] {
                        let (old, new) = (format!("{place}{generation}"), format!("{place}{}", generation + 1));
                        here(&["SREM", "set", &old], &mut world);
                        here(&["SADD", "set", &new], &mut world);
                        here(&["DEL", &format!("w_{old}")], &mut world);
                        here(&["SET", &format!("w_{new}"), "1"], &mut world);
                    }
                    generation += 1;
                    writer.ask(&mut world, &["EXEC".to_owned()]);
                }
            }
            _ => {
                let Some(came) = reader.reply(&mut world) else { continue };
                let reply = came.or_else(|| {
                    let request = match (&elements, reading) {
                        (_, Reading::Sorting) => "SORT set BY w_* GET w_*".to_owned(),
                        (None, Reading::Twice) => "SMEMBERS set".to_owned(),
                        (Some(elements), Reading::Twice) => format!("MGET w_{}", elements.join(" w_")),
                    };
                    let request: Vec<String> = request.split(' ').map(str::to_owned).collect();
                    reader.ask(&mut world, &request)
                });
                let Some(reply) = reply else { continue };
                if let Some(Value::Error(refusal)) = reply.first() {
                    // By chance the writer is faster, time after time.
                    assert!(refusal.starts_with("ERR the elements kept changing"), "{refusal}");
                    continue;
                }
                let found = words(&reply);
                if reading == Reading::Twice && elements.is_none() && !found.is_empty() {
                    elements = Some(found);
                } else {
                    elements = None;
                    answered += 1;
                    is_part_seen |= reading == Reading::Sorting && !matches!(found.len(), 0 | 3);
                    is_part_seen |= found.iter().any(|weight| weight == "none");
                }
            }
        }
    }
    (is_part_seen, answered)
}

#[test]
fn who_sorts_by_other_keys_sees_all_elements_with_theirs() {
    let mut answered = 0;
    for seed in 0..300 {
        let (is_part_seen, count) = sees_a_part(seed, Reading::Sorting);
        assert!(!is_part_seen, "seed {seed}");
        answered += count;
    }
    assert!(answered > 1_000, "{answered}");
}

#[test]
fn who_asks_twice_may_see_elements_without_their_keys() {
    assert!((0..300).any(|seed| sees_a_part(seed, Reading::Twice).0));
}

#[test]
fn what_cannot_be_found_out_in_a_transaction_or_a_script_is_refused() {
    for actors in [1, 3] {
        let mut world = World::new(actors, 1);
        let client = world.client(0);
        world.call(client, &["RPUSH", "list", "2", "1"]);
        world.call(client, &["MSET", "w_1", "9", "w_2", "8"]);
        world.call(client, &["MULTI"]);
        let queued = world.call(client, &["SORT", "list", "BY", "w_*"]);
        let done = world.call(client, &["EXEC"]);
        let script = "return redis.call('SORT', KEYS[1], 'BY', 'w_*')";
        let scripted = world.call(client, &["EVAL", script, "1", "list"]);
        if actors == 1 {
            assert_eq!((queued, done), ("QUEUED".to_owned(), format!("[1] {scripted}")));
        } else {
            assert!(queued.contains("SORT is not allowed in a transaction"), "{queued}");
            assert!(done.contains("EXECABORT"), "{done}");
            assert!(scripted.contains("not allowed from script"), "{scripted}");
        }
    }
}
