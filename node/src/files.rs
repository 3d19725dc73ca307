//! The files service: a name node with its data node, in threads of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use savanna_files_host::blocks::Silence;
use savanna_files_host::{DatabaseOptions, HostOptions, Limits, Place, who_runs_this};
use savanna_hadoop::{Server, ServerError, ServerOptions};
use savanna_journal::Options as JournalOptions;

use crate::config::{FilesDatabase, NodeConfig, threads_or_cores};
use crate::data_dir::{create_private, high_water};
use crate::membership::Membership;
use crate::own_database::OwnDatabase;
use crate::places::clients_max;

/// Why the files service did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    /// The directory could not be made.
    #[error("the directory {path} could not be created: {source}; check the permissions of the data directory")]
    Directory { path: PathBuf, source: std::io::Error },
    /// Anybody could come in.
    #[error("{why}, but clients of files only say who they are; set files.trust_names = true to believe them")]
    Open { why: String },
    /// The tenants of this process do not run.
    #[error(
        "their names are in a database of the service tenants, which does not run: see there, or set files.database to another one"
    )]
    NoDatabase,
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// The folder of the service. The one that is called `files` belongs to tables of streams.
const FOLDER: &str = "filesystem";

/// The log, below the data directory.
pub(crate) const LOG: &str = "filesystem/log";

/// The audit log, below the data directory.
const AUDIT: &str = "filesystem/audit.log";

impl FilesError {
    /// Whether it passes by itself.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::NoDatabase => true,
            Self::Server(ServerError::Host(error)) => error.is_full(),
            Self::Server(_) | Self::Directory { .. } | Self::Open { .. } => false,
        }
    }
}

/// Reads the log in the data directory, and serves. Blocks while it reads.
pub(crate) fn start(config: &NodeConfig, membership: &Membership, own: &OwnDatabase) -> Result<Server, FilesError> {
    check_access(config)?;
    let place = match &config.files_database {
        FilesDatabase::None => None,
        FilesDatabase::Own if !own.is_there() => return Err(FilesError::NoDatabase),
        FilesDatabase::Own => Some(Place::Inside(Arc::new(own.clone()))),
        FilesDatabase::At(address) => Some(Place::Address(address.clone())),
    };
    let create =
        |path: &Path| create_private(path).map_err(|source| FilesError::Directory { path: path.to_owned(), source });
    let (directory, log) = (config.data_dir.join(FOLDER), config.data_dir.join(LOG));
    create(&directory)?;
    create(&log)?;
    let host = HostOptions {
        log: JournalOptions::dir(log).high_water(high_water(&config.data_dir, FOLDER)),
        epoch: membership.log_epoch,
        lease: Some(membership.guard.clone()),
        directory,
        superuser: who_runs_this(),
        limits: Limits::default(),
        trash: config.files_trash,
        silence: Silence { dead: millis(config.files_dead_after), ..Silence::default() },
        database: place.map(|place| DatabaseOptions { place, inodes_max: config.files_cache }),
    };
    Ok(Server::start(ServerOptions {
        address: SocketAddr::new(config.address, config.files_port),
        transfer_address: SocketAddr::new(config.address, config.files_data_port),
        http_address: SocketAddr::new(config.address, config.files_http_port),
        threads: threads_or_cores(config.files_threads),
        clients_max: clients_max(config, "files", config.files_max_clients),
        hosts: hosts(config),
        datanodes: config.files_datanodes.clone(),
        replication: config.files_replication,
        audit: config.files_audit.then(|| config.data_dir.join(AUDIT)),
        host,
    })?)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Names by which this machine may be reached over HTTP. On the loopback only those that somebody gave it.
fn hosts(config: &NodeConfig) -> Vec<String> {
    let mut hosts = config.files_hosts.clone();
    if !config.address.is_loopback() {
        // Without it the others are there.
        hosts.extend(std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()));
    }
    hosts
}

/// Clients say who they are, and show nothing: that is enough only where everybody is trusted.
fn check_access(config: &NodeConfig) -> Result<(), FilesError> {
    let why = if config.files_trusts_names {
        return Ok(());
    } else if !config.address.is_loopback() {
        format!("files are reached on {}, which is not the loopback", config.address)
    } else if config.auth_users.is_some() {
        "auth.users asks every client who it is".to_owned()
    } else {
        return Ok(());
    };
    Err(FilesError::Open { why })
}
