//! What keeps tenants running in a process, whatever protocol their clients speak.
//!
//! ```text
//!  face: who are you? ─ Tenants::connect ──► thread 0: runtime ─ sessions ─ tenants 1, 3, ..
//!  control API ──────── Tenants::create ..   thread 1: runtime ─ sessions ─ tenants 2, 4, ..      one journal for all
//! ```
//!
//! A tenant lives on one thread, with all of its connections. A face proves who a client is, and hands it over as a
//! [`Connection`]: it is served on its tenant's thread from then on, by a [`Session`]. A statement is read, run and answered without a lock
//! and without a hop. What a statement waits for (a row that is locked, a block of the storage, the log's flush) is awaited on that thread,
//! and others go on. A tenant without clients falls asleep after a while; the next client wakes it.
//!
//! Answers may leave when the log is durable up to what they depend on: [`Session::gate`].
//!
//! # Decisions, and what drives them
//!
//! [`slots`] (which tenants are awake, and what of the log they need), [`policy`] (when to flush, to evict, to put to sleep, to refuse
//! writes), [`flushing`] (one flush, one eviction), [`log`] (when the log is cut), [`retries`] and the engine's budget decide without I/O,
//! clock or threads; the simulation runs the same code. `thread`, `slot`, `maintenance`, `process` and `session` drive them.

mod access;
mod alarm;
mod alone;
mod connections;
pub mod flushing;
mod host;
mod known;
pub mod log;
mod maintenance;
mod moving;
mod others;
mod places;
pub mod policy;
mod process;
pub mod retries;
mod session;
mod slot;
pub mod slots;
mod tenants;
mod thread;
mod warming;

pub use savanna_journal::{Stats as LogStats, TIMES_UPTO};
pub use savanna_ownership::{RootExpectation, Tenure};
// What statements and their answers are made of.
pub use savanna_tenants::{
    Outcome, Status,
    activity::Counts,
    budget,
    tenant::{Binding, Given, InTransaction, Notice, Notification},
};
pub use savanna_tenants_catalog::name::cut as cut_name;
pub use savanna_tenants_segments::TenantId;
pub use savanna_tenants_sql::{
    backends::{Backend, Signal},
    copy,
    doing::Noted,
    plan::OutputColumn,
    settings::{Encoding, SERVER_VERSION, Timeouts},
};
pub use savanna_tenants_store::{
    owner::Moved,
    role::{Acquaintance, Verifier},
    shards::{self, Member, ShardsError},
    storage::{Archive, Asked, BlockRounds, Cached, Since, StoreFigures, WarmBlocks, Warmed},
};
pub use savanna_tenants_values::{error, error::SqlError, types, value};

pub use crate::{
    access::{Access, Claim},
    connections::{Termination, node_of, number_of},
    host::{Host, HostError, HostOptions, Stopper},
    known::Heard,
    moving::{Departed, Return},
    others::{Others, Place},
    process::{Keeping, Key},
    session::{End, Executed, Identity, Peer, Served, Session, Waiting},
    slot::ConnectionGuard,
    tenants::Tenants,
    thread::Connection,
};
