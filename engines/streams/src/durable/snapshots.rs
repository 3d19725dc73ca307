//! The snapshots of one query on a disk.
//!
//! ```text
//!   manifest-<owner>-<epoch>          what a snapshot consists of: that of the last owner, and of its own that of the last epoch, counts
//!   <owner>-<epoch>-<stage>-<part>    the state of a member, or what has changed of it since the file before
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
use savanna_streams_connectors::crash::crash_at;
use savanna_streams_runtime::snapshot::{Manifest, PartFile, Snapshot, SnapshotStore, State, read_state};
use serde::{Deserialize, Serialize};

use super::store::HasItsPlace;
use super::stored::{decode_with_snapshot, encode_with};

const MANIFEST: &str = "manifest-";
const NEXT: &str = ".next";
/// A manifest that is longer is none: it has 100 bytes for each file of a member, of which there are 17 at most.
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
        let read =
            |file: &PartFile| self.disk.read(&file.name, file.bytes.saturating_add(1)).map_err(|e| e.to_string());
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
            let former = self.former(&places, &names)?;
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

    /// The manifest of former owners that counts, if these are their places and names.
    ///
    /// It is that of the last owner, unless one of another owner is of a later epoch and all of its files are there: that owner has switched
    /// once more while the last one made a former snapshot its own, which ended before it looked again. What an owner writes itself is of
    /// epochs behind all that were recorded when it came.
    fn former(&self, places: &BTreeSet<Place>, names: &[String]) -> Result<Option<Place>> {
        let former = places.iter().filter(|place| place.owner < self.owner);
        let Some(last) = former.clone().next_back() else { return Ok(None) };
        let mut later: Vec<Place> = former.filter(|place| place.epoch > last.epoch).copied().collect();
        later.sort_by_key(|place| place.epoch);
        for place in later.into_iter().rev() {
            if self.read(place)?.is_some_and(|manifest| check_named(&manifest, names).is_ok()) {
                return Ok(Some(place));
            }
        }
        Ok(Some(*last))
    }

    fn read(&self, place: Place) -> Result<Option<Manifest>> {
        let name = place.name();
        let bytes = self.disk.read(&name, MANIFEST_MAX).map_err(|error| self.unreadable(&name, &error.to_string()))?;
        let owned = match bytes.split_first_chunk::<4>() {
            Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => {
                decode_with_snapshot::<Owned>(rest)
            }
            _ => Err(format!("it is damaged: its {} bytes do not have its checksum", bytes.len())),
        };
        owned.map(|owned| owned.manifest).map_err(|cause| self.unreadable(&name, &cause))
    }

    /// Writes a manifest beside its place, durably, with the names of all that it names.
    fn prepare(&self, place: Place, manifest: Option<Manifest>) -> Result<()> {
        (self.make)()?;
        let owned = Owned { owner: self.owner, manifest };
        let record = encode_with(owned.manifest.as_ref(), &owned)?;
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
    /// Another manifest counts than this one, or will, if these are the names that are there.
    fn check_last(&self, place: Place, names: &[String]) -> Result<()> {
        let last = names.iter().filter_map(|name| Place::parse(name)).max();
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
        if counts.is_some_and(|place| place.owner > self.owner) {
            // What is of former owners goes by the later one, which may be taking over just now what this one was the last to switch.
            return Ok(());
        }
        let named: BTreeSet<String> = match counts {
            Some(place) => self.read(place)?.iter().flat_map(Manifest::files).map(|file| file.name).collect(),
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

/// The states that a manifest names: of each part the whole, and all that has changed since.
///
/// # Errors
/// The file that cannot be read, and why.
pub(super) fn read_parts(
    manifest: &Manifest,
    read: impl Fn(&PartFile) -> Result<Vec<u8>, String>,
) -> Result<Vec<State>, (String, String)> {
    let checked = |file: &PartFile| -> Result<Vec<u8>, String> {
        let bytes = read(file)?;
        check(&bytes, file.bytes, file.checksum)?;
        Ok(bytes)
    };
    manifest.parts.iter().map(|part| part.read(checked)).collect()
}

/// Whether all files are among these names that a manifest names: those of before may have gone, by whatever hand.
///
/// # Errors
/// Which one is not.
pub(super) fn check_named(manifest: &Manifest, names: &[String]) -> Result<(), String> {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    match manifest.files().find(|file| !names.contains(file.name.as_str())) {
        None => Ok(()),
        Some(file) => Err(format!("expected the file {}, which it names, and it is gone", file.name)),
    }
}

/// A state of which length and checksum are known.
///
/// # Errors
/// It is damaged.
pub(super) fn read_checked(bytes: &[u8], length: u64, checksum: u32) -> Result<State, String> {
    check(bytes, length, checksum)?;
    read_state(bytes)
}

fn check(bytes: &[u8], length: u64, checksum: u32) -> Result<(), String> {
    if bytes.len() as u64 != length {
        return Err(format!("it is damaged: expected {length} bytes, got {}", bytes.len()));
    }
    if crc32c::crc32c(bytes) != checksum {
        return Err(format!("it is damaged: its {length} bytes do not have its checksum"));
    }
    Ok(())
}

impl SnapshotStore for QuerySnapshots {
    fn put(
        &self,
        epoch: Epoch,
        stage: StageId,
        shuffle: u16,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PartFile> {
        (self.make)()?;
        let name = format!("{}-{}-{}-{shuffle}", self.owner.0, epoch.0, stage.0);
        let (bytes, checksum) = write_file(self.disk.as_ref(), &name, write).map_err(|e| self.failed(&name, &e))?;
        crash_at("snapshot-part");
        Ok(PartFile { name, bytes, checksum })
    }

    fn switch(&self, manifest: &Manifest) -> Result<()> {
        let place = Place { owner: self.owner, epoch: manifest.record.epoch };
        self.prepare(place, Some(manifest.clone()))?;
        let names = self.list()?;
        self.check_last(place, &names)?;
        check_named(manifest, &names).map_err(|cause| self.failed(&place.name(), &cause))?;
        // Last: what was written may have taken long.
        if self.has_its_place.as_ref().is_some_and(|has_its_place| !(has_its_place.0)()) {
            return Err(self.failed(&place.name(), &"another process may have this data directory"));
        }
        crash_at("snapshot-written");
        self.rename(place)?;
        crash_at("snapshot-switched");
        // Who was paused before the rename has switched nothing, and cuts no records.
        self.check_last(place, &self.list()?)?;
        self.tidy();
        crash_at("snapshot-tidied");
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
mod tests;
