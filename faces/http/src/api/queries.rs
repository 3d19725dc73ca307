//! Continuous queries.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use savanna_streams_api::handle::{QueryStatus, StreamReply, StreamRequest};
use savanna_streams_api::ids::QueryId;

use crate::Problem;
use crate::api::tables;
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
    let queries = all(&face).await?;
    let names = names(&face).await;
    let queries = queries.into_iter().map(|status| named(status, &names)).collect();
    Ok(Json(Queries { queries }))
}

/// One query.
#[utoipa::path(
    get,
    path = "/api/v1/queries/{query}",
    tag = "queries",
    params(("query" = String, Path, description = "Its id, `<code>-<job>`, or its name")),
    responses(
        (status = 200, description = "The query", body = Query),
        (status = 404, description = "No such query", body = Problem),
    )
)]
pub(crate) async fn get(State(face): State<Face>, Path(query): Path<String>) -> Result<Json<Query>, Problem> {
    let names = names(&face).await;
    Ok(Json(named(find(&face, &query, &names).await?, &names)))
}

/// Stops a query. Its open windows are not fired. One that has a name can be resumed.
#[utoipa::path(
    delete,
    path = "/api/v1/queries/{query}",
    tag = "queries",
    params(("query" = String, Path, description = "Its id, `<code>-<job>`, or its name")),
    responses(
        (status = 204, description = "The query is being stopped"),
        (status = 404, description = "No such query", body = Problem),
    )
)]
pub(crate) async fn cancel(State(face): State<Face>, Path(query): Path<String>) -> Result<StatusCode, Problem> {
    let query = find(&face, &query, &names(&face).await).await?.query;
    face.handle.call(StreamRequest::CancelQuery { query }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Goes on with a query that was stopped or has failed, from where its sink is.
#[utoipa::path(
    post,
    path = "/api/v1/queries/{query}/resume",
    tag = "queries",
    params(("query" = String, Path, description = "Its name or id")),
    responses(
        (status = 204, description = "The query runs"),
        (status = 400, description = "It runs already, does not outlive its end, or cannot go on", body = Problem),
        (status = 404, description = "No such query", body = Problem),
    )
)]
pub(crate) async fn resume(State(face): State<Face>, Path(query): Path<String>) -> Result<StatusCode, Problem> {
    tell(&face, "RESUME", &query).await
}

/// Stops a query and forgets it; it does not go on when the node starts again. What it wrote stays.
#[utoipa::path(
    post,
    path = "/api/v1/queries/{query}/drop",
    tag = "queries",
    params(("query" = String, Path, description = "Its name or id")),
    responses(
        (status = 204, description = "The query is gone"),
        (status = 404, description = "No such query", body = Problem),
    )
)]
pub(crate) async fn forget(State(face): State<Face>, Path(query): Path<String>) -> Result<StatusCode, Problem> {
    tell(&face, "DROP", &query).await
}

/// `RESUME QUERY` or `DROP QUERY`.
async fn tell(face: &Face, verb: &str, query: &str) -> Result<StatusCode, Problem> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !query.chars().all(harmless) {
        return Err(unknown(query));
    }
    tables::ask(&face.handle, format!("{verb} QUERY '{query}'")).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The names of queries by id; none where the engine does not tell.
async fn names(face: &Face) -> BTreeMap<String, String> {
    let Ok(rows) = tables::ask(&face.handle, "SHOW QUERIES".to_owned()).await else { return BTreeMap::new() };
    let text = |row: &tables::Object, column| row.get(column).and_then(|value| value.as_str()).map(str::to_owned);
    let named =
        rows.iter().filter_map(|row| Some((text(row, "query")?, text(row, "name").filter(|name| !name.is_empty())?)));
    named.collect()
}

fn named(status: QueryStatus, names: &BTreeMap<String, String>) -> Query {
    let query = Query::from(status);
    Query { name: names.get(&query.query).cloned(), ..query }
}

async fn all(face: &Face) -> Result<Vec<QueryStatus>, Problem> {
    match face.handle.call(StreamRequest::ListQueries).await? {
        StreamReply::Queries { queries } => Ok(queries),
        _ => Err(Problem::unexpected_reply("ListQueries")),
    }
}

async fn find(face: &Face, text: &str, names: &BTreeMap<String, String>) -> Result<QueryStatus, Problem> {
    let of_name = names.iter().find(|(_, name)| *name == text).map(|(id, _)| id.as_str());
    let id: Option<QueryId> = parse_query_id(of_name.unwrap_or(text));
    let found = all(face).await?.into_iter().find(|q| Some(&q.query) == id.as_ref());
    found.ok_or_else(|| unknown(text))
}

fn unknown(text: &str) -> Problem {
    Problem::not_found(format!("no query {text} runs or has lately ended; GET /api/v1/queries lists them"))
}
