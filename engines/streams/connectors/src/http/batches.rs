//! Rows, cut into what one request takes.

use arrow::array::RecordBatch;
use savanna_streams_api::{Result, StreamError};

use crate::format::messages::MessageFormat;

/// How many rows and bytes of rows a request has at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// The rows of an epoch as arrays of JSON objects, in the order in which they came.
///
/// # Errors
/// A row has more bytes than a request may have.
pub(super) fn arrays(rows: &[RecordBatch], cut: Cut) -> Result<Vec<Vec<u8>>> {
    let mut arrays = Vec::new();
    let (mut array, mut count) = (Vec::new(), 0);
    for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
        let objects = MessageFormat::Json.values(batch)?;
        for row in 0..batch.num_rows() {
            let object = objects.of(row).unwrap_or(b"null");
            // With the brackets, or a bracket and a comma.
            if object.len() + 2 > cut.bytes {
                return Err(StreamError::invalid(format!(
                    "a row has {} bytes as JSON, and a request at most {} ('batch.bytes')",
                    object.len(),
                    cut.bytes
                )));
            }
            if count == cut.rows || count > 0 && array.len() + object.len() + 2 > cut.bytes {
                arrays.push(closed(std::mem::take(&mut array)));
                count = 0;
            }
            array.push(if count == 0 { b'[' } else { b',' });
            array.extend_from_slice(object);
            count += 1;
        }
    }
    if count > 0 {
        arrays.push(closed(array));
    }
    Ok(arrays)
}

fn closed(mut array: Vec<u8>) -> Vec<u8> {
    array.push(b']');
    array
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn numbers(numbers: &[i64]) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    fn cut_into(rows: &[RecordBatch], rows_max: usize, bytes: usize) -> Vec<String> {
        let arrays = arrays(rows, Cut { rows: rows_max, bytes }).unwrap();
        assert!(arrays.iter().all(|array| array.len() <= bytes));
        arrays.into_iter().map(|array| String::from_utf8(array).unwrap()).collect()
    }

    #[test]
    fn a_request_has_no_more_rows_and_bytes_than_it_may_and_none_is_left_out() {
        let rows = [numbers(&[1, 2]), numbers(&[]), numbers(&[3])];
        assert_eq!(cut_into(&rows, 10, 100), [r#"[{"n":1},{"n":2},{"n":3}]"#]);
        assert_eq!(cut_into(&rows, 2, 100), [r#"[{"n":1},{"n":2}]"#, r#"[{"n":3}]"#]);
        assert_eq!(cut_into(&rows, 10, 17), [r#"[{"n":1},{"n":2}]"#, r#"[{"n":3}]"#]);
        assert_eq!(cut_into(&rows, 10, 16), [r#"[{"n":1}]"#, r#"[{"n":2}]"#, r#"[{"n":3}]"#]);
        assert!(cut_into(&[numbers(&[])], 10, 100).is_empty());
    }

    #[test]
    fn a_row_that_no_request_has_room_for_is_an_error() {
        let error = arrays(&[numbers(&[1])], Cut { rows: 1, bytes: 8 }).unwrap_err().to_string();
        assert!(error.contains("a row has 7 bytes") && error.contains("at most 8"), "{error}");
    }
}
