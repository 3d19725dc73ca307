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
        // Until nobody hears anything more; in some worlds nobody of the group asks again.
        for _ in 0..2 * ADDED {
            world.settle();
            for reader in &mut readers {
                reader.collect(&mut world);
                if reader.awaited.is_none() && (seed % 2 == 0 || reader.consumer.is_none()) {
                    reader.ask(&mut world);
                }
            }
        }
        // Who waits waits for nothing that is there.
        for key in ["a", "b"] {
            let waits = |reader: &Reader| reader.consumer.is_some() && reader.awaited.is_some();
            let groups = world.call(writer, &["XINFO", "GROUPS", key]);
            assert!(groups.contains("\"lag\" 0") || !readers.iter().any(waits), "seed {seed}: {groups}");
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
        if seed % 2 == 0 {
            assert_eq!(shared, all, "seed {seed}");
        }
    }
}

#[test]
fn who_is_called_for_two_streams_at_once_leaves_none_behind() {
    for seed in 0..200 {
        let mut world = World::new(3, seed);
        let writer = world.client(0);
        for key in ["a", "b", "c"] {
            world.call(writer, &["XGROUP", "CREATE", key, "g", "$", "MKSTREAM"]);
        }
        let readers: Vec<Client> = (0..3).map(|actor| world.client(actor)).collect();
        let words = ["XREADGROUP", "GROUP", "g", "w", "BLOCK", "0", "STREAMS", "a", "b", "c", ">", ">", ">"];
        let tickets: Vec<Ticket> =
            readers.iter().map(|client| world.request(*client, &words).expect_err("nothing there")).collect();
        world.settle();
        for key in ["a", "b", "c"] {
            let _ = world.request(writer, &["XADD", key, "*", "n", key]);
            for _ in 0..world.chance.below(4) {
                world.deliver_one();
            }
        }
        world.settle();
        // Three who wait for one stream each get what is there; one of them may have got more at once.
        let lags: Vec<String> = ["a", "b", "c"].map(|key| world.call(writer, &["XINFO", "GROUPS", key])).into();
        let is_left = lags.iter().any(|groups| !groups.contains("\"lag\" 0"));
        let waits = readers.iter().zip(tickets).any(|(client, ticket)| world.arrived(*client, ticket).is_none());
        assert!(!(is_left && waits), "seed {seed}: {lags:?}");
    }
}

#[test]
fn the_consumers_of_a_group_are_served_in_turn() {
    let mut world = World::new(2, 11);
    let writer = world.client(0);
    world.call(writer, &["XGROUP", "CREATE", "a", "g", "$", "MKSTREAM"]);
    let consumers: Vec<Client> = (0..4).map(|index| world.client(index % 2)).collect();
    let ask = |world: &mut World, client: Client| {
        let words = ["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "a", ">"];
        let ticket = world.request(client, &words).expect_err("nothing there");
        world.settle();
        ticket
    };
    let mut tickets: Vec<Ticket> = consumers.iter().map(|client| ask(&mut world, *client)).collect();
    for number in 0..12 {
        world.call(writer, &["XADD", "a", "*", "n", "1"]);
        world.settle();
        let index = number % consumers.len();
        assert!(world.arrived(consumers[index], tickets[index]).is_some(), "entry {number}");
        tickets[index] = ask(&mut world, consumers[index]);
    }
}

#[test]
fn a_stream_that_comes_by_a_swap_is_heard_of() {
    let mut world = World::new(1, 2);
    let (reader, writer) = (world.client(0), world.client(0));
    world.call(writer, &["SELECT", "1"]);
    world.call(writer, &["XADD", "s", "5-1", "f", "v"]);
    world.call(writer, &["SELECT", "0"]);
    world.call(writer, &["XADD", "s", "1-1", "a", "b"]);
    let ticket = world.request(reader, &["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]).expect_err("nothing there");
    world.call(writer, &["SWAPDB", "0", "1"]);
    world.settle();
    let reply = world.arrived(reader, ticket).expect("it was served").to_string();
    assert!(reply.contains("\"5-1\""), "{reply}");
}

#[test]
fn an_entry_may_follow_a_deleted_one_with_a_higher_number() {
    let mut world = World::new(1, 2);
    let client = world.client(0);
    for words in ["XADD s 5-1 a b", "XADD s 6-1 a b", "XDEL s 6-1", "XSETID s 5-1", "XADD s 5-2 a b"] {
        world.call(client, &words.split(' ').collect::<Vec<_>>());
    }
    let entries = world.call(client, &["XRANGE", "s", "-", "+"]);
    assert!(entries.contains("\"5-1\"") && entries.contains("\"5-2\"") && !entries.contains("\"6-1\""), "{entries}");
    assert_eq!(world.call(client, &["XLEN", "s"]), "2");
    let refused = world.call(client, &["XADD", "s", "LIMIT", "0", "*", "a", "b"]);
    assert!(refused.contains("special ~ option"), "{refused}");
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

#[test]
fn blocks_have_as_many_entries_as_is_set_and_rough_trimming_removes_whole_ones() {
    let mut world = World::new(1, 1);
    let client = world.client(0);
    world.call(client, &["CONFIG", "SET", "stream-node-max-entries", "2"]);
    for _ in 0..3 {
        world.call(client, &["XADD", "stream", "*", "field", "value"]);
    }
    assert_eq!(world.call(client, &["XTRIM", "stream", "MAXLEN", "~", "0", "LIMIT", "1"]), "0");
    assert_eq!(world.call(client, &["XTRIM", "stream", "MAXLEN", "~", "0", "LIMIT", "2"]), "2");
}
