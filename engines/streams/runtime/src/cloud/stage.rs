//! The side of the function: one instance, which is called once at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::TaskContext;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::budget;
use savanna_streams_model::payload::{Body, ReadRows};

use super::context::{StageContext, Work};
use super::wire::{
    Answer, Call, Parts, Status, VERSION, WireOutput, WirePayload, WireState, body_max, encode_outputs, pack_state,
    unpack_state,
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

/// An instance of a function: a stage once it has a context, with the state of one member.
pub struct StageFunction {
    functions: Arc<TaskContext>,
    rules: StageRules,
    stage: Option<Stage>,
}

struct Stage {
    context: StageContext,
    hash: String,
    /// The member whose state is here.
    held: Option<Held>,
    /// The output of a scan's rows.
    rows: Option<OutputOperator>,
}

/// A member, and whose it is.
struct Held {
    query: QueryId,
    shuffle: u16,
    member: Member,
    parts: Parts,
    progress: Arc<Progress>,
    /// Ends of windows that were closed in epochs that may be asked for again.
    closed: BTreeMap<Epoch, Vec<i64>>,
}

/// What comes out of a call that is understood.
struct Done {
    status: Status,
    bytes: usize,
    outputs: Vec<WireOutput>,
    windows: Vec<i64>,
    without_time: u64,
    state: Option<WireState>,
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
        let mut instance = Self { functions, rules: StageRules::default(), stage: None };
        if let Some(context) = context.filter(|context| !context.is_empty()) {
            instance.specialise(context)?;
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
        let (answer_max, skip, done) = match serde_json::from_slice::<Call>(call) {
            Ok(call) if call.version != VERSION => {
                let what = format!(
                    "expected a call of version {VERSION}, got version {}; driver and functions must be of one release",
                    call.version
                );
                (call.answer_max, 0, Err(StreamError::invalid(what)))
            }
            Ok(call) => {
                let done = catch_unwind(AssertUnwindSafe(|| self.run(&call)))
                    .unwrap_or_else(|_| Err(broken("a stage panicked; the function's log has more")));
                (call.answer_max, call.skip, done)
            }
            Err(error) => (0, 0, Err(StreamError::invalid(format!("expected a call of a stage: {error}")))),
        };
        let done = done.unwrap_or_else(|error| {
            // What an operator has done by halves is nothing for the next query.
            if let Some(stage) = &mut self.stage {
                (stage.held, stage.rows) = (None, None);
            }
            Done::of(Status::Failed(error))
        });
        let answer = done.into_answer(answer_max, skip, began);
        serde_json::to_vec(&answer).unwrap_or_else(|error| error.to_string().into_bytes())
    }

    fn specialise(&mut self, text: &str) -> Result<()> {
        let (context, hash) = StageContext::decode(text)?;
        if self.stage.as_ref().is_none_or(|stage| stage.hash != hash) {
            self.stage = Some(Stage { context, hash, held: None, rows: None });
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

impl Done {
    fn of(status: Status) -> Self {
        Self { status, bytes: 0, outputs: Vec::new(), windows: Vec::new(), without_time: 0, state: None }
    }

    /// The outputs behind those that have come already, as many as fit.
    fn into_answer(self, answer_max: usize, skip: usize, began: Instant) -> Answer {
        let Self { status, bytes, outputs, windows, without_time, state } = self;
        let (pieces, mut room) = (outputs.len(), body_max(answer_max));
        let mut fit = Vec::new();
        for output in outputs.into_iter().skip(skip) {
            let bytes = output.payload.bytes();
            if !fit.is_empty() && bytes > room {
                break;
            }
            room = room.saturating_sub(bytes);
            fit.push(output);
        }
        let state = state.filter(|state| skip + fit.len() == pieces && state.data.len() <= room);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Answer { version: VERSION, status, micros, bytes, pieces, outputs: fit, windows, without_time, state }
    }
}

impl Stage {
    /// What becomes of rows that a scan has read: any instance computes that.
    fn compute(&mut self, call: &Call, functions: &Arc<TaskContext>) -> Result<Done> {
        let [payload] = call.payloads.as_slice() else {
            return Err(broken(format!("a call for rows has one payload, but {} came", call.payloads.len())));
        };
        let payload = payload.decode(&call.query)?;
        let Body::Read(read) = payload.body else {
            return Err(broken("a call for rows came without rows"));
        };
        // One that has failed keeps nothing for the next.
        let mut output = match self.rows.take() {
            Some(output) => output,
            None => self.context.output(&call.query, payload.sequence, functions)?,
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
        let outputs = encode_outputs(&sent, body_max(call.answer_max))?;
        self.rows = Some(output);
        Ok(Done { outputs, without_time, ..Done::of(Status::Applied) })
    }

    /// Brings a member on, if this instance has what it needs.
    fn apply(&mut self, call: &Call, functions: &Arc<TaskContext>, rules: StageRules) -> Result<Done> {
        let is_held = |held: &Held| (!rules.knows_the_job || held.query == call.query) && held.shuffle == call.shuffle;
        let applied = self.held.as_ref().filter(|held| is_held(held)).map(|held| held.member.applied());
        let from_state = call.state.as_ref().filter(|state| applied.unwrap_or_default() < state.epoch);
        let mut have = from_state.map_or(applied.unwrap_or_default(), |state| state.epoch);
        // A call with a state alone comes before those with payloads.
        let need = call.payloads.iter().map(|payload| payload.epoch).min().unwrap_or(have.next());
        if need > have.next() {
            if rules.knows_what_it_applied {
                // State of another run that goes on elsewhere is not given up for what cannot be done.
                return Ok(Done::of(Status::StateMissing { have, need }));
            }
            have = Epoch(need.0 - 1);
        }
        if applied.is_none() || have != applied.unwrap_or_default() {
            let mut held = match self.held.take_if(|held| !rules.knows_what_it_applied && is_held(held)) {
                Some(held) => held,
                None => self.context.member(call, functions)?,
            };
            if let Some(state) = from_state {
                held.member.restore(&unpack_state(&state.data)?)?;
            }
            held.member = held.member.behind(have);
            self.held = Some(held);
        }
        let held = self.held.as_mut().ok_or_else(|| broken("a member that was made is not there"))?;
        held.take(call, &call.payloads)?;
        if held.member.applied() < call.wanted {
            return Ok(Done { bytes: held.member.bytes(), ..Done::of(Status::Incomplete) });
        }
        let Some(sent) = held.member.sent(call.wanted) else {
            return Ok(Done::of(Status::Failed(held.forgotten(call))));
        };
        let outputs = encode_outputs(sent, body_max(call.answer_max))?;
        let windows = held.closed.get(&call.wanted).cloned().unwrap_or_default();
        let state = match call.hand_over && held.member.applied() == call.wanted {
            true => Some(WireState { epoch: call.wanted, data: pack_state(&held.member.state()?)? }),
            false => None,
        };
        Ok(Done { bytes: held.member.bytes(), outputs, windows, state, ..Done::of(Status::Applied) })
    }
}

impl Held {
    fn take(&mut self, call: &Call, payloads: &[WirePayload]) -> Result<()> {
        // Known as sent in another run, where the job does not count.
        let query = self.query.clone();
        let mut sent = Vec::new();
        for part in payloads {
            let applied = self.member.applied();
            if part.epoch <= applied {
                continue;
            }
            if let Some(payload) = self.parts.take(part, &query)? {
                // What counts is in the sink, but not in this member if it is behind.
                self.member.receive(payload, call.committed.min(applied), &mut sent)?;
            }
        }
        self.parts.forget(self.member.applied());
        for (epoch, ends) in self.progress.take_closed() {
            self.closed.insert(epoch, ends.into_iter().collect());
        }
        self.closed.retain(|epoch, _| *epoch > call.committed);
        Ok(())
    }

    /// A call that comes so late that nobody waits for its answer. The state stays.
    fn forgotten(&self, call: &Call) -> StreamError {
        let applied = self.member.applied();
        broken(format!(
            "the outputs of epoch {} were asked for, when epoch {} was committed and {applied} applied",
            call.wanted, call.committed
        ))
    }
}

impl StageContext {
    fn output(&self, query: &QueryId, sequence: u32, functions: &Arc<TaskContext>) -> Result<OutputOperator> {
        let outlet = self.place.outlet(query, sequence);
        let outlet = outlet.ok_or_else(|| broken("the context of a stage that sends to nobody"))?;
        let options = RuntimeOptions { batch_rows: self.batch_rows.max(1), ..RuntimeOptions::default() };
        OutputOperator::decode(&self.output, Vec::new(), &self.exchange, functions, &options, outlet)
    }

    /// A member that has applied nothing.
    fn member(&self, call: &Call, functions: &Arc<TaskContext>) -> Result<Held> {
        // A member that collected part s sends sequence s (Flock, C8).
        let output = self.output(&call.query, u32::from(call.shuffle), functions)?;
        let progress = Arc::new(Progress::new(0, false));
        let counted = self.counts_windows.then(|| Arc::clone(&progress));
        let operator: Box<dyn StageOperator> = match &self.work {
            Work::Aggregate(aggregate) => Box::new(MergeOperator::decode(aggregate, functions, output, counted)?),
            Work::Window(window) => Box::new(WindowOperator::decode(window, functions, output, counted)?),
            Work::IntervalJoin(join) => Box::new(JoinOperator::decode(join, functions, output)?),
            Work::Rows => return Err(broken("rows that are read have no member")),
        };
        let member = Member::new(self.place.inputs(call.shuffle), operator, MemberRules::default());
        Ok(Held {
            query: call.query.clone(),
            shuffle: call.shuffle,
            member,
            parts: Parts::default(),
            progress,
            closed: BTreeMap::new(),
        })
    }
}
