//! A host around the core: a log, processes, clients and time, all from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use savanna_functions::core::{
    Action, Build, CallId, Core, End, EventId, EventSettings, Input, InstanceId, Options, Outcome, Route, Settings,
    Work,
};

const SECOND: u64 = 1_000_000;
const FUNCTIONS: [&str; 4] = ["plain", "reserved", "told", "lettered"];
const CONCURRENCY: u32 = 6;
const RESERVED: u32 = 2;

/// What a host could get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// It tells clients that events are accepted before they are in the log.
    TellsEarly,
    /// It does not put ends into the log.
    ForgetsEnds,
    /// It takes a process that has to end for one that has ended.
    CountsTheKilledAsGone,
    /// After its death it runs events that had ended.
    RunsAllAgain,
    /// The event that tells a destination is in the log behind the end of which it tells, and not with it.
    TellsApart,
}

#[derive(Clone, Debug)]
enum Record {
    Accepted {
        event: u64,
        function: Arc<str>,
        at: u64,
    },
    Attempted {
        event: u64,
        attempts: u32,
        due: u64,
    },
    Ended {
        event: u64,
        end: End,
    },
    /// All of it is in the log, or nothing.
    Group(Vec<Record>),
}

/// What has become of an event, by what anybody could see.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    told: bool,
    /// The host has said that its end is in the log.
    is_settled: bool,
    runs_after_end: u32,
    ends: Vec<End>,
}

#[derive(Debug)]
struct Process {
    function: Arc<str>,
    slot: u32,
    work: Option<(Work, u64)>,
    is_ready: bool,
    is_killed: bool,
}

pub(crate) struct World {
    rng: StdRng,
    flaw: Flaw,
    core: Core,
    now: u64,
    log: Vec<Record>,
    /// Records of the log that are durable.
    durable: usize,
    /// What is told when so many records are durable.
    held: Vec<(usize, Held)>,
    processes: BTreeMap<InstanceId, Process>,
    next_event: u64,
    next_call: u64,
    calls: BTreeSet<u64>,
    /// Functions that were removed and not made again.
    forgotten: BTreeSet<Arc<str>>,
    /// The events that tell of ends, by those that have ended.
    followers: BTreeMap<u64, u64>,
    pub(crate) seen: BTreeMap<u64, Seen>,
    pub(crate) objections: Vec<String>,
    pub(crate) refused: u32,
    pub(crate) answered: u32,
    pub(crate) deaths: u32,
}

#[derive(Debug)]
enum Held {
    Accepted { event: u64, function: Arc<str>, at: u64 },
    Ended(u64),
}

fn settings(name: &str) -> Settings {
    let build = |number| Build { number, timeout: 3 * SECOND, megabytes: 128 };
    let index = FUNCTIONS.iter().position(|other| *other == name).unwrap_or_default() as u64;
    let other = (name == "plain").then(|| (build(100), 300_000));
    let route = Route { build: build(index + 1), other };
    let told = (name == "told").then(|| Arc::from("plain"));
    let events = EventSettings { attempts: 3, age: 400 * SECOND, on_success: told.clone(), on_failure: told };
    Settings {
        reserved: (name == "reserved").then_some(RESERVED),
        routes: [(Arc::from("$LATEST"), route)].into(),
        events: [(Arc::from("$LATEST"), events)].into(),
        dead_letter: (name == "lettered").then(|| Arc::from("letters")),
    }
}

fn core(seed: u64, forgotten: &BTreeSet<Arc<str>>) -> Core {
    let options = Options { concurrency: CONCURRENCY, ..Options::default() };
    let mut core = Core::new(options, seed);
    for name in FUNCTIONS.into_iter().filter(|name| !forgotten.contains(*name)) {
        core.step(Input::Configure { function: Arc::from(name), settings: settings(name) }, 0);
    }
    core
}

impl World {
    pub(crate) fn new(seed: u64, flaw: Flaw) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            flaw,
            core: core(seed, &BTreeSet::new()),
            now: SECOND,
            log: Vec::new(),
            durable: 0,
            held: Vec::new(),
            processes: BTreeMap::new(),
            next_event: 1,
            next_call: 1,
            calls: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            followers: BTreeMap::new(),
            seen: BTreeMap::new(),
            objections: Vec::new(),
            refused: 0,
            answered: 0,
            deaths: 0,
        }
    }

    /// Lets anything happen.
    pub(crate) fn turn(&mut self) {
        match self.rng.random_range(0..100) {
            0..=14 => self.client_calls(),
            15..=29 => self.client_sends(),
            30..=69 => self.process_goes_on(),
            70..=84 => self.log_goes_on(),
            85..=88 => {
                if let Some(wake) = self.core.wake(self.now) {
                    self.now = self.now.max(wake);
                }
                self.step(Input::Tick);
            }
            89..=96 => {
                self.now += self.rng.random_range(0..SECOND / 2);
                self.step(Input::Tick);
            }
            97 => {
                // What is reserved for one that comes again may be in use by then.
                let name: Arc<str> = Arc::from(FUNCTIONS[self.rng.random_range(0..FUNCTIONS.len())]);
                if &*name != "reserved" {
                    self.forgotten.insert(Arc::clone(&name));
                    self.step(Input::Forget { function: name });
                }
            }
            98 => {
                let name: Arc<str> = Arc::from(FUNCTIONS[self.rng.random_range(0..FUNCTIONS.len())]);
                self.forgotten.remove(&name);
                self.step(Input::Configure { settings: settings(&name), function: name });
            }
            _ => self.host_dies(),
        }
        self.check_limits();
    }

    /// Lets everything come to its end, without new requests.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200_000 {
            self.durable = self.log.len();
            self.tell();
            let counts = self.core.counts();
            if counts.queued == 0 && counts.busy == 0 && self.held.is_empty() {
                break;
            }
            self.process_goes_on();
            if self.rng.random_range(0..4) == 0 {
                if let Some(wake) = self.core.wake(self.now) {
                    self.now = self.now.max(wake);
                }
                self.step(Input::Tick);
            }
            self.check_limits();
        }
        self.check_ends();
    }

    fn client_calls(&mut self) {
        let function = Arc::from(FUNCTIONS[self.rng.random_range(0..FUNCTIONS.len())]);
        let call = self.next_call;
        self.next_call += 1;
        self.calls.insert(call);
        self.step(Input::Invoke { call: CallId(call), function, qualifier: Arc::from("$LATEST") });
    }

    fn client_sends(&mut self) {
        let function = Arc::from(FUNCTIONS[self.rng.random_range(0..FUNCTIONS.len())]);
        self.append_event(function);
    }

    fn append_event(&mut self, function: Arc<str>) {
        let (record, held) = self.accepted(function);
        self.log.push(record);
        let position = if self.flaw == Flaw::TellsEarly { 0 } else { self.log.len() };
        self.held.push((position, held));
    }

    /// An event, for the log, and for whoever waits until it is there.
    fn accepted(&mut self, function: Arc<str>) -> (Record, Held) {
        let (event, at) = (self.next_event, self.now);
        self.next_event += 1;
        self.seen.entry(event).or_default();
        (Record::Accepted { event, function: Arc::clone(&function), at }, Held::Accepted { event, function, at })
    }

    fn log_goes_on(&mut self) {
        self.durable = self.rng.random_range(self.durable..=self.log.len());
        self.tell();
    }

    fn tell(&mut self) {
        let durable = self.durable;
        let (ready, held) = std::mem::take(&mut self.held).into_iter().partition(|(position, _)| *position <= durable);
        self.held = held;
        for (_, held) in ready {
            match held {
                Held::Accepted { event, function, at } => {
                    self.seen.entry(event).or_default().told = true;
                    let qualifier = Arc::from("$LATEST");
                    self.step(Input::Accept {
                        event: EventId(event),
                        function,
                        qualifier,
                        accepted: at,
                        attempts: 0,
                        due: at,
                    });
                }
                Held::Ended(event) => {
                    self.seen.entry(event).or_default().is_settled = true;
                    self.step(Input::Recorded { event: EventId(event) });
                }
            }
        }
    }

    fn process_goes_on(&mut self) {
        let ids: Vec<InstanceId> = self.processes.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.rng.random_range(0..ids.len())];
        let dice = self.rng.random_range(0..100);
        let process = self.processes.get_mut(&id).unwrap();
        if process.is_killed {
            if dice < 50 {
                self.processes.remove(&id);
                self.step(Input::Ended { instance: id });
            }
            return;
        }
        match (process.is_ready, process.work) {
            (_, _) if dice < 4 => {
                self.processes.remove(&id);
                self.step(Input::Ended { instance: id });
            }
            (false, _) if dice < 8 => self.step(Input::InitFailed { instance: id }),
            // It hangs.
            (_, _) if dice < 12 => {}
            (false, _) | (true, None) => {
                process.is_ready = true;
                self.step(Input::Next { instance: id });
            }
            (true, Some(_)) => {
                process.work = None;
                self.now += self.rng.random_range(0..SECOND / 10);
                let outcome = if dice < 50 { Outcome::Failed } else { Outcome::Success };
                self.step(Input::Answered { instance: id, outcome });
            }
        }
    }

    /// The process of the host ends, and with it all of its functions'; what is durable is read back.
    fn host_dies(&mut self) {
        self.deaths += 1;
        let kept = self.rng.random_range(self.durable..=self.log.len());
        self.log.truncate(kept);
        self.durable = kept;
        self.held.clear();
        self.processes.clear();
        // Clients see that their connection is gone.
        self.calls.clear();
        self.core = core(self.now, &self.forgotten);
        let mut pending: BTreeMap<u64, (Arc<str>, u64, u32, u64)> = BTreeMap::new();
        let mut ended: BTreeMap<u64, End> = BTreeMap::new();
        let records = self.log.clone().into_iter().flat_map(|record| match record {
            Record::Group(records) => records,
            one => vec![one],
        });
        for record in records {
            match record {
                Record::Group(_) => unreachable!("a group has no groups"),
                Record::Accepted { event, function, at } => drop(pending.insert(event, (function, at, 0, at))),
                Record::Attempted { event, attempts, due } => {
                    if let Some(known) = pending.get_mut(&event) {
                        (known.2, known.3) = (attempts, due);
                    }
                }
                Record::Ended { event, end } => {
                    if self.flaw != Flaw::RunsAllAgain {
                        pending.remove(&event);
                    }
                    ended.insert(event, end);
                }
            }
        }
        // What was never told, and is not in the log, never was.
        let in_log: BTreeSet<u64> = pending.keys().chain(ended.keys()).copied().collect();
        self.seen.retain(|event, seen| seen.told || in_log.contains(event));
        for seen in self.seen.values_mut().filter(|seen| !seen.is_settled) {
            seen.ends.clear();
        }
        for (event, end) in ended {
            let seen = self.seen.entry(event).or_default();
            if !seen.is_settled {
                seen.ends.push(end);
            }
        }
        for (event, (function, accepted, attempts, due)) in pending {
            let qualifier = Arc::from("$LATEST");
            self.step(Input::Accept { event: EventId(event), function, qualifier, accepted, attempts, due });
        }
    }

    fn step(&mut self, input: Input) {
        let actions = self.core.step(input, self.now);
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start { instance, function, slot, .. } => {
                let mut others = self.processes.values().filter(|process| process.function == function);
                if others.any(|process| process.slot == slot) {
                    self.objections.push(format!("{instance:?} of {function} has the slot {slot} of one that lives"));
                }
                let process = Process { function, slot, work: None, is_ready: false, is_killed: false };
                self.processes.insert(instance, process);
            }
            Action::Deliver { instance, work, .. } => self.deliver(instance, work),
            Action::Kill { instance } => {
                if self.flaw == Flaw::CountsTheKilledAsGone {
                    return;
                }
                if let Some(process) = self.processes.get_mut(&instance) {
                    (process.is_killed, process.work) = (true, None);
                }
            }
            Action::Crowded { .. } => {}
            Action::Refuse { call, .. } => {
                self.refused += 1;
                self.answer(call.0);
            }
            Action::Finish { call, .. } => {
                self.answered += 1;
                self.answer(call.0);
            }
            Action::Retry { event, attempts, due, .. } => {
                self.log.push(Record::Attempted { event: event.0, attempts, due })
            }
            Action::End { event, end, .. } => self.end(event.0, end),
        }
    }

    fn deliver(&mut self, instance: InstanceId, work: Work) {
        let Some(process) = self.processes.get_mut(&instance) else {
            return self.objections.push(format!("{work:?} was given to {instance:?}, which is gone"));
        };
        if process.is_killed || process.work.is_some() || !process.is_ready {
            self.objections.push(format!("{work:?} was given to {instance:?}, which does not ask: {process:?}"));
        }
        process.work = Some((work, self.now));
        if let Work::Event(event) = work {
            let seen = self.seen.entry(event.0).or_default();
            seen.runs_after_end += u32::from(!seen.ends.is_empty());
        }
    }

    fn answer(&mut self, call: u64) {
        if !self.calls.remove(&call) {
            self.objections.push(format!("call {call} was answered twice"));
        }
    }

    fn end(&mut self, event: u64, end: End) {
        self.seen.entry(event).or_default().ends.push(end.clone());
        let told = match &end {
            End::Destination(told) | End::DeadLetter(told) => Some(Arc::clone(told)),
            _ => None,
        };
        let told = told.map(|told| self.accepted(told));
        if let Some((Record::Accepted { event: follower, .. }, _)) = &told {
            self.followers.insert(event, *follower);
        }
        let ended = (self.flaw != Flaw::ForgetsEnds).then_some(Record::Ended { event, end });
        let (told, held): (Vec<_>, Vec<_>) = told.into_iter().unzip();
        let mut group: Vec<Record> = ended.into_iter().chain(told).collect();
        if self.flaw == Flaw::TellsApart {
            self.log.append(&mut group);
        } else if !group.is_empty() {
            self.log.push(Record::Group(group));
        }
        let position = self.log.len();
        self.held.push((position, Held::Ended(event)));
        self.held.extend(held.into_iter().map(|held| (position, held)));
    }

    fn check_limits(&mut self) {
        // Work in processes, as they see it.
        let mut by_function: BTreeMap<&str, u32> = BTreeMap::new();
        for process in self.processes.values() {
            // A process that gets ready does so for work.
            if process.work.is_some() && !process.is_killed {
                *by_function.entry(&*process.function).or_default() += 1;
            }
        }
        let reserved = by_function.get("reserved").copied().unwrap_or_default();
        let all: u32 = by_function.values().sum();
        if reserved > RESERVED || all > CONCURRENCY {
            self.objections.push(format!("{reserved} of {RESERVED} and {all} of {CONCURRENCY} run at once"));
        }
    }

    fn check_ends(&mut self) {
        for (event, seen) in &self.seen {
            if seen.ends.len() != 1 {
                self.objections.push(format!("event {event} has ended {} times: {seen:?}", seen.ends.len()));
            }
            let tells = matches!(seen.ends.last(), Some(End::Destination(_) | End::DeadLetter(_)));
            if tells && self.followers.get(event).is_none_or(|follower| !self.seen.contains_key(follower)) {
                self.objections.push(format!("nobody is told of the end of event {event}"));
            }
            if seen.runs_after_end > 0 {
                self.objections.push(format!("event {event} ran after its end"));
            }
            if self.core.has_event(EventId(*event)) {
                self.objections.push(format!("event {event} is remembered for ever"));
            }
        }
        if !self.calls.is_empty() {
            self.objections.push(format!("calls {:?} have no answer", self.calls));
        }
    }
}
