//! One session of an engine of its own, driven statement by statement.

use std::sync::Arc;
use std::time::Duration;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use savanna_streams::api::StreamError;
use savanna_streams::api::handle::{CursorId, HandleError, QueryState, Rows, SessionId};
use savanna_streams::api::ids::QueryId;
use savanna_streams::{EngineOptions, StreamEngine, StreamHandle, StreamReply, StreamRequest};

/// How often a running `INSERT INTO` is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long one fetch waits for rows; the end of the query, or its failure, is told at once.
const WAIT_MS: u64 = 600_000;
const ROWS_PER_FETCH: usize = 10_000;

pub(crate) struct Session {
    engine: Arc<StreamEngine>,
    id: SessionId,
}

impl Session {
    pub(crate) async fn open(options: EngineOptions) -> Self {
        let engine = StreamEngine::new(options);
        let opened = engine.call(StreamRequest::OpenSession { user: "test".into() }).await;
        let Ok(StreamReply::Session { session: id }) = opened else { panic!("no session: {opened:?}") };
        Self { engine, id }
    }

    /// Runs every statement to its end. Returns a block of text for each that has rows: a line with the columns' names,
    /// then a line per row; the rows of a stream sorted, because they have no order.
    pub(crate) async fn run(&self, script: &str) -> Result<Vec<String>, StreamError> {
        let split = self.call(StreamRequest::Split { sql: script.into() }).await?;
        let StreamReply::Statements { statements } = split else { panic!("no statements: {split:?}") };
        let mut results = Vec::new();
        for sql in statements {
            match self.call(StreamRequest::Execute { session: self.id, sql, parameters: vec![] }).await? {
                StreamReply::Rows { schema, cursor, query, .. } => {
                    let mut lines = self.fetch(cursor).await?;
                    if query.is_some() {
                        lines.sort();
                    }
                    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                    lines.insert(0, names.join(" | "));
                    results.push(lines.join("\n") + "\n");
                }
                StreamReply::Started { query } => self.finish(&query).await?,
                _ => {}
            }
        }
        Ok(results)
    }

    /// The rows that all queries so far have dropped as late.
    pub(crate) fn late_rows(&self) -> u64 {
        self.engine.queries().iter().map(|status| status.late_rows).sum()
    }

    pub(crate) async fn close(self) {
        self.engine.shutdown().await;
    }

    async fn call(&self, request: StreamRequest) -> Result<StreamReply, StreamError> {
        self.engine.call(request).await.map_err(|error| match error {
            HandleError::Stream(error) => error,
            other => panic!("{other}"),
        })
    }

    async fn fetch(&self, cursor: CursorId) -> Result<Vec<String>, StreamError> {
        let request = StreamRequest::Fetch { session: self.id, cursor, max_rows: ROWS_PER_FETCH, wait_ms: WAIT_MS };
        let mut all = Vec::new();
        loop {
            let fetched = self.call(request.clone()).await?;
            let StreamReply::Fetched { rows, end } = fetched else { panic!("no rows: {fetched:?}") };
            all.extend(lines(&rows));
            if end {
                return Ok(all);
            }
        }
    }

    async fn finish(&self, query: &QueryId) -> Result<(), StreamError> {
        loop {
            let queries = self.engine.queries();
            let status = queries.into_iter().find(|status| status.query == *query).expect("the query is known");
            match (status.state, status.error) {
                (QueryState::Running, _) => tokio::time::sleep(LOOK_EVERY).await,
                (_, Some(error)) => return Err(error),
                (_, None) => return Ok(()),
            }
        }
    }
}

fn lines(rows: &Rows) -> Vec<String> {
    let options = FormatOptions::new().with_null("NULL").with_display_error(true);
    let mut lines = Vec::new();
    for batch in &rows.batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            lines.push(values.join(" | "));
        }
    }
    lines
}
