//! A cluster over several machines: its records are in etcd, its logs and rows in a store that all of them reach.
//!
//! What a node has on its own disk may be lost. Nobody runs a coordinator, so that who lives is decided by the leases of etcd alone; and the first
//! node by name proposes who owns what. A node that does not reach etcd asks through one that does ([`Through`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use savanna_epoch::NodeId;
use savanna_ownership::etcd::{EtcdCoordinator, EtcdOptions};
use savanna_ownership::remote::RemoteCoordinator;
use savanna_ownership::{ClusterView, Coordinator, CoordinatorError, NodeRecord, Tenure};
use savanna_rpc::{ANY_NODE, Addresses, Cluster, MutualTls, Request, RpcError, TcpTransport, Transport};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::JoinError;
use super::cluster_record::{self, ClusterRecordError};
use super::etcd_access::{self, EtcdAccess};
use super::join::{EtcdPlace, Join, is_here};
use super::joining::{COORDINATOR_TIME, JOIN_TIME, Met};
use super::leader::connections;
use super::shared::Shared;
use super::view::View;
use crate::config::NodeConfig;

/// Before what did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(200);
/// The label of a node that others may ask for what is in etcd.
pub(super) const REACHES_LABEL: &str = "reaches";
/// What such a node reaches.
pub(super) const ETCD: &str = "etcd";

/// Meets a cluster over several machines.
pub(super) async fn meet(
    config: &NodeConfig,
    join: &Join,
    tls: Option<&MutualTls>,
    runtime: &Handle,
) -> Result<Met, JoinError> {
    if config.cluster_address.is_loopback() && !is_all_here(join) {
        return Err(JoinError::OnlyHere { join: join.clone(), came: config.cluster_address });
    }
    let cluster = cluster_record::secret(config.cluster_secret.as_deref())?.encrypted_by(tls);
    let access = match join {
        Join::Etcd(place) => EtcdAccess::of(place, config, std::env::var(etcd_access::PASSWORD).ok())?,
        Join::Directory(_) | Join::Node(_) => EtcdAccess::default(),
    };
    let through = match join {
        Join::Node(address) => {
            Some(Arc::new(Through::new(address, &cluster, NodeId::new(&config.name), runtime.clone())))
        }
        Join::Directory(_) | Join::Etcd(_) => None,
    };
    let deadline = Instant::now() + JOIN_TIME;
    loop {
        let (place, through, config, cluster) = (join.clone(), through.clone(), config.clone(), cluster.clone());
        let access = access.clone();
        // Its connections are kept by the runtime that keeps leases, whatever queries do.
        let met = runtime.spawn(async move {
            let coordinator: Arc<dyn Coordinator> = match (place, &through) {
                (Join::Etcd(place), _) => Arc::new(EtcdCoordinator::connect(options(&place, &config, access)).await?),
                (_, Some(through)) => {
                    let through = Arc::clone(through) as Arc<dyn Transport>;
                    Arc::new(RemoteCoordinator::new(through, NodeId::new(ANY_NODE), COORDINATOR_TIME))
                }
                (join, None) => unreachable!("expected a cluster over several machines, came {join}"),
            };
            let (file, store) = cluster_record::agree(&*coordinator, &cluster, &config).await?;
            let shared = Shared::Store(store);
            Ok::<_, ClusterRecordError>(Met { file, coordinator, way: None, shared, state: None, through })
        });
        match met.await.map_err(|error| JoinError::Thread(std::io::Error::other(error)))? {
            Err(ClusterRecordError::Coordinator(CoordinatorError::Unavailable { reason })) => {
                if Instant::now() >= deadline {
                    return Err(JoinError::Silent { join: join.clone(), waited: JOIN_TIME, reason });
                }
                tokio::time::sleep(PAUSE).await;
            }
            met => return Ok(met?),
        }
    }
}

/// Whether all that a node asks is on its own machine, by address.
fn is_all_here(join: &Join) -> bool {
    match join {
        Join::Directory(_) => true,
        Join::Node(address) => is_here(std::slice::from_ref(address)),
        Join::Etcd(place) => is_here(&place.members),
    }
}

fn options(place: &EtcdPlace, config: &NodeConfig, EtcdAccess { tls, login }: EtcdAccess) -> EtcdOptions {
    let (prefix, ttl) = (place.prefix(), config.lease.ttl());
    EtcdOptions { prefix, ttl, tls, login, ..EtcdOptions::new(place.members.clone()) }
}

/// Whether it is a node's turn to propose who owns what: it is the first by name of those that live.
pub(super) fn is_turn_of(tenure: Tenure) -> impl Fn(&ClusterView) -> bool + Send {
    move |view| view.nodes().map(|node| &node.tenure).min_by_key(|tenure| &tenure.node) == Some(&tenure)
}

/// Carries requests for the coordinator to a node that reaches it: the one that was named at first, or another when that does not answer.
pub(super) struct Through {
    cluster: Cluster,
    from: NodeId,
    runtime: Handle,
    known: Mutex<Known>,
    /// By address, so that one that hangs keeps no request from another.
    transports: Mutex<BTreeMap<String, Arc<TcpTransport>>>,
}

/// The nodes that may be asked. The first one is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    /// As it was given; who is there may have changed.
    named: String,
    addresses: Vec<String>,
}

impl Known {
    fn new(named: &str) -> Self {
        Self { named: named.to_owned(), addresses: vec![named.to_owned()] }
    }

    fn asked(&self) -> &str {
        &self.addresses[0]
    }

    /// Takes in who is there: who was asked stays the one that is, and the one that was named stays known.
    fn learn(&mut self, addresses: impl IntoIterator<Item = String>) {
        let asked = self.addresses.swap_remove(0);
        let mut known: Vec<String> = addresses.into_iter().filter(|address| *address != asked).collect();
        if asked != self.named && !known.contains(&self.named) {
            known.push(self.named.clone());
        }
        known.insert(0, asked);
        self.addresses = known;
    }

    /// Has another one asked, unless somebody has done so.
    fn turn(&mut self, failed: &str) {
        if self.asked() == failed {
            self.addresses.rotate_left(1);
        }
    }
}

impl Through {
    fn new(address: &str, cluster: &Cluster, from: NodeId, runtime: Handle) -> Self {
        let (known, transports) = (Mutex::new(Known::new(address)), Mutex::default());
        Self { cluster: cluster.clone(), from, runtime, known, transports }
    }

    /// The way to an address, on which whoever is there is greeted.
    fn way(&self, address: &str) -> Arc<TcpTransport> {
        let connect = || {
            let addresses = Arc::new(Addresses::default());
            addresses.set(NodeId::new(ANY_NODE), address);
            let transport = TcpTransport::within(self.cluster.clone(), self.from.clone(), addresses, connections());
            Arc::new(transport.on(self.runtime.clone()))
        };
        Arc::clone(self.transports.lock().entry(address.to_owned()).or_insert_with(connect))
    }

    /// Has another one asked; nothing is asked again on this way to the one that failed.
    fn give_up(&self, failed: &str, way: &Arc<TcpTransport>) {
        self.known.lock().turn(failed);
        let mut transports = self.transports.lock();
        if transports.get(failed).is_some_and(|kept| Arc::ptr_eq(kept, way)) {
            transports.remove(failed);
        }
    }

    /// Learns of nodes that can be asked, for ever.
    pub(super) async fn follow(self: Arc<Self>, mut view: View, own: NodeId) {
        while view.changed().await {
            let reaches = |node: &&NodeRecord| {
                node.tenure.node != own && node.labels.get(REACHES_LABEL).is_some_and(|label| label == ETCD)
            };
            let now = view.now();
            self.known.lock().learn(now.nodes().filter(reaches).map(|node| node.address.clone()));
        }
    }
}

#[async_trait]
impl Transport for Through {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        let asked = self.known.lock().asked().to_owned();
        let way = self.way(&asked);
        let reply = way.call(to, request).await;
        if reply.is_err() {
            self.give_up(&asked, &way);
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::grants::tests::{ALL, Cluster as Grants};
    use super::super::leader::Ping;
    use super::*;

    #[test]
    fn the_first_by_name_of_those_that_live_proposes() {
        let mut cluster = Grants::new();
        let nodes = ["n2", "n1", "n3"].map(|name| cluster.join(name, ALL));
        let in_turn = |cluster: &Grants| {
            let view = cluster.view();
            nodes
                .iter()
                .filter(|node| is_turn_of((*node).clone())(&view))
                .map(|node| node.node.0.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(in_turn(&cluster), ["n1"]);
        cluster.leave(nodes[1].clone());
        assert_eq!(in_turn(&cluster), ["n2"]);
        cluster.join("n1", ALL);
        assert!(in_turn(&cluster).is_empty(), "another process of that name");
    }

    #[test]
    fn a_node_that_only_its_machine_reaches_joins_only_what_is_there() {
        let joins = |text: &str| is_all_here(&text.parse().unwrap());
        assert!(joins("etcd://127.0.0.1:2379,localhost:2379") && joins("127.0.0.1:7400") && joins("etcd://[::1]:2379"));
        assert!(!joins("etcd://127.0.0.1:2379,10.0.0.9:2379") && !joins("n1.example:7400"));
    }

    #[test]
    fn another_node_is_asked_when_one_does_not_answer_and_the_one_that_was_named_in_the_end() {
        let mut known = Known::new("a:1");
        known.turn("a:1");
        assert_eq!(known.asked(), "a:1", "there is no other");
        known.learn(["b:1", "c:1"].map(str::to_owned));
        assert_eq!(known.addresses, ["a:1", "b:1", "c:1"]);
        known.turn("a:1");
        known.turn("a:1");
        assert_eq!(known.asked(), "b:1", "once for all that failed");
        known.learn(["c:1".to_owned()]);
        assert_eq!(known.addresses, ["b:1", "c:1", "a:1"], "it may be there again");
    }

    #[tokio::test]
    async fn a_node_that_hangs_keeps_no_request_from_the_next() {
        let (hung, next) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let [named, other] = [&hung, &next].map(|listener| listener.local_addr().unwrap().to_string());
        let through = Through::new(&named, &Cluster::default(), NodeId::new("n4"), Handle::current());
        through.known.lock().learn([other]);
        let ask =
            async |timeout| through.call(&NodeId::new(ANY_NODE), Request::of::<Ping>(&(), timeout).unwrap()).await;
        let failed = ask(Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(failed, RpcError::TimedOut { .. }), "{failed}");
        let asked = tokio::select! {
            biased;
            asked = next.accept() => asked.is_ok(),
            _ = ask(Duration::from_millis(500)) => false,
        };
        assert!(asked, "the second request goes to the other node, while the first still connects");
    }
}
