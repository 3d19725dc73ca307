//! A segment as a whole: blocks behind each other, then what finds them.

use std::ops::Range;

use bytes::Bytes;
use savanna_transaction::Csn;

use crate::{
    PageId,
    block::{BLOCK_BYTES, Block, BlockBuilder},
    error::SegmentError,
    filter::{self, KeyHash},
    varint,
};

const MAGIC: &[u8; 7] = b"SAVTSG1";
const FORMAT: u8 = b'1';
const FOOTER: usize = 52;

/// Bytes that are read of a segment's end at first: most have their whole index and filter there.
pub const TAIL_BYTES: u64 = 64 << 10;

/// What the end of a segment says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The segment has what was written after this commit ..
    pub after: Csn,
    /// .. up to this one.
    pub upto: Csn,
    /// Keys, those that go among them.
    pub entries: u64,
    blocks: u32,
    index_bytes: u32,
    filter_bytes: u32,
    checksum: u32,
}

impl Footer {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(0);
        for number in [self.after.0, self.upto.0, self.entries] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [self.blocks, self.index_bytes, self.filter_bytes, self.checksum] {
            bytes.extend(number.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let short = || SegmentError::corrupt("a segment's last 52 bytes", format!("{} bytes", bytes.len()));
        let bytes: &[u8; FOOTER] = bytes.last_chunk().ok_or_else(short)?;
        if bytes[..6] != MAGIC[..6] {
            return Err(SegmentError::corrupt("the mark of a segment", bytes[..8].escape_ascii().to_string()));
        }
        if bytes[6] != FORMAT {
            return Err(SegmentError::Format(char::from(bytes[6])));
        }
        let long = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let word = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        let found = crc32c::crc32c(&bytes[..FOOTER - 4]);
        if found != word(FOOTER - 4) {
            return Err(SegmentError::corrupt("a footer with the checksum that it says", format!("{found:08x}")));
        }
        Ok(Self {
            after: Csn(long(8)),
            upto: Csn(long(16)),
            entries: long(24),
            blocks: word(32),
            index_bytes: word(36),
            filter_bytes: word(40),
            checksum: word(44),
        })
    }
}

/// Puts a segment together from keys in order.
#[derive(Debug, Default)]
pub struct SegmentBuilder {
    bytes: Vec<u8>,
    block: BlockBuilder,
    first: Vec<u8>,
    index: Vec<u8>,
    hashes: Vec<KeyHash>,
    blocks: u32,
}

impl SegmentBuilder {
    /// Adds a key, which is larger than all before, with its value, or that it goes.
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let bytes = key.len() + value.map_or(0, <[u8]>::len);
        if !self.block.is_empty() && self.block.len() + bytes > BLOCK_BYTES {
            self.close_block();
        }
        if self.block.is_empty() {
            self.first.clear();
            self.first.extend(key);
        }
        self.block.add(key, value);
        self.hashes.push(KeyHash::of(key));
    }

    /// Bytes of blocks so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.block.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The segment, which has what was written after one commit up to another.
    #[must_use]
    pub fn finish(mut self, after: Csn, upto: Csn) -> Bytes {
        self.close_block();
        let Self { mut bytes, index, hashes, blocks, .. } = self;
        let filter = filter::build(&hashes);
        let tail = bytes.len();
        bytes.extend(&index);
        bytes.extend(&filter);
        let checksum = crc32c::crc32c(&bytes[tail..]);
        let (index_bytes, filter_bytes) = (index.len() as u32, filter.len() as u32);
        let entries = hashes.len() as u64;
        bytes.extend(Footer { after, upto, entries, blocks, index_bytes, filter_bytes, checksum }.encode());
        bytes.into()
    }

    fn close_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let length = self.block.finish(&mut self.bytes);
        varint::push(self.first.len() as u64, &mut self.index);
        self.index.extend(&self.first);
        varint::push(length as u64, &mut self.index);
        self.blocks += 1;
    }
}

/// What the index knows of a block.
#[derive(Clone, Debug)]
struct Place {
    first: Box<[u8]>,
    offset: u64,
}

/// A segment that is open: where each block is, and which keys it may have.
#[derive(Debug)]
pub struct Segment {
    number: u64,
    footer: Footer,
    places: Vec<Place>,
    blocks_end: u64,
    filter: Bytes,
    bytes: u64,
}

/// The end of a segment that was read: the segment, or from where on its end is needed.
///
/// `number` is what the segment is called in this process, `bytes` its whole length, `tail` its last bytes.
///
/// # Errors
/// If it is no segment.
pub fn open_tail(number: u64, bytes: u64, tail: &Bytes) -> Result<Result<Segment, u64>, SegmentError> {
    let footer = Footer::decode(tail)?;
    let (index, filter) = (footer.index_bytes as usize, footer.filter_bytes as usize);
    let needed = (index + filter + FOOTER) as u64;
    let blocks_end = bytes
        .checked_sub(needed)
        .ok_or_else(|| SegmentError::corrupt("a segment that holds its index", format!("{bytes} bytes")))?;
    let Some(start) = (tail.len() as u64).checked_sub(needed) else { return Ok(Err(blocks_end)) };
    let start = start as usize;
    let found = crc32c::crc32c(&tail[start..start + index + filter]);
    if found != footer.checksum {
        return Err(SegmentError::corrupt("an index with the checksum that the footer says", format!("{found:08x}")));
    }
    let places = places(&tail[start..start + index], blocks_end)?;
    if places.len() != footer.blocks as usize {
        return Err(SegmentError::corrupt("as many blocks as the footer says", places.len().to_string()));
    }
    let filter = Bytes::copy_from_slice(&tail[start + index..start + index + filter]);
    Ok(Ok(Segment { number, footer, places, blocks_end, filter, bytes }))
}

fn places(index: &[u8], blocks_end: u64) -> Result<Vec<Place>, SegmentError> {
    let broken = || SegmentError::corrupt("an index whose blocks fill the segment", "another one");
    let mut places: Vec<Place> = Vec::new();
    let (mut at, mut offset) = (0, 0_u64);
    while at < index.len() {
        let length = varint::take(index, &mut at).ok_or_else(broken)? as usize;
        let first = index.get(at..).and_then(|rest| rest.get(..length)).ok_or_else(broken)?;
        at += length;
        if places.last().is_some_and(|last| *last.first >= *first) {
            return Err(broken());
        }
        places.push(Place { first: first.into(), offset });
        offset = varint::take(index, &mut at).and_then(|length| offset.checked_add(length)).ok_or_else(broken)?;
    }
    if offset == blocks_end { Ok(places) } else { Err(broken()) }
}

impl Segment {
    /// What the segment is called in this process.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What its end says.
    #[must_use]
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that it takes while it is open.
    #[must_use]
    pub fn open_bytes(&self) -> usize {
        self.filter.len() + self.places.iter().map(|place| place.first.len() + size_of::<Place>()).sum::<usize>()
    }

    /// How many blocks it has.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.footer.blocks
    }

    /// The first key of a block.
    #[must_use]
    pub fn first_key(&self, block: u32) -> Option<&[u8]> {
        self.places.get(block as usize).map(|place| &*place.first)
    }

    /// The block that a key would be in. Keys before the first belong to the first.
    #[must_use]
    pub fn block_of(&self, key: &[u8]) -> u32 {
        self.places.partition_point(|place| *place.first <= *key).saturating_sub(1) as u32
    }

    /// The name of a block.
    #[must_use]
    pub fn page(&self, block: u32) -> PageId {
        PageId { segment: self.number, block }
    }

    /// Where blocks are in the segment, from one up to and without another.
    #[must_use]
    pub fn range(&self, blocks: Range<u32>) -> Range<u64> {
        let offset = |block: u32| self.places.get(block as usize).map_or(self.blocks_end, |place| place.offset);
        offset(blocks.start)..offset(blocks.end)
    }

    /// Cuts bytes that were read at [`range`](Self::range) into blocks.
    ///
    /// # Errors
    /// If one of them is not what was written.
    pub fn cut(&self, blocks: Range<u32>, bytes: &Bytes) -> Result<Vec<Block>, SegmentError> {
        let base = self.range(blocks.clone()).start;
        let block = |block| {
            let Range { start, end } = self.range(block..block + 1);
            let (start, end) = ((start - base) as usize, (end - base) as usize);
            if end > bytes.len() {
                return Err(SegmentError::corrupt("all bytes of a block", format!("{} bytes", bytes.len())));
            }
            Block::new(bytes.slice(start..end))
        };
        (blocks.start..blocks.end.min(self.blocks())).map(block).collect()
    }

    /// Whether the segment may say something of a key.
    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        filter::may_contain(&self.filter, hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(keys: u32) -> Bytes {
        let mut builder = SegmentBuilder::default();
        for key in 0..keys {
            builder.add(&key.to_be_bytes(), Some(&[7; 100]));
        }
        builder.finish(Csn(3), Csn(9))
    }

    fn open(bytes: &Bytes) -> Segment {
        open_tail(1, bytes.len() as u64, bytes).unwrap().unwrap()
    }

    #[test]
    fn a_segment_is_opened_from_its_end_and_cut_into_blocks() {
        let bytes = segment(1_000);
        let tail = |length: usize| bytes.slice(bytes.len() - length..);
        let Ok(Err(from)) = open_tail(1, bytes.len() as u64, &tail(100)) else { panic!("100 bytes are not enough") };
        let segment = open_tail(1, bytes.len() as u64, &bytes.slice(from as usize..)).unwrap().unwrap();
        assert_eq!((segment.footer().after, segment.footer().upto, segment.footer().entries), (Csn(3), Csn(9), 1_000));
        assert!(segment.blocks() > 10);
        for key in 0..1_000_u32 {
            let block = segment.block_of(&key.to_be_bytes());
            let range = segment.range(block..block + 1);
            let cut = segment.cut(block..block + 1, &bytes.slice(range.start as usize..range.end as usize)).unwrap();
            assert!(cut[0].get(&key.to_be_bytes()).is_some(), "{key}");
        }
        let all = segment.range(0..segment.blocks());
        assert_eq!(
            segment.cut(0..segment.blocks(), &bytes.slice(..all.end as usize)).unwrap().len(),
            segment.blocks() as usize
        );
    }

    #[test]
    fn the_stored_form_of_format_1_stays_as_it_is() {
        let mut builder = SegmentBuilder::default();
        builder.add(b"aa", Some(b"1"));
        builder.add(b"ab", None);
        let bytes = builder.finish(Csn(1), Csn(2));
        let block = [0, 2, 2, b'a', b'a', b'1', 1, 1, 0, b'b', 0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(bytes[..18], block);
        assert_eq!(bytes[22..26], [2, b'a', b'a', 22], "the index");
        assert_eq!(&bytes[29..37], b"SAVTSG1\0");
        assert_eq!(bytes.len(), 81);
        assert_eq!(open(&bytes).footer().entries, 2);
    }

    #[test]
    fn an_empty_segment_says_up_to_which_commit_there_is_nothing() {
        let segment = open(&segment(0));
        assert_eq!((segment.blocks(), segment.footer().upto), (0, Csn(9)));
        assert!(!segment.may_contain(KeyHash::of(b"key")));
    }

    #[test]
    fn every_flipped_bit_of_the_end_is_noticed() {
        let bytes = segment(3);
        let end = open(&bytes).range(3..3).end as usize;
        for bit in end * 8..bytes.len() * 8 {
            let mut broken = bytes.to_vec();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(open_tail(1, bytes.len() as u64, &broken.into()), Ok(Ok(_))), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(!matches!(open_tail(1, length as u64, &bytes.slice(..length)), Ok(Ok(_))), "cut to {length}");
        }
    }
}
