//! How busy nodes are: what a node measures, and what others make of what it says.
//!
//! A node says what its databases have done of late ([`Gauge`]), not what they do at an instant: rates are averaged over some half a minute, so that
//! one long query does not drive new databases elsewhere; and of a database that it has not had for so long, it says nothing yet: then counts what was said of it before, or
//! what others do. Every node hears of every other one ([`Reports`]), so that whoever decides knows as
//! much as the one before it, and what a node has said of its databases outlives it for a while: then they are to be spread.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::{ClusterView, Tenure};

/// Rates are averaged over this time: what is longer ago than that counts for a third.
pub const AVERAGED_OVER: Duration = Duration::from_secs(30);
/// What a node has said counts for so long. It says it anew much more often.
pub const NODE_COUNTS_FOR: Duration = Duration::from_secs(10);
/// What was said of a shard counts for so long, also when its node is gone: longer than a node takes to get another's shards, and to say so.
pub const SHARD_COUNTS_FOR: Duration = Duration::from_secs(60);
/// A report names so many shards at most, the busiest.
pub const REPORTED_MAX: usize = 1024;

/// So many bytes of a log cost as much as a microsecond of a core: with 16 MiB per second, a log is as busy as a core.
const LOG_BYTES_PER_MICRO: u64 = 16;
/// So many bytes of memory weigh as much as a microsecond per second of a core: 1 GiB is a core.
const MEMORY_BYTES_PER_MICRO: u64 = 1024;

/// What something does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Microseconds of processors, per second.
    pub cpu_micros: u64,
    /// Bytes written to logs, per second.
    pub log_bytes: u64,
    /// Transactions that ended, per second.
    pub transactions: u64,
    /// Bytes of memory that its rows take.
    pub memory_bytes: u64,
}

impl Load {
    /// All of it in one number, by which loads are compared: microseconds of a core per second, or what weighs as much.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.cpu_micros
            .saturating_add(self.log_bytes / LOG_BYTES_PER_MICRO)
            .saturating_add(self.memory_bytes / MEMORY_BYTES_PER_MICRO)
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            cpu_micros: self.cpu_micros.saturating_add(other.cpu_micros),
            log_bytes: self.log_bytes.saturating_add(other.log_bytes),
            transactions: self.transactions.saturating_add(other.transactions),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// What is left of it without the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            cpu_micros: self.cpu_micros.saturating_sub(other.cpu_micros),
            log_bytes: self.log_bytes.saturating_sub(other.log_bytes),
            transactions: self.transactions.saturating_sub(other.transactions),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }
}

/// What something has done since some beginning; but for the memory, which is that of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Microseconds of processors.
    pub cpu_micros: u64,
    /// Bytes written to logs.
    pub log_bytes: u64,
    /// Transactions that ended.
    pub transactions: u64,
    /// Bytes of memory that its rows take now.
    pub memory_bytes: u64,
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it does in all.
    pub all: Load,
    /// What of that is not what the shards do of which it says something.
    pub beside: Load,
    /// What its busiest shards do, by [`Load::weight`]: of those that it has had for so long that this is known ([`AVERAGED_OVER`]).
    pub shards: Vec<(ShardId, u64)>,
}

/// Averages of something's rates.
#[derive(Clone, Copy, Debug)]
struct Averaged {
    done: Done,
    /// Per second, of processor time, bytes and transactions; as if there had been nothing before the first.
    rates: [f64; 3],
    /// Seconds since the first.
    age: f64,
}

impl Averaged {
    const fn begin(done: Done) -> Self {
        Self { done, rates: [0.0; 3], age: 0.0 }
    }

    fn step(&mut self, done: Done, seconds: f64) {
        let before = std::mem::replace(&mut self.done, done);
        self.age += seconds;
        // What counts less than before has begun anew.
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let rates = [
            rate(done.cpu_micros, before.cpu_micros),
            rate(done.log_bytes, before.log_bytes),
            rate(done.transactions, before.transactions),
        ];
        for (averaged, rate) in self.rates.iter_mut().zip(rates) {
            *averaged += share_of(seconds) * (rate - *averaged);
        }
    }

    /// What it does, with all that is longer ago taken for nothing: a burst at the beginning counts little.
    fn load(&self) -> Load {
        self.scaled(1.0)
    }

    /// What it has done on average as long as it was there.
    fn own_load(&self) -> Load {
        self.scaled(1.0 / share_of(self.age))
    }

    fn scaled(&self, by: f64) -> Load {
        let [cpu_micros, log_bytes, transactions] = self.rates.map(|rate| (rate * by).round() as u64);
        Load { cpu_micros, log_bytes, transactions, memory_bytes: self.done.memory_bytes }
    }

    fn is_known(&self) -> bool {
        self.age >= AVERAGED_OVER.as_secs_f64()
    }
}

/// How much the last so many seconds count in an average.
fn share_of(seconds: f64) -> f64 {
    1.0 - (-seconds / AVERAGED_OVER.as_secs_f64()).exp()
}

/// Makes rates out of what a node and its shards have done.
#[derive(Debug, Default)]
pub struct Gauge {
    at: Option<Instant>,
    cpu: Option<Averaged>,
    shards: BTreeMap<ShardId, Averaged>,
}

impl Gauge {
    /// Takes in what the process has used of processors, in microseconds, and what each of its shards has done by now; returns what there is to say.
    pub fn step(&mut self, now: Instant, cpu_micros: u64, shards: impl IntoIterator<Item = (ShardId, Done)>) -> Report {
        let seconds = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        if self.at.is_some() && seconds <= 0.0 {
            return self.report();
        }
        self.at = Some(now);
        step(&mut self.cpu, Done { cpu_micros, ..Done::default() }, seconds);
        let mut known = std::mem::take(&mut self.shards);
        for (shard, done) in shards {
            let mut averaged = known.remove(&shard);
            step(&mut averaged, done, seconds);
            self.shards.extend(averaged.map(|averaged| (shard, averaged)));
        }
        self.report()
    }

    fn report(&self) -> Report {
        let sum = self.shards.values().fold(Load::default(), |sum, shard| sum.and(shard.load()));
        let cpu_micros = self.cpu.map_or(0, |cpu| cpu.load().cpu_micros);
        let all = Load { cpu_micros, ..sum };
        let known = self.shards.iter().filter(|(_, shard)| shard.is_known());
        let known: Vec<_> = known.map(|(shard, averaged)| (shard, averaged.own_load())).collect();
        let told = known.iter().fold(Load::default(), |sum, (_, load)| sum.and(*load));
        let mut shards: Vec<_> = known.into_iter().map(|(shard, load)| (shard.clone(), load.weight())).collect();
        shards.sort_by(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));
        shards.truncate(REPORTED_MAX);
        Report { all, beside: all.without(told), shards }
    }
}

fn step(averaged: &mut Option<Averaged>, done: Done, seconds: f64) {
    match averaged {
        Some(averaged) => averaged.step(done, seconds),
        None => *averaged = Some(Averaged::begin(done)),
    }
}

/// How busy nodes and shards are, by the nodes' own account, as decisions take it: by [`Load::weight`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// What each node does beside its shards. When one of those that can take shards is not there, how many shards each has decides alone.
    pub nodes: BTreeMap<NodeId, u64>,
    /// What each shard does. One that is not there is expected to do what those that are do on average.
    pub shards: BTreeMap<ShardId, u64>,
    /// Nodes that take no shards: they do not have what serves them, or not yet.
    pub closed: BTreeSet<NodeId>,
    /// Nodes that take shards only while no other node does: see [`drained`](crate::drained).
    pub drained: BTreeSet<NodeId>,
    /// The shard that everybody needs to log in, if there is one: the first to get an owner again.
    pub login: Option<ShardId>,
    /// Only shards whose names begin so count.
    pub prefix: String,
}

/// What nodes have said of themselves.
#[derive(Debug, Default)]
pub struct Reports {
    nodes: BTreeMap<NodeId, Said>,
    shards: BTreeMap<ShardId, (u64, Instant)>,
}

#[derive(Debug)]
struct Said {
    by: Tenure,
    all: Load,
    beside: Load,
    at: Instant,
}

impl Reports {
    /// A node has said something. What a former process of a node said late does not count.
    pub fn take(&mut self, by: &Tenure, report: Report, now: Instant) {
        if self.nodes.get(&by.node).is_some_and(|said| said.by.epoch > by.epoch) {
            return;
        }
        let Report { all, beside, shards } = report;
        self.nodes.insert(by.node.clone(), Said { by: by.clone(), all, beside, at: now });
        self.shards.extend(shards.into_iter().take(REPORTED_MAX).map(|(shard, load)| (shard, (load, now))));
    }

    /// What there is to decide by: `closed`, `drained`, `login` and `prefix` are left to whoever knows.
    pub fn loads(&mut self, view: &ClusterView, now: Instant) -> Loads {
        self.forget(view, now);
        let nodes = self.nodes.iter().filter(|(_, said)| said.counts(view, now));
        Loads {
            nodes: nodes.map(|(node, said)| (node.clone(), said.beside.weight())).collect(),
            shards: self.shards.iter().map(|(shard, (load, _))| (shard.clone(), *load)).collect(),
            ..Loads::default()
        }
    }

    /// What each node does in all, of those that have said so of late.
    #[must_use]
    pub fn by_node(&self, view: &ClusterView, now: Instant) -> BTreeMap<NodeId, Load> {
        let counting = self.nodes.iter().filter(|(_, said)| said.counts(view, now));
        counting.map(|(node, said)| (node.clone(), said.all)).collect()
    }

    /// Nothing is kept of nodes and shards that there are not any more.
    fn forget(&mut self, view: &ClusterView, now: Instant) {
        self.nodes.retain(|_, said| view.lives(&said.by));
        let counts = |at: Instant| now.saturating_duration_since(at) < SHARD_COUNTS_FOR;
        self.shards.retain(|shard, (_, at)| counts(*at) && view.shard(shard).is_some());
    }
}

impl Said {
    fn counts(&self, view: &ClusterView, now: Instant) -> bool {
        view.lives(&self.by) && now.saturating_duration_since(self.at) < NODE_COUNTS_FOR
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::{NodeEpoch, OwnerEpoch};
    use savanna_ownership::{Incarnation, NodeRecord, NodeSpec, Revision, ShardRecord, Snapshot, Versioned};

    use super::*;

    fn tenure(node: &str, epoch: u64) -> Tenure {
        Tenure { node: NodeId::new(node), epoch: NodeEpoch(epoch) }
    }

    fn view(nodes: &[Tenure], shards: &[&str]) -> ClusterView {
        let node = |tenure: &Tenure| {
            let (name, labels) = (tenure.node.clone(), BTreeMap::new());
            let spec = NodeSpec { name, incarnation: Incarnation(1), address: String::new(), labels };
            NodeRecord::granted(&spec, tenure.epoch)
        };
        let shard = |name: &&str| {
            let value = ShardRecord::serving(tenure("a", 1), OwnerEpoch(1));
            (ShardId::new(*name), Versioned { version: Revision(1), value })
        };
        let (nodes, shards) = (nodes.iter().map(node).collect(), shards.iter().map(shard).collect());
        ClusterView::new(Snapshot { revision: Revision(9), nodes, shards, ..Snapshot::default() })
    }

    fn said(shards: &[(&str, u64)]) -> Report {
        let shards = shards.iter().map(|(shard, load)| (ShardId::new(*shard), *load)).collect();
        Report { shards, beside: Load { cpu_micros: 7, ..Load::default() }, ..Report::default() }
    }

    fn done(cpu_micros: u64) -> Done {
        Done { cpu_micros, ..Done::default() }
    }

    /// What a gauge says at last of a node, and of its only shard, which take so much of a core in each second.
    fn gauged(shares: &[u64]) -> (u64, Option<u64>) {
        let (mut gauge, began, mut sum) = (Gauge::default(), Instant::now(), 0);
        let mut report = gauge.step(began, 0, [(ShardId::new("s"), done(0))]);
        for (second, share) in (1..).zip(shares) {
            sum += share;
            report = gauge.step(began + Duration::from_secs(second), sum, [(ShardId::new("s"), done(sum))]);
        }
        (report.all.cpu_micros, report.shards.first().map(|(_, load)| *load))
    }

    #[test]
    fn a_burst_counts_little_and_what_lasts_counts_in_full() {
        assert_eq!(gauged(&[1_000_000]), (32_784, None), "nothing is said of a shard that has just come");
        let mut burst = [0; 61];
        burst[60] = 1_000_000;
        assert_eq!(gauged(&burst), (32_784, Some(37_722)));
        let (node, shard) = gauged(&[1_000_000; 90]);
        assert!(node > 900_000 && shard == Some(1_000_000));
        assert_eq!(gauged(&[400_000; 30]).1, Some(400_000), "as long as it was there");
        let over: Vec<u64> = [1_000_000; 9].into_iter().chain([0; 90]).collect();
        assert!(gauged(&over).0 < 60_000);
    }

    #[test]
    fn what_a_node_does_beside_its_shards_is_told_apart_and_the_busiest_are_named() {
        let (mut gauge, began) = (Gauge::default(), Instant::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let count = REPORTED_MAX as u64 + 5;
        let shards = |seconds: u64| (0..count).map(move |by| (ShardId::new(format!("s{by}")), done(by * seconds)));
        let total: u64 = (0..count).sum();
        assert_eq!(gauge.step(at(0), 0, shards(0)), Report::default());
        let report = gauge.step(at(1), total + 50_000, shards(1));
        assert_eq!((report.shards.len(), report.beside), (0, report.all), "nothing is known of them yet");
        let report = (2..200).map(|second| gauge.step(at(second), (total + 50_000) * second, shards(second))).last();
        let report = report.unwrap();
        assert_eq!((report.shards.len(), &report.shards[0]), (REPORTED_MAX, &(ShardId::new("s1028"), 1028)));
        assert!((48_000..51_000).contains(&report.beside.cpu_micros), "{report:?}");
        // One that left is not told, and one that counts anew has done nothing before.
        let report = gauge.step(at(200), 0, [(ShardId::new("s7"), done(0))]);
        assert_eq!((report.shards.len(), report.shards[0].1), (1, 7));
    }

    #[test]
    fn bytes_and_memory_weigh_beside_processors() {
        let load = Load { cpu_micros: 1, log_bytes: 16 << 20, transactions: 9, memory_bytes: 1 << 30 };
        assert_eq!(load.weight(), 1 + (1 << 20) + (1 << 20));
        let most = Load { cpu_micros: u64::MAX, log_bytes: u64::MAX, transactions: u64::MAX, memory_bytes: u64::MAX };
        assert_eq!((most.weight(), most.and(most)), (u64::MAX, most));
    }

    #[test]
    fn what_a_node_said_of_its_shards_outlives_it_and_nothing_counts_for_ever() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let (a, b) = (tenure("a", 1), tenure("b", 1));
        reports.take(&a, said(&[("s1", 5), ("s2", 6), ("gone", 7)]), now);
        reports.take(&b, said(&[("s3", 8)]), now);
        let both = view(&[a.clone(), b.clone()], &["s1", "s2", "s3"]);
        let loads = reports.loads(&both, now);
        assert_eq!(loads.nodes, BTreeMap::from([(a.node.clone(), 7), (b.node.clone(), 7)]));
        assert_eq!(loads.shards.values().copied().collect::<Vec<_>>(), [5, 6, 8], "not what there is not");
        let left = view(std::slice::from_ref(&b), &["s1", "s2", "s3"]);
        let loads = reports.loads(&left, now + NODE_COUNTS_FOR / 2);
        assert_eq!((loads.nodes.len(), loads.shards.len()), (1, 3), "its shards are to be spread by it");
        let later = now + NODE_COUNTS_FOR;
        assert_eq!(reports.loads(&left, later).nodes.len(), 0, "nobody knows what it does by now");
        assert_eq!(reports.by_node(&left, later).len(), 0);
        assert_eq!(reports.loads(&left, now + SHARD_COUNTS_FOR).shards.len(), 0);
    }

    #[test]
    fn what_a_former_process_of_a_node_says_late_does_not_count() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let (former, next) = (tenure("a", 1), tenure("a", 2));
        reports.take(&next, said(&[("s1", 5)]), now);
        reports.take(&former, said(&[("s1", 900)]), now);
        let loads = reports.loads(&view(std::slice::from_ref(&next), &["s1"]), now);
        assert_eq!((loads.nodes.len(), loads.shards[&ShardId::new("s1")]), (1, 5));
        reports.take(&tenure("a", 3), said(&[]), now);
        assert_eq!(reports.loads(&view(&[next], &["s1"]), now).nodes.len(), 0, "of another process");
    }
}
