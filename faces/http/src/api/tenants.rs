//! Tenants: which there are, what goes on in them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json as Answer;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures::stream::{BoxStream, StreamExt};
use tokio::sync::Mutex;

use crate::Problem;
use crate::extract::{Json, Path};
use crate::server::Face;
use crate::types::{Decisions, Move, Moves, NewMove, NewMovesAsleep, NewTenant, Tenants};
use crate::view::SharedTenants;

/// How long the body of a request that was refused is read on.
const LINGER: Duration = Duration::from_secs(2);

/// All tenants, by name.
#[utoipa::path(
    get,
    path = "/api/v1/tenants",
    tag = "tenants",
    responses(
        (status = 200, description = "By name", body = Tenants),
        (status = 503, description = "The tenants service does not run", body = Problem),
    )
)]
pub(crate) async fn list(State(face): State<Face>) -> Result<Answer<Tenants>, Problem> {
    Ok(Answer(Tenants { tenants: served(&face)?.list().await }))
}

/// Moves a tenant to another node of the cluster. The answer comes when that has ended, also if the tenant stayed where it was.
#[utoipa::path(
    post,
    path = "/api/v1/moves",
    tag = "tenants",
    request_body = NewMove,
    responses(
        (status = 200, description = "What came of it", body = Move),
        (status = 404, description = "No such tenant", body = Problem),
        (status = 409, description = "It cannot go there, or not now", body = Problem),
        (status = 503, description = "The tenants service does not run, or the tenant's node does not answer", body = Problem),
    )
)]
pub(crate) async fn move_to(State(face): State<Face>, Json(body): Json<NewMove>) -> Result<Answer<Move>, Problem> {
    Ok(Answer(served(&face)?.move_to(body).await?))
}

/// Moves those of some tenants to another node that sleep, at once. What is awake, or wakes meanwhile, stays where it is.
#[utoipa::path(
    post,
    path = "/api/v1/moves/asleep",
    tag = "tenants",
    request_body = NewMovesAsleep,
    responses(
        (status = 200, description = "Those that were asleep and began to move, and what came of them", body = Moves),
        (status = 400, description = "More than 63, or no shards of tenants", body = Problem),
        (status = 404, description = "No node has any of them", body = Problem),
        (status = 409, description = "They cannot go there, or not now", body = Problem),
        (status = 503, description = "The tenants service does not run, or the tenants' node does not answer", body = Problem),
    )
)]
pub(crate) async fn move_asleep(
    State(face): State<Face>,
    Json(body): Json<NewMovesAsleep>,
) -> Result<Answer<Moves>, Problem> {
    Ok(Answer(Moves { moves: served(&face)?.move_asleep(body).await? }))
}

/// The last moves of tenants that left the nodes of the cluster.
#[utoipa::path(
    get,
    path = "/api/v1/moves",
    tag = "tenants",
    responses(
        (status = 200, description = "Oldest first", body = Moves),
        (status = 503, description = "The tenants service does not run", body = Problem),
    )
)]
pub(crate) async fn moves(State(face): State<Face>) -> Result<Answer<Moves>, Problem> {
    Ok(Answer(Moves { moves: served(&face)?.moves().await }))
}

/// Why tenants have moved by themselves, or stayed, where `cluster.balance` is on.
#[utoipa::path(
    get,
    path = "/api/v1/moves/decisions",
    tag = "tenants",
    responses(
        (status = 200, description = "Oldest first", body = Decisions),
        (status = 503, description = "The tenants service does not run", body = Problem),
    )
)]
pub(crate) async fn decisions(State(face): State<Face>) -> Result<Answer<Decisions>, Problem> {
    Ok(Answer(served(&face)?.decisions().await))
}

/// Makes a tenant.
#[utoipa::path(
    post,
    path = "/api/v1/tenants",
    tag = "tenants",
    request_body = NewTenant,
    responses(
        (status = 201, description = "The tenant was made, and is durable"),
        (status = 409, description = "A tenant of this name exists", body = Problem),
        (status = 503, description = "The tenants service does not run", body = Problem),
    )
)]
pub(crate) async fn create(State(face): State<Face>, Json(body): Json<NewTenant>) -> Result<StatusCode, Problem> {
    served(&face)?.create(body.name).await?;
    Ok(StatusCode::CREATED)
}

/// Removes a tenant and all that is in it, if nobody is connected to it.
#[utoipa::path(
    delete,
    path = "/api/v1/tenants/{tenant}",
    tag = "tenants",
    params(("tenant" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "The tenant was dropped, with all its data"),
        (status = 404, description = "No such tenant", body = Problem),
        (status = 409, description = "Somebody is connected to it", body = Problem),
        (status = 503, description = "The tenants service does not run", body = Problem),
    )
)]
pub(crate) async fn remove(State(face): State<Face>, Path(tenant): Path<String>) -> Result<StatusCode, Problem> {
    served(&face)?.remove(tenant).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The backup of a tenant: all that was committed when it was asked for, at one commit. The tenant goes on meanwhile.
#[utoipa::path(
    get,
    path = "/api/v1/tenants/{tenant}/backup",
    tag = "tenants",
    params(("tenant" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The backup; it is whole if it is as long as Content-Length says", body = Vec<u8>,
            content_type = "application/octet-stream"),
        (status = 404, description = "No such tenant", body = Problem),
        (status = 409, description = "A transaction with an old snapshot delays the backup", body = Problem),
        (status = 503, description = "The tenants service does not run, or its storage fails", body = Problem),
    )
)]
pub(crate) async fn backup(State(face): State<Face>, Path(tenant): Path<String>) -> Result<Response, Problem> {
    let backup = served(&face)?.backup(tenant).await?;
    let mut response = Response::new(Body::from_stream(backup.stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(backup.bytes));
    Ok(response)
}

/// Makes a tenant of a backup: all of it, or none.
#[utoipa::path(
    post,
    path = "/api/v1/tenants/{tenant}/restore",
    tag = "tenants",
    params(("tenant" = String, Path, description = "The name of the new tenant")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The backup, of any length"),
    responses(
        (status = 201, description = "The tenant was made, and is durable"),
        (status = 400, description = "The body is not a whole backup", body = Problem),
        (status = 409, description = "A tenant of this name exists", body = Problem),
        (status = 503, description = "The tenants service does not run, or its storage fails", body = Problem),
    )
)]
pub(crate) async fn restore(
    State(face): State<Face>,
    Path(tenant): Path<String>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let body = Arc::new(Mutex::new(body.into_data_stream()));
    let backup = in_time(Arc::clone(&body), face.limits.request_timeout);
    let restored = match served(&face) {
        Ok(tenants) => tenants.restore(tenant, backup).await,
        Err(problem) => Err(problem),
    };
    if restored.is_err() {
        let _ = tokio::time::timeout(LINGER, read_to_end(&body)).await;
    }
    restored.map(|()| StatusCode::CREATED)
}

/// The body of a request that is read by whoever makes use of it, and then to its end.
type SharedBody = Arc<Mutex<BodyDataStream>>;

/// The bytes of a body that must go on within a time.
fn in_time(body: SharedBody, time: Duration) -> BoxStream<'static, io::Result<Bytes>> {
    let pieces = futures::stream::unfold(body, move |body| async move {
        let next = async { body.lock().await.next().await };
        let piece = match tokio::time::timeout(time, next).await {
            Ok(piece) => piece?.map_err(io::Error::other),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no bytes came for {time:?}"))),
        };
        Some((piece, body))
    });
    pieces.boxed()
}

/// Whoever still sends would find the connection closed before it has read why it is refused.
async fn read_to_end(body: &SharedBody) {
    let mut body = body.lock().await;
    while let Some(Ok(_)) = body.next().await {}
}

fn served(face: &Face) -> Result<SharedTenants, Problem> {
    face.view.tenants().ok_or_else(|| {
        let detail = "the tenants are not on this node; GET /api/v1/shards says which node of a cluster has them, GET /api/v1/status what runs here";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The tenants service does not answer", detail)
    })
}
