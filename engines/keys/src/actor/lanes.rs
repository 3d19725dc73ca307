//! Who has which virtual node, as an actor sees it, and by which lane it is asked.
//!
//! | lanes | ask |
//! |---|---|
//! | 0 | about what nobody has |
//! | 1 to 8 | about what is about to be another node's |
//! | 9, 11, .. | a node |
//! | 10, 12, .. | nothing: they tell that node what it need not answer |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};

use crate::cluster::SlotsOwner;
use crate::cluster::owners::{Owners, Peer, PeerId, Whose};
use crate::cluster::table::VIRTUAL_NODES;

/// The lane of what nobody has.
pub(super) const NOBODYS: usize = 0;
/// The first lane of what is about to be another node's, and how many there are: moves are decided one by one, so that few wait for each other.
const LEAVINGS: usize = 1;
const LEAVINGS_COUNT: usize = 8;
/// The first lane to another node.
const PEERS: usize = LEAVINGS + LEAVINGS_COUNT;

/// The virtual nodes that a part of a request is about; none if it is about all that a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    first: Option<u16>,
    others: Vec<u16>,
}

impl About {
    /// About a single one.
    #[must_use]
    pub const fn one(node: u16) -> Self {
        Self { first: Some(node), others: Vec::new() }
    }

    /// The first of them.
    #[must_use]
    pub const fn first(&self) -> Option<u16> {
        self.first
    }

    fn nodes(&self) -> impl Iterator<Item = u16> {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    pub(super) fn note(&mut self, node: u16) {
        match self.first {
            None => self.first = Some(node),
            Some(first) if first == node || self.others.contains(&node) => {}
            Some(_) => self.others.push(node),
        }
    }
}

/// What is asked about a virtual node.
#[derive(Clone, Copy, Debug, Default)]
struct Asking {
    /// How much of it is not answered.
    count: u32,
    /// By which lane it goes, as long as there is any.
    lane: usize,
}

/// Who has which keys, and what is asked of others about them.
#[derive(Debug)]
pub(super) struct Spread {
    /// Whether virtual nodes come and go while they are used.
    pub(super) may_move: bool,
    /// Who has which, as it was said; and as it is used, with what is known beside that.
    pub(super) said: Arc<Owners>,
    pub(super) owners: Arc<Owners>,
    asking: Vec<Asking>,
    /// How much is asked and not answered, of all virtual nodes.
    asked: usize,
    /// What is about to be another node's.
    pub(super) leaving: BTreeSet<u16>,
    /// Whether something is asked and not answered that may have waited for a virtual node which was about to be another node's.
    pub(super) is_behind: bool,
    /// Owners that were heard of before it was said who has what, with their epochs.
    pub(super) learned: BTreeMap<u16, (Owner, OwnerEpoch)>,
}

/// Who has a virtual node, as this is heard of before it is said of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This node.
    Myself,
    /// Another one.
    Other(NodeId),
    /// Not this one; the records say which.
    NotMyself,
}

impl Spread {
    /// Nobody has anything.
    pub(super) fn new(may_move: bool) -> Self {
        Self {
            may_move,
            said: Arc::default(),
            owners: Arc::default(),
            asking: vec![Asking::default(); usize::from(VIRTUAL_NODES)],
            asked: 0,
            leaving: BTreeSet::new(),
            is_behind: false,
            learned: BTreeMap::new(),
        }
    }

    /// The lane of requests about a virtual node; none if they run here.
    pub(super) fn lane_of(&self, node: u16) -> Option<usize> {
        match (self.asking.get(usize::from(node)), self.owners.of(node)) {
            (Some(Asking { count: 1.., lane }), _) => Some(*lane),
            (_, Whose::Here) => None,
            (_, Whose::There(peer)) => Some(lane_to(peer)),
            (_, Whose::Nobody) => Some(NOBODYS),
            (_, Whose::Leaving) => Some(lane_of_leaving(node)),
        }
    }

    /// The lane of what is asked about a virtual node and not answered, if there is such.
    pub(super) fn lane_asked(&self, node: u16) -> Option<usize> {
        self.asking.get(usize::from(node)).filter(|asking| asking.count > 0).map(|asking| asking.lane)
    }

    /// Something about virtual nodes begins to be asked.
    pub(super) fn begin(&mut self, lane: usize, about: &About) {
        for node in about.nodes() {
            if let Some(asking) = self.asking.get_mut(usize::from(node)) {
                *asking = Asking { count: asking.count + 1, lane };
                self.asked += 1;
            }
        }
    }

    /// What is used is what was said, but for what is known to be later, or about to change.
    pub(super) fn settle(&mut self) {
        self.is_behind = !self.leaving.is_empty() || self.is_behind && self.asked > 0;
        let Self { said, learned, leaving, .. } = self;
        learned.retain(|node, (_, epoch)| said.epoch(*node) < *epoch);
        if learned.is_empty() && leaving.is_empty() {
            self.owners = Arc::clone(said);
            return;
        }
        let mut owners = Owners::clone(said);
        for (node, (owner, epoch)) in learned.iter() {
            let is_it = |peer: &Peer, owner: &NodeId| peer.is_there && peer.node == *owner;
            let peer = |owner: &NodeId| said.peers().find(|(_, peer)| is_it(peer, owner)).map(|(id, _)| id);
            let whose = match owner {
                Owner::Myself => Whose::Here,
                Owner::Other(owner) => peer(owner).map_or(Whose::Nobody, Whose::There),
                Owner::NotMyself => Whose::Nobody,
            };
            owners.set(*node, whose, *epoch);
        }
        for node in leaving.iter() {
            owners.set(*node, Whose::Leaving, owners.epoch(*node));
        }
        self.owners = Arc::new(owners);
    }

    /// Something about virtual nodes is answered.
    pub(super) fn end(&mut self, about: &About) {
        for node in about.nodes() {
            if let Some(asking) = self.asking.get_mut(usize::from(node)) {
                asking.count = asking.count.saturating_sub(1);
                self.asked = self.asked.saturating_sub(1);
            }
        }
        self.is_behind &= self.asked > 0 || !self.leaving.is_empty();
    }

    /// Where a client of the cluster port asks who has this.
    pub(super) fn port_of(&self, whose: Whose) -> SlotsOwner {
        let port = |peer| self.owners.peer(peer).and_then(|peer| peer.cluster_port.clone());
        match whose {
            // Until another node has it, this one is asked.
            Whose::Here | Whose::Leaving => SlotsOwner::Myself,
            Whose::There(peer) => port(peer).map_or(SlotsOwner::Nobody, SlotsOwner::Other),
            Whose::Nobody => SlotsOwner::Nobody,
        }
    }
}

/// The lane of requests about a virtual node that is about to be another node's.
const fn lane_of_leaving(node: u16) -> usize {
    LEAVINGS + node as usize % LEAVINGS_COUNT
}

/// The lane of requests to a node.
pub(super) const fn lane_to(peer: PeerId) -> usize {
    PEERS + 2 * peer.index()
}

/// The lane of what a node is told: no request waits behind it.
pub(super) const fn notices_to(peer: PeerId) -> usize {
    PEERS + 1 + 2 * peer.index()
}

/// The node that a lane is to.
pub(super) fn peer_of(lane: usize) -> Option<PeerId> {
    lane.checked_sub(PEERS).map(|index| PeerId((index / 2) as u16))
}
