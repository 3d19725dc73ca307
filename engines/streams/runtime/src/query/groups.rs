//! Function groups in this process: members with an inbox each.
//!
//! Each member runs one invocation at a time. Whoever brings a payload to an idle member runs it, and then everything that
//! others put into its inbox meanwhile; whoever finds it busy leaves the payload there and goes on. So nobody waits, and
//! no member needs a thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use savanna_streams_api::Result;
use savanna_streams_api::ids::MemberId;
use savanna_streams_model::payload::Payload;

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
    stopped: AtomicBool,
}

struct Slot {
    inbox: Mutex<Inbox>,
    /// Locked by the thread that runs the member, and nobody else until the query is over; then there is none.
    member: Mutex<Option<Member>>,
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
        members: Vec<Vec<Member>>,
        invoker: Arc<dyn Invoker>,
        progress: Arc<Progress>,
        memory: Arc<Memory>,
        max_backoff: Duration,
        sleep: fn(Duration),
    ) -> Self {
        let slot = |member| Slot { inbox: Mutex::new(Inbox::default()), member: Mutex::new(Some(member)) };
        let slots = members.into_iter().map(|stage| stage.into_iter().map(slot).collect()).collect();
        Self { slots, invoker, progress, memory, max_backoff, sleep, stopped: AtomicBool::new(false) }
    }

    /// Invokes each receiver, trying again while the platform is busy.
    pub(crate) fn send(&self, outgoing: Vec<Outgoing>) -> Result<()> {
        for Outgoing { to, payload } in outgoing {
            let mut backoff: Option<Backoff> = None;
            loop {
                match self.invoker.invoke(self, &to, payload.clone()) {
                    Ok(()) => break,
                    Err(InvokeError::Failed(error)) => return Err(error),
                    Err(InvokeError::Busy(_)) if self.stopped.load(Ordering::Relaxed) => {
                        return Ok(());
                    }
                    Err(InvokeError::Busy(_)) => {
                        // Seeded by the sender, so that senders do not try again in step.
                        let seed = u64::from(payload.sequence) << 32 | payload.set.epoch.0;
                        let backoff = backoff.get_or_insert_with(|| Backoff::new(self.max_backoff, seed));
                        (self.sleep)(backoff.next_wait());
                    }
                }
            }
        }
        Ok(())
    }

    /// Senders give up waiting for a busy platform.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Ends all operators. No thread runs any more.
    pub(crate) fn finish(&self) -> Result<()> {
        self.slots.iter().flatten().try_for_each(|slot| slot.member.lock().as_mut().map_or(Ok(()), Member::finish))
    }

    /// Lets go of all state, and of the sinks: whoever reads from one sees its end.
    pub(crate) fn dissolve(&self) {
        for slot in self.slots.iter().flatten() {
            *slot.member.lock() = None;
            slot.inbox.lock().payloads.clear();
        }
    }

    fn execute(&self, slot: &Slot, to: &MemberId, payload: Payload) -> Result<Vec<Outgoing>> {
        let before = thread_cpu();
        let mut send = Vec::new();
        let mut slot_member = slot.member.lock();
        let Some(member) = slot_member.as_mut() else {
            return Ok(send);
        };
        let outcome = member.receive(payload, self.progress.committed_epoch(), &mut send)?;
        if outcome == Outcome::Ready {
            self.memory.hold(to.stage, usize::from(to.member), member.bytes())?;
        }
        drop(slot_member);
        self.progress.invoked(thread_cpu().saturating_sub(before));
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
