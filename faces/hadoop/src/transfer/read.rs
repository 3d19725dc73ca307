//! Reads a block, or what its checksums come to.

use std::io::{self, Write as _};

use savanna_files_host::Reader;

use super::packet::{self, delimited};
use super::{Connection, HEADER_MAX, Next, Status, decode};
use crate::protocol::named;
use crate::wire::transfer::{
    BlockChecksum, Checksum, ChecksumResponse, OperationResponse, PacketHeader, ReadBlock, ReadInfo, ReadStatus,
};

/// Bytes of a block in a packet, about.
pub(super) const PACKET: usize = 64 << 10;
/// No checksums, and those that are kept.
const NULL: i32 = 0;
const CRC32C: i32 = 2;
/// The only way to put checksums together that is known.
const MD5_OF_SUMS: i32 = 1;

impl Connection<'_> {
    pub(super) fn read_block(&mut self, operation: &ReadBlock) -> io::Result<Next> {
        let ReadBlock { header, offset, length, with_checksums } = operation;
        let block = &header.base.block;
        let name = named(block);
        if !self.knows(block) {
            return self.refuse(Status::Error, &format!("Block pool {} is not of this installation", block.pool));
        }
        let reader = match self.files.replicas().read(name.id, name.stamp) {
            Ok(reader) => reader,
            Err(error) => return self.refuse(Status::Error, &error.to_string()),
        };
        let there = reader.length();
        let Some(end) = offset.checked_add(*length).filter(|end| *end <= there) else {
            let words =
                format!("Offset {offset} and length {length} don't match block {} ( blockLen {there} )", name.id);
            return self.refuse(Status::Error, &words);
        };
        let chunk = u64::from(reader.chunk());
        let (begin, end) = (offset - offset % chunk, end.next_multiple_of(chunk).min(there));
        let has_sums = with_checksums.unwrap_or(true);
        let checksum = Checksum { kind: if has_sums { CRC32C } else { NULL }, chunk: reader.chunk() };
        self.respond(&OperationResponse {
            status: Status::Success as i32,
            read: Some(ReadInfo { checksum, offset: begin }),
            ..OperationResponse::default()
        })?;
        self.send(&reader, begin, end, has_sums)?;
        self.writer.flush()?;
        // A client that does not want all closes the connection.
        let status: ReadStatus = decode(&delimited(&mut self.reader, HEADER_MAX)?)?;
        tracing::trace!(?status, "a client has read a block");
        Ok(Next::Operation)
    }

    fn send(&mut self, reader: &Reader, begin: u64, end: u64, has_sums: bool) -> io::Result<()> {
        let chunk = reader.chunk() as usize;
        let packet = (PACKET / chunk).max(1) * chunk;
        let (mut at, mut number) = (begin, 0);
        while at < end {
            let (bytes, sums) = reader.read(at, packet.min((end - at) as usize))?;
            let header = header(at, number, bytes.len(), false);
            packet::write(&mut self.writer, header, if has_sums { &sums } else { &[] }, &bytes)?;
            at += bytes.len() as u64;
            number += 1;
        }
        packet::write(&mut self.writer, header(at, number, 0, true), &[], &[])
    }

    pub(super) fn block_checksum(&mut self, operation: &BlockChecksum) -> io::Result<Next> {
        let block = &operation.header.block;
        let name = named(block);
        if !self.knows(block) {
            return self.refuse(Status::Error, &format!("Block pool {} is not of this installation", block.pool));
        }
        let kind = operation.options.and_then(|options| options.kind).unwrap_or(MD5_OF_SUMS);
        if kind != MD5_OF_SUMS {
            return self.refuse(Status::Unsupported, &format!("expected the MD5 of checksums (1), came {kind}"));
        }
        let digest = match self.files.replicas().read(name.id, name.stamp).map(|reader| reader.digest()) {
            Ok(digest) => digest?,
            Err(error) => return self.refuse(Status::Error, &error.to_string()),
        };
        self.respond(&OperationResponse {
            status: Status::Success as i32,
            checksum: Some(ChecksumResponse {
                chunk: digest.chunk,
                chunks: digest.chunks,
                sum: digest.md5.to_vec(),
                kind: Some(CRC32C),
            }),
            ..OperationResponse::default()
        })?;
        Ok(Next::Operation)
    }
}

pub(super) fn header(offset: u64, number: i64, length: usize, is_last: bool) -> PacketHeader {
    // Blocks and packets are much shorter than their numbers could say.
    let (offset, length) = (i64::try_from(offset).unwrap_or(i64::MAX), i32::try_from(length).unwrap_or(i32::MAX));
    PacketHeader { offset, number, is_last, length, syncs: None }
}
