//! Which actor a key belongs to.
//!
//! ```text
//! key or its {tag} --CRC16--> slot of Redis Cluster, and one bit --> key group --32 groups--> virtual node --routes--> actor
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use savanna_ownership::{KEY_GROUPS, KeyGroup, stable_hash};

use crate::cluster::owners::GROUPS;
use crate::cluster::table::VIRTUAL_NODES;
pub use crate::slot::group_of;

/// A key's place in the space of hashes: in its top 15 bits the key group, below them a hash of the whole key, in whose order a group is
/// walked through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(u64);

/// Bits below the key group.
const WITHIN_BITS: u32 = u64::BITS - KEY_GROUPS.trailing_zeros();

/// What a cursor leaves out of a place.
const CURSOR_SHIFT: u32 = 16;

impl KeyHash {
    /// The place of a key. If it has a tag, `{tag}`, the tag decides the key group, so that keys can be kept together.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let within = (1 << WITHIN_BITS) - 1;
        Self(Self::first_of(group_of(key).get()).0 | stable_hash(key) & within)
    }

    /// The key group.
    #[must_use]
    pub const fn group(self) -> KeyGroup {
        KeyGroup::from_hash(self.0)
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The first place of a key group.
    #[must_use]
    pub const fn first_of(group: u16) -> Self {
        Self((group as u64) << WITHIN_BITS)
    }

    /// Its place on a coarser scale, whose numbers fit into the 53 bits that some clients have for a cursor.
    #[must_use]
    pub const fn floor(self) -> Self {
        Self(self.0 >> CURSOR_SHIFT << CURSOR_SHIFT)
    }

    /// The place that a cursor stands for.
    #[must_use]
    pub const fn from_cursor(cursor: u64) -> Self {
        Self(cursor << CURSOR_SHIFT)
    }

    /// The cursor of this place; 0 is the first place of all.
    #[must_use]
    pub const fn cursor(self) -> u64 {
        self.0 >> CURSOR_SHIFT
    }
}

/// An actor of this node, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId(pub u16);

impl ActorId {
    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "actor {}", self.0)
    }
}

/// Which actor of this node has which virtual node: a table that all of them read. An actor's are next to each other. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes(Arc<Table>);

#[derive(Debug, PartialEq, Eq)]
struct Table {
    actors: u16,
    owners: [ActorId; VIRTUAL_NODES as usize],
}

impl Routes {
    /// Over this many actors, at least one and at most one per virtual node, whose shares differ by one at most.
    #[must_use]
    pub fn over(actors: u16) -> Self {
        let actors = actors.clamp(1, VIRTUAL_NODES);
        let owner = |node| ActorId((node as u32 * u32::from(actors) / u32::from(VIRTUAL_NODES)) as u16);
        Self(Arc::new(Table { actors, owners: std::array::from_fn(owner) }))
    }

    /// How many actors there are.
    #[must_use]
    pub fn actors(&self) -> u16 {
        self.0.actors
    }

    /// All actors.
    pub fn all(&self) -> impl Iterator<Item = ActorId> + use<> {
        (0..self.0.actors).map(ActorId)
    }

    /// The actor of a key group.
    #[inline]
    #[must_use]
    pub fn actor_of(&self, group: KeyGroup) -> ActorId {
        self.0.owners[usize::from(group.get() / GROUPS % VIRTUAL_NODES)]
    }

    /// Whether an actor has a replica of the keys of a group that have `copies` of them: the group's own actor and those that
    /// follow it in the ring.
    #[must_use]
    pub fn holds(&self, actor: ActorId, group: KeyGroup, copies: u16) -> bool {
        let actors = u32::from(self.0.actors);
        let distance = (u32::from(actor.0) + actors - u32::from(self.actor_of(group).0)) % actors;
        distance < u32::from(copies)
    }

    /// The key groups of an actor.
    #[must_use]
    pub fn groups_of(&self, actor: ActorId) -> Range<u16> {
        let start = actor.0.checked_sub(1).map_or(0, |before| self.end_of(ActorId(before)));
        start..self.end_of(actor)
    }

    /// The first key group after those of an actor.
    #[must_use]
    pub fn end_of(&self, actor: ActorId) -> u16 {
        self.0.owners.partition_point(|owner| *owner <= actor) as u16 * GROUPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{HashSlot, SLOTS};

    #[test]
    fn a_tag_decides_the_group_and_the_whole_key_the_place_in_it() {
        let (a, b) = (KeyHash::of(b"{user:7}:name"), KeyHash::of(b"{user:7}:age"));
        assert_eq!(a.group(), b.group());
        assert_ne!(a, b);
        assert_eq!(a.group(), group_of(b"user:7"));
        assert_eq!(HashSlot::of_group(KeyHash::of(b"foo").group()), HashSlot::of(b"foo"));
    }

    #[test]
    fn actors_have_whole_virtual_nodes_next_to_each_other_that_cover_everything() {
        for actors in [1, 2, 3, 7, 64, 5_000] {
            let routes = Routes::over(actors);
            let mut begin = 0;
            let mut shares = Vec::new();
            for actor in routes.all() {
                let groups = routes.groups_of(actor);
                assert_eq!((groups.start, groups.start % GROUPS), (begin, 0));
                for group in groups.clone() {
                    assert_eq!(routes.actor_of(KeyGroup::new(group).expect("a group")), actor);
                }
                shares.push(groups.len() / usize::from(GROUPS));
                begin = groups.end;
            }
            assert_eq!((begin, shares.len()), (KEY_GROUPS, usize::from(routes.actors())));
            assert!(shares.iter().max() <= shares.iter().min().map(|least| least + 1).as_ref(), "{shares:?}");
        }
    }

    #[test]
    fn a_slot_is_at_one_actor() {
        let routes = Routes::over(7);
        for slot in (0..SLOTS).filter_map(HashSlot::new) {
            let mut owners = slot.groups().into_iter().map(|group| routes.actor_of(group));
            assert_eq!(owners.next(), owners.next());
        }
    }
}
