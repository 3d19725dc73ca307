//! Up to a hundred entries as bytes, one behind the other.
//!
//! ```text
//! ┌───────┬────────┬───────┬───────┬────────────────────────────────┐
//! │ flags │ millis │ count │ bytes │ words, each behind its length  │   flags: 1 the fields are those of the block, 2 deleted,
//! └───────┴────────┴───────┴───────┴────────────────────────────────┘     4 the number is the next one, and not there
//!  1       varint   varint  varint                                      words: fields and values by turns; only values, if the
//! ```                                                                     fields are those of the block
//!
//! Milliseconds count from those of the block's first entry. A number is the next one if its count is one more than that of the entry
//! before, in the same millisecond. A deleted entry keeps its place until its block is removed, as in Redis,
//! so that rough trimming removes as many.

use super::StreamId;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its number.
    pub id: StreamId,
    /// The fields that the block has, if they are its own.
    shared: Option<&'a [u8]>,
    words: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Its fields with their values.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (mut shared, mut words) = (self.shared, self.words);
        std::iter::from_fn(move || {
            let field = match &mut shared {
                Some(shared) => read_word(shared)?,
                None => read_word(&mut words)?,
            };
            Some((field, read_word(&mut words)?))
        })
    }
}

/// Entries that lie together.
#[derive(Clone, Debug)]
pub(super) struct Block {
    first: StreamId,
    last: StreamId,
    /// The fields of the first entry.
    fields: Box<[u8]>,
    bytes: Vec<u8>,
    live: u32,
    deleted: u32,
    /// Whether `last` is behind a deleted entry that has a higher number.
    is_set_back: bool,
}

const SAME_FIELDS: u8 = 1;
const DELETED: u8 = 2;
const NEXT: u8 = 4;

/// How much one block takes: `stream-node-max-entries` and `stream-node-max-bytes`, 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Default for BlockLimits {
    fn default() -> Self {
        Self { entries: 100, bytes: 4096 }
    }
}

impl BlockLimits {
    /// A block is never longer, whatever is set: it is copied as a whole.
    const BYTES_MAX: usize = 1 << 30;

    /// Whether a block that has so much takes no more.
    const fn are_met(self, entries: usize, bytes: usize) -> bool {
        let has_all_bytes = bytes >= Self::BYTES_MAX || self.bytes > 0 && bytes >= self.bytes;
        has_all_bytes || entries >= u32::MAX as usize || self.entries > 0 && entries >= self.entries
    }
}

fn write_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// What this module wrote is there.
fn read_number(from: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

/// The next number of the same millisecond.
fn following(id: StreamId) -> Option<StreamId> {
    id.count.checked_add(1).map(|count| StreamId { count, ..id })
}

fn write_word(to: &mut Vec<u8>, word: &[u8]) {
    write_number(to, word.len() as u64);
    to.extend_from_slice(word);
}

fn read_word<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = read_number(from)? as usize;
    let (word, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(word)
}

impl Block {
    /// One with one entry.
    pub(super) fn new(id: StreamId, words: &[&[u8]]) -> Self {
        let mut fields = Vec::new();
        words.iter().step_by(2).for_each(|field| write_word(&mut fields, field));
        let (fields, bytes) = (fields.into(), Vec::new());
        let mut block = Self { first: id, last: id, fields, bytes, live: 0, deleted: 0, is_set_back: false };
        block.append(id, words);
        block
    }

    /// Adds an entry, if there is room. Says whether there was.
    pub(super) fn push(&mut self, id: StreamId, words: &[&[u8]], limits: BlockLimits) -> bool {
        let bytes = self.bytes.len() + words.iter().map(|word| word.len()).sum::<usize>();
        let is_full = limits.are_met((self.live + self.deleted) as usize, bytes);
        if is_full {
            // An allocator may keep what it would only shorten.
            self.bytes = self.bytes.as_slice().into();
        } else {
            self.append(id, words);
        }
        !is_full
    }

    fn append(&mut self, id: StreamId, words: &[&[u8]]) {
        let mut shared = &self.fields[..];
        let is_same = words.iter().step_by(2).all(|field| read_word(&mut shared) == Some(field)) && shared.is_empty();
        let told = || words.iter().skip(usize::from(is_same)).step_by(if is_same { 2 } else { 1 });
        let mut body = Vec::with_capacity(told().map(|word| word.len() + 2).sum());
        told().for_each(|word| write_word(&mut body, word));
        let is_next = !self.bytes.is_empty() && !self.is_set_back && following(self.last) == Some(id);
        self.bytes.push((u8::from(is_same) * SAME_FIELDS) | (u8::from(is_next) * NEXT));
        if !is_next {
            write_number(&mut self.bytes, id.millis - self.first.millis);
            write_number(&mut self.bytes, id.count);
        }
        write_number(&mut self.bytes, body.len() as u64);
        self.bytes.extend_from_slice(&body);
        self.live += 1;
        self.last = id;
        self.is_set_back = false;
    }

    /// The number of the first entry that it had.
    pub(super) const fn first(&self) -> StreamId {
        self.first
    }

    /// The number of the last entry that it had.
    pub(super) const fn last(&self) -> StreamId {
        self.last
    }

    /// How many entries are there.
    pub(super) const fn live(&self) -> usize {
        self.live as usize
    }

    pub(super) fn byte_count(&self) -> usize {
        size_of::<Self>() + self.fields.len() + self.bytes.capacity()
    }

    /// All entries, the deleted ones as well, each with the place of its flags.
    fn all(&self) -> impl Iterator<Item = (usize, u8, Entry<'_>)> {
        let (mut rest, mut id) = (&self.bytes[..], self.first);
        std::iter::from_fn(move || {
            let at = self.bytes.len() - rest.len();
            let (flags, behind) = rest.split_first()?;
            rest = behind;
            id = if flags & NEXT == 0 {
                let millis = self.first.millis + read_number(&mut rest)?;
                StreamId { millis, count: read_number(&mut rest)? }
            } else {
                following(id)?
            };
            let words = read_word(&mut rest)?;
            let shared = (flags & SAME_FIELDS != 0).then_some(&*self.fields);
            Some((at, *flags, Entry { id, shared, words }))
        })
    }

    /// The entries that are there.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.all().filter(|(_, flags, _)| flags & DELETED == 0).map(|(.., entry)| entry)
    }

    /// Deletes an entry. Says whether it was there.
    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        let found = self.all().find(|(_, flags, entry)| entry.id == id && flags & DELETED == 0).map(|(at, ..)| at);
        found.is_some_and(|at| {
            self.mark_deleted(at);
            true
        })
    }

    /// Deletes the first entries.
    pub(super) fn delete_first(&mut self, count: usize) {
        let live = self.all().filter(|(_, flags, _)| flags & DELETED == 0);
        let places: Vec<usize> = live.take(count).map(|(at, ..)| at).collect();
        places.into_iter().for_each(|at| self.mark_deleted(at));
    }

    /// Lets entries follow the last one that is there, whatever was deleted behind it.
    pub(super) fn forget_deleted_end(&mut self) {
        if let Some(last) = self.entries().last().map(|entry| entry.id) {
            self.is_set_back |= last != self.last;
            self.last = last;
        }
    }

    fn mark_deleted(&mut self, at: usize) {
        self.bytes[at] |= DELETED;
        (self.live, self.deleted) = (self.live - 1, self.deleted + 1);
    }
}
