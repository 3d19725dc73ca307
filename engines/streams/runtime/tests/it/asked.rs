//! Look-ups in a table that is asked for the rows of keys: against what it answered, and against what a query keeps of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef};
use parking_lot::{Condvar, Mutex};
use savanna_streams_api::handle::{QueryState, QueryStatus};
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{Exchange, Output, StageGraph};
use savanna_streams_model::join::{ByKey, CacheBounds, Lookup};
use savanna_streams_model::sink::{GiveUp, Sink};
use savanna_streams_model::source::{ConnectorInfo, Connectors, KeyedReader, Offset, ScanSpec, Source, SourceReader};
use savanna_streams_runtime::snapshot::State;
use savanna_streams_runtime::{LookupStore, Query, RuntimeOptions, Survival};

use crate::going_on::{FOREVER, Held, Judge, Log, options, until};
use crate::graphs::{
    functions, identity, input_schema, scan, scan_stage, sink, table, window, windowed, windowed_schema,
};
use crate::memory::{Memory, MemorySink, Row, batch, rows_of};

/// Keys from here on have no rows.
const KNOWN: i64 = 40;

/// A table of which a key has one row or two. Their value says in which request they were asked for.
#[derive(Debug, Default)]
struct Service {
    requests: AtomicI64,
    /// Keys of all requests.
    asked: Mutex<Vec<Vec<i64>>>,
    /// Nobody is answered while it is set.
    is_away: AtomicBool,
    given_up: Mutex<bool>,
    changed: Condvar,
}

#[derive(Clone, Debug)]
struct Side(Arc<Service>);

impl Source for Side {
    fn bounded(&self) -> bool {
        true
    }

    fn replayable(&self) -> bool {
        false
    }

    fn partitions(&self, _: usize) -> Result<usize> {
        Ok(1)
    }

    fn open(&self, _: &ScanSpec, _: usize, _: usize, _: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        Err(StreamError::Internal("it is never read as a whole".into()))
    }

    fn by_key(&self, _: &ScanSpec, key: &ByKey) -> Result<Box<dyn KeyedReader>> {
        assert_eq!(key.columns, ["k"]);
        Ok(Box::new(self.clone()))
    }
}

impl KeyedReader for Side {
    fn rows(&mut self, keys: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let mut given_up = self.0.given_up.lock();
        while self.0.is_away.load(Ordering::Acquire) && !*given_up {
            self.0.changed.wait(&mut given_up);
        }
        if *given_up {
            return Err(StreamError::Cancelled);
        }
        drop(given_up);
        let request = self.0.requests.fetch_add(1, Ordering::AcqRel) + 1;
        let column = keys.column(0).as_primitive::<Int64Type>();
        assert_eq!(column.null_count(), 0, "NULL has no rows");
        let keys = column.values().to_vec();
        self.0.asked.lock().push(keys.clone());
        let row = |time: i64| move |key: &i64| Row { time: Some(time), key: Some(*key), value: request };
        let known = || keys.iter().filter(|key| (0..KNOWN).contains(*key));
        // In another order than they were asked for, with one that nobody asked for.
        let one: Vec<Row> = known().rev().map(row(1)).chain([row(7)(&1_000_000)]).collect();
        let two: Vec<Row> = known().filter(|key| *key % 3 == 0).map(row(2)).collect();
        Ok(vec![batch(&one), batch(&two)])
    }

    fn give_up(&self) -> GiveUp {
        let service = Arc::clone(&self.0);
        Arc::new(move || {
            *service.given_up.lock() = true;
            service.changed.notify_all();
        })
    }
}

#[derive(Debug)]
struct Asks {
    memory: Memory,
    side: Arc<Service>,
}

impl Connectors for Asks {
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        match table.name.as_str() {
            "side" => Ok(Arc::new(Side(Arc::clone(&self.side)))),
            name => Ok(Arc::new(self.memory.tables[name].clone())),
        }
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

/// A look-up of the stream's column `key` in the table, behind which come these columns and the table's.
fn lookup(stream: &SchemaRef, key: usize, outer: bool, cache: Option<CacheBounds>) -> (Lookup, SchemaRef) {
    let rows = input_schema();
    let of_side = rows
        .fields()
        .iter()
        .map(|field| Arc::new(Field::clone(field).with_name(format!("side_{}", field.name())).with_nullable(true)));
    let joined = Arc::new(Schema::new(stream.fields().iter().cloned().chain(of_side).collect::<Vec<_>>()));
    let lookup = Lookup {
        table: ScanSpec::everything(table("side")),
        refresh: None,
        by_key: Some(ByKey { columns: vec!["k".into()], cache, patience: Duration::from_secs(5) }),
        chain: identity(&rows),
        outer,
        stream_keys: vec![key],
        table_keys: vec![1],
        condition: None,
        after: identity(&joined),
    };
    (lookup, joined)
}

/// `SELECT * FROM events JOIN side FOR SYSTEM_TIME AS OF .. ON events.k = side.k`
fn graph(outer: bool, cache: Option<CacheBounds>) -> StageGraph {
    let (lookup, joined) = lookup(&input_schema(), 1, outer, cache);
    let output = Output { lookups: vec![lookup], ..Output::rows(identity(&input_schema())) };
    let stages = vec![scan_stage(0, scan("events", 0), output, Exchange::Single, 1), sink(1, &[0])];
    StageGraph { stages, output: joined.as_ref().clone() }
}

/// Windows of the events, each of which meets the table's rows of its key.
fn graph_of_windows(cache: Option<CacheBounds>) -> StageGraph {
    let (lookup, joined) = lookup(&windowed_schema(true), 0, false, cache);
    let mut graph = windowed(scan("events", 0), identity(&input_schema()), window(40, 40, 0), true);
    graph.stages[1].output.as_mut().unwrap().lookups.push(lookup);
    StageGraph { output: joined.as_ref().clone(), ..graph }
}

fn long(max_rows: usize) -> Option<CacheBounds> {
    Some(CacheBounds { max_rows, ttl: Duration::from_secs(3600) })
}

/// Rows of some partitions with keys up to half as many again as have rows, and some without a key.
fn events(partitions: i64, count: i64) -> Vec<Vec<Row>> {
    let key = |i: i64| (i % 11 != 5).then_some(i * 7 % (KNOWN + KNOWN / 2));
    let rows = |from: i64| (0..count).map(|i| Row { time: Some(i), key: key(i + from), value: i }).collect();
    (0..partitions).map(rows).collect()
}

fn run(graph: StageGraph, partitions: i64, options: RuntimeOptions) -> (Vec<RecordBatch>, QueryStatus, Arc<Service>) {
    let side = Arc::<Service>::default();
    let asks = Asks { memory: Memory::with("events", events(partitions, 500)), side: Arc::clone(&side) };
    let id = QueryId { code: graph.code(), job: 1 };
    let sink = MemorySink::default();
    let rows = Arc::clone(&sink.rows);
    let query = Query::start(id, graph, functions(), Arc::new(asks), Box::new(sink), options).unwrap();
    let status = query.wait_timeout(FOREVER).unwrap().expect("it ends");
    assert_eq!(status.state, QueryState::Finished, "{:?}", status.error);
    let rows = rows.lock().iter().flat_map(|(_, rows)| rows.clone()).collect();
    (rows, status, side)
}

/// Time and key of a stream's row, and time and key of its partner.
type Pair = ((Option<i64>, Option<i64>, i64), Option<(i64, i64)>);

fn pairs(rows: &[RecordBatch]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for batch in rows {
        let own = rows_of(&[batch.project(&[0, 1, 2]).unwrap()]);
        let partners = batch.project(&[3, 4, 5]).unwrap();
        for (row, own) in own.into_iter().enumerate() {
            let partner = partners.column(1).is_valid(row).then(|| {
                let [partner] = rows_of(&[partners.slice(row, 1)]).try_into().unwrap();
                (partner.time.unwrap(), partner.key.unwrap())
            });
            pairs.push(((own.time, own.key, own.value), partner));
        }
    }
    pairs.sort_unstable();
    pairs
}

fn expected(partitions: i64, outer: bool) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for row in events(partitions, 500).concat() {
        let own = (row.time, row.key, row.value);
        match row.key.filter(|key| *key < KNOWN) {
            Some(key) => {
                pairs.push((own, Some((1, key))));
                pairs.extend((key % 3 == 0).then_some((own, Some((2, key)))));
            }
            None => pairs.extend(outer.then_some((own, None))),
        }
    }
    pairs.sort_unstable();
    pairs
}

#[test]
fn rows_meet_what_the_table_answers_for_their_keys_whatever_is_kept_of_it() {
    for (outer, partitions, cache) in
        [(false, 1, None), (true, 1, long(1_000)), (true, 3, long(7)), (false, 3, long(1)), (true, 2, None)]
    {
        let (rows, status, side) = run(graph(outer, cache), partitions, options());
        assert_eq!(pairs(&rows), expected(partitions, outer), "{outer} {partitions} {cache:?}");
        let asked = side.asked.lock();
        for keys in asked.iter() {
            let distinct: BTreeSet<&i64> = keys.iter().collect();
            assert_eq!(distinct.len(), keys.len(), "a request names each key once: {keys:?}");
        }
        let keys: usize = asked.iter().map(Vec::len).sum();
        assert_eq!(status.more["lookup_requests"], asked.len() as f64);
        assert_eq!(status.more["lookup_keys_asked"], keys as f64);
    }
}

#[test]
fn a_key_is_asked_for_once_while_its_answer_is_kept() {
    let one = RuntimeOptions { batch_rows: 16, ..RuntimeOptions::default() };
    let (_, status, side) = run(graph(false, long(1_000)), 1, one.clone());
    let asked = side.asked.lock().concat();
    let distinct: BTreeSet<i64> = asked.iter().copied().collect();
    assert_eq!(asked.len(), distinct.len(), "also those that have no rows");
    assert!(status.more["lookup_cache_hits"] > 100.0, "{:?}", status.more);
    let (_, status, side) = run(graph(false, None), 1, one);
    assert!(side.asked.lock().concat().len() > distinct.len() * 2);
    assert_eq!(status.more["lookup_cache_hits"], 0.0);
}

#[test]
fn a_query_that_waits_for_the_table_can_be_cancelled() {
    let side = Arc::new(Service { is_away: AtomicBool::new(true), ..Service::default() });
    let asks = Asks { memory: Memory::with("events", events(2, 100)), side: Arc::clone(&side) };
    let graph = graph(true, long(10));
    let id = QueryId { code: graph.code(), job: 1 };
    let sink = Box::new(MemorySink::default());
    let query = Query::start(id, graph, functions(), Arc::new(asks), sink, RuntimeOptions::default()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(query.status().state, QueryState::Running);
    query.cancel();
    assert_eq!(query.wait_timeout(FOREVER).unwrap().unwrap().state, QueryState::Cancelled);
    assert!(*side.given_up.lock());
}

/// What was answered, in memory.
#[derive(Debug, Default)]
struct Answers {
    kept: Mutex<BTreeMap<u64, State>>,
    /// All that were ever there.
    all: Mutex<BTreeMap<u64, State>>,
    is_full: AtomicBool,
}

impl LookupStore for Answers {
    fn put(&self, _: u16, rows: &State) -> Result<u64> {
        if self.is_full.load(Ordering::Acquire) {
            return Err(StreamError::io("keep answers of the test", &"the disk is full"));
        }
        let mut all = self.all.lock();
        let version = all.last_key_value().map_or(0, |(version, _)| *version) + 1;
        all.insert(version, rows.clone());
        self.kept.lock().insert(version, rows.clone());
        Ok(version)
    }

    fn read(&self, _: u16, version: u64) -> Result<State> {
        let gone = || StreamError::io(format!("read version {version} of the test's answers"), &"it is gone");
        self.kept.lock().get(&version).cloned().ok_or_else(gone)
    }

    fn forget(&self, _: u16, version: u64) {
        self.kept.lock().remove(&version);
    }

    fn keep_only(&self, _: u16, versions: &BTreeSet<u64>) {
        self.kept.lock().retain(|version, _| versions.contains(version));
    }
}

/// A query over what is kept, and what its processes leave to the next one.
#[derive(Default)]
struct Kept {
    sink: Held,
    log: Arc<Log>,
    answers: Arc<Answers>,
    side: Arc<Service>,
}

impl Kept {
    fn go_on(&self, graph: StageGraph) -> Arc<Query> {
        *self.side.given_up.lock() = false;
        let asks = Asks { memory: Memory::with("events", events(2, 4_000)), side: Arc::clone(&self.side) };
        let id = QueryId { code: "0123456789ab".into(), job: 1 };
        let survival = Survival {
            log: Arc::clone(&self.log) as _,
            records: self.log.durable.lock().clone(),
            snapshots: None,
            lookups: Arc::clone(&self.answers) as _,
            found: Ok(None),
            emptied: None,
        };
        let sink = Box::new(Judge(Arc::clone(&self.sink), None));
        Query::start_recorded(id, graph, functions(), Arc::new(asks), sink, options(), survival).unwrap()
    }

    /// Runs until it is over, in processes that are killed between the records of their last epochs and their commits. Tells how many.
    fn run(&self, graph: &StageGraph, epochs: usize) -> usize {
        let mut runs = 0;
        loop {
            runs += 1;
            let query = self.go_on(graph.clone());
            let before = self.sink.lock().len();
            let over = || query.status().state.is_over();
            until("it comes on", || self.sink.lock().len() >= epochs.saturating_add(before) || over());
            query.cancel();
            let status = query.wait_timeout(FOREVER).unwrap().unwrap();
            assert!(status.error.is_none(), "{:?}", status.error);
            if status.state == QueryState::Finished {
                return runs;
            }
            let known = self.log.all.lock().iter().map(|record| record.committed).max().unwrap_or_default();
            self.sink.lock().retain(|epoch, _| *epoch <= known);
        }
    }

    /// Checks that the rows of each epoch met what was kept of it, and nothing else. `own` are the columns of the stream.
    fn check(&self, own: usize, key: usize) {
        let (mut requests, mut rows) = (BTreeSet::new(), 0);
        let sink = self.sink.lock();
        for record in self.log.all.lock().iter() {
            let epoch = record.epoch;
            let [version] = record.lookups[..] else { panic!("{record:?}") };
            let state = &self.answers.all.lock()[&version];
            let is_of_epoch = state.marks["epoch"] == epoch.0 as i64;
            let [keys, kept] = &state.tables[..] else { panic!("{state:?}") };
            let keys = keys.rows.column(0).as_primitive::<Int64Type>().values();
            let mut told: BTreeMap<i64, BTreeSet<(Option<i64>, i64)>> =
                keys.iter().map(|key| (*key, BTreeSet::new())).collect();
            for row in rows_of(std::slice::from_ref(&kept.rows)) {
                told.get_mut(&row.key.unwrap())
                    .expect("a row of a key that was asked for")
                    .insert((row.time, row.value));
            }
            for batch in &sink[&epoch] {
                let of_side = rows_of(&[batch.project(&[own, own + 1, own + 2]).unwrap()]);
                let own_keys = batch.column(key).as_primitive::<Int64Type>();
                for (row, side) in of_side.into_iter().enumerate() {
                    assert!(is_of_epoch, "epoch {epoch} looked up, and nothing was kept of it");
                    assert_eq!(side.key, Some(own_keys.value(row)));
                    let told = told.get(&own_keys.value(row)).expect("what was answered is kept");
                    assert!(told.contains(&(side.time, side.value)), "epoch {epoch}: {side:?} is not among {told:?}");
                    requests.insert(side.value);
                    rows += 1;
                }
            }
        }
        assert!(rows > 100 && requests.len() > 10, "{rows} rows of {} requests", requests.len());
    }
}

#[test]
fn an_epoch_that_is_computed_again_meets_what_was_answered_in_it() {
    for cache in [None, long(20), Some(CacheBounds { max_rows: 1_000, ttl: Duration::from_micros(300) })] {
        let kept = Kept::default();
        let runs = kept.run(&graph(false, cache), 25);
        assert!(runs > 2, "{runs} runs");
        kept.check(3, 1);
        let written: usize = kept.sink.lock().values().flatten().map(RecordBatch::num_rows).sum();
        let of_key = |key: i64| {
            if key >= KNOWN {
                0
            } else if key % 3 == 0 {
                2
            } else {
                1
            }
        };
        let expected: usize = events(2, 4_000).concat().iter().filter_map(|row| row.key).map(of_key).sum();
        assert_eq!(written, expected, "{cache:?}");
    }
}

#[test]
fn what_is_looked_up_behind_a_member_is_kept_before_its_epoch_is_recorded() {
    let kept = Kept::default();
    let runs = kept.run(&graph_of_windows(long(15)), 12);
    assert!(runs > 2, "{runs} runs");
    kept.check(windowed_schema(true).fields().len(), 0);
}

#[test]
fn an_epoch_whose_answers_cannot_be_kept_is_not_committed() {
    let kept = Kept::default();
    kept.answers.is_full.store(true, Ordering::Release);
    let query = kept.go_on(graph(false, long(20)));
    let error = query.wait().unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
    assert!(kept.sink.lock().is_empty() && kept.log.all.lock().is_empty());
    kept.answers.is_full.store(false, Ordering::Release);
    kept.run(&graph(false, long(20)), usize::MAX);
    kept.check(3, 1);
}

#[test]
fn answers_that_were_kept_and_are_gone_keep_their_query_from_going_on() {
    let kept = Kept::default();
    let query = kept.go_on(graph(false, None));
    until("it comes on", || kept.sink.lock().len() >= 5);
    query.cancel();
    query.wait_timeout(FOREVER).unwrap().unwrap();
    // The last epoch is not committed yet, and is computed again.
    let last = kept.log.durable.lock().last().unwrap().epoch;
    kept.sink.lock().retain(|epoch, _| *epoch < last);
    kept.answers.kept.lock().clear();
    let error = kept.go_on(graph(false, None)).wait().unwrap_err().to_string();
    assert!(error.contains("of the test's answers") && error.contains("it is gone"), "{error}");
    assert!(!kept.sink.lock().contains_key(&last));
}
