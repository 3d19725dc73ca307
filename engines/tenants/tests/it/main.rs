//! Tenants, driven statement by statement over a log that becomes durable when a test says so.

mod desk;
mod isolation;
mod random;
mod recovery;
mod statements;
mod world;
