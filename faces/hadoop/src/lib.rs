//! Hadoop's protocols for files: sockets on one side, the host of files on the other.
//!
//! ```text
//!  hdfs dfs, hdfs-native, .. ──IPC──► Decoder ─► ClientProtocol ─► Files ─► answers, when the log has what they depend on
//!                            ──transfer──► a thread for each connection ─► Replicas
//!  DataNodes of Hadoop ──IPC──► DatanodeProtocol ─► Files ─► what they have to do
//!  hdfs dfs -ls webhdfs://.., curl, .. ──HTTP──► a request of WebHDFS ─► Files, Replicas
//! ```
//!
//! Calls are done on the task that read them; answers leave as they come to be, in any order. Blocks go over connections of
//! their own, each with a thread that reads and writes.
//!
//! # A tour of the source
//!
//! `audit` is the log of who asked for what, `client` a client for commands, `ipc` calls and answers of any protocol, `leased` what leaves only with a lease, `wire` the messages, `protocol` what calls mean, `exception` what refusals are called,
//! `fuzzed` what reads bytes of others beside the decoder, for the fuzz targets, `transfer` the data node, `web` WebHDFS and what monitors read, `server` begins and ends all.

mod audit;
pub mod client;
mod exception;
#[doc(hidden)]
pub mod fuzzed;
pub mod ipc;
mod leased;
mod protocol;
mod server;
mod transfer;
mod web;
mod wire;

pub use savanna_files_host::blocks::Silence;
pub use savanna_files_host::{Files, HostOptions, Limits};

pub use crate::audit::AuditLog;
pub use crate::server::{Server, ServerError, ServerOptions, Stopper, serve_client};

#[cfg(test)]
mod tests;
