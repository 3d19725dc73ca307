//! Virtual nodes of keys: the records of who has which, where a cluster was made with its keys spread over the nodes.
//!
//! ```text
//!  root keys/spread      that it was made so
//!  keys                  whose owner is the controller: it keeps nothing
//!  keys/v/0 .. 1023      an owner each, and the log of a tenure that has its keys
//!  keys-logs/n1.3/       the log of one tenure, which it alone appends to; adopted by others when that is over
//! ```
//!
//! The controller makes the records, in even shares, and looks after those of nodes that are gone ([`savanna_control`] decides). Nobody who is
//! served waits for it. What a node does with what it is granted is in [`super::shares`].

use std::collections::BTreeMap;
use std::sync::Arc;

use savanna_control::drained::{drained, expectations};
use savanna_control::failover::GRANTS_PER_BATCH;
use savanna_control::{Decision, Intent, Loads, Stuck, step};
use savanna_epoch::{OwnerEpoch, ShardId};
use savanna_keys::cluster::owners::striped;
use savanna_keys::cluster::table::{Step, Table, VIRTUAL_NODES};
use savanna_ownership::{
    Batch, ClusterView, CoordinatorError, Revision, RootChange, RootValue, ShardRecord, Tenure, Transition,
};

use super::databases::Told;
use super::grants::PERIOD;
use super::key_moves::Planner;
use super::{Joined, services_of};

/// The service, also in the names of logs.
pub(super) const SERVICE: &str = "keys";
/// What the shards of virtual nodes begin with.
pub(super) const PREFIX: &str = "keys/v/";
/// The root of a cluster whose keys are spread.
const ROOT: &str = "keys/spread";

/// The shard of a virtual node.
pub(crate) fn shard(node: u16) -> ShardId {
    ShardId::new(format!("{PREFIX}{node}"))
}

/// The virtual node of a shard, if it is one's.
pub(crate) fn node_of(shard: &ShardId) -> Option<u16> {
    let number = shard.0.strip_prefix(PREFIX)?;
    number.parse().ok().filter(|node| *node < VIRTUAL_NODES)
}

/// Whether each node of the cluster has some of the keys.
pub(crate) fn are_spread(view: &ClusterView) -> bool {
    view.root(ROOT).is_some()
}

/// Says that the keys are spread; to be proposed with the first grant of the shard of keys.
pub(super) fn say_spread() -> RootChange {
    RootChange { key: ROOT.to_owned(), expected: Revision::NONE, value: Some(RootValue(b"1".to_vec())) }
}

/// Whether there are records of all virtual nodes.
pub(super) fn are_all_there(view: &ClusterView) -> bool {
    view.shards(PREFIX).count() == usize::from(VIRTUAL_NODES)
}

/// Whether a node is to have some.
pub(super) fn is_host(view: &ClusterView, tenure: &Tenure) -> bool {
    view.node(&tenure.node).is_some_and(|node| services_of(node).any(|service| service == SERVICE))
}

/// The records that are missing, in even shares of the nodes that are there; of those that are drained only if there are no others.
fn first_records(view: &ClusterView) -> Vec<Batch> {
    let missing: Vec<u16> = (0..VIRTUAL_NODES).filter(|node| view.shard(&shard(*node)).is_none()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let drained = drained(view);
    let hosts = view.nodes().map(|node| &node.tenure).filter(|tenure| is_host(view, tenure));
    let (last, hosts): (Vec<&Tenure>, Vec<&Tenure>) = hosts.partition(|tenure| drained.contains(&tenure.node));
    let mut table = Table::default();
    let members = if hosts.is_empty() { last } else { hosts };
    members.into_iter().for_each(|tenure| table.join(tenure.clone()));
    let claims = table.plan().into_iter().filter_map(|step| match step {
        Step::Claim { node, by } => Some((striped(node.0), by)),
        Step::Move { .. } => None,
    });
    let owners: BTreeMap<u16, Tenure> = claims.collect();
    let record = |node: &u16| {
        let record = ShardRecord::serving(owners.get(node)?.clone(), OwnerEpoch::NONE.next());
        Some(Transition { shard: shard(*node), expected: Revision::NONE, record, by: None })
    };
    in_batches(view, missing.iter().filter_map(record).collect())
}

fn in_batches(view: &ClusterView, transitions: Vec<Transition>) -> Vec<Batch> {
    let batch = |some: &[Transition]| Batch {
        transitions: some.to_vec(),
        expects: expectations(view, some),
        ..Batch::default()
    };
    transitions.chunks(GRANTS_PER_BATCH).map(batch).collect()
}

/// What is to be done about the virtual nodes and logs of nodes that are gone, and what cannot be.
fn due(view: &ClusterView) -> Decision {
    let others = view.nodes().map(|node| &node.tenure).filter(|tenure| !is_host(view, tenure));
    let closed = others.map(|tenure| tenure.node.clone()).collect();
    let loads = Loads { closed, drained: drained(view), prefix: PREFIX.to_owned(), ..Loads::default() };
    let Decision { mut intents, mut stuck } = step(view, &loads);
    intents.retain(|intent| match intent {
        Intent::Grant { batch, .. } => batch.transitions.iter().all(|transition| node_of(&transition.shard).is_some()),
        intent => intent.log().is_some_and(|log| log.service == SERVICE),
    });
    stuck.retain(|shard, _| node_of(shard).is_some());
    Decision { intents, stuck }
}

impl Joined {
    /// Sees to the virtual nodes of keys, while this node has the shard of keys.
    pub(crate) async fn control_keys(self: Arc<Self>, may_move: bool) {
        let (mut view, keys) = (self.view.clone(), ShardId::new(SERVICE));
        let (mut told, mut stuck_before) = (Told::default(), BTreeMap::new());
        let mut planner = Planner::default();
        loop {
            let now = view.now();
            let is_controller = now.shard(&keys).is_some_and(|record| record.value.epoch_of(&self.tenure).is_some());
            if is_controller && are_spread(&now) {
                if !are_all_there(&now) {
                    self.make_records(&now).await;
                }
                let Decision { intents, stuck } = due(&now);
                let is_settled = intents.is_empty() && stuck.is_empty();
                if stuck != stuck_before {
                    tell_stuck(&stuck);
                    stuck_before = stuck;
                }
                told.failed(self.carry_out(&now, intents).await);
                if may_move && is_settled && self.guard.serving() {
                    planner.begin(&self, &now);
                }
            }
            tokio::select! {
                _ = tokio::time::timeout(PERIOD, view.changed()) => {}
                () = planner.ended() => {}
            }
        }
    }

    async fn make_records(&self, view: &ClusterView) {
        let mut made = Revision::NONE;
        for batch in first_records(view) {
            match self.coordinator.apply(&batch).await {
                Ok(revision) => made = revision,
                // The view is behind.
                Err(CoordinatorError::Conflict { .. }) => {}
                Err(error) => tracing::warn!(%error, "virtual nodes of keys have no owner yet; it is tried again"),
            }
        }
        if made != Revision::NONE {
            self.view.clone().until(|view| view.revision() >= made).await;
        }
    }
}

fn tell_stuck(stuck: &BTreeMap<ShardId, Stuck>) {
    if let Some((shard, why)) = stuck.first_key_value() {
        let count = stuck.len();
        tracing::error!(count, %shard, ?why, "virtual nodes of keys of a node that is gone find no node; `savanna shards` shows them");
    }
}

/// Makes the records of a cluster in a test.
#[cfg(test)]
pub(super) fn first_shares(cluster: &mut super::grants::tests::Cluster) {
    for batch in first_records(&cluster.view()) {
        cluster.propose(batch);
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::LogId;
    use savanna_ownership::core::Request;
    use savanna_ownership::logs::{self, LogPlace, NewLog};
    use savanna_ownership::{History, MonoTime};

    use super::super::grants::tests::{ALL, Cluster};
    use super::*;

    impl Cluster {
        pub(in super::super) fn propose(&mut self, batch: Batch) {
            self.0.step(&Request::Apply(batch), MonoTime(0)).reply.unwrap();
        }

        /// A node says that all its virtual nodes are in a log of its own.
        fn take_all(&mut self, owner: &Tenure) -> LogId {
            let new = NewLog::numbered(&owner.node, SERVICE, &(1..2)).unwrap();
            let log = new.id().clone();
            let place = LogPlace::Folder(format!("keys-logs/{log}"));
            let begun = logs::begin(&self.view(), new, place, owner.clone()).unwrap();
            self.propose(begun.into());
            let view = self.view();
            let own = view.shards(PREFIX).filter(|(_, record)| record.value.owner() == Some(owner));
            let taken: Vec<Transition> = own
                .map(|(shard, record)| Transition {
                    shard: shard.clone(),
                    expected: record.version,
                    record: record
                        .value
                        .clone()
                        .with_history(Some(History { log: log.clone(), epoch: record.value.epoch })),
                    by: Some(owner.clone()),
                })
                .collect();
            for some in taken.chunks(GRANTS_PER_BATCH) {
                self.propose(Batch { transitions: some.to_vec(), ..Batch::default() });
            }
            log
        }

        fn shares(&self) -> BTreeMap<String, usize> {
            let mut shares = BTreeMap::new();
            for (_, record) in self.view().shards(PREFIX) {
                let owner = record.value.owner().unwrap();
                *shares.entry(format!("{}@{}", owner.node, record.value.epoch)).or_default() += 1;
            }
            shares
        }
    }

    fn spread() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.join("n1", ALL);
        cluster.join("n2", "tenants");
        cluster.join("n3", ALL);
        cluster.join("n4", ALL);
        cluster.propose(say_spread().into());
        cluster
    }

    #[test]
    fn a_cluster_is_made_with_even_shares_of_the_nodes_that_serve_keys() {
        let mut cluster = spread();
        assert!(are_spread(&cluster.view()) && !are_all_there(&cluster.view()));
        // Another controller goes on where the first one ended.
        let first = first_records(&cluster.view()).remove(0);
        cluster.propose(first);
        for batch in first_records(&cluster.view()) {
            cluster.propose(batch);
        }
        assert!(are_all_there(&cluster.view()) && first_records(&cluster.view()).is_empty());
        let shares = cluster.shares();
        assert_eq!(shares.keys().collect::<Vec<_>>(), ["n1@1", "n3@1", "n4@1"]);
        assert!(shares.values().all(|share| [341, 342].contains(share)), "{shares:?}");
    }

    #[test]
    fn what_a_node_had_that_is_gone_is_shared_out_when_its_log_has_ended() {
        let mut cluster = spread();
        for batch in first_records(&cluster.view()) {
            cluster.propose(batch);
        }
        let lost = cluster.view().nodes().find(|node| node.tenure.node.0 == "n3").unwrap().tenure.clone();
        let log = cluster.take_all(&lost);
        assert_eq!(due(&cluster.view()), Decision::default());
        cluster.leave(lost);
        let intents = due(&cluster.view()).intents;
        let [Intent::SealRecord { change, .. }] = &intents[..] else { panic!("its record first, came {intents:?}") };
        cluster.propose(change.clone().into());
        let mut intents = due(&cluster.view()).intents.into_iter();
        assert!(matches!(intents.next(), Some(Intent::SealLog { is_needed: true, .. })), "then the log");
        for intent in intents {
            let Intent::Grant { batch, log: Some(of) } = intent else { panic!("grants, came {intent:?}") };
            assert_eq!(of, log);
            cluster.propose(batch);
        }
        let shares = cluster.shares();
        assert_eq!(shares["n1@1"] + shares["n1@2"], 512);
        assert_eq!(shares["n4@1"] + shares["n4@2"], 512);
        let named = |view: &ClusterView| logs::shards_in(view, &log).count();
        assert_eq!(named(&cluster.view()), shares["n1@2"] + shares["n4@2"], "it is still where their keys are");
        for node in ["n1", "n4"] {
            let heir = cluster.view().nodes().find(|record| record.tenure.node.0 == node).unwrap().tenure.clone();
            cluster.take_all(&heir);
        }
        let intents = due(&cluster.view()).intents;
        assert!(
            matches!(
                &intents[..],
                [Intent::SealLog { is_needed: false, .. }, Intent::DeleteLog { .. }, Intent::ForgetLog { .. }]
            ),
            "nobody needs it any more, came {intents:?}"
        );
    }
}
