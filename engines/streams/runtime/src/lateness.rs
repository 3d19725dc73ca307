//! Watermarks of a source partition, and which rows come too late.
//!
//! The running watermark at a row is the largest event time up to and with that row, minus the delay. A row is late for
//! a window whose end is not above it, and for a session if it lies below it itself. Most batches hold no such row, which
//! two cheap checks show:
//!
//! 1. the earliest row, or its first window's end, is above the watermark at the end of the batch: nothing can be late;
//! 2. no row lies further than the delay below the largest time before it.
//!
//! Only what fails both is looked at row by row.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::TimeUnit;
use savanna_streams_api::Result;
use savanna_streams_model::graph::Lateness;
use savanna_streams_model::time::{
    EventTime, WindowSpec, from_event_time, micros_per_unit, timestamp_values, to_event_time,
};

/// Event times beyond this distance from 1970 (73,000 years) are refused by windows, so that their arithmetic cannot
/// overflow.
pub(crate) const TIME_LIMIT: i64 = i64::MAX / 4;

/// For which of its windows a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timeliness {
    /// For all.
    OnTime,
    /// For those that end at this instant (microseconds) or later.
    From(i64),
    /// For none; or it has no event time.
    Late,
}

/// The rows of a batch by timeliness.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sorted {
    /// All rows are on time.
    AllOnTime,
    /// Row numbers by timeliness, in order.
    Mixed(BTreeMap<Timeliness, Vec<u32>>),
}

/// The running watermark of one source partition.
#[derive(Clone, Debug)]
pub struct RunningWatermark {
    delay: i64,
    lateness: Lateness,
    /// The largest event time so far.
    newest: EventTime,
}

impl RunningWatermark {
    /// A watermark `delay` microseconds behind the newest event.
    pub fn new(delay: i64, lateness: Lateness) -> Self {
        Self { delay: delay.max(0), lateness, newest: EventTime::MIN }
    }

    pub(crate) fn watermark(&self) -> EventTime {
        EventTime(if self.newest == EventTime::MIN { i64::MIN } else { self.newest.0.saturating_sub(self.delay) })
    }

    /// Events that the source left out.
    pub(crate) fn advance(&mut self, time: EventTime) {
        self.newest = self.newest.max(time);
    }

    /// The watermark is at least this from now on.
    pub(crate) fn raise(&mut self, watermark: EventTime) {
        if watermark > EventTime::MIN {
            self.advance(EventTime(watermark.0.saturating_add(self.delay)));
        }
    }

    /// Takes the event times of a batch in and sorts its rows.
    pub(crate) fn sort(&mut self, times: &ArrayRef) -> Result<Sorted> {
        let (values, unit) = timestamp_values(times)?;
        let nulls = times.nulls().filter(|nulls| nulls.null_count() > 0);
        let Some((earliest, latest)) = bounds(values, nulls) else {
            return Ok(self.without_times(values.len()));
        };
        let before = self.newest;
        self.newest = before.max(to_event_time(latest, unit));
        let quick = |bound: EventTime| nulls.is_none() && bound > self.watermark();
        let quick = match &self.lateness {
            Lateness::Never => true,
            Lateness::Windows(window) => quick(EventTime(window.first_end_after(to_event_time(earliest, unit)))),
            Lateness::Time => quick(EventTime(to_event_time(earliest, unit).0.saturating_add(1))),
        };
        if quick || nulls.is_none() && !disordered(values, unit, before, self.delay) {
            return Ok(Sorted::AllOnTime);
        }
        Ok(self.by_row(values, unit, nulls, before))
    }

    fn without_times(&self, rows: usize) -> Sorted {
        if self.lateness == Lateness::Never || rows == 0 {
            return Sorted::AllOnTime;
        }
        Sorted::Mixed([(Timeliness::Late, (0..rows as u32).collect())].into())
    }

    fn by_row(&self, values: &[i64], unit: TimeUnit, nulls: Option<&NullBuffer>, before: EventTime) -> Sorted {
        let mut running = Self { newest: before, ..self.clone() };
        let mut sorted: BTreeMap<Timeliness, Vec<u32>> = BTreeMap::new();
        for (row, value) in (0_u32..).zip(values) {
            let timeliness = if nulls.is_some_and(|nulls| nulls.is_null(row as usize)) {
                Timeliness::Late
            } else {
                let time = to_event_time(*value, unit);
                running.advance(time);
                match &self.lateness {
                    Lateness::Windows(window) => timeliness(window, time, running.watermark()),
                    Lateness::Time if time < running.watermark() => Timeliness::Late,
                    Lateness::Time | Lateness::Never => Timeliness::OnTime,
                }
            };
            sorted.entry(timeliness).or_default().push(row);
        }
        if sorted.keys().all(|timeliness| *timeliness == Timeliness::OnTime) {
            Sorted::AllOnTime
        } else {
            Sorted::Mixed(sorted)
        }
    }
}

/// For which of its windows a row counts under a watermark. A row between windows with gaps is on time.
fn timeliness(window: &WindowSpec, time: EventTime, watermark: EventTime) -> Timeliness {
    if time >= watermark || time.0.saturating_abs() > TIME_LIMIT {
        return Timeliness::OnTime;
    }
    let mut ends = window.windows_of(time).map(|(_, end)| end);
    match ends.next() {
        Some(first) if first <= watermark.0 => {
            ends.find(|end| *end > watermark.0).map_or(Timeliness::Late, Timeliness::From)
        }
        _ => Timeliness::OnTime,
    }
}

/// Whether some row lies further than the delay below the newest time at its position. In the column's unit; may say yes
/// for a row that lies just at the delay.
fn disordered(values: &[i64], unit: TimeUnit, before: EventTime, delay: i64) -> bool {
    let (numerator, denominator) = micros_per_unit(unit);
    let delay = delay.saturating_mul(denominator) / numerator - (denominator - 1);
    // What was seen before may lie between two values of the unit (left-out events): rounded up, never down.
    let floor = from_event_time(before, unit);
    let mut newest = if to_event_time(floor, unit) < before { floor + 1 } else { floor };
    let mut disordered = false;
    for value in values {
        newest = newest.max(*value);
        disordered |= newest.saturating_sub(*value) > delay;
    }
    disordered
}

fn bounds(values: &[i64], nulls: Option<&NullBuffer>) -> Option<(i64, i64)> {
    let widen = |bounds: Option<(i64, i64)>, value: i64| {
        Some(bounds.map_or((value, value), |(low, high): (i64, i64)| (low.min(value), high.max(value))))
    };
    match nulls {
        Some(nulls) => nulls.valid_indices().fold(None, |bounds, row| widen(bounds, values[row])),
        None => {
            let first = *values.first()?;
            Some(values.iter().fold((first, first), |(low, high), value| (low.min(*value), high.max(*value))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::TimestampMillisecondArray;
    use proptest::prelude::*;

    use super::*;

    fn millis(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from(values.to_vec()))
    }

    #[test]
    fn a_row_may_be_late_for_some_of_its_windows_only() {
        let hop = WindowSpec::hop(5_000, 10_000);
        let mut running = RunningWatermark::new(0, Lateness::Windows(hop));
        let sorted = running.sort(&millis(&[Some(7), Some(12), Some(6), Some(3), None])).unwrap();
        // At the watermark 12 ms, the windows [-5, 5) and [0, 10) are closed, and [5, 15) is open.
        let expected =
            [(Timeliness::OnTime, vec![0, 1]), (Timeliness::From(15_000), vec![2]), (Timeliness::Late, vec![3, 4])];
        assert_eq!(sorted, Sorted::Mixed(expected.into()));
        assert_eq!(running.watermark(), EventTime(12_000));
    }

    #[test]
    fn rows_are_late_by_a_watermark_that_was_raised() {
        let mut running = RunningWatermark::new(3_000, Lateness::Windows(WindowSpec::tumble(10_000)));
        running.raise(EventTime(20_000));
        assert_eq!(running.watermark(), EventTime(20_000));
        let sorted = running.sort(&millis(&[Some(19), Some(21)])).unwrap();
        assert_eq!(sorted, Sorted::Mixed([(Timeliness::OnTime, vec![1]), (Timeliness::Late, vec![0])].into()));
        running.raise(EventTime::MIN);
        assert_eq!(running.watermark(), EventTime(20_000));
    }

    #[test]
    fn without_windows_nothing_is_late() {
        let mut running = RunningWatermark::new(0, Lateness::Never);
        assert_eq!(running.sort(&millis(&[Some(9), Some(1), None])).unwrap(), Sorted::AllOnTime);
        assert_eq!(running.watermark(), EventTime(9_000));
    }

    #[test]
    fn a_row_below_the_watermark_is_late_for_any_session() {
        let mut running = RunningWatermark::new(5_000, Lateness::Time);
        let sorted = running.sort(&millis(&[Some(10), Some(5), Some(4), Some(20), Some(14), Some(15), None])).unwrap();
        let expected = [(Timeliness::OnTime, vec![0, 1, 3, 5]), (Timeliness::Late, vec![2, 4, 6])];
        assert_eq!(sorted, Sorted::Mixed(expected.into()));
        assert_eq!(running.sort(&millis(&[Some(15), Some(99)])).unwrap(), Sorted::AllOnTime);
    }

    proptest! {
        #[test]
        fn the_quick_checks_never_miss_a_late_row(
            batches in prop::collection::vec(prop::collection::vec(-60_i64..60, 1..20), 1..6),
            size in 1_i64..20, slide in 1_i64..20, cumulate: bool, offset in -3_i64..3, delay_us in 0_i64..15_000,
        ) {
            let window = if cumulate {
                WindowSpec::cumulate(slide * 1000, slide * size * 1000)
            } else {
                WindowSpec::hop(slide * 1000, size * 1000)
            };
            let window = window.shifted(offset * 1000);
            let mut running = RunningWatermark::new(delay_us, Lateness::Windows(window));
            let mut newest = i64::MIN;
            for batch in batches {
                let values: Vec<Option<i64>> = batch.iter().copied().map(Some).collect();
                let sorted = running.sort(&millis(&values)).unwrap();
                let mut expected: BTreeMap<Timeliness, Vec<u32>> = BTreeMap::new();
                for (row, time) in (0..).zip(&batch) {
                    newest = newest.max(time * 1000);
                    let ends: Vec<i64> = window.windows_of(EventTime(time * 1000)).map(|(_, end)| end).collect();
                    let open: Vec<i64> = ends.iter().copied().filter(|end| *end > newest - delay_us).collect();
                    let timeliness = if open.len() == ends.len() {
                        Timeliness::OnTime
                    } else {
                        open.first().map_or(Timeliness::Late, |end| Timeliness::From(*end))
                    };
                    expected.entry(timeliness).or_default().push(row);
                }
                match sorted {
                    Sorted::AllOnTime => prop_assert!(expected.keys().all(|t| *t == Timeliness::OnTime)),
                    Sorted::Mixed(sorted) => prop_assert_eq!(sorted, expected),
                }
            }
        }
    }
}
