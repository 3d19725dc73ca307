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
//! faces and ask the owner. When the owner is gone, its lease runs out, another node is granted the shard under a higher epoch, opens the folder
//! under it, which fences the former owner out, says in the record that the commits are in its log, and serves. A [`Role`] tells a service of
//! this node what to be; what it is told comes from the view and nothing else. Each tenant is a shard of its own, and every node hosts some:
//! see [`databases`].

mod cancels;
mod candidate;
mod cluster_file;
mod cluster_record;
pub(crate) mod databases;
mod encryption;
mod etcd_access;
mod facts;
mod grants;
mod join;
mod leader;
pub(crate) mod loads;
mod machines;
pub(crate) mod moves;
mod offered;
mod peers;
mod reach;
pub(crate) mod routed;
pub(crate) mod shared;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use savanna_control::reach::Sides;
use savanna_epoch::{LogId, NodeId, OwnerEpoch, ShardId};
use savanna_http::Facts;
use savanna_ownership::guard::{LeaseGuard, LeaseStatus};
use savanna_ownership::keeper::LeaseKeeper;
use savanna_ownership::lease::Loss;
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogRecordError, LogState, NewLog};
use savanna_ownership::remote::{self as remote_coordinator, RemoteCoordinator};
use savanna_ownership::{
    BootClock, ClusterView, Coordinator, CoordinatorError, History, Incarnation, NodeSpec, ShardRecord, Tenure,
    Transition,
};
use savanna_pgwire_tenants::Front;
use savanna_rpc::{
    Addresses, MutualTls, Router, RouterLimits, ServiceTable, SessionLimits, TcpConfig, TcpServer, TlsError, TlsFiles,
    TrafficFigures, Transport,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::NodeConfig;
use crate::data_dir;
use crate::error::NodeError;
use crate::membership::Membership;
use crate::remote;
use crate::roles::{Grant, Role};
use crate::services::StreamsService;

pub(crate) use self::cancels::Cancels;
use self::candidate::Candidate;
use self::cluster_file::ClusterFile;
pub use self::cluster_file::ClusterFileError;
pub(crate) use self::cluster_file::are_in as is_in;
pub use self::cluster_record::ClusterRecordError;
pub use self::etcd_access::EtcdAccessError;
pub(crate) use self::etcd_access::PASSWORD as ETCD_PASSWORD;
pub(crate) use self::facts::Others;
use self::facts::OwnFacts;
use self::grants::SHARDS;
pub(crate) use self::grants::{services_of, state_of};
pub use self::join::{EtcdPlace, Join, NoJoin};
use self::leader::{COORDINATOR, Way};
use self::loads::KnownLoads;
use self::machines::Through;
pub(crate) use self::offered::{Offer, Offered};
pub(crate) use self::peers::Peers;
use self::routed::RoutedStreams;
use self::shared::Shared;
pub use self::shared::StoreUrl;
pub(crate) use self::view::{View, gone};

/// How long a request to the coordinator is tried again.
const COORDINATOR_TIME: Duration = Duration::from_secs(2);
/// How long a node tries to join.
const JOIN_TIME: Duration = Duration::from_secs(15);
/// How long it waits for the file of the cluster: whoever takes the directory writes it at once.
const PAPERS_TIME: Duration = Duration::from_secs(5);
/// How long the node that runs the coordinator waits for others that leave with it.
const LEAVE_TIME: Duration = Duration::from_secs(1);
/// How long a node waits until all shards are served.
const SERVED_TIME: Duration = Duration::from_secs(10);

/// Why a node did not join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The file of the cluster cannot be used.
    #[error(transparent)]
    ClusterFile(#[from] ClusterFileError),
    /// Another process keeps the directory for itself.
    #[error(
        "process {pid} serves the data directory alone; stop it (`savanna dev` has Ctrl-C), then start the nodes of the cluster"
    )]
    Kept {
        /// Its process number.
        pid: u32,
    },
    /// Another process holds the directory of this cluster, and has not said where its coordinator is.
    #[error(
        "process {pid} starts the coordinator of this cluster, and has not said within {waited:?} where it is: {reason}; wait for it, or look at its log"
    )]
    Starting {
        /// Its process number.
        pid: u32,
        /// How long it was waited for.
        waited: Duration,
        /// What came last.
        reason: String,
    },
    /// The record.
    #[error(transparent)]
    ClusterRecord(#[from] ClusterRecordError),
    /// Etcd cannot be asked as the settings say.
    #[error(transparent)]
    EtcdAccess(#[from] EtcdAccessError),
    /// Nodes on other machines would not reach this one.
    #[error(
        "expected cluster.address to be an address at which the nodes that join {join} reach this machine, came {came}, which only this machine reaches; set it to this machine's in the network"
    )]
    OnlyHere {
        /// What it joins.
        join: Join,
        /// The setting.
        came: IpAddr,
    },
    /// The cluster keeps everything in its directory.
    #[error(
        "a cluster in a data directory keeps its logs there, and not in cluster.store = {store}; join etcd (--join etcd://HOST:PORT), or leave the setting out"
    )]
    NoStoreHere {
        /// The store.
        store: StoreUrl,
    },
    /// What was joined does not answer.
    #[error(
        "{join} did not answer within {waited:?}: {reason}; look whether it runs, and at the network between{}",
        directory_hint(join)
    )]
    Silent {
        /// What was joined.
        join: Join,
        /// How long it was waited for.
        waited: Duration,
        /// What came last.
        reason: String,
    },
    /// Nobody runs the coordinator.
    #[error(
        "no coordinator was found within {waited:?}: {reason}; look at the logs of the nodes on this data directory, and start one if none runs"
    )]
    NoCoordinator {
        /// How long it was looked for.
        waited: Duration,
        /// What came last.
        reason: String,
    },
    /// The network is cut.
    #[error(
        "this node reaches {reached} of the nodes that work, itself included, and does not reach {beyond}, which show in the data directory that they work; look at the network between them"
    )]
    CutOff {
        /// How many answer, and itself.
        reached: usize,
        /// How many do not.
        beyond: usize,
    },
    /// The port for other nodes cannot be listened to.
    #[error(
        "cannot listen for other nodes on {address}: {source}; choose another port with --cluster-port, or an address of this machine with cluster.address"
    )]
    Listen {
        /// The address.
        address: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The coordinator refused.
    #[error("the node could not register as {name}: {source}")]
    Register {
        /// Its name.
        name: String,
        /// Why.
        source: Box<savanna_ownership::keeper::JoinError>,
    },
    /// Connections between nodes cannot be encrypted.
    #[error(
        "connections between nodes cannot be encrypted: {source}; look at cluster.tls_cert = {}, cluster.tls_key = {} and cluster.tls_ca = {}",
        files.certificates.display(),
        files.key.display(),
        files.authorities.display()
    )]
    Tls {
        /// The files.
        files: Box<TlsFiles>,
        /// What is wrong with them.
        source: TlsError,
    },
    /// The others encrypt what they say, and this node does not, or the other way round.
    #[error(
        "expected a node that {} what it says to others, as the nodes of this cluster that live do, came one that {}; {}, or stop all nodes and start them with the same settings",
        if *is_encrypted { "does not encrypt" } else { "encrypts" },
        if *is_encrypted { "does" } else { "does not" },
        if *is_encrypted {
            "leave cluster.tls_cert, cluster.tls_key and cluster.tls_ca out"
        } else {
            "set cluster.tls_cert, cluster.tls_key and cluster.tls_ca as for those"
        }
    )]
    Encryption {
        /// Whether this node encrypts.
        is_encrypted: bool,
    },
    /// A thread could not be started.
    #[error("the threads for the cluster could not start: {0}; check the limit of threads")]
    Thread(std::io::Error),
}

/// A node of another kind of cluster does not say so to who does not know its secret.
const fn directory_hint(join: &Join) -> &'static str {
    match join {
        Join::Node(_) => {
            "; HOST:PORT is for nodes of a cluster in etcd: if that one's is in a data directory, join the directory (--join DIR), on the machine that has it"
        }
        Join::Directory(_) | Join::Etcd(_) => "",
    }
}

/// The node is no longer one of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameLost {
    /// The node, by name and grant.
    pub tenure: Tenure,
    /// Whether another process has claimed the name.
    pub is_claimed: bool,
}

impl fmt::Display for NameLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, advice) = match self.is_claimed {
            true => (
                "another process has claimed the name",
                "Use that process, or start this one with a --name that no other node has",
            ),
            false => ("its lease has run out", "Start it again"),
        };
        write!(
            f,
            "this process is no longer node {}: {why}; what it served, others serve by now, and nothing that it acknowledged as durable is \
             lost. {advice}",
            self.tenure
        )
    }
}

/// Why a shard's commits were not taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    #[error("who owns {shard} could not be changed: {source}")]
    Coordinator { shard: ShardId, source: Box<CoordinatorError> },
    #[error("{shard} is not this node's any more")]
    NotOwner { shard: ShardId },
    #[error(transparent)]
    Log(#[from] LogRecordError),
}

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

/// What keeps a node in its cluster, and ends it there.
#[derive(Debug)]
pub(crate) struct Stay {
    keeper: LeaseKeeper,
    view: View,
    tasks: Vec<JoinHandle<()>>,
    server: TcpServerOf,
    facts: OwnFacts,
    standing: Option<Standing>,
    /// Leases are kept by a thread of their own, whatever queries do.
    _runtime: OwnRuntime,
}

/// A node that runs the coordinator when it is its turn.
#[derive(Debug)]
struct Standing {
    stopping: watch::Sender<bool>,
    candidate: JoinHandle<()>,
    state: watch::Receiver<candidate::State>,
}

impl Standing {
    fn begin(config: &NodeConfig, tls: Option<MutualTls>, runtime: &Handle) -> Self {
        let (stopping, stop) = watch::channel(false);
        let candidate = Candidate::new(config, tls);
        let state = candidate.state();
        Self { stopping, candidate: runtime.spawn(candidate.run(stop)), state }
    }

    /// Leaves the coordinator, and the directory, to others.
    async fn end(self) {
        self.stopping.send_replace(true);
        // It panicked, if at all, and holds nothing then.
        let _ = self.candidate.await;
    }
}

/// What a node knows of a cluster before it is one of its nodes.
struct Met {
    file: ClusterFile,
    coordinator: Arc<dyn Coordinator>,
    /// The connection to the node that runs it; none where nobody does.
    way: Option<Arc<Way>>,
    shared: Shared,
    /// None where nobody does, as the coordinator is etcd.
    state: Option<watch::Receiver<candidate::State>>,
    /// By whom the coordinator is asked, if not by the node itself.
    through: Option<Arc<Through>>,
}

/// A runtime that may be dropped anywhere.
#[derive(Debug)]
struct OwnRuntime(Option<tokio::runtime::Runtime>);

impl OwnRuntime {
    fn start() -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Ok(Self(Some(builder.worker_threads(1).thread_name("cluster").enable_all().build()?)))
    }

    fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The server of a node, which has nothing to show in `Debug`.
struct TcpServerOf(TcpServer);

impl fmt::Debug for TcpServerOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpServer").field(&self.0.local_address()).finish()
    }
}

/// Bounds of connections between nodes.
fn connections() -> TcpConfig {
    let session = SessionLimits {
        ping_after: Duration::from_secs(1),
        dead_after: Duration::from_secs(5),
        ..SessionLimits::default()
    };
    TcpConfig { session, backoff_max: Duration::from_millis(200), ..TcpConfig::default() }
}

impl Joined {
    /// Joins a cluster.
    ///
    /// # Errors
    /// [`NodeError`]: the directory cannot be used, or [`JoinError`].
    pub(crate) async fn join(config: &NodeConfig, join: &Join) -> Result<(Arc<Self>, Stay), NodeError> {
        if let (Join::Directory(_), Some(store)) = (join, &config.cluster_store) {
            return Err(JoinError::NoStoreHere { store: store.clone() }.into());
        }
        let tls = encryption::read(config)?;
        data_dir::make(config)?;
        let runtime = OwnRuntime::start().map_err(JoinError::Thread)?;
        let handle = runtime.handle();
        let standing = matches!(join, Join::Directory(_)).then(|| Standing::begin(config, tls.clone(), &handle));
        let met = match (join, &standing) {
            (_, Some(standing)) => Self::meet(config, tls.as_ref(), &handle, &standing.state).await,
            _ => machines::meet(config, join, tls.as_ref(), &handle).await,
        };
        let joined = match met {
            Ok(met) => Self::with(config, &handle, met).await,
            Err(error) => Err(error),
        };
        match joined {
            Ok((joined, keeper, tasks, server)) => {
                let server = TcpServerOf(server);
                let (view, facts) = (joined.view.clone(), joined.facts.clone());
                let stay = Stay { keeper, view, tasks, server, facts, standing, _runtime: runtime };
                Ok((Arc::new(joined), stay))
            }
            Err(error) => {
                if let Some(standing) = standing {
                    // It may hold the directory, which others want.
                    standing.end().await;
                }
                Err(error.into())
            }
        }
    }

    /// Meets the cluster that the data directory is.
    async fn meet(
        config: &NodeConfig,
        tls: Option<&MutualTls>,
        runtime: &Handle,
        state: &watch::Receiver<candidate::State>,
    ) -> Result<Met, JoinError> {
        let file = await_cluster_file(config, state).await?.encrypted_by(tls);
        let name = NodeId::new(&config.name);
        let way = Arc::new(Way::new(&config.data_dir, file.cluster.clone(), name, runtime.clone()));
        let coordinator = RemoteCoordinator::new(Arc::clone(&way) as _, NodeId::new(COORDINATOR), COORDINATOR_TIME);
        let shared = Shared::Directory(config.data_dir.clone());
        let (coordinator, state) = (Arc::new(coordinator), Some(state.clone()));
        Ok(Met { file, coordinator, way: Some(way), shared, state, through: None })
    }

    async fn with(
        config: &NodeConfig,
        runtime: &Handle,
        met: Met,
    ) -> Result<(Self, LeaseKeeper, Vec<JoinHandle<()>>, TcpServer), JoinError> {
        let Met { file, coordinator, way, shared, state, through } = met;
        let name = NodeId::new(&config.name);
        let cluster = file.cluster.clone();
        let addresses = Arc::new(Addresses::default());
        let peers = Peers::new(&cluster, &name, &addresses, connections());
        let transport: Arc<dyn Transport> = Arc::new(peers.clone());
        let (view, following) = View::follow(Arc::clone(&coordinator), addresses);
        let router = Router::new(Arc::clone(&transport), Arc::new(view.clone()), RouterLimits::default());
        let loads = KnownLoads::default();
        let names = databases::KnownNames {
            node: name.clone(),
            view: view.clone(),
            loads: loads.clone(),
            coordinator: Arc::clone(&coordinator),
        };
        let front = Front::new(name.clone(), router, transport, Arc::new(names));
        let mut offered: BTreeMap<_, _> = SHARDS
            .iter()
            .map(|service| (*service, Offered::new(name.clone(), ShardId::new(*service), view.clone())))
            .collect();
        let services = offered
            .iter()
            .fold(ServiceTable::new(), |table, (name, offered)| table.service(*name, Arc::new(offered.clone())));
        let moves = Offered::new(name.clone(), ShardId::new(databases::CONTROLLER), view.clone());
        offered.insert(moves::SERVICE, moves.clone());
        let services = services.service("front", Arc::clone(&front).service());
        let services = services.service(moves::SERVICE, Arc::new(moves));
        let facts = OwnFacts::default();
        let services = services.service(facts::SERVICE, facts.service());
        let cancels = Cancels::new(name.clone(), view.clone(), Arc::new(peers.clone()));
        let services = services.service(cancels::SERVICE, cancels.service());
        let mut services = services.service(loads::SERVICE, loads.service());
        let mut labels = BTreeMap::from([(grants::SERVICES_LABEL.to_owned(), config.services.join(","))]);
        if state.is_none() && through.is_none() {
            services = services.service(remote_coordinator::SERVICE, remote_coordinator::service(&coordinator));
            labels.insert(machines::REACHES_LABEL.to_owned(), machines::ETCD.to_owned());
        }
        let address = SocketAddr::new(config.cluster_address, config.cluster_port);
        let is_encrypted = cluster.is_encrypted();
        if is_encrypted {
            labels.insert(encryption::LABEL.to_owned(), encryption::MUTUAL_TLS.to_owned());
        }
        let server = TcpServer::within(cluster, address, name.clone(), Arc::new(services), connections()).await;
        let server = server.map_err(|source| JoinError::Listen { address: address.to_string(), source })?;

        let spec = NodeSpec {
            name: name.clone(),
            incarnation: Incarnation(rand::random()),
            address: server.local_address().to_string(),
            labels,
        };
        if state.is_none() {
            encryption::agree(&coordinator, &name, is_encrypted).await?;
        }
        let keeper = register(config, &coordinator, &spec, runtime, state.as_ref()).await?;
        let tenure = keeper.tenure().clone();
        let mut tasks = vec![runtime.spawn(following)];
        let mut roles = BTreeMap::new();
        for service in SHARDS {
            let (sender, role) = watch::channel(Role::Front);
            roles.insert(service, role);
            let (view, tenure, file) = (view.clone(), tenure.clone(), file.clone());
            tasks.push(runtime.spawn(tell_roles(view, tenure, file, ShardId::new(service), sender)));
        }
        tasks.push(runtime.spawn(tell_routes(view.clone(), Arc::clone(&front))));
        if let Some(through) = through {
            tasks.push(runtime.spawn(through.follow(view.clone(), name)));
        }
        if state.is_none() {
            let is_turn = machines::is_turn_of(tenure.clone());
            let (coordinator, view) = (Arc::clone(&coordinator), view.clone());
            tasks.push(runtime.spawn(grants::propose_in_turn(coordinator, view, config.cluster_nodes, is_turn)));
        }
        let (guard, address) = (keeper.guard(), server.local_address());
        let served: ServedTraffic = Box::new(server.traffic());
        let config = config.clone();
        let hosts = watch::Sender::new(Role::Owner(Grant { epoch: None, log_epoch: tenure.epoch }));
        let joined = Self {
            config,
            coordinator,
            shared,
            tenure,
            guard,
            view,
            loads,
            facts,
            cancels,
            address,
            peers,
            way,
            served,
            front,
            offered,
            roles,
            hosts,
        };
        Ok((joined, keeper, tasks, server))
    }

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

    /// Tells other nodes this of itself from now on.
    pub(crate) fn tells(&self, facts: Facts) {
        self.facts.are(facts);
    }

    /// The other nodes, for the control API.
    pub(crate) fn others(&self) -> Others {
        Others::new(self.view.clone(), self.transport())
    }

    /// Cancel requests for streams, wherever they come and wherever their clients are.
    pub(crate) const fn cancels(&self) -> &Arc<Cancels> {
        &self.cancels
    }

    /// Relays clients of tenants.
    pub(crate) const fn front(&self) -> &Arc<Front> {
        &self.front
    }

    /// What this node is to tenants: each node has its own.
    pub(crate) fn hosts(&self) -> watch::Receiver<Role> {
        self.hosts.subscribe()
    }

    /// What this node is to a service.
    pub(crate) fn role(&self, service: &str) -> watch::Receiver<Role> {
        self.roles[service].clone()
    }

    /// The streams of the cluster for the faces of this node, and the node's own for others while it owns them.
    pub(crate) fn routed(self: &Arc<Self>, streams: StreamsService) -> StreamsService {
        let StreamsService { handle, stop } = streams;
        let (node, view, transport) = (self.tenure.node.clone(), self.view.clone(), self.transport());
        let routed = RoutedStreams::new(node, view, Arc::clone(&handle), self.guard(), transport);
        let (offered, guard, mut role) = (self.offered("streams").clone(), self.guard(), self.role("streams"));
        let offering = tokio::spawn(async move {
            let mut offer = None;
            loop {
                let is_owner = matches!(*role.borrow_and_update(), Role::Owner(_));
                // An offer ends when it is dropped: the one before, not the next.
                drop(offer.take());
                offer = is_owner.then(|| offered.offer(remote::serve_streams(Arc::clone(&handle)), guard.clone()));
                if role.changed().await.is_err() {
                    return;
                }
            }
        });
        let stop = Box::new(move || -> BoxFuture<'static, ()> {
            Box::pin(async move {
                offering.abort();
                stop().await;
            })
        });
        StreamsService { handle: routed, stop }
    }

    /// Answers other nodes for a service.
    pub(crate) fn offered(&self, service: &str) -> &Offered {
        &self.offered[service]
    }

    /// Says in the record of a service's shard that its commits are in this node's log from now on, which is open and has all of them.
    /// Clients may be served from then on.
    ///
    /// # Errors
    /// [`TakeError`]: nobody may be served.
    pub(crate) async fn take_history(&self, service: &'static str, epoch: OwnerEpoch) -> Result<(), TakeError> {
        let shard = ShardId::new(service);
        let failed = |source| TakeError::Coordinator { shard: shard.clone(), source: Box::new(source) };
        let mut own_log = None;
        loop {
            let record = self.coordinator.shard(&shard).await.map_err(failed)?;
            let record = record.filter(|record| record.value.epoch_of(&self.tenure) == Some(epoch));
            let Some(record) = record else { return Err(TakeError::NotOwner { shard }) };
            if is_taken(&record.value, &self.tenure.node) {
                break;
            }
            let log = match own_log.take() {
                Some(log) => log,
                None => self.own_log(service).await?,
            };
            own_log = Some(log.clone());
            let history = Some(History { log, epoch });
            let transition = Transition {
                shard: shard.clone(),
                expected: record.version,
                record: record.value.with_history(history),
                by: Some(self.tenure.clone()),
            };
            match self.coordinator.transition(&transition).await {
                Ok(_) => break,
                // Whether it was done shows when the record is read again.
                Err(CoordinatorError::Conflict { .. } | CoordinatorError::Unavailable { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if let Err(error) = self.forget_logs(service).await {
            tracing::debug!(%error, service, "the records of former logs are removed by the next owner");
        }
        Ok(())
    }

    /// A log of this tenure that no shard names, as an attempt before has left it; else a new one.
    async fn own_log(&self, service: &'static str) -> Result<LogId, TakeError> {
        let failed = |source| TakeError::Coordinator { shard: ShardId::new(service), source: Box::new(source) };
        let view = ClusterView::new(self.coordinator.snapshot().await.map_err(failed)?);
        match unnamed_log(&view, service, &self.tenure) {
            Some(log) => Ok(log),
            None => self.begin_log(service, &view).await,
        }
    }

    /// Begins a log of this node. All logs of a service lie in one folder, which the log's owner has fenced: nobody may seal what is there,
    /// so its place is told as one that only the node knows.
    async fn begin_log(&self, service: &'static str, view: &ClusterView) -> Result<LogId, TakeError> {
        let failed = |source| TakeError::Coordinator { shard: ShardId::new(service), source: Box::new(source) };
        let new = NewLog::allocate(&*self.coordinator, &self.tenure.node, service).await.map_err(failed)?;
        let log = new.id().clone();
        let place = LogPlace::Private(service.to_owned());
        let begun = logs::begin(view, new, place, self.tenure.clone())?;
        self.coordinator.apply(&begun.into()).await.map_err(failed)?;
        Ok(log)
    }

    /// Removes the records of logs whose owners are gone, and that no shard names any more. What was in them, this node has.
    async fn forget_logs(&self, service: &'static str) -> Result<(), TakeError> {
        let failed = |source| TakeError::Coordinator { shard: ShardId::new(service), source: Box::new(source) };
        let view = ClusterView::new(self.coordinator.snapshot().await.map_err(failed)?);
        let is_former = |(log, record): &(&LogId, &LogRecord)| {
            log.service == service
                && !view.lives(&record.holder)
                && matches!(record.place, LogPlace::Private(_))
                && logs::shards_in(&view, log).next().is_none()
        };
        let (all, _) = logs::readable(&view);
        for (log, record) in all.iter().filter(is_former) {
            if record.state == LogState::Open {
                self.coordinator.apply(&logs::seal(&view, log)?.into()).await.map_err(failed)?;
            }
            let view = ClusterView::new(self.coordinator.snapshot().await.map_err(failed)?);
            self.coordinator.apply(&logs::remove(&view, log)?.into()).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Gives a service up that this node was granted and cannot serve, if another node can have it.
    pub(crate) async fn give_up(&self, service: &'static str, epoch: OwnerEpoch) {
        let Some(transition) = grants::given_up(&self.view.now(), service, &self.tenure, epoch) else {
            tracing::warn!(service, "no other node can have the service, which this node cannot serve");
            return;
        };
        let owner = transition.record.owner().map(|owner| owner.to_string());
        match self.coordinator.transition(&transition).await {
            Ok(_) => tracing::warn!(service, owner, "this node cannot serve, and gives the service to another one"),
            Err(error) => {
                tracing::warn!(service, %error, "the service, which this node cannot serve, could not be given up")
            }
        }
    }

    /// Is the controller no more, if this node is that: it cannot serve tenants.
    pub(crate) async fn leave_control(&self) {
        let role = *self.role(databases::CONTROLLER).borrow();
        if let Role::Owner(Grant { epoch: Some(epoch), .. }) = role {
            self.give_up(databases::CONTROLLER, epoch).await;
        }
    }

    /// Waits until each shard of a service that this node has is served by somebody, but not for ever.
    pub(crate) async fn served(&self) {
        let wanted = SHARDS.iter().filter(|service| self.config.services.iter().any(|own| own == *service));
        let wanted: Vec<_> = wanted.map(|service| ShardId::new(*service)).collect();
        let is_served = |view: &ClusterView, shard: &ShardId| {
            view.shard(shard).is_some_and(|record| state_of(view, shard, &record.value) == grants::SERVING)
        };
        let has_tenants = wanted.iter().any(|shard| shard.0 == databases::CONTROLLER);
        let are_tenants_served = |view: &ClusterView| {
            let mut tenants = view.shards("tenants/").filter(|(_, record)| record.value.owner().is_some());
            !has_tenants || tenants.all(|(shard, record)| state_of(view, shard, &record.value) == grants::SERVING)
        };
        let are_served =
            |view: &ClusterView| wanted.iter().all(|shard| is_served(view, shard)) && are_tenants_served(view);
        if tokio::time::timeout(SERVED_TIME, self.view.clone().until(are_served)).await.is_err() {
            tracing::warn!("not every shard is served yet; `savanna shards` says by whom each is");
        }
    }
}

impl Stay {
    /// Ready when the node is no longer one of its cluster.
    pub(crate) fn lost(&self) -> impl Future<Output = NameLost> + Send + use<> {
        let (mut status, tenure) = (self.keeper.status(), self.keeper.tenure().clone());
        async move {
            let over = |status: &LeaseStatus| matches!(status, LeaseStatus::Draining | LeaseStatus::Lost(_));
            // A closed channel means that nobody renews the lease.
            let status = status.wait_for(over).await.map(|status| *status);
            NameLost { tenure, is_claimed: status.is_ok_and(is_claimed) }
        }
    }

    /// Leaves the cluster, after all services have ended.
    pub(crate) async fn leave(mut self) {
        self.facts.end();
        if let Err(error) = self.keeper.release().await {
            tracing::warn!(%error, "the node's name could not be released; what it had is granted to others when its lease has run out");
        }
        if let Some(standing) = self.standing.take() {
            if *standing.state.borrow() == candidate::State::This {
                // Others that leave at the same time can say so.
                let empty = |view: &ClusterView| view.nodes().next().is_none();
                let _ = tokio::time::timeout(LEAVE_TIME, self.view.until(empty)).await;
            }
            standing.end().await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        self.server.0.shut_down().await;
    }
}

/// Waits for the file of the cluster, which the first process that holds the directory writes.
async fn await_cluster_file(
    config: &NodeConfig,
    state: &watch::Receiver<candidate::State>,
) -> Result<ClusterFile, JoinError> {
    let deadline = tokio::time::Instant::now() + PAPERS_TIME;
    loop {
        if let Some(file) = ClusterFile::read(&config.data_dir, config.lease)? {
            return Ok(file);
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(not_found(
                Some(state),
                false,
                PAPERS_TIME,
                "the file of the cluster was not written".to_owned(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Registers the node, once there is a coordinator. A process that has its name before loses it.
async fn register(
    config: &NodeConfig,
    coordinator: &Arc<dyn Coordinator>,
    spec: &NodeSpec,
    runtime: &Handle,
    state: Option<&watch::Receiver<candidate::State>>,
) -> Result<LeaseKeeper, JoinError> {
    use savanna_ownership::keeper::JoinError as Refused;

    let deadline = tokio::time::Instant::now() + JOIN_TIME;
    loop {
        let (coordinator, spec, terms) = (Arc::clone(coordinator), spec.clone(), config.lease);
        let claim = async move { LeaseKeeper::claim(coordinator, &spec, terms, Arc::new(BootClock)).await };
        let claimed = runtime.spawn(claim).await.map_err(|error| JoinError::Thread(std::io::Error::other(error)))?;
        match claimed {
            Ok(keeper) => return Ok(keeper),
            Err(Refused::Coordinator(CoordinatorError::Unavailable { reason })) => {
                if tokio::time::Instant::now() >= deadline {
                    return Err(not_found(state, true, JOIN_TIME, reason));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(source) => return Err(JoinError::Register { name: config.name.clone(), source: Box::new(source) }),
        }
    }
}

/// Why there is no coordinator after so long. What keeps the directory of a cluster is one of its nodes.
fn not_found(
    state: Option<&watch::Receiver<candidate::State>>,
    has_papers: bool,
    waited: Duration,
    reason: String,
) -> JoinError {
    match state.map_or(candidate::State::Others, |state| *state.borrow()) {
        candidate::State::KeptBy(pid) if has_papers => JoinError::Starting { pid, waited, reason },
        candidate::State::KeptBy(pid) => JoinError::Kept { pid },
        candidate::State::CutOff(Sides { reached, beyond, .. }) => JoinError::CutOff { reached, beyond },
        candidate::State::Encryption { is_encrypted } => JoinError::Encryption { is_encrypted },
        _ => JoinError::NoCoordinator { waited, reason },
    }
}

/// Whether a lease is over because another process has claimed the name.
const fn is_claimed(status: LeaseStatus) -> bool {
    matches!(status, LeaseStatus::Draining | LeaseStatus::Lost(Loss::Claimed))
}

/// Whether a shard's commits are in a log of its owner, which this node is, and has said so under its grant.
fn is_taken(record: &ShardRecord, node: &NodeId) -> bool {
    record.history.as_ref().is_some_and(|history| history.epoch == record.epoch && history.log.node == *node)
}

/// A log of a service that this tenure has begun and no shard names.
fn unnamed_log(view: &ClusterView, service: &str, tenure: &Tenure) -> Option<LogId> {
    let is_left = |log: &LogId, record: &LogRecord| {
        log.service == service
            && record.holder == *tenure
            && record.state == LogState::Open
            // The engine of tenants keeps records of its own logs, in another place.
            && record.place == LogPlace::Private(service.to_owned())
            && logs::shards_in(view, log).next().is_none()
    };
    logs::readable(view).0.into_iter().find(|(log, record)| is_left(log, record)).map(|(log, _)| log)
}

/// What a node is to a shard.
fn role_of(view: &ClusterView, shard: &ShardId, tenure: &Tenure, file: &ClusterFile) -> Role {
    let record = view.shard(shard).filter(|record| record.value.owner() == Some(tenure));
    record.map_or(Role::Front, |record| {
        let epoch = record.value.epoch;
        Role::Owner(Grant { epoch: Some(epoch), log_epoch: file.log_epoch(epoch) })
    })
}

/// Tells a service what to be, as long as somebody listens.
async fn tell_roles(mut view: View, tenure: Tenure, file: ClusterFile, shard: ShardId, roles: watch::Sender<Role>) {
    loop {
        let role = role_of(&view.now(), &shard, &tenure, &file);
        roles.send_if_modified(|known| std::mem::replace(known, role) != role);
        if !view.changed().await {
            return;
        }
    }
}

/// Tells the router where shards are, whenever that changes.
async fn tell_routes(mut view: View, front: Arc<Front>) {
    while view.changed().await {
        let now = view.now();
        front.learn(|shard| view::route(&now, shard));
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::NodeEpoch;
    use savanna_ownership::core::{CoordinatorCore, Reply, Request};
    use savanna_ownership::{LeaseTerms, MonoTime, Revision};

    use super::*;

    #[test]
    fn who_asks_a_node_in_vain_hears_how_a_cluster_in_a_directory_is_joined() {
        let told = |join: &str| {
            let (join, waited) = (join.parse().unwrap(), JOIN_TIME);
            JoinError::Silent { join, waited, reason: "refused".to_owned() }.to_string()
        };
        assert!(told("127.0.0.1:7400").contains("join the directory (--join DIR)"), "{}", told("127.0.0.1:7400"));
        assert!(!told("etcd://127.0.0.1:2379").contains("directory"));
    }

    #[test]
    fn a_process_owns_what_it_was_granted_and_nothing_that_another_of_its_name_was() {
        let directory = tempfile::tempdir().unwrap();
        let file = ClusterFile::ensure(directory.path(), NodeEpoch(50), LeaseTerms::default()).unwrap();
        let mut core = CoordinatorCore::new(Duration::from_secs(3600));
        let join = |core: &mut CoordinatorCore, incarnation| {
            let (name, incarnation) = (NodeId::new("n1"), Incarnation(incarnation));
            let spec = NodeSpec { name, incarnation, address: String::new(), labels: BTreeMap::new() };
            match core.step(&Request::Register(spec), MonoTime(0)).reply {
                Ok(Reply::Granted(grant)) => grant.tenure,
                other => panic!("expected a grant, came {other:?}"),
            }
        };
        let first = join(&mut core, 1);
        let keys = ShardId::new("keys");
        let record = ShardRecord::serving(first.clone(), OwnerEpoch(1));
        let grant = Transition { shard: keys.clone(), expected: Revision::NONE, record, by: None };
        core.step(&Request::Apply(grant.into()), MonoTime(0)).reply.unwrap();
        let role = |core: &CoordinatorCore, tenure: &Tenure, shard: &str| {
            role_of(&ClusterView::new(core.snapshot()), &ShardId::new(shard), tenure, &file)
        };
        let granted = Grant { epoch: Some(OwnerEpoch(1)), log_epoch: NodeEpoch(51) };
        assert_eq!(role(&core, &first, "keys"), Role::Owner(granted));
        assert_eq!(role(&core, &first, "tenants"), Role::Front);
        core.step(&Request::Deregister(first), MonoTime(0)).reply.unwrap();
        let second = join(&mut core, 2);
        assert_eq!(role(&core, &second, "keys"), Role::Front);
    }
    #[test]
    fn a_log_that_no_shard_names_is_used_again_by_its_tenure_alone() {
        let mut core = CoordinatorCore::new(Duration::from_secs(3600));
        let spec = |incarnation| NodeSpec {
            name: NodeId::new("n1"),
            incarnation: Incarnation(incarnation),
            address: String::new(),
            labels: BTreeMap::new(),
        };
        let join = |core: &mut CoordinatorCore, incarnation| match core
            .step(&Request::Register(spec(incarnation)), MonoTime(0))
            .reply
        {
            Ok(Reply::Granted(grant)) => grant.tenure,
            other => panic!("expected a grant, came {other:?}"),
        };
        let first = join(&mut core, 1);
        let new = NewLog::numbered(&first.node, "keys", &(1..2)).unwrap();
        let log = new.id().clone();
        let view = |core: &CoordinatorCore| ClusterView::new(core.snapshot());
        let place = LogPlace::Private("keys".to_owned());
        let begun = logs::begin(&view(&core), new, place, first.clone()).unwrap();
        core.step(&Request::Apply(begun.into()), MonoTime(0)).reply.unwrap();
        let unnamed =
            |core: &CoordinatorCore, service: &str, tenure: &Tenure| unnamed_log(&view(core), service, tenure);
        assert_eq!(unnamed(&core, "keys", &first), Some(log.clone()));
        assert_eq!(unnamed(&core, "tenants", &first), None);
        let keys = ShardId::new("keys");
        let record = ShardRecord::serving(first.clone(), OwnerEpoch(1));
        let grant = Transition { shard: keys.clone(), expected: Revision::NONE, record, by: None };
        core.step(&Request::Apply(grant.into()), MonoTime(0)).reply.unwrap();
        let granted = core.shard(&keys).unwrap().clone();
        assert!(!is_taken(&granted.value, &first.node));
        let record = granted.value.with_history(Some(History { log, epoch: OwnerEpoch(1) }));
        assert!(is_taken(&record, &first.node));
        let taken = Transition { shard: keys, expected: granted.version, record, by: Some(first.clone()) };
        core.step(&Request::Apply(taken.into()), MonoTime(0)).reply.unwrap();
        assert_eq!(unnamed(&core, "keys", &first), None, "it is in use");
        core.step(&Request::Deregister(first), MonoTime(0)).reply.unwrap();
        let second = join(&mut core, 2);
        assert_eq!(unnamed(&core, "keys", &second), None, "an earlier process has begun it");
    }
}
