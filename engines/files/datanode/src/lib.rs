//! The embedded data node: replicas of blocks as files of a directory, with the checksums of their chunks beside them.
//!
//! ```text
//! DIR/<id mod 256>/blk_<id>          the bytes of a replica that is whole
//!                  blk_<id>.begun    of one that is being written
//!                  blk_<id>.copy     of one that another data node sends
//!                  blk_<id>.meta     17 bytes of header: version 1 (u16), checksum 2 = CRC-32C (u8), bytes of a chunk (u32),
//!                                    reserved (u16), generation stamp (u64); then a checksum (u32) for each chunk; big-endian
//! ```
//!
//! A packet is acknowledged when the operating system has its bytes, and then its checksums: it survives the end of the process. A
//! replica is whole when both files are flushed and the directory says so: it survives the end of the machine. When the data
//! node begins, of a replica that was being written it keeps what its checksums vouch for. What another data node sends is no replica before all of it is here,
//! and has to be whole, or a client has gone on with it: until then nobody is told of it, and it goes with the process.

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
    copying: Copying,
}

/// Whether another data node sends a replica, and nobody has gone on with it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    /// A client writes it, or it is whole.
    No,
    /// A part of it is here.
    Coming,
    /// All of it that the other one had is here.
    Come,
}

/// What the bytes of a replica are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Whole,
    Begun,
    Copy,
}

impl Entry {
    /// One that begins.
    const fn new(stamp: Stamp, chunk: u32, copying: Copying) -> Self {
        Self {
            stamp,
            length: 0,
            flushed: 0,
            chunk,
            is_whole: false,
            is_gone: false,
            has_failed: false,
            recovery: None,
            is_left: false,
            copying,
        }
    }

    const fn form(&self) -> Form {
        match (self.is_whole, self.copying) {
            (true, _) => Form::Whole,
            (false, Copying::No) => Form::Begun,
            (false, Copying::Coming | Copying::Come) => Form::Copy,
        }
    }
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
    /// It was being written when the machine ended.
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
    /// The machine has been running since they were read last.
    is_same_boot: bool,
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
        Self::open_unless(directory, || false)
    }

    /// The same, which is given up when it is not wanted any more: that takes as long as there are many.
    ///
    /// # Errors
    /// The disk; [`io::ErrorKind::Interrupted`] if it is given up.
    pub fn open_unless(directory: impl Into<PathBuf>, is_over: impl Fn() -> bool) -> io::Result<(Self, Vec<Replica>)> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        let replicas = Self {
            is_same_boot: is_same_boot(&directory),
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
                if is_over() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let Some((block, form)) = block_of(&file) else { continue };
                if form == Form::Copy {
                    replicas.remove_copy(block)?;
                    continue;
                }
                let is_whole = form == Form::Whole;
                let entry = match replicas.found(block, form) {
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
        replicas.note_boot();
        Ok((replicas, whole))
    }

    /// Keeps in which run of the machine this is. As long as there is anything that was cut perhaps when the one before ended, that is still so at the next start.
    fn note_boot(&self) {
        let has_left =
            !self.damaged.lock().is_empty() || self.entries.lock().values().any(|entry| entry.lock().is_left);
        if self.is_same_boot || has_left {
            return;
        }
        if let Err(error) = keep_boot(&self.directory) {
            tracing::warn!(%error, "in which run of the machine this is cannot be kept: at the next start, what is not whole counts as cut by its end");
        }
    }

    /// What is on the disk of a replica.
    fn found(&self, block: BlockId, form: Form) -> io::Result<Entry> {
        let (data, meta) = (File::open(self.data(block, form))?, File::open(self.meta(block))?);
        let header = meta::read_header(&meta)?;
        let mut length = data.metadata()?.len();
        let is_whole = form == Form::Whole;
        if !is_whole {
            // What is behind that goes when somebody goes on with the replica, and only if nothing of it was acknowledged.
            length = meta::vouched(&data, &meta, header.chunk)?;
        }
        let entry = Entry::new(header.stamp, header.chunk, Copying::No);
        Ok(Entry { length, flushed: length, is_whole, is_left: !is_whole, ..entry })
    }

    /// What a process took that has ended, and nobody went on with: with its checksums, unless those are of a replica beside it.
    fn remove_copy(&self, block: BlockId) -> io::Result<()> {
        fs::remove_file(self.data(block, Form::Copy))?;
        if [Form::Whole, Form::Begun].iter().any(|form| self.data(block, *form).exists()) {
            return Ok(());
        }
        match fs::remove_file(self.meta(block)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Begins a replica that another data node sends: what there is of an earlier attempt goes, and of an earlier generation; where the block is closed, and
    /// only then, also what a process left that has ended. It is none before it is whole, or a client goes on with it.
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
            let is_of_copy = entry.stamp == stamp && (entry.copying != Copying::No || (is_closed && entry.is_left));
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
        self.begin_as(block, Entry::new(stamp, chunk, Copying::Coming))
    }

    /// Nothing more comes of a copy: nothing of it stays, unless something else is in its place.
    ///
    /// # Errors
    /// The disk.
    pub fn break_off(&self, copy: Writer) -> io::Result<()> {
        let (block, shared) = (copy.block(), copy.shared());
        let mut entries = self.entries.lock();
        let is_it = entries.get(&block).is_some_and(|entry| Arc::ptr_eq(entry, &shared));
        if !is_it || shared.lock().copying != Copying::Coming {
            return Ok(());
        }
        entries.remove(&block);
        self.discard(block, &shared)
    }

    /// Begins a replica. One that is there may only be of an older generation, and not whole.
    ///
    /// # Errors
    /// [`ReplicaError::Exists`], [`ReplicaError::Io`].
    pub fn begin(&self, block: BlockId, stamp: Stamp, chunk: u32) -> Result<Writer, ReplicaError> {
        self.begin_as(block, Entry::new(stamp, chunk, Copying::No))
    }

    fn begin_as(&self, block: BlockId, new: Entry) -> Result<Writer, ReplicaError> {
        let stamp = new.stamp;
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
        let writer = Writer::begin(self, block, new)?;
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
        fs::rename(self.data(block, Form::Whole), self.data(block, Form::Begun))?;
        entry.is_whole = false;
        File::open(self.folder(block))?.sync_all()?;
        let writer = Writer::resume(self, block, stamp, &shared, &entry)?;
        (entry.stamp, entry.is_left) = (stamp, false);
        drop(entry);
        Ok(writer)
    }

    /// Goes on with a replica that is being written, or that has come from another data node, under a new generation: who wrote it before is refused from now on.
    /// What is there has to reach as far as the client knows.
    ///
    /// # Errors
    /// [`ReplicaError::Missing`], [`ReplicaError::Damaged`], [`ReplicaError::Io`].
    pub fn resume(&self, block: BlockId, stamp: Stamp, least: u64) -> Result<Writer, ReplicaError> {
        let shared = self.shared(block, stamp)?;
        let mut entry = shared.lock();
        let is_here = !entry.is_whole && !entry.is_gone && entry.copying != Copying::Coming;
        if !is_here || entry.stamp > stamp || entry.recovery.is_some() {
            return Err(ReplicaError::Missing { block, stamp });
        }
        check_reaches(block, &entry, least)?;
        let writer = Writer::resume(self, block, stamp, &shared, &entry)?;
        if entry.copying == Copying::Come {
            // Its name changes last: before, it goes with the process.
            fs::rename(self.data(block, Form::Copy), self.data(block, Form::Begun))?;
            entry.copying = Copying::No;
        }
        (entry.stamp, entry.is_left) = (stamp, false);
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
        let Some(shared) = self.written(block)? else { return Ok(None) };
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
        Ok(Some(Found { stamp: entry.stamp, length: entry.length, state: self.state(&entry) }))
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
        let Some(shared) = self.written(block)? else { return Ok(None) };
        let mut entry = shared.lock();
        if entry.is_gone {
            return Ok(None);
        }
        if entry.stamp.max(entry.recovery.unwrap_or_default()) > stamp {
            return Err(ReplicaError::Replaced { block, stamp });
        }
        check_reaches(block, &entry, least)?;
        let writer = Writer::resume(self, block, stamp, &shared, &entry)?;
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
        if entry.form() == Form::Copy || !entry.is_whole && entry.stamp < stamp {
            return Err(ReplicaError::Missing { block, stamp });
        }
        let data = File::open(self.data(block, entry.form()))?;
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
        let is_here = entry.form() != Form::Copy && entry.stamp >= stamp;
        if is_here { Ok(entry.length) } else { Err(ReplicaError::Missing { block, stamp }) }
    }

    /// The generation of what there is of a block.
    #[must_use]
    pub fn stamp(&self, block: BlockId) -> Option<Stamp> {
        Some(self.look(block)?.stamp)
    }

    /// What there is of a block.
    #[must_use]
    pub fn look(&self, block: BlockId) -> Option<Found> {
        let entry = self.entries.lock().get(&block).cloned()?;
        let entry = entry.lock();
        let state = self.state(&entry);
        (entry.form() != Form::Copy).then_some(Found { stamp: entry.stamp, length: entry.length, state })
    }

    /// What the end of a process left has all that was acknowledged; what the end of the machine left perhaps not.
    const fn state(&self, entry: &Entry) -> Recovered {
        match (entry.is_whole, entry.is_left && !self.is_same_boot) {
            (true, _) => Recovered::Whole,
            (false, false) => Recovered::Begun,
            (false, true) => Recovered::Left,
        }
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

    /// What there is of a replica that is to be ended. A copy that nobody has gone on with is none, and goes: nobody shall go on with it later.
    fn written(&self, block: BlockId) -> io::Result<Option<Shared>> {
        let Some(shared) = self.entries.lock().get(&block).cloned() else { return Ok(None) };
        let mut entry = shared.lock();
        if entry.form() != Form::Copy || entry.is_gone {
            drop(entry);
            return Ok(Some(shared));
        }
        // Nobody goes on with it in between.
        entry.is_gone = true;
        drop(entry);
        let mut entries = self.entries.lock();
        if entries.get(&block).is_some_and(|other| Arc::ptr_eq(other, &shared)) {
            entries.remove(&block);
            self.discard(block, &shared)?;
        }
        Ok(None)
    }

    fn discard(&self, block: BlockId, entry: &Shared) -> io::Result<()> {
        let mut entry = entry.lock();
        entry.is_gone = true;
        self.used.fetch_sub(entry.length, Ordering::Relaxed);
        self.remove_files(block)
    }

    fn remove_files(&self, block: BlockId) -> io::Result<()> {
        // The checksums go last: without bytes they are nothing.
        let forms = [Form::Whole, Form::Begun, Form::Copy].map(|form| self.data(block, form));
        for file in forms.into_iter().chain([self.meta(block)]) {
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
        File::open(self.data(block, Form::Whole))?.read_exact_at(&mut bytes, begin)?;
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

    fn data(&self, block: BlockId, form: Form) -> PathBuf {
        let end = match form {
            Form::Whole => "",
            Form::Begun => BEGUN,
            Form::Copy => COPY,
        };
        self.folder(block).join(format!("blk_{block}{end}"))
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

/// The file that says in which run of the machine replicas were read, of which none was left of an earlier one.
const BOOT: &str = "boot";
/// What the machine calls its run.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the machine calls its run; nothing if it does not say.
fn boot() -> Option<Vec<u8>> {
    fs::read(BOOT_ID).ok()
}

/// Whether the machine has been running since its run was kept, as far as it says so.
fn is_same_boot(directory: &Path) -> bool {
    boot().is_some_and(|boot| fs::read(directory.join(BOOT)).is_ok_and(|before| before == boot))
}

/// From now on this is the run of the machine.
fn keep_boot(directory: &Path) -> io::Result<()> {
    let Some(boot) = boot() else { return Ok(()) };
    let beside = directory.join("boot.new");
    fs::write(&beside, &boot)?;
    File::open(&beside)?.sync_all()?;
    fs::rename(&beside, directory.join(BOOT))?;
    File::open(directory)?.sync_all()
}

/// How names of bytes end that are not whole.
const BEGUN: &str = ".begun";
const COPY: &str = ".copy";

/// The block that a file has bytes of, and what they are.
fn block_of(file: &Path) -> Option<(BlockId, Form)> {
    let name = file.file_name()?.to_str()?.strip_prefix("blk_")?;
    let ends = [(BEGUN, Form::Begun), (COPY, Form::Copy)];
    let end = ends.iter().find_map(|(end, form)| Some((name.strip_suffix(end)?, *form)));
    let (number, form) = end.unwrap_or((name, Form::Whole));
    Some((BlockId(number.parse().ok()?), form))
}

#[cfg(test)]
mod tests;
