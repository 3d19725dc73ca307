//! Event time: instants of the data, not of the machine.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use serde::{Deserialize, Serialize};

use crate::{Result, StreamError};

/// An instant of event time in microseconds since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventTime(pub i64);

impl EventTime {
    /// Before all events: the watermark of a partition that has shown nothing yet.
    pub const MIN: Self = Self(i64::MIN);
    /// After all events: the watermark of a partition that has ended.
    pub const MAX: Self = Self(i64::MAX);
}

/// How many microseconds one unit of a timestamp column is, as a fraction `(numerator, denominator)`:
/// microseconds = value * numerator / denominator.
pub const fn micros_per_unit(unit: TimeUnit) -> (i64, i64) {
    match unit {
        TimeUnit::Second => (1_000_000, 1),
        TimeUnit::Millisecond => (1_000, 1),
        TimeUnit::Microsecond => (1, 1),
        TimeUnit::Nanosecond => (1, 1_000),
    }
}

/// A value of a timestamp column as event time; sub-microsecond parts are cut off towards the past.
pub const fn to_event_time(value: i64, unit: TimeUnit) -> EventTime {
    let (numerator, denominator) = micros_per_unit(unit);
    EventTime(value.saturating_mul(numerator).div_euclid(denominator))
}

/// Event time as a value of a timestamp column; what does not fit the unit is cut off towards the past.
pub const fn from_event_time(time: EventTime, unit: TimeUnit) -> i64 {
    let (numerator, denominator) = micros_per_unit(unit);
    time.0.saturating_mul(denominator).div_euclid(numerator)
}

/// The raw values of a timestamp column, with its unit. The column may hold nulls: ask the array.
///
/// # Errors
/// The column is no timestamp.
pub fn timestamp_values(column: &ArrayRef) -> Result<(&[i64], TimeUnit)> {
    Ok(match column.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            (column.as_primitive::<TimestampSecondType>().values(), TimeUnit::Second)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            (column.as_primitive::<TimestampMillisecondType>().values(), TimeUnit::Millisecond)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (column.as_primitive::<TimestampMicrosecondType>().values(), TimeUnit::Microsecond)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            (column.as_primitive::<TimestampNanosecondType>().values(), TimeUnit::Nanosecond)
        }
        DataType::Int64 => (column.as_primitive::<Int64Type>().values(), TimeUnit::Millisecond),
        other => {
            return Err(StreamError::invalid(format!(
                "a time column must be of type TIMESTAMP, but this one is {other}; CAST it to TIMESTAMP(3)"
            )));
        }
    })
}

/// The boundaries of fixed-size windows, all in microseconds. Windows start at `offset + k * slide` and are `size`
/// long; a tumbling window has `slide == size`.
///
/// Overlapping windows share *panes* of `pane()` microseconds, so that a row is added once, whatever the overlap:
///
/// ```text
///   HOP slide 2 s, size 10 s      window  |-----------------------|
///                                 panes   |----|----|----|----|----|----|
///                                             window' |-----------------------|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WindowSpec {
    /// Length of a window.
    pub size: i64,
    /// Distance between the starts of two windows.
    pub slide: i64,
    /// Shift of all boundaries against 1970-01-01.
    pub offset: i64,
}

impl WindowSpec {
    /// A tumbling window.
    pub const fn tumble(size: i64) -> Self {
        Self { size, slide: size, offset: 0 }
    }

    /// The length of a pane: the greatest common divisor of size and slide.
    pub const fn pane(&self) -> i64 {
        let (mut a, mut b) = (self.size, self.slide);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    }

    /// The start of the pane that holds `time`.
    pub const fn pane_start(&self, time: EventTime) -> i64 {
        let pane = self.pane();
        (time.0 - self.offset).div_euclid(pane) * pane + self.offset
    }

    /// The start of the last window (the one that ends last) that holds `time`; it may not hold it if windows have
    /// gaps (`slide > size`).
    pub const fn last_window_start(&self, time: EventTime) -> i64 {
        (time.0 - self.offset).div_euclid(self.slide) * self.slide + self.offset
    }

    /// The starts of all windows that hold `time`, earliest first.
    pub fn windows_of(&self, time: EventTime) -> impl DoubleEndedIterator<Item = i64> + use<> {
        let last = self.last_window_start(time);
        let spec = *self;
        let since = time.0 - last;
        let count = if since < spec.size { (spec.size - 1 - since) / spec.slide + 1 } else { 0 };
        (0..count).rev().map(move |k| last - k * spec.slide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_hopping_window_lies_in_size_over_slide_windows() {
        let hop = WindowSpec { size: 10, slide: 2, offset: 0 };
        let starts: Vec<i64> = hop.windows_of(EventTime(13)).collect();
        assert_eq!(starts, [4, 6, 8, 10, 12]);
        assert_eq!(hop.pane(), 2);
        assert_eq!(hop.pane_start(EventTime(13)), 12);
    }

    #[test]
    fn windows_before_1970_start_at_or_before_their_rows() {
        let tumble = WindowSpec::tumble(10);
        assert_eq!(tumble.windows_of(EventTime(-1)).collect::<Vec<_>>(), [-10]);
        assert_eq!(tumble.windows_of(EventTime(-10)).collect::<Vec<_>>(), [-10]);
    }

    #[test]
    fn windows_with_gaps_leave_rows_out() {
        let gaps = WindowSpec { size: 2, slide: 5, offset: 0 };
        assert_eq!(gaps.windows_of(EventTime(6)).collect::<Vec<_>>(), [5]);
        assert_eq!(gaps.windows_of(EventTime(8)).count(), 0);
    }

    #[test]
    fn nanoseconds_round_towards_the_past() {
        assert_eq!(to_event_time(-1, TimeUnit::Nanosecond), EventTime(-1));
        assert_eq!(to_event_time(1_999, TimeUnit::Nanosecond), EventTime(1));
    }
}
