//! Who runs and who waits, and what becomes of events: a state machine without I/O. [`Core::step`] takes what has happened and says what
//! is to be done; the host does it and tells what came of it.
//!
//! A *call* is waited for by a client; at the limit it is refused at once. An *event* was accepted and is in the log; at the limit it waits. An
//! event that has run without success runs again later, until its attempts or its time are over, and then ends: exactly once, in one of
//! [`End`]. What ends is in the log before it is forgotten.

mod events;
mod pool;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use settings::{Build, EventSettings, Options, Route, Settings};

use crate::meter::{Meter, Micros, Usage};
use crate::refusal::RefusalKind;

/// A client's request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// An event that was accepted; for ever, in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// A process that runs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// What an instance works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Of a client that waits.
    Call(CallId),
    /// Of the queue.
    Event(EventId),
}

/// What an invocation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function has answered.
    Success,
    /// The function has answered with an error.
    Failed,
    /// It has not answered in its time.
    TimedOut,
    /// The instance was not ready in its time.
    InitTimedOut,
    /// The instance could not be made ready.
    InitFailed,
    /// The instance has ended before its answer.
    Exited,
}

impl Outcome {
    /// Whether the function did what it was to do.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

/// Why an event has ended, for whoever is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It succeeded.
    Success,
    /// It has run as often as it may.
    RetriesExhausted,
    /// It is older than it may be.
    AgeExceeded,
}

/// How an event ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It succeeded, and nobody is to be told.
    Success,
    /// The destination for what has become of it is told.
    Destination(Arc<str>),
    /// It did not succeed, and goes to where such events go.
    DeadLetter(Arc<str>),
    /// It did not succeed, and nobody is to be told.
    Dropped,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A function is there, or its settings are others.
    Configure {
        /// Its name.
        function: Arc<str>,
        /// What holds from now on.
        settings: Settings,
    },
    /// A function is there no more. What it runs goes on, what waits ends.
    Forget {
        /// Its name.
        function: Arc<str>,
    },
    /// A client asks.
    Invoke {
        /// The request.
        call: CallId,
        /// The function.
        function: Arc<str>,
        /// A version or an alias.
        qualifier: Arc<str>,
    },
    /// An event is in the log.
    Accept {
        /// The event.
        event: EventId,
        /// The function.
        function: Arc<str>,
        /// A version or an alias.
        qualifier: Arc<str>,
        /// When it was accepted.
        accepted: Micros,
        /// How often it has run.
        attempts: u32,
        /// Not before.
        due: Micros,
    },
    /// An instance asks for work.
    Next {
        /// Which.
        instance: InstanceId,
    },
    /// An instance says that it cannot be made ready.
    InitFailed {
        /// Which.
        instance: InstanceId,
    },
    /// An instance has answered.
    Answered {
        /// Which.
        instance: InstanceId,
        /// Whether with an error.
        outcome: Outcome,
    },
    /// A process has ended, or could not be started.
    Ended {
        /// Which.
        instance: InstanceId,
    },
    /// The end of an event is in the log.
    Recorded {
        /// The event.
        event: EventId,
    },
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process.
    Start {
        /// Which.
        instance: InstanceId,
        /// The function.
        function: Arc<str>,
        /// Its code and settings.
        build: u64,
        /// Its number among those of the function: no two that have not ended have the same, and the next one takes the lowest that is free.
        slot: u32,
    },
    /// Give an instance work, which has to be done before the deadline.
    Deliver {
        /// Which.
        instance: InstanceId,
        /// The work.
        work: Work,
        /// When it is ended.
        deadline: Micros,
    },
    /// End a process and all that it has started.
    Kill {
        /// Which.
        instance: InstanceId,
    },
    /// More functions are in use than there may be processes: one that was used a moment ago is ended for another one. Said once a minute.
    Crowded {
        /// The one whose process is ended.
        function: Arc<str>,
    },
    /// Tell a client that as many run as may.
    Refuse {
        /// The request.
        call: CallId,
        /// Which limit it was.
        kind: RefusalKind,
    },
    /// Tell a client what came of it.
    Finish {
        /// The request.
        call: CallId,
        /// Who ran it.
        instance: InstanceId,
        /// The code that ran.
        build: u64,
        /// What it came to.
        outcome: Outcome,
        /// What it used.
        usage: Usage,
    },
    /// An event has run without success and runs again later: put that into the log.
    Retry {
        /// The event.
        event: EventId,
        /// Who ran it.
        instance: InstanceId,
        /// How often it has run.
        attempts: u32,
        /// Not before.
        due: Micros,
        /// What it came to.
        outcome: Outcome,
        /// What it used.
        usage: Usage,
    },
    /// An event ends: put that into the log, with what a destination is to be told, and say when it is there.
    End {
        /// The event.
        event: EventId,
        /// How.
        end: End,
        /// Why.
        cause: Cause,
        /// How often it has run.
        attempts: u32,
        /// Who ran it last, if it ran just now.
        ran: Option<(InstanceId, Outcome, Usage)>,
    },
}

/// A process, as the core knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instance {
    function: Arc<str>,
    build: Build,
    /// Its number among those of the function.
    slot: u32,
    state: State,
    /// Its code is not wanted any more: it ends when it has nothing to do.
    retired: bool,
}

/// What a process does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Gets ready, for this work.
    Starting { work: Work, began: Micros },
    /// Has nothing to do, and asks for it.
    Idle { since: Micros },
    /// Works.
    Busy { work: Work, began: Micros, init: Micros },
    /// Has answered, and not asked again yet. It may have got work already, for when it does.
    Resting { since: Micros, until: Micros, work: Option<Work> },
    /// Was told to end.
    Ending,
}

/// A function, as the core knows it.
#[derive(Clone, Debug, Default)]
struct Function {
    settings: Settings,
    /// Work that instances have.
    running: u32,
    /// Events that wait, the first one first.
    queue: BTreeSet<(Micros, EventId)>,
    meter: Meter,
    is_forgotten: bool,
}

/// An event that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    function: Arc<str>,
    qualifier: Arc<str>,
    /// From then on it is too old.
    expires: Micros,
    attempts: u32,
    state: EventState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventState {
    Queued {
        due: Micros,
    },
    Running,
    /// Its end is on the way into the log.
    Ending,
}

/// Who runs and who waits.
#[derive(Clone, Debug)]
pub struct Core {
    options: Options,
    functions: BTreeMap<Arc<str>, Function>,
    instances: BTreeMap<InstanceId, Instance>,
    events: BTreeMap<EventId, Event>,
    /// When events of the queue are too old.
    ages: BTreeSet<(Micros, EventId)>,
    /// Functions with events that wait.
    waiting: BTreeSet<Arc<str>>,
    next_instance: u64,
    /// When it was said last that there are too many.
    crowded: Option<Micros>,
    /// For aliases that go to two versions.
    dice: u64,
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes.
    pub instances: usize,
    /// Those of them that have work.
    pub busy: usize,
    /// Events that wait.
    pub queued: usize,
}

impl Core {
    /// Nothing runs. `dice` seeds the choice between two versions of an alias.
    #[must_use]
    pub fn new(options: Options, dice: u64) -> Self {
        Self {
            options,
            functions: BTreeMap::new(),
            instances: BTreeMap::new(),
            events: BTreeMap::new(),
            ages: BTreeSet::new(),
            waiting: BTreeSet::new(),
            next_instance: 1,
            crowded: None,
            dice: dice | 1,
        }
    }

    /// Takes what has happened, and says what is to be done, in this order. Never goes back in time.
    pub fn step(&mut self, input: Input, now: Micros) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Configure { function, settings } => self.configure(&function, settings, &mut actions),
            Input::Forget { function } => self.forget(&function, &mut actions),
            Input::Invoke { call, function, qualifier } => self.invoke(call, &function, &qualifier, now, &mut actions),
            Input::Accept { event, function, qualifier, accepted, attempts, due } => {
                let age = self.event_settings(&function, &qualifier).age;
                let (expires, state) = (accepted.saturating_add(age), EventState::Queued { due });
                self.accept(event, Event { function, qualifier, expires, attempts, state });
            }
            Input::Next { instance } => self.next(instance, now, &mut actions),
            Input::InitFailed { instance } => self.init_failed(instance, now, &mut actions),
            Input::Answered { instance, outcome } => self.answered(instance, outcome, now, &mut actions),
            Input::Ended { instance } => self.ended(instance, now, &mut actions),
            Input::Recorded { event } => {
                self.events.remove(&event);
            }
            Input::Tick => {}
        }
        self.time_out(now, &mut actions);
        self.pump(now, &mut actions);
        actions
    }

    /// When a [`Input::Tick`] has something to do, if nothing happens before.
    #[must_use]
    pub fn wake(&self, now: Micros) -> Option<Micros> {
        let instances = self.instances.values().filter_map(|instance| self.over_at(instance));
        // What is due already waits for somebody else's end.
        let queues =
            self.waiting.iter().filter_map(|name| self.functions.get(name)?.queue.first()).map(|(due, _)| *due);
        let ages = self.ages.first().map(|(at, _)| *at);
        instances.chain(queues.filter(|due| *due > now)).chain(ages).min()
    }

    /// How many there are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let busy = self.instances.values().filter(|instance| instance.work().is_some()).count();
        let queued = self.functions.values().map(|function| function.queue.len()).sum();
        Counts { instances: self.instances.len(), busy, queued }
    }

    /// How many of one function there are.
    #[must_use]
    pub fn counts_of(&self, function: &str) -> Counts {
        let own = || self.instances.values().filter(|instance| &*instance.function == function);
        let busy = own().filter(|instance| instance.work().is_some()).count();
        let queued = self.functions.get(function).map_or(0, |function| function.queue.len());
        Counts { instances: own().count(), busy, queued }
    }

    /// Work that instances of a function have, and what it may have at once, if that is reserved.
    #[must_use]
    pub fn running(&self, function: &str) -> (u32, Option<u32>) {
        self.functions.get(function).map_or((0, None), |function| (function.running, function.settings.reserved))
    }

    /// What each function has used.
    pub fn meters(&self) -> impl Iterator<Item = (&Arc<str>, &Meter)> {
        self.functions.iter().map(|(name, function)| (name, &function.meter))
    }

    /// What a function has used.
    #[must_use]
    pub fn meter(&self, function: &str) -> Meter {
        self.functions.get(function).map(|function| function.meter).unwrap_or_default()
    }

    /// Counts bytes of a payload.
    pub fn count_payload(&mut self, function: &str, bytes: usize) {
        if let Some(function) = self.functions.get_mut(function) {
            function.meter.payload_bytes += bytes as u64;
        }
    }

    /// Whether an event has not ended.
    #[must_use]
    pub fn has_event(&self, event: EventId) -> bool {
        self.events.contains_key(&event)
    }
}

impl Instance {
    fn work(&self) -> Option<Work> {
        match self.state {
            State::Starting { work, .. } | State::Busy { work, .. } => Some(work),
            State::Resting { work, .. } => work,
            State::Idle { .. } | State::Ending => None,
        }
    }
}
