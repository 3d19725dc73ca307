//! Foreign errors in the engine's words.

use std::fmt::Display;

use savanna_streams_model::StreamError;

/// An expression or operator could not compute a value.
pub(crate) fn computing(place: &str, cause: &dyn Display) -> StreamError {
    StreamError::Data { place: place.to_owned(), message: cause.to_string() }
}

/// Something that the planner or another part of the engine promised does not hold.
pub(crate) fn broken(what: impl Into<String>) -> StreamError {
    StreamError::Internal(what.into())
}
