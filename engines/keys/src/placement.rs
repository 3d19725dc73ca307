//! Which actor a key belongs to.

use std::fmt;
use std::ops::Range;

use memchr::memchr;
use savanna_ownership::{KEY_GROUPS, KeyGroup, stable_hash};

/// A key's place in the space of hashes. The key group is in its top 15 bits.
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
        let hash = stable_hash(key);
        match tag_of(key) {
            None => Self(hash),
            Some(tag) => {
                let within = (1 << WITHIN_BITS) - 1;
                Self(stable_hash(tag) & !within | hash & within)
            }
        }
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

/// What lies between the first `{` and the first `}` after it, unless that is nothing.
fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let open = memchr(b'{', key)?;
    let rest = &key[open + 1..];
    let close = memchr(b'}', rest)?;
    (close > 0).then(|| &rest[..close])
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

/// How key groups are spread over the actors of a node: in contiguous ranges of about equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    actors: u16,
}

impl Placement {
    /// Over this many actors, at least one and at most one per key group.
    #[must_use]
    pub fn over(actors: u16) -> Self {
        Self { actors: actors.clamp(1, KEY_GROUPS) }
    }

    /// How many actors there are.
    #[must_use]
    pub const fn actors(self) -> u16 {
        self.actors
    }

    /// All actors.
    pub fn all(self) -> impl Iterator<Item = ActorId> {
        (0..self.actors).map(ActorId)
    }

    /// The actor of a key group.
    #[must_use]
    pub const fn actor_of(self, group: KeyGroup) -> ActorId {
        ActorId((group.get() as u32 * self.actors as u32 / KEY_GROUPS as u32) as u16)
    }

    /// Whether an actor has a replica of the keys of a group that have `copies` of them: the group's own actor and those that
    /// follow it in the ring.
    #[must_use]
    pub const fn holds(self, actor: ActorId, group: KeyGroup, copies: u16) -> bool {
        let distance = (actor.0 as u32 + self.actors as u32 - self.actor_of(group).0 as u32) % self.actors as u32;
        distance < copies as u32
    }

    /// The key groups of an actor.
    #[must_use]
    pub const fn groups_of(self, actor: ActorId) -> Range<u16> {
        let start = if actor.0 == 0 { 0 } else { self.end_of(ActorId(actor.0 - 1)) };
        start..self.end_of(actor)
    }

    /// The first key group after those of an actor.
    #[must_use]
    pub const fn end_of(self, actor: ActorId) -> u16 {
        ((actor.0 as u32 + 1) * KEY_GROUPS as u32).div_ceil(self.actors as u32) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_decides_the_group_and_the_whole_key_the_place_in_it() {
        let (a, b) = (KeyHash::of(b"{user:7}:name"), KeyHash::of(b"{user:7}:age"));
        assert_eq!(a.group(), b.group());
        assert_ne!(a, b);
        assert_eq!(a.group(), KeyHash::of(b"user:7").group());
        for whole in [&b"{}a"[..], b"{a", b"a}"] {
            assert_eq!(KeyHash::of(whole).get(), stable_hash(whole));
        }
    }

    #[test]
    fn actors_own_contiguous_ranges_that_cover_everything() {
        for actors in [1, 2, 3, 7, 64] {
            let placement = Placement::over(actors);
            let mut begin = 0;
            for actor in placement.all() {
                let end = placement.end_of(actor);
                for group in begin..end {
                    assert_eq!(placement.actor_of(KeyGroup::new(group).expect("a group")), actor);
                }
                begin = end;
            }
            assert_eq!(begin, KEY_GROUPS);
        }
    }
}
