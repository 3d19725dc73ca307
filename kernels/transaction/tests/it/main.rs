//! Isolation by known anomalies and by random histories, waiting, constraints, and what goes wrong without each rule.

mod anomalies;
mod constraints;
mod history;
mod holders;
mod image;
mod locking;
mod overtaken;
mod pipeline;
mod random;
mod savepoints;
mod session;
mod table;
mod views;
mod world;
