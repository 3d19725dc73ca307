//! Services together, as the nodes of a cluster.

mod groups;
mod histories;
mod moves;
mod nodes;
