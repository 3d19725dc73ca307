//! Files for rows that a statement has no memory for.
//!
//! A file has no name from the moment on at which it is opened, so that it is gone as soon as nobody has it open: with the statement that
//! failed, was cancelled or is told, with the session, with the process, however that ends. What is written is read by the same process
//! only, so nothing is flushed.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use savanna_tenants_values::error::{Result, SqlError, state};

/// So much of a disk is left to others: the log of all databases may be on it, which ends the process if it cannot be written.
const RESERVE: u64 = 1 << 30;
/// How often somebody looks how much is left: with so many bytes that are written.
const LOOK_BYTES: u64 = 16 << 20;

/// The folder of all files of a process for such rows.
#[derive(Debug)]
pub struct Spills {
    folder: PathBuf,
    reserve: u64,
    /// Each operator keeps so many rows at most, for tests.
    rows_max: Option<usize>,
    /// Bytes of all files that are open.
    bytes: AtomicU64,
    /// Bytes that may be written before somebody looks how much is left.
    unseen: AtomicU64,
}

impl Spills {
    /// Makes the folder. Of what another process may have left there, nothing stays.
    ///
    /// # Errors
    /// Of the file system.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        for left in fs::read_dir(&folder)? {
            fs::remove_file(left?.path())?;
        }
        let (bytes, unseen) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { folder, reserve: RESERVE, rows_max: None, bytes, unseen })
    }

    /// Leaves so many bytes of the disk to others.
    #[must_use]
    pub fn reserving(self, reserve: u64) -> Self {
        Self { reserve, ..self }
    }

    /// Lets each operator keep so many rows in memory at most, to show that its answers do not depend on it.
    #[must_use]
    pub fn keeping(self, rows_max: Option<usize>) -> Self {
        Self { rows_max: rows_max.map(|rows| rows.max(1)), ..self }
    }

    /// How many rows an operator keeps in memory, if that does not depend on how large they are.
    #[must_use]
    pub fn rows_max(&self) -> Option<usize> {
        self.rows_max
    }

    /// Bytes of all files that are open.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A file without a name.
    ///
    /// # Errors
    /// 53100 if the disk is full, 58030.
    pub fn file(self: &Arc<Self>) -> Result<SpillFile> {
        let file = tempfile::tempfile_in(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        Ok(SpillFile { file, len: AtomicU64::new(0), spills: Arc::clone(self) })
    }

    /// Makes sure that so many bytes more leave enough to others.
    fn make_sure(&self, bytes: u64) -> Result<()> {
        if self.unseen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok() {
            return Ok(());
        }
        let disk = rustix::fs::statvfs(&self.folder).map_err(|error| failed(&self.folder, &error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let look = LOOK_BYTES.max(bytes);
        if free < self.reserve.saturating_add(look) {
            return Err(full(&self.folder).detail(format!(
                "{} MiB are free, and {} MiB are left to others.",
                free >> 20,
                self.reserve >> 20
            )));
        }
        self.unseen.store(look - bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// A file that is only written at its end.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    len: AtomicU64,
    spills: Arc<Spills>,
}

impl SpillFile {
    /// Appends bytes, and says where they are.
    ///
    /// # Errors
    /// 53100 if the disk is full, 58030.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let count = bytes.len() as u64;
        self.spills.make_sure(count)?;
        let at = self.len.fetch_add(count, Ordering::Relaxed);
        self.spills.bytes.fetch_add(count, Ordering::Relaxed);
        self.file.write_all_at(bytes, at).map_err(|error| failed(&self.spills.folder, &error))?;
        Ok(at)
    }

    /// Fills `bytes` with those from a place on.
    ///
    /// # Errors
    /// 58030.
    pub fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(|error| failed(&self.spills.folder, &error))
    }

    /// Bytes that were appended.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.spills.bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

fn failed(folder: &Path, error: &io::Error) -> SqlError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => full(folder),
        _ => {
            let message = format!("could not write or read rows of the statement in {}: {error}", folder.display());
            SqlError::new("58030", message)
                .hint("Look at the disk and at who may write to this folder, then try again.")
        }
    }
}

fn full(folder: &Path) -> SqlError {
    let message = format!("no space is left in {} for the rows of the statement", folder.display());
    SqlError::new(state::DISK_FULL, message)
        .hint("Nothing was changed. Read, sort or group fewer rows at once, wait until other statements have ended, or give the disk more space.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_read_and_no_file_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("spills");
        fs::create_dir_all(&place).expect("a folder");
        fs::write(place.join("of-another-process"), "rows").expect("a file");
        let spills = Arc::new(Spills::open(&place).expect("a folder"));
        let names = || fs::read_dir(&place).expect("a folder").count();
        assert_eq!(names(), 0, "what another process has left is gone");
        let file = spills.file().expect("a file");
        assert_eq!((file.append(b"abc"), file.append(b"defg")), (Ok(0), Ok(3)));
        assert_eq!((names(), spills.bytes(), file.bytes()), (0, 7, 7));
        let mut bytes = [0; 4];
        assert_eq!((file.read_at(2, &mut bytes), &bytes), (Ok(()), b"cdef"));
        assert_eq!(file.read_at(5, &mut bytes).unwrap_err().state, "58030", "there is not so much");
        drop(file);
        assert_eq!(spills.bytes(), 0);
    }

    #[test]
    fn what_others_need_of_a_disk_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let spills = Arc::new(Spills::open(folder.path().join("spills")).expect("a folder").reserving(u64::MAX));
        let file = spills.file().expect("a file");
        let error = file.append(b"abc").unwrap_err();
        assert_eq!(error.state, state::DISK_FULL);
        assert_eq!((file.bytes(), spills.bytes()), (0, 0), "nothing was written");
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert_eq!(failed(folder.path(), &kind.into()).state, state::DISK_FULL);
        }
    }
}
