//! Stage graphs from physical expressions.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::{JoinType, NullEquality};
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::Operator as BinaryOperator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{BinaryExpr, col, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::prelude::SessionContext;
use savanna_streams_api::ids::StageId;
use savanna_streams_model::catalog::{ColumnDef, TableDef};
use savanna_streams_model::graph::{
    Aggregate, Exchange, LateRows, Lateness, Operator, Output, ProcessingTime, Scan, SinkSpec, Stage, StageGraph,
    Waiting, Watermark, WindowAggregate, WindowInput, WindowPlan, with_processing_time,
};
use savanna_streams_model::join::{IntervalJoin, JoinKind, JoinSide};
use savanna_streams_model::plan::{Leaf, PlanBytes};
use savanna_streams_model::source::ScanSpec;
use savanna_streams_model::time::{WindowSpec, Windows};

pub(crate) const MILLI: i64 = 1_000;

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, None)
}

/// Event time, key, value.
pub(crate) fn input_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("t", time_type(), true),
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

pub(crate) fn table(name: &str) -> TableDef {
    let schema = input_schema();
    let column = |field: &Arc<Field>| ColumnDef {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: true,
        computed: None,
    };
    TableDef {
        name: name.into(),
        columns: schema.fields().iter().map(column).collect(),
        watermark: None,
        partitioned_by: Vec::new(),
        primary_key: Vec::new(),
        options: [("connector".to_owned(), "memory".to_owned())].into(),
        statement: String::new(),
    }
}

pub(crate) fn functions() -> Arc<TaskContext> {
    SessionContext::new().task_ctx()
}

pub(crate) fn leaf(index: usize, schema: &SchemaRef) -> Arc<dyn ExecutionPlan> {
    Arc::new(Leaf::new(index, Arc::clone(schema)))
}

pub(crate) fn identity(schema: &SchemaRef) -> PlanBytes {
    PlanBytes::encode(&leaf(0, schema)).unwrap()
}

pub(crate) fn projection(input: Arc<dyn ExecutionPlan>, columns: &[&str]) -> Arc<dyn ExecutionPlan> {
    let schema = input.schema();
    let columns =
        columns.iter().map(|name| ProjectionExpr { expr: col(name, &schema).unwrap(), alias: (*name).into() });
    Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), input).unwrap())
}

/// `WHERE v >= 0`
pub(crate) fn not_negative(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let v = col("v", &input.schema()).unwrap();
    let condition = Arc::new(BinaryExpr::new(v, BinaryOperator::GtEq, lit(0_i64)));
    Arc::new(FilterExec::try_new(condition, input).unwrap())
}

/// `SELECT .. WHERE v >= 0` over the input.
pub(crate) fn filter_chain() -> PlanBytes {
    PlanBytes::encode(&projection(not_negative(leaf(0, &input_schema())), &["t", "k", "v"])).unwrap()
}

/// `HOP`, in milliseconds.
pub(crate) fn window(size: i64, slide: i64, offset: i64) -> WindowSpec {
    WindowSpec::hop(slide * MILLI, size * MILLI).shifted(offset * MILLI)
}

/// `CUMULATE`, in milliseconds.
pub(crate) fn cumulate(step: i64, size: i64, offset: i64) -> WindowSpec {
    WindowSpec::cumulate(step * MILLI, size * MILLI).shifted(offset * MILLI)
}

/// `SELECT k, COUNT(*), SUM(v), MIN(v), MAX(v), COUNT(DISTINCT v), COUNT(*) FILTER (WHERE v >= 10) .. GROUP BY k`, or without
/// the key.
pub(crate) fn aggregate_exec(keyed: bool) -> Arc<dyn ExecutionPlan> {
    let schema = input_schema();
    let v = || col("v", &schema).unwrap();
    let build = |builder: AggregateExprBuilder, name: &str| -> Arc<AggregateFunctionExpr> {
        Arc::new(builder.schema(Arc::clone(&schema)).alias(name).build().unwrap())
    };
    let one = || -> Vec<Arc<dyn PhysicalExpr>> { vec![lit(1_i64)] };
    let functions = vec![
        build(AggregateExprBuilder::new(count_udaf(), one()), "n"),
        build(AggregateExprBuilder::new(sum_udaf(), vec![v()]), "s"),
        build(AggregateExprBuilder::new(min_udaf(), vec![v()]), "lo"),
        build(AggregateExprBuilder::new(max_udaf(), vec![v()]), "hi"),
        build(AggregateExprBuilder::new(count_udaf(), vec![v()]).distinct(), "d"),
        build(AggregateExprBuilder::new(count_udaf(), one()), "large"),
    ];
    let large: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(v(), BinaryOperator::GtEq, lit(10_i64)));
    let filters = vec![None, None, None, None, None, Some(large)];
    let keys = if keyed { vec![(col("k", &schema).unwrap(), "k".to_owned())] } else { Vec::new() };
    let exec = AggregateExec::try_new(
        AggregateMode::Single,
        PhysicalGroupBy::new_single(keys),
        functions,
        filters,
        leaf(0, &schema),
        Arc::clone(&schema),
    );
    Arc::new(exec.unwrap())
}

pub(crate) fn window_aggregate(windows: impl Into<Windows>, keyed: bool) -> WindowAggregate {
    WindowAggregate {
        time_column: 0,
        windows: windows.into(),
        aggregate: PlanBytes::encode(&aggregate_exec(keyed)).unwrap(),
    }
}

/// The columns of [`aggregate_exec`] and of the windows.
pub(crate) fn windowed_schema(keyed: bool) -> SchemaRef {
    let mut fields: Vec<Field> = aggregate_exec(keyed).schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields.extend(["window_start", "window_end", "window_time"].map(|name| Field::new(name, time_type(), false)));
    Arc::new(Schema::new(fields))
}

pub(crate) fn scan(name: &str, delay_ms: i64) -> Scan {
    let watermark = Watermark {
        time: PlanBytes::encode(&projection(leaf(0, &input_schema()), &["t"])).unwrap(),
        delay: delay_ms * MILLI,
        lateness: Lateness::Never,
        late_rows: None,
        waiting: Waiting::default(),
    };
    Scan { source: ScanSpec::everything(table(name)), watermark: Some(watermark), processing_time: None }
}

pub(crate) fn keep_late_rows(scan: &mut Scan) {
    let late = LateRows { table: table("late"), projection: identity(&input_schema()) };
    scan.watermark.as_mut().unwrap().late_rows = Some(late);
}

/// The first half of a windowed aggregate.
pub(crate) fn panes(chain: PlanBytes, windows: impl Into<Windows>, keyed: bool) -> Output {
    Output { aggregate: Some(window_aggregate(windows, keyed)), ..Output::rows(chain) }
}

/// A cut by the first column.
pub(crate) fn by_key() -> Exchange {
    Exchange::KeyGroup { columns: vec![0] }
}

pub(crate) fn stage(id: u16, operator: Operator, output: Output, exchange: Exchange, next: u16) -> Stage {
    Stage { id: StageId(id), operator, output: Some(output), exchange, next: Some(StageId(next)) }
}

/// A scan whose rows are late by the windows that they are put in.
pub(crate) fn scan_stage(id: u16, mut scan: Scan, output: Output, exchange: Exchange, next: u16) -> Stage {
    if let Some(watermark) = &mut scan.watermark {
        watermark.lateness = output.lateness();
    }
    stage(id, Operator::Scan(scan), output, exchange, next)
}

pub(crate) fn merge_stage(id: u16, input: u16, windows: impl Into<Windows>, keyed: bool, next: u16) -> Stage {
    let aggregate = Aggregate { inputs: vec![StageId(input)], aggregate: window_aggregate(windows, keyed) };
    let output = Output::rows(identity(&windowed_schema(keyed)));
    stage(id, Operator::Aggregate(aggregate), output, Exchange::Single, next)
}

pub(crate) fn sink(id: u16, inputs: &[u16]) -> Stage {
    let inputs = inputs.iter().copied().map(StageId).collect();
    let operator = Operator::Sink(SinkSpec { inputs, table: None });
    Stage { id: StageId(id), operator, output: None, exchange: Exchange::Single, next: None }
}

/// Scan, aggregate, sink.
pub(crate) fn windowed(scan: Scan, chain: PlanBytes, windows: impl Into<Windows>, keyed: bool) -> StageGraph {
    let windows = windows.into();
    let exchange = if keyed { by_key() } else { Exchange::Single };
    let stages = vec![
        scan_stage(0, scan, panes(chain, windows, keyed), exchange, 1),
        merge_stage(1, 0, windows, keyed, 2),
        sink(2, &[1]),
    ];
    StageGraph { stages, output: windowed_schema(keyed).as_ref().clone() }
}

/// `SELECT k, COUNT(*), window_start, .. FROM TUMBLE(t, PROCTIME(), 10 s) GROUP BY k, window_start, window_end`
pub(crate) fn by_the_clock() -> StageGraph {
    let rows = with_processing_time(&input_schema());
    let count = AggregateExprBuilder::new(count_udaf(), vec![lit(1_i64)]).schema(Arc::clone(&rows)).alias("n");
    let keys = PhysicalGroupBy::new_single(vec![(col("k", &rows).unwrap(), "k".to_owned())]);
    let count = Arc::new(count.build().unwrap());
    let input = leaf(0, &rows);
    let exec =
        AggregateExec::try_new(AggregateMode::Single, keys, vec![count], vec![None], input, Arc::clone(&rows)).unwrap();
    let merged = counted_schema(&exec.schema());
    let exec: Arc<dyn ExecutionPlan> = Arc::new(exec);
    let window = WindowSpec::tumble(10_000 * MILLI);
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

fn counted_schema(aggregated: &Schema) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let window =
        ["window_start", "window_end", "window_time"].map(|name| Arc::new(Field::new(name, time.clone(), false)));
    Arc::new(Schema::new(aggregated.fields().iter().cloned().chain(window).collect::<Vec<_>>()))
}

/// `l JOIN r ON l.k = r.k AND l.t - r.t BETWEEN earliest AND latest`, by key group.
pub(crate) fn join_graph(kind: JoinKind, earliest: i64, latest: i64, delay: i64) -> StageGraph {
    let side = |stage| JoinSide { stages: vec![StageId(stage)], schema: input_schema(), keys: vec![1], time: 0 };
    let (earliest, latest) = (earliest * MILLI, latest * MILLI);
    let join = IntervalJoin { kind, left: side(0), right: side(1), earliest, latest, condition: None };
    let scan_of = |id, name: &str| {
        let mut scan = scan(name, delay);
        scan.watermark.as_mut().unwrap().lateness = Lateness::Time;
        let output = Output::rows(identity(&input_schema()));
        stage(id, Operator::Scan(scan), output, Exchange::KeyGroup { columns: vec![1] }, 2)
    };
    let output = Output::rows(identity(&join.schema()));
    let schema = join.schema();
    let join = stage(2, Operator::IntervalJoin(join), output, Exchange::Single, 3);
    StageGraph { stages: vec![scan_of(0, "l"), scan_of(1, "r"), join, sink(3, &[2])], output: schema.as_ref().clone() }
}

/// `l JOIN r USING (k)` over counts of the same window: key, left count, window end, right count.
pub(crate) fn counts_joined(delay: i64, window: WindowSpec) -> StageGraph {
    let schema = windowed_schema(true);
    let left = projection(leaf(0, &schema), &["k", "n", "window_end"]);
    let right = projection(leaf(1, &schema), &["k", "n"]);
    let on = vec![(col("k", &left.schema()).unwrap(), col("k", &right.schema()).unwrap())];
    let join = HashJoinExec::try_new(
        left,
        right,
        on,
        None,
        &JoinType::Inner,
        Some(vec![0, 1, 2, 4]),
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    );
    let join: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
    let output = join.schema().as_ref().clone();
    let input = |from: u16| WindowInput {
        stage: StageId(from),
        schema: windowed_schema(true),
        window_end: 8,
        first_rows: None,
    };
    let counted = |id: u16, name: &str, next: u16| {
        scan_stage(id, scan(name, delay), panes(identity(&input_schema()), window, true), by_key(), next)
    };
    let plan = WindowPlan { inputs: vec![input(2), input(3)], plan: PlanBytes::encode(&join).unwrap() };
    let stages = vec![
        counted(0, "l", 2),
        counted(1, "r", 3),
        merge_stage(2, 0, window, true, 4),
        merge_stage(3, 1, window, true, 4),
        stage(4, Operator::Window(plan), Output::rows(identity(&join.schema())), Exchange::Single, 5),
        sink(5, &[4]),
    ];
    StageGraph { stages, output }
}
