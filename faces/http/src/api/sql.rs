//! Sessions, statements and their rows.

use std::time::Instant;

use arrow::datatypes::SchemaRef;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use savanna_streams_api::handle::{CursorId, HandleError, Rows, SessionId, StreamReply, StreamRequest};
use savanna_streams_api::{StreamError, type_name};

use crate::Problem;
use crate::extract::{Json, Path, Query};
use crate::rows::{ARROW_STREAM, NDJSON, write_ndjson};
use crate::server::Face;
use crate::types::{Column, Description, FetchLimits, OpenSession, Outcome, Session, Sql, Statements};

/// Says of a page of rows whether it is the last: `true` or `false`.
pub(crate) const RESULT_END: HeaderName = HeaderName::from_static("savanna-result-end");

const MAX_ROWS: usize = 100_000;
const MAX_WAIT_MS: u64 = 10_000;
const DEFAULT_ROWS: usize = 1_000;
const DEFAULT_WAIT_MS: u64 = 1_000;

/// Splits a text into statements.
#[utoipa::path(
    post,
    path = "/api/v1/sql/split",
    tag = "sql",
    request_body = Sql,
    responses(
        (status = 200, description = "The statements", body = Statements),
        (status = 400, description = "A literal or comment does not end", body = Problem),
    )
)]
pub(crate) async fn split(State(face): State<Face>, Json(body): Json<Sql>) -> Result<axum::Json<Statements>, Problem> {
    match face.handle.call(StreamRequest::Split { sql: body.sql }).await? {
        StreamReply::Statements { statements } => Ok(axum::Json(Statements { statements })),
        _ => Err(Problem::unexpected_reply("Split")),
    }
}

/// Opens a session.
#[utoipa::path(
    post,
    path = "/api/v1/sql/sessions",
    tag = "sql",
    request_body = OpenSession,
    responses(
        (status = 201, description = "The session", body = Session),
        (status = 503, description = "Too many sessions", body = Problem),
    )
)]
pub(crate) async fn open(State(face): State<Face>, Json(body): Json<OpenSession>) -> Result<Response, Problem> {
    face.sessions.check_room()?;
    let user = body.user.unwrap_or_else(|| "http".to_owned());
    match face.handle.call(StreamRequest::OpenSession { user }).await? {
        StreamReply::Session { session } => {
            face.sessions.opened(session, Instant::now());
            let idle_timeout_ms = u64::try_from(face.sessions.idle_timeout().as_millis()).unwrap_or(u64::MAX);
            let session = Session { session: session.0, idle_timeout_ms };
            Ok((StatusCode::CREATED, axum::Json(session)).into_response())
        }
        _ => Err(Problem::unexpected_reply("OpenSession")),
    }
}

/// Ends a session; its cursors and their queries are cancelled.
#[utoipa::path(
    delete,
    path = "/api/v1/sql/sessions/{session}",
    tag = "sql",
    params(("session" = u64, Path, description = "The session")),
    responses(
        (status = 204, description = "It has ended"),
        (status = 404, description = "No such session", body = Problem),
    )
)]
pub(crate) async fn close(State(face): State<Face>, Path(session): Path<u64>) -> Result<StatusCode, Problem> {
    let session = used(&face, session)?;
    face.sessions.closed(session);
    face.handle.call(StreamRequest::CloseSession { session }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tells the columns of a statement's result without running it.
#[utoipa::path(
    post,
    path = "/api/v1/sql/sessions/{session}/describe",
    tag = "sql",
    params(("session" = u64, Path, description = "The session")),
    request_body = Sql,
    responses(
        (status = 200, description = "The columns", body = Description),
        (status = 400, description = "The statement is wrong", body = Problem),
    )
)]
pub(crate) async fn describe(
    State(face): State<Face>,
    Path(session): Path<u64>,
    Json(body): Json<Sql>,
) -> Result<axum::Json<Description>, Problem> {
    let session = used(&face, session)?;
    match face.handle.call(StreamRequest::Describe { session, sql: body.sql, parameters: vec![] }).await? {
        StreamReply::Described { schema, .. } => {
            Ok(axum::Json(Description { columns: schema.as_ref().map(columns_of).transpose()? }))
        }
        _ => Err(Problem::unexpected_reply("Describe")),
    }
}

/// Runs one statement.
#[utoipa::path(
    post,
    path = "/api/v1/sql/sessions/{session}/execute",
    tag = "sql",
    params(("session" = u64, Path, description = "The session")),
    request_body = Sql,
    responses(
        (status = 200, description = "The result of the statement", body = Outcome),
        (status = 400, description = "The statement is wrong", body = Problem),
        (status = 404, description = "A table, column or function does not exist, or the session", body = Problem),
    )
)]
pub(crate) async fn execute(
    State(face): State<Face>,
    Path(session): Path<u64>,
    Json(body): Json<Sql>,
) -> Result<axum::Json<Outcome>, Problem> {
    let session = used(&face, session)?;
    Ok(axum::Json(
        match face.handle.call(StreamRequest::Execute { session, sql: body.sql, parameters: vec![] }).await? {
            StreamReply::Done { tag } => Outcome::Done { tag },
            StreamReply::Started { query } => Outcome::Started { query: query.to_string() },
            StreamReply::Rows { schema, cursor, query, .. } => Outcome::Rows {
                columns: columns_of(&schema)?,
                cursor: cursor.0,
                query: query.map(|query| query.to_string()),
            },
            _ => return Err(Problem::unexpected_reply("Execute")),
        },
    ))
}

/// The next rows of a cursor: JSON lines, or an Arrow stream if that is what `Accept` names.
#[utoipa::path(
    get,
    path = "/api/v1/sql/sessions/{session}/cursors/{cursor}/rows",
    tag = "sql",
    params(
        ("session" = u64, Path, description = "The session"),
        ("cursor" = u64, Path, description = "The cursor"),
        FetchLimits,
    ),
    responses(
        (
            status = 200,
            description = "One object per row, `op` first",
            headers(("savanna-result-end" = bool, description = "Whether the result has ended")),
            content((String = "application/x-ndjson"), (String = "application/vnd.apache.arrow.stream")),
        ),
        (status = 404, description = "No such session or cursor", body = Problem),
    )
)]
pub(crate) async fn rows(
    State(face): State<Face>,
    Path((session, cursor)): Path<(u64, u64)>,
    Query(limits): Query<FetchLimits>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let session = used(&face, session)?;
    let (max_rows, wait_ms) = checked(limits)?;
    let (rows, end) = fetch(&face, session, CursorId(cursor), max_rows, wait_ms).await?;
    let arrow = headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes() == ARROW_STREAM.as_bytes());
    let (media, body) = if arrow { (ARROW_STREAM, arrow_bytes(&rows)?) } else { (NDJSON, json_lines(&rows)?) };
    let end = if end { "true" } else { "false" };
    Ok(([(header::CONTENT_TYPE, media), (RESULT_END, end)], body).into_response())
}

/// All rows of a cursor as they come, until the result ends or the client goes away, which cancels the query. A failure
/// on the way is the last line: `{"op":"error","problem":{..}}`.
#[utoipa::path(
    get,
    path = "/api/v1/sql/sessions/{session}/cursors/{cursor}/stream",
    tag = "sql",
    params(
        ("session" = u64, Path, description = "The session"),
        ("cursor" = u64, Path, description = "The cursor"),
    ),
    responses(
        (status = 200, description = "One object per row, `op` first", content((String = "application/x-ndjson"))),
        (status = 404, description = "No such session or cursor", body = Problem),
    )
)]
pub(crate) async fn stream(
    State(face): State<Face>,
    Path((session, cursor)): Path<(u64, u64)>,
) -> Result<Response, Problem> {
    let session = used(&face, session)?;
    let cursor = CursorId(cursor);
    // The first page is fetched before the answer begins, so that a wrong cursor is a 404 and not a line.
    let first = fetch(&face, session, cursor, DEFAULT_ROWS, 0).await?;
    let flow = Flow { first: Some(first), face, session, cursor, ended: false };
    let lines = stream::unfold(flow, |mut flow| async move {
        let line = flow.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), flow))
    });
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response())
}

/// Cancels a cursor and the query that feeds it.
#[utoipa::path(
    delete,
    path = "/api/v1/sql/sessions/{session}/cursors/{cursor}",
    tag = "sql",
    params(
        ("session" = u64, Path, description = "The session"),
        ("cursor" = u64, Path, description = "The cursor"),
    ),
    responses(
        (status = 204, description = "It is closed"),
        (status = 404, description = "No such session or cursor", body = Problem),
    )
)]
pub(crate) async fn close_cursor(
    State(face): State<Face>,
    Path((session, cursor)): Path<(u64, u64)>,
) -> Result<StatusCode, Problem> {
    let session = used(&face, session)?;
    face.handle.call(StreamRequest::CloseCursor { session, cursor: CursorId(cursor) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A result on its way to a client.
struct Flow {
    face: Face,
    session: SessionId,
    cursor: CursorId,
    first: Option<(Rows, bool)>,
    ended: bool,
}

impl Flow {
    /// The next lines, or nothing after the end.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            let lines = match self.page().await {
                Ok(lines) => lines,
                Err(problem) => {
                    self.ended = true;
                    error_line(&problem)
                }
            };
            if !lines.is_empty() {
                return Some(Bytes::from(lines));
            }
        }
        None
    }

    async fn page(&mut self) -> Result<Vec<u8>, Problem> {
        let (rows, end) = match self.first.take() {
            Some(page) => page,
            None => fetch(&self.face, self.session, self.cursor, DEFAULT_ROWS, DEFAULT_WAIT_MS).await?,
        };
        self.face.sessions.touch(self.session, Instant::now())?;
        self.ended = end;
        json_lines(&rows)
    }
}

impl Drop for Flow {
    /// A client that went away in the middle does not want the rest.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (face, session, cursor) = (self.face.clone(), self.session, self.cursor);
        runtime.spawn(async move {
            if let Err(error) = face.handle.call(StreamRequest::CloseCursor { session, cursor }).await {
                tracing::debug!(%error, "the cursor of a client that left could not be closed");
            }
        });
    }
}

fn used(face: &Face, session: u64) -> Result<SessionId, Problem> {
    let session = SessionId(session);
    face.sessions.touch(session, Instant::now())?;
    Ok(session)
}

fn checked(limits: FetchLimits) -> Result<(usize, u64), Problem> {
    let max_rows = limits.max_rows.unwrap_or(DEFAULT_ROWS);
    let wait_ms = limits.wait_ms.unwrap_or(DEFAULT_WAIT_MS);
    if !(1..=MAX_ROWS).contains(&max_rows) {
        return Err(Problem::bad_request(format!("expected max_rows between 1 and {MAX_ROWS}, came {max_rows}")));
    }
    if wait_ms > MAX_WAIT_MS {
        return Err(Problem::bad_request(format!("expected wait_ms of at most {MAX_WAIT_MS}, came {wait_ms}")));
    }
    Ok((max_rows, wait_ms))
}

async fn fetch(
    face: &Face,
    session: SessionId,
    cursor: CursorId,
    max_rows: usize,
    wait_ms: u64,
) -> Result<(Rows, bool), Problem> {
    match face.handle.call(StreamRequest::Fetch { session, cursor, max_rows, wait_ms }).await? {
        StreamReply::Fetched { rows, end } => Ok((rows, end)),
        _ => Err(Problem::unexpected_reply("Fetch")),
    }
}

fn columns_of(schema: &SchemaRef) -> Result<Vec<Column>, Problem> {
    let column = |field: &arrow::datatypes::FieldRef| {
        let arrow_type = serde_json::to_value(field.data_type()).map_err(|error| defect(&error))?;
        Ok(Column {
            name: field.name().clone(),
            data_type: type_name(field.data_type()),
            nullable: field.is_nullable(),
            arrow_type,
        })
    };
    schema.fields().iter().map(column).collect()
}

fn json_lines(rows: &Rows) -> Result<Vec<u8>, Problem> {
    let mut lines = Vec::new();
    for batch in &rows.batches {
        write_ndjson(batch, &mut lines).map_err(|error| defect(&error))?;
    }
    Ok(lines)
}

fn arrow_bytes(rows: &Rows) -> Result<Vec<u8>, Problem> {
    let encode = || {
        let mut writer = arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &rows.schema)?;
        for batch in &rows.batches {
            writer.write(batch)?;
        }
        writer.into_inner()
    };
    encode().map_err(|error: arrow::error::ArrowError| defect(&error))
}

fn error_line(problem: &Problem) -> Vec<u8> {
    let mut line = serde_json::json!({ "op": "error", "problem": problem }).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A result that the wire cannot carry.
fn defect(error: &dyn std::fmt::Display) -> Problem {
    HandleError::Stream(StreamError::Internal(format!("a result cannot be sent: {error}"))).into()
}
