//! Bytes that no client of ours would send; servers that end; answers that wait for the log.

mod bytes;
mod gate;
mod server;
