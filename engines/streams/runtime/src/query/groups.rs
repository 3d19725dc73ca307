//! Function groups in this process: members with an inbox each.
//!
//! Each member runs one invocation at a time. Whoever brings a payload to an idle member runs it, and then everything that
//! others put into its inbox meanwhile; whoever finds it busy leaves the payload there and goes on. So nobody waits, and
//! no member needs a thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use savanna_streams_api::ids::MemberId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::payload::Payload;

use super::drivers::panicked;
use super::turns::STACK_BYTES;
use crate::cloud::remote::Remote;
use crate::cpu::thread_cpu;
use crate::error::broken;
use crate::invoker::{Backoff, Functions, InvokeError, Invoker};
use crate::member::{Member, Outcome, Outgoing};
use crate::query::{Memory, Progress};

/// All members of a query's stages.
pub(crate) struct FunctionGroups {
    /// By stage, then member.
    slots: Vec<Vec<Slot>>,
    invoker: Arc<dyn Invoker>,
    progress: Arc<Progress>,
    memory: Arc<Memory>,
    max_backoff: Duration,
    sleep: fn(Duration),
    /// Whether there are functions, so that whoever sends waits for answers.
    calls: bool,
    stopped: Arc<AtomicBool>,
}

struct Slot {
    inbox: Mutex<Inbox>,
    /// Locked by the thread that runs the member, and nobody else until the query is over; then there is none.
    seat: Mutex<Option<Seat>>,
}

/// Who sits where a payload goes.
pub(crate) enum Seat {
    /// A member.
    Here(Box<Member>),
    /// A function.
    There(Remote),
}

#[derive(Default)]
struct Inbox {
    payloads: VecDeque<Payload>,
    running: bool,
}

impl Inbox {
    /// The payload itself, to be run at once, if the member is idle; one that is busy finds it here later.
    fn enter(&mut self, payload: Payload) -> Option<Payload> {
        if std::mem::replace(&mut self.running, true) {
            self.payloads.push_back(payload);
            return None;
        }
        Some(payload)
    }

    /// What came meanwhile; the member is idle if nothing did.
    fn next(&mut self) -> Option<Payload> {
        let payload = self.payloads.pop_front();
        self.running = payload.is_some();
        payload
    }
}

impl fmt::Debug for FunctionGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionGroups").field("stages", &self.slots.len()).finish_non_exhaustive()
    }
}

impl FunctionGroups {
    pub(crate) fn new(
        seats: Vec<Vec<Seat>>,
        invoker: Arc<dyn Invoker>,
        progress: Arc<Progress>,
        memory: Arc<Memory>,
        max_backoff: Duration,
        sleep: fn(Duration),
        stopped: Arc<AtomicBool>,
    ) -> Self {
        let calls = seats.iter().flatten().any(|seat| matches!(seat, Seat::There(_)));
        let slot = |seat| Slot { inbox: Mutex::new(Inbox::default()), seat: Mutex::new(Some(seat)) };
        let slots = seats.into_iter().map(|stage| stage.into_iter().map(slot).collect()).collect();
        Self { slots, invoker, progress, memory, max_backoff, sleep, calls, stopped }
    }

    /// Invokes each receiver, trying again while the platform is busy.
    pub(crate) fn send(&self, outgoing: Vec<Outgoing>) -> Result<()> {
        if !self.calls || outgoing.len() < 2 {
            return outgoing.into_iter().try_for_each(|outgoing| self.send_one(&outgoing));
        }
        // The members of a group are functions, which are called at once.
        thread::scope(|scope| {
            let start = |outgoing: Outgoing| {
                let send = move || self.send_one(&outgoing);
                let thread = thread::Builder::new().name("query-calls".into()).stack_size(STACK_BYTES);
                thread
                    .spawn_scoped(scope, send)
                    .map_err(|e| StreamError::io("starting a thread that calls functions", &e))
            };
            let threads: Vec<_> = outgoing.into_iter().map(start).collect();
            let join = |thread: Result<ScopedJoinHandle<'_, Result<()>>>| {
                thread?.join().unwrap_or_else(|panic| Err(panicked("a thread of the query", panic.as_ref())))
            };
            threads.into_iter().map(join).fold(Ok(()), Result::and)
        })
    }

    fn send_one(&self, Outgoing { to, payload }: &Outgoing) -> Result<()> {
        let mut backoff: Option<Backoff> = None;
        loop {
            match self.invoker.invoke(self, to, payload.clone()) {
                Ok(()) => return Ok(()),
                Err(InvokeError::Failed(error)) => return Err(error),
                Err(InvokeError::Busy(_)) if self.stopped.load(Ordering::Relaxed) => return Ok(()),
                Err(InvokeError::Busy(_)) => {
                    // Seeded by the sender, so that senders do not try again in step.
                    let seed = u64::from(payload.sequence) << 32 | payload.set.epoch.0;
                    let backoff = backoff.get_or_insert_with(|| Backoff::new(self.max_backoff, seed));
                    (self.sleep)(backoff.next_wait());
                }
            }
        }
    }

    /// Senders give up waiting for a busy platform.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Ends all operators. No thread runs any more.
    pub(crate) fn finish(&self) -> Result<()> {
        self.slots.iter().flatten().try_for_each(|slot| match slot.seat.lock().as_mut() {
            Some(Seat::Here(member)) => member.finish(),
            Some(Seat::There(_)) | None => Ok(()),
        })
    }

    /// Lets go of all state, and of the sinks: whoever reads from one sees its end.
    pub(crate) fn dissolve(&self) {
        for slot in self.slots.iter().flatten() {
            *slot.seat.lock() = None;
            slot.inbox.lock().payloads.clear();
        }
    }

    fn execute(&self, slot: &Slot, to: &MemberId, payload: Payload) -> Result<Vec<Outgoing>> {
        let before = thread_cpu();
        let mut send = Vec::new();
        let mut seat = slot.seat.lock();
        let committed = self.progress.committed_epoch();
        let (outcome, bytes) = match seat.as_mut() {
            None => return Ok(send),
            Some(Seat::Here(member)) => {
                let outcome = member.receive(payload, committed, &mut send)?;
                self.progress.invoked(thread_cpu().saturating_sub(before));
                (outcome, Some(member.bytes()))
            }
            // A function says itself how long it took.
            Some(Seat::There(remote)) => (remote.receive(&payload, committed, &mut send)?, remote.bytes()),
        };
        if let (Outcome::Ready, Some(bytes)) = (outcome, bytes) {
            self.memory.hold(to.stage, usize::from(to.member), bytes)?;
        }
        Ok(send)
    }
}

impl Functions for FunctionGroups {
    fn run(&self, to: &MemberId, payload: Payload) -> Result<()> {
        let slot = self
            .slots
            .get(usize::from(to.stage.0))
            .and_then(|stage| stage.get(usize::from(to.member)))
            .ok_or_else(|| broken(format!("there is no function {to}")))?;
        let mut next = slot.inbox.lock().enter(payload);
        // An error or panic below leaves the member marked as running: nobody runs it again, and the query fails.
        while let Some(payload) = next {
            let send = self.execute(slot, to, payload)?;
            self.send(send)?;
            next = slot.inbox.lock().next();
        }
        Ok(())
    }
}
