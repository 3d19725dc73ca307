//! Rows on the wire and in `--output json`: one JSON object per row and line, `{"op":"+I", ..columns}`.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use savanna_streams_api::handle::Rows;
use savanna_streams_api::json::write_lines;

/// The media type of rows as JSON lines.
pub const NDJSON: &str = "application/x-ndjson";
/// The media type of rows as an Arrow IPC stream.
pub const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";

/// What every row begins with: it was inserted. Results of this version only grow.
const INSERTED: &[u8] = b"{\"op\":\"+I\"";

/// Appends one line per row, its values written as [`write_lines`] does.
///
/// # Errors
/// A column has a type that JSON cannot hold.
pub fn write_ndjson(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let lines = write_lines(Vec::with_capacity(batch.get_array_memory_size()), [batch])?;
    out.reserve(lines.len() + batch.num_rows() * (INSERTED.len() + 1));
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        // Each line is an object on its own; a newline inside of a string is escaped.
        let members = line.strip_prefix(b"{").unwrap_or(line);
        out.extend_from_slice(INSERTED);
        if members.first() != Some(&b'}') {
            out.push(b',');
        }
        out.extend_from_slice(members);
    }
    Ok(())
}

/// The rows as JSON objects without `op`.
///
/// # Errors
/// A column has a type that JSON cannot hold.
pub fn to_objects(rows: &Rows) -> Result<Vec<serde_json::Map<String, serde_json::Value>>, ArrowError> {
    let lines = write_lines(Vec::new(), &rows.batches)?;
    let objects = serde_json::Deserializer::from_slice(&lines).into_iter();
    objects.collect::<Result<_, _>>().map_err(|error| ArrowError::JsonError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch() -> RecordBatch {
        let fields = vec![Field::new("id", DataType::Int64, true), Field::new("name", DataType::Utf8, true)];
        let ids = Int64Array::from(vec![Some(1), None]);
        let names = StringArray::from(vec![Some("a\n\"b\""), None]);
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::new(ids), Arc::new(names)]).unwrap()
    }

    #[test]
    fn each_row_is_one_line_with_its_operation_first() {
        let mut out = Vec::new();
        write_ndjson(&batch(), &mut out).unwrap();
        let expected =
            concat!(r#"{"op":"+I","id":1,"name":"a\n\"b\""}"#, "\n", r#"{"op":"+I","id":null,"name":null}"#, "\n",);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn rows_become_objects() {
        let batch = batch();
        let rows = Rows { schema: batch.schema(), batches: vec![batch.clone(), batch] };
        let objects = to_objects(&rows).unwrap();
        assert_eq!(objects.len(), 4);
        assert_eq!(objects[2]["id"], 1);
        assert_eq!(objects[3]["name"], serde_json::Value::Null);
    }
}
