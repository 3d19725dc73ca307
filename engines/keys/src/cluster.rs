//! Keys over several nodes: who has which slots, and nodes as the clients of cluster ports know them.

pub mod table;

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

/// A node, and where clients of clusters reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterNode {
    /// Its name for clients: 40 digits, as in Redis Cluster.
    pub id: String,
    /// Its cluster port.
    pub address: SocketAddr,
}

/// The name of a node for clients: the same whenever the node starts.
#[must_use]
pub fn node_id(name: &str) -> String {
    Sha1::digest(name).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Which node has the slots; all of them, for the present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotsOwner {
    /// This one.
    Myself,
    /// Another one.
    Other(Arc<ClusterNode>),
    /// None that is known.
    Nobody,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_same_name_of_40_digits_whenever_it_starts() {
        assert_eq!(node_id("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_ne!(node_id("n1"), node_id("n2"));
    }
}
