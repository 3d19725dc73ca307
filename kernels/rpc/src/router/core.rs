//! The router's decisions, pure.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use serde::{Deserialize, Serialize};

use crate::{CallId, RpcError};

/// Who owns a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The owner.
    pub node: NodeId,
    /// Under which epoch. A route is only ever replaced by one of a higher epoch.
    pub epoch: OwnerEpoch,
}

/// Bounds and pauses of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterLimits {
    /// Requests under way at all shards.
    pub calls_max: usize,
    /// Requests that wait at one shard while it is frozen or its owner unknown.
    pub parked_max: usize,
    /// How often one request follows `Moved`.
    pub hops_max: u32,
    /// Shards whose routes are remembered.
    pub shards_max: usize,
    /// Pause before the first repetition and the first second look at the directory.
    pub backoff_min: Duration,
    /// Longest pause; also the longest `retry_after` that is believed.
    pub backoff_max: Duration,
}

impl Default for RouterLimits {
    fn default() -> Self {
        Self {
            calls_max: 16 * 1024,
            parked_max: 1024,
            hops_max: 8,
            shards_max: 64 * 1024,
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
        }
    }
}

/// What happens to a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterInput {
    /// Somebody asks a shard. The id is new.
    Call {
        /// The driver's number for it.
        id: CallId,
        /// The shard.
        shard: ShardId,
        /// Whether the method may be repeated when its fate is unknown.
        idempotent: bool,
        /// How long the caller waits.
        timeout: Duration,
    },
    /// The caller went away.
    Cancel(CallId),
    /// The directory answered for a shard.
    Resolved(ShardId, Result<Route, RpcError>),
    /// The directory has news of a shard. Under a higher epoch, attempts under way at the former owner are given up if they may be
    /// repeated; of the others, only that owner can say what became of them.
    Learned(ShardId, Route),
    /// The attempt under way for a call came to its end. Ends of earlier attempts are ignored.
    Ended {
        /// The call.
        id: CallId,
        /// The attempt's number, from [`RouterAction::Send`].
        attempt: u32,
        /// How it ended; the driver keeps the reply's bytes.
        result: Result<(), RpcError>,
    },
    /// Time has passed; due at [`RouterCore::next_wake`].
    Tick,
}

/// What the driver has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouterAction {
    /// Ask the directory who owns the shard and report with [`RouterInput::Resolved`].
    Resolve(ShardId),
    /// Send the call's request and report with [`RouterInput::Ended`].
    Send {
        /// The call.
        id: CallId,
        /// The number of this attempt.
        attempt: u32,
        /// Where to, and the epoch to say.
        route: Route,
        /// How long the caller still waits.
        time_left: Duration,
    },
    /// Drop the attempt under way.
    Abandon(CallId),
    /// The call has ended: with the reply of the attempt that just ended well, or with an error. Given exactly once for
    /// each call that was not cancelled.
    Complete(CallId, Result<(), RpcError>),
}

/// Requests on their way to the owners of shards.
#[derive(Debug)]
pub struct RouterCore {
    limits: RouterLimits,
    calls: BTreeMap<CallId, Call>,
    shards: BTreeMap<ShardId, Shard>,
    /// Deadlines of all calls.
    deadlines: BTreeSet<(Duration, CallId)>,
    /// Pauses of calls and of shards.
    wakes: BTreeSet<(Duration, Wake)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    Call(CallId),
    Shard(ShardId),
}

#[derive(Debug)]
struct Call {
    shard: ShardId,
    idempotent: bool,
    limit: Duration,
    deadline: Duration,
    attempt: u32,
    hops: u32,
    state: CallState,
}

#[derive(Debug, PartialEq, Eq)]
enum CallState {
    /// In its shard's queue.
    Parked,
    /// Waiting for its own pause to end.
    Pausing { until: Duration },
    /// Sent, with the epoch it was sent under.
    Sent { epoch: OwnerEpoch },
}

#[derive(Debug, Default)]
struct Shard {
    route: Option<Route>,
    /// The highest epoch heard of; nothing below it is believed.
    floor: OwnerEpoch,
    parked: VecDeque<CallId>,
    /// Calls at this shard in any state.
    calls: usize,
    frozen_until: Option<Duration>,
    lookup: Lookup,
    lookups_failed: u32,
    used_at: Duration,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Lookup {
    #[default]
    Idle,
    Asked,
    Pausing {
        until: Duration,
    },
}

impl RouterCore {
    /// A router that knows no route.
    #[must_use]
    pub fn new(limits: RouterLimits) -> Self {
        Self {
            limits,
            calls: BTreeMap::new(),
            shards: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            wakes: BTreeSet::new(),
        }
    }

    /// The route in the cache.
    #[must_use]
    pub fn route(&self, shard: &ShardId) -> Option<&Route> {
        self.shards.get(shard)?.route.as_ref()
    }

    /// The shards of which something is known, or wanted.
    pub fn shards(&self) -> impl Iterator<Item = &ShardId> {
        self.shards.keys()
    }

    /// Calls under way.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// When [`RouterInput::Tick`] is due, if ever.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let wake = self.wakes.first().map(|(at, _)| *at);
        [deadline, wake].into_iter().flatten().min()
    }

    /// Takes one input.
    pub fn step(&mut self, input: RouterInput, now: Duration) -> Vec<RouterAction> {
        let mut actions = Vec::new();
        match input {
            RouterInput::Call { id, shard, idempotent, timeout } => {
                self.call(id, shard, idempotent, timeout, now, &mut actions);
            }
            RouterInput::Cancel(id) => self.remove(id, &mut actions),
            RouterInput::Resolved(shard, result) => self.resolved(&shard, result, now, &mut actions),
            RouterInput::Learned(shard, route) => self.learned(&shard, route, now, &mut actions),
            RouterInput::Ended { id, attempt, result } => self.ended(id, attempt, result, now, &mut actions),
            RouterInput::Tick => self.tick(now, &mut actions),
        }
        debug_assert!(self.calls.len() == self.deadlines.len() && self.calls.len() <= self.limits.calls_max);
        actions
    }

    fn call(
        &mut self,
        id: CallId,
        shard: ShardId,
        idempotent: bool,
        timeout: Duration,
        now: Duration,
        actions: &mut Vec<RouterAction>,
    ) {
        if self.calls.len() >= self.limits.calls_max {
            let error = RpcError::Overloaded {
                what: "the router's set of calls".to_owned(),
                limit: self.limits.calls_max as u64,
            };
            actions.push(RouterAction::Complete(id, Err(error)));
            return;
        }
        self.forget_unused_shards();
        let deadline = now.saturating_add(timeout);
        self.deadlines.insert((deadline, id));
        self.shards.entry(shard.clone()).or_default().calls += 1;
        let state = CallState::Parked;
        self.calls.insert(id, Call { shard, idempotent, limit: timeout, deadline, attempt: 0, hops: 0, state });
        self.dispatch(id, now, actions);
    }

    /// Sends a call that waits, or parks it until its shard can be asked.
    fn dispatch(&mut self, id: CallId, now: Duration, actions: &mut Vec<RouterAction>) {
        let call = self.calls.get_mut(&id).expect("only calls under way are dispatched");
        let shard = self.shards.get_mut(&call.shard).expect("a call's shard is remembered");
        shard.used_at = now;
        match &shard.route {
            Some(route) if shard.frozen_until.is_none() => {
                call.attempt += 1;
                call.state = CallState::Sent { epoch: route.epoch };
                actions.push(RouterAction::Send {
                    id,
                    attempt: call.attempt,
                    route: route.clone(),
                    time_left: call.deadline.saturating_sub(now),
                });
            }
            _ if shard.parked.len() >= self.limits.parked_max => {
                let error = RpcError::Overloaded {
                    what: format!(
                        "the queue of requests to shard {}, which is moving or without a known owner,",
                        call.shard
                    ),
                    limit: self.limits.parked_max as u64,
                };
                self.complete(id, Err(error), actions);
            }
            route => {
                let unknown = route.is_none();
                call.state = CallState::Parked;
                shard.parked.push_back(id);
                if unknown && shard.lookup == Lookup::Idle {
                    shard.lookup = Lookup::Asked;
                    actions.push(RouterAction::Resolve(call.shard.clone()));
                }
            }
        }
    }

    fn ended(
        &mut self,
        id: CallId,
        attempt: u32,
        result: Result<(), RpcError>,
        now: Duration,
        actions: &mut Vec<RouterAction>,
    ) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let CallState::Sent { epoch: sent_under } = call.state else {
            return;
        };
        if call.attempt != attempt {
            return;
        }
        let error = match result {
            Ok(()) => return self.complete(id, Ok(()), actions),
            Err(error) if !error.may_repeat(call.idempotent) => {
                return self.complete(id, Err(error), actions);
            }
            Err(error) => error,
        };
        let shard = self.shards.get_mut(&call.shard).expect("a call's shard is remembered");
        match error {
            RpcError::Moved { to, epoch } => {
                call.hops += 1;
                if call.hops > self.limits.hops_max {
                    return self.complete(id, Err(RpcError::Moved { to, epoch }), actions);
                }
                let shard_id = call.shard.clone();
                if epoch > shard.floor {
                    self.learn(&shard_id, Route { node: to, epoch }, now, actions);
                    self.dispatch(id, now, actions);
                } else if shard.route.as_ref().is_some_and(|route| route.epoch > sent_under) {
                    // Another call's answer was newer than the route this one went by.
                    self.dispatch(id, now, actions);
                } else {
                    // Two nodes point at each other, or this one lags behind: only the directory can tell.
                    shard.route = None;
                    self.pause(id, now);
                }
            }
            RpcError::Frozen { retry_after } => {
                let pause = retry_after.clamp(self.limits.backoff_min, self.limits.backoff_max);
                let until = now.saturating_add(pause);
                if shard.frozen_until.is_none_or(|known| known < until) {
                    if let Some(known) = shard.frozen_until.replace(until) {
                        self.wakes.remove(&(known, Wake::Shard(call.shard.clone())));
                    }
                    self.wakes.insert((until, Wake::Shard(call.shard.clone())));
                }
                self.dispatch(id, now, actions);
            }
            RpcError::Unreachable { .. } | RpcError::TimedOut { .. } => {
                // The owner may be gone and the shard elsewhere.
                if shard.route.as_ref().is_some_and(|route| route.epoch == sent_under) {
                    shard.route = None;
                }
                self.pause(id, now);
            }
            _ => self.pause(id, now),
        }
    }

    fn pause(&mut self, id: CallId, now: Duration) {
        let call = self.calls.get_mut(&id).expect("only calls under way pause");
        let until = now.saturating_add(self.limits.pause(call.attempt, id.0));
        call.state = CallState::Pausing { until };
        self.wakes.insert((until, Wake::Call(id)));
    }

    fn resolved(
        &mut self,
        id: &ShardId,
        result: Result<Route, RpcError>,
        now: Duration,
        actions: &mut Vec<RouterAction>,
    ) {
        let Some(shard) = self.shards.get_mut(id) else {
            return;
        };
        if shard.lookup != Lookup::Asked {
            return;
        }
        shard.lookup = Lookup::Idle;
        match result {
            Ok(route) if route.epoch >= shard.floor => {
                shard.lookups_failed = 0;
                self.learn(id, route, now, actions);
            }
            Err(error) if !error.is_retriable() => {
                for call in std::mem::take(&mut shard.parked) {
                    self.complete(call, Err(error.clone()), actions);
                }
            }
            // No answer, or one older than what is known already: a second look later.
            Ok(_) | Err(_) if shard.parked.is_empty() => {}
            Ok(_) | Err(_) => {
                shard.lookups_failed = shard.lookups_failed.saturating_add(1);
                let until = now.saturating_add(self.limits.pause(shard.lookups_failed, 0));
                shard.lookup = Lookup::Pausing { until };
                self.wakes.insert((until, Wake::Shard(id.clone())));
            }
        }
    }

    fn learned(&mut self, id: &ShardId, route: Route, now: Duration, actions: &mut Vec<RouterAction>) {
        if self.shards.get(id).is_none_or(|shard| route.epoch <= shard.floor) {
            return;
        }
        self.learn(id, route, now, actions);
        let is_overtaken = |call: &Call| match call.state {
            CallState::Sent { epoch } => call.idempotent && epoch < self.shards[id].floor,
            CallState::Pausing { .. } => true,
            CallState::Parked => false,
        };
        let overtaken = self.calls.iter().filter(|(_, call)| call.shard == *id && is_overtaken(call));
        for call in overtaken.map(|(call, _)| *call).collect::<Vec<_>>() {
            match self.calls[&call].state {
                CallState::Pausing { until } => drop(self.wakes.remove(&(until, Wake::Call(call)))),
                _ => actions.push(RouterAction::Abandon(call)),
            }
            self.dispatch(call, now, actions);
        }
    }

    /// Takes a route of at least the epoch known so far and sends what waited for it.
    fn learn(&mut self, id: &ShardId, route: Route, now: Duration, actions: &mut Vec<RouterAction>) {
        let shard = self.shards.get_mut(id).expect("the caller has it in hand");
        debug_assert!(route.epoch >= shard.floor, "routes only go forward");
        if route.epoch > shard.floor
            && let Some(until) = shard.frozen_until.take()
        {
            // It was frozen at its former owner.
            self.wakes.remove(&(until, Wake::Shard(id.clone())));
        }
        shard.floor = route.epoch;
        shard.route = Some(route);
        self.unpark(id, now, actions);
    }

    fn unpark(&mut self, id: &ShardId, now: Duration, actions: &mut Vec<RouterAction>) {
        let Some(shard) = self.shards.get_mut(id) else {
            return;
        };
        for call in std::mem::take(&mut shard.parked) {
            self.dispatch(call, now, actions);
        }
    }

    fn tick(&mut self, now: Duration, actions: &mut Vec<RouterAction>) {
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            let call = &self.calls[&id];
            let limit = call.limit;
            if matches!(call.state, CallState::Sent { .. }) {
                actions.push(RouterAction::Abandon(id));
            }
            self.complete(id, Err(RpcError::TimedOut { limit }), actions);
        }
        while let Some((at, _)) = self.wakes.first()
            && *at <= now
            && let Some((_, wake)) = self.wakes.pop_first()
        {
            match wake {
                Wake::Call(id) => self.dispatch(id, now, actions),
                Wake::Shard(id) => self.wake_shard(&id, now, actions),
            }
        }
    }

    fn wake_shard(&mut self, id: &ShardId, now: Duration, actions: &mut Vec<RouterAction>) {
        let Some(shard) = self.shards.get_mut(id) else {
            return;
        };
        if shard.frozen_until.is_some_and(|until| until <= now) {
            shard.frozen_until = None;
        }
        if matches!(shard.lookup, Lookup::Pausing { until } if until <= now) {
            shard.lookup = Lookup::Idle;
        }
        self.unpark(id, now, actions);
    }

    fn remove(&mut self, id: CallId, actions: &mut Vec<RouterAction>) {
        let sent = self.calls.get(&id).is_some_and(|call| matches!(call.state, CallState::Sent { .. }));
        if self.forget(id) && sent {
            actions.push(RouterAction::Abandon(id));
        }
    }

    fn complete(&mut self, id: CallId, result: Result<(), RpcError>, actions: &mut Vec<RouterAction>) {
        if self.forget(id) {
            actions.push(RouterAction::Complete(id, result));
        }
    }

    fn forget(&mut self, id: CallId) -> bool {
        let Some(call) = self.calls.remove(&id) else {
            return false;
        };
        self.deadlines.remove(&(call.deadline, id));
        if let CallState::Pausing { until } = call.state {
            self.wakes.remove(&(until, Wake::Call(id)));
        }
        let shard = self.shards.get_mut(&call.shard).expect("a call's shard is remembered");
        shard.calls -= 1;
        if call.state == CallState::Parked {
            shard.parked.retain(|parked| *parked != id);
        }
        true
    }

    /// Makes room in the cache: an eighth of it, the longest unused first, never a shard with calls.
    fn forget_unused_shards(&mut self) {
        if self.shards.len() < self.limits.shards_max {
            return;
        }
        let mut unused: Vec<(Duration, ShardId)> = self
            .shards
            .iter()
            .filter(|(_, shard)| shard.calls == 0)
            .map(|(id, shard)| (shard.used_at, id.clone()))
            .collect();
        unused.sort();
        unused.truncate((self.limits.shards_max / 8).max(1));
        for (_, id) in unused {
            self.shards.remove(&id);
        }
        let shards = &self.shards;
        self.wakes.retain(|(_, wake)| {
            matches!(wake, Wake::Call(_)) || matches!(wake, Wake::Shard(id) if shards.contains_key(id))
        });
    }
}

impl RouterLimits {
    /// The pause after the `attempt`-th failure: doubling, bounded, and spread by `salt` so that calls which failed
    /// together do not come back together.
    fn pause(&self, attempt: u32, salt: u64) -> Duration {
        let doubled = self.backoff_min.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
        let full = doubled.min(self.backoff_max);
        // Fibonacci hashing: the top bits of the product are spread evenly over consecutive salts.
        let spread = (salt ^ u64::from(attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        full / 2 + (full / 2).mul_f64(spread as f64 / 255.0)
    }
}
