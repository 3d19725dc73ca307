//! Rows that are kept, copied out of the buffers that they share with rows that are not.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, make_array};
use arrow::datatypes::DataType;
use savanna_streams_api::{Result, StreamError};

/// Rows whose strings share no buffers with others. Everything else must have been copied already, by `take` or `concat`.
///
/// # Errors
/// A column loses its form, which is a bug.
pub fn without_shared_strings(rows: &RecordBatch) -> Result<RecordBatch> {
    let columns = rows.columns().iter().map(copied_strings).collect();
    let count = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let compact = RecordBatch::try_new_with_options(rows.schema(), columns, &count);
    compact.map_err(|e| StreamError::Internal(format!("compacted rows: {e}")))
}

fn copied_strings(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        data_type if data_type.is_nested() => {
            let data = array.to_data();
            let children = data.child_data().iter();
            let children = children.map(|child| copied_strings(&make_array(child.clone())).to_data()).collect();
            data.into_builder().child_data(children).build().map_or_else(|_| Arc::clone(array), make_array)
        }
        _ => Arc::clone(array),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{StringViewArray, StructArray, UInt32Array};
    use arrow::compute::take_record_batch;
    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn strings_inside_rows_are_copied_too() {
        let text = |i: i32| format!("a text that is too long to be stored in the view itself, number {i}");
        let strings: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..10_000).map(text)));
        let field = Arc::new(Field::new("s", DataType::Utf8View, true));
        let rows = StructArray::from(vec![(field, strings)]);
        let schema = Schema::new(vec![Field::new("row", rows.data_type().clone(), true)]);
        let large = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(rows)]).unwrap();
        let few = take_record_batch(&large, &UInt32Array::from(vec![7, 9])).unwrap();
        let compact = without_shared_strings(&few).unwrap();
        assert_eq!(compact, few);
        assert!(compact.get_array_memory_size() < 10_000, "{} bytes", compact.get_array_memory_size());
    }
}
