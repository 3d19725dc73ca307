//! Services and a transport on the simulated network, with an executor of one thread and virtual time.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use savanna_epoch::NodeId;
use tokio::sync::oneshot;

use super::{Endpoint, EndpointAction, EndpointInput, EndpointLimits, HandlerKey, NetFaults, SimNet};
use crate::{CallId, Delivery, Request, RpcError, Service, Transport};

/// Nothing is left to happen, or the time limit has passed, and the future is still waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the future still waits after {virtual_time:?} of virtual time: it waits for something outside the simulation")]
pub struct Stalled {
    /// Virtual time when it was given up.
    pub virtual_time: Duration,
}

/// Nodes on a simulated network. Clones share it.
#[derive(Clone)]
pub struct SimCluster {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    net: SimNet<Endpoint>,
    limits: EndpointLimits,
    services: BTreeMap<NodeId, Arc<dyn Service>>,
    callers: BTreeMap<CallId, (NodeId, oneshot::Sender<Result<Bytes, RpcError>>)>,
    next_call: u64,
    handlers: BTreeMap<(NodeId, HandlerKey), Handler>,
    sleepers: BTreeMap<(Duration, u64), Waker>,
    next_sleeper: u64,
}

struct Handler {
    /// Taken out while it is polled.
    future: Option<BoxFuture<'static, Result<Bytes, RpcError>>>,
    woken: Arc<Flag>,
}

/// A waker that only remembers.
struct Flag(AtomicBool);

impl Flag {
    fn raised() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SimCluster {
    /// A network without nodes.
    #[must_use]
    pub fn new(seed: u64, faults: NetFaults, limits: EndpointLimits) -> Self {
        let inner = Inner {
            net: SimNet::new(seed, faults, 0),
            limits,
            services: BTreeMap::new(),
            callers: BTreeMap::new(),
            next_call: 1,
            handlers: BTreeMap::new(),
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Starts a node, new or after a crash, that answers with `service`.
    pub fn start(&self, node: NodeId, service: Arc<dyn Service>) {
        let mut inner = self.inner.lock();
        let incarnation = inner.net.incarnation(&node) + 1;
        let endpoint = Endpoint::new(incarnation, inner.limits);
        inner.services.insert(node.clone(), service);
        inner.net.start(node, endpoint);
    }

    /// Ends a node: its handlers are dropped and its own calls end as unreachable.
    pub fn crash(&self, node: &NodeId) {
        let mut inner = self.inner.lock();
        inner.net.crash(node);
        inner.services.remove(node);
        inner.handlers.retain(|(at, _), _| at != node);
        let lost: Vec<CallId> = inner.callers.iter().filter(|(_, (from, _))| from == node).map(|(id, _)| *id).collect();
        for id in lost {
            inner.complete(id, Err(crashed(node, Delivery::Unknown)));
        }
    }

    /// The network, to inject faults and to read the trace.
    pub fn with_net<R>(&self, act: impl FnOnce(&mut SimNet<Endpoint>) -> R) -> R {
        act(&mut self.inner.lock().net)
    }

    /// How `from` reaches the others.
    #[must_use]
    pub fn transport(&self, from: NodeId) -> SimTransport {
        SimTransport { cluster: self.clone(), from }
    }

    /// Waits in virtual time.
    pub async fn sleep(&self, time: Duration) {
        let until = self.inner.lock().net.now() + time;
        let mut registered = false;
        std::future::poll_fn(|context| {
            let mut inner = self.inner.lock();
            if inner.net.now() >= until {
                return Poll::Ready(());
            }
            if !registered {
                registered = true;
                let number = inner.next_sleeper;
                inner.next_sleeper += 1;
                inner.sleepers.insert((until, number), context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Runs the simulation until `future` is done, at most for `limit` of virtual time.
    ///
    /// # Errors
    /// [`Stalled`] when it waits for something that does not happen.
    pub fn block_on<T>(&self, future: impl Future<Output = T>, limit: Duration) -> Result<T, Stalled> {
        let mut future = pin!(future);
        let woken = Flag::raised();
        let waker = Waker::from(Arc::clone(&woken));
        let end = self.inner.lock().net.now() + limit;
        loop {
            while woken.take() {
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Ok(output);
                }
            }
            if self.poll_handlers() {
                continue;
            }
            let mut inner = self.inner.lock();
            if !inner.next_happening(end) {
                return Err(Stalled { virtual_time: inner.net.now() });
            }
        }
    }

    /// Polls the handlers that were woken; whether there were any.
    fn poll_handlers(&self) -> bool {
        let woken: Vec<(NodeId, HandlerKey)> = {
            let inner = self.inner.lock();
            inner.handlers.iter().filter(|(_, handler)| handler.woken.take()).map(|(key, _)| key.clone()).collect()
        };
        for key in &woken {
            // Polled without the lock: the handler may call, sleep, and inject faults.
            let Some((mut future, flag)) = self
                .inner
                .lock()
                .handlers
                .get_mut(key)
                .and_then(|handler| Some((handler.future.take()?, Arc::clone(&handler.woken))))
            else {
                continue;
            };
            let waker = Waker::from(flag);
            let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
            let mut inner = self.inner.lock();
            match polled {
                Poll::Pending => {
                    if let Some(handler) = inner.handlers.get_mut(key) {
                        handler.future = Some(future);
                    }
                }
                Poll::Ready(result) => {
                    if inner.handlers.remove(key).is_some() {
                        let input = EndpointInput::Handled(key.1.clone(), result);
                        inner.endpoint_step(&key.0, input);
                    }
                }
            }
        }
        !woken.is_empty()
    }
}

impl Inner {
    /// Lets the next event or sleeper happen, whichever is first; false if there is none before `end`.
    fn next_happening(&mut self, end: Duration) -> bool {
        let event = self.net.next_event_at();
        let sleeper = self.sleepers.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = [event, sleeper].into_iter().flatten().min() else {
            return false;
        };
        if next > end {
            return false;
        }
        if sleeper == Some(next)
            && let Some((_, waker)) = self.sleepers.pop_first()
        {
            self.net.advance_to(next);
            waker.wake();
        } else if let Some(effects) = self.net.step() {
            for (node, effect) in effects {
                self.take_effect(&node, effect);
            }
        }
        true
    }

    fn endpoint_step(&mut self, node: &NodeId, input: EndpointInput) -> bool {
        let stepped = self.net.with_node(node, |endpoint, now| {
            let actions = Endpoint::step(endpoint, input, now);
            ((), endpoint.in_network_terms(actions))
        });
        let Some(((), effects)) = stepped else {
            return false;
        };
        for effect in effects {
            self.take_effect(node, effect);
        }
        true
    }

    fn take_effect(&mut self, node: &NodeId, effect: EndpointAction) {
        match effect {
            EndpointAction::Start(key, context, body) => {
                let Some(service) = self.services.get(node).map(Arc::clone) else {
                    return;
                };
                let method = context.head.method.clone();
                let handler = async move {
                    let handled = std::panic::AssertUnwindSafe(service.handle(context, body)).catch_unwind().await;
                    handled.unwrap_or(Err(RpcError::Failed { method }))
                };
                let handler = Handler { future: Some(handler.boxed()), woken: Flag::raised() };
                self.handlers.insert((node.clone(), key), handler);
            }
            EndpointAction::Abort(key) => {
                self.handlers.remove(&(node.clone(), key));
            }
            EndpointAction::Complete(id, result) => self.complete(id, result),
            EndpointAction::Send(..) => unreachable!("packets are sent by the network"),
        }
    }

    fn complete(&mut self, id: CallId, result: Result<Bytes, RpcError>) {
        if let Some((_, caller)) = self.callers.remove(&id) {
            // A caller that went away in this moment needs no answer.
            let _unwanted = caller.send(result);
        }
    }
}

fn crashed(node: &NodeId, delivery: Delivery) -> RpcError {
    RpcError::Unreachable { node: node.clone(), reason: "the asking node itself is down".to_owned(), delivery }
}

/// One node's way to the others in a [`SimCluster`].
pub struct SimTransport {
    cluster: SimCluster,
    from: NodeId,
}

#[async_trait]
impl Transport for SimTransport {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        let (caller, answer) = oneshot::channel();
        let limit = request.timeout;
        let id = {
            let mut inner = self.cluster.inner.lock();
            let size = crate::tcp::FRAME_BYTES_MAX_DEFAULT;
            if request.body.len() > size {
                let reason = format!(
                    "a request of {} bytes exceeds the limit of {size} bytes: send less at once",
                    request.body.len()
                );
                return Err(RpcError::Malformed { reason });
            }
            let id = CallId(inner.next_call);
            inner.next_call += 1;
            inner.callers.insert(id, (self.from.clone(), caller));
            if !inner.endpoint_step(&self.from, EndpointInput::Call(id, to.clone(), request)) {
                inner.complete(id, Err(crashed(&self.from, Delivery::NotStarted)));
            }
            id
        };
        let _cancel = CancelOnDrop { transport: self, id };
        match answer.await {
            Ok(Err(RpcError::TimedOut { .. })) => Err(RpcError::TimedOut { limit }),
            Ok(result) => result,
            Err(_dropped) => Err(crashed(&self.from, Delivery::Unknown)),
        }
    }
}

/// Cancels a call whose caller stopped waiting; one that has ended is not in the table any more.
struct CancelOnDrop<'a> {
    transport: &'a SimTransport,
    id: CallId,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let mut inner = self.transport.cluster.inner.lock();
        if inner.callers.remove(&self.id).is_some() {
            inner.endpoint_step(&self.transport.from, EndpointInput::Cancel(self.id));
        }
    }
}
