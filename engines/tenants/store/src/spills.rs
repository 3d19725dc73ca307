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
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
};

use rustix::io::Errno;
use savanna_tenants_values::error::{Result, SqlError, state};

/// So much of a disk is left to others: the log of all databases may be on it, which ends the process if it cannot be written.
const RESERVE: u64 = 1 << 30;
/// How often somebody looks how much is left: with so many bytes that are written.
const LOOK_BYTES: u64 = 16 << 20;
/// To close a file that was as large takes so long that a thread of its own does it: the kernel frees all of its blocks then.
const LARGE_BYTES: u64 = 16 << 20;
/// Files that one tenant has at most.
const FILES_MAX: usize = 512;

/// The folder of all files of a process for such rows.
#[derive(Debug)]
struct Disk {
    folder: PathBuf,
    /// Files that are open.
    files: AtomicUsize,
    /// Bytes that may be written before somebody looks how much is left.
    unseen: AtomicU64,
    /// The thread that closes large files, as soon as there was one.
    closing: OnceLock<Option<Sender<Open>>>,
}

/// An open file, which counts until it is closed.
#[derive(Debug)]
struct Open {
    /// There is none any more when it is being closed.
    file: Option<File>,
    len: u64,
    spills: Arc<Spills>,
}

impl Drop for Open {
    fn drop(&mut self) {
        drop(self.file.take());
        self.spills.bytes.fetch_sub(self.len, Ordering::Relaxed);
        self.spills.give_file_back();
    }
}

/// The files of one tenant for such rows.
#[derive(Debug)]
pub struct Spills {
    disk: Arc<Disk>,
    limits: Limits,
    /// Bytes of its files that are open, and how many there are.
    bytes: AtomicU64,
    files: AtomicUsize,
}

/// What is not to be exceeded.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes of the disk that are left to others.
    reserve: u64,
    /// Each operator keeps so many rows at most, for tests.
    rows_max: Option<usize>,
    /// Bytes and files of the tenant.
    bytes: u64,
    files: usize,
    /// Files of all tenants.
    all_files: usize,
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
        let (files, unseen) = (AtomicUsize::new(0), AtomicU64::new(0));
        let limits =
            Limits { reserve: RESERVE, rows_max: None, bytes: u64::MAX, files: FILES_MAX, all_files: usize::MAX };
        Ok(Self::of(Arc::new(Disk { folder, files, unseen, closing: OnceLock::new() }), limits))
    }

    const fn of(disk: Arc<Disk>, limits: Limits) -> Self {
        Self { disk, limits, bytes: AtomicU64::new(0), files: AtomicUsize::new(0) }
    }

    /// The files of another tenant, in the same folder and with the same limits.
    #[must_use]
    pub fn of_another(&self) -> Self {
        Self::of(Arc::clone(&self.disk), self.limits)
    }

    /// Leaves so many bytes of the disk to others.
    #[must_use]
    pub fn reserving(mut self, reserve: u64) -> Self {
        self.limits.reserve = reserve;
        self
    }

    /// Lets each operator keep so many rows in memory at most, to show that its answers do not depend on it.
    #[must_use]
    pub fn keeping(mut self, rows_max: Option<usize>) -> Self {
        self.limits.rows_max = rows_max.map(|rows| rows.max(1));
        self
    }

    /// Lets the files of a tenant have so many bytes at most.
    #[must_use]
    pub fn limited_to(mut self, bytes: u64) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Lets all tenants together have so many files at most: each takes a descriptor.
    #[must_use]
    pub fn sharing(mut self, files: usize) -> Self {
        self.limits.all_files = files;
        self
    }

    /// How many rows an operator keeps in memory, if that does not depend on how large they are.
    #[must_use]
    pub const fn rows_max(&self) -> Option<usize> {
        self.limits.rows_max
    }

    /// Bytes of the tenant's files that are open.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A file without a name.
    ///
    /// # Errors
    /// 53100 if the disk is full, 53400 if the tenant has as many as it may, 53000 if the process has, 58030.
    pub fn file(self: &Arc<Self>) -> Result<SpillFile> {
        let Limits { files: own_max, all_files: all_max, .. } = self.limits;
        if !take(&self.files, own_max) {
            return Err(too_many_files(own_max));
        }
        if !take(&self.disk.files, all_max) {
            self.files.fetch_sub(1, Ordering::Relaxed);
            return Err(no_descriptor(format!("The statements of all databases have {all_max} files.")));
        }
        match tempfile::tempfile_in(&self.disk.folder) {
            Ok(file) => Ok(SpillFile { file: Some(file), len: AtomicU64::new(0), spills: Arc::clone(self) }),
            Err(error) => {
                self.give_file_back();
                Err(failed(&self.disk.folder, &error))
            }
        }
    }

    fn give_file_back(&self) {
        self.files.fetch_sub(1, Ordering::Relaxed);
        self.disk.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes sure that so many bytes more are not too much for the tenant, and takes them.
    fn take_bytes(&self, bytes: u64) -> Result<()> {
        self.make_sure(bytes)?;
        let most = self.limits.bytes;
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= most);
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(too_many_bytes(most));
        }
        Ok(())
    }

    /// Makes sure that so many bytes more leave enough to others.
    fn make_sure(&self, bytes: u64) -> Result<()> {
        let Disk { folder, unseen, .. } = &*self.disk;
        if unseen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok() {
            return Ok(());
        }
        let disk = rustix::fs::statvfs(folder).map_err(|error| failed(folder, &error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let look = LOOK_BYTES.max(bytes);
        let reserve = self.limits.reserve;
        if free < reserve.saturating_add(look) {
            return Err(full(folder).detail(format!(
                "{} MiB are free, and {} MiB are left to others.",
                free >> 20,
                reserve >> 20
            )));
        }
        unseen.store(look - bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Counts one more, if it is not too many.
fn take(count: &AtomicUsize, most: usize) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1)).is_ok()
}

/// A file that is only written at its end.
#[derive(Debug)]
pub struct SpillFile {
    /// There is none any more when it is dropped.
    file: Option<File>,
    len: AtomicU64,
    spills: Arc<Spills>,
}

impl SpillFile {
    /// Appends bytes, and says where they are.
    ///
    /// # Errors
    /// 53100 if the disk is full, 53400 if the tenant has as much as it may, 58030.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let count = bytes.len() as u64;
        self.spills.take_bytes(count)?;
        let at = self.len.fetch_add(count, Ordering::Relaxed);
        let file = self.file.as_ref().ok_or_else(closed)?;
        file.write_all_at(bytes, at).map_err(|error| failed(&self.spills.disk.folder, &error))?;
        Ok(at)
    }

    /// Fills `bytes` with those from a place on.
    ///
    /// # Errors
    /// 58030.
    pub fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let file = self.file.as_ref().ok_or_else(closed)?;
        file.read_exact_at(bytes, at).map_err(|error| failed(&self.spills.disk.folder, &error))
    }

    /// Bytes that were appended.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        let open = Open { file: self.file.take(), len: self.bytes(), spills: Arc::clone(&self.spills) };
        if open.len < LARGE_BYTES {
            return;
        }
        let closing = self.spills.disk.closing.get_or_init(|| {
            let (sender, files) = channel::<Open>();
            let closes = move || files.into_iter().for_each(drop);
            thread::Builder::new().name("spills-close".to_owned()).spawn(closes).ok().map(|_| sender)
        });
        // Without a thread it is closed here.
        if let Some(closing) = closing {
            _ = closing.send(open);
        }
    }
}

#[cold]
fn closed() -> SqlError {
    SqlError::internal("a file for rows is used after it was closed")
}

fn failed(folder: &Path, error: &io::Error) -> SqlError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => full(folder),
        _ if [Errno::MFILE, Errno::NFILE].iter().any(|of| error.raw_os_error() == Some(of.raw_os_error())) => {
            no_descriptor(error.to_string())
        }
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

fn too_many_bytes(most: u64) -> SqlError {
    let message = format!("the files of this database's statements would have more than {} MiB", most >> 20);
    SqlError::new("53400", message).hint(
        "Nothing was changed. Read, sort or group fewer rows at once, close cursors, wait until other statements of this \
         database have ended, or start the server with a larger tenants.spill_limit.",
    )
}

fn too_many_files(most: usize) -> SqlError {
    let message = format!("the statements and cursors of this database have {most} files, and more are not opened");
    SqlError::new("53400", message)
        .hint("Nothing was changed. Close cursors, or wait until other statements of this database have ended.")
}

fn no_descriptor(why: String) -> SqlError {
    let message = "no more files are opened for rows of statements";
    SqlError::new("53000", message).detail(why).hint(
        "Nothing was changed. Try again when other statements have ended, or let the server open more files (ulimit -n).",
    )
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

    #[test]
    fn a_tenant_has_no_more_bytes_than_it_may_and_others_have_theirs() {
        let folder = tempfile::tempdir().expect("a folder");
        let spills = Spills::open(folder.path().join("spills")).expect("a folder").reserving(0).limited_to(10);
        let (other, spills) = (Arc::new(spills.of_another()), Arc::new(spills));
        let (one, two) = (spills.file().expect("a file"), spills.file().expect("a file"));
        assert_eq!((one.append(b"abcd"), two.append(b"efghij")), (Ok(0), Ok(0)));
        assert_eq!(one.append(b"k").unwrap_err().state, "53400");
        assert_eq!((one.bytes(), spills.bytes()), (4, 10), "nothing was written");
        let others = other.file().expect("a file");
        assert_eq!(others.append(b"0123456789"), Ok(0));
        drop(two);
        assert_eq!(one.append(b"k"), Ok(4));
        drop((one, others));
        assert_eq!((spills.bytes(), other.bytes()), (0, 0));
    }

    #[test]
    fn a_large_file_is_closed_by_another_thread_and_counts_until_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let spills = Arc::new(Spills::open(folder.path().join("spills")).expect("a folder").reserving(0));
        let small = spills.file().expect("a file");
        small.append(b"abc").expect("space");
        drop(small);
        assert!(spills.disk.closing.get().is_none(), "a small one is closed at once");
        let large = spills.file().expect("a file");
        (0..16).for_each(|_| _ = large.append(&vec![1; 1 << 20]).expect("space"));
        drop(large);
        assert!(matches!(spills.disk.closing.get(), Some(Some(_))));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while spills.bytes() > 0 || spills.disk.files.load(Ordering::Relaxed) > 0 {
            assert!(std::time::Instant::now() < until, "it is not closed");
            thread::yield_now();
        }
    }

    #[test]
    fn no_more_files_are_opened_than_may_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let spills = Spills::open(folder.path().join("spills")).expect("a folder").sharing(FILES_MAX + 1);
        let (other, spills) = (Arc::new(spills.of_another()), Arc::new(spills));
        let mut files: Vec<_> = (0..FILES_MAX).map(|_| spills.file().expect("a file")).collect();
        assert_eq!(spills.file().unwrap_err().state, "53400", "one tenant has so many");
        let last = other.file().expect("a file of another tenant");
        assert_eq!(other.file().unwrap_err().state, "53000", "all have so many");
        files.pop();
        assert!(other.file().is_ok() && spills.file().is_ok());
        drop((files, last));
        assert_eq!(spills.disk.files.load(Ordering::Relaxed), 0);
        let error = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        assert_eq!(failed(folder.path(), &error).state, "53000", "it is not the disk");
    }
}
