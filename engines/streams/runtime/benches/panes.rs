//! The whole runtime over ready-made Arrow batches: 10 million events, 4 numeric columns, about 1000 keys, windows of 10 s,
//! `COUNT(*)` (and four more aggregates) by key. Prints million events per CPU-second of all of the query's threads.
//!
//! ```text
//! cargo bench -p savanna-streams-runtime -- [events] [batch rows]
//! ```

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{CastExpr, col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::prelude::SessionContext;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_streams_model::Result;
use savanna_streams_model::catalog::{ColumnDef, TableDef};
use savanna_streams_model::graph::{
    Aggregate, Exchange, Lateness, Operator, Output, PaneAggregate, Scan, SinkSpec, Stage, StageGraph, Watermark,
};
use savanna_streams_model::ids::{Epoch, QueryId, StageId};
use savanna_streams_model::plan::{Leaf, PlanBytes};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{
    ConnectorInfo, Connectors, EqualTo, Offset, Read, ScanSpec, Source, SourceBatch, SourceReader,
};
use savanna_streams_model::time::WindowSpec;
use savanna_streams_runtime::{Query, RuntimeOptions};

const KEYS: i64 = 1000;
/// Event time advances by 1 ms per so many events.
const EVENTS_PER_MS: usize = 100;
const SECOND: i64 = 1_000_000;
const REPEATS: usize = 3;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let events = numbers.next().unwrap_or(10_000_000);
    let batch_rows = numbers.next().unwrap_or(8192);
    println!("{events} events in batches of {batch_rows}; million events per CPU-second, best of {REPEATS}");
    for disorder_ms in [0, 2_000] {
        let source = Arc::new(Batches::generate(events, batch_rows, disorder_ms));
        for (windows, window) in [
            ("tumble 10 s", WindowSpec::tumble(10 * SECOND)),
            ("hop 2 s / 10 s", WindowSpec::hop(2 * SECOND, 10 * SECOND)),
        ] {
            for (aggregates, all) in [("count", false), ("count, sum, min, max, avg", true)] {
                for (partitions, members) in [(1, 1), (2, 4)] {
                    let best = (0..REPEATS)
                        .map(|_| speed(&source, window, all, disorder_ms, partitions, members))
                        .fold(0.0_f64, f64::max);
                    println!(
                        "{best:7.1}  {windows:15} {aggregates:26} disorder {disorder_ms:4} ms, {partitions} partitions, \
                         {members} members"
                    );
                }
            }
        }
    }
}

/// Million events per CPU-second of one run.
fn speed(source: &Arc<Batches>, window: WindowSpec, all: bool, delay_ms: i64, partitions: usize, members: u16) -> f64 {
    let graph = graph(window, all, delay_ms * 1000);
    let functions = SessionContext::new().task_ctx();
    let options = RuntimeOptions {
        source_partitions: partitions,
        members,
        batch_rows: source.batch_rows,
        ..RuntimeOptions::default()
    };
    let id = QueryId { code: graph.code(), job: 1 };
    let connectors: Arc<dyn Connectors> = Arc::new(Bench(Arc::clone(source)));
    let status = Query::start(id, graph, functions, connectors, Box::new(Blackhole), options)
        .and_then(|query| query.wait())
        .expect("the benchmark's query runs");
    assert_eq!(status.late_rows, 0);
    status.events as f64 / status.cpu_seconds / 1e6
}

fn schema() -> SchemaRef {
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    let time = Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false);
    Arc::new(Schema::new(vec![time, number("k"), number("a"), number("b")]))
}

fn graph(window: WindowSpec, all: bool, delay: i64) -> StageGraph {
    let leaf = |schema: &SchemaRef| -> Arc<dyn ExecutionPlan> { Arc::new(Leaf::new(0, Arc::clone(schema))) };
    let encode = |plan: &Arc<dyn ExecutionPlan>| PlanBytes::encode(plan).expect("the benchmark's plans can be encoded");
    let schema = schema();
    let a = || col("a", &schema).expect("column a");
    let float: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(a(), DataType::Float64, None));
    let mut functions: Vec<(Arc<AggregateUDF>, Arc<dyn PhysicalExpr>)> = vec![(count_udaf(), lit(1_i64))];
    if all {
        functions.extend([(sum_udaf(), a()), (min_udaf(), a()), (max_udaf(), a()), (avg_udaf(), float)]);
    }
    let functions = functions.into_iter().map(|(function, argument)| {
        let builder = AggregateExprBuilder::new(Arc::clone(&function), vec![argument]);
        Arc::new(builder.schema(Arc::clone(&schema)).alias(function.name()).build().expect("an aggregate"))
    });
    let functions: Vec<_> = functions.collect();
    let filters = vec![None; functions.len()];
    let keys = PhysicalGroupBy::new_single(vec![(col("k", &schema).expect("column k"), "k".into())]);
    let exec =
        AggregateExec::try_new(AggregateMode::Single, keys, functions, filters, leaf(&schema), Arc::clone(&schema));
    let exec: Arc<dyn ExecutionPlan> = Arc::new(exec.expect("an aggregate"));
    let aggregate = PaneAggregate { time_column: 0, windows: window.into(), aggregate: encode(&exec) };
    let mut fields: Vec<Field> = exec.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    fields.extend(["window_start", "window_end", "window_time"].map(|name| Field::new(name, time.clone(), false)));
    let output = Arc::new(Schema::new(fields));
    let t = ProjectionExpr { expr: col("t", &schema).expect("column t"), alias: "t".into() };
    let t: Arc<dyn ExecutionPlan> = Arc::new(ProjectionExec::try_new(vec![t], leaf(&schema)).expect("a projection"));
    let watermark = Watermark { time: encode(&t), delay, lateness: Lateness::Windows(window), late_rows: None };
    let scan = Scan { source: ScanSpec::everything(table(&schema)), watermark: Some(watermark) };
    let panes = Output { chain: encode(&leaf(&schema)), expand: None, aggregate: Some(aggregate.clone()) };
    let merge = Aggregate { inputs: vec![StageId(0)], aggregate };
    let stage = |id: u16, operator, output, exchange, next: Option<u16>| Stage {
        id: StageId(id),
        operator,
        output,
        exchange,
        next: next.map(StageId),
    };
    let sink = SinkSpec { inputs: vec![StageId(1)], table: None };
    let by_key = Exchange::KeyGroup { columns: vec![0] };
    let stages = vec![
        stage(0, Operator::Scan(scan), Some(panes), by_key, Some(1)),
        stage(1, Operator::Aggregate(merge), Some(Output::rows(encode(&leaf(&output)))), Exchange::Single, Some(2)),
        stage(2, Operator::Sink(sink), None, Exchange::Single, None),
    ];
    StageGraph { stages, output: output.as_ref().clone() }
}

fn table(schema: &SchemaRef) -> TableDef {
    let column = |field: &Arc<Field>| ColumnDef {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: false,
        computed: None,
    };
    TableDef {
        name: "bench".into(),
        columns: schema.fields().iter().map(column).collect(),
        watermark: None,
        options: [].into(),
        statement: String::new(),
    }
}

/// Ready-made batches; partition `i` of `n` reads every `n`-th.
#[derive(Debug)]
struct Batches {
    batches: Vec<RecordBatch>,
    batch_rows: usize,
}

impl Batches {
    fn generate(events: usize, batch_rows: usize, disorder_ms: i64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(42);
        let schema = schema();
        let batch = |first: usize| {
            let rows = first..(first + batch_rows).min(events);
            let times: TimestampMillisecondArray = rows
                .clone()
                .map(|row| (row / EVENTS_PER_MS) as i64 - random.random_range(0..=disorder_ms))
                .collect::<Vec<_>>()
                .into();
            let mut numbers = |below: i64| -> ArrayRef {
                Arc::new(Int64Array::from(rows.clone().map(|_| random.random_range(0..below)).collect::<Vec<_>>()))
            };
            let columns = vec![Arc::new(times) as ArrayRef, numbers(KEYS), numbers(1_000_000), numbers(100)];
            RecordBatch::try_new(Arc::clone(&schema), columns).expect("the columns fit the schema")
        };
        Self { batches: (0..events).step_by(batch_rows).map(batch).collect(), batch_rows }
    }
}

#[derive(Debug)]
struct Bench(Arc<Batches>);

impl Connectors for Bench {
    fn source(&self, _: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }

    fn sink(&self, _: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Blackhole))
    }

    fn check(&self, _: &mut TableDef) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }
}

impl Source for Bench {
    fn bounded(&self) -> bool {
        true
    }

    fn replayable(&self) -> bool {
        true
    }

    fn partitions(&self, wanted: usize) -> usize {
        wanted
    }

    fn pushes_down(&self, _: &EqualTo) -> bool {
        false
    }

    fn open(&self, _: &ScanSpec, partition: usize, of: usize, _: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        Ok(Box::new(Reader { batches: Arc::clone(&self.0), next: partition, step: of }))
    }
}

struct Reader {
    batches: Arc<Batches>,
    next: usize,
    step: usize,
}

impl SourceReader for Reader {
    fn read(&mut self, _: usize, _: Duration) -> Result<Read> {
        let Some(rows) = self.batches.batches.get(self.next) else {
            return Ok(Read::End);
        };
        self.next += self.step;
        Ok(Read::Rows(SourceBatch { rows: rows.clone(), left_out_time: None, events: rows.num_rows() as u64 }))
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }
}

struct Blackhole;

impl Sink for Blackhole {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, _: &[RecordBatch]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}
