//! Tables and views, as SQL shows them.

use std::sync::Arc;

use arrow::datatypes::Schema;
use axum::Json;
use axum::extract::State;
use savanna_streams_api::handle::{Rows, SharedStreamHandle, StreamReply, StreamRequest};

use crate::extract::Path;
use crate::server::Face;
use crate::types::{Table, Tables};
use crate::{Problem, rows};

/// At most this many tables, views or columns are listed.
const MAX_ROWS: usize = 10_000;

/// All tables and views.
#[utoipa::path(
    get,
    path = "/api/v1/tables",
    tag = "tables",
    responses(
        (status = 200, description = "The rows of `SHOW TABLES`", body = Tables),
        (status = 503, description = "The streams service does not answer", body = Problem),
    )
)]
pub(crate) async fn list(State(face): State<Face>) -> Result<Json<Tables>, Problem> {
    Ok(Json(Tables { tables: ask(&face.handle, "SHOW TABLES".to_owned()).await? }))
}

/// The columns of a table or view.
#[utoipa::path(
    get,
    path = "/api/v1/tables/{table}",
    tag = "tables",
    params(("table" = String, Path, description = "Its name; case matters")),
    responses(
        (status = 200, description = "The rows of `DESCRIBE`", body = Table),
        (status = 404, description = "No such table", body = Problem),
    )
)]
pub(crate) async fn get(State(face): State<Face>, Path(table): Path<String>) -> Result<Json<Table>, Problem> {
    let sql = format!("DESCRIBE `{}`", table.replace('`', "``"));
    Ok(Json(Table { columns: ask(&face.handle, sql).await?, table }))
}

pub(crate) type Object = serde_json::Map<String, serde_json::Value>;

/// Runs a statement in a session of its own and returns its rows.
pub(crate) async fn ask(handle: &SharedStreamHandle, sql: String) -> Result<Vec<Object>, Problem> {
    let opened = handle.call(StreamRequest::OpenSession { user: "control".to_owned() }).await?;
    let StreamReply::Session { session } = opened else {
        return Err(Problem::unexpected_reply("OpenSession"));
    };
    let asked = async {
        let executed = handle.call(StreamRequest::Execute { session, sql, parameters: vec![] }).await?;
        let (schema, cursor) = match executed {
            StreamReply::Rows { schema, cursor, .. } => (schema, cursor),
            // A statement without rows.
            StreamReply::Done { .. } => return Ok(Rows::none(Arc::new(Schema::empty()))),
            _ => return Err(Problem::unexpected_reply("Execute")),
        };
        let mut all = Rows::none(schema);
        loop {
            let fetch = StreamRequest::Fetch { session, cursor, max_rows: MAX_ROWS, wait_ms: 1000 };
            let StreamReply::Fetched { rows, end } = handle.call(fetch).await? else {
                return Err(Problem::unexpected_reply("Fetch"));
            };
            all.batches.extend(rows.batches);
            if end || all.len() >= MAX_ROWS {
                return Ok(all);
            }
        }
    }
    .await;
    // The answer counts; a session that cannot be closed is the engine's to expire.
    let closed = handle.call(StreamRequest::CloseSession { session }).await;
    if let Err(error) = closed {
        tracing::debug!(%error, "a session of the control API could not be closed");
    }
    rows::to_objects(&asked?)
        .map_err(|error| Problem::from(savanna_streams_api::StreamError::Internal(error.to_string())))
}
