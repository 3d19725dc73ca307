//! How far the log has been durable, noted where its directory is not: so that a log whose end was deleted, cut or damaged
//! is not taken for one that ends earlier.
//!
//! ```text
//! high-water-<epoch>-<opening>    one for each opening; two places, at 0 and 512, that are written in turn
//!  0          8            16        20         24           32       36
//! ┌──────────┬────────────┬─────────┬──────────┬────────────┬────────┐
//! │ SAVHIGH1 │ owner epoch│ opening │ 0000     │ LSN        │ CRC-32C│   everything up to the LSN was durable
//! └──────────┴────────────┴─────────┴──────────┴────────────┴────────┘
//! ```
//!
//! A note is written when a batch is durable, before the replies that wait for it leave. It is not flushed with each batch: who deletes a
//! segment, or kills the process, leaves it as it is, and after a loss of power an older note says less, never too much. It
//! is flushed when a segment is begun and when the log is closed. An older owner writes to its own file, which its
//! successor has removed, and says only what the successor has read.

use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use crate::{
    error::JournalError,
    record::{Lsn, u32_at, u64_at},
    segment::Term,
};

const MAGIC: &[u8; 8] = b"SAVHIGH1";
const NOTE_BYTES: usize = 36;
/// Notes are this far apart: a torn write of one leaves the other.
const PLACE_BYTES: u64 = 512;

/// The note of this opening.
#[derive(Debug)]
pub(super) struct HighWater {
    disk: Arc<dyn Disk>,
    name: String,
    file: Box<dyn DiskFile>,
    term: Term,
    place: u64,
    has_failed: bool,
}

/// What former openings have noted.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) durable: Lsn,
    pub(super) file: String,
}

/// The furthest that any former opening has noted, if any has.
pub(super) fn read(disk: &dyn Disk) -> Result<Option<Noted>, JournalError> {
    let mut furthest: Option<Noted> = None;
    for name in names(disk)? {
        let file = disk.describe(&name);
        let bytes = disk.read(&name, 2 * PLACE_BYTES).map_err(JournalError::io("read", file.as_str()))?;
        let notes = [0, PLACE_BYTES as usize].into_iter().filter_map(|at| decode(bytes.get(at..)?));
        match notes.max() {
            None => tracing::warn!(
                file,
                "expected a note of how far a log was durable, came something else; it says nothing"
            ),
            Some(durable) if furthest.as_ref().is_none_or(|noted| noted.durable < durable) => {
                furthest = Some(Noted { durable, file });
            }
            Some(_) => {}
        }
    }
    Ok(furthest)
}

fn names(disk: &dyn Disk) -> Result<Vec<String>, JournalError> {
    let names = disk.list().map_err(JournalError::io("list", disk.describe("")))?;
    Ok(names.into_iter().filter(|name| name.starts_with("high-water-")).collect())
}

impl HighWater {
    /// Begins this opening's note with what is durable now, and removes those of former ones.
    pub(super) fn begin(disk: Arc<dyn Disk>, term: Term, durable: Lsn) -> Result<Self, JournalError> {
        let name = format!("high-water-{:020}-{:010}", term.epoch.0, term.opening);
        let path = disk.describe(&name);
        let former = names(disk.as_ref())?;
        if former.contains(&name) {
            // Of a log that was replaced by an older copy.
            disk.remove(&name).map_err(JournalError::io("remove", path.as_str()))?;
        }
        let file = disk.create(&name).map_err(JournalError::io("create", path.as_str()))?;
        let mut own = Self { disk, name, file, term, place: 0, has_failed: false };
        own.write(durable).and_then(|()| own.file.sync()).map_err(JournalError::io("write", path.as_str()))?;
        own.disk.sync_dir().map_err(JournalError::io("fsync the directory of", path.as_str()))?;
        for name in former.into_iter().filter(|name| *name != own.name) {
            if let Err(error) = own.disk.remove(&name) {
                tracing::debug!(file = own.disk.describe(&name), %error, "could not remove a former note; it says less than this one");
            }
        }
        Ok(own)
    }

    /// Notes that everything up to here is durable. That it fails takes nothing away but this safeguard.
    pub(super) fn note(&mut self, durable: Lsn) {
        let written = self.write(durable);
        self.report(written);
    }

    /// Makes the last note durable.
    pub(super) fn sync(&mut self) {
        let synced = self.file.sync();
        self.report(synced);
    }

    fn write(&mut self, durable: Lsn) -> std::io::Result<()> {
        let note = encode(self.term, durable);
        let at = self.place * PLACE_BYTES;
        self.place ^= 1;
        super::write_all(self.file.as_mut(), &note, at as usize)
    }

    fn report(&mut self, result: std::io::Result<()>) {
        match result {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    let file = self.disk.describe(&self.name);
                    tracing::warn!(file, %error, "could not note how far the log is durable; it is as durable as ever");
                }
            }
        }
    }
}

fn encode(term: Term, durable: Lsn) -> [u8; NOTE_BYTES] {
    let mut note = [0; NOTE_BYTES];
    note[..8].copy_from_slice(MAGIC);
    note[8..16].copy_from_slice(&term.epoch.0.to_le_bytes());
    note[16..20].copy_from_slice(&term.opening.to_le_bytes());
    note[24..32].copy_from_slice(&durable.0.to_le_bytes());
    let checksum = crc32c::crc32c(&note[..32]);
    note[32..].copy_from_slice(&checksum.to_le_bytes());
    note
}

fn decode(bytes: &[u8]) -> Option<Lsn> {
    let note = bytes.get(..NOTE_BYTES)?;
    (note[..8] == MAGIC[..] && u32_at(note, 32) == crc32c::crc32c(&note[..32])).then(|| Lsn(u64_at(note, 24)))
}

#[cfg(test)]
mod tests {
    use savanna_epoch::NodeEpoch;

    use super::*;
    use crate::sim::SimDisk;

    fn term(epoch: u64) -> Term {
        Term { epoch: NodeEpoch(epoch), opening: 1 }
    }

    fn read_back(disk: &Arc<SimDisk>) -> Option<Lsn> {
        read(disk.as_ref()).expect("a list").map(|noted| noted.durable)
    }

    #[test]
    fn the_furthest_note_is_read_whichever_place_is_torn() {
        let disk = SimDisk::new(1);
        assert_eq!(read_back(&disk), None);
        let mut notes = HighWater::begin(Arc::clone(&disk) as _, term(1), Lsn(3)).expect("begun");
        for durable in 4..9 {
            notes.note(Lsn(durable));
            assert_eq!(read_back(&disk), Some(Lsn(durable)));
        }
        // 3 was at the first place, 8 is at the second.
        disk.flip("high-water-00000000000000000001-0000000001", 512 + 25, 0);
        assert_eq!(read_back(&disk), Some(Lsn(7)));
        disk.flip("high-water-00000000000000000001-0000000001", 25, 0);
        assert_eq!(read_back(&disk), None);
    }

    #[test]
    fn a_former_owner_that_goes_on_writing_changes_nothing() {
        let disk = SimDisk::new(1);
        let mut former = HighWater::begin(Arc::clone(&disk) as _, term(1), Lsn(3)).expect("begun");
        let _own = HighWater::begin(Arc::clone(&disk) as _, term(2), Lsn(9)).expect("begun");
        former.note(Lsn(5));
        assert_eq!(read_back(&disk), Some(Lsn(9)));
    }
}
