//! Streams: who waits at the end of one hears all that comes, and a group shares it.

use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;
use savanna_lattice::UnixMillis;

use crate::world::{Client, World};

/// A client that reads on and on.
struct Reader {
    client: Client,
    /// Its consumer's name, if it is one of the group; others read all.
    consumer: Option<String>,
    /// Behind which entry it reads, if it is not one of the group.
    last: String,
    awaited: Option<Ticket>,
    heard: Vec<String>,
}

impl Reader {
    fn ask(&mut self, world: &mut World) {
        let reply = match &self.consumer {
            Some(name) => {
                let words =
                    ["XREADGROUP", "GROUP", "g", name, "COUNT", "2", "BLOCK", "0", "STREAMS", "a", "b", ">", ">"];
                world.request(self.client, &words)
            }
            None => world.request(self.client, &["XREAD", "BLOCK", "0", "STREAMS", "a", &self.last]),
        };
        match reply {
            Ok(reply) => self.hear(&reply),
            Err(ticket) => self.awaited = Some(ticket),
        }
    }

    fn collect(&mut self, world: &mut World) {
        if let Some(ticket) = self.awaited
            && let Some(reply) = world.arrived(self.client, ticket)
        {
            self.awaited = None;
            self.hear(&reply);
        }
    }

    fn hear(&mut self, reply: &Tape) {
        let words: Vec<String> = reply
            .values()
            .filter_map(|value| match value {
                Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            })
            .collect();
        for entry in words.windows(3).filter(|words| words[1] == "n") {
            self.last.clone_from(&entry[0]);
            self.heard.push(entry[2].clone());
        }
    }
}

#[test]
fn who_waits_hears_all_that_comes_and_a_group_each_entry_once() {
    const ADDED: usize = 50;
    for seed in 0..100 {
        let actors = 1 + (seed % 3) as u16;
        let mut world = World::new(actors, seed);
        let writer = world.client(0);
        for key in ["a", "b"] {
            world.call(writer, &["XADD", key, "*", "old", "entry"]);
            world.call(writer, &["XGROUP", "CREATE", key, "g", "$"]);
        }
        let mut readers: Vec<Reader> = (0..6)
            .map(|index| Reader {
                client: world.client(index % usize::from(actors)),
                consumer: (index % 2 == 0).then(|| format!("c{index}")),
                last: "$".to_owned(),
                awaited: None,
                heard: Vec::new(),
            })
            .collect();
        readers.iter_mut().for_each(|reader| reader.ask(&mut world));
        world.settle();
        let (mut all, mut of_first) = (Vec::new(), Vec::new());
        while all.len() < ADDED {
            match world.chance.below(6) {
                0..3 => drop(world.deliver_one()),
                3 => {
                    let key = ["a", "b"][world.chance.below(2)];
                    let number = format!("{key}{}", all.len());
                    if key == "a" {
                        of_first.push(number.clone());
                    }
                    let _ = world.request(writer, &["XADD", key, "*", "n", &number]);
                    all.push(number);
                }
                _ => {
                    let index = world.chance.below(readers.len());
                    readers[index].collect(&mut world);
                    if readers[index].awaited.is_none() {
                        readers[index].ask(&mut world);
                    }
                }
            }
        }
        // Until nobody hears anything more.
        for _ in 0..2 * ADDED {
            world.settle();
            for reader in &mut readers {
                reader.collect(&mut world);
                if reader.awaited.is_none() {
                    reader.ask(&mut world);
                }
            }
        }
        let mut shared = Vec::new();
        for reader in readers {
            match reader.consumer {
                Some(_) => shared.extend(reader.heard),
                None => assert_eq!(reader.heard, of_first, "seed {seed}"),
            }
        }
        shared.sort();
        all.sort();
        assert_eq!(shared, all, "seed {seed}");
    }
}

#[test]
fn who_found_nothing_is_not_called_again_until_something_comes() {
    let mut world = World::new(2, 3);
    let (one, two) = (world.client(0), world.client(1));
    world.call(one, &["XGROUP", "CREATE", "a", "g", "0", "MKSTREAM"]);
    let words = ["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "a", ">"];
    let tickets: Vec<Ticket> =
        [one, two].into_iter().map(|client| world.request(client, &words).expect_err("nothing there")).collect();
    // It ends: they do not call each other for ever.
    world.settle();
    world.call(one, &["XADD", "a", "*", "n", "1"]);
    world.settle();
    let served =
        [one, two].into_iter().zip(tickets).filter(|(client, ticket)| world.arrived(*client, *ticket).is_some());
    assert_eq!(served.count(), 1);
    assert!([one, two].iter().any(|client| world.actor(client.actor).is_waiting(client.session)));
}

#[test]
fn who_asks_for_the_last_entry_until_its_time_is_over_looks_once_all_the_same() {
    let mut world = World::new(3, 5);
    let writer = world.client(0);
    for key in ["a", "b", "c"] {
        world.call(writer, &["XADD", key, "1-1", "n", key]);
    }
    for actor in 0..3 {
        let client = world.client(actor);
        let words = ["XREAD", "BLOCK", "1", "STREAMS", "a", "b", "c", "0", "$", "$"];
        let ticket = world.request(client, &words).expect_err("keys of other actors");
        let now = UnixMillis(world.now.0 + 2);
        world.tick(now);
        world.settle();
        let reply = world.arrived(client, ticket).expect("a reply").to_string();
        assert!(reply.contains("\"1-1\" [2] \"n\" \"a\""), "{reply}");
    }
}
