//! Services together, as the nodes of a cluster.

mod histories;
mod moves;
mod nodes;
