//! A session of an engine, for frames.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::array_value_to_string;
use savanna_streams_api::handle::{
    CursorId, HandleError, QueryStatus, SessionId, StreamHandle, StreamReply, StreamRequest,
};
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};

use crate::frame::Frame;

/// How long an engine waits for rows before it says that there are none yet.
const WAIT_MS: u64 = 1_000;
const ROWS_AT_ONCE: usize = 10_000;
/// So often it is looked whether a query has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A session: its tables, its settings, and the frames over them. Clones are of the same session, until one of them closes it.
#[derive(Clone)]
pub struct Context(Arc<Session>);

struct Session {
    handle: Arc<dyn StreamHandle>,
    id: SessionId,
}

/// A query that writes into a table.
#[derive(Debug)]
pub struct Running {
    context: Context,
    query: QueryId,
}

/// The rows of a query, as they come. Dropping it does not end the query: [`Stream::close`] does.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    schema: SchemaRef,
    cursor: CursorId,
    has_ended: bool,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.0.id).finish()
    }
}

impl Context {
    /// A session of an engine: `StreamEngine::new(EngineOptions::default())`, or any other handle.
    ///
    /// # Errors
    /// It has as many sessions as it may, or does not answer.
    pub async fn open(handle: Arc<dyn StreamHandle>, user: &str) -> Result<Self> {
        let opened = handle.call(StreamRequest::OpenSession { user: user.to_owned() }).await;
        match opened.map_err(failed)? {
            StreamReply::Session { session: id } => Ok(Self(Arc::new(Session { handle, id }))),
            other => Err(unexpected("a session", &other)),
        }
    }

    /// Ends the session. Queries that write into tables live on.
    ///
    /// # Errors
    /// The engine does not answer.
    pub async fn close(self) -> Result<()> {
        self.call(StreamRequest::CloseSession { session: self.0.id }).await.map(drop)
    }

    /// Runs statements without rows, such as `CREATE TABLE` and `SET`.
    ///
    /// # Errors
    /// One of them fails; those before it have been done.
    pub async fn sql(&self, statements: &str) -> Result<()> {
        for sql in self.split(statements).await? {
            match self.execute(sql).await? {
                StreamReply::Rows { cursor, .. } => {
                    self.call(StreamRequest::CloseCursor { session: self.0.id, cursor }).await?;
                    return Err(StreamError::invalid(
                        "a statement with rows among those without; make a frame of it (Context::query), and ask that for rows",
                    ));
                }
                StreamReply::Done { .. } | StreamReply::Started { .. } => {}
                other => return Err(unexpected("the end of a statement", &other)),
            }
        }
        Ok(())
    }

    /// A table, or a view.
    pub fn table(&self, name: &str) -> Frame {
        Frame::table(self.clone(), name)
    }

    /// A `SELECT`, for what frames have no method for.
    pub fn query(&self, select: &str) -> Frame {
        Frame::query(self.clone(), select)
    }

    pub(crate) async fn start(&self, sql: &str) -> Result<Running> {
        match self.execute(sql.to_owned()).await? {
            StreamReply::Started { query } => Ok(Running { context: self.clone(), query }),
            other => Err(unexpected("a query that runs", &other)),
        }
    }

    pub(crate) async fn stream(&self, sql: &str) -> Result<Stream> {
        match self.execute(sql.to_owned()).await? {
            StreamReply::Rows { schema, cursor, .. } => {
                Ok(Stream { context: self.clone(), schema, cursor, has_ended: false })
            }
            other => Err(unexpected("rows", &other)),
        }
    }

    /// The rows of a statement that ends, with one column, as lines.
    pub(crate) async fn lines(&self, sql: &str) -> Result<String> {
        let mut stream = self.stream(sql).await?;
        let mut lines = String::new();
        while let Some(batches) = stream.next().await? {
            for batch in &batches {
                let column = batch.columns().first().ok_or_else(|| StreamError::invalid("rows without a column"))?;
                for row in 0..batch.num_rows() {
                    let line = array_value_to_string(column, row);
                    lines += &line.map_err(|error| StreamError::invalid(error.to_string()))?;
                    lines.push('\n');
                }
            }
        }
        Ok(lines)
    }

    async fn split(&self, sql: &str) -> Result<Vec<String>> {
        match self.call(StreamRequest::Split { sql: sql.to_owned() }).await? {
            StreamReply::Statements { statements } => Ok(statements),
            other => Err(unexpected("statements", &other)),
        }
    }

    async fn execute(&self, sql: String) -> Result<StreamReply> {
        self.call(StreamRequest::Execute { session: self.0.id, sql, parameters: Vec::new() }).await
    }

    async fn call(&self, request: StreamRequest) -> Result<StreamReply> {
        self.0.handle.call(request).await.map_err(failed)
    }
}

impl Running {
    /// Its name.
    pub fn id(&self) -> &QueryId {
        &self.query
    }

    /// Where it stands.
    ///
    /// # Errors
    /// The engine does not answer, or has forgotten it.
    pub async fn status(&self) -> Result<QueryStatus> {
        match self.context.call(StreamRequest::ListQueries).await? {
            StreamReply::Queries { queries } => {
                let found = queries.into_iter().find(|status| status.query == self.query);
                found.ok_or_else(|| StreamError::invalid(format!("query {} is not known any more", self.query)))
            }
            other => Err(unexpected("queries", &other)),
        }
    }

    /// Waits for its end. Queries over streams that do not end have none.
    ///
    /// # Errors
    /// It fails, or the engine does not answer.
    pub async fn wait(&self) -> Result<QueryStatus> {
        loop {
            let status = self.status().await?;
            match &status.error {
                Some(error) => return Err(error.clone()),
                None if status.state.is_over() => return Ok(status),
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Stops it. Open windows are not fired.
    ///
    /// # Errors
    /// The engine does not answer.
    pub async fn cancel(&self) -> Result<()> {
        self.context.call(StreamRequest::CancelQuery { query: self.query.clone() }).await.map(drop)
    }
}

impl Stream {
    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows; none if the query has ended. It may be an empty list, while there are none yet.
    ///
    /// # Errors
    /// The query fails, or the engine does not answer.
    pub async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        if self.has_ended {
            return Ok(None);
        }
        let session = self.context.0.id;
        let fetch = StreamRequest::Fetch { session, cursor: self.cursor, max_rows: ROWS_AT_ONCE, wait_ms: WAIT_MS };
        match self.context.call(fetch).await? {
            StreamReply::Fetched { rows, end } => {
                self.has_ended = end;
                Ok(Some(rows.batches))
            }
            other => Err(unexpected("rows", &other)),
        }
    }

    /// Ends the query.
    ///
    /// # Errors
    /// The engine does not answer.
    pub async fn close(self) -> Result<()> {
        let request = StreamRequest::CloseCursor { session: self.context.0.id, cursor: self.cursor };
        self.context.call(request).await.map(drop)
    }
}

/// What a handle says that has no answer.
fn failed(error: HandleError) -> StreamError {
    match error {
        HandleError::Stream(error) => error,
        other => StreamError::Io { what: "ask the streams engine".to_owned(), cause: other.to_string() },
    }
}

fn unexpected(expected: &str, got: &StreamReply) -> StreamError {
    let kind = match got {
        StreamReply::Session { .. } => "a session",
        StreamReply::Statements { .. } => "statements",
        StreamReply::Described { .. } => "a description",
        StreamReply::Done { .. } => "the end of a statement without rows",
        StreamReply::Rows { .. } => "rows",
        StreamReply::Started { .. } => "a query that runs",
        StreamReply::Fetched { .. } => "fetched rows",
        StreamReply::Queries { .. } => "queries",
    };
    StreamError::invalid(format!("expected {expected}, got {kind}"))
}
