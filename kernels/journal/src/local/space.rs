//! Space on the disk for what is appended next.
//!
//! Who asks for it before appending is refused when there is none, and need not wait for it later. What is taken is
//! allocated behind the last record of the segment that is written to:
//!
//! ```text
//!  segment:  records │ appended, not written │ asked for, not appended │ free       │ not allocated
//!                   end                                                          until
//! ```

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use parking_lot::Mutex;

use super::{Active, Disk, DiskFile};
use crate::error::JournalError;

/// So much stays free for those who append without asking.
const FLOOR_BYTES: i64 = 256 << 10;
/// So much is taken ahead at once, if anybody ever asked.
const AHEAD_BYTES: i64 = 1 << 20;

/// Space behind the last record.
#[derive(Debug)]
pub(crate) struct Space {
    disk: Arc<dyn Disk>,
    /// What nobody has appended or asked for; below zero if more was appended than is allocated.
    free: AtomicI64,
    is_asked: AtomicBool,
    segment: Mutex<Segment>,
}

/// The segment that is written to.
#[derive(Debug)]
struct Segment {
    /// None where space cannot be taken ahead.
    file: Option<Box<dyn DiskFile>>,
    name: String,
    /// Up to where it is allocated.
    until: usize,
}

impl Segment {
    fn of(active: &Active, disk: &dyn Disk) -> Result<Self, JournalError> {
        let file = active.file.twin().map_err(JournalError::io("open", disk.describe(&active.name)))?;
        Ok(Self { file, name: active.name.clone(), until: active.allocated })
    }

    fn allocate(&mut self, bytes: usize, disk: &dyn Disk) -> Result<(), JournalError> {
        let until = self.until + bytes;
        if let Some(file) = &mut self.file {
            file.allocate(self.until as u64, until as u64)
                .map_err(JournalError::space("write", disk.describe(&self.name)))?;
        }
        self.until = until;
        Ok(())
    }
}

impl Space {
    pub(super) fn of(active: &Active, disk: &Arc<dyn Disk>) -> Result<Self, JournalError> {
        let segment = Segment::of(active, disk.as_ref())?;
        Ok(Self {
            disk: Arc::clone(disk),
            free: AtomicI64::new((segment.until - active.end) as i64),
            is_asked: AtomicBool::new(false),
            segment: Mutex::new(segment),
        })
    }

    /// Takes space for so many bytes of records.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), JournalError> {
        let bytes = bytes as i64;
        let take = |free: i64| (free - bytes >= FLOOR_BYTES).then_some(free - bytes);
        if self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Ok(());
        }
        self.is_asked.store(true, Ordering::Relaxed);
        let mut segment = self.segment.lock();
        let left = self.free.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let taken = self.allocate(&mut segment, FLOOR_BYTES - left);
        if taken.is_err() {
            self.give_back(bytes as usize);
        }
        taken
    }

    fn allocate(&self, segment: &mut Segment, bytes: i64) -> Result<(), JournalError> {
        if bytes > 0 {
            segment.allocate(bytes as usize, self.disk.as_ref())?;
            self.free.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives back what was taken, because it is not needed, or was appended by now.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.free.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Hears that so many bytes of records wait to be written.
    pub(crate) fn note_appended(&self, bytes: usize) {
        self.free.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Takes space ahead of those who ask, so that they need not do it themselves.
    pub(super) fn top_up(&self) {
        if self.is_asked.load(Ordering::Relaxed) && self.free.load(Ordering::Relaxed) < AHEAD_BYTES {
            // Where it is not possible, those who ask hear of it.
            let _ = self.allocate(&mut self.segment.lock(), AHEAD_BYTES);
        }
    }

    /// Up to where the segment is allocated.
    pub(super) fn until(&self) -> usize {
        self.segment.lock().until
    }

    /// Hears that the segment is allocated up to there.
    pub(super) fn note_allocated(&self, until: usize) {
        let mut segment = self.segment.lock();
        let more = until.saturating_sub(segment.until);
        segment.until += more;
        self.free.fetch_add(more as i64, Ordering::Relaxed);
    }

    /// Goes over to the segment that `begin` makes with at least so many bytes behind its records: all that was appended and
    /// asked for finds space there, too. If it cannot be made, nothing has changed.
    pub(super) fn move_on(
        &self,
        ended: &Active,
        begin: impl FnOnce(usize) -> Result<Active, JournalError>,
    ) -> Result<Active, JournalError> {
        let mut segment = self.segment.lock();
        let behind = (segment.until.saturating_sub(ended.end)) as i64;
        // What nobody needs is not moved.
        let free = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(free.min(FLOOR_BYTES)));
        let surplus = (free.unwrap_or_else(|free| free) - FLOOR_BYTES).clamp(0, behind);
        let begun =
            begin((behind - surplus) as usize).and_then(|next| Ok((Segment::of(&next, self.disk.as_ref())?, next)));
        match begun {
            Ok((after, next)) => {
                self.free.fetch_add((after.until - next.end) as i64 - (behind - surplus), Ordering::Relaxed);
                *segment = after;
                Ok(next)
            }
            Err(error) => {
                self.free.fetch_add(surplus, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::Lsn,
        segment::{Header, Term},
        sim::SimDisk,
    };

    fn active(disk: &Arc<SimDisk>, name: &str, allocated: usize) -> Active {
        let term = Term { epoch: savanna_epoch::NodeEpoch(1), opening: 1 };
        let (first, base) = (Lsn(1), Lsn::NONE);
        let header = Header {
            term,
            sequence: 1,
            first,
            base,
            oldest: first,
            body: None,
            opens_term: true,
            seals: false,
            beside: None,
        };
        let mut file = disk.create(name).expect("created");
        file.allocate(0, allocated as u64).expect("there is space");
        let seal = header.encode().1;
        Active { file, name: name.to_owned(), header, seal, end: 100, zeroed: allocated, allocated }
    }

    #[test]
    fn what_was_taken_is_there_in_this_segment_and_in_the_next() {
        const FLOOR: usize = FLOOR_BYTES as usize;
        let disk = SimDisk::new(1);
        let first = active(&disk, "first", 1000);
        let space = Space::of(&first, &(Arc::clone(&disk) as _)).expect("space");
        space.take(50_000).expect("there is space");
        assert_eq!(space.until(), 100 + 50_000 + FLOOR);
        space.note_appended(20_000);
        space.give_back(20_000);
        disk.set_capacity(disk.files().iter().map(|(_, bytes)| *bytes as u64).sum());
        assert!(space.take(1).expect_err("there is none").is_full());
        assert_eq!(space.until(), 100 + 50_000 + FLOOR);
        let failed = space.move_on(&first, |_| Err(JournalError::Closed));
        assert!(failed.is_err() && space.take(1).is_err(), "nothing has changed");

        disk.set_capacity(u64::MAX);
        space.take(500_000).expect("there is space again");
        space.give_back(500_000);
        let next = space.move_on(&first, |behind| {
            assert_eq!(behind, 50_000 + FLOOR, "what nobody needs is not moved");
            Ok(active(&disk, "next", 100 + behind))
        });
        assert_eq!(next.expect("begun").name, "next");
        disk.set_capacity(0);
        assert!(space.take(1).is_err(), "all of it was taken before");
        space.give_back(1);
        space.take(1).expect("that was given back");
    }
}
