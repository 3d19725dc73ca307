//! The face before a stub of an engine, over streams of bytes in memory.

mod bytes;
mod door;
mod stub;
