//! Event time: instants of the data, not of the machine.

use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use serde::{Deserialize, Serialize};

use savanna_streams_api::{Result, StreamError};

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

/// The boundaries of windows that lie fixed in time, all in microseconds. Windows start at `offset + k * slide`; those with
/// one start end `step` after each other, the last after `size`:
///
/// ```text
///   TUMBLE    slide = step = size      |-------|-------|
///   HOP       step = size              |-------|
///                                         |-------|
///   CUMULATE  slide = size = n * step  |--|              |--|
///                                      |----|            |----|
///                                      |-------|         |-------|
/// ```
///
/// Overlapping windows share *panes* of `pane()` microseconds, so that a row is added once, whatever the overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WindowSpec {
    size: i64,
    slide: i64,
    step: i64,
    offset: i64,
}

impl WindowSpec {
    /// Windows side by side.
    pub const fn tumble(size: i64) -> Self {
        Self::hop(size, size)
    }

    /// Windows of `size` that start every `slide`.
    pub const fn hop(slide: i64, size: i64) -> Self {
        Self { size, slide, step: size, offset: 0 }
    }

    /// Windows that start every `size` and end `step`, 2 `step`, .. `size` after their start. `size` is a multiple of `step`.
    pub const fn cumulate(step: i64, size: i64) -> Self {
        Self { size, slide: size, step, offset: 0 }
    }

    /// The same windows with all boundaries shifted against 1970-01-01.
    pub const fn shifted(self, offset: i64) -> Self {
        Self { offset, ..self }
    }

    /// The length of the longest window.
    pub const fn size(&self) -> i64 {
        self.size
    }

    /// The distance between two starts.
    pub const fn slide(&self) -> i64 {
        self.slide
    }

    /// The distance between the ends of two windows with one start, which is also the length of the shortest window.
    pub const fn step(&self) -> i64 {
        self.step
    }

    /// The shift of all boundaries against 1970-01-01.
    pub const fn offset(&self) -> i64 {
        self.offset
    }

    /// Whether all windows have one length, so that a start tells the end.
    pub const fn has_one_size(&self) -> bool {
        self.step == self.size
    }

    /// The length of a pane: the greatest common divisor of size, slide and step.
    pub const fn pane(&self) -> i64 {
        greatest_common_divisor(greatest_common_divisor(self.size, self.slide), self.step)
    }

    /// The start of the pane that holds `time`.
    pub const fn pane_start(&self, time: EventTime) -> i64 {
        let pane = self.pane();
        (time.0 - self.offset).div_euclid(pane) * pane + self.offset
    }

    /// The last start at or before `time`; its windows may not hold `time` if windows have gaps (`slide > size`).
    pub const fn last_start(&self, time: EventTime) -> i64 {
        (time.0 - self.offset).div_euclid(self.slide) * self.slide + self.offset
    }

    /// The end of the last window that may hold `time`.
    pub const fn last_end(&self, time: EventTime) -> i64 {
        self.last_start(time) + self.size
    }

    /// The start of the window that ends at `end`.
    pub const fn start_of(&self, end: i64) -> i64 {
        if self.has_one_size() { end - self.size } else { self.last_start(EventTime(end - 1)) }
    }

    /// The end of the first window that ends after `time`, whether or not it holds it.
    pub const fn first_end_after(&self, time: EventTime) -> i64 {
        let every = if self.has_one_size() { self.slide } else { self.step };
        let since = time.0.saturating_sub(self.offset).saturating_sub(self.size);
        since.div_euclid(every).saturating_add(1).saturating_mul(every).saturating_add(self.offset + self.size)
    }

    /// Start and end of all windows that hold `time`, earliest end first.
    pub fn windows_of(&self, time: EventTime) -> impl DoubleEndedIterator<Item = (i64, i64)> + use<> {
        let spec = *self;
        let last = spec.last_start(time);
        let since = time.0 - last;
        let starts = if since < spec.size { (spec.size - 1 - since) / spec.slide + 1 } else { 0 };
        // Either there is one start with several ends, or each start has one end.
        (0..starts).rev().flat_map(move |k| {
            let start = last - k * spec.slide;
            let first = (time.0 - start) / spec.step + 1;
            (first..=spec.size / spec.step).map(move |n| (start, start + n * spec.step))
        })
    }
}

/// How rows come into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Windows {
    /// Windows that lie fixed in time, the same for all keys.
    Fixed(WindowSpec),
    /// Runs of rows of one key, each less than `gap` microseconds after the one before. A session starts with its first
    /// row and ends `gap` after its last, where the next may begin.
    Session {
        /// The least time between two sessions.
        gap: i64,
    },
}

impl Windows {
    /// The windows, if they lie fixed in time.
    pub const fn fixed(&self) -> Option<&WindowSpec> {
        match self {
            Self::Fixed(spec) => Some(spec),
            Self::Session { .. } => None,
        }
    }
}

impl From<WindowSpec> for Windows {
    fn from(spec: WindowSpec) -> Self {
        Self::Fixed(spec)
    }
}

const fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A length of time with its unit, as in options: `250ms`, `10s`, `5 min` or `1h`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let millis: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "ms" => 1,
        "s" | "sec" | "second" | "seconds" => 1_000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(spec: WindowSpec, time: i64) -> Vec<(i64, i64)> {
        spec.windows_of(EventTime(time)).collect()
    }

    #[test]
    fn a_row_of_a_hopping_window_lies_in_size_over_slide_windows() {
        let hop = WindowSpec::hop(2, 10);
        assert_eq!(windows(hop, 13), [(4, 14), (6, 16), (8, 18), (10, 20), (12, 22)]);
        assert_eq!(hop.pane(), 2);
        assert_eq!(hop.pane_start(EventTime(13)), 12);
    }

    #[test]
    fn cumulating_windows_share_their_start() {
        let cumulate = WindowSpec::cumulate(5, 15).shifted(1);
        assert_eq!(windows(cumulate, 0), [(-14, 1)]);
        assert_eq!(windows(cumulate, 1), [(1, 6), (1, 11), (1, 16)]);
        assert_eq!(windows(cumulate, 11), [(1, 16)]);
        assert_eq!(cumulate.pane(), 5);
        assert_eq!([6, 11, 16, 21].map(|end| cumulate.start_of(end)), [1, 1, 1, 16]);
        assert_eq!([0, 1, 5, 6].map(|time| cumulate.first_end_after(EventTime(time))), [1, 6, 6, 11]);
    }

    #[test]
    fn windows_before_1970_start_at_or_before_their_rows() {
        let tumble = WindowSpec::tumble(10);
        assert_eq!(windows(tumble, -1), [(-10, 0)]);
        assert_eq!(windows(tumble, -10), [(-10, 0)]);
    }

    #[test]
    fn windows_with_gaps_leave_rows_out() {
        let gaps = WindowSpec::hop(5, 2);
        assert_eq!(windows(gaps, 6), [(5, 7)]);
        assert_eq!(windows(gaps, 8), []);
    }

    #[test]
    fn nanoseconds_round_towards_the_past() {
        assert_eq!(to_event_time(-1, TimeUnit::Nanosecond), EventTime(-1));
        assert_eq!(to_event_time(1_999, TimeUnit::Nanosecond), EventTime(1));
    }
}
