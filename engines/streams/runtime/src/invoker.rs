//! How a payload reaches a member: at least once, in any order.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_streams_api::ids::MemberId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::payload::Payload;

/// Where functions run.
pub trait Functions: Send + Sync {
    /// Runs one invocation, or leaves it to the thread that runs the member already.
    ///
    /// # Errors
    /// The function failed; trying again would not help.
    fn run(&self, to: &MemberId, payload: Payload) -> Result<()>;
}

/// Why an invocation was not accepted.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvokeError {
    /// The platform is busy or unreachable; try again later.
    #[error("the function was not invoked: {0}")]
    Busy(String),
    /// The function failed for good.
    #[error(transparent)]
    Failed(#[from] StreamError),
}

/// Fires invocations. An accepted one is run at least once, sooner or later; losses are the driver's to repair.
pub trait Invoker: fmt::Debug + Send + Sync {
    /// Fires one invocation.
    ///
    /// # Errors
    /// [`InvokeError::Busy`] asks for another attempt, [`InvokeError::Failed`] ends the query.
    fn invoke(&self, functions: &dyn Functions, to: &MemberId, payload: Payload) -> Result<(), InvokeError>;
}

/// Runs the function on the calling thread; batches are handed over by reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcessInvoker;

impl Invoker for InProcessInvoker {
    fn invoke(&self, functions: &dyn Functions, to: &MemberId, payload: Payload) -> Result<(), InvokeError> {
        Ok(functions.run(to, payload)?)
    }
}

/// Truncated linear backoff (Flock, C9): `min(50 ms * f + up to 100 ms, max)`, with f from 1 upward and back to 1 once
/// 50 ms * f exceeds the maximum.
#[derive(Debug)]
pub struct Backoff {
    max: Duration,
    factor: u32,
    random: ChaCha8Rng,
}

impl Backoff {
    const STEP: Duration = Duration::from_millis(50);
    const JITTER_MS: u64 = 100;

    /// A backoff that waits at most `max`.
    pub fn new(max: Duration, seed: u64) -> Self {
        Self { max, factor: 1, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// How long to wait before the next attempt.
    pub fn next_wait(&mut self) -> Duration {
        let jitter = Duration::from_millis(self.random.random_range(0..=Self::JITTER_MS));
        let linear = Self::STEP * self.factor;
        self.factor = if linear > self.max { 1 } else { self.factor + 1 };
        (linear + jitter).min(self.max)
    }
}

/// How often a [`FaultyInvoker`] does what, in percent of invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Seed of all choices.
    pub seed: u64,
    /// Held back until some later invocation, out of order.
    pub delay: u8,
    /// Run twice, the second time possibly much later.
    pub duplicate: u8,
    /// Refused with [`InvokeError::Busy`].
    pub busy: u8,
    /// Accepted and never run.
    pub lose: u8,
}

impl FaultPlan {
    /// A bit of everything.
    pub const fn everything(seed: u64) -> Self {
        Self { seed, delay: 25, duplicate: 20, busy: 10, lose: 5 }
    }
}

/// Delays, reorders, duplicates, refuses and loses invocations by a seed. For tests; one query per invoker.
pub struct FaultyInvoker {
    plan: FaultPlan,
    state: Mutex<Faults>,
}

struct Faults {
    random: ChaCha8Rng,
    held: Vec<(MemberId, Payload)>,
}

impl fmt::Debug for FaultyInvoker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyInvoker").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl FaultyInvoker {
    /// At most so many invocations are held back at a time.
    const HELD_MAX: usize = 16;

    /// An invoker with these faults.
    pub fn new(plan: FaultPlan) -> Self {
        let random = ChaCha8Rng::seed_from_u64(plan.seed);
        Self { plan, state: Mutex::new(Faults { random, held: Vec::new() }) }
    }
}

impl Faults {
    /// What to run now, in this order.
    fn choose(
        &mut self,
        plan: &FaultPlan,
        to: &MemberId,
        payload: Payload,
    ) -> Result<Vec<(MemberId, Payload)>, InvokeError> {
        let mut hit = |percent: u8| self.random.random_range(0..100) < percent;
        let (busy, lose, duplicate, delay) = (hit(plan.busy), hit(plan.lose), hit(plan.duplicate), hit(plan.delay));
        if busy {
            return Err(InvokeError::Busy("an injected refusal".into()));
        }
        let mut now = Vec::new();
        if duplicate {
            self.held.push((to.clone(), payload.clone()));
        }
        if delay {
            self.held.push((to.clone(), payload));
        } else if !lose {
            now.push((to.clone(), payload));
        }
        while self.held.len() > FaultyInvoker::HELD_MAX
            || !self.held.is_empty() && self.random.random_range(0..100) < 30
        {
            let index = self.random.random_range(0..self.held.len());
            let place = self.random.random_range(0..=now.len());
            now.insert(place, self.held.swap_remove(index));
        }
        Ok(now)
    }
}

impl Invoker for FaultyInvoker {
    fn invoke(&self, functions: &dyn Functions, to: &MemberId, payload: Payload) -> Result<(), InvokeError> {
        let now = self.state.lock().choose(&self.plan, to, payload)?;
        for (to, payload) in now {
            functions.run(&to, payload)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_by_50_ms_is_cut_off_and_starts_again() {
        let max = Duration::from_millis(200);
        let mut backoff = Backoff::new(max, 7);
        let waits: Vec<u64> = (0..10).map(|_| backoff.next_wait().as_millis() as u64).collect();
        for (wait, linear) in waits.iter().zip([50, 100, 150, 200, 250, 50, 100, 150, 200, 250]) {
            assert!((linear.min(200)..=(linear + 100).min(200)).contains(wait), "{waits:?}");
        }
    }
}
