//! Tenants, driven statement by statement over a log that becomes durable when a test says so.

mod advisory;
mod answers;
mod backup;
mod definitions;
mod desk;
mod explain;
mod fetching;
mod giving_way;
mod gone;
mod interrupts;
mod isolation;
mod lock_tables;
mod memory;
mod pages;
mod placement;
mod portals;
mod random;
mod recovery;
mod references;
mod refused;
mod serializability;
mod snapshots;
mod statements;
mod sweeping;
mod temporary;
mod world;
