//! What a node answers other nodes for a shard: as its owner, or by saying who that is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use savanna_epoch::{NodeId, ShardId};
use savanna_rpc::{RequestContext, RpcError, Service};

use super::view::View;

/// After this time an owner that is starting may serve.
const STARTING_PAUSE: Duration = Duration::from_millis(20);

/// The service of a shard, while this node serves it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Offered {
    node: NodeId,
    shard: ShardId,
    view: View,
    service: Arc<RwLock<Option<Arc<dyn Service>>>>,
}

/// Offers a service until it is dropped.
pub(crate) struct Offer(Arc<RwLock<Option<Arc<dyn Service>>>>);

impl Drop for Offer {
    fn drop(&mut self) {
        *self.0.write() = None;
    }
}

impl Offered {
    pub(super) fn new(node: NodeId, shard: ShardId, view: View) -> Self {
        Self { node, shard, view, service: Arc::default() }
    }

    /// Answers by this service from now on. There is one at a time.
    pub(crate) fn offer(&self, service: Arc<dyn Service>) -> Offer {
        *self.service.write() = Some(service);
        Offer(Arc::clone(&self.service))
    }
}

#[async_trait]
impl Service for Offered {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        let service = self.service.read().clone();
        if let Some(service) = service {
            return service.handle(context, body).await;
        }
        let route = self.view.route(&self.shard)?;
        Err(match route.node == self.node {
            true => RpcError::Frozen { retry_after: STARTING_PAUSE },
            false => RpcError::Moved { to: route.node, epoch: route.epoch },
        })
    }
}
