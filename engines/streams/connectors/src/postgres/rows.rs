//! Which rows of an epoch count: of each key the last one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, RowConverter, SortField};
use savanna_streams_api::{Result, StreamError};

/// The last row of each key, in the order in which they came.
///
/// # Errors
/// A key has a NULL in it.
pub(super) fn last_of_each(rows: &[RecordBatch], key: &[usize]) -> Result<Vec<RecordBatch>> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let fields = key.iter().map(|at| SortField::new(first.schema_ref().field(*at).data_type().clone()));
    let converter = RowConverter::new(fields.collect()).map_err(|e| broken(&e))?;
    let mut last: HashMap<OwnedRow, (usize, usize)> = HashMap::new();
    for (batch, rows) in rows.iter().enumerate() {
        let columns: Vec<ArrayRef> = key.iter().map(|at| ArrayRef::clone(rows.column(*at))).collect();
        if let Some(at) = key.iter().find(|at| rows.column(**at).logical_null_count() > 0) {
            return Err(StreamError::Data {
                place: format!("column {}", rows.schema_ref().field(*at).name()),
                message:
                    "expected a value, because the column is part of the PRIMARY KEY, got NULL; leave such rows out"
                        .into(),
            });
        }
        let keys = converter.convert_columns(&columns).map_err(|e| broken(&e))?;
        last.extend(keys.iter().enumerate().map(|(row, key)| (key.owned(), (batch, row))));
    }
    let mut counts: Vec<Vec<bool>> = rows.iter().map(|rows| vec![false; rows.num_rows()]).collect();
    last.values().for_each(|(batch, row)| counts[*batch][*row] = true);
    let kept = rows.iter().zip(counts).map(|(rows, counts)| filter_record_batch(rows, &BooleanArray::from(counts)));
    kept.collect::<Result<_, _>>().map_err(|e| broken(&e))
}

/// Whether two values of a key that differ here may be equal in PostgreSQL, such as `-0` and `0`, or a UUID in other letters.
pub(super) fn may_be_one(data_type: &DataType) -> bool {
    let is_whole = data_type.is_integer() || data_type.is_decimal() || data_type.is_temporal();
    !is_whole && !matches!(data_type, DataType::Boolean | DataType::BinaryView | DataType::Binary)
}

/// The rows with one more column, which counts them.
pub(super) fn counted(rows: &[RecordBatch], name: &str) -> Result<Vec<RecordBatch>> {
    let mut next = 0;
    let count = |rows: &RecordBatch| {
        let from = next;
        next += i64::try_from(rows.num_rows()).unwrap_or(i64::MAX);
        let fields = rows.schema_ref().fields().iter().cloned();
        let fields: Vec<_> = fields.chain([Arc::new(Field::new(name, DataType::Int64, false))]).collect();
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_iter_values(from..next)));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| broken(&e))
    };
    rows.iter().map(count).collect()
}

/// Whether one of the rows says, in a BOOLEAN column, that the row of its key goes.
pub(super) fn some_go(rows: &[RecordBatch], delete: usize) -> bool {
    rows.iter().any(|rows| rows.column(delete).as_boolean().iter().any(|goes| goes == Some(true)))
}

fn broken(error: &ArrowError) -> StreamError {
    StreamError::Internal(format!("keys of rows cannot be compared: {error}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    fn batch(rows: &[(Option<i64>, &str, i64)]) -> RecordBatch {
        let columns: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>())),
            ("b", Arc::new(rows.iter().map(|row| Some(row.1)).collect::<StringViewArray>())),
            ("n", Arc::new(rows.iter().map(|row| Some(row.2)).collect::<Int64Array>())),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn the_last_row_of_a_key_counts_wherever_it_comes() {
        let rows = [
            batch(&[(Some(1), "x", 1), (Some(1), "y", 2), (Some(1), "x", 3)]),
            batch(&[]),
            batch(&[(Some(2), "x", 4), (Some(1), "y", 5)]),
        ];
        let last = last_of_each(&rows, &[0, 1]).unwrap();
        let values = last.iter().flat_map(|rows| rows.column(2).as_primitive::<Int64Type>().values().to_vec());
        assert_eq!(values.collect::<Vec<_>>(), [3, 4, 5]);
        assert!(last_of_each(&[], &[0]).unwrap().is_empty());
    }

    #[test]
    fn rows_are_counted_over_all_of_an_epoch() {
        let rows = [batch(&[(Some(1), "x", 1), (Some(1), "y", 2)]), batch(&[]), batch(&[(Some(2), "x", 4)])];
        let counted = counted(&rows, "place").unwrap();
        let places = counted.iter().flat_map(|rows| rows["place"].as_primitive::<Int64Type>().values().to_vec());
        assert_eq!(places.collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_key_with_null_in_it_is_refused() {
        let error = last_of_each(&[batch(&[(None, "x", 1)])], &[1, 0]).unwrap_err().to_string();
        assert!(error.contains("column a: expected a value, because the column is part of the PRIMARY KEY"), "{error}");
    }
}
