//! The PostgreSQL protocol in front of tenants.
//!
//! ```text
//!  door: who are you?     ──► thread 0: runtime ─ connections ─ tenants 1, 3, ..
//!                         └─► thread 1: runtime ─ connections ─ tenants 2, 4, ..      one journal for all
//! ```
//!
//! A tenant lives on one thread, with all of its connections. Once a client has said which database it wants, its socket goes
//! to that thread and stays there; a statement is read, run and answered without a lock and without a hop. What a statement
//! waits for (a row that is locked, a block of the storage, the log's flush) is awaited on that thread, and others go on. A
//! tenant without clients falls asleep after a while; the next client wakes it.
//!
//! Answers are collected and leave in one write, when nothing more of the client's is there to be done and the log is
//! durable up to what they depend on.

mod alarm;
mod connection;
mod connections;
mod copy;
mod door;
mod housekeeping;
mod output;
mod places;
mod process;
mod retries;
mod room;
mod server;
mod socket;
mod tenants;
mod thread;

pub use savanna_identity::{TlsError, TlsFiles};
pub use savanna_pgwire_login::Admission;
pub use savanna_tenants::{SqlError, activity::Counts, error::state::DISK_FULL};

pub use crate::{
    process::Keeping,
    server::{Server, ServerError, ServerOptions, Stopper},
    tenants::Tenants,
};
