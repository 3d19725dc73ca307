//! Partitions that wait for one another, or do not: idleness and alignment.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use proptest::prelude::*;
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{Alignment, Scan, Waiting};
use savanna_streams_model::join::JoinKind;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{
    ConnectorInfo, Connectors, Offset, Read, ScanSpec, Source, SourceBatch, SourceReader,
};
use savanna_streams_model::time::EventTime;
use savanna_streams_runtime::{Clock, Query, RuntimeOptions};

use crate::graphs::{MILLI, functions, identity, input_schema, join_graph, scan, window, windowed};
use crate::memory::{Memory, MemorySink, Row, Then, batch};
use crate::oracle::{groups, truth};
use crate::windows::{any_run, any_window, partitions, run};

/// Every look at it is a millisecond later.
#[derive(Debug, Default)]
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> EventTime {
        EventTime(self.0.fetch_add(MILLI, Ordering::Relaxed))
    }

    fn until(&self, _: EventTime) -> Duration {
        Duration::MAX
    }
}

/// Tells of the rows of each epoch that has some.
struct Telling(Sender<Vec<RecordBatch>>);

impl Sink for Telling {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if rows.iter().any(|batch| batch.num_rows() > 0) {
            // Nobody listens any more once the test has what it wants.
            let _ = self.0.send(rows.to_vec());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}

/// Two tables, `l` and `r`, of a row for each tenth of a second, and how far they have been read.
#[derive(Clone, Debug)]
struct Paced {
    /// How many rows of each table a read gives.
    rows_per_read: [usize; 2],
    read: Arc<Mutex<ReadSoFar>>,
}

#[derive(Debug)]
struct ReadSoFar {
    /// How many rows of each table; the last of them lies so many tenths after the first.
    rows: [usize; 2],
    /// The most rows that one was ahead of the other when it was read on.
    ahead: usize,
}

const PACED_ROWS: usize = 1000;

impl Connectors for Paced {
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(PacedTable { number: usize::from(table.name == "r"), paced: self.clone() }))
    }

    fn sink(&self, _: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        Ok(Box::new(MemorySink::default()))
    }

    fn check(&self, _: &mut TableDef) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }
}

#[derive(Clone, Debug)]
struct PacedTable {
    number: usize,
    paced: Paced,
}

impl Source for PacedTable {
    fn bounded(&self) -> bool {
        true
    }

    fn replayable(&self) -> bool {
        true
    }

    fn partitions(&self, _: usize) -> Result<usize> {
        Ok(1)
    }

    fn open(&self, _: &ScanSpec, _: usize, _: usize, _: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        Ok(Box::new(self.clone()))
    }
}

impl SourceReader for PacedTable {
    fn read(&mut self, max_events: usize, _: Duration) -> Result<Read> {
        let mut read = self.paced.read.lock();
        let (own, other) = (read.rows[self.number], read.rows[1 - self.number]);
        if own == PACED_ROWS {
            return Ok(Read::End);
        }
        read.ahead = read.ahead.max(own.saturating_sub(other));
        let end = PACED_ROWS.min(own + max_events.min(self.paced.rows_per_read[self.number]));
        read.rows[self.number] = end;
        let row = |at| Row { time: Some(at as i64 * 100), key: Some(0), value: at as i64 };
        let rows: Vec<Row> = (own..end).map(row).collect();
        Ok(Read::Rows(SourceBatch { split: 0, rows: batch(&rows), left_out_time: None, events: rows.len() as u64 }))
    }

    fn offset(&self) -> Offset {
        Offset(self.paced.read.lock().rows[self.number].to_string())
    }
}

fn waiting(name: &str, delay: i64, waiting: Waiting) -> Scan {
    let mut scan = scan(name, delay);
    scan.watermark.as_mut().expect("a scan with a watermark").waiting = waiting;
    scan
}

/// The first `wanted` windows of a query whose second partition never gives anything and never ends.
fn windows_beside_silence(fixed_events: Option<u64>, wanted: usize) -> Vec<(i64, i64)> {
    let rows: Vec<Row> = (0..100).map(|i| Row { time: Some(i), key: Some(0), value: i }).collect();
    let memory = Memory::with("t", vec![rows, Vec::new()]).then(Then::Wait);
    let scan = waiting("t", 0, Waiting { idle_after: Some(5 * MILLI), alignment: None });
    let graph = windowed(scan, identity(&input_schema()), window(10, 10, 0), true);
    let mut options =
        RuntimeOptions { clock: Arc::new(Ticking::default()), batch_rows: 4, ..RuntimeOptions::default() };
    options.epoch.fixed_events = fixed_events;
    options.epoch.target = Duration::from_millis(1);
    let (sender, receiver) = channel();
    let id = QueryId { code: graph.code(), job: 1 };
    let query = Query::start(id, graph, functions(), Arc::new(memory), Box::new(Telling(sender)), options).unwrap();
    let mut rows = Vec::new();
    while rows.iter().map(RecordBatch::num_rows).sum::<usize>() < wanted {
        rows.extend(receiver.recv().expect("the query runs"));
    }
    query.cancel();
    groups(&rows, true).into_keys().map(|(window, _)| window).take(wanted).collect()
}

#[test]
fn an_idle_partition_does_not_hold_windows_back() {
    let expected: Vec<(i64, i64)> = (0..9).map(|i| (i * 10, i * 10 + 10)).collect();
    assert_eq!(windows_beside_silence(None, 9), expected);
    assert_eq!(windows_beside_silence(Some(10), 9), expected, "with epochs of a fixed size");
}

#[test]
fn a_partition_whose_rows_cannot_be_given_yet_does_not_rest() {
    let rows: Vec<Row> = (0..100).map(|i| Row { time: Some(i), key: Some(0), value: i }).collect();
    let partitions = vec![rows.clone(), rows];
    let mut memory = Memory::with("t", partitions.clone()).then(Then::Wait);
    let gate = memory.hold("t", 1);
    let scan = waiting("t", 0, Waiting { idle_after: Some(5 * MILLI), alignment: None });
    let graph = windowed(scan, identity(&input_schema()), window(10, 10, 0), true);
    let mut options =
        RuntimeOptions { clock: Arc::new(Ticking::default()), batch_rows: 4, ..RuntimeOptions::default() };
    options.epoch.target = Duration::from_millis(1);
    let (sender, receiver) = channel();
    let id = QueryId { code: graph.code(), job: 1 };
    let query = Query::start(id, graph, functions(), Arc::new(memory), Box::new(Telling(sender)), options).unwrap();
    assert!(receiver.recv_timeout(Duration::from_millis(300)).is_err(), "windows wait for it");
    gate.store(true, Ordering::Release);
    let mut told = Vec::new();
    while told.iter().map(RecordBatch::num_rows).sum::<usize>() < 9 {
        told.extend(receiver.recv().expect("the query runs"));
    }
    query.cancel();
    let mut expected = truth(&partitions, &window(10, 10, 0), 0, false, true).windows;
    expected.retain(|((_, end), _), _| *end <= 90);
    assert_eq!(groups(&told, true), expected);
}

#[test]
fn bounded_sources_that_meet_keep_step() {
    for rows_per_read in [[50, 1], [1, 50]] {
        let read = Arc::new(Mutex::new(ReadSoFar { rows: [0, 0], ahead: 0 }));
        let connectors = Arc::new(Paced { rows_per_read, read: Arc::clone(&read) });
        let graph = join_graph(JoinKind::Inner, 0, 0, 0);
        let id = QueryId { code: graph.code(), job: 1 };
        let sink = MemorySink::default();
        let pairs = Arc::clone(&sink.rows);
        let options = RuntimeOptions::default();
        Query::start(id, graph, functions(), connectors, Box::new(sink), options).unwrap().wait().unwrap();
        let pairs: usize = pairs.lock().iter().flat_map(|(_, rows)| rows).map(RecordBatch::num_rows).sum();
        assert_eq!(pairs, PACED_ROWS);
        let ahead = read.lock().ahead;
        assert!(ahead <= 101, "one table was read on when it was {ahead} rows ahead of the other, more than 10 s");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn alignment_does_not_change_results(
        partitions in partitions(), window in any_window(), delay in 0_i64..30, drift in 0_i64..40, how in any_run(),
    ) {
        let truth = truth(&partitions, &window, delay, false, true);
        let memory = Arc::new(Memory::with("t", partitions));
        let alignment = Alignment { group: "g".into(), max_drift: drift * MILLI };
        let scan = waiting("t", delay, Waiting { idle_after: None, alignment: Some(alignment) });
        let (status, rows) = run(windowed(scan, identity(&input_schema()), window, true), &memory, how);
        prop_assert_eq!(groups(&rows, true), truth.windows);
        prop_assert_eq!(status.late_rows, truth.late.len() as u64);
    }
}
