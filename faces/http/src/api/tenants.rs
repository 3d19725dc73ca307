//! Tenants: which there are, what goes on in them.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;

use crate::Problem;
use crate::extract::{Json, Path};
use crate::server::Face;
use crate::types::{NewTenant, Tenants};
use crate::view::SharedTenants;

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
    Ok(Answer(Tenants { tenants: served(&face)?.list() }))
}

/// Makes a tenant.
#[utoipa::path(
    post,
    path = "/api/v1/tenants",
    tag = "tenants",
    request_body = NewTenant,
    responses(
        (status = 201, description = "It is there, and durable"),
        (status = 409, description = "There is one of this name", body = Problem),
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
        (status = 204, description = "It is gone, for ever"),
        (status = 404, description = "No such tenant", body = Problem),
        (status = 409, description = "Somebody is connected to it", body = Problem),
        (status = 503, description = "The tenants service does not run", body = Problem),
    )
)]
pub(crate) async fn remove(State(face): State<Face>, Path(tenant): Path<String>) -> Result<StatusCode, Problem> {
    served(&face)?.remove(tenant).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn served(face: &Face) -> Result<SharedTenants, Problem> {
    face.view.tenants().ok_or_else(|| {
        let detail = "the tenants service does not run on this node; GET /api/v1/status says what does";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The tenants service does not answer", detail)
    })
}
