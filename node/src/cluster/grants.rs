//! Who gets the shards of a cluster. As long as there is no controller, the node that runs the coordinator proposes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use savanna_control::drained::{expectations, is_drained};
use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_ownership::logs;
use savanna_ownership::view::Follower;
use savanna_ownership::{
    Batch, ClusterView, Coordinator, CoordinatorError, Exclusive, History, NodeRecord, Ownership, Revision,
    ShardRecord, Tenure, Transition,
};

use super::view::View;
use super::{databases, virtual_nodes};

/// What one node at a time does for all: each is a shard. Two are services; the owner of `tenants` is their [controller](databases).
pub(crate) const SHARDS: [&str; 3] = ["keys", "streams", "tenants"];
/// Those of them that keep nothing, and so have no log.
const WITHOUT_LOG: [&str; 2] = ["streams", "tenants"];
/// The shard of keys. Where these are spread, it keeps nothing either.
pub(super) const KEYS: &str = "keys";
/// The state of a shard that is served.
pub(super) const SERVING: &str = "serving";
/// The label of a node with the names of its services.
pub(super) const SERVICES_LABEL: &str = "services";

/// How long nodes are waited for, as long as nobody owns anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// What was not done is tried again after this time, and what is decided by time is looked at so often.
pub(super) const PERIOD: Duration = Duration::from_millis(500);

/// The services that a node has.
pub(crate) fn services_of(node: &NodeRecord) -> impl Iterator<Item = &str> {
    node.labels.get(SERVICES_LABEL).into_iter().flat_map(|services| services.split(','))
}

/// How it stands with a shard: `serving`, or what is missing: `log lost` if there is no record, or none that can be read, of the log that has its
/// commits.
pub(crate) fn state_of(view: &ClusterView, shard: &ShardId, record: &ShardRecord) -> &'static str {
    let Some(owner) = record.owner() else { return "without an owner" };
    let has_record = |history: &History| matches!(logs::get(view, &history.log), Ok(Some(_)));
    let has_own_log = databases::is_tenant(shard) || virtual_nodes::node_of(shard).is_some();
    if has_own_log && record.history.as_ref().is_some_and(|history| !has_record(history)) {
        return "log lost";
    }
    let has_log = !WITHOUT_LOG.contains(&shard.0.as_str()) && !(shard.0 == KEYS && virtual_nodes::are_spread(view));
    let is_taken = record.history.as_ref().is_some_and(|history| match has_own_log {
        true => databases::holds(view, &history.log, owner),
        // The log of a service begins with each epoch.
        false => history.log.node == owner.node && history.epoch == record.epoch,
    });
    match (view.lives(owner), has_log && !is_taken) {
        (false, _) => "owner gone",
        (true, true) => "starting",
        (true, false) => SERVING,
    }
}

/// What to propose: a shard whose owner is gone, or that had none yet, goes to the node that has the fewest. When nobody who lives owns
/// anything, as all have only started, that waits until `wanted` nodes are there, or `is_patience_over`.
fn due(view: &ClusterView, wanted: usize, is_patience_over: bool) -> Vec<Transition> {
    let shards = SHARDS.map(ShardId::new);
    if is_unowned(view) && !is_patience_over && view.nodes().count() < wanted {
        return Vec::new();
    }
    let mut load = load_of(view);
    let mut transitions = Vec::new();
    for (service, shard) in SHARDS.iter().zip(&shards) {
        let record = view.shard(shard);
        if owner(view, shard).is_some() {
            continue;
        }
        let Some(host) = host(view, &load, service) else { continue };
        load.entry(&host.tenure.node).and_modify(|count| *count += 1);
        let (expected, epoch, history) = record.map_or((Revision::NONE, OwnerEpoch::NONE, None), |record| {
            (record.version, record.value.epoch, record.value.history.clone())
        });
        let ownership = Ownership::Exclusive(Exclusive::Serving { owner: host.tenure.clone() });
        let record = ShardRecord { epoch: epoch.next(), ownership, history };
        transitions.push(Transition { shard: shard.clone(), expected, record, by: None });
    }
    transitions
}

/// Who owns a shard and lives.
fn owner<'v>(view: &'v ClusterView, shard: &ShardId) -> Option<&'v Tenure> {
    view.shard(shard)?.value.owner().filter(|owner| view.lives(owner))
}

/// Whether nobody who lives owns anything.
fn is_unowned(view: &ClusterView) -> bool {
    SHARDS.iter().all(|shard| owner(view, &ShardId::new(*shard)).is_none())
}

/// How many shards each node has.
fn load_of(view: &ClusterView) -> BTreeMap<&NodeId, usize> {
    let mut load: BTreeMap<&NodeId, usize> = view.nodes().map(|node| (&node.tenure.node, 0)).collect();
    for owner in SHARDS.iter().filter_map(|shard| owner(view, &ShardId::new(*shard))) {
        load.entry(&owner.node).and_modify(|count| *count += 1);
    }
    load
}

/// The node with a service, of those in `load`, that has the fewest shards; one that is drained only if there is no other.
fn host<'v>(view: &'v ClusterView, load: &BTreeMap<&NodeId, usize>, service: &str) -> Option<&'v NodeRecord> {
    let hosts = view.nodes().filter(|node| services_of(node).any(|name| name == service));
    let loaded = hosts.filter_map(|node| Some((load.get(&node.tenure.node)?, node)));
    let last = |node: &NodeRecord| is_drained(view, &node.tenure);
    loaded.min_by_key(|(count, node)| (last(node), *count, &node.tenure.node)).map(|(_, node)| node)
}

/// What an owner proposes that cannot serve its shard: that another node has it. None if there is none, if it is not the owner, or if the
/// commits are in its own log already: nobody else may have the shard while that log goes on.
pub(super) fn given_up(view: &ClusterView, service: &str, by: &Tenure, epoch: OwnerEpoch) -> Option<Transition> {
    let shard = ShardId::new(service);
    let record = view.shard(&shard).filter(|record| record.value.epoch_of(by) == Some(epoch))?;
    if record.value.history.as_ref().is_some_and(|history| history.log.node == by.node) {
        return None;
    }
    let mut load = load_of(view);
    load.remove(&by.node);
    let owner = host(view, &load, service)?.tenure.clone();
    let ownership = Ownership::Exclusive(Exclusive::Serving { owner });
    let next = ShardRecord { epoch: epoch.next(), ownership, history: record.value.history.clone() };
    Some(Transition { shard, expected: record.version, record: next, by: Some(by.clone()) })
}

/// A grant that was decided by a view: it counts only while nobody has drained its node since.
pub(super) fn granted(view: &ClusterView, transition: Transition) -> Batch {
    let expects = expectations(view, std::slice::from_ref(&transition));
    Batch { expects, ..Batch::from(transition) }
}

/// Proposes grants, for ever. If it `spreads` keys, those that nobody had before get spread over the nodes.
pub(super) async fn propose(coordinator: Arc<dyn Coordinator>, wanted: usize, spreads: bool) {
    let mut follower = Follower::new(Arc::clone(&coordinator), ClusterView::default());
    let mut proposer = Proposer { coordinator, wanted, spreads, unowned_since: None };
    loop {
        if let Ok(Err(error)) = tokio::time::timeout(PERIOD, follower.next()).await {
            tracing::warn!(%error, "who owns shards is not known for the moment");
            tokio::time::sleep(PERIOD).await;
            continue;
        }
        proposer.look(follower.view(), true).await;
    }
}

/// Proposes grants whenever it is this node's turn, as it sees the cluster, for ever. Two that do so at once do no harm.
pub(super) async fn propose_in_turn(
    coordinator: Arc<dyn Coordinator>,
    mut view: View,
    wanted: usize,
    spreads: bool,
    is_turn: impl Fn(&ClusterView) -> bool + Send,
) {
    let mut proposer = Proposer { coordinator, wanted, spreads, unowned_since: None };
    loop {
        let _ = tokio::time::timeout(PERIOD, view.changed()).await;
        let now = view.now();
        proposer.look(&now, is_turn(&now)).await;
    }
}

/// Proposes grants.
struct Proposer {
    coordinator: Arc<dyn Coordinator>,
    wanted: usize,
    /// Whether keys that nobody had before are spread over the nodes.
    spreads: bool,
    /// Since when nobody owns anything, as far as is known.
    unowned_since: Option<tokio::time::Instant>,
}

impl Proposer {
    async fn look(&mut self, view: &ClusterView, proposes: bool) {
        let now = tokio::time::Instant::now();
        self.unowned_since = is_unowned(view).then(|| self.unowned_since.unwrap_or(now));
        let is_patience_over = self.unowned_since.is_some_and(|since| now - since >= PATIENCE);
        if !proposes {
            return;
        }
        for transition in due(view, self.wanted, is_patience_over) {
            let (shard, owner) = (transition.shard.clone(), transition.record.owner().cloned());
            let is_first = shard.0 == KEYS && transition.expected == Revision::NONE;
            let mut batch = granted(view, transition);
            if is_first && self.spreads {
                batch.roots.push(virtual_nodes::say_spread());
            }
            match self.coordinator.apply(&batch).await {
                Ok(_) => tracing::info!(%shard, owner = owner.map(|owner| owner.to_string()), "a shard is granted"),
                // The view is behind.
                Err(CoordinatorError::Conflict { .. }) => {}
                Err(error) => tracing::warn!(%shard, %error, "a shard could not be granted"),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use savanna_epoch::NodeEpoch;
    use savanna_ownership::core::{CoordinatorCore, Reply, Request};
    use savanna_ownership::embedded::EmbeddedCoordinator;
    use savanna_ownership::logs::{LogPlace, NewLog};
    use savanna_ownership::{BootClock, Incarnation, MonoTime, NodeSpec};

    use super::*;

    /// What a node with services says of itself.
    fn spec(name: &str, services: &str) -> NodeSpec {
        NodeSpec {
            name: NodeId::new(name),
            incarnation: Incarnation(1),
            address: String::new(),
            labels: [(SERVICES_LABEL.to_owned(), services.to_owned())].into(),
        }
    }

    pub(in crate::cluster) struct Cluster(pub(in crate::cluster) CoordinatorCore);

    impl Cluster {
        pub(in crate::cluster) fn new() -> Self {
            Self(CoordinatorCore::new(Duration::from_secs(3600)))
        }

        pub(in crate::cluster) fn join(&mut self, name: &str, services: &str) -> Tenure {
            match self.0.step(&Request::Register(spec(name, services)), MonoTime(0)).reply {
                Ok(Reply::Granted(grant)) => grant.tenure,
                other => panic!("expected a grant, came {other:?}"),
            }
        }

        pub(in crate::cluster) fn leave(&mut self, tenure: Tenure) {
            self.0.step(&Request::Deregister(tenure), MonoTime(0)).reply.unwrap();
        }

        pub(in crate::cluster) fn view(&self) -> ClusterView {
            ClusterView::new(self.0.snapshot())
        }

        /// An owner says that the commits of a shard are in its log.
        fn take(&mut self, shard: &str, owner: &Tenure, epoch: u64) -> History {
            let new = NewLog::numbered(&owner.node, shard, &(1..2)).unwrap();
            let log = new.id().clone();
            let begun = logs::begin(&self.view(), new, LogPlace::Private(shard.to_owned()), owner.clone()).unwrap();
            self.0.step(&Request::Apply(begun.into()), MonoTime(0)).reply.unwrap();
            let (shard, history) = (ShardId::new(shard), History { log, epoch: OwnerEpoch(epoch) });
            let record = self.0.shard(&shard).unwrap().clone();
            let taken = Transition {
                shard,
                expected: record.version,
                record: record.value.with_history(Some(history.clone())),
                by: Some(owner.clone()),
            };
            self.0.step(&Request::Apply(taken.into()), MonoTime(0)).reply.unwrap();
            history
        }

        /// Proposes what is due, and says who owns what then.
        fn grant(&mut self, wanted: usize, is_patience_over: bool) -> Vec<String> {
            for transition in due(&self.view(), wanted, is_patience_over) {
                self.0.step(&Request::Apply(transition.into()), MonoTime(0)).reply.unwrap();
            }
            assert!(due(&self.view(), wanted, is_patience_over).is_empty(), "once");
            let owner = |(shard, record): (&ShardId, &savanna_ownership::Versioned<ShardRecord>)| {
                format!("{shard} {} {}", record.value.owner().unwrap().node, record.value.epoch)
            };
            self.view().shards("").map(owner).collect()
        }
    }

    pub(in crate::cluster) const ALL: &str = "keys,streams,tenants";

    #[test]
    fn shards_are_spread_once_the_nodes_are_there() {
        let mut cluster = Cluster::new();
        cluster.join("n1", ALL);
        assert!(cluster.grant(3, false).is_empty());
        cluster.join("n2", ALL);
        cluster.join("n3", ALL);
        assert_eq!(cluster.grant(3, false), ["keys n1 1", "streams n2 1", "tenants n3 1"]);
    }

    #[test]
    fn who_does_not_come_is_not_waited_for_for_ever() {
        let mut cluster = Cluster::new();
        cluster.join("n1", ALL);
        assert_eq!(cluster.grant(3, true), ["keys n1 1", "streams n1 1", "tenants n1 1"]);
    }

    #[test]
    fn shards_of_who_is_gone_go_to_those_who_live_with_their_past() {
        let mut cluster = Cluster::new();
        let [n1, _, _] = ["n1", "n2", "n3"].map(|name| cluster.join(name, ALL));
        cluster.grant(3, false);
        let history = cluster.take("keys", &n1, 1);
        assert_eq!(cluster.grant(3, true).len(), 3);
        cluster.leave(n1);
        assert_eq!(cluster.grant(3, false), ["keys n2 2", "streams n2 1", "tenants n3 1"]);
        assert_eq!(cluster.view().shard(&ShardId::new("keys")).unwrap().value.history, Some(history));
        let again = cluster.join("n1", ALL);
        assert_eq!(again.epoch, NodeEpoch(2));
        assert_eq!(cluster.grant(3, false)[0], "keys n2 2", "who comes back gets nothing back");
    }

    #[test]
    fn shards_are_spread_again_when_all_nodes_start_again() {
        let mut cluster = Cluster::new();
        let nodes = ["n1", "n2", "n3"].map(|name| cluster.join(name, ALL));
        cluster.grant(3, false);
        for node in nodes {
            cluster.leave(node);
        }
        cluster.join("n1", ALL);
        assert!(due(&cluster.view(), 3, false).is_empty(), "the others are on their way");
        cluster.join("n2", ALL);
        cluster.join("n3", ALL);
        assert_eq!(cluster.grant(3, false), ["keys n1 2", "streams n2 2", "tenants n3 2"]);
    }

    #[test]
    fn a_drained_node_is_granted_nothing_while_there_is_another() {
        let mut cluster = Cluster::new();
        let [n1, _, n3] = ["n1", "n2", "n3"].map(|name| cluster.join(name, ALL));
        let change = savanna_control::drained::change(&cluster.view(), &NodeId::new("n2"), true, |_| true);
        cluster.0.step(&Request::Apply(change.unwrap().unwrap()), MonoTime(0)).reply.unwrap();
        assert_eq!(cluster.grant(3, false), ["keys n1 1", "streams n3 1", "tenants n1 1"]);
        cluster.leave(n1);
        assert_eq!(cluster.grant(3, false), ["keys n3 2", "streams n3 1", "tenants n3 2"]);
        cluster.leave(n3);
        assert_eq!(cluster.grant(3, true), ["keys n2 3", "streams n2 2", "tenants n2 3"], "rather there than nowhere");
    }

    #[tokio::test]
    async fn what_an_old_view_grants_to_a_node_that_was_drained_meanwhile_is_decided_anew() {
        let volatile = EmbeddedCoordinator::volatile(Duration::from_secs(3_600), Arc::new(BootClock));
        let coordinator: Arc<dyn Coordinator> = Arc::new(volatile);
        for name in ["n1", "n2"] {
            coordinator.register(&spec(name, ALL)).await.unwrap();
        }
        let now = async || ClusterView::new(coordinator.snapshot().await.unwrap());
        let owners = |view: &ClusterView| {
            let owner = |(shard, record): (&ShardId, &savanna_ownership::Versioned<ShardRecord>)| {
                format!("{shard} {}", record.value.owner().unwrap().node)
            };
            view.shards("").map(owner).collect::<Vec<_>>()
        };
        let old = now().await;
        let change = savanna_control::drained::change(&old, &NodeId::new("n1"), true, |_| true).unwrap().unwrap();
        coordinator.apply(&change).await.unwrap();
        let mut proposer =
            Proposer { coordinator: Arc::clone(&coordinator), wanted: 2, spreads: false, unowned_since: None };
        proposer.look(&old, true).await;
        assert_eq!(owners(&now().await), ["streams n2"], "keys and tenants would have come to n1");
        proposer.look(&now().await, true).await;
        assert_eq!(owners(&now().await), ["keys n2", "streams n2", "tenants n2"]);
    }

    #[test]
    fn an_owner_that_cannot_serve_gives_its_shard_to_another_node_with_that_service() {
        let mut cluster = Cluster::new();
        let n0 = cluster.join("n0", ALL);
        cluster.grant(1, false);
        let history = cluster.take("keys", &n0, 1);
        cluster.leave(n0);
        let n1 = cluster.join("n1", ALL);
        cluster.grant(1, false);
        let give_up = |cluster: &Cluster, epoch| given_up(&cluster.view(), "keys", &n1, OwnerEpoch(epoch));
        assert_eq!(give_up(&cluster, 2), None, "nobody else is there");
        cluster.join("n2", "tenants");
        assert_eq!(give_up(&cluster, 2), None, "nobody else has the service");
        let n3 = cluster.join("n3", ALL);
        assert_eq!(give_up(&cluster, 3), None, "not its grant");
        // To a node that was drained meanwhile it does not go.
        let old = granted(&cluster.view(), give_up(&cluster, 2).unwrap());
        let change = |cluster: &Cluster, is_drained| {
            let change = savanna_control::drained::change(&cluster.view(), &n3.node, is_drained, |_| true);
            Request::Apply(change.unwrap().unwrap())
        };
        cluster.0.step(&change(&cluster, true), MonoTime(0)).reply.unwrap();
        assert!(cluster.0.step(&Request::Apply(old), MonoTime(0)).reply.is_err());
        cluster.0.step(&change(&cluster, false), MonoTime(0)).reply.unwrap();
        let anew = granted(&cluster.view(), give_up(&cluster, 2).unwrap());
        cluster.0.step(&Request::Apply(anew), MonoTime(0)).reply.unwrap();
        let record = cluster.view().shard(&ShardId::new("keys")).unwrap().value.clone();
        assert_eq!((record.owner(), record.epoch), (Some(&n3), OwnerEpoch(3)));
        assert_eq!(record.history, Some(history));
        assert_eq!(give_up(&cluster, 2), None, "it is another's");
        cluster.take("keys", &n3, 3);
        assert_eq!(given_up(&cluster.view(), "keys", &n3, OwnerEpoch(3)), None, "its commits are in its own log");
    }

    #[test]
    fn a_tenant_is_served_under_later_epochs_out_of_the_log_that_its_owner_holds() {
        let mut cluster = Cluster::new();
        let n1 = cluster.join("n1", ALL);
        let new = NewLog::numbered(&n1.node, "tenants", &(1..2)).unwrap();
        let log = new.id().clone();
        let record = ShardRecord::serving(n1.clone(), OwnerEpoch(2))
            .with_history(Some(History { log: log.clone(), epoch: OwnerEpoch(1) }));
        let state = |cluster: &Cluster, shard: &str, record: &ShardRecord| {
            state_of(&cluster.view(), &ShardId::new(shard), record)
        };
        assert_eq!(state(&cluster, "tenants/7", &record), "log lost", "nobody has begun such a log");
        let begun = logs::begin(&cluster.view(), new, LogPlace::Folder("a".to_owned()), n1.clone()).unwrap();
        cluster.0.step(&Request::Apply(begun.into()), MonoTime(0)).reply.unwrap();
        assert_eq!((state(&cluster, "tenants/7", &record), state(&cluster, "keys", &record)), (SERVING, "starting"));
        cluster.leave(n1);
        let again = cluster.join("n1", ALL);
        let record = ShardRecord::serving(again, OwnerEpoch(3)).with_history(record.history);
        assert_eq!(state(&cluster, "tenants/7", &record), "starting", "that log is a former tenure's");
    }

    #[test]
    fn a_shard_is_served_once_its_owner_has_said_where_its_commits_are() {
        let mut cluster = Cluster::new();
        let n1 = cluster.join("n1", ALL);
        cluster.grant(1, false);
        let state = |cluster: &Cluster, shard: &str| {
            let (view, shard) = (cluster.view(), ShardId::new(shard));
            let record = view.shard(&shard).unwrap().value.clone();
            state_of(&view, &shard, &record)
        };
        assert_eq!((state(&cluster, "keys"), state(&cluster, "streams")), ("starting", SERVING));
        cluster.take("keys", &n1, 1);
        assert_eq!(state(&cluster, "keys"), SERVING);
        cluster.leave(n1);
        assert_eq!(state(&cluster, "keys"), "owner gone");
        cluster.join("n2", ALL);
        cluster.grant(1, false);
        assert_eq!(state(&cluster, "keys"), "starting", "the commits are in the log of n1");
    }

    #[test]
    fn a_shard_goes_to_nodes_that_have_its_service() {
        let mut cluster = Cluster::new();
        cluster.join("n1", "keys");
        cluster.join("n2", "keys,tenants");
        assert_eq!(cluster.grant(1, true), ["keys n1 1", "tenants n2 1"]);
    }
}
