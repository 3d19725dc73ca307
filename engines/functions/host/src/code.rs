//! Zips by their content: kept as files or as objects, unpacked when they are needed, and removed when nobody wants them any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::{ObjectStore, ObjectStoreExt as _};
use parking_lot::Mutex;
use savanna_functions::catalog::Code;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::crash::crash_at;
use crate::functions::Functions;
use crate::zip::{self, ZipError};

/// The folder of what is unpacked.
pub(crate) const TASKS: &str = "tasks";

/// Zips in a folder, and what they are unpacked to in another.
#[derive(Debug)]
pub(crate) struct CodeStore {
    zips: PathBuf,
    tasks: PathBuf,
    /// Bytes of what is unpacked and nobody runs.
    unpacked_max: u64,
    /// Who has it may unpack and remove.
    unpacked: Mutex<Unpacked>,
    /// Code that somebody works with, with how many do. Taken after the one above.
    pins: Mutex<BTreeMap<String, usize>>,
    /// Where zips are instead of the folder.
    remote: Option<Remote>,
}

/// Zips in an object store.
#[derive(Debug)]
struct Remote {
    store: Arc<dyn ObjectStore>,
    folder: object_store::path::Path,
    runtime: Handle,
    /// Who has it may put and remove. Taken before all others.
    changing: Mutex<()>,
}

/// A request to an object store may take so long.
const REQUEST_TIME: Duration = Duration::from_secs(60);

impl Remote {
    fn path(&self, sha256: &str) -> object_store::path::Path {
        self.folder.clone().join(format!("{sha256}.zip"))
    }

    /// Waits for a request on a thread that may wait.
    fn wait<T>(&self, request: impl Future<Output = Result<T, object_store::Error>>) -> io::Result<T> {
        let waited = self.runtime.block_on(tokio::time::timeout(REQUEST_TIME, request));
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the object store does not answer");
        waited.map_err(late)?.map_err(|error| match error {
            object_store::Error::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, error),
            other => io::Error::other(other),
        })
    }
}

/// What is unpacked, with its bytes and when it was asked for last.
#[derive(Debug, Default)]
struct Unpacked {
    tasks: BTreeMap<String, (u64, u64)>,
    asked: u64,
}

/// Code that stays as long as somebody has this, whether a function has it or not.
#[derive(Debug)]
pub struct PinnedCode {
    functions: Functions,
    code: Code,
}

impl PinnedCode {
    pub(crate) fn new(functions: Functions, code: Code) -> Self {
        functions.0.code.pin(&code.sha256);
        Self { functions, code }
    }

    pub(crate) const fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> &Code {
        &self.code
    }
}

impl Drop for PinnedCode {
    fn drop(&mut self) {
        self.functions.0.code.unpin(&self.code.sha256);
        self.functions.remove_unwanted(vec![self.code.sha256.clone()]);
    }
}

impl CodeStore {
    /// Opens the folders below a directory. Zips that nobody wants any more are removed; what was unpacked was put aside, and is unpacked again: only zips are durable.
    pub(crate) fn open(
        directory: &Path,
        wanted: &BTreeSet<String>,
        unpacked_max: u64,
        store: Option<(Arc<dyn ObjectStore>, object_store::path::Path)>,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let (zips, tasks) = (directory.join("code"), directory.join(TASKS));
        fs::create_dir_all(&zips)?;
        fs::create_dir_all(&tasks)?;
        for entry in fs::read_dir(&zips)? {
            let path = entry?.path();
            if !path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| wanted.contains(stem)) {
                fs::remove_file(&path)?;
            }
        }
        let remote = store.map(|(store, folder)| {
            let runtime = runtime.clone();
            Remote { store, folder, runtime, changing: Mutex::default() }
        });
        Ok(Self { zips, tasks, unpacked_max, unpacked: Mutex::default(), pins: Mutex::default(), remote })
    }

    /// What a zip is called.
    pub(crate) fn code_of(bytes: &[u8]) -> Code {
        let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Code { sha256, size: bytes.len() as u64 }
    }

    /// Keeps a zip that somebody has pinned; durable when this returns. It is unpacked at once, so that one which cannot be is refused.
    pub(crate) fn keep(&self, code: &Code, bytes: &[u8]) -> Result<(), ZipError> {
        zip::check(bytes)?;
        let mut unpacked = self.unpacked.lock();
        self.unpack(&mut unpacked, &code.sha256, bytes)?;
        if let Some(remote) = &self.remote {
            drop(unpacked);
            // Whoever removes it at this moment has done so before; from then on it is pinned.
            let _one = remote.changing.lock();
            let (path, zip) = (remote.path(&code.sha256), bytes::Bytes::copy_from_slice(bytes));
            return Ok(remote.wait(remote.store.put(&path, zip.into())).map(drop)?);
        }
        let path = self.path(&code.sha256);
        // What is there may be damaged by now.
        let is_there = fs::read(&path).is_ok_and(|kept| Self::code_of(&kept) == *code);
        if !is_there {
            let coming = self.zips.join(format!("{}.{:x}.coming", code.sha256, rand::random::<u64>()));
            let written = fs::File::create_new(&coming).and_then(|mut file| {
                file.write_all(bytes)?;
                file.sync_all()?;
                fs::rename(&coming, &path)?;
                crash_at("code-renamed");
                Ok(())
            });
            if let Err(error) = written {
                let _ = fs::remove_file(&coming);
                return Err(error.into());
            }
        }
        // Whoever has made it may not have come so far.
        Ok(fs::File::open(&self.zips)?.sync_all()?)
    }

    /// A zip as it was given. Blocks, also where it comes from elsewhere.
    pub(crate) fn zip(&self, sha256: &str) -> io::Result<Vec<u8>> {
        let bytes = match &self.remote {
            Some(remote) => {
                let path = remote.path(sha256);
                match remote.wait(async { remote.store.get(&path).await?.bytes().await }) {
                    // It was kept here before there was a store.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        fs::read(self.path(sha256)).map_err(|_| error)?
                    }
                    other => other?.to_vec(),
                }
            }
            None => fs::read(self.path(sha256))?,
        };
        // It runs with a function's rights: nobody but its client says what it is.
        if Self::code_of(&bytes).sha256 == sha256 {
            return Ok(bytes);
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the zip {sha256} has another content by now; upload it again"),
        ))
    }

    /// Whether code that somebody has pinned is kept here as it was given, and wanted.
    pub(crate) fn has(&self, code: &Code, is_wanted: impl FnOnce() -> bool) -> bool {
        // Whoever removes it has done so before this, or looks later and finds it pinned.
        let one = self.remote.as_ref().map(|remote| remote.changing.lock());
        let unpacked = self.unpacked.lock();
        let is_wanted = is_wanted();
        drop((one, unpacked));
        is_wanted && self.zip(&code.sha256).is_ok()
    }

    /// The folder of unpacked code, which stays as long as whoever asks has it pinned.
    pub(crate) fn task(&self, sha256: &str) -> Result<PathBuf, ZipError> {
        let is_unpacked = self.unpacked.lock().tasks.contains_key(sha256);
        // While it comes from elsewhere others are served.
        let zip = if is_unpacked { None } else { Some(self.zip(sha256)?) };
        let mut unpacked = self.unpacked.lock();
        if let Some(zip) = zip {
            self.unpack(&mut unpacked, sha256, &zip)?;
        }
        unpacked.asked += 1;
        let asked = unpacked.asked;
        unpacked.tasks.entry(sha256.to_owned()).and_modify(|(_, last)| *last = asked);
        Ok(self.tasks.join(sha256))
    }

    /// Removes code that nobody has pinned, if it is not wanted then.
    pub(crate) fn remove(&self, sha256: &str, is_wanted: impl FnOnce() -> bool) -> io::Result<()> {
        let _one = self.remote.as_ref().map(|remote| remote.changing.lock());
        let mut unpacked = self.unpacked.lock();
        // In this order: who unpins it has seen to it that it is wanted, if it is.
        if self.pins.lock().contains_key(sha256) || is_wanted() {
            return Ok(());
        }
        self.forget(&mut unpacked, sha256)?;
        if let Some(remote) = &self.remote {
            drop(unpacked);
            // What was kept here before there was a store.
            let _ = fs::remove_file(self.path(sha256));
            return match remote.wait(remote.store.delete(&remote.path(sha256))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        match fs::remove_file(self.path(sha256)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn pin(&self, sha256: &str) {
        *self.pins.lock().entry(sha256.to_owned()).or_default() += 1;
    }

    fn unpin(&self, sha256: &str) {
        let mut pins = self.pins.lock();
        if let Some(count) = pins.get_mut(sha256) {
            *count -= 1;
            if *count == 0 {
                pins.remove(sha256);
            }
        }
    }

    fn path(&self, sha256: &str) -> PathBuf {
        self.zips.join(format!("{sha256}.zip"))
    }

    fn unpack(&self, unpacked: &mut Unpacked, sha256: &str, bytes: &[u8]) -> Result<(), ZipError> {
        if unpacked.tasks.contains_key(sha256) {
            return Ok(());
        }
        let size = zip::unpacked_bytes(bytes)?;
        self.make_room(unpacked, size)?;
        let (coming, task) = (self.tasks.join(format!("{sha256}.coming")), self.tasks.join(sha256));
        let _ = fs::remove_dir_all(&coming);
        fs::create_dir(&coming)?;
        fs::set_permissions(&coming, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        if let Err(error) = zip::unpack(bytes, &coming) {
            let _ = fs::remove_dir_all(&coming);
            return Err(error);
        }
        fs::rename(&coming, &task)?;
        unpacked.asked += 1;
        unpacked.tasks.insert(sha256.to_owned(), (size, unpacked.asked));
        Ok(())
    }

    /// Removes what was unpacked and nobody has asked for for the longest time, until more fits in.
    fn make_room(&self, unpacked: &mut Unpacked, size: u64) -> io::Result<()> {
        loop {
            let pins = self.pins.lock();
            let free = || unpacked.tasks.iter().filter(|(sha256, _)| !pins.contains_key(*sha256));
            let bytes: u64 = free().map(|(_, (bytes, _))| bytes).sum();
            let oldest = free().min_by_key(|(_, (_, asked))| *asked).map(|(sha256, _)| sha256.clone());
            drop(pins);
            match oldest {
                Some(oldest) if bytes + size > self.unpacked_max => self.forget(unpacked, &oldest)?,
                _ => return Ok(()),
            }
        }
    }

    /// Removes what was unpacked of a zip.
    fn forget(&self, unpacked: &mut Unpacked, sha256: &str) -> io::Result<()> {
        if unpacked.tasks.remove(sha256).is_some() {
            fs::remove_dir_all(self.tasks.join(sha256))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_nobody_wants_any_more_or_that_is_damaged_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = CodeStore::open(directory.path(), &BTreeSet::new(), 1 << 20, None, runtime.handle()).unwrap();
        let zip = crate::zips::zip_of(&[("x", 0o100_644, b"x")]);
        let code = CodeStore::code_of(&zip);
        assert!(!store.has(&code, || true));
        store.keep(&code, &zip).unwrap();
        assert!(store.has(&code, || true));
        // Its file is there until whoever removes it has come so far.
        assert!(!store.has(&code, || false));
        fs::write(store.path(&code.sha256), b"damaged").unwrap();
        assert!(!store.has(&code, || true));
    }
}
