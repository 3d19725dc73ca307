//! Tenants, driven statement by statement over a log that becomes durable when a test says so.

mod answers;
mod definitions;
mod desk;
mod isolation;
mod random;
mod recovery;
mod references;
mod statements;
mod world;
