//! Look-ups in tables that are read while the query is there already, and in what a former process has read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use parking_lot::Mutex;
use savanna_streams_api::handle::QueryState;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{Exchange, Output, StageGraph};
use savanna_streams_model::join::Lookup;
use savanna_streams_model::sink::Sink;
use savanna_streams_model::source::{ConnectorInfo, Connectors, ScanSpec, Source};
use savanna_streams_runtime::snapshot::State;
use savanna_streams_runtime::{LookupStore, Query, RuntimeOptions, Survival};

use crate::going_on::{FOREVER, Held, Judge, Log, options, until};
use crate::graphs::{functions, identity, input_schema, scan, scan_stage, sink, table};
use crate::memory::{Memory, MemorySink, Row, rows_of};

/// Tables that were read, in memory.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    kept: Mutex<BTreeMap<(u16, u64), State>>,
    /// What the rows of each version say that it is, also of those that have gone.
    readings: Mutex<BTreeMap<u64, i64>>,
}

impl LookupStore for Tables {
    fn put(&self, lookup: u16, rows: &State) -> Result<u64> {
        let mut kept = self.kept.lock();
        let version = self.readings.lock().last_key_value().map_or(0, |(version, _)| *version) + 1;
        let reading = rows_of(&[rows.tables[0].rows.clone()])[0].value;
        self.readings.lock().insert(version, reading);
        kept.insert((lookup, version), rows.clone());
        Ok(version)
    }

    fn read(&self, lookup: u16, version: u64) -> Result<State> {
        let gone = || StreamError::io(format!("read version {version} of the test's table"), &"it is gone");
        self.kept.lock().get(&(lookup, version)).cloned().ok_or_else(gone)
    }

    fn forget(&self, lookup: u16, version: u64) {
        self.kept.lock().remove(&(lookup, version));
    }

    fn keep_only(&self, lookup: u16, versions: &BTreeSet<u64>) {
        self.kept.lock().retain(|(of, version), _| *of != lookup || versions.contains(version));
    }
}

/// `SELECT * FROM events JOIN side FOR SYSTEM_TIME AS OF .. ON events.k = side.k`
fn graph(refresh: Option<Duration>) -> StageGraph {
    let rows = input_schema();
    let of_side =
        rows.fields().iter().map(|field| Arc::new(Field::clone(field).with_name(format!("side_{}", field.name()))));
    let joined = Arc::new(Schema::new(rows.fields().iter().cloned().chain(of_side).collect::<Vec<_>>()));
    let lookup = Lookup {
        table: ScanSpec::everything(table("side")),
        refresh,
        by_key: None,
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
    let graph = graph(None);
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

/// A query over what is kept, and what its processes leave to the next one.
#[derive(Default)]
struct Kept {
    sink: Held,
    log: Arc<Log>,
    tables: Arc<Tables>,
    readings: Arc<AtomicI64>,
}

impl Kept {
    fn go_on(&self, refresh: Option<Duration>) -> Result<Arc<Query>> {
        self.go_on_over(self.memory(), refresh)
    }

    fn memory(&self) -> Memory {
        let mut memory = Memory::with("events", rows(0..6_000)).and("side", rows(0..6_000));
        memory.count_readings("side", &self.readings);
        memory
    }

    fn go_on_over(&self, memory: impl Connectors + 'static, refresh: Option<Duration>) -> Result<Arc<Query>> {
        let graph = graph(refresh);
        let id = QueryId { code: "0123456789ab".into(), job: 1 };
        let (records, lookups) = (self.log.durable.lock().clone(), Arc::clone(&self.tables) as _);
        let survival = Survival {
            log: Arc::clone(&self.log) as _,
            records,
            snapshots: None,
            lookups,
            found: Ok(None),
            taking: None,
        };
        let sink = Box::new(Judge(Arc::clone(&self.sink), None));
        Query::start_recorded(id, graph, functions(), Arc::new(memory), sink, options(), survival)
    }

    /// Ends the query after some epochs, as a process does that is killed between the records of the last ones and their commits. Tells
    /// whether it had finished before.
    fn killed_after(&self, query: &Query, epochs: usize) -> bool {
        let before = self.sink.lock().len();
        let over = || query.status().state.is_over();
        until("it comes on", || self.sink.lock().len() >= before + epochs || over());
        query.cancel();
        let finished = query.wait_timeout(FOREVER).unwrap().unwrap().state == QueryState::Finished;
        let known = self.log.all.lock().iter().map(|record| record.committed).max().unwrap_or_default();
        if !finished {
            self.sink.lock().retain(|epoch, _| *epoch <= known);
        }
        finished
    }

    fn written(&self, epoch: Epoch) -> Vec<Row> {
        let sink = self.sink.lock();
        let side = |batch: &RecordBatch| batch.project(&[3, 4, 5]).unwrap();
        rows_of(&sink[&epoch].iter().map(side).collect::<Vec<_>>())
    }
}

#[test]
fn a_query_that_goes_on_looks_up_in_what_it_has_read_and_reads_no_table_again() {
    let kept = Kept::default();
    let mut runs = 1;
    while !kept.killed_after(&kept.go_on(None).unwrap(), 9) {
        runs += 1;
    }
    assert!(runs > 2, "{runs} runs");
    let epochs: Vec<Epoch> = kept.sink.lock().keys().copied().collect();
    let written: Vec<Row> = epochs.iter().flat_map(|epoch| kept.written(*epoch)).collect();
    let keys: BTreeSet<_> = written.iter().map(|row| row.key).collect();
    assert_eq!((written.len(), keys.len()), (6_000, 6_000));
    assert!(written.iter().all(|row| row.value == 1), "all rows met the first reading");
    assert_eq!(kept.readings.load(Ordering::Acquire), 1);
}

#[test]
fn each_epoch_has_one_version_of_a_table_that_is_read_anew_and_a_replay_has_the_same() {
    let kept = Kept::default();
    let refresh = Some(Duration::from_millis(1));
    let mut runs = 1;
    while !kept.killed_after(&kept.go_on(refresh).unwrap(), 25) {
        runs += 1;
    }
    assert!(runs > 2, "{runs} runs");
    let mut seen = BTreeSet::new();
    let (mut rows, mut last) = (0, 0);
    for record in kept.log.all.lock().iter() {
        let epoch = record.epoch;
        let [version] = record.lookups[..] else { panic!("{record:?}") };
        let reading = kept.tables.readings.lock()[&version];
        assert!(version >= last, "epoch {epoch} has an older version than the one before it");
        last = version;
        let written = kept.written(epoch);
        assert!(written.iter().all(|row| row.value == reading), "epoch {epoch} was looked up in version {version}");
        rows += written.len();
        seen.insert(reading);
    }
    assert_eq!(rows, 6_000);
    assert!(seen.len() > 2, "it was read anew: {seen:?}");
}

/// How often tables were read anew.
fn refreshes(query: &Query) -> f64 {
    query.status().more["lookup_refreshes"]
}

#[test]
fn a_table_that_is_read_anew_while_no_rows_come_is_kept_no_more_than_twice() {
    let kept = Kept::default();
    let mut memory = kept.memory();
    let gate = memory.gate("events");
    let query = kept.go_on_over(memory, Some(Duration::from_millis(1))).unwrap();
    until("it was read anew", || refreshes(&query) >= 100.0);
    let versions = kept.tables.kept.lock().len();
    assert!(versions <= 2, "{versions} versions of 100 are kept");
    gate.store(true, Ordering::Release);
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Finished);
    let epochs: Vec<Epoch> = kept.sink.lock().keys().copied().collect();
    let written: Vec<Row> = epochs.iter().flat_map(|epoch| kept.written(*epoch)).collect();
    assert_eq!(written.len(), 6_000);
    assert!(written.iter().all(|row| row.value >= 100), "rows met what was read last before they came");
}

/// Connectors whose table of a look-up has one part until it has grown.
#[derive(Debug)]
struct Growing {
    memory: Memory,
    has_grown: Arc<AtomicBool>,
}

impl Connectors for Growing {
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        let mut source = self.memory.tables[&table.name].clone();
        if table.name == "side" && !self.has_grown.load(Ordering::Acquire) {
            source.partitions = Arc::new(source.partitions[..1].to_vec());
        }
        Ok(Arc::new(source))
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        self.memory.sink(table, schema)
    }

    fn check(&self, _: &mut TableDef) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }
}

#[test]
fn a_table_that_is_read_anew_has_the_parts_that_it_has_then() {
    let kept = Kept::default();
    let parts = [0..1_000, 1_000..3_000, 3_000..6_000].map(|keys| rows(keys).remove(0)).to_vec();
    let mut memory = Memory::with("events", rows(0..6_000)).and("side", parts);
    let gate = memory.gate("events");
    let has_grown = Arc::new(AtomicBool::new(false));
    let growing = Growing { memory, has_grown: Arc::clone(&has_grown) };
    let query = kept.go_on_over(growing, Some(Duration::from_millis(1))).unwrap();
    until("it is read", || query.status().state != QueryState::Loading);
    has_grown.store(true, Ordering::Release);
    let before = refreshes(&query);
    until("it was read anew", || refreshes(&query) >= before + 2.0);
    gate.store(true, Ordering::Release);
    let status = query.wait_timeout(FOREVER).unwrap().unwrap();
    assert_eq!((status.state, status.result_rows), (QueryState::Finished, 6_000));
}

#[test]
fn a_table_that_was_kept_and_is_gone_keeps_its_query_from_going_on() {
    let kept = Kept::default();
    assert!(!kept.killed_after(&kept.go_on(None).unwrap(), 5));
    kept.tables.kept.lock().clear();
    let error = kept.go_on(None).unwrap_err().to_string();
    assert!(error.contains("read version 1 of the test's table"), "{error}");
    assert_eq!(kept.readings.load(Ordering::Acquire), 1);
}
