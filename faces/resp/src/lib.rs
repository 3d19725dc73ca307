//! The Redis protocol, RESP2 and RESP3: sockets on one side, the host of the keys engine on the other.
//!
//! ```text
//!            ┌─ thread 0 ────────────────────────────────────┐
//!  clients ──┤ sockets ─ Parser ─► Worker ─► Encoder ─ sockets │
//!            └───────────────────────────────────────────────┘
//! ```
//!
//! A thread is an event loop around a worker of the host (`engines/keys/host`), which has an actor, mail between threads, the log, and
//! says what may be told. [`Server`] begins and ends them.
//!
//! # A tour of the source
//!
//! `parse` finds requests in the receive buffer, `encode` writes replies, `output` keeps their order and holds back what may not
//! be told yet, `stream` is a socket, by `tls` encrypted or not, `connection` has one with both, `thread` is the loop, `server` starts
//! them.

mod connection;
mod encode;
mod output;
pub mod parse;
mod server;
mod stream;
mod thread;
mod tls;

pub use crate::{
    encode::Encoder,
    server::{ClusterPort, Opened, Server, ServerError, ServerOptions},
    thread::ThreadError,
    tls::TlsError,
};
