//! The keys service: an engine and its face in threads of their own.

use std::net::SocketAddr;
use std::path::PathBuf;

use savanna_identity::SecretError;
use savanna_journal::Options as JournalOptions;
use savanna_keys_host::HostOptions;
use savanna_resp::{Server, ServerError, ServerOptions};

use crate::config::{NodeConfig, threads_or_cores};
use crate::data_dir::{create_private, high_water};
use crate::membership::Membership;
use crate::places::clients_max;

/// Why the keys service did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    /// The directory could not be made.
    #[error("the directory {path} could not be created: {source}; check the permissions of the data directory")]
    Directory { path: PathBuf, source: std::io::Error },
    /// The file of administrators cannot be used.
    #[error("auth.users: {0}")]
    Users(#[from] SecretError),
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Reads the log in the data directory and serves. Blocks while it reads.
pub(crate) fn start(config: &NodeConfig, membership: &Membership) -> Result<Server, KeysError> {
    let directory = config.data_dir.join("keys");
    create_private(&directory).map_err(|source| KeysError::Directory { path: directory.clone(), source })?;
    let log = JournalOptions::dir(directory);
    let mut settings = config.keys.clone();
    settings.administrators = config.administrators()?;
    settings.clients_max = clients_max(config, "keys", settings.clients_max);
    let host = HostOptions {
        threads: threads_or_cores(config.keys_threads),
        config: settings,
        log: Some((log.high_water(high_water(&config.data_dir, "keys")), membership.log_epoch)),
        lease: Some(membership.guard.clone()),
        seed: rand::random(),
        elsewhere: None,
    };
    Ok(Server::start(ServerOptions { address: SocketAddr::new(config.address, config.keys_port), host })?)
}
