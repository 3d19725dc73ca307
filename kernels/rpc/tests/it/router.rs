//! The asynchronous router over the in-process transport: a shard moves while clients write to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_rpc::{
    Directory, InProcessLimits, InProcessNet, Request, RequestContext, RequestHead, Route, Router, RouterLimits,
    RpcError, Service,
};

/// What both nodes and the directory agree on.
struct Ownership {
    route: Mutex<Route>,
    frozen: Mutex<bool>,
    served: AtomicUsize,
    looked_up: AtomicUsize,
}

struct Owner {
    node: NodeId,
    shared: Arc<Ownership>,
}

#[async_trait]
impl Service for Owner {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        let route = self.shared.route.lock().clone();
        let at = context.head.shard.expect("the router says which shard");
        if route.node != self.node {
            return Err(RpcError::Moved { to: route.node, epoch: route.epoch });
        }
        if *self.shared.frozen.lock() {
            return Err(RpcError::Frozen { retry_after: Duration::from_millis(1) });
        }
        assert!(at.epoch > OwnerEpoch::NONE && at.epoch <= route.epoch, "the router says the epoch it goes by");
        self.shared.served.fetch_add(1, Ordering::SeqCst);
        Ok(body)
    }
}

#[async_trait]
impl Directory for Ownership {
    async fn locate(&self, shard: &ShardId) -> Result<Route, RpcError> {
        self.looked_up.fetch_add(1, Ordering::SeqCst);
        if shard.0 != "tenants/acme" {
            return Err(RpcError::Refused { reason: format!("there is no shard {shard}") });
        }
        Ok(self.route.lock().clone())
    }
}

fn request(number: usize) -> Request {
    let head = RequestHead { method: "t/write".into(), shard: None, idempotent: false };
    Request { head, body: Bytes::from(number.to_string()), timeout: Duration::from_secs(20) }
}

#[tokio::test]
async fn calls_survive_moves_and_freezes_and_the_directory_is_asked_once() {
    let shared = Arc::new(Ownership {
        route: Mutex::new(Route { node: NodeId::new("a"), epoch: OwnerEpoch(1) }),
        frozen: Mutex::new(false),
        served: AtomicUsize::new(0),
        looked_up: AtomicUsize::new(0),
    });
    let net = InProcessNet::new(InProcessLimits::default());
    let _served = ["a", "b"].map(|name| {
        let node = NodeId::new(name);
        net.serve(node.clone(), Arc::new(Owner { node, shared: Arc::clone(&shared) }))
    });
    let transport = Arc::new(net.transport(NodeId::new("client")));
    let router = Arc::new(Router::new(transport, Arc::clone(&shared) as _, RouterLimits::default()));
    let shard = ShardId::new("tenants/acme");

    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let (router, shard) = (Arc::clone(&router), shard.clone());
        clients.spawn(async move {
            for number in 0..50 {
                let reply = router.call(&shard, request(client * 1000 + number)).await;
                assert_eq!(reply, Ok(Bytes::from((client * 1000 + number).to_string())));
                tokio::task::yield_now().await;
            }
        });
    }
    for epoch in 2..6 {
        *shared.frozen.lock() = true;
        tokio::time::sleep(Duration::from_millis(3)).await;
        let node = NodeId::new(if epoch % 2 == 0 { "b" } else { "a" });
        *shared.route.lock() = Route { node, epoch: OwnerEpoch(epoch) };
        *shared.frozen.lock() = false;
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no client failed");
    }
    assert_eq!(shared.served.load(Ordering::SeqCst), 400, "each write was served once");
    assert_eq!(shared.looked_up.load(Ordering::SeqCst), 1);
    assert!(router.repeats() > 0, "four moves");
    let others = ShardId::new("tenants/none");
    assert_eq!((router.repeats_of(&shard), router.repeats_of(&others)), (router.repeats(), 0));
    assert!(router.cached_route(&shard).is_some());
    let error = router.call(&ShardId::new("tenants/none"), request(0)).await.expect_err("no such shard");
    assert!(matches!(error, RpcError::Refused { .. }));
}

#[tokio::test]
async fn a_call_to_a_shard_that_stays_frozen_ends_at_its_deadline() {
    let shared = Arc::new(Ownership {
        route: Mutex::new(Route { node: NodeId::new("a"), epoch: OwnerEpoch(1) }),
        frozen: Mutex::new(true),
        served: AtomicUsize::new(0),
        looked_up: AtomicUsize::new(0),
    });
    let net = InProcessNet::new(InProcessLimits::default());
    let node = NodeId::new("a");
    let _served = net.serve(node.clone(), Arc::new(Owner { node, shared: Arc::clone(&shared) }));
    let transport = Arc::new(net.transport(NodeId::new("client")));
    let router = Router::new(transport, shared, RouterLimits::default());
    let limit = Duration::from_millis(50);
    let result = router.call(&ShardId::new("tenants/acme"), Request { timeout: limit, ..request(1) }).await;
    assert_eq!(result, Err(RpcError::TimedOut { limit }));
}
