//! What happens, step by step.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_files::blocks::Comparison;
use savanna_files::ids::{BlockId, Stamp};
use savanna_files::{Change, Namespace};

use super::check::Promise;
use super::disk::Disk;
use super::names::{Kept, LIMITS, Names};
use super::node::{Message, Node, Order};
use super::writer::Writer;

/// The data node in the process of names; others have higher numbers.
pub(super) const HERE: usize = 0;
/// Data nodes of other processes.
const NODES: usize = 3;
const WRITERS: usize = 3;
const STEPS: usize = 1_500;
/// Who may do everything, as all clients here.
pub(super) const SUPERUSER: &str = "root";

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// What was decided to be removed is removed, whatever is so when the data node hears of it.
    RemovalsStand,
    /// A replica that missed a generation counts as one that did not.
    MissedGenerationsCount,
    /// What a writer left has all that was acknowledged.
    LeftHasAll,
    /// Who has registered has what it had before, whatever it reports.
    UnreportedHasAll,
    /// Those of a pipeline who are known are all of it.
    KnownPartIsAll,
    /// A data node that says that nobody has any bytes of a block is believed.
    OneSpeaksForAll,
    /// What was said before a data node registered is believed: neither the connection nor the number of a report is looked at.
    LateIsBelieved,
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Writes that all of a pipeline had.
    pub acknowledged: u32,
    /// New generations for other pipelines, and how many of those were known in part.
    pub pipelines: u32,
    /// Those that were known in part.
    pub partly: u32,
    /// Processes of names that ended, and how many with their machine.
    pub ended: u32,
    /// Those that ended with their machine.
    pub powers: u32,
    /// Data nodes that ended.
    pub restarts: u32,
    /// Those that lost their disks.
    pub disks: u32,
    /// Registrations.
    pub registered: u32,
    /// Reports of all that a data node had.
    pub reports: u32,
    /// What came too late to be believed.
    pub late: u32,
    /// Data nodes that were silent for too long.
    pub buried: u32,
    /// Files that were closed, not counting those that their writers closed.
    pub closed: u32,
    /// Those whose block was ended by the data node in the process, and by others.
    pub here: u32,
    /// Those whose block was ended by others.
    pub elsewhere: u32,
    /// Times that nobody could end a block.
    pub waited: u32,
    /// Ends of blocks that did not count.
    pub refused: u32,
    /// Replicas that were sent.
    pub copied: u32,
    /// Replicas that were removed.
    pub removed: u32,
}

/// What may happen next.
#[derive(Clone, Copy)]
enum Event {
    Write,
    Beat,
    Report,
    Hear,
    Obey,
    Agree,
    Tend,
    Administer,
    EndNode,
    BeginNode,
    CutOff,
    Join,
    EndNames,
    BeginNames,
    Database,
    LeaveSafeMode,
    BreakPipeline,
    LoseDisk,
    Wait,
    WaitLong,
}

/// How often each happens.
const EVENTS: [(Event, u32); 20] = [
    (Event::Write, 340),
    (Event::Beat, 180),
    (Event::Report, 90),
    (Event::Hear, 150),
    (Event::Obey, 60),
    (Event::Agree, 30),
    (Event::Tend, 30),
    (Event::Administer, 25),
    (Event::EndNode, 14),
    (Event::BeginNode, 30),
    (Event::CutOff, 6),
    (Event::Join, 14),
    (Event::EndNames, 6),
    (Event::BeginNames, 40),
    (Event::Database, 2),
    (Event::LeaveSafeMode, 12),
    (Event::BreakPipeline, 8),
    (Event::LoseDisk, 3),
    (Event::Wait, 6),
    (Event::WaitLong, 2),
];

pub(super) struct World {
    pub(super) dice: ChaCha8Rng,
    /// How often each event happens: more often or less in each run.
    weights: Vec<(Event, u32)>,
    /// Of so many new blocks one is not written here, if any.
    pub(super) without_here: u32,
    pub(super) now: u64,
    pub(super) epoch: u64,
    pub(super) names: Option<Names>,
    pub(super) log: Vec<Change>,
    /// So many changes of it are durable.
    pub(super) durable: usize,
    /// What there is by those.
    pub(super) lasting: Namespace,
    /// What is removed here when all are.
    pub(super) unwanted: Vec<BlockId>,
    /// What is removed here now, of data nodes.
    pub(super) removals: Vec<(usize, BlockId, Stamp)>,
    pub(super) kept: Kept,
    pub(super) here: Disk,
    pub(super) nodes: Vec<Node>,
    connections: u64,
    pub(super) messages: Vec<Message>,
    /// Reports of all that are being compared: whose, with which process of names.
    pub(super) comparing: Vec<(usize, u64, Comparison)>,
    /// What was decided early, of each data node.
    pub(super) early: Vec<Vec<Order>>,
    pub(super) writers: Vec<Writer>,
    /// Paths of files that were ever made.
    pub(super) paths: u32,
    /// Bytes that were ever written.
    pub(super) bytes: u32,
    pub(super) promises: BTreeMap<BlockId, Promise>,
    /// Nothing fails any more.
    pub(super) is_calm: bool,
    pub(super) variant: Variant,
    pub(super) happened: Happened,
}

impl World {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut weight = |(event, often)| (event, often * [1, 4, 4, 12][dice.random_range(0..4)]);
        let weights = EVENTS.into_iter().map(&mut weight).collect();
        let without_here = [0, 1, 1, 2][dice.random_range(0..4)];
        Self {
            dice,
            weights,
            without_here,
            now: 1_000_000,
            epoch: 0,
            names: None,
            log: Vec::new(),
            durable: 0,
            lasting: Namespace::new(SUPERUSER, LIMITS),
            unwanted: Vec::new(),
            removals: Vec::new(),
            kept: Kept::default(),
            here: Disk::default(),
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            connections: 0,
            messages: Vec::new(),
            comparing: Vec::new(),
            early: (0..NODES).map(|_| Vec::new()).collect(),
            writers: (0..WRITERS).map(Writer::new).collect(),
            paths: 0,
            bytes: 0,
            promises: BTreeMap::new(),
            is_calm: false,
            variant,
            happened,
        }
    }

    /// Whether something fails that fails once in so many times.
    pub(super) fn fails(&mut self, times: u32) -> bool {
        !self.is_calm && self.dice.random_ratio(1, times)
    }

    /// One of the data nodes of other processes.
    fn some_node(&mut self) -> usize {
        self.dice.random_range(1..=NODES)
    }

    pub(super) fn begin_node(&mut self, at: usize) {
        if !self.nodes[at - 1].is_up {
            self.connections += 1;
            self.nodes[at - 1].begin(self.connections);
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += self.dice.random_range(0..1_500);
        self.advance();
        let at = self.some_node();
        let all = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.dice.random_range(0..all);
        let event = self.weights.iter().find(|(_, weight)| {
            let is_it = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_it
        });
        match event.map_or(Event::Write, |(event, _)| *event) {
            Event::Write => {
                let number = self.dice.random_range(0..WRITERS);
                for _ in 0..self.dice.random_range(1..4) {
                    self.write(number)?;
                }
            }
            Event::Beat => return self.beat(at),
            Event::Report => {
                if self.fails(6) {
                    self.nodes[at - 1].reports_again();
                }
                self.report(at);
            }
            Event::Hear => {
                for _ in 0..self.dice.random_range(1..4) {
                    self.hear()?;
                }
            }
            Event::Obey => self.obey(at),
            Event::Agree => self.agree(at),
            Event::Tend => return self.tend(),
            Event::Administer => return self.administer(),
            Event::EndNode => {
                self.end_node(at);
                // Its next process may be there at once.
                if self.dice.random() {
                    self.begin_node(at);
                    return self.beat(at);
                }
            }
            Event::BeginNode => self.begin_node(at),
            Event::CutOff => self.nodes[at - 1].is_cut_off = true,
            Event::Join => self.nodes[at - 1].is_cut_off = false,
            Event::EndNames => {
                let with_machine = self.dice.random_ratio(1, 3);
                self.end_names(with_machine);
            }
            Event::BeginNames => {
                // It may be that one does not find the new process yet.
                if self.names.is_none() && self.dice.random() {
                    self.nodes[at - 1].is_cut_off = true;
                }
                return self.begin_names();
            }
            Event::Database => {
                if let Some(names) = &mut self.names {
                    names.is_away = !names.is_away;
                }
            }
            Event::LeaveSafeMode => self.leave_safe_mode(),
            Event::BreakPipeline => return self.break_pipeline(),
            Event::LoseDisk => return self.lose_disk(at),
            Event::Wait => {
                let seconds = self.dice.random_range(5..60);
                return self.pass(seconds);
            }
            Event::WaitLong => return self.pass(700),
        }
        Ok(())
    }

    /// Somebody ends safe mode by hand.
    pub(super) fn leave_safe_mode(&mut self) {
        if let Some(names) = &mut self.names {
            names.namespace.is_waiting = false;
            names.namespace.blocks.await_nobody();
        }
    }

    /// So many seconds pass in which clients do nothing.
    fn pass(&mut self, seconds: u64) -> Result<(), String> {
        for _ in 0..seconds / 5 {
            self.now += 5_000;
            self.advance();
            (1..=NODES).try_for_each(|at| self.beat(at))?;
            if self.dice.random_ratio(1, 4) {
                self.tend()?;
            }
        }
        Ok(())
    }
}

/// A run, and what happened in it beside what had happened before.
///
/// # Errors
/// What did not hold, in words.
pub fn run(seed: u64, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut world = World::new(seed, variant, happened);
    world.begin_names()?;
    for at in 1..=NODES {
        world.begin_node(at);
    }
    for _ in 0..STEPS {
        world.step()?;
    }
    world.settle()?;
    Ok(world.happened)
}
