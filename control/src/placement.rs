//! Which node gets a shard: one that lost its node, or one that is new.
//!
//! The node that is least busy gets it. Nodes that differ by little are alike, and of these the one with fewest shards gets it. What a node has got by
//! the same decision counts from then on, and a shard that does nothing counts a little: so that the many shards of a node that is gone are spread.
//! While one of the nodes has not said what it does, the numbers of shards decide alone: nobody knows whether it is idle or too busy to say so.
//! A node that is drained gets none while there is another one.

use std::collections::{BTreeMap, BTreeSet};

use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::{ClusterView, Tenure};

use crate::load::Loads;

/// A shard weighs at least so much: a two-hundredth of a core.
pub const SHARD_MIN: u64 = 5_000;
/// Nodes whose loads differ by less are alike: a twentieth of a core.
pub const ALIKE: u64 = 50_000;

/// Where shards go.
#[derive(Debug)]
pub struct Placement<'v> {
    loads: &'v Loads,
    /// What a shard weighs of which nothing is known.
    expected: u64,
    /// Whether all nodes have said what they do.
    are_known: bool,
    nodes: BTreeMap<&'v Tenure, Has>,
}

/// What a node has, with what it has got by now.
#[derive(Clone, Copy, Debug, Default)]
struct Has {
    load: u64,
    shards: u64,
}

impl Has {
    const fn get(&mut self, load: u64) {
        self.load = self.load.saturating_add(load);
        self.shards += 1;
    }
}

impl<'v> Placement<'v> {
    /// What the nodes have that take shards, by the view and by what they say.
    #[must_use]
    pub fn new(view: &'v ClusterView, loads: &'v Loads) -> Self {
        let open: Vec<_> =
            view.nodes().map(|node| &node.tenure).filter(|tenure| !loads.closed.contains(&tenure.node)).collect();
        let is_drained = |tenure: &&Tenure| loads.drained.contains(&tenure.node);
        let are_all_drained = open.iter().all(is_drained);
        let open = open.into_iter().filter(|tenure| are_all_drained || !is_drained(tenure));
        let beside = |tenure: &Tenure| loads.nodes.get(&tenure.node).copied();
        let has = |tenure: &'v Tenure| (tenure, Has { load: beside(tenure).unwrap_or_default(), shards: 0 });
        let nodes: BTreeMap<_, _> = open.map(has).collect();
        let are_known = nodes.keys().all(|tenure| beside(tenure).is_some());
        let mut placement = Self { loads, expected: expected(loads), are_known, nodes };
        for (shard, record) in view.shards(&loads.prefix) {
            if let Some(owner) = record.value.owner() {
                placement.gives(owner, Some(shard));
            }
        }
        placement
    }

    /// The node that gets a shard, or one that there is not yet; none if no node takes any. Of those that are alike in everything, it is `rather`.
    pub fn place(&mut self, shard: Option<&ShardId>, rather: Option<&NodeId>) -> Option<&'v Tenure> {
        let least = self.nodes.values().map(|has| has.load).min()?;
        let is_alike = |has: &Has| !self.are_known || has.load - least < ALIKE;
        let alike = self.nodes.iter().filter(|(_, has)| is_alike(has));
        let to = alike.min_by_key(|(tenure, has)| (has.shards, rather != Some(&tenure.node), **tenure));
        let to = *to?.0;
        self.gives(to, shard);
        Some(to)
    }

    /// A node gets a shard, whoever has said so.
    pub fn gives(&mut self, to: &Tenure, shard: Option<&ShardId>) {
        let load = shard.map_or(self.expected, |shard| self.load_of(shard));
        if let Some(has) = self.nodes.get_mut(to) {
            has.get(load);
        }
    }

    fn load_of(&self, shard: &ShardId) -> u64 {
        self.loads.shards.get(shard).map_or(self.expected, |load| (*load).max(SHARD_MIN))
    }
}

/// What a shard is expected to do of which nothing is known: what others do on average.
fn expected(loads: &Loads) -> u64 {
    let sum = loads.shards.values().fold(0_u64, |sum, load| sum.saturating_add(*load));
    sum.checked_div(loads.shards.len() as u64).unwrap_or_default().max(SHARD_MIN)
}

/// The tenure that is to have a new shard: of the nodes that take any; of those that are alike, `here` rather than another.
#[must_use]
pub fn host_for_new<'v>(view: &'v ClusterView, loads: &'v Loads, here: &NodeId) -> Option<&'v Tenure> {
    Placement::new(view, loads).place(None, Some(here))
}

/// The same loads for a shard that some nodes did not take. One that gets nothing new does not get it instead.
#[must_use]
pub fn without(view: &ClusterView, mut loads: Loads, failed: &BTreeSet<NodeId>) -> Loads {
    let nodes = view.nodes().map(|node| &node.tenure.node);
    let others = nodes.filter(|node| failed.contains(*node) || !takes_new(view, &loads, node));
    let others: Vec<_> = others.cloned().collect();
    loads.closed.extend(others);
    loads
}

/// Whether a node gets new shards: it is not drained, or no other node takes any.
#[must_use]
pub fn takes_new(view: &ClusterView, loads: &Loads, node: &NodeId) -> bool {
    let is_open = |other: &NodeId| !loads.closed.contains(other) && !loads.drained.contains(other);
    !loads.drained.contains(node) || !view.nodes().any(|other| is_open(&other.tenure.node))
}

#[cfg(test)]
mod tests {
    use savanna_epoch::{NodeEpoch, OwnerEpoch};
    use savanna_ownership::{Incarnation, NodeRecord, NodeSpec, Revision, ShardRecord, Snapshot, Versioned};

    use super::*;

    /// Half a core.
    const BUSY: u64 = 500_000;

    fn tenure(node: &str) -> Tenure {
        Tenure { node: NodeId::new(node), epoch: NodeEpoch(1) }
    }

    fn shard(number: u64) -> ShardId {
        ShardId::new(format!("tenants/{number}"))
    }

    /// A view with nodes, each with so many shards.
    fn view(nodes: &[(&str, u64)]) -> ClusterView {
        let (mut snapshot, mut numbers) = (Snapshot { revision: Revision(9), ..Snapshot::default() }, 1..);
        for (node, shards) in nodes {
            let (name, labels) = (NodeId::new(*node), BTreeMap::new());
            let spec = NodeSpec { name, incarnation: Incarnation(1), address: String::new(), labels };
            snapshot.nodes.push(NodeRecord::granted(&spec, NodeEpoch(1)));
            for number in numbers.by_ref().take(*shards as usize) {
                let value = ShardRecord::serving(tenure(node), OwnerEpoch(1));
                snapshot.shards.push((shard(number), Versioned { version: Revision(1), value }));
            }
        }
        ClusterView::new(snapshot)
    }

    /// What nodes say of what they do beside shards, and of the first so many shards.
    fn loads(nodes: &[(&str, u64)], shards: &[u64]) -> Loads {
        let nodes = nodes.iter().map(|(node, load)| (NodeId::new(*node), *load)).collect();
        let shards = (1..).zip(shards).map(|(number, load)| (shard(number), *load)).collect();
        Loads { nodes, shards, ..Loads::default() }
    }

    /// Where so many new ones go, in this order.
    fn new_ones(view: &ClusterView, loads: &Loads, count: usize) -> Vec<String> {
        let mut placement = Placement::new(view, loads);
        (0..count).map(|_| placement.place(None, None).unwrap().node.0.clone()).collect()
    }

    fn count(of: &str, nodes: &[String]) -> usize {
        nodes.iter().filter(|node| *node == of).count()
    }

    #[test]
    fn the_node_that_does_least_gets_it_though_it_has_more() {
        let view = view(&[("a", 1), ("b", 3)]);
        assert_eq!(new_ones(&view, &loads(&[("a", 0), ("b", 0)], &[BUSY, 0, 0, 0]), 1), ["b"]);
        assert_eq!(new_ones(&view, &loads(&[("a", BUSY), ("b", 0)], &[0, 0, 0, 0]), 1), ["b"], "keys, perhaps");
    }

    #[test]
    fn of_nodes_that_are_alike_the_one_with_fewest_gets_it_and_then_the_one_that_was_asked() {
        let uneven = view(&[("a", 1), ("b", 3)]);
        let idle = loads(&[("a", ALIKE / 2), ("b", 0)], &[0; 4]);
        assert_eq!(new_ones(&uneven, &idle, 1), ["a"], "what differs by little is noise");
        let even = view(&[("a", 1), ("b", 1)]);
        let here = |node: &str| host_for_new(&even, &idle, &NodeId::new(node)).unwrap().node.0.clone();
        assert_eq!((here("a"), here("b")), ("a".to_owned(), "b".to_owned()));
    }

    #[test]
    fn what_nobody_has_said_leaves_it_to_the_numbers() {
        let view = view(&[("a", 1), ("b", 3)]);
        for silent in [loads(&[("b", 0)], &[BUSY, 0, 0, 0]), loads(&[("a", 0)], &[BUSY]), Loads::default()] {
            assert_eq!(new_ones(&view, &silent, 3), ["a", "a", "a"], "{silent:?}");
        }
        // Who takes none anyway is not waited for.
        let view = self::view(&[("a", 1), ("b", 3), ("c", 0)]);
        let closed = BTreeSet::from([NodeId::new("c")]);
        let known = Loads { closed, ..loads(&[("a", 0), ("b", 0)], &[BUSY, 0, 0, 0]) };
        assert_eq!(new_ones(&view, &known, 1), ["b"]);
    }

    #[test]
    fn a_drained_node_gets_none_while_there_is_another() {
        let view = view(&[("a", 9), ("b", 0)]);
        let drained = |nodes: &[&str]| Loads {
            drained: nodes.iter().copied().map(NodeId::new).collect(),
            ..loads(&[("a", BUSY), ("b", 0)], &[BUSY; 9])
        };
        assert_eq!(new_ones(&view, &drained(&["b"]), 2), ["a", "a"]);
        assert_eq!(host_for_new(&view, &drained(&["b"]), &NodeId::new("b")).unwrap().node.0, "a", "whoever is asked");
        assert_eq!(new_ones(&view, &drained(&["a", "b"]), 1), ["b"], "rather there than nowhere");
        let closed = Loads { closed: BTreeSet::from([NodeId::new("a")]), ..drained(&["b"]) };
        assert_eq!(new_ones(&view, &closed, 1), ["b"], "no other takes any");
        // Who gets none anyway need not have said what it does.
        let silent = Loads { nodes: BTreeMap::from([(NodeId::new("a"), 0)]), ..drained(&["b"]) };
        assert_eq!(new_ones(&view, &silent, 1), ["a"]);
    }

    #[test]
    fn a_drained_node_makes_new_ones_itself_only_where_no_other_takes_any() {
        let view = view(&[("a", 1), ("b", 1)]);
        let takes = |drained: &[&str], closed: &[&str], node: &str| {
            let [drained, closed] = [drained, closed].map(|nodes| nodes.iter().copied().map(NodeId::new).collect());
            takes_new(&view, &Loads { drained, closed, ..Loads::default() }, &NodeId::new(node))
        };
        assert!(takes(&[], &[], "b") && takes(&["a"], &[], "b"));
        assert!(!takes(&["b"], &[], "b"), "another one takes some");
        assert!(takes(&["b"], &["a"], "b") && takes(&["a", "b"], &[], "b"), "rather here than nowhere");
    }

    #[test]
    fn what_a_node_did_not_take_goes_to_the_next_and_to_a_drained_one_only_where_all_are() {
        let view = view(&[("a", 0), ("b", 1), ("c", 2)]);
        let host = |drained: &[&str], failed: &[&str]| {
            let [drained, failed] = [drained, failed].map(|nodes| nodes.iter().copied().map(NodeId::new).collect());
            let loads = without(&view, Loads { drained, ..Loads::default() }, &failed);
            host_for_new(&view, &loads, &NodeId::new("a")).map(|tenure| tenure.node.0.clone())
        };
        let node = |name: &str| Some(name.to_owned());
        assert_eq!([host(&[], &[]), host(&[], &["a"]), host(&[], &["a", "b"])], ["a", "b", "c"].map(node));
        assert_eq!(host(&[], &["a", "b", "c"]), None);
        assert_eq!([host(&["a"], &[]), host(&["a"], &["b"])], ["b", "c"].map(node));
        assert_eq!(host(&["a"], &["b", "c"]), None, "not what is drained, because others have failed");
        assert_eq!([host(&["a", "b", "c"], &[]), host(&["a", "b", "c"], &["a"])], ["a", "b"].map(node));
    }

    #[test]
    fn the_idlest_does_not_get_all_of_many() {
        // Of which nothing is known: they do what others do.
        let view = view(&[("a", 10), ("b", 0), ("c", 10)]);
        let known = loads(&[("a", 0), ("b", 0), ("c", 0)], &[BUSY / 10; 20]);
        let placed = new_ones(&view, &known, 100);
        assert_eq!((count("a", &placed), count("b", &placed), count("c", &placed)), (30, 40, 30));
        // Of which it is known that they do nothing.
        let known = loads(&[("a", BUSY / 2), ("b", 0), ("c", BUSY / 2)], &[0; 120]);
        let mut placement = Placement::new(&view, &known);
        let placed: Vec<_> = (21..121).map(|number| placement.place(Some(&shard(number)), None).unwrap()).collect();
        let to_b = placed.iter().filter(|tenure| tenure.node.0 == "b").count();
        assert!((60..80).contains(&to_b), "{to_b} of 100: fifty that do nothing weigh as much as a quarter of a core");
    }

    #[test]
    fn no_node_gets_more_while_another_does_less() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let names: Vec<String> = (0..=random(5)).map(|number| format!("n{number}")).collect();
            let nodes: Vec<_> = names.iter().map(|name| (name.as_str(), random(9))).collect();
            let beside: Vec<_> = names.iter().map(|name| (name.as_str(), random(BUSY))).collect();
            let shards: Vec<u64> = (0..random(60)).map(|_| random(BUSY)).collect();
            let (view, loads) = (view(&nodes), loads(&beside, &shards));
            let mut placement = Placement::new(&view, &loads);
            for number in 0..100 {
                let before = placement.nodes.clone();
                let to = placement.place(Some(&shard(number)), None).unwrap();
                let least = before.values().map(|has| has.load).min().unwrap();
                assert!(before[to].load < least + ALIKE);
                let rivals = before.values().filter(|has| has.load < least + ALIKE);
                assert_eq!(before[to].shards, rivals.map(|has| has.shards).min().unwrap());
            }
        }
    }
}
