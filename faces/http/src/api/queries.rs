//! Continuous queries.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use savanna_streams_api::handle::{QueryStatus, StreamReply, StreamRequest};
use savanna_streams_api::ids::QueryId;

use crate::Problem;
use crate::extract::Path;
use crate::server::Face;
use crate::types::{Queries, Query, parse_query_id};

/// Queries that run, and those that have lately ended.
#[utoipa::path(
    get,
    path = "/api/v1/queries",
    tag = "queries",
    responses(
        (status = 200, description = "Newest first", body = Queries),
        (status = 503, description = "The streams service does not answer", body = Problem),
    )
)]
pub(crate) async fn list(State(face): State<Face>) -> Result<Json<Queries>, Problem> {
    let queries = all(&face).await?.into_iter().map(Query::from).collect();
    Ok(Json(Queries { queries }))
}

/// One query.
#[utoipa::path(
    get,
    path = "/api/v1/queries/{query}",
    tag = "queries",
    params(("query" = String, Path, description = "Its id, `<code>-<job>`")),
    responses(
        (status = 200, description = "The query", body = Query),
        (status = 404, description = "No such query", body = Problem),
    )
)]
pub(crate) async fn get(State(face): State<Face>, Path(query): Path<String>) -> Result<Json<Query>, Problem> {
    Ok(Json(find(&face, &query).await?.into()))
}

/// Stops a query. Its open windows are not fired.
#[utoipa::path(
    delete,
    path = "/api/v1/queries/{query}",
    tag = "queries",
    params(("query" = String, Path, description = "Its id, `<code>-<job>`")),
    responses(
        (status = 204, description = "The query is being stopped"),
        (status = 404, description = "No such query", body = Problem),
    )
)]
pub(crate) async fn cancel(State(face): State<Face>, Path(query): Path<String>) -> Result<StatusCode, Problem> {
    let query = find(&face, &query).await?.query;
    face.handle.call(StreamRequest::CancelQuery { query }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn all(face: &Face) -> Result<Vec<QueryStatus>, Problem> {
    match face.handle.call(StreamRequest::ListQueries).await? {
        StreamReply::Queries { queries } => Ok(queries),
        _ => Err(Problem::unexpected_reply("ListQueries")),
    }
}

async fn find(face: &Face, text: &str) -> Result<QueryStatus, Problem> {
    let id: Option<QueryId> = parse_query_id(text);
    let found = all(face).await?.into_iter().find(|q| Some(&q.query) == id.as_ref());
    found.ok_or_else(|| {
        Problem::not_found(format!("no query {text} runs or has lately ended; GET /api/v1/queries lists them"))
    })
}
