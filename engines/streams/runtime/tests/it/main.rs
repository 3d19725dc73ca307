//! The runtime as a whole, over stage graphs made by hand.

mod asked;
mod failures;
mod functions;
mod going_on;
mod graphs;
mod growth;
mod joins;
mod limits;
mod lookups;
mod memory;
mod oracle;
mod processing_time;
mod recovery;
mod sessions;
mod shapes;
mod state;
mod threads;
mod waiting;
mod windows;
