//! The laws of keyed state.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{CastExpr, col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use proptest::prelude::*;
use savanna_ownership::KeyGroupSet;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::graph::WindowAggregate;
use savanna_streams_model::plan::PlanBytes;
use savanna_streams_model::state::{DeltaId, KeyedState, MovableState};
use savanna_streams_model::time::{EventTime, WindowSpec};
use savanna_streams_runtime::{AggregateSpec, ClosedWindows, PaneState};

use crate::graphs::{MILLI, functions, input_schema, leaf, window_aggregate, windowed_schema};
use crate::memory::{Row, batch};
use crate::oracle::{Groups, groups};
use crate::windows::any_window;

fn state(window: WindowSpec, keyed: bool) -> PaneState {
    let spec = AggregateSpec::decode(&window_aggregate(window, keyed), &functions()).unwrap();
    PaneState::new(Arc::new(spec), window).unwrap()
}

pub(crate) fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (-40_i64..160, prop::option::weighted(0.9, 0_i64..40), 0_i64..20).prop_map(|(time, key, value)| Row {
        time: Some(time),
        key,
        value,
    });
    prop::collection::vec(row, 1..60)
}

pub(crate) fn key_groups() -> impl Strategy<Value = KeyGroupSet> {
    (2_usize..6, 0_usize..6).prop_map(|(parts, part)| KeyGroupSet::full().split(parts)[part % parts].clone())
}

fn close(state: &mut PaneState, upto: i64, keyed: bool) -> Groups {
    groups_of(state.scan(upto).unwrap(), keyed)
}

pub(crate) fn groups_of(closed: Vec<ClosedWindows>, keyed: bool) -> Groups {
    let schema = windowed_schema(keyed);
    let to_batch = |closed: ClosedWindows| {
        let mut columns = closed.columns;
        for (times, before) in [(&closed.starts, 0), (&closed.ends, 0), (&closed.ends, 1)] {
            let values = TimestampMillisecondArray::from_iter_values(times.iter().map(|time| time / MILLI - before));
            columns.push(Arc::new(values) as ArrayRef);
        }
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    groups(&closed.into_iter().map(to_batch).collect::<Vec<_>>(), keyed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn updating_elsewhere_and_merging_is_updating(
        first in rows(), second in rows(), window in any_window(), keyed: bool, between in -40_i64..160,
    ) {
        let mut whole = state(window, keyed);
        whole.update(&batch(&first)).unwrap();
        whole.update(&batch(&second)).unwrap();
        let (mut a, mut b) = (state(window, keyed), state(window, keyed));
        a.update(&batch(&first)).unwrap();
        b.update(&batch(&second)).unwrap();
        let (a, b) = (a.freeze(Epoch(1)).unwrap(), b.freeze(Epoch(1)).unwrap());
        let mut merged = state(window, keyed);
        let id = |sender| DeltaId { epoch: Epoch(1), stage: StageId(0), sender };
        prop_assert!(merged.merge(&b, id(1)).unwrap());
        prop_assert!(merged.merge(&a, id(0)).unwrap());
        prop_assert!(!merged.merge(&b, id(1)).unwrap(), "once per id");
        merged.complete(Epoch(1));
        prop_assert!(!merged.merge(&a, id(0)).unwrap(), "once per id, also when the epoch is complete");
        for upto in [between * MILLI, i64::MAX] {
            prop_assert_eq!(close(&mut merged, upto, keyed), close(&mut whole, upto, keyed));
        }
        prop_assert_eq!(merged.bytes(), 0, "closed windows leave nothing behind");
    }

    #[test]
    fn a_freeze_takes_everything_since_the_last(rows in rows(), window in any_window()) {
        let mut state = state(window, true);
        state.update(&batch(&rows)).unwrap();
        state.freeze(Epoch(1)).unwrap();
        prop_assert!(state.freeze(Epoch(2)).unwrap().is_empty());
        prop_assert!(state.scan(i64::MAX).unwrap().is_empty());
    }

    #[test]
    fn panes_are_kept_until_a_window_needs_them(
        first in rows(), second in rows(), window in any_window(), keyed: bool, between in -40_i64..160,
    ) {
        let upto = between * MILLI;
        let (mut whole, mut sender, mut receiver) = (state(window, keyed), state(window, keyed), state(window, keyed));
        for (epoch, rows, upto) in [(1, &first, upto), (2, &second, i64::MAX)] {
            let id = DeltaId { epoch: Epoch(epoch), stage: StageId(0), sender: 0 };
            sender.update(&batch(rows)).unwrap();
            let delta = sender.freeze_due(upto).unwrap();
            let first_end = |pane: i64| window.windows_of(EventTime(pane)).next().map(|(_, end)| end);
            prop_assert!(delta.panes.iter().all(|part| first_end(part.pane).is_some_and(|end| end <= upto)));
            receiver.merge(&delta, id).unwrap();
            whole.update(&batch(rows)).unwrap();
            prop_assert_eq!(close(&mut receiver, upto, keyed), close(&mut whole, upto, keyed));
        }
        prop_assert_eq!(sender.bytes(), 0);
    }

    #[test]
    fn a_state_that_is_handed_out_changes_nothing_and_goes_on_elsewhere(
        first in rows(), late in rows(), after in rows(), window in any_window(), keyed: bool, closed in -40_i64..160, at in 1_usize..4,
    ) {
        let upto = closed * MILLI;
        let (mut whole, mut here, mut there) = (state(window, keyed), state(window, keyed), state(window, keyed));
        let mut handed = None;
        for (step, rows) in [&first, &late, &after].into_iter().enumerate() {
            let from = if step == 0 { i64::MIN } else { upto };
            for state in [&mut whole, &mut here].into_iter().chain((step >= at).then_some(&mut there)) {
                state.update_from(&batch(rows), from).unwrap();
            }
            if step == 0 {
                prop_assert_eq!(close(&mut here, upto, keyed), close(&mut whole, upto, keyed));
            }
            // More than once: parts are joined.
            let taken = here.state().unwrap();
            if step + 1 == at {
                there.restore(&taken.0, taken.1).unwrap();
                handed = Some(taken);
            }
        }
        // What was handed out is as it was, whatever came afterwards.
        let (delta, closed_upto) = handed.unwrap();
        let mut again = state(window, keyed);
        again.restore(&delta, closed_upto).unwrap();
        for rows in [&first, &late, &after].into_iter().skip(at) {
            again.update_from(&batch(rows), upto).unwrap();
        }
        let expected = close(&mut whole, i64::MAX, keyed);
        prop_assert_eq!(&close(&mut here, i64::MAX, keyed), &expected);
        prop_assert_eq!(&close(&mut there, i64::MAX, keyed), &expected);
        prop_assert_eq!(&close(&mut again, i64::MAX, keyed), &expected);
    }

    #[test]
    fn state_moves_by_key_group_and_comes_back(
        before in rows(), after in rows(), window in any_window(), moved in key_groups(), upto in -40_i64..160,
    ) {
        let mut whole = state(window, true);
        let mut here = state(window, true);
        for state in [&mut whole, &mut here] {
            state.update(&batch(&before)).unwrap();
            state.update_from(&batch(&after), upto * MILLI).unwrap();
        }
        prop_assert_eq!(close(&mut here, upto * MILLI, true), close(&mut whole, upto * MILLI, true));
        let taken = here.extract(&moved).unwrap();
        prop_assert!(here.extract(&moved).unwrap().is_empty(), "what is taken is gone");
        let mut there = state(window, true);
        prop_assert!(there.scan(upto * MILLI).unwrap().is_empty());
        there.install(&taken).unwrap();
        prop_assert!(there.extract(&moved.complement()).unwrap().is_empty(), "nothing else is taken");
        let mut apart = close(&mut there, i64::MAX, true);
        let here = close(&mut here, i64::MAX, true);
        prop_assert!(here.keys().all(|group| !apart.contains_key(group)));
        apart.extend(here);
        prop_assert_eq!(apart, close(&mut whole, i64::MAX, true));
    }
}

/// `SELECT k, CAST(v AS VARCHAR), COUNT(*) .. GROUP BY k, CAST(v AS VARCHAR)`
fn two_keys(window: WindowSpec) -> PaneState {
    let schema = input_schema();
    let text = CastExpr::new(col("v", &schema).unwrap(), DataType::Utf8View, None);
    let keys = vec![
        (col("k", &schema).unwrap(), "k".to_owned()),
        (Arc::new(text) as Arc<dyn PhysicalExpr>, "text".to_owned()),
    ];
    let count = AggregateExprBuilder::new(count_udaf(), vec![lit(1_i64)]);
    let count = count.schema(Arc::clone(&schema)).alias("n").build().unwrap();
    let exec = AggregateExec::try_new(
        AggregateMode::Single,
        PhysicalGroupBy::new_single(keys),
        vec![Arc::new(count)],
        vec![None],
        leaf(0, &schema),
        Arc::clone(&schema),
    );
    let exec: Arc<dyn ExecutionPlan> = Arc::new(exec.unwrap());
    let aggregate =
        WindowAggregate { time_column: 0, windows: window.into(), aggregate: PlanBytes::encode(&exec).unwrap() };
    PaneState::new(Arc::new(AggregateSpec::decode(&aggregate, &functions()).unwrap()), window).unwrap()
}

#[test]
fn keys_of_several_columns_survive_many_epochs() {
    let window = WindowSpec::hop(20 * MILLI, 40 * MILLI);
    let (mut sender, mut receiver) = (two_keys(window), two_keys(window));
    let mut counted = 0;
    for epoch in 1..=50_i64 {
        let rows: Vec<Row> = (0..200_i64)
            .map(|i| Row { time: Some(epoch * 10 + i % 10), key: Some(i % 7), value: (i + epoch) % 13 })
            .collect();
        sender.update(&batch(&rows)).unwrap();
        let epoch = Epoch(epoch as u64);
        let delta = sender.freeze(epoch).unwrap();
        receiver.merge(&delta, DeltaId { epoch, stage: StageId(0), sender: 0 }).unwrap();
        receiver.complete(epoch);
        for closed in receiver.scan(epoch.0 as i64 * 10 * MILLI).unwrap() {
            counted += sum(&closed);
        }
    }
    counted += receiver.scan(i64::MAX).unwrap().iter().map(sum).sum::<i64>();
    assert_eq!(counted, 50 * 200 * 2, "each row counts in two windows");
}

fn sum(closed: &ClosedWindows) -> i64 {
    let counts = closed.columns[2].as_primitive::<Int64Type>();
    assert_eq!(counts.len(), closed.starts.len());
    counts.values().iter().sum()
}

#[test]
fn snapshots_of_keys_that_come_again_and_again_take_no_more_than_a_few_times_their_state() {
    let window = WindowSpec::hop(1_000_000 * MILLI, 1_000_000 * MILLI);
    let (mut plain, mut with_snapshots) = (state(window, true), state(window, true));
    let rows: Vec<Row> = (0..1_000).map(|key| Row { time: Some(5), key: Some(key), value: 1 }).collect();
    for _ in 0..20 {
        for state in [&mut plain, &mut with_snapshots] {
            state.update(&batch(&rows)).unwrap();
            // It is merged when a window is asked for.
            assert!(state.scan(0).unwrap().is_empty());
        }
        let (whole, kept) = (plain.bytes(), with_snapshots.bytes());
        assert!(kept * 2 <= whole * 5, "{kept} bytes with snapshots, {whole} without");
        let (delta, _) = with_snapshots.state().unwrap();
        assert!(delta.panes.iter().map(|pane| pane.rows.num_rows()).sum::<usize>() <= 2_000);
    }
    // Of some keys only, so that parts stay apart.
    for part in 0..40_i64 {
        let some: Vec<Row> = rows.iter().filter(|row| row.key.is_some_and(|key| key % 40 == part)).copied().collect();
        with_snapshots.update(&batch(&some)).unwrap();
        let (delta, _) = with_snapshots.state().unwrap();
        assert!(delta.panes.iter().map(|pane| pane.rows.num_rows()).sum::<usize>() <= 2_000);
    }
    let sums = |closed: Vec<ClosedWindows>| groups_of(closed, true);
    for state in [&mut plain, &mut with_snapshots] {
        state.scan(i64::MAX).map(sums).unwrap();
    }
}

#[test]
fn a_snapshot_joins_few_rows_and_the_rest_is_joined_in_the_epochs_behind_it() {
    const KEYS: i64 = 1_000;
    let window = WindowSpec::hop(1_000_000 * MILLI, 1_000_000 * MILLI);
    let rows: Vec<Row> = (0..KEYS).map(|key| Row { time: Some(5), key: Some(key), value: 1 }).collect();
    let few = [Row { time: Some(5), key: Some(7), value: 1 }];
    let mut state = state(window, true).joining(100);
    let parts = |state: &mut PaneState| {
        state.state().unwrap().0.panes.iter().map(|pane| pane.rows.num_rows()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        state.update(&batch(&rows)).unwrap();
        assert!(state.scan(0).unwrap().is_empty());
        parts(&mut state);
    }
    // 2,000 rows are to be joined: 100 in each snapshot and each epoch, and twice what comes.
    let (mut epochs, mut handed_out) = (0, parts(&mut state));
    while handed_out[1] == KEYS as usize {
        assert_eq!(handed_out[0], KEYS as usize);
        state.update(&batch(&few)).unwrap();
        state.scan(0).unwrap();
        handed_out = parts(&mut state);
        epochs += 1;
        assert!(epochs < 20, "it never ends");
    }
    assert!(epochs > 5 && handed_out[0] == KEYS as usize, "{epochs} epochs: {handed_out:?}");
    let closed = groups_of(state.scan(i64::MAX).unwrap(), true);
    let rows: i64 = closed.values().map(|(count, ..)| count).sum();
    assert_eq!((closed.len() as i64, rows), (KEYS, 2 * KEYS + epochs));
}
