//! The stage graph: a query cut at every exchange, as plain data that can be stored and sent.
//!
//! ```text
//!   scan -> chain -> partial panes            stage 0, one instance per source partition
//!                |  by key group
//!                v
//!           merge panes, close windows, chain  stage 1, a function group of N members
//!                |  by window
//!                v
//!           plan over each closed window       stage 2 (only for joins and aggregates of windows)
//!                |
//!                v
//!              sink                            last stage, one member
//! ```

use arrow_schema::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::catalog::TableDef;
use crate::ids::StageId;
use crate::plan::PlanBytes;
use crate::source::ScanSpec;
use crate::state::StateKind;
use crate::time::WindowSpec;

/// The names of the columns that a window adds, in this order, at the end.
pub const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

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
    pub operator: Operator,
    /// How its output is cut for the next stage.
    pub exchange: Exchange,
    /// The stage that its output goes to; none for the sink.
    pub next: Option<StageId>,
}

/// How a stage's output is cut in payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// One payload to the only member of the next stage.
    Single,
    /// One payload per member of the next stage, rows by the key group of their key columns.
    KeyGroup,
}

/// What a stage does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "a graph holds a handful of operators, made once per query")]
pub enum Operator {
    /// Reads a source.
    Scan(Scan),
    /// Merges partial aggregates of panes and closes windows.
    Aggregate(Aggregate),
    /// Runs a plan over the rows of each closed window.
    Window(WindowPlan),
    /// Gives rows to a sink.
    Sink(SinkSpec),
}

impl Operator {
    /// The kind of state that this operator holds.
    pub fn state(&self) -> StateKind {
        match self {
            Self::Scan(_) | Self::Sink(_) | Self::Window(_) => StateKind::Stateless,
            Self::Aggregate(_) => StateKind::Merge,
        }
    }
}

/// Reading a source, filtering and projecting, and where the next stage aggregates, doing its first half.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// What is read.
    pub source: ScanSpec,
    /// The running watermark of each partition; none if the table declares none.
    pub watermark: Option<Watermark>,
    /// Filters and projections over the scan's schema, a chain of `FilterExec` and `ProjectionExec` over a
    /// placeholder leaf.
    pub chain: PlanBytes,
    /// Windows that are added to rows without aggregating them (`SELECT .. FROM TABLE(HOP(..))`): each row comes out once
    /// per window with the window columns at the end, then `after_windows` runs over them.
    pub expand: Option<Expand>,
    /// The partial aggregate.
    pub aggregate: Option<PaneAggregate>,
}

/// Where the watermark comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// The event time: a chain of one projection to one column, over the scan's schema.
    pub time: PlanBytes,
    /// How far the watermark stays behind, in microseconds.
    pub delay: i64,
    /// Where rows go that are too late for all of their windows, if they are kept.
    pub late_rows: Option<LateRows>,
}

/// The side table for late rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateRows {
    /// The table they are written to.
    pub table: TableDef,
    /// The projection of a late row (over the scan's schema) to that table's columns.
    pub projection: PlanBytes,
}

/// Windows as columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expand {
    /// The event-time column in the output of `chain`.
    pub time_column: usize,
    /// The windows.
    pub window: WindowSpec,
    /// Filters and projections over the chain's columns followed by the window columns.
    pub after: PlanBytes,
}

/// A windowed aggregate, kept by panes. Rows with a NULL event time are dropped and counted as late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaneAggregate {
    /// The event-time column in the input.
    pub time_column: usize,
    /// The windows.
    pub window: WindowSpec,
    /// A single-mode `AggregateExec` over a placeholder leaf with the input's schema: group expressions without the
    /// window columns, aggregates, filters.
    pub aggregate: PlanBytes,
}

/// The second half of a windowed aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// The stage that sends the partial aggregates.
    pub input: StageId,
    /// The aggregate, as in the sender.
    pub aggregate: PaneAggregate,
    /// Filters and projections over key columns, aggregates, and the window columns (in this order).
    pub chain: PlanBytes,
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
}

/// Where the result goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkSpec {
    /// The stages it comes from.
    pub inputs: Vec<StageId>,
    /// The table of `INSERT INTO`, or none for a `SELECT`, whose rows go to whoever asked.
    pub table: Option<TableDef>,
}

impl StageGraph {
    /// The code of the query: a stable hash of the graph (FNV-1a over its JSON), 12 hexadecimal digits.
    pub fn code(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{:012x}", hash >> 16)
    }
}
