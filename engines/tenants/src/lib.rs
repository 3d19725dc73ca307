//! Tenants: small databases with transactions and SQL, many on one owner.
//!
//! A [`Tenant`](tenant::Tenant) runs the statements of its sessions over one [`Database`]: the transaction manager of
//! `kernels/transaction` over versions in memory, a [`Store`] below, and a [`Log`] beside into which every commit goes as one
//! record. An [`Owner`] has the log that all tenants of a process share.
//!
//! Nothing waits in here. A statement that needs a row which somebody else has locked ends with [`Step::Wait`]
//! and *has changed nothing*: its effects are worked out first, every lock is taken, and then all is written at once. When its
//! session is woken it runs again from its beginning, with the locks that it has by then. So there is no half of a statement to
//! keep, and a test drives the engine step by step.
//!
//! Replies wait for the log: [`Tenant::reply_after`](tenant::Tenant::reply_after) is the place that must be durable before
//! the client may hear what it wrote *or read*.
//!
//! # A tour of the source
//!
//! [`savanna_tenants_values`]: what is computed with. [`savanna_tenants_catalog`]: what is kept, and its bytes.
//! [`savanna_tenants_store`]: a tenant's rows, how they are kept, and come back. [`savanna_tenants_sql`]: from text to plans.
//! [`savanna_tenants_execution`]: runs plans. Here `session`, `cursor` and `tenant` are whom it is done for, `activity` what is counted,
//! `budget` who may go on.
//! `docs/design/0005-tenants.md` says why things are as they are, `docs/tenants.md` what the SQL has.
//!
//! [`Database`]: savanna_tenants_store::database::Database
//! [`Store`]: savanna_tenants_store::Store
//! [`Log`]: savanna_tenants_store::log::Log
//! [`Owner`]: savanna_tenants_store::owner::Owner
//! [`Step::Wait`]: savanna_tenants_store::database::Step::Wait

pub mod activity;
pub mod budget;
mod cursor;
#[cfg(feature = "faults")]
mod panics;
pub mod session;
pub mod tenant;

pub use savanna_tenants_execution::spill::SpoolRows;

#[cfg(feature = "faults")]
pub use crate::panics::panic_at;
pub use crate::session::{Outcome, Status};
