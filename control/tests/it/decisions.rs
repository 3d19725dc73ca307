//! What is decided about a cluster as it is.

use std::collections::{BTreeMap, BTreeSet};

use savanna_control::{Decision, Intent, Loads, Stuck, step};
use savanna_epoch::{LogId, NodeEpoch, NodeId, OwnerEpoch, ShardId};
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState};
use savanna_ownership::{
    ClusterView, Exclusive, History, Incarnation, MAX_BATCH_RECORDS, NodeRecord, NodeSpec, Revision, RootValue,
    ShardRecord, Snapshot, Tenure, Transition, Versioned,
};

fn tenure(name: &str) -> Tenure {
    Tenure { node: NodeId::new(name), epoch: NodeEpoch(1) }
}

fn log_of(node: &str) -> LogId {
    LogId::new(NodeId::new(node), 1, "tenants").unwrap()
}

fn folder() -> LogPlace {
    LogPlace::Folder("logs".to_owned())
}

/// The records of a cluster.
#[derive(Clone, Default)]
struct Cluster(Snapshot);

impl Cluster {
    /// One with these nodes alive.
    fn of(living: &[&str]) -> Self {
        let node = |name: &&str| {
            let spec = NodeSpec {
                name: NodeId::new(*name),
                incarnation: Incarnation(1),
                address: String::new(),
                labels: BTreeMap::new(),
            };
            NodeRecord::granted(&spec, NodeEpoch(1))
        };
        Self(Snapshot { revision: Revision(100), nodes: living.iter().map(node).collect(), ..Snapshot::default() })
    }

    fn log(mut self, node: &str, place: LogPlace, state: LogState) -> Self {
        let record = LogRecord { place, holder: tenure(node), state };
        let value = RootValue(serde_json::to_vec(&record).unwrap());
        self.0.roots.push((logs::key(&log_of(node)), Versioned { version: Revision(7), value }));
        self
    }

    fn shard(mut self, name: &str, record: ShardRecord) -> Self {
        self.0.shards.push((ShardId::new(name), Versioned { version: Revision(8), value: record }));
        self
    }

    fn decide(&self, loads: &Loads) -> Decision {
        step(&ClusterView::new(self.0.clone()), loads)
    }
}

fn in_log(record: ShardRecord, node: &str) -> ShardRecord {
    let epoch = record.epoch;
    record.with_history(Some(History { log: log_of(node), epoch }))
}

fn served_by(node: &str) -> ShardRecord {
    in_log(ShardRecord::serving(tenure(node), OwnerEpoch(3)), node)
}

fn transitions(decision: &Decision) -> Vec<&Transition> {
    let batch = |intent: &'_ Intent| matches!(intent, Intent::Grant { .. });
    let grants = decision.intents.iter().filter(|intent| batch(intent));
    grants
        .flat_map(|intent| match intent {
            Intent::Grant { batch, .. } => &batch.transitions[..],
            _ => &[],
        })
        .collect()
}

/// Who gets which shard, in this order.
fn granted(decision: &Decision) -> Vec<(String, String)> {
    let owner = |grant: &&Transition| grant.record.owner().unwrap().node.0.clone();
    transitions(decision).iter().map(|grant| (grant.shard.0.clone(), owner(grant))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(shard, node)| ((*shard).to_owned(), (*node).to_owned())).collect()
}

#[test]
fn nothing_is_done_while_all_owners_live() {
    let cluster = Cluster::of(&["a"]).log("a", folder(), LogState::Open).shard("tenants/1", served_by("a"));
    assert_eq!(cluster.decide(&Loads::default()), Decision::default());
}

#[test]
fn the_record_of_a_log_is_sealed_first_then_the_log_then_its_shards_get_owners_and_keep_their_history() {
    let gone = |state| Cluster::of(&["b"]).log("a", folder(), state).shard("tenants/1", served_by("a"));
    let first = gone(LogState::Open).decide(&Loads::default());
    assert!(matches!(&first.intents[..], [Intent::SealRecord { log, .. }] if *log == log_of("a")), "{first:?}");
    let second = gone(LogState::Sealed).decide(&Loads::default());
    let [Intent::SealLog { log, is_needed: true, place, epoch }, Intent::Grant { log: Some(of), batch }] =
        &second.intents[..]
    else {
        panic!("{second:?}")
    };
    assert_eq!((log, of, place, *epoch), (&log_of("a"), &log_of("a"), &folder(), NodeEpoch(2)));
    let [grant] = &batch.transitions[..] else { panic!("{batch:?}") };
    let record = ShardRecord::serving(tenure("b"), OwnerEpoch(4)).with_history(served_by("a").history);
    assert_eq!((grant.expected, &grant.record, &grant.by), (Revision(8), &record, &None));
}

/// The intents about a node's log, by their kinds.
fn kinds(decision: &Decision) -> Vec<&'static str> {
    let kind = |intent: &Intent| match intent {
        Intent::SealRecord { .. } => "seal record",
        Intent::SealLog { is_needed: true, .. } => "seal log",
        Intent::SealLog { is_needed: false, .. } => "seal log, or none",
        Intent::Grant { .. } => "grant",
        Intent::DeleteLog { .. } => "delete log",
        Intent::ForgetLog { change, .. } if change.value.is_none() => "forget log",
        Intent::ForgetLog { .. } => "write log",
    };
    decision.intents.iter().map(kind).collect()
}

#[test]
fn a_log_that_no_shard_needs_is_sealed_and_deleted_before_its_record() {
    let cluster = Cluster::of(&["b"]).log("a", folder(), LogState::Sealed);
    let decision = cluster.decide(&Loads::default());
    assert_eq!(kinds(&decision), ["seal log, or none", "delete log", "forget log"]);
}

#[test]
fn what_can_be_served_is_granted_before_anything_is_deleted() {
    let cluster = Cluster::of(&["b"]).log("a", folder(), LogState::Sealed).log("c", folder(), LogState::Sealed);
    let cluster = cluster.log("d", folder(), LogState::Open).shard("tenants/1", served_by("c"));
    let decision = cluster.decide(&Loads::default());
    let expected = ["seal record", "seal log", "grant", "seal log, or none", "delete log", "forget log"];
    assert_eq!(kinds(&decision), expected);
}

#[test]
fn a_log_on_the_disk_of_one_node_gives_its_shards_to_that_node_alone_and_is_forgotten_when_nobody_needs_it() {
    let private = || LogPlace::Private("logs".to_owned());
    for state in [LogState::Open, LogState::Sealed] {
        // Another tenure of the node than the one that held the log.
        let mut cluster = Cluster::of(&["a", "b"]).log("a", private(), state).shard("tenants/1", served_by("a"));
        cluster.0.nodes[0].tenure.epoch = NodeEpoch(2);
        let loads = Loads { nodes: BTreeMap::from([(NodeId::new("a"), 1000)]), ..Loads::default() };
        let decision = cluster.decide(&loads);
        assert_eq!(granted(&decision), pairs(&[("tenants/1", "a")]));
        assert_eq!(kinds(&decision), ["grant"], "the node alone reaches it");
    }
    let unneeded = |state| Cluster::of(&["b"]).log("a", private(), state).decide(&Loads::default());
    assert_eq!(kinds(&unneeded(LogState::Open)), ["seal record"]);
    assert_eq!(kinds(&unneeded(LogState::Sealed)), ["forget log"]);
}

#[test]
fn a_log_that_its_node_has_taken_over_again_gets_its_shards_back() {
    let mut cluster = Cluster::of(&["b"]).log("a", folder(), LogState::Open).shard("tenants/1", served_by("a"));
    let again = Tenure { epoch: NodeEpoch(2), ..tenure("a") };
    let spec = NodeSpec {
        name: NodeId::new("a"),
        incarnation: Incarnation(2),
        address: String::new(),
        labels: BTreeMap::new(),
    };
    cluster.0.nodes.push(NodeRecord::granted(&spec, again.epoch));
    let record = LogRecord { place: folder(), holder: again, state: LogState::Open };
    cluster.0.roots[0].1.value = RootValue(serde_json::to_vec(&record).unwrap());
    let loads = Loads { nodes: BTreeMap::from([(NodeId::new("a"), 1000)]), ..Loads::default() };
    let decision = cluster.decide(&loads);
    assert_eq!(granted(&decision), pairs(&[("tenants/1", "a")]));
    assert!(matches!(&decision.intents[..], [Intent::Grant { .. }]), "it is not sealed: {decision:?}");
}

#[test]
fn the_shard_of_logins_goes_first_then_the_busiest_each_to_the_node_that_does_least() {
    let mut cluster = Cluster::of(&["b", "c"]).log("a", folder(), LogState::Sealed);
    for shard in ["tenants/1", "tenants/2", "tenants/3", "tenants/9"] {
        cluster = cluster.shard(shard, served_by("a"));
    }
    let load =
        |of: &[(&str, u64)]| -> Vec<(String, u64)> { of.iter().map(|(of, load)| ((*of).to_owned(), *load)).collect() };
    let loads = Loads {
        nodes: load(&[("b", 100_000), ("c", 400_000)]).into_iter().map(|(node, load)| (NodeId(node), load)).collect(),
        shards: load(&[("tenants/2", 500_000), ("tenants/3", 200_000)])
            .into_iter()
            .map(|(shard, load)| (ShardId(shard), load))
            .collect(),
        login: Some(ShardId::new("tenants/9")),
        ..Loads::default()
    };
    // Those of which nothing is known are expected to do as much as the others: 350,000.
    let expected = [("tenants/9", "b"), ("tenants/2", "c"), ("tenants/3", "b"), ("tenants/1", "b")];
    assert_eq!(granted(&cluster.decide(&loads)), pairs(&expected));
    // Without loads they are spread.
    let spread = granted(&cluster.decide(&Loads::default()));
    assert_eq!(spread.iter().filter(|(_, node)| node == "b").count(), 2, "{spread:?}");
}

#[test]
fn nodes_that_are_closed_get_nothing() {
    let cluster = Cluster::of(&["b", "c"]).log("a", folder(), LogState::Sealed);
    let cluster = cluster.shard("tenants/1", served_by("a")).shard("tenants/2", served_by("a"));
    let closed =
        |nodes: &[&str]| Loads { closed: nodes.iter().map(|node| NodeId::new(*node)).collect(), ..Loads::default() };
    assert_eq!(granted(&cluster.decide(&closed(&["b"]))), pairs(&[("tenants/1", "c"), ("tenants/2", "c")]));
    let decision = cluster.decide(&closed(&["b", "c"]));
    assert_eq!(granted(&decision), Vec::new());
    assert!(decision.stuck.values().all(|stuck| *stuck == Stuck::NoNode) && decision.stuck.len() == 2);
}

#[test]
fn a_shard_on_its_way_goes_where_it_went_and_one_with_two_servers_to_the_one_that_lives() {
    let (from, to) = (tenure("a"), tenure("c"));
    let moving = ShardRecord::exclusive(OwnerEpoch(3), Exclusive::Moving { from: from.clone(), to: to.clone() });
    let dual = ShardRecord::exclusive(OwnerEpoch(3), Exclusive::Dual { from: to, to: from });
    let busy = Loads { nodes: BTreeMap::from([(NodeId::new("c"), 1000)]), ..Loads::default() };
    let cluster = |living: &[&str]| {
        let cluster = Cluster::of(living).log("a", folder(), LogState::Sealed);
        cluster.shard("tenants/1", in_log(moving.clone(), "a")).shard("tenants/2", dual.clone())
    };
    assert_eq!(granted(&cluster(&["b", "c"]).decide(&busy)), pairs(&[("tenants/1", "c"), ("tenants/2", "c")]));
    assert_eq!(granted(&cluster(&["b"]).decide(&busy)), pairs(&[("tenants/1", "b"), ("tenants/2", "b")]));
}

#[test]
fn a_shard_on_its_way_to_a_node_that_was_drained_meanwhile_goes_to_another_if_there_is_one() {
    let (from, to) = (tenure("a"), tenure("c"));
    let moving = ShardRecord::exclusive(OwnerEpoch(3), Exclusive::Moving { from: from.clone(), to: to.clone() });
    let dual = ShardRecord::exclusive(OwnerEpoch(3), Exclusive::Dual { from: to, to: from });
    let drained = Loads { drained: BTreeSet::from([NodeId::new("c")]), ..Loads::default() };
    let cluster = |living: &[&str]| {
        let cluster = Cluster::of(living).log("a", folder(), LogState::Sealed);
        cluster.shard("tenants/1", in_log(moving.clone(), "a")).shard("tenants/2", dual.clone())
    };
    // The second one serves already, and has what nobody else has.
    assert_eq!(granted(&cluster(&["b", "c"]).decide(&drained)), pairs(&[("tenants/1", "b"), ("tenants/2", "c")]));
    assert_eq!(granted(&cluster(&["c"]).decide(&drained)), pairs(&[("tenants/1", "c"), ("tenants/2", "c")]));
}

#[test]
fn a_grant_expects_that_its_node_was_not_drained_since() {
    let cluster = Cluster::of(&["b", "c"]).log("a", folder(), LogState::Sealed);
    let decision = cluster.shard("tenants/1", served_by("a")).decide(&Loads::default());
    let expected = |intent: &Intent| match intent {
        Intent::Grant { batch, .. } => Some(batch.expects.iter().map(|expects| expects.key.clone()).collect()),
        _ => None,
    };
    let expected: Vec<Vec<String>> = decision.intents.iter().filter_map(expected).collect();
    assert_eq!(expected, [["drained/b"]]);
}

#[test]
fn shards_for_which_nothing_can_be_done_are_told() {
    let shard = ShardId::new("tenants/1");
    let stuck = |cluster: Cluster| {
        let decision = cluster.decide(&Loads::default());
        assert!(transitions(&decision).is_empty(), "{decision:?}");
        decision.stuck.get(&shard).cloned()
    };
    let private = || LogPlace::Private("logs".to_owned());
    let of_a = |living: &[&str]| Cluster::of(living).shard("tenants/1", served_by("a"));
    assert_eq!(stuck(of_a(&["b"]).log("a", private(), LogState::Open)), Some(Stuck::Private(log_of("a"))));
    assert_eq!(stuck(of_a(&["b"])), Some(Stuck::Lost(log_of("a"))));
    assert_eq!(stuck(of_a(&[]).log("a", folder(), LogState::Sealed)), Some(Stuck::NoNode));
    // What cannot be read of one log holds up no other.
    let mut damaged = Cluster::of(&["c"]).log("a", folder(), LogState::Open).log("b", folder(), LogState::Sealed);
    damaged.0.roots[0].1.value = RootValue(b"{".to_vec());
    let decision =
        damaged.shard("tenants/1", served_by("a")).shard("tenants/2", served_by("b")).decide(&Loads::default());
    assert_eq!(decision.stuck.get(&shard), Some(&Stuck::Lost(log_of("a"))));
    assert_eq!(granted(&decision), pairs(&[("tenants/2", "c")]));
}

#[test]
fn many_shards_go_in_batches_that_name_less_than_etcd_compares() {
    let mut cluster = Cluster::of(&["b", "c"]).log("a", folder(), LogState::Sealed);
    for number in 0..200 {
        cluster = cluster.shard(&format!("tenants/{number:03}"), served_by("a"));
    }
    let decision = cluster.decide(&Loads::default());
    assert_eq!(transitions(&decision).len(), 200);
    for intent in &decision.intents {
        if let Intent::Grant { batch, .. } = intent {
            let (grants, expects) = (batch.transitions.len(), batch.expects.len());
            // Each names three nodes at most, and expects something of one.
            assert!(expects == 2 && grants * 5 < 2 * MAX_BATCH_RECORDS, "{grants}");
        }
    }
    assert_eq!(decision.intents.iter().filter(|intent| matches!(intent, Intent::SealLog { .. })).count(), 1);
}
