//! Actors together: in a world of seeded delays, and with their log.

mod docs;
mod hostile;
mod memory;
mod pause;
mod recovery;
mod replicas;
mod scan;
mod sorting;
mod swapping;
mod transactions;
mod waiting;
mod world;
