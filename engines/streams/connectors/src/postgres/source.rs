//! A table that is read once, to its end, as for a look-up: the rows that were there when its reader began.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, SchemaRef};
use bytes::Bytes;
use futures::StreamExt;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::ByKey;
use savanna_streams_model::source::{KeyedReader, Offset, Read, ScanSpec, Source, SourceBatch, SourceReader};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, CopyOutStream};

use super::by_key::KeyReader;
use super::client::{Failure, PATIENCE, Patience, Tasks, connect, failed};
use super::columns::{Way, columns, matching};
use super::names::quoted;
use super::settings::Settings;
use super::values::{Column, TEXTS, of_line};

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
        client.batch_execute(TEXTS).await.map_err(failed)?;
        let lines = client.copy_out(&copy).await.map_err(failed)?;
        Ok((client, Box::pin(lines)))
    }
}

/// What is asked for. A query that reads no column still counts rows.
pub(super) fn selected(schema: &SchemaRef) -> String {
    let columns: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
    if columns.is_empty() { "NULL".to_owned() } else { columns.join(", ") }
}

impl Source for PostgresSource {
    fn by_key(&self, scan: &ScanSpec, key: &ByKey) -> Result<Box<dyn KeyedReader>> {
        Ok(Box::new(KeyReader::new(self.settings.clone(), scan, key)?))
    }

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
                column.push(of_line(value).as_deref())?;
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
