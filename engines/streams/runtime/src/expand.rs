//! Windows as columns: each row once per window it lies in, with the window's borders at the end.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt32Array,
};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_model::graph::{Expand, WINDOW_COLUMNS};
use savanna_streams_model::time::{EventTime, WindowSpec, from_event_time, timestamp_values, to_event_time};

use crate::chain::{Chain, batch_of};
use crate::error::{broken, computing};
use crate::lateness::TIME_LIMIT;

/// `window_time` is the last instant of the window in TIMESTAMP(3).
const BEFORE_END_US: i64 = 1_000;

/// The operator.
pub(crate) struct ExpandRows {
    time_column: usize,
    window: WindowSpec,
    schema: SchemaRef,
    after: Chain,
}

impl ExpandRows {
    pub(crate) fn decode(expand: &Expand, functions: &Arc<TaskContext>) -> Result<Self> {
        let after = Chain::decode(&expand.after, functions)?;
        let schema = Arc::clone(after.input());
        check_window_columns(&schema)?;
        Ok(Self { time_column: expand.time_column, window: expand.window, schema, after })
    }

    /// Expands a batch. Rows count for windows that end at `from` or later. Also tells how many rows had no event time.
    pub(crate) fn apply(&mut self, rows: &RecordBatch, from: Option<i64>) -> Result<(Vec<RecordBatch>, u64)> {
        let times = rows.column(self.time_column);
        let (values, unit) = timestamp_values(times)?;
        let from = from.unwrap_or(i64::MIN);
        let (mut positions, mut starts, mut ends, mut without_time) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (row, value) in (0_u32..).zip(values) {
            if times.is_null(row as usize) {
                without_time += 1;
                continue;
            }
            let time = to_event_time(*value, unit);
            if time.0.saturating_abs() > TIME_LIMIT {
                return Err(computing(
                    "event time",
                    &format!(
                        "the time {value} (in {unit:?}s since 1970) is outside the range of windows; filter such rows out"
                    ),
                ));
            }
            for (start, end) in self.window.windows_of(time).filter(|(_, end)| *end >= from) {
                positions.push(row);
                starts.push(start);
                ends.push(end);
            }
        }
        if positions.is_empty() {
            return Ok((Vec::new(), without_time));
        }
        let once = self.window.has_one_size() && self.window.size() <= self.window.slide();
        let whole = positions.len() == rows.num_rows() && without_time == 0 && once;
        let rows = if whole {
            rows.clone()
        } else {
            take_record_batch(rows, &UInt32Array::from(positions)).map_err(|e| computing("expanding windows", &e))?
        };
        let mut columns = rows.columns().to_vec();
        columns.extend(window_columns(&self.schema, &starts, &ends)?);
        let expanded = batch_of(&self.schema, columns, rows.num_rows())?;
        Ok((self.after.apply(expanded)?, without_time))
    }

    /// The columns that come out.
    pub(crate) fn output(&self) -> &SchemaRef {
        self.after.output()
    }
}

fn window_fields(schema: &SchemaRef) -> Option<&[Arc<Field>]> {
    let fields = schema.fields();
    fields.len().checked_sub(WINDOW_COLUMNS.len()).map(|first| &fields[first..])
}

/// Checks that a schema ends with the window columns, as timestamps.
pub(crate) fn check_window_columns(schema: &SchemaRef) -> Result<()> {
    let fields = window_fields(schema).unwrap_or_default();
    if fields.len() == WINDOW_COLUMNS.len() && fields.iter().all(|f| matches!(f.data_type(), DataType::Timestamp(..))) {
        return Ok(());
    }
    Err(broken(format!("expected the columns {WINDOW_COLUMNS:?} as timestamps at the end of {schema}")))
}

/// The window columns for windows from `starts` to `ends` (microseconds), in the types that `schema` ends with.
pub(crate) fn window_columns(schema: &SchemaRef, starts: &[i64], ends: &[i64]) -> Result<Vec<ArrayRef>> {
    let columns = [(starts, 0), (ends, 0), (ends, BEFORE_END_US)];
    let fields = window_fields(schema).unwrap_or_default();
    fields.iter().zip(columns).map(|(field, (times, before))| timestamps(field.data_type(), times, before)).collect()
}

/// Timestamps that lie `before` microseconds before `times`.
fn timestamps(data_type: &DataType, times: &[i64], before: i64) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, zone) = data_type else {
        return Err(broken(format!("a window column must be a timestamp, but it is planned as {data_type}")));
    };
    let values: Int64Array =
        times.iter().map(|time| from_event_time(EventTime(time.saturating_sub(before)), *unit)).collect();
    let zone = zone.clone();
    Ok(match unit {
        TimeUnit::Second => {
            let values: TimestampSecondArray = values.reinterpret_cast();
            Arc::new(values.with_timezone_opt(zone))
        }
        TimeUnit::Millisecond => {
            let values: TimestampMillisecondArray = values.reinterpret_cast();
            Arc::new(values.with_timezone_opt(zone))
        }
        TimeUnit::Microsecond => {
            let values: TimestampMicrosecondArray = values.reinterpret_cast();
            Arc::new(values.with_timezone_opt(zone))
        }
        TimeUnit::Nanosecond => {
            let values: TimestampNanosecondArray = values.reinterpret_cast();
            Arc::new(values.with_timezone_opt(zone))
        }
    })
}
