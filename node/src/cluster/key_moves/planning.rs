//! Which virtual nodes are to move, so that all nodes have alike many: decided on the node that has the shard of keys, from the records alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use savanna_control::drained::drained;
use savanna_epoch::NodeId;
use savanna_keys::cluster::owners::striped;
use savanna_keys::cluster::table::{Step, Table, VIRTUAL_NODES};
use savanna_ownership::{ClusterView, Exclusive, Ownership, Tenure, VirtualNode};
use tokio::task::JoinSet;

use super::NotMoved;
use crate::cluster::Joined;
use crate::cluster::virtual_nodes::{PREFIX, is_host, node_of, shard};

/// So many are on their way between two nodes at once.
const BETWEEN_TWO: usize = 4;
/// Between two nodes nothing is moved for this time when something has stayed.
const PAUSE: Duration = Duration::from_secs(1);

/// A virtual node that is to go to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Planned {
    node: u16,
    from: NodeId,
    to: NodeId,
}

/// Two nodes, in order.
fn pair(one: &NodeId, other: &NodeId) -> (NodeId, NodeId) {
    let (one, other) = (one.clone(), other.clone());
    if one < other { (one, other) } else { (other, one) }
}

/// All moves that lead to even shares of the nodes that get something: those that are drained have none then, unless there are no others. None
/// while a virtual node is without an owner who lives.
fn planned(view: &ClusterView) -> Vec<Planned> {
    let is_drained = drained(view);
    let hosts = || view.nodes().map(|node| &node.tenure).filter(|tenure| is_host(view, tenure));
    let mut table: Table<Tenure> = Table::default();
    hosts().filter(|tenure| !is_drained.contains(&tenure.node)).for_each(|tenure| table.join(tenure.clone()));
    if table.members().is_empty() {
        return Vec::new();
    }
    // Places are shared out in the order in which the first shares were: what stays is all over the space of hashes.
    for place in 0..VIRTUAL_NODES {
        let Some(record) = view.shard(&shard(striped(place))) else { return Vec::new() };
        let Some(owner) = record.value.owner().filter(|owner| view.lives(owner)) else { return Vec::new() };
        let node = VirtualNode(place);
        let _ = table.learn(node, owner.clone(), record.value.epoch);
        if let Ownership::Exclusive(Exclusive::Moving { to, .. }) = &record.value.ownership {
            // One that goes to a node that gets nothing any more stays, and is looked at then.
            let _ = table.announce(node, to.clone());
        }
    }
    let owner = |node: u16| view.shard(&shard(node)).and_then(|record| record.value.owner().cloned());
    let moves = table.plan().into_iter().filter_map(|step| match step {
        Step::Move { node, to } => {
            let node = striped(node.0);
            Some(Planned { node, from: owner(node)?.node, to: to.node })
        }
        Step::Claim { .. } => None,
    });
    moves.collect()
}

/// How many virtual nodes are on their way between nodes, as the records say.
fn on_their_way(view: &ClusterView) -> BTreeMap<(NodeId, NodeId), Vec<u16>> {
    let mut all: BTreeMap<_, Vec<u16>> = BTreeMap::new();
    for (shard, record) in view.shards(PREFIX) {
        if let (Some(node), Ownership::Exclusive(Exclusive::Moving { from, to })) =
            (node_of(shard), &record.value.ownership)
        {
            all.entry(pair(&from.node, &to.node)).or_default().push(node);
        }
    }
    all
}

/// The moves that were asked for and have not ended.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Planner {
    asked: JoinSet<(Planned, bool)>,
    under_way: Vec<Planned>,
    /// Those that have happened, and when: a view may not show it yet.
    moved: Vec<(Planned, Instant)>,
    /// Between which nodes something has stayed, and when.
    stayed: BTreeMap<(NodeId, NodeId), Instant>,
}

impl Planner {
    /// Which moves are to begin now.
    fn next(&self, view: &ClusterView, now: Instant) -> Vec<Planned> {
        let mut between = on_their_way(view);
        for Planned { node, from, to } in &self.under_way {
            let known = between.entry(pair(from, to)).or_default();
            if !known.contains(node) {
                known.push(*node);
            }
        }
        let mut next = Vec::new();
        for planned in planned(view) {
            let between_these = pair(&planned.from, &planned.to);
            let waits = self.stayed.get(&between_these).is_some_and(|since| now.duration_since(*since) < PAUSE);
            let moved =
                self.moved.iter().filter(|(_, since)| now.duration_since(*since) < PAUSE).map(|(moved, _)| moved);
            let is_under_way = self.under_way.iter().chain(moved).any(|other| other.node == planned.node);
            let known = between.entry(between_these).or_default();
            if !waits && !is_under_way && known.len() < BETWEEN_TWO {
                known.push(planned.node);
                next.push(planned);
            }
        }
        next
    }

    /// Begins what is to be moved by now.
    pub(in crate::cluster) fn begin(&mut self, joined: &Arc<Joined>, view: &ClusterView) {
        for planned in self.next(view, Instant::now()) {
            self.under_way.push(planned.clone());
            let joined = Arc::clone(joined);
            self.asked.spawn(async move {
                let has_moved = match joined.move_keys(planned.node, &planned.to).await {
                    Ok(report) => report.stayed.is_none(),
                    Err(NotMoved::Absent(why) | NotMoved::Refused(why) | NotMoved::Unknown(why)) => {
                        tracing::info!(node = planned.node, to = %planned.to, why, "a virtual node of keys stays for now");
                        false
                    }
                };
                (planned, has_moved)
            });
        }
    }

    /// Waits until one has ended; for ever if none is under way.
    pub(in crate::cluster) async fn ended(&mut self) {
        match self.asked.join_next().await {
            None => std::future::pending().await,
            Some(Err(error)) => {
                tracing::error!(%error, "a move of a virtual node of keys has ended in the midst");
                self.under_way.clear();
            }
            Some(Ok((planned, has_moved))) => {
                self.under_way.retain(|other| *other != planned);
                self.moved.retain(|(_, since)| since.elapsed() < PAUSE);
                if has_moved {
                    self.moved.push((planned, Instant::now()));
                } else {
                    self.stayed.insert(pair(&planned.from, &planned.to), Instant::now());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::super::grants::tests::{ALL, Cluster};
    use super::super::super::virtual_nodes::first_shares;
    use super::*;

    #[test]
    fn who_joins_gets_its_share_four_at_a_time_from_each_and_who_is_drained_has_none_then() {
        let mut cluster = Cluster::new();
        for name in ["n1", "n2", "n3"] {
            cluster.join(name, ALL);
        }
        first_shares(&mut cluster);
        assert_eq!(planned(&cluster.view()), [], "they are even");
        cluster.join("n4", ALL);
        let all = planned(&cluster.view());
        assert_eq!(all.len(), 256);
        assert!(all.iter().all(|planned| planned.to.0 == "n4"));
        let mut planner = Planner::default();
        let next = planner.next(&cluster.view(), Instant::now());
        let from = |name: &str| next.iter().filter(|planned| planned.from.0 == name).count();
        assert_eq!([from("n1"), from("n2"), from("n3")], [BETWEEN_TWO; 3]);
        planner.under_way = next;
        assert_eq!(planner.next(&cluster.view(), Instant::now()), []);
        let ended = planner.under_way.remove(0);
        let again = planner.next(&cluster.view(), Instant::now());
        assert_eq!(again.len(), 1);
        planner.stayed.insert(pair(&ended.from, &ended.to), Instant::now());
        assert_eq!(planner.next(&cluster.view(), Instant::now()), [], "not at once");
        let drain = savanna_control::drained::change(&cluster.view(), &NodeId::new("n1"), true, |_| true);
        cluster.propose(drain.unwrap().unwrap());
        let leaving: BTreeSet<u16> = planned(&cluster.view())
            .into_iter()
            .filter(|planned| planned.from.0 == "n1")
            .map(|planned| planned.node)
            .collect();
        let had =
            cluster.view().shards("keys/v/").filter(|(_, record)| record.value.owner().unwrap().node.0 == "n1").count();
        assert_eq!(leaving.len(), had, "all of them");
        assert!(planned(&cluster.view()).iter().all(|planned| planned.to.0 != "n1"));
    }
}
