//! The PostgreSQL protocol in front of tenants: sockets, encryption, logins, messages, and the formats of `COPY`.
//!
//! ```text
//!  acceptor: who are you? ──► the tenant's thread of the host: decode ─ Session ─ encode
//! ```
//!
//! Once a client has said which database it wants and who it is, its socket goes to the thread that the host has for that database, and
//! stays there. What a statement comes to is the host's ([`savanna_tenants_host`]); here is what it looks like on the wire.
//!
//! Answers are collected and leave in one write, when nothing more of the client's is there to be done and the host says that they
//! may be told.

mod acceptor;
mod connection;
mod copy;
mod inside;
mod relay;
mod rows;
mod server;
mod socket;
mod wire;

pub use savanna_identity::{TlsError, TlsFiles};
pub use savanna_pgwire_login::Admission;

pub use crate::inside::Inside;
pub use crate::relay::{Back, Class, Felt, Front, Names, class_of, list, retired};
pub use crate::server::{Listener, Server, ServerError, ServerOptions};
