//! Changes of a table of a database, as Debezium writes them in JSON: each message is a change, which is one row or two.
//!
//! ```text
//!   {"before": {"id": 1, "a": "x"}, "after": {"id": 1, "a": "y"}, "op": "u", ..}
//!       {"id": 1, "a": "x", "op": "update_before"}
//!       {"id": 1, "a": "y", "op": "update_after"}
//! ```
//!
//! Rows are made as text: what a column takes is said by what reads JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use savanna_streams_api::Result;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::malformed::{BadRow, Malformed, excerpt};
use super::messages::Messages;

/// A message; with schemas, what it says is its payload.
#[derive(Deserialize)]
struct Envelope<'m> {
    #[serde(borrow, default)]
    payload: Option<&'m RawValue>,
    #[serde(borrow, default)]
    before: Option<&'m RawValue>,
    #[serde(borrow, default)]
    after: Option<&'m RawValue>,
    #[serde(borrow, default)]
    op: Option<Cow<'m, str>>,
}

/// What happened to a row, and the row.
type Change<'m> = (&'static str, &'m str);

/// What stands in the place of a long value that PostgreSQL has not sent, because it was not changed: in an array once, in an `hstore` within
/// a text, and of bytes in Base64 (perhaps with `=` behind it) or as digits.
const NOT_SENT: [&str; 3] = [
    "__debezium_unavailable_value",
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ",
    "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565",
];

/// Whether a value of a row, as JSON, was not sent. A text in which somebody writes of it was.
fn is_not_sent(value: &str) -> bool {
    let within = |text: &str| {
        let stands =
            |word: &str, at: usize| text[..at].ends_with('"') && text[at + word.len()..].starts_with(['"', '=']);
        NOT_SENT.iter().any(|word| text.match_indices(word).any(|(at, _)| stands(word, at)))
    };
    if !value.starts_with('"') {
        return within(value);
    }
    // A text that cannot be read is found to be so by what reads the row.
    serde_json::from_str::<Cow<'_, str>>(value).is_ok_and(|text| {
        let has_others = text.starts_with(['{', '[']) || text.contains("=>");
        NOT_SENT.contains(&text.trim_end_matches('=')) || has_others && within(&text)
    })
}

/// Makes a message of each row, with the offset of its change. One without a value follows the deletion of its key, and is no row.
/// `wanted` are the columns that are read.
///
/// # Errors
/// A message is malformed, and `malformed` says to fail.
pub(super) fn expand(
    messages: &Messages,
    op_column: &str,
    wanted: &Schema,
    malformed: &mut Malformed,
) -> Result<Messages> {
    let (mut rows, mut text) = (Messages::default(), String::new());
    for (offset, value) in messages.values() {
        let Some(value) = value else { continue };
        match changes(value).and_then(|changes| all_sent(changes, wanted)) {
            Ok(changes) => {
                for (kind, row) in changes.into_iter().flatten() {
                    with_op(row, op_column, kind, &mut text);
                    rows.push(offset, Some(text.as_bytes()));
                }
            }
            Err(message) => {
                malformed.row(&BadRow { line: offset.unsigned_abs(), column: None, message, raw: value })?;
            }
        }
    }
    Ok(rows)
}

/// The text of a row, if there is one.
fn row<'m>(name: &str, row: Option<&'m RawValue>) -> Result<Option<&'m str>, String> {
    match row.map(RawValue::get) {
        Some(row) if row.starts_with('{') => Ok(Some(row)),
        None => Ok(None),
        Some(other) => Err(format!("expected an object in '{name}', got {}", excerpt(other.as_bytes()))),
    }
}

/// The rows of a change.
fn changes<'v>(value: &'v [u8]) -> Result<[Option<Change<'v>>; 2], String> {
    let read = |bytes: &'v [u8]| {
        serde_json::from_slice::<Envelope<'v>>(bytes)
            .map_err(|error| format!("expected a change as Debezium writes it, got {} ({error})", excerpt(value)))
    };
    let mut envelope = read(value)?;
    if let (None, Some(payload)) = (&envelope.op, envelope.payload) {
        envelope = read(payload.get().as_bytes())?;
    }
    let (before, after) = (row("before", envelope.before)?, row("after", envelope.after)?);
    let needed = |name: &str, kind: &'static str, row: Option<&'v str>| match row {
        Some(row) => Ok(Some((kind, row))),
        None => Err(format!("expected a row in '{name}', got none in {}", excerpt(value))),
    };
    Ok(match envelope.op.as_deref() {
        Some("r") => [needed("after", "read", after)?, None],
        Some("c") => [needed("after", "insert", after)?, None],
        Some("u") => [before.map(|row| ("update_before", row)), needed("after", "update_after", after)?],
        Some("d") => [needed("before", "delete", before)?, None],
        // A message that somebody has put into the log of the database.
        Some("m") => [None, None],
        Some("t") => return Err("the table was truncated, which is no change of rows that are known".into()),
        other => {
            let got = other.map_or_else(|| "none".to_owned(), |op| format!("'{op}'"));
            return Err(format!("expected 'op' to be one of c, r, u, d, m, got {got} in {}", excerpt(value)));
        }
    })
}

/// Whether all columns that are read have their values.
fn all_sent<'m>(changes: [Option<Change<'m>>; 2], wanted: &Schema) -> Result<[Option<Change<'m>>; 2], String> {
    let may_lack = |row: &str| NOT_SENT.iter().any(|word| row.contains(word));
    for (_, row) in changes.iter().flatten().filter(|(_, row)| may_lack(row)) {
        let fields: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(row).map_err(|error| format!("expected an object, got {error}"))?;
        let is_missing =
            |field: &&Arc<Field>| fields.get(field.name().as_str()).is_some_and(|value| is_not_sent(value.get()));
        if let Some(field) = wanted.fields().iter().find(is_missing) {
            return Err(format!(
                "the long value of column {} was not changed, and so was not sent; set REPLICA IDENTITY FULL for the table, and \
                 'unavailable.value.placeholder' as it was",
                field.name()
            ));
        }
    }
    Ok(changes)
}

/// The row with a field that says what happened, behind the others: the last of a name counts.
pub(super) fn with_op(row: &str, op_column: &str, kind: &str, out: &mut String) {
    out.clear();
    let fields = row.strip_suffix('}').unwrap_or(row).trim_end();
    let comma = if fields.ends_with('{') { "" } else { "," };
    out.push_str(fields);
    out.push_str(comma);
    out.push_str(&serde_json::Value::from(op_column).to_string());
    out.push_str(":\"");
    out.push_str(kind);
    out.push_str("\"}");
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::super::malformed::OnError;
    use super::*;

    fn wanted() -> Schema {
        Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("a", DataType::Utf8View, true)])
    }

    fn rows(values: &[Option<&str>]) -> (Vec<(i64, String)>, u64) {
        let mut messages = Messages::default();
        values.iter().enumerate().for_each(|(at, value)| messages.push(7 + at as i64, value.map(str::as_bytes)));
        let mut malformed = Malformed::of_messages(OnError::Skip, "topic t, partition 0,").unwrap();
        let rows = expand(&messages, "op", &wanted(), &mut malformed).unwrap();
        let row = |(offset, value): (i64, Option<&[u8]>)| (offset, String::from_utf8(value.unwrap().to_vec()).unwrap());
        (rows.values().map(row).collect(), malformed.skipped)
    }

    fn lines(values: &[Option<&str>]) -> Vec<String> {
        rows(values).0.into_iter().map(|(_, row)| row).collect()
    }

    #[test]
    fn each_change_is_its_rows_with_what_happened() {
        let (rows, skipped) = rows(&[
            Some(r#"{"before":null,"after":{"id":1,"a":"x"},"op":"r","ts_ms":5}"#),
            Some(r#"{"before":null,"after":{"id":2},"op":"c","source":{"lsn":1}}"#),
            Some(r#"{"before":{"id":2},"after":{"id":3},"op":"u"}"#),
            Some(r#"{"before":null,"after":{"id":3,"a":null},"op":"u"}"#),
            Some(r#"{"before":{"id":3},"after":null,"op":"d"}"#),
            None,
            Some(r#"{"op":"m","message":{}}"#),
        ]);
        let expected = [
            (7, r#"{"id":1,"a":"x","op":"read"}"#),
            (8, r#"{"id":2,"op":"insert"}"#),
            (9, r#"{"id":2,"op":"update_before"}"#),
            (9, r#"{"id":3,"op":"update_after"}"#),
            (10, r#"{"id":3,"a":null,"op":"update_after"}"#),
            (11, r#"{"id":3,"op":"delete"}"#),
        ];
        assert_eq!(rows, expected.map(|(offset, row)| (offset, row.to_owned())));
        assert_eq!(skipped, 0);
    }

    #[test]
    fn a_message_with_its_schema_and_one_over_lines_are_read_as_well() {
        let with_schema =
            "{\"schema\": {\"type\": \"struct\"}, \"payload\": {\n \"after\": { \"id\": 1 },\n \"op\": \"\\u0063\" }}";
        assert_eq!(lines(&[Some(with_schema)]), [r#"{ "id": 1,"op":"insert"}"#]);
        assert_eq!(lines(&[Some(r#"{"after":{ },"op":"c"}"#)]), [r#"{"op":"insert"}"#]);
    }

    #[test]
    fn a_long_value_that_was_not_sent_is_no_value_of_a_column_that_is_read() {
        let update =
            |column: &str| format!(r#"{{"after":{{"id":1,"{column}":"__debezium_unavailable_value"}},"op":"u"}}"#);
        assert_eq!(rows(&[Some(&update("other")), Some(&update("a"))]).1, 1);
        for value in [
            r#"["__debezium_unavailable_value"]"#,
            r#""{\"__debezium_unavailable_value\":\"__debezium_unavailable_value\"}""#,
            r#""\"__debezium_unavailable_value\"=>\"__debezium_unavailable_value\"""#,
            r#""X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==""#,
            r#""5f5f646562657a69756d5f756e617661696c61626c655f76616c7565""#,
        ] {
            let (read, malformed) = rows(&[Some(&format!(r#"{{"after":{{"id":1,"a":{value}}},"op":"u"}}"#))]);
            assert_eq!((read.len(), malformed), (0, 1), "{value}");
        }
        for value in [
            r#""no __debezium_unavailable_value in it""#,
            r#"["it says __debezium_unavailable_value"]"#,
            r#""{\"told\": \"of __debezium_unavailable_value, too\"}""#,
        ] {
            let (read, malformed) = rows(&[Some(&format!(r#"{{"after":{{"id":1,"a":{value}}},"op":"u"}}"#))]);
            assert_eq!((read.len(), malformed), (1, 0), "{value}");
        }
    }

    #[test]
    fn what_is_no_change_is_malformed_and_says_why() {
        let refused = |value: &str| changes(value.as_bytes()).unwrap_err();
        assert!(refused("{").contains("expected a change as Debezium writes it"), "{}", refused("{"));
        for (value, expected) in [
            ("[1]", "expected a change"),
            (r#"{"id":1}"#, "got none"),
            (r#"{"op":"x"}"#, "got 'x'"),
            (r#"{"op":"c","after":null}"#, "expected a row in 'after'"),
            (r#"{"op":"d","before":null}"#, "expected a row in 'before'"),
            (r#"{"op":"c","after":[1]}"#, "expected an object in 'after'"),
            (r#"{"op":"t"}"#, "truncated"),
            (r#"{"payload":{"payload":{"op":"c","after":{}}}}"#, "got none"),
        ] {
            assert!(refused(value).contains(expected), "{value}: {}", refused(value));
        }
        assert_eq!(rows(&[Some("{"), Some(r#"{"op":"c","after":{"id":1}}"#)]).1, 1);
    }
}
