//! Processing time: what the clock says, held still for an epoch.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::time::EventTime;

/// `PROCTIME()` is a TIMESTAMP(3).
const MILLI: i64 = 1_000;

/// Where processing time comes from.
pub trait Clock: Debug + Send + Sync {
    /// The time now. Asked once per epoch.
    fn now(&self) -> EventTime;

    /// How long from now until an instant; nothing once it has come.
    fn until(&self, instant: EventTime) -> Duration;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> EventTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        EventTime(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn until(&self, instant: EventTime) -> Duration {
        Duration::from_micros(instant.0.saturating_sub(self.now().0).try_into().unwrap_or(0))
    }
}

/// The instant of each epoch: the time when it got its first rows, or when it was sealed without any. The same for all scans, and for
/// every replay.
#[derive(Debug)]
pub struct Instants {
    clock: Arc<dyn Clock>,
    known: Mutex<BTreeMap<Epoch, EventTime>>,
}

impl Instants {
    /// With the instants of epochs that are recorded.
    pub fn new(clock: Arc<dyn Clock>, recorded: BTreeMap<Epoch, EventTime>) -> Self {
        Self { clock, known: Mutex::new(recorded) }
    }

    /// The instant of an epoch, in whole milliseconds; it never lies before that of an earlier one. Those of epochs before
    /// `committed` are forgotten.
    pub fn of(&self, epoch: Epoch, committed: Epoch) -> EventTime {
        let mut known = self.known.lock();
        if let Some(instant) = known.get(&epoch) {
            return *instant;
        }
        let newest = known.last_key_value().map_or(EventTime::MIN, |(_, newest)| *newest);
        let now = EventTime(self.clock.now().0.div_euclid(MILLI) * MILLI);
        let instant = now.max(newest);
        *known = known.split_off(&committed);
        known.insert(epoch, instant);
        instant
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[derive(Debug)]
    struct Backwards(AtomicI64);

    impl Clock for Backwards {
        fn now(&self) -> EventTime {
            EventTime(self.0.fetch_sub(2_000, Ordering::Relaxed))
        }

        fn until(&self, _: EventTime) -> Duration {
            Duration::MAX
        }
    }

    #[test]
    fn recorded_epochs_keep_their_instants_and_later_ones_follow_them() {
        let recorded = BTreeMap::from([(Epoch(1), EventTime(1_000)), (Epoch(2), EventTime(9_000))]);
        let instants = Instants::new(Arc::new(Backwards(AtomicI64::new(5_999))), recorded);
        assert_eq!(instants.of(Epoch(1), Epoch::ZERO), EventTime(1_000));
        assert_eq!(instants.of(Epoch(2), Epoch(1)), EventTime(9_000));
        assert_eq!(instants.of(Epoch(3), Epoch(2)), EventTime(9_000), "time does not go back");
    }

    #[test]
    fn an_epoch_has_one_instant_and_time_does_not_go_back() {
        let instants = Instants::new(Arc::new(Backwards(AtomicI64::new(5_999))), BTreeMap::new());
        assert_eq!(instants.of(Epoch(1), Epoch::ZERO), EventTime(5_000));
        assert_eq!(instants.of(Epoch(2), Epoch(1)), EventTime(5_000));
        assert_eq!(instants.of(Epoch(1), Epoch(1)), EventTime(5_000));
        assert_eq!(instants.of(Epoch(3), Epoch(2)), EventTime(5_000));
    }
}
