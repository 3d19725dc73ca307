//! Keys over several nodes: who has which slots, and nodes as the clients of cluster ports know them.

pub mod arrival;
pub mod departure;
pub mod owners;
pub mod table;

use std::net::{IpAddr, SocketAddr};
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

impl ClusterNode {
    /// Its address as clients of clusters are told it: one of IPv4 as such, whichever way the client came in by.
    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }

    /// Address and port in one word, as Redis Cluster writes them: clients take what is behind the last colon for the port.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.ip(), self.address.port())
    }
}

/// The name of a node for clients: the same whenever the node starts.
#[must_use]
pub fn node_id(name: &str) -> String {
    Sha1::digest(name).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Slots next to each other that one node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) owner: SlotsOwner,
}

/// Which node has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotsOwner {
    /// This one.
    Myself,
    /// Another one.
    Other(Arc<ClusterNode>),
    /// None that is known, or one that clients of clusters do not reach.
    Nobody,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_without_brackets_and_a_port() {
        for (address, place) in
            [("127.0.0.1:7000", "127.0.0.1:7000"), ("[::1]:7010", "::1:7010"), ("[::ffff:10.0.0.2]:7", "10.0.0.2:7")]
        {
            let node = ClusterNode { id: node_id("n1"), address: address.parse().expect("an address") };
            assert_eq!(node.place(), place);
        }
    }

    #[test]
    fn a_node_has_the_same_name_of_40_digits_whenever_it_starts() {
        assert_eq!(node_id("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_ne!(node_id("n1"), node_id("n2"));
    }
}
