//! What a node answers other nodes for a shard: as its owner, or by saying who that is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::guard::LeaseGuard;
use savanna_rpc::{Delivery, RequestContext, RpcError, Service};

use super::view::View;

/// After this time an owner that is starting may serve.
const STARTING_PAUSE: Duration = Duration::from_millis(20);
/// After this time an owner whose lease was not renewed may serve again, or another one does.
const LEASE_PAUSE: Duration = Duration::from_millis(50);

/// What is offered: a service, of some shards, while the lease says that the node may serve.
#[derive(Clone)]
struct Offering {
    service: Arc<dyn Service>,
    guard: LeaseGuard,
    has: Arc<dyn Fn(&ShardId) -> bool + Send + Sync>,
}

type Slot = Arc<RwLock<Option<Offering>>>;

/// The service of a shard, while this node serves it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Offered {
    node: NodeId,
    shard: ShardId,
    view: View,
    offer: Slot,
}

/// Offers a service until it is dropped.
pub(crate) struct Offer(Slot);

impl Drop for Offer {
    fn drop(&mut self) {
        *self.0.write() = None;
    }
}

impl Offered {
    pub(super) fn new(node: NodeId, shard: ShardId, view: View) -> Self {
        Self { node, shard, view, offer: Slot::default() }
    }

    /// Answers by this service from now on, while the lease lasts. There is one at a time: an earlier offer ends before.
    pub(crate) fn offer(&self, service: Arc<dyn Service>, guard: LeaseGuard) -> Offer {
        self.offer_of(service, guard, |_| true)
    }

    /// As [`offer`](Self::offer), for those shards alone that the node has.
    pub(crate) fn offer_of(
        &self,
        service: Arc<dyn Service>,
        guard: LeaseGuard,
        has: impl Fn(&ShardId) -> bool + Send + Sync + 'static,
    ) -> Offer {
        *self.offer.write() = Some(Offering { service, guard, has: Arc::new(has) });
        Offer(Arc::clone(&self.offer))
    }
}

#[async_trait]
impl Service for Offered {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        let asked = context.head.shard.as_ref().map(|at| at.shard.clone());
        let shard = asked.as_ref().unwrap_or(&self.shard);
        let offer = self.offer.read().clone().filter(|offer| asked.as_ref().is_none_or(|shard| (offer.has)(shard)));
        if let Some(Offering { service, guard, .. }) = offer {
            if !guard.serving() {
                return Err(RpcError::Frozen { retry_after: LEASE_PAUSE });
            }
            let reply = service.handle(context, body).await;
            if guard.serving() {
                return reply;
            }
            let reason = "its lease was not renewed in time, so it tells nobody what it did".to_owned();
            return Err(RpcError::Unreachable { node: self.node.clone(), reason, delivery: Delivery::Unknown });
        }
        let route = self.view.route(shard)?;
        Err(match route.node == self.node {
            true => RpcError::Frozen { retry_after: STARTING_PAUSE },
            false => RpcError::Moved { to: route.node, epoch: route.epoch },
        })
    }
}

#[cfg(test)]
mod tests {
    use savanna_ownership::{BootClock, Clock as _, LeaseHolder, LeaseTerms};
    use savanna_rpc::RequestHead;
    use tokio::sync::watch;

    use super::*;

    /// Does something, and loses its lease before it answers if it is asked for `lose`.
    struct Engine(LeaseGuard);

    #[async_trait]
    impl Service for Engine {
        async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
            if context.head.method == "lose" {
                self.0.revoke();
            }
            Ok(body)
        }
    }

    #[tokio::test]
    async fn of_shards_that_a_node_does_not_have_it_says_who_has_them() {
        use savanna_epoch::OwnerEpoch;
        use savanna_ownership::ShardRecord;
        use savanna_rpc::ShardAt;

        use super::super::view::tests::{tenure, view};

        let guard = LeaseGuard::new(Arc::new(BootClock));
        guard.publish(&LeaseHolder::new(LeaseTerms::default(), BootClock.now()));
        let record = ShardRecord::serving(tenure("n1", 2), OwnerEpoch(3));
        let seen = view(&[
            ("tenants/1", record.clone()),
            ("tenants/2", record),
            ("tenants/3", ShardRecord::retired(OwnerEpoch(1))),
        ]);
        let (_sender, receiver) = watch::channel(Arc::new(seen));
        let ask = async |node: &str, shard: &str| {
            let offered = Offered::new(NodeId::new(node), ShardId::new("tenants"), View::of(receiver.clone()));
            let engine = Arc::new(Engine(guard.clone()));
            let _offer = offered.offer_of(engine, guard.clone(), |shard| shard.0 == "tenants/1");
            let shard = Some(ShardAt { shard: ShardId::new(shard), epoch: OwnerEpoch(1) });
            let head = RequestHead { method: "keep".to_owned(), shard, idempotent: false };
            let context = RequestContext { from: NodeId::new("n3"), head, time_left: Duration::from_secs(1) };
            offered.handle(context, Bytes::new()).await
        };
        assert!(ask("n1", "tenants/1").await.is_ok());
        assert!(
            matches!(ask("n1", "tenants/2").await, Err(RpcError::Frozen { .. })),
            "it was granted, and is not here yet"
        );
        assert!(matches!(ask("n2", "tenants/2").await, Err(RpcError::Moved { to, .. }) if to.0 == "n1"));
        assert!(matches!(ask("n1", "tenants/3").await, Err(RpcError::Refused { .. })), "there is none any more");
    }

    #[tokio::test]
    async fn nothing_is_told_without_the_lease() {
        let guard = LeaseGuard::new(Arc::new(BootClock));
        guard.publish(&LeaseHolder::new(LeaseTerms::default(), BootClock.now()));
        let (_sender, receiver) = watch::channel(Arc::default());
        let offered = Offered::new(NodeId::new("n1"), ShardId::new("streams"), View::of(receiver));
        let _offer = offered.offer(Arc::new(Engine(guard.clone())), guard);
        let ask = async |method: &str| {
            let head = RequestHead { method: method.to_owned(), shard: None, idempotent: false };
            let context = RequestContext { from: NodeId::new("n2"), head, time_left: Duration::from_secs(1) };
            offered.handle(context, Bytes::new()).await
        };
        assert!(ask("keep").await.is_ok());
        let lost = ask("lose").await.unwrap_err();
        assert_eq!(lost.delivery(), Delivery::Unknown, "it was done");
        assert!(matches!(ask("keep").await, Err(RpcError::Frozen { .. })), "it was not done");
    }
}
