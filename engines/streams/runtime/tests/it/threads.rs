//! How many threads queries have.

use std::fs;
use std::sync::Arc;

use savanna_streams_api::ids::QueryId;
use savanna_streams_runtime::{Query, RuntimeOptions};

use crate::graphs::{functions, identity, input_schema, scan, window, windowed};
use crate::memory::{Memory, MemorySink, Then};

/// Queries at once.
const QUERIES: u64 = 100;
/// The kernel keeps so many bytes of a thread's name.
const NAME_MAX: usize = 15;

/// How many threads of this process have a name that begins so.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("the kernel lists threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

#[test]
fn each_source_partition_has_a_thread_and_all_queries_one_driver() {
    // No other test has windows of this length, so no other has the names of these threads.
    let graph = windowed(scan("t", 0), identity(&input_schema()), window(7_919, 7_919, 0), true);
    let start = |job| {
        let connectors = Arc::new(Memory::with("t", vec![vec![], vec![]]).then(Then::Wait));
        let options = RuntimeOptions { source_partitions: 2, ..RuntimeOptions::default() };
        let id = QueryId { code: graph.code(), job };
        Query::start(id, graph.clone(), functions(), connectors, Box::new(MemorySink::default()), options).unwrap()
    };
    let queries: Vec<_> = (0..QUERIES).map(start).collect();
    let name = queries[0].status().query.to_string();
    let name = &name[..name.find('-').expect("code and job").min(NAME_MAX)];
    // A thread takes its name when it begins.
    while threads(name) < 2 * QUERIES as usize {
        std::thread::yield_now();
    }
    assert_eq!(threads(name), 2 * QUERIES as usize);
    assert_eq!(threads("query-drivers"), 1);
    queries.iter().for_each(|query| query.cancel());
    queries.iter().for_each(|query| drop(query.wait()));
}
