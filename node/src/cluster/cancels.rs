//! Cancel requests for streams: a client may send one to any node, and its key names the node that the client is connected to.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use savanna_epoch::NodeId;
use savanna_identity::cancel_key::{self, CancelKey};
use savanna_ownership::ClusterView;
use savanna_pgwire::{Cancellations, OtherFaces};
use savanna_rpc::{Method, MethodTable, Service, Transport, call};
use tokio::sync::Semaphore;

use super::view::View;

/// The first part of the methods' names.
pub(super) const SERVICE: &str = "cancels";
/// How long a node has to hear of a request.
const CANCEL_TIME: Duration = Duration::from_secs(2);
/// So many are under way at once: nobody has shown yet who it is.
const REQUESTS_MAX: usize = 64;
/// So many nodes are asked that have the number in the key.
const NODES_MAX: usize = 16;

/// Ends the statement of the client of streams that has the key.
struct CancelStreams;

impl Method for CancelStreams {
    const NAME: &'static str = "cancels/streams.1";
    const IDEMPOTENT: bool = true;
    type Request = CancelKey;
    type Reply = ();
}

/// The clients of streams at this node, and the way to those at others.
pub(crate) struct Cancels {
    node: NodeId,
    own: Arc<Cancellations>,
    view: View,
    transport: Arc<dyn Transport>,
    under_way: Semaphore,
}

impl std::fmt::Debug for Cancels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancels").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Cancels {
    pub(super) fn new(node: NodeId, view: View, transport: Arc<dyn Transport>) -> Arc<Self> {
        let (own, under_way) = (Cancellations::of_node(&node.0), Semaphore::new(REQUESTS_MAX));
        Arc::new(Self { node, own, view, transport, under_way })
    }

    /// The clients at this node.
    pub(crate) const fn own(&self) -> &Arc<Cancellations> {
        &self.own
    }

    /// What other nodes ask for clients at this one.
    pub(super) fn service(&self) -> Arc<dyn Service> {
        let own = Arc::clone(&self.own);
        Arc::new(MethodTable::new().method(PhantomData::<CancelStreams>, move |_, key| {
            own.cancel(key);
            async { Ok(()) }
        }))
    }
}

#[async_trait]
impl OtherFaces for Cancels {
    async fn cancel(&self, key: CancelKey) {
        let Ok(_place) = self.under_way.try_acquire() else {
            tracing::debug!("a cancel request is left out: too many came at once");
            return;
        };
        let (view, transport) = (self.view.now(), &*self.transport);
        let telling = named(&view, &self.node, key).map(|node| async move {
            if let Err(error) = call::<CancelStreams>(transport, node, &key, CANCEL_TIME).await {
                tracing::debug!(%node, %error, "a cancel request did not reach the node that has the client");
            }
        });
        join_all(telling).await;
    }
}

/// The other nodes that a key may name: different ones may have the same number.
fn named<'a>(view: &'a ClusterView, own: &'a NodeId, key: CancelKey) -> impl Iterator<Item = &'a NodeId> {
    let is_named = move |node: &&NodeId| *node != own && cancel_key::number_of(&node.0) == cancel_key::node_of(key);
    view.nodes().map(|record| &record.tenure.node).filter(is_named).take(NODES_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::view;
    use super::*;

    #[test]
    fn the_node_that_a_key_names_is_asked_and_no_other() {
        let view = view(&[]);
        let [n1, n2] = ["n1", "n2"].map(NodeId::new);
        let key_at = |node: &NodeId| cancel_key::random(cancel_key::number_of(&node.0)).unwrap();
        let asked = |own, at| named(&view, own, key_at(at)).cloned().collect::<Vec<_>>();
        assert_eq!(asked(&n2, &n1), std::slice::from_ref(&n1));
        assert_eq!(asked(&n2, &n2), [], "it has been looked for here");
        assert_eq!(asked(&n1, &n1), []);
    }
}
