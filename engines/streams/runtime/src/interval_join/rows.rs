//! Rows as a join keeps them: sorted by time, and in the end copied out of whatever they came in.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use savanna_streams_api::Result;
use savanna_streams_model::time::{timestamp_values, to_event_time};

use crate::error::{broken, computing};
use crate::lateness::TIME_LIMIT;
use crate::snapshot::marked;
use savanna_streams_functions::without_shared_strings;

/// Rows of one segment.
pub(super) struct Rows {
    /// Sorted by time.
    pub(super) batch: RecordBatch,
    /// The event times in microseconds.
    pub(super) times: Vec<i64>,
    /// Which rows have met a partner.
    pub(super) matched: Vec<bool>,
    /// Whether the batch holds no memory but its own.
    pub(super) copied: bool,
}

/// The column that says which rows have met a partner.
pub(super) const MET: &str = "met";

/// Batches with fewer rows are joined: the fewer segments a join has, the better.
const SEGMENT_ROWS_MIN: usize = 4096;

/// Batches in groups, each of which is worth a segment.
pub(super) fn groups(mut batches: &[RecordBatch]) -> impl Iterator<Item = &[RecordBatch]> {
    std::iter::from_fn(move || {
        let mut rows = 0;
        let enough = batches.iter().position(|batch| {
            rows += batch.num_rows();
            rows >= SEGMENT_ROWS_MIN
        });
        let (group, rest) = batches.split_at(enough.map_or(batches.len(), |last| last + 1));
        batches = rest;
        (rows > 0).then_some(group)
    })
}

impl Rows {
    /// The rows with a column at the end that says which have met a partner.
    pub(super) fn marked(&self) -> Result<RecordBatch> {
        marked(&self.batch, (MET, BooleanArray::from(self.matched.clone())))
    }

    /// The opposite. Rows keep their order, which is by time.
    pub(super) fn unmarked(marked: &RecordBatch, schema: &SchemaRef, time: usize) -> Result<Self> {
        let width = schema.fields().len();
        let fits = marked.num_columns() == width + 1 && marked.column(width).data_type() == &DataType::Boolean;
        if !fits {
            return Err(broken(format!("rows of a join with {} columns do not fit {schema}", marked.num_columns())));
        }
        let batch = RecordBatch::try_new(Arc::clone(schema), marked.columns()[..width].to_vec())
            .map_err(|e| broken(format!("rows of a join do not fit: {e}")))?;
        let (values, unit) = timestamp_values(batch.column(time))?;
        let times = values.iter().map(|value| to_event_time(*value, unit).0).collect();
        Ok(Self {
            times,
            matched: marked.column(width).as_boolean().iter().map(|met| met == Some(true)).collect(),
            batch,
            copied: false,
        })
    }
}

/// What came in: rows that may find a partner, and rows that have no time or a key that is NULL, which never do.
pub(super) struct Arrived {
    pub(super) rows: Rows,
    pub(super) alone: Option<RecordBatch>,
}

impl Arrived {
    pub(super) fn sorted(schema: &SchemaRef, batches: &[RecordBatch], keys: &[usize], time: usize) -> Result<Self> {
        let batch = match batches {
            [one] => one.clone(),
            _ => concat(schema, batches.iter())?,
        };
        let times = batch.column(time);
        let (values, unit) = timestamp_values(times)?;
        let nulls = keys.iter().chain([&time]).map(|column| batch.column(*column).logical_nulls());
        let nulls = nulls.fold(None, |all, nulls| NullBuffer::union(all.as_ref(), nulls.as_ref()));
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            let alone = taken(&batch, positions(nulls.len(), |row| nulls.is_null(row)))?;
            let batch = taken(&batch, positions(nulls.len(), |row| nulls.is_valid(row)))?;
            let rows = Self::sorted(schema, &[batch], keys, time)?.rows;
            return Ok(Self { rows, alone: Some(alone) });
        }
        let times: Vec<i64> = values.iter().map(|value| to_event_time(*value, unit).0).collect();
        if times.iter().any(|time| time.saturating_abs() > TIME_LIMIT) {
            return Err(computing("event time", &"a value lies beyond any bounds of a join; filter such rows out"));
        }
        let matched = vec![false; times.len()];
        let rows = sorted(Rows { batch, times, matched, copied: false })?;
        Ok(Self { rows, alone: None })
    }
}

/// Rows in the order of their times.
fn sorted(rows: Rows) -> Result<Rows> {
    let Rows { batch, times, matched, copied } = rows;
    if times.is_sorted() {
        return Ok(Rows { batch, times, matched, copied });
    }
    let mut order = positions(times.len(), |_| true);
    order.sort_by_key(|row| times[*row as usize]);
    Ok(Rows {
        times: order.iter().map(|row| times[*row as usize]).collect(),
        matched: order.iter().map(|row| matched[*row as usize]).collect(),
        batch: taken(&batch, order)?,
        copied: false,
    })
}

/// Several segments as one.
pub(super) fn concatenated(schema: &SchemaRef, parts: &[Rows]) -> Result<Rows> {
    let rows = sorted(Rows {
        batch: concat(schema, parts.iter().map(|part| &part.batch))?,
        times: parts.iter().flat_map(|part| &part.times).copied().collect(),
        matched: parts.iter().flat_map(|part| &part.matched).copied().collect(),
        copied: false,
    })?;
    // Of one part alone, the concatenation is a slice.
    let batch =
        if parts.len() == 1 { copied(&rows.batch, 0..rows.times.len())? } else { without_shared_strings(&rows.batch)? };
    Ok(Rows { batch, copied: true, ..rows })
}

/// Some neighbouring rows, copied.
pub(super) fn copied(batch: &RecordBatch, rows: Range<usize>) -> Result<RecordBatch> {
    without_shared_strings(&taken(batch, (rows.start as u32..rows.end as u32).collect())?)
}

fn positions(rows: usize, keep: impl Fn(usize) -> bool) -> Vec<u32> {
    (0..rows).filter(|row| keep(*row)).map(|row| row as u32).collect()
}

fn concat<'a>(schema: &SchemaRef, batches: impl Iterator<Item = &'a RecordBatch> + Clone) -> Result<RecordBatch> {
    concat_batches(schema, batches).map_err(|e| computing("gathering rows of a join", &e))
}

fn taken(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch> {
    take_record_batch(batch, &UInt32Array::from(rows)).map_err(|e| computing("gathering rows of a join", &e))
}
