//! The journal without a thread.

use std::{
    collections::VecDeque,
    error::Error,
    sync::{Arc, mpsc},
    time::Duration,
};

use savanna_epoch::NodeEpoch;

use crate::{
    backend::{Backend, Outcome, failure, perform},
    core::{Action, Core, Input},
    error::JournalError,
    journal::deliver,
    local::LocalBackend,
    object::ObjectBackend,
    options::{Options, Place},
    record::{Draft, Lsn, Record},
};

/// What one step did.
#[derive(Debug)]
pub enum Step<R> {
    /// Nothing is to be done.
    Idle,
    /// The journal did something on the disk.
    Disk,
    /// A batch is on its way to the object store; [`SteppedJournal::hear`] says what became of it.
    Put,
    /// These replies leave now, with this outcome.
    Released {
        /// As they were given to [`SteppedJournal::hold`].
        replies: Vec<R>,
        /// What they say.
        outcome: Result<(), JournalError>,
    },
    /// The journal waits for company for its batch until this time.
    Wait(Duration),
    /// The journal has ended, with the reason if it is a failure.
    Stopped(Option<JournalError>),
}

/// The product's core and back ends, run one step at a time. Dropping it is a process that dies: nothing is
/// flushed. `R` is what stands for a reply.
pub struct SteppedJournal<R> {
    core: Core<R>,
    backend: Box<dyn Backend>,
    /// What became of puts.
    told: mpsc::Receiver<(Lsn, Result<(), JournalError>)>,
    todo: VecDeque<Action<R>>,
    stream: u32,
    now: Duration,
}

impl<R: std::fmt::Debug> std::fmt::Debug for SteppedJournal<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteppedJournal").field("core", &self.core).finish_non_exhaustive()
    }
}

impl<R> SteppedJournal<R> {
    /// As [`Journal::open`](crate::Journal::open).
    ///
    /// # Errors
    /// As [`Journal::open`](crate::Journal::open).
    pub fn open<E: Into<Box<dyn Error + Send + Sync>>>(
        options: &Options,
        epoch: NodeEpoch,
        replay: &mut dyn FnMut(Record) -> Result<(), E>,
    ) -> Result<Self, JournalError> {
        let mut deliver = |record| deliver(&options.filter, record, replay);
        let (mut backend, last): (Box<dyn Backend>, Lsn) = match &options.place {
            Place::Disk(disk) => {
                let (disk, notes, bytes) = (Arc::clone(disk), options.high_water.clone(), options.segment_bytes);
                let (backend, last) = LocalBackend::open(disk, notes, bytes, epoch, &mut deliver)?;
                (Box::new(backend), last)
            }
            Place::Store { store, prefix } => {
                let (store, prefix, put_time) = (Arc::clone(store), prefix.clone(), options.put_time);
                let (backend, last) = ObjectBackend::open(store, prefix, epoch, put_time, &mut deliver)?;
                (Box::new(backend), last)
            }
        };
        let (tell, told) = mpsc::channel();
        // Nobody hears it when the journal is dropped.
        backend.on_put(Arc::new(move |last, outcome| drop(tell.send((last, outcome)))));
        Ok(Self {
            core: Core::new(epoch, last, options.limits()),
            backend,
            told,
            todo: VecDeque::new(),
            stream: options.stream,
            now: Duration::ZERO,
        })
    }

    /// As [`Journal::append`](crate::Journal::append).
    ///
    /// # Errors
    /// As [`Journal::append`](crate::Journal::append).
    pub fn append(&mut self, group: &[Draft<'_>]) -> Result<Lsn, JournalError> {
        let (lsn, actions) = self.core.append(self.stream, group, self.now)?;
        self.todo.extend(actions);
        Ok(lsn)
    }

    /// As [`ReplyGate::hold`](crate::ReplyGate::hold); the reply comes out of [`step`](Self::step).
    pub fn hold(&mut self, lsn: Lsn, reply: R) {
        self.feed(Input::Hold { lsn, reply });
    }

    /// As [`Journal::truncate_before`](crate::Journal::truncate_before), without its check.
    pub fn truncate_before(&mut self, lsn: Lsn) {
        self.feed(Input::Truncate(lsn));
    }

    /// Begins to close; step until [`Step::Stopped`].
    pub fn close(&mut self) {
        self.feed(Input::Close);
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        self.feed(Input::Tick);
    }

    /// Everything up to here is durable and may be told.
    pub fn durable(&self) -> Lsn {
        self.core.durable()
    }

    /// The LSN given out last.
    pub fn appended(&self) -> Lsn {
        self.core.appended()
    }

    /// Waits until it is known what became of a put. What follows comes out of [`step`](Self::step).
    pub fn hear(&mut self) {
        if let Ok((last, outcome)) = self.told.recv() {
            self.feed(outcome.map_or_else(failure, |()| Input::PutDone { last }));
        }
    }

    /// Does the next thing there is to do.
    pub fn step(&mut self) -> Step<R> {
        let Some(action) = self.todo.pop_front() else {
            return Step::Idle;
        };
        match perform(self.backend.as_mut(), action) {
            Outcome::Answer(input) => {
                let step = if matches!(input, Input::PutBegun { .. }) { Step::Put } else { Step::Disk };
                self.feed(input);
                step
            }
            Outcome::Other(Action::Release { replies, outcome }) => Step::Released { replies, outcome },
            Outcome::Other(Action::WakeAt(at)) => Step::Wait(at),
            Outcome::Other(Action::Stop(reason)) => {
                if reason.is_none() {
                    self.backend.mark_end(self.core.durable());
                }
                Step::Stopped(reason)
            }
            Outcome::Other(_) => unreachable!("the back end does every other action"),
        }
    }

    fn feed(&mut self, input: Input<R>) {
        let before = self.core.durable();
        let actions = self.core.step(input, self.now);
        if self.core.durable() > before {
            self.backend.note(self.core.durable());
        }
        self.todo.extend(actions);
    }
}
