//! Batches: append groups that wait together and are flushed together.

use savanna_epoch::OwnerEpoch;

use crate::record::{self, Draft, Lsn, RecordHeader, Seal};

/// What a record is, apart from its payload and its LSN, which follow from its place.
#[derive(Clone, Copy, Debug)]
struct Entry {
    stream: u32,
    shard: u64,
    kind: u16,
    len: usize,
    last: bool,
}

/// Whole append groups in the order of their LSNs. Appending only copies the payload; checksums are computed when the
/// batch is written, outside of any lock and with what is known to be durable by then.
#[derive(Debug)]
pub(crate) struct Batch {
    first: Lsn,
    entries: Vec<Entry>,
    payload: Vec<u8>,
    bytes: usize,
}

impl Batch {
    /// An empty batch whose first record will be `first`.
    pub(crate) fn starting_at(first: Lsn) -> Self {
        Self { first, entries: Vec::new(), payload: Vec::new(), bytes: 0 }
    }

    /// Empties the batch and keeps its memory.
    pub(crate) fn restart_at(mut self, first: Lsn) -> Self {
        self.first = first;
        self.entries.clear();
        self.payload.clear();
        self.bytes = 0;
        self
    }

    /// Bytes that a group takes when written.
    pub(crate) fn bytes_of(group: &[Draft<'_>]) -> usize {
        group.iter().map(|draft| record::encoded_len(draft.payload.len())).sum()
    }

    /// Adds a group, which must not be empty.
    pub(crate) fn push(&mut self, stream: u32, group: &[Draft<'_>]) {
        for (at, draft) in group.iter().enumerate() {
            self.entries.push(Entry {
                stream,
                shard: draft.shard,
                kind: draft.kind,
                len: draft.payload.len(),
                last: at + 1 == group.len(),
            });
            self.payload.extend_from_slice(draft.payload);
        }
        self.bytes += Self::bytes_of(group);
    }

    /// The first record's LSN.
    pub(crate) fn first(&self) -> Lsn {
        self.first
    }

    /// The last record's LSN.
    pub(crate) fn last(&self) -> Lsn {
        Lsn(self.first.0 + self.entries.len() as u64 - 1)
    }

    /// Append groups in it.
    pub(crate) fn groups(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.last).count() as u64
    }

    /// Bytes that it takes when written.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the records to `out` as they will stand at `offset` of the segment with `seal`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, seal: Seal, offset: u64, epoch: OwnerEpoch, durable: Lsn) {
        let start = out.len();
        out.reserve(self.bytes);
        let mut payload = &self.payload[..];
        for (at, entry) in self.entries.iter().enumerate() {
            let (mine, rest) = payload.split_at(entry.len);
            payload = rest;
            let header = RecordHeader {
                stream: entry.stream,
                epoch,
                lsn: Lsn(self.first.0 + at as u64),
                shard: entry.shard,
                kind: entry.kind,
                last: entry.last,
                durable,
            };
            let at_offset = offset + (out.len() - start) as u64;
            record::encode(out, seal, at_offset, &header, mine);
        }
        debug_assert_eq!(out.len() - start, self.bytes);
    }
}
