//! A node from its start to its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::Either;
use savanna_http::types::NodeStatus;
use savanna_http::{Facts, NodeView};
use savanna_identity::raise_descriptors_max;
use savanna_ownership::data_dir::Waiting;
use savanna_rpc::TrafficFigures;

use crate::board::{Board, ShownCluster, ShownLease};
use crate::cluster::{Join, Joined, NameLost, Stay};
use crate::config::Config;
use crate::data_dir::{DataDir, DirectoryLost};
use crate::error::NodeError;
use crate::figures;
use crate::membership::Place;
use crate::services::{Services, StreamsService};
use crate::streams;

/// A running node.
#[derive(Debug)]
pub struct Node {
    board: Arc<Board>,
    home: Home,
    services: Services,
    shutdown_timeout: Duration,
}

/// What a node gives up when it ends.
#[derive(Debug)]
enum Home {
    Alone(DataDir),
    Joined(Stay),
}

/// Why a node may no longer serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Another process has the data directory.
    Directory(DirectoryLost),
    /// It is no longer one of its cluster.
    Name(NameLost),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(lost) => lost.fmt(f),
            Self::Name(lost) => lost.fmt(f),
        }
    }
}

impl Node {
    /// Takes the data directory and starts the services. `waiting` is told once if another process has to give the
    /// directory up first; it will within one lease.
    ///
    /// # Errors
    /// The directory, its coordinator or the lease cannot be had. A service that does not start is no error: see
    /// [`Node::status`].
    pub async fn start(config: Config, waiting: impl FnMut(Waiting) + Send + 'static) -> Result<Self, NodeError> {
        raise_descriptors_max();
        let data_dir = DataDir::open(config.node(), waiting).await?;
        let (streams, failed) = streams::open_kept(config.node(), data_dir.epoch(), data_dir.guard()).await;
        let node = Self::serve(config, data_dir, streams).await;
        if let Some(reason) = failed {
            node.board.failed("streams", &reason);
        }
        Ok(node)
    }

    /// As [`Node::start`], with an engine of the caller's.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn start_with(config: Config, streams: StreamsService) -> Result<Self, NodeError> {
        let data_dir = DataDir::open(config.node(), |_| {}).await?;
        Ok(Self::serve(config, data_dir, streams).await)
    }

    /// Joins a cluster, or begins one, and starts the services: those that the node is granted over what the cluster has, the others as faces of
    /// the nodes that have them. Ready when all are served, or after some seconds. A cluster that is a directory is the data directory of the
    /// configuration.
    ///
    /// # Errors
    /// The cluster cannot be joined. A service that does not start is no error: see [`Node::status`].
    pub async fn join(config: Config, join: &Join) -> Result<Self, NodeError> {
        raise_descriptors_max();
        streams::warn_of_kept(config.node());
        let streams = streams::open_in_node(config.node());
        Self::join_with(config, join, streams).await
    }

    /// As [`Node::join`], with an engine of the caller's.
    ///
    /// # Errors
    /// As [`Node::join`].
    pub async fn join_with(config: Config, join: &Join, streams: StreamsService) -> Result<Self, NodeError> {
        let (joined, stay) = Joined::join(config.node(), join).await?;
        let tenure = joined.tenure();
        let lease = ShownLease { name: tenure.node.0.clone(), epoch: tenure.epoch.0, guard: joined.guard() };
        let shutdown_timeout = config.node().shutdown_timeout;
        let (view, loads, others) = (joined.view().clone(), joined.known_loads().clone(), Arc::new(joined.others()));
        let cluster = ShownCluster { view, loads, others };
        let board = Arc::new(Board::new(config, lease, Some(cluster)));
        board.running("cluster", Some(joined.address()));
        let counted = Arc::clone(&joined);
        board.shows("cluster", move || figures::of_rpc(&counted.traffic(), counted.repeats()));
        let streams = joined.routed(streams);
        let facts = Facts::new(Arc::clone(&streams.handle), Arc::clone(&board) as _);
        joined.tells(facts.clone());
        let services = Self::start_services(&board, Place::Joined(Arc::clone(&joined)), streams, facts).await;
        joined.served().await;
        board.settled().await;
        Ok(Self { board, home: Home::Joined(stay), services, shutdown_timeout })
    }

    async fn serve(config: Config, data_dir: DataDir, streams: StreamsService) -> Self {
        let membership = data_dir.membership();
        let (name, epoch) = (config.node().name.clone(), membership.log_epoch.0);
        let lease = ShownLease { name, epoch, guard: membership.guard.clone() };
        let shutdown_timeout = config.node().shutdown_timeout;
        let board = Arc::new(Board::new(config, lease, None));
        // Nobody is asked, and nobody asks.
        board.shows("cluster", || figures::of_rpc(&[("server", TrafficFigures::default())], 0));
        let facts = Facts::new(Arc::clone(&streams.handle), Arc::clone(&board) as _);
        let services = Self::start_services(&board, Place::Alone(membership), streams, facts).await;
        Self { board, home: Home::Alone(data_dir), services, shutdown_timeout }
    }

    async fn start_services(board: &Arc<Board>, place: Place, streams: StreamsService, facts: Facts) -> Services {
        let node = board.config().node().clone();
        let mut services =
            Services::start(&node, Arc::clone(board), streams, facts, place.joined().map(|joined| joined.cancels()))
                .await;
        if node.runs("keys") {
            services.start_keys(node.clone(), place.clone()).await;
        }
        if node.runs("tenants") || (place.joined().is_none() && node.keeps_names_of_files()) {
            services.start_tenants(node.clone(), place.clone()).await;
        }
        if node.runs("files") {
            services.start_files(node.clone(), place.clone()).await;
        }
        if node.runs("functions") {
            services.start_functions(node, place).await;
        }
        services
    }

    /// The node, its services and where they listen.
    pub fn status(&self) -> NodeStatus {
        self.board.status()
    }

    /// The node, for a face of the caller's.
    pub fn view(&self) -> Arc<dyn NodeView> {
        Arc::clone(&self.board) as _
    }

    /// Ready when the node may no longer serve: another process takes the data directory over, or its place in the cluster is lost. Shut
    /// down then, and leave.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        match &self.home {
            Home::Alone(data_dir) => Either::Left(data_dir.watch().lost().map(Lost::Directory)),
            Home::Joined(stay) => Either::Right(stay.lost().map(Lost::Name)),
        }
    }

    /// Ready when a client of keys asks for the end of the node (`SHUTDOWN`), as the setting `keys.shutdown` allows. Shut down then.
    pub fn asked_to_end(&self) -> impl Future<Output = ()> + Send + use<> {
        let board = Arc::clone(&self.board);
        async move { board.asked_to_end().await }
    }

    /// Stops accepting, cancels queries, closes what is open, and gives up what it had, in bounded time.
    ///
    /// # Errors
    /// The data directory could not be given up; the next process waits for one lease then. Or a service ended badly.
    pub async fn shutdown(self) -> Result<(), NodeError> {
        let stopped = self.services.stop(self.shutdown_timeout).await;
        match self.home {
            Home::Alone(data_dir) => data_dir.close().await?,
            Home::Joined(stay) => stay.leave().await,
        }
        stopped
    }
}
