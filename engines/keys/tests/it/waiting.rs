//! Requests that wait: each element goes to one of them, in fair order, and none is lost.

use std::collections::HashSet;

use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;
use savanna_lattice::UnixMillis;

use crate::world::{Client, NOW, World};

/// A client that waits for an element of some keys, again and again.
struct Worker {
    client: Client,
    awaited: Option<Ticket>,
}

fn element(reply: &Tape) -> Option<String> {
    reply
        .values()
        .filter_map(|value| if let Value::Bulk(bytes) = value { Some(bytes) } else { None })
        .last()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[test]
fn each_pushed_element_is_given_to_one_waiter_and_none_is_lost() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    const REQUESTS: [&[&str]; 6] = [
        &["BLPOP", "a", "0"],
        &["BRPOP", "d", "b", "0.005"],
        &["BLPOP", "a", "b", "c", "d", "0"],
        &["BLMPOP", "0", "2", "c", "a", "LEFT"],
        &["BLMOVE", "a", "moved", "LEFT", "RIGHT", "0.003"],
        &["BRPOPLPUSH", "c", "moved", "0"],
    ];
    for seed in 0..150 {
        let actors = 1 + (seed % 3) as u16;
        let mut world = World::new(actors, seed);
        let pusher = world.client(0);
        let mut workers: Vec<Worker> =
            (0..7).map(|index| Worker { client: world.client(index % usize::from(actors)), awaited: None }).collect();
        let (mut pushed, mut given, mut now) = (0, Vec::new(), NOW);
        // Replies of waiters whose client went away are not seen by anybody.
        let mut gone = 0;
        while pushed < 60 {
            match world.chance.below(8) {
                0..4 => drop(world.deliver_one()),
                4 => {
                    let key = KEYS[world.chance.below(KEYS.len())];
                    let count = 1 + world.chance.below(3);
                    let elements: Vec<String> = (pushed..pushed + count).map(|number| number.to_string()).collect();
                    pushed += count;
                    let mut words = vec!["RPUSH", key];
                    words.extend(elements.iter().map(String::as_str));
                    let _ = world.request(pusher, &words);
                }
                5 => {
                    now = UnixMillis(now.0 + 1);
                    world.tick(now);
                }
                6 if gone < 2 && world.chance.below(20) == 0 => {
                    let index = world.chance.below(workers.len());
                    let client = workers[index].client;
                    world.settle();
                    world.close(client);
                    gone += 1;
                    collect(&mut world, &mut workers[index], &mut given);
                    workers[index] = Worker { client: world.client(client.actor), awaited: None };
                }
                _ => {
                    let index = world.chance.below(workers.len());
                    let worker = &mut workers[index];
                    collect(&mut world, worker, &mut given);
                    if worker.awaited.is_none() {
                        let words = REQUESTS[world.chance.below(REQUESTS.len())];
                        match world.request(worker.client, words) {
                            Ok(reply) => given.extend(element(&reply)),
                            Err(ticket) => worker.awaited = Some(ticket),
                        }
                    }
                }
            }
        }
        world.settle();
        workers.iter_mut().for_each(|worker| collect(&mut world, worker, &mut given));
        let mut left = Vec::new();
        for key in KEYS {
            let reply = world.call(pusher, &["LRANGE", key, "0", "-1"]);
            left.extend(reply.split('"').skip(1).step_by(2).map(str::to_owned));
        }
        // What was moved was given to its waiter, too.
        let all: Vec<&String> = given.iter().chain(&left).collect();
        let distinct: HashSet<&&String> = all.iter().collect();
        assert_eq!(all.len(), distinct.len(), "doubled; seed {seed}");
        assert_eq!(all.len(), pushed, "lost; seed {seed}");
        for worker in &workers {
            if worker.awaited.is_none() {
                assert!(!world.actors[worker.client.actor].is_waiting(worker.client.session), "seed {seed}");
            }
        }
    }
}

fn collect(world: &mut World, worker: &mut Worker, given: &mut Vec<String>) {
    if let Some(ticket) = worker.awaited
        && let Some(reply) = world.arrived(worker.client, ticket)
    {
        worker.awaited = None;
        given.extend(element(&reply));
    }
}

#[test]
fn who_waited_first_is_served_first_wherever_the_key_is() {
    for seed in 0..30 {
        let mut world = World::new(3, seed);
        let clients: Vec<Client> = (0..6).map(|index| world.client(index % 3)).collect();
        let mut tickets = Vec::new();
        for client in &clients {
            tickets.push(world.request(*client, &["BLPOP", "a", "b", "0"]).expect_err("nothing there"));
            world.settle();
        }
        let pusher = world.client(1);
        world.call(pusher, &["RPUSH", "b", "1", "2", "3"]);
        world.settle();
        world.call(pusher, &["RPUSH", "a", "4", "5", "6"]);
        world.settle();
        for (index, (client, ticket)) in clients.iter().zip(tickets).enumerate() {
            let reply = world.arrived(*client, ticket).expect("it was served");
            assert_eq!(element(&reply), Some((index + 1).to_string()), "seed {seed}");
        }
    }
}

#[test]
fn waiting_ends_in_time_and_by_other_clients() {
    for actors in 1..4 {
        let mut world = World::new(actors, 1);
        let (one, two) = (world.client(0), world.client(usize::from(actors) - 1));
        let ticket = world.request(one, &["BLPOP", "a", "b", "c", "1.5"]).expect_err("nothing there");
        world.settle();
        world.tick(UnixMillis(NOW.0 + 1499));
        assert!(world.arrived(one, ticket).is_none());
        world.tick(UnixMillis(NOW.0 + 1500));
        assert_eq!(world.arrived(one, ticket).expect("a reply").to_string(), "nil");
        for (how, expected) in [("TIMEOUT", "nil"), ("ERROR", "!UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
            let id = world.call(one, &["CLIENT", "ID"]);
            let ticket = world.request(one, &["BZPOPMIN", "a", "b", "0"]).expect_err("nothing there");
            world.settle();
            assert_eq!(world.call(two, &["CLIENT", "UNBLOCK", &id, how]), "1");
            assert_eq!(world.call(two, &["CLIENT", "UNBLOCK", &id, how]), "0");
            world.settle();
            assert_eq!(world.arrived(one, ticket).expect("a reply").to_string(), expected);
        }
    }
}

#[test]
fn only_what_is_of_the_right_type_ends_the_waiting_and_transactions_do_not_wait() {
    let mut world = World::new(2, 7);
    let (one, two) = (world.client(0), world.client(1));
    let ticket = world.request(one, &["BLPOP", "a", "b", "0"]).expect_err("nothing there");
    world.settle();
    world.call(two, &["SET", "a", "text"]);
    world.call(two, &["ZADD", "b", "1", "member"]);
    world.settle();
    assert!(world.arrived(one, ticket).is_none());
    world.call(two, &["DEL", "b"]);
    world.call(two, &["RPUSH", "{b}2", "x"]);
    world.call(two, &["RENAME", "{b}2", "b"]);
    world.settle();
    assert_eq!(world.arrived(one, ticket).expect("a reply").to_string(), "[2] \"b\" \"x\"");
    world.call(two, &["MULTI"]);
    world.call(two, &["BLPOP", "b", "c", "0"]);
    world.call(two, &["BLMOVE", "b", "c", "LEFT", "LEFT", "0"]);
    assert_eq!(world.call(two, &["EXEC"]), "[2] nil nil");
}
