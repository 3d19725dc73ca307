//! A node among others, on one shared data directory, or on several machines with etcd and an object store.
//!
//! ```text
//!  D/cluster.toml          who belongs to the cluster                            cluster_file
//!  D/lease                 who runs the coordinator: one of the nodes            candidate
//!  D/coordinator.address   where it listens                                      leader
//!  D/pulses/NAME           that the node works                                   reach
//!
//!  several machines: root `cluster` in etcd instead of all these                  cluster_record
//!
//!           ┌─ coordinator/.. ─► the node that runs it ──► proposes who owns shards    grants
//!   a node ─┤                                │ changes
//!           │  ◄─────────────────────────────┘          what this node knows           view
//!           └─ keys/.. streams/.. tenants/.. ─► the owner of that shard; front/.. back       offered
//! ```
//!
//! The services `keys` and `streams` are shards: one node owns each and runs the engine over the folder in D, the others run its
//! faces and ask the owner (keys that are spread are shards of their own, and every node has some: see [`virtual_nodes`]). When the owner is gone, its lease runs out, another node is granted the shard under a higher epoch, opens the folder
//! under it, which fences the former owner out, says in the record that the commits are in its log, and serves. A [`Role`] tells a service of
//! this node what to be; what it is told comes from the view and nothing else. Each tenant is a shard of its own, and every node hosts some:
//! see [`databases`].

mod balancing;
mod cancels;
mod candidate;
mod cluster_file;
mod cluster_record;
pub(crate) mod databases;
mod draining;
mod encryption;
mod etcd_access;
mod facts;
mod grants;
mod histories;
mod join;
mod join_error;
mod joining;
pub(crate) mod key_moves;
mod leader;
pub(crate) mod loads;
mod machines;
pub(crate) mod moves;
mod offered;
mod peers;
mod reach;
mod roles;
pub(crate) mod routed;
pub(crate) mod shared;
pub(crate) mod shares;
mod stay;
mod view;
pub(crate) mod virtual_nodes;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use savanna_http::Facts;
use savanna_ownership::guard::LeaseGuard;
use savanna_ownership::{Coordinator, Tenure};
use savanna_pgwire_tenants::Front;
use savanna_rpc::{TrafficFigures, Transport};
use tokio::sync::watch;

use crate::config::NodeConfig;
use crate::membership::Membership;
use crate::roles::{Grant, Role};

pub(crate) use self::balancing::Decided;
use self::balancing::Decisions;
pub(crate) use self::cancels::Cancels;
pub use self::cluster_file::ClusterFileError;
pub(crate) use self::cluster_file::are_in as is_in;
pub use self::cluster_record::ClusterRecordError;
pub use self::etcd_access::EtcdAccessError;
pub(crate) use self::etcd_access::PASSWORD as ETCD_PASSWORD;
pub(crate) use self::facts::Others;
use self::facts::{Door, OwnFacts};
pub(crate) use self::grants::{services_of, state_of};
pub(crate) use self::histories::TakeError;
pub use self::join::{EtcdPlace, Join, NoJoin};
pub use self::join_error::JoinError;
use self::leader::Way;
use self::loads::KnownLoads;
pub(crate) use self::offered::{Offer, Offered};
pub(crate) use self::peers::Peers;
use self::shared::Shared;
pub use self::shared::StoreUrl;
pub use self::stay::NameLost;
pub(crate) use self::stay::Stay;
pub(crate) use self::view::{View, gone};

/// A node of a cluster.
pub(crate) struct Joined {
    config: NodeConfig,
    coordinator: Arc<dyn Coordinator>,
    shared: Shared,
    tenure: Tenure,
    guard: LeaseGuard,
    view: View,
    /// What nodes say of their load.
    loads: KnownLoads,
    /// What this node has decided about moves.
    decisions: Decisions,
    /// What this node tells others of itself.
    facts: OwnFacts,
    /// Clients of streams at this node, for cancel requests that come to any.
    cancels: Arc<Cancels>,
    /// Where other nodes reach it.
    address: SocketAddr,
    /// To other nodes.
    peers: Peers,
    way: Option<Arc<Way>>,
    served: ServedTraffic,
    front: Arc<Front>,
    offered: BTreeMap<&'static str, Offered>,
    roles: BTreeMap<&'static str, watch::Receiver<Role>>,
    /// What the node is to tenants as long as it lives: it has some, or may get some.
    hosts: watch::Sender<Role>,
}

/// Tells what went on over connections that others have made.
type ServedTraffic = Box<dyn Fn() -> TrafficFigures + Send + Sync>;

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("tenure", &self.tenure).finish_non_exhaustive()
    }
}

impl Joined {
    /// What went on between this node and others: by what it asked for, and what it was asked.
    pub(crate) fn traffic(&self) -> Vec<(&'static str, TrafficFigures)> {
        let way = self.way.iter().map(|way| ("coordinator", way.traffic()));
        self.peers.traffic().chain(way).chain([("server", (self.served)())]).collect()
    }

    /// How often a request to the owner of a database was sent again.
    pub(crate) fn repeats(&self) -> u64 {
        self.front.repeats()
    }

    /// What a service is started with that runs under a grant.
    pub(crate) fn membership(&self, grant: Grant) -> Membership {
        Membership {
            coordinator: Arc::clone(&self.coordinator),
            tenure: self.tenure.clone(),
            guard: self.guard.clone(),
            log_epoch: grant.log_epoch,
        }
    }

    /// Where the logs of the cluster are.
    pub(crate) const fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The node, by name and grant.
    pub(crate) const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Whether the node may serve.
    pub(crate) fn guard(&self) -> LeaseGuard {
        self.guard.clone()
    }

    /// Where other nodes reach it.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cluster as this node sees it.
    pub(crate) const fn view(&self) -> &View {
        &self.view
    }

    /// The way to other nodes.
    pub(crate) fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.peers.clone())
    }

    /// Tells other nodes this of itself from now on, for those who would come in here.
    pub(crate) fn tells(&self, facts: Facts) {
        self.facts.are(facts, Door::of(&self.config));
    }

    /// The other nodes, for the control API.
    pub(crate) fn others(&self) -> Others {
        Others::new(self.view.clone(), Arc::clone(&self.coordinator), self.transport())
    }

    /// Cancel requests for streams, wherever they come and wherever their clients are.
    pub(crate) const fn cancels(&self) -> &Arc<Cancels> {
        &self.cancels
    }

    /// Relays clients of tenants.
    pub(crate) const fn front(&self) -> &Arc<Front> {
        &self.front
    }
}
