//! Rows as commands.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::RecordBatch;
use savanna_streams_api::{Result, StreamError};
use serde_json::value::RawValue;

use super::settings::{Form, JUDGES, Settings};
use crate::format::messages::MessageFormat;

/// So many commands, and about so many bytes of them, are sent before their answers are read: a server need not keep more answers than these.
const SENT_AT_ONCE: usize = 1_000;
const BYTES_AT_ONCE: usize = 1 << 20;

/// Some commands as a server reads them, and how many they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

/// Commands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    /// Those together that are sent at once.
    pub(super) packed: Vec<Packed>,
    /// The keys that they write.
    pub(super) keys: BTreeSet<Vec<u8>>,
}

impl Commands {
    fn push(&mut self, words: &[&[u8]]) {
        let is_full = |packed: &Packed| packed.count == SENT_AT_ONCE || packed.bytes.len() >= BYTES_AT_ONCE;
        if self.packed.last().is_none_or(is_full) {
            self.packed.push(Packed::default());
        }
        let Some(packed) = self.packed.last_mut() else { return };
        packed.bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            packed.bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            packed.bytes.extend_from_slice(word);
            packed.bytes.extend_from_slice(b"\r\n");
        }
        packed.count += 1;
    }
}

/// A row, by the names of its columns, in their order.
type Row<'r> = Vec<(String, &'r RawValue)>;

/// The commands that write rows, in the order in which they came.
///
/// # Errors
/// A value of a key is NULL.
pub(super) fn commands(settings: &Settings, rows: &[RecordBatch]) -> Result<Commands> {
    let mut commands = Commands::default();
    for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
        let objects = MessageFormat::Json.values(batch)?;
        let names: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
        for row in 0..batch.num_rows() {
            let object = objects.of(row).unwrap_or(b"{}");
            let failed = |e| StreamError::Internal(format!("a row that is no JSON: {e}"));
            let mut values: BTreeMap<String, &RawValue> = serde_json::from_slice(object).map_err(failed)?;
            let row: Row<'_> = names.iter().filter_map(|name| Some((name.clone(), values.remove(name)?))).collect();
            push(&mut commands, settings, &row)?;
        }
    }
    Ok(commands)
}

fn push(commands: &mut Commands, settings: &Settings, row: &Row<'_>) -> Result<()> {
    let key = key_of(settings, row)?;
    let goes =
        |(name, value): &(String, &RawValue)| settings.delete_column.as_ref() == Some(name) && value.get() == "true";
    if row.iter().any(goes) {
        commands.push(&[b"DEL", &key]);
        commands.keys.insert(key);
        return Ok(());
    }
    let others = row.iter().filter(|(name, _)| settings.is_value(name));
    let (present, absent): (Vec<_>, Vec<_>) =
        others.map(|(name, value)| (name, text_of(value))).partition(|(_, value)| value.is_some());
    let present: Vec<(&[u8], Vec<u8>)> =
        present.into_iter().filter_map(|(name, value)| Some((name.as_bytes(), value?))).collect();
    let fields = || present.iter().flat_map(|(name, value)| [*name, value.as_slice()]);
    match settings.form {
        Form::Hash => {
            if !present.is_empty() {
                commands.push(&[b"HSET" as &[u8], &key].into_iter().chain(fields()).collect::<Vec<_>>());
            }
            // What a former row had is not left beside what this one has.
            if !absent.is_empty() {
                let names = absent.iter().map(|(name, _)| name.as_bytes());
                commands.push(&[b"HDEL" as &[u8], &key].into_iter().chain(names).collect::<Vec<_>>());
            }
        }
        Form::String => commands.push(&[b"SET", &key, &object_of(settings, row)]),
        // An entry has at least one field.
        Form::Stream if present.is_empty() => commands.push(&[b"XADD", &key, b"*", b"", b""]),
        Form::Stream => commands.push(&[b"XADD" as &[u8], &key, b"*"].into_iter().chain(fields()).collect::<Vec<_>>()),
        Form::List => commands.push(&[b"RPUSH", &key, &object_of(settings, row)]),
    }
    if let Some(ttl) = settings.ttl {
        commands.push(&[b"PEXPIRE", &key, ttl.as_millis().to_string().as_bytes()]);
    }
    commands.keys.insert(key);
    Ok(())
}

/// The keys of rows that have the columns of keys, as rows are written to them. None of a row whose key is none of the table's.
///
/// # Errors
/// A value of a key is NULL.
pub(super) fn keys(settings: &Settings, rows: &RecordBatch) -> Result<Vec<Option<Vec<u8>>>> {
    let objects = MessageFormat::Json.values(rows)?;
    let key = |at: usize| {
        let object = objects.of(at).unwrap_or(b"{}");
        let failed = |e| StreamError::Internal(format!("a row that is no JSON: {e}"));
        let values: BTreeMap<String, &RawValue> = serde_json::from_slice(object).map_err(failed)?;
        let key = joined(settings, &values.into_iter().collect::<Row<'_>>())?;
        Ok((!key.starts_with(JUDGES.as_bytes())).then_some(key))
    };
    (0..rows.num_rows()).map(key).collect()
}

fn key_of(settings: &Settings, row: &Row<'_>) -> Result<Vec<u8>> {
    let key = joined(settings, row)?;
    if key.starts_with(JUDGES.as_bytes()) {
        let key = String::from_utf8_lossy(&key);
        return Err(StreamError::invalid(format!(
            "key {key} of a row begins as those do that say which epochs there are; give the table a 'key' that keys begin with"
        )));
    }
    Ok(key)
}

fn joined(settings: &Settings, row: &Row<'_>) -> Result<Vec<u8>> {
    let mut key = settings.prefix.clone().into_bytes();
    for (number, field) in settings.key_fields.iter().enumerate() {
        let value = row.iter().find(|(name, _)| name == field).and_then(|(_, value)| text_of(value));
        let value = value.ok_or_else(|| {
            StreamError::invalid(format!("column {field} is NULL, and it is part of a key of Redis; leave such rows out (WHERE {field} IS NOT NULL)"))
        })?;
        if number > 0 {
            key.push(b':');
        }
        key.extend_from_slice(&value);
    }
    Ok(key)
}

/// A value as text: what a text is, and what else is as JSON has it. None for NULL.
fn text_of(value: &RawValue) -> Option<Vec<u8>> {
    match value.get() {
        "null" => None,
        text if text.starts_with('"') => serde_json::from_str::<String>(text).ok().map(String::into_bytes),
        other => Some(other.as_bytes().to_vec()),
    }
}

/// A JSON object of the columns that are not in the key.
fn object_of(settings: &Settings, row: &Row<'_>) -> Vec<u8> {
    let mut object = vec![b'{'];
    for (name, value) in row.iter().filter(|(name, _)| settings.is_value(name)) {
        if object.len() > 1 {
            object.push(b',');
        }
        object.extend_from_slice(serde_json::Value::from(name.as_str()).to_string().as_bytes());
        object.push(b':');
        object.extend_from_slice(value.get().as_bytes());
    }
    object.push(b'}');
    object
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringViewArray};
    use arrow::datatypes::DataType;
    use savanna_streams_model::catalog::{ColumnDef, TableDef};

    use super::*;

    fn settings(options: &[(&str, &str)]) -> Settings {
        let column =
            |name: &str| ColumnDef { name: name.into(), data_type: DataType::Utf8View, nullable: true, computed: None };
        let table = TableDef {
            name: "t".into(),
            columns: ["n", "text", "price"].map(column).into(),
            watermark: None,
            primary_key: Vec::new(),
            partitioned_by: Vec::new(),
            options: options.iter().chain(&[("url", "redis://h")]).map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            statement: String::new(),
        };
        Settings::new(&table).unwrap()
    }

    fn rows() -> Vec<RecordBatch> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a \"b\"\n"), None]));
        let prices = Decimal128Array::from(vec![123_456_789_012_345_678_901_i128, 5]).with_precision_and_scale(38, 2);
        let prices: ArrayRef = Arc::new(prices.unwrap());
        vec![RecordBatch::try_from_iter([("n", numbers), ("text", texts), ("price", prices)]).unwrap()]
    }

    /// Words of commands.
    fn written(options: &[(&str, &str)]) -> Vec<Vec<String>> {
        let commands = commands(&settings(options), &rows()).unwrap();
        let [packed]: [Packed; 1] = commands.packed.try_into().unwrap();
        let text = String::from_utf8(packed.bytes).unwrap();
        let mut words: Vec<Vec<String>> = Vec::new();
        let mut rest = text.as_str();
        while let Some((head, after)) = rest.split_once("\r\n") {
            match head.split_at(1) {
                ("*", _) => (words.push(Vec::new()), rest = after).1,
                (_, length) => {
                    let length: usize = length.parse().unwrap();
                    words.last_mut().unwrap().push(after[..length].to_owned());
                    rest = &after[length + 2..];
                }
            }
        }
        assert_eq!(words.len(), packed.count);
        words
    }

    #[test]
    fn a_row_is_a_hash_without_its_key_and_what_is_null_is_not_there() {
        assert_eq!(
            written(&[("key", "b:"), ("key.fields", "n")]),
            [
                vec!["HSET", "b:1", "text", "a \"b\"\n", "price", "1234567890123456789.01"],
                vec!["HSET", "b:2", "price", "0.05"],
                vec!["HDEL", "b:2", "text"],
            ]
        );
    }

    #[test]
    fn a_row_is_a_string_or_an_entry_and_its_key_may_expire() {
        assert_eq!(
            written(&[("key.fields", "n;price"), ("type", "string"), ("ttl", "2s")]),
            [
                vec!["SET", "1:1234567890123456789.01", r#"{"text":"a \"b\"\n"}"#],
                vec!["PEXPIRE", "1:1234567890123456789.01", "2000"],
                vec!["SET", "2:0.05", r#"{"text":null}"#],
                vec!["PEXPIRE", "2:0.05", "2000"],
            ]
        );
        let entries = written(&[("key", "all"), ("type", "stream")]);
        assert_eq!(entries[1], ["XADD", "all", "*", "n", "2", "price", "0.05"]);
        let entries = written(&[("key", "all"), ("type", "list")]);
        assert_eq!(entries[1], ["RPUSH", "all", r#"{"n":2,"text":null,"price":0.05}"#]);
    }

    #[test]
    fn no_row_says_which_epochs_there_are() {
        let columns: ArrayRef = Arc::new(StringViewArray::from(vec!["savanna:epochs:c-7:t"]));
        let others: ArrayRef = Arc::new(Int64Array::from(vec![9]));
        let rows = RecordBatch::try_from_iter([("text", columns), ("epoch", others)]).unwrap();
        let error =
            commands(&settings(&[("key.fields", "text")]), std::slice::from_ref(&rows)).unwrap_err().to_string();
        assert!(error.contains("which epochs there are"), "{error}");
        assert!(commands(&settings(&[("key", "row:"), ("key.fields", "text")]), &[rows]).is_ok());
    }

    #[test]
    fn a_key_has_no_null() {
        let error = commands(&settings(&[("key.fields", "text")]), &rows()).unwrap_err().to_string();
        assert!(error.contains("column text is NULL"), "{error}");
    }
}
