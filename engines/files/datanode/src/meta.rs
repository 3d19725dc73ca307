//! The checksums of a replica's chunks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use savanna_files::ids::Stamp;

/// The longest chunk that anybody may choose.
pub const CHUNK_MAX: u32 = 1 << 20;

pub(crate) const HEADER: u64 = 17;
const VERSION: u16 = 1;
const CRC32C: u8 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) stamp: Stamp,
    pub(crate) chunk: u32,
}

pub(crate) fn write_header(meta: &File, header: Header) -> io::Result<()> {
    let Header { stamp, chunk } = header;
    let mut bytes = Vec::with_capacity(HEADER as usize);
    bytes.extend(VERSION.to_be_bytes());
    bytes.push(CRC32C);
    bytes.extend(chunk.to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend(stamp.0.to_be_bytes());
    meta.write_all_at(&bytes, 0)
}

pub(crate) fn read_header(meta: &File) -> io::Result<Header> {
    let mut bytes = [0; HEADER as usize];
    meta.read_exact_at(&mut bytes, 0)?;
    let [v0, v1, kind, c0, c1, c2, c3, _, _, stamp @ ..] = bytes;
    let (version, chunk) = (u16::from_be_bytes([v0, v1]), u32::from_be_bytes([c0, c1, c2, c3]));
    if version != VERSION || kind != CRC32C || !(1..=CHUNK_MAX).contains(&chunk) {
        let words =
            format!("expected version {VERSION} and checksum {CRC32C}, came {version}, {kind}, chunks of {chunk}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(Header { stamp: Stamp(u64::from_be_bytes(stamp)), chunk })
}

/// Where the checksum of a chunk is.
pub(crate) const fn place(chunk_number: u64) -> u64 {
    HEADER + 4 * chunk_number
}

/// How many bytes of a replica its checksums vouch for, from its beginning. Between the bytes and the checksum of a chunk that grew the
/// process may have ended: then the checksum is that of what was there before.
pub(crate) fn vouched(data: &File, meta: &File, chunk: u32) -> io::Result<u64> {
    let (length, sums) = (data.metadata()?.len(), meta.metadata()?.len().saturating_sub(HEADER) / 4);
    let mut bytes = vec![0; chunk as usize];
    let mut vouched = 0;
    for number in 0..sums {
        let begin = number * u64::from(chunk);
        let there = length.saturating_sub(begin).min(u64::from(chunk)) as usize;
        data.read_exact_at(&mut bytes[..there], begin)?;
        let mut sum = [0; 4];
        meta.read_exact_at(&mut sum, place(number))?;
        let sum = u32::from_be_bytes(sum);
        let fits = |count: &usize| crc32c::crc32c(&bytes[..*count]) == sum;
        let Some(count) = (1..=there).rev().find(fits) else { break };
        vouched = begin + count as u64;
        if count < chunk as usize {
            break;
        }
    }
    Ok(vouched)
}

/// Drops the checksums of chunks that begin behind a length.
pub(crate) fn cut(meta: &File, chunk: u32, length: u64) -> io::Result<()> {
    meta.set_len(place(length.div_ceil(u64::from(chunk))))
}
