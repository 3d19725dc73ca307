//! Key-value data on all cores of a machine, without a lock.
//!
//! Each thread is an [`Actor`](actor::Actor) with a private part of the keys ([`keyspace`]) and a part of the connections
//! ([`session`]). A request runs on the thread that read it if its key is there, and is sent to the key's thread if not; one
//! that needs keys of several threads borrows them ([`actor`]). Every change is a versioned delta ([`delta`]), which goes to
//! one log for all threads ([`log`]).
//!
//! What is to be said about a command is said once, in [`command::TABLE`]; its function is in [`commands`].
//!
//! A face reads requests from clients ([`request::Args`]), gives them to its thread's actor and encodes what it answers
//! ([`reply::Reply`]). Where the keys are on another node, both are values ([`handle`]). `docs/design/0003-keys.md` says why things are as they are.

pub mod access;
pub mod actor;
pub mod changed;
pub mod cluster;
pub mod command;
pub mod commands;
pub mod config;
pub mod delta;
pub mod error;
pub mod error_counts;
pub mod figures;
pub mod geo;
pub mod group;
pub mod handle;
pub mod hyperloglog;
pub mod keyspace;
pub mod log;
pub mod memory;
pub mod number;
mod pattern;
pub mod placement;
mod random;
pub mod reply;
pub mod request;
mod scripting;
pub mod session;
pub mod short_bytes;
pub mod slot;
mod small_file;
mod wire;
