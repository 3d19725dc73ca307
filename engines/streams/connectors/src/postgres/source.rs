//! A table that is read once, to its end, as for a look-up: the rows that were there when its reader began.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, BinaryViewBuilder, RecordBatch, RecordBatchOptions, StringViewBuilder};
use arrow::datatypes::{DataType, Field, SchemaRef};
use bytes::Bytes;
use futures::StreamExt;
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::source::{Offset, Read, ScanSpec, Source, SourceBatch, SourceReader};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, CopyOutStream};

use super::client::{Failure, PATIENCE, Patience, Tasks, connect, failed};
use super::columns::{Way, columns, matching};
use super::names::quoted;
use super::settings::Settings;
use crate::format::values::parse;

/// Rows are handed on when they have about so many bytes, however few they are.
const PORTION: usize = 8 << 20;

/// A table that is read.
#[derive(Debug)]
pub(super) struct PostgresSource {
    settings: Settings,
}

impl PostgresSource {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings }
    }

    async fn begin(&self, schema: &SchemaRef) -> Result<(Client, Pin<Box<CopyOutStream>>), Failure> {
        let settings = &self.settings;
        let client = connect(settings).await?;
        let found = columns(&client, &settings.table).await.map_err(|error| failed(settings, "look at", &error))?;
        let fields: Vec<&Field> = schema.fields().iter().map(AsRef::as_ref).collect();
        matching(&settings.table, &fields, &found, Way::Out)?;
        let copy = format!("COPY (SELECT {} FROM {}) TO STDOUT", selected(schema), settings.table);
        let failed = |error: tokio_postgres::Error| failed(settings, "read", &error);
        client
            .batch_execute("SET timezone = 'UTC'; SET datestyle = 'ISO'; SET bytea_output = 'hex'")
            .await
            .map_err(failed)?;
        let lines = client.copy_out(&copy).await.map_err(failed)?;
        Ok((client, Box::pin(lines)))
    }
}

/// What is asked for. A query that reads no column still counts rows.
fn selected(schema: &SchemaRef) -> String {
    let columns: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
    if columns.is_empty() { "NULL".to_owned() } else { columns.join(", ") }
}

impl Source for PostgresSource {
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
            return Err(StreamError::Internal("a table of PostgreSQL is read from its beginning only".into()));
        }
        let (schema, tasks) = (scan.schema(), Tasks::new()?);
        let (nobody_gives_up, given_up) = watch::channel(false);
        let patience = Patience { until: Instant::now() + PATIENCE, given_up };
        let (client, lines) = tasks.persist(&self.settings, "read", &patience, async || self.begin(&schema).await)?;
        let settings = self.settings.clone();
        Ok(Box::new(Reader {
            settings,
            schema,
            nobody_gives_up,
            lines,
            rest: Vec::new(),
            ended: false,
            _client: client,
            tasks,
        }))
    }
}

struct Reader {
    settings: Settings,
    schema: SchemaRef,
    nobody_gives_up: watch::Sender<bool>,
    lines: Pin<Box<CopyOutStream>>,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    ended: bool,
    _client: Client,
    tasks: Tasks,
}

impl Reader {
    /// The bytes of some lines, as they come until `deadline`: not much more than a portion.
    fn fill(&mut self, max_rows: usize, deadline: Instant) -> Result<usize> {
        let Self { settings, lines, rest, ended, tasks, nobody_gives_up, .. } = self;
        let patience = Patience { until: deadline + PATIENCE, given_up: nobody_gives_up.subscribe() };
        let filled = tasks.run(&patience, async {
            let mut rows = 0;
            while rows < max_rows && (rows == 0 || rest.len() < PORTION) {
                let Ok(next) = timeout_at(deadline, lines.next()).await else { break };
                let portion: Bytes = match next {
                    Some(portion) => portion.map_err(|error| failed(settings, "read", &error))?,
                    None => {
                        *ended = true;
                        break;
                    }
                };
                rows += memchr::memchr_iter(b'\n', &portion).count();
                rest.extend_from_slice(&portion);
            }
            Ok(rows)
        });
        filled.map_err(|failure| match failure {
            Failure::Final(error) => error,
            Failure::Again(cause) => {
                StreamError::io(format!("read {} at {}", settings.table, settings.place()), &cause)
            }
        })
    }

    /// The rows of all lines that have come whole.
    fn rows(&mut self, count: usize) -> Result<RecordBatch> {
        let end = memchr::memrchr(b'\n', &self.rest).map_or(0, |at| at + 1);
        let mut columns: Vec<Column> = self.schema.fields().iter().map(|field| Column::new(field)).collect();
        for line in self.rest[..end].split(|byte| *byte == b'\n').take(count) {
            for (column, value) in columns.iter_mut().zip(line.split(|byte| *byte == b'\t')) {
                column.push(value)?;
            }
        }
        self.rest.drain(..end);
        let columns = columns.into_iter().map(|column| column.finish(&self.settings)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| StreamError::invalid(format!("table {}: {e}", self.settings.table)))
    }
}

impl SourceReader for Reader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        if self.ended {
            return Ok(Read::End);
        }
        let count = self.fill(max_events.max(1), Instant::now() + wait)?;
        if count == 0 {
            return Ok(if self.ended { Read::End } else { Read::Pending });
        }
        let rows = self.rows(count)?;
        Ok(Read::Rows(SourceBatch { split: 0, rows, left_out_time: None, events: count as u64 }))
    }

    /// Nobody goes on within the table.
    fn offset(&self) -> Offset {
        Offset::default()
    }
}

/// Values of a column, as they come.
struct Column {
    field: Field,
    values: Values,
}

enum Values {
    Texts(StringViewBuilder),
    Bytes(BinaryViewBuilder),
}

impl Column {
    fn new(field: &Field) -> Self {
        let values = match field.data_type() {
            DataType::BinaryView => Values::Bytes(BinaryViewBuilder::new()),
            _ => Values::Texts(StringViewBuilder::new()),
        };
        Self { field: field.clone(), values }
    }

    /// Takes a value as it stands in a line.
    fn push(&mut self, value: &[u8]) -> Result<()> {
        let text = (value != b"\\N").then(|| unescaped(value));
        let Self { field, values } = self;
        match (values, text) {
            (Values::Texts(values), None) => values.append_null(),
            (Values::Bytes(values), None) => values.append_null(),
            (Values::Texts(values), Some(text)) => {
                let text = String::from_utf8(text).map_err(|_| wrong(field, "a text in UTF-8, got other bytes"))?;
                values.append_value(text);
            }
            (Values::Bytes(values), Some(text)) => {
                let bytes =
                    of_digits(&text).ok_or_else(|| wrong(field, "bytes as hexadecimal digits, got another text"))?;
                values.append_value(bytes);
            }
        }
        Ok(())
    }

    fn finish(self, settings: &Settings) -> Result<ArrayRef> {
        let texts: ArrayRef = match self.values {
            Values::Bytes(mut values) => return Ok(Arc::new(values.finish())),
            Values::Texts(mut values) => Arc::new(values.finish()),
        };
        if texts.data_type() == self.field.data_type() {
            return Ok(texts);
        }
        let (values, wrong) = parse(&texts, self.field.data_type())?;
        match wrong.first() {
            None => Ok(values),
            Some(row) => Err(StreamError::Data {
                place: format!("column {} of {} at {}", self.field.name(), settings.table, settings.place()),
                message: format!(
                    "expected a value of {}, got {:?}; declare the column as VARCHAR, which takes any",
                    type_name(self.field.data_type()),
                    arrow::util::display::array_value_to_string(&texts, *row).unwrap_or_default()
                ),
            }),
        }
    }
}

fn wrong(field: &Field, expected: &str) -> StreamError {
    StreamError::Data { place: format!("column {}", field.name()), message: format!("expected {expected}") }
}

/// The bytes of a value that stands in a line.
fn unescaped(value: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.iter());
    while let Some(byte) = rest.next() {
        let meant = match (byte, rest.as_slice().first()) {
            (b'\\', Some(letter)) => {
                rest.next();
                match letter {
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 11,
                    other => *other,
                }
            }
            (byte, _) => *byte,
        };
        bytes.push(meant);
    }
    bytes
}

/// The bytes that `\x00ff` stands for.
fn of_digits(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(b"\\x")?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_their_text_stands_for() {
        assert_eq!(unescaped(b"a\\tb\\\\N\\n\\x"), b"a\tb\\N\nx");
        assert_eq!(of_digits(b"\\x00fE"), Some(vec![0, 254]));
        assert_eq!(of_digits(b"\\x0"), None);
        assert_eq!(of_digits(b"00"), None);
        assert_eq!(of_digits(b"\\xgg"), None);
    }
}
