//! The journal: the core, a back end, and the thread between them.

use std::{
    collections::VecDeque,
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use savanna_epoch::NodeEpoch;
use tokio::sync::oneshot;

use crate::{
    backend::{Backend, Outcome, failure, perform},
    batch::Batch,
    core::{Action, Core, Input},
    error::JournalError,
    local::{LocalBackend, Space, Stage},
    object::{ObjectBackend, READ_COST},
    options::{Filter, Options, Place},
    record::{Draft, Lsn, Record},
    release::{Reply, release},
    times::Times,
};

/// A write-ahead log that is open for appending by its one owner.
///
/// Dropping it flushes what was appended and waits for that; use [`close`](Self::close) to hear of an error.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Where groups are staged; locked before the state is. Nothing where the log is not in a directory.
    stage: Option<Mutex<Stage>>,
    /// Where space is asked for, in a directory.
    space: Option<Arc<Space>>,
    stream: u32,
    epoch: NodeEpoch,
}

/// Counts since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Append groups that became durable.
    pub groups: u64,
    /// Flushes: fdatasync calls or objects written.
    pub flushes: u64,
    /// Bytes of records written.
    pub bytes: u64,
    /// Writes and flushes that failed, or found no space.
    pub errors: u64,
    /// How long flushes took, the writes before them included.
    pub flush_times: Times,
}

impl Stats {
    /// Notes what the back end did, which took so long. A batch is written in one step and flushed in the next.
    fn note<R>(&mut self, done: &Input<R>, took: Duration) {
        match done {
            Input::WriteDone { batch, .. } => {
                self.groups += batch.groups();
                self.bytes += batch.bytes() as u64;
                self.flush_times.begin(took);
            }
            // Its time is not known: others are put beside it.
            Input::PutBegun { batch } => {
                self.groups += batch.groups();
                self.bytes += batch.bytes() as u64;
                self.flushes += 1;
            }
            Input::FlushDone => {
                self.flushes += 1;
                self.flush_times.end(took);
            }
            Input::Failed(_) | Input::Full { .. } => self.errors += 1,
            _ => {}
        }
    }
}

impl Journal {
    /// Takes the log over under `epoch`, hands every record of the log (in the order of their LSNs, of complete append
    /// groups only) to `replay`, and is then ready to append.
    ///
    /// From the first moment on, an older owner acknowledges nothing more. An epoch that equals the newest one is
    /// accepted and fences the earlier opening. The call blocks while it reads; inside of an asynchronous task, use
    /// `spawn_blocking`. If state is also kept elsewhere and the log truncated, read that state *after* opening.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if the log belongs to a newer epoch, [`JournalError::Corrupt`],
    /// [`JournalError::Missing`] and [`JournalError::Version`] if it cannot be read back, [`JournalError::Io`] and
    /// [`JournalError::Store`] if the place fails, [`JournalError::Replay`] with the error of `replay`.
    pub fn open<E: Into<Box<dyn Error + Send + Sync>>>(
        options: Options,
        epoch: NodeEpoch,
        replay: &mut dyn FnMut(Record) -> Result<(), E>,
    ) -> Result<Self, JournalError> {
        let limits = options.limits();
        let Options { place, stream, segment_bytes, filter, high_water, put_time, .. } = options;
        let mut deliver = |record| deliver(&filter, record, replay);
        let (mut backend, last, local): (Box<dyn Backend>, Lsn, _) = match place {
            Place::Disk(disk) => {
                let (backend, last) = LocalBackend::open(disk, high_water, segment_bytes, epoch, &mut deliver)?;
                let local = (Mutex::new(backend.stage()), backend.space());
                (Box::new(backend), last, Some(local))
            }
            Place::Store { store, prefix } => {
                let (backend, last) = ObjectBackend::open(store, prefix, epoch, put_time, &mut deliver)?;
                (Box::new(backend), last, None)
            }
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                core: Core::new(epoch, last, limits),
                todo: VecDeque::new(),
                told: VecDeque::new(),
                wake_at: None,
                over: None,
            }),
            work: Condvar::new(),
            started: Instant::now(),
            durable: AtomicU64::new(last.0),
            is_full: AtomicBool::new(false),
            stats: Mutex::default(),
        });
        let told = Arc::downgrade(&shared);
        backend.on_put(Arc::new(move |lsn, outcome| {
            // Nobody wants to know when the journal is gone.
            if let Some(shared) = told.upgrade() {
                shared.state.lock().told.push_back((lsn, outcome));
                shared.work.notify_one();
            }
        }));
        let (stage, space) = local.unzip();
        let writer = Writer { shared: Arc::clone(&shared), backend };
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run())
            .map_err(JournalError::io("start a thread for", "the journal"))?;
        Ok(Self { shared, writer: Mutex::new(Some(thread)), stage, space, stream, epoch })
    }

    /// Orders and buffers a group of records of the journal's stream, which will be in the log all or not at all. Returns
    /// the last record's LSN at once, before anything is written; an empty group returns the newest LSN.
    ///
    /// # Errors
    /// [`JournalError::TooLarge`] and [`JournalError::Backlog`] refuse this group only. After any other error nothing
    /// can be appended any more.
    pub fn append(&self, group: &[Draft<'_>]) -> Result<Lsn, JournalError> {
        self.append_to(self.stream, group)
    }

    /// As [`append`](Self::append), to another stream of the same log.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_to(&self, stream: u32, group: &[Draft<'_>]) -> Result<Lsn, JournalError> {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        let (lsn, actions) = state.core.append(stream, group, now)?;
        self.shared.hand_over(&mut state, actions);
        drop(state);
        if let Some(space) = &self.space {
            space.note_appended(Self::written_bytes(group));
        }
        Ok(lsn)
    }

    /// How many bytes a group takes in the log.
    pub fn written_bytes(group: &[Draft<'_>]) -> usize {
        Batch::bytes_of(group)
    }

    /// Takes space for so many bytes of groups that are going to be appended: where the disk is full, they need not wait. What
    /// was taken is given back with [`give_back`](Self::give_back) when they are appended, or never will be. Where the log is not
    /// in a directory of a file system, nobody can be sure.
    ///
    /// # Errors
    /// [`JournalError::Full`] if there is none.
    pub fn take_space(&self, bytes: usize) -> Result<(), JournalError> {
        self.space.as_ref().map_or(Ok(()), |space| space.take(bytes))
    }

    /// Gives back space that was taken with [`take_space`](Self::take_space).
    pub fn give_back(&self, bytes: usize) {
        if let Some(space) = &self.space {
            space.give_back(bytes);
        }
    }

    /// As [`append`](Self::append), and gives the group to the operating system before it returns, if the log is in a directory:
    /// it survives the end of the process then, if all that was appended before does. See [`survives`](Self::survives).
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_staged(&self, group: &[Draft<'_>]) -> Result<Lsn, JournalError> {
        let Some(stage) = &self.stage else { return self.append(group) };
        // In the order of the log: what follows a gap is of no use.
        let mut stage = stage.lock();
        let last = self.append(group)?;
        if !group.is_empty() {
            stage.put(Lsn(last.0 + 1 - group.len() as u64), self.stream, group, self.durable());
        }
        Ok(last)
    }

    /// Whether everything up to a record survives the end of the process, because it is durable or
    /// [staged](Self::append_staged). It need not survive the end of the machine.
    pub fn survives(&self, lsn: Lsn) -> bool {
        let durable = self.durable();
        lsn <= durable || self.stage.as_ref().is_some_and(|stage| stage.lock().survives(lsn, durable))
    }

    /// The epoch it was opened with.
    pub fn epoch(&self) -> NodeEpoch {
        self.epoch
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// The LSN given out last; it need not be durable.
    pub fn appended(&self) -> Lsn {
        self.shared.state.lock().core.appended()
    }

    /// Bytes that were appended and have not begun to be written. Who appends what can wait looks at it first.
    pub fn backlog(&self) -> usize {
        self.shared.state.lock().core.backlog()
    }

    /// Why nothing more should be appended for now: there is no space, or will soon be none. What was appended waits, and
    /// what is appended all the same waits with it. It ends by itself when there is space.
    pub fn full(&self) -> Option<JournalError> {
        if !self.shared.is_full.load(Ordering::Relaxed) {
            return None;
        }
        self.shared.state.lock().core.full().cloned()
    }

    /// Waits until a record, and all before it, are durable.
    ///
    /// # Errors
    /// The reason why it will not become durable under this owner.
    pub async fn wait_durable(&self, lsn: Lsn) -> Result<(), JournalError> {
        if lsn <= self.durable() {
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        self.gate().hold(lsn, move |outcome| {
            // A waiter that was dropped does not want to know.
            drop(sender.send(outcome));
        });
        receiver
            .await
            .unwrap_or_else(|_| Err(JournalError::Stopped { reason: "it ended without an answer".to_owned() }))
    }

    /// The gate that replies wait in.
    pub fn gate(&self) -> ReplyGate {
        ReplyGate { shared: Arc::clone(&self.shared) }
    }

    /// Records before `lsn` are not needed any more: what they say is durable elsewhere. Returns at once; segments that
    /// hold only such records are removed in the background. Records before `lsn` that share a segment with later ones
    /// are still replayed; a long segment that is being written ends, so that the next truncation can remove it.
    ///
    /// # Errors
    /// [`JournalError::BeyondDurable`] if records would be dropped that are not durable; otherwise as
    /// [`append`](Self::append).
    pub fn truncate_before(&self, lsn: Lsn) -> Result<(), JournalError> {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        state.core.refuse_if_over()?;
        let durable = state.core.durable();
        if lsn > durable.next() {
            return Err(JournalError::BeyondDurable { asked: lsn, durable });
        }
        let actions = state.core.step(Input::Truncate(lsn), now);
        self.shared.hand_over(&mut state, actions);
        Ok(())
    }

    /// Counts since the journal was opened.
    pub fn stats(&self) -> Stats {
        *self.shared.stats.lock()
    }

    /// What was written since the journal was opened costs to read as much as so many bytes of a long file: each object of a store
    /// is a request, and counts as 32 KiB besides what is in it. Whoever decides when to truncate counts this.
    #[must_use]
    pub fn read_cost(&self) -> u64 {
        let Stats { flushes, bytes, .. } = self.stats();
        let is_store = self.stage.is_none();
        if is_store { bytes + flushes * READ_COST } else { bytes }
    }

    /// Makes everything durable that was appended, lets its replies go and stops. Blocks until that is done. Closing
    /// again changes nothing.
    ///
    /// # Errors
    /// The reason why the journal ended earlier, if it did.
    pub fn close(&self) -> Result<(), JournalError> {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        let actions = state.core.step(Input::Close, now);
        self.shared.hand_over(&mut state, actions);
        drop(state);
        let writer = self.writer.lock().take();
        // A reply that closes the journal runs on the writer's thread, which cannot wait for itself.
        if let Some(writer) = writer.filter(|writer| writer.thread().id() != std::thread::current().id())
            && writer.join().is_err()
        {
            return Err(JournalError::Stopped { reason: "its thread panicked".to_owned() });
        }
        if let Some(Some(error)) = &self.shared.state.lock().over {
            return Err(error.clone());
        }
        if let Some(stage) = &self.stage {
            stage.lock().remove();
        }
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::debug!(%error, "a journal was dropped that had ended before");
        }
    }
}

/// Holds replies back until what they depend on is durable. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReplyGate {
    shared: Arc<Shared>,
}

impl ReplyGate {
    /// Calls `reply` once `lsn` is durable: at once, on this thread, if it is; otherwise later on the journal's thread,
    /// which writes nothing meanwhile, so a reply should be short and must not wait. If the journal fails first, the
    /// reply gets the error and must tell its client nothing else; from then on that is so for every LSN.
    pub fn hold(&self, lsn: Lsn, reply: impl FnOnce(Result<(), JournalError>) + Send + 'static) {
        let reply: Reply = Box::new(reply);
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        let actions = state.core.step(Input::Hold { lsn, reply }, now);
        let is_release = |action: &Action<Reply>| matches!(action, Action::Release { .. });
        let (releases, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_release);
        self.shared.hand_over(&mut state, others);
        drop(state);
        for action in releases {
            if let Action::Release { replies, outcome } = action {
                release(replies, &outcome);
            }
        }
    }
}

/// What the owner's threads and the writer share.
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    started: Instant,
    durable: AtomicU64,
    is_full: AtomicBool,
    /// The writer alone changes them, once a step.
    stats: Mutex<Stats>,
}

struct State {
    core: Core<Reply>,
    /// What the writer has to do, in order.
    todo: VecDeque<Action<Reply>>,
    /// What became of puts, in the order in which it was told.
    told: VecDeque<(Lsn, Result<(), JournalError>)>,
    wake_at: Option<Duration>,
    /// Set when the writer has stopped, with the reason if it is a failure.
    over: Option<Option<JournalError>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("durable", &self.durable).finish_non_exhaustive()
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn hand_over(&self, state: &mut State, actions: Vec<Action<Reply>>) {
        if !actions.is_empty() {
            state.todo.extend(actions);
            self.work.notify_one();
        }
    }

    /// Waits for what is next.
    fn next(&self) -> Next {
        let mut state = self.state.lock();
        loop {
            if let Some((last, outcome)) = state.told.pop_front() {
                return Next::Input(outcome.map_or_else(failure, |()| Input::PutDone { last }));
            }
            if let Some(action) = state.todo.pop_front() {
                return Next::Action(action);
            }
            match state.wake_at {
                Some(at) if at <= self.now() => {
                    state.wake_at = None;
                    let actions = state.core.step(Input::Tick, self.now());
                    state.todo.extend(actions);
                }
                Some(at) => {
                    let patience = at.saturating_sub(self.now());
                    self.work.wait_for(&mut state, patience);
                }
                None => self.work.wait(&mut state),
            }
        }
    }

    /// Feeds the core what happened. Returns what is durable now if that was not known before.
    fn answer(&self, input: Input<Reply>) -> Option<Lsn> {
        let mut state = self.state.lock();
        let before = state.core.durable();
        let actions = state.core.step(input, self.now());
        let durable = state.core.durable();
        state.todo.extend(actions);
        let full = state.core.full();
        if full.is_some() != self.is_full.swap(full.is_some(), Ordering::Relaxed) {
            match full {
                Some(error) => tracing::error!(%error, "the journal has no space for more; it waits until there is"),
                None => tracing::info!("the journal has space again"),
            }
        }
        (durable > before).then_some(durable)
    }

    /// Who looks may go on from here.
    fn publish(&self, durable: Lsn) {
        self.durable.store(durable.0, Ordering::Release);
    }
}

/// What the writer does next.
enum Next {
    Action(Action<Reply>),
    Input(Input<Reply>),
}

/// The thread that writes.
struct Writer {
    shared: Arc<Shared>,
    backend: Box<dyn Backend>,
}

impl Writer {
    fn run(self) {
        let Self { shared, mut backend } = self;
        let worked = catch_unwind(AssertUnwindSafe(|| Self::work(&shared, backend.as_mut())));
        if worked.is_err() {
            shared.answer(Input::Failed(JournalError::Stopped { reason: "its thread panicked".to_owned() }));
            while Self::one(&shared, backend.as_mut()) {}
        }
    }

    fn work(shared: &Shared, backend: &mut dyn Backend) {
        while Self::one(shared, backend) {}
    }

    /// Does one action; whether there will be more.
    fn one(shared: &Shared, backend: &mut dyn Backend) -> bool {
        let next = shared.next();
        let began = Instant::now();
        let outcome = match next {
            Next::Action(action) => perform(backend, action),
            Next::Input(input) => Outcome::Answer(input),
        };
        match outcome {
            Outcome::Answer(input) => {
                shared.stats.lock().note(&input, began.elapsed());
                if let Some(durable) = shared.answer(input) {
                    backend.note(durable);
                    shared.publish(durable);
                }
            }
            Outcome::Other(Action::Release { replies, outcome }) => release(replies, &outcome),
            Outcome::Other(Action::WakeAt(at)) => shared.state.lock().wake_at = Some(at),
            Outcome::Other(Action::Stop(reason)) => {
                match &reason {
                    Some(error) => tracing::error!(%error, "the journal ended; nothing more is appended or told"),
                    None => backend.mark_end(shared.state.lock().core.durable()),
                }
                shared.state.lock().over = Some(reason);
                return false;
            }
            Outcome::Other(other) => unreachable!("the back end does not do {}", kind(&other)),
        }
        true
    }
}

fn kind<R>(action: &Action<R>) -> &'static str {
    match action {
        Action::CheckFence => "CheckFence",
        Action::Write { .. } => "Write",
        Action::Put { .. } => "Put",
        Action::Flush => "Flush",
        Action::Reserve => "Reserve",
        Action::Truncate { .. } => "Truncate",
        Action::Release { .. } => "Release",
        Action::WakeAt(_) => "WakeAt",
        Action::Stop(_) => "Stop",
    }
}

/// Hands a record to the owner's replay function, if it is wanted.
pub(crate) fn deliver<E: Into<Box<dyn Error + Send + Sync>>>(
    filter: &Filter,
    record: Record,
    replay: &mut dyn FnMut(Record) -> Result<(), E>,
) -> Result<(), JournalError> {
    if !filter.wants(&record) {
        return Ok(());
    }
    let lsn = record.lsn;
    replay(record).map_err(|error| JournalError::Replay { lsn, source: Arc::from(error.into()) })
}
