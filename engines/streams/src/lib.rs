//! The streams engine: continuous SQL over event streams.
//!
//! ```text
//!   face --StreamRequest--> StreamEngine --text--> sql --StageGraph--> runtime --rows--> sink or cursor
//! ```
//!
//! A [`StreamEngine`] keeps sessions, the catalog of tables and views, the running queries, and the cursors through which
//! faces fetch rows. Everything a face can ask is a [`StreamRequest`], everything it gets back a [`StreamReply`]; both are
//! plain values, so a face works the same beside the engine or across a network.

mod catalog;
mod cost;
mod cursor;
mod durable;
mod engine;
mod queries;
mod session;
mod settings;
mod show;
mod statement_thread;
mod views;

pub use durable::{HasItsPlace, StoreOptions};
pub use engine::{EngineOptions, StreamEngine};
pub use savanna_streams_api as api;
pub use savanna_streams_api::handle::{StreamHandle, StreamReply, StreamRequest};
pub use savanna_streams_connectors as connectors;
pub use savanna_streams_frame as frame;
pub use savanna_streams_functions as functions;
pub use savanna_streams_model as model;
pub use savanna_streams_runtime as runtime;
pub use savanna_streams_sql as sql;
