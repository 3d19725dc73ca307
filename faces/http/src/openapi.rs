//! The OpenAPI document of the control API.

use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;

use crate::api::{health, node, nodes, queries, sql, tables, tenants};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Savanna control API",
        description = "Status, configuration, queries, SQL and tables of one node, and what it knows and hears of the others of its cluster. Errors are RFC 9457 problems.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "node", description = "The node: who it is, what it runs, how it is configured"),
        (name = "queries", description = "Continuous queries"),
        (name = "sql", description = "Sessions, statements and their rows"),
        (name = "tables", description = "Tables and views"),
        (name = "tenants", description = "Small databases with transactions"),
        (name = "health", description = "For load balancers and Prometheus")
    ),
    paths(
        node::status,
        node::config,
        node::nodes,
        nodes::status,
        nodes::config,
        nodes::metrics,
        nodes::drain,
        nodes::fill,
        node::shards,
        node::openapi,
        queries::list,
        queries::get,
        queries::cancel,
        queries::resume,
        queries::save,
        queries::resume_saved,
        queries::forget,
        sql::split,
        sql::open,
        sql::close,
        sql::describe,
        sql::execute,
        sql::rows,
        sql::stream,
        sql::close_cursor,
        tables::list,
        tables::get,
        tenants::list,
        tenants::create,
        tenants::remove,
        tenants::backup,
        tenants::restore,
        tenants::moves,
        tenants::move_asleep,
        tenants::decisions,
        tenants::move_to,
        health::healthz,
        health::readyz,
        health::metrics,
    )
)]
struct ControlApi;

/// The document, OpenAPI 3.1.
pub fn document() -> Document {
    ControlApi::openapi()
}
