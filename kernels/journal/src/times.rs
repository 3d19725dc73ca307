//! How long flushes took: counts by time, for whoever watches a log.

use std::time::Duration;

/// The upper ends of the times that are counted together; what took longer is counted behind them.
pub const TIMES_UPTO: [Duration; 12] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(5),
];

/// How long something took, each time that it was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    counts: [u64; TIMES_UPTO.len() + 1],
    total: Duration,
    /// What the one that is under way has taken by now.
    began: Duration,
}

impl Times {
    /// How many there were of each length, by [`TIMES_UPTO`]; the last took longer than all of them.
    #[must_use]
    pub const fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How long all of them took together.
    #[must_use]
    pub const fn total(&self) -> Duration {
        self.total
    }

    /// The first part of one took so long.
    pub(crate) const fn begin(&mut self, took: Duration) {
        self.began = took;
    }

    /// The rest of it took so long.
    pub(crate) fn end(&mut self, took: Duration) {
        let took = std::mem::take(&mut self.began) + took;
        self.total += took;
        self.counts[TIMES_UPTO.partition_point(|upto| *upto < took)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_once_with_both_of_its_parts() {
        let mut times = Times::default();
        for (first, rest) in [(0, 100), (50, 51), (0, 5_000_000), (1, 5_000_000)] {
            times.begin(Duration::from_micros(first));
            times.end(Duration::from_micros(rest));
        }
        let counted = |at: usize| times.counts()[at];
        assert_eq!((counted(0), counted(1), counted(11), counted(12)), (1, 1, 1, 1));
        assert_eq!(times.total(), Duration::from_micros(10_000_202));
    }
}
