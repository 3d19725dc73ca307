//! Nodes that die, come, and take over what others had, from a seed: each increment that was told is there, once.
//!
//! The records are the test's own; services, logs, adoption and what is asked of whom are the product's. A node that dies ends in the midst of
//! whatever it does: with requests of others, of its clients, or with the log of another node half taken in.

use std::collections::{BTreeMap, BTreeSet};

use savanna_epoch::{NodeEpoch, OwnerEpoch};
use savanna_journal::{Options, seal};
use savanna_keys::actor::Progress;
use savanna_keys::cluster::owners::{Owners, Peer, PeerId, Whose};
use savanna_keys::cluster::table::VIRTUAL_NODES;
use savanna_keys::reply::Tape;
use savanna_keys::request::OwnedArgs;
use savanna_keys::session::{SessionId, Ticket};

use crate::nodes::{Node, Switchboard, node_of};

/// How many steps a history has.
const STEPS: usize = 120;
const KEYS: usize = 24;

/// Numbers by chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// The record of a virtual node: who has it, and whose log has its keys.
#[derive(Clone, Copy)]
struct Record {
    owner: usize,
    log: Option<usize>,
    epoch: u64,
}

struct Member {
    node: Node,
    client: SessionId,
    /// What its client waits for.
    asked: Vec<(Ticket, usize)>,
}

/// What was told of a key.
#[derive(Default)]
struct Told {
    values: Vec<i64>,
    unknown: usize,
}

struct World {
    chance: Chance,
    board: Switchboard,
    folder: tempfile::TempDir,
    /// By tenure; none of those that are gone.
    members: Vec<Option<Member>>,
    /// Where the logs of all tenures are.
    logs: Vec<std::path::PathBuf>,
    records: Vec<Record>,
    told: BTreeMap<usize, Told>,
    kills: usize,
    adoptions: usize,
}

fn key(number: usize) -> String {
    format!("counter{number}")
}

impl World {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (members, logs, records, told) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        let board = Switchboard::default();
        let mut world = Self { chance, board, folder, members, logs, records, told, kills: 0, adoptions: 0 };
        (0..3).for_each(|_| world.join());
        world.records =
            (0..VIRTUAL_NODES).map(|node| Record { owner: usize::from(node) % 3, log: None, epoch: 1 }).collect();
        for owner in 0..3 {
            world.take_over(owner);
        }
        world
    }

    fn living(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|tenure| self.members[*tenure].is_some()).collect()
    }

    fn join(&mut self) {
        let tenure = self.members.len();
        let threads = 1 + self.chance.below(3) as u16;
        let mut node = Node::start(&self.board, &format!("t{tenure}"), self.folder.path(), 1, threads);
        let client = node.workers[0].admission().open(String::new(), String::new(), None, false);
        self.logs.push(node.folder.clone());
        self.members.push(Some(Member { node, client, asked: Vec::new() }));
    }

    /// Tells all who has what.
    fn say(&mut self) {
        for myself in self.living() {
            let names = (0..self.members.len()).map(|tenure| savanna_epoch::NodeId::new(format!("t{tenure}")));
            let peers = names.enumerate().map(|(tenure, node)| Peer {
                node,
                is_there: tenure != myself && self.members[tenure].is_some(),
                cluster_port: None,
            });
            let mut owners = Owners::among(peers.collect());
            for (node, Record { owner, log, epoch }) in self.records.iter().enumerate() {
                let whose = match self.members[*owner] {
                    None => Whose::Nobody,
                    Some(_) if *owner != myself => Whose::There(PeerId(*owner as u16)),
                    Some(_) if *log == Some(myself) => Whose::Here,
                    Some(_) => Whose::Nobody,
                };
                owners.set(node as u16, whose, OwnerEpoch(*epoch));
            }
            self.members[myself].as_ref().expect("it lives").node.service.hearer().say(owners);
        }
    }

    /// The node's process ends.
    fn kill(&mut self, tenure: usize) {
        let Some(Member { node, asked, .. }) = self.members[tenure].take() else { return };
        self.kills += 1;
        // Its client hears nothing more.
        asked.into_iter().for_each(|(_, key)| self.told.entry(key).or_default().unknown += 1);
        self.board.0.lock().unwrap().remove(&node.name);
        drop(node.workers);
        drop(node.service);
    }

    /// What nodes had that are gone is granted to others.
    fn grant(&mut self) {
        let living = self.living();
        for node in 0..self.records.len() {
            if self.members[self.records[node].owner].is_none() {
                self.records[node].owner = living[self.chance.below(living.len())];
                self.records[node].epoch += 1;
            }
        }
    }

    /// A node takes what it was granted. Says whether it lives on.
    fn take_over(&mut self, tenure: usize) -> bool {
        let granted = |log: Option<usize>, records: &[Record]| -> BTreeSet<u16> {
            let of = |record: &Record| record.owner == tenure && record.log == log;
            records.iter().enumerate().filter(|(_, record)| of(record)).map(|(node, _)| node as u16).collect()
        };
        let logs: BTreeSet<Option<usize>> =
            self.records.iter().filter(|record| record.owner == tenure).map(|record| record.log).collect();
        for log in logs {
            let nodes = granted(log, &self.records);
            if log == Some(tenure) {
                continue;
            }
            if let Some(former) = log {
                assert!(self.members[former].is_none(), "it may write there");
                let sealed = seal(&Options::dir(&self.logs[former]), NodeEpoch(2)).expect("it has ended");
                let hearer = self.members[tenure].as_ref().expect("it lives").node.service.hearer();
                let wanted = nodes.clone();
                let adopting = std::thread::spawn(move || hearer.adopt(&sealed, &|node| wanted.contains(&node)));
                let dies = self.living().len() > 1 && self.chance.below(6) == 0;
                let mut turns = self.chance.below(4);
                while !adopting.is_finished() {
                    if dies && turns == 0 {
                        self.kill(tenure);
                        let _ = adopting.join();
                        return false;
                    }
                    turns = turns.saturating_sub(1);
                    self.turn();
                    std::thread::yield_now();
                }
                adopting.join().expect("no panic").expect("a log");
                self.adoptions += 1;
                // All of it is in the log, and the record does not say so.
                if dies {
                    self.kill(tenure);
                    return false;
                }
            }
            for node in nodes {
                self.records[usize::from(node)].log = Some(tenure);
            }
        }
        true
    }

    /// All that is gone is had by others again.
    fn recover(&mut self) {
        loop {
            self.say();
            self.grant();
            self.say();
            let all = self.living().into_iter().all(|tenure| self.members[tenure].is_none() || self.take_over(tenure));
            if all && self.records.iter().all(|record| self.members[record.owner].is_some()) {
                break;
            }
        }
        self.say();
    }

    fn turn(&mut self) {
        for tenure in 0..self.members.len() {
            let Some(member) = &mut self.members[tenure] else { continue };
            member.node.turn();
            for (ticket, key) in std::mem::take(&mut member.asked) {
                match member.node.replies.remove(&(member.client, ticket)) {
                    None => member.asked.push((ticket, key)),
                    Some(reply) => hear(self.told.entry(key).or_default(), &reply),
                }
            }
        }
    }

    /// A client increments something.
    fn count(&mut self) {
        let living = self.living();
        let (tenure, number) = (living[self.chance.below(living.len())], self.chance.below(KEYS));
        let Some(member) = &mut self.members[tenure] else { return };
        let mut reply = Tape::new();
        let words = [&b"INCR"[..], &key(number).into_bytes()].map(<[u8]>::to_vec);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match member.node.workers[0].request(member.client, OwnedArgs::of_words(&words).args(), &mut reply) {
            // What is answered at once waits for the log, too.
            Progress::Answered => {
                let mut durable = false;
                while !durable {
                    member.node.workers[0].finish_turn().expect("a log");
                    durable = member.node.workers[0].clear().expect("a log").held.is_none();
                }
                hear(self.told.entry(number).or_default(), &reply.to_string());
            }
            Progress::Later(ticket) | Progress::LaterAlone(ticket) => member.asked.push((ticket, number)),
            other => panic!("expected a reply, came {other:?}"),
        }
    }

    fn run(&mut self) {
        self.say();
        for _ in 0..STEPS {
            match self.chance.below(40) {
                0 if self.living().len() > 1 => {
                    let living = self.living();
                    let tenure = living[self.chance.below(living.len())];
                    self.kill(tenure);
                    self.recover();
                }
                1 if self.living().len() < 4 => {
                    self.join();
                    self.say();
                }
                2..20 => self.turn(),
                _ => self.count(),
            }
        }
        self.recover();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while self.members.iter().flatten().any(|member| !member.asked.is_empty()) {
            assert!(std::time::Instant::now() < until, "a client is not answered");
            self.turn();
            std::thread::yield_now();
        }
    }

    /// The value of a key, where it is.
    fn value(&mut self, number: usize) -> i64 {
        let key = key(number);
        let owner = self.records[usize::from(node_of(&key))].owner;
        let member = self.members[owner].as_mut().expect("it lives");
        let mut reply = Tape::new();
        let words = [&b"GET"[..], key.as_bytes()];
        let progress = member.node.workers[0].request(member.client, OwnedArgs::of_words(&words).args(), &mut reply);
        let text = match progress {
            Progress::Answered => reply.to_string(),
            Progress::Later(ticket) => loop {
                self.turn();
                let member = self.members[owner].as_mut().expect("it lives");
                if let Some(text) = member.node.replies.remove(&(member.client, ticket)) {
                    break text;
                }
            },
            other => panic!("expected a reply, came {other:?}"),
        };
        text.trim_matches('"').parse().unwrap_or_default()
    }
}

fn hear(told: &mut Told, reply: &str) {
    match reply.parse() {
        Ok(value) => told.values.push(value),
        Err(_) if reply.starts_with("!TRYAGAIN") => {}
        Err(_) => {
            assert!(reply.starts_with("!UNKNOWN"), "{reply}");
            told.unknown += 1;
        }
    }
}

#[test]
fn increments_that_were_told_are_there_once_whoever_dies() {
    let (mut kills, mut adoptions) = (0, 0);
    for seed in 1..=12 {
        let mut world = World::new(seed);
        world.run();
        for number in 0..KEYS {
            let value = world.value(number);
            let Told { values, unknown } = world.told.remove(&number).unwrap_or_default();
            let different: BTreeSet<i64> = values.iter().copied().collect();
            assert_eq!(different.len(), values.len(), "seed {seed}: {} was told twice of {values:?}", key(number));
            let count = values.len() as i64;
            assert!(
                (count..=count + unknown as i64).contains(&value) && values.iter().all(|told| *told <= value),
                "seed {seed}: {} is {value}, told were {values:?}, in doubt {unknown}",
                key(number)
            );
        }
        (kills, adoptions) = (kills + world.kills, adoptions + world.adoptions);
    }
    assert!(kills > 12 && adoptions > 12, "{kills} kills, {adoptions} adoptions");
}
