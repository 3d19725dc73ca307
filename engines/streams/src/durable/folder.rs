//! A directory that a user names: what is in it may be anybody's.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::snapshots::{Summed, WRITE_BYTES};

/// The directory. What is written there is for nobody but its owner.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes it and what is missing above it, each with its name made durable.
    pub(super) fn make(directory: &Path) -> io::Result<Self> {
        let directory = std::path::absolute(directory)?;
        let missing: Vec<&Path> = directory.ancestors().take_while(|above| above.symlink_metadata().is_err()).collect();
        for directory in missing.iter().rev() {
            match DirBuilder::new().mode(0o700).create(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if let Some(above) = directory.parent() {
                File::open(above)?.sync_all()?;
            }
        }
        Ok(Self(directory))
    }

    /// One that is there.
    pub(super) fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        Ok(fs::read_dir(&self.0)?.next().is_none())
    }

    /// Writes a new file, durably but for its name. Tells its length and CRC-32C.
    pub(super) fn write(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<(u64, u32)> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.0.join(name))?;
        let mut out = BufWriter::with_capacity(WRITE_BYTES, Summed::new(file));
        write(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.out.sync_data()?;
        Ok((file.bytes, file.checksum))
    }

    /// Reads a file that has so many bytes, or at most so many if `exactly` is false. Links are not followed, and nothing but a file is
    /// read: a name cannot lead elsewhere.
    pub(super) fn read(&self, name: &str, bytes: u64, exactly: bool) -> Result<Vec<u8>, String> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(self.0.join(name));
        let file = open.map_err(|e| e.to_string())?;
        let found = file.metadata().map_err(|e| e.to_string())?;
        if !found.is_file() {
            return Err("expected a file, got something else".into());
        }
        if found.len() > bytes || exactly && found.len() != bytes {
            return Err(format!("it is damaged: expected {bytes} bytes, got {}", found.len()));
        }
        let mut read = Vec::new();
        file.take(bytes).read_to_end(&mut read).map_err(|e| e.to_string())?;
        Ok(read)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    /// Makes durable which files there are.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}
