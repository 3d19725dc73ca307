//! Actors together: in a world of seeded delays, and with their log.

mod crossing;
mod databases;
mod docs;
mod durability;
mod elsewhere;
mod hostile;
mod log;
mod memory;
mod pause;
mod recovery;
mod replica_histories;
mod replicas;
mod scan;
mod sorting;
mod streams;
mod tracking;
mod transactions;
mod waiting;
mod whole;
mod world;
