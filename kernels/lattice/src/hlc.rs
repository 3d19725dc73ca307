//! Hybrid logical time: close to the wall clock, and never behind anything it has heard of.
//!
//! A reading has 48 bits of milliseconds since 1970 above 16 bits of a counter, so that readings compare as numbers and
//! the clock's part decides first (Anna's hazard A-3 has it the other way round). The rules of [`HlcClock`]:
//!
//! 1. Each reading is later than the one before, even if the wall clock stands still or goes back.
//! 2. A reading is later than every reading heard of before it: an effect is never stamped before its cause.
//! 3. A reading too far ahead of the own wall clock is refused, so that one wrong clock cannot drag all the others along
//!    and win every race for ever.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bits of the counter below the milliseconds.
const COUNTER_BITS: u32 = 16;

/// Milliseconds since 1970-01-01 UTC, by the wall clock. Cores get it as input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Later than every instant: what never happens.
    pub const NEVER: Self = Self(u64::MAX);
}

/// A reading of a hybrid logical clock. Two clocks may give the same one; [`Stamp`](crate::Stamp) tells them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hlc(u64);

impl Hlc {
    /// Before every reading; no clock gives it out.
    pub const ZERO: Self = Self(0);
    /// The end of hybrid time, in the year 10889.
    pub const MAX: Self = Self(u64::MAX);

    /// The reading `counter` of a millisecond; [`Hlc::MAX`] if the millisecond does not fit in 48 bits.
    #[must_use]
    pub const fn new(at: UnixMillis, counter: u16) -> Self {
        if at.0 >> (u64::BITS - COUNTER_BITS) != 0 {
            return Self::MAX;
        }
        Self(at.0 << COUNTER_BITS | counter as u64)
    }

    /// The reading of a wall clock that is finer than milliseconds, `since` 1970: the counter is the part of the millisecond.
    #[must_use]
    pub const fn of_instant(since: Duration) -> Self {
        let part = (since.subsec_nanos() as u64 % 1_000_000) << COUNTER_BITS;
        Self::new(UnixMillis(since.as_millis() as u64), (part / 1_000_000) as u16)
    }

    /// Its millisecond.
    #[must_use]
    pub const fn at(self) -> UnixMillis {
        UnixMillis(self.0 >> COUNTER_BITS)
    }

    /// Its number within the millisecond.
    #[must_use]
    pub const fn counter(self) -> u16 {
        self.0 as u16
    }

    /// Whether it is the one before all readings.
    pub(crate) const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The next reading. A counter that is full carries over into the milliseconds.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at().0, self.counter())
    }
}

/// A reading that came from a clock too far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a time at most {} ms ahead of the local clock, came one {} ms ahead; set the clock of the node that sent it, or this node's",
    .drift_max.as_millis(), .ahead.as_millis()
)]
pub struct TooFarAhead {
    /// How far ahead it is.
    pub ahead: Duration,
    /// How far ahead it may be.
    pub drift_max: Duration,
}

/// One writer's hybrid logical clock. The wall clock is an input.
#[derive(Clone, Debug)]
pub struct HlcClock {
    last: Hlc,
    drift_max: Duration,
}

impl HlcClock {
    /// A clock that follows readings up to `drift_max` ahead of its wall clock.
    #[must_use]
    pub const fn new(drift_max: Duration) -> Self {
        Self::resume(Hlc::ZERO, drift_max)
    }

    /// A clock that goes on after `last`, the latest reading that its owner gave out or heard of before it restarted.
    #[must_use]
    pub const fn resume(last: Hlc, drift_max: Duration) -> Self {
        Self { last, drift_max }
    }

    /// A new reading, later than all before (until the year 10889, where the clock stops).
    pub fn now(&mut self, wall: UnixMillis) -> Hlc {
        self.last = self.last.next().max(Hlc::new(wall, 0));
        self.last
    }

    /// Hears of another clock's reading, so that every later reading of this one is after it.
    ///
    /// # Errors
    /// [`TooFarAhead`] if it is more than `drift_max` ahead of `wall`; nothing changes then, and what carried the reading
    /// must be refused with it.
    pub fn observe(&mut self, heard: Hlc, wall: UnixMillis) -> Result<(), TooFarAhead> {
        let ahead = ahead(heard, wall);
        if ahead > self.drift_max {
            return Err(TooFarAhead { ahead, drift_max: self.drift_max });
        }
        self.last = self.last.max(heard);
        Ok(())
    }

    /// The latest reading given out or heard of. Whoever stamps all its writes with this clock may announce it as a
    /// watermark: no later write of its own is at or below it (what Anna's hazard A-4 asks for).
    #[must_use]
    pub const fn last(&self) -> Hlc {
        self.last
    }

    /// How far the clock runs ahead of `wall`: more than the drift allowed means that the wall clock was set back, and
    /// that others refuse what this clock stamps.
    #[must_use]
    pub fn ahead(&self, wall: UnixMillis) -> Duration {
        ahead(self.last, wall)
    }
}

fn ahead(reading: Hlc, wall: UnixMillis) -> Duration {
    Duration::from_millis(reading.at().0.saturating_sub(wall.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRIFT_MAX: Duration = Duration::from_millis(500);

    #[test]
    fn milliseconds_count_before_the_counter() {
        assert!(Hlc::new(UnixMillis(2), 0) > Hlc::new(UnixMillis(1), u16::MAX));
        let reading = Hlc::new(UnixMillis(1_800_000_000_000), 7);
        assert_eq!((reading.at(), reading.counter()), (UnixMillis(1_800_000_000_000), 7));
    }

    #[test]
    fn a_fine_wall_clock_orders_what_is_in_one_millisecond() {
        let at = |micros| Hlc::of_instant(Duration::from_micros(micros));
        assert_eq!(at(5_000), Hlc::new(UnixMillis(5), 0));
        assert!(at(5_001) > at(5_000) && at(5_999) > at(5_998) && at(6_000) > at(5_999));
        assert_eq!(at(5_999).at(), UnixMillis(5));
    }

    #[test]
    fn a_full_counter_carries_over() {
        let mut clock = HlcClock::resume(Hlc::new(UnixMillis(5), u16::MAX), DRIFT_MAX);
        assert_eq!(clock.now(UnixMillis(5)), Hlc::new(UnixMillis(6), 0));
    }

    #[test]
    fn a_wall_clock_that_goes_back_does_not_take_the_readings_along() {
        let mut clock = HlcClock::new(DRIFT_MAX);
        let before = clock.now(UnixMillis(10_000));
        assert!(clock.now(UnixMillis(10)) > before);
        assert_eq!(clock.ahead(UnixMillis(10)), Duration::from_millis(9_990));
    }

    #[test]
    fn a_reading_too_far_ahead_is_refused_and_changes_nothing() {
        let mut clock = HlcClock::new(DRIFT_MAX);
        let refused = clock.observe(Hlc::new(UnixMillis(1_501), 0), UnixMillis(1_000)).expect_err("501 ms ahead");
        assert_eq!(
            refused.to_string(),
            "expected a time at most 500 ms ahead of the local clock, came one 501 ms ahead; \
             set the clock of the node that sent it, or this node's"
        );
        assert_eq!(clock.last(), Hlc::ZERO);
        clock.observe(Hlc::new(UnixMillis(1_500), 3), UnixMillis(1_000)).expect("500 ms ahead");
        assert_eq!(clock.now(UnixMillis(1_000)), Hlc::new(UnixMillis(1_500), 4));
    }

    #[test]
    fn a_wall_clock_out_of_range_stops_the_clock_at_its_end() {
        let mut clock = HlcClock::new(DRIFT_MAX);
        assert_eq!(clock.now(UnixMillis::NEVER), Hlc::MAX);
        assert_eq!(clock.now(UnixMillis(0)), Hlc::MAX);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read { clock: usize, wall: u64 },
        Tell { from: usize, to: usize, wall: u64 },
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let wall = 1_000..3_000_u64;
        prop_oneof![
            (0..3_usize, wall.clone()).prop_map(|(clock, wall)| Step::Read { clock, wall }),
            (0..3_usize, 0..3_usize, wall).prop_map(|(from, to, wall)| Step::Tell { from, to, wall }),
        ]
    }

    proptest! {
        /// Three clocks whose wall clocks jump about by up to two seconds.
        #[test]
        fn readings_grow_follow_their_causes_and_stay_near_a_wall_clock(steps in prop::collection::vec(any_step(), 1..200)) {
            let mut clocks = vec![HlcClock::new(DRIFT_MAX); 3];
            // What each clock gave out or heard of, and the latest wall clock anywhere.
            let mut known = [Hlc::ZERO; 3];
            let mut latest_wall = 0;
            for step in steps {
                match step {
                    Step::Read { clock, wall } => {
                        latest_wall = latest_wall.max(wall);
                        let reading = clocks[clock].now(UnixMillis(wall));
                        prop_assert!(reading > known[clock], "monotone, and after what was heard");
                        prop_assert!(reading >= Hlc::new(UnixMillis(wall), 0), "not behind the wall clock");
                        known[clock] = reading;
                    }
                    Step::Tell { from, to, wall } => {
                        latest_wall = latest_wall.max(wall);
                        let heard = clocks[from].last();
                        let before = clocks[to].last();
                        match clocks[to].observe(heard, UnixMillis(wall)) {
                            Ok(()) => {
                                prop_assert!(ahead(heard, UnixMillis(wall)) <= DRIFT_MAX);
                                known[to] = known[to].max(heard);
                            }
                            Err(_) => {
                                prop_assert!(ahead(heard, UnixMillis(wall)) > DRIFT_MAX);
                                prop_assert_eq!(clocks[to].last(), before);
                            }
                        }
                    }
                }
                for clock in &clocks {
                    // 200 readings never fill a counter, so no reading outruns the fastest wall clock.
                    prop_assert!(clock.last().at().0 <= latest_wall, "bounded by the fastest wall clock");
                }
            }
        }

        #[test]
        fn what_a_clock_hears_moves_it_at_most_by_the_drift(heard in prop::collection::vec(any::<u64>(), 0..50), wall in 0..1_u64 << 40) {
            let mut clock = HlcClock::new(DRIFT_MAX);
            for reading in heard {
                // Refusals are the point.
                let _ = clock.observe(Hlc(reading), UnixMillis(wall));
                prop_assert!(clock.ahead(UnixMillis(wall)) <= DRIFT_MAX);
            }
        }
    }
}
