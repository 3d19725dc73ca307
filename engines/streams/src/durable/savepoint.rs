//! Savepoints: a stopped query in a directory or in a folder of a bucket, with all that another node needs to go on with it.
//!
//! ```text
//!   savepoint                         the query, the records behind its snapshot, and the snapshot's manifest
//!   <owner>-<epoch>-<stage>-<part>    the state of a member
//!   table-<look-up>-<version>         a table in which it looks rows up, as it was read
//! ```
//!
//! The query keeps its id, by which its sink knows it: what the sink holds is not written again, wherever the query goes on.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::{Bucket, Created, is_url, local};
use savanna_streams_runtime::driver::EpochRecord;
use savanna_streams_runtime::snapshot::{Manifest, PartFile, Snapshot, State, write_state};
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::snapshots::{Summed, is_part, read_checked, read_parts};
use super::stored::{StoredQuery, decode, encode};

const SAVEPOINT: &str = "savepoint";
const NEXT: &str = "savepoint.next";
/// A savepoint that is longer is none: it has 300 bytes for each epoch behind the snapshot.
const SAVEPOINT_MAX: u64 = 1 << 30;
/// An object store may be away for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a savepoint has beside the parts of the snapshot.
#[derive(Serialize, Deserialize)]
struct Saved {
    query: StoredQuery,
    records: Vec<EpochRecord>,
    manifest: Option<Manifest>,
    /// The tables of look-ups that the records name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tables: Vec<TableFile>,
}

/// Where the table of a look-up is.
#[derive(Serialize, Deserialize)]
struct TableFile {
    lookup: u16,
    version: u64,
    bytes: u64,
    checksum: u32,
}

impl TableFile {
    fn name(&self) -> String {
        format!("table-{}-{}", self.lookup, self.version)
    }
}

/// The table of a look-up, as it was read.
#[derive(Debug)]
pub(crate) struct SavedTable {
    pub(crate) lookup: u16,
    pub(crate) version: u64,
    pub(crate) rows: State,
}

/// A query that was saved.
#[derive(Debug)]
pub(crate) struct Savepoint {
    pub(crate) query: StoredQuery,
    pub(crate) records: Vec<EpochRecord>,
    pub(crate) tables: Vec<SavedTable>,
    pub(crate) snapshot: Option<Snapshot>,
}

/// Where a savepoint is. What is in it may be anybody's.
enum Place {
    Directory(PathBuf),
    Bucket(Bucket),
}

impl Place {
    /// By its path, or by its URL.
    fn at(place: &Path) -> Result<Self> {
        Ok(match place.to_str().filter(|text| is_url(text)) {
            Some(url) => Self::Bucket(Bucket::of_url(url, PATIENCE)?),
            None => Self::Directory(place.to_str().and_then(local).unwrap_or(place).to_owned()),
        })
    }

    fn describe(&self, name: &str) -> String {
        match self {
            Self::Directory(directory) if name.is_empty() => directory.display().to_string(),
            Self::Directory(directory) => directory.join(name).display().to_string(),
            Self::Bucket(bucket) => bucket.describe(name),
        }
    }

    /// Makes it, sees whether it can be written, and keeps others out until [`Self::leave`].
    fn enter(&self) -> Result<()> {
        let is_empty = match self {
            Self::Directory(directory) => {
                let try_out = || -> io::Result<bool> {
                    let folder = Folder::make(directory)?;
                    if !folder.is_empty()? {
                        return Ok(false);
                    }
                    let written = folder.write(NEXT, &mut |out| out.write_all(b"a savepoint"));
                    let removed = folder.remove(NEXT);
                    written.and(removed)?;
                    Ok(true)
                };
                try_out().map_err(|error| self.failed(&error))?
            }
            // Whoever looks into it behind its claim sees all that others have written.
            Self::Bucket(bucket) => {
                let is_claimed = bucket.claim(NEXT)?;
                let is_empty = is_claimed && bucket.list_behind("", "")?.iter().all(|name| name == NEXT);
                if is_claimed && !is_empty {
                    self.leave();
                }
                is_empty
            }
        };
        match is_empty {
            true => Ok(()),
            false => Err(self.failed(&"there is something in it; name a directory that is empty or not there")),
        }
    }

    /// Others may have it.
    fn leave(&self) {
        self.remove(&[NEXT.to_owned()]);
    }

    /// Writes a new file, durably but for its name. Tells its length and CRC-32C.
    fn write(&self, name: &str, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<(u64, u32)> {
        match self {
            Self::Directory(directory) => Folder::at(directory).write(name, write).map_err(|error| self.failed(&error)),
            Self::Bucket(bucket) => {
                let mut out = Summed::new(Vec::new());
                write(&mut out).map_err(|error| self.failed(&error))?;
                create(bucket, name, &out.out.into())?;
                Ok((out.bytes, out.checksum))
            }
        }
    }

    /// Writes the file that makes the savepoint one, in one step, when all others are durable.
    fn write_last(&self, record: &[u8]) -> Result<()> {
        let record = [&crc32c::crc32c(record).to_le_bytes(), record].concat();
        match self {
            Self::Directory(directory) => {
                let folder = Folder::at(directory);
                let write = || {
                    folder.write(NEXT, &mut |out| out.write_all(&record))?;
                    folder.sync()?;
                    folder.rename(NEXT, SAVEPOINT)?;
                    folder.sync()
                };
                write().map_err(|error: io::Error| self.failed(&error))
            }
            Self::Bucket(bucket) => create(bucket, SAVEPOINT, &record.into()).inspect_err(|error| {
                // Perhaps it is there, and only the answer was lost.
                if matches!(error, StreamError::Io { .. } | StreamError::Denied { .. }) {
                    self.remove(&[SAVEPOINT.to_owned()]);
                }
            }),
        }
    }

    /// Removes what there is of some files.
    fn remove(&self, names: &[String]) {
        let removed = match self {
            Self::Directory(directory) => {
                let folder = Folder::at(directory);
                let remove = |name: &String| match folder.remove(name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(&error)),
                    _ => Ok(()),
                };
                names.iter().map(remove).fold(Ok(()), Result::and)
            }
            Self::Bucket(bucket) => bucket.remove(names),
        };
        if let Err(error) = removed {
            tracing::warn!(savepoint = self.describe(""), %error, "what is left of a savepoint stays");
        }
    }

    /// Reads a file that has so many bytes, or at most so many if `exactly` is false.
    fn read(&self, name: &str, bytes: u64, exactly: bool) -> Result<Vec<u8>, String> {
        match self {
            Self::Directory(directory) => Folder::at(directory).read(name, bytes, exactly),
            Self::Bucket(bucket) => bucket.read(name, bytes).map(|read| read.to_vec()).map_err(|e| e.to_string()),
        }
    }

    fn failed(&self, error: &dyn fmt::Display) -> StreamError {
        StreamError::io(format!("write the savepoint {}", self.describe("")), &error.to_string())
    }
}

/// Creates an object of a savepoint, or finds that it has done so when the answer was lost: the place is this process' alone.
fn create(bucket: &Bucket, name: &str, bytes: &Bytes) -> Result<()> {
    if bucket.create(name, bytes)? == Created::Now || bucket.read(name, bytes.len() as u64)? == *bytes {
        return Ok(());
    }
    Err(StreamError::invalid(format!("{} is there already; name another place", bucket.describe(name))))
}

/// Makes a place for a savepoint, and sees whether it can be written.
///
/// # Errors
/// It cannot, or has something in it.
pub(crate) fn prepare(place: &Path) -> Result<()> {
    let place = Place::at(place)?;
    place.enter()?;
    place.leave();
    Ok(())
}

impl Savepoint {
    /// Writes it to a place that has none. It is there as a whole or not at all.
    ///
    /// # Errors
    /// It cannot be written, or the place has something in it. Then nothing of it stays.
    pub(crate) fn write(self, place: &Path) -> Result<()> {
        self.write_to(&Place::at(place)?)
    }

    fn write_to(self, place: &Place) -> Result<()> {
        place.enter()?;
        let mut written = Vec::new();
        let wrote = self.write_files(place, &mut written).inspect_err(|_| place.remove(&written));
        place.leave();
        wrote
    }

    fn write_files(self, place: &Place, written: &mut Vec<String>) -> Result<()> {
        let mut write = |name: &str, state: &State| {
            let wrote = place.write(name, &mut |out| write_state(state, out));
            // What somebody else has put there is left alone.
            if !matches!(wrote, Err(StreamError::Invalid { .. })) {
                written.push(name.to_owned());
            }
            wrote
        };
        let manifest = match self.snapshot {
            None => None,
            Some(Snapshot { mut manifest, states }) => {
                for (part, state) in manifest.parts.iter_mut().zip(&states) {
                    let (bytes, checksum) = write(&part.name, state)?;
                    *part = part.rewritten(PartFile { name: part.name.clone(), bytes, checksum });
                }
                Some(manifest)
            }
        };
        let mut tables = Vec::new();
        for SavedTable { lookup, version, rows } in &self.tables {
            let mut file = TableFile { lookup: *lookup, version: *version, bytes: 0, checksum: 0 };
            (file.bytes, file.checksum) = write(&file.name(), rows)?;
            tables.push(file);
        }
        place.write_last(&encode(&Saved { query: self.query, records: self.records, manifest, tables })?)
    }

    /// Reads it. The place is one that others may write: nothing outside of it is read, and nothing is told of what does not fit.
    ///
    /// # Errors
    /// There is none, or it is damaged: with file and place.
    pub(crate) fn read(place: &Path) -> Result<Self> {
        Self::read_from(&Place::at(place)?)
    }

    fn read_from(place: &Place) -> Result<Self> {
        let failed = |cause: &str| StreamError::io(format!("read the savepoint {}", place.describe("")), &cause);
        let bytes = place.read(SAVEPOINT, SAVEPOINT_MAX, false).map_err(|e| failed(&format!("{SAVEPOINT}: {e}")))?;
        let saved = match bytes.split_first_chunk::<4>() {
            Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => decode(rest),
            _ => Err("it is damaged: its bytes do not have its checksum".to_owned()),
        };
        let Saved { query, records, manifest, tables } =
            saved.map_err(|cause| failed(&format!("{SAVEPOINT}: {cause}")))?;
        let snapshot = manifest.map(|manifest| {
            check_parts(&manifest).map_err(|cause| failed(&format!("{SAVEPOINT}: {cause}")))?;
            let read = |file: &PartFile| place.read(&file.name, file.bytes, true);
            let states = read_parts(&manifest, read).map_err(|(name, cause)| failed(&format!("{name}: {cause}")))?;
            Ok(Snapshot { manifest, states })
        });
        let table = |file: &TableFile| {
            let rows = place.read(&file.name(), file.bytes, true);
            let rows = rows.and_then(|bytes| read_checked(&bytes, file.bytes, file.checksum));
            let rows = rows.map_err(|cause| failed(&format!("{}: {cause}", file.name())))?;
            Ok(SavedTable { lookup: file.lookup, version: file.version, rows })
        };
        let tables = tables.iter().map(table).collect::<Result<_>>()?;
        Ok(Self { query, records, tables, snapshot: snapshot.transpose()? })
    }
}

/// Whether all parts are whole, have names of parts, and each its own.
fn check_parts(manifest: &Manifest) -> Result<(), String> {
    if manifest.has_changes() {
        return Err("expected whole states, got some with changes".into());
    }
    let mut names = BTreeSet::new();
    match manifest.files().find(|file| !is_part(&file.name) || !names.insert(file.name.clone())) {
        None => Ok(()),
        Some(file) => Err(format!("expected parts such as \"1-2-3-4\", each once, got {:?}", file.name)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use object_store::memory::InMemory;

    use super::super::stored::{Emptied, Standing};
    use super::*;
    use savanna_streams_api::ids::{Epoch, QueryId, StageId};
    use savanna_streams_model::time::EventTime;
    use savanna_streams_runtime::snapshot::Part;

    fn savepoint(names: &[&str]) -> Savepoint {
        let id = QueryId { code: "0123456789ab".into(), job: 7 };
        let query = StoredQuery {
            id: id.clone(),
            name: "q".into(),
            statement: "INSERT INTO o SELECT a FROM t".into(),
            parameters: Vec::new(),
            settings: BTreeMap::new(),
            relations: Vec::new(),
            standing: Standing::Stopped,
            emission: 0,
            anew_behind: Epoch::ZERO,
            kept_in: None,
            emptied: Emptied::default(),
        };
        let file = |name: &str| PartFile { name: name.to_owned(), bytes: 0, checksum: 0 };
        let part = |name: &&str| Part::whole(StageId(1), 0, 1, file(name));
        let (epoch, instant) = (Epoch(5), EventTime(7));
        let record = EpochRecord {
            epoch,
            processing_time: instant,
            sources: Vec::new(),
            committed: epoch,
            lookups: Vec::new(),
            layout: savanna_streams_runtime::driver::Layout::default(),
        };
        let parts: Vec<Part> = names.iter().map(part).collect();
        let states = vec![State::default(); parts.len()];
        let manifest = Manifest { query: id, record, rows_at: instant, signatures: Vec::new(), parts };
        Savepoint { query, records: Vec::new(), tables: Vec::new(), snapshot: Some(Snapshot { manifest, states }) }
    }

    /// Puts a file that says this of its parts in the place of a savepoint's.
    fn forge(directory: &Path, parts: Vec<Part>) {
        let Savepoint { query, records, snapshot, .. } = savepoint(&[]);
        let manifest = snapshot.map(|snapshot| Manifest { parts, ..snapshot.manifest });
        let record = encode(&Saved { query, records, manifest, tables: Vec::new() }).unwrap();
        let bytes = [&crc32c::crc32c(&record).to_le_bytes(), record.as_slice()].concat();
        fs::write(directory.join(SAVEPOINT), bytes).unwrap();
    }

    fn refused(directory: &Path) -> String {
        Savepoint::read(directory).unwrap_err().to_string()
    }

    #[test]
    fn a_savepoint_is_for_nobody_but_its_owner() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("new/q");
        savepoint(&["1-5-1-0"]).write(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for made in [&all.path().join("new"), &directory] {
            assert_eq!(mode(made), 0o700, "{}", made.display());
        }
        for file in ["savepoint", "1-5-1-0"] {
            assert_eq!(mode(&directory.join(file)), 0o600, "{file}");
        }
        assert_eq!(Savepoint::read(&directory).unwrap().snapshot.unwrap().states, [State::default()]);
    }

    #[test]
    fn a_savepoint_has_whole_states() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("q");
        let mut saved = savepoint(&["1-5-1-0"]);
        let change = PartFile { name: "1-6-1-0".into(), bytes: 7, checksum: 8 };
        saved.snapshot.as_mut().unwrap().manifest.parts[0].changes.push(change);
        saved.write(&directory).unwrap();
        let read = Savepoint::read(&directory).unwrap().snapshot.unwrap();
        assert!(!read.manifest.has_changes());
        assert_eq!(read.states, [State::default()]);
        let mut part = read.manifest.parts[0].clone();
        part.changes.push(part.base());
        forge(&directory, vec![part]);
        assert!(
            refused(&directory).contains("expected whole states, got some with changes"),
            "{}",
            refused(&directory)
        );
    }

    #[test]
    fn nothing_is_left_of_a_savepoint_that_could_not_be_written() {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("q");
        // The second part cannot be written.
        let error = savepoint(&["1-5-1-0", "no/such/directory"]).write(&directory).unwrap_err().to_string();
        assert!(error.contains("write the savepoint"), "{error}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        savepoint(&["1-5-1-0"]).write(&directory).unwrap();
        let error = savepoint(&["1-5-1-0"]).write(&directory).unwrap_err().to_string();
        assert!(error.contains("there is something in it"), "{error}");
        Savepoint::read(&directory).unwrap();
    }

    #[test]
    fn of_those_who_write_the_same_to_a_bucket_at_once_one_has_a_savepoint_that_is_whole() {
        for round in 0..50 {
            let store = Arc::new(InMemory::new());
            let place = || {
                let (store, folder) = (Arc::clone(&store) as _, object_store::path::Path::from("saved"));
                Place::Bucket(Bucket::new(store, folder, "s3://test/saved", PATIENCE).unwrap())
            };
            let barrier = Barrier::new(2);
            let write = || {
                let place = place();
                barrier.wait();
                savepoint(&["1-5-1-0", "1-5-1-1"]).write_to(&place)
            };
            let wrote = thread::scope(|scope| [scope.spawn(write), scope.spawn(write)].map(|w| w.join().unwrap()));
            assert_eq!(wrote.iter().filter(|wrote| wrote.is_ok()).count(), 1, "round {round}: {wrote:?}");
            let read = Savepoint::read_from(&place()).unwrap();
            assert_eq!(read.snapshot.unwrap().states.len(), 2, "round {round}");
            let error = savepoint(&["1-5-1-0"]).write_to(&place()).unwrap_err().to_string();
            assert!(error.contains("there is something in it"), "{error}");
            Savepoint::read_from(&place()).unwrap();
        }
    }

    #[test]
    fn a_savepoint_leads_to_no_file_outside_of_it_and_tells_nothing_of_one() {
        let all = tempfile::tempdir().unwrap();
        let (directory, secret) = (all.path().join("q"), all.path().join("secret"));
        fs::write(&secret, "secret").unwrap();
        savepoint(&["1-5-1-0"]).write(&directory).unwrap();
        let part =
            |name: &str, bytes: u64| Part::whole(StageId(1), 0, 1, PartFile { name: name.into(), bytes, checksum: 0 });
        for name in ["../secret", secret.to_str().unwrap(), "/dev/zero", "savepoint", "1-2-3", "1-2-3-+4", "../1-2-3-4"]
        {
            forge(&directory, vec![part(name, 3)]);
            assert!(refused(&directory).contains("expected parts such as"), "{name}: {}", refused(&directory));
        }
        forge(&directory, vec![part("1-5-1-0", 3), part("1-5-1-0", 3)]);
        assert!(refused(&directory).contains("each once"), "{}", refused(&directory));
        // Links, and what is no file.
        symlink(&secret, directory.join("1-2-3-4")).unwrap();
        forge(&directory, vec![part("1-2-3-4", 6)]);
        let error = refused(&directory);
        assert!(error.contains("1-2-3-4") && !error.contains("damaged"), "{error}");
        fs::create_dir(directory.join("1-2-3-5")).unwrap();
        forge(&directory, vec![part("1-2-3-5", 6)]);
        assert!(refused(&directory).contains("expected a file"), "{}", refused(&directory));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.join("1-2-3-6"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        forge(&directory, vec![part("1-2-3-6", 6)]);
        assert!(refused(&directory).contains("expected a file"), "{}", refused(&directory));
        // Lengths that it does not have.
        fs::write(directory.join("1-2-3-7"), "abcdef").unwrap();
        for bytes in [5, 7, u64::MAX] {
            forge(&directory, vec![part("1-2-3-7", bytes)]);
            assert!(refused(&directory).contains("it is damaged"), "{}", refused(&directory));
        }
        forge(&directory, vec![part("1-2-3-7", 6)]);
        let checksum = format!("{:08x}", crc32c::crc32c(b"abcdef"));
        let error = refused(&directory);
        assert!(error.contains("do not have its checksum") && !error.contains(&checksum), "{error}");
        // The savepoint's own file may lead nowhere, too.
        fs::remove_file(directory.join(SAVEPOINT)).unwrap();
        symlink(&secret, directory.join(SAVEPOINT)).unwrap();
        assert!(!refused(&directory).contains("damaged"), "{}", refused(&directory));
    }
}
