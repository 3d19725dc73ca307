//! What a power cut would leave of the files below a directory: only what the operating system was asked to flush.
//!
//! A test binary that links this crate calls the `fsync` and `fdatasync` below in place of the C library's. They do the
//! real work and take note: of a file its bytes, of a directory its names. [`Power::cut`] builds a directory from the
//! notes, and nothing else is in it: no byte and no name that somebody forgot to flush.
//!
//! ```
//! use std::{fs, io::Write};
//! # fn main() -> std::io::Result<()> {
//! # let (before, after) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! let power = savanna_power_cut::Power::of(before.path())?;
//! let mut file = fs::File::create(before.path().join("kept"))?;
//! file.write_all(b"content")?;
//! file.sync_all()?;
//! fs::File::open(before.path())?.sync_all()?;
//! fs::write(before.path().join("forgotten"), "content")?;
//! power.cut(after.path())?;
//! assert_eq!(fs::read(after.path().join("kept"))?, b"content");
//! assert!(!after.path().join("forgotten").exists());
//! # Ok(())
//! # }
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use libc::{SYS_fdatasync, SYS_fsync, c_int, c_long};

/// Takes the C library's place in the binary that links this.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    flush(fd, SYS_fsync)
}

/// Takes the C library's place in the binary that links this.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    flush(fd, SYS_fdatasync)
}

fn flush(fd: c_int, call: c_long) -> c_int {
    // Looked at before, since what is written meanwhile may miss the flush.
    let seen = look(Path::new(&format!("/proc/self/fd/{fd}")));
    // SAFETY: both calls take one file descriptor, whatever it is, and no memory of ours.
    let result = unsafe { libc::syscall(call, fd) };
    if result == 0
        && let Some((path, identity, durable)) = seen
    {
        for notes in registered().iter().filter(|notes| path.starts_with(&notes.root)) {
            notes.durable().insert(identity, durable.clone());
        }
    }
    c_int::try_from(result).unwrap_or(-1)
}

/// A file or directory, whatever its name: numbers of inodes are given again.
type Identity = (u64, Option<SystemTime>);

/// What is on the disk for certain.
#[derive(Clone, Debug)]
enum Durable {
    File(Vec<u8>),
    Directory(BTreeMap<OsString, Identity>),
}

/// What is noted below one directory.
#[derive(Debug)]
struct Notes {
    root: PathBuf,
    durable: Mutex<HashMap<Identity, Durable>>,
}

impl Notes {
    fn durable(&self) -> MutexGuard<'_, HashMap<Identity, Durable>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static REGISTERED: Mutex<Vec<Arc<Notes>>> = Mutex::new(Vec::new());

fn registered() -> MutexGuard<'static, Vec<Arc<Notes>>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The power supply of a directory and all below it.
#[derive(Debug)]
pub struct Power {
    notes: Arc<Notes>,
}

impl Power {
    /// From now on it is noted what is flushed below `root`. What is there already is taken for durable.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn of(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let mut durable = HashMap::new();
        let mut paths = vec![root.clone()];
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                let entries: io::Result<Vec<_>> = fs::read_dir(&path)?.collect();
                paths.extend(entries?.iter().map(fs::DirEntry::path));
            }
            if let Some((_, identity, content)) = look(&path) {
                durable.insert(identity, content);
            }
        }
        let notes = Arc::new(Notes { root, durable: Mutex::new(durable) });
        registered().push(Arc::clone(&notes));
        Ok(Self { notes })
    }

    /// Builds in `target`, an empty directory, what a power cut at this moment would leave for certain.
    ///
    /// # Errors
    /// If `target` cannot be written.
    pub fn cut(&self, target: &Path) -> io::Result<()> {
        let root = identity(&fs::metadata(&self.notes.root)?);
        restore(&self.notes.durable(), root, target)
    }
}

impl Drop for Power {
    fn drop(&mut self) {
        registered().retain(|notes| !Arc::ptr_eq(notes, &self.notes));
    }
}

fn restore(durable: &HashMap<Identity, Durable>, directory: Identity, target: &Path) -> io::Result<()> {
    let Some(Durable::Directory(names)) = durable.get(&directory) else {
        return Ok(());
    };
    for (name, identity) in names {
        let path = target.join(name);
        match durable.get(identity) {
            Some(Durable::File(bytes)) => fs::write(path, bytes)?,
            Some(Durable::Directory(_)) => {
                fs::create_dir(&path)?;
                restore(durable, *identity, &path)?;
            }
            // Its name was flushed and nothing in it, be it a file or a directory.
            None => fs::write(path, "")?,
        }
    }
    Ok(())
}

/// What is there at this moment: the file's path, who it is, and what is in it.
fn look(path: &Path) -> Option<(PathBuf, Identity, Durable)> {
    let real = fs::read_link(path).unwrap_or_else(|_| path.to_owned());
    if path.starts_with("/proc") && !registered().iter().any(|notes| real.starts_with(&notes.root)) {
        return None;
    }
    let metadata = fs::metadata(path).ok()?;
    let durable = if metadata.is_dir() {
        let entries = fs::read_dir(&real).ok()?.filter_map(Result::ok);
        let names = entries.filter_map(|entry| Some((entry.file_name(), identity(&entry.metadata().ok()?))));
        Durable::Directory(names.collect())
    } else {
        Durable::File(fs::read(path).ok()?)
    };
    Some((real, identity(&metadata), durable))
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.ino(), metadata.created().ok())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_what_was_flushed_is_left() {
        let (before, after) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let at = |name: &str| before.path().join(name);
        fs::write(at("before"), "old").expect("written");
        let power = Power::of(before.path()).expect("watched");
        fs::write(at("before"), "newer").expect("written");
        fs::create_dir(at("folder")).expect("created");
        for name in ["name and bytes", "bytes only", "name only", "folder/neither"] {
            fs::write(at(name), "content").expect("written");
        }
        File::open(at("bytes only")).and_then(|file| file.sync_data()).expect("flushed");
        fs::rename(at("bytes only"), at("its new name")).expect("renamed");
        fs::rename(at("its new name"), at("folder/its new name")).expect("renamed");
        File::open(at("name and bytes")).and_then(|file| file.sync_all()).expect("flushed");
        File::open(before.path()).and_then(|directory| directory.sync_all()).expect("flushed");
        fs::write(at("name and bytes"), "not this").expect("written");

        power.cut(after.path()).expect("restored");
        let left = |name: &str| fs::read_to_string(after.path().join(name)).ok();
        assert_eq!(left("before").as_deref(), Some("old"));
        assert_eq!(left("name and bytes").as_deref(), Some("content"));
        assert_eq!(left("name only").as_deref(), Some(""));
        assert_eq!(left("folder").as_deref(), Some(""), "nothing of it was flushed but its name");
        assert_eq!(fs::read_dir(after.path()).expect("read").count(), 4);
    }
}
