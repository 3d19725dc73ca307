//! What a node is to a service: its owner, or the way to it.

use savanna_epoch::{NodeEpoch, OwnerEpoch};
use tokio::sync::watch;

/// What a node is to a service that one node at a time runs for all, or each a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It runs the service.
    Owner(Grant),
    /// It passes on what it is asked, to whoever runs the service.
    Front,
    /// It runs a share of the service, as all others do.
    Member,
}

/// That a node runs a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Of the service's shard; none in a node that is alone.
    pub(crate) epoch: Option<OwnerEpoch>,
    /// Under which the service opens its log.
    pub(crate) log_epoch: NodeEpoch,
}

/// The role of a node that is alone: it never changes.
pub(crate) fn alone(log_epoch: NodeEpoch) -> watch::Receiver<Role> {
    watch::channel(Role::Owner(Grant { epoch: None, log_epoch })).1
}
