//! What goes on in a tenant, for whoever watches many of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a tenant since its process began. Its thread writes them, anybody reads them.
#[derive(Debug, Default)]
pub struct Activity {
    sessions: AtomicU64,
    commits: AtomicU64,
    rollbacks: AtomicU64,
}

/// The counts at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open.
    pub sessions: u64,
    /// Transactions that were committed, those of single statements included.
    pub commits: u64,
    /// Transactions that were rolled back, for whatever reason.
    pub rollbacks: u64,
}

impl Activity {
    /// The counts now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { sessions: read(&self.sessions), commits: read(&self.commits), rollbacks: read(&self.rollbacks) }
    }

    pub(crate) fn has_sessions(&self, count: usize) {
        self.sessions.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rolled_back(&self) {
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
    }
}
