//! Where the coordinator is, and the way to it.
//!
//! Whoever holds the data directory's lease runs the coordinator and says in `coordinator.address` where. The file is only a sign: what counts is
//! the lease, and the coordinator answers nobody without it. So it is neither durable nor removed; who does not find a coordinator there looks again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use savanna_epoch::{NodeEpoch, NodeId};
use savanna_rpc::{
    Addresses, Cluster, Delivery, Method, Request, RpcError, SessionLimits, TcpConfig, TcpTransport, TrafficFigures,
    Transport,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

const FILE: &str = "coordinator.address";

/// Under which requests for the coordinator are addressed, whoever runs it.
pub(super) const COORDINATOR: &str = "coordinator";

/// Who runs the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leader {
    /// The node.
    pub(super) node: String,
    /// Of its lease of the data directory.
    pub(super) epoch: NodeEpoch,
    /// Where the coordinator listens.
    pub(super) address: String,
}

impl Leader {
    /// Under which name the coordinator answers there. One that runs elsewhere by now is not taken for it.
    pub(super) fn name(&self) -> NodeId {
        NodeId::new(format!("{COORDINATOR}@{}", self.node))
    }

    /// Who was the last to say so.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()
    }

    /// Says it.
    pub(super) fn publish(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join(format!("{FILE}.new"));
        fs::write(&new, serde_json::to_vec(self).map_err(io::Error::other)?)?;
        fs::rename(&new, directory.join(FILE))
    }
}

/// Shows that the coordinator works: who does not reach it sees the file change all the same.
pub(super) fn beat(directory: &Path) -> io::Result<()> {
    File::open(directory.join(FILE))?.set_modified(SystemTime::now())
}

/// Changes for as long as the coordinator works.
pub(super) fn pulse(directory: &Path) -> Option<SystemTime> {
    fs::metadata(directory.join(FILE)).ok()?.modified().ok()
}

/// Bounds of connections to the coordinator: who does not answer is noticed before leases run out.
pub(super) fn connections() -> TcpConfig {
    let session = SessionLimits {
        ping_after: Duration::from_millis(500),
        dead_after: Duration::from_secs(2),
        ..SessionLimits::default()
    };
    TcpConfig {
        session,
        connect_timeout: Duration::from_secs(1),
        backoff_max: Duration::from_millis(100),
        ..TcpConfig::default()
    }
}

/// Does the coordinator answer?
pub(super) struct Ping;

impl Method for Ping {
    const NAME: &'static str = "leader/ping.1";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = ();
}

/// Carries requests to the coordinator, wherever it is by now.
pub(super) struct Way {
    directory: PathBuf,
    addresses: Arc<Addresses>,
    transport: TcpTransport,
    /// Where it was found last.
    known: Mutex<Option<Leader>>,
}

impl Way {
    /// Of the node `from`. Its connections run on `runtime`, whatever keeps others busy.
    pub(super) fn new(directory: &Path, cluster: Cluster, from: NodeId, runtime: Handle) -> Self {
        let addresses = Arc::new(Addresses::default());
        let transport = TcpTransport::within(cluster, from, Arc::clone(&addresses), connections()).on(runtime);
        Self { directory: directory.to_owned(), addresses, transport, known: Mutex::default() }
    }

    /// What went on over its connections.
    pub(super) fn traffic(&self) -> TrafficFigures {
        self.transport.traffic()
    }

    async fn leader(&self) -> Option<Leader> {
        let known = self.known.lock().clone();
        if known.is_some() {
            return known;
        }
        let directory = self.directory.clone();
        let leader = spawn_blocking(move || Leader::read(&directory)).await.ok()??;
        self.addresses.set(leader.name(), leader.address.as_str());
        *self.known.lock() = Some(leader.clone());
        Some(leader)
    }
}

#[async_trait]
impl Transport for Way {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        let Some(leader) = self.leader().await else {
            let reason = "no node has said where it is".to_owned();
            return Err(RpcError::Unreachable { node: to.clone(), reason, delivery: Delivery::NotStarted });
        };
        let reply = self.transport.call(&leader.name(), request).await;
        if reply.is_err() {
            // Another node may run it by now.
            self.known.lock().take_if(|known| *known == leader);
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_say_so_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Leader::read(directory.path()), None);
        let leader = |node: &str, epoch| Leader {
            node: node.to_owned(),
            epoch: NodeEpoch(epoch),
            address: "127.0.0.1:1".to_owned(),
        };
        for said in [leader("n1", 3), leader("n2", 4)] {
            said.publish(directory.path()).unwrap();
            assert_eq!(Leader::read(directory.path()), Some(said));
        }
        fs::write(directory.path().join(FILE), "{").unwrap();
        assert_eq!(Leader::read(directory.path()), None);
    }
}
