//! The tests of the manifest: behaviour over every store, single faults, and simulated interleavings.

mod faults;
mod layer;
mod moments;
mod power_cut;
mod s3_server;
mod simulation;
mod suite;
