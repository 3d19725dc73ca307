//! Other shapes of graphs: plain rows, windows as columns, plans over windows of two inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, Schema, TimestampMillisecondType};
use proptest::prelude::*;
use savanna_streams_model::graph::{Exchange, Expand, Output, StageGraph};

use crate::graphs::{
    counts_joined, filter_chain, identity, input_schema, scan, scan_stage, sink, window, windowed_schema,
};
use crate::memory::{Memory, Row, rows_of};
use crate::oracle::{Window, truth};
use crate::windows::{Run, any_run, any_window, partitions, run};

fn expanded_schema() -> Arc<Schema> {
    let mut fields = input_schema().fields().to_vec();
    fields.extend(windowed_schema(false).fields().iter().rev().take(3).rev().cloned());
    Arc::new(Schema::new(fields))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_filter_passes_exactly_its_rows_in_order(partitions in partitions(), how in any_run()) {
        let expected: Vec<Row> = partitions[0].iter().copied().filter(|row| row.value >= 0).collect();
        let memory = Arc::new(Memory::with("t", vec![partitions[0].clone()]));
        let output = Output::rows(filter_chain());
        let stages = vec![scan_stage(0, scan("t", 0), output, Exchange::Single, 1), sink(1, &[0])];
        let graph = StageGraph { stages, output: input_schema().as_ref().clone() };
        let (status, rows) = run(graph, &memory, how);
        prop_assert_eq!(rows_of(&rows), expected);
        prop_assert_eq!(status.late_rows, 0);
    }

    #[test]
    fn windows_as_columns_hold_each_row_once_per_window(
        partitions in partitions(), window in any_window(), delay in 0_i64..30, filtered: bool, how in any_run(),
    ) {
        let truth = truth(&partitions, &window, delay, filtered, true);
        let memory = Arc::new(Memory::with("t", partitions));
        let chain = if filtered { filter_chain() } else { identity(&input_schema()) };
        let expand = Expand { time_column: 0, window, after: identity(&expanded_schema()) };
        let output = Output { expand: Some(expand), ..Output::rows(chain) };
        let stages = vec![scan_stage(0, scan("t", delay), output, Exchange::Single, 1), sink(1, &[0])];
        let graph = StageGraph { stages, output: expanded_schema().as_ref().clone() };
        let (status, rows) = run(graph, &memory, how);
        let times = |column: usize| {
            rows.iter().flat_map(move |b| b.column(column).as_primitive::<TimestampMillisecondType>().values().to_vec())
        };
        let mut members: Vec<(Window, Row)> = times(3).zip(times(4)).zip(rows_of(&rows)).collect();
        members.sort_unstable();
        prop_assert_eq!(members, truth.members);
        prop_assert_eq!(status.late_rows, truth.late.len() as u64);
    }

    #[test]
    fn a_join_of_two_windowed_aggregates_pairs_groups_of_one_window(
        left in partitions(), right in partitions(), window in any_window(), delay in 0_i64..30, how in any_run(),
    ) {
        let (left_truth, right_truth) = (truth(&left, &window, delay, false, true), truth(&right, &window, delay, false, true));
        let expected: BTreeMap<(i64, i64), (i64, i64)> = left_truth.windows.iter()
            .filter_map(|((window, key), group)| {
                let other = right_truth.windows.get(&(*window, *key))?;
                Some(((window.1, (*key)?), (group.0, other.0)))
            })
            .collect();
        let memory = Arc::new(Memory::with("l", left).and("r", right));
        let (_, rows) = run(counts_joined(delay, window), &memory, how);
        let mut found = BTreeMap::new();
        for batch in &rows {
            let number = |column: usize, row: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
            let end = batch.column(2).as_primitive::<TimestampMillisecondType>();
            for row in 0..batch.num_rows() {
                let before = found.insert((end.value(row), number(0, row)), (number(1, row), number(3, row)));
                prop_assert_eq!(before, None);
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn rows_of_a_hundred_windows_pass_one_plan() {
    let rows: Vec<Row> = (0..1000).map(|i| Row { time: Some(i), key: Some(i % 3), value: 0 }).collect();
    let memory = Arc::new(Memory::with("l", vec![rows.clone()]).and("r", vec![rows]));
    let (status, rows) = run(counts_joined(0, window(10, 10, 0)), &memory, Run { epoch_events: 7, ..Run::PLAIN });
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 300);
    assert_eq!(status.windows, 100, "a window that several stages close counts once");
}
