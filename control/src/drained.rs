//! Nodes that get nothing new, as somebody wants to stop them.
//!
//! That a node is drained is a record of the cluster, root `drained/NODE`, and names the *tenure* that is: a process of the node that starts again has another
//! one, and is not drained. Whoever decides where something goes looks there, and passes the node by as long as there is any other: what has no node would serve nobody.
//!
//! It is a fence: what gives a node something new is proposed with the [`expectation`] that nobody has said otherwise since the look, so that the coordinator refuses
//! what an old view has decided. What had begun before is in the records by then, and whoever drains the node sees it there.

use std::collections::BTreeSet;

use savanna_epoch::NodeId;
use savanna_ownership::{
    Batch, ClusterView, Expected, Revision, RootChange, RootExpectation, RootValue, Tenure, Transition,
};

/// What the keys of these roots begin with.
const PREFIX: &str = "drained/";

/// Whether a tenure gets nothing new. A record that cannot be read says nothing.
#[must_use]
pub fn is_drained(view: &ClusterView, tenure: &Tenure) -> bool {
    let root = view.root(&key(&tenure.node));
    root.is_some_and(|root| serde_json::from_slice::<Tenure>(&root.value.0).is_ok_and(|drained| drained == *tenure))
}

/// The nodes that get nothing new, of those that live.
#[must_use]
pub fn drained(view: &ClusterView) -> BTreeSet<NodeId> {
    let drained = view.nodes().filter(|node| is_drained(view, &node.tenure));
    drained.map(|node| node.tenure.node.clone()).collect()
}

/// Why a node is not drained, or not filled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not live.
    Absent,
    /// No other node takes anything: what is new would have no other place.
    Last,
}

/// What to propose so that a node that lives gets nothing new, or something again; nothing if that is so. `takes` says which nodes could get something: if this one could,
/// one of the others has to, which is not drained, nor by whoever drains it at the same moment.
///
/// # Errors
/// [`Refusal`].
pub fn change(
    view: &ClusterView,
    node: &NodeId,
    is_drained: bool,
    takes: impl Fn(&Tenure) -> bool,
) -> Result<Option<Batch>, Refusal> {
    let tenure = &view.node(node).ok_or(Refusal::Absent)?.tenure;
    if self::is_drained(view, tenure) == is_drained {
        return Ok(None);
    }
    let (key, expected) = (key(node), version(view, node));
    if !is_drained {
        return Ok(Some(RootChange { key, expected, value: None }.into()));
    }
    let mut expects = Vec::new();
    if takes(tenure) {
        let mut others = view.nodes().map(|other| &other.tenure).filter(|other| other.node != *node);
        let open = others.find(|other| takes(other) && !self::is_drained(view, other)).ok_or(Refusal::Last)?;
        expects.push(expectation(view, &open.node));
    }
    let value = Some(RootValue(serde_json::to_vec(tenure).expect("a tenure is a name and a number")));
    Ok(Some(Batch { roots: vec![RootChange { key, expected, value }], expects, ..Batch::default() }))
}

/// What has to be so still when a node gets something by this view: nobody has drained it since, nor filled it again.
#[must_use]
pub fn expectation(view: &ClusterView, node: &NodeId) -> RootExpectation {
    RootExpectation { key: key(node), expected: Expected::Version(version(view, node)) }
}

/// What has to be so still when these are granted by this view: the same of each node that gets something.
#[must_use]
pub fn expectations(view: &ClusterView, grants: &[Transition]) -> Vec<RootExpectation> {
    let owners = grants.iter().filter_map(|grant| grant.record.owner());
    let nodes: BTreeSet<_> = owners.map(|owner| &owner.node).collect();
    nodes.into_iter().map(|node| expectation(view, node)).collect()
}

/// What to propose so that nothing is left of drains whose tenure is over, which say nothing any more. What cannot be read stays: it may be a later release's.
pub fn ended(view: &ClusterView) -> impl Iterator<Item = RootChange> {
    let ended = view.roots(PREFIX).filter(move |(_, root)| {
        let drained = serde_json::from_slice::<Tenure>(&root.value.0);
        drained.is_ok_and(|drained| !view.lives(&drained))
    });
    ended.map(|(key, root)| RootChange { key: key.to_owned(), expected: root.version, value: None })
}

fn version(view: &ClusterView, node: &NodeId) -> Revision {
    view.root(&key(node)).map_or(Revision::NONE, |root| root.version)
}

fn key(node: &NodeId) -> String {
    format!("{PREFIX}{node}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use savanna_epoch::{OwnerEpoch, ShardId};
    use savanna_ownership::core::{CoordinatorCore, Reply, Request};
    use savanna_ownership::{Incarnation, MonoTime, NodeSpec, ShardRecord};

    use super::*;

    struct Cluster(CoordinatorCore);

    impl Cluster {
        fn join(&mut self, name: &str) -> Tenure {
            let (name, labels) = (NodeId::new(name), BTreeMap::new());
            let spec = NodeSpec { name, incarnation: Incarnation(1), address: String::new(), labels };
            match self.0.step(&Request::Register(spec), MonoTime(0)).reply {
                Ok(Reply::Granted(grant)) => grant.tenure,
                other => panic!("expected a grant, came {other:?}"),
            }
        }

        fn view(&self) -> ClusterView {
            ClusterView::new(self.0.snapshot())
        }

        /// What makes a node so, where all nodes take something.
        fn change(&self, node: &str, is_drained: bool) -> Result<Option<Batch>, Refusal> {
            change(&self.view(), &NodeId::new(node), is_drained, |_| true)
        }

        fn apply(&mut self, batch: impl Into<Batch>) -> bool {
            self.0.step(&Request::Apply(batch.into()), MonoTime(0)).reply.is_ok()
        }

        /// Proposes what makes a node so, if there is anything to do.
        fn make(&mut self, node: &str, is_drained: bool) -> bool {
            let change = self.change(node, is_drained).expect("it lives");
            let is_new = change.is_some();
            if let Some(change) = change {
                assert!(self.apply(change));
            }
            is_new
        }

        fn drained(&self) -> Vec<String> {
            drained(&self.view()).into_iter().map(|node| node.0).collect()
        }
    }

    #[test]
    fn a_node_is_drained_until_that_is_undone_or_it_starts_again() {
        let mut cluster = Cluster(CoordinatorCore::new(Duration::from_secs(3600)));
        let [_, b] = ["a", "b"].map(|name| cluster.join(name));
        assert!(cluster.drained().is_empty() && !cluster.make("b", false));
        assert!(cluster.make("b", true) && !cluster.make("b", true));
        assert_eq!(cluster.drained(), ["b"]);
        assert!(cluster.make("b", false));
        assert!(cluster.drained().is_empty());
        assert!(cluster.make("b", true));
        cluster.0.step(&Request::Deregister(b), MonoTime(0)).reply.unwrap();
        assert_eq!(cluster.change("b", true), Err(Refusal::Absent), "it does not live");
        assert!(cluster.drained().is_empty());
        cluster.join("b");
        assert!(cluster.drained().is_empty(), "another process");
        assert!(cluster.make("b", true));
        assert_eq!(cluster.drained(), ["b"]);
    }

    #[test]
    fn a_record_that_cannot_be_read_says_nothing_and_is_written_over() {
        let mut cluster = Cluster(CoordinatorCore::new(Duration::from_secs(3600)));
        let _ = ["a", "b"].map(|name| cluster.join(name));
        let value = Some(RootValue(b"a later release".to_vec()));
        let odd = RootChange { key: "drained/a".to_owned(), expected: Revision::NONE, value };
        assert!(cluster.apply(odd));
        assert!(cluster.drained().is_empty());
        assert_eq!(ended(&cluster.view()).count(), 0, "it may be a later release's");
        assert!(cluster.make("a", true));
        assert_eq!(cluster.drained(), ["a"]);
    }

    #[test]
    fn the_last_node_that_takes_anything_is_not_drained_nor_are_two_that_are_the_last_two_at_once() {
        let mut cluster = Cluster(CoordinatorCore::new(Duration::from_secs(3600)));
        let _ = ["a", "b", "c"].map(|name| cluster.join(name));
        // `c` takes nothing.
        let drain = |cluster: &Cluster, node: &str| {
            change(&cluster.view(), &NodeId::new(node), true, |tenure| tenure.node.0 != "c")
        };
        let [a, b] = ["a", "b"].map(|node| drain(&cluster, node).unwrap().unwrap());
        assert!(cluster.apply(a));
        assert!(!cluster.apply(b), "each has counted on the other");
        assert_eq!(drain(&cluster, "b"), Err(Refusal::Last));
        assert_eq!(drain(&cluster, "a"), Ok(None), "that is so already");
        assert!(drain(&cluster, "c").unwrap().is_some(), "it takes nothing anyway");
        assert!(cluster.make("a", false));
        let b = drain(&cluster, "b").unwrap().unwrap();
        assert!(cluster.apply(b));
        assert_eq!(cluster.drained(), ["b"]);
    }

    #[test]
    fn a_node_that_takes_nothing_is_drained_whoever_else_does() {
        let mut cluster = Cluster(CoordinatorCore::new(Duration::from_secs(3600)));
        let _ = ["a", "b"].map(|name| cluster.join(name));
        for name in ["a", "b"] {
            let nobody = change(&cluster.view(), &NodeId::new(name), true, |_| false).unwrap().unwrap();
            assert!(nobody.expects.is_empty());
            assert!(cluster.apply(nobody));
        }
        assert_eq!(cluster.drained(), ["a", "b"]);
    }

    #[test]
    fn what_an_old_view_gives_to_a_node_that_was_drained_meanwhile_is_refused() {
        let mut cluster = Cluster(CoordinatorCore::new(Duration::from_secs(3600)));
        let [a, b] = ["a", "b"].map(|name| cluster.join(name));
        let old = cluster.view();
        let grant = |number: u64, to: &Tenure| {
            let record = ShardRecord::serving(to.clone(), OwnerEpoch(1));
            let shard = ShardId::new(format!("tenants/{number}"));
            Transition { shard, expected: Revision::NONE, record, by: None }
        };
        let batch = |view: &ClusterView, transitions: &[Transition]| Batch {
            transitions: transitions.to_vec(),
            expects: expectations(view, transitions),
            ..Batch::default()
        };
        let both = batch(&old, &[grant(1, &a), grant(2, &b), grant(3, &b)]);
        assert_eq!(both.expects.len(), 2, "each node once");
        assert!(cluster.make("b", true));
        assert!(!cluster.apply(both), "all of it is decided anew");
        let to_a = batch(&old, &[grant(1, &a)]);
        assert!(cluster.apply(to_a), "of this one nobody has said anything");
        // Rather there than nowhere, by who knows of it.
        let knowing = batch(&cluster.view(), &[grant(2, &b)]);
        assert!(cluster.apply(knowing));
    }

    #[test]
    fn nothing_is_left_of_a_drain_whose_tenure_is_over() {
        let mut cluster = Cluster(CoordinatorCore::new(Duration::from_secs(3600)));
        let [_, b, c] = ["a", "b", "c"].map(|name| cluster.join(name));
        assert!(cluster.make("b", true) && cluster.make("c", true));
        assert_eq!(ended(&cluster.view()).count(), 0, "both are drained");
        for tenure in [&b, &c] {
            cluster.0.step(&Request::Deregister(tenure.clone()), MonoTime(0)).reply.unwrap();
        }
        cluster.join("c");
        let old: Vec<_> = ended(&cluster.view()).collect();
        assert_eq!(old.iter().map(|root| root.key.as_str()).collect::<Vec<_>>(), ["drained/b", "drained/c"]);
        assert!(cluster.make("c", true));
        let results: Vec<_> = old.into_iter().map(|root| cluster.apply(root)).collect();
        assert_eq!(results, [true, false], "the next process of the node was drained meanwhile");
        assert_eq!(cluster.drained(), ["c"]);
        assert_eq!(ended(&cluster.view()).count(), 0);
    }
}
