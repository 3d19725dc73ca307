//! Joins of two streams are those of the definition, whatever the parallelism, the epochs and the faults.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use proptest::prelude::*;
use savanna_streams_model::join::JoinKind;

use crate::graphs::join_graph;
use crate::memory::{Memory, Row};
use crate::windows::{any_run, partitions, run};

const KINDS: [JoinKind; 6] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

/// The rows that are not late, and how many are.
fn on_time(partitions: &[Vec<Row>], delay: i64) -> (Vec<Row>, u64) {
    let (mut rows, mut late) = (Vec::new(), 0);
    for partition in partitions {
        let mut newest = i64::MIN;
        for row in partition {
            newest = newest.max(row.time.unwrap_or(i64::MIN));
            match row.time {
                Some(time) if time >= newest - delay => rows.push(*row),
                _ => late += 1,
            }
        }
    }
    (rows, late)
}

type Pair = (Option<Row>, Option<Row>);

fn truth(kind: JoinKind, earliest: i64, latest: i64, left: &[Row], right: &[Row]) -> Vec<Pair> {
    let matches = |l: &Row, r: &Row| {
        let near = l.time.zip(r.time).is_some_and(|(l, r)| (earliest..=latest).contains(&(l - r)));
        near && l.key.is_some() && l.key == r.key
    };
    let mut pairs: Vec<Pair> = Vec::new();
    for l in left {
        let partners: Vec<&Row> = right.iter().filter(|r| matches(l, r)).collect();
        match kind {
            JoinKind::Semi => pairs.extend((!partners.is_empty()).then_some((Some(*l), None))),
            JoinKind::Anti => {}
            _ => pairs.extend(partners.iter().map(|r| (Some(*l), Some(**r)))),
        }
        if partners.is_empty() && kind.keeps_left() {
            pairs.push((Some(*l), None));
        }
    }
    if kind.keeps_right() {
        pairs.extend(right.iter().filter(|r| !left.iter().any(|l| matches(l, r))).map(|r| (None, Some(*r))));
    }
    pairs.sort_unstable();
    pairs
}

fn pairs(kind: JoinKind, batches: &[RecordBatch]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for batch in batches {
        let row_at = |first: usize, row: usize| -> Option<Row> {
            let times = batch.column(first).as_primitive::<TimestampMillisecondType>();
            let number = |column: usize| {
                let column = batch.column(first + column).as_primitive::<Int64Type>();
                column.is_valid(row).then(|| column.value(row))
            };
            let time = times.is_valid(row).then(|| times.value(row));
            number(2).map(|value| Row { time, key: number(1), value })
        };
        let right = |row| if kind.left_only() { None } else { row_at(3, row) };
        pairs.extend((0..batch.num_rows()).map(|row| (row_at(0, row), right(row))));
    }
    pairs.sort_unstable();
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rows_meet_within_bounds_of_time(
        left in partitions(), right in partitions(), kind in prop::sample::select(&KINDS),
        earliest in -30_i64..30, width in 0_i64..40, delay in 0_i64..30, how in any_run(),
    ) {
        let latest = earliest + width;
        let ((left_rows, left_late), (right_rows, right_late)) = (on_time(&left, delay), on_time(&right, delay));
        let expected = truth(kind, earliest, latest, &left_rows, &right_rows);
        let memory = Arc::new(Memory::with("l", left).and("r", right));
        let (status, rows) = run(join_graph(kind, earliest, latest, delay), &memory, how);
        prop_assert_eq!(pairs(kind, &rows), expected);
        prop_assert_eq!(status.late_rows, left_late + right_late);
    }
}
