//! Time as leases need it: monotonic, counted by one node, comparable only with itself.

use std::time::Duration;

/// A reading of one node's monotonic clock: nanoseconds since an origin that means nothing to anybody else. Readings of
/// two nodes, or of one node before and after a restart, must not be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(pub u64);

impl MonoTime {
    /// The reading `duration` later; the end of time if that does not fit.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long from `earlier` to this reading; zero if `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where a driver reads the time; the cores get readings as input.
pub trait Clock: Send + Sync {
    /// The present reading. Never decreases.
    fn now(&self) -> MonoTime;
}

/// The machine's clock since boot. On Linux it counts while the machine sleeps (`CLOCK_BOOTTIME`): a lease must not
/// survive a suspended laptop or a migrated virtual machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> MonoTime {
        #[cfg(target_os = "linux")]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let reading = rustix::time::clock_gettime(ID);
        // The kernel never hands out a negative time since boot.
        let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(reading.tv_nsec).unwrap_or(0);
        MonoTime(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_do_not_decrease_and_saturate_at_both_ends() {
        let first = BootClock.now();
        assert!(BootClock.now() >= first);
        assert!(first > MonoTime(0));
        assert_eq!(MonoTime(5).since(MonoTime(9)), Duration::ZERO);
        assert_eq!(MonoTime(5).after(Duration::MAX), MonoTime(u64::MAX));
    }
}
