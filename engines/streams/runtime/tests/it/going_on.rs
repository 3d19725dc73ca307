//! A query that is recorded: its sink waits for the records, and it goes on from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use savanna_streams_api::handle::QueryState;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::Waiting;
use savanna_streams_model::sink::{Delivery, Remote, Sink};
use savanna_streams_runtime::driver::{EpochRecord, Outcome};
use savanna_streams_runtime::records::{EpochLog, WhenDurable};
use savanna_streams_runtime::{Mode, Query, RuntimeOptions, Survival};

use crate::graphs::{MILLI, functions, identity, input_schema, scan, window, windowed};
use crate::lookups::Tables;
use crate::memory::{Memory, Row, Then};
use crate::oracle::{groups, truth};

/// Far beyond what any of these tests needs; only a hang reaches it.
pub(crate) const FOREVER: Duration = Duration::from_secs(600);

/// Records in memory. While they are held back, none becomes durable.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) durable: Mutex<Vec<EpochRecord>>,
    /// All that were ever durable.
    pub(crate) all: Mutex<Vec<EpochRecord>>,
    held: Mutex<Vec<(EpochRecord, WhenDurable)>>,
    holds: AtomicBool,
    /// Another process has the place of this one.
    is_replaced: AtomicBool,
    ended: Mutex<Vec<Outcome>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl EpochLog for Log {
    fn append(&self, record: &EpochRecord, when_durable: WhenDurable) {
        if self.holds.load(Ordering::Acquire) {
            return self.held.lock().push((record.clone(), when_durable));
        }
        self.durable.lock().push(record.clone());
        self.all.lock().push(record.clone());
        when_durable(Ok(()));
    }

    fn may_commit(&self) -> bool {
        !self.is_replaced.load(Ordering::Acquire)
    }

    fn forget_before(&self, epoch: Epoch) {
        self.durable.lock().retain(|record| record.epoch >= epoch);
    }

    fn ended(&self, outcome: &Outcome) {
        self.ended.lock().push(outcome.clone());
    }
}

pub(crate) type Held = Arc<Mutex<BTreeMap<Epoch, Vec<RecordBatch>>>>;

/// A sink that stores epochs with their rows.
pub(crate) struct Judge(pub(crate) Held, pub(crate) Option<Far>);

/// What befalls a sink on other machines.
#[derive(Clone, Default)]
pub(crate) struct Far {
    /// The other machines do not answer.
    is_cut_off: Arc<AtomicBool>,
    gave_up: Arc<AtomicBool>,
    renewals: Arc<AtomicU64>,
}

impl Sink for Judge {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(self.0.lock().last_key_value().map(|(epoch, _)| *epoch))
    }

    fn remote(&self) -> Option<Remote> {
        let gave_up = Arc::clone(&self.1.as_ref()?.gave_up);
        let give_up = Arc::new(move || gave_up.store(true, Ordering::Release));
        Some(Remote { renew_after: Duration::from_millis(1), give_up })
    }

    fn renew(&mut self, _: &QueryId) -> Result<()> {
        if let Some(far) = &self.1 {
            far.renewals.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn commit(&mut self, _: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if let Some(far) = &self.1 {
            while far.is_cut_off.load(Ordering::Acquire) {
                if far.gave_up.load(Ordering::Acquire) {
                    return Err(StreamError::Cancelled);
                }
                thread::sleep(Duration::from_micros(50));
            }
        }
        let mut held = self.0.lock();
        if held.last_key_value().is_none_or(|(last, _)| epoch > *last) {
            held.insert(epoch, rows.to_vec());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }
}

fn rows(count: i64) -> Vec<Vec<Row>> {
    let row = |partition: i64| move |i: i64| Row { time: Some(i - i % 7 * partition), key: Some(i % 5), value: i % 13 };
    (0..2).map(|partition| (0..count).map(row(partition)).collect()).collect()
}

pub(crate) fn options() -> RuntimeOptions {
    let mut options = RuntimeOptions { members: 2, batch_rows: 4, ..RuntimeOptions::default() };
    (options.epoch.target, options.epoch.max_events) = (Duration::from_millis(1), 24);
    options
}

fn start(memory: &Arc<Memory>, sink: &Held, log: &Arc<Log>, options: RuntimeOptions) -> Result<Arc<Query>> {
    start_with(memory, Judge(Arc::clone(sink), None), log, options, Waiting::default())
}

fn start_far(memory: &Arc<Memory>, sink: &Held, far: &Far, log: &Arc<Log>) -> Arc<Query> {
    start_with(memory, Judge(Arc::clone(sink), Some(far.clone())), log, options(), Waiting::default()).unwrap()
}

pub(crate) fn start_with(
    memory: &Arc<Memory>,
    sink: Judge,
    log: &Arc<Log>,
    options: RuntimeOptions,
    waiting: Waiting,
) -> Result<Arc<Query>> {
    let mut scan = scan("t", 3);
    scan.watermark.as_mut().unwrap().waiting = waiting;
    let graph = windowed(scan, identity(&input_schema()), window(10, 10, 0), true);
    let id = QueryId { code: graph.code(), job: 1 };
    let records = log.durable.lock().clone();
    let lookups = Arc::new(Tables::default());
    let survival =
        Survival { log: Arc::clone(log) as _, records, snapshots: None, lookups, found: Ok(None), taking: None };
    Query::start_recorded(id, graph, functions(), Arc::clone(memory) as _, Box::new(sink), options, survival)
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < FOREVER, "{what}");
        thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn a_process_that_may_have_been_replaced_commits_nothing() {
    let (memory, sink, log) = (Arc::new(Memory::with("t", rows(200))), Held::default(), Arc::new(Log::default()));
    log.is_replaced.store(true, Ordering::Release);
    let query = start(&memory, &sink, &log, options()).unwrap();
    until("an epoch is recorded", || !log.durable.lock().is_empty());
    thread::sleep(Duration::from_millis(50));
    assert!(sink.lock().is_empty());
    log.is_replaced.store(false, Ordering::Release);
    until("it has its place again", || !sink.lock().is_empty());
    log.is_replaced.store(true, Ordering::Release);
    query.cancel();
    assert!(query.wait_timeout(FOREVER).unwrap().is_some(), "who waits can be stopped");
}

#[test]
fn no_epoch_is_committed_before_its_record_is_durable() {
    let (memory, sink, log) = (Arc::new(Memory::with("t", rows(200))), Held::default(), Arc::new(Log::default()));
    log.holds.store(true, Ordering::Release);
    let query = start(&memory, &sink, &log, options()).unwrap();
    until("an epoch is sealed", || !log.held.lock().is_empty());
    thread::sleep(Duration::from_millis(50));
    assert!(sink.lock().is_empty());
    let (record, when_durable) = log.held.lock().remove(0);
    when_durable(Ok(()));
    until("its sink takes it", || sink.lock().contains_key(&record.epoch));
    thread::sleep(Duration::from_millis(50));
    assert_eq!(sink.lock().len(), 1);
    query.cancel();
    let status = query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!(
        status.state,
        QueryState::Cancelled,
        "a sink that waits for a record does not keep a query from its end"
    );
    assert_eq!((sink.lock().len(), log.ended.lock().as_slice()), (1, [Outcome::Cancelled].as_slice()));
}

#[test]
fn a_record_that_cannot_be_written_fails_the_query() {
    let (memory, sink, log) = (Arc::new(Memory::with("t", rows(200))), Held::default(), Arc::new(Log::default()));
    log.holds.store(true, Ordering::Release);
    let query = start(&memory, &sink, &log, options()).unwrap();
    until("an epoch is sealed", || !log.held.lock().is_empty());
    let (_, when_durable) = log.held.lock().remove(0);
    when_durable(Err(StreamError::io("writing the test's log", &"injected")));
    let error = query.wait_timeout(FOREVER).unwrap_err().to_string();
    assert!(error.contains("writing the test's log"), "{error}");
    assert!(sink.lock().is_empty());
}

#[test]
fn a_query_goes_on_where_it_ended_and_writes_each_window_once() {
    let partitions = rows(3_000);
    let expected = truth(&partitions, &window(10, 10, 0), 3, false, true);
    for (mode, is_far) in [(Mode::Serverless, false), (Mode::Provisioned, false), (Mode::Serverless, true)] {
        let memory = Arc::new(Memory::with("t", partitions.clone()));
        let (sink, log) = (Held::default(), Arc::new(Log::default()));
        let mut runs = 0;
        loop {
            runs += 1;
            let before = sink.lock().len();
            let judge = Judge(Arc::clone(&sink), is_far.then(Far::default));
            let options = RuntimeOptions { mode, ..options() };
            let query = start_with(&memory, judge, &log, options, Waiting::default()).unwrap();
            let more = if runs == 2 { 100 } else { 7 };
            until("it comes on", || sink.lock().len() >= before + more || query.status().state.is_over());
            query.cancel();
            let status = query.wait_timeout(FOREVER).unwrap().unwrap();
            if status.state == QueryState::Finished {
                break;
            }
        }
        assert!(runs > 3, "{runs} runs");
        let epochs: Vec<u64> = sink.lock().keys().map(|epoch| epoch.0).collect();
        assert_eq!(epochs, (1..=epochs.len() as u64).collect::<Vec<_>>());
        let rows: Vec<RecordBatch> = sink.lock().values().flatten().cloned().collect();
        assert_eq!(groups(&rows, true), expected.windows);
    }
}

#[test]
fn records_that_are_not_needed_any_more_go_and_what_they_tell_of_is_not_read_again() {
    // One partition: how far several are apart is the scheduler's choice, and what is behind the watermark with it.
    let partitions = vec![rows(6_000).swap_remove(0)];
    let expected = truth(&partitions, &window(10, 10, 0), 3, false, true);
    for mode in [Mode::Serverless, Mode::Provisioned] {
        let memory = Arc::new(Memory::with("t", partitions.clone()));
        let (sink, log) = (Held::default(), Arc::new(Log::default()));
        let options = RuntimeOptions { mode, ..options() };
        let is_cut = || log.durable.lock().first().is_some_and(|first| first.epoch > Epoch(1));
        let query = start(&memory, &sink, &log, options.clone()).unwrap();
        until("records go", || is_cut() || query.status().state.is_over());
        assert!(is_cut());
        query.cancel();
        query.wait_timeout(FOREVER).unwrap().unwrap();
        let first = log.durable.lock()[0].clone();
        let before: u64 = first.sources[0].offset.0.parse().unwrap();
        let status = start(&memory, &sink, &log, options).unwrap().wait_timeout(FOREVER).unwrap().unwrap();
        assert_eq!(status.state, QueryState::Finished);
        assert!(status.events <= 6_000 - before, "{} events, and {before} were behind it", status.events);
        let rows: Vec<RecordBatch> = sink.lock().values().flatten().cloned().collect();
        assert_eq!(groups(&rows, true), expected.windows);
    }
}

#[test]
fn a_source_that_gives_other_rows_than_before_fails_the_query_and_nothing_is_written() {
    let (sink, log) = (Held::default(), Arc::new(Log::default()));
    let query = start(&Arc::new(Memory::with("t", rows(300))), &sink, &log, options()).unwrap();
    query.wait_timeout(FOREVER).unwrap().unwrap();
    let right = sink.lock().clone();
    // As if the process had ended early.
    log.durable.lock().iter_mut().for_each(|record| record.committed = Epoch::ZERO);
    // Fewer rows; and as many, of other times.
    let mut other = rows(300);
    other[0][100].time = Some(100_000);
    for changed in [rows(100), other] {
        sink.lock().retain(|epoch, _| epoch.0 <= 2);
        let query = start(&Arc::new(Memory::with("t", changed)), &sink, &log, options()).unwrap();
        let error = query.wait_timeout(FOREVER).unwrap_err().to_string();
        assert!(error.contains("expected the rows that its source gave before"), "{error}");
        let written = sink.lock().clone();
        let count = |rows: &[RecordBatch]| rows.iter().map(RecordBatch::num_rows).sum::<usize>();
        assert!(written.len() < right.len());
        assert!(written.iter().all(|(epoch, rows)| count(rows) == count(&right[epoch])), "what was written is right");
    }
}

#[test]
fn a_sink_that_is_cut_off_keeps_nobody_from_reading_and_no_query_from_its_end() {
    let (memory, sink, log) = (Arc::new(Memory::with("t", rows(3_000))), Held::default(), Arc::new(Log::default()));
    let far = Far::default();
    far.is_cut_off.store(true, Ordering::Release);
    let query = start_far(&memory, &sink, &far, &log);
    until("epochs are read while the first is committed", || log.durable.lock().len() >= 3);
    assert!(sink.lock().is_empty());
    query.cancel();
    let status = query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!((status.state, sink.lock().len()), (QueryState::Cancelled, 0));
    // What had waited is written by the next process.
    let query = start_far(&memory, &sink, &Far::default(), &log);
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Finished);
    let rows: Vec<RecordBatch> = sink.lock().values().flatten().cloned().collect();
    assert_eq!(groups(&rows, true), truth(&self::rows(3_000), &window(10, 10, 0), 3, false, true).windows);
}

#[test]
fn a_sink_on_other_machines_is_reminded_while_nothing_is_committed_and_not_by_who_was_replaced() {
    let memory = Arc::new(Memory::with("t", rows(20)).then(Then::Wait));
    let (sink, log, far) = (Held::default(), Arc::new(Log::default()), Far::default());
    let query = start_far(&memory, &sink, &far, &log);
    until("it is reminded", || !sink.lock().is_empty() && far.renewals.load(Ordering::Acquire) > 2);
    log.is_replaced.store(true, Ordering::Release);
    // One may have been under way.
    thread::sleep(Duration::from_millis(20));
    let before = far.renewals.load(Ordering::Acquire);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(far.renewals.load(Ordering::Acquire), before);
    query.cancel();
    query.wait_timeout(FOREVER).unwrap().unwrap();
}

#[test]
fn a_partition_that_rests_holds_back_no_window_and_rests_again_when_its_query_goes_on() {
    let mut partitions = rows(2_000);
    partitions.push(Vec::new());
    let expected = truth(&partitions, &window(10, 10, 0), 3, false, true).windows;
    let memory = Arc::new(Memory::with("t", partitions).then(Then::Wait));
    let (sink, log) = (Held::default(), Arc::new(Log::default()));
    let waiting = Waiting { idle_after: Some(2 * MILLI), alignment: None };
    let written = || {
        let rows: Vec<RecordBatch> = sink.lock().values().flatten().cloned().collect();
        groups(&rows, true)
    };
    for windows in [100, 300, 500, 980] {
        let judge = Judge(Arc::clone(&sink), None);
        let query = start_with(&memory, judge, &log, options(), waiting.clone()).unwrap();
        until("windows close", || written().len() >= windows || query.status().state.is_over());
        query.cancel();
        assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
    }
    assert!(log.durable.lock().iter().any(|record| record.sources[2].idle), "it rested");
    assert!(written().iter().all(|(window, found)| expected[window] == *found));
}

#[test]
fn a_partition_that_rests_rests_on_however_often_its_process_ends() {
    let (sink, log) = (Held::default(), Arc::new(Log::default()));
    let waiting = Waiting { idle_after: Some(300 * MILLI), alignment: None };
    // So little time passes by the rows that all epochs are read again each time.
    for count in [12, 14, 16, 18] {
        let rows = (0..count).map(|i| Row { time: Some(i), key: Some(0), value: i }).collect();
        let memory = Arc::new(Memory::with("t", vec![rows, Vec::new()]).then(Then::Wait));
        let query = start_with(&memory, Judge(Arc::clone(&sink), None), &log, options(), waiting.clone()).unwrap();
        let is_recorded =
            |record: &EpochRecord| record.sources[0].offset.0 == count.to_string() && record.sources[1].idle;
        until("the new rows are in an epoch in which the other partition rests", || {
            log.durable.lock().last().is_some_and(is_recorded) || query.status().state.is_over()
        });
        query.cancel();
        assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
    }
    let rested: Vec<bool> = log.durable.lock().iter().map(|record| record.sources[1].idle).collect();
    assert!(rested.is_sorted(), "nothing has waited for it again: {rested:?}");
}
