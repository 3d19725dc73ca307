//! Snapshots of queries: over real queries, and seeded over the pure cores.

#[allow(dead_code)]
#[path = "../it/graphs.rs"]
mod graphs;
#[allow(dead_code)]
#[path = "../it/memory.rs"]
mod memory;
#[allow(dead_code)]
#[path = "../it/oracle.rs"]
mod oracle;
mod queries;
mod seeds;
mod support;
