//! A node's place in its cluster.

use std::fmt;
use std::sync::Arc;

use savanna_epoch::NodeEpoch;
use savanna_ownership::guard::LeaseGuard;
use savanna_ownership::{Coordinator, Tenure};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::cluster::shared::Shared;
use crate::cluster::{Joined, TakeError};
use crate::config::NodeConfig;
use crate::roles::{self, Grant, Role};

/// Who keeps the records, what the node is there, and until when it may serve. What every service is started with.
#[derive(Clone)]
pub(crate) struct Membership {
    /// Keeps the records.
    pub(crate) coordinator: Arc<dyn Coordinator>,
    /// The node, by name and grant.
    pub(crate) tenure: Tenure,
    /// Whether the node may serve.
    pub(crate) guard: LeaseGuard,
    /// Under which the node opens its own logs.
    pub(crate) log_epoch: NodeEpoch,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { coordinator: _, tenure, guard: _, log_epoch } = self;
        f.debug_struct("Membership").field("tenure", tenure).field("log_epoch", log_epoch).finish_non_exhaustive()
    }
}

/// A node's place: alone on its data directory, or among others.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// It owns everything.
    Alone(Membership),
    /// It owns what it is granted.
    Joined(Arc<Joined>),
}

impl Place {
    /// The cluster, if there are others.
    pub(crate) const fn joined(&self) -> Option<&Arc<Joined>> {
        match self {
            Self::Alone(_) => None,
            Self::Joined(joined) => Some(joined),
        }
    }

    /// Where its logs are.
    pub(crate) fn shared(&self, config: &NodeConfig) -> Shared {
        match self {
            Self::Alone(_) => Shared::Directory(config.data_dir.clone()),
            Self::Joined(joined) => joined.shared().clone(),
        }
    }

    /// What the node is to a service.
    pub(crate) fn role(&self, service: &str) -> watch::Receiver<Role> {
        match self {
            Self::Alone(membership) => roles::alone(membership.log_epoch),
            Self::Joined(joined) => joined.role(service),
        }
    }

    /// What the node is to tenants: they are owned one by one.
    pub(crate) fn hosts(&self) -> watch::Receiver<Role> {
        match self {
            Self::Alone(membership) => roles::alone(membership.log_epoch),
            Self::Joined(joined) => joined.hosts(),
        }
    }

    /// What a service is started with that was granted.
    pub(crate) fn membership(&self, grant: Grant) -> Membership {
        match self {
            Self::Alone(membership) => membership.clone(),
            Self::Joined(joined) => joined.membership(grant),
        }
    }

    /// Says that the commits of a service are in this node's log, which is open. Blocks.
    ///
    /// # Errors
    /// [`TakeError`]: nobody may be served.
    pub(crate) fn take_history(&self, service: &'static str, grant: Grant) -> Result<(), TakeError> {
        match (self, grant.epoch) {
            (Self::Joined(joined), Some(epoch)) => Handle::current().block_on(joined.take_history(service, epoch)),
            _ => Ok(()),
        }
    }
}
