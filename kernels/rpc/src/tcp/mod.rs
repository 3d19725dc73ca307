//! Request and reply over TCP: one connection from a node to each node it asks, with many requests under way on it.
//!
//! What is bounded, and what happens at the bound:
//!
//! | what | bound | then |
//! |---|---|---|
//! | frame | `frame_bytes_max` | the call or reply is [`Malformed`](crate::RpcError::Malformed); received: the connection closes |
//! | requests under way, waiting | `session.in_flight_max`, `session.queued_max` | [`Overloaded`](crate::RpcError::Overloaded) |
//! | handlers per connection | `session.handlers_max` | `Overloaded` |
//! | bytes not yet accepted by the other side | half of `output_bytes_max` | nothing more is read or taken on |
//! | | `output_bytes_max`, or no progress for `write_stall_max` | slow consumer: the connection closes |
//! | connections at a server | `connections_max` | `Refused` and closed |
//! | those that have not greeted it | `ungreeted_max`, frames of 4 KiB, messages of a TLS handshake of 64 KiB, `connect_timeout` | closed at once |
//! | nodes asked by a client | `peers_max` | `Overloaded` |
//! | silence | `session.ping_after`, `session.dead_after` | ping; the connection closes |
//!
//! Where the [`Cluster`](crate::Cluster) has certificates ([`MutualTls`]), every connection is encrypted, and the greeting goes on inside. A server tells from the first
//! byte whether a connection is meant to be encrypted, and refuses one that is meant otherwise than its own.
//!
//! After a failed connect the node is not tried again for `backoff_min`, doubled with each failure up to `backoff_max`;
//! calls in between end at once as [`Unreachable`](crate::RpcError::Unreachable).

mod client;
mod connection;
mod server;
mod tls;
mod traffic;
mod wire;

use std::time::Duration;

pub use self::{
    client::{Addresses, TcpTransport},
    server::TcpServer,
    tls::{MutualTls, NODE_NAME, TlsError, TlsFiles},
    traffic::TrafficFigures,
};
use crate::SessionLimits;

/// Largest frame unless configured otherwise: 16 MiB.
pub const FRAME_BYTES_MAX_DEFAULT: usize = 16 * 1024 * 1024;

/// Bounds and time limits of TCP connections. Both sides should agree on `frame_bytes_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Windows, queues and the time limits for silence.
    pub session: SessionLimits,
    /// Largest frame in bytes, header included.
    pub frame_bytes_max: usize,
    /// Bytes written and not yet accepted by the other side.
    pub output_bytes_max: usize,
    /// Longest time for connecting and for the hello.
    pub connect_timeout: Duration,
    /// Longest time in which the other side accepts no byte although some wait.
    pub write_stall_max: Duration,
    /// Pause after the first failure to connect.
    pub backoff_min: Duration,
    /// Longest pause after repeated failures.
    pub backoff_max: Duration,
    /// A client closes a connection that was not used for this long.
    pub idle_close: Duration,
    /// Connections at one server.
    pub connections_max: usize,
    /// Connections at one server that have not greeted it yet.
    pub ungreeted_max: usize,
    /// Nodes that one client keeps a connection or a backoff for.
    pub peers_max: usize,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            session: SessionLimits::default(),
            frame_bytes_max: FRAME_BYTES_MAX_DEFAULT,
            output_bytes_max: 4 * FRAME_BYTES_MAX_DEFAULT,
            connect_timeout: Duration::from_secs(3),
            write_stall_max: Duration::from_secs(10),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(2),
            idle_close: Duration::from_secs(300),
            connections_max: 1024,
            ungreeted_max: 128,
            peers_max: 1024,
        }
    }
}
