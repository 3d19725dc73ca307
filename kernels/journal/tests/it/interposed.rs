//! A disk that calls a function before each operation.

use std::{fmt, io, sync::Arc};

use savanna_journal::{Disk, DiskFile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    List,
    Exists,
    Read,
    Create,
    Rename,
    Remove,
    SyncDir,
    Write,
    Sync,
}

/// What the function decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Do the operation.
    Go,
    /// Say yes without looking; only for [`Operation::Exists`].
    SayYes,
}

type Hook = dyn Fn(Operation) -> Then + Send + Sync;

#[derive(Clone)]
pub(crate) struct Interposed {
    disk: Arc<dyn Disk>,
    hook: Arc<Hook>,
}

impl Interposed {
    pub(crate) fn new(disk: Arc<dyn Disk>, hook: impl Fn(Operation) -> Then + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { disk, hook: Arc::new(hook) })
    }
}

impl fmt::Debug for Interposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interposed").field(&self.disk).finish()
    }
}

impl Disk for Interposed {
    fn list(&self) -> io::Result<Vec<String>> {
        (self.hook)(Operation::List);
        self.disk.list()
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        match (self.hook)(Operation::Exists) {
            Then::Go => self.disk.exists(name),
            Then::SayYes => Ok(true),
        }
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        (self.hook)(Operation::Read);
        self.disk.read(name, limit)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        (self.hook)(Operation::Create);
        Ok(Box::new(InterposedFile { file: self.disk.create(name)?, hook: Arc::clone(&self.hook) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.hook)(Operation::Rename);
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        (self.hook)(Operation::Remove);
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        (self.hook)(Operation::SyncDir);
        self.disk.sync_dir()
    }

    fn describe(&self, name: &str) -> String {
        self.disk.describe(name)
    }
}

struct InterposedFile {
    file: Box<dyn DiskFile>,
    hook: Arc<Hook>,
}

impl fmt::Debug for InterposedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InterposedFile").field(&self.file).finish()
    }
}

impl DiskFile for InterposedFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        (self.hook)(Operation::Write);
        self.file.write_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        (self.hook)(Operation::Sync);
        self.file.sync()
    }
}
