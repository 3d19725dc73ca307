//! Windows over ready-made Arrow batches through the whole engine, from the text of a statement to a sink that forgets: 10
//! million events of 4 numeric columns, about 1000 keys, event time one millisecond further every 100 events. Beside it what its
//! parts cost alone. Prints one JSON object per run, CPU time of the whole process.
//!
//! ```text
//! cargo bench -p savanna-streams --bench windows -- [rounds] [events] [word in the case's name]
//! ```

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use rustix::time::{ClockId, clock_gettime};
use savanna_streams::api::Result;
use savanna_streams::api::handle::QueryState;
use savanna_streams::connectors::BuiltinConnectors;
use savanna_streams::model::catalog::TableDef;
use savanna_streams::model::sink::Sink;
use savanna_streams::model::source::{
    ConnectorInfo, Connectors, Offset, Read, ScanSpec, Source, SourceBatch, SourceReader,
};
use savanna_streams::{EngineOptions, StreamEngine, StreamHandle, StreamReply, StreamRequest};
use serde_json::json;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH_ROWS: usize = 8192;
const KEYS: u64 = 1_000;
/// Event time advances by 1 ms per so many events.
const EVENTS_PER_MS: usize = 100;
const WINDOW_MS: i64 = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let number = |at: usize, default| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (rounds, events) = (number(0, 7), number(1, 10_000_000));
    let wanted = arguments.get(2).map_or("", String::as_str);
    let inputs = [0, 2_000].map(|disorder_ms| Arc::new(Batches::generate(events, disorder_ms)));
    for _ in 0..rounds {
        for (input, order) in inputs.iter().zip(["", ", 2 s out of order"]) {
            for (window, function) in [("tumble 10 s", TUMBLE), ("hop 10 s by 2 s", HOP)] {
                for (aggregates, columns) in [("count", COUNT), ("count, sum, min, max, avg", FIVE)] {
                    let case = format!("{window}, {aggregates}{order}");
                    if case.contains(wanted) {
                        for mode in ["serverless", "provisioned"] {
                            report(mode, &case, events, || run(input, mode, function, columns));
                        }
                    }
                }
            }
        }
        if "parts".contains(wanted) {
            let batches = &inputs[0].batches;
            report("reading two columns", "parts", events, || read(batches));
            report("hand-written loop", "parts", events, || hand_written(batches));
            report("GroupValues per window", "parts", events, || group_values(batches));
        }
    }
}

const TUMBLE: &str = "TUMBLE(TABLE events, DESCRIPTOR(t), INTERVAL '10' SECOND)";
const HOP: &str = "HOP(TABLE events, DESCRIPTOR(t), INTERVAL '2' SECOND, INTERVAL '10' SECOND)";
const COUNT: &str = "count(*) AS c";
const FIVE: &str = "count(*) AS c, sum(a) AS s, min(a) AS lo, max(a) AS hi, avg(a) AS mean";

fn report(system: &str, case: &str, events: usize, work: impl FnOnce() -> u64) {
    let before = process_cpu();
    let checksum = work();
    let cpu_seconds = (process_cpu() - before).as_secs_f64();
    let figures = json!({
        "system": system, "case": case, "events": events, "cpu_seconds": cpu_seconds, "checksum": checksum,
    });
    println!("{figures}");
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Runs the query from its text. Returns how many rows it gave.
fn run(input: &Arc<Batches>, mode: &str, window: &str, aggregates: &str) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let connectors = Arc::new(ReadyMade { batches: Arc::clone(input), others: BuiltinConnectors::default() });
        let engine = StreamEngine::new(EngineOptions { connectors, ..EngineOptions::default() });
        let Ok(StreamReply::Session { session }) =
            engine.call(StreamRequest::OpenSession { user: "bench".into() }).await
        else {
            panic!("no session")
        };
        let declare = format!(
            "CREATE TABLE events (t TIMESTAMP(3) NOT NULL, k BIGINT NOT NULL, a BIGINT NOT NULL, b BIGINT NOT NULL, \
             WATERMARK FOR t AS t - INTERVAL '{}' SECOND) WITH ('connector' = 'ready-made')",
            input.disorder_ms / 1_000
        );
        let columns = aggregates.split(", ").filter_map(|each| each.split(" AS ").nth(1));
        let columns: String =
            columns.map(|name| format!(", {name} {}", if name == "mean" { "DOUBLE" } else { "BIGINT" })).collect();
        let sink = format!("CREATE TABLE nothing (k BIGINT{columns}) WITH ('connector' = 'blackhole')");
        let average = aggregates.replace("avg(a)", "avg(CAST(a AS DOUBLE))");
        let insert = format!(
            "INSERT INTO nothing SELECT k, {average} FROM TABLE({window}) GROUP BY k, window_start, window_end"
        );
        for sql in [format!("SET 'mode' = '{mode}'"), declare, sink, insert] {
            engine.call(StreamRequest::Execute { session, sql, parameters: vec![] }).await.expect("the statement runs");
        }
        let rows = loop {
            let status = engine.queries().remove(0);
            match status.state {
                QueryState::Running => tokio::time::sleep(Duration::from_millis(5)).await,
                QueryState::Finished => break status.result_rows,
                state => panic!("{state:?}: {:?}", status.error),
            }
        };
        engine.shutdown().await;
        rows
    })
}

/// Adds up the two columns that a count by key needs.
fn read(batches: &[RecordBatch]) -> u64 {
    let mut total = 0_u64;
    for batch in batches {
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
        let keys = batch.column(1).as_primitive::<Int64Type>().values();
        total = total.wrapping_add(times.iter().zip(keys.iter()).map(|(t, k)| t.wrapping_add(*k) as u64).sum());
    }
    black_box(total)
}

/// Counts by key and window with an open-addressing table per window; the times of the events ascend.
fn hand_written(batches: &[RecordBatch]) -> u64 {
    const SLOTS: usize = 4096;
    let mut table = vec![(i64::MIN, 0_u64); SLOTS];
    let (mut window, mut groups) = (i64::MIN, 0);
    let mut close = |table: &mut Vec<(i64, u64)>| {
        groups += table.iter().filter(|slot| slot.1 > 0).count() as u64;
        table.fill((i64::MIN, 0));
    };
    for batch in batches {
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
        let keys = batch.column(1).as_primitive::<Int64Type>().values();
        for (time, &key) in times.iter().zip(keys.iter()) {
            if time.div_euclid(WINDOW_MS) != window {
                close(&mut table);
                window = time.div_euclid(WINDOW_MS);
            }
            let mut slot = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 52;
            while table[slot].0 != key && table[slot].1 > 0 {
                slot = (slot + 1) % SLOTS;
            }
            table[slot].0 = key;
            table[slot].1 += 1;
        }
    }
    close(&mut table);
    groups
}

/// Counts by key with DataFusion's table of groups, a new one for each window; a batch that crosses windows is cut.
fn group_values(batches: &[RecordBatch]) -> u64 {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
    let table = || new_group_values(Arc::clone(&schema), &GroupOrdering::None).expect("a table");
    let (mut values, mut counts, mut window, mut groups) = (table(), Vec::<u64>::new(), i64::MIN, 0);
    let mut ids = Vec::new();
    for batch in batches {
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
        let mut from = 0;
        while from < batch.num_rows() {
            let current = times[from].div_euclid(WINDOW_MS);
            if current != window {
                groups += values.len() as u64;
                (values, window) = (table(), current);
                counts.clear();
            }
            let length = times[from..].partition_point(|time| time.div_euclid(WINDOW_MS) == current);
            let keys: ArrayRef = batch.column(1).slice(from, length);
            values.intern(&[keys], &mut ids).expect("the keys fit");
            counts.resize(values.len(), 0);
            for &id in &ids {
                counts[id] += 1;
            }
            from += length;
        }
    }
    black_box(&counts);
    groups + values.len() as u64
}

/// The input, made once.
#[derive(Debug)]
struct Batches {
    batches: Vec<RecordBatch>,
    disorder_ms: u64,
}

impl Batches {
    fn generate(events: usize, disorder_ms: u64) -> Self {
        let number = |name: &str| Field::new(name, DataType::Int64, false);
        let time = Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), false);
        let schema = Arc::new(Schema::new(vec![time, number("k"), number("a"), number("b")]));
        let batch = |first: usize| {
            let rows = first..(first + BATCH_ROWS).min(events);
            let column = |of: fn(u64) -> u64| -> ArrayRef {
                Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| of(mix(row as u64)) as i64)))
            };
            let late = |row: usize| below(mix(row as u64 ^ 0xdead_beef) as u32, disorder_ms + 1) as i64;
            let times = rows.clone().map(|row| (row / EVENTS_PER_MS) as i64 + disorder_ms as i64 - late(row));
            let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(times));
            let columns = vec![
                times,
                column(|bits| below((bits >> 32) as u32, KEYS)),
                column(|bits| below(bits as u32, 1_000_000)),
                column(|bits| bits % 100),
            ];
            RecordBatch::try_new(Arc::clone(&schema), columns).expect("the columns fit the schema")
        };
        Self { batches: (0..events).step_by(BATCH_ROWS).map(batch).collect(), disorder_ms }
    }
}

/// SplitMix64 of a counter.
const fn mix(counter: u64) -> u64 {
    let mut x = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

const fn below(bits: u32, bound: u64) -> u64 {
    (bits as u64 * bound) >> 32
}

/// The connectors of every engine, and one that reads the ready-made batches.
#[derive(Debug)]
struct ReadyMade {
    batches: Arc<Batches>,
    others: BuiltinConnectors,
}

impl Connectors for ReadyMade {
    fn source(&self, _: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(Input(Arc::clone(&self.batches))))
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        self.others.sink(table, schema)
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        if table.connector() == "ready-made" { Ok(()) } else { self.others.check(table) }
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        self.others.list()
    }
}

#[derive(Debug)]
struct Input(Arc<Batches>);

impl Source for Input {
    fn bounded(&self) -> bool {
        true
    }

    fn replayable(&self) -> bool {
        true
    }

    fn partitions(&self, wanted: usize) -> Result<usize> {
        Ok(wanted)
    }

    fn open(&self, scan: &ScanSpec, partition: usize, of: usize, _: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        let schema = scan.schema();
        let whole = self.0.batches[0].schema();
        let columns = schema.fields().iter().map(|field| whole.index_of(field.name()).expect("a column of the input"));
        Ok(Box::new(Reader { batches: Arc::clone(&self.0), columns: columns.collect(), next: partition, step: of }))
    }
}

/// Partition `i` of `n` reads every `n`-th batch.
struct Reader {
    batches: Arc<Batches>,
    columns: Vec<usize>,
    next: usize,
    step: usize,
}

impl SourceReader for Reader {
    fn read(&mut self, _: usize, _: Duration) -> Result<Read> {
        let Some(batch) = self.batches.batches.get(self.next) else { return Ok(Read::End) };
        self.next += self.step;
        let rows = batch.project(&self.columns).expect("the columns are there");
        Ok(Read::Rows(SourceBatch { split: 0, rows, left_out_time: None, events: batch.num_rows() as u64 }))
    }

    fn offset(&self) -> Offset {
        Offset(self.next.to_string())
    }
}
