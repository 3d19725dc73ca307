//! Does what the core says, and tells it what came of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use savanna_functions::core::{Action, CallId, Cause, End, EventId, Input, InstanceId, Outcome, Work};
use savanna_functions::meter::{Micros, Usage};
use savanna_functions::names::{LATEST, Place, arn, stream};
use savanna_functions::record::{Accepted, Attempted, json, kind};
use savanna_functions::{Refusal, RefusalKind};
use savanna_journal::Lsn;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::code::PinnedCode;
use crate::crash::crash_at;
use crate::functions::{Functions, Invoked, State, unique};
use crate::instance;
use crate::lineage::{LOOPS_MAX, Lineage};
use crate::logs::InstanceLog;
use crate::memory::Group;
use crate::process::Killer;
use crate::recovery::draft;
use crate::runtime_api::Delivery;
use crate::streams;
use crate::{ANSWER_MAX, EVENT_MAX};

/// What a function is to do.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) function: String,
    pub(crate) qualifier: String,
    pub(crate) request: String,
    pub(crate) client_context: Option<String>,
    pub(crate) lineage: String,
    pub(crate) payload: Bytes,
}

/// What is kept of an event beside its payload, about.
const EVENT_OVERHEAD: u64 = 1024;

/// Bytes that an event with a payload counts for.
pub(crate) const fn weight(payload: &[u8]) -> u64 {
    payload.len() as u64 + EVENT_OVERHEAD
}

impl Item {
    pub(crate) const fn weight(&self) -> u64 {
        self.payload.len() as u64 + EVENT_OVERHEAD
    }

    pub(crate) fn of(accepted: Accepted) -> Self {
        let Accepted { function, qualifier, request, client_context, lineage, payload, .. } = accepted;
        Self { function, qualifier, request, client_context, lineage, payload: Bytes::from(payload) }
    }
}

/// A client that waits.
pub(crate) struct Call {
    pub(crate) item: Arc<Item>,
    pub(crate) reply: oneshot::Sender<Result<Invoked, Refusal>>,
}

/// What the log has now.
pub(crate) enum Settled {
    /// An event.
    Accepted(Accepted),
    /// The end of an event, and perhaps one that follows from it.
    Ended(EventId, Option<Accepted>),
    /// Nothing any more.
    Failed(String),
}

/// A process, as the host knows it.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) function: String,
    pub(crate) version: String,
    pub(crate) timeout: u32,
    pub(crate) memory: u32,
    pub(crate) log: Option<Arc<InstanceLog>>,
    pub(crate) killer: Option<Killer>,
    pub(crate) process: Option<u32>,
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) is_killed: bool,
    /// It asks for work.
    pub(crate) waiter: Option<oneshot::Sender<Delivery>>,
    /// What it works on.
    pub(crate) current: Option<Arc<Item>>,
    /// What it has said last: an answer, or what is wrong.
    pub(crate) said: Option<Bytes>,
    /// How it has ended.
    pub(crate) end: Option<(&'static str, String)>,
}

impl Slot {
    /// Ends the process, or has it end when it has been started.
    pub(crate) fn kill(&mut self) {
        self.is_killed = true;
        self.waiter = None;
        if let Some(killer) = &self.killer {
            killer.kill();
        }
    }
}

impl Functions {
    /// Tells the core what has happened, and does what it says.
    pub(crate) fn step(&self, state: &mut State, input: Input) {
        if state.is_closing {
            // What ends now has been ended; an event goes on as it was accepted when there is a host again.
            return state.calls.clear();
        }
        let now = state.clock.now();
        for action in state.core.step(input, now) {
            self.act(state, action);
        }
        let wake = state.core.wake(now);
        if wake.is_some_and(|wake| state.armed.is_none_or(|armed| wake < armed)) {
            state.armed = wake;
            self.0.timer.notify_one();
        }
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Start { instance, function, build, slot } => self.start(state, instance, &function, build, slot),
            Action::Deliver { instance, work, deadline } => self.deliver(state, instance, work, deadline),
            Action::Kill { instance } => {
                if let Some(slot) = state.slots.get_mut(&instance) {
                    slot.kill();
                }
            }
            Action::Crowded { function } => tracing::warn!(
                %function,
                concurrency = self.0.concurrency,
                "more functions are in use than may have a process at once: one that was used a moment ago is ended for another one, and starts again \
                 when it is called; raise functions.concurrency, or run less at once"
            ),
            Action::Refuse { call, kind } => {
                if let Some(call) = state.calls.remove(&call) {
                    let message = match kind {
                        RefusalKind::ResourceNotFound => "the function, its version or its alias has gone meanwhile",
                        _ => "Rate Exceeded.",
                    };
                    // Who asked may have gone.
                    let _ = call.reply.send(Err(Refusal::new(kind, message)));
                }
            }
            Action::Finish { call, instance, outcome, usage, .. } => self.finish(state, call, instance, outcome, usage),
            Action::Retry { event, instance, attempts, due, outcome, usage } => {
                if let Some(item) = state.events.get(&event).map(Arc::clone) {
                    Self::outcome(state, instance, &item, outcome, usage);
                }
                let due = state.clock.machine_at(due);
                let record = json(&Attempted { event: event.0, attempts, due });
                // Nobody is told; what is lost is that it ran, and it may run again.
                self.append(&[draft(kind::ATTEMPTED, &record)], Settled::Ended(EventId(0), None));
                crash_at("attempt-appended");
            }
            Action::End { event, end, cause, attempts, ran } => self.end(state, event, &end, cause, attempts, ran),
        }
    }

    fn start(&self, state: &mut State, id: InstanceId, name: &str, build: u64, number: u32) {
        if let Some(key) = stream(name) {
            state.slots.insert(id, streams::slot(name));
            self.0.runtime.spawn(streams::run(self.clone(), id, key.to_owned()));
            return;
        }
        let found = state.catalog.get(name).and_then(|function| function.build(build));
        let Some((version, settings)) = found.map(|(name, version)| (name, version.clone())) else {
            // It has gone meanwhile.
            state.slots.insert(id, Slot::default());
            let functions = self.clone();
            self.0
                .runtime
                .spawn(async move { functions.over(id, ("Runtime.Gone", "the function has gone".to_owned())) });
            return;
        };
        let slot = Slot {
            function: name.to_owned(),
            version,
            timeout: settings.settings.timeout,
            memory: settings.settings.memory,
            ..Slot::default()
        };
        let code = PinnedCode::new(self.clone(), settings.code.clone());
        let begun = instance::Begun {
            name: name.to_owned(),
            version: slot.version.clone(),
            build: settings,
            slot: number,
            _code: code,
        };
        state.slots.insert(id, slot);
        let log = state.log_of(name);
        self.0.runtime.spawn(instance::run(self.clone(), id, begun, log));
    }

    fn deliver(&self, state: &mut State, id: InstanceId, work: Work, deadline: Micros) {
        let item = match work {
            Work::Call(call) => state.calls.get(&call).map(|call| Arc::clone(&call.item)),
            Work::Event(event) => state.events.get(&event).map(Arc::clone),
        };
        let Some(slot) = state.slots.get_mut(&id) else { return };
        let Some(item) = item else { return slot.kill() };
        if let Some(log) = &slot.log {
            log.begin();
            log.say(&format!("START RequestId: {} Version: {}\n", item.request, slot.version));
        }
        let qualifier = (item.qualifier != LATEST).then_some(item.qualifier.as_str());
        let arn = arn(&self.0.region, &slot.function, qualifier);
        (slot.current, slot.said) = (Some(Arc::clone(&item)), None);
        // The function compares it with the machine's clock.
        let deadline = state.clock.machine_at(deadline) / 1_000;
        let delivery = Delivery {
            request: item.request.clone(),
            client_context: item.client_context.clone(),
            lineage: item.lineage.clone(),
            payload: item.payload.clone(),
            deadline,
            arn,
        };
        // One that does not listen any more does no work either.
        if slot.waiter.take().is_none_or(|waiter| waiter.send(delivery).is_err()) {
            slot.kill();
        }
        crash_at("work-delivered");
    }

    /// What an invocation has come to: its answer and what it printed.
    fn outcome(
        state: &mut State,
        id: InstanceId,
        item: &Item,
        outcome: Outcome,
        usage: Usage,
    ) -> (Bytes, Vec<u8>, String) {
        let Some(slot) = state.slots.get_mut(&id) else { return (Bytes::new(), Vec::new(), LATEST.to_owned()) };
        let request = &item.request;
        let error = |kind: &str, message: String| {
            Bytes::from(
                json!({ "errorType": kind, "errorMessage": format!("RequestId: {request} Error: {message}") })
                    .to_string(),
            )
        };
        let timed_out = |seconds: u32| error("Sandbox.Timedout", format!("Task timed out after {seconds}.00 seconds"));
        let payload = match (outcome, slot.said.take()) {
            (Outcome::TimedOut, _) => timed_out(slot.timeout),
            (Outcome::InitTimedOut, _) => timed_out(10),
            (Outcome::Success | Outcome::Failed | Outcome::InitFailed, Some(said)) => said,
            _ => {
                let (kind, message) =
                    slot.end.clone().unwrap_or_else(|| ("Runtime.ExitError", "Runtime exited".to_owned()));
                error(kind, message)
            }
        };
        slot.current = None;
        let (mut tail, version) = (Vec::new(), slot.version.clone());
        if let Some(log) = &slot.log {
            log.drain();
            if matches!(outcome, Outcome::TimedOut) {
                log.say(&format!("{request} Task timed out after {}.00 seconds\n", slot.timeout));
            }
            log.say(&report(request, slot, usage));
            tail = log.tail();
        }
        state.core.count_payload(&item.function, payload.len());
        (payload, tail, version)
    }

    fn finish(&self, state: &mut State, call: CallId, id: InstanceId, outcome: Outcome, usage: Usage) {
        let Some(call) = state.calls.remove(&call) else { return };
        let (payload, tail, version) = Self::outcome(state, id, &call.item, outcome, usage);
        let invoked = Invoked { version, succeeded: outcome.is_success(), payload, tail, usage };
        // Who asked may have gone.
        let _ = call.reply.send(Ok(invoked));
    }

    fn end(
        &self,
        state: &mut State,
        event: EventId,
        end: &End,
        cause: Cause,
        attempts: u32,
        ran: Option<(InstanceId, Outcome, Usage)>,
    ) {
        let Some(item) = state.events.remove(&event) else { return };
        state.event_bytes = state.event_bytes.saturating_sub(item.weight());
        let now = state.clock.machine();
        let ran = ran.map(|(id, outcome, usage)| (Self::outcome(state, id, &item, outcome, usage), outcome));
        let next = match end {
            End::Destination(place) | End::DeadLetter(place) => {
                let told = self.told(
                    &item,
                    cause,
                    attempts,
                    ran.as_ref().map(|((payload, _, version), outcome)| (payload, version, *outcome)),
                    now,
                );
                self.follows(state, &item, place, told, now)
            }
            End::Success | End::Dropped => None,
        };
        let ended = event.0.to_le_bytes();
        let accepted = next.as_ref().map(Accepted::encode);
        let mut group = vec![draft(kind::ENDED, &ended)];
        group.extend(accepted.iter().map(|accepted| draft(kind::ACCEPTED, accepted)));
        self.append(&group, Settled::Ended(event, next));
        crash_at("end-appended");
    }

    /// What a destination is told of an event, in Lambda's form.
    fn told(
        &self,
        item: &Item,
        cause: Cause,
        attempts: u32,
        ran: Option<(&Bytes, &String, Outcome)>,
        now: Micros,
    ) -> Vec<u8> {
        let parsed = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).unwrap_or(Value::Null);
        let condition = match cause {
            Cause::Success => "Success",
            Cause::RetriesExhausted => "RetriesExhausted",
            Cause::AgeExceeded => "EventAgeExceeded",
        };
        let mut told = json!({
            "version": "1.0",
            "timestamp": timestamp(now),
            "requestContext": {
                "requestId": item.request,
                "functionArn": arn(&self.0.region, &item.function, Some(&item.qualifier)),
                "condition": condition,
                "approximateInvokeCount": attempts,
            },
            "requestPayload": parsed(&item.payload),
        });
        if let Some((payload, version, outcome)) = ran {
            told["responseContext"] = json!({ "statusCode": 200, "executedVersion": version });
            if !outcome.is_success() {
                told["responseContext"]["functionError"] = json!("Unhandled");
            }
            told["responsePayload"] = parsed(payload);
        }
        let text = told.to_string();
        if text.len() > EVENT_MAX {
            told["responsePayload"] = Value::Null;
            return told.to_string().into_bytes();
        }
        text.into_bytes()
    }

    /// The event that tells a destination; none if it is none, or is on the way too often.
    fn follows(&self, state: &mut State, item: &Item, place: &str, payload: Vec<u8>, now: Micros) -> Option<Accepted> {
        let (function, qualifier) = Place::parse(place)?.target();
        let (lineage, count) = Lineage::parse(&item.lineage).with(&function);
        let stops = state
            .catalog
            .get(&function)
            .is_none_or(|function| function.recursion == savanna_functions::catalog::Recursion::Terminate);
        if count > LOOPS_MAX && stops {
            tracing::warn!(
                function = item.function,
                destination = place,
                "events go in a circle; the destination is told no more"
            );
            return None;
        }
        state.numbers.event += 1;
        // It is accepted whatever else waits: it is there instead of the one that has ended.
        state.event_bytes += weight(&payload);
        Some(Accepted {
            event: state.numbers.event,
            function,
            qualifier,
            request: unique(),
            at: now,
            client_context: None,
            lineage: lineage.to_string(),
            payload,
        })
    }

    fn append(&self, group: &[savanna_journal::Draft<'_>], settled: Settled) {
        match self.0.journal.append(group) {
            Ok(lsn) => self.hold(lsn, settled),
            Err(error) => drop(self.0.settled.send(Settled::Failed(error.to_string()))),
        }
    }

    /// Says that something is in the log, when it is.
    pub(crate) fn hold(&self, lsn: Lsn, settled: Settled) {
        let sender = self.0.settled.clone();
        // The thread of the log does nothing else meanwhile, and this one may have the lock: both only pass it on.
        self.0.journal.gate().hold(lsn, move |outcome| {
            let settled = outcome.map_or_else(|error| Settled::Failed(error.to_string()), |()| settled);
            // The host may have gone.
            let _ = sender.send(settled);
        });
    }

    /// An instance asks for work.
    pub(crate) fn next(&self, id: InstanceId) -> Option<oneshot::Receiver<Delivery>> {
        let state = &mut *self.0.state.lock();
        let slot = state.slots.get_mut(&id)?;
        if slot.is_killed || slot.current.is_some() {
            return None;
        }
        let (waiter, delivery) = oneshot::channel();
        slot.waiter = Some(waiter);
        self.step(state, Input::Next { instance: id });
        Some(delivery)
    }

    /// Whether an instance works on a request.
    pub(crate) fn works_on(&self, id: InstanceId, request: &str) -> bool {
        let state = self.0.state.lock();
        let current = state.slots.get(&id).and_then(|slot| slot.current.as_ref());
        current.is_some_and(|item| item.request == request)
    }

    /// An instance has answered. Whether that was the request it works on.
    pub(crate) fn answered(&self, id: InstanceId, request: &str, outcome: Outcome, said: Bytes) -> bool {
        let state = &mut *self.0.state.lock();
        let Some(slot) = state.slots.get_mut(&id) else { return false };
        if slot.current.as_ref().is_none_or(|item| item.request != request) {
            return false;
        }
        debug_assert!(said.len() <= ANSWER_MAX, "what is longer was refused before");
        crash_at("work-answered");
        slot.said = Some(said);
        self.step(state, Input::Answered { instance: id, outcome });
        true
    }

    /// An instance cannot be made ready.
    pub(crate) fn init_failed(&self, id: InstanceId, said: Bytes) {
        let state = &mut *self.0.state.lock();
        if let Some(slot) = state.slots.get_mut(&id) {
            slot.said = Some(said);
            self.step(state, Input::InitFailed { instance: id });
        }
    }

    /// Whether the host has ended a process.
    pub(crate) fn has_killed(&self, id: InstanceId) -> bool {
        self.0.state.lock().slots.get(&id).is_some_and(|slot| slot.is_killed)
    }

    /// A process has ended, or could not be started.
    pub(crate) fn over(&self, id: InstanceId, end: (&'static str, String)) {
        let state = &mut *self.0.state.lock();
        if let Some(slot) = state.slots.get_mut(&id) {
            slot.end.get_or_insert(end);
            self.step(state, Input::Ended { instance: id });
            state.slots.remove(&id);
        }
    }
}

/// The lines that end an invocation.
fn report(request: &str, slot: &Slot, usage: Usage) -> String {
    let ms = |micros: Micros| format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10);
    let init = if usage.init > 0 { format!("\tInit Duration: {}", ms(usage.init)) } else { String::new() };
    let peak = slot
        .group
        .as_ref()
        .and_then(|group| group.peak())
        .map_or_else(String::new, |peak| format!("\tMax Memory Used: {} MB", peak.div_ceil(1 << 20)));
    format!(
        "END RequestId: {request}\nREPORT RequestId: {request}\tDuration: {}\tBilled Duration: {} ms\tMemory Size: {} MB{peak}{init}\n",
        ms(usage.run),
        usage.billed_ms(),
        slot.memory,
    )
}

/// A time, of microseconds since 1970, as Lambda writes it: `2026-11-28T04:13:22.000Z`.
#[must_use]
pub fn timestamp(micros: Micros) -> String {
    let (seconds, milliseconds) = (micros / 1_000_000, micros / 1_000 % 1_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1970 as a date: years begin in March, so that the odd day is the last one (Howard Hinnant's algorithm).
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{milliseconds:03}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// Goes on with what the log has.
pub(crate) async fn settle(functions: Functions, mut settling: mpsc::UnboundedReceiver<Settled>) {
    while let Some(settled) = settling.recv().await {
        let failed = match settled {
            Settled::Failed(reason) => Some(reason),
            _ if !functions.may_tell() => Some("another process may have its place".to_owned()),
            Settled::Accepted(accepted) => {
                functions.go_on(None, Some(accepted));
                None
            }
            Settled::Ended(event, next) => {
                functions.go_on(Some(event), next);
                None
            }
        };
        if let Some(reason) = failed {
            functions.0.ended.send_if_modified(|ended| ended.is_none().then(|| *ended = Some(reason)).is_some());
        }
    }
}

impl Functions {
    fn go_on(&self, ended: Option<EventId>, accepted: Option<Accepted>) {
        let state = &mut *self.0.state.lock();
        if let Some(event) = ended {
            crash_at("end-durable");
            self.step(state, Input::Recorded { event });
        }
        if let Some(accepted) = accepted {
            crash_at("event-durable");
            let (event, at) = (EventId(accepted.event), state.clock.now());
            let (function, qualifier) = (Arc::from(accepted.function.as_str()), Arc::from(accepted.qualifier.as_str()));
            self.know_stream(state, &accepted.function);
            state.events.insert(event, Arc::new(Item::of(accepted)));
            self.step(state, Input::Accept { event, function, qualifier, accepted: at, attempts: 0, due: at });
        }
    }
}

/// Tells the core that time has passed, when it wants to know.
pub(crate) async fn keep_time(functions: Functions) {
    const LONG: Duration = Duration::from_secs(60);
    let mut ended = functions.0.ended.subscribe();
    loop {
        let pause = {
            let state = &mut *functions.0.state.lock();
            let now = state.clock.now();
            state.armed = state.core.wake(now);
            state.armed.map_or(LONG, |wake| Duration::from_micros(wake.saturating_sub(now)).min(LONG))
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = functions.0.timer.notified() => continue,
            _ = ended.wait_for(Option::is_some) => return,
        }
        let state = &mut *functions.0.state.lock();
        functions.step(state, Input::Tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_782_400_000_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(timestamp(1_795_840_402_123_456), "2026-11-28T04:33:22.123Z");
    }
}
