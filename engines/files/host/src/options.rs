//! What a host is to be, and why it does not start.

use std::path::PathBuf;

use savanna_epoch::NodeEpoch;
use savanna_files::Limits;
use savanna_files::blocks::Silence;
use savanna_files::recovery::Unfit;
use savanna_files_database::{DatabaseError, Place};
use savanna_journal::{JournalError, Options};
use savanna_ownership::guard::LeaseGuard;

use crate::behind::BehindError;

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
    /// Minutes for which what users delete is in their trash; 0 if clients delete at once.
    pub trash: u32,
    /// How long data nodes of other processes may be silent.
    pub silence: Silence,
    /// The database behind the log; none if all names are in memory.
    pub database: Option<DatabaseOptions>,
}

/// The database behind the log.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Where it is.
    pub place: Place,
    /// Files and directories that may be in memory.
    pub inodes_max: usize,
}

/// Why a host does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The log cannot be read, or has ended.
    #[error("the log of files: {0}")]
    Log(#[from] JournalError),
    /// There is no database behind it.
    #[error(transparent)]
    Behind(#[from] BehindError),
    /// The database is somebody else's, or not what it was.
    #[error("files are served no more: {0}")]
    Lost(String),
    /// What the log begins with is elsewhere.
    #[error(
        "the log of files begins with change {first}, and what was before is not in it ({had}); set files.database to the database that has it"
    )]
    Gap {
        /// The first change.
        first: u64,
        /// What was looked at.
        had: String,
    },
    /// The log has less than the database.
    #[error(
        "the log of files ends with change {log}, but the database has all up to {database}: the log is an older one, or was lost; put it back from a backup"
    )]
    Behindhand {
        /// The newest change of the log.
        log: u64,
        /// That of the database.
        database: u64,
    },
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

impl From<DatabaseError> for HostError {
    fn from(error: DatabaseError) -> Self {
        Self::Behind(error.into())
    }
}

impl From<Unfit> for HostError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Gap { first, base } => {
                let had = base.map_or_else(
                    || "there is no database".to_owned(),
                    |base| format!("the database has all up to {base}"),
                );
                Self::Gap { first: first.0, had }
            }
            Unfit::Behindhand { log, database } => Self::Behindhand { log: log.0, database: database.0 },
        }
    }
}

impl HostError {
    /// Whether it passes when there is space on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Log(error) => error.is_full(),
            Self::Directory { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            Self::Identity { .. } | Self::Behind(_) | Self::Gap { .. } | Self::Behindhand { .. } | Self::Lost(_) => {
                false
            }
        }
    }
}
