//! Segments: the header of a file or object of the log, and how its records are read back.

use bytes::Bytes;
use savanna_epoch::NodeEpoch;

use crate::{
    error::JournalError,
    record::{self, ALIGNMENT, Lsn, RECORD_HEADER, Record, Seal, u32_at, u64_at},
};

/// Bytes of a segment before its first record.
pub(crate) const SEGMENT_HEADER: usize = 72;

/// The format of every segment but one that ends its log.
const FORMAT_VERSION: u8 = 1;
/// The format of a segment that ends its log: a release that does not know of such refuses the log.
const FORMAT_VERSION_OF_SEALS: u8 = 2;
/// The format of an object that may have been put beside others: a missing one before it need not be an error.
const FORMAT_VERSION_OF_OBJECTS: u8 = 3;

const MAGIC: &[u8; 7] = b"SAVJRNL";

/// One opening of the log by one owner. A second opening under the same epoch fences the first, so that a process that
/// restarts within its lease is safe from its own predecessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term {
    pub(crate) epoch: NodeEpoch,
    /// 1 for the first opening under this epoch.
    pub(crate) opening: u32,
}

impl Term {
    /// The term of the next opening under `epoch` after this one; `None` if this one is newer.
    pub(crate) fn succeed(self, epoch: NodeEpoch) -> Option<Self> {
        match self.epoch.cmp(&epoch) {
            std::cmp::Ordering::Less => Some(Self { epoch, opening: 1 }),
            std::cmp::Ordering::Equal => Some(Self { epoch, opening: self.opening + 1 }),
            std::cmp::Ordering::Greater => None,
        }
    }
}

/// A segment's header; the byte diagram is in the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Who writes it.
    pub(crate) term: Term,
    /// Its place among the segments of its term (local disk) or of the log (object store).
    pub(crate) sequence: u64,
    /// The LSN of the first record in it. Older segments count up to just before it.
    pub(crate) first: Lsn,
    /// Everything up to here was durable when the segment came to be: records up to here are copies that belong to the
    /// owners before, records after it are of this owner.
    pub(crate) base: Lsn,
    /// The oldest record that the log still promises; older ones were truncated.
    pub(crate) oldest: Lsn,
    /// Bytes after the header when the segment was written as a whole; `None` while it is being appended to.
    pub(crate) body: Option<u64>,
    /// The first segment of its term: its fence.
    pub(crate) opens_term: bool,
    /// The log ends with this segment, for ever.
    pub(crate) seals: bool,
    /// Of an object that was put beside others; `None` for all else.
    pub(crate) beside: Option<Beside>,
}

/// What an object in a store says about the numbers around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// So many numbers before it may be missing: those that were under way, or that a term before left free. All before these were there.
    pub(crate) behind: u8,
    /// So many numbers after it are not used: an owner before may have puts under way for them.
    pub(crate) skips: u8,
    /// Of an object that begins a term: random, so that two openings under one epoch never put the same bytes. Else 0.
    pub(crate) nonce: u32,
}

const OPENS_TERM: u32 = 1;
const WHOLE: u32 = 2;
const SEALS: u32 = 4;
/// Where the numbers of [`Beside`] begin among the flags.
const BEHIND_SHIFT: u32 = 8;
const SKIPS_SHIFT: u32 = 16;

impl Header {
    /// The header's bytes and the seal of the records below it.
    pub(crate) fn encode(&self) -> ([u8; SEGMENT_HEADER], Seal) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.opens_term, OPENS_TERM) | flag(self.body.is_some(), WHOLE) | flag(self.seals, SEALS);
        let Beside { behind, skips, nonce } = self.beside.unwrap_or_default();
        let flags = flags | u32::from(behind) << BEHIND_SHIFT | u32::from(skips) << SKIPS_SHIFT;
        let mut out = [0; SEGMENT_HEADER];
        out[..7].copy_from_slice(MAGIC);
        out[7] = match (self.beside, self.seals) {
            (Some(_), _) => FORMAT_VERSION_OF_OBJECTS,
            (None, true) => FORMAT_VERSION_OF_SEALS,
            (None, false) => FORMAT_VERSION,
        };
        out[8..16].copy_from_slice(&self.term.epoch.0.to_le_bytes());
        out[16..20].copy_from_slice(&self.term.opening.to_le_bytes());
        out[20..24].copy_from_slice(&flags.to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.base.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.oldest.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.body.unwrap_or(0).to_le_bytes());
        out[64..68].copy_from_slice(&nonce.to_le_bytes());
        let checksum = crc32c::crc32c(&out[..68]);
        out[68..72].copy_from_slice(&checksum.to_le_bytes());
        (out, Seal(checksum))
    }

    /// The header of `file`, whose bytes (at least the first [`SEGMENT_HEADER`]) are given.
    pub(crate) fn decode(bytes: &[u8], file: &str) -> Result<(Self, Seal), JournalError> {
        let corrupt = |offset, expected: &str, found: String| JournalError::Corrupt {
            file: file.to_owned(),
            offset,
            expected: expected.to_owned(),
            found,
        };
        let Some(head) = bytes.get(..SEGMENT_HEADER) else {
            return Err(corrupt(bytes.len() as u64, "a segment header of 72 bytes", "the end of the file".to_owned()));
        };
        if head[..7] != MAGIC[..] {
            return Err(corrupt(0, "the letters SAVJRNL", format!("{}", head[..7].escape_ascii())));
        }
        if !(FORMAT_VERSION..=FORMAT_VERSION_OF_OBJECTS).contains(&head[7]) {
            let supported = FORMAT_VERSION_OF_OBJECTS;
            return Err(JournalError::Version { file: file.to_owned(), found: head[7], supported });
        }
        let (written, computed) = (u32_at(head, 68), crc32c::crc32c(&head[..68]));
        if written != computed {
            return Err(corrupt(
                0,
                &format!("a header with checksum {computed:08x}"),
                format!("checksum {written:08x}"),
            ));
        }
        let flags = u32_at(head, 20);
        let byte = |shift: u32| flags.to_le_bytes()[(shift / 8) as usize];
        let is_object = head[7] == FORMAT_VERSION_OF_OBJECTS;
        let header = Self {
            term: Term { epoch: NodeEpoch(u64_at(head, 8)), opening: u32_at(head, 16) },
            sequence: u64_at(head, 24),
            first: Lsn(u64_at(head, 32)),
            base: Lsn(u64_at(head, 40)),
            oldest: Lsn(u64_at(head, 48)),
            body: (flags & WHOLE != 0).then(|| u64_at(head, 56)),
            opens_term: flags & OPENS_TERM != 0,
            seals: flags & SEALS != 0,
            beside: is_object.then(|| Beside {
                behind: byte(BEHIND_SHIFT),
                skips: byte(SKIPS_SHIFT),
                nonce: u32_at(head, 64),
            }),
        };
        // What was put beside others begins behind those.
        let is_behind = !is_object && header.first > header.base.next();
        if header.first == Lsn::NONE || is_behind {
            return Err(corrupt(
                32,
                "a first LSN of at least 1 and at most one above the base",
                format!("first {} and base {}", header.first, header.base),
            ));
        }
        Ok((header, Seal(written)))
    }
}

/// How far the records of a segment reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A later segment begins at this LSN: every record before it must be intact, and later ones do not count (an owner
    /// that was fenced may have written them).
    Until(Lsn),
    /// The last segment of the log: it ends with its last intact append group.
    Open,
    /// A segment written in one piece: every byte must be intact.
    Whole,
}

/// What a segment's records amount to.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// The last record that counts; one before the segment's first if none does.
    pub(crate) last: Lsn,
    /// The records of which it is not certain that they were flushed: the last batch of an open segment. A file's
    /// cached pages may differ from the disk after a failed flush, so they are written again by the next owner.
    pub(crate) unsure: Vec<Record>,
}

/// Reads the records of one segment and hands over those of complete append groups, in order.
///
/// # Errors
/// [`JournalError::Corrupt`] if a record that was durable is not intact, and whatever `deliver` returns.
pub(crate) fn scan(
    file: &str,
    segment: &[u8],
    reach: Reach,
    deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<Scan, JournalError> {
    let (header, seal) = Header::decode(segment, file)?;
    if let Some(body) = header.body
        && segment.len() as u64 != body.saturating_add(SEGMENT_HEADER as u64)
    {
        return Err(JournalError::Corrupt {
            file: file.to_owned(),
            offset: segment.len() as u64,
            expected: format!("{body} bytes of records"),
            found: format!("{} bytes", segment.len() - SEGMENT_HEADER),
        });
    }
    let mut offset = SEGMENT_HEADER;
    let mut group: Vec<Record> = Vec::new();
    let mut unsure: Vec<Record> = Vec::new();
    let mut counted = header.first.previous();
    let mut durable = header.base;
    loop {
        let expected = Lsn(counted.0 + group.len() as u64 + 1);
        let done = match reach {
            Reach::Until(until) => group.is_empty() && expected >= until,
            Reach::Whole => group.is_empty() && offset == segment.len(),
            Reach::Open => false,
        };
        if done {
            break;
        }
        let overrun = matches!(reach, Reach::Until(until) if expected >= until);
        let found = match record::decode(segment, offset, seal) {
            Ok((found, payload, end)) if !overrun && belongs(&found, expected, &header) => Ok((found, payload, end)),
            Ok((found, ..)) => Err(format!("a record with LSN {} of epoch {}", found.lsn, found.epoch)),
            Err(flaw) => Err(flaw.to_string()),
        };
        let (found, payload, end) = match found {
            Ok(intact) => intact,
            Err(found) => {
                let proof = match reach {
                    Reach::Until(_) | Reach::Whole => true,
                    Reach::Open => expected <= header.base || was_durable(segment, offset, seal, counted.next()),
                };
                if proof {
                    return Err(JournalError::Corrupt {
                        file: file.to_owned(),
                        offset: offset as u64,
                        expected: if overrun {
                            format!("an append group that ends before LSN {expected}")
                        } else {
                            format!("the record with LSN {expected}")
                        },
                        found,
                    });
                }
                log_cut(file, segment, offset, counted);
                break;
            }
        };
        group.push(Record {
            stream: found.stream,
            epoch: found.epoch,
            lsn: found.lsn,
            shard: found.shard,
            kind: found.kind,
            payload: Bytes::copy_from_slice(payload),
        });
        if found.durable > durable {
            durable = found.durable;
            unsure.retain(|record| record.lsn > durable);
        }
        offset = end;
        if found.last {
            counted = found.lsn;
            if reach == Reach::Open {
                unsure.extend(group.iter().filter(|record| record.lsn > durable).cloned());
            }
            for record in group.drain(..) {
                deliver(record)?;
            }
        }
    }
    Ok(Scan { last: counted, unsure })
}

/// Whether an intact record is the one that should be here, by the rules the writer keeps.
fn belongs(found: &record::RecordHeader, expected: Lsn, header: &Header) -> bool {
    let epoch = header.term.epoch;
    found.lsn == expected && (found.epoch == epoch || (found.lsn <= header.base && found.epoch < epoch))
}

/// Whether some intact record after `offset` proves that `lsn`, which is not intact, was once durable. A batch is
/// written only when the one before it is flushed, and each record says up to where that was; so records of the same
/// torn batch prove nothing, and records of a later batch do.
fn was_durable(segment: &[u8], offset: usize, seal: Seal, lsn: Lsn) -> bool {
    let from = offset.next_multiple_of(ALIGNMENT);
    (from..segment.len().saturating_sub(RECORD_HEADER - 1))
        .step_by(ALIGNMENT)
        .filter(|at| record::claims(segment, *at).is_some_and(|(claimed, durable)| claimed > lsn && durable >= lsn))
        .any(|at| record::decode(segment, at, seal).is_ok())
}

fn log_cut(file: &str, segment: &[u8], offset: usize, counted: Lsn) {
    let cut = segment[offset.min(segment.len())..].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if cut > 0 {
        tracing::warn!(
            file,
            offset,
            bytes = cut,
            last_lsn = counted.0,
            "cut what is no whole record at the end of the log: a write that was under way when the process ended, or damage to it"
        );
    }
}

/// The words for an intact header whose place is wrong.
pub(crate) fn misplaced(file: &str, header: &Header) -> JournalError {
    JournalError::Corrupt {
        file: file.to_owned(),
        offset: 8,
        expected: "the epoch, opening and sequence that the file's name says".to_owned(),
        found: format!("epoch {}, opening {}, sequence {}", header.term.epoch, header.term.opening, header.sequence),
    }
}
