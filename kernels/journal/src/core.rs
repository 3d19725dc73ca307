//! The journal's decisions: when to write, when to flush, when to ask for the fence, and who may be told what.
//!
//! A state machine without I/O, clock or randomness. The thread in [`journal`](crate::Journal) and the simulator in
//! [`sim`](crate::sim) drive this same code. On a disk, at most one batch is in flight:
//!
//! ```text
//!          Append                FenceClear           WriteDone          FlushDone            FenceClear
//!  Idle ───────────► Admitting ─────────────► Writing ──────────► Flushing ─────────► Confirming ───────► Idle
//!   ▲     CheckFence              Write                  Flush               CheckFence       │  Release
//!   └───────────────────────────────────────────────────────────────────────────────────────────┘
//!  in every state:  Failed, FenceSeen ──► Dead:  Release(error) for all who wait, Stop; later appends are refused
//!  Writing, Truncating:  Full ──► Idle:  the same again after a pause; whoever appends is told to wait, if he asks
//! ```
//!
//! In an object store, several are ([`Limits::puts`]), and the write itself meets the fence:
//!
//! ```text
//!          Append                 PutBegun                        PutDone
//!  Idle ───────────► Put, .. Put ──────────► Idle, with flights ─────────► durable up to the first flight that is not done:  Release
//!  a truncation begins when no flight is under way, and none begins meanwhile
//! ```
//!
//! Nothing is in doubt after a write that found no space: nobody was told of it, and the next one writes over it. A flush is
//! never tried again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use savanna_epoch::NodeEpoch;

use crate::{
    batch::Batch,
    error::JournalError,
    record::{Draft, Lsn},
};

/// What is too much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most bytes of one append group: what fits into a segment.
    pub(crate) group_bytes: usize,
    /// A batch is closed when the next group would take it beyond this.
    pub(crate) batch_bytes: usize,
    /// Most bytes that wait in memory.
    pub(crate) backlog_bytes: usize,
    /// How long a batch waits for company before it is written; zero for *not at all*.
    pub(crate) linger: Duration,
    /// As `linger`, of a batch that no reply waits for.
    pub(crate) patience: Duration,
    /// In an object store: so many batches may be under way at once.
    pub(crate) puts: Option<usize>,
}

/// What happened outside.
#[derive(Debug)]
pub(crate) enum Input<R> {
    /// A reply wants to leave once `lsn` is durable.
    Hold { lsn: Lsn, reply: R },
    /// Records before this LSN are no longer needed.
    Truncate(Lsn),
    /// Flush what waits, then stop.
    Close,
    /// Time passed.
    Tick,
    /// The fence is still ours.
    FenceClear,
    /// The fence is somebody else's.
    FenceSeen(NodeEpoch),
    /// The batch is written; its memory comes back. If there was no space for what comes behind it, that is said.
    WriteDone { batch: Batch, low: Option<JournalError> },
    /// The batch is on its way; its memory comes back.
    PutBegun { batch: Batch },
    /// The batch with this last record is there, durable.
    PutDone { last: Lsn },
    /// There is space for what comes soon.
    Reserved,
    /// There was no space for what was asked; of a batch, it comes back.
    Full { error: JournalError, batch: Option<Batch> },
    /// What was written is durable.
    FlushDone,
    /// Older segments are gone, or were none.
    TruncateDone,
    /// Something failed and must not be tried again.
    Failed(JournalError),
}

/// What to do outside.
#[derive(Debug)]
pub(crate) enum Action<R> {
    /// Answer with [`Input::FenceClear`] or [`Input::FenceSeen`].
    CheckFence,
    /// Answer with [`Input::WriteDone`].
    Write { batch: Batch, durable: Lsn },
    /// Answer with [`Input::PutBegun`], and later with [`Input::PutDone`]. So many batches before it are under way.
    Put { batch: Batch, durable: Lsn, behind: usize },
    /// Answer with [`Input::FlushDone`].
    Flush,
    /// Answer with [`Input::Reserved`].
    Reserve,
    /// Answer with [`Input::TruncateDone`].
    Truncate { oldest: Lsn, durable: Lsn },
    /// Let these replies go.
    Release { replies: Vec<R>, outcome: Result<(), JournalError> },
    /// Send a [`Input::Tick`] at this time.
    WakeAt(Duration),
    /// There is nothing more to do, ever; with the reason if it is a failure.
    Stop(Option<JournalError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Asking for the fence before the next batch is written.
    Admitting,
    Writing,
    Flushing,
    /// Asking for the fence before the flushed batch is told.
    Confirming,
    /// Asking for the fence before segments are removed.
    Clearing,
    Truncating,
    /// Looking whether there is space again.
    Reserving,
    Stopped,
}

/// A batch that is under way beside others.
#[derive(Clone, Copy, Debug)]
struct Flight {
    last: Lsn,
    is_done: bool,
}

/// After so long, what found no space is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// The state machine. `R` is a reply that waits: a callback in the product, a number in the simulator.
#[derive(Debug)]
pub(crate) struct Core<R> {
    epoch: NodeEpoch,
    limits: Limits,
    phase: Phase,
    /// Why nothing goes any more.
    dead: Option<JournalError>,
    closing: bool,
    next: Lsn,
    durable: Lsn,
    /// The last LSN of the batch in flight.
    in_flight: Option<Lsn>,
    /// In an object store: the batches under way, in order.
    flights: VecDeque<Flight>,
    pending: VecDeque<Batch>,
    pending_bytes: usize,
    /// When the oldest pending group came.
    pending_since: Duration,
    /// When a tick was asked for; it is asked for once.
    wakes_at: Option<Duration>,
    truncate: Option<Lsn>,
    /// The truncation that is under way.
    truncating: Lsn,
    /// That there is no space, or will soon be none, and when to look again.
    full: Option<(JournalError, Duration)>,
    /// Whether the first batch that waits found no space.
    is_blocked: bool,
    held: BTreeMap<(Lsn, u64), R>,
    held_so_far: u64,
    spare: Option<Batch>,
}

impl<R> Core<R> {
    /// A log whose records up to `durable` are durable.
    pub(crate) fn new(epoch: NodeEpoch, durable: Lsn, limits: Limits) -> Self {
        Self {
            epoch,
            limits,
            phase: Phase::Idle,
            dead: None,
            closing: false,
            next: durable.next(),
            durable,
            in_flight: None,
            flights: VecDeque::new(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            pending_since: Duration::ZERO,
            wakes_at: None,
            truncate: None,
            truncating: Lsn::NONE,
            full: None,
            is_blocked: false,
            held: BTreeMap::new(),
            held_so_far: 0,
            spare: None,
        }
    }

    /// Everything up to here is durable and may be told.
    pub(crate) fn durable(&self) -> Lsn {
        self.durable
    }

    /// The last LSN given out.
    pub(crate) fn appended(&self) -> Lsn {
        self.next.previous()
    }

    /// Bytes that no write has taken yet.
    pub(crate) fn backlog(&self) -> usize {
        self.pending_bytes
    }

    /// Why nothing more should be appended for now.
    pub(crate) fn full(&self) -> Option<&JournalError> {
        self.full.as_ref().map(|(error, _)| error)
    }

    /// Orders and buffers a group; all of it or, on an error, nothing.
    pub(crate) fn append(
        &mut self,
        stream: u32,
        group: &[Draft<'_>],
        now: Duration,
    ) -> Result<(Lsn, Vec<Action<R>>), JournalError> {
        self.refuse_if_over()?;
        if group.is_empty() {
            return Ok((self.appended(), Vec::new()));
        }
        let bytes = Batch::bytes_of(group);
        if bytes > self.limits.group_bytes {
            return Err(JournalError::TooLarge { bytes, limit: self.limits.group_bytes });
        }
        // A group that fits into a segment is always taken when nothing else waits.
        if self.pending_bytes > 0 && self.pending_bytes + bytes > self.limits.backlog_bytes {
            return Err(JournalError::Backlog { bytes: self.pending_bytes + bytes, limit: self.limits.backlog_bytes });
        }
        let joins = self.pending.back().is_some_and(|batch| batch.bytes() + bytes <= self.limits.batch_bytes);
        if !joins {
            if self.pending.is_empty() {
                self.pending_since = now;
            }
            let batch = match self.spare.take() {
                Some(spare) => spare.restart_at(self.next),
                None => Batch::starting_at(self.next),
            };
            self.pending.push_back(batch);
        }
        let batch = self.pending.back_mut().expect("a batch was there or was added");
        batch.push(stream, group);
        debug_assert!(batch.first() <= self.next);
        self.next = Lsn(self.next.0 + group.len() as u64);
        self.pending_bytes += bytes;
        let mut actions = Vec::new();
        self.advance(now, &mut actions);
        Ok((self.appended(), actions))
    }

    /// Takes in what happened and says what to do.
    pub(crate) fn step(&mut self, input: Input<R>, now: Duration) -> Vec<Action<R>> {
        let mut actions = Vec::new();
        match input {
            Input::Hold { lsn, reply } => self.hold(lsn, reply, now, &mut actions),
            Input::Failed(error) => self.die(error, &mut actions),
            Input::FenceSeen(theirs) => self.die(JournalError::Fenced { ours: self.epoch, theirs }, &mut actions),
            // After the end, results of what was still under way change nothing.
            _ if self.phase == Phase::Stopped => {}
            Input::Truncate(oldest) => {
                self.truncate = self.truncate.max(Some(oldest));
                self.advance(now, &mut actions);
            }
            Input::Close => {
                self.closing = true;
                self.advance(now, &mut actions);
            }
            Input::Tick => {
                self.wakes_at = None;
                self.advance(now, &mut actions);
            }
            Input::FenceClear => self.fence_clear(now, &mut actions),
            Input::WriteDone { batch, low } => {
                assert_eq!(self.phase, Phase::Writing, "a write ends while writing");
                self.spare = Some(batch);
                self.is_blocked = false;
                self.full = low.map(|error| (error, now + FULL_PAUSE));
                self.phase = Phase::Flushing;
                actions.push(Action::Flush);
            }
            Input::PutBegun { batch } => self.spare = Some(batch),
            Input::PutDone { last } => {
                let flight = self.flights.iter_mut().find(|flight| flight.last == last);
                flight.expect("a put ends that is under way").is_done = true;
                while let Some(Flight { last, .. }) = self.flights.pop_front_if(|flight| flight.is_done) {
                    self.durable = last;
                }
                self.release_durable(&mut actions);
                self.advance(now, &mut actions);
            }
            Input::FlushDone => {
                assert_eq!(self.phase, Phase::Flushing, "a flush ends while flushing");
                self.phase = Phase::Confirming;
                actions.push(Action::CheckFence);
            }
            Input::Reserved => {
                assert_eq!(self.phase, Phase::Reserving, "space is there when it was asked for");
                self.full = None;
                self.phase = Phase::Idle;
                self.advance(now, &mut actions);
            }
            Input::Full { error, batch } => self.wait_for_space(error, batch, now, &mut actions),
            Input::TruncateDone => {
                assert_eq!(self.phase, Phase::Truncating, "a truncation ends while truncating");
                self.phase = Phase::Idle;
                self.advance(now, &mut actions);
            }
        }
        actions
    }

    /// Whether appends and truncations are over, and why.
    pub(crate) fn refuse_if_over(&self) -> Result<(), JournalError> {
        match &self.dead {
            Some(error) => Err(error.clone()),
            None if self.closing => Err(JournalError::Closed),
            None => Ok(()),
        }
    }

    fn hold(&mut self, lsn: Lsn, reply: R, now: Duration, actions: &mut Vec<Action<R>>) {
        let outcome = match &self.dead {
            // A dead journal may be a fenced one: even what was durable long ago may be out of date by now.
            Some(error) => Err(error.clone()),
            None if lsn <= self.durable => Ok(()),
            None if self.phase == Phase::Stopped => Err(JournalError::Closed),
            None => {
                self.held_so_far += 1;
                self.held.insert((lsn, self.held_so_far), reply);
                return self.advance(now, actions);
            }
        };
        actions.push(Action::Release { replies: vec![reply], outcome });
    }

    fn fence_clear(&mut self, now: Duration, actions: &mut Vec<Action<R>>) {
        match self.phase {
            Phase::Admitting => {
                let batch = self.take_pending(now);
                assert_eq!(batch.first(), self.durable.next(), "batches are written in order, one at a time");
                self.in_flight = Some(batch.last());
                self.phase = Phase::Writing;
                actions.push(Action::Write { batch, durable: self.durable });
            }
            Phase::Confirming => {
                self.durable = self.in_flight.take().expect("a batch was flushed");
                self.release_durable(actions);
                self.phase = Phase::Idle;
                self.advance(now, actions);
            }
            Phase::Clearing => {
                let oldest = self.truncate.take().expect("the fence was asked for because of a truncation");
                self.truncating = oldest;
                self.phase = Phase::Truncating;
                actions.push(Action::Truncate { oldest, durable: self.durable });
            }
            other => unreachable!("the fence was not asked for while {other:?}"),
        }
    }

    fn take_pending(&mut self, now: Duration) -> Batch {
        let batch = self.pending.pop_front().expect("it is taken because a batch waits");
        self.pending_bytes -= batch.bytes();
        self.pending_since = now;
        batch
    }

    /// Lets those go that wait for what is durable by now.
    fn release_durable(&mut self, actions: &mut Vec<Action<R>>) {
        let still_held = self.held.split_off(&(self.durable.next(), 0));
        let released = std::mem::replace(&mut self.held, still_held);
        if !released.is_empty() {
            actions.push(Action::Release { replies: released.into_values().collect(), outcome: Ok(()) });
        }
    }

    /// Takes back what found no space.
    fn wait_for_space(
        &mut self,
        error: JournalError,
        batch: Option<Batch>,
        now: Duration,
        actions: &mut Vec<Action<R>>,
    ) {
        if self.phase == Phase::Truncating {
            self.truncate = self.truncate.max(Some(self.truncating));
        }
        if let Some(batch) = batch {
            if self.closing {
                return self.die(error, actions);
            }
            self.pending_bytes += batch.bytes();
            self.pending.push_front(batch);
            self.in_flight = None;
            self.is_blocked = true;
        }
        self.full = Some((error, now + FULL_PAUSE));
        self.phase = Phase::Idle;
        self.advance(now, actions);
    }

    /// Begins the next piece of work, if nothing is under way and something waits.
    fn advance(&mut self, now: Duration, actions: &mut Vec<Action<R>>) {
        if self.phase != Phase::Idle {
            return;
        }
        if let Some(puts) = self.limits.puts {
            return self.advance_puts(puts, now, actions);
        }
        let look_again = self.full.as_ref().map(|(_, at)| *at);
        let pause_ends = look_again.filter(|at| now < *at && !self.closing);
        let may_truncate = look_again.is_none() || !self.closing && pause_ends.is_none();
        if self.truncate.is_some() && may_truncate {
            self.phase = Phase::Clearing;
            actions.push(Action::CheckFence);
        } else if let Some(at) = pause_ends.filter(|_| self.is_blocked) {
            actions.push(Action::WakeAt(at));
        } else if !self.pending.is_empty() {
            if self.is_due(now, actions) {
                self.phase = Phase::Admitting;
                actions.push(Action::CheckFence);
            }
        } else if self.closing {
            self.stop(actions);
        } else if let Some(at) = pause_ends {
            actions.push(Action::WakeAt(at));
        } else if look_again.is_some() {
            self.phase = Phase::Reserving;
            actions.push(Action::Reserve);
        }
    }

    /// Begins as many puts as there may be, of an object store.
    fn advance_puts(&mut self, puts: usize, now: Duration, actions: &mut Vec<Action<R>>) {
        if let Some(oldest) = self.truncate {
            if self.flights.is_empty() {
                self.truncate = None;
                self.truncating = oldest;
                self.phase = Phase::Truncating;
                actions.push(Action::Truncate { oldest, durable: self.durable });
            }
            return;
        }
        while self.flights.len() < puts && !self.pending.is_empty() && self.is_due(now, actions) {
            let batch = self.take_pending(now);
            let behind = self.flights.len();
            self.flights.push_back(Flight { last: batch.last(), is_done: false });
            actions.push(Action::Put { batch, durable: self.durable, behind });
        }
        if self.closing && self.pending.is_empty() && self.flights.is_empty() {
            self.stop(actions);
        }
    }

    /// Whether the first batch that waits is to be written. If it waits for company, a tick is asked for.
    fn is_due(&mut self, now: Duration, actions: &mut Vec<Action<R>>) -> bool {
        let Some(batch) = self.pending.front() else { return false };
        let linger = if self.held.is_empty() { self.limits.patience } else { self.limits.linger };
        let due = self.pending_since + linger;
        let full = self.pending.len() > 1 || batch.bytes() >= self.limits.batch_bytes;
        if full || self.closing || now >= due {
            return true;
        }
        if self.wakes_at.is_none_or(|at| due < at) {
            self.wakes_at = Some(due);
            actions.push(Action::WakeAt(due));
        }
        false
    }

    /// Ends in order.
    fn stop(&mut self, actions: &mut Vec<Action<R>>) {
        self.phase = Phase::Stopped;
        self.release_all(Err(JournalError::Closed), actions);
        actions.push(Action::Stop(None));
    }

    fn die(&mut self, error: JournalError, actions: &mut Vec<Action<R>>) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.phase = Phase::Stopped;
        self.pending.clear();
        self.pending_bytes = 0;
        self.dead = Some(error.clone());
        self.release_all(Err(error.clone()), actions);
        actions.push(Action::Stop(Some(error)));
    }

    fn release_all(&mut self, outcome: Result<(), JournalError>, actions: &mut Vec<Action<R>>) {
        let replies: Vec<R> = std::mem::take(&mut self.held).into_values().collect();
        if !replies.is_empty() {
            actions.push(Action::Release { replies, outcome });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        group_bytes: 1000,
        batch_bytes: 500,
        backlog_bytes: 2000,
        linger: Duration::ZERO,
        patience: Duration::ZERO,
        puts: None,
    };
    const START: Duration = Duration::ZERO;

    fn core(limits: Limits) -> Core<u32> {
        Core::new(NodeEpoch(5), Lsn(10), limits)
    }

    fn append(core: &mut Core<u32>, size: usize, now: Duration) -> Vec<Action<u32>> {
        let payload = vec![0; size];
        let draft = Draft { shard: 0, kind: 0, payload: &payload };
        core.append(0, &[draft], now).expect("accepted").1
    }

    /// The only action's debug name.
    fn only(actions: Vec<Action<u32>>) -> Action<u32> {
        let [action] = <[_; 1]>::try_from(actions).expect("one action");
        action
    }

    /// Goes on until the batch is flushed, and returns what is to be done when the fence is clear then.
    fn flush(core: &mut Core<u32>) -> Vec<Action<u32>> {
        let Action::Write { batch, .. } = only(core.step(Input::FenceClear, START)) else {
            panic!("a write follows the fence check");
        };
        assert!(matches!(only(core.step(Input::WriteDone { batch, low: None }, START)), Action::Flush));
        assert!(matches!(only(core.step(Input::FlushDone, START)), Action::CheckFence));
        core.step(Input::FenceClear, START)
    }

    #[test]
    fn a_reply_is_released_after_the_second_fence_check_and_not_before() {
        let mut core = core(LIMITS);
        assert!(matches!(only(append(&mut core, 10, START)), Action::CheckFence));
        assert!(core.step(Input::Hold { lsn: Lsn(11), reply: 1 }, START).is_empty());
        assert!(core.step(Input::Hold { lsn: Lsn(12), reply: 2 }, START).is_empty());
        let Action::Release { replies, outcome } = only(flush(&mut core)) else {
            panic!("a release");
        };
        assert_eq!(replies, [1], "the other depends on what is not there yet");
        assert!(outcome.is_ok());
        assert_eq!(core.durable(), Lsn(11));
    }

    #[test]
    fn a_fence_seen_after_the_flush_tells_everybody_and_stops() {
        let mut core = core(LIMITS);
        append(&mut core, 10, START);
        core.step(Input::Hold { lsn: Lsn(11), reply: 1 }, START);
        let Action::Write { batch, .. } = only(core.step(Input::FenceClear, START)) else {
            panic!("a write");
        };
        core.step(Input::WriteDone { batch, low: None }, START);
        core.step(Input::FlushDone, START);
        let actions = core.step(Input::FenceSeen(NodeEpoch(6)), START);
        let [Action::Release { replies, outcome: Err(_) }, Action::Stop(Some(_))] = &actions[..] else {
            panic!("{actions:?}");
        };
        assert_eq!(replies, &[1]);
        assert_eq!(core.durable(), Lsn(10), "flushed, but not ours to tell");
        assert!(core.append(0, &[], START).is_err());
        assert!(core.step(Input::FenceClear, START).is_empty(), "nothing is taken up again");
        assert!(matches!(
            only(core.step(Input::Hold { lsn: Lsn(1), reply: 2 }, START)),
            Action::Release { outcome: Err(_), .. }
        ));
    }

    #[test]
    fn appends_during_a_flush_become_the_next_batch() {
        let mut core = core(LIMITS);
        append(&mut core, 10, START);
        let Action::Write { batch, .. } = only(core.step(Input::FenceClear, START)) else {
            panic!("a write");
        };
        for _ in 0..3 {
            assert!(append(&mut core, 10, START).is_empty());
        }
        core.step(Input::WriteDone { batch, low: None }, START);
        core.step(Input::FlushDone, START);
        assert!(matches!(only(core.step(Input::FenceClear, START)), Action::CheckFence));
        let Action::Write { batch, durable } = only(core.step(Input::FenceClear, START)) else {
            panic!("a write");
        };
        assert_eq!((batch.first(), batch.last(), batch.groups(), durable), (Lsn(12), Lsn(14), 3, Lsn(11)));
    }

    #[test]
    fn a_batch_that_nobody_waits_for_is_patient_and_asks_for_one_tick() {
        let patience = Duration::from_millis(50);
        let mut core = core(Limits { patience, ..LIMITS });
        assert!(matches!(only(append(&mut core, 10, START)), Action::WakeAt(at) if at == patience));
        assert!(append(&mut core, 10, START).is_empty());
        assert!(matches!(only(core.step(Input::Hold { lsn: Lsn(12), reply: 1 }, START)), Action::CheckFence));
    }

    #[test]
    fn a_batch_waits_for_company_until_it_is_full_or_due() {
        let linger = Duration::from_millis(20);
        let limits = Limits { linger, patience: linger, ..LIMITS };
        let mut due = core(limits);
        assert!(matches!(only(append(&mut due, 10, START)), Action::WakeAt(at) if at == linger));
        assert!(matches!(only(due.step(Input::Tick, linger)), Action::CheckFence));
        let mut full = core(limits);
        append(&mut full, 400, START);
        assert!(matches!(only(append(&mut full, 400, START)), Action::CheckFence));
        let mut closing = core(limits);
        append(&mut closing, 10, START);
        assert!(matches!(only(closing.step(Input::Close, START)), Action::CheckFence));
        assert!(matches!(flush(&mut closing)[..], [Action::Stop(None)]));
    }

    #[test]
    fn what_is_written_makes_room_for_more() {
        let mut core = core(LIMITS);
        for _ in 0..100 {
            append(&mut core, 400, START);
            flush(&mut core);
        }
        assert_eq!(core.backlog(), 0);
    }

    /// The batch of a put, by its last record, and how many are under way before it.
    fn put(action: Action<u32>) -> (Lsn, usize) {
        let Action::Put { batch, behind, .. } = action else { panic!("expected a put, came {action:?}") };
        (batch.last(), behind)
    }

    #[test]
    fn puts_are_told_in_their_order_whichever_ends_first() {
        let mut core = core(Limits { puts: Some(3), ..LIMITS });
        for behind in 0..3 {
            let lsn = Lsn(11 + behind as u64);
            assert!(core.step(Input::Hold { lsn, reply: behind as u32 }, START).is_empty());
            assert_eq!(put(only(append(&mut core, 10, START))), (lsn, behind));
        }
        for _ in 0..2 {
            assert!(append(&mut core, 10, START).is_empty(), "no more than three at once");
        }
        assert!(core.step(Input::PutDone { last: Lsn(12) }, START).is_empty(), "the one before may never be there");
        let actions = core.step(Input::PutDone { last: Lsn(11) }, START);
        let [Action::Release { replies, outcome: Ok(()) }, Action::Put { batch, durable: Lsn(12), behind: 1 }] =
            &actions[..]
        else {
            panic!("{actions:?}")
        };
        assert_eq!((&replies[..], batch.first(), batch.last()), (&[0, 1][..], Lsn(14), Lsn(15)));
        assert_eq!(core.durable(), Lsn(12));
        let actions = core.step(Input::FenceSeen(NodeEpoch(9)), START);
        assert!(
            matches!(&actions[..], [Action::Release { outcome: Err(_), .. }, Action::Stop(Some(_))]),
            "{actions:?}"
        );
        assert!(core.step(Input::PutDone { last: Lsn(13) }, START).is_empty(), "what is there is told nobody any more");
        assert_eq!(core.durable(), Lsn(12));
    }

    #[test]
    fn a_truncation_waits_for_puts_and_they_for_it() {
        let mut core = core(Limits { puts: Some(2), ..LIMITS });
        put(only(append(&mut core, 10, START)));
        assert!(core.step(Input::Truncate(Lsn(9)), START).is_empty());
        assert!(append(&mut core, 10, START).is_empty());
        let action = only(core.step(Input::PutDone { last: Lsn(11) }, START));
        assert!(matches!(action, Action::Truncate { oldest: Lsn(9), durable: Lsn(11) }), "{action:?}");
        assert_eq!(put(only(core.step(Input::TruncateDone, START))), (Lsn(12), 0));
        assert!(core.step(Input::Close, START).is_empty(), "one is under way");
        assert!(matches!(only(core.step(Input::PutDone { last: Lsn(12) }, START)), Action::Stop(None)));
    }

    #[test]
    fn a_truncation_asks_for_the_fence_first() {
        let mut core = core(LIMITS);
        assert!(matches!(only(core.step(Input::Truncate(Lsn(9)), START)), Action::CheckFence));
        let action = only(core.step(Input::FenceClear, START));
        assert!(matches!(action, Action::Truncate { oldest: Lsn(9), durable: Lsn(10) }), "{action:?}");
        assert!(append(&mut core, 10, START).is_empty(), "one thing at a time");
        assert!(matches!(only(core.step(Input::TruncateDone, START)), Action::CheckFence));
    }
}
