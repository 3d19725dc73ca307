//! Redis Cluster's hash slots, by which its clients know where a key is.
//!
//! They compute the same slot, so it is Redis' to the bit: the low 14 bits of CRC-16/XMODEM of the key, or of its `{tag}`. Eight bytes are
//! taken at a time, each by a table of its own.

use std::fmt;

use memchr::memchr;
use savanna_ownership::{KEY_GROUPS, KeyGroup};

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// A hash slot, below [`SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashSlot(u16);

impl HashSlot {
    /// The slot of a key: of its `{tag}`, if it has one.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(sum_of(key) % SLOTS)
    }

    /// The slot of this number, if there is one.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < SLOTS { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The slot that a key group is a half of.
    #[must_use]
    pub const fn of_group(group: KeyGroup) -> Self {
        Self(group.get() / 2)
    }

    /// Its key groups.
    #[must_use]
    pub fn groups(self) -> [KeyGroup; 2] {
        [self.0, self.0 | SLOTS].map(group_of_sum)
    }
}

/// The key group of a key: its slot, halved by one bit more of the sum, so that the tables of a group stay small.
#[inline]
#[must_use]
pub fn group_of(key: &[u8]) -> KeyGroup {
    group_of_sum(sum_of(key))
}

#[inline]
const fn group_of_sum(sum: u16) -> KeyGroup {
    let number = ((sum % SLOTS) << 1) | ((sum / SLOTS) & 1);
    KeyGroup::from_hash((number as u64) << (u64::BITS - KEY_GROUPS.trailing_zeros()))
}

impl fmt::Display for HashSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The CRC16 of a key, or of its tag.
#[inline]
fn sum_of(key: &[u8]) -> u16 {
    let (sum, may_have_tag) = crc16(key);
    if may_have_tag { sum_of_tag(key).unwrap_or(sum) } else { sum }
}

#[cold]
fn sum_of_tag(key: &[u8]) -> Option<u16> {
    tag_of(key).map(|tag| crc16(tag).0)
}

/// What lies between the first `{` and the first `}` after it, unless that is nothing.
fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let open = memchr(b'{', key)?;
    let rest = &key[open + 1..];
    let close = memchr(b'}', rest)?;
    (close > 0).then(|| &rest[..close])
}

/// The CRC16 of bytes, and whether there is a `{` among them.
#[inline]
fn crc16(bytes: &[u8]) -> (u16, bool) {
    let mut sum = 0;
    let mut braces = 0;
    let mut take = |word: u64| {
        braces |= braces_in(word);
        sum = sum_with(sum, word);
    };
    // The sum begins at 0, so that zeros before the first byte change nothing.
    let (begin, words) = bytes.split_at(bytes.len() % 8);
    if !begin.is_empty() {
        take(begin_as_number(bytes, begin.len()));
    }
    for word in words.as_chunks::<8>().0 {
        take(u64::from_be_bytes(*word));
    }
    (sum, braces != 0)
}

/// The first `count` bytes, 1 to 7, as a number.
#[inline]
fn begin_as_number(bytes: &[u8], count: usize) -> u64 {
    if let Some(word) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*word) >> (64 - 8 * count);
    }
    let number = |part: &[u8; 4]| u64::from(u32::from_be_bytes(*part));
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // Where the two overlap they are the same.
        (Some(first), Some(last)) => number(first) << (8 * (count - 4)) | number(last),
        _ => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

/// Not 0 if one of the bytes is a `{`.
const fn braces_in(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let others = word ^ (b'{' as u64 * ONES);
    others.wrapping_sub(ONES) & !others & ONES << 7
}

/// A sum continued by eight bytes.
#[inline]
fn sum_with(sum: u16, word: u64) -> u16 {
    let [a, b, c, d, e, f, g, h] = (word ^ u64::from(sum) << 48).to_be_bytes().map(usize::from);
    let [t0, t1, t2, t3, t4, t5, t6, t7] = &SUMS;
    t7[a] ^ t6[b] ^ t5[c] ^ t4[d] ^ t3[e] ^ t2[f] ^ t1[g] ^ t0[h]
}

/// The sum of each byte with as many zeros behind it as its table's place says.
static SUMS: [[u16; 256]; 8] = {
    const POLYNOMIAL: u16 = 0x1021;
    let mut sums = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = (byte as u16) << 8;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                sum = sum << 1 ^ if sum >> 15 == 1 { POLYNOMIAL } else { 0 };
                bit += 1;
            }
            sums[table][byte] = sum;
            table += 1;
        }
        byte += 1;
    }
    sums
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit, as the standard has it.
    fn plain(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |sum, byte| {
            (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| sum << 1 ^ if sum >> 15 == 1 { 0x1021 } else { 0 })
        })
    }

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` of Redis 7.0.15 says.
        for (key, slot) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("bar", 5_061),
            ("hello", 866),
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("bar{hash_tag}", 2_515),
        ] {
            assert_eq!(HashSlot::of(key.as_bytes()).get(), slot, "{key}");
        }
    }

    #[test]
    fn a_tag_is_the_first_that_is_closed_and_not_empty() {
        let same = |key: &[u8], part: &[u8]| {
            assert_eq!(HashSlot::of(key), HashSlot::of(part), "{}", key.escape_ascii());
        };
        same(b"{user:7}:name", b"user:7");
        same(b"{user:7}:name", b"{user:7}:age");
        same(b"a{b}{c}", b"b");
        same(b"a{{b}}c", b"{b");
        for whole in [&b"a{}b"[..], b"a{}{b}", b"a{b", b"a}b{", b"{}"] {
            assert_eq!(HashSlot::of(whole).get(), plain(whole) % SLOTS, "{}", whole.escape_ascii());
        }
        assert_eq!(HashSlot::new(SLOTS), None);
    }

    #[test]
    fn a_key_is_in_one_of_the_groups_of_its_slot_and_these_are_next_to_each_other() {
        let mut halves = [0; 2];
        for key in (0..1_000).map(|number: u32| number.to_string()) {
            let (groups, group) = (HashSlot::of(key.as_bytes()).groups(), group_of(key.as_bytes()));
            assert_eq!(groups.map(HashSlot::of_group), [HashSlot::of(key.as_bytes()); 2]);
            halves[groups.iter().position(|one| *one == group).expect("one of the two")] += 1;
        }
        assert!(halves.iter().all(|half| *half > 400), "{halves:?}");
    }

    proptest! {
        #[test]
        fn sums_of_eight_bytes_at_a_time_are_those_of_single_bits(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            prop_assert_eq!(crc16(&bytes), (plain(&bytes), bytes.contains(&b'{')));
        }
    }
}
