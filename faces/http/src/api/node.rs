//! The node itself.

use axum::Json;
use axum::extract::State;
use utoipa::openapi::OpenApi;

use crate::server::Face;
use crate::types::{NodeStatus, Settings};

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
