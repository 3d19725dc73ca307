//! A query that fails, or is cancelled, ends: once, soon, with the first error.

use std::sync::Arc;
use std::time::Duration;

use savanna_streams_api::StreamError;
use savanna_streams_api::handle::QueryState;
use savanna_streams_api::ids::{Epoch, MemberId, QueryId};
use savanna_streams_model::payload::Payload;
use savanna_streams_runtime::invoker::{Functions, InvokeError, Invoker};
use savanna_streams_runtime::{InvokerChoice, Query, RuntimeOptions};

use crate::graphs::{functions, identity, input_schema, scan, window, windowed};
use crate::memory::{Memory, MemorySink, Row, Then};

/// Far beyond what any of these tests needs; only a hang reaches it.
const FOREVER: Duration = Duration::from_secs(600);

fn rows(count: i64) -> Vec<Vec<Row>> {
    (0..2).map(|_| (0..count).map(|i| Row { time: Some(i), key: Some(i % 3), value: i }).collect()).collect()
}

fn options() -> RuntimeOptions {
    let mut options = RuntimeOptions { members: 2, batch_rows: 4, ..RuntimeOptions::default() };
    options.epoch.fixed_events = Some(8);
    options
}

fn start(memory: Memory, sink: MemorySink, options: RuntimeOptions) -> Result<Arc<Query>, StreamError> {
    let graph = windowed(scan("t", 0), identity(&input_schema()), window(10, 10, 0), true);
    let id = QueryId { code: graph.code(), job: 1 };
    Query::start(id, graph, functions(), Arc::new(memory), Box::new(sink), options)
}

/// The error with which a query ends.
fn error_of(memory: Memory, sink: MemorySink, options: RuntimeOptions) -> StreamError {
    let finished = Arc::clone(&sink.finished);
    let query = start(memory, sink, options).unwrap();
    let error = query.wait_timeout(FOREVER).unwrap_err();
    assert_eq!(query.status().state, QueryState::Failed);
    assert_eq!(query.status().error.as_ref(), Some(&error));
    assert_eq!(query.wait(), Err(error.clone()), "asked again, it tells the same");
    assert!(!*finished.lock(), "a sink of a failed query is not finished");
    error
}

#[test]
fn an_error_of_the_source_fails_the_query() {
    let error = error_of(Memory::with("t", rows(20)).then(Then::Fail), MemorySink::default(), options());
    assert!(error.to_string().contains("reading the test's source"), "{error}");
}

#[test]
fn an_error_of_the_sink_fails_the_query() {
    let sink = MemorySink { fail_at: Some(Epoch(2)), ..MemorySink::default() };
    let committed = Arc::clone(&sink.rows);
    let error = error_of(Memory::with("t", rows(50)), sink, options());
    assert!(error.to_string().contains("writing the test's sink"), "{error}");
    assert_eq!(committed.lock().len(), 1, "no epoch is committed behind the one that failed");
}

#[test]
fn a_panic_in_a_thread_fails_the_query() {
    let error = error_of(Memory::with("t", rows(20)).then(Then::Panic), MemorySink::default(), options());
    assert!(matches!(&error, StreamError::Internal(text) if text.contains("injected")), "{error}");
}

#[derive(Debug)]
struct Deaf;

impl Invoker for Deaf {
    fn invoke(&self, _: &dyn Functions, _: &MemberId, _: Payload) -> Result<(), InvokeError> {
        Ok(())
    }
}

#[derive(Debug)]
struct AlwaysBusy;

impl Invoker for AlwaysBusy {
    fn invoke(&self, _: &dyn Functions, _: &MemberId, _: Payload) -> Result<(), InvokeError> {
        Err(InvokeError::Busy("too many requests".into()))
    }
}

#[test]
fn a_platform_that_loses_everything_fails_the_query() {
    let invoker = InvokerChoice::Custom(Arc::new(Deaf));
    let options = RuntimeOptions { invoker, replay_timeout: Duration::from_millis(1), ..options() };
    let error = error_of(Memory::with("t", rows(20)), MemorySink::default(), options);
    assert_eq!(error.sqlstate(), "53000", "{error}");
}

#[test]
fn cancelling_ends_a_query_that_waits_for_its_source() {
    let sink = MemorySink::default();
    let (committed, finished) = (Arc::clone(&sink.rows), Arc::clone(&sink.finished));
    let mut options = options();
    options.epoch.fixed_events = None;
    options.epoch.target = Duration::from_millis(1);
    let query = start(Memory::with("t", rows(25)).then(Then::Wait), sink, options).unwrap();
    assert_eq!(query.wait_timeout(Duration::ZERO), Ok(None));
    while query.status().windows < 2 {
        std::thread::yield_now();
    }
    query.cancel();
    let status = query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!(status.state, QueryState::Cancelled);
    assert_eq!(status.result_rows, 6, "two windows of three keys; the open window is not fired");
    assert_eq!(committed.lock().iter().flat_map(|(_, rows)| rows).map(|rows| rows.num_rows()).sum::<usize>(), 6);
    assert!(*finished.lock(), "what is committed is flushed");
}

#[test]
fn cancelling_ends_a_query_whose_platform_is_busy() {
    let options =
        RuntimeOptions { invoker: InvokerChoice::Custom(Arc::new(AlwaysBusy)), backoff_sleep: |_| (), ..options() };
    let query = start(Memory::with("t", rows(25)), MemorySink::default(), options).unwrap();
    query.cancel();
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
}

#[test]
fn dropping_a_query_ends_it() {
    let query = start(Memory::with("t", rows(5)).then(Then::Wait), MemorySink::default(), options()).unwrap();
    drop(query);
}

#[test]
fn a_sink_that_knows_the_query_is_refused() {
    let sink = MemorySink { held: Some(Epoch(3)), ..MemorySink::default() };
    let error = start(Memory::with("t", rows(5)), sink, options()).unwrap_err();
    assert!(error.to_string().contains("holds epoch 3"), "{error}");
}

#[test]
fn a_query_without_rows_finishes() {
    let query = start(Memory::with("t", vec![Vec::new(); 3]), MemorySink::default(), options()).unwrap();
    let status = query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!((status.state, status.events, status.result_rows), (QueryState::Finished, 0, 0));
}

#[test]
fn the_status_tells_work_and_its_price() {
    let query = start(Memory::with("t", rows(25)), MemorySink::default(), options()).unwrap();
    let status = query.wait().unwrap();
    assert_eq!((status.events, status.windows, status.result_rows, status.state_bytes), (50, 3, 9, 0));
    // Per epoch: two scans, two payloads to each of two members, one of each of these to the sink.
    assert_eq!(status.invocations, status.epoch * (2 + 4 + 2));
    assert!(status.billed_ms >= status.invocations);
    assert!(status.cpu_seconds > 0.0 && status.seconds > 0.0);
    assert_eq!(status.watermark, Some(24_000));
    let record = query.last_record().unwrap();
    assert_eq!(record.epoch.0, status.epoch);
    assert!(record.sources.iter().all(|source| source.ended && source.offset.0 == "25"));
}
