//! Windowed aggregates by panes: one grouped table per pane, driven directly.
//!
//! ```text
//!  rows --by pane--> tables of this epoch --freeze--> Delta --merge, once--> panes --close--> rows of a window
//! ```

mod accumulators;
mod panes;
mod spec;
mod split;
mod table;

pub use panes::{ClosedWindow, PaneState};
pub use spec::AggregateSpec;
