//! Bytes that no client of ours would send.

mod bytes;
