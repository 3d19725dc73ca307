//! Where the entries of keys lie in the tables of databases.

use savanna_ownership::{KEY_GROUPS, KeyGroup};
use twox_hash::XxHash3_64;

use super::Keyspace;
use crate::placement::{KeyHash, group_of};

/// How many keys are brought near at a time: as many cache misses as a core has under way.
pub const NEAR_MAX: usize = 16;

/// A longer key is not kept in mind: hashing it once more costs little beside what else is done with it.
const KEPT_BYTES: usize = 55;

/// Where an entry lies: the key group in the top bits, as in its [`KeyHash`]; below them a hash that depends on a seed, so that
/// nobody who chooses names can choose them so that a group's table is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot(u64);

impl Spot {
    /// Where the entry of a key lies.
    #[must_use]
    pub fn of(key: &[u8], seed: u64) -> Self {
        Self::in_group(group_of(key), key, seed)
    }

    /// Where the entry of a key of this group lies.
    pub(super) fn in_group(group: KeyGroup, key: &[u8], seed: u64) -> Self {
        let group = KeyHash::first_of(group.get()).get();
        Self(group | XxHash3_64::oneshot_with_seed(seed, key) >> KEY_GROUPS.trailing_zeros())
    }

    /// The key group.
    #[must_use]
    pub const fn group(self) -> KeyGroup {
        KeyGroup::from_hash(self.0)
    }

    /// The table of its group.
    pub(super) const fn table(self) -> usize {
        self.group().get() as usize
    }

    /// The hash within a group: the group's own bits go where hashbrown looks for neither place nor tag.
    pub(super) const fn within(self) -> u64 {
        self.0.rotate_left(32)
    }

    /// One of so many classes of keys. Those of one group are in any.
    pub(super) const fn class(self, classes: usize) -> usize {
        self.0 as usize % classes
    }
}

/// A key, and where its entry lies.
#[derive(Clone, Copy, Debug)]
struct Kept {
    spot: Spot,
    /// `None` of a key that is not kept.
    length: Option<u8>,
    bytes: [u8; KEPT_BYTES],
}

impl Kept {
    const NOTHING: Self = Self { spot: Spot(0), length: None, bytes: [0; KEPT_BYTES] };

    fn is(&self, key: &[u8]) -> bool {
        self.length.is_some_and(|length| usize::from(length) == key.len()) && self.bytes[..key.len()] == *key
    }
}

/// Where the keys of the next requests lie, which were brought near together: whoever asks for them, each in its turn, compares a key
/// instead of hashing it once more.
#[derive(Debug)]
pub(super) struct Near {
    /// By request.
    kept: [Kept; NEAR_MAX],
    count: usize,
    /// How many of them had their turn, and the one whose turn it is.
    turns: usize,
}

impl Default for Near {
    fn default() -> Self {
        Self { kept: [Kept::NOTHING; NEAR_MAX], count: 0, turns: 0 }
    }
}

impl Near {
    /// Where a key lies, if it is that of the request whose turn it is.
    #[inline]
    fn spot_of(&self, key: &[u8]) -> Option<Spot> {
        let turn = self.turns.checked_sub(1).filter(|turn| *turn < self.count)?;
        let kept = self.kept.get(turn)?;
        kept.is(key).then_some(kept.spot)
    }
}

impl Keyspace {
    /// Where a key's entry lies.
    #[inline]
    pub(super) fn spot_of(&self, key: &[u8]) -> Spot {
        self.near.spot_of(key).unwrap_or_else(|| Spot::of(key, self.table_seed))
    }

    /// The key group of a key.
    #[inline]
    pub(crate) fn group_of(&self, key: &[u8]) -> KeyGroup {
        self.near.spot_of(key).map_or_else(|| group_of(key), Spot::group)
    }

    /// Brings the entries of the keys of a database near that the next requests are about, at most [`NEAR_MAX`]: into the processor's cache. An
    /// empty one stands for a request without a key.
    pub fn bring_near(&mut self, database: u8, keys: &[&[u8]]) {
        let (mut spots, mut count) = ([Spot::default(); NEAR_MAX], 0);
        for (kept, key) in self.near.kept.iter_mut().zip(keys) {
            kept.length = None;
            if key.is_empty() {
                continue;
            }
            kept.spot = Spot::of(key, self.table_seed);
            if let Some(bytes) = kept.bytes.get_mut(..key.len()) {
                bytes.copy_from_slice(key);
                kept.length = Some(key.len() as u8);
            }
            spots[count] = kept.spot;
            count += 1;
        }
        (self.near.count, self.near.turns) = (keys.len().min(NEAR_MAX), 0);
        if let Some(database) = &self.databases[usize::from(database)] {
            database.bring_near(&spots[..count]);
        }
    }

    /// It is the next request's turn.
    #[inline]
    pub(crate) const fn begin_turn(&mut self) {
        self.near.turns = self.near.turns.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Routes;

    #[test]
    fn whoever_asks_in_turn_or_not_hears_where_each_key_lies() {
        let mut keys = Keyspace::new(Routes::over(1), 7);
        let long = [b'x'; KEPT_BYTES + 1];
        let words: [&[u8]; 6] = [b"a", b"", b"{a}b", &long, &long[1..], b"a"];
        keys.bring_near(0, &words);
        let expected = words.map(|key| Spot::of(key, keys.table_seed));
        for turn in 0..=words.len() + 1 {
            for (key, spot) in words.iter().zip(expected) {
                assert_eq!((keys.spot_of(key), keys.group_of(key)), (spot, group_of(key)), "in turn {turn}");
            }
            let is_kept = turn.checked_sub(1).is_some_and(|index| [0, 2, 4, 5].contains(&index));
            let found = words.iter().find_map(|key| keys.near.spot_of(key));
            assert_eq!(found, is_kept.then(|| expected[turn - 1]), "in turn {turn}");
            keys.begin_turn();
        }
    }

    #[test]
    fn keys_of_one_tag_are_in_all_classes() {
        const CLASSES: usize = 64;
        let keys = (0..1_000).map(|number: u32| format!("{{tag}}{number}"));
        let mut seen = [false; CLASSES];
        keys.for_each(|key| seen[Spot::of(key.as_bytes(), 1).class(CLASSES)] = true);
        assert_eq!(seen, [true; CLASSES]);
    }
}
