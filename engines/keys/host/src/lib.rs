//! What runs the actors of keys: threads, mail between them, one log for all, and the gate before replies.
//!
//! ```text
//!            ┌─ a thread, of a face ─────────────────────────────────┐
//!  sockets ──┤ requests ─► Worker ─► Host ─► Actor                   │
//!            │ replies  ◄─ gate ◄──────┴─► changes ─┐                │
//!            └──────────────────────────────────────┼──▲─────────────┘
//!                                 one log for all ◄─┘  └─ mail ─► other threads
//! ```
//!
//! A face owns sockets and protocol. It opens a [`Service`], gives each of its threads a [`Worker`], and drives that by turns. What
//! is appended, when mail leaves, what may be told, and when the log is rewritten is decided by a [`Host`], which has no thread, clock or
//! socket: the simulation drives the same code over a [`Log`] of its own.

mod admission;
mod calls;
mod courier;
mod ending;
mod error;
mod gate;
mod groups;
mod host;
mod loading;
mod log;
mod mailbox;
mod meanwhile;
mod memory;
mod moving;
mod rewrite;
mod saving;
mod service;
mod spread;
mod worker;

pub use savanna_journal::Lsn;

pub use crate::{
    admission::Admission,
    calls::Call,
    error::HostError,
    gate::Clearance,
    groups::GroupCall,
    host::Host,
    log::Log,
    mailbox::{Bell, Mail},
    meanwhile::{Clients, Meanwhile},
    moving::{Arrival, DepartureOrder, Leaving, MoveError},
    service::{Elsewhere, Gauge, HostOptions, Service, Stopper},
    spread::{AdoptError, Arriving, Hearer, Spread},
    worker::Worker,
};
