//! Transactions over keys of several actors are atomic and in one order.
//!
//! The main test is Elle's list-append: each transaction appends its number to some lists and reads others. The lists tell
//! in which order the appends happened; from that and from what was read follows which transaction must have been
//! before which. If that order has a circle, there is no order.

use std::collections::{HashMap, HashSet};

use savanna_keys::reply::{Tape, Value};
use savanna_keys::session::Ticket;

use crate::world::{Client, World};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What one transaction did.
#[derive(Clone, Debug, Default)]
struct Done {
    appended: Vec<usize>,
    /// Keys, and the numbers that were in their lists.
    read: Vec<(usize, Vec<usize>)>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize),
    Read(usize),
}

/// A client that runs one transaction after the other.
struct Worker {
    client: Client,
    number: usize,
    steps: Vec<Step>,
    replies: Vec<Tape>,
    awaited: Vec<Ticket>,
}

/// Runs `count` transactions of clients at all actors. Not atomic ones send their commands one by one.
fn run(seed: u64, actors: u16, count: usize, is_atomic: bool) -> HashMap<usize, Done> {
    let mut world = World::new(actors, seed);
    let mut workers: Vec<Worker> = (0..6)
        .map(|index| Worker {
            client: world.client(index % usize::from(actors)),
            number: 0,
            steps: Vec::new(),
            replies: Vec::new(),
            awaited: Vec::new(),
        })
        .collect();
    let mut done = HashMap::new();
    let mut begun = 0;
    while done.len() < count {
        if world.chance.below(3) > 0 && world.deliver_one() {
            continue;
        }
        let index = world.chance.below(workers.len());
        let worker = &mut workers[index];
        let came: Vec<Option<Tape>> =
            worker.awaited.iter().map(|ticket| world.arrived(worker.client, *ticket)).collect();
        let awaited = std::mem::take(&mut worker.awaited);
        for (ticket, tape) in awaited.into_iter().zip(came) {
            match tape {
                Some(tape) => worker.replies.push(tape),
                None => worker.awaited.push(ticket),
            }
        }
        if !worker.awaited.is_empty() {
            continue;
        }
        if !worker.steps.is_empty() && (is_atomic || worker.replies.len() == worker.steps.len()) {
            let (steps, replies) = (std::mem::take(&mut worker.steps), std::mem::take(&mut worker.replies));
            done.insert(worker.number, outcome(&steps, &replies, is_atomic));
            continue;
        }
        if worker.steps.is_empty() {
            begun += 1;
            worker.number = begun;
            let length = 2 + world.chance.below(3);
            worker.steps = (0..length)
                .map(|_| {
                    let key = world.chance.below(KEYS.len());
                    if world.chance.below(2) == 0 { Step::Append(key) } else { Step::Read(key) }
                })
                .collect();
            if is_atomic {
                assert_eq!(world.call_here(worker.client, &["MULTI"]), "OK");
                for step in worker.steps.clone() {
                    let words = words_of(step, worker.number);
                    assert_eq!(world.call_here(worker.client, &borrowed(&words)), "QUEUED");
                }
                take(worker, world.request(worker.client, &["EXEC"]));
                continue;
            }
        }
        let step = worker.steps[worker.replies.len()];
        let words = words_of(step, worker.number);
        take(worker, world.request(worker.client, &borrowed(&words)));
    }
    world.settle();
    let client = workers[0].client;
    let read = (0..KEYS.len())
        .map(|key| {
            let reply = match world.request(client, &["LRANGE", KEYS[key], "0", "-1"]) {
                Ok(tape) => tape,
                Err(ticket) => {
                    world.settle();
                    world.arrived(client, ticket).expect("a reply")
                }
            };
            (key, numbers(&mut reply.values()))
        })
        .collect();
    done.insert(0, Done { appended: Vec::new(), read });
    done
}

impl World {
    fn call_here(&mut self, client: Client, words: &[&str]) -> String {
        self.request(client, words).expect("an answer at once").to_string()
    }
}

fn take(worker: &mut Worker, reply: Result<Tape, Ticket>) {
    match reply {
        Ok(tape) => worker.replies.push(tape),
        Err(ticket) => worker.awaited.push(ticket),
    }
}

fn words_of(step: Step, number: usize) -> Vec<String> {
    match step {
        Step::Append(key) => vec!["RPUSH".to_owned(), KEYS[key].to_owned(), number.to_string()],
        Step::Read(key) => vec!["LRANGE".to_owned(), KEYS[key].to_owned(), "0".to_owned(), "-1".to_owned()],
    }
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn outcome(steps: &[Step], replies: &[Tape], is_atomic: bool) -> Done {
    let mut done = Done::default();
    let mut values = replies.iter().flat_map(Tape::values);
    if is_atomic {
        assert_eq!(values.next(), Some(Value::Array(steps.len())), "{}", replies[0]);
    }
    for step in steps {
        match step {
            Step::Append(key) => {
                assert!(matches!(values.next(), Some(Value::Integer(_))));
                done.appended.push(*key);
            }
            Step::Read(key) => done.read.push((*key, numbers(&mut values))),
        }
    }
    done
}

fn numbers<'a>(values: &mut impl Iterator<Item = Value<'a>>) -> Vec<usize> {
    let Some(Value::Array(length)) = values.next() else { panic!("a list") };
    let number = |value| match value {
        Some(Value::Bulk(bytes)) => String::from_utf8_lossy(bytes).parse().expect("a number"),
        other => panic!("expected a number, came {other:?}"),
    };
    (0..length).map(|_| number(values.next())).collect()
}

/// A reason why the transactions have no order in which they could have happened, if there is one.
fn objection(done: &HashMap<usize, Done>) -> Option<String> {
    let last = &done[&0];
    let mut before: HashMap<usize, HashSet<usize>> = HashMap::new();
    let mut edge = |from: usize, to: usize| {
        if from != to {
            before.entry(from).or_default().insert(to);
        }
    };
    for (key, list) in &last.read {
        for pair in list.windows(2) {
            edge(pair[0], pair[1]);
        }
        for (number, transaction) in done.iter().filter(|(number, _)| **number != 0) {
            for (_, seen) in transaction.read.iter().filter(|(other, _)| other == key) {
                if list.get(..seen.len()) != Some(seen) {
                    return Some(format!("{number} saw {seen:?} in key {key}, which became {list:?}"));
                }
                // What a transaction sees of itself says nothing about others.
                if let Some(writer) = seen.last() {
                    edge(*writer, *number);
                }
                if let Some(next) = list.get(seen.len()) {
                    edge(*number, *next);
                }
            }
            let appended = transaction.appended.iter().filter(|other| *other == key).count();
            if list.iter().filter(|other| *other == number).count() != appended {
                return Some(format!("{number} appended {appended} times to key {key}, which became {list:?}"));
            }
        }
    }
    circle(&before).map(|circle| format!("each of these was before the next: {circle:?}"))
}

fn circle(before: &HashMap<usize, HashSet<usize>>) -> Option<Vec<usize>> {
    // Takes away what nothing is before, until nothing is left or everything has something before it.
    let mut count: HashMap<usize, usize> = HashMap::new();
    for (from, to) in before {
        count.entry(*from).or_default();
        to.iter().for_each(|to| *count.entry(*to).or_default() += 1);
    }
    let mut free: Vec<usize> = count.iter().filter(|(_, count)| **count == 0).map(|(number, _)| *number).collect();
    while let Some(number) = free.pop() {
        count.remove(&number);
        for next in before.get(&number).into_iter().flatten() {
            if let Some(left) = count.get_mut(next) {
                *left -= 1;
                if *left == 0 {
                    free.push(*next);
                }
            }
        }
    }
    (!count.is_empty()).then(|| {
        let mut circle: Vec<usize> = count.into_keys().collect();
        circle.sort_unstable();
        circle
    })
}

#[test]
fn transactions_over_several_actors_have_an_order() {
    for seed in 0..100 {
        for actors in [1, 2, 3] {
            let done = run(seed, actors, 60, true);
            assert_eq!(objection(&done), None, "seed {seed}, {actors} actors");
        }
    }
}

#[test]
fn the_checker_finds_that_single_commands_are_no_transaction() {
    let found = (0..20).filter(|seed| objection(&run(*seed, 3, 60, false)).is_some()).count();
    assert!(found > 10, "found in {found} of 20 runs");
}

#[test]
fn transfers_by_mset_never_show_in_part_and_watch_refuses_what_was_overtaken() {
    for seed in 0..30 {
        let mut world = World::new(3, seed);
        let clients: Vec<Client> = (0..6).map(|index| world.client(index % 3)).collect();
        for key in KEYS {
            assert_eq!(world.call(clients[0], &["SET", key, "100"]), "OK");
        }
        // Each client is in one of these stages, with the reply that it awaits.
        let mut stages: Vec<(usize, Option<Ticket>)> = vec![(0, None); clients.len()];
        let mut plans: Vec<(usize, usize, i64)> = vec![(0, 1, 0); clients.len()];
        let (mut made, mut refused) = (0, 0);
        while made < 60 {
            if world.chance.below(2) > 0 && world.deliver_one() {
                continue;
            }
            let index = world.chance.below(clients.len());
            let client = clients[index];
            let (stage, awaited) = stages[index];
            let reply = match awaited {
                None => None,
                Some(ticket) => match world.arrived(client, ticket) {
                    None => continue,
                    reply => reply,
                },
            };
            let (from, to, amount) = plans[index];
            let request = |world: &mut World, words: &[&str]| match world.request(client, words) {
                Ok(tape) => Err(tape),
                Err(ticket) => Ok(ticket),
            };
            let sent = match stage {
                0 => {
                    let from = world.chance.below(KEYS.len());
                    let to = (from + 1 + world.chance.below(KEYS.len() - 1)) % KEYS.len();
                    plans[index] = (from, to, 1 + world.chance.below(9) as i64);
                    request(&mut world, &["WATCH", KEYS[from], KEYS[to]])
                }
                1 => request(&mut world, &[&["MGET"], &KEYS[..]].concat()),
                2 => {
                    let balances = numbers_of(&reply.expect("came"));
                    assert_eq!(balances.iter().sum::<i64>(), 500, "seed {seed}: {balances:?}");
                    let (left, right) = ((balances[from] - amount).to_string(), (balances[to] + amount).to_string());
                    assert_eq!(world.call_here(client, &["MULTI"]), "OK");
                    assert_eq!(world.call_here(client, &["MSET", KEYS[from], &left, KEYS[to], &right]), "QUEUED");
                    request(&mut world, &["EXEC"])
                }
                _ => {
                    match reply.expect("came").to_string().as_str() {
                        "[1] OK" => made += 1,
                        "nil" => refused += 1,
                        other => panic!("seed {seed}: {other}"),
                    }
                    stages[index] = (0, None);
                    continue;
                }
            };
            stages[index] = match sent {
                Ok(ticket) => (stage + 1, Some(ticket)),
                // Answered at once: kept as if it had come.
                Err(tape) => (stage + 1, Some(world.keep(client, tape))),
            };
        }
        assert!(refused > 0, "seed {seed}: nobody was overtaken");
    }
}

fn numbers_of(tape: &Tape) -> Vec<i64> {
    let number = |value| match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).parse().ok(),
        _ => None,
    };
    tape.values().filter_map(number).collect()
}

#[test]
fn commands_over_several_actors_do_what_they_do_on_one() {
    let script: [&[&str]; 14] = [
        &["MSET", "a", "1", "b", "2", "c", "3"],
        &["MGET", "a", "b", "c", "d"],
        &["SADD", "s", "x", "y"],
        &["SADD", "t", "y", "z"],
        &["SINTERSTORE", "u", "s", "t"],
        &["SMEMBERS", "u"],
        &["RENAME", "u", "v"],
        &["EXISTS", "u", "v", "a"],
        &["COPY", "a", "w"],
        &["SMOVE", "s", "t", "x"],
        &["MSETNX", "a", "9", "fresh", "9"],
        &["DEL", "a", "b", "nothing"],
        &["DBSIZE"],
        &["RENAME", "nothing", "a"],
    ];
    let mut worlds = [World::new(1, 7), World::new(4, 7)];
    let clients = worlds.each_mut().map(|world| world.client(0));
    for words in script {
        let [one, several] = [0, 1].map(|index| worlds[index].call(clients[index], words));
        assert_eq!(one, several, "{words:?}");
    }
}

#[test]
fn what_all_actors_answer_waits_for_transactions_and_is_answered() {
    for seed in 0..200 {
        let mut world = World::new(3, seed);
        let clients: Vec<Client> = (0..6).map(|index| world.client(index % 3)).collect();
        let mut awaited = Vec::new();
        for round in 0..40 {
            let client = clients[world.chance.below(clients.len())];
            let words: &[&str] = match world.chance.below(5) {
                0 => &["DBSIZE"],
                1 => &["KEYS", "*"],
                2 => &["SCAN", "0"],
                3 => &["MSET", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5"],
                _ => &["SUNIONSTORE", "s", "t", "u", "v"],
            };
            if let Err(ticket) = world.request(client, words) {
                awaited.push((client, ticket, words[0], round));
            }
            for _ in 0..world.chance.below(6) {
                world.deliver_one();
            }
        }
        world.settle();
        for (client, ticket, command, round) in awaited {
            let reply = world.arrived(client, ticket);
            assert!(reply.is_some(), "seed {seed}: no reply to {command} of round {round}");
        }
    }
}

#[test]
fn messages_reach_listeners_of_all_actors() {
    let mut world = World::new(3, 1);
    let (here, there) = (world.client(0), world.client(2));
    assert_eq!(world.call(there, &["SUBSCRIBE", "news"]), ">3 \"subscribe\" \"news\" 1");
    world.settle();
    assert_eq!(world.call(here, &["PUBLISH", "news", "hello"]), "1");
    assert_eq!(world.call(here, &["PUBSUB", "NUMSUB", "news"]), "[2] \"news\" 1");
    world.actor_mut(2).close_session(there.session);
    assert_eq!(world.call(there, &["PING"]), "", "the session is gone");
    world.settle();
    assert_eq!(world.call(here, &["PUBLISH", "news", "hello"]), "0");
}
