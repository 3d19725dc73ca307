//! Failover from outside: a cluster simulated from a seed, and what single decisions are.

mod decisions;
mod simulation;
