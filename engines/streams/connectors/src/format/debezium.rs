//! Changes of a table of a database, as Debezium writes them in JSON: each message is a change, which is one row or two.
//!
//! ```text
//!   {"before": {"id": 1, "a": "x"}, "after": {"id": 1, "a": "y"}, "op": "u", ..}
//!       {"op": "update_before", "id": 1, "a": "x"}
//!       {"op": "update_after", "id": 1, "a": "y"}
//! ```
//!
//! Rows are made as text: what a column takes is said by what reads JSON.

use std::borrow::Cow;

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

/// Makes a message of each row. One without a value follows the deletion of its key, and is no row.
///
/// # Errors
/// A message is malformed, and `malformed` says to fail.
pub(super) fn expand(messages: &Messages, op_column: &str, malformed: &mut Malformed) -> Result<Messages> {
    let (mut rows, mut text) = (Messages::default(), String::new());
    for (offset, value) in messages.values() {
        let Some(value) = value else { continue };
        match changes(value) {
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

/// The row with a field that says what happened, before the others.
fn with_op(row: &str, op_column: &str, kind: &str, out: &mut String) {
    out.clear();
    let fields = row[1..].trim_start();
    let comma = if fields.starts_with('}') { "" } else { "," };
    let column = serde_json::Value::from(op_column);
    out.push_str(&format!("{{{column}:\"{kind}\"{comma}{fields}"));
}

#[cfg(test)]
mod tests {
    use super::super::malformed::OnError;
    use super::*;

    fn rows(values: &[Option<&str>]) -> (Vec<(i64, String)>, u64) {
        let mut messages = Messages::default();
        values.iter().enumerate().for_each(|(at, value)| messages.push(7 + at as i64, value.map(str::as_bytes)));
        let mut malformed = Malformed::of_messages(OnError::Skip, "topic t, partition 0,").unwrap();
        let rows = expand(&messages, "op", &mut malformed).unwrap();
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
            (7, r#"{"op":"read","id":1,"a":"x"}"#),
            (8, r#"{"op":"insert","id":2}"#),
            (9, r#"{"op":"update_before","id":2}"#),
            (9, r#"{"op":"update_after","id":3}"#),
            (10, r#"{"op":"update_after","id":3,"a":null}"#),
            (11, r#"{"op":"delete","id":3}"#),
        ];
        assert_eq!(rows, expected.map(|(offset, row)| (offset, row.to_owned())));
        assert_eq!(skipped, 0);
    }

    #[test]
    fn a_message_with_its_schema_and_one_over_lines_are_read_as_well() {
        let with_schema =
            "{\"schema\": {\"type\": \"struct\"}, \"payload\": {\n \"after\": { \"id\": 1 },\n \"op\": \"\\u0063\" }}";
        assert_eq!(lines(&[Some(with_schema)]), [r#"{"op":"insert","id": 1 }"#]);
        assert_eq!(lines(&[Some(r#"{"after":{ },"op":"c"}"#)]), [r#"{"op":"insert"}"#]);
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
