//! Zips by their content: kept as files, unpacked when they are needed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use savanna_functions::catalog::Code;
use sha2::{Digest as _, Sha256};

use crate::zip::{self, ZipError};

/// Zips in a folder, and what they are unpacked to in another.
#[derive(Debug)]
pub(crate) struct CodeStore {
    zips: PathBuf,
    tasks: PathBuf,
    /// One at a time unpacks.
    unpacking: Mutex<()>,
}

impl CodeStore {
    /// Opens the folders below a directory. What nobody wants any more is removed, and what was unpacked is unpacked again: only zips are durable.
    pub(crate) fn open(directory: &Path, wanted: &BTreeSet<String>) -> io::Result<Self> {
        let (zips, tasks) = (directory.join("code"), directory.join("tasks"));
        match fs::remove_dir_all(&tasks) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(&zips)?;
        fs::create_dir_all(&tasks)?;
        for entry in fs::read_dir(&zips)? {
            let path = entry?.path();
            if !path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| wanted.contains(stem)) {
                fs::remove_file(&path)?;
            }
        }
        Ok(Self { zips, tasks, unpacking: Mutex::default() })
    }

    /// Keeps a zip; durable when this returns. It is unpacked at once, so that one which cannot be is refused.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Result<Code, ZipError> {
        zip::check(bytes)?;
        let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let code = Code { sha256, size: bytes.len() as u64 };
        self.unpack(&code.sha256, bytes)?;
        let path = self.path(&code.sha256);
        if !path.exists() {
            let coming = self.zips.join(format!("{}.{:x}.coming", code.sha256, rand::random::<u64>()));
            let mut file = fs::File::create_new(&coming)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&coming, &path)?;
            fs::File::open(&self.zips)?.sync_all()?;
        }
        Ok(code)
    }

    /// A zip as it was given.
    pub(crate) fn zip(&self, sha256: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(sha256))
    }

    /// The folder of unpacked code.
    pub(crate) fn task(&self, sha256: &str) -> Result<PathBuf, ZipError> {
        let task = self.tasks.join(sha256);
        if !task.exists() {
            self.unpack(sha256, &self.zip(sha256)?)?;
        }
        Ok(task)
    }

    fn path(&self, sha256: &str) -> PathBuf {
        self.zips.join(format!("{sha256}.zip"))
    }

    fn unpack(&self, sha256: &str, bytes: &[u8]) -> Result<(), ZipError> {
        let _one = self.unpacking.lock();
        let task = self.tasks.join(sha256);
        if task.exists() {
            return Ok(());
        }
        let coming = self.tasks.join(format!("{sha256}.coming"));
        let _ = fs::remove_dir_all(&coming);
        fs::create_dir(&coming)?;
        fs::set_permissions(&coming, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        if let Err(error) = zip::unpack(bytes, &coming) {
            let _ = fs::remove_dir_all(&coming);
            return Err(error);
        }
        Ok(fs::rename(&coming, &task)?)
    }
}
