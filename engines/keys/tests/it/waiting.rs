//! Requests that wait: each element goes to one of them, in fair order, and none is lost.

use std::collections::HashSet;

use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;
use savanna_lattice::UnixMillis;

use crate::replicas::replicated;
use crate::world::{Client, NOW, World};

/// A client that takes elements of some keys, again and again.
struct Worker {
    client: Client,
    awaited: Option<Ticket>,
    /// What it looked at, where it looks first.
    seen: Option<String>,
}

impl Worker {
    const fn of(client: Client) -> Self {
        Self { client, awaited: None, seen: None }
    }
}

/// How clients take elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    /// By commands that wait, which is right.
    Waiting,
    /// They look and then take, which is not one step.
    LookingFirst,
    /// As `Waiting`, but who leaves does so while an element may be on its way to it.
    Vanishing,
}

fn element(reply: &Tape) -> Option<String> {
    reply
        .values()
        .filter_map(|value| if let Value::Bulk(bytes) = value { Some(bytes) } else { None })
        .last()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Clients take what one pushes, with random delays, times that are over, and clients that leave; then what is wrong with
/// what they were given, if anything.
fn objection(seed: u64, taking: Taking) -> Option<String> {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    const REQUESTS: [&[&str]; 6] = [
        &["BLPOP", "a", "0"],
        &["BRPOP", "d", "b", "0.005"],
        &["BLPOP", "a", "b", "c", "d", "0"],
        &["BLMPOP", "0", "2", "c", "a", "LEFT"],
        &["BLMOVE", "a", "moved", "LEFT", "RIGHT", "0.003"],
        &["BRPOPLPUSH", "c", "moved", "0"],
    ];
    let actors = 1 + (seed % 3) as u16;
    let mut world = World::new(actors, seed);
    let pusher = world.client(0);
    let mut workers: Vec<Worker> = (0..7).map(|index| Worker::of(world.client(index % usize::from(actors)))).collect();
    let (mut pushed, mut given, mut now, mut gone) = (0, Vec::new(), NOW, 0);
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
                if taking != Taking::Vanishing {
                    world.settle();
                }
                world.close(client);
                gone += 1;
                collect(&mut world, &mut workers[index], taking, &mut given);
                workers[index] = Worker::of(world.client(client.actor));
            }
            _ => {
                let index = world.chance.below(workers.len());
                let worker = &mut workers[index];
                collect(&mut world, worker, taking, &mut given);
                if worker.awaited.is_some() {
                    continue;
                }
                let (words, is_take): (&[&str], bool) = match (taking, worker.seen.take()) {
                    (Taking::LookingFirst, None) => (&["LRANGE", "a", "0", "0"], false),
                    (Taking::LookingFirst, Some(seen)) => {
                        given.push(seen);
                        (&["LPOP", "a"], true)
                    }
                    _ => (REQUESTS[world.chance.below(REQUESTS.len())], false),
                };
                match world.request(worker.client, words) {
                    // What it takes after it looked was given to it when it looked.
                    _ if is_take => {}
                    Ok(reply) => hear(worker, &reply, taking, &mut given),
                    Err(ticket) => worker.awaited = Some(ticket),
                }
            }
        }
    }
    world.settle();
    workers.iter_mut().for_each(|worker| collect(&mut world, worker, taking, &mut given));
    for worker in &workers {
        if worker.awaited.is_none() && world.actor(worker.client.actor).is_waiting(worker.client.session) {
            return Some("somebody waits who was answered".to_owned());
        }
    }
    let mut left = Vec::new();
    for key in KEYS {
        let reply = world.call(pusher, &["LRANGE", key, "0", "-1"]);
        left.extend(reply.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    // What was moved was given to its waiter, too.
    let all: Vec<&String> = given.iter().chain(&left).collect();
    let distinct: HashSet<&&String> = all.iter().collect();
    if all.len() > distinct.len() {
        return Some("an element was given twice".to_owned());
    }
    (all.len() < pushed).then(|| "an element was lost".to_owned())
}

fn collect(world: &mut World, worker: &mut Worker, taking: Taking, given: &mut Vec<String>) {
    if let Some(ticket) = worker.awaited
        && let Some(reply) = world.arrived(worker.client, ticket)
    {
        worker.awaited = None;
        hear(worker, &reply, taking, given);
    }
}

fn hear(worker: &mut Worker, reply: &Tape, taking: Taking, given: &mut Vec<String>) {
    match taking {
        Taking::LookingFirst => worker.seen = element(reply),
        Taking::Waiting | Taking::Vanishing => given.extend(element(reply)),
    }
}

#[test]
fn each_pushed_element_is_given_to_one_waiter_and_none_is_lost() {
    for seed in 0..150 {
        assert_eq!(objection(seed, Taking::Waiting), None, "seed {seed}");
    }
}

#[test]
fn the_checker_finds_elements_that_are_given_twice_or_to_somebody_who_left() {
    for (taking, expected) in
        [(Taking::LookingFirst, "an element was given twice"), (Taking::Vanishing, "an element was lost")]
    {
        let found = (0..150).find_map(|seed| objection(seed, taking));
        assert_eq!(found.as_deref(), Some(expected), "{taking:?}");
    }
}

#[test]
fn who_waits_for_a_key_with_replicas_is_served_by_what_another_replica_tells() {
    for seed in 0..30 {
        let (mut world, clients) = replicated(3, seed, &["zset"]);
        for (waiting, telling) in [(0, 1), (1, 2), (2, 0), (1, 1)] {
            let ticket = world.request(clients[waiting], &["BZPOPMIN", "zset", "0"]).expect_err("nothing there");
            world.settle_requests();
            assert_eq!(world.call(clients[telling], &["ZADD", "zset", "1", "member"]), "1");
            world.quiesce().expect("an end");
            let reply = world.arrived(clients[waiting], ticket).expect("it was served").to_string();
            assert!(reply.contains("\"member\""), "seed {seed}: {reply}");
            for client in &clients {
                assert_eq!(world.call(*client, &["EXISTS", "zset"]), "0", "seed {seed}");
            }
        }
    }
}

#[test]
fn a_script_that_reads_runs_at_the_replica_of_its_session() {
    let (mut world, clients) = replicated(3, 5, &["number"]);
    world.call(clients[0], &["SET", "number", "7"]);
    world.quiesce().expect("an end");
    for client in &clients {
        let script = ["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "number"];
        let reply = world.request(*client, &script).expect("at once, without a message");
        assert_eq!(reply.to_string(), "\"7\"");
        // What it must not do, it may not do there either.
        let refused = world.call(*client, &["EVAL_RO", "return redis.call('INCR', KEYS[1])", "1", "number"]);
        assert!(refused.contains("Write commands are not allowed"), "{refused}");
    }
    // One that may write runs at the first replica, and its change is told.
    assert_eq!(world.call(clients[1], &["EVAL", "return redis.call('INCR', KEYS[1])", "1", "number"]), "8");
    world.quiesce().expect("an end");
    for client in &clients {
        assert_eq!(world.call(*client, &["GET", "number"]), "\"8\"");
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

#[test]
fn who_waits_for_keys_of_several_actors_takes_from_the_one_that_a_transaction_pushed_to_first() {
    let requests: [(&[&str], &[&str]); 4] = [
        (&["BLMPOP", "0", "3", "a", "b", "c", "LEFT"], &["RPUSH"]),
        (&["BRPOP", "a", "b", "c", "0"], &["RPUSH"]),
        (&["BZMPOP", "0", "3", "a", "b", "c", "MIN"], &["ZADD", "1"]),
        (&["BZPOPMAX", "a", "b", "c", "0"], &["ZADD", "1"]),
    ];
    for seed in 0..60 {
        let actors = 1 + (seed % 4) as u16;
        for (waiting, pushing) in requests {
            for pushed in [["b", "a", "c"], ["c", "b", "a"], ["a", "c", "b"]] {
                let mut world = World::new(actors, seed);
                let waiter = world.client(seed as usize / 4 % usize::from(actors));
                let pusher = world.client(usize::from(actors) - 1);
                let ticket = world.request(waiter, waiting).expect_err("nothing there");
                world.settle();
                world.call(pusher, &["MULTI"]);
                // The first is pushed to once more, so that its last change is the latest.
                for key in pushed.into_iter().chain([pushed[0]]) {
                    let words: Vec<&str> =
                        [pushing[0], key].into_iter().chain(pushing[1..].iter().copied()).chain([key]).collect();
                    world.call(pusher, &words);
                }
                world.call(pusher, &["EXEC"]);
                world.settle();
                let reply = world.arrived(waiter, ticket).expect("it was served").to_string();
                assert!(reply.contains(&format!("\"{}\"", pushed[0])), "seed {seed}, {waiting:?}: {reply}");
            }
        }
    }
}

#[test]
fn who_counts_as_waiting_misses_nothing_that_comes_from_then_on() {
    for seed in 0..200 {
        let actors = 2 + (seed % 3) as u16;
        let mut world = World::new(actors, seed);
        let (waiter, pusher) = (world.client(0), world.client(usize::from(actors) - 1));
        let ticket = world.request(waiter, &["BLPOP", "a", "b", "c", "0"]).expect_err("nothing there");
        while world.actor(0).waiting_count() == 0 {
            world.deliver_one();
            world.pass(1);
        }
        world.deliver_from(0);
        world.call(pusher, &["MULTI"]);
        for key in ["b", "a", "c"] {
            world.call(pusher, &["RPUSH", key, "x"]);
        }
        world.call(pusher, &["EXEC"]);
        world.settle();
        let reply = world.arrived(waiter, ticket).expect("it was served").to_string();
        assert_eq!(reply, "[2] \"b\" \"x\"", "seed {seed}");
    }
}

#[test]
fn who_waits_behind_another_takes_what_that_one_leaves_before_what_came_later() {
    let mut world = World::new(1, 5);
    let clients: Vec<Client> = (0..5).map(|_| world.client(0)).collect();
    let wanted = [("LEFT", "1"), ("RIGHT", "10"), ("LEFT", "10"), ("RIGHT", "1")];
    let waiting: Vec<Ticket> = clients
        .iter()
        .zip(wanted)
        .map(|(client, (end, count))| {
            let request = ["BLMPOP", "0", "2", "a", "b", end, "COUNT", count];
            world.request(*client, &request).expect_err("nothing there")
        })
        .collect();
    let pusher = clients[4];
    world.call(pusher, &["MULTI"]);
    world.call(pusher, &["LPUSH", "a", "1", "2", "3"]);
    world.call(pusher, &["LPUSH", "b", "x", "y"]);
    world.call(pusher, &["EXEC"]);
    world.settle();
    let told: Vec<String> =
        (0..3).map(|index| world.arrived(clients[index], waiting[index]).expect("it was served").to_string()).collect();
    let expected = [r#"[2] "a" [1] "3""#, r#"[2] "a" [2] "1" "2""#, r#"[2] "b" [2] "y" "x""#];
    assert_eq!(told, expected);
    assert!(world.arrived(clients[3], waiting[3]).is_none());
}

#[test]
fn one_of_a_group_hears_that_its_stream_is_something_else_now() {
    let mut world = World::new(2, 3);
    let (one, two) = (world.client(0), world.client(1));
    world.call(two, &["XGROUP", "CREATE", "stream", "group", "$", "MKSTREAM"]);
    let request = ["XREADGROUP", "GROUP", "group", "amina", "BLOCK", "0", "STREAMS", "stream", ">"];
    let ticket = world.request(one, &request).expect_err("nothing there");
    world.settle();
    world.call(two, &["SET", "stream", "text"]);
    world.settle();
    let heard = world.arrived(one, ticket).expect("a reply").to_string();
    assert_eq!(heard, "!UNBLOCKED the stream key no longer exists");
}
