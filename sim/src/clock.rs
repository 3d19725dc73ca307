//! The time of all nodes of a simulation: it passes when the simulation says so.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use savanna_ownership::{Clock, MonoTime};

#[derive(Debug, Default)]
pub(crate) struct SimClock(AtomicU64);

impl SimClock {
    /// Lets time pass.
    pub(crate) fn advance(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).expect("a few minutes");
        self.0.fetch_add(time, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> MonoTime {
        MonoTime(self.0.load(Ordering::Relaxed))
    }
}
