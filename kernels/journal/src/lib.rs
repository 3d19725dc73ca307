//! savanna-journal
mod backend;
mod batch;
mod core;
mod error;
mod journal;
mod local;
mod object;
mod options;
mod record;
mod segment;
pub mod sim;

pub use crate::{
    error::JournalError,
    journal::{Journal, ReplyGate, Stats},
    local::{Disk, DiskFile, OsDisk},
    options::{Filter, Options},
    record::{Draft, Lsn, Record},
};
