//! The one question before anything is told to anybody: may this process serve at this instant?

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::lease::{HolderAction, LeaseHolder, Loss};
use crate::time::{Clock, MonoTime};

/// A cheap, shared view of a lease. It compares the clock with the end of what was granted, so that it turns false by
/// itself, also in a process that was paused and has not noticed anything yet.
///
/// Ask *after* the reply is composed and right before it leaves. What lies between the question and the wire (a pause
/// there) is covered by the clock margin and, for writes, by the owner's epoch.
#[derive(Clone)]
pub struct LeaseGuard {
    clock: Arc<dyn Clock>,
    serve_until: Arc<AtomicU64>,
    history: Arc<Events>,
}

/// How it went with a lease since it was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseFigures {
    /// How often it was extended.
    pub renewals: u64,
    /// How often it ran out before it was extended, or was lost.
    pub lapses: u64,
    /// How long the holder may serve yet.
    pub left: Duration,
}

/// What is counted.
#[derive(Debug, Default)]
struct Events {
    renewals: AtomicU64,
    lapses: AtomicU64,
    was_serving: AtomicBool,
}

impl LeaseGuard {
    /// A guard that refuses until a lease is published.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, serve_until: Arc::new(AtomicU64::new(0)), history: Arc::default() }
    }

    /// Whether the lease covers this instant.
    #[must_use]
    pub fn serving(&self) -> bool {
        // Acquire pairs with the Release of `publish`: who sees a grant sees what was set up for it.
        self.clock.now() < MonoTime(self.serve_until.load(Ordering::Acquire))
    }

    /// Shows the lease as its holder knows it; for the driver of that holder.
    pub fn publish(&self, holder: &LeaseHolder) {
        let until = holder.serve_until();
        let before = self.serve_until.swap(until.0, Ordering::Release);
        let is_serving = self.clock.now() < until;
        if before > 0 && until.0 > before {
            self.history.renewals.fetch_add(1, Ordering::Relaxed);
        }
        if self.history.was_serving.swap(is_serving, Ordering::Relaxed) && !is_serving {
            self.history.lapses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How it went since the lease was granted, for whoever watches.
    #[must_use]
    pub fn figures(&self) -> LeaseFigures {
        let until = MonoTime(self.serve_until.load(Ordering::Acquire));
        LeaseFigures {
            renewals: self.history.renewals.load(Ordering::Relaxed),
            lapses: self.history.lapses.load(Ordering::Relaxed),
            left: until.since(self.clock.now()),
        }
    }

    /// Refuses from now on, until a lease is published.
    pub fn revoke(&self) {
        // What the holder gives up has not lapsed.
        self.history.was_serving.store(false, Ordering::Relaxed);
        self.serve_until.store(0, Ordering::Release);
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuard").field("serving", &self.serving()).finish()
    }
}

/// How it stands with a lease, for those who react to it. (To decide whether to serve, ask the [`LeaseGuard`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Renewed in time.
    Serving,
    /// No renewal in time; it may come yet.
    Suspended,
    /// Claimed by another; finish what can be finished before the lease runs out.
    Draining,
    /// Over, for good.
    Lost(Loss),
}

impl LeaseStatus {
    /// The status that an action of the holder leads to, if it changes it.
    #[must_use]
    pub const fn after(action: HolderAction) -> Option<Self> {
        match action {
            HolderAction::Renew(_) => None,
            HolderAction::Suspend => Some(Self::Suspended),
            HolderAction::Resume => Some(Self::Serving),
            HolderAction::Drain { .. } => Some(Self::Draining),
            HolderAction::Stop(loss) => Some(Self::Lost(loss)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LeaseTerms, RenewalId};

    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> MonoTime {
            MonoTime(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_guard_turns_false_by_itself_when_the_lease_runs_out() {
        let clock = Arc::new(SetClock(AtomicU64::new(0)));
        let guard = LeaseGuard::new(Arc::<SetClock>::clone(&clock));
        assert!(!guard.serving());
        let terms = LeaseTerms::default();
        guard.publish(&LeaseHolder::new(terms, MonoTime(0)));
        let end = MonoTime(0).after(terms.ttl() - terms.margin());
        clock.0.store(end.0 - 1, Ordering::Relaxed);
        assert!(guard.serving());
        clock.0.store(end.0, Ordering::Relaxed);
        assert!(!guard.serving());
        clock.0.store(0, Ordering::Relaxed);
        guard.revoke();
        assert!(!guard.serving());
    }

    #[test]
    fn renewals_and_lapses_are_counted_and_what_is_given_up_is_neither() {
        use crate::lease::HolderInput::{Renewed, Tick};

        let clock = Arc::new(SetClock(AtomicU64::new(0)));
        let guard = LeaseGuard::new(Arc::<SetClock>::clone(&clock));
        let terms = LeaseTerms::default();
        let mut holder = LeaseHolder::new(terms, MonoTime(0));
        let mut step = |input, at: MonoTime| {
            clock.0.store(at.0, Ordering::Relaxed);
            holder.step(input, at);
            guard.publish(&holder);
            guard.figures()
        };
        let renew_at = MonoTime(0).after(terms.renew_every());
        step(Tick, renew_at);
        let renewed = step(Renewed(RenewalId(0), terms.ttl()), renew_at);
        let left = terms.ttl() - terms.margin();
        assert_eq!(renewed, LeaseFigures { renewals: 1, lapses: 0, left });
        let lapsed = step(Tick, renew_at.after(left));
        assert_eq!(lapsed, LeaseFigures { renewals: 1, lapses: 1, left: Duration::ZERO });
        guard.revoke();
        assert_eq!(guard.figures().lapses, 1);
    }
}
