//! Consistent hashing with virtual nodes and weights.
//!
//! ```text
//!            position = XXH3-64, 0 .. 2^64, wrapping
//!   0 ----- a#3 ----- b#0 ----- a#0 ----- c#1 ----- ... ----- 2^64
//!                ^ key: owned by the first point at or after it (clockwise): b
//!                  walk counter-clockwise from there: b, a, ..., each member once
//! ```
//!
//! A member of weight `w` has `w * POINTS_PER_WEIGHT` points; point `i` of member `m` lies at the hash of `m`'s name, a
//! zero byte and `i` as four little-endian bytes. Equal positions (never seen, but possible) are ordered by name, so that every node
//! computes the same ring from the same members, in whatever order it learnt of them.

use std::collections::BTreeMap;

use savanna_epoch::NodeId;

use crate::hash::stable_hash;

/// Points on the ring per unit of weight: with 128, shares of equal members deviate by about 9 %.
pub const POINTS_PER_WEIGHT: u32 = 128;

/// The largest weight of a member; bounds the ring at half a MiB of points per member.
pub const MAX_WEIGHT: u32 = 256;

/// Something with a stable name that can be placed on a ring.
pub trait RingMember: Clone + Ord {
    /// The name that is hashed; two members with one name are one member.
    fn ring_name(&self) -> &str;
}

impl RingMember for NodeId {
    fn ring_name(&self) -> &str {
        &self.0
    }
}

impl RingMember for String {
    fn ring_name(&self) -> &str {
        self
    }
}

impl RingMember for &str {
    fn ring_name(&self) -> &str {
        self
    }
}

/// A weight that no ring takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a ring weight between 1 and {MAX_WEIGHT}, came {came} for `{member}`; remove a member that is to own nothing"
)]
pub struct WeightError {
    /// The member's name.
    pub member: String,
    /// The weight that came.
    pub came: u32,
}

/// Which way to walk around the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To higher positions: where replicas of a key go.
    Clockwise,
    /// To lower positions: where the further payloads of a shuffle go.
    CounterClockwise,
}

/// A consistent-hash ring. Its lookups depend on members and weights alone, not on the history that led to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashRing<M> {
    weights: BTreeMap<M, u32>,
    /// Distinct members, ascending: what `points` index.
    members: Vec<M>,
    /// `(position, index into members)`, ascending.
    points: Vec<(u64, u32)>,
}

impl<M: RingMember> Default for HashRing<M> {
    fn default() -> Self {
        Self { weights: BTreeMap::new(), members: Vec::new(), points: Vec::new() }
    }
}

impl<M: RingMember> HashRing<M> {
    /// A ring without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A ring of members of weight 1.
    pub fn of(members: impl IntoIterator<Item = M>) -> Self {
        let mut ring = Self { weights: members.into_iter().map(|member| (member, 1)).collect(), ..Self::default() };
        ring.lay_out();
        ring
    }

    /// Adds a member, or changes its weight; returns the weight it had.
    ///
    /// # Errors
    /// [`WeightError`] for a weight of 0 or above [`MAX_WEIGHT`]; the ring is unchanged.
    pub fn set(&mut self, member: M, weight: u32) -> Result<Option<u32>, WeightError> {
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(WeightError { member: member.ring_name().to_owned(), came: weight });
        }
        let had = self.weights.insert(member, weight);
        self.lay_out();
        Ok(had)
    }

    /// Removes a member and returns its weight; `None` if it was not on the ring.
    pub fn remove(&mut self, member: &M) -> Option<u32> {
        let had = self.weights.remove(member)?;
        self.lay_out();
        Some(had)
    }

    /// Members and weights, ascending.
    #[must_use]
    pub const fn weights(&self) -> &BTreeMap<M, u32> {
        &self.weights
    }

    /// Whether there is nobody on the ring.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The owner of a key by its bytes; `None` on an empty ring.
    #[must_use]
    pub fn owner_of(&self, key: &[u8]) -> Option<&M> {
        self.owner_at(stable_hash(key))
    }

    /// The owner of a position; `None` on an empty ring.
    #[must_use]
    pub fn owner_at(&self, position: u64) -> Option<&M> {
        self.points.get(self.point_at(position)).map(|&(_, member)| &self.members[member as usize])
    }

    /// Each member once, beginning with the owner of `position`, in the order in which the walk first meets them.
    #[must_use]
    pub fn walk(&self, position: u64, direction: Direction) -> Walk<'_, M> {
        Walk {
            ring: self,
            point: self.point_at(position),
            points_left: self.points.len(),
            direction,
            seen: vec![false; self.members.len()],
            members_left: self.members.len(),
        }
    }

    /// Index of the first point at or after `position`, wrapping; 0 on an empty ring.
    fn point_at(&self, position: u64) -> usize {
        let index = self.points.partition_point(|&(point, _)| point < position);
        if index == self.points.len() { 0 } else { index }
    }

    fn lay_out(&mut self) {
        self.members = self.weights.keys().cloned().collect();
        self.points.clear();
        let mut bytes = Vec::new();
        for (index, (member, weight)) in (0_u32..).zip(&self.weights) {
            bytes.clear();
            bytes.extend_from_slice(member.ring_name().as_bytes());
            bytes.push(0);
            let name_length = bytes.len();
            for point in 0..weight * POINTS_PER_WEIGHT {
                bytes.truncate(name_length);
                bytes.extend_from_slice(&point.to_le_bytes());
                self.points.push((stable_hash(&bytes), index));
            }
        }
        // Members ascend with their index, so that equal positions are ordered by name.
        self.points.sort_unstable();
    }
}

/// The iterator of [`HashRing::walk`].
#[derive(Clone, Debug)]
pub struct Walk<'r, M> {
    ring: &'r HashRing<M>,
    point: usize,
    points_left: usize,
    direction: Direction,
    seen: Vec<bool>,
    members_left: usize,
}

impl<'r, M> Iterator for Walk<'r, M> {
    type Item = &'r M;

    fn next(&mut self) -> Option<&'r M> {
        let count = self.ring.points.len();
        while self.members_left > 0 && self.points_left > 0 {
            let (_, member) = self.ring.points[self.point];
            self.points_left -= 1;
            self.point = match self.direction {
                Direction::Clockwise => (self.point + 1) % count,
                Direction::CounterClockwise => (self.point + count - 1) % count,
            };
            if !std::mem::replace(&mut self.seen[member as usize], true) {
                self.members_left -= 1;
                return Some(&self.ring.members[member as usize]);
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.members_left, Some(self.members_left))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEYS: u64 = 4_000;

    fn owners(ring: &HashRing<String>) -> Vec<String> {
        (0..KEYS).map(|key| ring.owner_of(&key.to_le_bytes()).unwrap().clone()).collect()
    }

    fn named(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("node-{number}")).collect()
    }

    #[test]
    fn the_ring_of_three_named_nodes_is_pinned() {
        let ring = HashRing::of(["node-1", "node-2", "node-3"]);
        let owners: Vec<&str> = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot"]
            .iter()
            .map(|key| *ring.owner_of(key.as_bytes()).unwrap())
            .collect();
        assert_eq!(owners, ["node-2", "node-2", "node-2", "node-3", "node-2", "node-1"]);
    }

    #[test]
    fn an_empty_ring_owns_nothing() {
        let ring = HashRing::<String>::new();
        assert_eq!(ring.owner_at(7), None);
        assert_eq!(ring.walk(7, Direction::Clockwise).count(), 0);
    }

    #[test]
    fn a_weight_of_zero_or_too_much_is_refused() {
        let mut ring = HashRing::of(["a"]);
        assert!(ring.set("b", 0).is_err());
        assert!(ring.set("b", MAX_WEIGHT + 1).unwrap_err().to_string().contains("between 1 and 256, came 257 for `b`"));
        assert_eq!(ring, HashRing::of(["a"]));
    }

    #[test]
    fn walking_both_ways_meets_the_same_points_in_opposite_order() {
        let ring = HashRing::of(["a", "b", "c", "d", "e"]);
        let position = stable_hash(b"query-5");
        let clockwise: Vec<_> = ring.walk(position, Direction::Clockwise).collect();
        let counter: Vec<_> = ring.walk(position, Direction::CounterClockwise).collect();
        assert_eq!(clockwise[0], counter[0]);
        assert_eq!(Some(clockwise[0]), ring.owner_at(position));
        // The member before the owner, by the definition on positions.
        let owner_point = ring.point_at(position);
        let before = (1..ring.points.len())
            .map(|step| ring.points[(owner_point + ring.points.len() - step) % ring.points.len()].1)
            .map(|member| &ring.members[member as usize])
            .find(|member| *member != counter[0])
            .unwrap();
        assert_eq!(counter[1], before);
    }

    #[test]
    fn shares_follow_the_weights() {
        let mut ring = HashRing::of(named(4));
        ring.set("heavy".to_owned(), 4).unwrap();
        let counts = owners(&ring).into_iter().fold(BTreeMap::<String, u64>::new(), |mut counts, owner| {
            *counts.entry(owner).or_default() += 1;
            counts
        });
        // Weight 4 of 8 in all: half of the keys.
        let heavy = counts["heavy"];
        assert!((KEYS * 42 / 100..KEYS * 58 / 100).contains(&heavy), "heavy owns {heavy} of {KEYS}");
        for (member, &count) in counts.iter().filter(|(member, _)| *member != "heavy") {
            assert!((KEYS * 8 / 100..KEYS * 18 / 100).contains(&count), "{member} owns {count} of {KEYS}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_new_member_takes_about_its_share_and_nothing_else_moves(count in 1_usize..20) {
            let before = HashRing::of(named(count));
            let mut after = before.clone();
            after.set("newcomer".to_owned(), 1).unwrap();
            let mut moved = 0;
            for (old, new) in owners(&before).into_iter().zip(owners(&after)) {
                if old != new {
                    prop_assert_eq!(&new, "newcomer");
                    moved += 1;
                }
            }
            let share = KEYS / (count as u64 + 1);
            prop_assert!((share / 2..=share * 2).contains(&moved), "{} of {} keys moved, share {}", moved, KEYS, share);
            after.remove(&"newcomer".to_owned());
            prop_assert_eq!(after, before);
        }

        #[test]
        fn the_order_of_joining_does_not_matter(mut names in prop::collection::vec("[a-z]{1,6}", 1..8), position: u64) {
            let forward = HashRing::of(names.clone());
            names.reverse();
            let mut backward = HashRing::new();
            for name in &names {
                backward.set(name.clone(), 1).unwrap();
            }
            prop_assert_eq!(&forward, &backward);
            prop_assert_eq!(forward.owner_at(position), backward.owner_at(position));
        }

        #[test]
        fn a_walk_meets_every_member_once_beginning_with_the_owner(count in 1_usize..12, position: u64) {
            let ring = HashRing::of(named(count));
            for direction in [Direction::Clockwise, Direction::CounterClockwise] {
                let met: Vec<_> = ring.walk(position, direction).collect();
                prop_assert_eq!(met.first().copied(), ring.owner_at(position));
                let distinct: std::collections::BTreeSet<_> = met.iter().collect();
                prop_assert_eq!(distinct.len(), count);
                prop_assert_eq!(met.len(), count);
            }
        }
    }
}
