//! A disk on which a fence is never seen to be gone: the journal on it is broken on purpose.

use std::{fmt, io, sync::Arc};

use savanna_journal::{Disk, DiskFile, sim::SimDisk};

/// Hides from a journal that a newer owner removed its fence.
pub(crate) struct FenceBlindDisk {
    disk: Arc<SimDisk>,
}

impl FenceBlindDisk {
    pub(crate) fn new(disk: Arc<SimDisk>) -> Self {
        Self { disk }
    }
}

impl fmt::Debug for FenceBlindDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FenceBlindDisk")
    }
}

impl Disk for FenceBlindDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(name.starts_with("fence-") || self.disk.exists(name)?)
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        self.disk.read(name, limit)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn describe(&self, name: &str) -> String {
        self.disk.describe(name)
    }
}
