//! Each node of the cluster, through this one: what it tells of itself, and whether it gets anything new.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::Problem;
use crate::extract::Path;
use crate::facts::{Asker, Fact};
use crate::server::Face;
use crate::types::{NodeStatus, Settings};

/// A node, its services, ports and versions, and its lease.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}/status",
    tag = "node",
    params(("node" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The status, as the node itself tells it", body = NodeStatus),
        (status = 404, description = "No such node", body = Problem),
        (status = 502, description = "The node does not tell it", body = Problem),
        (status = 504, description = "The node does not answer", body = Problem),
    )
)]
pub(crate) async fn status(State(face): State<Face>, Path(node): Path<String>) -> Result<Response, Problem> {
    told(&face, &node, Fact::Status).await
}

/// Every setting in force on a node, and where its value came from.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}/config",
    tag = "node",
    params(("node" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The settings, as the node itself tells them", body = Settings),
        (status = 404, description = "No such node", body = Problem),
        (status = 502, description = "The node does not tell them", body = Problem),
        (status = 504, description = "The node does not answer", body = Problem),
    )
)]
pub(crate) async fn config(State(face): State<Face>, Path(node): Path<String>) -> Result<Response, Problem> {
    told(&face, &node, Fact::Settings).await
}

/// Metrics of a node, as Prometheus reads them.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}/metrics",
    tag = "node",
    params(("node" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"),
        (status = 404, description = "No such node", body = Problem),
        (status = 502, description = "The node does not tell them", body = Problem),
        (status = 504, description = "The node does not answer", body = Problem),
    )
)]
pub(crate) async fn metrics(State(face): State<Face>, Path(node): Path<String>) -> Result<Response, Problem> {
    told(&face, &node, Fact::Metrics).await
}

/// A node gets nothing new from now on, until that is undone or it starts again.
#[utoipa::path(
    put,
    path = "/api/v1/nodes/{node}/drain",
    tag = "node",
    params(("node" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "It gets nothing new"),
        (status = 404, description = "No such node", body = Problem),
        (status = 409, description = "The node is alone, or the last one that takes databases", body = Problem),
        (status = 503, description = "The coordinator does not answer", body = Problem),
    )
)]
pub(crate) async fn drain(State(face): State<Face>, Path(node): Path<String>) -> Result<StatusCode, Problem> {
    drained(&face, &node, true).await
}

/// A node that was drained gets databases again.
#[utoipa::path(
    delete,
    path = "/api/v1/nodes/{node}/drain",
    tag = "node",
    params(("node" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "It gets what there is to get"),
        (status = 404, description = "No such node", body = Problem),
        (status = 409, description = "The node is alone", body = Problem),
        (status = 503, description = "The coordinator does not answer", body = Problem),
    )
)]
pub(crate) async fn fill(State(face): State<Face>, Path(node): Path<String>) -> Result<StatusCode, Problem> {
    drained(&face, &node, false).await
}

async fn drained(face: &Face, node: &str, is_drained: bool) -> Result<StatusCode, Problem> {
    let alone = || Problem::of_sqlstate("55000", "expected a cluster of several nodes, but this node is alone");
    face.view.others().ok_or_else(alone)?.drain(node, is_drained).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn told(face: &Face, node: &str, fact: Fact) -> Result<Response, Problem> {
    let own = face.view.status().node;
    let told = match face.view.others() {
        _ if node == own => face.facts.tell(fact).await?,
        Some(others) => {
            let asker = if face.access.credentials.are_none() { Asker::Anybody } else { Asker::Known };
            others.tell(node, fact, asker).await?
        }
        None => {
            let detail = format!("expected the name of this node, {own}, which is alone, came {node}");
            return Err(Problem::not_found(detail));
        }
    };
    Ok(fact.answer(told))
}
