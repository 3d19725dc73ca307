//! Runs a stage graph: from sources to a sink, in epochs.
//!
//! ```text
//!            admits and cuts epochs, replays, ends                 +----------+
//!   +----------------------------------------------------------->  |  driver  |
//!   |                                                              +----------+
//!   |   in turns, on a few threads for all                                   ^ committed
//!   v                                                                   |
//!  scan --payloads--> members of a function group --payloads--> sink member
//!  lateness, chain,   arena: sets, in epoch order               side tables, then the sink
//!  partial panes      merge panes, close windows, plans
//! ```
//!
//! The protocol is two pure state machines: [`driver`] (epochs) and [`member`] with its [`arena`] (payload sets). Everything
//! else either computes rows ([`Query`]'s scans and operators) or moves payloads ([`invoker`]).
//!
//! # What holds, whatever the scheduling
//! - A payload set is applied when all of its sequence numbers are there, each once; epochs are applied in order.
//! - Whether a row is late depends on its own source partition alone. So results do not depend on how epochs are cut, how
//!   many members a group has, or on delays, repeats and losses between stages.
//! - An epoch counts when the sink has it. Side tables of late rows are committed just before the sink: after a crash
//!   between the two, a side table may hold an epoch that the sink does not, never the other way round.

mod aggregate;
mod answer;
pub mod arena;
mod chain;
mod cheap_first;
mod clock;
pub mod cloud;
mod cpu;
pub mod driver;
mod error;
mod expand;
mod first_rows;
mod interval_join;
pub mod invoker;
mod join_stage;
mod key_cut;
mod key_numbers;
mod lateness;
mod lookup;
pub mod member;
mod merge_stage;
mod options;
mod output;
mod pair_condition;
mod plan_run;
mod query;
pub mod records;
mod scan;
mod scan_output;
mod sink_stage;
pub mod snapshot;
mod splits;
pub mod store_log;
mod topology;
mod window_stage;

pub use aggregate::{AggregateSpec, ClosedWindows, PaneState, SessionState, aggregate_signature};
pub use answer::answer;
pub use clock::{Clock, SystemClock};
pub use interval_join::{IntervalJoin, Watermarks};
pub use lookup::LookupStore;
pub use options::{EpochPolicy, InvokerChoice, Mode, RuntimeOptions};
pub use query::{Query, Survival, cannot_survive, delivery};

/// What decides how a partition is read, and read again, apart from all that reads: the simulation runs it, too.
pub mod reading {
    pub use crate::clock::Instants;
    pub use crate::lateness::RunningWatermark;
    pub use crate::query::{Again, Forgetting, Standing, Standings, Way};
    pub use crate::splits::Splits;
}
