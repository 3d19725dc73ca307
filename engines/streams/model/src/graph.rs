//! The stage graph: a query cut at every exchange, as plain data that can be stored and sent.
//!
//! ```text
//!   scan a -- output --+          scans: one instance per source partition
//!                      | deltas, by key group
//!   scan b -- output --+
//!                      v
//!            merge panes, close windows -- output      a function group of N members
//!                      | rows, by key group
//!                      v
//!            plan over each closed window -- output    a function group of N members
//!                      | rows
//!                      v
//!                     sink                             one member
//! ```
//!
//! Every operator hands its rows to the same *output*: filters and projections, then windows as columns or the first half
//! of a windowed aggregate, then the cut. So anything can stand on anything.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::catalog::TableDef;
use crate::join::{IntervalJoin, Lookup};
use crate::plan::PlanBytes;
use crate::source::ScanSpec;
use crate::state::StateKind;
use crate::time::{WindowSpec, Windows};
use savanna_streams_api::ids::StageId;

/// The names of the columns that a window adds, in this order, at the end.
pub const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// The name of the column that holds the instant of a row's epoch, a TIMESTAMP(3), behind the columns of a scan.
pub const PROCESSING_TIME: &str = "PROCTIME()";

/// A query, cut in stages. `stages[i].id == i`; inputs come before the stages that read them; the last is the sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageGraph {
    /// The stages.
    pub stages: Vec<Stage>,
    /// The columns of the result.
    pub output: Schema,
}

/// One stage: a function, or a group of functions with equal code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Its position in the graph.
    pub id: StageId,
    /// What it does.
    #[serde(with = "operator_form")]
    pub operator: Operator,
    /// What happens to the operator's rows then; none for the sink.
    pub output: Option<Output>,
    /// How its output is cut for the next stage.
    pub exchange: Exchange,
    /// The stage that its output goes to; none for the sink.
    pub next: Option<StageId>,
}

/// What happens to an operator's rows before they leave its stage: `chain`, the look-ups, then at most one of `expand` and
/// `aggregate`, then `first_rows`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Filters and projections over the operator's columns, a chain of `FilterExec` and `ProjectionExec` over a
    /// placeholder leaf.
    pub chain: PlanBytes,
    /// Joins with bounded tables, in this order.
    #[serde(default)]
    pub lookups: Vec<Lookup>,
    /// Windows that are added to rows without aggregating them (`SELECT .. FROM TABLE(HOP(..))`).
    pub expand: Option<Expand>,
    /// The first half of a windowed aggregate: deltas leave the stage instead of rows.
    pub aggregate: Option<WindowAggregate>,
    /// A plan over some of the rows that leave, which keeps those that the next stage can need: the first of each window.
    #[serde(default)]
    pub first_rows: Option<PlanBytes>,
}

impl Output {
    /// Rows as the chain gives them.
    pub fn rows(chain: PlanBytes) -> Self {
        Self { chain, lookups: Vec::new(), expand: None, aggregate: None, first_rows: None }
    }

    /// The windows that rows are put in.
    pub fn windows(&self) -> Option<Windows> {
        let expanded = self.expand.as_ref().map(|expand| Windows::Fixed(expand.window));
        expanded.or_else(|| self.aggregate.as_ref().map(|aggregate| aggregate.windows))
    }

    /// Which rows come too late for this output.
    pub fn lateness(&self) -> Lateness {
        match self.windows() {
            None => Lateness::Never,
            Some(Windows::Fixed(spec)) => Lateness::Windows(spec),
            Some(Windows::Session { .. }) => Lateness::Time,
        }
    }
}

/// How a stage's output is cut in payloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// One payload to the only member of the next stage.
    Single,
    /// One payload per member of the next stage: each row goes to the member that owns its key group.
    KeyGroup {
        /// The columns that make the key, in rows or in deltas (where the key columns come first).
        columns: Vec<usize>,
    },
}

/// What a stage does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a graph holds a handful of operators, made once per query")]
pub enum Operator {
    /// Reads a source.
    Scan(Scan),
    /// Merges partial aggregates of panes and closes windows.
    Aggregate(Aggregate),
    /// Runs a plan over the rows of each closed window.
    Window(WindowPlan),
    /// Joins two streams within bounds of time.
    IntervalJoin(IntervalJoin),
    /// Gives rows to a sink.
    Sink(SinkSpec),
}

impl Operator {
    /// The kind of state that this operator holds.
    pub fn state(&self) -> StateKind {
        match self {
            Self::Scan(_) | Self::Sink(_) => StateKind::Stateless,
            Self::Aggregate(_) => StateKind::Merge,
            Self::Window(_) | Self::IntervalJoin(_) => StateKind::Sequence,
        }
    }
}

/// An operator in text has its kind inside, of which [`StageGraph::code`] is made. Between nodes the kind is in front, where serde puts it by itself:
/// what nodes send each other does not describe itself.
mod operator_form {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Aggregate, IntervalJoin, Operator, Scan, SinkSpec, WindowPlan};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "Operator", tag = "kind", rename_all = "kebab-case")]
    #[expect(clippy::large_enum_variant, reason = "it stands for the operator and is never made")]
    enum OperatorText {
        Scan(Scan),
        Aggregate(Aggregate),
        Window(WindowPlan),
        IntervalJoin(IntervalJoin),
        Sink(SinkSpec),
    }

    pub(super) fn serialize<S: Serializer>(operator: &Operator, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            OperatorText::serialize(operator, serializer)
        } else {
            operator.serialize(serializer)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Operator, D::Error> {
        if deserializer.is_human_readable() {
            OperatorText::deserialize(deserializer)
        } else {
            Operator::deserialize(deserializer)
        }
    }
}

/// Reading a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// What is read.
    pub source: ScanSpec,
    /// The running watermark of each partition; none if the table declares none.
    pub watermark: Option<Watermark>,
    /// What it takes from the clock, if anything.
    #[serde(default)]
    pub processing_time: Option<ProcessingTime>,
}

/// What a scan takes from the clock. Its columns are then followed by [`PROCESSING_TIME`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessingTime {
    /// The column alone.
    Column,
    /// The column and the watermark: the rows are put in windows of processing time.
    Watermark,
}

/// Where the watermark comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// The event time: a chain of one projection to one column, over the scan's schema.
    pub time: PlanBytes,
    /// How far the watermark stays behind, in microseconds.
    pub delay: i64,
    /// Which rows come too late. It is decided here and nowhere else: behind the scan, rows are applied before the
    /// watermark of their epoch.
    pub lateness: Lateness,
    /// Where late rows go, if they are kept.
    pub late_rows: Option<LateRows>,
    /// Which partitions wait for which.
    pub waiting: Waiting,
}

/// How partitions wait for one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// A partition that gave nothing for so many microseconds is idle: nothing waits for it. When it gives rows again, it begins
    /// at the query's watermark.
    pub idle_after: Option<i64>,
    /// Partitions that keep step.
    pub alignment: Option<Alignment>,
}

/// Partitions of one group do not read on while their watermark is too far ahead of the lowest in the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alignment {
    /// The name of the group; tables that name the same one are aligned with each other.
    pub group: String,
    /// How far ahead is too far, in microseconds.
    pub max_drift: i64,
}

/// Which rows of a scan come too late to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lateness {
    /// None: nothing waits for the watermark.
    Never,
    /// Those whose windows all ended at or before their partition's running watermark.
    Windows(WindowSpec),
    /// Those before their partition's running watermark: they could join what is over already: a session, or rows that
    /// no longer wait for partners.
    Time,
}

/// The side table for late rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateRows {
    /// The table they are written to.
    pub table: TableDef,
    /// The projection of a late row (over the scan's schema) to that table's columns.
    pub projection: PlanBytes,
}

/// Windows as columns: each row comes out once per window, with the window columns at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expand {
    /// The event-time column in the output of the chain and the look-ups.
    pub time_column: usize,
    /// The windows.
    pub window: WindowSpec,
    /// Filters and projections over the chain's columns followed by the window columns.
    pub after: PlanBytes,
}

/// A windowed aggregate, kept by panes or by fragments of sessions. Rows with a NULL event time are dropped and counted as late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowAggregate {
    /// The event-time column in the input.
    pub time_column: usize,
    /// The windows. Sessions are found by the group expressions: rows of equal keys.
    pub windows: Windows,
    /// A single-mode `AggregateExec` over a placeholder leaf with the input's schema: group expressions without the
    /// window columns, aggregates, filters.
    pub aggregate: PlanBytes,
}

/// The second half of a windowed aggregate. Its rows are the key columns, the aggregates, and the window columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// The stages that send partial aggregates. Several are a `UNION ALL`.
    pub inputs: Vec<StageId>,
    /// The aggregate, as in the senders.
    pub aggregate: WindowAggregate,
}

/// A plan that runs over each closed window alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowPlan {
    /// The inputs: placeholder leaf number `i` of the plan reads `inputs[i]`.
    pub inputs: Vec<WindowInput>,
    /// Any DataFusion plan over the leaves.
    pub plan: PlanBytes,
}

/// One input of a [`WindowPlan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowInput {
    /// The stage it comes from.
    pub stage: StageId,
    /// Its columns.
    pub schema: SchemaRef,
    /// Which of them is `window_end`: rows are gathered by it.
    pub window_end: usize,
    /// A plan over some of the rows that keeps those that are needed, as in the sender.
    #[serde(default)]
    pub first_rows: Option<PlanBytes>,
}

/// Where the result goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkSpec {
    /// The stages it comes from.
    pub inputs: Vec<StageId>,
    /// The table of `INSERT INTO`, or none for a `SELECT`, whose rows go to whoever asked.
    pub table: Option<TableDef>,
}

impl Scan {
    /// The columns that it gives: the source's, then the instant of processing time if it is asked for.
    pub fn schema(&self) -> SchemaRef {
        let schema = self.source.schema();
        match self.processing_time {
            None => schema,
            Some(_) => with_processing_time(&schema),
        }
    }
}

/// A scan's columns followed by [`PROCESSING_TIME`].
pub fn with_processing_time(schema: &Schema) -> SchemaRef {
    let instant = Field::new(PROCESSING_TIME, DataType::Timestamp(TimeUnit::Millisecond, None), false);
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([Arc::new(instant)]).collect::<Vec<_>>()))
}

impl StageGraph {
    /// The code of the query: a stable hash of the graph (FNV-1a over its JSON), 12 hexadecimal digits. It is shown to everybody, so that
    /// passwords are no part of it: who knows the rest could try them out.
    pub fn code(&self) -> String {
        let text = serde_json::to_vec(&self.without_secrets()).unwrap_or_default();
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{:012x}", hash >> 16)
    }

    /// The graph with tables as they may be shown.
    fn without_secrets(&self) -> Self {
        let mut graph = self.clone();
        for stage in &mut graph.stages {
            match &mut stage.operator {
                Operator::Scan(scan) => {
                    scan.source.table.hide_secrets();
                    let late = scan.watermark.as_mut().and_then(|watermark| watermark.late_rows.as_mut());
                    late.into_iter().for_each(|late| late.table.hide_secrets());
                }
                Operator::Sink(sink) => sink.table.iter_mut().for_each(TableDef::hide_secrets),
                Operator::Aggregate(_) | Operator::Window(_) | Operator::IntervalJoin(_) => {}
            }
            let lookups = stage.output.iter_mut().flat_map(|output| &mut output.lookups);
            lookups.for_each(|lookup| lookup.table.table.hide_secrets());
        }
        graph
    }
}
