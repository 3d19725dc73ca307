//! Operations against a plain tree, the log that makes a namespace again, and a database behind it.

mod counting;
mod database;
mod extended;
mod lists;
mod model;
mod numbers;
mod operations;
mod quotas;
mod rights;
mod wide;
mod world;
