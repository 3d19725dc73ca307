//! Health, readiness and metrics.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::Problem;
use crate::facts::Fact;
use crate::server::Face;

/// Whether the process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It does", body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the node may be given work: every service runs and the lease holds.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    responses(
        (status = 200, description = "It may", body = String),
        (status = 503, description = "The node may not serve; `detail` says why", body = Problem),
    )
)]
pub(crate) async fn readyz(State(face): State<Face>) -> Result<&'static str, Problem> {
    match face.view.status().not_ready() {
        None => Ok("ready\n"),
        Some(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "The node is not ready", why)),
    }
}

/// Metrics as Prometheus reads them.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "health",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"))
)]
pub(crate) async fn metrics(State(face): State<Face>) -> Result<Response, Problem> {
    Ok(Fact::Metrics.answer(face.facts.tell(Fact::Metrics).await?))
}
