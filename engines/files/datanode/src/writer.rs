//! Writes a replica.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use savanna_files::blocks::Replica;
use savanna_files::ids::{BlockId, Stamp};

use crate::meta::{self, Header};
use crate::{Copying, Entry, Form, ReplicaError, Replicas, Shared};

/// Writes a replica, until somebody else does. Dropped, it leaves what was written, to be gone on with.
#[derive(Debug)]
pub struct Writer {
    block: BlockId,
    stamp: Stamp,
    chunk: u32,
    shared: Shared,
    data: File,
    meta: File,
    folder: PathBuf,
    /// Of its bytes, as they are now and when they are whole.
    name: PathBuf,
    whole: PathBuf,
    used: Arc<AtomicU64>,
}

impl Writer {
    pub(crate) fn begin(replicas: &Replicas, block: BlockId, entry: Entry) -> io::Result<Self> {
        let (stamp, chunk) = (entry.stamp, entry.chunk);
        // Neither may be there: it would be somebody else's.
        let meta = File::options().read(true).write(true).create_new(true).open(replicas.meta(block))?;
        meta::write_header(&meta, Header { stamp, chunk })?;
        let name = replicas.data(block, entry.form());
        let data = File::options().read(true).write(true).create_new(true).open(&name)?;
        Ok(Self::over(replicas, block, (stamp, chunk), (Arc::new(Mutex::new(entry)), name), data, meta))
    }

    /// Over a replica that is locked, which gets a new generation.
    pub(crate) fn resume(
        replicas: &Replicas,
        block: BlockId,
        stamp: Stamp,
        shared: &Shared,
        entry: &Entry,
    ) -> io::Result<Self> {
        let open = |path| File::options().read(true).write(true).open(path);
        let data = open(replicas.data(block, entry.form()))?;
        let meta = open(replicas.meta(block))?;
        let before = meta::read_header(&meta)?;
        let chunk = before.chunk;
        if before.stamp != stamp {
            meta::write_header(&meta, Header { stamp, chunk })?;
            // Readers will be told of this generation.
            meta.sync_data()?;
        }
        cut_behind(&data, &meta, chunk, entry.length)?;
        // That is the name of one that a client goes on with.
        let name = replicas.data(block, Form::Begun);
        Ok(Self::over(replicas, block, (stamp, chunk), (Arc::clone(shared), name), data, meta))
    }

    fn over(
        replicas: &Replicas,
        block: BlockId,
        (stamp, chunk): (Stamp, u32),
        (shared, name): (Shared, PathBuf),
        data: File,
        meta: File,
    ) -> Self {
        let (folder, whole) = (replicas.folder(block), replicas.data(block, Form::Whole));
        Self { block, stamp, chunk, shared, data, meta, folder, name, whole, used: Arc::clone(&replicas.used) }
    }

    pub(crate) const fn block(&self) -> BlockId {
        self.block
    }

    pub(crate) fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    /// Bytes of a chunk.
    #[must_use]
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Writes bytes at an offset, which may be below the end: a client sends again what was not acknowledged, and the whole of a
    /// chunk that it has flushed in part. `sums` are the checksums of the chunks, big-endian, of which the first may begin in the
    /// middle; without any they are computed.
    ///
    /// # Errors
    /// [`ReplicaError::Replaced`], [`ReplicaError::Damaged`], [`ReplicaError::Io`].
    pub fn write(&mut self, offset: u64, bytes: &[u8], sums: &[u8]) -> Result<(), ReplicaError> {
        let mut entry = self.shared.lock();
        if entry.stamp != self.stamp || entry.is_gone || entry.is_whole || entry.recovery.is_some() {
            return Err(ReplicaError::Replaced { block: self.block, stamp: self.stamp });
        }
        if offset > entry.length {
            let length = entry.length;
            return Err(ReplicaError::Damaged(format!("expected bytes at {length} or before, came some at {offset}")));
        }
        let chunk = u64::from(self.chunk);
        let computed = self.check(offset, bytes, sums)?;
        self.data.write_all_at(bytes, offset)?;
        let first = offset / chunk;
        if first * chunk < entry.flushed {
            // A checksum is replaced that vouches for bytes which are to survive the end of the machine: what it is replaced for comes first.
            self.flushed(&mut entry, |writer| writer.data.sync_data())?;
        }
        let mut sums = computed;
        if !offset.is_multiple_of(chunk) && !bytes.is_empty() {
            // What was in the chunk before counts, too.
            let begin = first * chunk;
            let mut head = vec![0; (offset + bytes.len() as u64 - begin).min(chunk) as usize];
            self.data.read_exact_at(&mut head, begin)?;
            sums[..4].copy_from_slice(&crc32c::crc32c(&head).to_be_bytes());
        }
        self.meta.write_all_at(&sums, meta::place(first))?;
        let end = offset + bytes.len() as u64;
        if end > entry.length {
            self.used.fetch_add(end - entry.length, Ordering::Relaxed);
            entry.length = end;
        } else if end < entry.length && !end.is_multiple_of(chunk) {
            // The last chunk of what came again is longer on the disk.
            self.sum_again(end / chunk, entry.length)?;
        }
        Ok(())
    }

    /// Compares checksums with bytes, a chunk after the other; gives those of the bytes.
    fn check(&self, offset: u64, bytes: &[u8], sums: &[u8]) -> Result<Vec<u8>, ReplicaError> {
        let chunk = self.chunk as usize;
        let first = (chunk - (offset % u64::from(self.chunk)) as usize).min(bytes.len());
        let (head, rest) = bytes.split_at(first);
        let chunks = std::iter::once(head).filter(|head| !head.is_empty()).chain(rest.chunks(chunk));
        let computed: Vec<u8> = chunks.flat_map(|chunk| crc32c::crc32c(chunk).to_be_bytes()).collect();
        if !sums.is_empty() && computed != sums {
            let (block, came) = (self.block, sums.len() / 4);
            let words = format!(
                "Checksum error in block {block} at {offset}: {came} checksums came that are not those of the bytes"
            );
            return Err(ReplicaError::Damaged(words));
        }
        Ok(computed)
    }

    fn sum_again(&self, number: u64, length: u64) -> io::Result<()> {
        let begin = number * u64::from(self.chunk);
        let mut bytes = vec![0; (length - begin).min(u64::from(self.chunk)) as usize];
        self.data.read_exact_at(&mut bytes, begin)?;
        self.meta.write_all_at(&crc32c::crc32c(&bytes).to_be_bytes(), meta::place(number))
    }

    /// Makes what was written survive the end of the machine.
    ///
    /// # Errors
    /// [`ReplicaError::Failed`], [`ReplicaError::Io`].
    pub fn sync(&self) -> Result<(), ReplicaError> {
        let mut entry = self.shared.lock();
        self.flushed(&mut entry, Self::flush)?;
        entry.flushed = entry.length;
        Ok(())
    }

    /// All that another data node had has come: a client may go on with it. Until one does it counts for nothing.
    ///
    /// # Errors
    /// [`ReplicaError::Replaced`].
    pub fn has_come(self) -> Result<(), ReplicaError> {
        let mut entry = self.shared.lock();
        if entry.stamp != self.stamp || entry.is_gone || entry.copying == Copying::No {
            return Err(ReplicaError::Replaced { block: self.block, stamp: self.stamp });
        }
        entry.copying = Copying::Come;
        Ok(())
    }

    /// Ends the replica: it is whole from now on, and survives the end of the machine.
    ///
    /// # Errors
    /// [`ReplicaError::Replaced`], [`ReplicaError::Failed`], [`ReplicaError::Io`].
    pub fn finish(self) -> Result<Replica, ReplicaError> {
        let mut entry = self.shared.lock();
        if entry.stamp != self.stamp || entry.is_gone || entry.recovery.is_some() {
            return Err(ReplicaError::Replaced { block: self.block, stamp: self.stamp });
        }
        self.end(&mut entry)
    }

    /// Makes a replica whole: only when both files are flushed and the bytes have their name.
    pub(crate) fn end(&self, entry: &mut Entry) -> Result<Replica, ReplicaError> {
        let was_whole = entry.is_whole;
        let length = entry.length;
        self.flushed(entry, |writer| {
            cut_behind(&writer.data, &writer.meta, writer.chunk, length)?;
            writer.flush()?;
            if !was_whole {
                fs::rename(&writer.name, &writer.whole)?;
                File::open(&writer.folder)?.sync_all()?;
            }
            Ok(())
        })?;
        (entry.is_whole, entry.flushed, entry.copying) = (true, entry.length, Copying::No);
        Ok(Replica { block: self.block, stamp: self.stamp, length: entry.length })
    }

    /// Cuts a replica. The checksum of its new last chunk is there before bytes go, so that after a crash in between it is known of what it is.
    pub(crate) fn cut(&self, entry: &mut Entry, length: u64) -> Result<(), ReplicaError> {
        let chunk = u64::from(self.chunk);
        let (number, kept) = (length / chunk, (length % chunk) as usize);
        let begin = number * chunk;
        let mut bytes = vec![0; if kept > 0 { (entry.length - begin).min(chunk) as usize } else { 0 }];
        self.data.read_exact_at(&mut bytes, begin)?;
        let sums = [bytes.len(), kept.min(bytes.len())].map(|count| crc32c::crc32c(&bytes[..count]).to_be_bytes());
        if kept > 0 {
            let mut stored = [0; 4];
            self.meta.read_exact_at(&mut stored, meta::place(number))?;
            if !sums.contains(&stored) {
                let words = format!("Block {} is damaged at {begin}; it is not cut there", self.block);
                return Err(ReplicaError::Damaged(words));
            }
        }
        self.flushed(entry, |writer| {
            if kept > 0 {
                writer.meta.write_all_at(&sums[1], meta::place(number))?;
                writer.meta.sync_data()?;
            }
            writer.data.set_len(length)?;
            meta::cut(&writer.meta, writer.chunk, length)
        })?;
        self.used.fetch_sub(entry.length - length, Ordering::Relaxed);
        (entry.length, entry.flushed) = (length, entry.flushed.min(length));
        Ok(())
    }

    /// A flush that failed is final: the system may have dropped what it could not write, and the next flush would say nothing.
    fn flushed(&self, entry: &mut Entry, flush: impl FnOnce(&Self) -> io::Result<()>) -> Result<(), ReplicaError> {
        if entry.has_failed {
            return Err(ReplicaError::Failed { block: self.block });
        }
        flush(self).map_err(|error| {
            entry.has_failed = true;
            error.into()
        })
    }

    /// Flushes both files and their names.
    fn flush(&self) -> io::Result<()> {
        self.data.sync_data()?;
        self.meta.sync_data()?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Removes what is behind the end of a replica: bytes of a write that failed, or that nothing vouches for.
fn cut_behind(data: &File, meta: &File, chunk: u32, length: u64) -> io::Result<()> {
    if data.metadata()?.len() > length {
        data.set_len(length)?;
        meta::cut(meta, chunk, length)?;
    }
    Ok(())
}
