//! Time that goes on whatever becomes of the machine's clock.

use std::time::{Duration, Instant, SystemTime};

use savanna_functions::meter::Micros;

/// Microseconds: at first those since 1970, and from then on as many as have passed. Whoever sets the machine's clock neither keeps what runs
/// from its end nor ends it.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    at: Micros,
    /// The machine's clock, which may be set.
    machine: fn() -> Micros,
}

fn machine() -> Micros {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

impl Clock {
    /// Begins with the machine's.
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), at: machine(), machine }
    }

    /// Now.
    pub(crate) fn now(&self) -> Micros {
        self.at.saturating_add(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// What the machine's clock says now: for whoever compares it with a clock of his own.
    pub(crate) fn machine(&self) -> Micros {
        (self.machine)()
    }

    /// What the machine's clock says at a time, if nobody sets it until then.
    pub(crate) fn machine_at(&self, time: Micros) -> Micros {
        let (machine, now) = (self.machine(), self.now());
        machine.saturating_add(time.saturating_sub(now)).saturating_sub(now.saturating_sub(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Micros = 3_600_000_000;

    #[test]
    fn time_goes_on_when_the_clock_is_set_back_or_forward() {
        let own = machine();
        for set in [|| machine() - HOUR, || machine() + HOUR] {
            let clock = Clock { began: Instant::now(), at: own, machine: set };
            let before = clock.now();
            std::thread::sleep(Duration::from_millis(20));
            let passed = clock.now() - before;
            assert!((20_000..10_000_000).contains(&passed), "{passed}");
            let (at, expected) = (clock.machine_at(clock.now() + 5_000_000), set() + 5_000_000);
            assert!(at.abs_diff(expected) < 1_000_000, "{at} {expected}");
            assert!(clock.machine_at(clock.now() - 5_000_000) < set());
        }
    }
}
