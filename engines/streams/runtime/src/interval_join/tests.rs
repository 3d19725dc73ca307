use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use proptest::prelude::*;
use savanna_ownership::KeyGroupSet;
use savanna_streams_api::StreamError;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::join::{IntervalJoin as Plan, JoinCondition, JoinKind, JoinSide};
use savanna_streams_model::plan::{Leaf, PlanBytes};
use savanna_streams_model::state::MovableState;
use savanna_streams_model::time::EventTime;

use super::{IntervalJoin, Watermarks};
use crate::key_cut::KeyCut;

const MILLI: i64 = 1_000;
const KINDS: [JoinKind; 6] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

/// Event time in milliseconds, key, value.
type Row = (Option<i64>, Option<i64>, i64);
/// What comes out: a left row, a right row.
type Pair = (Option<Row>, Option<Row>);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let times: TimestampMillisecondArray = rows.iter().map(|(time, ..)| *time).collect();
    let keys: Int64Array = rows.iter().map(|(_, key, _)| *key).collect();
    let values: Int64Array = rows.iter().map(|(.., value)| Some(*value)).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(times), Arc::new(keys), Arc::new(values)]).unwrap()
}

/// `l.v < r.v`
fn less() -> JoinCondition {
    let side = |name| Field::new(name, DataType::Int64, true);
    let leaf = Arc::new(Leaf::new(0, Arc::new(Schema::new(vec![side("l"), side("r")]))));
    let (l, r) = (Arc::new(Column::new("l", 0)), Arc::new(Column::new("r", 1)));
    let expr = Arc::new(BinaryExpr::new(l, Operator::Lt, r));
    let holds = ProjectionExec::try_new([ProjectionExpr { expr, alias: "holds".into() }], leaf).unwrap();
    let holds: Arc<dyn ExecutionPlan> = Arc::new(holds);
    JoinCondition { left: vec![2], right: vec![2], holds: PlanBytes::encode(&holds).unwrap() }
}

/// Bounds in milliseconds.
fn plan(kind: JoinKind, earliest: i64, latest: i64) -> Plan {
    let side = |stage| JoinSide { stages: vec![StageId(stage)], schema: schema(), keys: vec![1], time: 0 };
    let (earliest, latest) = (earliest * MILLI, latest * MILLI);
    Plan { kind, left: side(0), right: side(1), earliest, latest, condition: None }
}

fn join(plan: &Plan) -> IntervalJoin {
    IntervalJoin::decode(plan, &Arc::new(TaskContext::default())).unwrap()
}

fn until(left: i64, right: i64) -> Watermarks {
    Watermarks { left: EventTime(left * MILLI), right: EventTime(right * MILLI) }
}

const END: Watermarks = Watermarks { left: EventTime::MAX, right: EventTime::MAX };

fn pairs(kind: JoinKind, batches: &[RecordBatch]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for batch in batches {
        let row_at = |first: usize, row: usize| -> Option<Row> {
            let values = batch.column(first + 2).as_primitive::<Int64Type>();
            let times = batch.column(first).as_primitive::<TimestampMillisecondType>();
            let keys = batch.column(first + 1).as_primitive::<Int64Type>();
            let at = |array: &dyn Array, value: i64| array.is_valid(row).then_some(value);
            values.is_valid(row).then(|| (at(times, times.value(row)), at(keys, keys.value(row)), values.value(row)))
        };
        let right = |row| if kind.left_only() { None } else { row_at(3, row) };
        pairs.extend((0..batch.num_rows()).map(|row| (row_at(0, row), right(row))));
    }
    pairs.sort_unstable();
    pairs
}

/// The join by its definition: every row against every row.
fn truth(plan: &Plan, left: &[Row], right: &[Row]) -> Vec<Pair> {
    let matches = |l: &Row, r: &Row| {
        let near = l.0.zip(r.0).is_some_and(|(l, r)| (plan.earliest..=plan.latest).contains(&((l - r) * MILLI)));
        let equal = plan.left.keys.is_empty() || l.1.is_some() && l.1 == r.1;
        near && equal && (plan.condition.is_none() || l.2 < r.2)
    };
    let mut pairs: Vec<Pair> = Vec::new();
    for l in left {
        let partners: Vec<&Row> = right.iter().filter(|r| matches(l, r)).collect();
        match plan.kind {
            JoinKind::Semi => pairs.extend((!partners.is_empty()).then_some((Some(*l), None))),
            JoinKind::Anti => {}
            _ => pairs.extend(partners.iter().map(|r| (Some(*l), Some(**r)))),
        }
        if partners.is_empty() && plan.kind.keeps_left() {
            pairs.push((Some(*l), None));
        }
    }
    if plan.kind.keeps_right() {
        pairs.extend(right.iter().filter(|r| !left.iter().any(|l| matches(l, r))).map(|r| (None, Some(*r))));
    }
    pairs.sort_unstable();
    pairs
}

#[test]
fn each_kind_gives_its_rows() {
    let left = [(Some(0), Some(1), 1), (Some(50), Some(1), 2), (Some(5), None, 3), (None, Some(1), 4)];
    let right = [(Some(10), Some(1), 5), (Some(11), Some(1), 6), (Some(12), Some(2), 7)];
    let found = |kind| {
        let mut join = join(&plan(kind, -20, 0));
        let mut rows = join.apply(&[batch(&left)], &[batch(&right)], until(60, 60)).unwrap();
        rows.extend(join.apply(&[], &[], END).unwrap());
        pairs(kind, &rows)
    };
    let pair = |l: usize, r: usize| (Some(left[l]), Some(right[r]));
    let (lone_left, lone_right) = (|l: usize| (Some(left[l]), None), |r: usize| (None, Some(right[r])));
    assert_eq!(found(JoinKind::Inner), [pair(0, 0), pair(0, 1)]);
    assert_eq!(found(JoinKind::Left), [lone_left(3), pair(0, 0), pair(0, 1), lone_left(2), lone_left(1)]);
    assert_eq!(found(JoinKind::Right), [lone_right(2), pair(0, 0), pair(0, 1)]);
    assert_eq!(
        found(JoinKind::Full),
        [lone_right(2), lone_left(3), pair(0, 0), pair(0, 1), lone_left(2), lone_left(1)]
    );
    assert_eq!(found(JoinKind::Semi), [lone_left(0)]);
    assert_eq!(found(JoinKind::Anti), [lone_left(3), lone_left(2), lone_left(1)]);
}

#[test]
fn a_row_without_a_partner_comes_out_when_none_can_come_any_more() {
    let mut join = join(&plan(JoinKind::Left, -20, 0));
    let lone = (Some(100), Some(1), 1);
    assert!(join.apply(&[batch(&[lone])], &[], until(100, 120)).unwrap().is_empty(), "a partner may be at 120");
    assert_eq!(join.watermark(), EventTime(100 * MILLI));
    let rows = join.apply(&[], &[], until(100, 121)).unwrap();
    assert_eq!(pairs(JoinKind::Left, &rows), [(Some(lone), None)]);
    assert_eq!(join.watermark(), EventTime(100 * MILLI));
}

#[test]
fn the_watermark_waits_for_what_is_kept() {
    let mut join = join(&plan(JoinKind::Inner, -20, 30));
    join.apply(&[], &[], until(1000, 2000)).unwrap();
    // A right row as old as 1000 - 30 may still be paired with a left row at 1000.
    assert_eq!(join.watermark(), EventTime(970 * MILLI));
    join.apply(&[], &[], END).unwrap();
    assert_eq!(join.watermark(), EventTime::MAX);
}

#[test]
fn state_is_cleaned_by_watermark() {
    let mut join = join(&plan(JoinKind::Full, -20, 20));
    let empty = join.bytes();
    let mut most = 0;
    for epoch in 0..2_000_i64 {
        let rows: Vec<Row> = (0..50).map(|i| (Some(epoch * 10 + i % 10), Some(epoch * 50 + i), i)).collect();
        join.apply(&[batch(&rows)], &[batch(&rows)], until(epoch * 10, epoch * 10)).unwrap();
        if epoch == 400 {
            most = join.bytes();
        }
    }
    assert!(join.bytes() < 2 * most, "five times the rows need no more memory: {most}, then {}", join.bytes());
    join.apply(&[], &[], END).unwrap();
    let rows = |join: &IntervalJoin| join.sides.iter().map(super::Side::live).sum::<usize>();
    assert_eq!(rows(&join), 0);
    assert!(join.bytes() < most, "{empty} at first, {most} at most, {} in the end", join.bytes());
}

#[test]
fn keys_are_numbered_when_comparing_them_would_cost_more() {
    let rows = |count: i64, epoch: i64| -> Vec<Row> { (0..count).map(|i| (Some(epoch), Some(i), i)).collect() };
    let mut join = join(&plan(JoinKind::Inner, -2, 2));
    for epoch in 0..20 {
        let out = join.apply(&[batch(&rows(100, epoch))], &[batch(&rows(1, epoch))], until(epoch, epoch)).unwrap();
        assert_eq!(out.iter().map(RecordBatch::num_rows).sum::<usize>(), 1 + 2 * 2.min(epoch as usize));
        assert!(join.effort.is_some(), "one row is looked for in epoch {epoch}");
    }
    assert_eq!(join.keys.len(), 0);
    // Nothing expires, so that there is no compaction, with which comparing would begin anew.
    let out = join.apply(&[batch(&rows(100, 20))], &[batch(&rows(100, 20))], until(19, 19)).unwrap();
    assert_eq!(out.iter().map(RecordBatch::num_rows).sum::<usize>(), 300 + 2);
    assert!(join.effort.is_none());
    assert_eq!(join.keys.len(), 100);
}

#[test]
fn rows_do_not_hold_the_batches_that_they_came_in() {
    let text = |i: i32| format!("a text that is too long to be stored in the view itself, number {i}");
    let strings = StringViewArray::from_iter_values((0..20_000).map(text));
    let times = TimestampMillisecondArray::from_iter_values(0..20_000);
    let fields = vec![Field::new("t", times.data_type().clone(), true), Field::new("s", DataType::Utf8View, true)];
    let schema = Arc::new(Schema::new(fields));
    let large = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(times), Arc::new(strings)]).unwrap();
    let side = JoinSide { stages: vec![StageId(0)], schema, keys: vec![1], time: 0 };
    let mut join = join(&Plan { left: side.clone(), right: side, ..plan(JoinKind::Inner, 0, 0) });
    let before = join.bytes();
    let rows = join.apply(&[large.slice(10_000, 3)], &[large.slice(10_001, 1)], until(0, 0)).unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    assert!(join.bytes() - before < 20_000, "{} bytes for four rows", join.bytes() - before);
}

#[test]
fn state_that_does_not_fit_is_refused() {
    let mut here = join(&plan(JoinKind::Inner, -20, 0));
    let mut state = here.extract(&KeyGroupSet::full()).unwrap();
    assert!(state.is_empty());
    state.sides[0].push(batch(&[(Some(1), Some(1), 1)]));
    let error = here.install(&state).unwrap_err();
    assert!(matches!(&error, StreamError::Internal(what) if what.contains("do not fit")), "{error:?}");
}

fn row() -> impl Strategy<Value = Row> {
    (prop::option::weighted(0.95, -15_i64..15), prop::option::weighted(0.9, 0_i64..4), 0_i64..5)
}

/// Rows of both sides with the epoch each comes in. Event time advances with the epochs, in disorder.
fn rows() -> impl Strategy<Value = Vec<(bool, usize, Row)>> {
    prop::collection::vec((any::<bool>(), 0..12_usize, row()), 0..120).prop_map(|rows| {
        let place = |(left, epoch, row): (bool, usize, Row)| {
            (left, epoch, (row.0.map(|time| time + epoch as i64 * 10), row.1, row.2))
        };
        rows.into_iter().map(place).collect()
    })
}

/// The highest watermark behind an epoch that the rows to come allow, or less.
fn watermark(rows: &[(bool, usize, Row)], left: bool, epoch: usize, slack: i64) -> EventTime {
    let to_come = rows.iter().filter(|(side, e, _)| *side == left && *e > epoch);
    match to_come.filter_map(|(.., row)| row.0).min() {
        Some(time) => EventTime((time - slack) * MILLI),
        None if epoch < 11 && slack > 0 => EventTime(epoch as i64 * 10 * MILLI),
        None => EventTime::MAX,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_join_gives_what_every_row_against_every_row_gives(
        rows in rows(), kind in prop::sample::select(&KINDS), earliest in -25_i64..25, width in 0_i64..30,
        keyed: bool, conditional: bool, slack in 0_i64..3,
    ) {
        let mut plan = plan(kind, earliest, earliest + width);
        if !keyed {
            plan.left.keys.clear();
            plan.right.keys.clear();
        }
        plan.condition = conditional.then(less);
        let of = |left: bool, epoch: Option<usize>| -> Vec<Row> {
            let rows = rows.iter().filter(|(side, e, _)| *side == left && epoch.is_none_or(|epoch| epoch == *e));
            rows.map(|(.., row)| *row).collect()
        };
        let mut join = join(&plan);
        let mut found = Vec::new();
        for epoch in 0..12 {
            let before = join.watermark();
            let (left, right) = (of(true, Some(epoch)), of(false, Some(epoch)));
            let cut = |rows: &[Row]| -> Vec<RecordBatch> { rows.chunks(3).map(batch).collect() };
            let watermarks = Watermarks {
                left: watermark(&rows, true, epoch, slack),
                right: watermark(&rows, false, epoch, slack),
            };
            let out = join.apply(&cut(&left), &cut(&right), watermarks).unwrap();
            for (left, right) in pairs(kind, &out) {
                let times = [left, right].into_iter().flatten().filter_map(|row| row.0);
                for time in times {
                    prop_assert!(time * MILLI >= before.0, "a row at {} came behind the watermark {:?}", time, before);
                }
            }
            found.extend(out);
        }
        found.extend(join.apply(&[], &[], END).unwrap());
        prop_assert_eq!(pairs(kind, &found), truth(&plan, &of(true, None), &of(false, None)));
        prop_assert_eq!(join.sides.iter().map(super::Side::live).sum::<usize>(), 0);
    }

    #[test]
    fn a_join_gives_the_same_when_key_groups_move_between_two_places(
        rows in rows(), kind in prop::sample::select(&KINDS), earliest in -25_i64..25, width in 0_i64..30,
        moves in 0_usize..12, back in 0_usize..12, parts in 2_usize..5,
    ) {
        let plan = plan(kind, earliest, earliest + width);
        let moved = KeyGroupSet::full().split(parts)[0].clone();
        let cut = KeyCut::new(vec![1], &schema()).unwrap();
        let of = |left: bool, epoch: Option<usize>| -> Vec<Row> {
            let rows = rows.iter().filter(|(side, e, _)| *side == left && epoch.is_none_or(|epoch| epoch == *e));
            rows.map(|(.., row)| *row).collect()
        };
        let (mut here, mut there) = (join(&plan), join(&plan));
        let mut found = Vec::new();
        for epoch in 0..12 {
            if epoch == moves {
                let state = here.extract(&moved).unwrap();
                prop_assert!(here.extract(&moved).unwrap().is_empty(), "what is taken is gone");
                there.install(&state).unwrap();
                prop_assert!(there.extract(&moved.complement()).unwrap().is_empty(), "nothing else is taken");
            }
            if epoch == back && back > moves {
                here.install(&there.extract(&KeyGroupSet::full()).unwrap()).unwrap();
            }
            let away = epoch >= moves && !(back > moves && epoch >= back);
            let watermarks = Watermarks { left: watermark(&rows, true, epoch, 0), right: watermark(&rows, false, epoch, 0) };
            let [left, right] = [true, false].map(|left| cut.split(&batch(&of(left, Some(epoch))), &moved).unwrap());
            let side = |part: Option<RecordBatch>, other: Option<RecordBatch>| -> [Vec<RecordBatch>; 2] {
                let (part, other) = (part.into_iter().collect::<Vec<_>>(), other.into_iter().collect::<Vec<_>>());
                if away { [other, part] } else { [[other, part].concat(), Vec::new()] }
            };
            let ([left_here, left_there], [right_here, right_there]) = (side(left.0, left.1), side(right.0, right.1));
            found.extend(here.apply(&left_here, &right_here, watermarks).unwrap());
            found.extend(there.apply(&left_there, &right_there, watermarks).unwrap());
        }
        found.extend(here.apply(&[], &[], END).unwrap());
        found.extend(there.apply(&[], &[], END).unwrap());
        prop_assert_eq!(pairs(kind, &found), truth(&plan, &of(true, None), &of(false, None)));
    }
}
