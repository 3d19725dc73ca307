//! Operations against a plain tree, and the log that makes a namespace again.

mod model;
mod operations;
mod world;
