//! The cluster as this node sees it, for all who ask: kept in memory, a little behind the coordinator.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::view::Follower;
use savanna_ownership::{ClusterView, Coordinator, Ownership, Tenure};
use savanna_pgwire_tenants::retired;
use savanna_rpc::{Addresses, Directory, Route, RpcError};
use tokio::sync::watch;

/// After this time somebody may own a shard that has no owner.
const OWNERLESS_PAUSE: Duration = Duration::from_millis(50);
/// Before the coordinator is followed again.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of the cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct View(watch::Receiver<Arc<ClusterView>>);

impl View {
    /// What a test says.
    #[cfg(test)]
    pub(super) fn of(receiver: watch::Receiver<Arc<ClusterView>>) -> Self {
        Self(receiver)
    }

    /// Nothing yet, and what keeps it up to date: the nodes' addresses are in `addresses` before a view says that they are there.
    pub(super) fn follow(
        coordinator: Arc<dyn Coordinator>,
        addresses: Arc<Addresses>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, receiver) = watch::channel(Arc::default());
        let following = async move {
            let mut follower = Follower::new(coordinator, ClusterView::default());
            let mut known = BTreeSet::new();
            loop {
                if let Err(error) = follower.next().await {
                    tracing::debug!(%error, "the coordinator is not followed for the moment");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                for node in follower.view().nodes() {
                    let name = &node.tenure.node;
                    if addresses.get(name).as_deref() != Some(node.address.as_str()) {
                        addresses.set(name.clone(), node.address.as_str());
                    }
                }
                let nodes: BTreeSet<_> = follower.view().nodes().map(|node| node.tenure.node.clone()).collect();
                known.difference(&nodes).for_each(|gone| addresses.remove(gone));
                known = nodes;
                sender.send_replace(Arc::new(follower.view().clone()));
            }
        };
        (Self(receiver), following)
    }

    /// As it is known now.
    pub(crate) fn now(&self) -> Arc<ClusterView> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits until something has changed since this was asked last. Nothing does any more if that is `false`.
    pub(crate) async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Waits until it is as `is_so` says; for ever if nothing changes any more.
    pub(crate) async fn until(&mut self, mut is_so: impl FnMut(&ClusterView) -> bool) {
        if self.0.wait_for(|view| is_so(view)).await.is_err() {
            std::future::pending().await
        }
    }

    /// Who owns a shard now.
    ///
    /// # Errors
    /// `Frozen` if nobody who lives does, `Refused` if nobody ever will.
    pub(crate) fn route(&self, shard: &ShardId) -> Result<Route, RpcError> {
        let view = self.now();
        if view.shard(shard).is_some_and(|record| record.value.ownership == Ownership::Retired) {
            return Err(retired(shard));
        }
        route(&view, shard).ok_or(RpcError::Frozen { retry_after: OWNERLESS_PAUSE })
    }
}

/// The nodes that lived, and do not, or only under another tenure.
pub(crate) fn gone(before: &ClusterView, now: &ClusterView) -> Vec<NodeId> {
    before.nodes().filter(|node| !now.lives(&node.tenure)).map(|node| node.tenure.node.clone()).collect()
}

/// Who owns a shard, if somebody who lives does.
pub(super) fn route(view: &ClusterView, shard: &ShardId) -> Option<Route> {
    let record = &view.shard(shard)?.value;
    let owner: &Tenure = record.owner().filter(|owner| view.lives(owner))?;
    Some(Route { node: owner.node.clone(), epoch: record.epoch })
}

#[async_trait]
impl Directory for View {
    async fn locate(&self, shard: &ShardId) -> Result<Route, RpcError> {
        self.route(shard)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use savanna_epoch::{NodeEpoch, OwnerEpoch};
    use savanna_ownership::{Incarnation, NodeRecord, NodeSpec, Revision, ShardRecord, Snapshot, Versioned};

    use super::*;

    pub(in crate::cluster) fn tenure(node: &str, epoch: u64) -> Tenure {
        Tenure { node: NodeId::new(node), epoch: NodeEpoch(epoch) }
    }

    /// Node n1 lives under its second tenure.
    pub(in crate::cluster) fn view(shards: &[(&str, ShardRecord)]) -> ClusterView {
        view_under(2, shards)
    }

    /// Node n1 lives under this tenure.
    fn view_under(epoch: u64, shards: &[(&str, ShardRecord)]) -> ClusterView {
        let spec = NodeSpec {
            name: NodeId::new("n1"),
            incarnation: Incarnation(1),
            address: String::new(),
            labels: Default::default(),
        };
        let shard = |(name, record): &(&str, ShardRecord)| {
            (ShardId::new(*name), Versioned { version: Revision(1), value: record.clone() })
        };
        ClusterView::new(Snapshot {
            revision: Revision(1),
            nodes: vec![NodeRecord::granted(&spec, NodeEpoch(epoch))],
            shards: shards.iter().map(shard).collect(),
            roots: Vec::new(),
        })
    }

    #[test]
    fn a_tenant_is_where_its_own_record_says() {
        let record = ShardRecord::serving(tenure("n1", 2), OwnerEpoch(3));
        let seen = view(&[("tenants", record.clone()), ("tenants/7", record)]);
        let expected = Some(Route { node: NodeId::new("n1"), epoch: OwnerEpoch(3) });
        assert_eq!(route(&seen, &ShardId::new("tenants/7")), expected);
        assert_eq!(route(&seen, &ShardId::new("tenants/8")), None, "the controller is no way to it");
        assert_eq!(route(&seen, &ShardId::new("keys")), None);
    }

    #[test]
    fn a_node_whose_tenure_is_over_is_gone_although_another_process_has_its_name() {
        let (second, third) = (view_under(2, &[]), view_under(3, &[]));
        assert_eq!(gone(&second, &second), []);
        for now in [&third, &ClusterView::default()] {
            assert_eq!(gone(&second, now), [NodeId::new("n1")]);
        }
        assert_eq!(gone(&ClusterView::default(), &second), []);
    }

    #[test]
    fn who_is_gone_owns_nothing() {
        let seen = view(&[("keys", ShardRecord::serving(tenure("n1", 1), OwnerEpoch(3)))]);
        assert_eq!(route(&seen, &ShardId::new("keys")), None, "an earlier process of that name");
    }
}
