//! Look-ups in tables that are read while the query is there already.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::datatypes::{Field, Schema};
use savanna_streams_api::Result;
use savanna_streams_api::handle::QueryState;
use savanna_streams_api::ids::QueryId;
use savanna_streams_model::graph::{Exchange, Output, StageGraph};
use savanna_streams_model::join::Lookup;
use savanna_streams_model::source::ScanSpec;
use savanna_streams_runtime::{Query, RuntimeOptions};

use crate::graphs::{functions, identity, input_schema, scan, scan_stage, sink, table};
use crate::memory::{Memory, MemorySink, Row};

/// `SELECT * FROM events JOIN side FOR SYSTEM_TIME AS OF .. ON events.k = side.k`
fn graph() -> StageGraph {
    let rows = input_schema();
    let of_side =
        rows.fields().iter().map(|field| Arc::new(Field::clone(field).with_name(format!("side_{}", field.name()))));
    let joined = Arc::new(Schema::new(rows.fields().iter().cloned().chain(of_side).collect::<Vec<_>>()));
    let lookup = Lookup {
        table: ScanSpec::everything(table("side")),
        chain: identity(&rows),
        outer: false,
        stream_keys: vec![1],
        table_keys: vec![1],
        condition: None,
        after: identity(&joined),
    };
    let output = Output { lookups: vec![lookup], ..Output::rows(identity(&rows)) };
    let stages = vec![scan_stage(0, scan("events", 0), output, Exchange::Single, 1), sink(1, &[0])];
    StageGraph { stages, output: joined.as_ref().clone() }
}

fn rows(keys: std::ops::Range<i64>) -> Vec<Vec<Row>> {
    vec![keys.map(|key| Row { time: Some(key), key: Some(key), value: key }).collect()]
}

fn start(memory: Memory) -> Result<Arc<Query>> {
    let graph = graph();
    let id = QueryId { code: graph.code(), job: 1 };
    let sink = Box::new(MemorySink::default());
    Query::start(id, graph, functions(), Arc::new(memory), sink, RuntimeOptions::default())
}

#[test]
fn a_query_says_that_it_waits_for_the_tables_that_it_looks_up_in() {
    let mut memory = Memory::with("events", rows(0..10)).and("side", rows(5..100));
    let gate = memory.gate("side");
    let query = start(memory).unwrap();
    let status = query.status();
    assert_eq!((status.state, status.events), (QueryState::Loading, 0));
    gate.store(true, Ordering::Release);
    let status = query.wait().unwrap();
    assert_eq!((status.state, status.result_rows), (QueryState::Finished, 5));
    assert_eq!(status.more["lookup_rows"], 95.0);
}

#[test]
fn a_query_that_waits_for_its_tables_can_be_cancelled() {
    let mut memory = Memory::with("events", rows(0..10)).and("side", rows(0..10));
    memory.gate("side");
    let query = start(memory).unwrap();
    query.cancel();
    assert_eq!(query.wait().unwrap().state, QueryState::Cancelled);
}
