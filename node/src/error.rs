//! Why a node could not start or stop in order.

use std::path::PathBuf;

use savanna_ownership::CoordinatorError;
use savanna_ownership::data_dir::DataDirError;
use savanna_ownership::embedded::OpenError;

use crate::config::ConfigError;

/// What stops a whole node. What stops one service is in its status instead.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory could not be made.
    #[error(
        "the data directory {path} could not be created: {source}; check the path and its permissions, or choose another with --data-dir"
    )]
    CreateDataDir {
        /// The directory.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The data directory could not be had.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The coordinator in the data directory did not open.
    #[error(transparent)]
    Coordinator(#[from] OpenError),
    /// The coordinator did not take the node's name.
    #[error("the node could not register: {0}")]
    Register(#[from] CoordinatorError),
    /// The lease was lost before the node had started.
    #[error("{0}")]
    Lost(crate::DirectoryLost),
    /// The data directory is a cluster's.
    #[error(
        "{path} is the data directory of a cluster (it has a cluster.toml), which nobody serves alone; use `savanna node --join {path}`, or `savanna dev --nodes N --data-dir {path}`, or another directory"
    )]
    IsCluster {
        /// The directory.
        path: PathBuf,
    },
    /// The node did not join its cluster.
    #[error(transparent)]
    Join(#[from] crate::JoinError),
    /// The keys service ended with an error, before or while the node was stopped.
    #[error(transparent)]
    Keys(#[from] savanna_resp::ServerError),
    /// The tenants service ended with an error, before or while the node was stopped.
    #[error(transparent)]
    Tenants(#[from] savanna_pgwire_tenants::ServerError),
    /// The files service ended with an error, before or while the node was stopped.
    #[error(transparent)]
    Files(#[from] savanna_hadoop::ServerError),
    /// The functions service ended by itself.
    #[error(transparent)]
    Functions(#[from] savanna_lambda::ServerError),
    /// A task of the node panicked.
    #[error("a task of the node ended unexpectedly: {0}; please report it with the log")]
    Task(#[from] tokio::task::JoinError),
}
