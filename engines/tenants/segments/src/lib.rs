//! Segments: what a tenant's rows are once they are written down. A segment is immutable and sorted by key; it holds of each
//! key that was written between two commits the newest version, or that the key went.
//!
//! Nothing in here does I/O. [`SegmentBuilder`] makes a segment's bytes, [`Segment`] finds blocks in them, [`Block`] finds
//! keys in a block, [`Merge`] puts several segments together. A reader that meets a block which is not in memory gets
//! [`Missing`], lets somebody fetch it, and begins again.
//!
//! # The format, version 1
//!
//! All numbers are little-endian; `varint` is seven bits a byte, the lowest first.
//!
//! ```text
//! segment   block | block | .. | index | filter | footer
//!
//! block     entry | entry | .. | restarts, 4 bytes each | their count, 4 | CRC-32C of all before, 4
//!           about 8 KiB; an entry that is longer has a block of its own
//! entry     bytes shared with the key before, varint | bytes of the key that follow, varint
//!           | 0 if the key goes, otherwise 1 + bytes of the value, varint | key's bytes | value
//! restart   the offset of an entry that shares nothing: every 16th
//!
//! index     for each block: length of its first key, varint | key | its length in bytes, varint
//! filter    bits of a Bloom filter of all keys: ten a key, six set for each
//!
//! footer     0        8                16               24               32      36      40      44      48
//!           ┌────────┬────────────────┬────────────────┬────────────────┬───────┬───────┬───────┬───────┬────────┐
//!           │ SAVTSG1│ after CSN      │ up to CSN      │ entries        │blocks │index B│filterB│CRC-32C│ CRC-32C│
//!           └────────┴────────────────┴────────────────┴────────────────┴───────┴───────┴───────┴───────┴────────┘
//!           the first CRC is of index and filter, the second of the footer before it; 52 bytes in all
//! ```
//!
//! # A tour of the source
//!
//! `block` and `filter` are parts of a segment, `segment` the whole, `cursor` the merged view of several; `cache` is what a
//! process keeps of blocks; `compaction` says which segments are to become one.

mod block;
mod cache;
mod compaction;
mod cursor;
mod error;
mod filter;
mod segment;
mod varint;

pub use crate::{
    block::{BLOCK_BYTES, Block},
    cache::{BlockCache, CacheStats},
    compaction::{DEPTH_MAX, compaction},
    cursor::{Blocks, Cursor, Merge, get},
    error::{Missing, ReadError, SegmentError},
    segment::{Footer, Segment, SegmentBuilder, TAIL_BYTES, open_tail},
};

/// The number of a tenant, for ever.
pub type TenantId = u64;

/// The name of a block: the segment, by a number that it has in this process, and the block's place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The segment.
    pub segment: u64,
    /// The block, counted from 0.
    pub block: u32,
}
