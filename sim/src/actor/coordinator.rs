//! The coordinator: the product's core on a journal of its own.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{NodeEpoch, NodeId, ShardId};
use savanna_journal::{
    Draft, JournalError, Lsn, Options,
    sim::{SimDisk, Step, SteppedJournal},
};
use savanna_ownership::{
    core::{CoordinatorCore, Request as Change},
    event::Entry,
};
use savanna_rpc::{
    Delivery, RequestContext, Route, RpcError,
    sim::{EndpointAction, EndpointInput, HandlerKey, NodeAction, NodeInput, Packet, TimerId},
};

use super::{OWN_TIMERS, Out, OwnInput, Rpc, mono};
use crate::{
    history::Told,
    protocol::{CHANGE, ChangeReply, LOCATE, Refusal, VIEW, View, decode, encode},
};

const LEASES: u64 = OWN_TIMERS;
const DISK: u64 = OWN_TIMERS + 1;

type Answer = (HandlerKey, Result<Bytes, RpcError>);

/// The coordinator's process.
pub(crate) struct Coordinator {
    rpc: Rpc,
    core: CoordinatorCore,
    journal: SteppedJournal<Answer>,
    last: Lsn,
    rng: ChaCha8Rng,
    /// The journal has something to do.
    disk_busy: bool,
    /// Its next step is scheduled.
    disk_armed: bool,
}

impl Coordinator {
    /// Starts from what is on the disk. `incarnation` is its life's number.
    pub(crate) fn recover(
        disk: Arc<SimDisk>,
        ttl: Duration,
        incarnation: u64,
        seed: u64,
    ) -> Result<Self, JournalError> {
        let mut core = CoordinatorCore::new(ttl);
        let mut last = Lsn::NONE;
        let journal = SteppedJournal::open(&Options::disk(disk), NodeEpoch(incarnation), &mut |record| {
            let entry: Entry = serde_json::from_slice(&record.payload)?;
            last = record.lsn;
            core.replay(&entry)?;
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        })?;
        Ok(Self {
            rpc: Rpc::new(incarnation),
            core,
            journal,
            last,
            rng: ChaCha8Rng::seed_from_u64(seed ^ incarnation),
            disk_busy: false,
            disk_armed: false,
        })
    }

    pub(super) fn step(&mut self, input: NodeInput<Packet>, now: Duration) -> Out {
        let mut out = Out::new();
        match self.rpc.network_input(input) {
            Ok(input) => self.network(input, now, &mut out),
            Err(OwnInput::Start) => self.core.restart_leases(mono(now)),
            Err(OwnInput::Timer(LEASES)) => {
                let entries = self.core.step(&Change::Tick, mono(now)).entries;
                self.journal_entries(&entries, &mut out);
            }
            Err(OwnInput::Timer(DISK)) => self.disk_step(now, &mut out),
            Err(OwnInput::Timer(_)) => {}
        }
        if let Some(at) = self.core.wake_at() {
            let at = Duration::from_nanos(at.0);
            out.push(NodeAction::Timer { id: TimerId(LEASES), at: at.max(now + Duration::from_micros(1)) });
        }
        self.arm_disk(now, &mut out);
        self.rpc.arm(&mut out);
        out
    }

    fn network(&mut self, input: EndpointInput, now: Duration, out: &mut Out) {
        for action in self.rpc.feed(input, now, out) {
            if let EndpointAction::Start(key, context, body) = action {
                let answer = self.answer(&context, &body, now, out);
                // Also what was only read may rest on entries that are not durable yet.
                self.journal.hold(self.last, (key, answer));
                self.disk_busy = true;
            }
        }
    }

    fn answer(
        &mut self,
        context: &RequestContext,
        body: &[u8],
        now: Duration,
        out: &mut Out,
    ) -> Result<Bytes, RpcError> {
        match context.head.method.as_str() {
            CHANGE => {
                let change: Change = decode(body)?;
                let step = self.core.step(&change, mono(now));
                self.journal_entries(&step.entries, out);
                let reply: ChangeReply = step.reply.map_err(Refusal::from);
                Ok(encode(&reply))
            }
            VIEW => Ok(encode(&self.view())),
            LOCATE => self.locate(&decode(body)?).map(|route| encode(&route)),
            other => Err(RpcError::Refused { reason: format!("no method {other}") }),
        }
    }

    fn view(&self) -> View {
        let snapshot = self.core.snapshot();
        View {
            nodes: snapshot.nodes.into_iter().map(|node| node.tenure).collect(),
            shards: snapshot.shards.into_iter().map(|(id, record)| (id, record.version, record.value)).collect(),
        }
    }

    fn locate(&self, shard: &ShardId) -> Result<Route, RpcError> {
        let owned = self.core.shard(shard).and_then(|record| Some((record.value.owner()?, record.value.epoch)));
        match owned {
            Some((owner, epoch)) if self.core.node(&owner.node).is_some_and(|node| node.tenure == *owner) => {
                Ok(Route { node: owner.node.clone(), epoch })
            }
            _ => Err(RpcError::Unreachable {
                node: NodeId::new("owner"),
                reason: format!("shard {shard} has no owner at present"),
                delivery: Delivery::NotStarted,
            }),
        }
    }

    fn journal_entries(&mut self, entries: &[Entry], out: &mut Out) {
        for entry in entries {
            let payload = encode(entry);
            match self.journal.append(&[Draft { shard: 0, kind: 1, payload: &payload }]) {
                Ok(lsn) => self.last = lsn,
                Err(error) => out.push(NodeAction::Effect(Told::Exits(error.to_string()))),
            }
        }
        self.disk_busy |= !entries.is_empty();
    }

    fn disk_step(&mut self, now: Duration, out: &mut Out) {
        let mut answers: VecDeque<Answer> = VecDeque::new();
        self.disk_armed = false;
        match self.journal.step() {
            Step::Idle => self.disk_busy = false,
            Step::Released { replies, outcome: Ok(()) } => answers.extend(replies),
            Step::Released { outcome: Err(_), .. } | Step::Disk | Step::Put | Step::Wait(_) => {}
            Step::Stopped(reason) => {
                let reason = reason.map_or_else(|| "closed".to_owned(), |error| error.to_string());
                out.push(NodeAction::Effect(Told::Exits(reason)));
            }
        }
        for (key, result) in answers {
            // A reply has no further effect at the side that answers.
            let _none = self.rpc.feed(EndpointInput::Handled(key, result), now, out);
        }
    }

    fn arm_disk(&mut self, now: Duration, out: &mut Out) {
        if self.disk_busy && !self.disk_armed {
            self.disk_armed = true;
            out.push(NodeAction::Timer { id: TimerId(DISK), at: now + self.latency() });
        }
    }

    fn latency(&mut self) -> Duration {
        Duration::from_micros(self.rng.random_range(20..300))
    }
}
