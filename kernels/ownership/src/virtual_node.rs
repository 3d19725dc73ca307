//! Virtual nodes: the middle step between key groups, which never change in number, and members, which come and go.
//!
//! A virtual node is a contiguous range of key groups and the unit that moves between members. Their number is chosen
//! once per sharded thing (a stream's stage, a store); the table virtual node -> member changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key_group::{KEY_GROUPS, KeyGroup, KeyGroupSet};
use crate::ring::{HashRing, RingMember};

/// The number of a virtual node, below the count of its [`VirtualNodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtualNode(pub u16);

/// What is wrong with a table of virtual nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VirtualNodeError {
    /// No virtual node, or more than there are key groups.
    #[error("expected between 1 and {KEY_GROUPS} virtual nodes, came {0}; choose a few times the largest parallelism")]
    BadCount(u16),
    /// A table that does not name one member for each virtual node.
    #[error("expected a member for each of {expected} virtual nodes, came {came}; name every one of them once")]
    WrongLength {
        /// Virtual nodes there are.
        expected: u16,
        /// Members that were named.
        came: usize,
    },
    /// Nobody to place virtual nodes on.
    #[error("expected at least one member to place virtual nodes on, came none; add a member first")]
    NoMembers,
}

/// How the key groups are cut into virtual nodes: `count` contiguous ranges whose lengths differ by at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct VirtualNodes {
    count: u16,
}

impl VirtualNodes {
    /// A cut into `count` virtual nodes.
    ///
    /// # Errors
    /// [`VirtualNodeError::BadCount`] for 0 and above [`KEY_GROUPS`].
    pub const fn new(count: u16) -> Result<Self, VirtualNodeError> {
        if count == 0 || count > KEY_GROUPS { Err(VirtualNodeError::BadCount(count)) } else { Ok(Self { count }) }
    }

    /// How many there are.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.count
    }

    /// The virtual node that a key group belongs to.
    #[must_use]
    pub fn of(self, group: KeyGroup) -> VirtualNode {
        // Both factors are at most 2^15, and the quotient is below `count`.
        VirtualNode((u32::from(group.get()) * u32::from(self.count) / u32::from(KEY_GROUPS)) as u16)
    }

    /// The key groups of a virtual node; none for a number past the last one.
    #[must_use]
    pub fn key_groups(self, node: VirtualNode) -> KeyGroupSet {
        if node.0 >= self.count {
            return KeyGroupSet::empty();
        }
        let first = |number: u16| (u32::from(number) * u32::from(KEY_GROUPS)).div_ceil(u32::from(self.count)) as u16;
        let range = first(node.0)..first(node.0 + 1);
        KeyGroupSet::from_range(range).expect("the ranges of virtual nodes cut 0..KEY_GROUPS in ascending order")
    }

    /// All virtual nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = VirtualNode> {
        (0..self.count).map(VirtualNode)
    }
}

impl TryFrom<u16> for VirtualNodes {
    type Error = VirtualNodeError;

    fn try_from(count: u16) -> Result<Self, VirtualNodeError> {
        Self::new(count)
    }
}

impl From<VirtualNodes> for u16 {
    fn from(nodes: VirtualNodes) -> Self {
        nodes.count
    }
}

/// Which member holds each virtual node: key group -> virtual node -> member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement<M> {
    nodes: VirtualNodes,
    /// One member per virtual node.
    members: Vec<M>,
}

impl<M: Clone + Ord> Placement<M> {
    /// A placement from one member per virtual node.
    ///
    /// # Errors
    /// [`VirtualNodeError::WrongLength`] if the numbers differ.
    pub fn new(nodes: VirtualNodes, members: Vec<M>) -> Result<Self, VirtualNodeError> {
        if members.len() != usize::from(nodes.count) {
            return Err(VirtualNodeError::WrongLength { expected: nodes.count, came: members.len() });
        }
        Ok(Self { nodes, members })
    }

    /// Contiguous, equally large shares in the order of `members`: the placement of threads and of fixed groups.
    ///
    /// # Errors
    /// [`VirtualNodeError::NoMembers`] without members.
    pub fn contiguous(nodes: VirtualNodes, members: &[M]) -> Result<Self, VirtualNodeError> {
        if members.is_empty() {
            return Err(VirtualNodeError::NoMembers);
        }
        let count = usize::from(nodes.count);
        let members = (0..count).map(|node| members[node * members.len() / count].clone()).collect();
        Ok(Self { nodes, members })
    }

    /// The placement that a ring gives: few virtual nodes change hands when a member comes or goes.
    ///
    /// # Errors
    /// [`VirtualNodeError::NoMembers`] for an empty ring.
    pub fn from_ring(nodes: VirtualNodes, ring: &HashRing<M>) -> Result<Self, VirtualNodeError>
    where
        M: RingMember,
    {
        let members: Option<Vec<M>> = nodes.iter().map(|node| ring.owner_of(&node.0.to_le_bytes()).cloned()).collect();
        Ok(Self { nodes, members: members.ok_or(VirtualNodeError::NoMembers)? })
    }

    /// The cut into virtual nodes.
    #[must_use]
    pub const fn virtual_nodes(&self) -> VirtualNodes {
        self.nodes
    }

    /// Who holds a key group.
    #[must_use]
    pub fn member_of(&self, group: KeyGroup) -> &M {
        &self.members[usize::from(self.nodes.of(group).0)]
    }

    /// Gives a virtual node to another member and returns the one that held it; `None` past the last virtual node.
    pub fn assign(&mut self, node: VirtualNode, member: M) -> Option<M> {
        self.members.get_mut(usize::from(node.0)).map(|held| std::mem::replace(held, member))
    }

    /// The key groups that each member holds.
    #[must_use]
    pub fn shares(&self) -> BTreeMap<&M, KeyGroupSet> {
        let mut held: BTreeMap<&M, Vec<KeyGroup>> = BTreeMap::new();
        for (node, member) in self.nodes.iter().zip(&self.members) {
            held.entry(member).or_default().extend(self.nodes.key_groups(node).iter());
        }
        held.into_iter().map(|(member, groups)| (member, groups.into_iter().collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_group_is_in_the_range_of_its_virtual_node() {
        for count in [1, 3, 24, 1000, 4096, KEY_GROUPS] {
            let nodes = VirtualNodes::new(count).unwrap();
            let mut next = 0;
            for node in nodes.iter() {
                for group in nodes.key_groups(node).iter() {
                    assert_eq!(group.get(), next);
                    assert_eq!(nodes.of(group), node);
                    next += 1;
                }
            }
            assert_eq!(next, KEY_GROUPS);
            assert!(nodes.key_groups(VirtualNode(count)).is_empty());
        }
    }

    #[test]
    fn contiguous_shares_are_even_and_one_assignment_moves_one_virtual_node() {
        let nodes = VirtualNodes::new(64).unwrap();
        let mut placement = Placement::contiguous(nodes, &["a", "b", "c", "d"]).unwrap();
        assert!(placement.shares().values().all(|share| share.len() == 8192 && share.ranges().len() == 1));
        assert_eq!(placement.assign(VirtualNode(0), "d"), Some("a"));
        assert_eq!(placement.member_of(KeyGroup::new(0).unwrap()), &"d");
        assert_eq!(placement.shares()[&"a"].len(), 8192 - 512);
        assert_eq!(placement.assign(VirtualNode(64), "a"), None);
    }

    #[test]
    fn a_placement_needs_members_and_one_for_each_virtual_node() {
        let nodes = VirtualNodes::new(4).unwrap();
        assert_eq!(Placement::<&str>::contiguous(nodes, &[]), Err(VirtualNodeError::NoMembers));
        assert_eq!(Placement::new(nodes, vec!["a"]), Err(VirtualNodeError::WrongLength { expected: 4, came: 1 }));
        assert_eq!(VirtualNodes::new(0), Err(VirtualNodeError::BadCount(0)));
    }
}
