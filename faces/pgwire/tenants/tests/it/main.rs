//! Bytes that no client of ours would send; servers that end; answers that wait for the log.

mod bytes;
mod cuts;
mod gate;
mod panics;
mod server;
mod two_processes;
