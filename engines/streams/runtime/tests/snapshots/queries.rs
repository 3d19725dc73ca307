//! Real queries that end at any moment and go on from their snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use savanna_streams_api::handle::QueryState;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::join::JoinKind;
use savanna_streams_model::time::{EventTime, Windows};
use savanna_streams_runtime::driver::EpochRecord;
use savanna_streams_runtime::{Clock, Mode, RuntimeOptions};

use crate::graphs::{MILLI, by_the_clock, counts_joined, identity, input_schema, join_graph, scan, window, windowed};
use crate::memory::{Memory, Row, Then};
use crate::operators::sorted;
use crate::oracle::{groups, truth};
use crate::support::{Disk, FOREVER, until, with_changes};

fn rows(count: i64) -> Vec<Vec<Row>> {
    let row = |partition: i64| move |i: i64| Row { time: Some(i - i % 7 * partition), key: Some(i % 5), value: i % 13 };
    (0..2).map(|partition| (0..count).map(row(partition)).collect()).collect()
}

/// Snapshots follow one another without a pause.
fn options(mode: Mode) -> RuntimeOptions {
    let mut options = RuntimeOptions { members: 2, batch_rows: 4, mode, ..RuntimeOptions::default() };
    options.snapshot_interval = Some(Duration::ZERO);
    (options.epoch.target, options.epoch.max_events) = (Duration::from_millis(1), 24);
    options
}

fn graph(windows: impl Into<Windows>) -> StageGraph {
    windowed(scan("t", 3), identity(&input_schema()), windows, true)
}

/// Starts a query again and again, ends it after a snapshot or a few epochs, and lets it come to its end. Tells how many events its
/// processes have read, and how many there were.
fn ended_again_and_again(
    disk: &Disk,
    memory: &Arc<Memory>,
    graph: &StageGraph,
    options: &RuntimeOptions,
) -> (u64, u32) {
    ended_in_groups(disk, memory, graph, options, &[options.members])
}

/// As [`ended_again_and_again`], in groups of these sizes in turn.
fn ended_in_groups(
    disk: &Disk,
    memory: &Arc<Memory>,
    graph: &StageGraph,
    options: &RuntimeOptions,
    sizes: &[u16],
) -> (u64, u32) {
    ended_when(disk, memory, graph, options, sizes, |run, epochs, snapshots| match run % 3 {
        0 => epochs >= 20,
        _ => snapshots > 0,
    })
}

/// As [`ended_in_groups`], each run once it has come so far: by its number, and how many epochs and snapshots it has brought.
fn ended_when(
    disk: &Disk,
    memory: &Arc<Memory>,
    graph: &StageGraph,
    options: &RuntimeOptions,
    sizes: &[u16],
    has_come_on: impl Fn(u32, usize, usize) -> bool,
) -> (u64, u32) {
    let (mut events, mut runs) = (0, 0);
    loop {
        let options = RuntimeOptions { members: sizes[runs as usize % sizes.len()], ..options.clone() };
        runs += 1;
        let (held, counted) = (disk.sink.lock().len(), disk.switched.lock().len());
        let query = disk.start(memory, graph.clone(), options).unwrap();
        let has_come_on = || has_come_on(runs, disk.sink.lock().len() - held, disk.switched.lock().len() - counted);
        until("it comes on", || has_come_on() || query.status().state.is_over());
        query.cancel();
        let status = query.wait_timeout(FOREVER).unwrap().unwrap();
        events += status.events;
        if status.state == QueryState::Finished {
            return (events, runs);
        }
    }
}

#[test]
fn windows_go_on_from_their_snapshots_and_are_written_once() {
    let partitions = rows(3_000);
    // Windows without overlap, some that overlap, and such as are longer than all that is read.
    for window in [window(10, 10, 0), window(40, 5, 3), window(100_000, 50_000, 0)] {
        let expected = truth(&partitions, &window, 3, false, true).windows;
        for mode in [Mode::Serverless, Mode::Provisioned] {
            let (memory, disk) = (Arc::new(Memory::with("t", partitions.clone())), Disk::default());
            let (_, runs) = ended_again_and_again(&disk, &memory, &graph(window), &options(mode));
            assert!(runs > 3, "{runs} runs");
            assert_eq!(groups(&disk.rows(), true), expected, "{window:?}, {mode:?}");
            let epochs: Vec<u64> = disk.sink.lock().keys().map(|epoch| epoch.0).collect();
            assert_eq!(epochs, (1..=epochs.len() as u64).collect::<Vec<_>>());
        }
    }
}

/// Keys that come once each.
const KEYS: i64 = 100_000;

/// Runs a query until it holds all keys: the bytes of its state then, and the most that was accounted.
fn accounted(disk: &Disk, snapshot_interval: Option<Duration>) -> (f64, f64) {
    let row = |key: i64| Row { time: Some(key / 100), key: Some(key), value: key % 13 };
    let memory = Arc::new(Memory::with("t", vec![(0..KEYS).map(row).collect()]).then(Then::Wait));
    let mut options = RuntimeOptions { snapshot_interval, batch_rows: 512, ..options(Mode::Serverless) };
    options.epoch.max_events = 5_000;
    let all = window(1_000_000, 1_000_000, 0);
    let query = disk.start(&memory, graph(all), options).unwrap();
    let read = |record: &EpochRecord| record.sources.iter().all(|mark| mark.offset.0 == KEYS.to_string());
    until("all keys are held", || {
        let by_snapshot = disk.manifest.lock().as_ref().map(|manifest| manifest.record.clone());
        let record = query.last_record().or(by_snapshot).filter(&read);
        record.is_some_and(|record| query.status().epoch >= record.epoch.0)
    });
    until("what was handed out is written", || {
        query.status().more.get("snapshot_held_bytes").is_none_or(|held| *held < f64::from(1 << 20))
    });
    let status = query.status();
    query.cancel();
    query.wait_timeout(FOREVER).unwrap().unwrap();
    (status.state_bytes as f64, status.more["peak_bytes"])
}

#[test]
fn what_is_accounted_stays_within_twice_while_snapshots_are_made_and_is_the_same_after_going_on() {
    let (_, without) = accounted(&Disk::default(), None);
    let disk = Disk::default();
    let (state, with) = accounted(&disk, Some(Duration::ZERO));
    assert!(!disk.switched.lock().is_empty());
    assert!(with <= 2.0 * without, "{with} with snapshots, {without} without");
    let (again, peak) = accounted(&disk, Some(Duration::ZERO));
    assert!(again <= 1.25 * state, "{again} after going on, {state} before");
    assert!(peak <= 2.0 * state.max(again), "{peak} while going on, {state} before");
}

#[test]
fn what_is_behind_a_snapshot_is_not_read_again() {
    let partitions = rows(6_000);
    // One window has all rows: without snapshots nothing could be left out.
    let all = window(1_000_000, 1_000_000, 0);
    let expected = truth(&partitions, &all, 3, false, true).windows;
    let (memory, disk) = (Arc::new(Memory::with("t", partitions)), Disk { needs_all: true, ..Disk::default() });
    let query = disk.start(&memory, graph(all), options(Mode::Provisioned)).unwrap();
    until("there are snapshots", || disk.switched.lock().len() > 3 || query.status().state.is_over());
    query.cancel();
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
    let manifest = disk.manifest.lock().clone().unwrap();
    let before: u64 = manifest.record.sources.iter().map(|mark| mark.offset.0.parse::<u64>().unwrap()).sum();
    assert!(before > 0);
    assert_eq!(disk.records.lock()[0].epoch, Epoch(1), "they lead back, too");
    assert_eq!(disk.parts.lock().len(), manifest.files().count(), "what was replaced is gone");
    let query = disk.start(&memory, graph(all), options(Mode::Provisioned)).unwrap();
    let status = query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!((status.state, status.events), (QueryState::Finished, 12_000 - before));
    assert_eq!(groups(&disk.rows(), true), expected);
}

#[test]
fn a_partition_that_has_ended_keeps_its_query_neither_from_snapshots_nor_from_going_on() {
    let mut partitions = rows(3_000);
    partitions[0].truncate(500);
    let windows = window(40, 10, 0);
    let expected = truth(&partitions, &windows, 3, false, true).windows;
    let (memory, disk) = (Arc::new(Memory::with("t", partitions)), Disk::default());
    let (_, runs) = ended_again_and_again(&disk, &memory, &graph(windows), &options(Mode::Provisioned));
    assert!(runs > 3, "{runs} runs");
    assert_eq!(groups(&disk.rows(), true), expected);
    let manifest = disk.manifest.lock().clone().unwrap();
    assert!(manifest.record.sources[0].ended, "there is one of afterwards");
    assert!(disk.records.lock().iter().all(|record| record.epoch > manifest.record.epoch), "the records are of no use");
}

/// A clock that the test sets.
#[derive(Debug, Default)]
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> EventTime {
        EventTime(self.0.load(Ordering::Acquire))
    }

    fn until(&self, instant: EventTime) -> Duration {
        let left = instant.0.saturating_sub(self.now().0);
        if left > 0 { Duration::from_millis(1) } else { Duration::ZERO }
    }
}

#[test]
fn windows_of_processing_time_that_were_open_end_at_their_time_although_nothing_comes() {
    let row = |key| Row { time: None, key: Some(key), value: 0 };
    let memory = Arc::new(Memory::with("t", vec![(0..20).map(|i| row(i % 2)).collect()]).then(Then::Wait));
    let (disk, clock) = (Disk::default(), Arc::new(Hand::default()));
    // One epoch has all rows.
    let options = RuntimeOptions { clock: Arc::clone(&clock) as _, batch_rows: 100, ..options(Mode::Serverless) };
    clock.0.store(1_000 * MILLI, Ordering::Release);
    let query = disk.start(&memory, by_the_clock(), options.clone()).unwrap();
    let has_all = || disk.manifest.lock().as_ref().is_some_and(|manifest| manifest.record.sources[0].offset.0 == "20");
    until("there is a snapshot", || has_all() || query.status().state.is_over());
    query.cancel();
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
    let query = disk.start(&memory, by_the_clock(), options).unwrap();
    clock.0.store(10_000 * MILLI, Ordering::Release);
    let counted = || disk.rows().iter().map(RecordBatch::num_rows).sum::<usize>();
    until("the window ends", || counted() == 2 || query.status().state.is_over());
    assert_eq!((counted(), query.status().events), (2, 0));
    query.cancel();
    query.wait_timeout(FOREVER).unwrap().unwrap();
}

/// Rows with a pause behind each fifty.
fn many_sessions() -> Vec<Vec<Row>> {
    let row = |i: i64| Row { time: Some(i + i / 50 * 20), key: Some(i % 3), value: i % 13 };
    vec![(0..4_000).map(row).collect()]
}

#[test]
fn sessions_go_on_from_their_snapshots() {
    let sessions = Windows::Session { gap: 15 * MILLI };
    let whole = Disk::default();
    let memory = Arc::new(Memory::with("t", many_sessions()));
    let query = whole.start(&memory, graph(sessions), options(Mode::Serverless)).unwrap();
    query.wait_timeout(FOREVER).unwrap().unwrap();
    let expected = groups(&whole.rows(), true);
    assert!(expected.len() > 200);
    for mode in [Mode::Serverless, Mode::Provisioned] {
        let disk = Disk::default();
        let (_, runs) = ended_again_and_again(&disk, &memory, &graph(sessions), &options(mode));
        assert!(runs > 3 && disk.records.lock().first().is_none_or(|first| first.epoch > Epoch(1)));
        assert_eq!(groups(&disk.rows(), true), expected);
    }
}

#[test]
fn groups_of_another_size_go_on_from_snapshots_and_write_once() {
    // One window has all rows, and sessions reach back anywhere: what was there before comes from snapshots.
    let (all, sessions) = (window(1_000_000, 500_000, 0), Windows::Session { gap: 15 * MILLI });
    for (windows, partitions) in [(Windows::from(all), rows(3_000)), (sessions, many_sessions())] {
        let (memory, whole) = (Arc::new(Memory::with("t", partitions)), Disk::default());
        let query = whole.start(&memory, graph(windows), options(Mode::Serverless)).unwrap();
        query.wait_timeout(FOREVER).unwrap().unwrap();
        let expected = groups(&whole.rows(), true);
        for mode in [Mode::Serverless, Mode::Provisioned] {
            let disk = Disk::default();
            let (_, runs) = ended_in_groups(&disk, &memory, &graph(windows), &options(mode), &[2, 3, 1, 5]);
            assert!(runs > 3, "{runs} runs");
            assert_eq!(groups(&disk.rows(), true), expected, "{windows:?}, {mode:?}");
        }
    }
}

/// Rows of so many keys, each of which comes again after all others.
fn of_keys(keys: i64, pace: i64) -> Vec<Vec<Row>> {
    let row = |partition: i64| {
        move |i: i64| Row { time: Some(i * pace), key: Some((i * 7 + partition) % keys), value: i % 13 }
    };
    (0..2).map(|partition| (0..5_000).map(row(partition)).collect()).collect()
}

/// Queries of which a stage keeps much that does not change from one snapshot to the next, and that stage.
fn keeping_much() -> Vec<(&'static str, u16, StageGraph, Arc<Memory>)> {
    let many = Arc::new(Memory::with("t", of_keys(1_500, 1)));
    let two = |keys, pace| Arc::new(Memory::with("l", of_keys(keys, 1)).and("r", of_keys(keys, pace)));
    vec![
        ("panes", 1, graph(window(1_000_000, 500_000, 0)), Arc::clone(&many)),
        ("sessions", 1, graph(Windows::Session { gap: 700 * MILLI }), many),
        ("rows of a join", 2, join_graph(JoinKind::Full, -200, 200, 3), two(400, 1)),
        // Windows of the one side wait for the other, whose time goes by more slowly.
        ("rows of windows", 4, counts_joined(3, window(50, 50, 0)), two(40, 3)),
    ]
}

#[test]
fn queries_of_all_kinds_go_on_from_what_has_changed_also_in_groups_of_another_size() {
    for (what, stage, graph, memory) in keeping_much() {
        let stage = StageId(stage);
        let whole = Disk::default();
        let query = whole.start(&memory, graph.clone(), options(Mode::Serverless)).unwrap();
        query.wait_timeout(FOREVER).unwrap().unwrap();
        let expected = sorted(&whole.rows());
        assert!(expected.len() > 1_000, "{what}: {} rows", expected.len());
        for (mode, sizes) in [(Mode::Serverless, [2, 2, 2]), (Mode::Provisioned, [2, 3, 1])] {
            let disk = Disk::default();
            let has_changes = || disk.manifest.lock().iter().flat_map(with_changes).any(|with| with == stage);
            let has_come_on = |_: u32, epochs: usize, snapshots: usize| epochs >= 100 || snapshots > 1 && has_changes();
            let (_, runs) = ended_when(&disk, &memory, &graph, &options(mode), &sizes, has_come_on);
            let behind_changes = disk.behind_changes.lock().clone();
            assert!(runs > 3 && behind_changes.contains(&stage), "{what}, {mode:?}: {runs} runs, {behind_changes:?}");
            assert_eq!(sorted(&disk.rows()), expected, "{what}, {mode:?}");
        }
    }
}

#[test]
fn a_chain_of_which_a_file_is_damaged_is_passed_over_if_the_records_reach() {
    let partitions = of_keys(400, 1);
    let windows = window(3_000, 3_000, 0);
    let expected = truth(&partitions, &windows, 3, false, true).windows;
    let (memory, disk) = (Arc::new(Memory::with("t", partitions)), Disk::default());
    let changes = || {
        let manifest = disk.manifest.lock().clone();
        manifest.and_then(|manifest| manifest.parts.iter().find_map(|part| part.changes.first().cloned()))
    };
    // A snapshot that comes just before the end may be whole.
    while changes().is_none() {
        let query = disk.start(&memory, graph(windows), options(Mode::Provisioned)).unwrap();
        until("there are changes", || changes().is_some() || query.status().state.is_over());
        query.cancel();
        assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
    }
    let name = changes().unwrap().name;
    disk.parts.lock().get_mut(&name).unwrap().truncate(40);
    let error = disk.found().unwrap_err().to_string();
    assert!(error.contains(&name), "{error}");
    let query = disk.start(&memory, graph(windows), options(Mode::Provisioned)).unwrap();
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Finished);
    assert_eq!(groups(&disk.rows(), true), expected);
}

/// Starts a query and ends it once there were a few snapshots.
fn ended_behind_snapshots(disk: &Disk, memory: &Arc<Memory>, graph: &StageGraph) {
    let query = disk.start(memory, graph.clone(), options(Mode::Provisioned)).unwrap();
    until("there are snapshots", || disk.switched.lock().len() > 3 || query.status().state.is_over());
    query.cancel();
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
}

#[test]
fn a_query_whose_snapshot_cannot_be_read_goes_on_from_its_records_if_they_reach() {
    let partitions = rows(6_000);
    let windows = window(40, 10, 3);
    let expected = truth(&partitions, &windows, 3, false, true).windows;
    let (memory, disk) = (Arc::new(Memory::with("t", partitions)), Disk::default());
    ended_behind_snapshots(&disk, &memory, &graph(windows));
    disk.is_damaged.store(true, Ordering::Release);
    let query = disk.start(&memory, graph(windows), options(Mode::Provisioned)).unwrap();
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Finished);
    assert_eq!(groups(&disk.rows(), true), expected);
    // Sessions reach back anywhere: nothing but the snapshot leads there.
    let (sessions, disk) = (Windows::Session { gap: 15 * MILLI }, Disk::default());
    ended_behind_snapshots(&disk, &memory, &graph(sessions));
    disk.is_damaged.store(true, Ordering::Release);
    let error = disk.start(&memory, graph(sessions), options(Mode::Provisioned)).unwrap_err().to_string();
    assert!(error.contains("it is damaged"), "{error}");
}

#[test]
fn a_snapshot_that_cannot_be_written_keeps_no_query_from_going_on() {
    let partitions = rows(2_000);
    let expected = truth(&partitions, &window(10, 10, 0), 3, false, true).windows;
    let (memory, disk) = (Arc::new(Memory::with("t", partitions)), Disk::default());
    disk.is_full.store(true, Ordering::Release);
    let query = disk.start(&memory, graph(window(10, 10, 0)), options(Mode::Serverless)).unwrap();
    let status = query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!(status.state, QueryState::Finished);
    assert!(status.more["snapshots_failed"] > 0.0, "{:?}", status.more);
    assert!(disk.switched.lock().is_empty() && disk.parts.lock().is_empty());
    assert_eq!(groups(&disk.rows(), true), expected);
}

#[test]
fn no_snapshot_counts_before_the_sink_holds_its_epoch() {
    let (memory, disk) = (Arc::new(Memory::with("t", rows(2_000))), Disk::default());
    disk.is_shut.store(true, Ordering::Release);
    let query = disk.start(&memory, graph(window(10, 10, 0)), options(Mode::Serverless)).unwrap();
    query.wait_timeout(FOREVER).unwrap_err();
    assert!(disk.manifest.lock().is_none() && disk.parts.lock().is_empty());
    assert_eq!(disk.records.lock().first().map(|record| record.epoch), Some(Epoch(1)));
}

#[test]
fn a_snapshot_of_another_query_or_of_another_form_is_refused() {
    let (memory, disk) = (Arc::new(Memory::with("t", rows(3_000)).then(Then::Wait)), Disk::default());
    let long = window(1_000_000, 1_000_000, 0);
    let query = disk.start(&memory, graph(long), options(Mode::Serverless)).unwrap();
    until("there is a snapshot", || !disk.switched.lock().is_empty());
    query.cancel();
    query.wait_timeout(FOREVER).unwrap().unwrap();
    let other = QueryId { code: "0123456789ab".into(), job: 2 };
    let error = disk.start_as(other, &memory, graph(long), options(Mode::Serverless)).unwrap_err().to_string();
    assert!(error.contains("the snapshot is one of query 0123456789ab-1, and not of 0123456789ab-2"), "{error}");
    let wider = graph(window(2_000_000, 2_000_000, 0));
    let error = disk.start(&memory, wider, options(Mode::Serverless)).unwrap_err().to_string();
    assert!(error.contains("does not fit what this release would keep"), "{error}");
    // The sink has lost what it held.
    disk.sink.lock().clear();
    let error = disk.start(&memory, graph(long), options(Mode::Serverless)).unwrap_err().to_string();
    assert!(error.contains("what it wrote was removed or moved away"), "{error}");
    // Without the snapshot, nobody knows what was in it.
    let snapshot = disk.manifest.lock().take().unwrap().record.epoch;
    disk.records.lock().retain(|record| record.epoch > snapshot);
    let Some(last) = disk.records.lock().last().map(|record| record.epoch) else { return };
    *disk.sink.lock() = BTreeMap::from([(last, Vec::new())]);
    let error = disk.start(&memory, graph(long), options(Mode::Serverless)).unwrap_err().to_string();
    assert!(error.contains("it needs all of them"), "{error}");
}
