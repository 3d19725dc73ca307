//! The memory that a query says it holds, and the bound on it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::{Mode, Query, RuntimeOptions};

use crate::graphs::{functions, identity, input_schema, scan, window, windowed};
use crate::memory::{Memory, MemorySink, Row, Then};

/// Far beyond what any of these tests needs; only a hang reaches it.
const FOREVER: Duration = Duration::from_secs(600);

/// Held by the tests that hold much, so that they do not disturb each other.
static LARGE: Mutex<()> = Mutex::new(());

/// Rows of one long window, each with a key of its own.
fn keys(count: i64) -> Vec<Vec<Row>> {
    vec![(0..count).map(|key| Row { time: Some(key % 1000), key: Some(key), value: key }).collect()]
}

fn start(memory: Memory, options: RuntimeOptions) -> Result<Arc<Query>> {
    let graph = windowed(scan("t", 0), identity(&input_schema()), window(1_000_000, 1_000_000, 0), true);
    let id = QueryId { code: graph.code(), job: 1 };
    Query::start(id, graph, functions(), Arc::new(memory), Box::new(MemorySink::default()), options)
}

fn options(mode: Mode) -> RuntimeOptions {
    let mut options = RuntimeOptions { mode, batch_rows: 1000, ..RuntimeOptions::default() };
    options.epoch.fixed_events = Some(10_000);
    options
}

#[test]
fn a_query_above_its_memory_limit_fails_and_names_the_operator() {
    let _alone = LARGE.lock();
    for (mode, operator) in
        [(Mode::Serverless, "windowed aggregate (stage 1)"), (Mode::Provisioned, "scan of t (stage 0)")]
    {
        let memory_limit = Some(24 << 20);
        let run = |rows| {
            let query = start(Memory::with("t", keys(rows)), RuntimeOptions { memory_limit, ..options(mode) }).unwrap();
            query.wait_timeout(FOREVER)
        };
        assert!(run(10_000).unwrap().is_some(), "a small query runs");
        let error = run(1_000_000).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, StreamError::Limit { .. }), "{text}");
        assert!(text.contains("above its memory-limit of 24.0 MiB") && text.contains(operator), "{text}");
    }
}

/// The resident set in bytes.
#[cfg(target_os = "linux")]
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

/// Other tests of this process hold little beside a million groups.
#[test]
#[cfg(target_os = "linux")]
fn accounted_memory_is_near_the_growth_of_the_process() {
    const ROWS: i64 = 1_000_000;
    let _alone = LARGE.lock();
    for mode in [Mode::Serverless, Mode::Provisioned] {
        let memory = Memory::with("t", keys(ROWS)).then(Then::Wait);
        let before = resident();
        let query = start(memory, options(mode)).unwrap();
        // All rows are in epochs that are committed; the window is open.
        while query.status().epoch * 10_000 < ROWS as u64 {
            std::thread::yield_now();
        }
        let accounted = query.status().state_bytes as f64;
        let ratio = (resident() - before) / accounted;
        assert!((0.5..2.0).contains(&ratio), "{mode:?}: {accounted} bytes accounted, {ratio} of it resident");
        query.cancel();
        query.wait().unwrap();
    }
}
