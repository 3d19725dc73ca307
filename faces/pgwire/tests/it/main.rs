//! The face before a stub of an engine, over streams of bytes in memory.

mod acceptor;
mod bytes;
mod cancel;
mod stub;
