//! Nodes that get nothing new, as somebody wants to stop them.
//!
//! That a node is drained is a record of the cluster, root `drained/NODE`, and names the *tenure* that is: a process of the node that starts again has another
//! one, and is not drained. Whoever decides where something goes looks there, and passes the node by as long as there is any other: what has no node would serve nobody.

use std::collections::BTreeSet;

use savanna_epoch::NodeId;
use savanna_ownership::{ClusterView, Revision, RootChange, RootValue, Tenure};

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

/// What to propose so that a node that lives gets nothing new, or something again; nothing if that is so. None if it does not live.
#[must_use]
pub fn change(view: &ClusterView, node: &NodeId, is_drained: bool) -> Option<Option<RootChange>> {
    let tenure = &view.node(node)?.tenure;
    if self::is_drained(view, tenure) == is_drained {
        return Some(None);
    }
    let key = key(node);
    let expected = view.root(&key).map_or(Revision::NONE, |root| root.version);
    let value = if is_drained { Some(RootValue(serde_json::to_vec(tenure).ok()?)) } else { None };
    Some(Some(RootChange { key, expected, value }))
}

fn key(node: &NodeId) -> String {
    format!("{PREFIX}{node}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use savanna_ownership::core::{CoordinatorCore, Reply, Request};
    use savanna_ownership::{Incarnation, MonoTime, NodeSpec};

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

        /// Proposes what makes a node so, if there is anything to do.
        fn make(&mut self, node: &str, is_drained: bool) -> bool {
            let change = change(&self.view(), &NodeId::new(node), is_drained).expect("it lives");
            let is_new = change.is_some();
            if let Some(change) = change {
                self.0.step(&Request::Apply(change.into()), MonoTime(0)).reply.unwrap();
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
        assert_eq!(change(&cluster.view(), &NodeId::new("b"), true), None, "it does not live");
        assert!(cluster.drained().is_empty());
        cluster.join("b");
        assert!(cluster.drained().is_empty(), "another process");
        assert!(cluster.make("b", true));
        assert_eq!(cluster.drained(), ["b"]);
    }

    #[test]
    fn a_record_that_cannot_be_read_says_nothing_and_is_written_over() {
        let mut cluster = Cluster(CoordinatorCore::new(Duration::from_secs(3600)));
        cluster.join("a");
        let value = Some(RootValue(b"a later release".to_vec()));
        let odd = RootChange { key: "drained/a".to_owned(), expected: Revision::NONE, value };
        cluster.0.step(&Request::Apply(odd.into()), MonoTime(0)).reply.unwrap();
        assert!(cluster.drained().is_empty());
        assert!(cluster.make("a", true));
        assert_eq!(cluster.drained(), ["a"]);
    }
}
