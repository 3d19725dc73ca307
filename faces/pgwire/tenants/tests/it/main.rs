//! Bytes that no client of ours would send; servers that end.

mod bytes;
mod server;
