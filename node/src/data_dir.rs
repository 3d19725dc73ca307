//! The data directory of a node: the lease on it, and the coordinator whose journal is in it.
//!
//! ```text
//! DIR/lease, DIR/lease.lock    which process holds the directory, under which epoch
//! DIR/coordinator/             the coordinator's journal, opened under that epoch; it refuses older ones
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_journal::Options as JournalOptions;
use savanna_ownership::data_dir::{DataDirLease, DataDirOptions, LeaseFile, Waiting};
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::guard::{LeaseGuard, LeaseStatus};
use savanna_ownership::keeper::LeaseKeeper;
use savanna_ownership::{BootClock, Coordinator, Incarnation, NodeSpec};
use tokio::sync::watch;

use crate::config::NodeConfig;
use crate::error::NodeError;

/// A data directory that this process serves.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    lease: DataDirLease,
    keeper: LeaseKeeper,
}

/// The process is no longer the one that serves its data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The directory.
    pub data_dir: PathBuf,
    /// The epoch under which this process held it.
    pub epoch: OwnerEpoch,
    /// The process that claimed it or holds it now, if the lease file names one.
    pub by: Option<u32>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.by.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
        write!(
            f,
            "{by} took over the data directory {}, which this process ({}) held under epoch {}; nothing that this process \
             acknowledged as durable is lost. Use that process, or give this one another directory with --data-dir and other ports \
             with --pgwire-port, --http-port, --keys-port and --tenants-port",
            self.data_dir.display(),
            std::process::id(),
            self.epoch,
        )
    }
}

impl DataDir {
    /// Takes the directory, opens its coordinator and registers the node. `waiting` is told once if another process has
    /// to give the directory up first.
    pub(crate) async fn open(
        config: &NodeConfig,
        waiting: impl FnMut(Waiting) + Send + 'static,
    ) -> Result<Self, NodeError> {
        let path = config.data_dir.clone();
        std::fs::create_dir_all(&path).map_err(|source| NodeError::CreateDataDir { path: path.clone(), source })?;
        let incarnation = Incarnation(rand::random());
        let options = DataDirOptions {
            terms: config.lease,
            incarnation,
            epoch_floor: OwnerEpoch::NONE,
            clock: Arc::new(BootClock),
        };
        let directory = path.clone();
        let acquired = tokio::task::spawn_blocking(move || DataDirLease::acquire(&directory, &options, waiting));
        let lease = acquired.await??;
        let journal = JournalOptions::dir(path.join("coordinator"));
        let guard = lease.guard();
        let options = EmbeddedOptions { ttl: config.lease.ttl(), clock: Arc::new(BootClock), guard: Some(guard) };
        let coordinator = EmbeddedCoordinator::open(journal, lease.epoch(), options).await?;
        let spec = NodeSpec {
            name: NodeId::new(&config.name),
            incarnation,
            address: config.address.to_string(),
            labels: [("services".to_owned(), config.services.join(","))].into(),
        };
        // The process that held the directory before can no longer renew; its name is free within one lease at most.
        let coordinator: Arc<dyn Coordinator> = Arc::new(coordinator);
        let keeper = LeaseKeeper::claim(coordinator, &spec, config.lease, Arc::new(BootClock)).await?;
        Ok(Self { path, lease, keeper })
    }

    pub(crate) const fn epoch(&self) -> OwnerEpoch {
        self.lease.epoch()
    }

    pub(crate) fn guard(&self) -> LeaseGuard {
        self.lease.guard()
    }

    /// Follows both leases: what to do when either is not to be had any more.
    pub(crate) fn watch(&self) -> Leases {
        Leases {
            path: self.path.clone(),
            epoch: self.epoch(),
            directory: self.lease.status(),
            node: self.keeper.status(),
        }
    }

    /// Gives the node's name and the directory up, after everything in the directory is closed.
    pub(crate) async fn close(self) -> Result<(), NodeError> {
        if let Err(error) = self.keeper.release().await {
            tracing::warn!(%error, "the node's lease was not given up; it runs out by itself");
        }
        let lease = self.lease;
        Ok(tokio::task::spawn_blocking(move || lease.release()).await??)
    }
}

/// The leases under which a node serves.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    path: PathBuf,
    epoch: OwnerEpoch,
    directory: watch::Receiver<LeaseStatus>,
    node: watch::Receiver<LeaseStatus>,
}

impl Leases {
    /// Ready when another process wants the directory or has it: time to stop.
    pub(crate) async fn lost(mut self) -> Lost {
        let over = |status: &LeaseStatus| matches!(status, LeaseStatus::Draining | LeaseStatus::Lost(_));
        // A closed channel means that the task which keeps the lease is gone: nobody renews it.
        tokio::select! {
            _ = self.directory.wait_for(over) => {}
            _ = self.node.wait_for(over) => {}
        }
        Lost { by: rival(&self.path, self.epoch), data_dir: self.path, epoch: self.epoch }
    }
}

/// The process that claims the directory or holds it under a later epoch, as the lease file says. For messages only.
fn rival(directory: &Path, ours: OwnerEpoch) -> Option<u32> {
    let text = std::fs::read_to_string(directory.join("lease")).ok()?;
    let file: LeaseFile = serde_json::from_str(text.lines().next()?).ok()?;
    let rival = if file.epoch > ours { file.holder.or(file.claim) } else { file.claim };
    rival.map(|process| process.pid)
}
