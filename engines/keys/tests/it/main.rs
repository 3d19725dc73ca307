//! Actors together: in a world of seeded delays, and with their log.

mod docs;
mod recovery;
mod scan;
mod transactions;
mod world;
