//! The HTTP face of a node: the versioned control API, metrics and health.
//!
//! ```text
//!  GET  /healthz /readyz                       is it up, may it be given work
//!  GET  /metrics                               Prometheus text
//!  *    /api/v1/..                             control API; GET /api/v1/openapi.json describes it
//!
//!  client --HTTP--> guard --> api::* --StreamRequest--> SharedStreamHandle --> engine (here or elsewhere)
//!                     |          \----------------------> NodeView (status, configuration) and Facts; of other nodes, NodesHandle
//!                     `- host, origin, credentials, time-outs, concurrency limits, request metrics
//! ```
//!
//! The face keeps sockets and nothing else: sessions, cursors and queries live in the engine under their ids. It sees the
//! engine through [`SharedStreamHandle`](savanna_streams_api::handle::SharedStreamHandle) and the node through
//! [`NodeView`], so that either may be in another process. Errors are RFC 9457 problems ([`Problem`]) with the SQLSTATE
//! and the position in the statement. The values of the API
//! are public ([`types`]): the command line speaks it too.

mod access;
pub mod api;
mod connections;
mod extract;
mod facts;
mod guard;
mod metrics;
mod openapi;
mod problem;
pub mod rows;
mod server;
mod sessions;
pub mod types;
mod view;

pub use access::Credentials;
pub use facts::{Asker, Fact, Facts, NodesHandle, SharedNodes};
pub use openapi::document;
pub use problem::{PROBLEM_JSON, Problem};
pub use server::{HttpFace, HttpLimits};
pub use view::{Backup, Figure, FigureValue, NodeView, SharedTenants, TenantsHandle};
