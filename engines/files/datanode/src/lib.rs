//! The embedded data node: replicas of blocks as files of a directory, with the checksums of their chunks beside them.
//!
//! ```text
//! DIR/<id mod 256>/blk_<id>          the bytes of a replica that is whole
//!                  blk_<id>.begun    of one that is being written
//!                  blk_<id>.meta     17 bytes of header: version 1 (u16), checksum 2 = CRC-32C (u8), bytes of a chunk (u32),
//!                                    reserved (u16), generation stamp (u64); then a checksum (u32) for each chunk; big-endian
//! ```
//!
//! A packet is acknowledged when the operating system has its bytes, and then its checksums: it survives the end of the process. A
//! replica is whole when both files are flushed and the directory says so: it survives the end of the machine. When the data
//! node begins, of a replica that was being written it keeps what its checksums vouch for.

mod meta;
mod reader;
mod writer;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use savanna_files::blocks::Replica;
use savanna_files::ids::{BlockId, Stamp};

pub use crate::meta::CHUNK_MAX;
use crate::meta::Header;
pub use crate::reader::{Digest, Reader};
pub use crate::writer::Writer;

/// What a replica of a block is at this moment.
#[derive(Debug)]
struct Entry {
    stamp: Stamp,
    length: u64,
    /// How many of its bytes were flushed, with their checksums.
    flushed: u64,
    chunk: u32,
    is_whole: bool,
    /// It was removed while somebody had it open.
    is_gone: bool,
    /// A flush of it failed: what of it is on the disk is not known, and no later flush says so.
    has_failed: bool,
    /// The generation under which others end it: nobody writes it until they have.
    recovery: Option<Stamp>,
    /// The process that wrote it has ended.
    is_left: bool,
    /// Another data node sends it, and no client writes it.
    is_copy: bool,
}

type Shared = Arc<Mutex<Entry>>;

/// What there is of a replica that others are about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its generation.
    pub stamp: Stamp,
    /// Its bytes.
    pub length: u64,
    /// What it is.
    pub state: Recovered,
}

/// What a replica is that others are about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It is whole.
    Whole,
    /// It was being written.
    Begun,
    /// It was being written when the process ended.
    Left,
}

/// Why a replica cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// There is none.
    #[error("Replica not found for block {block}: expected generation stamp {stamp} or an earlier one")]
    Missing {
        /// The block.
        block: BlockId,
        /// The generation that was asked for.
        stamp: Stamp,
    },
    /// There is one already.
    #[error("Block {block} already exists and is {state}; expected none, or one that is older than {stamp}")]
    Exists {
        /// The block.
        block: BlockId,
        /// The generation that was to be written.
        stamp: Stamp,
        /// What it is.
        state: &'static str,
    },
    /// Somebody else writes it now, or it was deleted.
    #[error("The writer of block {block} under generation stamp {stamp} was replaced, or the block was deleted")]
    Replaced {
        /// The block.
        block: BlockId,
        /// The generation of the writer.
        stamp: Stamp,
    },
    /// It could not be flushed once.
    #[error("Block {block} could not be flushed before, so it is not ended; it is checked at the next start")]
    Failed {
        /// The block.
        block: BlockId,
    },
    /// What came does not fit to what is there, or to its checksums.
    #[error("{0}")]
    Damaged(String),
    /// The disk.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// All replicas of a directory, which is theirs alone.
#[derive(Debug)]
pub struct Replicas {
    directory: PathBuf,
    entries: Mutex<HashMap<BlockId, Shared>>,
    /// There is something of them that cannot be used.
    damaged: Mutex<HashSet<BlockId>>,
    /// Folders whose names are durable.
    folders: Mutex<HashSet<PathBuf>>,
    used: Arc<AtomicU64>,
}

/// Bytes of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Of the file system.
    pub capacity: u64,
    /// Of replicas.
    pub used: u64,
    /// That are free.
    pub remaining: u64,
}

impl Replicas {
    /// Reads a directory, which is made if it is missing. Also says which replicas are whole.
    ///
    /// # Errors
    /// The disk.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<(Self, Vec<Replica>)> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        let replicas = Self {
            directory,
            entries: Mutex::default(),
            damaged: Mutex::default(),
            folders: Mutex::default(),
            used: Arc::default(),
        };
        let mut whole = Vec::new();
        for folder in fs::read_dir(&replicas.directory)? {
            let folder = folder?.path();
            if !folder.is_dir() {
                continue;
            }
            for file in fs::read_dir(folder)? {
                let file = file?.path();
                let Some((block, is_whole)) = block_of(&file) else { continue };
                let entry = match replicas.found(block, is_whole) {
                    Ok(entry) => entry,
                    Err(error) => {
                        tracing::warn!(%block, %error, "a replica is left alone: it cannot be read with its checksums");
                        replicas.damaged.lock().insert(block);
                        continue;
                    }
                };
                replicas.used.fetch_add(entry.length, Ordering::Relaxed);
                if is_whole {
                    whole.push(Replica { block, stamp: entry.stamp, length: entry.length });
                }
                replicas.entries.lock().insert(block, Arc::new(Mutex::new(entry)));
            }
        }
        Ok((replicas, whole))
    }

    /// What is on the disk of a replica.
    fn found(&self, block: BlockId, is_whole: bool) -> io::Result<Entry> {
        let (data, meta) = (File::open(self.data(block, is_whole))?, File::open(self.meta(block))?);
        let header = meta::read_header(&meta)?;
        let mut length = data.metadata()?.len();
        if !is_whole {
            // What is behind that goes when somebody goes on with the replica, and only if nothing of it was acknowledged.
            length = meta::vouched(&data, &meta, header.chunk)?;
        }
        let Header { stamp, chunk } = header;
        Ok(Entry {
            stamp,
            length,
            flushed: length,
            chunk,
            is_whole,
            is_gone: false,
            has_failed: false,
            recovery: None,
            is_left: !is_whole,
            is_copy: false,
        })
    }

    /// Begins a replica that another data node sends: what there is of an earlier attempt goes, and of an earlier generation; where the block is closed, and
    /// only then, also what a process left that has ended.
    ///
    /// # Errors
    /// [`ReplicaError::Exists`], [`ReplicaError::Io`].
    pub fn begin_copy(
        &self,
        block: BlockId,
        stamp: Stamp,
        chunk: u32,
        is_closed: bool,
    ) -> Result<Writer, ReplicaError> {
        let mut entries = self.entries.lock();
        let is_rest = |entry: &Shared| {
            let entry = entry.lock();
            let is_of_copy = entry.stamp == stamp && (entry.is_copy || (is_closed && entry.is_left));
            !entry.is_whole && (entry.stamp < stamp || is_of_copy)
        };
        if entries.get(&block).is_some_and(is_rest)
            && let Some(entry) = entries.remove(&block)
        {
            self.discard(block, &entry)?;
        }
        // Checksums whose bytes were lost are nothing.
        if !entries.contains_key(&block) && !self.damaged.lock().contains(&block) {
            self.remove_files(block)?;
        }
        drop(entries);
        let writer = self.begin(block, stamp, chunk)?;
        writer.shared().lock().is_copy = true;
        Ok(writer)
    }

    /// Begins a replica. One that is there may only be of an older generation, and not whole.
    ///
    /// # Errors
    /// [`ReplicaError::Exists`], [`ReplicaError::Io`].
    pub fn begin(&self, block: BlockId, stamp: Stamp, chunk: u32) -> Result<Writer, ReplicaError> {
        let mut entries = self.entries.lock();
        self.check_usable(block)?;
        if let Some(entry) = entries.get(&block) {
            let entry = entry.lock();
            if entry.is_whole || entry.stamp >= stamp {
                let state = if entry.is_whole { "whole" } else { "being written" };
                return Err(ReplicaError::Exists { block, stamp, state });
            }
        }
        if let Some(entry) = entries.remove(&block) {
            self.discard(block, &entry)?;
        }
        let folder = self.folder(block);
        if !self.folders.lock().contains(&folder) {
            fs::create_dir_all(&folder)?;
            File::open(&self.directory)?.sync_all()?;
            self.folders.lock().insert(folder);
        }
        let entry = Entry {
            stamp,
            length: 0,
            flushed: 0,
            chunk,
            is_whole: false,
            is_gone: false,
            has_failed: false,
            recovery: None,
            is_left: false,
            is_copy: false,
        };
        let writer = Writer::begin(self, block, entry)?;
        entries.insert(block, writer.shared());
        Ok(writer)
    }

    /// Goes on with a replica that is whole, under a generation that is not older. It has to have all that was acknowledged of it, and chunks of that size.
    ///
    /// # Errors
    /// [`ReplicaError::Missing`], [`ReplicaError::Failed`], [`ReplicaError::Damaged`], [`ReplicaError::Io`].
    pub fn append(&self, block: BlockId, stamp: Stamp, length: u64, chunk: u32) -> Result<Writer, ReplicaError> {
        self.check_usable(block)?;
        let shared = self.shared(block, stamp)?;
        let mut entry = shared.lock();
        // There are clients that go on under the generation that it has.
        if !entry.is_whole || entry.is_gone || entry.stamp > stamp || entry.recovery.is_some() {
            return Err(ReplicaError::Missing { block, stamp });
        }
        if entry.has_failed {
            return Err(ReplicaError::Failed { block });
        }
        if (entry.length, entry.chunk) != (length, chunk) {
            let words = format!(
                "Block {block} has {} bytes in chunks of {} here; expected {length} in chunks of {chunk}",
                entry.length, entry.chunk
            );
            return Err(ReplicaError::Damaged(words));
        }
        self.check_last_chunk(block, &entry)?;
        // No byte is added to what is called whole, also after the end of the machine.
        fs::rename(self.data(block, true), self.data(block, false))?;
        entry.is_whole = false;
        File::open(self.folder(block))?.sync_all()?;
        let writer = Writer::resume(self, block, &shared, (stamp, entry.length))?;
        (entry.stamp, entry.is_left, entry.is_copy) = (stamp, false, false);
        drop(entry);
        Ok(writer)
    }

    /// Goes on with a replica that is being written, under a new generation: who wrote it before is refused from now on. What is
    /// there has to reach as far as the client knows.
    ///
    /// # Errors
    /// [`ReplicaError::Missing`], [`ReplicaError::Damaged`], [`ReplicaError::Io`].
    pub fn resume(&self, block: BlockId, stamp: Stamp, least: u64) -> Result<Writer, ReplicaError> {
        let shared = self.shared(block, stamp)?;
        let mut entry = shared.lock();
        if entry.is_whole || entry.is_gone || entry.stamp > stamp || entry.recovery.is_some() {
            return Err(ReplicaError::Missing { block, stamp });
        }
        check_reaches(block, &entry, least)?;
        let writer = Writer::resume(self, block, &shared, (stamp, entry.length))?;
        (entry.stamp, entry.is_left, entry.is_copy) = (stamp, false, false);
        drop(entry);
        Ok(writer)
    }

    /// Ends a replica under a new generation, whatever its writer still wants; nothing if there is none. What is there has to
    /// reach as far as is known.
    ///
    /// # Errors
    /// [`ReplicaError::Replaced`] if its generation is newer, [`ReplicaError::Failed`], [`ReplicaError::Damaged`],
    /// [`ReplicaError::Io`].
    pub fn recover(&self, block: BlockId, stamp: Stamp, least: u64) -> Result<Option<Replica>, ReplicaError> {
        self.end(block, stamp, least, |_, _| Ok(()))
    }

    /// Cuts a replica to a length and ends it, under a new generation; nothing if there is none.
    ///
    /// # Errors
    /// [`ReplicaError::Replaced`] if its generation is newer, [`ReplicaError::Failed`], [`ReplicaError::Damaged`] if it is shorter, or its last chunk is
    /// not what its checksum says, [`ReplicaError::Io`].
    pub fn cut(&self, block: BlockId, stamp: Stamp, length: u64) -> Result<Option<Replica>, ReplicaError> {
        self.end(block, stamp, length, |writer, entry| writer.cut(entry, length))
    }

    /// Others are about to end a replica under a new generation: nobody writes it from now on. What it is; nothing if there is none.
    ///
    /// # Errors
    /// [`ReplicaError::Replaced`] if somebody ends it under a newer one, [`ReplicaError::Failed`], [`ReplicaError::Damaged`].
    pub fn begin_recovery(&self, block: BlockId, stamp: Stamp) -> Result<Option<Found>, ReplicaError> {
        self.check_usable(block)?;
        let Ok(shared) = self.shared(block, stamp) else { return Ok(None) };
        let mut entry = shared.lock();
        if entry.is_gone {
            return Ok(None);
        }
        if entry.stamp >= stamp || entry.recovery.is_some_and(|other| other > stamp) {
            return Err(ReplicaError::Replaced { block, stamp });
        }
        if entry.has_failed {
            return Err(ReplicaError::Failed { block });
        }
        entry.recovery = Some(stamp);
        let state = match (entry.is_whole, entry.is_left) {
            (true, _) => Recovered::Whole,
            (false, false) => Recovered::Begun,
            (false, true) => Recovered::Left,
        };
        Ok(Some(Found { stamp: entry.stamp, length: entry.length, state }))
    }

    /// Others have agreed how long a replica is: it is cut to that, and ended under the generation with which they began.
    ///
    /// # Errors
    /// [`ReplicaError::Missing`], [`ReplicaError::Replaced`] if they did not begin, or somebody else did since, and those of [`Self::cut`].
    pub fn end_recovery(&self, block: BlockId, stamp: Stamp, length: u64) -> Result<Replica, ReplicaError> {
        let begun = self.shared(block, stamp)?.lock().recovery;
        if begun != Some(stamp) {
            return Err(ReplicaError::Replaced { block, stamp });
        }
        self.cut(block, stamp, length)?.ok_or(ReplicaError::Missing { block, stamp })
    }

    /// Ends a replica that reaches as far as it has to, under a new generation, when `before` is done; nothing if there is none.
    fn end(
        &self,
        block: BlockId,
        stamp: Stamp,
        least: u64,
        before: impl FnOnce(&Writer, &mut Entry) -> Result<(), ReplicaError>,
    ) -> Result<Option<Replica>, ReplicaError> {
        self.check_usable(block)?;
        let Ok(shared) = self.shared(block, stamp) else { return Ok(None) };
        let mut entry = shared.lock();
        if entry.is_gone {
            return Ok(None);
        }
        if entry.stamp.max(entry.recovery.unwrap_or_default()) > stamp {
            return Err(ReplicaError::Replaced { block, stamp });
        }
        check_reaches(block, &entry, least)?;
        let writer = Writer::resume(self, block, &shared, (stamp, entry.length))?;
        (entry.stamp, entry.recovery) = (stamp, None);
        before(&writer, &mut entry)?;
        writer.end(&mut entry).map(Some)
    }

    /// Opens a replica for reading, whole or as far as it is written.
    ///
    /// # Errors
    /// [`ReplicaError::Missing`], [`ReplicaError::Io`].
    pub fn read(&self, block: BlockId, stamp: Stamp) -> Result<Reader, ReplicaError> {
        let shared = self.shared(block, stamp)?;
        let entry = shared.lock();
        // Of what was being written others may have more.
        if !entry.is_whole && entry.stamp < stamp {
            return Err(ReplicaError::Missing { block, stamp });
        }
        let data = File::open(self.data(block, entry.is_whole))?;
        let meta = File::open(self.meta(block))?;
        Ok(Reader::new(data, meta, &entry)?)
    }

    /// How many bytes of a replica there are to read.
    ///
    /// # Errors
    /// [`ReplicaError::Missing`].
    pub fn visible_length(&self, block: BlockId, stamp: Stamp) -> Result<u64, ReplicaError> {
        let shared = self.shared(block, stamp)?;
        let entry = shared.lock();
        if entry.stamp < stamp { Err(ReplicaError::Missing { block, stamp }) } else { Ok(entry.length) }
    }

    /// The generation of what there is of a block.
    #[must_use]
    pub fn stamp(&self, block: BlockId) -> Option<Stamp> {
        let entry = self.entries.lock().get(&block).cloned()?;
        let stamp = entry.lock().stamp;
        Some(stamp)
    }

    /// Removes a replica, if there is one.
    ///
    /// # Errors
    /// The disk.
    pub fn remove(&self, block: BlockId) -> io::Result<()> {
        let entry = self.entries.lock().remove(&block);
        if self.damaged.lock().remove(&block) {
            self.remove_files(block)?;
        }
        entry.map_or(Ok(()), |entry| self.discard(block, &entry))
    }

    /// Removes a replica, if it is of a generation.
    ///
    /// # Errors
    /// The disk.
    pub fn remove_generation(&self, block: BlockId, stamp: Stamp) -> io::Result<()> {
        let mut entries = self.entries.lock();
        if entries.get(&block).is_none_or(|entry| entry.lock().stamp != stamp) {
            return Ok(());
        }
        entries.remove(&block).map_or(Ok(()), |entry| self.discard(block, &entry))
    }

    /// All blocks of which there is anything.
    pub fn blocks(&self) -> Vec<BlockId> {
        let mut blocks: Vec<BlockId> = self.entries.lock().keys().copied().collect();
        blocks.extend(self.damaged.lock().iter());
        blocks
    }

    /// Bytes of the disk.
    #[must_use]
    pub fn space(&self) -> Space {
        let used = self.used.load(Ordering::Relaxed);
        match rustix::fs::statvfs(&self.directory) {
            Ok(disk) => Space {
                capacity: disk.f_blocks.saturating_mul(disk.f_frsize),
                used,
                remaining: disk.f_bavail.saturating_mul(disk.f_frsize),
            },
            Err(_) => Space { used, ..Space::default() },
        }
    }

    /// The replica of a block, whatever generation it has.
    fn shared(&self, block: BlockId, stamp: Stamp) -> Result<Shared, ReplicaError> {
        self.entries.lock().get(&block).cloned().ok_or(ReplicaError::Missing { block, stamp })
    }

    fn discard(&self, block: BlockId, entry: &Shared) -> io::Result<()> {
        let mut entry = entry.lock();
        entry.is_gone = true;
        self.used.fetch_sub(entry.length, Ordering::Relaxed);
        self.remove_files(block)
    }

    fn remove_files(&self, block: BlockId) -> io::Result<()> {
        // The checksums go last: without bytes they are nothing.
        for file in [self.data(block, true), self.data(block, false), self.meta(block)] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the last chunk of a replica is what its checksum says, if it is to grow: its next checksum vouches for what is there.
    fn check_last_chunk(&self, block: BlockId, entry: &Entry) -> Result<(), ReplicaError> {
        let (number, count) = (entry.length / u64::from(entry.chunk), entry.length % u64::from(entry.chunk));
        if count == 0 {
            return Ok(());
        }
        let (mut bytes, mut sum) = (vec![0; count as usize], [0; 4]);
        let begin = entry.length - count;
        File::open(self.data(block, true))?.read_exact_at(&mut bytes, begin)?;
        File::open(self.meta(block))?.read_exact_at(&mut sum, meta::place(number))?;
        if crc32c::crc32c(&bytes) != u32::from_be_bytes(sum) {
            return Err(ReplicaError::Damaged(format!("Block {block} is damaged at {begin}; nothing is added to it")));
        }
        Ok(())
    }

    /// What is there of a block and cannot be used is not replaced: somebody may know how to mend it.
    fn check_usable(&self, block: BlockId) -> Result<(), ReplicaError> {
        if self.damaged.lock().contains(&block) {
            let words = format!("Block {block} is here and cannot be read with its checksums");
            return Err(ReplicaError::Damaged(words));
        }
        Ok(())
    }

    fn folder(&self, block: BlockId) -> PathBuf {
        self.directory.join(format!("{:02x}", block.0 % 256))
    }

    fn data(&self, block: BlockId, is_whole: bool) -> PathBuf {
        self.folder(block).join(if is_whole { format!("blk_{block}") } else { format!("blk_{block}.begun") })
    }

    fn meta(&self, block: BlockId) -> PathBuf {
        self.folder(block).join(format!("blk_{block}.meta"))
    }
}

/// Whether a replica reaches as far as was acknowledged.
fn check_reaches(block: BlockId, entry: &Entry, least: u64) -> Result<(), ReplicaError> {
    let length = entry.length;
    if length < least {
        let words = format!("Block {block} has {length} bytes here, and {least} were acknowledged");
        return Err(ReplicaError::Damaged(words));
    }
    Ok(())
}

/// The block that a file has bytes of, and whether all of them.
fn block_of(file: &Path) -> Option<(BlockId, bool)> {
    let name = file.file_name()?.to_str()?.strip_prefix("blk_")?;
    let number = name.strip_suffix(".begun").unwrap_or(name);
    Some((BlockId(number.parse().ok()?), number == name))
}

#[cfg(test)]
mod tests;
