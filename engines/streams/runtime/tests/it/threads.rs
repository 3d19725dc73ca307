//! How many threads queries have, and that a slow sink keeps no other query waiting.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use arrow::array::RecordBatch;
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_runtime::{Query, RuntimeOptions};

use crate::graphs::{functions, identity, input_schema, scan, window, windowed};
use crate::memory::{Memory, MemorySink, Row, Then};

/// Queries at once.
const QUERIES: u64 = 200;

/// How many threads of this process have a name that begins so.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("the kernel lists threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

fn start(job: u64, then: Then, sink: Box<dyn Sink>) -> Arc<Query> {
    let graph = windowed(scan("t", 0), identity(&input_schema()), window(1_000, 1_000, 0), true);
    let rows = (0..10).map(|i| Row { time: Some(i * 1_000), key: Some(1), value: i }).collect();
    let connectors = Arc::new(Memory::with("t", vec![rows, vec![]]).then(then));
    let options = RuntimeOptions { source_partitions: 2, ..RuntimeOptions::default() };
    let id = QueryId { code: graph.code(), job };
    Query::start(id, graph, functions(), connectors, sink, options).unwrap()
}

#[test]
fn queries_that_wait_share_a_few_threads() {
    let queries: Vec<_> = (0..QUERIES).map(|job| start(job, Then::Wait, Box::new(MemorySink::default()))).collect();
    while queries.iter().any(|query| query.status().events < 10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Other tests of this process have queries of theirs.
    assert!(threads("query-scan") < 50, "{}", threads("query-scan"));
    assert_eq!(threads("query-drivers"), 1);
    queries.iter().for_each(|query| query.cancel());
    queries.iter().for_each(|query| drop(query.wait()));
}

/// Takes its first epoch for as long as nobody lets it go on.
struct Stuck {
    began: Sender<()>,
    may_go_on: Receiver<()>,
}

impl Sink for Stuck {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, _: &[RecordBatch]) -> Result<()> {
        let _ = self.began.send(());
        // Ends when the test does.
        let _ = self.may_go_on.recv();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}

#[test]
fn sinks_that_are_stuck_keep_no_other_query_waiting() {
    const STUCK: u64 = 20;
    let (began, begins) = channel();
    let mut let_go = Vec::new();
    let mut stuck = Vec::new();
    for job in 0..STUCK {
        let (go_on, may_go_on) = channel();
        let_go.push(go_on);
        let sink = Stuck { began: began.clone(), may_go_on };
        stuck.push(start(QUERIES + job, Then::End, Box::new(sink)));
    }
    for _ in 0..STUCK {
        begins.recv().unwrap();
    }
    for job in 0..10 {
        let sink = MemorySink::default();
        let other = start(QUERIES + STUCK + job, Then::End, Box::new(sink));
        assert_eq!(other.wait().unwrap().events, 10);
    }
    drop(let_go);
    for query in stuck {
        assert_eq!(query.wait().unwrap().events, 10);
    }
}
