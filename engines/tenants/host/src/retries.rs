//! When tenants that could not wake are tried again: a decision without I/O.
//!
//! The log is kept for them. Whoever holds it up because a segment is damaged is not to be read again and again.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use savanna_tenants_segments::TenantId;

/// After the first failure; each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Tenants that are tried at once.
const AT_ONCE: usize = 64;

/// Tenants that could not wake when they were tried last.
#[derive(Debug, Default)]
pub struct Retries {
    /// The last pause of each, and its end.
    pauses: HashMap<TenantId, (Duration, Instant)>,
}

impl Retries {
    /// A tenant could not wake. Returns how long it is left alone.
    pub fn failed(&mut self, tenant: TenantId, now: Instant) -> Duration {
        let pause = self.pauses.get(&tenant).map_or(PAUSE_MIN, |(pause, _)| (*pause * 2).min(PAUSE_MAX));
        self.pauses.insert(tenant, (pause, now + pause));
        pause
    }

    /// A tenant has woken, or is removed.
    pub fn forget(&mut self, tenant: TenantId) {
        self.pauses.remove(&tenant);
    }

    /// Those of some tenants that are to be tried now.
    #[must_use]
    pub fn due(&self, tenants: Vec<TenantId>, now: Instant) -> Vec<TenantId> {
        tenants.into_iter().filter(|tenant| self.is_due(*tenant, now)).take(AT_ONCE).collect()
    }

    /// Whether a tenant is to be tried.
    fn is_due(&self, tenant: TenantId, now: Instant) -> bool {
        self.pauses.get(&tenant).is_none_or(|(_, end)| *end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_wake_is_tried_after_pauses_that_grow_up_to_a_minute() {
        let (mut retries, mut now) = (Retries::default(), Instant::now());
        assert!(retries.is_due(1, now));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let pause = retries.failed(1, now);
            assert_eq!(pause, Duration::from_secs(seconds));
            assert!(!retries.is_due(1, now) && !retries.is_due(1, now + pause - Duration::from_millis(1)));
            assert!(retries.is_due(2, now), "another is no worse for it");
            now += pause;
            assert!(retries.is_due(1, now));
        }
        retries.forget(1);
        assert_eq!(retries.failed(1, now), PAUSE_MIN);
        assert_eq!(retries.due((1..100).collect(), now), (2..66).collect::<Vec<_>>(), "so many at once");
    }
}
