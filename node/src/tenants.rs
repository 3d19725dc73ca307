//! The tenants service: an engine and its face in threads of their own.

use std::net::SocketAddr;

use savanna_epoch::OwnerEpoch;
use savanna_ownership::guard::LeaseGuard;
use savanna_pgwire_tenants::{Server, ServerError, ServerOptions};

use crate::config::{NodeConfig, threads_or_cores};

/// Reads the log in the data directory and serves. Blocks while it reads.
pub(crate) fn start(config: &NodeConfig, epoch: OwnerEpoch, lease: LeaseGuard) -> Result<Server, ServerError> {
    Server::start(ServerOptions {
        listen: SocketAddr::new(config.address, config.tenants_port),
        data_dir: config.data_dir.join("tenants"),
        epoch,
        threads: threads_or_cores(config.tenants_threads).into(),
        lease: Some(lease),
        tls: config.tenants_tls.clone(),
    })
}
