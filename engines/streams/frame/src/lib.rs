//! Queries of streams as values of Rust.
//!
//! ```text
//!   context.table("bid").window(tumble("at", seconds(10))).group_by([col("auction")]).agg([count().alias("bids")]).write_to("hot")
//!   Frame --its text of SQL--> StreamHandle, as from any face
//! ```
//!
//! A [`Frame`] is a query that nobody has asked yet, built from the outside of a [`Context`]. It becomes one statement of SQL
//! ([`Frame::to_sql`]), and takes the way of all statements from there: one planner, the same stages, the same errors, in this
//! process, on another node, or on functions.

mod context;
mod expression;
mod frame;
mod window;

pub use context::{Context, Running, Stream};
pub use expression::{Expression, IntoLiteral, avg, call, col, count, count_of, lit, max, min, raw, sum};
pub use frame::{Frame, Grouped};
pub use window::{Window, cumulate, hop, session, tumble};

use std::time::Duration;

/// So many seconds.
#[must_use]
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// So many minutes.
#[must_use]
pub const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// A name between quotes, so that it is no word of SQL and has its case.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A name with its dots: `a.id` is column `id` of what is called `a`, or field `id` of column `a`.
fn path(name: &str) -> String {
    name.split('.').map(quoted).collect::<Vec<_>>().join(".")
}
