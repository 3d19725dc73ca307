//! Nothing that a client was told is missing after a crash: what the hosts append, when their mail leaves, what they hold back, and
//! when they drop the beginning of the log.

use std::sync::{Arc, Mutex};

use savanna_keys::command::{Command, CommandNumber};
use savanna_keys::config::{Config, Sync};
use savanna_keys::handle::{Answer, KeysReply, KeysRequest};
use savanna_keys::reply::Tape;
use savanna_keys::request::OwnedArgs;
use savanna_keys::session::Ticket;
use savanna_keys_host::Lsn;

use crate::log::SimLog;
use crate::world::{Client, Fault, World, new_actors};

/// Counters of all actors, each counted by one request.
const COUNTERS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
/// Counters that are always counted together.
const PAIR: [&str; 2] = ["one", "other"];

/// A client that asks for one thing after the other.
struct Worker {
    client: Client,
    awaited: Option<(Ticket, &'static str)>,
}

/// That a client was, or is to be, told: a counter was at least here.
#[derive(Clone, Copy, Debug)]
struct Told {
    key: &'static str,
    value: u64,
}

/// The number in a reply: the last, if there are several.
fn number(reply: &str) -> u64 {
    reply.rsplit(' ').next().and_then(|word| word.trim_matches('"').parse().ok()).unwrap_or(0)
}

/// A run that ends with a crash. `Sync::Always` has to outlive the end of the machine, all else that of the process.
struct Run {
    world: World,
    sync: Sync,
    /// What hosts hold back, with the position that it waits for.
    held: Vec<(Lsn, Told)>,
    told: Vec<Told>,
    /// What clients of other nodes were told.
    told_elsewhere: Arc<Mutex<Vec<Told>>>,
}

impl Run {
    fn new(seed: u64, sync: Sync, fault: Fault) -> Self {
        let config = Config { is_logged: true, sync, ..Config::default() };
        let mut world = World::of(new_actors(1 + (seed % 3) as u16, &config, seed), SimLog::default(), seed);
        world.tick(world.now);
        world.begin_log();
        world.fault = fault;
        Self { world, sync, held: Vec::new(), told: Vec::new(), told_elsewhere: Arc::default() }
    }

    /// Ends the turn of an actor in which a reply came, and tells it or holds it back.
    fn reply(&mut self, actor: usize, told: Told) {
        self.world.end_turn(actor);
        let clearance = self.world.clear(actor);
        match clearance.held {
            Some(position) if self.world.fault != Fault::NoGate => self.held.push((position, told)),
            _ => self.told.push(told),
        }
    }

    fn flush(&mut self) {
        let count = self.world.chance.below(6);
        self.world.log.flush(count);
        for actor in 0..self.world.actor_count() {
            let durable = self.world.clear(actor).durable;
            let may_leave = self.held.extract_if(.., |(position, _)| *position <= durable);
            self.told.extend(may_leave.map(|(_, told)| told));
        }
    }

    /// One thing that a client asks for.
    fn ask(&mut self, worker: &mut Worker) {
        let client = worker.client;
        if let Some((ticket, key)) = worker.awaited {
            if let Some(reply) = self.world.arrived(client, ticket) {
                worker.awaited = None;
                self.reply(client.actor, Told { key, value: number(&reply.to_string()) });
            }
            return;
        }
        let key = COUNTERS[self.world.chance.below(COUNTERS.len())];
        let (words, key): (&[&str], _) = match self.world.chance.below(8) {
            0..3 => (&["INCR", key], key),
            3..5 => (&["GET", key], key),
            5 => (&["GET", PAIR[0]], PAIR[0]),
            _ => {
                for words in [&["MULTI"][..], &["INCR", PAIR[0]], &["INCR", PAIR[1]]] {
                    self.world.request(client, words).expect("at once");
                }
                (&["EXEC"], PAIR[1])
            }
        };
        match self.world.request(client, words) {
            Ok(reply) => self.reply(client.actor, Told { key, value: number(&reply.to_string()) }),
            Err(ticket) => worker.awaited = Some((ticket, key)),
        }
    }

    /// What clients of another node ask for at once.
    fn ask_from_elsewhere(&mut self) {
        let mut request = KeysRequest::default();
        let mut keys = Vec::new();
        for _ in 0..1 + self.world.chance.below(3) {
            let key = COUNTERS[self.world.chance.below(COUNTERS.len())];
            let (command, args) = (number_of("incr"), |key: &str| OwnedArgs::of_words(&[b"INCR", key.as_bytes()]));
            match self.world.chance.below(8) {
                0..4 => request.push(0, command, args(key).args()),
                4..6 => request.push(0, number_of("get"), OwnedArgs::of_words(&[b"GET", key.as_bytes()]).args()),
                _ => {
                    let counts = PAIR.map(args);
                    request.push_transaction(0, counts.iter().map(|args| (command, args.args())));
                    keys.push(PAIR[1]);
                    continue;
                }
            }
            keys.push(key);
        }
        let told = Arc::clone(&self.told_elsewhere);
        let answer = Answer::<KeysReply>::new(move |outcome| {
            // With the end of the world there is no answer.
            let Ok(reply) = outcome else { return };
            let mut told = told.lock().expect("of one thread");
            for (key, answered) in keys.into_iter().zip(reply.outcomes()) {
                let mut tape = Tape::new();
                answered.expect("nothing is moved").play(&mut tape);
                told.push(Told { key, value: number(&tape.to_string()) });
            }
        });
        let actor = self.world.chance.below(self.world.actor_count());
        self.world.call_from_elsewhere(actor, request, answer);
    }

    /// What is wrong with what is left after a crash, if anything.
    fn objection(&mut self) -> Option<String> {
        let log = &self.world.log;
        let records = if self.sync == Sync::Always { log.durable_records() } else { log.staged_records() };
        let mut left = self.world.replayed(&records);
        let mut value = |key: &str| {
            let bytes = left.string(key.as_bytes()).expect("a number");
            bytes.map_or(0, |bytes| number(&String::from_utf8_lossy(bytes)))
        };
        let [one, other] = PAIR.map(&mut value);
        if one != other {
            return Some(format!("of a transaction that counted both, there are {one} and {other}"));
        }
        let elsewhere = self.told_elsewhere.lock().expect("of one thread");
        let missing = self.told.iter().chain(elsewhere.iter()).find(|told| value(told.key) < told.value)?;
        Some(format!("{} was told, of {} {} is left", missing.value, missing.key, value(missing.key)))
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Askers {
    /// Clients of this node.
    Here,
    /// Those of other nodes, too.
    Everywhere,
}

fn number_of(command: &str) -> CommandNumber {
    Command::find(command.as_bytes()).and_then(CommandNumber::of).expect("a command")
}

/// Runs until a crash. Gives what is wrong with what is left, and how many rewrites of the log had ended.
fn crash(seed: u64, sync: Sync, fault: Fault, askers: Askers) -> (Option<String>, usize) {
    let mut run = Run::new(seed, sync, fault);
    let actors = run.world.actor_count();
    let mut workers: Vec<Worker> =
        (0..5).map(|index| Worker { client: run.world.client(index % actors), awaited: None }).collect();
    let (mut rewrites, mut dropped) = (0, 0);
    for _ in 0..200 + run.world.chance.below(600) {
        match run.world.chance.below(12) {
            0..5 => drop(run.world.deliver_one()),
            5 => run.flush(),
            6 if run.world.chance.below(2) == 0 => run.world.pass(1),
            8 if askers == Askers::Everywhere => run.ask_from_elsewhere(),
            7 if run.world.chance.below(4) == 0 => drop(run.world.request(workers[0].client, &["BGREWRITEAOF"])),
            _ => {
                let index = run.world.chance.below(workers.len());
                run.ask(&mut workers[index]);
            }
        }
        if run.world.log.dropped() > dropped {
            (rewrites, dropped) = (rewrites + 1, run.world.log.dropped());
        }
    }
    (run.objection(), rewrites)
}

#[test]
fn what_clients_were_told_outlives_a_crash() {
    for (sync, askers) in [
        (Sync::Always, Askers::Here),
        (Sync::EverySecond, Askers::Here),
        (Sync::Always, Askers::Everywhere),
        (Sync::EverySecond, Askers::Everywhere),
    ] {
        let mut rewrites = 0;
        for seed in 0..200 {
            let (objection, ended) = crash(seed, sync, Fault::Disorder, askers);
            assert_eq!(objection, None, "seed {seed}, {sync:?}, {askers:?}");
            rewrites += ended;
        }
        assert!(rewrites > 20, "{rewrites} rewrites of the log");
    }
}

#[test]
fn the_checker_finds_hosts_that_tell_too_early_and_logs_that_are_cut_too_early() {
    for (fault, sync, askers) in [
        (Fault::NoGate, Sync::Always, Askers::Here),
        (Fault::NoGateElsewhere, Sync::Always, Askers::Everywhere),
        (Fault::Unmarked, Sync::Always, Askers::Here),
        (Fault::LateAppend, Sync::EverySecond, Askers::Here),
        (Fault::Overcounted, Sync::EverySecond, Askers::Here),
    ] {
        let found = (0..200).filter(|seed| crash(*seed, sync, fault, askers).0.is_some()).count();
        assert!(found > 4, "{fault:?}: found in {found} of 200 runs");
    }
}
