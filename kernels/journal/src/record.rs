//! Records: what is appended, what is read back, and the bytes between.

use std::fmt;

use bytes::Bytes;
use savanna_epoch::NodeEpoch;

/// A position in the log: records are numbered 1, 2, 3, ... over all streams and shards. `Lsn(0)` is *nothing yet*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first record.
    pub const NONE: Self = Self(0);

    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The position before this one; nothing comes before [`Lsn::NONE`].
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A record that is about to be appended.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// Which shard it belongs to; the owner of the log numbers its shards.
    pub shard: u64,
    /// What it is; the owner of the log numbers its kinds.
    pub kind: u16,
    /// Its content, opaque to the journal.
    pub payload: &'a [u8],
}

/// A record that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The stream it was appended to.
    pub stream: u32,
    /// The epoch of the owner that appended it.
    pub epoch: NodeEpoch,
    /// Its position.
    pub lsn: Lsn,
    /// The shard it belongs to.
    pub shard: u64,
    /// What it is.
    pub kind: u16,
    /// Its content.
    pub payload: Bytes,
}

/// Bytes of a record before its payload.
pub(crate) const RECORD_HEADER: usize = 48;

/// Records begin at multiples of this, so that a search for the next intact one can go in steps.
pub(crate) const ALIGNMENT: usize = 8;

/// The flag of the last record of an append group.
const LAST_OF_GROUP: u16 = 1;

/// A record's header, without the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) stream: u32,
    pub(crate) epoch: NodeEpoch,
    pub(crate) lsn: Lsn,
    pub(crate) shard: u64,
    pub(crate) kind: u16,
    /// The last record of its append group.
    pub(crate) last: bool,
    /// Everything up to here was durable when this record was written.
    pub(crate) durable: Lsn,
}

/// Why there is no intact record at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The bytes end before the record does.
    Short,
    /// Zeros: nothing was ever written here.
    Blank,
    /// The checksum, or a value that no record has.
    Checksum,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the end of the file",
            Self::Blank => "zeros",
            Self::Checksum => "bytes that do not match their checksum",
        })
    }
}

/// Ties records to the segment they are in: the checksum of a record starts from its segment's checksum and its offset
/// there, so that bytes of another segment, or a record inside a payload, never pass for a record of this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal(pub(crate) u32);

impl Seal {
    fn checksum(self, offset: u64, body: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(self.0, &offset.to_le_bytes());
        crc32c::crc32c_append(seed, body)
    }
}

/// Bytes that a record with this much payload takes.
pub(crate) const fn encoded_len(payload: usize) -> usize {
    (RECORD_HEADER + payload).next_multiple_of(ALIGNMENT)
}

/// Appends a record to `out`, where it will be at `offset` of its segment.
pub(crate) fn encode(out: &mut Vec<u8>, seal: Seal, offset: u64, header: &RecordHeader, payload: &[u8]) {
    let start = out.len();
    let len = u32::try_from(payload.len()).expect("a group fits into a segment, which is below 4 GiB");
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&header.lsn.0.to_le_bytes());
    out.extend_from_slice(&header.epoch.0.to_le_bytes());
    out.extend_from_slice(&header.shard.to_le_bytes());
    out.extend_from_slice(&header.durable.0.to_le_bytes());
    out.extend_from_slice(&header.stream.to_le_bytes());
    out.extend_from_slice(&header.kind.to_le_bytes());
    out.extend_from_slice(&(if header.last { LAST_OF_GROUP } else { 0 }).to_le_bytes());
    debug_assert_eq!(out.len() - start, RECORD_HEADER);
    out.extend_from_slice(payload);
    out.resize(start + encoded_len(payload.len()), 0);
    let checksum = seal.checksum(offset, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// The record at `offset` of a segment's bytes, its payload, and the offset after it.
pub(crate) fn decode(segment: &[u8], offset: usize, seal: Seal) -> Result<(RecordHeader, &[u8], usize), Flaw> {
    let rest = segment.get(offset..).ok_or(Flaw::Short)?;
    let head = rest.get(..RECORD_HEADER).ok_or(Flaw::Short)?;
    if head.iter().all(|byte| *byte == 0) {
        return Err(Flaw::Blank);
    }
    let len = u32_at(head, 4) as usize;
    let total = encoded_len(len);
    let body = rest.get(4..total).ok_or(Flaw::Short)?;
    let flags = u16_at(head, 46);
    let lsn = Lsn(u64_at(head, 8));
    let durable = Lsn(u64_at(head, 32));
    if flags > LAST_OF_GROUP || durable >= lsn || u32_at(head, 0) != seal.checksum(offset as u64, body) {
        return Err(Flaw::Checksum);
    }
    let header = RecordHeader {
        stream: u32_at(head, 40),
        epoch: NodeEpoch(u64_at(head, 16)),
        lsn,
        shard: u64_at(head, 24),
        kind: u16_at(head, 44),
        last: flags == LAST_OF_GROUP,
        durable,
    };
    Ok((header, &rest[RECORD_HEADER..RECORD_HEADER + len], offset + total))
}

/// The LSN and the durable mark that the bytes at `offset` claim, unchecked; for a quick look before the checksum.
pub(crate) fn claims(segment: &[u8], offset: usize) -> Option<(Lsn, Lsn)> {
    let head = segment.get(offset..offset + RECORD_HEADER)?;
    Some((Lsn(u64_at(head, 8)), Lsn(u64_at(head, 32))))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_header() -> impl Strategy<Value = RecordHeader> {
        (any::<u32>(), any::<u64>(), 1..=u64::MAX, any::<u64>(), any::<u16>(), any::<bool>(), any::<u64>()).prop_map(
            |(stream, epoch, lsn, shard, kind, last, durable)| RecordHeader {
                stream,
                epoch: NodeEpoch(epoch),
                lsn: Lsn(lsn),
                shard,
                kind,
                last,
                durable: Lsn(durable % lsn),
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            header in any_header(),
            payload in prop::collection::vec(any::<u8>(), 0..300),
            seal in any::<u32>(),
            skip in 0..4_usize,
        ) {
            let offset = skip * ALIGNMENT;
            let mut bytes = vec![7; offset];
            encode(&mut bytes, Seal(seal), offset as u64, &header, &payload);
            prop_assert_eq!(bytes.len(), offset + encoded_len(payload.len()));
            let (back, back_payload, end) = decode(&bytes, offset, Seal(seal)).expect("intact");
            prop_assert_eq!(back, header);
            prop_assert_eq!(back_payload, &payload[..]);
            prop_assert_eq!(end, bytes.len());
        }

        #[test]
        fn a_changed_bit_is_noticed(
            header in any_header(),
            payload in prop::collection::vec(any::<u8>(), 0..100),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let mut bytes = Vec::new();
            encode(&mut bytes, Seal(1), 0, &header, &payload);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&bytes, 0, Seal(1)).is_err());
        }

        #[test]
        fn a_record_counts_only_where_it_was_written(
            header in any_header(),
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut bytes = Vec::new();
            encode(&mut bytes, Seal(1), 0, &header, &payload);
            prop_assert!(decode(&bytes, 0, Seal(2)).is_err(), "another segment's");
            let mut moved = vec![0; ALIGNMENT];
            moved.extend_from_slice(&bytes);
            prop_assert!(decode(&moved, ALIGNMENT, Seal(1)).is_err(), "at another offset");
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), offset in 0..500_usize) {
            prop_assert!(decode(&bytes, offset, Seal(3)).is_err());
        }
    }

    #[test]
    fn zeros_are_told_from_damage() {
        assert_eq!(decode(&[0; 100], 0, Seal(0)), Err(Flaw::Blank));
        assert_eq!(decode(&[0; 20], 0, Seal(0)), Err(Flaw::Short));
        assert_eq!(decode(&[1; 100], 0, Seal(0)), Err(Flaw::Short));
    }
}
