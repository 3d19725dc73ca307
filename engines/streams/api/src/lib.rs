//! How the streams engine is asked: the [`handle`] that faces talk to, with its requests, replies and errors as plain
//! serialisable values, and the engine's [`ids`].
//!
//! Nothing here knows the query engine, so that a face is built, and may run, without it.

pub mod error;
pub mod handle;
pub mod ids;
pub mod json;
mod type_name;

pub use error::{Position, Result, StreamError};
pub use type_name::type_name;
