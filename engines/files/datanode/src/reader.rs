//! Reads a replica.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use md5::{Digest as _, Md5};

use crate::{Entry, meta};

/// Bytes that are compared with their checksums at a time.
const CHECKED: usize = 1 << 20;

/// A replica as far as it was there when it was opened.
#[derive(Debug)]
pub struct Reader {
    data: File,
    meta: File,
    length: u64,
    chunk: u32,
    is_whole: bool,
    /// The checksum of the last chunk of what is whole, if that is not full: somebody may append to it meanwhile.
    last: Option<[u8; 4]>,
}

/// What a block's checksums come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Chunks.
    pub chunks: u64,
    /// The MD5 of all checksums.
    pub md5: [u8; 16],
}

impl Reader {
    /// Of a replica that is locked.
    pub(crate) fn new(data: File, meta: File, entry: &Entry) -> io::Result<Self> {
        let Entry { length, chunk, is_whole, .. } = *entry;
        let mut last = None;
        if is_whole && !length.is_multiple_of(u64::from(chunk)) {
            meta.read_exact_at(last.insert([0; 4]), meta::place(length / u64::from(chunk)))?;
        }
        Ok(Self { data, meta, length, chunk, is_whole, last })
    }

    /// Bytes that there are.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Whether nobody writes it.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Bytes of a chunk.
    #[must_use]
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Reads bytes from the beginning of a chunk on, as many as there are up to a limit that is a multiple of chunks, and the
    /// checksums of their chunks.
    ///
    /// # Errors
    /// The disk.
    pub fn read(&self, offset: u64, limit: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let count = self.length.saturating_sub(offset).min(limit as u64) as usize;
        let mut bytes = vec![0; count];
        self.data.read_exact_at(&mut bytes, offset)?;
        let chunk = self.chunk as usize;
        // The checksum of the last chunk grows with it while it is written, and was perhaps longer than what is read.
        let is_open = !count.is_multiple_of(chunk) && !self.is_whole;
        let stored = if is_open { count / chunk } else { count.div_ceil(chunk) };
        let mut sums = vec![0; stored * 4];
        self.meta.read_exact_at(&mut sums, meta::place(offset / u64::from(self.chunk)))?;
        if is_open {
            sums.extend(crc32c::crc32c(&bytes[stored * chunk..]).to_be_bytes());
        } else if let (Some(last), false) = (self.last, count.is_multiple_of(chunk)) {
            let at = sums.len() - 4;
            sums[at..].copy_from_slice(&last);
        }
        Ok((bytes, sums))
    }

    /// Compares all bytes with their checksums.
    ///
    /// # Errors
    /// The disk, or bytes that are not those of their checksums.
    pub fn check(&self) -> io::Result<()> {
        let chunk = self.chunk as usize;
        let step = (CHECKED / chunk).max(1) * chunk;
        let mut at = 0;
        while at < self.length {
            let (bytes, sums) = self.read(at, step)?;
            for (bytes, sum) in bytes.chunks(chunk).zip(sums.chunks(4)) {
                if crc32c::crc32c(bytes).to_be_bytes() != sum {
                    let words = format!("expected bytes of their checksums, came others behind {at}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, words));
                }
            }
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// What the checksums come to.
    ///
    /// # Errors
    /// The disk.
    pub fn digest(&self) -> io::Result<Digest> {
        let chunks = self.length.div_ceil(u64::from(self.chunk));
        let mut md5 = Md5::new();
        let mut sums = vec![0; 64 << 10];
        let mut at = 0;
        while at < chunks {
            let count = (chunks - at).min(sums.len() as u64 / 4);
            let part = &mut sums[..count as usize * 4];
            self.meta.read_exact_at(part, meta::place(at))?;
            at += count;
            if let Some(last) = self.last.filter(|_| at == chunks) {
                let begin = part.len() - 4;
                part[begin..].copy_from_slice(&last);
            }
            md5.update(part);
        }
        Ok(Digest { chunk: self.chunk, chunks, md5: md5.finalize().into() })
    }
}
