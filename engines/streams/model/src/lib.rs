//! The vocabulary that the parts of the streams engine share.
//!
//! ```text
//!   text --sql--> StageGraph --runtime--> rows --connectors--> world
//!                     |                     ^
//!                     +---- all types of these arrows live here
//! ```
//!
//! Nothing in this crate runs a query. It holds names ([`ids`]), tables ([`catalog`]), event time ([`time`]), the
//! serialisable [`graph`] of stages with its [`plan`] codec, what travels between stages ([`payload`]), the seam to the
//! outside world ([`source`], [`sink`]), the [`state`] interface, and the [`handle`] that faces talk to.

pub mod catalog;
pub mod error;
pub mod foreign;
pub mod graph;
pub mod handle;
pub mod ids;
pub mod join;
pub mod json;
pub mod names;
pub mod payload;
pub mod plan;
pub mod sink;
pub mod source;
pub mod state;
pub mod time;
mod type_name;

pub use error::{Position, Result, StreamError};
pub use type_name::type_name;
