//! Which node has which virtual node, as a process knows it: by this its requests find their way.
//!
//! It never changes: what becomes known is another one, which each actor takes between two turns. No request waits for that. One that goes
//! to a node by what was so before is refused there, and asked again.

use std::collections::BTreeSet;
use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_ownership::{KEY_GROUPS, KeyGroup};

use super::ClusterNode;
use super::table::VIRTUAL_NODES;
use crate::slot::HashSlot;

/// The key groups of a virtual node.
pub const GROUPS: u16 = KEY_GROUPS / VIRTUAL_NODES;

/// Another node, by the number that this process gave it when it heard of it. One that starts anew gets another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u16);

impl PeerId {
    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub node: NodeId,
    /// Whether it is there. If not, what it was asked for last is in doubt.
    pub is_there: bool,
    /// Where clients of clusters reach it, if they do.
    pub cluster_port: Option<Arc<ClusterNode>>,
}

/// Who has a virtual node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// This node, which serves it.
    Here,
    /// This node, which has its keys and serves nobody: it is about to be another one's.
    Leaving,
    /// Another one.
    There(PeerId),
    /// Nobody who serves it, for the moment.
    #[default]
    Nobody,
}

/// Who has which virtual node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    peers: Vec<Peer>,
    rows: Box<[(Whose, OwnerEpoch)]>,
    /// Whether this node is to have some that it does not serve yet: a part of their keys may be here.
    are_arriving: bool,
}

impl Default for Owners {
    fn default() -> Self {
        Self::among(Vec::new())
    }
}

impl Owners {
    /// Nobody has anything yet, among these other nodes, by their numbers.
    #[must_use]
    pub fn among(peers: Vec<Peer>) -> Self {
        let rows = vec![(Whose::Nobody, OwnerEpoch::NONE); usize::from(VIRTUAL_NODES)].into();
        Self { peers, rows, are_arriving: false }
    }

    /// Says who has a virtual node, and since which epoch. What there is not is left out.
    pub fn set(&mut self, node: u16, whose: Whose, epoch: OwnerEpoch) {
        if let Some(row) = self.rows.get_mut(usize::from(node)) {
            *row = (whose, epoch);
        }
    }

    /// Says that this node is to have some that it does not serve yet.
    pub const fn note_arriving(&mut self) {
        self.are_arriving = true;
    }

    /// Whether this node is to have some that it does not serve yet.
    #[must_use]
    pub const fn are_arriving(&self) -> bool {
        self.are_arriving
    }

    /// Who has a virtual node.
    #[inline]
    #[must_use]
    pub fn of(&self, node: u16) -> Whose {
        self.rows[usize::from(node % VIRTUAL_NODES)].0
    }

    /// Who has a key group.
    #[inline]
    #[must_use]
    pub fn of_group(&self, group: KeyGroup) -> Whose {
        self.of(virtual_node_of(group))
    }

    /// Since which epoch somebody has a virtual node.
    #[must_use]
    pub fn epoch(&self, node: u16) -> OwnerEpoch {
        self.rows[usize::from(node % VIRTUAL_NODES)].1
    }

    /// Another node.
    #[must_use]
    pub fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id.index())
    }

    /// The other nodes that are there.
    pub fn peers(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        let numbered = self.peers.iter().enumerate().map(|(number, peer)| (PeerId(number as u16), peer));
        numbered.filter(|(_, peer)| peer.is_there)
    }

    /// The other nodes that have anything.
    #[must_use]
    pub fn holders(&self) -> Vec<PeerId> {
        let there =
            self.rows.iter().filter_map(|(whose, _)| if let Whose::There(peer) = whose { Some(*peer) } else { None });
        there.collect::<BTreeSet<PeerId>>().into_iter().collect()
    }

    /// Whether somebody serves each virtual node.
    #[must_use]
    pub fn are_all_served(&self) -> bool {
        self.rows.iter().all(|(whose, _)| *whose != Whose::Nobody)
    }

    /// The first key group behind a key group that somebody else has.
    #[must_use]
    pub fn end_of_run(&self, group: KeyGroup) -> u16 {
        let first = virtual_node_of(group);
        let whose = self.of(first);
        let behind = (first..VIRTUAL_NODES).find(|node| self.of(*node) != whose).unwrap_or(VIRTUAL_NODES);
        behind * GROUPS
    }

    /// Slots next to each other that one has, in order: the first, the last, and who.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u16, u16, Whose)> {
        let mut ranges = Vec::new();
        let mut first = 0;
        while let Ok(group) = KeyGroup::new(first) {
            let end = self.end_of_run(group);
            let Ok(last) = KeyGroup::new(end - 1) else { break };
            ranges.push((HashSlot::of_group(group).get(), HashSlot::of_group(last).get(), self.of_group(group)));
            first = end;
        }
        ranges
    }
}

/// The virtual node of a key group.
#[inline]
#[must_use]
pub const fn virtual_node_of(group: KeyGroup) -> u16 {
    group.get() / GROUPS % VIRTUAL_NODES
}

/// The virtual node at a place when they are given away in order, a share for each member: shares are stripes all over the space of hashes, so
/// that the threads of a node, each of which has a part of that space, get alike many.
#[must_use]
pub const fn striped(place: u16) -> u16 {
    /// So many virtual nodes next to each other are shared out.
    const STRIPE: u16 = 16;
    const STRIPES: u16 = VIRTUAL_NODES / STRIPE;
    // Those of which a share has one more are not next to each other either.
    let stripe = ((place % STRIPES) as u8).reverse_bits() as u16 / (256 / STRIPES);
    stripe * STRIPE + place / STRIPES % STRIPE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::SLOTS;

    fn peer(node: &str) -> Peer {
        Peer { node: NodeId::new(node), is_there: true, cluster_port: None }
    }

    #[test]
    fn slots_next_to_each_other_of_one_node_are_a_range() {
        let mut owners = Owners::among(vec![peer("b")]);
        assert_eq!(owners.ranges(), [(0, SLOTS - 1, Whose::Nobody)]);
        for node in 0..VIRTUAL_NODES {
            owners.set(node, if node < 512 { Whose::Here } else { Whose::There(PeerId(0)) }, OwnerEpoch(1));
        }
        owners.set(7, Whose::Nobody, OwnerEpoch(2));
        owners.set(VIRTUAL_NODES, Whose::Nobody, OwnerEpoch(2));
        let there = Whose::There(PeerId(0));
        assert_eq!(
            owners.ranges(),
            [(0, 111, Whose::Here), (112, 127, Whose::Nobody), (128, 8191, Whose::Here), (8192, SLOTS - 1, there)]
        );
        assert!(!owners.are_all_served());
        assert_eq!(owners.epoch(7), OwnerEpoch(2));
        let group = |number| KeyGroup::new(number).expect("a group");
        assert_eq!((owners.end_of_run(group(0)), owners.end_of_run(group(240))), (7 * GROUPS, 8 * GROUPS));
        assert_eq!(owners.end_of_run(group(KEY_GROUPS - 1)), KEY_GROUPS);
    }

    #[test]
    fn a_share_is_in_all_parts_of_the_space_of_hashes_alike() {
        let all: BTreeSet<u16> = (0..VIRTUAL_NODES).map(striped).collect();
        assert_eq!(all.len(), usize::from(VIRTUAL_NODES));
        // A third of all, and the quarters that four threads have.
        let mut quarters = [0; 4];
        for node in (0..341).map(striped) {
            quarters[usize::from(node / (VIRTUAL_NODES / 4))] += 1;
        }
        assert!(quarters.iter().all(|quarter| (80..=90).contains(quarter)), "{quarters:?}");
    }
}
