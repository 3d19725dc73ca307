//! What the ownership kernel promises, seen from outside: one test-suite for every coordinator, crashes at every point of
//! the journal, real processes on one data directory, and a simulated cluster.

mod crash;
mod data_dir;
mod embedded;
mod etcd;
mod etcd_access;
mod keeper;
mod model;
mod remote;
mod simulation;
mod suite;
mod view;
