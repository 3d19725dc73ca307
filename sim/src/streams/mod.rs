//! Queries of streams that outlive their process: processes die between any two steps, a second one takes a query over while the first is
//! paused, disks fail and are full, and an object store loses requests and answers, and does what it was asked for when nobody waits any
//! more. From one seed.
//!
//! | what decides | of the product | simulated around it |
//! |---|---|---|
//! | when epochs are cut, and what is recorded | `driver::Driver` | members that count rows |
//! | how a partition reads, rests, and reads again | `reading::{Again, Splits, Standings, Instants}` | rows that come with time, a clock for each process |
//! | what the sink waits for | `records::Recorded` | a sink that stores epochs, and knows nothing of owners |
//! | where a query begins, and which records go | `records::{beginning, check, join_snapshot, Kept}` | |
//! | when a snapshot counts | `snapshot::Schedule` | states, and where they are written |
//! | what sources need not keep | `reading::Forgetting` | sources that have dropped it |
//! | records on a disk, and its fence | the journal's core and local back end | the disk |
//! | records and the snapshot that counts in a bucket, and its fence | `store_log::{Found, StoreLog}` | the store, and the way there |
//!
//! What asks these in turn is the simulation's own, and does it in the order of `engines/streams/runtime/src/query` and
//! `engines/streams/src/durable`.
//!
//! Checked are: an epoch that is computed again is what it was; in the end each row is in one window of event time, or was late, once, and in
//! one window of processing time; no window is written twice; and no process that goes on is refused.

mod partition;
mod process;
mod store;
mod world;

pub use self::world::{Happened, Home, Variant, run};
