//! Nodes in one process: a call is a task, its bytes are handed over by reference, and it fails in the same ways as over
//! a network.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use parking_lot::RwLock;
use savanna_epoch::NodeId;
use tokio::sync::{Semaphore, watch};

use crate::{Delivery, Request, RequestContext, RpcError, Service, Transport};

/// Bounds of the nodes in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InProcessLimits {
    /// Handlers that run at one node.
    pub handlers_max: usize,
    /// Largest request or reply in bytes, as a network would have it.
    pub body_bytes_max: usize,
}

impl Default for InProcessLimits {
    fn default() -> Self {
        Self { handlers_max: 1024, body_bytes_max: crate::tcp::FRAME_BYTES_MAX_DEFAULT }
    }
}

/// The nodes of one process.
#[derive(Clone)]
pub struct InProcessNet {
    inner: Arc<Inner>,
}

struct Inner {
    limits: InProcessLimits,
    nodes: RwLock<BTreeMap<NodeId, Endpoint>>,
}

#[derive(Clone)]
struct Endpoint {
    service: Arc<dyn Service>,
    room: Arc<Semaphore>,
    /// Its sender is dropped when the node stops.
    stopped: watch::Receiver<()>,
}

impl InProcessNet {
    /// A process without nodes.
    #[must_use]
    pub fn new(limits: InProcessLimits) -> Self {
        Self { inner: Arc::new(Inner { limits, nodes: RwLock::default() }) }
    }

    /// Lets `node` answer with `service` until the guard is dropped. A node that was there before is replaced.
    #[must_use]
    pub fn serve(&self, node: NodeId, service: Arc<dyn Service>) -> Served {
        let room = Arc::new(Semaphore::new(self.inner.limits.handlers_max));
        let (stop, stopped) = watch::channel(());
        let endpoint = Endpoint { service, room: Arc::clone(&room), stopped };
        self.inner.nodes.write().insert(node.clone(), endpoint);
        Served { net: Arc::downgrade(&self.inner), node, room, _stop: stop }
    }

    /// How `from` reaches the others.
    #[must_use]
    pub fn transport(&self, from: NodeId) -> InProcessTransport {
        InProcessTransport { net: self.clone(), from }
    }
}

/// A node that answers. When this is dropped it stops, and its running handlers are dropped.
pub struct Served {
    net: Weak<Inner>,
    node: NodeId,
    room: Arc<Semaphore>,
    _stop: watch::Sender<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(net) = self.net.upgrade() {
            let mut nodes = net.nodes.write();
            if nodes.get(&self.node).is_some_and(|endpoint| Arc::ptr_eq(&endpoint.room, &self.room)) {
                nodes.remove(&self.node);
            }
        }
    }
}

/// One node's way to the others in its process.
pub struct InProcessTransport {
    net: InProcessNet,
    from: NodeId,
}

impl InProcessTransport {
    fn check_size(&self, what: &str, body: &Bytes) -> Result<(), RpcError> {
        let limit = self.net.inner.limits.body_bytes_max;
        if body.len() <= limit {
            return Ok(());
        }
        let bytes = body.len();
        Err(RpcError::Malformed {
            reason: format!("a {what} of {bytes} bytes exceeds the limit of {limit} bytes: send less at once"),
        })
    }
}

#[async_trait]
impl Transport for InProcessTransport {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        self.check_size("request", &request.body)?;
        let mut endpoint = self.net.inner.nodes.read().get(to).cloned().ok_or_else(|| RpcError::Unreachable {
            node: to.clone(),
            reason: "no such node runs in this process".to_owned(),
            delivery: Delivery::NotStarted,
        })?;
        let _room = Arc::clone(&endpoint.room).try_acquire_owned().map_err(|_| RpcError::Overloaded {
            what: format!("the set of handlers running at node {to}"),
            limit: self.net.inner.limits.handlers_max as u64,
        })?;
        let limit = request.timeout;
        let method = request.head.method.clone();
        let context = RequestContext { from: self.from.clone(), head: request.head, time_left: limit };
        let handled = std::panic::AssertUnwindSafe(endpoint.service.handle(context, request.body)).catch_unwind();
        let in_time = tokio::time::timeout(limit, handled);
        let handled = tokio::select! {
            handled = in_time => handled,
            Err(_stopped) = endpoint.stopped.changed() => {
                let reason = "it was stopped before it answered".to_owned();
                return Err(RpcError::Unreachable { node: to.clone(), reason, delivery: Delivery::Unknown });
            }
        };
        let reply = match handled {
            Ok(Ok(result)) => result?,
            Ok(Err(_panic)) => return Err(RpcError::Failed { method }),
            Err(_elapsed) => return Err(RpcError::TimedOut { limit }),
        };
        self.check_size("reply", &reply)?;
        Ok(reply)
    }
}
