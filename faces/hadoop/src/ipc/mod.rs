//! Hadoop's remote procedure calls, version 9: a pure decoder of what a client sends, the encoding of answers, what waits to be
//! sent, and the connection around them.

pub(crate) mod answer;
pub(crate) mod connection;
pub mod decoder;
mod outbox;
