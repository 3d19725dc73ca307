//! Keys that are read once, as for a look-up: those that are there while the server is walked through.
//!
//! A key is there once, however often the server names it. Keys that come, change or go meanwhile are read as they were before or are
//! afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use redis::{Connection, ConnectionLike as _, RedisError, Value, cmd};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::ByKey;
use savanna_streams_model::source::{KeyedReader, Offset, Read, ScanSpec, Source, SourceBatch, SourceReader};
use serde_json::value::RawValue;

use super::by_key::KeyReader;
use super::settings::{Form, JUDGES, Settings};
use super::trying::Failure;
use crate::format::malformed::{BadRow, Malformed, excerpt};
use crate::format::messages::{MessageDecoder, MessageFormat, Messages};

/// So many keys are asked for at once, about: a value may be long.
const KEYS_AT_ONCE: usize = 100;

/// A table that is read.
#[derive(Debug)]
pub(super) struct RedisSource {
    settings: Settings,
}

impl RedisSource {
    /// # Errors
    /// Its keys are of a type that is only written.
    pub(super) fn new(settings: Settings) -> Result<Self> {
        match settings.form {
            Form::Hash | Form::String => Ok(Self { settings }),
            Form::Stream | Form::List => Err(StreamError::invalid(
                "tables of Redis whose 'type' is 'stream' or 'list' are written and not read; read those of 'hash' or 'string'",
            )),
        }
    }
}

impl Source for RedisSource {
    fn bounded(&self) -> bool {
        true
    }

    fn replayable(&self) -> bool {
        false
    }

    fn partitions(&self, _: usize) -> Result<usize> {
        Ok(1)
    }

    fn open(&self, scan: &ScanSpec, _: usize, _: usize, from: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        if from.is_some() {
            return Err(StreamError::Internal("keys of Redis are read from their beginning only".into()));
        }
        let settings = self.settings.clone();
        let connection = settings.connect().map_err(|error| away(&settings, failed(&settings, &error)))?;
        let keys = Keys::new(settings, scan)?;
        Ok(Box::new(Reader { keys, connection, cursor: Some("0".to_owned()), seen: BTreeSet::new() }))
    }

    fn by_key(&self, scan: &ScanSpec, key: &ByKey) -> Result<Box<dyn KeyedReader>> {
        Ok(Box::new(KeyReader::new(&self.settings, scan, key)?))
    }
}

/// Keys as rows.
pub(super) struct Keys {
    pub(super) settings: Settings,
    /// The columns whose values are in keys, in the order in which they are there.
    of_key: Vec<(String, DataType)>,
    /// The other columns that are read.
    fields: Vec<(String, DataType)>,
    decoder: MessageDecoder,
    malformed: Malformed,
}

impl Keys {
    pub(super) fn new(settings: Settings, scan: &ScanSpec) -> Result<Self> {
        let schema = scan.schema();
        let fields: Vec<(String, DataType)> = (schema.fields().iter())
            .filter(|field| settings.is_value(field.name()))
            .map(|field| (field.name().clone(), field.data_type().clone()))
            .collect();
        let types = |name: &String| {
            let physical = scan.table.physical_schema();
            physical.field_with_name(name).map_or(DataType::Utf8View, |field| field.data_type().clone())
        };
        let of_key = settings.key_fields.iter().map(|name| (name.clone(), types(name))).collect();
        let decoder = MessageDecoder::new(MessageFormat::Json, &scan.table.physical_schema(), &schema);
        let malformed = Malformed::of_keys(settings.on_error.clone(), format!("keys of {}", settings.server))?;
        Ok(Self { settings, of_key, fields, decoder, malformed })
    }
}

struct Reader {
    keys: Keys,
    connection: Connection,
    /// How far the server was walked through; none at the end.
    cursor: Option<String>,
    /// A server may name a key several times.
    seen: BTreeSet<Vec<u8>>,
}

/// What an error of the server means.
pub(super) fn failed(settings: &Settings, error: &RedisError) -> Failure {
    let server = &settings.server;
    Failure::of(error, |told| {
        StreamError::invalid(format!(
            "{server} lets nobody read keys: {told}; correct 'url', or what the server lets the user do"
        ))
    })
}

/// That of a server that is not waited for.
fn away(settings: &Settings, failure: Failure) -> StreamError {
    match failure {
        Failure::Final(error) => error,
        Failure::Again(told) => StreamError::io(
            format!("read keys of {}", settings.server),
            &format!("{told}; look whether the server is up, and whether 'url' names it"),
        ),
    }
}

impl Reader {
    /// The next keys that were not named before.
    fn next_keys(&mut self, cursor: &str, count: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let Settings { prefix, form, .. } = &self.keys.settings;
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern(prefix)).arg("COUNT").arg(count);
        scan.arg("TYPE").arg(if *form == Form::Hash { "hash" } else { "string" });
        let walked = scan.query::<(String, Vec<Vec<u8>>)>(&mut self.connection);
        let (next, mut keys) = walked.map_err(|error| failed(&self.keys.settings, &error))?;
        self.cursor = (next != "0").then_some(next);
        // Those that say which epochs a sink has written are no rows.
        keys.retain(|key| !key.starts_with(JUDGES.as_bytes()) && self.seen.insert(key.clone()));
        Ok(keys)
    }
}

impl Keys {
    /// What the server has for keys, by one command for each: what a key has is what it has at one moment.
    fn ask(&self, connection: &mut Connection, keys: &[Vec<u8>]) -> Result<Vec<Value>, Failure> {
        let (mut asked, fields) = (redis::pipe(), &self.fields);
        for key in keys {
            match self.settings.form {
                Form::Hash if fields.is_empty() => asked.cmd("EXISTS").arg(key.as_slice()),
                Form::Hash => {
                    asked.cmd("HMGET").arg(key.as_slice());
                    fields.iter().fold(&mut asked, |asked, (name, _)| asked.arg(name))
                }
                _ => asked.cmd("GET").arg(key.as_slice()),
            };
        }
        let mut answers = self.request(connection, &asked, keys.len())?;
        // A hash that has none of these fields may have others, or be gone.
        let has_none =
            |answer: &Value| matches!(answer, Value::Array(values) if values.iter().all(|v| *v == Value::Nil));
        let unclear: Vec<usize> = (0..answers.len()).filter(|at| has_none(&answers[*at])).collect();
        if !unclear.is_empty() {
            let mut asked = redis::pipe();
            for at in &unclear {
                asked.cmd("HGETALL").arg(keys[*at].as_slice());
            }
            for (at, whole) in unclear.iter().zip(self.request(connection, &asked, unclear.len())?) {
                answers[*at] = self.of_whole(whole);
            }
        }
        Ok(answers)
    }

    fn request(
        &self,
        connection: &mut Connection,
        asked: &redis::Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, Failure> {
        let answers = connection.req_packed_commands(&asked.get_packed_pipeline(), 0, count);
        answers.map_err(|error| failed(&self.settings, &error))
    }

    /// The fields that are read of all that a hash has; nil if it is gone.
    fn of_whole(&self, whole: Value) -> Value {
        let pairs: Vec<(Value, Value)> = match whole {
            Value::Array(words) => words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
            Value::Map(pairs) => pairs,
            other => return other,
        };
        if pairs.is_empty() {
            return Value::Nil;
        }
        let value = |name: &String| {
            let is_it =
                |(field, _): &&(Value, Value)| matches!(field, Value::BulkString(field) if field == name.as_bytes());
            pairs.iter().find(is_it).map_or(Value::Nil, |(_, value)| value.clone())
        };
        Value::Array(self.fields.iter().map(|(name, _)| value(name)).collect())
    }

    /// A row as JSON, by what the server has for its key; none if the key has gone or is something else by now.
    fn object(&self, key: &[u8], answer: &Value) -> Result<Option<Vec<u8>>, String> {
        let mut object = vec![b'{'];
        match answer {
            Value::Nil | Value::Int(0) => return Ok(None),
            Value::ServerError(error) if error.code() == "WRONGTYPE" => return Ok(None),
            Value::Int(_) => {}
            Value::Array(values) => {
                for ((name, of), value) in self.fields.iter().zip(values) {
                    match value {
                        Value::BulkString(value) => push(&mut object, name, of, value)?,
                        Value::Nil => {}
                        other => return Err(format!("expected a text in field {name}, got {other:?}")),
                    }
                }
            }
            Value::BulkString(text) => {
                let whole = serde_json::from_slice::<&RawValue>(text).ok().map(|value| value.get().trim());
                let fields = whole.and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
                let fields = fields.ok_or_else(|| format!("expected a JSON object, got {}", excerpt(text)))?;
                object.extend_from_slice(fields.trim().as_bytes());
            }
            other => return Err(format!("expected what the key has, got {other:?}")),
        }
        // The last field of a name counts.
        let rest = key.strip_prefix(self.settings.prefix.as_bytes()).unwrap_or_default();
        let mut parts = rest.splitn(self.of_key.len().max(1), |byte| *byte == b':');
        for (name, of) in &self.of_key {
            let value = parts.next().ok_or_else(|| {
                format!("expected {} values with ':' between them behind '{}'", self.of_key.len(), self.settings.prefix)
            })?;
            push(&mut object, name, of, value)?;
        }
        // What is there has not been taken away.
        if let Some(name) = &self.settings.delete_column {
            push(&mut object, name, &DataType::Boolean, b"false")?;
        }
        object.push(b'}');
        Ok(Some(object))
    }

    /// The rows of keys.
    pub(super) fn rows(&mut self, connection: &mut Connection, keys: &[Vec<u8>]) -> Result<RecordBatch, Failure> {
        let answers = self.ask(connection, keys)?;
        let (mut messages, mut objects) = (Messages::default(), Vec::new());
        for (key, answer) in keys.iter().zip(&answers) {
            match answer {
                Value::ServerError(error) if error.code() != "WRONGTYPE" => {
                    return Err(failed(&self.settings, &error.clone().into()));
                }
                _ => {}
            }
            match self.object(key, answer) {
                Ok(Some(object)) => {
                    messages.push(objects.len() as i64, Some(&object));
                    objects.push((key, object));
                }
                Ok(None) => {}
                Err(message) => {
                    self.malformed.place = self.place_of(key);
                    self.malformed.row(&BadRow { line: 0, column: None, message, raw: key })?;
                }
            }
        }
        let error = match self.decoder.rows(&mut messages, &mut self.malformed) {
            Ok(rows) => return Ok(rows),
            Err(error) => error,
        };
        // Of which key it is.
        for (key, object) in objects {
            messages.clear();
            messages.push(0, Some(&object));
            self.malformed.place = self.place_of(key);
            self.decoder.rows(&mut messages, &mut self.malformed)?;
        }
        Err(error.into())
    }

    fn place_of(&self, key: &[u8]) -> String {
        format!("key {} of {}", excerpt(key), self.settings.server)
    }
}

/// What all keys with a beginning match.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('*');
    pattern
}

/// A field of an object, of a text that stands for a value of a column.
fn push(object: &mut Vec<u8>, name: &str, of: &DataType, value: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(value).map_err(|_| format!("expected UTF-8 in {name}, got {}", excerpt(value)))?;
    if object.len() > 1 {
        object.push(b',');
    }
    object.extend_from_slice(serde_json::Value::from(name).to_string().as_bytes());
    object.push(b':');
    let is_text = matches!(of, DataType::Utf8View | DataType::BinaryView | DataType::Date32 | DataType::Timestamp(..));
    match serde_json::from_str::<&RawValue>(text) {
        Ok(value) if !is_text => object.extend_from_slice(value.get().as_bytes()),
        _ => object.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes()),
    }
    Ok(())
}

impl SourceReader for Reader {
    fn read(&mut self, max_events: usize, _: Duration) -> Result<Read> {
        let Some(cursor) = self.cursor.clone() else { return Ok(Read::End) };
        let read = self.next_keys(&cursor, max_events.clamp(1, KEYS_AT_ONCE));
        let keys = read.map_err(|failure| away(&self.keys.settings, failure))?;
        if keys.is_empty() {
            return Ok(if self.cursor.is_none() { Read::End } else { Read::Pending });
        }
        let rows = self.keys.rows(&mut self.connection, &keys);
        let rows = rows.map_err(|failure| away(&self.keys.settings, failure))?;
        let events = rows.num_rows() as u64;
        Ok(Read::Rows(SourceBatch { split: 0, rows, left_out_time: None, events }))
    }

    /// Nobody goes on within the keys.
    fn offset(&self) -> Offset {
        Offset::default()
    }

    fn skipped(&self) -> u64 {
        self.keys.malformed.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_matched_as_it_is() {
        assert_eq!(pattern("a:"), "a:*");
        assert_eq!(pattern(r"a*?[b]\"), r"a\*\?\[b\]\\*");
    }

    #[test]
    fn texts_become_values_of_their_columns() {
        let field = |of: DataType, text: &str| {
            let mut object = vec![b'{'];
            push(&mut object, "c", &of, text.as_bytes()).map(|()| String::from_utf8(object).unwrap())
        };
        assert_eq!(field(DataType::Int64, "7").unwrap(), r#"{"c":7"#);
        assert_eq!(field(DataType::Utf8View, "7").unwrap(), r#"{"c":"7""#);
        assert_eq!(field(DataType::Float64, "NaN").unwrap(), r#"{"c":"NaN""#);
        assert_eq!(field(DataType::Utf8View, "a \"b\"\n").unwrap(), "{\"c\":\"a \\\"b\\\"\\n\"");
        let mut object = vec![b'{'];
        assert!(push(&mut object, "c", &DataType::Utf8View, &[0xff]).unwrap_err().contains("expected UTF-8 in c"));
    }
}
