//! What nodes tell each other of their load: each tells all others every other second, so that whoever places a database knows what all do.
//!
//! What is decided by it is in [`savanna_control::placement`]. A node of an earlier release refuses to hear of it and tells nothing; then the numbers of databases
//! decide.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use savanna_control::Loads;
use savanna_control::load::{Done, Gauge, Load, Report, Reports};
use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::{ClusterView, Tenure};
use savanna_rpc::{Method, MethodTable, Service, call};
use savanna_tenants_host::{Counts, Tenants, shards};
use serde::{Deserialize, Serialize};

use super::Joined;
use crate::figures::cpu_micros;

/// The first part of the methods' names.
pub(super) const SERVICE: &str = "loads";
/// How often a node tells what it does.
const PERIOD: Duration = Duration::from_secs(2);
/// How long another node has to hear it. What is late is told anew.
const TELL_TIME: Duration = Duration::from_secs(1);

/// A node tells what it does.
struct Tell;

impl Method for Tell {
    const NAME: &'static str = "loads/tell.1";
    const IDEMPOTENT: bool = true;
    type Request = (Tenure, Sent);
    type Reply = ();
}

/// [`Report`] on its way. Of each load: processor time, bytes of logs, transactions, memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sent {
    all: [u64; 4],
    beside: [u64; 4],
    shards: Vec<(ShardId, u64)>,
}

impl From<Report> for Sent {
    fn from(Report { all, beside, shards }: Report) -> Self {
        let numbers = |load: Load| [load.cpu_micros, load.log_bytes, load.transactions, load.memory_bytes];
        Self { all: numbers(all), beside: numbers(beside), shards }
    }
}

impl From<Sent> for Report {
    fn from(Sent { all, beside, shards }: Sent) -> Self {
        let load = |[cpu_micros, log_bytes, transactions, memory_bytes]: [u64; 4]| Load {
            cpu_micros,
            log_bytes,
            transactions,
            memory_bytes,
        };
        Self { all: load(all), beside: load(beside), shards }
    }
}

/// What this node and others have said. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownLoads(Arc<Mutex<Reports>>);

impl KnownLoads {
    /// Hears other nodes.
    pub(super) fn service(&self) -> Arc<dyn Service> {
        let known = self.clone();
        Arc::new(MethodTable::new().method(PhantomData::<Tell>, move |_, (by, sent): (Tenure, Sent)| {
            known.take(&by, sent.into());
            async { Ok(()) }
        }))
    }

    fn take(&self, by: &Tenure, report: Report) {
        self.0.lock().take(by, report, Instant::now());
    }

    /// What there is to decide by.
    pub(super) fn loads(&self, view: &ClusterView) -> Loads {
        self.0.lock().loads(view, Instant::now())
    }

    /// What each node does.
    pub(crate) fn by_node(&self, view: &ClusterView) -> BTreeMap<NodeId, Load> {
        self.0.lock().by_node(view, Instant::now())
    }
}

impl Joined {
    /// What nodes have said of their load.
    pub(crate) const fn known_loads(&self) -> &KnownLoads {
        &self.loads
    }

    /// Tells all nodes what this one does, as long as it serves databases.
    pub(crate) async fn tell_loads(self: Arc<Self>, tenants: Tenants) {
        let (mut gauge, mut ticks) = (Gauge::default(), tokio::time::interval(PERIOD));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Of what the process does beside its databases, only its processor time is known.
            let cpu_micros = cpu_micros().unwrap_or_default();
            let report = gauge.step(Instant::now(), cpu_micros, done(&tenants));
            self.loads.take(&self.tenure, report.clone());
            self.tell(report.into()).await;
        }
    }

    /// Tells all others. Who does not hear it hears the next.
    async fn tell(&self, report: Sent) {
        let (view, transport, request) = (self.view.now(), self.transport(), (self.tenure.clone(), report));
        let (transport, request) = (&*transport, &request);
        let others = view.nodes().map(|node| &node.tenure.node).filter(|node| **node != self.tenure.node);
        let telling = others.map(|node| async move {
            if let Err(error) = call::<Tell>(transport, node, request, TELL_TIME).await {
                tracing::debug!(%error, %node, "a node did not hear what this one does");
            }
        });
        join_all(telling).await;
    }
}

/// What each database of this node has done.
fn done(tenants: &Tenants) -> Vec<(ShardId, Done)> {
    let of = |counts: &Counts| Done {
        cpu_micros: counts.cpu_micros,
        log_bytes: counts.log_bytes,
        transactions: counts.commits + counts.rollbacks,
        memory_bytes: counts.memory_bytes,
    };
    tenants.counts().iter().map(|(tenant, counts)| (shards::shard(*tenant), of(counts))).collect()
}

#[cfg(test)]
mod tests {
    use savanna_rpc::{decode_value, encode_value};

    use super::*;

    #[test]
    fn a_report_arrives_as_it_was_and_the_longest_fits_a_small_message() {
        let load = |by: u64| Load { cpu_micros: by, log_bytes: 2 * by, transactions: 3 * by, memory_bytes: 4 * by };
        let shards = (0..savanna_control::load::REPORTED_MAX as u64).map(|number| (shards::shard(number), u64::MAX));
        let report = Report { all: load(7), beside: load(u64::MAX / 4), shards: shards.collect() };
        let bytes = encode_value("test", &Sent::from(report.clone())).unwrap();
        assert!(bytes.len() < 32 << 10, "{}", bytes.len());
        assert_eq!(Report::from(decode_value::<Sent>("test", &bytes).unwrap()), report);
    }
}
