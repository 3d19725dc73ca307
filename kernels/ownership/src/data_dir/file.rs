//! Reading and replacing the lease file, and looking at it again and again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{DataDirError, LeaseFile};

const FORMAT: u32 = 1;

/// A lease file is about 150 bytes; what is longer is none.
const MAX_BYTES: u64 = 4096;

/// How often a busy lock is tried.
const LOCK_RETRY: Duration = Duration::from_millis(5);

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    #[serde(flatten)]
    lease: LeaseFile,
}

/// The two files of a directory's lease.
#[derive(Clone, Debug)]
pub(super) struct LeasePath {
    directory: PathBuf,
    lease: PathBuf,
    lock: PathBuf,
}

/// The lock on a lease file, until it is dropped.
pub(super) struct Locked<'p> {
    path: &'p LeasePath,
    /// Closing it releases the lock.
    _lock: File,
}

impl LeasePath {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), lease: directory.join("lease"), lock: directory.join("lease.lock") }
    }

    /// Reads the file; nothing if it does not exist. Needs no lock: the file is only ever replaced whole.
    pub(super) fn read(&self) -> Result<Option<LeaseFile>, DataDirError> {
        let bytes = match fs::metadata(&self.lease).map(|metadata| metadata.len()) {
            Ok(length) if length > MAX_BYTES => return Err(self.corrupt(format!("{length} bytes"))),
            Ok(_) => fs::read(&self.lease).map_err(|source| io_error(&self.lease, "reading", source))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error(&self.lease, "reading", source)),
        };
        self.decode(&bytes).map(Some)
    }

    fn decode(&self, bytes: &[u8]) -> Result<LeaseFile, DataDirError> {
        decode(bytes).map_err(|flaw| match flaw {
            Flaw::Damaged(came) => self.corrupt(came),
            Flaw::Format(came) => DataDirError::Version { path: self.lease.clone(), came },
        })
    }

    /// Locks the file against other processes that start or stop, trying for at most `patience`.
    pub(super) fn lock(&self, patience: Duration) -> Result<Locked<'_>, DataDirError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.lock)
            .map_err(|source| io_error(&self.lock, "opening", source))?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => {
                    return Ok(Locked { path: self, _lock: file });
                }
                Err(TryLockError::WouldBlock) if started.elapsed() < patience => std::thread::sleep(LOCK_RETRY),
                Err(TryLockError::WouldBlock) => {
                    return Err(DataDirError::LockBusy { path: self.lock.clone(), waited: patience });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(io_error(&self.lock, "locking", source));
                }
            }
        }
    }

    fn corrupt(&self, came: String) -> DataDirError {
        DataDirError::Corrupt { path: self.lease.clone(), came }
    }
}

/// The lease file as its holder looks at it. It stays open, so that a process that has no descriptor left can renew.
pub(super) struct OpenLease {
    path: LeasePath,
    file: Option<File>,
}

impl OpenLease {
    /// Opens it at the next look if it cannot be opened now.
    pub(super) fn new(path: LeasePath) -> Self {
        let file = File::open(&path.lease).ok();
        Self { path, file }
    }

    /// As [`LeasePath::read`]. The file is only ever replaced whole, by another one of its name.
    pub(super) fn read(&mut self) -> Result<Option<LeaseFile>, DataDirError> {
        let path = &self.path.lease;
        let at = |doing| move |source| io_error(path, doing, source);
        let named = match fs::metadata(&self.path.lease) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(at("looking for")(source)),
        };
        let is_named =
            |file: &File| file.metadata().is_ok_and(|open| (open.dev(), open.ino()) == (named.dev(), named.ino()));
        // Closed before the next is opened: there may be no other descriptor.
        self.file = self.file.take().filter(is_named);
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(path).map_err(at("opening"))?,
        };
        let mut bytes = [0; MAX_BYTES as usize + 1];
        let length = file.read_at(&mut bytes, 0).map_err(at("reading"))?;
        self.file = Some(file);
        self.path.decode(&bytes[..length]).map(Some)
    }
}

impl Locked<'_> {
    pub(super) fn unread_journals(&self, source: io::Error) -> DataDirError {
        io_error(&self.path.directory, "reading the epochs of its journals", source)
    }

    pub(super) fn read(&self) -> Result<Option<LeaseFile>, DataDirError> {
        self.path.read()
    }

    /// Replaces the file durably.
    pub(super) fn write(&self, lease: &LeaseFile) -> Result<(), DataDirError> {
        let new = self.path.directory.join("lease.new");
        let at = |doing| move |source| io_error(&self.path.lease, doing, source);
        let mut file = File::create(&new).map_err(at("creating"))?;
        file.write_all(&encode(lease)).map_err(at("writing"))?;
        file.sync_all().map_err(at("syncing"))?;
        fs::rename(&new, &self.path.lease).map_err(at("replacing"))?;
        File::open(&self.path.directory).and_then(|directory| directory.sync_all()).map_err(at("syncing its directory"))
    }
}

fn io_error(path: &Path, doing: &'static str, source: io::Error) -> DataDirError {
    DataDirError::Io { path: path.to_owned(), doing, source }
}

fn encode(lease: &LeaseFile) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(&Stored { format: FORMAT, lease: *lease })
        .expect("a lease has string keys and no failing parts");
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(format!("\n{checksum:08x}\n").as_bytes());
    bytes
}

/// Why bytes are no lease file of this release.
#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    Damaged(String),
    Format(u32),
}

fn decode(bytes: &[u8]) -> Result<LeaseFile, Flaw> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let json = checked(bytes).map_err(Flaw::Damaged)?;
    let damaged = |error: serde_json::Error| Flaw::Damaged(error.to_string());
    let Version { format } = serde_json::from_str(json).map_err(damaged)?;
    if format != FORMAT {
        return Err(Flaw::Format(format));
    }
    Ok(serde_json::from_str::<Stored>(json).map_err(damaged)?.lease)
}

/// The first line, if it has the checksum that the second says.
fn checked(bytes: &[u8]) -> Result<&str, String> {
    let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    let (Some(json), Some(checksum), None) = (lines.next(), lines.next(), lines.next()) else {
        return Err(format!("{} lines", text.lines().count()));
    };
    let expected = format!("{:08x}", crc32c::crc32c(json.as_bytes()));
    if checksum != expected {
        return Err(format!("checksum {checksum:?} where the content has {expected}"));
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use savanna_epoch::NodeEpoch;

    use super::*;
    use crate::data_dir::Process;
    use crate::record::Incarnation;

    /// What version 0.1 writes.
    const FIXTURE: &str = include_str!("../../fixtures/lease-0.1");

    fn lease() -> LeaseFile {
        let process =
            |number: u32| Process { incarnation: Incarnation(u64::from(number) << 40), pid: number, birth: None };
        LeaseFile { epoch: NodeEpoch(7), holder: Some(process(4711)), claim: Some(process(4712)) }
    }

    /// A process that another test starts has the lock as well, until it runs its program.
    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_lease_is_written_as_version_0_1_wrote_it_and_read_back() {
        assert_eq!(String::from_utf8(encode(&lease())).unwrap(), FIXTURE);
        assert_eq!(decode(FIXTURE.as_bytes()), Ok(lease()));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let bytes = encode(&lease());
        for cut in 0..bytes.len() - 1 {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged) != Ok(lease()) || bit / 8 == bytes.len() - 1, "bit {bit}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_name_and_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = LeasePath::new(directory.path());
        assert_eq!(path.read().unwrap(), None);
        path.lock(PATIENCE).unwrap().write(&lease()).unwrap();
        assert_eq!(path.read().unwrap(), Some(lease()));
        fs::write(&path.lease, "{}\n00000000\n").unwrap();
        let message = path.read().unwrap_err().to_string();
        assert!(
            message.contains("lease") && message.contains("checksum") && message.contains("writes the lease again")
        );
        let later = b"{\"format\":2}";
        fs::write(&path.lease, format!("{{\"format\":2}}\n{:08x}\n", crc32c::crc32c(later))).unwrap();
        assert!(matches!(path.read(), Err(DataDirError::Version { came: 2, .. })));
    }

    #[test]
    fn an_open_lease_sees_what_replaced_it_and_that_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = LeasePath::new(directory.path());
        let write = |lease: &LeaseFile| path.lock(PATIENCE).unwrap().write(lease).unwrap();
        write(&lease());
        let mut open = OpenLease::new(path.clone());
        for _ in 0..2 {
            assert_eq!(open.read().unwrap(), Some(lease()));
        }
        let next = LeaseFile { claim: None, ..lease() };
        write(&next);
        assert_eq!(open.read().unwrap(), Some(next));
        fs::remove_file(&path.lease).unwrap();
        assert_eq!(open.read().unwrap(), None);
        write(&lease());
        assert_eq!(open.read().unwrap(), Some(lease()));
    }

    #[test]
    fn a_lock_that_is_kept_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = LeasePath::new(directory.path());
        let _held = path.lock(Duration::ZERO).unwrap();
        assert!(matches!(path.lock(Duration::ZERO), Err(DataDirError::LockBusy { .. })));
    }
}
