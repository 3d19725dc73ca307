//! A running node's streams engine, over its control API, as a handle like the one in this process.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use async_trait::async_trait;
use reqwest::Method;
use savanna_http::rows::ARROW_STREAM;
use savanna_http::types::{
    Column, Description, OpenSession, Outcome, Queries, Query, Session, Sql, Statements, parse_query_id,
};
use savanna_streams_api::handle::{
    CursorId, HandleError, Purpose, Rows, SessionId, StreamHandle, StreamReply, StreamRequest,
};
use savanna_streams_api::ids::QueryId;

use crate::client::{Client, RequestError, send};

/// Longer waits are cut into several by the caller's loop.
const MAX_WAIT_MS: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct RemoteHandle(pub(crate) Client);

#[async_trait]
impl StreamHandle for RemoteHandle {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        let node = &self.0;
        Ok(match request {
            StreamRequest::OpenSession { user } => {
                let opened: Session = node.post("sql/sessions", &OpenSession { user: Some(user) }).await?;
                StreamReply::Session { session: SessionId(opened.session) }
            }
            StreamRequest::CloseSession { session } => {
                node.delete(&format!("sql/sessions/{}", session.0)).await?;
                done("CLOSE SESSION")
            }
            StreamRequest::Split { sql } => {
                let split: Statements = node.post("sql/split", &Sql { sql }).await?;
                StreamReply::Statements { statements: split.statements }
            }
            StreamRequest::Describe { session, sql, .. } => {
                let path = format!("sql/sessions/{}/describe", session.0);
                let described: Description = node.post(&path, &Sql { sql }).await?;
                StreamReply::Described { schema: described.columns.map(schema_of).transpose()?, parameters: vec![] }
            }
            StreamRequest::Execute { session, sql, .. } => {
                let path = format!("sql/sessions/{}/execute", session.0);
                reply_of(node.post(&path, &Sql { sql }).await?)?
            }
            StreamRequest::Fetch { session, cursor, max_rows, wait_ms } => {
                self.fetch(session, cursor, max_rows, wait_ms).await?
            }
            StreamRequest::CloseCursor { session, cursor } => {
                node.delete(&format!("sql/sessions/{}/cursors/{}", session.0, cursor.0)).await?;
                done("CLOSE CURSOR")
            }
            StreamRequest::CancelQuery { query } => {
                node.delete(&format!("queries/{query}")).await?;
                done("CANCEL QUERY")
            }
            StreamRequest::ListQueries => {
                let listed: Queries = node.get("queries").await?;
                let queries = listed.queries.into_iter().filter_map(Query::into_status).collect();
                StreamReply::Queries { queries }
            }
        })
    }
}

impl RemoteHandle {
    async fn fetch(
        &self,
        session: SessionId,
        cursor: CursorId,
        max_rows: usize,
        wait_ms: u64,
    ) -> Result<StreamReply, HandleError> {
        let path = format!(
            "sql/sessions/{}/cursors/{}/rows?max_rows={max_rows}&wait_ms={}",
            session.0,
            cursor.0,
            wait_ms.min(MAX_WAIT_MS)
        );
        let response = send(self.0.request(Method::GET, &path).header("accept", ARROW_STREAM)).await?;
        let end = response.headers().get("savanna-result-end").is_some_and(|end| end == "true");
        let bytes = response.bytes().await.map_err(|error| RequestError::NoAnswer(error.to_string()))?;
        let reader = StreamReader::try_new(bytes.as_ref(), None).map_err(|error| mismatch(&error))?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<_, _>>().map_err(|error| mismatch(&error))?;
        Ok(StreamReply::Fetched { rows: Rows { schema, batches }, end })
    }
}

fn done(tag: &str) -> StreamReply {
    StreamReply::Done { tag: tag.to_owned() }
}

fn reply_of(outcome: Outcome) -> Result<StreamReply, HandleError> {
    Ok(match outcome {
        Outcome::Done { tag } => StreamReply::Done { tag },
        Outcome::Started { query } => StreamReply::Started { query: query_id(&query)? },
        Outcome::Rows { columns, cursor, query } => StreamReply::Rows {
            schema: schema_of(columns)?,
            cursor: CursorId(cursor),
            query: query.as_deref().map(query_id).transpose()?,
            purpose: Purpose::Select,
        },
    })
}

fn query_id(text: &str) -> Result<QueryId, HandleError> {
    parse_query_id(text).ok_or_else(|| mismatch(&format!("{text} is no query id")))
}

fn schema_of(columns: Vec<Column>) -> Result<SchemaRef, HandleError> {
    let field = |column: Column| {
        let data_type: DataType = serde_json::from_value(column.arrow_type).map_err(|error| mismatch(&error))?;
        Ok(Field::new(column.name, data_type, column.nullable))
    };
    let fields: Vec<Field> = columns.into_iter().map(field).collect::<Result<_, HandleError>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

fn mismatch(error: &dyn std::fmt::Display) -> HandleError {
    HandleError::Unavailable(format!("its answer cannot be read: {error}; do both sides run the same version?"))
}
