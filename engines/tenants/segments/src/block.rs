//! One block: keys in order, each without what it shares with the one before.

use std::{cmp::Ordering, ops::Range};

use bytes::Bytes;

use crate::{error::SegmentError, varint};

/// A block is closed when it has so many bytes.
pub const BLOCK_BYTES: usize = 8 << 10;
/// Entries from one restart to the next.
const RESTART: usize = 16;
/// Count of restarts and checksum.
const TRAILER: usize = 8;

/// Puts a block together.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last: Vec<u8>,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes if it were closed now.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.restarts.len() * 4 + TRAILER
    }

    /// Adds a key, which is larger than all before.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let shared = if self.entries.is_multiple_of(RESTART) {
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            self.last.iter().zip(key).take_while(|(a, b)| a == b).count()
        };
        varint::push(shared as u64, &mut self.bytes);
        varint::push((key.len() - shared) as u64, &mut self.bytes);
        varint::push(value.map_or(0, |value| value.len() as u64 + 1), &mut self.bytes);
        self.bytes.extend(&key[shared..]);
        self.bytes.extend(value.unwrap_or_default());
        self.entries += 1;
        self.last.truncate(shared);
        self.last.extend(&key[shared..]);
    }

    /// Appends the block to `out` and begins the next. Returns its length.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.append(&mut self.bytes);
        for restart in &self.restarts {
            out.extend(restart.to_le_bytes());
        }
        out.extend((self.restarts.len() as u32).to_le_bytes());
        let checksum = crc32c::crc32c(&out[start..]);
        out.extend(checksum.to_le_bytes());
        self.restarts.clear();
        self.entries = 0;
        self.last.clear();
        out.len() - start
    }
}

/// A block that was read and checked.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    entries_end: usize,
}

/// An entry as it stands in the block.
struct Entry {
    shared: usize,
    rest: Range<usize>,
    /// `None` if the key goes.
    value: Option<Range<usize>>,
}

/// Entries of a group with their whole keys, as [`Block::read_group`] gives them.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    keys: Vec<u8>,
    places: Vec<(Range<usize>, Option<Range<usize>>)>,
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        &self.keys[self.places[at].0.clone()]
    }

    pub(crate) fn value(&self, at: usize) -> Option<Range<usize>> {
        self.places[at].1.clone()
    }

    /// The first entry whose key is not less than `key`.
    pub(crate) fn place_of(&self, key: &[u8]) -> usize {
        self.places.partition_point(|(place, _)| &self.keys[place.clone()] < key)
    }
}

impl Block {
    /// Checks bytes and takes them as a block.
    ///
    /// # Errors
    /// If they are not what was written.
    pub fn new(bytes: Bytes) -> Result<Self, SegmentError> {
        let word =
            |from: usize| bytes.get(from..from + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
        let short = || SegmentError::corrupt("a block", format!("{} bytes", bytes.len()));
        let body = bytes.len().checked_sub(4).ok_or_else(short)?;
        let (stored, found) = (word(body).ok_or_else(short)?, crc32c::crc32c(&bytes[..body]));
        if stored != found {
            return Err(SegmentError::corrupt("a block with the checksum that it says", format!("{found:08x}")));
        }
        let restarts = bytes.len().checked_sub(TRAILER).and_then(word).ok_or_else(short)? as usize;
        let entries_end = (bytes.len() - TRAILER).checked_sub(restarts.saturating_mul(4)).ok_or_else(short)?;
        let block = Self { bytes, entries_end };
        // From here on every offset is known to be inside.
        block.check(restarts)?;
        Ok(block)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What it says of a key: nothing, that it went, or its value.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let mut at = if self.groups() == 0 { self.entries_end } else { self.restart(self.group_of(key)) };
        // Bytes that the entry before shares with the key; it is smaller.
        let mut common = 0;
        while at < self.entries_end {
            let entry = self.entry(&mut at)?;
            match entry.shared.cmp(&common) {
                // It goes on like the one before where that one differed: smaller, too.
                Ordering::Greater => continue,
                // It differs from the one before where that one was equal: larger.
                Ordering::Less => return None,
                Ordering::Equal => {}
            }
            let (rest, wanted) = (&self.bytes[entry.rest.clone()], &key[common..]);
            let equal = rest.iter().zip(wanted).take_while(|(a, b)| a == b).count();
            match rest[equal..].cmp(&wanted[equal..]) {
                Ordering::Equal => return Some(entry.value.map(|place| self.bytes.slice(place))),
                Ordering::Greater => return None,
                Ordering::Less => common += equal,
            }
        }
        None
    }

    /// How many groups of entries it has: each begins with a restart.
    pub(crate) fn groups(&self) -> usize {
        (self.bytes.len() - TRAILER - self.entries_end) / 4
    }

    /// The last group whose first key is not larger than `key`, or the first one.
    pub(crate) fn group_of(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.groups());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let mut at = self.restart(middle);
            match self.entry(&mut at) {
                Some(entry) if &self.bytes[entry.rest.clone()] <= key => low = middle,
                _ => high = middle,
            }
        }
        low
    }

    /// Reads the entries of a group in place of those that were read before.
    pub(crate) fn read_group(&self, group: usize, entries: &mut Entries) {
        entries.keys.clear();
        entries.places.clear();
        let mut at = self.restart(group);
        let end = if group + 1 < self.groups() { self.restart(group + 1) } else { self.entries_end };
        let mut last = 0..0;
        while at < end {
            let Some(entry) = self.entry(&mut at) else { break };
            let start = entries.keys.len();
            entries.keys.extend_from_within(last.start..last.start + entry.shared);
            entries.keys.extend_from_slice(&self.bytes[entry.rest]);
            last = start..entries.keys.len();
            entries.places.push((last.clone(), entry.value));
        }
    }

    fn restart(&self, number: usize) -> usize {
        let from = self.entries_end + number * 4;
        let word = self.bytes.get(from..from + 4).and_then(|word| word.try_into().ok());
        word.map_or(self.entries_end, |word| u32::from_le_bytes(word) as usize)
    }

    fn entry(&self, at: &mut usize) -> Option<Entry> {
        let bytes = &self.bytes[..self.entries_end];
        let shared = varint::take(bytes, at)? as usize;
        let rest = varint::take(bytes, at)? as usize;
        let value = varint::take(bytes, at)?;
        let rest = *at..at.checked_add(rest)?;
        let end = match value {
            0 => rest.end,
            length => rest.end.checked_add(length as usize - 1)?,
        };
        if end > bytes.len() {
            return None;
        }
        *at = end;
        Some(Entry { shared, value: (value > 0).then_some(rest.end..end), rest })
    }

    fn check(&self, restarts: usize) -> Result<(), SegmentError> {
        let broken = |what: &str| SegmentError::corrupt("a block's entries in order", what.to_owned());
        let (mut at, mut number) = (0, 0);
        let mut last: Vec<u8> = Vec::new();
        while at < self.entries_end {
            let start = at;
            let entry = self.entry(&mut at).ok_or_else(|| broken("an entry beyond the end"))?;
            if number % RESTART == 0 && (entry.shared > 0 || self.restart(number / RESTART) != start) {
                return Err(broken("a restart at another place"));
            }
            let rest = &self.bytes[entry.rest];
            let ascends = entry.shared <= last.len() && (number == 0 || last[entry.shared..] < *rest);
            if !ascends {
                return Err(broken("a key that is not larger than the one before"));
            }
            last.truncate(entry.shared);
            last.extend(rest);
            number += 1;
        }
        if number.div_ceil(RESTART) != restarts {
            return Err(broken("another number of restarts"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(rows: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (key, value) in rows {
            builder.add(key, value.as_deref());
        }
        let mut bytes = Vec::new();
        let length = builder.len();
        assert_eq!(builder.finish(&mut bytes), length);
        bytes
    }

    fn all(block: &Block) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let (mut entries, mut all) = (Entries::default(), Vec::new());
        for group in 0..block.groups() {
            block.read_group(group, &mut entries);
            let entry = |at| (entries.key(at).to_vec(), entries.value(at).map(|place| block.bytes()[place].to_vec()));
            all.extend((0..entries.len()).map(entry));
        }
        all
    }

    fn rows() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
        let key = prop::collection::vec(0_u8..4, 0..8);
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
        prop::collection::btree_map(key, value, 0..60).prop_map(|rows| rows.into_iter().collect())
    }

    proptest! {
        #[test]
        fn keys_are_found_as_they_were_added(rows in rows(), others in prop::collection::vec(prop::collection::vec(0_u8..4, 0..8), 20)) {
            let block = Block::new(block(&rows).into()).unwrap();
            for (key, value) in &rows {
                let found = block.get(key).map(|value| value.map(|bytes| bytes.to_vec()));
                prop_assert_eq!(found, Some(value.clone()));
            }
            for key in others {
                let expected = rows.iter().find(|(other, _)| *other == key).map(|(_, value)| value.clone());
                prop_assert_eq!(block.get(&key).map(|value| value.map(|bytes| bytes.to_vec())), expected);
            }
            prop_assert_eq!(all(&block), rows);
        }

        #[test]
        fn bytes_of_any_kind_are_a_block_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..200), seal in any::<bool>()) {
            if seal && bytes.len() >= 4 {
                let end = bytes.len() - 4;
                let checksum = crc32c::crc32c(&bytes[..end]).to_le_bytes();
                bytes[end..].copy_from_slice(&checksum);
            }
            if let Ok(block) = Block::new(bytes.into()) {
                let _ = block.get(b"key");
                all(&block);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = block(&[(b"aa".to_vec(), Some(b"1".to_vec())), (b"ab".to_vec(), None)]);
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::new(broken.into()).is_err(), "bit {bit}");
        }
    }
}
