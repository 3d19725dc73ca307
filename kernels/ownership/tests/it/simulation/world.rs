//! True time, the network, the coordinator with its log, and what befalls them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::core::{CoordinatorCore, Reply, Request};
use savanna_ownership::event::{Entry, Event as Fact};
use savanna_ownership::logs::{LogRecord, LogState};
use savanna_ownership::{
    Batch, ClusterView, Exclusive, Incarnation, LeaseTerms, MonoTime, Ownership, RootValue, ShardRecord, Tenure,
};

use super::checker::{Checker, Violation};
use super::process::{Answer, Ask, DriftingClock, Habits, Process};

/// What is broken in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    None,
    NoMargin,
    CountFromReply,
    NoGraceAfterRestart,
    EpochNotBumped,
    ReplyBeforeDurable,
    ResumeAfterTimeout,
    /// Of a batch only the first change is made.
    HalfBatches,
    /// A grant makes the new owner's log the one with the shard's commits.
    GrantTakesHistory,
    /// The commits of a shard are said to be in the log that its owner had before.
    FormerLog,
    /// Who hands a shard over keeps its commits in its own log.
    LeavesHistory,
}

/// How often things happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    grants: u64,
    expiries: u64,
    claims: u64,
    takeovers: u64,
    handovers: u64,
    moves: u64,
    retired: u64,
    duals: u64,
    batches: u64,
    histories: u64,
    logs_begun: u64,
    logs_taken_over: u64,
    logs_sealed: u64,
    logs_removed: u64,
    ids: u64,
    process_pauses: u64,
    process_crashes: u64,
    coordinator_crashes: u64,
    entries_lost: u64,
}

impl Counts {
    fn each(&self) -> [u64; 19] {
        [
            self.grants,
            self.expiries,
            self.claims,
            self.takeovers,
            self.handovers,
            self.moves,
            self.retired,
            self.duals,
            self.batches,
            self.histories,
            self.logs_begun,
            self.logs_taken_over,
            self.logs_sealed,
            self.logs_removed,
            self.ids,
            self.process_pauses,
            self.process_crashes,
            self.coordinator_crashes,
            self.entries_lost,
        ]
    }

    pub(super) fn all_seen(&self) -> bool {
        self.each().into_iter().all(|count| count > 0)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.expiries += other.expiries;
        self.claims += other.claims;
        self.takeovers += other.takeovers;
        self.handovers += other.handovers;
        self.moves += other.moves;
        self.retired += other.retired;
        self.duals += other.duals;
        self.batches += other.batches;
        self.histories += other.histories;
        self.logs_begun += other.logs_begun;
        self.logs_taken_over += other.logs_taken_over;
        self.logs_sealed += other.logs_sealed;
        self.logs_removed += other.logs_removed;
        self.ids += other.ids;
        self.process_pauses += other.process_pauses;
        self.process_crashes += other.process_crashes;
        self.coordinator_crashes += other.coordinator_crashes;
        self.entries_lost += other.entries_lost;
    }
}

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const RUN: u64 = 60 * SECOND;
const TTL: Duration = Duration::from_secs(3);
const MARGIN: Duration = Duration::from_millis(600);

/// Clocks run within 10 % of the true one: (3 s - 0.6 s) / 0.9 = 2.67 s on the slowest holder ends before
/// 3 s / 1.1 = 2.73 s on the fastest grantor.
const DRIFT_PER_MILLISECOND: u64 = 100_000;

const PROCESSES: usize = 5;
/// Fewer names than processes, so that names are contended.
const NAMES: usize = 4;
const SHARDS: usize = 3;

#[derive(Debug)]
enum Event {
    Wake {
        process: usize,
    },
    Arrive {
        process: usize,
        incarnation: Incarnation,
        request: u64,
        ask: Ask,
    },
    Answer {
        process: usize,
        incarnation: Incarnation,
        request: u64,
        answer: Answer,
    },
    /// The log up to this length is on disk.
    Flushed {
        life: u64,
        length: usize,
    },
    CoordinatorTick {
        life: u64,
    },
    CoordinatorCrash,
    CoordinatorStart,
    Trouble {
        process: usize,
    },
    Restart {
        process: usize,
    },
}

/// An event in the queue; earlier ones first, then in the order of scheduling.
struct Scheduled(u64, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

struct Coordinator {
    core: CoordinatorCore,
    clock: DriftingClock,
    log: Vec<Entry>,
    /// Roots of logs that have been begun.
    logs: BTreeSet<String>,
    durable: usize,
    /// Answers that wait for the log to be durable up to a length.
    held: BTreeMap<usize, Vec<Event>>,
    up: bool,
    /// Restarts so far: flushes and ticks of an earlier life are void.
    life: u64,
}

pub(super) struct World {
    rng: ChaCha8Rng,
    sabotage: Sabotage,
    at: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    processes: Vec<Process>,
    /// Until when a process is paused; crashed ones until their restart.
    paused_until: Vec<u64>,
    crashed: Vec<bool>,
    shards: Vec<ShardId>,
    coordinator: Coordinator,
    /// What is durable.
    view: ClusterView,
    checker: Checker,
    counts: Counts,
    next_incarnation: u64,
}

impl World {
    pub(super) fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let coordinator = Coordinator {
            core: CoordinatorCore::new(TTL),
            clock: drifting_clock(&mut rng),
            log: Vec::new(),
            logs: BTreeSet::new(),
            durable: 0,
            held: BTreeMap::new(),
            up: true,
            life: 0,
        };
        let mut world = Self {
            rng,
            sabotage,
            at: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            processes: Vec::new(),
            paused_until: vec![0; PROCESSES],
            crashed: vec![false; PROCESSES],
            shards: (0..SHARDS).map(|number| ShardId::new(format!("tenants/{number}"))).collect(),
            coordinator,
            view: ClusterView::default(),
            checker: Checker::default(),
            counts: Counts::default(),
            next_incarnation: 0,
        };
        for index in 0..PROCESSES {
            let process = world.new_process(index);
            world.processes.push(process);
            world.schedule_within(SECOND, Event::Wake { process: index });
            world.schedule_within(8 * SECOND, Event::Trouble { process: index });
        }
        world.schedule_within(SECOND / 2, Event::CoordinatorTick { life: 0 });
        world.schedule_within(20 * SECOND, Event::CoordinatorCrash);
        world
    }

    pub(super) fn run(mut self) -> Result<Counts, Violation> {
        while let Some(Reverse(Scheduled(at, _, event))) = self.queue.pop() {
            if at > RUN {
                break;
            }
            self.at = at;
            self.take(event)?;
            self.checker.instant(self.at, &self.processes)?;
        }
        Ok(self.counts)
    }

    fn new_process(&mut self, index: usize) -> Process {
        self.next_incarnation += 1;
        let margin = if self.sabotage == Sabotage::NoMargin { Duration::ZERO } else { MARGIN };
        let habits = Habits {
            terms: LeaseTerms::new(TTL, margin).expect("the margin is below the ttl"),
            count_from_reply: self.sabotage == Sabotage::CountFromReply,
            resume_after_timeout: self.sabotage == Sabotage::ResumeAfterTimeout,
        };
        let clock = drifting_clock(&mut self.rng);
        let name = NodeId::new(format!("n{}", index % NAMES));
        Process::new(name, Incarnation(self.next_incarnation), clock, habits)
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled(at, self.sequence, event)));
    }

    fn schedule_within(&mut self, span: u64, event: Event) {
        let delay = self.rng.random_range(1..=span);
        self.schedule(self.at + delay, event);
    }

    /// Sends over the network: mostly quick, sometimes very late, twice, or never.
    fn send(&mut self, make: impl Fn() -> Event) {
        let copies = match self.rng.random_range(0..100) {
            0..8 => 0,
            8..16 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let span = if self.rng.random_bool(0.1) { 4 * SECOND } else { 40 * MILLISECOND };
            self.schedule_within(span, make());
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Violation> {
        // A paused process gets everything when it awakes.
        if let Event::Wake { process } | Event::Answer { process, .. } = &event
            && self.paused_until[*process] > self.at
        {
            let later = self.paused_until[*process];
            self.schedule(later, event);
            return Ok(());
        }
        match event {
            Event::Wake { process } => {
                self.schedule_within(200 * MILLISECOND, Event::Wake { process });
                if !self.crashed[process] {
                    let asks = self.processes[process].wake(self.at, &mut self.rng, &self.shards, &self.view);
                    self.send_asks(process, asks);
                }
                Ok(())
            }
            Event::Arrive { process, incarnation, request, ask } => {
                if self.coordinator.up {
                    self.arrive(process, incarnation, request, ask)
                } else {
                    Ok(())
                }
            }
            Event::Answer { process, incarnation, request, answer } => {
                if self.crashed[process] || self.processes[process].incarnation != incarnation {
                    return Ok(());
                }
                let (asks, ids) = self.processes[process].answer(self.at, request, answer);
                if let Some(ids) = ids {
                    self.counts.ids += 1;
                    self.checker.ids_told(self.at, &ids)?;
                }
                self.send_asks(process, asks);
                Ok(())
            }
            Event::Flushed { life, length } => {
                if life == self.coordinator.life && self.coordinator.up {
                    self.flushed(length)
                } else {
                    Ok(())
                }
            }
            Event::CoordinatorTick { life } => {
                if life == self.coordinator.life && self.coordinator.up {
                    let now = self.coordinator.clock.read(self.at);
                    let step = self.coordinator.core.step(&Request::Tick, now);
                    self.append(step.entries);
                    self.schedule_within(SECOND / 2, Event::CoordinatorTick { life });
                }
                Ok(())
            }
            Event::CoordinatorCrash => self.coordinator_crash(),
            Event::CoordinatorStart => {
                self.coordinator_start();
                Ok(())
            }
            Event::Trouble { process } => {
                self.trouble(process);
                Ok(())
            }
            Event::Restart { process } => {
                self.processes[process] = self.new_process(process);
                self.crashed[process] = false;
                Ok(())
            }
        }
    }

    fn send_asks(&mut self, process: usize, asks: Vec<(u64, Ask)>) {
        let incarnation = self.processes[process].incarnation;
        for (request, ask) in asks {
            self.send(|| Event::Arrive { process, incarnation, request, ask: ask.clone() });
        }
    }

    fn arrive(&mut self, process: usize, incarnation: Incarnation, request: u64, ask: Ask) -> Result<(), Violation> {
        let answer = match ask {
            Ask::Read(shard) => Answer::Read(self.coordinator.core.shard(&shard).cloned()),
            Ask::Change(change) => {
                let now = self.coordinator.clock.read(self.at);
                let forgery: Option<Forgery> = match self.sabotage {
                    Sabotage::EpochNotBumped => Some(forget_the_bump),
                    Sabotage::GrantTakesHistory => Some(take_the_history),
                    Sabotage::FormerLog => Some(name_the_former_log),
                    Sabotage::LeavesHistory => Some(leave_the_history),
                    _ => None,
                };
                let before = forgery.map(|forgery| (self.coordinator.core.clone(), forgery));
                let former = self.owner_of(&change);
                let mut step = self.coordinator.core.step(&self.as_it_is_done(change), now);
                if let Some((before, forgery)) = before {
                    forge(&mut self.coordinator.core, before, &mut step.entries, forgery);
                }
                if let (Some(former), Ok(Reply::Changed(_))) = (former, &step.reply) {
                    let lives = self.coordinator.core.node(&former.node).is_some_and(|node| node.tenure == former);
                    self.counts.takeovers += u64::from(!lives);
                }
                self.append(step.entries);
                Answer::Change(step.reply)
            }
        };
        let answer = Event::Answer { process, incarnation, request, answer };
        let length = self.coordinator.log.len();
        if self.coordinator.durable >= length || self.sabotage == Sabotage::ReplyBeforeDurable {
            self.send_answer(answer);
        } else {
            self.coordinator.held.entry(length).or_default().push(answer);
        }
        Ok(())
    }

    fn as_it_is_done(&self, change: Request) -> Request {
        match change {
            Request::Apply(mut batch) if self.sabotage == Sabotage::HalfBatches => {
                batch.transitions.truncate(1);
                Request::Apply(batch)
            }
            change => change,
        }
    }

    fn send_answer(&mut self, answer: Event) {
        if let Event::Answer { process, incarnation, request, answer } = answer {
            self.send(|| Event::Answer { process, incarnation, request, answer: answer.clone() });
        }
    }

    fn append(&mut self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        for entry in &entries {
            self.count(entry);
        }
        self.coordinator.log.extend(entries);
        let (life, length) = (self.coordinator.life, self.coordinator.log.len());
        self.schedule_within(30 * MILLISECOND, Event::Flushed { life, length });
    }

    /// Who owns the shard that a request would change.
    fn owner_of(&self, change: &Request) -> Option<Tenure> {
        let Request::Apply(Batch { transitions, .. }) = change else {
            return None;
        };
        self.coordinator.core.shard(&transitions.first()?.shard)?.value.owner().cloned()
    }

    fn count(&mut self, entry: &Entry) {
        let counter = match &entry.event {
            Fact::NodeGranted { .. } => &mut self.counts.grants,
            Fact::NodeEnded { .. } => &mut self.counts.expiries,
            Fact::ClaimPlaced { .. } => &mut self.counts.claims,
            Fact::ShardChanged { record, .. } => return self.count_record(record),
            Fact::BatchApplied { shards, .. } => {
                shards.iter().for_each(|(_, record)| self.count_record(record));
                &mut self.counts.batches
            }
            Fact::RootChanged { key, value } => {
                let is_sealed = |value: &RootValue| {
                    serde_json::from_slice::<LogRecord>(&value.0).expect("a log's").state == LogState::Sealed
                };
                match (value, self.coordinator.logs.contains(key)) {
                    (None, _) => &mut self.counts.logs_removed,
                    (Some(value), _) if is_sealed(value) => &mut self.counts.logs_sealed,
                    (Some(_), true) => &mut self.counts.logs_taken_over,
                    (Some(_), false) => {
                        self.coordinator.logs.insert(key.clone());
                        &mut self.counts.logs_begun
                    }
                }
            }
            Fact::IdsAllocated { .. } => return,
        };
        *counter += 1;
    }

    fn count_record(&mut self, record: &ShardRecord) {
        self.counts.histories += u64::from(record.history.is_some());
        *match &record.ownership {
            Ownership::Exclusive(Exclusive::Serving { .. }) => &mut self.counts.handovers,
            Ownership::Exclusive(Exclusive::Moving { .. }) => &mut self.counts.moves,
            Ownership::Exclusive(Exclusive::Dual { .. }) => &mut self.counts.duals,
            Ownership::Replicated { .. } | Ownership::Retired => &mut self.counts.retired,
        } += 1;
    }

    fn flushed(&mut self, length: usize) -> Result<(), Violation> {
        let durable = self.coordinator.durable.max(length);
        for entry in &self.coordinator.log[self.coordinator.durable..durable] {
            self.checker.durable(self.at, entry)?;
            if let Some(change) = entry.change() {
                self.view.apply(&change);
            }
        }
        self.coordinator.durable = durable;
        let waiting = self.coordinator.held.split_off(&(durable + 1));
        for answer in std::mem::replace(&mut self.coordinator.held, waiting).into_values().flatten() {
            self.send_answer(answer);
        }
        Ok(())
    }

    /// Loses what was not flushed, or some of it, and all answers that waited for it.
    fn coordinator_crash(&mut self) -> Result<(), Violation> {
        self.counts.coordinator_crashes += 1;
        let appended = self.coordinator.log.len();
        let kept = self.rng.random_range(self.coordinator.durable..=appended);
        self.counts.entries_lost += (appended - kept) as u64;
        self.coordinator.log.truncate(kept);
        self.coordinator.held.clear();
        self.coordinator.up = false;
        self.coordinator.life += 1;
        self.flushed(kept)?;
        let down = if self.rng.random_bool(0.5) { 100 * MILLISECOND } else { 5 * SECOND };
        self.schedule_within(down, Event::CoordinatorStart);
        Ok(())
    }

    fn coordinator_start(&mut self) {
        let mut core = CoordinatorCore::new(TTL);
        for entry in &self.coordinator.log {
            core.replay(entry).expect("the log is in order");
        }
        self.coordinator.clock = drifting_clock(&mut self.rng);
        let now = self.coordinator.clock.read(self.at);
        let counted_from = match self.sabotage {
            Sabotage::NoGraceAfterRestart => MonoTime(now.0 - TTL.as_nanos() as u64),
            _ => now,
        };
        core.restart_leases(counted_from);
        self.coordinator.core = core;
        self.coordinator.up = true;
        let life = self.coordinator.life;
        self.schedule_within(SECOND / 2, Event::CoordinatorTick { life });
        self.schedule_within(20 * SECOND, Event::CoordinatorCrash);
    }

    /// A process is paused, or crashes and is started again.
    fn trouble(&mut self, process: usize) {
        if self.rng.random_bool(0.6) {
            self.counts.process_pauses += 1;
            self.paused_until[process] = self.at + self.rng.random_range(1..=6 * SECOND);
        } else if !self.crashed[process] {
            self.counts.process_crashes += 1;
            self.crashed[process] = true;
            // A dead process serves nobody: replace it by one without a lease.
            self.processes[process] = self.new_process(process);
            self.schedule_within(3 * SECOND, Event::Restart { process });
        }
        self.schedule_within(12 * SECOND, Event::Trouble { process });
    }
}

fn drifting_clock(rng: &mut ChaCha8Rng) -> DriftingClock {
    // Extremes are the interesting cases.
    let drift = match rng.random_range(0..3) {
        0 => 0,
        1 => 2 * DRIFT_PER_MILLISECOND,
        _ => rng.random_range(0..=2 * DRIFT_PER_MILLISECOND),
    };
    DriftingClock {
        origin: rng.random_range(10 * SECOND..1_000_000 * SECOND),
        per_millisecond: 1_000_000 - DRIFT_PER_MILLISECOND + drift,
    }
}

/// What a broken coordinator makes of a new record, knowing the old one.
type Forgery = fn(&ShardRecord, &mut ShardRecord);

/// The broken coordinator: changes the records of shards before they are journaled, knowing the old ones.
fn forge(core: &mut CoordinatorCore, before: CoordinatorCore, entries: &mut [Entry], change: Forgery) {
    let mut forged = before;
    let mut has_changed = false;
    for entry in entries.iter_mut() {
        let records: Vec<(&ShardId, &mut ShardRecord)> = match &mut entry.event {
            Fact::ShardChanged { shard, record } => vec![(&*shard, record)],
            Fact::BatchApplied { shards, .. } => shards.iter_mut().map(|(shard, record)| (&*shard, record)).collect(),
            _ => Vec::new(),
        };
        for (shard, record) in records {
            has_changed = true;
            if let Some(old) = forged.shard(shard) {
                change(&old.value, record);
            }
        }
        forged.replay(entry).expect("the entries are those of the step");
    }
    if has_changed {
        *core = forged;
    }
}

/// A new owner gets the old one's epoch.
fn forget_the_bump(old: &ShardRecord, new: &mut ShardRecord) {
    new.epoch = old.epoch;
}

/// A new owner's log is the one that has the commits.
fn take_the_history(old: &ShardRecord, new: &mut ShardRecord) {
    if let (Some(former), Ownership::Exclusive(state), Some(history)) = (old.owner(), &new.ownership, &mut new.history)
        && former != state.owner()
    {
        history.log.node = state.owner().node.clone();
        history.epoch = new.epoch;
    }
}

/// A new owner's commits are said to be where the old one's were.
fn leave_the_history(old: &ShardRecord, new: &mut ShardRecord) {
    if old.owner().is_some() && new.owner().is_some() && old.owner() != new.owner() {
        new.history = old.history.clone();
    }
}

/// An owner's commits are said to be in a log that it does not write any more.
fn name_the_former_log(old: &ShardRecord, new: &mut ShardRecord) {
    if let (true, Some(history)) = (old.history != new.history, &mut new.history) {
        history.log.number = history.log.number.saturating_sub(1);
    }
}
