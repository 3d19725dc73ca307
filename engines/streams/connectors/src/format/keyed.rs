//! Rows that have keys: a message with a value says what the row of its key is now, and one without that it is gone.
//!
//! ```text
//!   key {"id": 1}   value {"id": 1, "a": "x"}  -->  {"id": 1, "a": "x", "op": "upsert"}
//!   key {"id": 1}   no value                   -->  {"id": 1, "op": "delete"}
//! ```
//!
//! Rows are made as text: what a column takes is said by what reads JSON.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use savanna_streams_api::{Result, StreamError};
use serde_json::Value;

use super::debezium::with_op;
use super::messages::Messages;

/// What is said of a row that is there, and of one that is gone.
const UPSERT: &str = "upsert";
const DELETE: &str = "delete";
/// What else says that the row is gone, as far as its key is concerned: what it is now follows.
const BEFORE: &str = "update_before";

/// How rows with keys are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keyed {
    /// The column that says what happened.
    pub(crate) op_column: String,
    /// The columns of the key.
    pub(crate) fields: Vec<String>,
    /// Whether the key is its only column as it is; otherwise keys are objects.
    pub(crate) is_raw: bool,
}

impl Keyed {
    /// Adds a message as the text of its row.
    pub(crate) fn push(&self, messages: &mut Messages, offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        let mut text = String::new();
        let is_row = match (value, key.map(std::str::from_utf8)) {
            (Some(value), _) => object(std::str::from_utf8(value).ok(), &self.op_column, UPSERT, &mut text),
            (None, Some(Ok(key))) => object(self.row_of(key).as_deref(), &self.op_column, DELETE, &mut text),
            (None, _) => false,
        };
        // What is no row is found to be malformed as it is.
        let malformed = || value.or(key).unwrap_or_default();
        messages.push(offset, Some(if is_row { text.as_bytes() } else { malformed() }));
    }
}

impl Keyed {
    /// The columns of a key as an object; none if it has not all of them.
    fn row_of(&self, key: &str) -> Option<String> {
        if self.is_raw {
            return Some(serde_json::json!({ self.fields.first()?: key }).to_string());
        }
        let whole: serde_json::Map<String, Value> = serde_json::from_str(key).ok()?;
        let has_all = |row: &serde_json::Map<String, Value>| {
            self.fields.iter().all(|field| row.get(field).is_some_and(|value| !value.is_null()))
        };
        let row = match whole.get("payload") {
            // As Kafka Connect writes keys, with their schema.
            Some(Value::Object(payload)) if !has_all(&whole) => payload.clone(),
            _ => whole,
        };
        let of_key = |field: &String| row.get(field).map(|value| (field.clone(), value.clone()));
        has_all(&row).then(|| Value::Object(self.fields.iter().filter_map(of_key).collect()).to_string())
    }
}

/// Whether a text may be an object; if so, with a field that says what happened.
fn object(text: Option<&str>, op_column: &str, kind: &str, out: &mut String) -> bool {
    let text = text.map(str::trim).filter(|text| text.len() > 1 && text.starts_with('{') && text.ends_with('}'));
    text.inspect(|text| with_op(text, op_column, kind, out)).is_some()
}

/// Which rows are gone, by the column that says what happened.
///
/// # Errors
/// It is no text.
pub(crate) fn gone(rows: &RecordBatch, op_column: usize) -> Result<Vec<bool>> {
    let column = rows.column(op_column);
    if column.data_type() != &DataType::Utf8View {
        return Err(StreamError::Internal("a column that says what happened is no text".into()));
    }
    let texts = column.as_string_view();
    let is_gone = |row: usize| texts.is_valid(row) && matches!(texts.value(row), DELETE | BEFORE);
    Ok((0..rows.num_rows()).map(is_gone).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringViewArray;
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn read(raw: Option<&str>, messages: &[(Option<&str>, Option<&str>)]) -> Vec<String> {
        let fields = vec![raw.unwrap_or("id").to_owned()];
        let keyed = Keyed { op_column: "op".into(), fields, is_raw: raw.is_some() };
        let mut all = Messages::default();
        for (offset, (key, value)) in messages.iter().enumerate() {
            keyed.push(&mut all, offset as i64, key.map(str::as_bytes), value.map(str::as_bytes));
        }
        all.values().map(|(_, value)| String::from_utf8(value.unwrap().to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_message_without_a_value_is_its_key_and_that_it_is_gone() {
        let rows = read(
            None,
            &[
                (Some(r#"{"id":1}"#), Some(" {\"id\":1,\"a\":\"x\"}\n")),
                (Some(r#"{"id":1}"#), None),
                (None, Some("{}")),
                // What is malformed stays so.
                (None, None),
                (Some("7"), None),
                (Some(r#"{"schema":{},"payload":{"id":2}}"#), None),
                (Some(r#"{"other":1}"#), None),
                (Some(r#"{"id":null}"#), None),
                (Some(r#"{"id":1}"#), Some("{")),
                (Some(r#"{"id":1}"#), Some("[1]")),
            ],
        );
        let expected = [
            r#"{"id":1,"a":"x","op":"upsert"}"#,
            r#"{"id":1,"op":"delete"}"#,
            r#"{"op":"upsert"}"#,
            "",
            "7",
            r#"{"id":2,"op":"delete"}"#,
            r#"{"other":1}"#,
            r#"{"id":null}"#,
            "{",
            "[1]",
        ];
        assert_eq!(rows, expected);
        let rows = read(Some("id"), &[(Some("a\"b"), None), (Some("c"), Some(r#"{"id":"c"}"#))]);
        assert_eq!(rows, [r#"{"id":"a\"b","op":"delete"}"#, r#"{"id":"c","op":"upsert"}"#]);
    }

    #[test]
    fn rows_are_gone_that_were_deleted_and_those_that_were_something_else_before() {
        let schema = Arc::new(Schema::new(vec![Field::new("op", DataType::Utf8View, true)]));
        let ops = [Some("upsert"), Some("delete"), None, Some("update_before"), Some("update_after"), Some("insert")];
        let rows = RecordBatch::try_new(schema, vec![Arc::new(StringViewArray::from(ops.to_vec()))]).unwrap();
        assert_eq!(gone(&rows, 0).unwrap(), [false, true, false, true, false, false]);
    }
}
