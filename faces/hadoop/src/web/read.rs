//! Bytes of files on their way out, and what they come to.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use md5::{Digest as _, Md5};
use savanna_files_host::blocks::{Holder, Place};
use savanna_files_host::ids::{BlockId, Stamp};
use savanna_files_host::request::{BlockName, Located, LocatedBlock};
use savanna_files_host::{Class, Digest, Files, FilesError, Reader, Reply, Request};
use serde_json::json;

use super::answer::{self, Answered, Parts, Refusal};
use super::{Client, unexpected};
use crate::protocol::replies::Encoder;

/// Bytes that are read at once, about.
const PART: usize = 64 << 10;

impl Client {
    /// The blocks of a file.
    async fn located(&self, path: &str) -> Result<Located, Refusal> {
        let request = Request::BlockLocations { path: path.to_owned(), offset: 0, length: u64::MAX };
        match self.ask(request).await? {
            Reply::Blocks(located) => Ok(located),
            _ => Err(unexpected()),
        }
    }

    /// Whether a file can be read from an offset on, which the name node says before it sends a client on; and where, if not all that is asked for is here.
    pub(super) async fn check_open(
        &self,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Option<SocketAddr>, Refusal> {
        let located = self.located(path).await?;
        let end = length.map_or(u64::MAX, |length| offset.saturating_add(length));
        let is_asked = |block: &&LocatedBlock| {
            block.offset < end && block.offset.saturating_add(block.block.length.max(1)) > offset
        };
        let elsewhere = self.elsewhere(located.blocks.iter().chain(&located.last).filter(is_asked));
        // How much there is of a block that is being written is known where it is.
        if elsewhere.is_none() {
            self.span(path, located, offset, None).await?;
        }
        Ok(elsewhere)
    }

    /// Where the checksums of a file are put together, if not all of it is here.
    pub(super) async fn check_checksum(&self, path: &str) -> Result<Option<SocketAddr>, Refusal> {
        let located = self.located(path).await?;
        Ok(self.elsewhere(located.blocks.iter()))
    }

    /// The port for HTTP of a data node that has a block which is not here, if there is one: it reads all others where they are.
    fn elsewhere<'b>(&self, mut blocks: impl Iterator<Item = &'b LocatedBlock>) -> Option<SocketAddr> {
        let encoder = Encoder::new(&self.service, &self.peer);
        let is_elsewhere = |places: &[Place]| !places.is_empty() && places.iter().all(|it| it.holder != Holder::HERE);
        let places = &blocks.find(|block| is_elsewhere(&block.places))?.places;
        places.iter().find_map(|place| {
            let (node, ..) = encoder.place(*place)?;
            let (address, port): (IpAddr, _) = (node.id.address.parse().ok()?, u16::try_from(node.id.info_port).ok()?);
            // One on this machine is reached from this machine.
            let is_reached = !address.is_loopback() || self.peer.reached.is_loopback();
            (port > 0 && is_reached).then(|| SocketAddr::new(address, port))
        })
    }

    /// Sends bytes of a file.
    pub(super) async fn open(&self, path: &str, offset: u64, length: Option<u64>) -> Answered {
        let located = self.located(path).await?;
        let Span { blocks, end } = self.span(path, located, offset, length).await?;
        let (answer, parts) = answer::parts(answer::BYTES, Some(end - offset));
        let (files, path) = (self.service.files.clone(), path.to_owned());
        let first = blocks.iter().find(|block| block.end > offset && block.begin < end).copied();
        // What cannot be read at all is refused; later there is only the end of the connection.
        let reader = match first {
            Some(block) => Some(opened(&files, block).await?),
            None => None,
        };
        tokio::spawn(async move {
            match send(&files, &blocks, reader, (offset, end), &parts).await {
                Ok(true) => parts.end().await,
                Ok(false) => tracing::debug!(path, "a client does not take all of a file"),
                Err(error) => tracing::warn!(path, %error, "a file could not be read to its end"),
            }
        });
        Ok(answer)
    }

    /// Which bytes there are to read, and in which blocks.
    async fn span(&self, path: &str, located: Located, offset: u64, length: Option<u64>) -> Result<Span, Refusal> {
        let Located { blocks, is_last_complete, last, .. } = &located;
        let mut there = located.length;
        let mut spans: Vec<Block> = blocks.iter().map(Block::of).collect();
        // How long a block is that is being written the data node knows.
        if let (false, Some(last)) = (*is_last_complete, last) {
            let files = &self.service.files;
            files.check_read()?;
            let length = files.replicas().visible_length(last.block.id, last.block.stamp).unwrap_or(0);
            there = there.max(last.offset.saturating_add(length));
            if let Some(open) = spans.last_mut().filter(|open| open.id == last.block.id) {
                open.end = open.begin.saturating_add(length);
            }
        }
        if offset > 0 && offset >= there {
            let words = format!("Offset={offset} out of the range [0, {there}); OPEN, path={path}");
            return Err(FilesError::new(Class::Io, words).into());
        }
        let end = length.map_or(there, |length| offset.saturating_add(length).min(there));
        Ok(Span { blocks: spans, end })
    }

    /// What the checksums of a file come to: the MD5 of the MD5s of its blocks' CRCs, as Java's client puts them together.
    pub(super) async fn checksum(&self, path: &str) -> Answered {
        let Located { blocks, .. } = self.located(path).await?;
        let (mut md5, mut chunk, mut chunks) = (Md5::new(), 0, 0);
        for (at, block) in blocks.iter().enumerate() {
            let digest = digest(&self.service.files, block.block).await?;
            if at == 0 {
                chunk = digest.chunk;
                // Of one block it is not said.
                chunks = if blocks.len() > 1 { digest.chunks } else { 0 };
            }
            md5.update(digest.md5);
        }
        let kind = if blocks.is_empty() { "CRC32" } else { "CRC32C" };
        // Java's client sums the whole buffer that it has the digests in, and that begins with 32 bytes and doubles.
        let sums = blocks.len() * 16;
        md5.update(vec![0; sums.next_power_of_two().max(32) - sums]);
        let bytes = [&chunk.to_be_bytes()[..], &chunks.to_be_bytes(), &md5.finalize()].concat();
        Ok(answer::json(&json!({ "FileChecksum": {
            "algorithm": format!("MD5-of-{chunks}MD5-of-{chunk}{kind}"),
            "bytes": super::shown::hex(&bytes),
            "length": bytes.len(),
        }})))
    }
}

/// What the checksums of a block come to.
async fn digest(files: &Files, block: BlockName) -> Result<Digest, Refusal> {
    let of = files.clone();
    let digest = blocking(move || {
        let reader = of.replicas().read(block.id, block.stamp).map_err(|error| error.to_string())?;
        reader.digest().map_err(|error| error.to_string())
    });
    let digest = digest.await.map_err(|error| FilesError::new(Class::Io, error))?;
    // Without a lease the block may be somebody else's.
    if files.may_tell() { Ok(digest) } else { Err(Refusal::Gone) }
}

/// Bytes of a file that are to be read.
struct Span {
    blocks: Vec<Block>,
    /// Behind the last one.
    end: u64,
}

/// Where a block is in its file.
#[derive(Clone, Copy)]
struct Block {
    id: BlockId,
    stamp: Stamp,
    begin: u64,
    end: u64,
}

impl Block {
    fn of(located: &LocatedBlock) -> Self {
        let LocatedBlock { block, offset, .. } = *located;
        Self { id: block.id, stamp: block.stamp, begin: offset, end: offset.saturating_add(block.length) }
    }
}

async fn opened(files: &Files, block: Block) -> Result<Reader, FilesError> {
    let files = files.clone();
    let opened = blocking(move || files.replicas().read(block.id, block.stamp).map_err(|error| error.to_string()));
    opened.await.map_err(|error| FilesError::new(Class::Io, format!("Could not obtain block {}: {error}", block.id)))
}

/// Sends a range of bytes. Whether the client took all.
async fn send(
    files: &Files,
    blocks: &[Block],
    mut first: Option<Reader>,
    (mut at, end): (u64, u64),
    parts: &Parts,
) -> Result<bool, FilesError> {
    for block in blocks.iter().filter(|block| block.end > block.begin) {
        if at >= end || block.end <= at {
            continue;
        }
        let mut reader = match first.take() {
            Some(reader) => reader,
            None => opened(files, *block).await?,
        };
        while at < end.min(block.end) {
            // Without a lease the blocks may be somebody else's.
            if !files.may_tell() {
                return Err(FilesError::new(Class::Io, "the lease is over"));
            }
            let (from, to) = (at - block.begin, end.min(block.end) - block.begin);
            let (back, bytes) = blocking(move || {
                let bytes = part(&reader, from, to);
                (reader, bytes)
            })
            .await;
            reader = back;
            let bytes = bytes.map_err(|error| {
                if matches!(error, Unread::Damaged(_)) {
                    files.found_corrupt(block.id, Holder::HERE);
                }
                FilesError::new(Class::Io, format!("block {}: {error}", block.id))
            })?;
            at += bytes.len() as u64;
            if !parts.give(bytes).await {
                return Ok(false);
            }
        }
    }
    Ok(at >= end)
}

/// Why bytes of a block cannot be had.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("{0}")]
    Disk(#[from] std::io::Error),
    #[error("the bytes at {0} are not those of their checksum")]
    Damaged(u64),
    #[error("expected more than {0} bytes")]
    Short(u64),
}

/// The next bytes of a block, which are those of their checksums.
fn part(reader: &Reader, from: u64, to: u64) -> Result<Bytes, Unread> {
    let chunk = u64::from(reader.chunk()).max(1);
    let begin = from - from % chunk;
    let limit = (PART as u64 / chunk).max(1) * chunk;
    let (bytes, sums) = reader.read(begin, limit as usize)?;
    for (number, (bytes, sum)) in bytes.chunks(chunk as usize).zip(sums.chunks(4)).enumerate() {
        if crc32c::crc32c(bytes).to_be_bytes() != sum {
            return Err(Unread::Damaged(begin + number as u64 * chunk));
        }
    }
    let mut bytes = Bytes::from(bytes);
    let skipped = (from - begin) as usize;
    let end = ((to - begin) as usize).min(bytes.len());
    if end <= skipped {
        return Err(Unread::Short(begin + bytes.len() as u64));
    }
    bytes.truncate(end);
    Ok(bytes.split_off(skipped))
}

/// Does what waits for the disk elsewhere.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The server ends, and this with it.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use savanna_journal::sim::SimDisk;

    use super::*;
    use crate::tests::{lease, leased};

    #[tokio::test]
    async fn without_a_lease_no_checksum_is_told() {
        let (folder, guard) = (tempfile::tempdir().unwrap(), lease());
        let server = leased(&SimDisk::new(1), folder.path(), 1, Some(guard.clone()));
        let block = BlockName { id: BlockId(1), stamp: Stamp(1), length: 3 };
        let mut writer = server.files().replicas().begin(block.id, block.stamp, 512).unwrap();
        writer.write(0, b"abc", &[]).unwrap();
        writer.finish().unwrap();
        assert!(digest(server.files(), block).await.is_ok());
        guard.revoke();
        assert!(matches!(digest(server.files(), block).await, Err(Refusal::Gone)));
    }
}
