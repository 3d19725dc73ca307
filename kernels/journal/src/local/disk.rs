//! The few things that the log needs of a file system.

use std::{
    fmt::Debug,
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Once,
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

/// A directory that holds one log. The real one is [`OsDisk`], the simulated one [`SimDisk`](crate::sim::SimDisk).
pub trait Disk: Debug + Send + Sync {
    /// The names of all files; none if the directory is not there.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Whether a file is there.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn exists(&self, name: &str) -> io::Result<bool>;

    /// The first `limit` bytes of a file, or fewer if it is shorter.
    ///
    /// # Errors
    /// When the file is not there or cannot be read.
    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>>;

    /// Creates an empty file and opens it for writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if there is one of that name, and whatever the disk says.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file; one that has the new name is replaced.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable which files there are: what was created, renamed and removed.
    ///
    /// # Errors
    /// Whatever the disk says; it is then unknown which files there are after a crash.
    fn sync_dir(&self) -> io::Result<()>;

    /// How messages name a file: its whole path.
    fn describe(&self, name: &str) -> String;
}

/// A file open for writing.
pub trait DiskFile: Debug + Send {
    /// Writes at an offset and returns how many bytes were taken, which may be fewer than given.
    ///
    /// # Errors
    /// Whatever the disk says; some of the bytes may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes durable what was written (fdatasync).
    ///
    /// # Errors
    /// Whatever the disk says; it is then unknown which bytes are durable, and a second attempt would not tell.
    fn sync(&mut self) -> io::Result<()>;

    /// The same file for a second thread, which only takes space with it; `None` if that is not possible, and nobody can be sure of
    /// space then.
    ///
    /// # Errors
    /// Whatever the operating system says.
    fn twin(&self) -> io::Result<Option<Box<dyn DiskFile>>> {
        Ok(None)
    }

    /// Takes the space between two offsets, behind the end of the file: what is written there later finds it. Until then it reads as
    /// zeros.
    ///
    /// # Errors
    /// Whatever the disk says; some of the space may have been taken.
    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()> {
        write_zeros(self, from, to)
    }

    /// Gives back what is behind an offset.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn shorten(&mut self, _to: u64) -> io::Result<()> {
        Ok(())
    }
}

/// No more is written at once: a quarter of a millisecond.
const PIECE_BYTES: u64 = 128 << 10;
static ZEROS: [u8; PIECE_BYTES as usize] = [0; PIECE_BYTES as usize];

/// Writes zeros between two offsets.
pub(super) fn write_zeros<F: DiskFile + ?Sized>(file: &mut F, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let zeros = &ZEROS[..PIECE_BYTES.min(to - at) as usize];
        match file.write_at(zeros, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => at += written as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A directory of the operating system.
#[derive(Debug)]
pub struct OsDisk {
    dir: PathBuf,
    create: Once,
}

impl OsDisk {
    /// The directory is created with its first file: who only looks for a log leaves everything as it is.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), create: Once::new() }
    }

    fn create_dir(&self) -> io::Result<()> {
        let mut result = Ok(());
        self.create.call_once(|| {
            result = std::fs::create_dir_all(&self.dir).and_then(|()| match self.dir.canonicalize()?.parent() {
                Some(parent) => File::open(parent)?.sync_all(),
                None => Ok(()),
            });
        });
        result
    }
}

impl Disk for OsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            entries => entries?,
        };
        for entry in entries {
            // A name that is not Unicode is none of the log's.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.dir.join(name).try_exists()
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.dir.join(name))?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.create_dir()?;
        let file = OpenOptions::new().write(true).create_new(true).open(self.dir.join(name))?;
        Ok(Box::new(OsFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn describe(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

#[derive(Debug)]
struct OsFile(File);

impl DiskFile for OsFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn twin(&self) -> io::Result<Option<Box<dyn DiskFile>>> {
        Ok(Some(Box::new(Self(self.0.try_clone()?))))
    }

    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), from, to - from) {
            // Some file systems have no such thing.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => write_zeros(self, from, to),
            taken => Ok(taken?),
        }
    }

    fn shorten(&mut self, to: u64) -> io::Result<()> {
        self.0.set_len(to)
    }
}
