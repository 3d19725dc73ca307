//! What is measured of moves, per source, in shared memory. Plain data without pointers.

use crate::board::Failure;

/// Sources that are measured at a time; a new one takes the place of the one that was idle longest.
const SOURCES: usize = 64;
/// Seconds over which rates are taken.
const WINDOW: usize = 10;
/// Steps of the histogram for each doubling: a quantile is at most a quarter too high.
const STEPS: u32 = 4;
/// How many waits of a second are looked at, and how many tell something.
const SAMPLES: usize = 32;
const ENOUGH: usize = 8;
/// Waits are long that take more than so many times what they took when they were shortest.
const LONG: u64 = 4;
/// After so many seconds the least of them counts twice.
const FORGETS: u64 = 1200;
/// 2^24 microseconds are 16 s: what takes longer counts as that.
const BUCKETS: usize = 24 * STEPS as usize;

/// How long something took, many times: the numbers of those that took up to 1, 1.25, 1.5, 1.75, 2, 2.5, 3 .. microseconds.
#[derive(Clone, Copy, Debug)]
struct Histogram {
    counts: [u32; BUCKETS],
}

impl Histogram {
    fn add(&mut self, micros: u64) {
        let count = &mut self.counts[bucket(micros)];
        *count = count.saturating_add(1);
    }

    /// What this share of all took at most, in microseconds. None if there were none.
    fn quantile(&self, share: f64) -> Option<f64> {
        let total: u64 = self.counts.iter().copied().map(u64::from).sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        found.filter(|_| total > 0).map(upper_bound)
    }
}

fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let doublings = micros.ilog2();
    // The next two bits.
    let step = ((micros << 2 >> doublings) & u64::from(STEPS - 1)) as u32;
    ((doublings * STEPS + step) as usize).min(BUCKETS - 1)
}

/// What belongs to a bucket is less than this, in microseconds.
fn upper_bound(bucket: usize) -> f64 {
    let (doublings, step) = (bucket as u32 / STEPS, bucket as u32 % STEPS);
    f64::from(1 << doublings) * f64::from(STEPS + step + 1) / f64::from(STEPS)
}

/// How long statements wait for rows now, beside the second in which they waited least. By medians: that one of them waits for somebody's lock is no load.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// The latest waits of the second under way, in microseconds, and how many there were.
    samples: [u32; SAMPLES],
    count: usize,
    /// The median of the second before; none if there were too few.
    last: Option<u32>,
    /// The least median of all seconds, in nanoseconds. It grows by a twentieth in a minute: days differ from nights.
    least: Option<u64>,
}

impl Waits {
    fn add(&mut self, micros: u64) {
        self.samples[self.count % SAMPLES] = u32::try_from(micros).unwrap_or(u32::MAX);
        self.count += 1;
    }

    /// So many seconds are over.
    fn advance(&mut self, seconds: u64) {
        if seconds == 0 {
            return;
        }
        let median = self.median();
        let aged = self.least.map(|least| least.saturating_add(least.saturating_mul(seconds.min(FORGETS)) / FORGETS));
        self.least = aged.into_iter().chain(median.map(|median| u64::from(median) * 1000)).min();
        self.last = median.filter(|_| seconds == 1);
        self.count = 0;
    }

    fn median(&self) -> Option<u32> {
        let mut samples = self.samples;
        let samples = &mut samples[..self.count.min(SAMPLES)];
        samples.sort_unstable();
        (samples.len() >= ENOUGH).then(|| samples[samples.len() / 2])
    }

    fn are_long(&self) -> bool {
        let now = self.median().or(self.last);
        now.zip(self.least).is_some_and(|(now, least)| u64::from(now) * 1000 > least.max(1000).saturating_mul(LONG))
    }
}

/// What was measured of a source.
#[derive(Clone, Copy, Debug)]
struct Meter {
    name: (u32, i32),
    rows: u64,
    /// Rows and pages of each of the last seconds, by the second modulo their number.
    recent: [(u64, u64); WINDOW],
    /// The last second in which something was measured.
    second: u64,
    /// The first one.
    since: u64,
    touches: u64,
    last_touch: u64,
    latency: Histogram,
    waits: Waits,
    failure: Option<Failure>,
}

impl Meter {
    fn advance(&mut self, second: u64) {
        self.waits.advance(second.saturating_sub(self.second));
        let passed = second.saturating_sub(self.second).min(WINDOW as u64);
        for ahead in 1..=passed {
            self.recent[((self.second + ahead) % WINDOW as u64) as usize] = (0, 0);
        }
        self.second = self.second.max(second);
    }
}

/// What was measured of a source, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Rows that were written to new tables.
    pub rows: u64,
    /// Rows per second, of the last ten seconds.
    pub rows_per_second: f64,
    /// Pages of the old table per second that were done, of the last ten seconds.
    pub pages_per_second: f64,
    /// Statements that had to wait for rows to be moved.
    pub touches: u64,
    /// How long the last one waited, in microseconds.
    pub last_touch: u64,
    /// How long half of them waited at most, in microseconds.
    pub median: Option<f64>,
    /// And 99 of 100.
    pub p99: Option<f64>,
    /// Why the background could not move something, if so.
    pub failure: Option<Failure>,
}

/// The meters of all sources of a server, since it started.
#[derive(Clone, Copy, Debug)]
pub struct Meters {
    meters: [Option<Meter>; SOURCES],
}

impl Default for Meters {
    fn default() -> Self {
        Self { meters: [None; SOURCES] }
    }
}

impl Meters {
    /// Rows of a source were moved, in this second.
    pub fn moved(&mut self, name: (u32, i32), rows: u64, second: u64) {
        let meter = self.meter(name, second);
        meter.rows += rows;
        meter.recent[(second % WINDOW as u64) as usize].0 += rows;
    }

    /// Pages of its old table are done, in this second.
    pub fn done(&mut self, name: (u32, i32), pages: u64, second: u64) {
        self.meter(name, second).recent[(second % WINDOW as u64) as usize].1 += pages;
    }

    /// A statement waited so long for rows of a source.
    pub fn touched(&mut self, name: (u32, i32), micros: u64, second: u64) {
        let meter = self.meter(name, second);
        meter.touches += 1;
        meter.last_touch = micros;
        meter.latency.add(micros);
        meter.waits.add(micros);
    }

    /// Whether statements wait longer for rows of a database, in this second or the one before, than when they waited least.
    #[must_use]
    pub fn are_waits_long(&self, database: u32, second: u64) -> bool {
        self.meters.iter().flatten().filter(|meter| meter.name.0 == database).any(|meter| {
            let mut meter = *meter;
            meter.advance(second);
            meter.waits.are_long()
        })
    }

    /// The background could not move something of a source, or in its last round it could move everything.
    pub fn failed(&mut self, name: (u32, i32), failure: Option<Failure>, second: u64) {
        self.meter(name, second).failure = failure;
    }

    /// What was measured of a source; none if nothing was.
    #[must_use]
    pub fn read(&self, name: (u32, i32), second: u64) -> Option<Reading> {
        let mut meter = *self.meters.iter().flatten().find(|meter| meter.name == name)?;
        meter.advance(second);
        let seconds = (second.saturating_sub(meter.since) + 1).min(WINDOW as u64) as f64;
        let (rows, pages) =
            meter.recent.iter().fold((0, 0), |(rows, pages), recent| (rows + recent.0, pages + recent.1));
        Some(Reading {
            rows: meter.rows,
            rows_per_second: rows as f64 / seconds,
            pages_per_second: pages as f64 / seconds,
            touches: meter.touches,
            last_touch: meter.last_touch,
            median: meter.latency.quantile(0.5),
            p99: meter.latency.quantile(0.99),
            failure: meter.failure,
        })
    }

    /// Forgets the sources of a database.
    pub fn forget(&mut self, database: u32) {
        for meter in self.meters.iter_mut().filter(|meter| meter.is_some_and(|meter| meter.name.0 == database)) {
            *meter = None;
        }
    }

    fn meter(&mut self, name: (u32, i32), second: u64) -> &mut Meter {
        let known = self.meters.iter().position(|meter| meter.is_some_and(|meter| meter.name == name));
        let last_used = |meter: &Option<Meter>| meter.map_or(0, |meter| meter.second);
        let place = known.unwrap_or_else(|| {
            let oldest = (0..SOURCES).min_by_key(|place| last_used(&self.meters[*place])).unwrap_or(0);
            self.meters[oldest] = None;
            oldest
        });
        let meter = self.meters[place].get_or_insert(Meter {
            name,
            rows: 0,
            recent: [(0, 0); WINDOW],
            second,
            since: second,
            touches: 0,
            last_touch: 0,
            latency: Histogram { counts: [0; BUCKETS] },
            waits: Waits::default(),
            failure: None,
        });
        meter.advance(second);
        meter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: (u32, i32) = (5, 1);

    #[test]
    fn nothing_is_known_of_a_source_that_nobody_moved() {
        assert_eq!(Meters::default().read(SOURCE, 100), None);
    }

    #[test]
    fn rates_are_those_of_the_last_ten_seconds() {
        let mut meters = Meters::default();
        meters.moved(SOURCE, 100, 1000);
        meters.done(SOURCE, 4, 1000);
        assert_eq!(meters.read(SOURCE, 1000).unwrap().rows_per_second, 100.0);
        let reading = meters.read(SOURCE, 1001).unwrap();
        assert_eq!((reading.rows_per_second, reading.pages_per_second), (50.0, 2.0));
        meters.moved(SOURCE, 500, 1015);
        let reading = meters.read(SOURCE, 1015).unwrap();
        assert_eq!((reading.rows, reading.rows_per_second), (600, 50.0));
        assert_eq!(meters.read(SOURCE, 1030).unwrap().rows_per_second, 0.0);
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_high_and_never_too_low() {
        let mut meters = Meters::default();
        for micros in 1..=1000 {
            meters.touched(SOURCE, micros, 1);
        }
        let reading = meters.read(SOURCE, 1).unwrap();
        assert_eq!((reading.touches, reading.last_touch), (1000, 1000));
        for (quantile, exact) in [(reading.median, 500.0), (reading.p99, 990.0)] {
            let quantile = quantile.unwrap();
            assert!(quantile >= exact && quantile <= exact * 1.25 + 1.0, "{quantile} for {exact}");
        }
    }

    /// So many statements waited so long in a second.
    fn wait(meters: &mut Meters, count: usize, micros: u64, second: u64) {
        (0..count).for_each(|_| meters.touched(SOURCE, micros, second));
    }

    #[test]
    fn waits_are_long_that_take_several_times_what_the_shortest_took() {
        let mut meters = Meters::default();
        wait(&mut meters, 20, 100, 1);
        wait(&mut meters, 20, 400, 2);
        assert!(!meters.are_waits_long(5, 2));
        wait(&mut meters, 20, 410, 3);
        assert!(meters.are_waits_long(5, 3));
        // In the next second, too, until enough is known of that one; not longer.
        assert!(meters.are_waits_long(5, 4));
        assert!(!meters.are_waits_long(5, 5));
        assert!(!meters.are_waits_long(6, 3));
        wait(&mut meters, 20, 50, 6);
        wait(&mut meters, 20, 210, 7);
        assert!(meters.are_waits_long(5, 7));
        // What has become usual is not long.
        wait(&mut meters, 20, 210, 7 + 3 * FORGETS);
        assert!(!meters.are_waits_long(5, 7 + 3 * FORGETS));
    }

    #[test]
    fn the_latest_waits_of_a_second_count() {
        let mut meters = Meters::default();
        wait(&mut meters, 20, 100, 1);
        wait(&mut meters, 1000, 100, 2);
        wait(&mut meters, SAMPLES, 1000, 2);
        assert!(meters.are_waits_long(5, 2));
    }

    #[test]
    fn a_few_waits_tell_nothing() {
        let mut meters = Meters::default();
        wait(&mut meters, 20, 100, 1);
        wait(&mut meters, ENOUGH - 1, 1_000_000, 2);
        assert!(!meters.are_waits_long(5, 2));
        // Nor do some among many: they may wait for somebody who has a row.
        wait(&mut meters, 12, 100, 3);
        wait(&mut meters, 8, 1_000_000, 3);
        assert!(!meters.are_waits_long(5, 3));
    }

    #[test]
    fn each_bucket_begins_where_the_one_before_ends() {
        for micros in (1..5000).chain([1 << 20, (1 << 24) - 1]) {
            assert!((micros as f64) < upper_bound(bucket(micros)), "{micros}");
            assert!(micros < 4 || micros as f64 >= upper_bound(bucket(micros) - 1), "{micros}");
        }
        assert_eq!(bucket(u64::MAX >> 3), BUCKETS - 1);
    }

    #[test]
    fn the_sources_of_one_database_are_forgotten() {
        let mut meters = Meters::default();
        meters.moved((5, 1), 1, 100);
        meters.moved((6, 1), 1, 100);
        meters.forget(5);
        assert!(meters.read((5, 1), 100).is_none() && meters.read((6, 1), 100).is_some());
    }

    #[test]
    fn a_new_source_takes_the_place_of_the_one_that_was_idle_longest() {
        let mut meters = Meters::default();
        for source in 0..SOURCES as i32 {
            meters.moved((5, source), 1, 100 + source as u64);
        }
        meters.moved((5, 1000), 1, 200);
        assert_eq!(meters.read((5, 0), 200), None);
        assert!(meters.read((5, 1), 200).is_some() && meters.read((5, 1000), 200).is_some());
    }
}
