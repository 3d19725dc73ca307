//! What faces talk to: requests and replies as plain serialisable values, so that the engine may be in this process or
//! behind a network.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow_schema::{DataType, SchemaRef};
use async_trait::async_trait;
use savanna_epoch::{NodeId, OwnerEpoch};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::StreamError;
use crate::ids::QueryId;

/// The streams engine, as faces see it.
#[async_trait]
pub trait StreamHandle: fmt::Debug + Send + Sync {
    /// Does one request.
    ///
    /// # Errors
    /// The statement failed, or the engine is elsewhere, frozen or gone.
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError>;
}

/// Why a handle could not do a request.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandleError {
    /// The engine answered with an error.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The shard is served elsewhere now.
    #[error("moved to node {to} (epoch {epoch}); ask there")]
    Moved {
        /// The new owner.
        to: NodeId,
        /// Its epoch.
        epoch: OwnerEpoch,
    },
    /// The shard is being moved.
    #[error("frozen while it moves; ask again in {retry_after_ms} ms")]
    Frozen {
        /// When to ask again.
        retry_after_ms: u64,
    },
    /// No answer.
    #[error("the streams service does not answer: {0}")]
    Unavailable(String),
}

/// A session, opened by a face for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub u64);

/// A result that is being fetched; belongs to one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CursorId(pub u64);

/// A request to the streams engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StreamRequest {
    /// Opens a session.
    OpenSession {
        /// Who asks, for `SHOW QUERIES` and logs.
        user: String,
    },
    /// Ends a session; its cursors and their queries are cancelled. Queries of `INSERT INTO` live on.
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Splits a text into statements, so that each can be executed and answered alone.
    Split {
        /// One or more statements, separated by `;`.
        sql: String,
    },
    /// Tells the columns of a statement's result, and the types of its parameters, without running it.
    Describe {
        /// The session.
        session: SessionId,
        /// One statement.
        sql: String,
        /// The types of `$1`, `$2`, .. as far as the client declares them.
        parameters: Vec<Option<DataType>>,
    },
    /// Runs one statement.
    Execute {
        /// The session.
        session: SessionId,
        /// One statement.
        sql: String,
        /// The values of `$1`, `$2`, ..
        parameters: Vec<Parameter>,
    },
    /// The next rows of a cursor.
    Fetch {
        /// The session.
        session: SessionId,
        /// The cursor.
        cursor: CursorId,
        /// At most this many rows.
        max_rows: usize,
        /// How long to wait for the first of them.
        wait_ms: u64,
    },
    /// Cancels a cursor and the query that feeds it.
    CloseCursor {
        /// The session.
        session: SessionId,
        /// The cursor.
        cursor: CursorId,
    },
    /// Stops a running query. Open windows are not fired.
    CancelQuery {
        /// The query.
        query: QueryId,
    },
    /// All queries, running and lately ended.
    ListQueries,
}

/// A reply of the streams engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StreamReply {
    /// To `OpenSession`.
    Session {
        /// The new session.
        session: SessionId,
    },
    /// To `Split`.
    Statements {
        /// The statements, without the `;`.
        statements: Vec<String>,
    },
    /// To `Describe`: the columns, or none if the statement returns no rows.
    Described {
        /// The columns.
        schema: Option<SchemaRef>,
        /// The types of `$1`, `$2`, ..: as declared, or as the statement uses them.
        parameters: Vec<DataType>,
    },
    /// To `Execute` of a statement without rows: the command tag, such as `CREATE TABLE`.
    Done {
        /// The tag.
        tag: String,
    },
    /// To `Execute` of a statement with rows.
    Rows {
        /// The columns.
        schema: SchemaRef,
        /// Where to fetch them.
        cursor: CursorId,
        /// The query that feeds the cursor, if it is a stream.
        query: Option<QueryId>,
        /// What the statement wants done with the rows.
        purpose: Purpose,
    },
    /// To `Execute` of `INSERT INTO`: the query runs.
    Started {
        /// The query.
        query: QueryId,
    },
    /// To `Fetch`.
    Fetched {
        /// The rows; may be empty.
        rows: Rows,
        /// Whether the result has ended.
        end: bool,
    },
    /// To `ListQueries`.
    Queries {
        /// One entry per query, newest first.
        queries: Vec<QueryStatus>,
    },
}

/// What becomes of the rows of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// They are the answer: `SELECT`, `SHOW`, ..
    Select,
    /// They are the answer, and what follows them stays in a cursor that has a name: `FETCH`.
    Fetch,
    /// They are counted and forgotten: `MOVE`.
    Move,
    /// They leave as text, a line for each: `COPY .. TO STDOUT`.
    Copy(CopyFormat),
}

/// How `COPY .. TO STDOUT` writes rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFormat {
    /// Quotes as in CSV instead of back-slashes.
    pub csv: bool,
    /// Whether the first line has the names of the columns.
    pub header: bool,
    /// Stands between values; one ASCII character.
    pub delimiter: char,
    /// Stands for NULL.
    pub null: String,
    /// Stands around CSV values that need it; one ASCII character.
    pub quote: char,
    /// Stands before a quote inside of a CSV value; one ASCII character.
    pub escape: char,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its type.
    pub data_type: DataType,
    /// The value as SQL writes it between quotes; none is NULL.
    pub text: Option<String>,
}

/// Where a query stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryState {
    /// It reads the tables that it looks rows up in; its streams wait.
    Loading,
    /// It runs.
    Running,
    /// Its bounded sources have ended and every row is in the sink.
    Finished,
    /// A user or the shutdown stopped it.
    Cancelled,
    /// It failed.
    Failed,
}

impl QueryState {
    /// Whether nothing more will happen.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled | Self::Failed)
    }
}

/// A query as `SHOW QUERIES`, the control API and the status line tell it. Counters are since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryStatus {
    /// The query.
    pub query: QueryId,
    /// Where it stands.
    pub state: QueryState,
    /// Its statement.
    pub statement: String,
    /// Why it failed.
    pub error: Option<StreamError>,
    /// Events read, left-out ones included.
    pub events: u64,
    /// Rows given to the sink.
    pub result_rows: u64,
    /// Rows dropped because they were too late.
    pub late_rows: u64,
    /// Rows skipped because they were malformed.
    pub skipped_rows: u64,
    /// The last committed epoch.
    pub epoch: u64,
    /// The lowest watermark, in microseconds since 1970, once there is one.
    pub watermark: Option<i64>,
    /// Windows closed.
    pub windows: u64,
    /// Bytes of state held.
    pub state_bytes: u64,
    /// Seconds since the start, or that it took.
    pub seconds: f64,
    /// CPU seconds spent on it by the engine's threads, generator included.
    pub cpu_seconds: f64,
    /// CPU seconds of these spent in generators.
    pub generator_cpu_seconds: f64,
    /// Function invocations so far.
    pub invocations: u64,
    /// Milliseconds that a function platform would have billed (each invocation rounded up).
    pub billed_ms: u64,
    /// Further counters by name.
    pub more: BTreeMap<String, f64>,
}

/// Rows that serialise as an Arrow IPC stream.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

impl Serialize for Rows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encode = || {
            let mut writer = StreamWriter::try_new(Vec::new(), &self.schema)?;
            for batch in &self.batches {
                writer.write(batch)?;
            }
            writer.into_inner()
        };
        let bytes = encode().map_err(serde::ser::Error::custom)?;
        serializer.serialize_bytes(&bytes)
    }
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        let reader = StreamReader::try_new(bytes.as_slice(), None).map_err(serde::de::Error::custom)?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<_, _>>().map_err(serde::de::Error::custom)?;
        Ok(Self { schema, batches })
    }
}

impl Rows {
    /// No rows.
    pub fn none(schema: SchemaRef) -> Self {
        Self { schema, batches: Vec::new() }
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A shared handle.
pub type SharedStreamHandle = Arc<dyn StreamHandle>;
