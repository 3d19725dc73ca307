//! What is known of the node at this moment, for the control API.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_control::drained::is_drained;
use savanna_control::load::Load;
use savanna_epoch::ShardId;
use savanna_http::types::{
    ClusterNode, ClusterShard, LeaseStatus, NodeLoad, NodeStatus, ServiceState, ServiceStatus, Setting,
};
use savanna_http::{Figure, NodeView, SharedNodes, SharedTenants};
use savanna_ownership::guard::LeaseGuard;
use savanna_ownership::{Exclusive, NodeRecord, Ownership, ShardRecord, Versioned};
use savanna_tenants_host::shards::is_ready;
use tokio::sync::Notify;

use crate::cluster::loads::KnownLoads;
use crate::cluster::{Others, View, services_of, state_of};
use crate::config::Config;
use crate::figures;

/// How long services are waited for that are starting.
const SETTLED_TIME: Duration = Duration::from_secs(10);

/// The lease as it is shown.
#[derive(Debug)]
pub(crate) struct ShownLease {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) guard: LeaseGuard,
}

/// The cluster as it is shown.
#[derive(Debug)]
pub(crate) struct ShownCluster {
    pub(crate) view: View,
    pub(crate) loads: KnownLoads,
    pub(crate) others: Arc<Others>,
}

/// The node's state as others see it. Services write, faces read.
#[derive(Debug)]
pub(crate) struct Board {
    config: Config,
    started: Instant,
    lease: ShownLease,
    /// The cluster, if the node has joined one.
    cluster: Option<ShownCluster>,
    services: Mutex<Vec<ServiceStatus>>,
    /// Where services that run are reached, too: what that is called, and the address.
    others: Mutex<BTreeMap<&'static str, (&'static str, SocketAddr)>>,
    tenants: Mutex<Option<SharedTenants>>,
    /// Rung when a client of a face asks for the end of the node.
    ending: Notify,
    /// What tells the figures of each service that runs.
    gauges: Gauges,
}

/// What tells the figures of a service.
type Gauge = Box<dyn Fn() -> Vec<Figure> + Send>;

#[derive(Default)]
struct Gauges(Mutex<BTreeMap<&'static str, Gauge>>);

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.lock().keys()).finish()
    }
}

impl Board {
    pub(crate) fn new(config: Config, lease: ShownLease, cluster: Option<ShownCluster>) -> Self {
        Self {
            config,
            started: Instant::now(),
            lease,
            cluster,
            services: Mutex::default(),
            others: Mutex::default(),
            tenants: Mutex::default(),
            ending: Notify::new(),
            gauges: Gauges::default(),
        }
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// A client asks for the end of the node.
    pub(crate) fn ask_to_end(&self) {
        self.ending.notify_one();
    }

    /// Ready when a client has asked for the end of the node.
    pub(crate) async fn asked_to_end(&self) {
        self.ending.notified().await;
    }

    /// Shows the tenants that the node serves from now on, if it does.
    pub(crate) fn serves_tenants(&self, tenants: Option<SharedTenants>) {
        *self.tenants.lock() = tenants;
    }

    /// Shows what a service tells of itself for as long as it runs.
    pub(crate) fn shows(&self, service: &'static str, gauge: impl Fn() -> Vec<Figure> + Send + 'static) {
        self.gauges.0.lock().insert(service, Box::new(gauge));
    }

    /// Shows where a service is reached, too, for as long as it runs.
    pub(crate) fn shows_other(&self, service: &'static str, name: &'static str, address: SocketAddr) {
        self.others.lock().insert(service, (name, address));
    }

    /// Shows no more what a service told of itself.
    pub(crate) fn hides(&self, service: &str) {
        self.gauges.0.lock().remove(service);
        self.others.lock().remove(service);
    }

    /// Services, each with where it is reached, too.
    fn shown_services(&self) -> Vec<ServiceStatus> {
        let others = self.others.lock();
        let services = self.services.lock();
        let with_other = services.iter().flat_map(|service| {
            let other = others.get(&*service.service).map(|(name, address)| ServiceStatus {
                service: (*name).to_owned(),
                state: service.state,
                address: Some(address.to_string()),
                reason: None,
            });
            std::iter::once(service.clone()).chain(other)
        });
        with_other.collect()
    }

    /// Waits until no service is starting, but not for ever.
    pub(crate) async fn settled(&self) {
        let is_starting = || self.services.lock().iter().any(|service| service.state == ServiceState::Starting);
        let deadline = Instant::now() + SETTLED_TIME;
        while is_starting() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn starting(&self, service: &str) {
        self.set(service, ServiceState::Starting, None, None);
    }

    pub(crate) fn running(&self, service: &str, address: Option<SocketAddr>) {
        self.set(service, ServiceState::Running, address.map(|a| a.to_string()), None);
    }

    pub(crate) fn failed(&self, service: &str, reason: &str) {
        tracing::error!(service, reason, "the service does not run; the other services go on");
        self.set(service, ServiceState::Failed, None, Some(reason.to_owned()));
    }

    pub(crate) fn stopped(&self, service: &str) {
        self.set(service, ServiceState::Stopped, None, None);
    }

    fn set(&self, service: &str, state: ServiceState, address: Option<String>, reason: Option<String>) {
        if matches!(state, ServiceState::Failed | ServiceState::Stopped) {
            self.hides(service);
        }
        let status = ServiceStatus { service: service.to_owned(), state, address, reason };
        let mut services = self.services.lock();
        match services.iter_mut().find(|s| s.service == service) {
            Some(known) => *known = status,
            None => services.push(status),
        }
    }
}

impl NodeView for Board {
    fn status(&self) -> NodeStatus {
        let node = self.config.node();
        NodeStatus {
            node: node.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            data_dir: Some(node.data_dir.display().to_string()),
            services: self.shown_services(),
            lease: Some(LeaseStatus {
                name: self.lease.name.clone(),
                epoch: self.lease.epoch,
                serving: self.lease.guard.serving(),
                ttl_ms: u64::try_from(node.lease.ttl().as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    fn settings(&self) -> Vec<Setting> {
        self.config.settings()
    }

    fn nodes(&self) -> Vec<ClusterNode> {
        let node = self.config.node();
        let Some(ShownCluster { view, loads, .. }) = &self.cluster else {
            let (name, epoch, services) = (self.lease.name.clone(), self.lease.epoch, node.services.clone());
            return vec![ClusterNode {
                name,
                epoch,
                address: None,
                services,
                serves_databases: Some(self.tenants().is_some()),
                is_this: true,
                is_drained: false,
                load: None,
            }];
        };
        let view = view.now();
        let loads = loads.by_node(&view);
        let load = |load: &Load| NodeLoad {
            cpu_micros: load.cpu_micros,
            transactions: load.transactions,
            log_bytes: load.log_bytes,
            memory_bytes: load.memory_bytes,
        };
        let shown = |record: &NodeRecord| ClusterNode {
            name: record.tenure.node.0.clone(),
            epoch: record.tenure.epoch.0,
            address: Some(record.address.clone()),
            services: services_of(record).map(str::to_owned).collect(),
            serves_databases: Some(is_ready(&view, &record.tenure)),
            is_this: record.tenure.node.0 == self.lease.name,
            is_drained: is_drained(&view, &record.tenure),
            load: loads.get(&record.tenure.node).map(load),
        };
        view.nodes().map(shown).collect()
    }

    fn shards(&self) -> Vec<ClusterShard> {
        let Some(ShownCluster { view, .. }) = &self.cluster else { return Vec::new() };
        let view = view.now();
        let shown = |(shard, record): (&ShardId, &Versioned<ShardRecord>)| {
            let record = &record.value;
            let owner = record.owner();
            ClusterShard {
                shard: shard.0.clone(),
                owner: owner.map(|owner| owner.node.0.clone()),
                epoch: record.epoch.0,
                state: state_of(&view, shard, record).to_owned(),
                log: record.history.as_ref().map(|history| history.log.to_string()),
                moving_to: match &record.ownership {
                    Ownership::Exclusive(Exclusive::Moving { to, .. }) => Some(to.node.0.clone()),
                    _ => None,
                },
            }
        };
        // What was removed is remembered for its epochs alone.
        let served = view.shards("").filter(|(_, record)| record.value.ownership != Ownership::Retired);
        served.map(shown).collect()
    }

    fn others(&self) -> Option<SharedNodes> {
        self.cluster.as_ref().map(|cluster| Arc::clone(&cluster.others) as _)
    }

    fn tenants(&self) -> Option<SharedTenants> {
        self.tenants.lock().clone()
    }

    fn figures(&self) -> Vec<Figure> {
        let services: Vec<Figure> = self.gauges.0.lock().values().flat_map(|gauge| gauge()).collect();
        services.into_iter().chain(figures::of_lease(&self.lease.guard)).chain(figures::of_process()).collect()
    }
}
