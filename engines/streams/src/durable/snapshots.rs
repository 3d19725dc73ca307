//! The snapshots of one query on a disk.
//!
//! ```text
//!   manifest                          what the snapshot that counts consists of; switched by a rename
//!   <owner>-<epoch>-<stage>-<part>    the state of a member
//! ```

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use savanna_epoch::NodeEpoch;
use savanna_journal::{Disk, DiskFile};
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::snapshot::{Manifest, Part, Snapshot, SnapshotStore, State, read_state};
use serde::{Deserialize, Serialize};

use super::store::HasItsPlace;
use super::stored::{decode, encode};

const MANIFEST: &str = "manifest";
const NEXT_MANIFEST: &str = "manifest.next";
/// A manifest that is longer is none: it has 200 bytes for each member.
const MANIFEST_MAX: u64 = 64 << 20;
/// So many bytes are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Where the snapshots of a query are.
pub(crate) struct QuerySnapshots {
    disk: Arc<dyn Disk>,
    owner: NodeEpoch,
    has_its_place: Option<HasItsPlace>,
    /// Makes the directory.
    make: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

/// The form of a manifest: its CRC-32C, then a record.
#[derive(Serialize, Deserialize)]
struct Owned {
    /// The epoch of the node that switched it.
    owner: NodeEpoch,
    manifest: Manifest,
}

impl fmt::Debug for QuerySnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuerySnapshots").field("manifest", &self.disk.describe(MANIFEST)).finish_non_exhaustive()
    }
}

impl QuerySnapshots {
    /// Opens the snapshots on a disk, and reads the one that counts.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: with file and place.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        owner: NodeEpoch,
        has_its_place: Option<HasItsPlace>,
        make: Box<dyn Fn() -> Result<()> + Send + Sync>,
    ) -> Result<(Arc<Self>, Option<Snapshot>)> {
        let snapshots = Self { disk, owner, has_its_place, make };
        let found = snapshots.manifest()?.map(|Owned { manifest, .. }| {
            let states = read_parts(snapshots.disk.as_ref(), &manifest);
            let states = states.map_err(|(name, cause)| snapshots.unreadable(&name, &cause));
            states.map(|states| Snapshot { manifest, states })
        });
        let found = found.transpose()?;
        snapshots.tidy();
        Ok((Arc::new(snapshots), found))
    }

    fn manifest(&self) -> Result<Option<Owned>> {
        let bytes = match self.disk.read(MANIFEST, MANIFEST_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unreadable(MANIFEST, &error.to_string())),
        };
        let owned = match bytes.split_first_chunk::<4>() {
            Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => decode(rest),
            _ => Err(format!("it is damaged: its {} bytes do not have its checksum", bytes.len())),
        };
        owned.map(Some).map_err(|cause| self.unreadable(MANIFEST, &cause))
    }

    fn unreadable(&self, name: &str, cause: &str) -> StreamError {
        let cause = format!(
            "{cause}; restore it, or remove the directory: the query is computed from its records, if they reach far enough"
        );
        StreamError::io(format!("read the snapshot in {}", self.disk.describe(name)), &cause)
    }

    fn failed(&self, name: &str, error: &dyn fmt::Display) -> StreamError {
        StreamError::io(format!("write {}", self.disk.describe(name)), &error.to_string())
    }

    /// The owner of a part, by its name.
    fn owner_of(name: &str) -> Option<NodeEpoch> {
        name.split('-').next()?.parse().ok().map(NodeEpoch)
    }
}

/// Writes a file in the place of one of its name, durably but for its name. Tells its length and CRC-32C.
pub(super) fn write_file(
    disk: &dyn Disk,
    name: &str,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<(u64, u32)> {
    if disk.exists(name)? {
        disk.remove(name)?;
    }
    let file = Summed { file: disk.create(name)?, at: 0, checksum: 0 };
    let mut out = io::BufWriter::with_capacity(WRITE_BYTES, file);
    write(&mut out)?;
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.file.sync()?;
    Ok((file.at, file.checksum))
}

/// The states that a manifest names.
///
/// # Errors
/// The file that cannot be read, and why.
pub(super) fn read_parts(disk: &dyn Disk, manifest: &Manifest) -> Result<Vec<State>, (String, String)> {
    let read = |part: &Part| {
        let bytes = disk.read(&part.name, part.bytes.saturating_add(1)).map_err(|e| e.to_string())?;
        let came = (bytes.len() as u64, crc32c::crc32c(&bytes));
        if came != (part.bytes, part.checksum) {
            return Err(format!(
                "it is damaged: expected {} bytes with checksum {:08x}, got {} with {:08x}",
                part.bytes, part.checksum, came.0, came.1
            ));
        }
        read_state(&bytes)
    };
    manifest.parts.iter().map(|part| read(part).map_err(|cause| (part.name.clone(), cause))).collect()
}

impl SnapshotStore for QuerySnapshots {
    fn put(
        &self,
        epoch: Epoch,
        stage: StageId,
        shuffle: u16,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(String, u64, u32)> {
        (self.make)()?;
        let name = format!("{}-{}-{}-{shuffle}", self.owner.0, epoch.0, stage.0);
        let (bytes, checksum) = write_file(self.disk.as_ref(), &name, write).map_err(|e| self.failed(&name, &e))?;
        Ok((name, bytes, checksum))
    }

    fn switch(&self, manifest: &Manifest) -> Result<()> {
        if self.has_its_place.as_ref().is_some_and(|has_its_place| !(has_its_place.0)()) {
            return Err(self.failed(MANIFEST, &"another process may have this data directory"));
        }
        if let Some(other) = self.manifest()?.map(|owned| owned.owner).filter(|owner| *owner > self.owner) {
            let cause =
                format!("it was written by the owner of epoch {}, and this one has epoch {}", other.0, self.owner.0);
            return Err(self.failed(MANIFEST, &cause));
        }
        let record = encode(&Owned { owner: self.owner, manifest: manifest.clone() })?;
        let rename = || {
            write_file(self.disk.as_ref(), NEXT_MANIFEST, &mut |out| {
                out.write_all(&crc32c::crc32c(&record).to_le_bytes())?;
                out.write_all(&record)
            })?;
            // The names of the parts first.
            self.disk.sync_dir()?;
            self.disk.rename(NEXT_MANIFEST, MANIFEST)?;
            self.disk.sync_dir()
        };
        rename().map_err(|error| self.failed(MANIFEST, &error))?;
        self.tidy();
        Ok(())
    }

    fn tidy(&self) {
        let tidied = || {
            let counts = self.manifest()?.map_or_else(Vec::new, |owned| owned.manifest.parts);
            for name in self.disk.list().map_err(|error| self.failed(MANIFEST, &error))? {
                let is_named = counts.iter().any(|part| part.name == name);
                // Those of an owner that came later are its own.
                let is_ours = Self::owner_of(&name).is_none_or(|owner| owner <= self.owner);
                if name != MANIFEST && !is_named && is_ours {
                    self.disk.remove(&name).map_err(|error| self.failed(&name, &error))?;
                }
            }
            Ok(())
        };
        if let Err(error) = tidied() {
            let error: StreamError = error;
            tracing::warn!(%error, "what snapshots have left behind stays");
        }
    }
}

/// A file that is written from its beginning, with its CRC-32C.
struct Summed {
    file: Box<dyn DiskFile>,
    at: u64,
    checksum: u32,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use savanna_journal::sim::SimDisk;
    use savanna_streams_api::ids::QueryId;
    use savanna_streams_model::time::EventTime;
    use savanna_streams_runtime::driver::EpochRecord;
    use savanna_streams_runtime::snapshot::write_state;

    use super::*;

    fn open(disk: &Arc<SimDisk>, owner: u64) -> Result<(Arc<QuerySnapshots>, Option<Snapshot>)> {
        QuerySnapshots::open(Arc::clone(disk) as _, NodeEpoch(owner), None, Box::new(|| Ok(())))
    }

    fn state(number: i64) -> State {
        State { marks: BTreeMap::from([("number".to_owned(), number)]), tables: Vec::new() }
    }

    fn part(snapshots: &QuerySnapshots, epoch: u64) -> Part {
        let mut write = |out: &mut dyn Write| write_state(&state(epoch as i64), out);
        let (name, bytes, checksum) = snapshots.put(Epoch(epoch), StageId(1), 0, &mut write).unwrap();
        Part { stage: StageId(1), shuffle: 0, members: 1, name, bytes, checksum }
    }

    fn manifest(epoch: u64, part: Part) -> Manifest {
        let epoch = Epoch(epoch);
        let record = EpochRecord { epoch, processing_time: EventTime(7), sources: Vec::new(), committed: epoch };
        let query = QueryId { code: "0123456789ab".into(), job: 7 };
        Manifest { query, record, rows_at: EventTime(7), signatures: vec!["panes".into()], parts: vec![part] }
    }

    fn counts(disk: &Arc<SimDisk>, owner: u64) -> Option<(u64, Vec<State>)> {
        let (_, found) = open(disk, owner).unwrap();
        found.map(|found| (found.manifest.record.epoch.0, found.states))
    }

    #[test]
    fn the_snapshot_that_was_switched_last_counts_whenever_the_power_fails() {
        let disk = SimDisk::new(1);
        let (snapshots, found) = open(&disk, 1).unwrap();
        assert!(found.is_none());
        let first = part(&snapshots, 3);
        disk.crash();
        assert_eq!(counts(&disk, 2), None, "no manifest names it");
        assert!(disk.list().unwrap().is_empty(), "{first:?} is of no use");
        let (snapshots, _) = open(&disk, 3).unwrap();
        snapshots.switch(&manifest(5, part(&snapshots, 5))).unwrap();
        part(&snapshots, 9);
        disk.crash();
        assert_eq!(counts(&disk, 4), Some((5, vec![state(5)])));
        let (snapshots, _) = open(&disk, 5).unwrap();
        snapshots.switch(&manifest(9, part(&snapshots, 9))).unwrap();
        disk.crash();
        assert_eq!(counts(&disk, 6), Some((9, vec![state(9)])));
        assert_eq!(disk.list().unwrap().len(), 2, "what it replaces is gone: {:?}", disk.list());
    }

    #[test]
    fn a_former_owner_switches_nothing_and_removes_nothing_of_the_one_that_came_later() {
        let disk = SimDisk::new(1);
        let (former, _) = open(&disk, 1).unwrap();
        let of_former = part(&former, 4);
        let (later, _) = open(&disk, 2).unwrap();
        let of_later = part(&later, 4);
        former.tidy();
        later.switch(&manifest(4, of_later)).unwrap();
        let error = former.switch(&manifest(4, of_former)).unwrap_err().to_string();
        assert!(error.contains("it was written by the owner of epoch 2, and this one has epoch 1"), "{error}");
        let has_its_place = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_its_place);
        let place = Some(HasItsPlace(Arc::new(move || asked.load(Ordering::Acquire))));
        let (paused, _) =
            QuerySnapshots::open(Arc::clone(&disk) as _, NodeEpoch(3), place, Box::new(|| Ok(()))).unwrap();
        let of_paused = part(&paused, 8);
        assert!(paused.switch(&manifest(8, of_paused.clone())).unwrap_err().to_string().contains("another process"));
        has_its_place.store(true, Ordering::Release);
        paused.switch(&manifest(8, of_paused)).unwrap();
        assert_eq!(counts(&disk, 4), Some((8, vec![state(8)])));
    }

    #[test]
    fn a_snapshot_that_is_damaged_is_refused_with_its_place() {
        let disk = SimDisk::new(1);
        let (snapshots, _) = open(&disk, 1).unwrap();
        let part = part(&snapshots, 5);
        snapshots.switch(&manifest(5, part.clone())).unwrap();
        let overwrite = |name: &str, bytes: &[u8]| {
            disk.remove(name).unwrap();
            disk.create(name).unwrap().write_at(bytes, 0).unwrap();
        };
        let refused = || open(&disk, 2).unwrap_err().to_string();
        let good = disk.read(MANIFEST, MANIFEST_MAX).unwrap();
        let mut bad = good.clone();
        bad[20] ^= 1;
        overwrite(MANIFEST, &bad);
        assert!(refused().contains("manifest") && refused().contains("it is damaged"), "{}", refused());
        overwrite(MANIFEST, &good);
        let whole = disk.read(&part.name, part.bytes).unwrap();
        let mut bad = whole.clone();
        bad[9] ^= 1;
        overwrite(&part.name, &bad);
        assert!(refused().contains(&part.name) && refused().contains("it is damaged"), "{}", refused());
        overwrite(&part.name, &whole[..whole.len() - 1]);
        assert!(refused().contains("it is damaged: expected"), "{}", refused());
        disk.remove(&part.name).unwrap();
        assert!(refused().contains(&part.name), "{}", refused());
    }

    /// The bytes that the first release with them wrote.
    #[test]
    fn manifests_of_version_1_are_read() {
        let record = b"\x01{\"owner\":1,\"manifest\":{\"query\":{\"code\":\"0123456789ab\",\"job\":7},\"record\":{\"epoch\":5,\"processing_time\":7,\
            \"sources\":[],\"committed\":5},\"rows_at\":7,\"signatures\":[\"panes\"],\"parts\":[]}}";
        let disk = SimDisk::new(1);
        let mut file = disk.create(MANIFEST).unwrap();
        file.write_at(&[&crc32c::crc32c(record).to_le_bytes(), record.as_slice()].concat(), 0).unwrap();
        let (epoch, states) = counts(&disk, 2).unwrap();
        assert_eq!((epoch, states.len()), (5, 0));
    }
}
