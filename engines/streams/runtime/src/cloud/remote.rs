//! The driver's side: what stands where a member would, and calls a function instead of computing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Operator, StageGraph};
use savanna_streams_model::payload::{Body, Payload};

use super::context::{Specialised, StageContext};
use super::lane::{Heard, Lane, Step};
use super::wire::{
    Answer, Call, Status, VERSION, WireOutput, WirePayload, WireState, body_max, decode_outputs, encode, joined,
};
use super::{CallError, Cloud, CloudFunction};
use crate::arena::InputKey;
use crate::error::broken;
use crate::member::{Outcome, Outgoing, Retained};
use crate::options::RuntimeOptions;
use crate::query::Progress;
use crate::topology::Topology;

/// Calls for the rows of one source partition that are made at once.
const ROWS_AT_ONCE: usize = 8;
/// Pauses are cut into so long ones, to hear of the end of the query.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A function of a query, as its driver sees it.
struct Function {
    cloud: Arc<dyn Cloud>,
    name: String,
    query: QueryId,
    stage: StageId,
    shuffle: u16,
    context: Arc<Specialised>,
    progress: Arc<Progress>,
    /// The query is over.
    stopped: Arc<AtomicBool>,
    sleep: fn(Duration),
}

/// What stands for a function.
pub(crate) enum Remote {
    /// What becomes of the rows of a source partition.
    Rows(Box<Rows>),
    /// A member that holds state.
    Member(Box<RemoteMember>),
}

/// Rows of a source partition: any instance computes what becomes of them.
pub(crate) struct Rows {
    function: Function,
    /// Rows without event time, which count as late.
    without_time: Arc<AtomicU64>,
}

/// A member whose operator is elsewhere.
pub(crate) struct RemoteMember {
    function: Function,
    inputs: Vec<InputKey>,
    applied: Epoch,
    retained: Retained,
    /// What has come for epochs that are not applied, or that an instance may lack: all behind `state`.
    sent: BTreeMap<Epoch, Sets>,
    sent_bytes: usize,
    /// The state behind an epoch.
    state: Option<WireState>,
    /// With more bytes of what was sent, the state is asked for.
    state_after: usize,
    /// What the instance said that it holds.
    bytes: usize,
}

/// The payloads of an epoch for one member, by input and sequence, each in parts.
#[derive(Default)]
struct Sets(BTreeMap<InputKey, Set>);

#[derive(Default)]
struct Set {
    len: u32,
    payloads: BTreeMap<u32, Vec<WirePayload>>,
}

/// An answer to all calls for one epoch.
struct Whole {
    outputs: Vec<Outgoing>,
    windows: Vec<i64>,
    without_time: u64,
    bytes: usize,
    state: Option<WireState>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.function().name).finish()
    }
}

/// All functions of a query by stage and member, which are there when this returns. Those of the sink's stage are none. `without_time` are
/// the counters of the source partitions, in their order.
///
/// # Errors
/// A stage cannot run in a function, or a function cannot be made.
pub(crate) fn deploy(
    query: &QueryId,
    graph: &StageGraph,
    topology: &Topology,
    options: &RuntimeOptions,
    progress: &Arc<Progress>,
    stopped: &Arc<AtomicBool>,
    without_time: &BTreeMap<StageId, Vec<Arc<AtomicU64>>>,
) -> Result<Vec<Vec<Remote>>> {
    let Some(cloud) = &options.cloud else { return Ok(Vec::new()) };
    let (mut wanted, mut remotes) = (Vec::new(), Vec::new());
    for stage in &graph.stages {
        if matches!(stage.operator, Operator::Sink(_)) {
            remotes.push(Vec::new());
            continue;
        }
        let context = Arc::new(StageContext::of(query, graph, topology, stage.id, options)?.specialise()?);
        let mut function = |name: String, shuffle: u16, concurrency: Option<u32>| {
            let is_new = wanted.last().is_none_or(|function: &CloudFunction| function.name != name);
            if is_new {
                wanted.push(CloudFunction { name: name.clone(), context: context.environment(), concurrency });
            }
            Function {
                cloud: Arc::clone(cloud),
                name,
                query: query.clone(),
                stage: stage.id,
                shuffle,
                context: Arc::clone(&context),
                progress: Arc::clone(progress),
                stopped: Arc::clone(stopped),
                sleep: options.backoff_sleep,
            }
        };
        let mut members = BTreeMap::new();
        if matches!(stage.operator, Operator::Scan(_)) {
            let name = format!("{}-{:02}", query.code, stage.id.0);
            for (number, without_time) in without_time.get(&stage.id).into_iter().flatten().enumerate() {
                let rows = Rows { function: function(name.clone(), 0, None), without_time: Arc::clone(without_time) };
                members.insert(number as u16, Remote::Rows(Box::new(rows)));
            }
        }
        for shuffle in 0..topology.members(stage.id) {
            let member = topology.member(stage.id, shuffle);
            let function = function(member.to_string(), shuffle, Some(1));
            let remote = RemoteMember::new(function, topology.inputs(stage.id, shuffle));
            members.insert(member.member, Remote::Member(Box::new(remote)));
        }
        remotes.push(members.into_values().collect());
    }
    cloud.deploy(&wanted)?;
    Ok(remotes)
}

impl Remote {
    fn function(&self) -> &Function {
        match self {
            Self::Rows(rows) => &rows.function,
            Self::Member(member) => &member.function,
        }
    }

    /// One invocation, as [`Member::receive`](crate::member::Member::receive).
    ///
    /// # Errors
    /// The function failed, or cannot be called.
    pub(crate) fn receive(&mut self, payload: &Payload, committed: Epoch, send: &mut Vec<Outgoing>) -> Result<Outcome> {
        match self {
            Self::Rows(rows) => rows.receive(payload, committed, send),
            Self::Member(member) => member.receive(payload, committed, send),
        }
    }

    /// Memory of what is kept here and there, in bytes, if it is counted by itself.
    pub(crate) fn bytes(&self) -> Option<usize> {
        match self {
            Self::Rows(_) => None,
            Self::Member(member) => {
                let state = member.state.as_ref().map_or(0, |state| state.data.len());
                Some(member.sent_bytes + state + member.retained.bytes() + member.bytes)
            }
        }
    }
}

impl Rows {
    fn receive(&mut self, payload: &Payload, committed: Epoch, send: &mut Vec<Outgoing>) -> Result<Outcome> {
        if payload.set.epoch <= committed {
            return Ok(Outcome::Processed);
        }
        let parts = encode(payload, body_max(self.function.limit()))?;
        let mut answers = Vec::with_capacity(parts.len());
        for parts in parts.chunks(ROWS_AT_ONCE) {
            let of = |part: &WirePayload| {
                let part = part.as_a_whole();
                let bring = |_: Epoch, _: bool| (vec![vec![&part]], None);
                self.function.bring(payload.set.epoch, Epoch::ZERO, committed, false, bring)
            };
            answers.extend(at_once(parts, of)?);
        }
        let mut sent: Vec<(Outgoing, Vec<Body>)> = Vec::new();
        let mut without_time = 0;
        for answer in answers {
            without_time += answer.without_time;
            for (place, mut outgoing) in answer.outputs.into_iter().enumerate() {
                let body = std::mem::replace(&mut outgoing.payload.body, Body::Rows(Vec::new()));
                match sent.get_mut(place) {
                    Some((_, bodies)) => bodies.push(body),
                    None => sent.push((outgoing, vec![body])),
                }
            }
        }
        self.without_time.fetch_add(without_time, Ordering::Relaxed);
        for (mut outgoing, bodies) in sent {
            outgoing.payload.body = joined(bodies.into_iter())?;
            send.push(outgoing);
        }
        Ok(Outcome::Ready)
    }
}

/// Does the same with all, at once.
fn at_once<T: Sync, R: Send>(of: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    if let [one] = of {
        return Ok(vec![work(one)?]);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = of.iter().map(|one| scope.spawn(|| work(one))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<R>>| {
            thread.join().unwrap_or_else(|_| Err(broken("a thread that calls functions panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}

impl RemoteMember {
    fn new(function: Function, inputs: Vec<InputKey>) -> Self {
        let state_after = function.cloud.kept();
        Self {
            function,
            inputs,
            applied: Epoch::ZERO,
            retained: Retained::default(),
            sent: BTreeMap::new(),
            sent_bytes: 0,
            state: None,
            state_after,
            bytes: 0,
        }
    }

    fn receive(&mut self, payload: &Payload, committed: Epoch, send: &mut Vec<Outgoing>) -> Result<Outcome> {
        self.retained.forget(committed);
        let epoch = payload.set.epoch;
        if epoch <= self.applied {
            send.extend_from_slice(self.retained.of(epoch));
            return Ok(Outcome::Processed);
        }
        if !self.collect(payload)? {
            return Ok(Outcome::Processed);
        }
        let mut outcome = Outcome::NotReady;
        while self.is_complete(self.applied.next()) {
            let outputs = self.apply(self.applied.next(), committed)?;
            self.applied = self.applied.next();
            send.extend_from_slice(&outputs);
            self.retained.keep(self.applied, outputs);
            outcome = Outcome::Ready;
        }
        Ok(outcome)
    }

    /// Takes a payload in. Whether it is new.
    fn collect(&mut self, payload: &Payload) -> Result<bool> {
        let key = InputKey { from: payload.set.from, shuffle: payload.set.shuffle };
        if !self.inputs.contains(&key) || payload.sequence >= payload.sequence_len {
            return Err(broken(format!(
                "payload {} of {} of stage {}, part {}, came to function {}, which expects {:?}",
                payload.sequence, payload.sequence_len, key.from, key.shuffle, self.function.name, self.inputs
            )));
        }
        let set = self.sent.entry(payload.set.epoch).or_default().0.entry(key).or_default();
        set.len = payload.sequence_len;
        if set.payloads.contains_key(&payload.sequence) {
            return Ok(false);
        }
        let parts = encode(payload, body_max(self.function.limit()))?;
        self.sent_bytes += parts.iter().map(WirePayload::bytes).sum::<usize>();
        set.payloads.insert(payload.sequence, parts);
        Ok(true)
    }

    fn is_complete(&self, epoch: Epoch) -> bool {
        let has_all = |set: &Set| set.payloads.len() == set.len as usize;
        self.sent.get(&epoch).is_some_and(|sets| sets.0.len() == self.inputs.len() && sets.0.values().all(has_all))
    }

    /// Has the function apply an epoch that is complete, and takes what it gave.
    fn apply(&mut self, epoch: Epoch, committed: Epoch) -> Result<Vec<Outgoing>> {
        let hand_over = self.sent_bytes > self.state_after;
        let kept_behind = self.state.as_ref().map_or(Epoch::ZERO, |state| state.epoch);
        let limit = self.function.limit();
        let bring = |from: Epoch, with_state: bool| {
            let state = self.state.as_ref().filter(|_| with_state);
            let parts = self.sent.range(from..=epoch).flat_map(|(_, sets)| sets.parts());
            (packed(parts, limit, state.map_or(0, |state| state.data.len())), state)
        };
        let whole = self.function.bring(epoch, kept_behind, committed, hand_over, bring)?;
        self.bytes = whole.bytes;
        self.function.progress.windows_closed(epoch, whole.windows.into_iter());
        match whole.state {
            Some(state) => {
                self.sent = self.sent.split_off(&epoch.next());
                self.sent_bytes = self.sent.values().flat_map(Sets::parts).map(WirePayload::bytes).sum();
                // As much is kept beside a state as it has itself.
                self.state_after = self.function.cloud.kept().max(state.data.len());
                self.state = Some(state);
            }
            None if hand_over => self.state_after = self.state_after.saturating_mul(2),
            None => {}
        }
        Ok(whole.outputs)
    }
}

impl Sets {
    fn parts(&self) -> impl Iterator<Item = &WirePayload> {
        self.0.values().flat_map(|set| set.payloads.values()).flatten()
    }
}

/// Parts of payloads by the calls that they go with, of so many bytes each at most. `before` is taken by the first of them.
fn packed<'p>(parts: impl Iterator<Item = &'p WirePayload>, limit: usize, before: usize) -> Vec<Vec<&'p WirePayload>> {
    let max = body_max(limit);
    let (mut calls, mut room) = (vec![Vec::new()], max.saturating_sub(before));
    for part in parts {
        let bytes = part.bytes();
        if bytes > room && !(calls.len() == 1 && calls[0].is_empty() && before == 0) {
            calls.push(Vec::new());
            room = max;
        }
        room = room.saturating_sub(bytes);
        calls.last_mut().into_iter().for_each(|call| call.push(part));
    }
    calls
}

impl Function {
    /// Bytes of a call beside the context.
    fn limit(&self) -> usize {
        self.cloud.limit().saturating_sub(self.context.text.len())
    }

    /// Calls until the epoch that is wanted is applied and all its outputs have come. `what` gives the payloads from an epoch on, by
    /// calls, and the state that goes before them if one is asked for.
    fn bring<'p>(
        &self,
        wanted: Epoch,
        kept_behind: Epoch,
        committed: Epoch,
        hand_over: bool,
        what: impl Fn(Epoch, bool) -> (Vec<Vec<&'p WirePayload>>, Option<&'p WireState>),
    ) -> Result<Whole> {
        let began = Instant::now();
        let mut lane =
            Lane::new(wanted, kept_behind, u64::from(self.stage.0) << 48 ^ u64::from(self.shuffle) << 32 ^ wanted.0);
        let mut whole = None;
        loop {
            match lane.next() {
                Step::Bring { from, context, state } => {
                    let (calls, state) = what(from, state);
                    let asked = Asked { wanted, committed, hand_over, context };
                    let heard = match self.series(&asked, &calls, state) {
                        Ok((status, came)) => {
                            whole = came;
                            Heard::Answer(status)
                        }
                        Err(CallError::Busy(why)) => Heard::Busy(why),
                        Err(CallError::Lost(why)) => Heard::Lost(why),
                        Err(CallError::Refused(error)) => Heard::Refused(error),
                    };
                    lane.hear(heard, began.elapsed());
                }
                Step::Wait(pause) => self.pause(pause)?,
                Step::Done => return whole.ok_or_else(|| broken("an epoch without an answer")),
                Step::Fail(error) => return Err(error),
            }
        }
    }

    /// One call behind the other, until one of them says that the rest makes no sense. With the last one, all outputs.
    fn series(
        &self,
        asked: &Asked,
        calls: &[Vec<&WirePayload>],
        state: Option<&WireState>,
    ) -> Result<(Status, Option<Whole>), CallError> {
        let mut outputs: Vec<WireOutput> = Vec::new();
        for (number, payloads) in calls.iter().enumerate() {
            let is_last = number + 1 == calls.len();
            loop {
                let state = state.filter(|_| number == 0);
                let answer = self.call(asked, payloads, state, outputs.len(), is_last)?;
                match answer.status {
                    Status::Applied if is_last => {
                        let none_came = answer.outputs.is_empty();
                        outputs.extend(answer.outputs);
                        if outputs.len() < answer.pieces {
                            if none_came {
                                return Err(CallError::Refused(broken("a function's answer lacks its outputs")));
                            }
                            continue;
                        }
                        let Answer { windows, without_time, bytes, state, .. } = answer;
                        let outputs = decode_outputs(&outputs, &self.query).map_err(CallError::Refused)?;
                        let whole = Whole { outputs, windows, without_time, bytes, state };
                        return Ok((Status::Applied, Some(whole)));
                    }
                    // Another instance may have applied it when it was called before.
                    Status::Applied | Status::Incomplete if !is_last => break,
                    status => return Ok((status, None)),
                }
            }
        }
        Err(CallError::Refused(broken("nothing to call a function with")))
    }

    fn call(
        &self,
        asked: &Asked,
        payloads: &[&WirePayload],
        state: Option<&WireState>,
        skip: usize,
        is_last: bool,
    ) -> Result<Answer, CallError> {
        let call = Call {
            version: VERSION,
            query: self.query.clone(),
            plan: self.context.hash.clone(),
            stage: self.stage,
            shuffle: self.shuffle,
            wanted: asked.wanted,
            committed: asked.committed,
            skip,
            answer_max: self.cloud.limit(),
            hand_over: asked.hand_over && is_last,
            context: asked.context.then(|| self.context.text.clone()),
            state: state.cloned(),
            payloads: payloads.iter().map(|payload| (*payload).clone()).collect(),
        };
        let refused = |what: String| CallError::Refused(broken(format!("function {}: {what}", self.name)));
        let call = serde_json::to_vec(&call).map_err(|e| refused(format!("a call has no text: {e}")))?;
        let began = Instant::now();
        let answer = self.cloud.call(&self.name, call, &|| self.stopped.load(Ordering::Relaxed))?;
        let answer: Answer = serde_json::from_slice(&answer).map_err(|e| {
            refused(format!("expected the answer of a stage: {e}; is it a function of another program?"))
        })?;
        if answer.version != VERSION {
            return Err(refused(format!("expected an answer of version {VERSION}, got version {}", answer.version)));
        }
        self.progress.invoked(Duration::from_micros(answer.micros).min(began.elapsed()));
        Ok(answer)
    }

    /// Waits, unless the query is over.
    fn pause(&self, pause: Duration) -> Result<()> {
        let mut left = pause;
        while !left.is_zero() {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(StreamError::Cancelled);
            }
            (self.sleep)(left.min(LOOK_EVERY));
            left = left.saturating_sub(LOOK_EVERY);
        }
        Ok(())
    }
}

/// What all calls for an epoch have in common.
struct Asked {
    wanted: Epoch,
    committed: Epoch,
    hand_over: bool,
    context: bool,
}
