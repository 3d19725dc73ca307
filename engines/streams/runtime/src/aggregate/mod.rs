//! Windowed aggregates. By panes: one grouped table per pane, driven directly; sessions by fragments.
//!
//! ```text
//!  rows --by pane--> tables of this epoch --freeze--> Delta --merge, once--> panes --close--> rows of a window
//! ```

mod accumulators;
mod fragments;
mod ledger;
mod open_sessions;
mod pane;
mod pane_runs;
mod panes;
mod recast;
mod sessions;
mod spec;
mod split;
mod state;
mod table;

pub use panes::PaneState;
pub use sessions::SessionState;
pub use spec::AggregateSpec;
pub(crate) use state::WindowState;
pub use state::{ClosedWindows, aggregate_signature};
