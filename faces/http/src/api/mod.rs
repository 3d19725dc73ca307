//! The routes, one module per resource.

pub(crate) mod health;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod queries;
pub(crate) mod sql;
pub(crate) mod tables;
pub(crate) mod tenants;

use axum::routing::{MethodRouter, delete, get, post, put};

use crate::server::Face;

/// Where the API describes itself.
pub const OPENAPI_PATH: &str = "/api/v1/openapi.json";

/// One path and what it takes.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    /// In lower case, as in the OpenAPI document.
    pub(crate) methods: &'static [&'static str],
    pub(crate) handler: MethodRouter<Face>,
    pub(crate) kind: Kind,
}

/// What a route asks of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Next to nothing; anybody may ask, and is answered however busy the node is.
    Health,
    /// An answer in time to a small body.
    Short,
    /// As long as what the client sends.
    Long,
}

fn route(path: &'static str, methods: &'static [&'static str], handler: MethodRouter<Face>) -> Route {
    Route { path, methods, handler, kind: Kind::Short }
}

fn long_route(path: &'static str, methods: &'static [&'static str], handler: MethodRouter<Face>) -> Route {
    Route { kind: Kind::Long, ..route(path, methods, handler) }
}

fn health_route(path: &'static str, handler: MethodRouter<Face>) -> Route {
    Route { kind: Kind::Health, ..route(path, &["get"], handler) }
}

const HEALTHZ: &str = "/healthz";
const READYZ: &str = "/readyz";

/// Whether the route of this pattern tells of health.
pub(crate) fn is_health(path: &str) -> bool {
    [HEALTHZ, READYZ].contains(&path)
}

/// What the route of this pattern takes, for messages.
pub(crate) fn methods_of(path: &str) -> String {
    let route = routes().into_iter().find(|route| route.path == path);
    route.map_or_else(String::new, |route| route.methods.join(", ").to_uppercase())
}

/// Everything that the face serves.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        health_route(HEALTHZ, get(health::healthz)),
        health_route(READYZ, get(health::readyz)),
        route("/metrics", &["get"], get(health::metrics)),
        route(OPENAPI_PATH, &["get"], get(node::openapi)),
        route("/api/v1/status", &["get"], get(node::status)),
        route("/api/v1/config", &["get"], get(node::config)),
        route("/api/v1/nodes", &["get"], get(node::nodes)),
        route("/api/v1/nodes/{node}/drain", &["put", "delete"], put(nodes::drain).delete(nodes::fill)),
        route("/api/v1/nodes/{node}/status", &["get"], get(nodes::status)),
        route("/api/v1/nodes/{node}/config", &["get"], get(nodes::config)),
        route("/api/v1/nodes/{node}/metrics", &["get"], get(nodes::metrics)),
        route("/api/v1/shards", &["get"], get(node::shards)),
        long_route("/api/v1/queries", &["get", "post"], get(queries::list).post(queries::resume_saved)),
        route("/api/v1/queries/{query}", &["get", "delete"], get(queries::get).delete(queries::cancel)),
        route("/api/v1/queries/{query}/resume", &["post"], post(queries::resume)),
        long_route("/api/v1/queries/{query}/savepoint", &["post"], post(queries::save)),
        route("/api/v1/queries/{query}/drop", &["post"], post(queries::forget)),
        route("/api/v1/tables", &["get"], get(tables::list)),
        route("/api/v1/tables/{table}", &["get"], get(tables::get)),
        long_route("/api/v1/moves", &["get", "post"], get(tenants::moves).post(tenants::move_to)),
        long_route("/api/v1/moves/asleep", &["post"], post(tenants::move_asleep)),
        route("/api/v1/moves/decisions", &["get"], get(tenants::decisions)),
        route("/api/v1/tenants", &["get", "post"], get(tenants::list).post(tenants::create)),
        route("/api/v1/tenants/{tenant}", &["delete"], delete(tenants::remove)),
        route("/api/v1/tenants/{tenant}/backup", &["get"], get(tenants::backup)),
        long_route("/api/v1/tenants/{tenant}/restore", &["post"], post(tenants::restore)),
        route("/api/v1/sql/split", &["post"], post(sql::split)),
        route("/api/v1/sql/sessions", &["post"], post(sql::open)),
        route("/api/v1/sql/sessions/{session}", &["delete"], delete(sql::close)),
        route("/api/v1/sql/sessions/{session}/describe", &["post"], post(sql::describe)),
        route("/api/v1/sql/sessions/{session}/execute", &["post"], post(sql::execute)),
        route("/api/v1/sql/sessions/{session}/cursors/{cursor}", &["delete"], delete(sql::close_cursor)),
        route("/api/v1/sql/sessions/{session}/cursors/{cursor}/rows", &["get"], get(sql::rows)),
        route("/api/v1/sql/sessions/{session}/cursors/{cursor}/stream", &["get"], get(sql::stream)),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_openapi_document_covers_every_route_and_no_other() {
        let document = serde_json::to_value(crate::document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let documented: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|method| (path.clone(), method.clone())))
            .collect();
        let served: BTreeSet<(String, String)> = routes()
            .iter()
            .flat_map(|route| route.methods.iter().map(|method| (route.path.to_owned(), (*method).to_owned())))
            .collect();
        assert_eq!(documented, served);
    }

    #[test]
    fn every_operation_says_what_it_is_for_and_how_it_fails() {
        let document = serde_json::to_value(crate::document()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let place = format!("{method} {path}");
                assert!(operation["summary"].as_str().is_some_and(|s| !s.is_empty()), "{place} has no summary");
                assert!(!operation["responses"].as_object().unwrap().is_empty(), "{place} has no responses");
            }
        }
    }
}
