//! The node itself.

use axum::Json;
use axum::extract::State;
use utoipa::openapi::OpenApi;

use crate::Problem;
use crate::extract::Query;
use crate::server::Face;
use crate::types::{NodeStatus, Nodes, Settings, Shards, ShardsQuery};

/// The node, its services, ports and versions, and its lease.
#[utoipa::path(
    get,
    path = "/api/v1/status",
    tag = "node",
    responses((status = 200, description = "The status", body = NodeStatus))
)]
pub(crate) async fn status(State(face): State<Face>) -> Json<NodeStatus> {
    Json(face.view.status())
}

/// Every setting in force, and where its value came from.
#[utoipa::path(
    get,
    path = "/api/v1/config",
    tag = "node",
    responses((status = 200, description = "The settings", body = Settings))
)]
pub(crate) async fn config(State(face): State<Face>) -> Json<Settings> {
    Json(Settings { settings: face.view.settings() })
}

/// The nodes of the cluster that hold their lease.
#[utoipa::path(
    get,
    path = "/api/v1/nodes",
    tag = "node",
    responses((status = 200, description = "By name", body = Nodes))
)]
pub(crate) async fn nodes(State(face): State<Face>) -> Json<Nodes> {
    Json(Nodes { nodes: face.view.nodes() })
}

/// What the nodes of the cluster own.
#[utoipa::path(
    get,
    path = "/api/v1/shards",
    tag = "node",
    params(ShardsQuery),
    responses(
        (status = 200, description = "By name", body = Shards),
        (status = 400, description = "Parameters that there are not", body = Problem),
    )
)]
pub(crate) async fn shards(
    State(face): State<Face>,
    Query(ShardsQuery { prefix }): Query<ShardsQuery>,
) -> Json<Shards> {
    let mut shards = face.view.shards();
    let prefix = prefix.unwrap_or_default();
    shards.retain(|shard| shard.shard.starts_with(&prefix));
    Json(Shards { shards })
}

/// This document.
#[utoipa::path(
    get,
    path = "/api/v1/openapi.json",
    tag = "node",
    responses((status = 200, description = "OpenAPI 3.1", body = Object))
)]
pub(crate) async fn openapi() -> Json<OpenApi> {
    Json(crate::document())
}
