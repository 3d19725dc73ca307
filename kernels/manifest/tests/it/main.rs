//! The tests of the manifest: behaviour over every store, single faults, and simulated interleavings.

mod faults;
mod layer;
mod s3_server;
mod simulation;
mod suite;
