//! What runs functions: their log and code, processes and what these are kept from, and Lambda's Runtime API.
//!
//! A face asks with [`Functions`]. What is to be done is decided by `savanna_functions::core` under one lock, and done here: a process is started by a
//! launcher that keeps it apart, asks for work at a loopback port of its own, and is ended with all that it has started. An event is in the log before its client is told that
//! it is accepted, and so is its end before it is forgotten.
//!
//! # A tour of the source
//!
//! `functions` is the handle of faces; `driver` does what the core says; `instance` is a process from its start to its end, `runtime_api` what it asks; `launcher` is what
//! becomes that process; `process`, `processes`, `memory`, `interpreter`, `busy` and `logs` are what the machine has for it. `zip` and `code` keep code; `leftovers` is what nobody wants any more; `clock` is what time it is; `streams` tells streams of keys; `recovery` reads the log; `lineage` finds loops; `crash` ends the process where a test wants it to.

mod busy;
mod clock;
mod code;
mod crash;
mod driver;
mod functions;
mod instance;
mod interpreter;
pub mod launcher;
mod leftovers;
mod lineage;
mod logs;
mod memory;
mod options;
mod process;
mod processes;
mod recovery;
pub mod runtime_api;
mod streams;
pub mod zip;
#[cfg(test)]
#[path = "../tests/it/zips.rs"]
mod zips;

pub use savanna_functions::{Refusal, RefusalKind, catalog, core, meter, names};

pub use crate::{
    code::PinnedCode,
    driver::timestamp,
    functions::{Functions, Invoked, Invoking, Totals, unique},
    lineage::Lineage,
    options::{Abilities, Bounds, HostError, HostOptions, Isolation},
    zip::{UNPACKED_MAX, ZIP_MAX},
};

/// Bytes of a payload that a client waits for.
pub const SYNC_MAX: usize = 6 << 20;
/// Bytes of an answer.
pub const ANSWER_MAX: usize = SYNC_MAX + 100;
/// Bytes of an event.
pub const EVENT_MAX: usize = 1 << 20;
