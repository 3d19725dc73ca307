//! The bytes of one file, as far as it has grown.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use savanna_streams_model::{Result, StreamError};

use crate::format::records::{ByteSource, Fill};

/// How often a file that is followed is looked at.
const POLL: Duration = Duration::from_millis(50);

/// One open file.
#[derive(Debug)]
pub(crate) struct FileBytes {
    file: File,
    path: PathBuf,
    position: u64,
    /// Whether to wait for more at the end.
    pub(crate) follow: bool,
}

impl FileBytes {
    /// Opens a file at a position.
    pub(crate) fn open(path: &Path, position: u64, follow: bool) -> Result<Self> {
        let failed = |e: std::io::Error| StreamError::io(format!("open {}", path.display()), &e);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < position {
            return Err(shrunk(path, position, length));
        }
        file.seek(SeekFrom::Start(position)).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), position, follow })
    }

    /// An error if the file is no longer the one that was opened, or has become shorter: what was read cannot be read
    /// again, so going on silently would break replay.
    fn check_still_there(&self) -> Result<()> {
        let failed = |e: std::io::Error| StreamError::io(format!("follow {}", self.path.display()), &e);
        let (open, named) = (self.file.metadata().map_err(failed)?, fs::metadata(&self.path).map_err(failed)?);
        if (open.dev(), open.ino()) != (named.dev(), named.ino()) {
            return Err(StreamError::Data {
                place: self.path.display().to_string(),
                message: "the file was replaced by another one while it was followed; follow a directory into which \
                          new files are put, or start the query anew"
                    .into(),
            });
        }
        if open.len() < self.position {
            return Err(shrunk(&self.path, self.position, open.len()));
        }
        Ok(())
    }
}

fn shrunk(path: &Path, read: u64, length: u64) -> StreamError {
    StreamError::Data {
        place: path.display().to_string(),
        message: format!(
            "expected at least the {read} bytes read before, got {length}: the file was truncated; only append to files \
             that are read, or start the query anew"
        ),
    }
}

impl ByteSource for FileBytes {
    fn fill(&mut self, buffer: &mut Vec<u8>, wanted: usize, wait: Duration) -> Result<Fill> {
        let read = (&mut self.file)
            .take(wanted as u64)
            .read_to_end(buffer)
            .map_err(|e| StreamError::io(format!("read {}", self.path.display()), &e))?;
        self.position += read as u64;
        if read > 0 {
            return Ok(Fill::More);
        }
        if !self.follow {
            return Ok(Fill::End);
        }
        self.check_still_there()?;
        thread::sleep(POLL.min(wait));
        Ok(Fill::Nothing)
    }
}
