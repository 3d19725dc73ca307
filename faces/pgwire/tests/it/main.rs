//! The face before a stub of an engine, over streams of bytes in memory.

mod bytes;
mod cancel;
mod door;
mod stub;
