//! The vocabulary that the parts of the streams engine share.
//!
//! ```text
//!   text --sql--> StageGraph --runtime--> rows --connectors--> world
//!                     |                     ^
//!                     +---- all types of these arrows live here
//! ```
//!
//! Nothing in this crate runs a query. It holds tables ([`catalog`]), event time ([`time`]), the serialisable [`graph`] of
//! stages with its [`plan`] codec, what travels between stages ([`payload`]), the seam to the outside world ([`source`],
//! [`sink`]), and the [`state`] interface. Ids, errors and the handle that faces talk to are in `savanna-streams-api`.

pub mod catalog;
pub mod foreign;
pub mod graph;
pub mod join;
pub mod names;
pub mod payload;
pub mod plan;
pub mod secrets;
pub mod sink;
pub mod source;
pub mod state;
pub mod time;
