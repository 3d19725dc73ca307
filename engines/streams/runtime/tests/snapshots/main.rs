//! Snapshots of queries: over real queries, and seeded over the pure cores.

mod followed;
#[expect(dead_code, reason = "the other tests use more of it")]
#[path = "../it/graphs.rs"]
mod graphs;
mod measured;
#[expect(dead_code, reason = "the other tests use more of it")]
#[path = "../it/memory.rs"]
mod memory;
mod operators;
#[path = "../it/oracle.rs"]
mod oracle;
mod queries;
mod seeds;
mod support;
