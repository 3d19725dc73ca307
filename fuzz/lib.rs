//! What targets share.

#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "streams")]
pub mod streams;

#[cfg(feature = "engine")]
pub use engine::{NoEngine, talk};
