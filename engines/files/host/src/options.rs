//! What a host is to be, and why it does not start.

use std::path::PathBuf;

use savanna_epoch::NodeEpoch;
use savanna_files::Limits;
use savanna_journal::{JournalError, Options};
use savanna_ownership::guard::LeaseGuard;

/// What a host is to be.
#[derive(Debug)]
pub struct HostOptions {
    /// Where the log is.
    pub log: Options,
    /// The epoch under which it is opened.
    pub epoch: NodeEpoch,
    /// The lease under which anybody may be told anything; none where nobody else could have the files.
    pub lease: Option<LeaseGuard>,
    /// The directory of replicas and of what the installation is called.
    pub directory: PathBuf,
    /// The user that may do everything.
    pub superuser: String,
    /// What operations keep to.
    pub limits: Limits,
}

/// Why a host does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The log cannot be read, or has ended.
    #[error("the log of files: {0}")]
    Log(#[from] JournalError),
    /// The directory cannot be used.
    #[error("{path}: {source}; check the permissions and the disk of the data directory")]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file that says what the installation is called cannot be read.
    #[error(
        "{path}: expected three lines (cluster, pool, namespace number), came {came:?}; put the file back from a backup"
    )]
    Identity {
        /// The file.
        path: PathBuf,
        /// What it has.
        came: String,
    },
}

impl HostError {
    /// Whether it passes when there is space on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Log(error) => error.is_full(),
            Self::Directory { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            Self::Identity { .. } => false,
        }
    }
}
