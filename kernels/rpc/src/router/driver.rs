//! The thin asynchronous driver of [`RouterCore`].

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use tokio::{
    sync::{Notify, oneshot},
    task::AbortHandle,
    time::Instant,
};

use super::{Route, RouterAction, RouterCore, RouterInput, RouterLimits};
use crate::{CallId, Delivery, Request, RpcError, ShardAt, Transport};

/// Who owns which shard, as the coordinator (or a copy of what it says) knows it.
#[async_trait]
pub trait Directory: Send + Sync {
    /// The owner of a shard.
    ///
    /// # Errors
    /// [`RpcError::Refused`] if there is no such shard (calls to it end with that); a retriable error if it has no owner
    /// at present or cannot be looked up (calls wait).
    async fn locate(&self, shard: &ShardId) -> Result<Route, RpcError>;
}

/// Of so many shards it is counted how often requests were sent again.
const REPEATED_SHARDS_MAX: usize = 64 * 1024;

/// Sends requests to the owners of shards.
pub struct Router {
    inner: Arc<Inner>,
    clock: tokio::task::JoinHandle<()>,
}

struct Inner {
    transport: Arc<dyn Transport>,
    directory: Arc<dyn Directory>,
    origin: Instant,
    state: Mutex<State>,
    wake_changed: Notify,
    repeats: AtomicU64,
}

struct State {
    core: RouterCore,
    next_call: u64,
    calls: HashMap<CallId, CallSlot>,
    /// How often requests to each shard were sent again, of those to which any were.
    repeats: HashMap<ShardId, u64>,
}

struct CallSlot {
    request: Request,
    caller: oneshot::Sender<Result<Bytes, RpcError>>,
    attempt: Option<AbortHandle>,
    reply: Option<Bytes>,
}

impl Router {
    /// A router; needs a tokio runtime.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, directory: Arc<dyn Directory>, limits: RouterLimits) -> Self {
        let state =
            State { core: RouterCore::new(limits), next_call: 1, calls: HashMap::new(), repeats: HashMap::new() };
        let inner = Arc::new(Inner {
            transport,
            directory,
            origin: Instant::now(),
            state: Mutex::new(state),
            wake_changed: Notify::new(),
            repeats: AtomicU64::new(0),
        });
        let clock = tokio::spawn(tick(Arc::downgrade(&inner)));
        Self { inner, clock }
    }

    /// Asks the owner of `shard`, wherever it is by then; fills in `request.head.shard`. `request.timeout` covers all
    /// attempts.
    ///
    /// # Errors
    /// The last attempt's error when it cannot be repeated; [`RpcError::TimedOut`] when the time is over;
    /// [`RpcError::Overloaded`] when too many wait already; [`RpcError::Refused`] when there is no such shard.
    pub async fn call(&self, shard: &ShardId, mut request: Request) -> Result<Bytes, RpcError> {
        request.head.shard = Some(ShardAt { shard: shard.clone(), epoch: OwnerEpoch::NONE });
        let (caller, answer) = oneshot::channel();
        let id = {
            let mut state = self.inner.state.lock();
            let id = CallId(state.next_call);
            state.next_call += 1;
            let input = RouterInput::Call {
                id,
                shard: shard.clone(),
                idempotent: request.head.idempotent,
                timeout: request.timeout,
            };
            state.calls.insert(id, CallSlot { request, caller, attempt: None, reply: None });
            self.inner.step(&mut state, input);
            id
        };
        let _cancel = CancelOnDrop { inner: &self.inner, id };
        answer.await.unwrap_or_else(|_dropped| {
            Err(RpcError::Unreachable {
                node: NodeId::new("unknown"),
                reason: "the router was shut down".to_owned(),
                delivery: Delivery::Unknown,
            })
        })
    }

    /// Tells the router what the directory knows by now of the shards that it has asked for. What is not newer than what it knows
    /// is no news.
    pub fn learn(&self, route_of: impl Fn(&ShardId) -> Option<Route>) {
        let mut state = self.inner.state.lock();
        let known = state.core.shards().filter_map(|shard| Some((shard.clone(), route_of(shard)?)));
        for (shard, route) in known.collect::<Vec<_>>() {
            self.inner.step(&mut state, RouterInput::Learned(shard, route));
        }
    }

    /// How often a request was sent again.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.inner.repeats.load(Ordering::Relaxed)
    }

    /// How often a request to a shard was sent again. It may begin anew where there are many shards.
    #[must_use]
    pub fn repeats_of(&self, shard: &ShardId) -> u64 {
        self.inner.state.lock().repeats.get(shard).copied().unwrap_or_default()
    }

    /// The route in the cache, for status pages and tests.
    #[must_use]
    pub fn cached_route(&self, shard: &ShardId) -> Option<Route> {
        self.inner.state.lock().core.route(shard).cloned()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.clock.abort();
    }
}

/// Cancels a call whose caller stopped waiting; a call that has ended is unknown to the core, which ignores it.
struct CancelOnDrop<'a> {
    inner: &'a Arc<Inner>,
    id: CallId,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        self.inner.step(&mut state, RouterInput::Cancel(self.id));
        state.calls.remove(&self.id);
    }
}

impl State {
    fn count_repeat(&mut self, id: CallId) {
        let Some(at) = self.calls.get(&id).and_then(|slot| slot.request.head.shard.as_ref()) else { return };
        if self.repeats.len() >= REPEATED_SHARDS_MAX && !self.repeats.contains_key(&at.shard) {
            self.repeats.clear();
        }
        *self.repeats.entry(at.shard.clone()).or_default() += 1;
    }
}

impl Inner {
    fn step(self: &Arc<Self>, state: &mut State, input: RouterInput) {
        let before = state.core.next_wake();
        for action in state.core.step(input, self.origin.elapsed()) {
            match action {
                RouterAction::Resolve(shard) => self.resolve(shard),
                RouterAction::Send { id, attempt, route, time_left } => {
                    if attempt > 1 {
                        self.repeats.fetch_add(1, Ordering::Relaxed);
                        state.count_repeat(id);
                    }
                    if let Some(slot) = state.calls.get_mut(&id) {
                        let attempt =
                            self.send(id, attempt, route, Request { timeout: time_left, ..slot.request.clone() });
                        slot.attempt = Some(attempt);
                    }
                }
                RouterAction::Abandon(id) => {
                    if let Some(attempt) = state.calls.get_mut(&id).and_then(|slot| slot.attempt.take()) {
                        attempt.abort();
                    }
                }
                RouterAction::Complete(id, result) => {
                    if let Some(slot) = state.calls.remove(&id) {
                        let result = result.map(|()| slot.reply.expect("a call that ended well has its reply"));
                        // A caller that went away in this moment needs no answer.
                        let _unwanted = slot.caller.send(result);
                    }
                }
            }
        }
        if state.core.next_wake() != before {
            self.wake_changed.notify_one();
        }
    }

    fn resolve(self: &Arc<Self>, shard: ShardId) {
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let result = inner.directory.locate(&shard).await;
            inner.step(&mut inner.state.lock(), RouterInput::Resolved(shard, result));
        });
    }

    fn send(self: &Arc<Self>, id: CallId, attempt: u32, route: Route, request: Request) -> AbortHandle {
        let inner = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut request = request;
            if let Some(at) = &mut request.head.shard {
                at.epoch = route.epoch;
            }
            let result = inner.transport.call(&route.node, request).await;
            let mut state = inner.state.lock();
            let result = result.map(|body| {
                if let Some(slot) = state.calls.get_mut(&id) {
                    slot.reply = Some(body);
                }
            });
            inner.step(&mut state, RouterInput::Ended { id, attempt, result });
        });
        task.abort_handle()
    }
}

/// Gives the core its ticks.
async fn tick(inner: Weak<Inner>) {
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let wake = inner.state.lock().core.next_wake();
        match wake {
            Some(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(inner.origin + at) => {}
                    () = inner.wake_changed.notified() => continue,
                }
            }
            None => {
                inner.wake_changed.notified().await;
                continue;
            }
        }
        inner.step(&mut inner.state.lock(), RouterInput::Tick);
    }
}
