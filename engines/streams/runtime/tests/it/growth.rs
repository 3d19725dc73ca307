//! Source partitions that come to be while a query runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use savanna_streams_api::handle::QueryState;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::graph::Waiting;
use savanna_streams_runtime::driver::{EpochRecord, Joined};
use savanna_streams_runtime::{Mode, Query, RuntimeOptions};

use crate::going_on::{FOREVER, Held, Judge, Log, options, start_with, until};
use crate::graphs::{MILLI, window};
use crate::memory::{Memory, Row, Then};
use crate::oracle::{Groups, groups, truth};

const ROWS: i64 = 600;
/// After so many microseconds without rows a partition rests.
const IDLE_AFTER: i64 = 2 * MILLI;

fn rows(from: i64) -> Vec<Row> {
    (from..from + ROWS).map(|i| Row { time: Some(i), key: Some(i % 5), value: i % 13 }).collect()
}

/// Two partitions, and two that come later, whose rows are newer.
fn partitions() -> Vec<Vec<Row>> {
    vec![rows(0), rows(0), rows(ROWS), rows(2 * ROWS)]
}

struct World {
    memory: Arc<Memory>,
    visible: Arc<AtomicUsize>,
    sink: Held,
    log: Arc<Log>,
}

impl World {
    fn new(partitions: Vec<Vec<Row>>) -> Self {
        let visible = Arc::new(AtomicUsize::new(2));
        let mut memory = Memory::with("t", partitions).then(Then::Wait);
        memory.hide("t", &visible);
        Self { memory: Arc::new(memory), visible, sink: Held::default(), log: Arc::default() }
    }

    fn start(&self, mode: Mode) -> Arc<Query> {
        self.start_with(RuntimeOptions { mode, ..options() }, IDLE_AFTER)
    }

    fn start_with(&self, options: RuntimeOptions, idle_after: i64) -> Arc<Query> {
        let waiting = Waiting { idle_after: Some(idle_after), alignment: None };
        let judge = Judge(Arc::clone(&self.sink), None);
        start_with(&self.memory, judge, &self.log, options, waiting).unwrap()
    }

    /// Runs the query until something is so.
    fn run(&self, mode: Mode, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let query = self.start(mode);
        until(what, || is_so(self) || query.status().state.is_over());
        query.cancel();
        assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled, "{what}");
    }

    fn written(&self) -> Groups {
        let rows: Vec<RecordBatch> = self.sink.lock().values().flatten().cloned().collect();
        groups(&rows, true)
    }

    /// How many partitions the last record knows.
    fn recorded(&self) -> usize {
        self.log.all.lock().last().map_or(0, |record| record.sources.len())
    }

    /// Up to which time windows were written.
    fn reached(&self) -> i64 {
        self.written().keys().map(|((_, end), _)| *end).max().unwrap_or(0)
    }
}

/// The windows that end by a time.
fn expected(partitions: &[Vec<Row>], by: i64) -> Groups {
    let mut windows = truth(partitions, &window(10, 10, 0), 3, false, true).windows;
    windows.retain(|((_, end), _), _| *end <= by);
    windows
}

#[test]
fn partitions_that_come_to_be_join_at_an_epoch_that_the_records_name_and_each_row_counts_once() {
    for mode in [Mode::Serverless, Mode::Provisioned] {
        let world = World::new(partitions());
        world.run(mode, "some of it is read", |world| world.written().len() > 50);
        world.visible.store(3, Ordering::Release);
        // It ends as soon as the new one is in a record, and reads that epoch again.
        world.run(mode, "the third joins", |world| world.recorded() == 3);
        world.run(mode, "its rows come", |world| world.reached() > ROWS + 50);
        let before = world.log.all.lock().len();
        // While nothing runs.
        world.visible.store(4, Ordering::Release);
        world.run(mode, "the fourth joins", |world| world.recorded() == 4);
        world.run(mode, "all of it comes", |world| world.reached() >= 3 * ROWS - 10);
        assert_eq!(world.written(), expected(&partitions(), world.reached()), "{mode:?}");
        let records = world.log.all.lock().clone();
        let joined = |number| Joined { scan: 0, number };
        assert_eq!(records.last().unwrap().layout.joined, [joined(2), joined(3)]);
        assert!(records[..before].iter().all(|record| record.sources.len() < 4));
        let first = |marks| records.iter().find(|record: &&EpochRecord| record.sources.len() == marks).unwrap();
        for marks in [3, 4] {
            let (this, last) = (first(marks), &records[first(marks).epoch.0 as usize - 2]);
            assert_eq!(last.epoch.next(), this.epoch);
            let reached = last.sources.iter().map(|mark| mark.watermark).min().unwrap();
            assert!(this.sources[marks - 1].watermark >= reached, "it begins where the others are");
        }
    }
}

#[test]
fn what_came_to_be_while_nobody_read_joins_before_anything_else_is_read() {
    let partitions = vec![rows(0), rows(0), rows(300)];
    let world = World::new(partitions.clone());
    world.run(Mode::Serverless, "some of it is read", |world| world.reached() > 100);
    let recorded = world.log.all.lock().last().unwrap().epoch;
    world.visible.store(3, Ordering::Release);
    world.run(Mode::Serverless, "all of it comes", |world| world.reached() >= 300 + ROWS - 10);
    let joins = world.log.all.lock().iter().find(|record| record.sources.len() == 3).map(|record| record.epoch);
    if world
        .log
        .all
        .lock()
        .iter()
        .all(|record| record.epoch > recorded || record.sources.iter().all(|mark| mark.watermark.0 < 300 * MILLI))
    {
        assert_eq!((joins, world.written()), (Some(recorded.next()), expected(&partitions, world.reached())));
    }
}

#[test]
fn rows_of_a_partition_that_joins_are_late_by_where_the_others_are_also_when_they_are_read_again() {
    // It has the same times as the others, of which the first ones have passed.
    let world = World::new(vec![rows(0), rows(0), rows(0)]);
    world.run(Mode::Serverless, "windows close", |world| world.reached() > 200);
    world.visible.store(3, Ordering::Release);
    world.run(Mode::Serverless, "it joins", |world| world.recorded() == 3);
    // No window comes twice, which the sink's rows tell.
    world.run(Mode::Serverless, "the rest comes", |world| world.reached() >= ROWS - 10);
    let (all, two) = (expected(&[rows(0), rows(0), rows(0)], ROWS), expected(&[rows(0), rows(0)], ROWS));
    let written = world.written();
    assert!(written.iter().filter(|((window, _), _)| window.1 <= 200).all(|(window, found)| two[window] == *found));
    assert!(written.iter().all(|(window, found)| found.0 >= two[window].0 && found.0 <= all[window].0));
}

#[test]
fn partitions_that_rest_come_to_where_the_last_one_is_that_rests_in_an_epoch_that_is_cut_already() {
    let row = |time| Row { time: Some(time), key: Some(time % 5), value: 1 };
    let partitions: Vec<Vec<Row>> =
        vec![(0..4).map(row).collect(), (50..54).map(row).collect(), (0..24).map(|i| row(40 * i)).collect()];
    let mut world = World::new(partitions.clone());
    world.visible.store(3, Ordering::Release);
    let memory = Arc::get_mut(&mut world.memory).unwrap();
    let last = memory.hold("t", 2);
    // It has read its rows, and that it has no more.
    let second = memory.stick("t", 1, 2);
    // As many epochs as the others end while the second is in its read.
    let options = RuntimeOptions { mode: Mode::Serverless, max_epochs_in_flight: 16, ..options() };
    let query = world.start_with(options, 20 * MILLI);
    until("the second reads", || second.is_stuck.load(Ordering::Acquire));
    last.store(true, Ordering::Release);
    // The others end epochs in which it is still waited for.
    thread::sleep(Duration::from_millis(100));
    second.goes_on.store(true, Ordering::Release);
    until("what the last one has closes its windows", || world.reached() >= 890);
    query.cancel();
    query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!(world.written(), expected(&partitions, world.reached()));
}

#[test]
fn nothing_waits_for_rows_of_others_before_a_partition_joins() {
    let world = World::new(partitions());
    let read = |world: &World| -> u64 {
        world.log.all.lock().iter().flat_map(|record| &record.sources).map(|mark| mark.events).sum()
    };
    let mut is_told = false;
    world.run(Mode::Serverless, "the third is read although the others have nothing", |world| {
        if read(world) == 2 * ROWS as u64 && !std::mem::replace(&mut is_told, true) {
            world.visible.store(3, Ordering::Release);
        }
        read(world) == 3 * ROWS as u64
    });
    let held: BTreeMap<Epoch, usize> = world.log.all.lock().iter().map(|r| (r.epoch, r.sources.len())).collect();
    assert_eq!(held.values().max(), Some(&3));
}

#[test]
fn a_query_that_is_over_keeps_nothing_of_its_sources() {
    let world = World::new(partitions());
    let query = world.start(Mode::Serverless);
    until("some of it is read", || world.written().len() > 50);
    assert!(Arc::strong_count(&world.visible) > 2, "sources have connections and threads");
    query.cancel();
    query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!(Arc::strong_count(&world.visible), 2, "the test's own and its table's");
    assert_eq!(query.status().state, QueryState::Cancelled);
}

#[test]
fn a_partition_that_takes_long_to_open_holds_up_no_other_query() {
    // More than there are threads that read: each of them is told of the new one.
    const KNOWN: usize = 100;
    let mut world = World::new(vec![rows(0); KNOWN + 1]);
    world.visible.store(KNOWN, Ordering::Release);
    let opens = Arc::get_mut(&mut world.memory).unwrap().hold_opening("t");
    let query = world.start(Mode::Serverless);
    until("some of it is read", || world.log.all.lock().len() > 5);
    world.visible.store(KNOWN + 1, Ordering::Release);
    thread::sleep(Duration::from_millis(100));
    let other = World::new(vec![rows(0), rows(0)]);
    let beside = other.start(Mode::Serverless);
    let begun = Instant::now();
    while other.reached() < ROWS - 10 && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(1));
    }
    let reached = other.reached();
    opens.store(true, Ordering::Release);
    assert!(reached >= ROWS - 10, "the other query waits at {reached}");
    until("it joins", || world.recorded() == KNOWN + 1);
    for query in [query, beside] {
        query.cancel();
        assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
    }
}
