//! When events happen: event number to event time, at a constant rate or at rates that take turns.

use crate::random::Divisor;

/// A stretch of the timeline with one rate. All stretches are equally long.
#[derive(Clone, Debug)]
struct Step {
    /// Events per second.
    rate: u64,
    /// The number of its first event, within the period.
    first_event: u64,
    /// Its start in milliseconds, within the period.
    start_ms: u64,
}

/// Event number to event time.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    base_ms: i64,
    steps: Vec<Step>,
    events_per_period: u64,
    period_ms: u64,
    by_rate: Divisor,
}

impl Timeline {
    /// Starts at `base_ms`. Each of `rates` (events per second, at least one, none 0, all below 2^32) holds for
    /// `step_seconds`, then the next one, round and round.
    pub(crate) fn new(base_ms: i64, rates: &[u32], step_seconds: u64) -> Self {
        let (mut steps, mut first_event, mut start_ms) = (Vec::with_capacity(rates.len()), 0, 0);
        for &rate in rates {
            let rate = u64::from(rate);
            steps.push(Step { rate, first_event, start_ms });
            first_event += rate * step_seconds;
            start_ms += 1_000 * step_seconds;
        }
        let by_rate = Divisor::new(rates.first().copied().unwrap_or(1));
        Self { base_ms, steps, events_per_period: first_event, period_ms: start_ms, by_rate }
    }

    /// The time of event `n` in milliseconds since 1970.
    pub(crate) fn time_ms(&self, n: u64) -> i64 {
        let since_base = match self.steps.as_slice() {
            [only] => n * 1_000 / only.rate,
            steps => {
                let (periods, rest) = (n / self.events_per_period, n % self.events_per_period);
                let step = &steps[steps.partition_point(|s| s.first_event <= rest) - 1];
                periods * self.period_ms + step.start_ms + (rest - step.first_event) * 1_000 / step.rate
            }
        };
        self.base_ms + since_base as i64
    }

    /// The times of events that all lie within [`Self::SPAN`] of `base`, which is at most each of them.
    pub(crate) fn times_ms(&self, base: u64, numbers: &[u64]) -> Vec<i64> {
        if self.steps.len() > 1 {
            return numbers.iter().map(|&n| self.time_ms(n)).collect();
        }
        let rate = self.steps[0].rate;
        let (start, rest) = (self.base_ms + (base * 1_000 / rate) as i64, (base * 1_000 % rate) as u32);
        numbers.iter().map(|&n| start + i64::from(self.by_rate.divide((n - base) as u32 * 1_000 + rest))).collect()
    }

    /// How far numbers may lie apart in one call of [`Self::times_ms`]: a thousand times it, and a remainder below
    /// [`Self::RATE_MAX`], fit 32 bits.
    pub(crate) const SPAN: u64 = 4_000_000;

    /// The highest rate in events per second.
    pub(crate) const RATE_MAX: u32 = 100_000_000;

    /// How many events have happened by `time_ms`, that instant included.
    pub(crate) fn events_until(&self, time_ms: i64) -> u64 {
        let Ok(since_base) = u64::try_from(time_ms - self.base_ms) else { return 0 };
        match self.steps.as_slice() {
            [only] => ((since_base + 1) * only.rate).div_ceil(1_000),
            steps => {
                let (periods, rest) = (since_base / self.period_ms, since_base % self.period_ms);
                let step = &steps[steps.partition_point(|s| s.start_ms <= rest) - 1];
                let in_step = ((rest - step.start_ms + 1) * step.rate).div_ceil(1_000);
                periods * self.events_per_period + step.first_event + in_step
            }
        }
    }
}

const _: () = assert!(Timeline::SPAN * 1_000 + (Timeline::RATE_MAX as u64) < 1 << 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_spaces_events_evenly() {
        let timeline = Timeline::new(1_000, &[3_000], 1);
        let times: Vec<i64> = (0..7).map(|n| timeline.time_ms(n)).collect();
        assert_eq!(times, [1_000, 1_000, 1_000, 1_001, 1_001, 1_001, 1_002]);
    }

    #[test]
    fn many_times_at_once_are_the_times_one_by_one() {
        for rate in [1, 3, 7, 999, 10_000, 99_999_989] {
            let timeline = Timeline::new(5, &[rate], 1);
            for base in [0, 1, 12_345, 1 << 40] {
                let numbers: Vec<u64> = (base..base + 500).chain([base + Timeline::SPAN]).collect();
                let expected: Vec<i64> = numbers.iter().map(|&n| timeline.time_ms(n)).collect();
                assert_eq!(timeline.times_ms(base, &numbers), expected, "rate {rate}, base {base}");
            }
        }
    }

    #[test]
    fn rates_take_turns() {
        let timeline = Timeline::new(0, &[10, 2], 1);
        let times: Vec<i64> = (9..15).map(|n| timeline.time_ms(n)).collect();
        assert_eq!(times, [900, 1_000, 1_500, 2_000, 2_100, 2_200]);
        assert_eq!(timeline.times_ms(9, &[9, 10, 11, 12, 13, 14]), times);
    }

    #[test]
    fn the_events_until_an_instant_are_those_whose_time_is_not_after_it() {
        for timeline in [Timeline::new(7, &[300], 1), Timeline::new(7, &[9_000], 1), Timeline::new(7, &[10, 2], 1)] {
            for ms in [0, 6, 7, 8, 500, 1_006, 1_007, 1_506, 1_507, 2_400] {
                let expected = (0..40_000).take_while(|&n| timeline.time_ms(n) <= ms).count() as u64;
                assert_eq!(timeline.events_until(ms), expected, "{ms} ms of {timeline:?}");
            }
        }
    }
}
