//! When a database goes to another node because its own is busier, and where to.
//!
//! One move at a time, from the busiest node to the one that does least, and only what makes the busier of both clearly less busy. So that nothing goes to and fro:
//!
//! | rule | against |
//! |---|---|
//! | a difference below [`Limits::gap`] is none | noise |
//! | it has to last for [`Limits::lasts`], at the same node | a burst; what nodes say is averaged over half a minute besides |
//! | nothing moves while a database is on its way, and for [`Limits::cool_down`] after one has got another owner, whoever moved it, also by a failover | loads that nodes have not said anew yet: what left still counts at its former node, and may count twice at the new one |
//! | whoever begins to decide waits as long | it does not know what has moved before |
//! | what has moved stays for [`Limits::stays`] | two nodes that pass the same database to each other |
//! | the move has to gain [`Limits::gains`] | one database that is all that its node does: it would only be busy elsewhere |
//! | the target is not filled above [`Limits::full_percent`] of its processors | a node that is too small |
//!
//! There is a memory, of owners, moves and of since when a node has been too busy; whoever decides next begins without, and so waits. It is given the time. A move is asked
//! for, not made: the node that has the database and the records decide.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_ownership::{ClusterView, Exclusive, Ownership, ShardRecord, Tenure};

use crate::load::{AVERAGED_OVER, Loads};
use crate::placement::SHARD_MIN;

/// What a core can do, by [`weight`](crate::load::Load::weight).
const CORE: u64 = 1_000_000;

/// When something moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes whose loads differ by less are left as they are: microseconds of a core per second, or what weighs as much.
    pub gap: u64,
    /// And by less than so much of what the busiest does, in percent.
    pub gap_percent: u64,
    /// For so long one node has to be busier than another by that much.
    pub lasts: Duration,
    /// Nothing moves for so long after a move, and after the first look.
    pub cool_down: Duration,
    /// What has moved, or was to, stays for so long; and so long is waited for one that is on its way, as its record may have been left behind.
    pub stays: Duration,
    /// The busier of both nodes has to become less busy by this.
    pub gains: u64,
    /// No node is filled by a move above so much of its processors, in percent.
    pub full_percent: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            gap: CORE * 3 / 10,
            gap_percent: 25,
            lasts: AVERAGED_OVER,
            // By then what a node says is all but what it does now.
            cool_down: Duration::from_secs(3 * AVERAGED_OVER.as_secs()),
            stays: Duration::from_secs(600),
            gains: CORE / 10,
            full_percent: 80,
        }
    }
}

/// A database that is to move, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The database.
    pub shard: ShardId,
    /// The node that has it.
    pub from: NodeId,
    /// The node that is to have it.
    pub to: NodeId,
    /// What both do now, and would do then: of the first and of the second.
    pub now: (u64, u64),
    /// See `now`.
    pub then: (u64, u64),
}

/// Why nothing moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stays {
    /// There is nowhere to go to.
    Alone,
    /// A node has not said what it does.
    Unknown(NodeId),
    /// No node does much more than another that takes databases.
    Even,
    /// A node does much more than another, and not for long enough.
    NotYet {
        /// That node.
        busiest: NodeId,
    },
    /// A database is on its way.
    Moves(ShardId),
    /// Something has moved a moment ago, or this is the first look.
    CoolsDown,
    /// A node does much more than another, and none of its databases would make that better.
    Nothing {
        /// That node.
        busiest: NodeId,
        /// What is in the way of its databases.
        because: NothingFits,
    },
}

/// Why no database of a node that is too busy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NothingFits {
    /// It has none of which it is known what they do, and that are served.
    NoneKnown,
    /// Those that would help have moved a short time ago.
    AllMoved,
    /// Those that it has would make another node as busy, or help too little.
    NoGain,
    /// Other nodes would be too full.
    Full,
}

/// What is decided.
pub type Decision = Result<Proposal, Stays>;

/// What a node does, and what of it its databases do.
#[derive(Clone, Debug, Default)]
struct Does<'v> {
    load: u64,
    shards: Vec<(&'v ShardId, u64)>,
}

/// A node that takes databases, what it does, and how many processors it has, if that is known.
#[derive(Clone, Copy, Debug)]
struct TargetNode<'v> {
    node: &'v NodeId,
    load: u64,
    processors: Option<u64>,
}

/// Decides, with the memory that this needs.
#[derive(Debug, Default)]
pub struct Balance {
    limits: Limits,
    /// The nodes that are too busy, and since when.
    busy: BTreeMap<NodeId, Instant>,
    /// Who owned what at the last look; nothing before the first.
    owners: Option<BTreeMap<ShardId, (Tenure, OwnerEpoch)>>,
    /// What is on its way, and since when.
    on_its_way: BTreeMap<ShardId, Instant>,
    /// When something moved last, and when each that did not long ago.
    last: Option<Instant>,
    moved: BTreeMap<ShardId, Instant>,
}

impl Balance {
    /// By these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What is to move now, by what nodes have said. `capacities` are the processors of nodes, as far as they are known.
    pub fn step(
        &mut self,
        now: Instant,
        view: &ClusterView,
        loads: &Loads,
        capacities: &BTreeMap<NodeId, u64>,
    ) -> Decision {
        self.look(now, view, &loads.prefix);
        self.moved.retain(|_, at| now.saturating_duration_since(*at) < self.limits.stays);
        let (nodes, targets) = match known(view, loads, capacities) {
            Ok(known) => known,
            Err(stays) => {
                self.busy.clear();
                return Err(stays);
            }
        };
        let sources = self.sources(now, &nodes, &targets);
        let Some((busiest, _)) = sources.first() else { return Err(Stays::Even) };
        if let Some(shard) = self.moving(now).cloned() {
            self.busy.clear();
            return Err(Stays::Moves(shard));
        }
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.limits.cool_down) {
            self.busy.clear();
            return Err(Stays::CoolsDown);
        }
        let has_lasted = |node: &NodeId| {
            self.busy.get(node).is_some_and(|since| now.saturating_duration_since(*since) >= self.limits.lasts)
        };
        let mut stays = Stays::NotYet { busiest: (*busiest).clone() };
        // Where nothing of the busiest can go, as what it does is not what its databases do, the next one is looked at.
        for (node, does) in sources.iter().filter(|(node, _)| has_lasted(node)) {
            match self.choose(node, does, &targets) {
                Ok(proposal) => return Ok(proposal),
                Err(because) if matches!(stays, Stays::NotYet { .. }) => {
                    stays = Stays::Nothing { busiest: (*node).clone(), because };
                }
                Err(_) => {}
            }
        }
        Err(stays)
    }

    /// Remembers who owns what, what has another owner since the last look, and what is on its way.
    fn look(&mut self, now: Instant, view: &ClusterView, prefix: &str) {
        let owner = |record: &ShardRecord| Some((record.owner()?.clone(), record.epoch));
        let owners: BTreeMap<_, _> =
            view.shards(prefix).filter_map(|(shard, record)| Some((shard.clone(), owner(&record.value)?))).collect();
        match &self.owners {
            // What has moved before is not known.
            None => self.last = Some(now),
            Some(before) => {
                let has_moved = |(shard, owner): &(&ShardId, &(Tenure, OwnerEpoch))| {
                    before.get(*shard).is_some_and(|had| had != *owner)
                };
                for (shard, _) in owners.iter().filter(has_moved) {
                    self.last = Some(now);
                    self.moved.insert(shard.clone(), now);
                }
            }
        }
        self.owners = Some(owners);
        let is_moving = |record: &ShardRecord| {
            matches!(record.ownership, Ownership::Exclusive(Exclusive::Moving { .. } | Exclusive::Dual { .. }))
        };
        let moving = view.shards(prefix).filter(|(_, record)| is_moving(&record.value));
        let before = std::mem::take(&mut self.on_its_way);
        let since = |shard: &ShardId| before.get(shard).copied().unwrap_or(now);
        self.on_its_way = moving.map(|(shard, _)| (shard.clone(), since(shard))).collect();
        if self.moving(now).is_some() {
            self.last = Some(now);
        }
    }

    /// A database that is on its way. What nodes do is not known before it is there, or stays.
    fn moving(&self, now: Instant) -> Option<&ShardId> {
        let is_waited_for = |since: Instant| now.saturating_duration_since(since) < self.limits.stays;
        self.on_its_way.iter().find(|(_, since)| is_waited_for(**since)).map(|(shard, _)| shard)
    }

    /// The nodes that do much more than one that takes databases, the busiest first. Since when each does is remembered.
    fn sources<'a, 'v>(
        &mut self,
        now: Instant,
        nodes: &'a BTreeMap<&'v NodeId, Does<'v>>,
        targets: &[TargetNode<'v>],
    ) -> Vec<(&'v NodeId, &'a Does<'v>)> {
        let least_beside = |node: &NodeId| targets.iter().filter(|to| to.node != node).map(|to| to.load).min();
        let does_more = |node: &NodeId, load: u64| least_beside(node).is_some_and(|least| self.differ(load, least));
        let mut sources: Vec<_> = nodes.iter().filter(|(node, does)| does_more(node, does.load)).collect();
        sources.sort_by_key(|(node, does)| (Reverse(does.load), **node));
        let since = |node: &NodeId| self.busy.get(node).copied().unwrap_or(now);
        self.busy = sources.iter().map(|(node, _)| ((**node).clone(), since(node))).collect();
        sources.into_iter().map(|(node, does)| (*node, does)).collect()
    }

    /// A move that was proposed has ended, whatever became of it.
    pub fn ended(&mut self, now: Instant, shard: &ShardId) {
        self.last = Some(now);
        self.busy.clear();
        self.moved.insert(shard.clone(), now);
    }

    /// Whether one node does much more than another.
    const fn differ(&self, most: u64, least: u64) -> bool {
        let gap = most.saturating_sub(least);
        gap >= self.limits.gap && gap >= most.saturating_mul(self.limits.gap_percent) / 100
    }

    /// The database and the node that leave the busier of both least busy.
    fn choose(&self, from: &NodeId, does: &Does<'_>, targets: &[TargetNode<'_>]) -> Result<Proposal, NothingFits> {
        let mut why = NothingFits::NoneKnown;
        let mut best: Option<(u64, Proposal)> = None;
        for (shard, load) in &does.shards {
            for TargetNode { node: to, load: target, processors } in targets.iter().filter(|to| to.node != from) {
                let then = (does.load.saturating_sub(*load), target.saturating_add(*load));
                let busier = then.0.max(then.1);
                if busier.saturating_add(self.limits.gains) > does.load {
                    why = why.or(NothingFits::NoGain);
                    continue;
                }
                if self.moved.contains_key(*shard) {
                    why = why.or(NothingFits::AllMoved);
                    continue;
                }
                if processors.is_some_and(|processors| then.1 > self.room_of(processors)) {
                    why = NothingFits::Full;
                    continue;
                }
                // Of those that do the same, the smaller moves: that takes less.
                if best.as_ref().is_none_or(|(least, _)| busier < *least) {
                    let (shard, from, to) = ((*shard).clone(), from.clone(), (*to).clone());
                    best = Some((busier, Proposal { shard, from, to, now: (does.load, *target), then }));
                }
            }
        }
        best.map(|(_, proposal)| proposal).ok_or(why)
    }

    const fn room_of(&self, processors: u64) -> u64 {
        processors.saturating_mul(CORE).saturating_mul(self.limits.full_percent) / 100
    }
}

impl NothingFits {
    /// The one that somebody can do more about.
    const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Full, _) | (_, Self::Full) => Self::Full,
            (Self::AllMoved, _) | (_, Self::AllMoved) => Self::AllMoved,
            (_, other) => other,
        }
    }
}

/// What nodes do that can have databases, and which take any.
type Known<'v> = (BTreeMap<&'v NodeId, Does<'v>>, Vec<TargetNode<'v>>);

fn known<'v>(view: &'v ClusterView, loads: &'v Loads, capacities: &BTreeMap<NodeId, u64>) -> Result<Known<'v>, Stays> {
    let nodes = nodes_of(view, loads)?;
    let open = nodes.iter().filter(|(node, _)| !loads.drained.contains(**node));
    let target = |(node, does): (&&'v NodeId, &Does<'_>)| TargetNode {
        node,
        load: does.load,
        processors: capacities.get(*node).copied(),
    };
    let targets: Vec<_> = open.map(target).collect();
    if nodes.len() < 2 || targets.is_empty() {
        return Err(Stays::Alone);
    }
    Ok((nodes, targets))
}

/// What each node does that can have databases, smallest first of its own.
fn nodes_of<'v>(view: &'v ClusterView, loads: &'v Loads) -> Result<BTreeMap<&'v NodeId, Does<'v>>, Stays> {
    let mut nodes = BTreeMap::new();
    for node in view.nodes().map(|node| &node.tenure.node).filter(|node| !loads.closed.contains(*node)) {
        let load = *loads.nodes.get(node).ok_or_else(|| Stays::Unknown(node.clone()))?;
        nodes.insert(node, Does { load, shards: Vec::new() });
    }
    let mut seen = BTreeSet::new();
    for (shard, record) in view.shards(&loads.prefix) {
        let (Some(owner), Some(load)) = (record.value.owner(), loads.shards.get(shard)) else { continue };
        let Some(does) = nodes.get_mut(&owner.node).filter(|_| view.lives(owner)) else { continue };
        does.load = does.load.saturating_add(*load);
        // One that is on its way already is left alone, and one that does nothing helps nobody.
        let is_served = matches!(record.value.ownership, Ownership::Exclusive(Exclusive::Serving { .. }));
        if is_served && *load > SHARD_MIN && seen.insert(shard) {
            does.shards.push((shard, *load));
        }
    }
    for does in nodes.values_mut() {
        does.shards.sort_by_key(|(shard, load)| (*load, *shard));
    }
    Ok(nodes)
}

/// A load, in percent of a core.
fn percent(load: u64) -> u64 {
    load / (CORE / 100)
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, now, then, .. } = self;
        write!(
            f,
            "node {from} does {}% of a core and node {to} {}%; then it is {}% and {}%",
            percent(now.0),
            percent(now.1),
            percent(then.0),
            percent(then.1)
        )
    }
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => write!(f, "no other node takes databases"),
            Self::Unknown(node) => write!(f, "node {node} has not said in the last 10 s what it does"),
            Self::Even => write!(f, "no node does much more than another that takes databases"),
            Self::NotYet { busiest } => {
                write!(f, "node {busiest} does much more than another, and not for long enough yet")
            }
            Self::Moves(shard) => write!(f, "{shard} is on its way to another node"),
            Self::CoolsDown => {
                write!(
                    f,
                    "a database has moved a moment ago, or this node has just begun to look, and what nodes do since then is not known yet"
                )
            }
            Self::Nothing { busiest, because } => {
                let because = match because {
                    NothingFits::NoneKnown => "it has no database of which it is known what it does",
                    NothingFits::AllMoved => "those of its databases that would help have moved a short time ago",
                    NothingFits::NoGain => "each of its databases would help too little, or make another node as busy",
                    NothingFits::Full => "the other nodes would be too full",
                };
                write!(f, "node {busiest} does much more than another, and {because}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::NodeEpoch;
    use savanna_ownership::{Incarnation, NodeRecord, NodeSpec, Revision, Snapshot, Versioned};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tenure(node: &str) -> Tenure {
        Tenure { node: NodeId::new(node), epoch: NodeEpoch(1) }
    }

    fn shard(number: usize) -> ShardId {
        ShardId::new(format!("tenants/{number}"))
    }

    /// A database is told apart from what its node does beside when it has been there for so long: the average of a node that reports, and is looked at, every two seconds.
    const TOLD_AFTER: u64 = AVERAGED_OVER.as_secs() + 4;

    /// Nodes that do something beside their databases, and databases: where each is, and what it does, in percent of a core.
    #[derive(Clone)]
    struct Cluster {
        nodes: Vec<(&'static str, u64)>,
        databases: Vec<(usize, u64)>,
        drained: BTreeSet<NodeId>,
        capacities: BTreeMap<NodeId, u64>,
        /// Nodes that are gone, and where databases are to go that are on their way.
        gone: BTreeSet<usize>,
        moving: BTreeMap<usize, usize>,
        /// How much each database counts in what each node says that it does in all: of one that came more and more, and of one that left less and less.
        counts: Vec<Vec<f64>>,
        /// How often each has moved, and for how many seconds it has been where it is.
        epochs: Vec<u64>,
        ages: Vec<u64>,
        /// Whether what they do is rows in memory, which count in full at once, and not averaged.
        is_memory: bool,
    }

    impl Cluster {
        fn new(nodes: &[(&'static str, u64)], databases: &[(usize, u64)]) -> Self {
            let counts_at = |at: usize| databases.iter().map(|(node, _)| if *node == at { 1.0 } else { 0.0 }).collect();
            Self {
                nodes: nodes.to_vec(),
                databases: databases.to_vec(),
                drained: BTreeSet::new(),
                capacities: BTreeMap::new(),
                gone: BTreeSet::new(),
                moving: BTreeMap::new(),
                counts: (0..nodes.len()).map(counts_at).collect(),
                epochs: vec![1; databases.len()],
                ages: vec![TOLD_AFTER; databases.len()],
                is_memory: false,
            }
        }

        fn living(&self) -> impl Iterator<Item = (usize, &(&'static str, u64))> {
            self.nodes.iter().enumerate().filter(move |(at, _)| !self.gone.contains(at))
        }

        fn view(&self) -> ClusterView {
            let mut snapshot = Snapshot { revision: Revision(9), ..Snapshot::default() };
            for (_, (node, _)) in self.living() {
                let (name, labels) = (NodeId::new(*node), BTreeMap::new());
                let spec = NodeSpec { name, incarnation: Incarnation(1), address: String::new(), labels };
                snapshot.nodes.push(NodeRecord::granted(&spec, NodeEpoch(1)));
            }
            for (number, (node, _)) in self.databases.iter().enumerate() {
                let (owner, epoch) = (tenure(self.nodes[*node].0), OwnerEpoch(self.epochs[number]));
                let to = self.moving.get(&number).map(|to| tenure(self.nodes[*to].0));
                let value = match to {
                    Some(to) => ShardRecord::exclusive(epoch, Exclusive::Moving { from: owner, to }),
                    None => ShardRecord::serving(owner, epoch),
                };
                snapshot.shards.push((shard(number), Versioned { version: Revision(1), value }));
            }
            ClusterView::new(snapshot)
        }

        /// What a node says that it does beside those of its databases that it tells apart.
        fn beside(&self, at: usize) -> u64 {
            let load = |number: usize| self.databases[number].1 * CORE / 100;
            let counting = self.counts[at].iter().enumerate().map(|(number, counts)| load(number) as f64 * counts);
            let all = self.nodes[at].1 * CORE / 100 + counting.sum::<f64>().round() as u64;
            let is_told = |number: &usize| self.databases[*number].0 == at && self.ages[*number] >= TOLD_AFTER;
            let told: u64 = (0..self.databases.len()).filter(is_told).map(load).sum();
            all.saturating_sub(told)
        }

        fn loads(&self) -> Loads {
            let nodes = self.living().map(|(at, (node, _))| (NodeId::new(*node), self.beside(at)));
            // What the former owner has said of one counts until the new one tells it.
            let shards =
                self.databases.iter().enumerate().map(|(number, (_, load))| (shard(number), load * CORE / 100));
            Loads {
                nodes: nodes.collect(),
                shards: shards.collect(),
                drained: self.drained.clone(),
                prefix: "tenants/".to_owned(),
                ..Loads::default()
            }
        }

        fn step(&self, balance: &mut Balance, now: Instant) -> Decision {
            balance.step(now, &self.view(), &self.loads(), &self.capacities)
        }

        /// A database has another owner, whoever has seen to that.
        fn move_to(&mut self, number: usize, to: usize) {
            self.databases[number].0 = to;
            self.epochs[number] += 1;
            self.ages[number] = 0;
        }

        /// Does what is proposed.
        fn go(&mut self, proposal: &Proposal) {
            let number: usize = proposal.shard.0.trim_start_matches("tenants/").parse().unwrap();
            let at = |node: &NodeId| self.nodes.iter().position(|(name, _)| *name == node.0).unwrap();
            let (from, to) = (at(&proposal.from), at(&proposal.to));
            assert_eq!(self.databases[number].0, from);
            self.move_to(number, to);
        }

        /// Two seconds go by.
        fn tick(&mut self) {
            let share = if self.is_memory { 1.0 } else { 1.0 - (-2.0 / AVERAGED_OVER.as_secs_f64()).exp() };
            for (at, counts) in self.counts.iter_mut().enumerate() {
                for (counts, (owner, _)) in counts.iter_mut().zip(&self.databases) {
                    *counts += share * (f64::from(u8::from(*owner == at)) - *counts);
                }
            }
            self.ages.iter_mut().for_each(|age| *age += 2);
        }

        /// Looks every two seconds for so long, and does what is decided: when, what, and where to.
        fn run(&mut self, seconds: u64, mut changes: impl FnMut(&mut Self, u64)) -> Vec<(u64, ShardId, NodeId)> {
            self.run_with(seconds, |cluster, second, _| changes(cluster, second))
        }

        /// The same, where whoever decides may be replaced.
        fn run_with(
            &mut self,
            seconds: u64,
            mut changes: impl FnMut(&mut Self, u64, &mut Balance),
        ) -> Vec<(u64, ShardId, NodeId)> {
            let (mut balance, began, mut moves) = (Balance::default(), Instant::now(), Vec::new());
            for second in (0..seconds).step_by(2) {
                self.tick();
                changes(self, second, &mut balance);
                let now = began + SECOND * second as u32;
                if let Ok(proposal) = self.step(&mut balance, now) {
                    self.go(&proposal);
                    balance.ended(now, &proposal.shard);
                    moves.push((second, proposal.shard, proposal.to));
                }
            }
            moves
        }
    }

    /// From the first look until what lasts moves something.
    fn settling() -> Duration {
        let Limits { lasts, cool_down, .. } = Limits::default();
        cool_down + lasts
    }

    /// What is decided when everything has lasted for long enough.
    fn at_last(cluster: &Cluster) -> Decision {
        let (mut balance, now) = (Balance::default(), Instant::now());
        let _ = cluster.step(&mut balance, now);
        let _ = cluster.step(&mut balance, now + Limits::default().cool_down);
        cluster.step(&mut balance, now + settling())
    }

    #[test]
    fn what_leaves_the_busier_of_both_least_busy_goes_to_the_node_that_does_least() {
        let cluster = Cluster::new(&[("a", 10), ("b", 20), ("c", 5)], &[(0, 60), (0, 30), (0, 40), (1, 10)]);
        let proposal = at_last(&cluster).unwrap();
        assert_eq!((proposal.shard, proposal.to.0.as_str()), (shard(0), "c"));
        assert_eq!((proposal.now, proposal.then), ((1_400_000, 50_000), (800_000, 650_000)));
    }

    #[test]
    fn a_difference_that_is_small_or_does_not_last_moves_nothing() {
        let small = Cluster::new(&[("a", 0), ("b", 0)], &[(0, 14), (0, 14)]);
        assert_eq!(at_last(&small), Err(Stays::Even));
        let busy = Cluster::new(&[("a", 700), ("b", 700)], &[(0, 41), (0, 41)]);
        assert_eq!(at_last(&busy), Err(Stays::Even), "both do much, and not much more than each other");
        let mut bursts = Cluster::new(&[("a", 0), ("b", 0)], &[(0, 0), (0, 0), (1, 0)]);
        let moves = bursts.run(3_600, |cluster, second| {
            let is_burst = second % 60 < 20;
            cluster.databases[0].1 = if is_burst { 90 } else { 10 };
            cluster.databases[1].1 = if is_burst { 60 } else { 10 };
        });
        assert_eq!(moves, []);
    }

    #[test]
    fn one_database_that_is_all_that_its_node_does_stays() {
        let cluster = Cluster::new(&[("a", 3), ("b", 0)], &[(0, 95)]);
        let nothing = |because| Err(Stays::Nothing { busiest: NodeId::new("a"), because });
        assert_eq!(at_last(&cluster), nothing(NothingFits::NoGain), "it would only be busy elsewhere");
        let idle = Cluster::new(&[("a", 95), ("b", 0)], &[(0, 0), (0, 0)]);
        assert_eq!(at_last(&idle), nothing(NothingFits::NoneKnown), "the databases are not what it does");
    }

    #[test]
    fn where_the_busiest_has_nothing_that_could_go_the_next_one_is_relieved() {
        let cluster = Cluster::new(&[("a", 200), ("b", 0), ("c", 0)], &[(1, 60), (1, 70)]);
        let proposal = at_last(&cluster).unwrap();
        assert_eq!((proposal.from.0.as_str(), proposal.to.0.as_str()), ("b", "c"));
    }

    #[test]
    fn nothing_goes_to_a_node_that_is_drained_or_too_full_and_what_is_on_a_drained_one_may_leave() {
        let mut cluster = Cluster::new(&[("a", 0), ("b", 0), ("c", 30)], &[(0, 60), (0, 60)]);
        cluster.drained.insert(NodeId::new("b"));
        assert_eq!(at_last(&cluster).unwrap().to.0, "c");
        cluster.drained = BTreeSet::from([NodeId::new("a")]);
        assert_eq!(at_last(&cluster).unwrap().to.0, "b");
        cluster.drained = ["b", "c"].map(NodeId::new).into();
        assert_eq!(at_last(&cluster), Err(Stays::Even));
        cluster.drained.insert(NodeId::new("a"));
        assert_eq!(at_last(&cluster), Err(Stays::Alone));
        let mut cluster = Cluster::new(&[("a", 0), ("b", 30), ("c", 20)], &[(0, 90), (0, 90)]);
        cluster.capacities = BTreeMap::from([(NodeId::new("c"), 1)]);
        assert_eq!(at_last(&cluster).unwrap().to.0, "b", "c has one core");
        cluster.capacities = ["b", "c"].map(|node| (NodeId::new(node), 1)).into();
        let because = NothingFits::Full;
        assert_eq!(at_last(&cluster), Err(Stays::Nothing { busiest: NodeId::new("a"), because }));
    }

    #[test]
    fn while_a_node_has_not_said_what_it_does_nothing_moves() {
        let cluster = Cluster::new(&[("a", 0), ("b", 0)], &[(0, 60), (0, 60)]);
        let mut loads = cluster.loads();
        loads.nodes.remove(&NodeId::new("b"));
        let (mut balance, now) = (Balance::default(), Instant::now());
        let unknown = Err(Stays::Unknown(NodeId::new("b")));
        for at in [now, now + Limits::default().cool_down] {
            assert_eq!(balance.step(at, &cluster.view(), &loads, &BTreeMap::new()), unknown);
        }
        let later = now + settling();
        assert!(matches!(cluster.step(&mut balance, later), Err(Stays::NotYet { .. })), "it counts from then on");
        loads.closed.insert(NodeId::new("b"));
        assert_eq!(balance.step(later, &cluster.view(), &loads, &BTreeMap::new()), Err(Stays::Alone));
    }

    #[test]
    fn after_a_move_nothing_moves_until_what_nodes_say_is_what_they_do() {
        let mut cluster = Cluster::new(&[("a", 0), ("b", 0)], &[(0, 40), (0, 40), (0, 40), (0, 40)]);
        let moves = cluster.run(3_600, |_, _| {});
        let places: Vec<_> = cluster.databases.iter().map(|(node, _)| *node).collect();
        assert_eq!(places.iter().sum::<usize>(), 2, "two at each: {places:?}");
        assert_eq!(moves.len(), 2, "{moves:?}: what had left counted for nothing");
        assert!(moves[1].0 - moves[0].0 >= settling().as_secs());
    }

    #[test]
    fn what_somebody_else_has_moved_stays_for_a_while_and_cools_down_as_any_move() {
        let mut cluster = Cluster::new(&[("a", 0), ("b", 0)], &[(0, 40), (0, 40), (1, 40), (1, 40)]);
        let moves = cluster.run(1_200, |cluster, second| {
            // On purpose: they who did it know why.
            if second == 200 {
                cluster.move_to(0, 1);
            }
        });
        let Some((first, moved, to)) = moves.first() else { panic!("one of those that were there before goes") };
        assert!(*first >= 200 + settling().as_secs(), "{moves:?}");
        assert!(*moved != shard(0) && to.0 == "a" && moves.len() == 1, "{moves:?}");
    }

    #[test]
    fn after_a_failover_nothing_moves_by_loads_that_count_twice() {
        // An idle database of much memory: its new node says that of all that it does, and its former one has said it of the database.
        let mut cluster = Cluster::new(&[("a", 0), ("b", 0), ("c", 200)], &[(0, 200), (1, 30)]);
        cluster.is_memory = true;
        let moves = cluster.run(3_600, |cluster, second| {
            if second == 600 {
                cluster.gone.insert(0);
                cluster.move_to(0, 1);
            }
        });
        assert_eq!(moves, [], "230% and 200% are alike");
    }

    #[test]
    fn whoever_begins_to_decide_waits_until_what_moved_before_counts_once() {
        for (is_memory, later) in
            [false, true].into_iter().flat_map(|is_memory| (0..60).map(move |later| (is_memory, later)))
        {
            // One of 50% goes, and then it is even.
            let mut cluster = Cluster::new(&[("a", 0), ("b", 0)], &[(0, 60), (0, 50), (0, 30), (1, 20), (1, 20)]);
            cluster.is_memory = is_memory;
            let mut moved_at = None;
            let moves = cluster.run_with(600, |cluster, second, balance| {
                if cluster.epochs.iter().any(|epoch| *epoch > 1)
                    && *moved_at.get_or_insert(second) + 2 * later == second
                {
                    *balance = Balance::default();
                }
            });
            assert_eq!(moves.len(), 1, "{moves:?}, where another one decides {later} looks later");
        }
    }

    #[test]
    fn while_a_database_is_on_its_way_nothing_else_goes_and_then_it_cools_down() {
        let mut cluster = Cluster::new(&[("a", 0), ("b", 0), ("c", 0)], &[(0, 60), (0, 60), (0, 60), (0, 60)]);
        let (mut balance, began) = (Balance::default(), Instant::now());
        let _ = cluster.step(&mut balance, began);
        // Nobody knows what became of a move that was asked for; the records say that it goes on.
        cluster.moving.insert(3, 1);
        let under_way = Err(Stays::Moves(shard(3)));
        let at = |seconds: u64| began + SECOND * seconds as u32;
        for second in (100..400).step_by(2) {
            assert_eq!(cluster.step(&mut balance, at(second)), under_way);
        }
        cluster.moving.clear();
        for second in (400..400 + settling().as_secs() - 2).step_by(2) {
            assert!(cluster.step(&mut balance, at(second)).is_err(), "{second}");
        }
        assert!(cluster.step(&mut balance, at(400 + settling().as_secs())).is_ok(), "though it has stayed");
        // One whose mover has ended without a word is not waited for for ever.
        cluster.moving.insert(3, 1);
        let last = Limits::default().stays.as_secs() + settling().as_secs();
        let decisions: Vec<_> =
            (1_000..=1_000 + last + 2).step_by(2).map(|second| cluster.step(&mut balance, at(second))).collect();
        assert_eq!(decisions[0], under_way);
        assert!(decisions.last().unwrap().is_ok(), "{:?}", decisions.last());
    }

    #[test]
    fn what_has_moved_stays_for_a_while_however_the_load_goes_to_and_fro() {
        // The node that has fewer is always the one that becomes busy.
        let mut cluster = Cluster::new(&[("a", 0), ("b", 0)], &[(0, 40), (0, 40), (1, 40)]);
        let moves = cluster.run(7_200, |cluster, second| {
            let at = |node: usize| cluster.databases.iter().filter(|(owner, _)| *owner == node).count();
            let busy = usize::from(at(1) > at(0)) ^ usize::from((second / 200) % 2 == 1);
            cluster.nodes[busy].1 = 90;
            cluster.nodes[1 - busy].1 = 0;
        });
        let mut last: BTreeMap<&ShardId, u64> = BTreeMap::new();
        for (second, shard, _) in &moves {
            if let Some(before) = last.insert(shard, *second) {
                assert!(second - before >= Limits::default().stays.as_secs(), "{moves:?}");
            }
        }
        assert!(!moves.is_empty() && moves.len() <= 3 * 12, "{moves:?}");
    }

    #[test]
    fn from_any_beginning_it_comes_to_rest_and_nothing_moves_twice_within_what_it_has_to_stay() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..20 {
            let names = ["a", "b", "c", "d"];
            let nodes: Vec<_> = names.iter().take(2 + random(3) as usize).map(|name| (*name, random(50))).collect();
            let count = nodes.len() as u64;
            let databases: Vec<_> = (0..random(20)).map(|_| (random(count) as usize, random(60))).collect();
            let mut cluster = Cluster::new(&nodes, &databases);
            // The load does not change, so that nothing needs to move back.
            let moves = cluster.run(5_400, |_, _| {});
            let again = cluster.clone().run(900, |_, _| {});
            assert_eq!(again, [], "it came to rest after {moves:?}");
            let distinct: BTreeSet<_> = moves.iter().map(|(_, shard, _)| shard).collect();
            assert!(moves.len() <= distinct.len() * 2, "{moves:?}");
        }
    }
}
