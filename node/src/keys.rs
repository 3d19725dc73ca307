//! The keys service: an engine and its face in threads of their own.

use std::net::SocketAddr;

use savanna_epoch::NodeEpoch;
use savanna_identity::SecretError;
use savanna_journal::Options as JournalOptions;
use savanna_keys::cluster::{ClusterNode, node_id};
use savanna_keys_host::{Elsewhere, HostOptions, Spread};
use savanna_ownership::guard::LeaseGuard;
use savanna_resp::{Opened, Server, ServerError, ServerOptions};

use crate::cluster::TakeError;
use crate::cluster::shared::{PlaceError, Shared};
use crate::cluster::shares::OwnLogError;
use crate::config::{NodeConfig, threads_or_cores};
use crate::membership::Membership;
use crate::places::clients_max;

/// Why the keys service did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    /// There is no place for the log.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The file of administrators cannot be used.
    #[error("auth.users: {0}")]
    Users(#[from] SecretError),
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Its shard is not, or no longer, this node's.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// There is no log for its share.
    #[error(transparent)]
    OwnLog(#[from] OwnLogError),
}

/// Reads the log where it is `shared`. Blocks while it reads.
pub(crate) fn open(config: &NodeConfig, shared: &Shared, membership: &Membership) -> Result<Opened, KeysError> {
    let mut options = options(config)?;
    // A store has no files.
    if let (None, Shared::Directory(directory)) = (&options.config.dump_directory, shared) {
        options.config.dump_directory = Some(directory.clone());
    }
    let log = Some((shared.keys_log()?, membership.log_epoch));
    let host = HostOptions { log, lease: Some(membership.guard.clone()), ..options };
    Ok(Opened::open(server_options(config, host))?)
}

/// Serves the keys that another node has.
pub(crate) fn front(config: &NodeConfig, elsewhere: Elsewhere) -> Result<Server, KeysError> {
    let mut options = options(config)?;
    // The file of all keys is written, and read, by who has them.
    options.config.dump_directory = None;
    let host = HostOptions { elsewhere: Some(elsewhere), ..options };
    Ok(Server::start(server_options(config, host))?)
}

/// Serves what this node has of keys that are spread, and passes on what is about others. Blocks while it reads its log.
pub(crate) fn share(
    config: &NodeConfig,
    log: (JournalOptions, NodeEpoch),
    guard: LeaseGuard,
    spread: Spread,
) -> Result<Server, KeysError> {
    let mut options = options(config)?;
    // There is no file of all keys: no node has them.
    options.config.dump_directory = None;
    let host = HostOptions { log: Some(log), lease: Some(guard), spread: Some(spread), ..options };
    Ok(Server::start(server_options(config, host))?)
}

/// Where clients of clusters reach the node, as other nodes are told.
pub(crate) fn cluster_node(config: &NodeConfig, server: &Server) -> Option<ClusterNode> {
    let mut address = server.cluster_address()?;
    if address.ip().is_unspecified() {
        address.set_ip(config.cluster_address);
    }
    Some(ClusterNode { id: node_id(&config.name), address })
}

fn options(config: &NodeConfig) -> Result<HostOptions, KeysError> {
    let mut settings = config.keys.clone();
    settings.administrators = config.administrators()?;
    settings.settings_file.clone_from(&config.keys_file);
    settings.node_id = Some(node_id(&config.name));
    settings.may_be_shut_down = config.keys_shutdown.unwrap_or_else(|| config.services == ["keys"]);
    settings.clients_max = clients_max(config, "keys", settings.clients_max);
    let threads = threads_or_cores(config.keys_threads);
    Ok(HostOptions {
        threads,
        config: settings,
        log: None,
        lease: None,
        seed: rand::random(),
        elsewhere: None,
        spread: None,
    })
}

const fn server_options(config: &NodeConfig, host: HostOptions) -> ServerOptions {
    ServerOptions {
        address: SocketAddr::new(config.address, config.keys_port),
        cluster_port: config.keys_cluster_port,
        host,
    }
}
