//! The bytes of one file, as far as it has grown.

use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use savanna_streams_api::{Result, StreamError};

use crate::format::records::{ByteSource, Fill};

/// How many bytes at the start of a followed file, and before the place up to which it was read, are remembered.
const REMEMBERED: usize = 1 << 10;

/// Which file it is that was read, and what it was like then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    device: u64,
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
}

impl Seen {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let (device, inode, length) = (metadata.dev(), metadata.ino(), metadata.len());
        Self { device, inode, length, modified: metadata.modified().ok() }
    }

    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

/// What a followed file began with, and what lies before the place up to which it was read: a file that was written anew has
/// other bytes there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    head: Vec<u8>,
    /// Those before `upto`.
    before: Vec<u8>,
    upto: u64,
}

impl Remembered {
    /// Of a file that is read from a place on.
    fn at(file: &File, position: u64) -> std::io::Result<Self> {
        let length = usize::try_from(position).map_or(REMEMBERED, |position| position.min(REMEMBERED));
        let (mut head, mut before) = (vec![0; length], vec![0; length]);
        file.read_exact_at(&mut head, 0)?;
        file.read_exact_at(&mut before, position - length as u64)?;
        Ok(Self { head, before, upto: position })
    }

    /// Takes in what was read at `upto`.
    fn take(&mut self, bytes: &[u8]) {
        if self.head.len() as u64 == self.upto {
            let room = REMEMBERED - self.head.len();
            self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        self.before.extend_from_slice(&bytes[bytes.len().saturating_sub(REMEMBERED)..]);
        self.before.drain(..self.before.len().saturating_sub(REMEMBERED));
        self.upto += bytes.len() as u64;
    }

    /// A fingerprint of how the file begins, of what was read up to a place: FNV-1a.
    pub(crate) fn head(&self, upto: u64) -> String {
        let length = usize::try_from(upto).map_or(REMEMBERED, |upto| upto.min(REMEMBERED)).min(self.head.len());
        let hash = self.head[..length].iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// Whether the file still holds these bytes.
    fn is_in(&self, file: &File) -> std::io::Result<bool> {
        let holds = |expected: &[u8], at: u64| {
            let mut found = vec![0; expected.len()];
            match file.read_exact_at(&mut found, at) {
                Ok(()) => Ok(found == expected),
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
                Err(e) => Err(e),
            }
        };
        Ok(holds(&self.head, 0)? && holds(&self.before, self.upto - self.before.len() as u64)?)
    }
}

/// One open file.
#[derive(Debug)]
pub(crate) struct FileBytes {
    file: File,
    path: PathBuf,
    position: u64,
    /// What must not change, if the file may grow.
    followed: Option<Remembered>,
}

impl FileBytes {
    /// Opens a file at a position.
    pub(crate) fn open(path: &Path, position: u64) -> Result<Self> {
        let failed = |e: std::io::Error| StreamError::io(format!("open {}", path.display()), &e);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < position {
            return Err(shrunk(path, position, length));
        }
        file.seek(SeekFrom::Start(position)).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), position, followed: None })
    }

    /// The file may grow, and must hold what is remembered of it, if it was open before.
    pub(crate) fn followed(mut self, remembered: Option<Remembered>) -> Result<Self> {
        let failed = |e: std::io::Error| StreamError::io(format!("follow {}", self.path.display()), &e);
        self.followed = Some(match remembered {
            Some(remembered) => remembered,
            None => Remembered::at(&self.file, self.position).map_err(failed)?,
        });
        self.check_unchanged()?;
        Ok(self)
    }

    /// A fingerprint of how the file begins, of what was read up to a place, if it is followed.
    pub(crate) fn head(&self, upto: u64) -> Option<String> {
        self.followed.as_ref().map(|remembered| remembered.head(upto))
    }

    /// The file does not grow any more.
    pub(crate) fn stop_following(&mut self) {
        self.followed = None;
    }

    /// Which file is open.
    pub(crate) fn seen(&self) -> Result<Seen> {
        let failed = |e: std::io::Error| StreamError::io(format!("look at {}", self.path.display()), &e);
        Ok(Seen::of(&self.file.metadata().map_err(failed)?))
    }

    /// What is remembered of it.
    pub(crate) fn remembered(&self) -> Option<Remembered> {
        self.followed.clone()
    }

    /// What was read cannot be read again if it is not there any more, so going on silently would break replay.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let Some(remembered) = &self.followed else { return Ok(()) };
        let failed = |e: std::io::Error| StreamError::io(format!("follow {}", self.path.display()), &e);
        if remembered.is_in(&self.file).map_err(failed)? {
            return Ok(());
        }
        let length = self.file.metadata().map_err(failed)?.len();
        if length < remembered.upto {
            return Err(shrunk(&self.path, remembered.upto, length));
        }
        Err(StreamError::Data {
            place: self.path.display().to_string(),
            message: format!(
                "expected the {} bytes read before and more behind them, got others: the file was rewritten; only append \
                 to files that are followed, or start the query again",
                remembered.upto
            ),
        })
    }
}

/// What a path names now; none if there is nothing.
pub(crate) fn look(path: &Path) -> Result<Option<Seen>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(Seen::of(&metadata))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(StreamError::io(format!("follow {}", path.display()), &e)),
    }
}

/// That a file has become shorter.
pub(crate) fn shrunk(path: &Path, read: u64, length: u64) -> StreamError {
    StreamError::Data {
        place: path.display().to_string(),
        message: format!(
            "expected at least the {read} bytes read before, got {length}: the file was truncated; only append to files \
             that are read, or start the query again"
        ),
    }
}

/// That a path names another file.
pub(crate) fn replaced(path: &Path) -> StreamError {
    StreamError::Data {
        place: path.display().to_string(),
        message:
            "expected the file that was read before, got another one of its name: the file was replaced; follow a \
                  directory into which new files are put, each with a name of its own, or start the query again"
                .into(),
    }
}

impl ByteSource for FileBytes {
    fn fill(&mut self, buffer: &mut Vec<u8>, wanted: usize, _: Duration) -> Result<Fill> {
        let before = buffer.len();
        let read = (&mut self.file)
            .take(wanted as u64)
            .read_to_end(buffer)
            .map_err(|e| StreamError::io(format!("read {}", self.path.display()), &e))?;
        self.position += read as u64;
        self.check_unchanged()?;
        if let Some(remembered) = &mut self.followed {
            // What was read before the file was opened again is known already.
            let new = usize::try_from(self.position.saturating_sub(remembered.upto)).unwrap_or(0).min(read);
            remembered.take(&buffer[before + read - new..]);
        }
        match (read > 0, self.followed.is_some()) {
            (true, _) => Ok(Fill::More),
            (false, true) => Ok(Fill::Nothing),
            (false, false) => Ok(Fill::End),
        }
    }
}
