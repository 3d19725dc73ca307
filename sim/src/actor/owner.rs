//! An owner of shards: holds its lease, appends writes to the shards' logs, and lets nothing out that the gate or the
//! lease forbids.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_journal::{
    Disk, Draft, JournalError, Lsn, Options,
    sim::{Step, SteppedJournal},
};
use savanna_ownership::{
    Incarnation, LeaseHolder, LeaseTerms, NodeSpec, ShardRecord, Tenure, Transition,
    core::{Reply, Request as Change},
    lease::{HolderAction, HolderInput, RenewalId},
};
use savanna_rpc::{
    CallId, Delivery, RequestContext, RpcError, decode_value, encode_value,
    sim::{EndpointAction, EndpointInput, HandlerKey, NodeAction, NodeInput, Packet, TimerId},
};

use super::{OWN_TIMERS, Out, OwnInput, Rpc, log_epoch, mono, reading};
use crate::{
    history::Told,
    protocol::{
        self, CHANGE, ChangeReply, READ, Refusal, RegisterRequest, VIEW, View, WRITE, coordinator, decode, encode,
        shard_number,
    },
};

const LEASE: u64 = OWN_TIMERS;
const POLL: u64 = OWN_TIMERS + 1;
const REGISTER: u64 = OWN_TIMERS + 2;
/// One timer per shard from here on.
const DISKS: u64 = OWN_TIMERS + 100;

const POLL_EVERY: Duration = Duration::from_millis(25);
const CALL_TIMEOUT: Duration = Duration::from_millis(150);
/// Small, so that segments roll, which is when a full disk shows: a segment has its space from the beginning.
const SEGMENT_BYTES: usize = 4 << 10;

/// What an owner is given.
#[derive(Clone)]
pub(crate) struct OwnerConfig {
    pub(crate) node: NodeId,
    /// Its place among the owners, for the first distribution of shards.
    pub(crate) place: usize,
    pub(crate) owners: usize,
    pub(crate) terms: LeaseTerms,
    /// Replies to writes wait in the gate; broken on purpose if not, see [`crate::Variant`].
    pub(crate) gate_writes: bool,
    /// The same of replies to reads.
    pub(crate) gate_reads: bool,
    /// The disks of all shards, reachable from every owner.
    pub(crate) disks: Vec<Arc<dyn Disk>>,
    pub(crate) seed: u64,
}

/// Why an rpc call was made.
enum Purpose {
    Register { sent_at: Duration },
    Renew(RenewalId),
    View,
    Take,
    HandOver { shard: usize, to: NodeId, epoch: OwnerEpoch },
}

/// A reply that waits in the gate.
struct Held {
    key: HandlerKey,
    told: Told,
    value: u64,
}

enum Phase {
    Serving,
    /// Closing the log, to give the shard to another node.
    Leaving {
        to: NodeId,
        closed: bool,
    },
}

struct Shard {
    epoch: OwnerEpoch,
    journal: SteppedJournal<Held>,
    /// Value and log position of each register written.
    registers: BTreeMap<u32, (u64, Lsn)>,
    /// The newest record that a read depends on.
    read_up_to: Lsn,
    phase: Phase,
    /// When the journal did something last: its clock goes from step to step.
    stepped_at: Duration,
    /// The journal has something to do.
    disk_busy: bool,
    /// Its next step is scheduled.
    disk_armed: bool,
}

/// An owner's process.
pub(crate) struct Owner {
    config: OwnerConfig,
    incarnation: u64,
    rpc: Rpc,
    rng: ChaCha8Rng,
    purposes: BTreeMap<CallId, Purpose>,
    holder: Option<LeaseHolder>,
    tenure: Option<Tenure>,
    shards: BTreeMap<usize, Shard>,
    /// Where shards went that this process gave away.
    moved: BTreeMap<usize, (NodeId, OwnerEpoch)>,
    view: View,
    started_at: Duration,
}

impl Owner {
    pub(crate) fn new(config: OwnerConfig, incarnation: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(config.seed ^ (incarnation << 8) ^ config.place as u64);
        Self {
            config,
            incarnation,
            rpc: Rpc::new(incarnation),
            rng,
            purposes: BTreeMap::new(),
            holder: None,
            tenure: None,
            shards: BTreeMap::new(),
            moved: BTreeMap::new(),
            view: View::default(),
            started_at: Duration::ZERO,
        }
    }

    /// The shards whose logs this process has open.
    pub(crate) fn open_shards(&self) -> impl Iterator<Item = usize> + '_ {
        self.shards.keys().copied()
    }

    /// Whether something was appended that is not flushed yet.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.shards.values().any(|shard| shard.journal.appended() > shard.journal.durable())
    }

    /// Whether somebody asked for something that is not flushed yet.
    pub(crate) fn has_unflushed_read(&self) -> bool {
        self.shards.values().any(|shard| shard.read_up_to > shard.journal.durable())
    }

    /// Begins to hand a shard to another node; false if this owner does not serve it.
    pub(crate) fn hand_over(&mut self, shard: usize, to: &NodeId, now: Duration) -> (bool, Out) {
        let mut out = Out::new();
        let serving = self.serving(now);
        let Some(held) = self.shards.get_mut(&shard).filter(|held| serving && matches!(held.phase, Phase::Serving))
        else {
            return (false, out);
        };
        held.phase = Phase::Leaving { to: to.clone(), closed: false };
        held.journal.close();
        held.disk_busy = true;
        self.arm_disks(now, &mut out);
        (true, out)
    }

    pub(super) fn step(&mut self, input: NodeInput<Packet>, now: Duration) -> Out {
        let mut out = Out::new();
        match self.rpc.network_input(input) {
            Ok(input) => {
                let actions = self.rpc.feed(input, now, &mut out);
                self.endpoint(actions, now, &mut out);
            }
            Err(OwnInput::Start) => {
                self.started_at = now;
                self.register(now, &mut out);
                self.poll(now, &mut out);
            }
            Err(OwnInput::Timer(LEASE)) => self.lease(HolderInput::Tick, now, &mut out),
            Err(OwnInput::Timer(POLL)) => self.poll(now, &mut out),
            Err(OwnInput::Timer(REGISTER)) => self.register(now, &mut out),
            Err(OwnInput::Timer(number)) => {
                let shard = usize::try_from(number - DISKS).expect("timers of shards begin at DISKS");
                self.disk_step(shard, now, &mut out);
            }
        }
        if let Some(at) = self.holder.as_ref().and_then(LeaseHolder::wake_at) {
            out.push(NodeAction::Timer { id: TimerId(LEASE), at: reading(at).max(now + Duration::from_micros(1)) });
        }
        self.arm_disks(now, &mut out);
        self.rpc.arm(&mut out);
        out
    }

    /// The one question before anything is told to anybody.
    fn serving(&self, now: Duration) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.serving(mono(now)))
    }

    // --- the lease -------------------------------------------------------------------------------------------------

    fn register(&mut self, now: Duration, out: &mut Out) {
        if self.tenure.is_some() {
            return;
        }
        let spec = NodeSpec {
            name: self.config.node.clone(),
            incarnation: Incarnation(self.incarnation),
            address: format!("{}:7400", self.config.node),
            labels: BTreeMap::new(),
        };
        self.change(Purpose::Register { sent_at: now }, &Change::Register(spec), now, out);
    }

    fn lease(&mut self, input: HolderInput, now: Duration, out: &mut Out) {
        let Some(holder) = &mut self.holder else {
            return;
        };
        for action in holder.step(input, mono(now)) {
            match action {
                HolderAction::Renew(id) => {
                    if let Some(tenure) = self.tenure.clone() {
                        self.change(Purpose::Renew(id), &Change::Heartbeat(tenure), now, out);
                    }
                }
                HolderAction::Stop(loss) => {
                    out.push(NodeAction::Effect(Told::Exits(format!("the lease is lost: {loss:?}"))));
                }
                HolderAction::Suspend | HolderAction::Resume | HolderAction::Drain { .. } => {}
            }
        }
    }

    // --- the coordinator -------------------------------------------------------------------------------------------

    fn poll(&mut self, now: Duration, out: &mut Out) {
        let jitter = Duration::from_micros(self.rng.random_range(0..5_000));
        out.push(NodeAction::Timer { id: TimerId(POLL), at: now + POLL_EVERY + jitter });
        let request = protocol::request(VIEW, true, Bytes::new(), CALL_TIMEOUT);
        self.call(Purpose::View, request, now, out);
    }

    fn change(&mut self, purpose: Purpose, change: &Change, now: Duration, out: &mut Out) {
        let request = protocol::request(CHANGE, false, encode(change), CALL_TIMEOUT);
        self.call(purpose, request, now, out);
    }

    fn call(&mut self, purpose: Purpose, request: savanna_rpc::Request, now: Duration, out: &mut Out) {
        let id = self.rpc.new_call();
        self.purposes.insert(id, purpose);
        let actions = self.rpc.call(id, coordinator(), request, now, out);
        self.endpoint(actions, now, out);
    }

    fn endpoint(&mut self, actions: Vec<EndpointAction>, now: Duration, out: &mut Out) {
        for action in actions {
            match action {
                EndpointAction::Start(key, context, body) => self.request(key, &context, &body, now, out),
                EndpointAction::Complete(id, result) => {
                    if let Some(purpose) = self.purposes.remove(&id) {
                        self.answered(purpose, result, now, out);
                    }
                }
                // A write that was ordered stays ordered; its reply finds nobody.
                EndpointAction::Abort(_) | EndpointAction::Send(..) => {}
            }
        }
    }

    fn answered(&mut self, purpose: Purpose, result: Result<Bytes, RpcError>, now: Duration, out: &mut Out) {
        let reply = |result: Result<Bytes, RpcError>| result.and_then(|body| decode::<ChangeReply>(&body));
        match purpose {
            Purpose::View => {
                if let Ok(view) = result.and_then(|body| decode::<View>(&body)) {
                    self.view = view;
                    self.follow_view(now, out);
                }
            }
            Purpose::Register { sent_at } => match reply(result) {
                Ok(Ok(Reply::Granted(grant))) if self.tenure.is_none() => {
                    self.tenure = Some(grant.tenure);
                    self.holder = Some(LeaseHolder::new(self.config.terms, mono(sent_at)));
                    self.lease(HolderInput::Tick, now, out);
                }
                Ok(Err(Refusal::Held { remaining })) => {
                    let pause = remaining.clamp(Duration::from_millis(10), Duration::from_millis(200));
                    out.push(NodeAction::Timer { id: TimerId(REGISTER), at: now + pause });
                }
                _ => out.push(NodeAction::Timer { id: TimerId(REGISTER), at: now + Duration::from_millis(40) }),
            },
            Purpose::Renew(id) => match reply(result) {
                Ok(Ok(Reply::Renewed(ttl))) => self.lease(HolderInput::Renewed(id, ttl), now, out),
                Ok(Err(Refusal::TenureOver)) => self.lease(HolderInput::Ended, now, out),
                Ok(Err(Refusal::Claimed)) => self.lease(HolderInput::Claimed, now, out),
                _ => {}
            },
            // Won or lost, the next view tells.
            Purpose::Take => {}
            Purpose::HandOver { shard, to, epoch } => {
                if matches!(reply(result), Ok(Ok(Reply::Changed(_)))) {
                    self.shards.remove(&shard);
                    self.moved.insert(shard, (to, epoch));
                }
            }
        }
    }

    /// Opens what is ours, gives away what is to go, and takes what has no owner.
    fn follow_view(&mut self, now: Duration, out: &mut Out) {
        let Some(tenure) = self.tenure.clone().filter(|_| self.serving(now)) else {
            return;
        };
        if !self.view.nodes.contains(&tenure) {
            return;
        }
        for number in 0..self.config.disks.len() {
            let id = protocol::shard(number);
            let found = self.view.shards.iter().find(|(shard, ..)| *shard == id).cloned();
            match found {
                Some((_, version, record)) if record.owner() == Some(&tenure) => {
                    if self.shards.contains_key(&number) {
                        self.propose_hand_over(number, version, &tenure, now, out);
                    } else if self.moved.get(&number).is_none_or(|(_, epoch)| *epoch <= record.epoch) {
                        self.open(number, record.epoch, now, out);
                    }
                }
                Some((_, version, record)) => {
                    if self.shards.get(&number).is_some_and(|held| held.epoch < record.epoch) {
                        self.shards.remove(&number);
                    }
                    if let Some(owner) = record.owner() {
                        self.moved.insert(number, (owner.node.clone(), record.epoch));
                        if !self.view.nodes.contains(owner) {
                            self.take(id, version, record.epoch, &tenure, now, out);
                        }
                    }
                }
                None => {
                    // At first everybody takes its part; what is left after a while is anybody's.
                    let mine = number % self.config.owners == self.config.place;
                    if mine || now.saturating_sub(self.started_at) > Duration::from_millis(400) {
                        self.take(id, savanna_ownership::Revision::NONE, OwnerEpoch::NONE, &tenure, now, out);
                    }
                }
            }
        }
    }

    fn take(
        &mut self,
        shard: ShardId,
        expected: savanna_ownership::Revision,
        epoch: OwnerEpoch,
        tenure: &Tenure,
        now: Duration,
        out: &mut Out,
    ) {
        // Not all at once: half of the chances are left to the others.
        if epoch > OwnerEpoch::NONE && self.rng.random_bool(0.5) {
            return;
        }
        let record = ShardRecord::serving(tenure.clone(), epoch.next());
        self.change(Purpose::Take, &Change::Apply(Transition { shard, expected, record, by: None }.into()), now, out);
    }

    fn propose_hand_over(
        &mut self,
        number: usize,
        expected: savanna_ownership::Revision,
        tenure: &Tenure,
        now: Duration,
        out: &mut Out,
    ) {
        let Some(Shard { epoch, phase: Phase::Leaving { to, closed: true }, .. }) = self.shards.get(&number) else {
            return;
        };
        // A closed log is never opened again under its epoch: if the destination is gone, any other will do.
        let living = self.view.nodes.iter().filter(|node| node.node != tenure.node);
        let Some(to) = living.clone().find(|node| node.node == *to).or_else(|| living.clone().next()) else {
            return;
        };
        let epoch = epoch.next();
        let purpose = Purpose::HandOver { shard: number, to: to.node.clone(), epoch };
        let record = ShardRecord::serving(to.clone(), epoch);
        let transition = Transition { shard: protocol::shard(number), expected, record, by: Some(tenure.clone()) };
        self.change(purpose, &Change::Apply(transition.into()), now, out);
    }

    // --- the log ---------------------------------------------------------------------------------------------------

    fn open(&mut self, number: usize, epoch: OwnerEpoch, now: Duration, out: &mut Out) {
        let mut registers = BTreeMap::new();
        let mut values = Vec::new();
        let options = Options::disk(Arc::clone(&self.config.disks[number])).segment_bytes(SEGMENT_BYTES);
        let opened = SteppedJournal::open(&options, log_epoch(epoch), &mut |record| {
            let RegisterRequest { key, value } = decode_value(WRITE, &record.payload)?;
            registers.insert(key, (value, record.lsn));
            values.push(value);
            Ok::<(), RpcError>(())
        });
        match opened {
            Ok(journal) => {
                out.push(NodeAction::Effect(Told::Recovered { shard: number, epoch, values }));
                self.moved.remove(&number);
                let shard = Shard {
                    epoch,
                    journal,
                    registers,
                    read_up_to: Lsn::NONE,
                    phase: Phase::Serving,
                    stepped_at: now,
                    disk_busy: false,
                    disk_armed: false,
                };
                self.shards.insert(number, shard);
            }
            Err(
                error @ (JournalError::Corrupt { .. } | JournalError::Missing { .. } | JournalError::Replay { .. }),
            ) => {
                out.push(NodeAction::Effect(Told::Unreadable { shard: number, reason: error.to_string() }));
            }
            // This epoch may have raised its fence and cannot be opened a second time: only a new tenure helps.
            Err(error) => out.push(NodeAction::Effect(Told::Exits(error.to_string()))),
        }
        self.arm_disks(now, out);
    }

    fn request(&mut self, key: HandlerKey, context: &RequestContext, body: &[u8], now: Duration, out: &mut Out) {
        if let Err(error) = self.accept(&key, context, body, now, out) {
            self.reply(key, Err(error), now, out);
        }
    }

    /// Orders a write or looks a register up; the reply waits in the gate.
    fn accept(
        &mut self,
        key: &HandlerKey,
        context: &RequestContext,
        body: &[u8],
        now: Duration,
        out: &mut Out,
    ) -> Result<(), RpcError> {
        let write = context.head.method == WRITE;
        let request: RegisterRequest = decode_value(if write { WRITE } else { READ }, body)?;
        let number = context.head.shard.as_ref().and_then(|at| shard_number(&at.shard));
        let number =
            number.ok_or_else(|| RpcError::Malformed { reason: "expected a shard in the request".to_owned() })?;
        if !self.serving(now) {
            return Err(self.not_serving("its lease has run out"));
        }
        let Some(shard) = self.shards.get_mut(&number) else {
            return Err(match self.moved.get(&number) {
                Some((to, epoch)) if *to != self.config.node => RpcError::Moved { to: to.clone(), epoch: *epoch },
                _ => self.not_serving("it does not have the shard"),
            });
        };
        if matches!(shard.phase, Phase::Leaving { .. }) {
            return Err(RpcError::Frozen { retry_after: Duration::from_millis(15) });
        }
        let (lsn, told, value) = if write {
            let lsn = shard
                .journal
                .append(&[Draft { shard: number as u64, kind: 1, payload: body }])
                .map_err(|error| RpcError::Refused { reason: error.to_string() })?;
            shard.registers.insert(request.key, (request.value, lsn));
            let told = Told::Acknowledged { shard: number, epoch: shard.epoch, value: request.value };
            (lsn, told, request.value)
        } else {
            let (value, lsn) = shard.registers.get(&request.key).copied().unwrap_or((0, Lsn::NONE));
            shard.read_up_to = shard.read_up_to.max(lsn);
            (lsn, Told::Answered { shard: number, epoch: shard.epoch, value }, value)
        };
        shard.disk_busy = true;
        let held = Held { key: key.clone(), told, value };
        let gated = if write { self.config.gate_writes } else { self.config.gate_reads };
        if gated {
            shard.journal.hold(lsn, held);
        } else {
            self.tell(held, now, out);
        }
        Ok(())
    }

    fn not_serving(&self, why: &str) -> RpcError {
        RpcError::Unreachable {
            node: self.config.node.clone(),
            reason: format!("it does not serve: {why}"),
            delivery: Delivery::NotStarted,
        }
    }

    /// Lets a reply leave the process.
    fn tell(&mut self, held: Held, now: Duration, out: &mut Out) {
        let Held { key, told, value } = held;
        out.push(NodeAction::Effect(told));
        let body = encode_value(READ, &value);
        self.reply(key, body, now, out);
    }

    fn reply(&mut self, key: HandlerKey, result: Result<Bytes, RpcError>, now: Duration, out: &mut Out) {
        // A reply has no further effect at the side that answers.
        let _none = self.rpc.feed(EndpointInput::Handled(key, result), now, out);
    }

    fn disk_step(&mut self, number: usize, now: Duration, out: &mut Out) {
        let serving = self.serving(now);
        let Some(shard) = self.shards.get_mut(&number) else {
            return;
        };
        shard.disk_armed = false;
        shard.journal.advance(now.saturating_sub(shard.stepped_at));
        shard.stepped_at = now;
        match shard.journal.step() {
            Step::Idle => shard.disk_busy = false,
            Step::Disk | Step::Put | Step::Wait(_) => {}
            Step::Released { replies, outcome } => {
                for held in replies {
                    if outcome.is_ok() && serving {
                        self.tell(held, now, out);
                    } else {
                        // The write is in the log or will be, or not: this owner may not say.
                        let method = if matches!(held.told, Told::Answered { .. }) { READ } else { WRITE };
                        self.reply(held.key, Err(RpcError::Failed { method: method.to_owned() }), now, out);
                    }
                }
            }
            Step::Stopped(None) => {
                shard.disk_busy = false;
                if let Phase::Leaving { closed, .. } = &mut shard.phase {
                    *closed = true;
                }
            }
            Step::Stopped(Some(JournalError::Fenced { .. })) => {
                self.shards.remove(&number);
            }
            // A failed disk operation is never repeated; the process stops.
            Step::Stopped(Some(error)) => out.push(NodeAction::Effect(Told::Exits(error.to_string()))),
        }
    }

    fn arm_disks(&mut self, now: Duration, out: &mut Out) {
        for (number, shard) in &mut self.shards {
            if shard.disk_busy && !shard.disk_armed {
                shard.disk_armed = true;
                let latency = Duration::from_micros(self.rng.random_range(50..800));
                out.push(NodeAction::Timer { id: TimerId(DISKS + *number as u64), at: now + latency });
            }
        }
    }
}
