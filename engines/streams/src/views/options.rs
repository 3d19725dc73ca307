//! The options of a materialized view.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::names::{hint, near};
use savanna_streams_model::time::parse_duration;

use super::version::Shape;
use crate::settings;

/// The columns of which the last row of each value stays.
const KEY: &str = "key";
const RETENTION: &str = "retention";
const MAX_ROWS: &str = "max-rows";
const MAX_BYTES: &str = "max-bytes";
const OPTIONS: [&str; 4] = [KEY, RETENTION, MAX_ROWS, MAX_BYTES];

/// What a view may take in memory if nothing is said.
const BYTES_MAX: u64 = 1 << 30;

/// How a view of these columns keeps rows.
///
/// # Errors
/// An option is unknown, or has a value that is none of it.
pub(crate) fn shape(name: &str, schema: SchemaRef, options: &BTreeMap<String, String>) -> Result<Shape> {
    if let Some(unknown) = options.keys().find(|option| !OPTIONS.contains(&option.as_str())) {
        let hint = match near(unknown, OPTIONS).first() {
            Some(near) => format!("did you mean {near}?"),
            None => format!("a materialized view has {}", OPTIONS.join(", ")),
        };
        return Err(StreamError::Unknown { kind: "option".into(), name: unknown.clone(), position: None, hint });
    }
    let of = Of { name, options };
    let rows = |text: &str| text.trim().parse().ok().filter(|rows| *rows > 0);
    let age = |text: &str| parse_duration(text).filter(|age| *age >= Duration::from_secs(1));
    Ok(Shape {
        key: of.key(&schema)?,
        max_rows: of.value(MAX_ROWS, "a number of rows, at least 1", rows)?,
        retention: of.value(RETENTION, "a length of time, such as 90s, 30min or 24h, at least 1s", age)?,
        max_bytes: of.value(MAX_BYTES, "a size, such as 512MiB", settings::bytes)?.unwrap_or(BYTES_MAX),
        schema,
    })
}

struct Of<'a> {
    name: &'a str,
    options: &'a BTreeMap<String, String>,
}

impl Of<'_> {
    fn value<T>(&self, option: &str, meaning: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.options.get(option) else { return Ok(None) };
        let value = read(text).ok_or_else(|| {
            let name = self.name;
            StreamError::invalid(format!(
                "option '{option}' of materialized view {name}: expected {meaning}, got '{text}'"
            ))
        });
        value.map(Some)
    }

    fn key(&self, schema: &SchemaRef) -> Result<Vec<usize>> {
        let Some(text) = self.options.get(KEY) else { return Ok(Vec::new()) };
        let mut key = Vec::new();
        for column in text.split(',').map(str::trim) {
            let Ok(at) = schema.index_of(column) else {
                let known = schema.fields().iter().map(|field| field.name().as_str());
                return Err(StreamError::Unknown {
                    kind: "column".into(),
                    name: column.into(),
                    position: None,
                    hint: hint(column, known, "columns of the view"),
                });
            };
            let data_type = schema.field(at).data_type();
            if !may_be_key(data_type) {
                return Err(StreamError::invalid(format!(
                    "column {column} cannot be of the key of materialized view {}, because it is {}; a key has whole numbers, decimals, texts, bytes, \
                     truth values, dates and times; CAST it",
                    self.name,
                    type_name(data_type)
                )));
            }
            if key.contains(&at) {
                return Err(StreamError::invalid(format!("column {column} is named twice in the key; name it once")));
            }
            key.push(at);
        }
        Ok(key)
    }
}

/// Values of which two that are equal are the same bytes.
fn may_be_key(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Decimal128(..)
                | DataType::Utf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::BinaryView
                | DataType::Date32
                | DataType::Timestamp(..)
        )
}
