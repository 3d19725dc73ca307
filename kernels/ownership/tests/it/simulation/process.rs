//! One process: it holds a name by a lease, serves shards, and moves them about at random.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{LogId, NodeId, OwnerEpoch, ShardId};
use savanna_ownership::core::{Reply, Request};
use savanna_ownership::lease::{HolderAction, HolderInput};
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState, NewLog};
use savanna_ownership::{
    Batch, ClaimOutcome, ClusterView, CoordinatorError, Exclusive, Grant, History, Incarnation, LeaseHolder,
    LeaseTerms, MonoTime, NodeSpec, Ownership, Revision, ShardRecord, Tenure, Transition, Versioned,
};

/// A clock that runs too fast or too slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriftingClock {
    /// What it shows at true time 0.
    pub(super) origin: u64,
    /// Nanoseconds it counts in a true millisecond, a million if it were right.
    pub(super) per_millisecond: u64,
}

impl DriftingClock {
    pub(super) fn read(&self, at: u64) -> MonoTime {
        let counted = u128::from(at) * u128::from(self.per_millisecond) / 1_000_000;
        MonoTime(self.origin + u64::try_from(counted).expect("simulated runs are short"))
    }
}

/// What a process asks the coordinator.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Change(Request),
    Read(ShardId),
}

/// What the coordinator answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Change(Result<Reply, CoordinatorError>),
    Read(Option<Versioned<ShardRecord>>),
}

/// The records of all logs.
type Logs = BTreeMap<LogId, LogRecord>;

/// How the process is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub(super) terms: LeaseTerms,
    /// Broken: counts its lease from when the answer arrives.
    pub(super) count_from_reply: bool,
    /// Broken: serves again when a proposal to lose a shard was not answered.
    pub(super) resume_after_timeout: bool,
}

/// An unanswered request is given up after this long, by the true clock.
pub(super) const TIMEOUT: u64 = 800_000_000;

enum Waiting {
    Join {
        sent_at: MonoTime,
    },
    Renewal(savanna_ownership::lease::RenewalId),
    Read(ShardId),
    Propose(Vec<(ShardId, ShardRecord)>),
    Ids,
    LogNumber,
    /// A change of a log's record; what became of it shows in the view.
    Log,
}

/// What a process believes of a shard.
#[derive(Default)]
struct Belief {
    known: Option<Versioned<ShardRecord>>,
    /// Bit per granule that it serves, lease permitting.
    granules: u8,
    epoch: OwnerEpoch,
    /// It proposed to lose granules at this version, and does not know the outcome.
    yielded_at: Option<Revision>,
}

pub(super) struct Process {
    pub(super) incarnation: Incarnation,
    name: NodeId,
    clock: DriftingClock,
    habits: Habits,
    lease: Option<(Tenure, LeaseHolder)>,
    beliefs: BTreeMap<ShardId, Belief>,
    waiting: BTreeMap<u64, (u64, Waiting)>,
    /// A name for its next log.
    new_log: Option<NewLog>,
    next_request: u64,
}

const BOTH: u8 = 0b11;

impl Process {
    pub(super) fn new(name: NodeId, incarnation: Incarnation, clock: DriftingClock, habits: Habits) -> Self {
        Self {
            incarnation,
            name,
            clock,
            habits,
            lease: None,
            beliefs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            new_log: None,
            next_request: 0,
        }
    }

    pub(super) fn tenure(&self) -> Option<&Tenure> {
        self.lease.as_ref().map(|(tenure, _)| tenure)
    }

    /// What the product's guard would say.
    pub(super) fn serving(&self, at: u64) -> bool {
        self.lease.as_ref().is_some_and(|(_, holder)| holder.serving(self.clock.read(at)))
    }

    pub(super) fn served_granules(&self) -> impl Iterator<Item = (&ShardId, u8, OwnerEpoch)> {
        self.beliefs.iter().flat_map(|(shard, belief)| {
            (0..2).filter(|granule| belief.granules & (1 << granule) != 0).map(move |g| (shard, g, belief.epoch))
        })
    }

    /// Does what is due and something at random. In `view` are tenures that it might hand shards to, and logs.
    pub(super) fn wake(
        &mut self,
        at: u64,
        rng: &mut ChaCha8Rng,
        shards: &[ShardId],
        view: &ClusterView,
    ) -> Vec<(u64, Ask)> {
        let now = self.clock.read(at);
        self.give_up_unanswered(at);
        let mut asks = self.step_lease(HolderInput::Tick, at);
        if self.lease.is_none() {
            let joining = self.waiting.values().any(|(_, waiting)| matches!(waiting, Waiting::Join { .. }));
            if !joining {
                let spec = NodeSpec {
                    name: self.name.clone(),
                    incarnation: self.incarnation,
                    address: String::new(),
                    labels: BTreeMap::new(),
                };
                let request = if rng.random_bool(0.7) { Request::Register(spec) } else { Request::Claim(spec) };
                asks.push(self.ask(at, Ask::Change(request), Waiting::Join { sent_at: now }));
            }
            return asks;
        }
        if !self.serving(at) {
            return asks;
        }
        let logs = logs::all(view).expect("logs write their records");
        asks.extend(self.care_for_logs(at, rng, view, &logs));
        if rng.random_bool(0.2) {
            let allocate = Request::Allocate { name: "ids".to_owned(), count: rng.random_range(1..20) };
            asks.push(self.ask(at, Ask::Change(allocate), Waiting::Ids));
        }
        let count = if rng.random_bool(0.3) { 2 } else { 1 };
        let chosen: Vec<ShardId> = shards.choose_multiple(rng, count).cloned().collect();
        if rng.random_bool(0.5) {
            for shard in chosen {
                asks.push(self.ask(at, Ask::Read(shard.clone()), Waiting::Read(shard)));
            }
        } else {
            let proposals: Vec<_> = chosen
                .into_iter()
                .filter_map(|shard| self.proposal(&shard, rng, view, &logs).map(|(record, lost)| (shard, record, lost)))
                .collect();
            if !proposals.is_empty() {
                asks.push(self.propose(at, proposals));
            }
        }
        asks
    }

    /// Goes on with a log of its own, or ends or forgets one of others.
    fn care_for_logs(&mut self, at: u64, rng: &mut ChaCha8Rng, view: &ClusterView, logs: &Logs) -> Option<(u64, Ask)> {
        let me = self.tenure()?.clone();
        let is_mine = |record: &LogRecord| record.state == LogState::Open && record.holder == me;
        let is_waiting = self.waiting.values().any(|(_, waiting)| matches!(waiting, Waiting::LogNumber | Waiting::Log));
        if is_waiting {
            return None;
        }
        let change = if logs.values().any(is_mine) {
            let (log, _) = logs.iter().nth(rng.random_range(0..logs.len() * 8))?;
            logs::seal(view, log).or_else(|_| logs::remove(view, log)).ok()?
        } else if let Some(new) = self.new_log.take() {
            logs::begin(view, new, LogPlace::Folder(String::new()), me).ok()?
        } else if let Some(taken) = logs.keys().find_map(|log| logs::take_over(view, log, me.clone()).ok())
            && rng.random()
        {
            taken
        } else {
            let allocate = Request::Allocate { name: NewLog::sequence(&self.name), count: 1 };
            return Some(self.ask(at, Ask::Change(allocate), Waiting::LogNumber));
        };
        Some(self.ask(at, Ask::Change(Request::Apply(change.into())), Waiting::Log))
    }

    /// A next record for a shard, and the granules that this process loses by it.
    fn proposal(
        &self,
        shard: &ShardId,
        rng: &mut ChaCha8Rng,
        view: &ClusterView,
        logs: &Logs,
    ) -> Option<(ShardRecord, u8)> {
        let me = self.tenure()?.clone();
        let belief = self.beliefs.get(shard)?;
        let others: Vec<&Tenure> = view.nodes().map(|node| &node.tenure).filter(|tenure| **tenure != me).collect();
        let other = others.choose(rng).copied().cloned();
        let Some(known) = &belief.known else {
            return Some((ShardRecord::serving(me, OwnerEpoch::NONE.next()), 0));
        };
        let (epoch, history) = (known.value.epoch, known.value.history.clone());
        let same = |state| ShardRecord::exclusive(epoch, state).with_history(history.clone());
        let next = |state| ShardRecord::exclusive(epoch.next(), state).with_history(history.clone());
        let serving = |owner: &Tenure| Exclusive::Serving { owner: owner.clone() };
        let log_of = |owner: &Tenure, epoch| {
            let is_its = |record: &LogRecord| record.state == LogState::Open && record.holder == *owner;
            let (log, _) = logs.iter().find(|(_, record)| is_its(record))?;
            Some(History { log: log.clone(), epoch })
        };
        let choice = rng.random_range(0..5);
        Some(match &known.value.ownership {
            Ownership::Exclusive(state) if *state.owner() == me && choice == 4 => {
                (same(state.clone()).with_history(log_of(&me, epoch)), 0)
            }
            Ownership::Exclusive(Exclusive::Serving { owner }) if *owner == me => match (choice, other) {
                (0, Some(to)) => (next(serving(&to)), BOTH),
                (1, _) => (ShardRecord::retired(epoch), BOTH),
                (_, Some(to)) => (same(Exclusive::Moving { from: me, to }), 0),
                (_, None) => return None,
            },
            Ownership::Exclusive(Exclusive::Moving { from, to }) if *from == me => match choice {
                0 => (same(serving(&me)), 0),
                1 => (next(serving(to)).with_history(log_of(to, epoch.next())), BOTH),
                _ => (next(Exclusive::Dual { from: me, to: to.clone() }), 0b10),
            },
            Ownership::Exclusive(Exclusive::Dual { from, to }) if *from == me => (same(serving(to)), 0b01),
            Ownership::Exclusive(Exclusive::Dual { from, to }) if *to == me => match choice {
                0 => (next(serving(from)), 0b10),
                _ => (same(serving(&me)), 0),
            },
            Ownership::Exclusive(Exclusive::Moving { from, .. }) if choice == 0 => (same(serving(from)), 0),
            _ => (next(serving(&me)), 0),
        })
    }

    /// Proposes records, each with the granules that this process loses by it, all or nothing.
    fn propose(&mut self, at: u64, proposals: Vec<(ShardId, ShardRecord, u8)>) -> (u64, Ask) {
        let by = self.tenure().cloned();
        let mut batch = Batch::default();
        let mut records = Vec::new();
        for (shard, record, lost) in proposals {
            let belief = self.beliefs.entry(shard.clone()).or_default();
            let expected = belief.known.as_ref().map_or(Revision::NONE, |known| known.version);
            if belief.granules & lost != 0 {
                belief.granules &= !lost;
                belief.yielded_at = Some(expected);
            }
            records.push((shard.clone(), record.clone()));
            batch.transitions.push(Transition { shard, expected, record, by: by.clone() });
        }
        self.ask(at, Ask::Change(Request::Apply(batch)), Waiting::Propose(records))
    }

    /// Takes an answer. Returns what to ask next, and ids that it was told.
    pub(super) fn answer(
        &mut self,
        at: u64,
        request: u64,
        answer: Answer,
    ) -> (Vec<(u64, Ask)>, Option<std::ops::Range<u64>>) {
        let now = self.clock.read(at);
        let Some((_, waiting)) = self.waiting.remove(&request) else {
            return (Vec::new(), None);
        };
        match (waiting, answer) {
            (
                Waiting::Join { sent_at },
                Answer::Change(Ok(Reply::Granted(grant) | Reply::Claim(ClaimOutcome::Granted(grant)))),
            ) => {
                if self.lease.is_none() {
                    self.join(&grant, if self.habits.count_from_reply { now } else { sent_at });
                }
                (Vec::new(), None)
            }
            (Waiting::Renewal(id), Answer::Change(result)) => {
                let input = match result {
                    Ok(_) if self.habits.count_from_reply => {
                        if let Some((tenure, _)) = self.lease.take() {
                            self.lease = Some((tenure, LeaseHolder::new(self.habits.terms, now)));
                        }
                        HolderInput::Tick
                    }
                    Ok(Reply::Renewed(ttl)) => HolderInput::Renewed(id, ttl),
                    Err(CoordinatorError::Claimed { .. }) => HolderInput::Claimed,
                    Err(CoordinatorError::TenureOver { .. }) => HolderInput::Ended,
                    Ok(_) | Err(_) => HolderInput::Tick,
                };
                (self.step_lease(input, at), None)
            }
            (Waiting::Read(shard), Answer::Read(Some(read))) => {
                self.learn(&shard, read);
                (Vec::new(), None)
            }
            (Waiting::Read(shard), Answer::Read(None)) => {
                self.beliefs.entry(shard).or_default();
                (Vec::new(), None)
            }
            (Waiting::Propose(records), Answer::Change(Ok(Reply::Changed(version)))) => {
                for (shard, record) in records {
                    self.learn(&shard, Versioned { version, value: record });
                }
                (Vec::new(), None)
            }
            (Waiting::Ids, Answer::Change(Ok(Reply::Ids(ids)))) => (Vec::new(), Some(ids)),
            (Waiting::LogNumber, Answer::Change(Ok(Reply::Ids(numbers)))) => {
                self.new_log = NewLog::numbered(&self.name, "tenants", &numbers).ok();
                (Vec::new(), None)
            }
            // A refused proposal settles nothing: a copy of it may come again when the refusal's reason is gone.
            _ => (Vec::new(), None),
        }
    }

    fn join(&mut self, grant: &Grant, counted_from: MonoTime) {
        self.lease = Some((grant.tenure.clone(), LeaseHolder::new(self.habits.terms, counted_from)));
        self.beliefs.clear();
    }

    /// Learns a shard's record; what is older than it knows, or than its own proposal to yield, says nothing.
    fn learn(&mut self, shard: &ShardId, read: Versioned<ShardRecord>) {
        let Some((tenure, _)) = &self.lease else {
            return;
        };
        let belief = self.beliefs.entry(shard.clone()).or_default();
        if belief.known.as_ref().is_some_and(|known| known.version > read.version) {
            return;
        }
        if belief.yielded_at.is_none_or(|yielded_at| read.version > yielded_at) {
            belief.yielded_at = None;
            belief.granules =
                match &read.value.ownership {
                    Ownership::Exclusive(Exclusive::Dual { from, .. }) if from == tenure => 0b01,
                    Ownership::Exclusive(Exclusive::Dual { to, .. }) if to == tenure => 0b10,
                    Ownership::Exclusive(
                        Exclusive::Serving { owner: server } | Exclusive::Moving { from: server, .. },
                    ) if server == tenure => BOTH,
                    _ => 0,
                };
            belief.epoch = read.value.epoch_of(tenure).unwrap_or(OwnerEpoch::NONE);
        }
        belief.known = Some(read);
    }

    fn step_lease(&mut self, input: HolderInput, at: u64) -> Vec<(u64, Ask)> {
        let now = self.clock.read(at);
        let Some((tenure, holder)) = &mut self.lease else {
            return Vec::new();
        };
        let tenure = tenure.clone();
        let actions = holder.step(input, now);
        let mut asks = Vec::new();
        for action in actions {
            match action {
                HolderAction::Renew(id) => {
                    let heartbeat = Ask::Change(Request::Heartbeat(tenure.clone()));
                    asks.push(self.ask(at, heartbeat, Waiting::Renewal(id)));
                }
                HolderAction::Stop(_) => {
                    // A process that lost its lease starts anew, as another life.
                    self.lease = None;
                    self.beliefs.clear();
                    self.waiting.clear();
                    self.incarnation = Incarnation(self.incarnation.0 + 1_000_000);
                }
                HolderAction::Suspend | HolderAction::Resume | HolderAction::Drain { .. } => {}
            }
        }
        asks
    }

    fn give_up_unanswered(&mut self, at: u64) {
        let late: Vec<u64> =
            self.waiting.iter().filter(|(_, (sent, _))| sent + TIMEOUT <= at).map(|(request, _)| *request).collect();
        for request in late {
            if let Some((_, Waiting::Propose(records))) = self.waiting.remove(&request)
                && self.habits.resume_after_timeout
            {
                records.into_iter().for_each(|(shard, _)| self.resume(&shard));
            }
        }
    }

    /// Broken: takes what it proposed to lose for its own again.
    fn resume(&mut self, shard: &ShardId) {
        if let Some(belief) = self.beliefs.get_mut(shard)
            && belief.yielded_at.take().is_some()
            && let Some(known) = belief.known.take()
        {
            self.learn(shard, known);
        }
    }

    fn ask(&mut self, at: u64, ask: Ask, waiting: Waiting) -> (u64, Ask) {
        let request = self.next_request;
        self.next_request += 1;
        self.waiting.insert(request, (at, waiting));
        (request, ask)
    }
}
