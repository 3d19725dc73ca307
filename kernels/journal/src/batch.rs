//! Batches: append groups that wait together and are flushed together.

use savanna_epoch::NodeEpoch;

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

/// A new piece begins when one has so many bytes of payload: room for more never copies what is there, and what is written piece
/// by piece keeps nobody else from the core for long.
const PIECE_BYTES: usize = 256 << 10;

/// Records that follow each other.
#[derive(Debug)]
pub(crate) struct Piece {
    first: Lsn,
    entries: Vec<Entry>,
    payload: Vec<u8>,
}

impl Piece {
    /// Appends the records to `out` as they will stand at `offset` of the segment with `seal`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, seal: Seal, offset: usize, epoch: NodeEpoch, durable: Lsn) {
        let start = out.len();
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
            let at_offset = (offset + out.len() - start) as u64;
            record::encode(out, seal, at_offset, &header, mine);
        }
    }
}

/// Whole append groups in the order of their LSNs. Appending only copies the payload; checksums are computed when the
/// batch is written, outside of any lock and with what is known to be durable by then.
#[derive(Debug)]
pub(crate) struct Batch {
    first: Lsn,
    records: u64,
    groups: u64,
    bytes: usize,
    pieces: Vec<Piece>,
    /// The memory of earlier pieces.
    spare: Vec<Piece>,
}

impl Batch {
    /// An empty batch whose first record will be `first`.
    pub(crate) fn starting_at(first: Lsn) -> Self {
        Self { first, records: 0, groups: 0, bytes: 0, pieces: Vec::new(), spare: Vec::new() }
    }

    /// Empties the batch and keeps its memory.
    pub(crate) fn restart_at(mut self, first: Lsn) -> Self {
        self.spare.append(&mut self.pieces);
        Self { spare: self.spare, ..Self::starting_at(first) }
    }

    /// Bytes that a group takes when written.
    pub(crate) fn bytes_of(group: &[Draft<'_>]) -> usize {
        group.iter().map(|draft| record::encoded_len(draft.payload.len())).sum()
    }

    /// Adds a group, which must not be empty.
    pub(crate) fn push(&mut self, stream: u32, group: &[Draft<'_>]) {
        for (at, draft) in group.iter().enumerate() {
            let entry = Entry {
                stream,
                shard: draft.shard,
                kind: draft.kind,
                len: draft.payload.len(),
                last: at + 1 == group.len(),
            };
            let piece = self.piece_for(entry.len);
            piece.entries.push(entry);
            piece.payload.extend_from_slice(draft.payload);
            self.records += 1;
        }
        self.groups += 1;
        self.bytes += Self::bytes_of(group);
    }

    /// The piece that the next record goes to.
    fn piece_for(&mut self, len: usize) -> &mut Piece {
        let has_room = self.pieces.last().is_some_and(|piece| piece.payload.len() + len <= PIECE_BYTES);
        if !has_room {
            let Piece { mut entries, mut payload, .. } = self.spare.pop().unwrap_or_else(|| Piece {
                first: self.first,
                entries: Vec::new(),
                payload: Vec::new(),
            });
            entries.clear();
            payload.clear();
            payload.shrink_to(PIECE_BYTES);
            self.pieces.push(Piece { first: Lsn(self.first.0 + self.records), entries, payload });
        }
        self.pieces.last_mut().expect("there was a piece, or one was added")
    }

    /// The first record's LSN.
    pub(crate) fn first(&self) -> Lsn {
        self.first
    }

    /// The last record's LSN.
    pub(crate) fn last(&self) -> Lsn {
        Lsn(self.first.0 + self.records - 1)
    }

    /// Append groups in it.
    pub(crate) fn groups(&self) -> u64 {
        self.groups
    }

    /// Bytes that it takes when written.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records, a piece at a time.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Header, Term};

    #[test]
    fn pieces_behind_each_other_are_what_one_piece_would_be() {
        let lengths = [10, PIECE_BYTES - 11, 2, 3 * PIECE_BYTES, 0, 7, PIECE_BYTES];
        let payloads: Vec<Vec<u8>> = (0_u8..).zip(lengths).map(|(byte, len)| vec![byte; len]).collect();
        let drafts: Vec<Draft<'_>> = payloads.iter().map(|payload| Draft { shard: 3, kind: 1, payload }).collect();
        let mut batch = Batch::starting_at(Lsn(5)).restart_at(Lsn(7));
        batch.push(2, &drafts[..3]);
        batch.push(2, &drafts[3..]);
        assert_eq!((batch.first(), batch.last(), batch.groups(), batch.pieces().len()), (Lsn(7), Lsn(13), 2, 5));

        let term = Term { epoch: NodeEpoch(1), opening: 1 };
        let (first, base) = (Lsn(7), Lsn(6));
        let header = Header {
            term,
            sequence: 1,
            first,
            base,
            oldest: Lsn(1),
            body: None,
            opens_term: true,
            seals: false,
            beside: None,
        };
        let (seal, epoch, offset) = (header.encode().1, NodeEpoch(1), 64);
        let (mut pieces, mut whole) = (Vec::new(), Vec::new());
        for piece in batch.pieces() {
            let at_offset = offset + pieces.len();
            piece.encode(&mut pieces, seal, at_offset, epoch, base);
        }
        for (at, draft) in drafts.iter().enumerate() {
            let lsn = Lsn(7 + at as u64);
            let last = at == 2 || at == 6;
            let header = RecordHeader { stream: 2, epoch, lsn, shard: 3, kind: 1, last, durable: base };
            let at_offset = (offset + whole.len()) as u64;
            record::encode(&mut whole, seal, at_offset, &header, draft.payload);
        }
        assert!(pieces == whole, "the bytes differ");
        assert_eq!(pieces.len(), batch.bytes());
    }
}
