//! The side of the function: one instance, which is called once at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::TaskContext;
use savanna_ownership::stable_hash;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::{budget, builtin, registered, without};
use savanna_streams_model::payload::{Body, ReadRows};
use serde::Deserialize;

use super::context::{HASH, StageContext, Work};
use super::wire::{
    Answer, Arriving, Call, Parts, Piece, Status, VERSION, body_max, digest, encode_outputs, pack_instants, pack_state,
    text_parts, unpack_state,
};
use crate::error::broken;
use crate::join_stage::JoinOperator;
use crate::member::{Member, MemberRules, StageOperator};
use crate::merge_stage::MergeOperator;
use crate::options::RuntimeOptions;
use crate::output::OutputOperator;
use crate::query::Progress;
use crate::window_stage::WindowOperator;

/// The two rules that results rest on where instances come and go. Tests break them to show that the checks notice.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageRules {
    /// An instance applies an epoch only behind the one before.
    pub knows_what_it_applied: bool,
    /// State is that of one run of a query.
    pub knows_the_job: bool,
}

impl Default for StageRules {
    fn default() -> Self {
        Self { knows_what_it_applied: true, knows_the_job: true }
    }
}

/// Runs whose state an instance keeps: two of one query that take turns do not take each other's away.
const RUNS_KEPT: usize = 2;
/// Bytes of the packed ends of windows that are told.
const WINDOWS_MAX: usize = 32 << 10;

/// An instance of a function: a stage once it has a context, with the state of members.
pub struct StageFunction {
    functions: Arc<TaskContext>,
    rules: StageRules,
    /// The hash of the only context that it may have, if its environment says so.
    hash: Option<String>,
    stage: Option<Stage>,
}

struct Stage {
    context: StageContext,
    hash: String,
    /// The members whose state is here, the last one that was called behind the others.
    held: Vec<Held>,
    /// A state that is on its way to here.
    arriving: Arriving,
    /// The output of a scan's rows.
    rows: Option<OutputOperator>,
    /// What was answered last, for whoever asks for the rest of it.
    given: Option<Arc<Given>>,
}

/// A member, and whose it is.
struct Held {
    run: String,
    query: QueryId,
    shuffle: u16,
    member: Member,
    parts: Parts,
    progress: Arc<Progress>,
    /// Ends of windows that were closed in epochs that may be asked for again.
    closed: BTreeMap<Epoch, Vec<i64>>,
}

/// What there is to tell of an epoch.
struct Given {
    /// What it is the answer to.
    to: u64,
    digest: String,
    pieces: Vec<Piece>,
    windows: String,
    without_time: u64,
}

/// What comes out of a call that is understood.
struct Done {
    status: Status,
    bytes: usize,
    given: Option<Arc<Given>>,
}

impl fmt::Debug for StageFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageFunction")
            .field("context", &self.stage.as_ref().map(|stage| &stage.hash))
            .finish_non_exhaustive()
    }
}

impl StageFunction {
    /// An instance with the context of its environment, if that has one. `functions` knows every function that plans may name.
    ///
    /// # Errors
    /// It is no context of this release.
    pub fn new(context: Option<&str>, functions: Arc<TaskContext>) -> Result<Self> {
        let mut instance = Self { functions, rules: StageRules::default(), hash: None, stage: None };
        match context.map(|context| (context.strip_prefix(HASH), context)) {
            None | Some((_, "")) => {}
            Some((Some(hash), _)) => instance.hash = Some(hash.to_owned()),
            Some((None, context)) => {
                instance.specialise(context)?;
                instance.hash = instance.stage.as_ref().map(|stage| stage.hash.clone());
            }
        }
        Ok(instance)
    }

    /// The same with rules of its own.
    #[doc(hidden)]
    #[must_use]
    pub fn with_rules(self, rules: StageRules) -> Self {
        Self { rules, ..self }
    }

    /// Answers a call. What cannot be answered is an answer as well.
    pub fn answer(&mut self, call: &[u8]) -> Vec<u8> {
        let began = Instant::now();
        let read = read(call);
        let done = match &read {
            Ok(call) => catch_unwind(AssertUnwindSafe(|| self.run(call)))
                .unwrap_or_else(|_| Err(broken("a stage panicked; the function's log has more"))),
            Err(error) => Err(error.clone()),
        };
        let done = done.unwrap_or_else(|error| {
            // What an operator has done by halves is nothing for the next query.
            if let Some(stage) = &mut self.stage {
                (stage.held, stage.rows, stage.given) = (Vec::new(), None, None);
            }
            Done::of(Status::Failed(error))
        });
        let answer = done.into_answer(read.as_ref().ok(), began);
        serde_json::to_vec(&answer).unwrap_or_else(|error| error.to_string().into_bytes())
    }

    fn specialise(&mut self, text: &str) -> Result<()> {
        let (context, hash) = StageContext::decode(text)?;
        if let Some(expected) = self.hash.as_ref().filter(|expected| **expected != hash) {
            return Err(StreamError::invalid(format!(
                "the context that came with a call is not that of the function (expected {expected}, got {hash})"
            )));
        }
        if self.stage.as_ref().is_none_or(|stage| stage.hash != hash) {
            let (held, arriving) = (Vec::new(), Arriving::default());
            self.stage = Some(Stage { context, hash, held, arriving, rows: None, given: None });
        }
        Ok(())
    }

    fn run(&mut self, call: &Call) -> Result<Done> {
        if let Some(context) = &call.context {
            self.specialise(context)?;
        }
        let Some(stage) = self.stage.as_mut().filter(|stage| stage.hash == call.plan) else {
            return Ok(Done::of(Status::ContextMissing));
        };
        budget::within(None, || match stage.context.work {
            Work::Rows => stage.compute(call, &self.functions),
            _ => stage.apply(call, &self.functions, self.rules),
        })
    }
}

/// A call as it came.
fn read(call: &[u8]) -> Result<Call> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let failed = |error: serde_json::Error| StreamError::invalid(format!("expected a call of a stage: {error}"));
    let Version { version } = serde_json::from_slice(call).map_err(failed)?;
    if version != VERSION {
        return Err(StreamError::invalid(format!(
            "expected a call of version {VERSION}, got version {version}; driver and functions must be of one release"
        )));
    }
    serde_json::from_slice(call).map_err(failed)
}

impl Done {
    fn of(status: Status) -> Self {
        Self { status, bytes: 0, given: None }
    }

    /// The pieces behind those that have come already, as many as fit.
    fn into_answer(self, call: Option<&Call>, began: Instant) -> Answer {
        let Self { status, bytes, given } = self;
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut answer = Answer {
            version: VERSION,
            status,
            micros,
            bytes,
            digest: String::new(),
            count: 0,
            first: 0,
            pieces: Vec::new(),
            windows: String::new(),
            without_time: 0,
        };
        let (Some(given), Some(call)) = (given, call) else { return answer };
        let come = call.come.iter().find(|(digest, _)| *digest == given.digest).map_or(0, |(_, come)| *come);
        let mut room = body_max(call.answer_max);
        for piece in given.pieces.iter().skip(come) {
            if !answer.pieces.is_empty() && piece.bytes() > room {
                break;
            }
            room = room.saturating_sub(piece.bytes());
            answer.pieces.push(piece.clone());
        }
        if come + answer.pieces.len() >= given.pieces.len() {
            answer.windows.clone_from(&given.windows);
        }
        (answer.count, answer.first) = (given.pieces.len(), come);
        (answer.digest, answer.without_time) = (given.digest.clone(), given.without_time);
        answer
    }
}

impl Stage {
    /// What was answered to the same before, or what `make` makes of it. An instance that computes twice may give rows in another order.
    fn given(
        &mut self,
        to: u64,
        make: impl FnOnce(&mut Self) -> Result<(Vec<Piece>, String, u64)>,
    ) -> Result<Arc<Given>> {
        if let Some(given) = self.given.take_if(|given| given.to == to) {
            return Ok(Arc::clone(self.given.insert(given)));
        }
        let (pieces, windows, without_time) = make(self)?;
        let given = Arc::new(Given { to, digest: digest(&pieces)?, pieces, windows, without_time });
        Ok(Arc::clone(self.given.insert(given)))
    }

    /// What becomes of rows that a scan has read: any instance computes that.
    fn compute(&mut self, call: &Call, functions: &Arc<TaskContext>) -> Result<Done> {
        let [part] = call.payloads.as_slice() else {
            return Err(broken(format!("a call for rows has one payload, but {} came", call.payloads.len())));
        };
        let to = serde_json::to_vec(&(&call.run, part)).map_err(|e| broken(e.to_string()))?;
        let given = self.given(stable_hash(&to), |stage| {
            let payload = part.decode(&call.query)?;
            let Body::Read(read) = payload.body else {
                return Err(broken("a call for rows came without rows"));
            };
            // One that has failed keeps nothing for the next.
            let mut output = match stage.rows.take() {
                Some(output) => output,
                None => stage.context.output(&call.query, payload.sequence, functions)?,
            };
            output.turn_to(&call.query, payload.sequence);
            output.begin(payload.set.epoch);
            let before = output.without_time();
            for ReadRows { rows, first_window_end } in read {
                match first_window_end {
                    None => output.take(rows)?,
                    Some(end) => output.take_from(rows, end)?,
                }
            }
            let sent = output.seal(payload.set.epoch, payload.watermark)?;
            let without_time = output.without_time() - before;
            stage.rows = Some(output);
            let outputs = encode_outputs(&sent, body_max(call.answer_max))?;
            Ok((outputs.into_iter().map(Piece::Output).collect(), String::new(), without_time))
        })?;
        Ok(Done { given: Some(given), ..Done::of(Status::Applied) })
    }

    /// Brings a member on, if this instance has what it needs.
    fn apply(&mut self, call: &Call, functions: &Arc<TaskContext>, rules: StageRules) -> Result<Done> {
        let is_held = |held: &Held| (!rules.knows_the_job || held.run == call.run) && held.shuffle == call.shuffle;
        let place = self.held.iter().rposition(|held| is_held(held));
        let applied = place.map(|place| self.held[place].member.applied());
        let mut state = None;
        if let Some(part) = call.state.as_ref().filter(|part| applied.unwrap_or_default() < part.epoch) {
            match self.arriving.take(&call.run, call.shuffle, part)? {
                Some(text) => state = Some((part.epoch, text)),
                None => return Ok(Done::of(Status::Incomplete)),
            }
        }
        let mut have = state.as_ref().map_or(applied.unwrap_or_default(), |(epoch, _)| *epoch);
        // A call with a part of a state comes before those with payloads.
        let need = call.payloads.iter().map(|payload| payload.epoch).min().unwrap_or(have.next());
        if need > have.next() {
            if rules.knows_what_it_applied {
                // State of other runs is not given up for what cannot be done.
                return Ok(Done::of(Status::StateMissing { have, need }));
            }
            have = Epoch(need.0 - 1);
        }
        let kept = place.map(|place| self.held.remove(place));
        let mut held = match kept.filter(|_| state.is_none()) {
            Some(held) => held,
            None => self.context.member(call, functions)?,
        };
        if let Some((_, text)) = &state {
            held.member.restore(&unpack_state(text)?)?;
        }
        if held.member.applied() < have {
            held.member = held.member.behind(have);
        }
        held.take(call)?;
        let (bytes, applied) = (held.member.bytes(), held.member.applied());
        self.held.push(held);
        let old = self.held.len().saturating_sub(RUNS_KEPT);
        self.held.drain(..old);
        if applied < call.wanted {
            return Ok(Done { bytes, ..Done::of(Status::Incomplete) });
        }
        let to = (&call.run, call.shuffle, call.wanted, call.hand_over);
        let to = serde_json::to_vec(&to).map_err(|e| broken(e.to_string()))?;
        match self.given(stable_hash(&to), |stage| stage.told(call)) {
            Ok(given) => Ok(Done { bytes, given: Some(given), ..Done::of(Status::Applied) }),
            // Nobody waits for the answer of a call that comes so late; the state stays.
            Err(error) if applied > call.wanted => Ok(Done::of(Status::Failed(error))),
            Err(error) => Err(error),
        }
    }

    /// What the member that was called last has to tell of the epoch that is wanted.
    fn told(&mut self, call: &Call) -> Result<(Vec<Piece>, String, u64)> {
        let held = self.held.last_mut().ok_or_else(|| broken("a member that was called is not there"))?;
        let max = body_max(call.answer_max);
        let sent = held.member.sent(call.wanted).ok_or_else(|| {
            broken(format!(
                "the outputs of epoch {} were asked for, when epoch {} was committed and {} applied",
                call.wanted,
                call.committed,
                held.member.applied()
            ))
        })?;
        let mut pieces: Vec<Piece> = encode_outputs(sent, max)?.into_iter().map(Piece::Output).collect();
        if call.hand_over && held.member.applied() == call.wanted {
            let text = pack_state(&held.member.state_to_send()?)?;
            pieces.extend(text_parts(&text, max).map(|part| Piece::State(part.to_owned())));
        }
        let windows = held.closed.get(&call.wanted).map_or(Ok(String::new()), |ends| pack_instants(ends))?;
        Ok((pieces, if windows.len() > WINDOWS_MAX { String::new() } else { windows }, 0))
    }
}

impl Held {
    fn take(&mut self, call: &Call) -> Result<()> {
        // Known as sent in another run, where the job does not count.
        let query = self.query.clone();
        let mut sent = Vec::new();
        for part in &call.payloads {
            let applied = self.member.applied();
            if part.epoch <= applied {
                continue;
            }
            if let Some(payload) = self.parts.take(part, &query)? {
                // What counts is in the sink, but not in this member if it is behind.
                self.member.receive(payload, call.committed.min(applied), &mut sent)?;
                // What is asked for is kept.
                sent.clear();
            }
        }
        self.parts.forget(self.member.applied());
        for (epoch, ends) in self.progress.take_closed() {
            self.closed.insert(epoch, ends.into_iter().collect());
        }
        self.closed.retain(|epoch, _| *epoch > call.committed);
        Ok(())
    }
}

impl StageContext {
    /// The output of an instance of the stage.
    ///
    /// # Errors
    /// It is no stage that sends, or its plans name what is not there.
    pub(super) fn output(
        &self,
        query: &QueryId,
        sequence: u32,
        functions: &Arc<TaskContext>,
    ) -> Result<OutputOperator> {
        let outlet = self.place.outlet(query, sequence);
        let outlet = outlet.ok_or_else(|| broken("the context of a stage that sends to nobody"))?;
        let options = RuntimeOptions { batch_rows: self.batch_rows.max(1), ..RuntimeOptions::default() };
        OutputOperator::decode(&self.output, Vec::new(), &self.exchange, functions, &options, outlet)
    }

    fn operator(
        &self,
        query: &QueryId,
        shuffle: u16,
        functions: &Arc<TaskContext>,
        progress: &Arc<Progress>,
    ) -> Result<Box<dyn StageOperator>> {
        // A member that collected part s sends sequence s (Flock, C8).
        let output = self.output(query, u32::from(shuffle), functions)?;
        let counted = self.counts_windows.then(|| Arc::clone(progress));
        Ok(match &self.work {
            Work::Aggregate(aggregate) => Box::new(MergeOperator::decode(aggregate, functions, output, counted)?),
            Work::Window(window) => Box::new(WindowOperator::decode(window, functions, output, counted)?),
            Work::IntervalJoin(join) => Box::new(JoinOperator::decode(join, functions, output)?),
            Work::Rows => return Err(broken("rows that are read have no member")),
        })
    }

    /// # Errors
    /// The stage's plans cannot be read where these functions are known.
    fn read_with(&self, query: &QueryId, functions: &Arc<TaskContext>) -> Result<()> {
        match self.work {
            Work::Rows => self.output(query, 0, functions).map(drop),
            _ => self.operator(query, 0, functions, &Arc::new(Progress::new(0, false))).map(drop),
        }
    }

    /// # Errors
    /// The stage calls functions that were registered in this process, which the program of stages does not have.
    pub(super) fn check_known(&self, query: &QueryId, functions: &Arc<TaskContext>) -> Result<()> {
        if self.read_with(query, &builtin()).is_ok() {
            return Ok(());
        }
        self.read_with(query, functions)?;
        let mut called = registered();
        called.retain(|name| self.read_with(query, &without(name)).is_err());
        Err(StreamError::Unsupported {
            what: format!("functions of this program ({}) on functions of a host", called.join(", ")),
            position: None,
            instead: "run the query in this process: the program of stages does not have them".into(),
        })
    }

    /// A member that has applied nothing.
    fn member(&self, call: &Call, functions: &Arc<TaskContext>) -> Result<Held> {
        let progress = Arc::new(Progress::new(0, false));
        let operator = self.operator(&call.query, call.shuffle, functions, &progress)?;
        let member = Member::new(self.place.inputs(call.shuffle), operator, MemberRules::default());
        Ok(Held {
            run: call.run.clone(),
            query: call.query.clone(),
            shuffle: call.shuffle,
            member,
            parts: Parts::default(),
            progress,
            closed: BTreeMap::new(),
        })
    }
}
