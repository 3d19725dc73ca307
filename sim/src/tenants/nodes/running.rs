//! A node's process with its lease, as the product keeps one.

use std::sync::Arc;

use savanna_epoch::LogId;
use savanna_journal::Lsn;
use savanna_ownership::{
    Clock, LeaseGuard, LeaseHolder, LeaseTerms, Tenure,
    lease::{HolderAction, HolderInput, RenewalId},
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::Result;
use tokio::task::JoinHandle;

use super::{super::process::Process, Variant, moves::OfProcess};
use crate::clock::SimClock;

/// A node's process.
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) tenure: Tenure,
    /// The log that it appends to, and where that is.
    pub(super) log: LogId,
    pub(super) place: String,
    pub(super) lease: Lease,
    /// An adoption that is under way.
    pub(super) adopting: Option<Adoption>,
    /// No other process has the same number.
    pub(super) number: u64,
    /// Tenants that move from here, or to here.
    pub(super) moves: OfProcess,
}

/// An adoption, which ends when it is dropped.
pub(super) struct Adoption(pub(super) JoinHandle<Result<Vec<TenantId>>>);

impl Drop for Adoption {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a node knows of its lease.
pub(super) struct Lease {
    clock: Arc<SimClock>,
    holder: LeaseHolder,
    guard: LeaseGuard,
    /// Whether nobody asks the guard.
    is_ignored: bool,
}

impl Lease {
    /// Of a node that asks for it now.
    pub(super) fn new(clock: &Arc<SimClock>, terms: LeaseTerms, variant: Variant) -> Self {
        let holder = LeaseHolder::new(terms, clock.now());
        let guard = LeaseGuard::new(Arc::clone(clock) as _);
        guard.publish(&holder);
        Self { clock: Arc::clone(clock), holder, guard, is_ignored: variant == Variant::LeaseIgnored }
    }

    /// Whether anybody may be told anything.
    pub(super) fn may_tell(&self) -> bool {
        self.is_ignored || self.guard.serving()
    }

    /// Takes what came of a renewal, or that time has passed. Returns the renewal that is due.
    pub(super) fn step(&mut self, input: HolderInput) -> Option<RenewalId> {
        let actions = self.holder.step(input, self.clock.now());
        self.guard.publish(&self.holder);
        actions.into_iter().find_map(|action| match action {
            HolderAction::Renew(id) => Some(id),
            _ => None,
        })
    }
}

impl Running {
    /// What passes the gate of a session: the log has it, and the lease covers this instant. In this order, as waiting for the log takes time.
    pub(super) fn may_tell(&self, lsn: Lsn) -> bool {
        self.process.is_durable(lsn) && self.lease.may_tell()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.process.owner.lock().tenant(name).is_some()
    }

    /// Whether it lets somebody in to a tenant now.
    pub(super) fn serves(&self, name: &str) -> bool {
        self.has(name) && self.lease.may_tell() && !self.process.is_frozen(name)
    }

    /// Its process ends, wherever it is; its tenure may last.
    pub(super) fn end(self) -> (Tenure, Lease) {
        (self.tenure, self.lease)
    }
}
