//! What keeps a node in its cluster, and how it leaves.

use std::fmt;
use std::time::Duration;

use savanna_ownership::guard::LeaseStatus;
use savanna_ownership::keeper::LeaseKeeper;
use savanna_ownership::lease::Loss;
use savanna_ownership::{ClusterView, Tenure};
use savanna_rpc::{MutualTls, TcpServer};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::candidate::{self, Candidate};
use super::facts::OwnFacts;
use super::view::View;
use crate::config::NodeConfig;

/// How long the node that runs the coordinator waits for others that leave with it.
const LEAVE_TIME: Duration = Duration::from_secs(1);

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

/// What keeps a node in its cluster, and ends it there.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(super) keeper: LeaseKeeper,
    pub(super) view: View,
    pub(super) tasks: Vec<JoinHandle<()>>,
    pub(super) server: TcpServerOf,
    pub(super) facts: OwnFacts,
    pub(super) standing: Option<Standing>,
    /// Leases are kept by a thread of their own, whatever queries do.
    pub(super) _runtime: OwnRuntime,
}

/// A node that runs the coordinator when it is its turn.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) stopping: watch::Sender<bool>,
    pub(super) candidate: JoinHandle<()>,
    pub(super) state: watch::Receiver<candidate::State>,
}

impl Standing {
    pub(super) fn begin(config: &NodeConfig, tls: Option<MutualTls>, runtime: &Handle) -> Self {
        let (stopping, stop) = watch::channel(false);
        let candidate = Candidate::new(config, tls);
        let state = candidate.state();
        Self { stopping, candidate: runtime.spawn(candidate.run(stop)), state }
    }

    /// Leaves the coordinator, and the directory, to others.
    pub(super) async fn end(self) {
        self.stopping.send_replace(true);
        // It panicked, if at all, and holds nothing then.
        let _ = self.candidate.await;
    }
}

/// A runtime that may be dropped anywhere.
#[derive(Debug)]
pub(super) struct OwnRuntime(Option<tokio::runtime::Runtime>);

impl OwnRuntime {
    pub(super) fn start() -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Ok(Self(Some(builder.worker_threads(1).thread_name("cluster").enable_all().build()?)))
    }

    pub(super) fn handle(&self) -> Handle {
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
pub(super) struct TcpServerOf(pub(super) TcpServer);

impl fmt::Debug for TcpServerOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpServer").field(&self.0.local_address()).finish()
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

/// Whether a lease is over because another process has claimed the name.
const fn is_claimed(status: LeaseStatus) -> bool {
    matches!(status, LeaseStatus::Draining | LeaseStatus::Lost(Loss::Claimed))
}
