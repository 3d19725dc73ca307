//! A node from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use savanna_http::NodeView;
use savanna_http::types::NodeStatus;
use savanna_identity::raise_descriptors_max;
use savanna_ownership::data_dir::Waiting;

use crate::board::{Board, ShownLease};
use crate::config::Config;
use crate::data_dir::{DataDir, Lost};
use crate::error::NodeError;
use crate::services::{Services, StreamsService};
use crate::streams;

/// A running node.
#[derive(Debug)]
pub struct Node {
    board: Arc<Board>,
    data_dir: DataDir,
    services: Services,
    shutdown_timeout: Duration,
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
        let streams = streams::open_in_node(config.node());
        Ok(Self::serve(config, data_dir, streams).await)
    }

    /// As [`Node::start`], with an engine of the caller's.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn start_with(config: Config, streams: StreamsService) -> Result<Self, NodeError> {
        let data_dir = DataDir::open(config.node(), |_| {}).await?;
        Ok(Self::serve(config, data_dir, streams).await)
    }

    async fn serve(config: Config, data_dir: DataDir, streams: StreamsService) -> Self {
        let membership = data_dir.membership();
        let (name, epoch) = (config.node().name.clone(), membership.log_epoch.0);
        let lease = ShownLease { name, epoch, guard: membership.guard.clone() };
        let shutdown_timeout = config.node().shutdown_timeout;
        let board = Arc::new(Board::new(config, lease));
        let node = board.config().node().clone();
        let mut services = Services::start(&node, Arc::clone(&board), streams).await;
        if node.runs("keys") {
            services.start_keys(node.clone(), membership.clone()).await;
        }
        if node.runs("tenants") {
            services.start_tenants(node, membership).await;
        }
        Self { board, data_dir, services, shutdown_timeout }
    }

    /// The node, its services and where they listen.
    pub fn status(&self) -> NodeStatus {
        self.board.status()
    }

    /// The node, for a face of the caller's.
    pub fn view(&self) -> Arc<dyn NodeView> {
        Arc::clone(&self.board) as _
    }

    /// Ready when another process takes the data directory over. Shut down then, and leave.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        self.data_dir.watch().lost()
    }

    /// Stops accepting, cancels queries, closes what is open, and gives the data directory up, in bounded time.
    ///
    /// # Errors
    /// The data directory could not be given up; the next process waits for one lease then. Or a service ended badly.
    pub async fn shutdown(self) -> Result<(), NodeError> {
        let stopped = self.services.stop(self.shutdown_timeout).await;
        self.data_dir.close().await?;
        stopped
    }
}
