//! A node's place in its cluster.

use std::fmt;
use std::sync::Arc;

use savanna_epoch::OwnerEpoch;
use savanna_ownership::guard::LeaseGuard;
use savanna_ownership::{Coordinator, Tenure};

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
    pub(crate) log_epoch: OwnerEpoch,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { coordinator: _, tenure, guard: _, log_epoch } = self;
        f.debug_struct("Membership").field("tenure", tenure).field("log_epoch", log_epoch).finish_non_exhaustive()
    }
}
