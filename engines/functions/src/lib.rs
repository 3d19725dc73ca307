//! A host of functions: what there is, who runs, who waits, and what becomes of events. Everything here is decided without I/O; the
//! host (`engines/functions/host`) keeps the log, runs processes, and does what is decided.
//!
//! # A tour of the source
//!
//! `names` is what functions are called, `catalog` what functions, versions and aliases there are and what their settings may be, `refusal` is why a
//! request is refused in Lambda's words, `core` decides who runs and what becomes of events, `meter` counts what is paid for, `record` is the log's form of all that.

pub mod catalog;
pub mod core;
pub mod meter;
pub mod names;
pub mod record;
mod refusal;

pub use crate::refusal::{Refusal, RefusalKind};
