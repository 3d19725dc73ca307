//! Windows of processing time, on a clock that the test sets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimestampMillisecondType};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_model::graph::{
    Aggregate, Exchange, Operator, Output, ProcessingTime, Scan, StageGraph, WindowAggregate, with_processing_time,
};
use savanna_streams_model::plan::PlanBytes;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::ScanSpec;
use savanna_streams_model::time::{EventTime, WindowSpec};
use savanna_streams_runtime::{Clock, Query, RuntimeOptions};

use crate::graphs::{functions, identity, input_schema, leaf, sink, stage, table};
use crate::memory::{Memory, MemorySink, Row, Then};

const SECOND: i64 = 1_000_000;

/// `SELECT k, COUNT(*), window_start, .. FROM TUMBLE(t, PROCTIME(), 10 s) GROUP BY k, window_start, window_end`
fn graph() -> StageGraph {
    let rows = with_processing_time(&input_schema());
    let count = AggregateExprBuilder::new(count_udaf(), vec![lit(1_i64)]).schema(Arc::clone(&rows)).alias("n");
    let keys = PhysicalGroupBy::new_single(vec![(col("k", &rows).unwrap(), "k".to_owned())]);
    let count = Arc::new(count.build().unwrap());
    let input = leaf(0, &rows);
    let exec =
        AggregateExec::try_new(AggregateMode::Single, keys, vec![count], vec![None], input, Arc::clone(&rows)).unwrap();
    let merged = merged_schema(&exec.schema());
    let exec: Arc<dyn ExecutionPlan> = Arc::new(exec);
    let window = WindowSpec::tumble(10 * SECOND);
    let aggregate =
        WindowAggregate { time_column: 3, windows: window.into(), aggregate: PlanBytes::encode(&exec).unwrap() };
    let scan = Scan {
        source: ScanSpec::everything(table("t")),
        watermark: None,
        processing_time: Some(ProcessingTime::Watermark),
    };
    let panes = Output { aggregate: Some(aggregate.clone()), ..Output::rows(identity(&rows)) };
    let merge = Operator::Aggregate(Aggregate { inputs: vec![StageId(0)], aggregate });
    let stages = vec![
        stage(0, Operator::Scan(scan), panes, Exchange::KeyGroup { columns: vec![0] }, 1),
        stage(1, merge, Output::rows(identity(&merged)), Exchange::Single, 2),
        sink(2, &[1]),
    ];
    StageGraph { stages, output: merged.as_ref().clone() }
}

fn merged_schema(aggregated: &Schema) -> SchemaRef {
    let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None);
    let window =
        ["window_start", "window_end", "window_time"].map(|name| Arc::new(Field::new(name, time.clone(), false)));
    Arc::new(Schema::new(aggregated.fields().iter().cloned().chain(window).collect::<Vec<_>>()))
}

/// Window start in seconds and key, with the count.
fn counts(batches: &[RecordBatch]) -> BTreeMap<(i64, i64), i64> {
    let mut counts = BTreeMap::new();
    for batch in batches {
        let number = |column: usize, row: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
        let starts = batch.column(2).as_primitive::<TimestampMillisecondType>();
        for row in 0..batch.num_rows() {
            let before = counts.insert((starts.value(row) / 1000, number(0, row)), number(1, row));
            assert_eq!(before, None, "a group comes once");
        }
    }
    counts
}

fn rows(keys: impl Iterator<Item = i64>) -> Vec<Row> {
    keys.map(|key| Row { time: None, key: Some(key), value: 0 }).collect()
}

/// Goes on by three seconds with each epoch; windows do not end by themselves.
#[derive(Debug)]
struct ThreeSecondsPerEpoch(AtomicI64);

impl Clock for ThreeSecondsPerEpoch {
    fn now(&self) -> EventTime {
        EventTime(self.0.fetch_add(3 * SECOND, Ordering::Relaxed))
    }

    fn until(&self, _: EventTime) -> Duration {
        Duration::MAX
    }
}

#[test]
fn rows_are_counted_by_the_instants_of_their_epochs() {
    // Two partitions, five rows of each per epoch; instants 0, 3, 6, 9 | 12, 15, 18 | 21 s.
    let partition = || rows((0..40).map(|i| i % 2));
    for members in [1, 3] {
        let memory = Arc::new(Memory::with("t", vec![partition(), partition()]));
        let mut options =
            RuntimeOptions { members, clock: Arc::new(ThreeSecondsPerEpoch(AtomicI64::new(0))), ..Default::default() };
        options.epoch.fixed_events = Some(5);
        let sink = MemorySink::default();
        let found = Arc::clone(&sink.rows);
        let id = QueryId { code: "code".into(), job: 1 };
        let query = Query::start(id, graph(), functions(), memory, Box::new(sink), options).unwrap();
        let status = query.wait().unwrap();
        assert_eq!(status.late_rows, 0, "no row is late for processing time");
        let found: Vec<RecordBatch> = found.lock().iter().flat_map(|(_, rows)| rows.clone()).collect();
        let expected = [((0, 0), 20), ((0, 1), 20), ((10, 0), 16), ((10, 1), 14), ((20, 0), 4), ((20, 1), 6)];
        assert_eq!(counts(&found), expected.into(), "with {members} members");
    }
}

/// Stands where it is put.
#[derive(Debug)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> EventTime {
        EventTime(self.0.load(Ordering::SeqCst))
    }

    fn until(&self, instant: EventTime) -> Duration {
        if self.now() < instant { Duration::from_millis(1) } else { Duration::ZERO }
    }
}

/// Tells of each epoch, and of its rows.
struct TellingSink(Sender<Vec<RecordBatch>>);

impl Sink for TellingSink {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let _ = self.0.send(rows.to_vec());
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
fn a_window_ends_when_its_time_has_come_although_nothing_is_read() {
    let clock = Arc::new(Hands(AtomicI64::new(42 * SECOND)));
    let memory = Memory::with("t", vec![rows([1, 1, 2].into_iter())]).then(Then::Wait);
    let mut options = RuntimeOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Default::default() };
    options.epoch.target = Duration::from_millis(1);
    let (sender, epochs) = channel();
    let id = QueryId { code: "code".into(), job: 1 };
    let sink = Box::new(TellingSink(sender));
    let query = Query::start(id, graph(), functions(), Arc::new(memory), sink, options).unwrap();
    let first = epochs.recv().unwrap();
    assert_eq!(counts(&first), [].into(), "the window is open");
    clock.0.store(50 * SECOND, Ordering::SeqCst);
    let second = epochs.recv().unwrap();
    assert_eq!(counts(&second), [((40, 1), 2), ((40, 2), 1)].into());
    query.cancel();
    query.wait().unwrap();
    assert!(epochs.try_recv().is_err(), "without rows no window ends any more");
}
