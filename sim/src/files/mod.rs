//! Names of files over a log, a database that may be away, and a cache of almost nothing: many clients against a plain tree.
//!
//! What decides is the product's own: [`savanna_files`] with its operations, change sets, leases, block manager, batches and recovery, the journal's core with
//! its gate and fence, the guard of a lease. Simulated are disk, database (a third one beside PostgreSQL and tenants), data node, clock, and what a
//! host does with threads: an operation that lacks something waits for it, batches are on their way, processes end and are replaced.
//!
//! Each answer is compared with that of a plain tree when it is decided. When it leaves, it has to have a place in the order of changes that the log
//! has: behind all of which anybody had been told when it was asked, and one that is never lost. So what clients see is linearizable, path by path.

mod behind;
mod client;
mod database;
pub mod nodes;
mod process;
mod settle;
mod tell;
mod tree;
mod world;

pub use self::world::{Happened, Variant, run};
