//! The whole state of an operator and what has changed since, in files behind one another, come to what it handed out; and one that goes on
//! from them gives what one gives that was never disturbed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::util::display::array_value_to_string;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::join::{IntervalJoin as JoinPlan, JoinKind, JoinSide};
use savanna_streams_model::state::{Delta, KeyedState, MovableState, PaneDelta};
use savanna_streams_model::time::{EventTime, WindowSpec, Windows};
use savanna_streams_runtime::snapshot::State;
use savanna_streams_runtime::{AggregateSpec, ClosedWindows, IntervalJoin, PaneState, SessionState, Watermarks};

use crate::followed::{Followed, Operator, Seen};
use crate::graphs::{MILLI, cumulate, functions, input_schema, window, window_aggregate};
use crate::memory::{Row, batch};

/// Rows, some of them late, and the watermarks before and behind them, in milliseconds.
struct Step {
    before: Option<i64>,
    rows: Vec<Row>,
    watermark: i64,
}

/// Event time goes on by at most so much in a step; rows lie around the watermark.
fn steps(rng: &mut ChaCha8Rng, count: usize, pace: i64, around: std::ops::Range<i64>, keys: i64) -> Vec<Step> {
    let mut watermark = 0;
    let mut step = |number: usize| {
        let rows = if number == 0 { 300 } else { rng.random_range(0..12) };
        let mut row = |_| Row {
            time: Some(watermark + rng.random_range(around.clone())),
            key: rng.random_ratio(9, 10).then(|| rng.random_range(0..keys)),
            value: rng.random_range(0..20),
        };
        let rows = (0..rows).map(&mut row).collect();
        let before = (number > 0).then_some(watermark);
        watermark += rng.random_range(0..=pace);
        Step { before, rows, watermark }
    };
    (0..count).map(&mut step).collect()
}

fn lines(columns: &[ArrayRef], rows: usize) -> Vec<String> {
    let line = |row: usize| {
        let values = columns.iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join(" ")
    };
    (0..rows).map(line).collect()
}

fn results(closed: Vec<ClosedWindows>) -> Vec<String> {
    let of = |closed: ClosedWindows| {
        let rows = lines(&closed.columns, closed.ends.len());
        let spans = closed.starts.into_iter().zip(closed.ends);
        rows.into_iter().zip(spans).map(|(row, (start, end))| format!("{start} {end}: {row}")).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = closed.into_iter().flat_map(of).collect();
    all.sort_unstable();
    all
}

fn spec(windows: impl Into<Windows>) -> Arc<AggregateSpec> {
    Arc::new(AggregateSpec::decode(&window_aggregate(windows, true), &functions()).unwrap())
}

fn panes(window: WindowSpec) -> PaneState {
    PaneState::new(spec(window), window).unwrap()
}

fn state_of_panes(panes: &mut PaneState) -> State {
    let (pieces, closed) = panes.pieces().unwrap();
    let mut state = State { marks: [("closed".to_owned(), closed)].into(), ..State::default() };
    pieces.iter().for_each(|(at, piece)| state.put_piece("panes", *at, piece));
    state
}

fn restore_panes(panes: &mut PaneState, state: &State) {
    let pane = |table: &savanna_streams_runtime::snapshot::Table| PaneDelta {
        pane: table.at[0],
        first_window_end: table.at[1],
        rows: table.rows.clone(),
    };
    let delta = Delta { panes: state.tables.iter().map(pane).collect(), ..Delta::default() };
    panes.restore(&delta, state.marks["closed"]).unwrap();
}

/// Each test has seen many of both kinds.
fn assert_seen(seen: Seen) {
    assert!(seen.changes > 400 && seen.wholes > 100 && seen.crashes > 100, "{seen:?}");
}

#[test]
fn panes_and_what_has_changed_of_them_come_to_the_whole() {
    panes_survive(|panes, _| panes);
}

#[test]
fn panes_whose_parts_are_joined_a_few_rows_at_a_time_come_to_the_whole() {
    // Rows come, windows close, and snapshots are made and given up between any two of them.
    panes_survive(|panes, seed| panes.joining(1 + seed as usize % 40));
}

fn panes_survive(as_is: impl Fn(PaneState, u64) -> PaneState) {
    let mut seen = Seen::default();
    for seed in 0..120 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let size = rng.random_range(1..60);
        let window = match seed % 4 {
            0 => window(size, size, 3),
            1 => window(size, rng.random_range(1..60), -2),
            // Of many panes.
            2 => window(400, 10, 0),
            _ => cumulate(size, size * 5, 1),
        };
        let steps = steps(&mut rng, 40, 15, -40..120, 400);
        let apply = |panes: &mut PaneState, step: &Step| {
            // Rows are late for windows that are closed.
            panes.update_from(&batch(&step.rows), step.before.map_or(i64::MIN, |before| before * MILLI)).unwrap();
            results(panes.scan(step.watermark * MILLI).unwrap())
        };
        let operator = Operator {
            new: &|| as_is(panes(window), seed),
            apply: &apply,
            state: &state_of_panes,
            restore: &restore_panes,
        };
        seen += operator.survives(seed, &steps);
    }
    assert_seen(seen);
}

fn sessions(gap: i64) -> SessionState {
    SessionState::new(spec(Windows::Session { gap }), gap).unwrap()
}

fn state_of_sessions(sessions: &mut SessionState) -> State {
    let mut state = State::default();
    for (piece, over) in sessions.pieces().unwrap() {
        state.put_marked("fragments", [0; 2], &piece, ("over", over)).unwrap();
    }
    state
}

fn restore_sessions(sessions: &mut SessionState, state: &State) {
    let fragments = state.tables.iter().map(|table| sessions.open_rows(&table.rows).unwrap()).collect();
    sessions.install(&Delta { fragments, ..Delta::default() }).unwrap();
}

#[test]
fn sessions_and_what_has_changed_of_them_come_to_the_whole() {
    let mut seen = Seen::default();
    for seed in 0..120 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let gap = rng.random_range(5..80) * MILLI;
        // Some rows lie near sessions that are over: those do not come back.
        let late = rng.random_range(0..30);
        let steps = steps(&mut rng, 40, 8, -late..150, 60);
        let apply = |sessions: &mut SessionState, step: &Step| {
            sessions.update(&batch(&step.rows)).unwrap();
            results(sessions.scan(step.watermark * MILLI).unwrap())
        };
        let operator =
            Operator { new: &|| sessions(gap), apply: &apply, state: &state_of_sessions, restore: &restore_sessions };
        seen += operator.survives(seed, &steps);
    }
    assert_seen(seen);
}

const KINDS: [JoinKind; 6] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

fn join(kind: JoinKind, earliest: i64, latest: i64) -> IntervalJoin {
    let side = |stage| JoinSide { stages: vec![StageId(stage)], schema: input_schema(), keys: vec![1], time: 0 };
    let (earliest, latest) = (earliest * MILLI, latest * MILLI);
    let plan = JoinPlan { kind, left: side(0), right: side(1), earliest, latest, condition: None };
    IntervalJoin::decode(&plan, &functions()).unwrap()
}

/// What comes out of a join in a step.
fn joined(join: &mut IntervalJoin, (left, right): &(Step, Step)) -> Vec<String> {
    let until = |step: &Step| EventTime(step.watermark * MILLI);
    let watermarks = Watermarks { left: until(left), right: until(right) };
    sorted(&join.apply(&[batch(&left.rows)], &[batch(&right.rows)], watermarks).unwrap())
}

pub(crate) fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let mut all: Vec<String> = batches.iter().flat_map(|rows| lines(rows.columns(), rows.num_rows())).collect();
    all.sort_unstable();
    all
}

#[test]
fn joins_and_what_has_changed_of_them_come_to_the_whole() {
    let mut seen = Seen::default();
    for seed in 0..240 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let kind = KINDS[seed as usize % KINDS.len()];
        let earliest = rng.random_range(-60..20);
        let latest = earliest + rng.random_range(0..90);
        // Rows are not older than the watermark: others are late, and do not come here.
        let [left, right] = [(); 2].map(|()| steps(&mut rng, 40, 10, 0..150, 40));
        let steps: Vec<(Step, Step)> = left.into_iter().zip(right).collect();
        let operator = Operator {
            new: &|| join(kind, earliest, latest),
            apply: &joined,
            state: &|join: &mut IntervalJoin| join.state().unwrap(),
            restore: &|join: &mut IntervalJoin, state: &State| join.restore(state).unwrap(),
        };
        seen += operator.survives(seed, &steps);
    }
    assert_seen(seen);
}

#[test]
fn joins_that_give_up_the_numbers_of_expired_rows_come_to_the_whole() {
    // As many as are worth it, of ever new keys.
    let step = |rng: &mut ChaCha8Rng, number: i64| {
        let mut row = |_| Row {
            time: Some(number * 100 + rng.random_range(0..100)),
            key: Some(rng.random_range(0..20_000)),
            value: rng.random_range(0..20),
        };
        let rows = (0..3_000).map(&mut row).collect();
        Step { before: None, rows, watermark: (number + 1) * 100 }
    };
    let (mut crashes, compactions) = (0, Cell::new(0));
    for (seed, kind) in (0..).zip(KINDS) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let steps: Vec<(Step, Step)> = (0..12).map(|number| (step(&mut rng, number), step(&mut rng, number))).collect();
        let before = RefCell::new(BTreeSet::new());
        let apply = |join: &mut IntervalJoin, (left, right): &(Step, Step)| {
            let until = EventTime(left.watermark * MILLI);
            let out = join.apply(&[batch(&left.rows)], &[batch(&right.rows)], Watermarks { left: until, right: until });
            // Some of the rows of each step are needed behind the next one: unless all were copied, their piece is there.
            let now: BTreeSet<_> = join.state().unwrap().tables.iter().filter_map(|table| table.piece).collect();
            let is_other = before.borrow().is_disjoint(&now) && !before.borrow().is_empty();
            compactions.set(compactions.get() + usize::from(is_other));
            *before.borrow_mut() = now;
            sorted(&out.unwrap())
        };
        let new = || {
            before.borrow_mut().clear();
            join(kind, -150, 150)
        };
        let state = |join: &mut IntervalJoin| join.state().unwrap();
        let restore = |join: &mut IntervalJoin, state: &State| join.restore(state).unwrap();
        crashes +=
            Operator { new: &new, apply: &apply, state: &state, restore: &restore }.survives(seed, &steps).crashes;
    }
    assert!(crashes > 3 && compactions.get() > 20, "{crashes} crashes, {} compactions", compactions.get());
}

/// States as they were before there were pieces: each is written whole, and is what functions still send.
#[test]
fn states_without_pieces_are_restored() {
    let mut seen = Seen::default();
    for seed in 0..40 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let gap = rng.random_range(5..80) * MILLI;
        let steps_of_sessions = steps(&mut rng, 40, 8, -10..150, 60);
        let apply = |sessions: &mut SessionState, step: &Step| {
            sessions.update(&batch(&step.rows)).unwrap();
            results(sessions.scan(step.watermark * MILLI).unwrap())
        };
        let state = |sessions: &mut SessionState| {
            let mut state = State::default();
            sessions.joined().unwrap().into_iter().for_each(|rows| state.put("fragments", [0; 2], rows));
            state
        };
        let operator = Operator { new: &|| sessions(gap), apply: &apply, state: &state, restore: &restore_sessions };
        seen += operator.survives(seed, &steps_of_sessions);
        let kind = KINDS[seed as usize % KINDS.len()];
        let [left, right] = [(); 2].map(|()| steps(&mut rng, 40, 10, 0..150, 40));
        let steps_of_join: Vec<(Step, Step)> = left.into_iter().zip(right).collect();
        let operator = Operator {
            new: &|| join(kind, -40, 30),
            apply: &joined,
            state: &|join: &mut IntervalJoin| join.state_to_send().unwrap(),
            restore: &|join: &mut IntervalJoin, state: &State| join.restore(state).unwrap(),
        };
        seen += operator.survives(seed, &steps_of_join);
    }
    assert!(seen.changes == 0 && seen.wholes > 400 && seen.crashes > 100, "{seen:?}");
}

/// Rows of so many keys at a time, in milliseconds.
fn rows_of_keys(keys: std::ops::Range<i64>, time: i64) -> Vec<Row> {
    keys.map(|key| Row { time: Some(time), key: Some(key), value: key % 20 }).collect()
}

const MANY: i64 = 20_000;
const FEW: i64 = 10;

/// Snapshots of many keys, of which few change in between. Tells how much was written at first, and what of the next ones.
fn written<S>(
    member: &mut S,
    mut change: impl FnMut(&mut S, i64, std::ops::Range<i64>),
    state: impl Fn(&mut S) -> State,
) -> (usize, Vec<(bool, usize)>) {
    let mut followed = Followed::default();
    change(member, 0, 0..MANY);
    followed.snapshot(&state(member), true);
    for round in 1..=40 {
        change(member, round, round * 100..round * 100 + FEW);
        // Some are given up: what was to be in them is in the next one.
        followed.snapshot(&state(member), round % 3 != 0);
    }
    let first = followed.written.remove(0);
    assert!(first.0, "the first one");
    (first.1, followed.written)
}

#[test]
fn a_state_of_many_keys_of_which_few_change_writes_little() {
    let all = window(1_000_000, 1_000_000, 0);
    let of_panes = written(
        &mut panes(all),
        |panes, round, keys| panes.update(&batch(&rows_of_keys(keys, round))).unwrap(),
        state_of_panes,
    );
    let of_sessions = written(
        &mut sessions(1_000_000 * MILLI),
        |sessions, round, keys| sessions.update(&batch(&rows_of_keys(keys, round))).unwrap(),
        state_of_sessions,
    );
    // Rows of the right side come for few of the left.
    let of_joins = written(
        &mut join(JoinKind::Left, -1_000, 1_000),
        |join, round, keys| {
            let rows = [batch(&rows_of_keys(keys, 0))];
            let (left, right): (&[RecordBatch], &[RecordBatch]) = if round == 0 { (&rows, &[]) } else { (&[], &rows) };
            join.apply(left, right, Watermarks { left: EventTime(0), right: EventTime(0) }).unwrap();
        },
        |join| join.state().unwrap(),
    );
    for (what, (first, next)) in [("panes", of_panes), ("sessions", of_sessions), ("joins", of_joins)] {
        assert!(next.iter().all(|(is_whole, bytes)| !is_whole && bytes * 20 < first), "{what}: {first}, then {next:?}");
    }
}
