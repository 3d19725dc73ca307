//! Which rows of a batch lie in which pane. Times stay in their column's unit where the panes' borders allow it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::datatypes::TimeUnit;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::time::{EventTime, WindowSpec, micros_per_unit, timestamp_values, to_event_time};

use crate::lateness::TIME_LIMIT;

/// The rows of one pane (start in microseconds).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PaneRows {
    /// All rows of the batch.
    All(i64),
    /// Neighbouring rows.
    Run { pane: i64, start: usize, rows: usize },
    /// Rows here and there.
    Scattered { pane: i64, positions: UInt32Array },
}

/// A batch cut by pane.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Split {
    pub(super) parts: Vec<PaneRows>,
    /// Rows without an event time; they are in no part.
    pub(super) without_time: usize,
}

/// Runs shorter than this on average are gathered instead of sliced: a slice costs about as much as gathering so many rows.
const SHORT_RUN: usize = 128;

/// Cuts a batch by pane.
pub(super) fn by_pane(window: &WindowSpec, times: &ArrayRef) -> Result<Split> {
    let (values, unit) = timestamp_values(times)?;
    if values.is_empty() {
        return Ok(Split::default());
    }
    let (values, unit) = in_pane_unit(window, values, unit);
    let nulls = times.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(nulls) = nulls {
        let mut scattered: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for row in nulls.valid_indices() {
            scattered.entry(Pane::of(window, values[row], unit)?.start_us).or_default().push(row as u32);
        }
        return Ok(Split { parts: gathered(scattered), without_time: nulls.null_count() });
    }
    let first = Pane::of(window, values[0], unit)?;
    if !values.iter().fold(false, |outside, value| outside | !first.holds(*value)) {
        return Ok(Split { parts: vec![PaneRows::All(first.start_us)], without_time: 0 });
    }
    Ok(Split { parts: several(window, &values, unit)?, without_time: 0 })
}

/// Slices where rows of a pane mostly stand together, positions where panes alternate.
fn several(window: &WindowSpec, values: &[i64], unit: TimeUnit) -> Result<Vec<PaneRows>> {
    let runs_max = (values.len() / SHORT_RUN).max(4);
    let mut runs = Vec::new();
    let mut rest = 0;
    while rest < values.len() {
        if runs.len() == runs_max {
            return scattered(window, values, unit);
        }
        let pane = Pane::of(window, values[rest], unit)?;
        let same = values[rest..].iter().position(|value| !pane.holds(*value));
        let rows = same.unwrap_or(values.len() - rest);
        runs.push(PaneRows::Run { pane: pane.start_us, start: rest, rows });
        rest += rows;
    }
    Ok(runs)
}

/// So few panes are gone through one by one: a pass without branches takes about a nanosecond per row, a branch that cannot be
/// foreseen ten.
const FEW_PANES: i64 = 8;

fn scattered(window: &WindowSpec, values: &[i64], unit: TimeUnit) -> Result<Vec<PaneRows>> {
    let (earliest, latest) =
        values.iter().fold((i64::MAX, i64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let (first, last) = (Pane::of(window, earliest, unit)?, Pane::of(window, latest, unit)?);
    if last.start_us - first.start_us < FEW_PANES * window.pane() {
        return Ok(gathered(few_panes(window, first, &last, values)));
    }
    let mut panes: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    for (row, value) in (0..).zip(values) {
        panes.entry(Pane::of(window, *value, unit)?.start_us).or_default().push(row);
    }
    Ok(gathered(panes))
}

/// The positions of the values by pane. All of them lie in the first pane, the last, or between them.
fn few_panes(window: &WindowSpec, first: Pane, last: &Pane, values: &[i64]) -> Vec<(i64, Vec<u32>)> {
    let (mut panes, mut rest) = (Vec::new(), (0..values.len() as u32).collect());
    let mut pane = first;
    while pane.start_us < last.start_us {
        let (inside, outside) = parted(&pane, rest, values);
        panes.push((pane.start_us, inside));
        rest = outside;
        pane = pane.next(window);
    }
    panes.push((pane.start_us, rest));
    panes.retain(|(_, positions)| !positions.is_empty());
    panes
}

/// The positions of values that lie in a pane, and of those that do not.
fn parted(pane: &Pane, mut positions: Vec<u32>, values: &[i64]) -> (Vec<u32>, Vec<u32>) {
    let mut outside = vec![0; positions.len()];
    let mut inside = 0;
    for at in 0..positions.len() {
        let position = positions[at];
        // Both are written, and one of them counts.
        positions[inside] = position;
        outside[at - inside] = position;
        inside += usize::from(pane.holds(values[position as usize]));
    }
    outside.truncate(positions.len() - inside);
    positions.truncate(inside);
    (positions, outside)
}

fn gathered(panes: impl IntoIterator<Item = (i64, Vec<u32>)>) -> Vec<PaneRows> {
    let part = |(pane, positions): (i64, Vec<u32>)| PaneRows::Scattered { pane, positions: positions.into() };
    panes.into_iter().map(part).collect()
}

/// The values in a unit in which pane borders are whole numbers: as they are, or in microseconds.
fn in_pane_unit<'a>(window: &WindowSpec, values: &'a [i64], unit: TimeUnit) -> (Cow<'a, [i64]>, TimeUnit) {
    let (numerator, _) = micros_per_unit(unit);
    if window.pane() % numerator == 0 && window.offset() % numerator == 0 {
        return (Cow::Borrowed(values), unit);
    }
    let micros = values.iter().map(|value| to_event_time(*value, unit).0).collect();
    (Cow::Owned(micros), TimeUnit::Microsecond)
}

/// A value of a time column as event time, if it lies in reach of windows.
pub(super) fn check_time(value: i64, unit: TimeUnit) -> Result<EventTime> {
    let time = to_event_time(value, unit);
    if time.0.saturating_abs() <= TIME_LIMIT {
        return Ok(time);
    }
    Err(StreamError::Data {
        place: "event time".into(),
        message: format!(
            "a window needs a time within {} years of 1970, but got {value} {unit:?}s; filter such rows out",
            TIME_LIMIT / 31_557_600_000_000
        ),
    })
}

/// A pane in the unit of the values.
struct Pane {
    start_us: i64,
    start: i64,
    length: u64,
}

impl Pane {
    fn of(window: &WindowSpec, value: i64, unit: TimeUnit) -> Result<Self> {
        let time = check_time(value, unit)?;
        let (numerator, denominator) = micros_per_unit(unit);
        let start_us = window.pane_start(time);
        let length = (window.pane() / numerator).saturating_mul(denominator);
        Ok(Self { start_us, start: start_us.saturating_mul(denominator) / numerator, length: length as u64 })
    }

    fn next(&self, window: &WindowSpec) -> Self {
        let Self { start_us, start, length } = *self;
        Self { start_us: start_us + window.pane(), start: start.saturating_add_unsigned(length), length }
    }

    fn holds(&self, value: i64) -> bool {
        // One comparison for both borders: below the start, the difference wraps to a huge number.
        (value.wrapping_sub(self.start) as u64) < self.length
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{TimestampMillisecondArray, TimestampNanosecondArray};
    use proptest::prelude::*;

    use super::*;

    /// Pane of each row, as the parts say.
    fn panes(split: &Split, rows: usize) -> Vec<Option<i64>> {
        let mut panes = vec![None; rows];
        for part in &split.parts {
            match part {
                PaneRows::All(pane) => panes.fill(Some(*pane)),
                PaneRows::Run { pane, start, rows } => panes[*start..start + rows].fill(Some(*pane)),
                PaneRows::Scattered { pane, positions } => {
                    positions.values().iter().for_each(|row| panes[*row as usize] = Some(*pane));
                }
            }
        }
        panes
    }

    #[test]
    fn times_beyond_any_calendar_are_refused() {
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![i64::MAX]));
        assert!(by_pane(&WindowSpec::tumble(1000), &times).unwrap_err().to_string().contains("within"));
    }

    proptest! {
        #[test]
        fn every_row_is_in_its_pane(
            rows in prop::collection::vec(prop::option::weighted(0.95, -2_000_i64..2_000), 0..600),
            sorted: bool, nanoseconds: bool, size in 1_i64..900, slide in 1_i64..900, offset in -5_i64..5,
            scale in prop::sample::select(vec![1_i64, 1000]),
        ) {
            let mut rows = rows;
            if sorted { rows.sort_unstable(); }
            let window = WindowSpec::hop(slide * scale, size * scale).shifted(offset * scale);
            let (times, unit): (ArrayRef, _) = if nanoseconds {
                (Arc::new(TimestampNanosecondArray::from(rows.clone())), TimeUnit::Nanosecond)
            } else {
                (Arc::new(TimestampMillisecondArray::from(rows.clone())), TimeUnit::Millisecond)
            };
            let split = by_pane(&window, &times).unwrap();
            let expected: Vec<Option<i64>> =
                rows.iter().map(|row| row.map(|value| window.pane_start(to_event_time(value, unit)))).collect();
            prop_assert_eq!(panes(&split, rows.len()), expected);
            prop_assert_eq!(split.without_time, rows.iter().filter(|row| row.is_none()).count());
        }
    }
}
