//! Streaming SQL: from text to a [`StageGraph`](savanna_streams_model::graph::StageGraph).
//!
//! ```text
//!   text --parse--> Statement --plan--> logical plan --cut at every exchange--> StageGraph
//!                                        (DataFusion)   plans over leaves, encoded
//! ```
//!
//! [`split`] cuts a text into statements, [`parse`] reads one, [`Planner`] checks a query against the catalog and cuts
//! it in stages, [`explain`] tells what the stages do. What Savanna does not do is refused here, by name and place.

mod changes;
mod explain;
mod materialized;
mod parse;
mod plan;
mod statement;
mod system;
mod types;

pub use changes::{Changes, Fate, Fits, KeptAggregates, Told, Wanted};
pub use explain::explain;
pub use materialized::{Chunk, MaterializedView};
pub use parse::{check_watermark, parse, placed, placed_in_part, split};
pub use plan::{Catalog, Planner, function_names};
pub use statement::{ChangedText, Fragment, ObjectKind, Query, Show, Statement};
pub use system::Asker;
