//! One key with its value, in one cache line.

use savanna_lattice::{Hlc, UnixMillis};

use crate::keyspace::types::{Collection as _, Hash, List, Set, SortedSet, Stream};
use crate::short_bytes::ShortBytes;

/// A key, its value, and what is known of both.
#[derive(Debug)]
pub struct Entry {
    /// The key.
    pub key: ShortBytes,
    /// The value.
    pub value: Value,
    /// The last change.
    pub version: Hlc,
    life: Life,
}

/// Expiry (48 bits of milliseconds) above an access clock (16 bits of seconds).
#[derive(Clone, Copy, Debug)]
struct Life(u64);

const ACCESS_BITS: u32 = 16;
const EXPIRY_NEVER: u64 = (1 << (u64::BITS - ACCESS_BITS)) - 1;

/// The latest time at which a key expires, in the year 10889; what is to expire later expires then.
pub const LATEST_EXPIRY: UnixMillis = UnixMillis(EXPIRY_NEVER - 1);

impl Entry {
    /// A key that does not expire.
    #[must_use]
    pub fn new(key: &[u8], value: Value, version: Hlc) -> Self {
        Self { key: key.into(), value, version, life: Life(EXPIRY_NEVER << ACCESS_BITS) }
    }

    /// When it expires; [`UnixMillis::NEVER`] if it does not.
    #[must_use]
    pub const fn expires_at(&self) -> UnixMillis {
        match self.life.0 >> ACCESS_BITS {
            EXPIRY_NEVER => UnixMillis::NEVER,
            at => UnixMillis(at),
        }
    }

    /// Lets it expire at a time, [`LATEST_EXPIRY`] at the latest; [`UnixMillis::NEVER`] takes the expiry away.
    pub const fn expire_at(&mut self, at: UnixMillis) {
        let at = match at {
            UnixMillis::NEVER => EXPIRY_NEVER,
            at if at.0 > LATEST_EXPIRY.0 => LATEST_EXPIRY.0,
            at => at.0,
        };
        self.life.0 = at << ACCESS_BITS | self.life.0 & ((1 << ACCESS_BITS) - 1);
    }

    /// Whether its time has come.
    #[must_use]
    pub fn has_expired(&self, now: UnixMillis) -> bool {
        self.life.0 >> ACCESS_BITS != EXPIRY_NEVER && self.expires_at() <= now
    }

    /// Notes an access.
    pub fn touch(&mut self, used: Use) {
        let access = match used.counting {
            None => access_clock(used.now),
            Some(counting) => {
                let count = match self.life.0 as u16 {
                    // It is new.
                    0 => COUNT_OF_NEW,
                    _ => counting.one_more(self.use_count(used.now, counting.decay_minutes)),
                };
                use_clock(used.now) << 8 | u16::from(count)
            }
        };
        self.life.0 = self.life.0 >> ACCESS_BITS << ACCESS_BITS | u64::from(access);
    }

    /// How often it was used, on a scale that grows ever more slowly; where uses are counted. Each `decay_minutes` without a use
    /// take one away, 0 none. After 4 hours without one, that begins anew.
    #[must_use]
    pub const fn use_count(&self, now: UnixMillis, decay_minutes: u8) -> u8 {
        let [since, count] = match self.life.0 as u16 {
            // It was read from the log, and is new.
            0 => return COUNT_OF_NEW,
            noted => noted.to_be_bytes(),
        };
        let minutes = (use_clock(now) as u8).wrapping_sub(since);
        match minutes.checked_div(decay_minutes) {
            None => count,
            Some(less) => count.saturating_sub(less),
        }
    }

    /// Says how often it was used, where uses are counted.
    pub fn set_use_count(&mut self, now: UnixMillis, count: u8) {
        let access = use_clock(now) << 8 | u16::from(count);
        self.life.0 = self.life.0 >> ACCESS_BITS << ACCESS_BITS | u64::from(access);
    }

    /// Whole seconds since the last access; wrong after 18 hours without one.
    #[must_use]
    pub const fn idle_seconds(&self, now: UnixMillis) -> u16 {
        access_clock(now).wrapping_sub(self.life.0 as u16)
    }

    /// Says how many seconds ago it was used last, where uses are not counted.
    pub fn set_idle_seconds(&mut self, now: UnixMillis, seconds: u16) {
        self.life.0 = self.life.0 >> ACCESS_BITS << ACCESS_BITS | u64::from(access_clock(now).wrapping_sub(seconds));
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        size_of::<Self>() + self.key.heap_bytes() + self.value.heap_bytes()
    }

    /// About how many bytes it takes in memory or written as a whole, whichever is more.
    #[must_use]
    pub fn whole_bytes(&self) -> usize {
        self.byte_count().max(size_of::<Self>() + self.key.len() + self.value.whole_bytes())
    }
}

/// How a key was used before it came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastUse {
    /// So often, as [`Entry::use_count`] tells it.
    Count(u8),
    /// The last time so many seconds ago.
    Idle(u16),
}

/// A use of a key.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// When.
    pub now: UnixMillis,
    /// How it is counted, if it is; else its time is noted.
    pub counting: Option<Counting>,
}

/// How uses are counted: the more there were, the rarer is one counted (Morris' counter, as Redis has it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// A number by chance.
    pub chance: u32,
    /// How much rarer with each that was counted.
    pub log_factor: u32,
    /// The minutes that take one away.
    pub decay_minutes: u8,
}

/// What a new key begins with, so that it is not the first to go.
const COUNT_OF_NEW: u8 = 5;

impl Counting {
    /// The count after one more use.
    fn one_more(self, count: u8) -> u8 {
        let rarity = u64::from(count.saturating_sub(COUNT_OF_NEW)) * u64::from(self.log_factor) + 1;
        let is_counted = u64::from(self.chance) <= u64::from(u32::MAX) / rarity;
        count.saturating_add(u8::from(is_counted))
    }
}

/// Minutes, of which 4 hours can be told apart.
const fn use_clock(now: UnixMillis) -> u16 {
    (now.0 / 60_000 % 256) as u16
}

const fn access_clock(now: UnixMillis) -> u16 {
    (now.0 / 1000) as u16
}

/// A value of one of the types.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    String(ShortBytes),
    /// A string that is changed in parts, with room to grow.
    Buffer(Box<Vec<u8>>),
    /// Fields and their values.
    Hash(Box<Hash>),
    /// A set of strings.
    Set(Box<Set>),
    /// A list of strings.
    List(Box<List>),
    /// A set of strings in the order of their scores.
    SortedSet(Box<SortedSet>),
    /// Entries in the order of their numbers.
    Stream(Box<Stream>),
}

impl Value {
    /// The name that `TYPE` gives.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) | Self::Buffer(_) => "string",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::List(_) => "list",
            Self::SortedSet(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }

    /// The bytes, if it is a string.
    #[must_use]
    pub fn as_string(&self) -> Option<&[u8]> {
        match self {
            Self::String(bytes) => Some(bytes),
            Self::Buffer(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The bytes with room to grow, if it is a string.
    pub fn as_buffer(&mut self) -> Option<&mut Vec<u8>> {
        if let Self::String(short) = self {
            let short = std::mem::replace(short, ShortBytes::EMPTY);
            *self = Self::Buffer(Box::new(short.into_vec()));
        }
        match self {
            Self::Buffer(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Whether it is a collection without elements.
    #[must_use]
    pub fn is_empty_collection(&self) -> bool {
        match self {
            Self::String(_) | Self::Buffer(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::SortedSet(set) => set.is_empty(),
            Self::Stream(stream) => stream.is_empty(),
        }
    }

    /// When the first of its fields expires, if any does.
    #[must_use]
    pub fn first_field_expiry(&self) -> Option<UnixMillis> {
        match self {
            Self::Hash(hash) => hash.first_expiry().map(|(at, _)| at),
            _ => None,
        }
    }

    /// How many elements a collection has, 1 of a string.
    #[must_use]
    pub fn element_count(&self) -> usize {
        match self {
            Self::String(_) | Self::Buffer(_) => 1,
            Self::Hash(hash) => hash.len(),
            Self::Set(set) => set.len(),
            Self::List(list) => list.len(),
            Self::SortedSet(set) => set.len(),
            Self::Stream(stream) => stream.len(),
        }
    }

    /// About how many bytes it takes outside of its entry.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::String(bytes) => bytes.heap_bytes(),
            Self::Buffer(bytes) => bytes.capacity() + size_of::<Vec<u8>>(),
            Self::Hash(hash) => hash.byte_count(),
            Self::Set(set) => set.byte_count(),
            Self::List(list) => list.byte_count(),
            Self::SortedSet(set) => set.byte_count(),
            Self::Stream(stream) => stream.byte_count(),
        }
    }
}

impl Value {
    /// About how many bytes it takes in memory or written as a whole, whichever is more.
    #[must_use]
    pub fn whole_bytes(&self) -> usize {
        let written = if let Self::Stream(stream) = self { stream.whole_bytes() } else { 0 };
        self.heap_bytes().max(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn expiry_and_access_do_not_disturb_each_other() {
        let mut entry = Entry::new(b"k", Value::String(ShortBytes::EMPTY), Hlc::ZERO);
        let now = UnixMillis(1_800_000_000_123);
        let at = |now| Use { now, counting: None };
        entry.touch(at(now));
        assert!(!entry.has_expired(UnixMillis::NEVER));
        entry.expire_at(now);
        assert_eq!((entry.expires_at(), entry.idle_seconds(UnixMillis(now.0 + 5_000))), (now, 5));
        assert!(entry.has_expired(now) && !entry.has_expired(UnixMillis(now.0 - 1)));
        entry.touch(at(UnixMillis(now.0 + 5_000)));
        assert_eq!(entry.expires_at(), now);
        entry.expire_at(UnixMillis(u64::MAX - 1));
        assert_eq!(entry.expires_at(), LATEST_EXPIRY);
        entry.expire_at(UnixMillis::NEVER);
        assert_eq!(entry.expires_at(), UnixMillis::NEVER);
    }

    #[test]
    fn uses_are_counted_ever_more_rarely_and_forgotten_in_time() {
        let mut entry = Entry::new(b"k", Value::String(ShortBytes::EMPTY), Hlc::ZERO);
        let now = UnixMillis(1_800_000_000_000);
        let mut random = crate::random::Random::new(1);
        let mut counts = Vec::new();
        for uses in 1..=100_000 {
            let chance = random.next() as u32;
            entry.touch(Use { now, counting: Some(Counting { chance, log_factor: 10, decay_minutes: 1 }) });
            if matches!(uses, 1 | 100 | 1_000 | 100_000) {
                counts.push(entry.use_count(now, 1));
            }
        }
        // As the table in redis.conf: 10 after 100 hits, 18 after 1000, 142 after 100000.
        assert_eq!(counts[0], 5);
        assert!((8..=13).contains(&counts[1]), "{counts:?}");
        assert!((15..=23).contains(&counts[2]), "{counts:?}");
        assert!((125..=160).contains(&counts[3]), "{counts:?}");
        let later = UnixMillis(now.0 + 10 * 60_000);
        assert_eq!(entry.use_count(later, 1), counts[3] - 10);
        assert_eq!(entry.use_count(later, 0), counts[3]);
        entry.expire_at(later);
        assert_eq!((entry.expires_at(), entry.use_count(later, 5)), (later, counts[3] - 2));
    }
}
