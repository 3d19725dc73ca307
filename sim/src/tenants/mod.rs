//! Tenants over logs, a store and disks that fail: of one process, and of several nodes.
//!
//! | simulation | cores of the product | simulated around them |
//! |---|---|---|
//! | [`owner`] | the host's decisions (who sleeps, wakes, is flushed, evicted, removed; when the log is cut), the owner with its records in the coordinator, the coordinator, the journal with its fence, homes and databases | disk, store, answers of the coordinator |
//! | [`nodes`] | the controller's decisions, what nodes adopt and how, sealed logs, leases and what asks them, the coordinator with its journal; beside those of [`owner`] | nodes that die, stand still and come back; controllers that end and know too little; the coordinator's disk and the ways to it; the clock |
//! | [`nodes::moves`] | both cores of a move and what goes along; beside those of [`nodes`] | clients with transactions that move, letters between nodes |
//! | [`flushing`] | the host's flushes and evictions, homes and databases, what cuts the log | log, store |
//!
//! Every commit leaves rows that show which it was, so that half of one, a lost one and a row that has come back are all noticed.
//! What cannot fail here (a store that works, a log that was written whole) is expected and panics: then the product or the simulation is
//! wrong, and the test of the seed fails as it does by a checker.
//! A [`Variant`](owner::Variant) of either breaks what drives the cores on purpose, to show that the checkers notice.

mod awake;
mod coordinator;
pub mod flushing;
mod image;
pub mod nodes;
mod office;
pub mod owner;
mod process;
mod rows;
mod store;
