//! What the face knows of the node that it serves.

use std::fmt::Debug;

use crate::types::{NodeStatus, Setting};

/// A node as the control API tells it. Every call answers from memory.
pub trait NodeView: Debug + Send + Sync {
    /// The node, its services and its lease.
    fn status(&self) -> NodeStatus;

    /// The configuration in force, by key.
    fn settings(&self) -> Vec<Setting>;
}
