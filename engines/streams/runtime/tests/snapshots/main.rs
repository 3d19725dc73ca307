//! Snapshots of queries: over real queries, and seeded over the pure cores.

#[expect(dead_code, reason = "the other tests use more of it")]
#[path = "../it/graphs.rs"]
mod graphs;
#[expect(dead_code, reason = "the other tests use more of it")]
#[path = "../it/memory.rs"]
mod memory;
#[path = "../it/oracle.rs"]
mod oracle;
mod queries;
mod seeds;
mod support;
