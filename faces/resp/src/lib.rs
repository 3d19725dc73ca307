//! The Redis protocol, RESP2 and RESP3: sockets on one side, the actors of the keys engine on the other.
//!
//! ```text
//!            ┌─ thread 0 ──────────────────────────────────┐
//!  clients ──┤ sockets ─ Parser ─► Actor ─► Encoder ─ sockets │
//!            └──────────────────────┬──────────────────────┘
//!                                mailboxes, one wake-up for a batch      one log for all
//!            ┌─ thread 1 ──────────────────────────────────┐
//! ```
//!
//! A thread is an event loop with one actor; nothing is shared but mailboxes and the log. [`Server`] begins and ends them.
//!
//! # A tour of the source
//!
//! `parse` finds requests in the receive buffer, `encode` writes replies, `output` keeps their order and holds back what is
//! not durable, `stream` is a socket, by `tls` encrypted or not, `connection` has one with both, `thread` is the loop, `mailbox` lies between loops, `rewrite`
//! shortens the log, `server` starts them.

mod connection;
mod encode;
mod mailbox;
mod memory;
mod output;
pub mod parse;
mod rewrite;
mod server;
mod stream;
mod thread;
mod tls;

pub use crate::{
    encode::Encoder,
    server::{Gauge, Server, ServerError, ServerOptions, Stopper},
    thread::ThreadError,
    tls::TlsError,
};
