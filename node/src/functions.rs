//! The functions service: a host with Lambda's API, in threads of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use savanna_journal::Options as JournalOptions;
use savanna_lambda::{Abilities, Bounds, HostOptions, Key, KeyError, Prices, Server, ServerError, ServerOptions};

use crate::config::{NodeConfig, threads_or_cores};
use crate::data_dir::{create_private, high_water};
use crate::membership::Membership;
use crate::places::clients_max;

pub use savanna_lambda::{Key as FunctionsKey, launcher::run_if_asked};

/// Why the functions service did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FunctionsError {
    /// The directory could not be made.
    #[error("the directory {path} could not be created: {source}; check the permissions of the data directory")]
    Directory { path: PathBuf, source: std::io::Error },
    /// Anybody could come in.
    #[error(
        "{why}, so that requests to functions have to be signed: set functions.secret_file, a file (mode 600) with a key's name and its secret"
    )]
    Open { why: String },
    /// The key cannot be had.
    #[error("functions.secret_file: {0}")]
    Key(#[from] KeyError),
    /// The object store of code cannot be had.
    #[error("functions.store cannot be used: {0}; check the bucket and the credentials in the environment")]
    Store(object_store::Error),
    /// What is paid cannot be had.
    #[error(
        "functions.prices: {path}: {reason}; expected {{\"per_million_requests\": 0.2, \"per_gigabyte_second\": 0.0000166667}}"
    )]
    Prices { path: PathBuf, reason: String },
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// The folder of the service.
const FOLDER: &str = "functions";

/// The log, below the data directory.
pub(crate) const LOG: &str = "functions/log";

/// This program as it is now, even if another one has its name meanwhile. It begins instances of functions.
const PROGRAM: &str = "/proc/self/exe";

/// Reads the log in the data directory, and serves. Blocks while it reads.
pub(crate) fn start(config: &NodeConfig, membership: &Membership) -> Result<Server, FunctionsError> {
    let key = config.functions_secret.as_deref().map(Key::read).transpose()?;
    check_access(config, key.is_some())?;
    let create = |path: &Path| {
        create_private(path).map_err(|source| FunctionsError::Directory { path: path.to_owned(), source })
    };
    let (directory, log) = (config.data_dir.join(FOLDER), config.data_dir.join(LOG));
    create(&directory)?;
    create(&log)?;
    let host = HostOptions {
        log: JournalOptions::dir(log).high_water(high_water(&config.data_dir, FOLDER)),
        epoch: membership.log_epoch,
        lease: Some(membership.guard.clone()),
        // Processes with a root of their own see it from elsewhere.
        directory: std::path::absolute(&directory).unwrap_or(directory),
        store: store(config)?,
        region: config.functions_region.clone(),
        launcher: PathBuf::from(PROGRAM),
        isolation: config.functions_isolation,
        abilities: Abilities::default(),
        bounds: Bounds::default(),
        ports: config.functions_connect_ports.clone(),
        concurrency: u32::try_from(config.functions_concurrency).unwrap_or(u32::MAX),
        idle: config.functions_idle,
        retry_minute: config.functions_retry_minute,
        keys_url: config.functions_keys_url.clone(),
        prices: prices(config)?,
    };
    Ok(Server::start(ServerOptions {
        address: SocketAddr::new(config.address, config.functions_port),
        threads: threads_or_cores(config.functions_threads),
        clients_max: clients_max(config, "functions", config.functions_max_clients),
        key,
        host,
    })?)
}

/// Whoever asks has code of his run: without a signature that is only for who is on this machine, where everybody is trusted.
fn check_access(config: &NodeConfig, has_key: bool) -> Result<(), FunctionsError> {
    let why = if has_key {
        return Ok(());
    } else if !config.address.is_loopback() {
        format!("functions are reached on {}, which is not the loopback", config.address)
    } else if config.auth_users.is_some() {
        "auth.users asks every client who it is".to_owned()
    } else {
        return Ok(());
    };
    Err(FunctionsError::Open { why })
}

/// A bucket and a folder in it.
type Folder = (Arc<dyn ObjectStore>, object_store::path::Path);

/// Where code is, if not in the data directory.
fn store(config: &NodeConfig) -> Result<Option<Folder>, FunctionsError> {
    let Some((bucket, path)) = &config.functions_store else { return Ok(None) };
    Ok(Some((Arc::new(bucket.connect().map_err(FunctionsError::Store)?), path.clone())))
}

/// What is paid: by the file that is configured, else as AWS has it.
pub(crate) fn prices(config: &NodeConfig) -> Result<Prices, FunctionsError> {
    let Some(path) = config.functions_prices.as_deref() else { return Ok(Prices::default()) };
    let failed = |reason: String| FunctionsError::Prices { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}
