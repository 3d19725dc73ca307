//! What windows hold, computed row by row from the definition, without panes, epochs or merging.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use savanna_streams_model::time::{EventTime, WindowSpec};

use crate::graphs::MILLI;
use crate::memory::Row;

/// What is right for some partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) windows: Groups,
    pub(crate) late: Vec<Row>,
    /// A window and a row in it, once per window.
    pub(crate) members: Vec<(Window, Row)>,
}

/// Start and end in milliseconds.
pub(crate) type Window = (i64, i64);

/// By window and key.
pub(crate) type Groups = BTreeMap<(Window, Option<i64>), Group>;

/// Count, sum, least, largest, distinct values, count of values from 10.
pub(crate) type Group = (i64, i64, i64, i64, i64, i64);

/// Rows with a negative value move the watermark but are filtered out, if told so.
pub(crate) fn truth(partitions: &[Vec<Row>], window: &WindowSpec, delay_ms: i64, filtered: bool, keyed: bool) -> Truth {
    let mut groups: BTreeMap<(Window, Option<i64>), Vec<i64>> = BTreeMap::new();
    let mut truth = Truth::default();
    for partition in partitions {
        let mut newest = i64::MIN;
        for row in partition {
            newest = newest.max(row.time.unwrap_or(i64::MIN));
            if filtered && row.value < 0 {
                continue;
            }
            let Some(time) = row.time else {
                truth.late.push(*row);
                continue;
            };
            let watermark = (newest - delay_ms) * MILLI;
            let windows: Vec<Window> = window.windows_of(EventTime(time * MILLI)).collect();
            let open: Vec<Window> = windows.iter().copied().filter(|(_, end)| *end > watermark).collect();
            if open.is_empty() && !windows.is_empty() {
                truth.late.push(*row);
            }
            for (start, end) in open {
                let window = (start / MILLI, end / MILLI);
                truth.members.push((window, *row));
                groups.entry((window, row.key.filter(|_| keyed))).or_default().push(row.value);
            }
        }
    }
    truth.windows = groups.into_iter().map(|(key, values)| (key, group(&values))).collect();
    truth.late.sort_unstable();
    truth.members.sort_unstable();
    truth
}

/// What an aggregate comes to.
pub(crate) fn group(values: &[i64]) -> Group {
    let distinct: BTreeSet<i64> = values.iter().copied().collect();
    let large = values.iter().filter(|value| **value >= 10).count() as i64;
    let (low, high) = (*distinct.first().unwrap(), *distinct.last().unwrap());
    (values.len() as i64, values.iter().sum(), low, high, distinct.len() as i64, large)
}

/// The groups in the sink's rows.
///
/// # Panics
/// A group came twice, or a window's columns do not fit together.
pub(crate) fn groups(batches: &[RecordBatch], keyed: bool) -> Groups {
    let mut groups = BTreeMap::new();
    for batch in batches {
        let first = usize::from(keyed);
        let number = |column: usize, row: usize| batch.column(first + column).as_primitive::<Int64Type>().value(row);
        let time = |column: usize, row: usize| {
            batch.column(first + column).as_primitive::<TimestampMillisecondType>().value(row)
        };
        for row in 0..batch.num_rows() {
            let key = keyed.then(|| batch.column(0).as_primitive::<Int64Type>()).filter(|keys| keys.is_valid(row));
            let values =
                (number(0, row), number(1, row), number(2, row), number(3, row), number(4, row), number(5, row));
            let window = (time(6, row), time(7, row));
            assert_eq!(time(8, row), window.1 - 1);
            let before = groups.insert((window, key.map(|keys| keys.value(row))), values);
            assert_eq!(before, None, "window {window:?}, key {key:?} came twice");
        }
    }
    groups
}
