//! Continuous queries.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use savanna_streams_api::handle::{QueryStatus, StreamReply, StreamRequest};
use savanna_streams_api::ids::QueryId;

use crate::Problem;
use crate::api::tables;
use crate::extract::{Json as Body, Path};
use crate::server::Face;
use crate::types::{Queries, Query, Savepoint, parse_query_id};

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
    run(&face, format!("RESUME QUERY {}", named_in_sql(&query)?)).await
}

/// Stops a query and writes it to a directory, from which it goes on in another node. The answer comes when that is done.
#[utoipa::path(
    post,
    path = "/api/v1/queries/{query}/savepoint",
    tag = "queries",
    params(("query" = String, Path, description = "Its name or id")),
    request_body = Savepoint,
    responses(
        (status = 204, description = "The query is stopped, and written"),
        (status = 400, description = "It does not outlive its end, or the directory is none for a savepoint", body = Problem),
        (status = 404, description = "No such query", body = Problem),
    )
)]
pub(crate) async fn save(
    State(face): State<Face>,
    Path(query): Path<String>,
    Body(to): Body<Savepoint>,
) -> Result<StatusCode, Problem> {
    run(&face, format!("STOP QUERY {} WITH SAVEPOINT {}", named_in_sql(&query)?, text_in_sql(&to.directory))).await
}

/// Goes on with a query that was written to a directory, also by another node.
#[utoipa::path(
    post,
    path = "/api/v1/queries",
    tag = "queries",
    request_body = Savepoint,
    responses(
        (status = 204, description = "The query runs"),
        (status = 400, description = "There is no savepoint in the directory, or it cannot go on here", body = Problem),
    )
)]
pub(crate) async fn resume_saved(State(face): State<Face>, Body(from): Body<Savepoint>) -> Result<StatusCode, Problem> {
    run(&face, format!("RESUME QUERY FROM SAVEPOINT {}", text_in_sql(&from.directory))).await
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
    run(&face, format!("DROP QUERY {}", named_in_sql(&query)?)).await
}

/// Runs a statement of which there is nothing to tell.
async fn run(face: &Face, statement: String) -> Result<StatusCode, Problem> {
    tables::ask(&face.handle, statement).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// An id or a name in a statement. What cannot be one is that of no query.
fn named_in_sql(query: &str) -> Result<String, Problem> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if query.chars().all(harmless) { Ok(text_in_sql(query)) } else { Err(unknown(query)) }
}

/// A text in a statement.
fn text_in_sql(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
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
