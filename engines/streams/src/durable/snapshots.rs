//! The snapshots of one query on a disk.
//!
//! ```text
//!   manifest-<owner>-<epoch>          what a snapshot consists of: that of the last owner, and of its own that of the last epoch, counts
//!   <owner>-<epoch>-<stage>-<part>    the state of a member
//! ```
//!
//! Nothing is written over. What a former owner does late changes nothing: its numbers are lower. Before an owner removes what former ones
//! have left, it makes the snapshot that counts its own; and nothing goes before what counts instead is durable with its name.

use std::collections::BTreeSet;
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

const MANIFEST: &str = "manifest-";
const NEXT: &str = ".next";
/// A manifest that is longer is none: it has 200 bytes for each member.
const MANIFEST_MAX: u64 = 64 << 20;
/// So many bytes are written at once.
pub(super) const WRITE_BYTES: usize = 256 << 10;

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
    /// The epoch of the node that wrote it.
    owner: NodeEpoch,
    /// None if there was no snapshot when the node took the directory over.
    manifest: Option<Manifest>,
}

/// Which manifest: the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    owner: NodeEpoch,
    epoch: Epoch,
}

impl Place {
    fn parse(name: &str) -> Option<Self> {
        let [owner, epoch] = numbers(name.strip_prefix(MANIFEST)?)?;
        Some(Self { owner: NodeEpoch(owner), epoch: Epoch(epoch) })
    }

    fn name(&self) -> String {
        format!("{MANIFEST}{}-{}", self.owner.0, self.epoch.0)
    }
}

/// The numbers that a name consists of, with `-` between them.
pub(super) fn numbers<const N: usize>(name: &str) -> Option<[u64; N]> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    name.split('-').map(number).collect::<Option<Vec<u64>>>()?.try_into().ok()
}

/// Whether this is the name of a part, and of nothing else.
pub(super) fn is_part(name: &str) -> bool {
    numbers::<4>(name).is_some()
}

/// The owner of a file; none if it is not one of these.
fn owner_of(name: &str) -> Option<NodeEpoch> {
    let of_manifest = || Place::parse(name.strip_suffix(NEXT).unwrap_or(name)).map(|place| place.owner);
    numbers::<4>(name).map(|[owner, ..]| NodeEpoch(owner)).or_else(of_manifest)
}

impl fmt::Debug for QuerySnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuerySnapshots").field("directory", &self.disk.describe("")).finish_non_exhaustive()
    }
}

impl QuerySnapshots {
    /// Opens the snapshots on a disk, makes the one that counts this owner's, and reads it; or tells why it cannot be read, with file and
    /// place.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        owner: NodeEpoch,
        has_its_place: Option<HasItsPlace>,
        make: Box<dyn Fn() -> Result<()> + Send + Sync>,
    ) -> (Arc<Self>, Result<Option<Snapshot>>) {
        let snapshots = Self { disk, owner, has_its_place, make };
        let found = snapshots.counting();
        if found.is_ok() {
            snapshots.tidy();
        }
        (Arc::new(snapshots), found)
    }

    fn counting(&self) -> Result<Option<Snapshot>> {
        let Some(place) = self.claim()? else { return Ok(None) };
        let Some(manifest) = self.read(place)? else { return Ok(None) };
        let read = |part: &Part| self.disk.read(&part.name, part.bytes.saturating_add(1)).map_err(|e| e.to_string());
        let states = read_parts(&manifest, read).map_err(|(name, cause)| self.unreadable(&name, &cause))?;
        Ok(Some(Snapshot { manifest, states }))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.disk.list().map_err(|error| self.unreadable("", &error.to_string()))
    }

    /// The manifest that counts, which is this owner's or that of a later one, and is durable; none if there is nothing of former owners
    /// and none of its own.
    fn claim(&self) -> Result<Option<Place>> {
        let mut names = self.list()?;
        if names.iter().any(|name| owner_of(name).is_some()) {
            // What is seen was perhaps not durable when its process was killed.
            self.disk.sync_dir().map_err(|error| self.failed("", &error))?;
        }
        loop {
            let places: BTreeSet<Place> = names.iter().filter_map(|name| Place::parse(name)).collect();
            let last = places.last().copied();
            if last.is_some_and(|last| last.owner > self.owner) {
                return Ok(last);
            }
            let former = places.iter().rev().find(|place| place.owner < self.owner).copied();
            // A former owner may have switched once more just before it could see that this one is there.
            let is_own =
                |last: Place| last.owner == self.owner && former.is_none_or(|former| former.epoch <= last.epoch);
            let has_former = names.iter().any(|name| owner_of(name).is_some_and(|owner| owner < self.owner));
            if last.is_some_and(is_own) || !has_former {
                return Ok(last);
            }
            let manifest = former.map(|former| self.read(former)).transpose()?.flatten();
            let place = Place { owner: self.owner, epoch: former.map_or(Epoch::ZERO, |former| former.epoch) };
            self.prepare(place, manifest)?;
            self.rename(place)?;
            names = self.list()?;
        }
    }

    fn read(&self, place: Place) -> Result<Option<Manifest>> {
        let name = place.name();
        let bytes = self.disk.read(&name, MANIFEST_MAX).map_err(|error| self.unreadable(&name, &error.to_string()))?;
        let owned = match bytes.split_first_chunk::<4>() {
            Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => decode::<Owned>(rest),
            _ => Err(format!("it is damaged: its {} bytes do not have its checksum", bytes.len())),
        };
        owned.map(|owned| owned.manifest).map_err(|cause| self.unreadable(&name, &cause))
    }

    /// Writes a manifest beside its place, durably, with the names of all that it names.
    fn prepare(&self, place: Place, manifest: Option<Manifest>) -> Result<()> {
        (self.make)()?;
        let record = encode(&Owned { owner: self.owner, manifest })?;
        let name = place.name() + NEXT;
        let write = || {
            write_file(self.disk.as_ref(), &name, &mut |out| {
                out.write_all(&crc32c::crc32c(&record).to_le_bytes())?;
                out.write_all(&record)
            })?;
            self.disk.sync_dir()
        };
        write().map_err(|error| self.failed(&name, &error))
    }

    fn rename(&self, place: Place) -> Result<()> {
        let name = place.name();
        let renamed = self.disk.rename(&(place.name() + NEXT), &name).and_then(|()| self.disk.sync_dir());
        renamed.map_err(|error| self.failed(&name, &error))
    }

    /// # Errors
    /// Another manifest counts than this one, or will.
    fn check_last(&self, place: Place) -> Result<()> {
        let last = self.list()?.iter().filter_map(|name| Place::parse(name)).max();
        match last.filter(|last| *last > place) {
            None => Ok(()),
            Some(other) => Err(self.failed(
                &place.name(),
                &format!(
                    "that of epoch {} was written by the owner of epoch {}, and this one has epoch {}",
                    other.epoch, other.owner.0, self.owner.0
                ),
            )),
        }
    }

    fn try_tidy(&self) -> Result<()> {
        let counts = self.claim()?;
        let named: BTreeSet<String> = match counts {
            Some(place) => {
                self.read(place)?.into_iter().flat_map(|manifest| manifest.parts).map(|part| part.name).collect()
            }
            None => BTreeSet::new(),
        };
        // Those of an owner that came later are its own.
        let is_ours = |name: &String| owner_of(name).is_some_and(|owner| owner <= self.owner);
        let counting = counts.map(|place| place.name());
        for name in self.list()?.iter().filter(|name| is_ours(name)) {
            if Some(name) != counting.as_ref() && !named.contains(name) {
                self.disk.remove(name).map_err(|error| self.failed(name, &error))?;
            }
        }
        Ok(())
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
}

/// Writes a file in the place of one of its name, durably but for its name. Tells its length and CRC-32C.
fn write_file(
    disk: &dyn Disk,
    name: &str,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<(u64, u32)> {
    if disk.exists(name)? {
        disk.remove(name)?;
    }
    let file = Summed::new(Appended { file: disk.create(name)?, at: 0 });
    let mut out = io::BufWriter::with_capacity(WRITE_BYTES, file);
    write(&mut out)?;
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.out.file.sync()?;
    Ok((file.bytes, file.checksum))
}

/// The states that a manifest names.
///
/// # Errors
/// The file that cannot be read, and why.
pub(super) fn read_parts(
    manifest: &Manifest,
    read: impl Fn(&Part) -> Result<Vec<u8>, String>,
) -> Result<Vec<State>, (String, String)> {
    let state = |part: &Part| {
        let bytes = read(part)?;
        read_checked(&bytes, part.bytes, part.checksum)
    };
    manifest.parts.iter().map(|part| state(part).map_err(|cause| (part.name.clone(), cause))).collect()
}

/// A state of which length and checksum are known.
///
/// # Errors
/// It is damaged.
pub(super) fn read_checked(bytes: &[u8], length: u64, checksum: u32) -> Result<State, String> {
    if bytes.len() as u64 != length {
        return Err(format!("it is damaged: expected {length} bytes, got {}", bytes.len()));
    }
    if crc32c::crc32c(bytes) != checksum {
        return Err(format!("it is damaged: its {length} bytes do not have its checksum"));
    }
    read_state(bytes)
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
        let place = Place { owner: self.owner, epoch: manifest.record.epoch };
        self.prepare(place, Some(manifest.clone()))?;
        self.check_last(place)?;
        // Last: what was written may have taken long.
        if self.has_its_place.as_ref().is_some_and(|has_its_place| !(has_its_place.0)()) {
            return Err(self.failed(&place.name(), &"another process may have this data directory"));
        }
        self.rename(place)?;
        // Who was paused before the rename has switched nothing, and cuts no records.
        self.check_last(place)?;
        self.tidy();
        Ok(())
    }

    fn tidy(&self) {
        if let Err(error) = self.try_tidy() {
            tracing::warn!(%error, "what snapshots have left behind stays");
        }
    }
}

/// A file that is written from its beginning.
pub(super) struct Appended {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) at: u64,
}

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is written, with its length and CRC-32C.
pub(super) struct Summed<W> {
    pub(super) out: W,
    pub(super) bytes: u64,
    pub(super) checksum: u32,
}

impl<W> Summed<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, bytes: 0, checksum: 0 }
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use savanna_journal::sim::{Fault, SimDisk};
    use savanna_streams_api::ids::QueryId;
    use savanna_streams_model::time::EventTime;
    use savanna_streams_runtime::driver::EpochRecord;
    use savanna_streams_runtime::snapshot::write_state;

    use super::*;

    fn open(disk: &Arc<SimDisk>, owner: u64) -> Result<(Arc<QuerySnapshots>, Option<Snapshot>)> {
        let (snapshots, found) =
            QuerySnapshots::open(Arc::clone(disk) as _, NodeEpoch(owner), None, Box::new(|| Ok(())));
        Ok((snapshots, found?))
    }

    fn unopened(disk: &Arc<SimDisk>, owner: u64) -> QuerySnapshots {
        let disk = Arc::clone(disk) as Arc<dyn Disk>;
        QuerySnapshots { disk, owner: NodeEpoch(owner), has_its_place: None, make: Box::new(|| Ok(())) }
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
        let record = EpochRecord {
            epoch,
            processing_time: EventTime(7),
            sources: Vec::new(),
            committed: epoch,
            lookups: Vec::new(),
            layout: savanna_streams_runtime::driver::Layout::default(),
        };
        let query = QueryId { code: "0123456789ab".into(), job: 7 };
        Manifest { query, record, rows_at: EventTime(7), signatures: vec!["panes".into()], parts: vec![part] }
    }

    fn counts(disk: &Arc<SimDisk>, owner: u64) -> Option<(u64, Vec<State>)> {
        let (_, found) = open(disk, owner).unwrap();
        found.map(|found| (found.manifest.record.epoch.0, found.states))
    }

    #[test]
    fn the_snapshot_that_was_switched_last_counts_whenever_the_power_fails() {
        for seed in 0..60 {
            let disk = SimDisk::new(seed);
            let (snapshots, found) = open(&disk, 1).unwrap();
            assert!(found.is_none());
            let first = part(&snapshots, 3);
            disk.crash();
            assert_eq!(counts(&disk, 2), None, "no manifest names it");
            assert!(!disk.exists(&first.name).unwrap(), "{first:?} is of no use");
            let (snapshots, _) = open(&disk, 3).unwrap();
            snapshots.switch(&manifest(5, part(&snapshots, 5))).unwrap();
            part(&snapshots, 9);
            disk.crash();
            assert_eq!(counts(&disk, 4), Some((5, vec![state(5)])));
            let (snapshots, _) = open(&disk, 5).unwrap();
            snapshots.switch(&manifest(9, part(&snapshots, 9))).unwrap();
            disk.crash();
            assert_eq!(counts(&disk, 6), Some((9, vec![state(9)])), "seed {seed}");
            assert_eq!(disk.list().unwrap().len(), 2, "what it replaces is gone: {:?}", disk.list());
        }
    }

    /// A disk on which the snapshot of epoch 5 counts, and its owner.
    fn with_a_snapshot(seed: u64) -> (Arc<SimDisk>, Arc<QuerySnapshots>) {
        let disk = SimDisk::new(seed);
        let (snapshots, _) = open(&disk, 1).unwrap();
        snapshots.switch(&manifest(5, part(&snapshots, 5))).unwrap();
        (disk, snapshots)
    }

    #[test]
    fn the_former_snapshot_or_the_new_one_counts_whatever_fails_within_a_switch_and_the_power_behind_it() {
        let (mut switched, mut failed) = (0, 0);
        for (seed, fault) in (0..40).flat_map(|seed| [Fault::Error, Fault::Full, Fault::PowerCut].map(|f| (seed, f))) {
            for step in 1..24 {
                let (disk, snapshots) = with_a_snapshot(seed);
                let next = part(&snapshots, 9);
                disk.fail(step, fault);
                let is_switched = snapshots.switch(&manifest(9, next)).is_ok();
                (switched, failed) = (switched + i32::from(is_switched), failed + i32::from(!is_switched));
                if !is_switched {
                    // As the query does when a snapshot is given up.
                    snapshots.tidy();
                }
                disk.crash();
                let found = counts(&disk, 2);
                let is_one = |epoch: u64| found == Some((epoch, vec![state(epoch as i64)]));
                assert!(is_one(9) || !is_switched && is_one(5), "seed {seed}, {fault:?} at {step}: {found:?}");
            }
        }
        assert!(switched > 100 && failed > 100, "{switched} switched, {failed} failed");
    }

    #[test]
    fn a_manifest_that_is_seen_is_durable_before_what_it_replaces_goes() {
        for seed in 0..60 {
            let (disk, snapshots) = with_a_snapshot(seed);
            let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
            snapshots.prepare(next, Some(manifest(9, part(&snapshots, 9)))).unwrap();
            // The process is killed behind the rename, before it is durable.
            disk.rename(&(next.name() + NEXT), &next.name()).unwrap();
            assert_eq!(counts(&disk, 2), Some((9, vec![state(9)])));
            disk.crash();
            assert_eq!(counts(&disk, 3), Some((9, vec![state(9)])), "seed {seed}");
        }
    }

    #[test]
    fn nothing_is_removed_while_it_is_not_known_what_is_durable() {
        for seed in 0..60 {
            let (disk, snapshots) = with_a_snapshot(seed);
            let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
            snapshots.prepare(next, Some(manifest(9, part(&snapshots, 9)))).unwrap();
            disk.rename(&(next.name() + NEXT), &next.name()).unwrap();
            // The second operation of tidying flushes the directory.
            disk.fail(2, Fault::Error);
            snapshots.tidy();
            disk.crash();
            let found = counts(&disk, 2).map(|(epoch, _)| epoch);
            assert!(matches!(found, Some(5 | 9)), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn a_former_owner_switches_nothing_and_removes_nothing_of_the_one_that_came_later() {
        let disk = SimDisk::new(1);
        let (former, _) = open(&disk, 1).unwrap();
        let of_former = part(&former, 4);
        let (later, _) = open(&disk, 2).unwrap();
        let of_later = part(&later, 4);
        former.tidy();
        assert!(disk.exists(&of_later.name).unwrap(), "it is its successor's");
        later.switch(&manifest(4, of_later)).unwrap();
        let error = former.switch(&manifest(4, of_former)).unwrap_err().to_string();
        assert!(error.contains("was written by the owner of epoch 2, and this one has epoch 1"), "{error}");
        let has_its_place = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_its_place);
        let place = Some(HasItsPlace(Arc::new(move || asked.load(Ordering::Acquire))));
        let (paused, _) = QuerySnapshots::open(Arc::clone(&disk) as _, NodeEpoch(3), place, Box::new(|| Ok(())));
        let of_paused = part(&paused, 8);
        assert!(paused.switch(&manifest(8, of_paused.clone())).unwrap_err().to_string().contains("another process"));
        has_its_place.store(true, Ordering::Release);
        paused.switch(&manifest(8, of_paused)).unwrap();
        assert_eq!(counts(&disk, 4), Some((8, vec![state(8)])));
    }

    /// A former owner that is paused where it was last asked whether it has its place, while this happens.
    fn paused_in_its_switch(seed: u64, meanwhile: impl Fn(&Arc<SimDisk>) + Send + Sync + 'static) -> Arc<SimDisk> {
        let (disk, _) = with_a_snapshot(seed);
        let there = Arc::clone(&disk);
        let place = HasItsPlace(Arc::new(move || {
            meanwhile(&there);
            true
        }));
        let disk_of_former = Arc::clone(&disk) as Arc<dyn Disk>;
        let (former, _) = QuerySnapshots::open(disk_of_former, NodeEpoch(2), Some(place), Box::new(|| Ok(())));
        former.switch(&manifest(9, part(&former, 9))).unwrap_err();
        former.tidy();
        disk
    }

    #[test]
    fn a_former_owner_that_renames_late_changes_nothing() {
        // The next owner has made the snapshot its own, and no more.
        let disk = paused_in_its_switch(1, |disk| {
            unopened(disk, 3).claim().unwrap();
        });
        assert_eq!(counts(&disk, 4), Some((5, vec![state(5)])));
        // It has removed what the former one had written for its next snapshot.
        let disk = paused_in_its_switch(1, |disk| drop(open(disk, 3).unwrap()));
        assert_eq!(counts(&disk, 4), Some((5, vec![state(5)])));
        // It has one that it wrote itself.
        let disk = paused_in_its_switch(1, |disk| {
            let later = unopened(disk, 3);
            later.claim().unwrap();
            let next = Place { owner: NodeEpoch(3), epoch: Epoch(12) };
            later.prepare(next, Some(manifest(12, part(&later, 12)))).unwrap();
            later.rename(next).unwrap();
        });
        assert_eq!(counts(&disk, 4), Some((12, vec![state(12)])));
    }

    #[test]
    fn a_snapshot_that_a_former_owner_switched_at_the_last_moment_is_taken_over() {
        let (disk, former) = with_a_snapshot(1);
        let (later, found) = open(&disk, 2).unwrap();
        assert_eq!(found.unwrap().manifest.record.epoch, Epoch(5));
        // As if it had looked before the later one was there.
        let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
        former.prepare(next, Some(manifest(9, part(&former, 9)))).unwrap();
        former.rename(next).unwrap();
        later.tidy();
        disk.crash();
        assert_eq!(counts(&disk, 3), Some((9, vec![state(9)])));
    }

    #[test]
    fn what_is_not_of_snapshots_stays() {
        let (disk, snapshots) = with_a_snapshot(1);
        for name in ["lost+found", "1-2-3", "1-2-3-x", "+1-2-3-4"] {
            disk.put(name, b"");
        }
        snapshots.tidy();
        assert_eq!(disk.list().unwrap(), ["+1-2-3-4", "1-2-3", "1-2-3-x", "1-5-1-0", "lost+found", "manifest-1-5"]);
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
        // The first attempt makes it its own.
        counts(&disk, 2);
        let manifest = Place { owner: NodeEpoch(2), epoch: Epoch(5) }.name();
        let good = disk.read(&manifest, MANIFEST_MAX).unwrap();
        let mut bad = good.clone();
        bad[20] ^= 1;
        overwrite(&manifest, &bad);
        assert!(refused().contains("manifest-2-5") && refused().contains("it is damaged"), "{}", refused());
        overwrite(&manifest, &good);
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
        let mut file = disk.create("manifest-1-5").unwrap();
        file.write_at(&[&crc32c::crc32c(record).to_le_bytes(), record.as_slice()].concat(), 0).unwrap();
        let (epoch, states) = counts(&disk, 2).unwrap();
        assert_eq!((epoch, states.len()), (5, 0));
    }
}
