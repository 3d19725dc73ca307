//! How a node comes into its cluster: it meets it, listens for others, registers, and is told what it is from then on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use savanna_control::reach::Sides;
use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::keeper::LeaseKeeper;
use savanna_ownership::remote::{self as remote_coordinator, RemoteCoordinator};
use savanna_ownership::{BootClock, Coordinator, CoordinatorError, Incarnation, NodeSpec};
use savanna_pgwire_tenants::Front;
use savanna_rpc::{
    Addresses, MutualTls, Router, RouterLimits, ServiceTable, SessionLimits, TcpConfig, TcpServer, Transport,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::balancing::{self, Decisions};
use super::cancels::{self, Cancels};
use super::candidate;
use super::cluster_file::ClusterFile;
use super::databases;
use super::encryption;
use super::facts::{self, OwnFacts};
use super::grants::{self, SHARDS};
use super::join::Join;
use super::join_error::JoinError;
use super::leader::{COORDINATOR, Way};
use super::loads::{self, KnownLoads};
use super::machines::{self, Through};
use super::moves;
use super::offered::Offered;
use super::peers::Peers;
use super::roles::{tell_roles, tell_routes};
use super::shared::Shared;
use super::stay::{OwnRuntime, Standing, Stay, TcpServerOf};
use super::view::View;
use super::{Joined, ServedTraffic};
use crate::config::NodeConfig;
use crate::data_dir;
use crate::error::NodeError;
use crate::roles::{Grant, Role};

/// How long a request to the coordinator is tried again.
pub(super) const COORDINATOR_TIME: Duration = Duration::from_secs(2);
/// How long a node tries to join.
pub(super) const JOIN_TIME: Duration = Duration::from_secs(15);
/// How long it waits for the file of the cluster: whoever takes the directory writes it at once.
const PAPERS_TIME: Duration = Duration::from_secs(5);

/// What a node knows of a cluster before it is one of its nodes.
pub(super) struct Met {
    pub(super) file: ClusterFile,
    pub(super) coordinator: Arc<dyn Coordinator>,
    /// The connection to the node that runs it; none where nobody does.
    pub(super) way: Option<Arc<Way>>,
    pub(super) shared: Shared,
    /// None where nobody does, as the coordinator is etcd.
    pub(super) state: Option<watch::Receiver<candidate::State>>,
    /// By whom the coordinator is asked, if not by the node itself.
    pub(super) through: Option<Arc<Through>>,
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
        let decisions = Decisions::default();
        let services = services.service(balancing::SERVICE, decisions.service());
        let cancels = Cancels::new(name.clone(), view.clone(), Arc::new(peers.clone()));
        let services = services.service(cancels::SERVICE, cancels.service());
        let mut services = services.service(loads::SERVICE, loads.service());
        let mut labels = BTreeMap::from([(grants::SERVICES_LABEL.to_owned(), config.services.join(","))]);
        if let Ok(processors) = std::thread::available_parallelism() {
            labels.insert(balancing::PROCESSORS_LABEL.to_owned(), processors.to_string());
        }
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
            let (wanted, spreads) = (config.cluster_nodes, file.spreads_keys);
            tasks.push(runtime.spawn(grants::propose_in_turn(coordinator, view, wanted, spreads, is_turn)));
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
            decisions,
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
