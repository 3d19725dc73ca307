//! The log in a directory of a local file system.
//!
//! # Why an old owner cannot acknowledge what the new one does not know
//!
//! Let A own the log and B open it under a newer term. B, in this order: (1) creates its fence file and syncs the
//! directory; (2) removes older fences; (3) reads the segments and finds L, the last record that counts; (4) writes a
//! segment whose header says *older terms count up to L*, syncs it, renames it into place and syncs the directory; (5)
//! checks that its own fence still stands. A, for each batch: (a) checks that its fence file is there; (b) writes; (c)
//! flushes; (d) checks its fence file again; (e) releases the replies.
//!
//! *What A releases, B has.* If (d) finds A's fence, then (2) has not happened, so (3) comes later, and it reads what A
//! wrote at (b) and flushed at (c): the file system shows every process of the machine the same bytes. So the batch is
//! at or below L.
//!
//! *What A writes too late does not count.* If B read before A's batch was whole, the batch is above L. Whatever
//! A does afterwards (more of the batch, another segment: its names carry A's term, so that it can overwrite nothing of
//! B's) has LSNs above L under an older term, which every later reader ignores because of (4). A's check (d) fails and
//! nobody is told.
//!
//! *Between two owners that open at once* the higher term wins: each creates its fence, then looks for a higher one;
//! the later of the two looks sees both fences. The loser has either refused to open, or finds its fence removed at (5)
//! or at its first (a). Two openings under one epoch get different terms, because a fence file is created exclusively.
//!
//! *What A removes, B does not need.* A's truncation writes a segment whose header says from where on records are kept, and then checks
//! its fence once more before it removes older ones. If it finds the fence, (3) comes later, and B reads that header. Else
//! nothing is removed: B may have promised what A no longer needs.
//!
//! *L is durable before anybody builds on it.* Records that A wrote but may never have flushed (or whose flush failed,
//! after which cached pages may differ from the disk) are copied into B's first segment and synced with it; see
//! [`Scan::unsure`].
//!
//! The check at (d) and the send at (e) are not one step: A may be suspended between them, and send a reply late. The
//! reply is true (the write is in B's log) but a *read* that it answers may be out of date by then; that a node stops
//! serving before its lease can be granted again is the lease's business. The directory must be on a file system of
//! this machine; NFS and the like do not show every machine the same directory at the same time.

mod disk;
mod fence;
mod high_water;
mod recovery;
mod seal;
mod space;
mod stage;

use std::sync::Arc;

use savanna_epoch::NodeEpoch;

use self::{disk::write_zeros, fence::Fence, high_water::HighWater, recovery::Recovered};
pub use self::{
    disk::{Disk, DiskFile, OsDisk},
    fence::newest_epoch,
};
pub(crate) use self::{
    seal::{end_of, read_sealed, seal},
    space::Space,
    stage::Stage,
};
use crate::{
    backend::Backend,
    batch::Batch,
    error::JournalError,
    record::{self, Lsn, Record, RecordHeader},
    segment::{Header, Scan, Term},
};

/// Segments are zeroed ahead of the records: flushing into blocks that are there already needs no change of the file's
/// size or extents, which would cost a third of a flush. The pieces grow with the segment up to this size, so that a log
/// of a few records is a small file.
const ZERO_AHEAD_MAX: usize = 1 << 20;
const ZERO_AHEAD_MIN: usize = 64 << 10;

/// So much is zeroed ahead at any time: when the disk is full, what was appended before that is known still becomes durable.
const RESERVE_BYTES: usize = 32 << 10;

/// No more is written at once: a quarter of a millisecond.
const PIECE_BYTES: usize = 128 << 10;

/// A segment that is longer than this ends when a truncation comes into it.
const LONG_BYTES: usize = 1 << 20;

/// The end of the name of a file that is not complete yet.
const UNFINISHED: &str = ".new";

/// The segment that is appended to.
#[derive(Debug)]
struct Active {
    file: Box<dyn DiskFile>,
    name: String,
    header: Header,
    seal: record::Seal,
    /// Where the next record goes.
    end: usize,
    /// Up to where blocks are allocated and zero.
    zeroed: usize,
    /// Up to where it was allocated when it was begun; [`Space`] knows what came since.
    allocated: usize,
}

/// A segment that is only read.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    name: String,
    /// No record after this counts in it.
    last: Lsn,
}

/// A log as somebody finds it who has fenced its owner.
#[derive(Debug)]
struct Taken {
    fence: Fence,
    recovered: Recovered,
    /// The last record.
    last: Lsn,
    /// The records at the end that the next segment has to repeat: they may not be on the disk.
    unsure: Vec<Record>,
}

impl Taken {
    /// Fences older owners and replays the log. One that has ended can only be ended again.
    fn over(
        disk: &Arc<dyn Disk>,
        notes: Option<&dyn Disk>,
        epoch: NodeEpoch,
        is_to_end: bool,
        deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<Self, JournalError> {
        let fence = Fence::raise(disk, epoch)?;
        let found = recovery::find(disk.as_ref(), Some(fence.term()))?;
        if let Some(end) = found.last().filter(|newest| newest.header.seals && !is_to_end) {
            fence.lower(disk.as_ref());
            return Err(JournalError::Sealed { log: disk.describe(""), last: end.header.base });
        }
        let recovered = recovery::replay(disk.as_ref(), &found, deliver)?;
        let Scan { mut last, mut unsure } = recovered.tail.clone();
        if let Some(notes) = notes
            && let Some(noted) = high_water::read(notes)?
            && noted.durable > last
        {
            let (log, durable) = (disk.describe(""), noted.durable);
            return Err(JournalError::Lost { log, last, durable, note: noted.file });
        }
        // The process that wrote the log was killed: it may have told of records that only the operating system had.
        for record in stage::read(disk.as_ref(), recovered.newest, last)? {
            last = record.lsn;
            unsure.push(record.clone());
            deliver(record)?;
        }
        Ok(Self { fence, recovered, last, unsure })
    }

    /// The header of the segment that comes next, which says where older terms end.
    fn next_header(&self) -> Header {
        Header {
            term: self.fence.term(),
            sequence: 1,
            first: self.unsure.first().map_or_else(|| self.last.next(), |record| record.lsn),
            base: self.last,
            oldest: self.recovered.oldest,
            body: None,
            opens_term: true,
            seals: false,
            beside: None,
        }
    }
}

/// The log in a directory, open for appending.
#[derive(Debug)]
pub(crate) struct LocalBackend {
    disk: Arc<dyn Disk>,
    fence: Fence,
    segment_bytes: usize,
    active: Active,
    /// Older segments in the order of their terms.
    finished: Vec<Finished>,
    oldest: Lsn,
    high_water: Option<HighWater>,
    /// Why there is no reserve behind the last record.
    low: Option<JournalError>,
    space: Arc<Space>,
    buffer: Vec<u8>,
}

impl LocalBackend {
    /// Fences older owners, replays the log, and begins a segment of this owner. Returns the last LSN. Notes on
    /// `high_water`, if there is one, how far the log is durable.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        high_water: Option<Arc<dyn Disk>>,
        segment_bytes: usize,
        epoch: NodeEpoch,
        deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(Self, Lsn), JournalError> {
        if let Some(last) = end_of(disk.as_ref())? {
            return Err(JournalError::Sealed { log: disk.describe(""), last });
        }
        let taken = Taken::over(&disk, high_water.as_deref(), epoch, false, deliver)?;
        let header = taken.next_header();
        let Taken { fence, recovered, last, unsure } = taken;
        let active = create_segment(disk.as_ref(), header, &unsure, segment_bytes, 0)
            .map_err(|error| fence.explain(disk.as_ref(), error))?;
        let space = Arc::new(Space::of(&active, &disk)?);
        let mut backend = Self {
            disk,
            fence,
            segment_bytes,
            active,
            finished: recovered.finished,
            oldest: recovered.oldest,
            high_water: None,
            low: None,
            space,
            buffer: Vec::new(),
        };
        // Our own header has taken over what those said.
        remove(backend.disk.as_ref(), &recovered.needless);
        backend.check_fence()?;
        stage::remove_older(backend.disk.as_ref())?;
        backend.high_water = high_water.map(|notes| HighWater::begin(notes, backend.fence.term(), last)).transpose()?;
        Ok((backend, last))
    }

    /// Where records of this opening can be staged.
    pub(crate) fn stage(&self) -> Stage {
        Stage::new(Arc::clone(&self.disk), self.fence.clone())
    }

    /// Where space can be asked for.
    pub(crate) fn space(&self) -> Arc<Space> {
        Arc::clone(&self.space)
    }

    /// Ends the active segment at `durable` and begins the next.
    fn roll(&mut self, durable: Lsn) -> Result<(), JournalError> {
        let header = Header {
            term: self.fence.term(),
            sequence: self.active.header.sequence + 1,
            first: durable.next(),
            base: durable,
            oldest: self.oldest,
            body: None,
            opens_term: false,
            seals: false,
            beside: None,
        };
        let next = self.space.move_on(&self.active, |behind| {
            create_segment(self.disk.as_ref(), header, &[], self.segment_bytes, behind)
                .map_err(|error| self.fence.explain(self.disk.as_ref(), error))
        })?;
        let mut ended = std::mem::replace(&mut self.active, next);
        if let Err(error) = ended.file.shorten(ended.zeroed as u64) {
            tracing::debug!(file = ended.name, %error, "could not shorten a segment; it only takes space");
        }
        self.finished.push(Finished { name: ended.name, last: durable });
        if let Some(high_water) = &mut self.high_water {
            high_water.sync();
        }
        Ok(())
    }

    /// Sees to it that so many bytes of records can be written.
    fn make_ready(&mut self, bytes: usize, durable: Lsn) -> Result<(), JournalError> {
        if self.active.end + bytes > self.segment_bytes {
            self.roll(durable)?;
        }
        self.zero_ahead(self.active.end + bytes)
    }

    /// Zeroes the next piece of the segment if the records up to `end`, and a reserve behind them, go beyond what is zeroed.
    fn zero_ahead(&mut self, end: usize) -> Result<(), JournalError> {
        let active = &mut self.active;
        if (end + RESERVE_BYTES).min(self.segment_bytes).max(end) <= active.zeroed {
            return Ok(());
        }
        let until = zeroed_beyond(end, self.segment_bytes);
        write_zeros(active.file.as_mut(), end.max(active.zeroed) as u64, until as u64)
            .map_err(JournalError::space("write", self.disk.describe(&active.name)))?;
        active.zeroed = until;
        self.space.note_allocated(until);
        Ok(())
    }
}

impl Backend for LocalBackend {
    fn check_fence(&mut self) -> Result<(), JournalError> {
        self.fence.check(self.disk.as_ref())
    }

    fn write(&mut self, batch: &Batch, durable: Lsn) -> Result<(), JournalError> {
        let made_ready = self.make_ready(batch.bytes(), durable);
        let end = self.active.end + batch.bytes();
        self.low = match made_ready {
            // The space was taken before.
            Err(error @ JournalError::Full { .. }) if end <= self.space.until() => Some(error),
            result => result.map(|()| None)?,
        };
        let active = &mut self.active;
        let epoch = active.header.term.epoch;
        let mut at = active.end;
        for piece in batch.pieces() {
            self.buffer.clear();
            piece.encode(&mut self.buffer, active.seal, at, epoch, durable);
            write_all(active.file.as_mut(), &self.buffer, at)
                .map_err(JournalError::space("write", self.disk.describe(&active.name)))?;
            at += self.buffer.len();
        }
        debug_assert_eq!(at, end);
        active.end = end;
        active.zeroed = active.zeroed.max(end);
        self.space.top_up();
        Ok(())
    }

    fn low(&self) -> Option<JournalError> {
        self.low.clone()
    }

    fn reserve(&mut self) -> Result<(), JournalError> {
        self.zero_ahead(self.active.end)
    }

    fn flush(&mut self) -> Result<(), JournalError> {
        self.active.file.sync().map_err(JournalError::io("fdatasync", self.disk.describe(&self.active.name)))
    }

    fn truncate(&mut self, oldest: Lsn, durable: Lsn) -> Result<(), JournalError> {
        self.oldest = self.oldest.max(oldest);
        let active_is_needless = durable < oldest && durable >= self.active.header.first;
        // A long segment ends here, so that the next truncation can remove it.
        let active_is_long = oldest > self.active.header.first && self.active.end >= LONG_BYTES;
        if !active_is_needless && !active_is_long && self.finished.iter().all(|segment| segment.last >= oldest) {
            return Ok(());
        }
        // The promise is withdrawn durably before anything is removed, so that a missing segment is always an error.
        self.roll(durable)?;
        // Whoever opens the log from here on reads that; who did it before has removed the fence, and needs what is there.
        self.check_fence()?;
        let (gone, kept): (Vec<_>, Vec<_>) = self.finished.drain(..).partition(|segment| segment.last < oldest);
        self.finished = kept;
        remove(self.disk.as_ref(), &gone);
        Ok(())
    }

    fn note(&mut self, durable: Lsn) {
        if let Some(high_water) = &mut self.high_water {
            high_water.note(durable);
        }
    }

    /// Begins a segment behind the last record: all that is before it must be intact when the log is opened again.
    fn mark_end(&mut self, durable: Lsn) {
        let rolled = if durable > self.active.header.base {
            self.check_fence().and_then(|()| self.roll(durable))
        } else {
            Ok(())
        };
        if let Err(error) = rolled {
            tracing::warn!(%error, "could not mark the end of the log as it was closed; what is in it is durable");
        }
        if let Some(high_water) = &mut self.high_water {
            high_water.sync();
        }
    }
}

/// Removes segments that no reader needs.
fn remove(disk: &dyn Disk, segments: &[Finished]) {
    for Finished { name, .. } in segments {
        if let Err(error) = disk.remove(name) {
            let file = disk.describe(name);
            tracing::warn!(file, %error, "could not remove a segment that is not needed any more; it only takes space");
        }
    }
}

/// A new segment, durable under its name, that holds copies of `records` (the first of which is `header.first`) and has space for
/// `behind` bytes behind them.
fn create_segment(
    disk: &dyn Disk,
    header: Header,
    records: &[Record],
    segment_bytes: usize,
    behind: usize,
) -> Result<Active, JournalError> {
    let name = segment_name(header.term, header.sequence);
    let unfinished = format!("{name}{UNFINISHED}");
    let (head, seal) = header.encode();
    let mut bytes = head.to_vec();
    for (at, record) in records.iter().enumerate() {
        let copy = RecordHeader {
            stream: record.stream,
            epoch: record.epoch,
            lsn: record.lsn,
            shard: record.shard,
            kind: record.kind,
            // The copies become durable together, as one group.
            last: at + 1 == records.len(),
            durable: header.first.previous(),
        };
        let offset = bytes.len() as u64;
        record::encode(&mut bytes, seal, offset, &copy, &record.payload);
    }
    let end = bytes.len();
    let zeroed = zeroed_beyond(end, segment_bytes);
    bytes.resize(zeroed, 0);
    let mut file = disk.create(&unfinished).map_err(JournalError::space("create", disk.describe(&unfinished)))?;
    let allocated = zeroed.max(end + behind);
    let written = write_all(file.as_mut(), &bytes, 0)
        .and_then(|()| if allocated > zeroed { file.allocate(zeroed as u64, allocated as u64) } else { Ok(()) });
    if let Err(error) = written {
        // It takes space, and its name is needed when this is tried again.
        disk.remove(&unfinished).map_err(JournalError::io("remove", disk.describe(&unfinished)))?;
        return Err(JournalError::space("write", disk.describe(&unfinished))(error));
    }
    file.sync().map_err(JournalError::io("fdatasync", disk.describe(&unfinished)))?;
    disk.rename(&unfinished, &name).map_err(JournalError::io("rename", disk.describe(&unfinished)))?;
    disk.sync_dir().map_err(JournalError::io("fsync the directory of", disk.describe(&name)))?;
    Ok(Active { file, name, header, seal, end, zeroed, allocated })
}

/// Up to where a segment is zeroed when its records end at `end`.
fn zeroed_beyond(end: usize, segment_bytes: usize) -> usize {
    (end + end.clamp(ZERO_AHEAD_MIN, ZERO_AHEAD_MAX)).min(segment_bytes).max(end)
}

/// Writes all bytes, however few the disk takes at once. Of many, whoever shares this core waits for a piece and not for all.
fn write_all(file: &mut dyn DiskFile, mut bytes: &[u8], mut offset: usize) -> std::io::Result<()> {
    let is_long = bytes.len() >= PIECE_BYTES;
    while !bytes.is_empty() {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        match file.write_at(piece, offset as u64) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if is_long {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// The name of a term's segment; names sort like their terms and sequences.
fn segment_name(term: Term, sequence: u64) -> String {
    format!("segment-{:020}-{:010}-{sequence:010}", term.epoch.0, term.opening)
}

/// The term and sequence in a segment's name.
fn parse_segment_name(name: &str) -> Option<(Term, u64)> {
    let mut parts = name.strip_prefix("segment-")?.split('-');
    let term = Term { epoch: NodeEpoch(parts.next()?.parse().ok()?), opening: parts.next()?.parse().ok()? };
    let sequence = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((term, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_are_read_back_and_sort_by_term() {
        let old = Term { epoch: NodeEpoch(9), opening: 2 };
        let new = Term { epoch: NodeEpoch(10), opening: 1 };
        assert_eq!(parse_segment_name(&segment_name(old, 7)), Some((old, 7)));
        assert!(segment_name(old, 7) < segment_name(new, 1));
        for other in ["segment-1-2", "segment-1-2-3-4", "segment-a-1-1", "fence-1-1", "segment-1-2-3.new"] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
    }
}
