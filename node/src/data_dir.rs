//! The data directory of a node: the lease on it, and the coordinator whose journal is in it.
//!
//! ```text
//! DIR/lease, DIR/lease.lock    which process holds the directory, under which epoch
//! DIR/coordinator/             the coordinator's journal, opened under that epoch; it refuses older ones
//! DIR/high-water/JOURNAL/      how far each journal has been durable, beside it: a journal that ends earlier is refused
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use savanna_epoch::{NodeEpoch, NodeId};
use savanna_journal::{Disk, Options as JournalOptions, OsDisk, newest_epoch};
use savanna_ownership::data_dir::{DataDirLease, DataDirOptions, EpochFloor, LossCause, Waiting};
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::guard::{LeaseGuard, LeaseStatus};
use savanna_ownership::{BootClock, Coordinator, Incarnation, NodeSpec, Tenure};
use tokio::sync::watch;

use crate::cluster;
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::membership::Membership;

/// A data directory that this process serves.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    lease: DataDirLease,
    coordinator: Arc<EmbeddedCoordinator>,
    /// The node's, which needs no renewals of its own: it lasts as long as the directory's lease.
    tenure: Tenure,
}

/// The process is no longer the one that serves its data directory, or will soon not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryLost {
    /// The directory.
    pub data_dir: PathBuf,
    /// The epoch under which this process held it.
    pub epoch: NodeEpoch,
    /// Why; none if the thread that keeps the lease has ended.
    pub cause: Option<LossCause>,
}

impl DirectoryLost {
    /// The process that claimed the directory or has it now, if that is known.
    #[must_use]
    pub const fn by(&self) -> Option<u32> {
        match self.cause {
            Some(LossCause::Claimed { by }) => Some(by),
            Some(LossCause::TakenOver { by, .. }) => by,
            Some(LossCause::FileGone | LossCause::FileDamaged) | None => None,
        }
    }
}

impl fmt::Display for DirectoryLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, own, epoch) = (self.data_dir.display(), std::process::id(), self.epoch);
        let what = match self.cause {
            Some(cause @ (LossCause::FileGone | LossCause::FileDamaged)) => format!(
                "the file {directory}/lease is {}, with which this process ({own}) held the data directory under epoch {epoch}",
                if cause == LossCause::FileGone { "gone" } else { "damaged" },
            ),
            None => format!("the thread that kept the lease of the data directory {directory} ended"),
            Some(LossCause::Claimed { .. } | LossCause::TakenOver { .. }) => {
                let by = self.by().map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                format!(
                    "{by} took over the data directory {directory}, which this process ({own}) held under epoch {epoch}"
                )
            }
        };
        write!(f, "{what}; nothing that this process acknowledged as durable is lost. ")?;
        match self.cause {
            Some(LossCause::Claimed { .. } | LossCause::TakenOver { .. }) => f.write_str(
                "Use that process, or give this one another directory with --data-dir and other ports with --pgwire-port, --http-port, \
                 --keys-port and --tenants-port",
            ),
            Some(LossCause::FileGone | LossCause::FileDamaged) => f.write_str(
                "Change nothing in a data directory while a node serves it, and look at the disk; then start again: the file is written anew",
            ),
            None => f.write_str("Start again, and report it with the log"),
        }
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
        make(config)?;
        if cluster::is_in(&path) {
            return Err(NodeError::IsCluster { path });
        }
        let options = directory_options(config);
        let incarnation = options.incarnation;
        let directory = path.clone();
        let acquired = tokio::task::spawn_blocking(move || DataDirLease::acquire(&directory, &options, waiting));
        let lease = acquired.await??;
        // Nodes may have begun a cluster while this process waited for them to leave.
        if cluster::is_in(&path) {
            tokio::task::spawn_blocking(move || lease.release()).await??;
            return Err(NodeError::IsCluster { path });
        }
        let journal = JournalOptions::dir(path.join("coordinator")).high_water(high_water(&path, "coordinator"));
        let guard = lease.guard();
        let options = EmbeddedOptions { ttl: config.lease.ttl(), clock: Arc::new(BootClock), guard: Some(guard) };
        let coordinator = EmbeddedCoordinator::open(journal, lease.epoch(), options).await?;
        let spec = NodeSpec {
            name: NodeId::new(&config.name),
            incarnation,
            address: config.address.to_string(),
            labels: [("services".to_owned(), config.services.join(","))].into(),
        };
        let lost = Leases { path: path.clone(), epoch: lease.epoch(), lease: lease.status(), cause: lease.cause() };
        let tenure = tokio::select! {
            tenure = coordinator.reside(&spec) => tenure?,
            lost = lost.lost() => return Err(NodeError::Lost(lost)),
        };
        Ok(Self { path, lease, coordinator: Arc::new(coordinator), tenure })
    }

    pub(crate) const fn epoch(&self) -> NodeEpoch {
        self.lease.epoch()
    }

    pub(crate) fn guard(&self) -> LeaseGuard {
        self.lease.guard()
    }

    /// The node, in the cluster that this directory is.
    pub(crate) fn membership(&self) -> Membership {
        let coordinator = Arc::clone(&self.coordinator) as _;
        Membership { coordinator, tenure: self.tenure.clone(), guard: self.guard(), log_epoch: self.epoch() }
    }

    /// Follows the lease: what to do when it is not to be had any more.
    pub(crate) fn watch(&self) -> Leases {
        Leases { path: self.path.clone(), epoch: self.epoch(), lease: self.lease.status(), cause: self.lease.cause() }
    }

    /// Gives the node's name and the directory up, after everything in the directory is closed.
    pub(crate) async fn close(self) -> Result<(), NodeError> {
        if let Err(error) = self.coordinator.deregister(&self.tenure).await {
            tracing::warn!(%error, "the node's name could not be released; the next process on the directory replaces it");
        }
        let lease = self.lease;
        Ok(tokio::task::spawn_blocking(move || lease.release()).await??)
    }
}

/// Makes the data directory.
///
/// # Errors
/// `CreateDataDir`.
pub(crate) fn make(config: &NodeConfig) -> Result<(), NodeError> {
    let path = &config.data_dir;
    create(path).map_err(|source| NodeError::CreateDataDir { path: path.clone(), source })
}

/// How this process takes the data directory.
pub(crate) fn directory_options(config: &NodeConfig) -> DataDirOptions {
    DataDirOptions {
        terms: config.lease,
        incarnation: Incarnation(rand::random()),
        epoch_floor: epoch_floor(config.data_dir.clone()),
        clock: Arc::new(BootClock),
    }
}

/// The mode of directories that only their owner reads.
const PRIVATE: u32 = 0o700;
/// What a node has in its data directory.
const OURS: [&str; 11] = [
    "lease",
    "lease.lock",
    "coordinator",
    "coordinator.address",
    "cluster.toml",
    "functions",
    "high-water",
    "keys",
    "nodes",
    "streams",
    "tenants",
];

/// Makes the data directory, for nobody but its owner. One that is somebody else's, or has things in it that are none of a
/// node's, stays as it is: then what is in it is for nobody else.
fn create(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(path)?;
    if !is_open_to_others(path)? || (has_only_ours(path)? && make_private(path).is_ok()) {
        return Ok(());
    }
    tracing::warn!(data_dir = %path.display(), "other users of this machine may list the data directory; `chmod 700` it");
    ["coordinator", "high-water"].iter().try_for_each(|name| create_private(&path.join(name)))
}

fn has_only_ours(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        if !OURS.iter().any(|name| entry.as_ref().is_ok_and(|entry| entry.file_name() == *name)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o077 != 0)
}

/// Makes a directory for nobody but its owner; one that was wider becomes so, too.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(path)?;
    if is_open_to_others(path)? { make_private(path) } else { Ok(()) }
}

fn make_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE))
}

/// The lease under which a node serves.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    path: PathBuf,
    epoch: NodeEpoch,
    lease: watch::Receiver<LeaseStatus>,
    cause: Arc<OnceLock<LossCause>>,
}

impl Leases {
    /// Ready when another process wants the directory or has it: time to stop. A lease that is renewed late is none of that.
    pub(crate) async fn lost(mut self) -> DirectoryLost {
        let over = |status: &LeaseStatus| matches!(status, LeaseStatus::Draining | LeaseStatus::Lost(_));
        // A closed channel means that the thread which keeps the lease is gone: nobody renews it.
        let _ = self.lease.wait_for(over).await;
        DirectoryLost { cause: self.cause.get().copied(), data_dir: self.path, epoch: self.epoch }
    }
}

/// Where it is noted how far a journal of a data directory has been durable.
pub(crate) fn high_water(directory: &Path, journal: &str) -> Arc<dyn Disk> {
    Arc::new(OsDisk::new(directory.join("high-water").join(journal)))
}

/// The newest epoch under which any journal in a data directory was opened, whatever the lease file says.
fn epoch_floor(directory: PathBuf) -> EpochFloor {
    Arc::new(move || newest_epoch_in(&directory))
}

/// The newest epoch under which any journal in a data directory was opened.
pub(crate) fn newest_epoch_in(directory: &Path) -> io::Result<NodeEpoch> {
    let newest = |journal| newest_epoch(&directory.join(journal)).map_err(io::Error::other);
    let epochs =
        ["coordinator", "keys", "tenants/log", crate::files::LOG, crate::functions::LOG, crate::streams::CATALOG]
            .map(newest)
            .into_iter()
            .collect::<Result<Vec<_>, _>>();
    Ok(epochs?.into_iter().max().unwrap_or(NodeEpoch::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources};

    #[tokio::test]
    async fn a_directory_that_becomes_a_clusters_while_it_is_waited_for_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let sources = Sources::none().flag("data_dir", path.to_str().unwrap(), "--data-dir");
        let sources = sources.flag("lease.ttl", "400ms", "--set").flag("lease.margin", "100ms", "--set");
        let config = Config::load(&sources).unwrap();
        let config = config.node();
        let holder = DataDirLease::acquire(&path, &directory_options(config), |_| {}).unwrap();
        let mut holder = Some(holder);
        let opened = DataDir::open(config, move |_| {
            fs::write(path.join("cluster.toml"), "").unwrap();
            drop(holder.take());
        });
        assert!(matches!(opened.await, Err(NodeError::IsCluster { .. })));
        let free = DataDirLease::take_if_free(directory.path(), &directory_options(config)).unwrap();
        assert!(free.is_ok(), "it gave the directory up");
    }
}
