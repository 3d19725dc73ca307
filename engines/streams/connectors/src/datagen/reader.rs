//! Reads one partition: every n-th row, at the pace of the table.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::{Offset, Read, SourceBatch, SourceReader};
use serde::{Deserialize, Serialize};

use super::fields::{Field, Row};

/// Rows are gathered for this long, so that batches do not get tiny.
const GATHER: Duration = Duration::from_millis(5);

/// How many rows there are, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) rows_per_second: u64,
    pub(super) rows: Option<u64>,
}

impl Pace {
    /// When a row comes, in milliseconds after the first.
    fn millis(self, row: u64) -> u64 {
        u64::try_from(u128::from(row) * 1_000 / u128::from(self.rows_per_second)).unwrap_or(u64::MAX)
    }

    /// How many rows have come after some time.
    fn due(self, elapsed: Duration) -> u64 {
        let due = elapsed.as_micros().saturating_mul(u128::from(self.rows_per_second)) / 1_000_000;
        u64::try_from(due).unwrap_or(u64::MAX)
    }
}

/// Where a partition stands.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Place {
    /// The number of its next row.
    next: u64,
    /// The time of row 0, in milliseconds since 1970.
    start_ms: i64,
}

/// Reads one partition.
pub(super) struct Reader {
    fields: Vec<Field>,
    schema: SchemaRef,
    pace: Pace,
    partitions: u64,
    place: Place,
    opened: Instant,
    /// The row that was next when the clock started.
    opened_at: u64,
}

impl Reader {
    /// Opens partition `share.0` of `share.1`, at the start or at an offset.
    pub(super) fn open(
        fields: Vec<Field>,
        schema: SchemaRef,
        pace: Pace,
        share: (u64, u64),
        start_ms: Option<i64>,
        from: Option<&Offset>,
    ) -> Result<Self> {
        let (partition, partitions) = share;
        let place = match from {
            None => Place { next: partition, start_ms: start_ms.unwrap_or_else(now_ms) },
            Some(offset) => {
                let place: Option<Place> = serde_json::from_str(&offset.0).ok();
                place.filter(|place| place.next % partitions == partition).ok_or_else(|| {
                    StreamError::invalid(format!(
                        "offset '{}' is not a position in partition {partition} of {partitions} of a datagen source; start \
                         the query anew, or with as many partitions as before",
                        offset.0
                    ))
                })?
            }
        };
        Ok(Self { fields, schema, pace, partitions, place, opened: Instant::now(), opened_at: place.next })
    }

    /// The rows that can be read now, at most `most`.
    fn take(&mut self, most: usize) -> Vec<Row> {
        let due = self.opened_at.saturating_add(self.pace.due(self.opened.elapsed())).saturating_add(1);
        let end = due.min(self.pace.rows.unwrap_or(u64::MAX));
        let row = |number: u64| Row {
            number,
            time_ms: self.place.start_ms.saturating_add_unsigned(self.pace.millis(number)),
        };
        let numbers = (self.place.next..end).step_by(self.partitions as usize).take(most.max(1));
        let rows: Vec<Row> = numbers.map(row).collect();
        self.place.next += rows.len() as u64 * self.partitions;
        rows
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl SourceReader for Reader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        if self.pace.rows.is_some_and(|rows| self.place.next >= rows) {
            return Ok(Read::End);
        }
        let mut rows = self.take(max_events);
        if rows.is_empty() {
            thread::sleep(GATHER.min(wait));
            rows = self.take(max_events);
        }
        if rows.is_empty() {
            return Ok(Read::Pending);
        }
        let columns = self.fields.iter().map(|field| field.make(&rows)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| StreamError::Internal(format!("generated rows do not fit their table: {e}")))?;
        Ok(Read::Rows(SourceBatch { split: 0, rows: batch, left_out_time: None, events: rows.len() as u64 }))
    }

    fn offset(&self) -> Offset {
        Offset(serde_json::to_string(&self.place).unwrap_or_default())
    }
}
