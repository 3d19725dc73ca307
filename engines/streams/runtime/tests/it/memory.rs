//! Sources and sinks in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{Int64Type, Schema, SchemaRef, TimestampMillisecondType};
use parking_lot::Mutex;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{
    ConnectorInfo, Connectors, Offset, Read, Repeats, ScanSpec, Source, SourceBatch, SourceReader,
};

use crate::graphs::input_schema;

/// A row: event time in milliseconds, key, value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) time: Option<i64>,
    pub(crate) key: Option<i64>,
    pub(crate) value: i64,
}

/// What a partition does once its rows are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Then {
    #[default]
    End,
    Wait,
    Fail,
    Panic,
}

/// One read of a partition does not return until it is let go on.
#[derive(Debug)]
pub(crate) struct Stuck {
    pub(crate) partition: usize,
    /// How many reads come before it.
    pub(crate) after: usize,
    pub(crate) is_stuck: AtomicBool,
    pub(crate) goes_on: AtomicBool,
}

/// Tables by name, and where side tables' rows go.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) tables: BTreeMap<String, Table>,
    pub(crate) side: Collected,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) partitions: Arc<Vec<Vec<Row>>>,
    pub(crate) then: Then,
    /// Where it is set, nothing comes until it holds `true`.
    pub(crate) gate: Option<Arc<AtomicBool>>,
    /// Where it is set, the gate is that of this partition alone, which says that it has rows.
    pub(crate) held: Option<usize>,
    /// Where it is set, one read takes long.
    pub(crate) stuck: Option<Arc<Stuck>>,
    /// Where it is set, the last partition cannot be opened until it holds `true`.
    pub(crate) opens: Option<Arc<AtomicBool>>,
    /// Where it is set, the value of all rows is how often the table was read.
    pub(crate) readings: Option<Arc<AtomicI64>>,
    /// Where it is set, only so many partitions are there so far.
    pub(crate) visible: Option<Arc<AtomicUsize>>,
}

impl Table {
    fn visible(&self) -> usize {
        let visible = self.visible.as_ref().map(|visible| visible.load(Ordering::Acquire));
        visible.unwrap_or(self.partitions.len())
    }
}

/// What a sink was given: epochs with their rows.
pub(crate) type Collected = Arc<Mutex<Vec<(Epoch, Vec<RecordBatch>)>>>;

impl Memory {
    pub(crate) fn with(name: &str, partitions: Vec<Vec<Row>>) -> Self {
        Self::default().and(name, partitions)
    }

    pub(crate) fn and(mut self, name: &str, partitions: Vec<Vec<Row>>) -> Self {
        self.tables.insert(name.into(), Table { partitions: Arc::new(partitions), ..Table::default() });
        self
    }

    /// Holds a table's rows back until the gate that is returned is opened.
    pub(crate) fn gate(&mut self, name: &str) -> Arc<AtomicBool> {
        let gate = Arc::new(AtomicBool::new(false));
        self.tables.get_mut(name).unwrap().gate = Some(Arc::clone(&gate));
        gate
    }

    /// Holds the rows of one partition back, which it says to have, until the gate that is returned is opened.
    pub(crate) fn hold(&mut self, name: &str, partition: usize) -> Arc<AtomicBool> {
        self.tables.get_mut(name).unwrap().held = Some(partition);
        self.gate(name)
    }

    /// Has one read of a partition take long.
    pub(crate) fn stick(&mut self, name: &str, partition: usize, after: usize) -> Arc<Stuck> {
        let (is_stuck, goes_on) = (AtomicBool::new(false), AtomicBool::new(false));
        let stuck = Arc::new(Stuck { partition, after, is_stuck, goes_on });
        self.tables.get_mut(name).unwrap().stuck = Some(Arc::clone(&stuck));
        stuck
    }

    /// Has the last partition of a table wait to be opened until the gate that is returned is.
    pub(crate) fn hold_opening(&mut self, name: &str) -> Arc<AtomicBool> {
        let gate = Arc::new(AtomicBool::new(false));
        self.tables.get_mut(name).unwrap().opens = Some(Arc::clone(&gate));
        gate
    }

    /// Hides the partitions of a table but for the first ones.
    pub(crate) fn hide(&mut self, name: &str, visible: &Arc<AtomicUsize>) {
        self.tables.get_mut(name).unwrap().visible = Some(Arc::clone(visible));
    }

    /// Has the rows of a table say how often it was read. Other runs may go on counting.
    pub(crate) fn count_readings(&mut self, name: &str, readings: &Arc<AtomicI64>) {
        self.tables.get_mut(name).unwrap().readings = Some(Arc::clone(readings));
    }

    pub(crate) fn then(mut self, then: Then) -> Self {
        self.tables.values_mut().for_each(|table| table.then = then);
        self
    }
}

impl Connectors for Memory {
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(self.tables[&table.name].clone()))
    }

    fn sink(&self, _: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        Ok(Box::new(MemorySink { rows: Arc::clone(&self.side), ..MemorySink::default() }))
    }

    fn check(&self, _: &mut TableDef) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }
}

impl Source for Table {
    fn bounded(&self) -> bool {
        self.then == Then::End
    }

    fn replayable(&self) -> bool {
        true
    }

    fn repeats(&self) -> Repeats {
        Repeats::ByEvents
    }

    fn partitions(&self, _: usize) -> Result<usize> {
        Ok(self.visible())
    }

    fn grows(&self) -> bool {
        self.visible.is_some()
    }

    fn open(&self, _: &ScanSpec, partition: usize, _: usize, from: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        let next = from.map_or(0, |offset| offset.0.parse().unwrap());
        if let Some(gate) = self.opens.as_ref().filter(|_| partition + 1 == self.partitions.len()) {
            while !gate.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let reading = self.readings.as_ref().map(|readings| readings.fetch_add(1, Ordering::AcqRel) + 1);
        Ok(Box::new(Reader { table: self.clone(), partition, next, reading, reads: 0 }))
    }
}

struct Reader {
    table: Table,
    partition: usize,
    next: usize,
    reading: Option<i64>,
    reads: usize,
}

impl Reader {
    fn is_held_back(&self) -> bool {
        let is_meant = self.table.held.is_none_or(|held| held == self.partition);
        is_meant && self.table.gate.as_ref().is_some_and(|gate| !gate.load(Ordering::Acquire))
    }

    fn stick(&mut self) {
        self.reads += 1;
        let is_meant = |stuck: &&Arc<Stuck>| stuck.partition == self.partition && stuck.after + 1 == self.reads;
        if let Some(stuck) = self.table.stuck.as_ref().filter(is_meant) {
            stuck.is_stuck.store(true, Ordering::Release);
            while !stuck.goes_on.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl SourceReader for Reader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        self.stick();
        if self.is_held_back() {
            std::thread::yield_now();
            return Ok(Read::Pending);
        }
        let left = &self.table.partitions[self.partition][self.next..];
        if left.is_empty() {
            return match self.table.then {
                Then::End => Ok(Read::End),
                Then::Wait => {
                    std::thread::sleep(wait);
                    Ok(Read::Pending)
                }
                Then::Fail => Err(StreamError::io("reading the test's source", &"injected")),
                Then::Panic => panic!("injected"),
            };
        }
        let mut rows = left[..left.len().min(max_events)].to_vec();
        rows.iter_mut().for_each(|row| row.value = self.reading.unwrap_or(row.value));
        self.next += rows.len();
        Ok(Read::Rows(SourceBatch { split: 0, rows: batch(&rows), left_out_time: None, events: rows.len() as u64 }))
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }

    fn has_rows(&self) -> bool {
        self.table.held.is_some() && self.is_held_back()
    }

    fn partitions(&self) -> Option<usize> {
        self.table.visible.as_ref().map(|visible| visible.load(Ordering::Acquire))
    }
}

pub(crate) fn batch(rows: &[Row]) -> RecordBatch {
    let times: TimestampMillisecondArray = rows.iter().map(|row| row.time).collect();
    let keys: Int64Array = rows.iter().map(|row| row.key).collect();
    let values: Int64Array = rows.iter().map(|row| Some(row.value)).collect();
    let schema: Arc<Schema> = input_schema();
    RecordBatch::try_new(schema, vec![Arc::new(times), Arc::new(keys), Arc::new(values)]).unwrap()
}

/// The rows of batches in the input's schema.
pub(crate) fn rows_of(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches {
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
        let (keys, values) = (batch.column(1).as_primitive::<Int64Type>(), batch.column(2).as_primitive::<Int64Type>());
        rows.extend((0..batch.num_rows()).map(|row| Row {
            time: times.is_valid(row).then(|| times.value(row)),
            key: keys.is_valid(row).then(|| keys.value(row)),
            value: values.value(row),
        }));
    }
    rows
}

/// Collects rows; checks that epochs come in order; fails where told.
#[derive(Default)]
pub(crate) struct MemorySink {
    pub(crate) rows: Collected,
    pub(crate) fail_at: Option<Epoch>,
    pub(crate) held: Option<Epoch>,
    pub(crate) finished: Arc<Mutex<bool>>,
}

impl Sink for MemorySink {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(self.held)
    }

    fn commit(&mut self, _: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if self.fail_at == Some(epoch) {
            return Err(StreamError::io("writing the test's sink", &"injected"));
        }
        self.rows.lock().push((epoch, rows.to_vec()));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        *self.finished.lock() = true;
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}
