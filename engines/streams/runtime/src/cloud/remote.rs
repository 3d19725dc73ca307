//! The driver's side: what stands where a member would, and calls a function instead of computing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use datafusion::execution::TaskContext;
use rand::Rng;
use savanna_ownership::stable_hash;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Operator, StageGraph};
use savanna_streams_model::payload::{Body, Payload};

use super::context::{Specialised, StageContext};
use super::lane::{Heard, Lane, Step};
use super::wire::{
    Answer, Call, KeptState, Piece, StatePart, Status, VERSION, WirePayload, body_max, decode_outputs, encode, joined,
    text_parts, unpack_instants,
};
use super::{CallError, Cloud, CloudFunction};
use crate::arena::InputKey;
use crate::error::broken;
use crate::member::{Outcome, Outgoing, Retained};
use crate::options::RuntimeOptions;
use crate::output::OutputOperator;
use crate::query::Progress;
use crate::topology::Topology;

/// Calls for the rows of one source partition that are made at once.
const ROWS_AT_ONCE: usize = 8;
/// Pauses are cut into so long ones, to hear of the end of the query.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What all functions of a run of a query have in common.
struct Run {
    cloud: Arc<dyn Cloud>,
    query: QueryId,
    /// A number that no other run has.
    number: String,
}

/// A function of a query, as its driver sees it.
struct Function {
    run: Arc<Run>,
    name: String,
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
    /// Rows without event time, which count as late; and up to which epoch they are counted.
    without_time: Arc<AtomicU64>,
    counted: Epoch,
    /// What becomes of no rows, computed here.
    of_nothing: OutputOperator,
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
    state: Option<KeptState>,
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
    state: Option<KeptState>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.function().name).finish()
    }
}

/// A query whose stages are to be functions.
pub(crate) struct Deploying<'a> {
    pub(crate) query: &'a QueryId,
    pub(crate) graph: &'a StageGraph,
    pub(crate) topology: &'a Topology,
    /// Knows every function that plans may name in this process.
    pub(crate) functions: &'a Arc<TaskContext>,
    pub(crate) options: &'a RuntimeOptions,
    pub(crate) progress: &'a Arc<Progress>,
    pub(crate) stopped: &'a Arc<AtomicBool>,
    /// The counters of the source partitions, in their order.
    pub(crate) without_time: &'a BTreeMap<StageId, Vec<Arc<AtomicU64>>>,
}

/// All functions of a query by stage and member, which are there when this returns. Those of the sink's stage are none.
///
/// # Errors
/// A stage cannot run in a function, or a function cannot be made.
pub(crate) fn deploy(of: &Deploying<'_>) -> Result<Vec<Vec<Remote>>> {
    let Deploying { query, graph, topology, functions, options, progress, stopped, without_time } = *of;
    let Some(cloud) = &options.cloud else { return Ok(Vec::new()) };
    let number = format!("{:032x}", rand::rng().random::<u128>());
    let run = Arc::new(Run { cloud: Arc::clone(cloud), query: query.clone(), number });
    let (mut wanted, mut remotes) = (Vec::new(), Vec::new());
    for stage in &graph.stages {
        if matches!(stage.operator, Operator::Sink(_)) {
            remotes.push(Vec::new());
            continue;
        }
        let context = StageContext::of(query, graph, topology, stage.id, options)?;
        context.check_known(query, functions)?;
        let specialised = Arc::new(context.specialise()?);
        // A function never changes: another program or context is another function.
        let kind = stable_hash(format!("{} {}", cloud.program(), specialised.hash).as_bytes()) as u32;
        let mut function = |name: String, shuffle: u16| {
            let name = format!("{name}-{kind:08x}");
            match wanted.last_mut().filter(|function: &&mut CloudFunction| function.name == name) {
                Some(function) => function.at_once += 1,
                None => {
                    let context = specialised.environment();
                    wanted.push(CloudFunction { name: name.clone(), context, at_once: 1 });
                }
            }
            Function {
                run: Arc::clone(&run),
                name,
                stage: stage.id,
                shuffle,
                context: Arc::clone(&specialised),
                progress: Arc::clone(progress),
                stopped: Arc::clone(stopped),
                sleep: options.backoff_sleep,
            }
        };
        let mut members = BTreeMap::new();
        if matches!(stage.operator, Operator::Scan(_)) {
            let name = format!("{}-{:02}", query.code, stage.id.0);
            for (number, without_time) in without_time.get(&stage.id).into_iter().flatten().enumerate() {
                let rows = Rows {
                    function: function(name.clone(), 0),
                    without_time: Arc::clone(without_time),
                    counted: Epoch::ZERO,
                    of_nothing: context.output(query, number as u32, functions)?,
                };
                members.insert(number as u16, Remote::Rows(Box::new(rows)));
            }
        }
        for shuffle in 0..topology.members(stage.id) {
            let member = topology.member(stage.id, shuffle);
            let function = function(member.to_string(), shuffle);
            let remote = RemoteMember::new(function, topology.inputs(stage.id, shuffle));
            members.insert(member.member, Remote::Member(Box::new(remote)));
        }
        remotes.push(members.into_values().collect());
    }
    cloud.deploy(&wanted)?;
    progress.deployed();
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
                let state = member.state.as_ref().map_or(0, |state| state.text.len());
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
        if is_empty(&payload.body) {
            // The others wait for what it sends, and for its watermark.
            self.of_nothing.begin(payload.set.epoch);
            send.extend(self.of_nothing.seal(payload.set.epoch, payload.watermark)?);
            return Ok(Outcome::Ready);
        }
        let parts = encode(payload, body_max(self.function.limit()))?;
        let mut answers = Vec::with_capacity(parts.len());
        for parts in parts.chunks(ROWS_AT_ONCE) {
            let of = |part: &WirePayload| {
                let part = part.as_a_whole();
                let bring = |_: Epoch, _: bool| vec![Brought::Payloads(vec![&part])];
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
        if payload.set.epoch > self.counted {
            self.counted = payload.set.epoch;
            self.without_time.fetch_add(without_time, Ordering::Relaxed);
        }
        for (mut outgoing, bodies) in sent {
            outgoing.payload.body = joined(bodies.into_iter())?;
            send.push(outgoing);
        }
        Ok(Outcome::Ready)
    }
}

/// Whether a source partition has read nothing.
fn is_empty(body: &Body) -> bool {
    matches!(body, Body::Read(read) if read.iter().all(|read| read.rows.num_rows() == 0))
}

/// Does the same with all, at once.
fn at_once<T: Sync, R: Send>(of: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    if let [one] = of {
        return Ok(vec![work(one)?]);
    }
    thread::scope(|scope| {
        let work = &work;
        let start = |one| {
            let thread = thread::Builder::new().name("query-calls".into()).spawn_scoped(scope, move || work(one));
            thread.map_err(|e| StreamError::io("starting a thread that calls functions", &e))
        };
        let threads: Vec<_> = of.iter().map(start).collect();
        let join = |thread: Result<ScopedJoinHandle<'_, Result<R>>>| {
            thread?.join().unwrap_or_else(|_| Err(broken("a thread that calls functions panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}

impl RemoteMember {
    fn new(function: Function, inputs: Vec<InputKey>) -> Self {
        let state_after = function.run.cloud.kept();
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
            let state = self.state.as_ref().filter(|_| with_state).into_iter().flat_map(|state| cut(state, limit));
            let parts = self.sent.range(from..=epoch).flat_map(|(_, sets)| sets.parts());
            state.chain(packed(parts, limit).into_iter().map(Brought::Payloads)).collect()
        };
        let whole = self.function.bring(epoch, kept_behind, committed, hand_over, bring)?;
        self.bytes = whole.bytes;
        self.function.progress.windows_closed(epoch, whole.windows.into_iter());
        if let Some(state) = whole.state {
            self.sent = self.sent.split_off(&epoch.next());
            self.sent_bytes = self.sent.values().flat_map(Sets::parts).map(WirePayload::bytes).sum();
            // As much is kept beside a state as it has itself.
            self.state_after = self.function.run.cloud.kept().max(state.text.len());
            self.state = Some(state);
        }
        Ok(whole.outputs)
    }
}

impl Sets {
    fn parts(&self) -> impl Iterator<Item = &WirePayload> {
        self.0.values().flat_map(|set| set.payloads.values()).flatten()
    }
}

/// What one call brings.
enum Brought<'p> {
    /// A part of the state.
    State(StatePart),
    /// Parts of payloads.
    Payloads(Vec<&'p WirePayload>),
}

/// A state by the calls that it goes with.
fn cut<'p>(state: &KeptState, limit: usize) -> Vec<Brought<'p>> {
    let parts: Vec<&str> = text_parts(&state.text, body_max(limit)).collect();
    let count = parts.len() as u32;
    let part = |(part, text): (u32, &str)| {
        Brought::State(StatePart { epoch: state.epoch, part, parts: count, text: text.to_owned() })
    };
    (0..).zip(parts).map(part).collect()
}

/// Parts of payloads by the calls that they go with, of so many bytes each at most.
fn packed<'p>(parts: impl Iterator<Item = &'p WirePayload>, limit: usize) -> Vec<Vec<&'p WirePayload>> {
    let max = body_max(limit);
    let (mut calls, mut room): (Vec<Vec<_>>, usize) = (Vec::new(), 0);
    for part in parts {
        let bytes = part.bytes();
        match calls.last_mut().filter(|_| bytes <= room) {
            Some(call) => call.push(part),
            None => {
                calls.push(vec![part]);
                room = max;
            }
        }
        room = room.saturating_sub(bytes);
    }
    calls
}

/// The pieces that have come of the answers that there are, by their digests.
type Come = BTreeMap<String, Vec<Piece>>;

impl Function {
    /// Bytes of a call beside the context, and of an answer.
    fn limit(&self) -> usize {
        self.run.cloud.limit().saturating_sub(self.context.text.len())
    }

    /// Calls until the epoch that is wanted is applied and all that there is to tell of it has come. `what` gives what is to be brought
    /// from an epoch on, with the state before that if one is asked for.
    fn bring<'p>(
        &self,
        wanted: Epoch,
        kept_behind: Epoch,
        committed: Epoch,
        hand_over: bool,
        what: impl Fn(Epoch, bool) -> Vec<Brought<'p>>,
    ) -> Result<Whole> {
        let began = Instant::now();
        let seed = u64::from(self.stage.0) << 48 ^ u64::from(self.shuffle) << 32 ^ wanted.0;
        let mut lane = Lane::new(wanted, kept_behind, seed);
        let (mut whole, mut come) = (None, Come::new());
        // Calls of the series that have been answered: a pause does not undo them.
        let mut done = 0;
        loop {
            match lane.next() {
                Step::Bring { from, context, state, times } => {
                    let brought = what(from, state);
                    let asked = Asked { wanted, committed, hand_over, context, times };
                    let before = done;
                    let heard = match self.series(&asked, &brought, &mut come, &mut done) {
                        Ok((status, told)) => {
                            (whole, done) = (told, 0);
                            Heard::Answer(status)
                        }
                        Err(CallError::Busy(why)) => Heard::Busy(why),
                        Err(CallError::Lost(why)) => Heard::Lost(why),
                        Err(CallError::Refused(error)) => Heard::Refused(error),
                    };
                    if done > before {
                        lane.progress();
                    }
                    lane.hear(heard, began.elapsed());
                }
                Step::Wait(pause) => self.pause(pause)?,
                Step::Done => return whole.ok_or_else(|| broken("an epoch without an answer")),
                Step::Fail(error) => return Err(error),
            }
        }
    }

    /// One call behind the other, until one of them says that the rest makes no sense. With the last one, all that there is to tell.
    fn series(
        &self,
        asked: &Asked,
        calls: &[Brought<'_>],
        come: &mut Come,
        done: &mut usize,
    ) -> Result<(Status, Option<Whole>), CallError> {
        let Some((last, before)) = calls.split_last() else {
            return Err(CallError::Refused(broken("nothing to call a function with")));
        };
        for brought in before.iter().skip(*done) {
            for _ in 0..asked.times {
                // An instance that was called before may have applied all of it.
                match self.call(asked, brought, come)?.status {
                    Status::Applied | Status::Incomplete => {}
                    status => return Ok((status, None)),
                }
            }
            *done += 1;
        }
        let mut times = 0;
        loop {
            let answer = self.call(asked, last, come)?;
            match answer.status {
                Status::Applied => {
                    let known = come.entry(answer.digest.clone()).or_default();
                    let is_new = !answer.pieces.is_empty() && answer.first == known.len();
                    if is_new {
                        known.extend(answer.pieces.iter().cloned());
                    }
                    if known.len() == answer.count {
                        let whole = self.whole(asked.wanted, &answer, known).map_err(CallError::Refused)?;
                        return Ok((Status::Applied, Some(whole)));
                    }
                    if !is_new {
                        return Err(CallError::Refused(broken("a function's answer lacks what was asked for")));
                    }
                }
                Status::Incomplete if times + 1 < asked.times => times += 1,
                status => return Ok((status, None)),
            }
        }
    }

    /// What all pieces of one digest say.
    fn whole(&self, wanted: Epoch, answer: &Answer, pieces: &[Piece]) -> Result<Whole> {
        let outputs = pieces.iter().filter_map(|piece| match piece {
            Piece::Output(output) => Some(output),
            Piece::State(_) => None,
        });
        let outputs = decode_outputs(outputs, &self.run.query)?;
        let text: String = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::State(text) => Some(text.as_str()),
                Piece::Output(_) => None,
            })
            .collect();
        let state = (!text.is_empty()).then_some(KeptState { epoch: wanted, text });
        let windows = unpack_instants(&answer.windows)?;
        Ok(Whole { outputs, windows, without_time: answer.without_time, bytes: answer.bytes, state })
    }

    fn call(&self, asked: &Asked, brought: &Brought<'_>, come: &Come) -> Result<Answer, CallError> {
        let (state, payloads) = match brought {
            Brought::State(part) => (Some(part.clone()), Vec::new()),
            Brought::Payloads(payloads) => (None, payloads.iter().map(|payload| (*payload).clone()).collect()),
        };
        let call = Call {
            version: VERSION,
            query: self.run.query.clone(),
            run: self.run.number.clone(),
            plan: self.context.hash.clone(),
            stage: self.stage,
            shuffle: self.shuffle,
            wanted: asked.wanted,
            committed: asked.committed,
            come: come.iter().map(|(digest, pieces)| (digest.clone(), pieces.len())).collect(),
            answer_max: self.limit(),
            hand_over: asked.hand_over,
            context: asked.context.then(|| self.context.text.clone()),
            state,
            payloads,
        };
        let refused = |what: String| CallError::Refused(broken(format!("function {}: {what}", self.name)));
        let call = serde_json::to_vec(&call).map_err(|e| refused(format!("a call has no text: {e}")))?;
        let began = Instant::now();
        let answer = self.run.cloud.call(&self.name, call, &|| self.stopped.load(Ordering::Relaxed))?;
        let answer: Answer = serde_json::from_slice(&answer).map_err(|e| {
            refused(format!("expected the answer of a stage: {e}; is it a function of another program?"))
        })?;
        if answer.version != VERSION {
            return Err(refused(format!("expected an answer of version {VERSION}, got version {}", answer.version)));
        }
        self.progress.answered();
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
    /// Each call so often.
    times: u32,
}

#[cfg(test)]
mod tests;
