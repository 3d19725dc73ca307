//! The task that keeps a node's lease: [`LeaseHolder`] driven by a clock and a [`Coordinator`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::coordinator::{ClaimOutcome, Coordinator, Grant};
use crate::error::CoordinatorError;
use crate::guard::{LeaseGuard, LeaseStatus};
use crate::lease::{HolderAction, HolderInput, LeaseHolder, LeaseTerms, LeaseTermsError, RenewalId};
use crate::record::{NodeSpec, Tenure};
use crate::time::{Clock, MonoTime};

/// Why a node got no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The coordinator refused.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The coordinator grants leases that are shorter than the clock margin.
    #[error(transparent)]
    Terms(#[from] LeaseTermsError),
}

/// Keeps one lease until it is released or lost.
#[derive(Debug)]
pub struct LeaseKeeper {
    tenure: Tenure,
    guard: LeaseGuard,
    status: watch::Receiver<LeaseStatus>,
    release: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    coordinator: KeptBy,
}

/// The coordinator of a keeper; it has nothing to show in `Debug`.
#[derive(Clone)]
struct KeptBy(Arc<dyn Coordinator>);

impl std::fmt::Debug for KeptBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Coordinator")
    }
}

impl LeaseKeeper {
    /// Registers a node and keeps its lease. `terms` gives the margin; the ttl is the coordinator's.
    ///
    /// # Errors
    /// [`JoinError`].
    pub async fn register(
        coordinator: Arc<dyn Coordinator>,
        spec: &NodeSpec,
        terms: LeaseTerms,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JoinError> {
        let asked_at = clock.now();
        let grant = coordinator.register(spec).await?;
        Ok(Self::keep(coordinator, grant, asked_at, terms, clock)?)
    }

    /// Claims a name, waits until its holder's lease has run out (at most one ttl), and keeps the lease.
    ///
    /// # Errors
    /// [`JoinError`].
    pub async fn claim(
        coordinator: Arc<dyn Coordinator>,
        spec: &NodeSpec,
        terms: LeaseTerms,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JoinError> {
        loop {
            let asked_at = clock.now();
            match coordinator.claim(spec).await? {
                ClaimOutcome::Granted(grant) => {
                    return Ok(Self::keep(coordinator, grant, asked_at, terms, clock)?);
                }
                ClaimOutcome::Pending { retry_after } => {
                    tokio::time::sleep(retry_after.clamp(SHORTEST_WAIT, terms.ttl())).await;
                }
            }
        }
    }

    fn keep(
        coordinator: Arc<dyn Coordinator>,
        grant: Grant,
        asked_at: MonoTime,
        terms: LeaseTerms,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LeaseTermsError> {
        let holder = LeaseHolder::new(terms.with_ttl(grant.ttl)?, asked_at);
        let guard = LeaseGuard::new(Arc::clone(&clock));
        guard.publish(&holder);
        let (status_sender, status) = watch::channel(LeaseStatus::Serving);
        let (release, released) = oneshot::channel();
        let driver = Driver {
            coordinator: Arc::clone(&coordinator),
            tenure: grant.tenure.clone(),
            holder,
            guard: guard.clone(),
            status: status_sender,
            clock,
        };
        let task = tokio::spawn(driver.run(released));
        Ok(Self { tenure: grant.tenure, guard, status, release: Some(release), task, coordinator: KeptBy(coordinator) })
    }

    /// The name and the epoch under which it was granted.
    #[must_use]
    pub const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// To ask before anything is told to anybody.
    #[must_use]
    pub fn guard(&self) -> LeaseGuard {
        self.guard.clone()
    }

    /// Follows how the lease stands.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<LeaseStatus> {
        self.status.clone()
    }

    /// Gives the lease up: the guard refuses from now on, and the name is free at once.
    ///
    /// # Errors
    /// As [`Coordinator::deregister`]; the lease runs out by itself then.
    pub async fn release(mut self) -> Result<(), CoordinatorError> {
        self.guard.revoke();
        if let Some(release) = self.release.take() {
            // A task that has ended already has nothing left to stop.
            let _ = release.send(());
        }
        // It must not publish a renewal after the revocation; a task that panicked cannot.
        let _ = (&mut self.task).await;
        self.guard.revoke();
        self.coordinator.0.deregister(&self.tenure).await
    }
}

impl Drop for LeaseKeeper {
    /// Stops renewing; the lease runs out by itself.
    fn drop(&mut self) {
        self.task.abort();
        self.guard.revoke();
    }
}

/// The shortest pause between two looks at a claim or a lease.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

struct Driver {
    coordinator: Arc<dyn Coordinator>,
    tenure: Tenure,
    holder: LeaseHolder,
    guard: LeaseGuard,
    status: watch::Sender<LeaseStatus>,
    clock: Arc<dyn Clock>,
}

type RenewalResult = (RenewalId, Result<Duration, CoordinatorError>);

impl Driver {
    async fn run(mut self, mut released: oneshot::Receiver<()>) {
        let mut renewals: JoinSet<RenewalResult> = JoinSet::new();
        while let Some(wake_at) = self.holder.wake_at() {
            let wait = wake_at.since(self.clock.now());
            let input = tokio::select! {
                () = tokio::time::sleep(wait) => HolderInput::Tick,
                Some(Ok((id, result))) = renewals.join_next() => self.input_of(id, result),
                _ = &mut released => HolderInput::Release,
            };
            let actions = self.holder.step(input, self.clock.now());
            // Before anybody hears of it: who is told that the lease is over finds that it is.
            self.guard.publish(&self.holder);
            for action in actions {
                if let HolderAction::Renew(id) = action {
                    let (coordinator, tenure) = (Arc::clone(&self.coordinator), self.tenure.clone());
                    renewals.spawn(async move { (id, coordinator.heartbeat(&tenure).await) });
                }
                if let Some(status) = LeaseStatus::after(action) {
                    tracing::info!(tenure = %self.tenure, ?status, "node lease");
                    self.status.send_replace(status);
                }
            }
        }
    }

    fn input_of(&self, id: RenewalId, result: Result<Duration, CoordinatorError>) -> HolderInput {
        match result {
            Ok(ttl) => HolderInput::Renewed(id, ttl),
            Err(CoordinatorError::Claimed { .. }) => HolderInput::Claimed,
            Err(CoordinatorError::TenureOver { .. }) => HolderInput::Ended,
            Err(error) => {
                // Not renewed this time; the next renewal is due before the lease runs out.
                tracing::warn!(tenure = %self.tenure, %error, "node lease not renewed");
                HolderInput::Tick
            }
        }
    }
}
