//! What a node is to each service, which the records say: its owner, or the way to whoever that is.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use savanna_epoch::{OwnerEpoch, ShardId};
use savanna_ownership::{ClusterView, Tenure};
use savanna_pgwire_tenants::Front;
use tokio::sync::watch;

use super::cluster_file::ClusterFile;
use super::grants::{self, KEYS, SHARDS, state_of};
use super::offered::Offered;
use super::routed::RoutedStreams;
use super::view::{self, View, gone};
use super::{Joined, databases, virtual_nodes};
use crate::remote::FrontSessions;
use crate::roles::{Grant, Role};
use crate::services::StreamsService;

/// How long a node waits until all shards are served.
const SERVED_TIME: Duration = Duration::from_secs(10);

impl Joined {
    /// What this node is to tenants: each node has its own.
    pub(crate) fn hosts(&self) -> watch::Receiver<Role> {
        self.hosts.subscribe()
    }

    /// What this node is to a service.
    pub(crate) fn role(&self, service: &str) -> watch::Receiver<Role> {
        self.roles[service].clone()
    }

    /// The streams of the cluster for the faces of this node, and the node's own for others while it owns them.
    pub(crate) fn routed(self: &Arc<Self>, streams: StreamsService) -> StreamsService {
        let StreamsService { handle, stop } = streams;
        let (node, view, transport) = (self.tenure.node.clone(), self.view.clone(), self.transport());
        let routed = RoutedStreams::new(node, view, Arc::clone(&handle), self.guard(), transport);
        let (offered, guard, mut role) = (self.offered("streams").clone(), self.guard(), self.role("streams"));
        let sessions = FrontSessions::new(handle);
        let losing = tokio::spawn(lose_fronts(self.view.clone(), Arc::clone(&sessions)));
        let offering = tokio::spawn(async move {
            let mut offer = None;
            loop {
                let is_owner = matches!(*role.borrow_and_update(), Role::Owner(_));
                // An offer ends when it is dropped: the one before, not the next.
                drop(offer.take());
                offer = is_owner.then(|| offered.offer(sessions.service(), guard.clone()));
                if role.changed().await.is_err() {
                    return;
                }
            }
        });
        let stop = Box::new(move || -> BoxFuture<'static, ()> {
            Box::pin(async move {
                offering.abort();
                losing.abort();
                stop().await;
            })
        });
        StreamsService { handle: routed, stop }
    }

    /// Answers other nodes for a service.
    pub(crate) fn offered(&self, service: &str) -> &Offered {
        &self.offered[service]
    }

    /// Gives a service up that this node was granted and cannot serve, if another node can have it.
    pub(crate) async fn give_up(&self, service: &'static str, epoch: OwnerEpoch) {
        let view = self.view.now();
        let Some(transition) = grants::given_up(&view, service, &self.tenure, epoch) else {
            tracing::warn!(service, "no other node can have the service, which this node cannot serve");
            return;
        };
        let owner = transition.record.owner().map(|owner| owner.to_string());
        match self.coordinator.apply(&grants::granted(&view, transition)).await {
            Ok(_) => tracing::warn!(service, owner, "this node cannot serve, and gives the service to another one"),
            Err(error) => {
                tracing::warn!(service, %error, "the service, which this node cannot serve, could not be given up")
            }
        }
    }

    /// Is the controller no more, if this node is that: it cannot serve tenants.
    pub(crate) async fn leave_control(&self) {
        let role = *self.role(databases::CONTROLLER).borrow();
        if let Role::Owner(Grant { epoch: Some(epoch), .. }) = role {
            self.give_up(databases::CONTROLLER, epoch).await;
        }
    }

    /// Waits until each shard of a service that this node has is served by somebody, but not for ever.
    pub(crate) async fn served(&self) {
        let wanted = SHARDS.iter().filter(|service| self.config.services.iter().any(|own| own == *service));
        let wanted: Vec<_> = wanted.map(|service| ShardId::new(*service)).collect();
        let is_served = |view: &ClusterView, shard: &ShardId| {
            view.shard(shard).is_some_and(|record| state_of(view, shard, &record.value) == grants::SERVING)
        };
        let has_tenants = wanted.iter().any(|shard| shard.0 == databases::CONTROLLER);
        let are_tenants_served = |view: &ClusterView| {
            let mut tenants = view.shards("tenants/").filter(|(_, record)| record.value.owner().is_some());
            !has_tenants || tenants.all(|(shard, record)| state_of(view, shard, &record.value) == grants::SERVING)
        };
        let has_keys = wanted.iter().any(|shard| shard.0 == KEYS);
        let are_keys_served = |view: &ClusterView| {
            let mut nodes = view.shards(virtual_nodes::PREFIX);
            !has_keys
                || !virtual_nodes::are_spread(view)
                || virtual_nodes::are_all_there(view)
                    && nodes.all(|(shard, record)| state_of(view, shard, &record.value) == grants::SERVING)
        };
        let are_served = |view: &ClusterView| {
            wanted.iter().all(|shard| is_served(view, shard)) && are_tenants_served(view) && are_keys_served(view)
        };
        if tokio::time::timeout(SERVED_TIME, self.view.clone().until(are_served)).await.is_err() {
            tracing::warn!("not every shard is served yet; `savanna shards` says by whom each is");
        }
    }
}

/// What a node is to a shard.
fn role_of(view: &ClusterView, shard: &ShardId, tenure: &Tenure, file: &ClusterFile) -> Role {
    if shard.0 == KEYS && virtual_nodes::are_spread(view) {
        return Role::Member;
    }
    let record = view.shard(shard).filter(|record| record.value.owner() == Some(tenure));
    record.map_or(Role::Front, |record| {
        let epoch = record.value.epoch;
        Role::Owner(Grant { epoch: Some(epoch), log_epoch: file.log_epoch(epoch) })
    })
}

/// Tells a service what to be, as long as somebody listens.
pub(super) async fn tell_roles(
    mut view: View,
    tenure: Tenure,
    file: ClusterFile,
    shard: ShardId,
    roles: watch::Sender<Role>,
) {
    loop {
        let role = role_of(&view.now(), &shard, &tenure, &file);
        roles.send_if_modified(|known| std::mem::replace(known, role) != role);
        if !view.changed().await {
            return;
        }
    }
}

/// Ends the sessions of clients of streams at nodes that are gone.
async fn lose_fronts(mut view: View, sessions: Arc<FrontSessions>) {
    let mut before = view.now();
    while view.changed().await {
        let now = view.now();
        for node in gone(&before, &now) {
            sessions.lose(&node).await;
        }
        before = now;
    }
}

/// Tells the router where shards are, whenever that changes.
pub(super) async fn tell_routes(mut view: View, front: Arc<Front>) {
    while view.changed().await {
        let now = view.now();
        front.learn(|shard| view::route(&now, shard));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use savanna_epoch::{NodeEpoch, NodeId};
    use savanna_ownership::core::{CoordinatorCore, Reply, Request};
    use savanna_ownership::{Incarnation, LeaseTerms, MonoTime, NodeSpec, Revision, ShardRecord, Transition};

    use super::*;

    #[test]
    fn a_process_owns_what_it_was_granted_and_nothing_that_another_of_its_name_was() {
        let directory = tempfile::tempdir().unwrap();
        let file = ClusterFile::ensure(directory.path(), NodeEpoch(50), LeaseTerms::default(), false).unwrap();
        let mut core = CoordinatorCore::new(Duration::from_secs(3600));
        let join = |core: &mut CoordinatorCore, incarnation| {
            let (name, incarnation) = (NodeId::new("n1"), Incarnation(incarnation));
            let spec = NodeSpec { name, incarnation, address: String::new(), labels: BTreeMap::new() };
            match core.step(&Request::Register(spec), MonoTime(0)).reply {
                Ok(Reply::Granted(grant)) => grant.tenure,
                other => panic!("expected a grant, came {other:?}"),
            }
        };
        let first = join(&mut core, 1);
        let keys = ShardId::new("keys");
        let record = ShardRecord::serving(first.clone(), OwnerEpoch(1));
        let grant = Transition { shard: keys.clone(), expected: Revision::NONE, record, by: None };
        core.step(&Request::Apply(grant.into()), MonoTime(0)).reply.unwrap();
        let role = |core: &CoordinatorCore, tenure: &Tenure, shard: &str| {
            role_of(&ClusterView::new(core.snapshot()), &ShardId::new(shard), tenure, &file)
        };
        let granted = Grant { epoch: Some(OwnerEpoch(1)), log_epoch: NodeEpoch(51) };
        assert_eq!(role(&core, &first, "keys"), Role::Owner(granted));
        assert_eq!(role(&core, &first, "tenants"), Role::Front);
        core.step(&Request::Deregister(first), MonoTime(0)).reply.unwrap();
        let second = join(&mut core, 2);
        assert_eq!(role(&core, &second, "keys"), Role::Front);
    }
}
