//! Joins of streams: with each other within bounds of time, and with bounded tables.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::plan::PlanBytes;
use crate::source::ScanSpec;
use savanna_streams_api::ids::StageId;

/// Which rows an interval join gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinKind {
    /// Pairs that match.
    Inner,
    /// Pairs, and left rows without a partner.
    Left,
    /// Pairs, and right rows without a partner.
    Right,
    /// Pairs, and rows of either side without a partner.
    Full,
    /// Left rows that have a partner, each once.
    Semi,
    /// Left rows that have none.
    Anti,
}

impl JoinKind {
    /// Whether only the left side's columns come out.
    pub const fn left_only(self) -> bool {
        matches!(self, Self::Semi | Self::Anti)
    }

    /// Whether left rows without a partner come out.
    pub const fn keeps_left(self) -> bool {
        matches!(self, Self::Left | Self::Full | Self::Anti)
    }

    /// Whether right rows without a partner come out.
    pub const fn keeps_right(self) -> bool {
        matches!(self, Self::Right | Self::Full)
    }
}

/// A join of two streams whose event times lie near each other:
/// `ON l.key = r.key AND l.time BETWEEN r.time + earliest AND r.time + latest`.
///
/// A row waits for partners until the other side's watermark has passed the last instant at which one could come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalJoin {
    /// Which rows come out. (`kind` is the name of an operator's kind where this is one.)
    #[serde(rename = "join")]
    pub kind: JoinKind,
    /// The left side.
    pub left: JoinSide,
    /// The right side.
    pub right: JoinSide,
    /// The least of left time - right time, in microseconds, included.
    pub earliest: i64,
    /// The most of left time - right time, in microseconds, included.
    pub latest: i64,
    /// What else a pair must fulfil.
    pub condition: Option<JoinCondition>,
}

/// One side of an [`IntervalJoin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSide {
    /// The stages that its rows come from. Several are a `UNION ALL`.
    pub stages: Vec<StageId>,
    /// Its columns.
    pub schema: SchemaRef,
    /// The columns that must equal the other side's, in the same order and of the same types. NULL equals nothing.
    pub keys: Vec<usize>,
    /// The event time. A row without one has no partner.
    pub time: usize,
}

/// A condition on pairs of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinCondition {
    /// The left columns that it reads.
    pub left: Vec<usize>,
    /// The right columns that it reads.
    pub right: Vec<usize>,
    /// A projection to one BOOLEAN column, over a leaf with these left columns, then these right columns.
    pub holds: PlanBytes,
}

impl IntervalJoin {
    /// The columns that come out: the left side's, and unless only those are asked for, the right side's.
    pub fn schema(&self) -> SchemaRef {
        let fields = |side: &JoinSide, padded: bool| -> Vec<Arc<Field>> {
            let padded = |field: &Arc<Field>| match padded {
                true => Arc::new(field.as_ref().clone().with_nullable(true)),
                false => Arc::clone(field),
            };
            side.schema.fields().iter().map(padded).collect()
        };
        let mut columns = fields(&self.left, self.kind.keeps_right());
        if !self.kind.left_only() {
            columns.extend(fields(&self.right, self.kind.keeps_left()));
        }
        Arc::new(Schema::new(columns))
    }
}

/// A join of a stream with a bounded table, which is read when the query starts, or asked for the rows of the keys that come:
/// `JOIN t FOR SYSTEM_TIME AS OF s.proctime ON s.key = t.key`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// What is read of the table.
    pub table: ScanSpec,
    /// The table is read anew so often.
    pub refresh: Option<Duration>,
    /// How it is asked by key, if it is not read as a whole.
    #[serde(default)]
    pub by_key: Option<ByKey>,
    /// Filters and projections over the table's rows.
    pub chain: PlanBytes,
    /// Whether rows of the stream that have no partner come out, with NULLs for the table's columns.
    pub outer: bool,
    /// The columns of the stream that must equal `table_keys`, in the same order and of the same types. NULL equals nothing.
    pub stream_keys: Vec<usize>,
    /// The columns in the output of `chain`.
    pub table_keys: Vec<usize>,
    /// What else a pair must fulfil; the stream is left.
    pub condition: Option<JoinCondition>,
    /// Filters and projections over the stream's columns followed by the table's.
    pub after: PlanBytes,
}

/// How a table is asked for the rows of the keys that come, and for how long its answers are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByKey {
    /// The table's columns that must equal the stream's keys, in the order of [`Lookup::stream_keys`].
    pub columns: Vec<String>,
    /// What is kept of answers, if anything.
    pub cache: Option<CacheBounds>,
    /// For so long the table may be away when it is asked.
    pub patience: Duration,
}

/// What a cache of answers holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheBounds {
    /// So many rows. That a key has none counts as one.
    pub max_rows: usize,
    /// Answers of this age are not used.
    pub ttl: Duration,
}
