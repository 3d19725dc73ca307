//! Writes a block.

use std::io::{self, Write as _};

use prost::Message as _;
use savanna_files_host::ids::Stamp;
use savanna_files_host::{ReplicaError, Writer};

use super::packet::Packet;
use super::{Connection, Next, Status};
use crate::protocol::named;
use crate::wire::transfer::{Ack, OperationResponse, WriteBlock};

/// What a client wants to write, by number.
const APPEND: i32 = 0;
const APPEND_RECOVERY: i32 = 1;
const STREAMING_RECOVERY: i32 = 3;
const CLOSE_RECOVERY: i32 = 5;
pub(super) const CREATE: i32 = 6;
/// What another data node sends of a replica that is being written, and of one that is whole, for a pipeline that lost a data node.
pub(super) const TRANSFER_BEGUN: i32 = 7;
pub(super) const TRANSFER_WHOLE: i32 = 8;

/// Kinds of checksums.
const NULL: i32 = 0;
pub(super) const CRC32C: i32 = 2;

/// The longest chunk.
const CHUNK_MAX: u32 = 1 << 20;
/// Of a client that sends no checksums.
const CHUNK: u32 = 512;

/// The number of a packet that says that the client is there.
const HEARTBEAT: i64 = -1;

impl Connection<'_> {
    pub(super) fn write_block(&mut self, operation: &WriteBlock) -> io::Result<Next> {
        let WriteBlock { header, targets, stage, least, stamp, checksum, .. } = operation;
        let block = &header.base.block;
        let (name, newer) = (named(block), Stamp(*stamp));
        if !self.knows(block) {
            return self.refuse(Status::Error, &format!("Block pool {} is not of this installation", block.pool));
        }
        if !targets.is_empty() {
            return self.refuse(Status::Unsupported, "This data node sends nothing on: expected no further targets");
        }
        // Who is no client has no name.
        let is_copy = header.client.is_empty() || matches!(*stage, TRANSFER_BEGUN | TRANSFER_WHOLE);
        let chunk = match (checksum.kind, checksum.chunk) {
            (NULL, _) => CHUNK,
            (CRC32C, chunk @ 1..=CHUNK_MAX) => chunk,
            (kind, chunk) => {
                let words = format!(
                    "expected CRC32C (2) or no checksum (0), in chunks of 1 to {CHUNK_MAX}, came {kind} and {chunk}"
                );
                return self.refuse(Status::Unsupported, &words);
            }
        };
        // Without a lease the blocks may be somebody else's.
        self.may_tell()?;
        let replicas = self.files.replicas();
        if is_copy {
            // Of what a client writes it says where it is to be; other copies the name node has asked for.
            let is_closed = header.client.is_empty();
            if is_closed && !self.files.expects_here(name.id, name.stamp) {
                let words =
                    format!("expected a replica that is missing here, came block {} under {}", name.id, name.stamp);
                return Err(io::Error::other(words));
            }
            return match replicas.begin_copy(name.id, name.stamp, chunk, is_closed) {
                Ok(writer) => self.copied(writer, checksum.kind == CRC32C, *stage),
                // Who sends a replica is told nothing before all of it was sent.
                Err(error) => Err(refused(error)),
            };
        }
        let begun = match *stage {
            CREATE => replicas.begin(name.id, name.stamp, chunk).map(Some),
            APPEND => replicas.append(name.id, newer, *least, chunk).map(Some),
            // Whether the first attempt came so far as to begin is not known.
            APPEND_RECOVERY => match replicas.append(name.id, newer, *least, chunk) {
                Err(ReplicaError::Missing { .. }) => replicas.resume(name.id, newer, *least).map(Some),
                begun => begun.map(Some),
            },
            STREAMING_RECOVERY => replicas.resume(name.id, newer, *least).map(Some),
            CLOSE_RECOVERY => replicas.recover(name.id, newer, *least).and_then(|ended| match ended {
                Some(replica) => {
                    self.received(replica)?;
                    Ok(None)
                }
                None => Err(ReplicaError::Missing { block: name.id, stamp: newer }),
            }),
            other => {
                let words = format!("The stage {other} of a write is not supported by this data node");
                return self.refuse(Status::Unsupported, &words);
            }
        };
        let writer = match begun {
            Ok(writer) => writer,
            Err(error) => return self.refuse(Status::Error, &error.to_string()),
        };
        let first_bad = Some(String::new());
        self.respond(&OperationResponse { status: Status::Success as i32, first_bad, ..OperationResponse::default() })?;
        match writer {
            Some(writer) => self.packets(writer, checksum.kind == CRC32C),
            None => Ok(Next::Operation),
        }
    }

    /// Takes packets until the last one of the block.
    fn packets(&mut self, mut writer: Writer, has_sums: bool) -> io::Result<Next> {
        loop {
            let packet = Packet::read(&mut self.reader)?;
            self.may_tell()?;
            let number = packet.header.number;
            if number == HEARTBEAT {
                self.acknowledge(number, Status::Success)?;
                continue;
            }
            if let Err(error) = take(&mut writer, &packet, has_sums) {
                tracing::warn!(%error, "a block is not written on");
                let is_damaged = matches!(error, ReplicaError::Damaged(_));
                self.acknowledge(number, if is_damaged { Status::Checksum } else { Status::Error })?;
                return Ok(Next::End);
            }
            if !packet.header.is_last {
                self.acknowledge(number, Status::Success)?;
                continue;
            }
            return match writer.finish() {
                // The name node has to know it before the client asks it.
                Ok(replica) => {
                    self.received(replica)?;
                    self.acknowledge(number, Status::Success)?;
                    Ok(Next::Operation)
                }
                Err(error) => {
                    tracing::warn!(%error, "a block is not ended");
                    self.acknowledge(number, Status::Error)?;
                    Ok(Next::End)
                }
            };
        }
    }

    /// Takes a replica that another data node sends. It hears nothing before the end, and of a plain copy nothing at all.
    fn copied(&mut self, mut writer: Writer, has_sums: bool, stage: i32) -> io::Result<Next> {
        let come = self.all_of_it(&mut writer, has_sums);
        let taken = match come {
            // One that is being written counts when its client goes on with it.
            Ok(()) if stage == TRANSFER_BEGUN => writer.has_come().map_err(refused),
            Ok(()) => writer.finish().map_err(refused).and_then(|replica| self.received(replica)),
            Err(error) => {
                if let Err(error) = self.files.replicas().break_off(writer) {
                    tracing::warn!(%error, "what came of a replica of another data node could not be removed");
                }
                Err(error)
            }
        };
        taken?;
        if matches!(stage, TRANSFER_BEGUN | TRANSFER_WHOLE) {
            self.respond(&OperationResponse { status: Status::Success as i32, ..OperationResponse::default() })?;
        }
        Ok(Next::Operation)
    }

    fn all_of_it(&mut self, writer: &mut Writer, has_sums: bool) -> io::Result<()> {
        loop {
            let packet = Packet::read(&mut self.reader)?;
            self.may_tell()?;
            take(writer, &packet, has_sums).map_err(refused)?;
            if packet.header.is_last {
                return Ok(());
            }
        }
    }

    fn acknowledge(&mut self, number: i64, status: Status) -> io::Result<()> {
        let ack = Ack { number, replies: vec![status as i32] };
        self.writer.write_all(&ack.encode_length_delimited_to_vec())?;
        self.writer.flush()
    }
}

/// What another data node sends is not taken.
fn refused(error: ReplicaError) -> io::Error {
    tracing::warn!(%error, "a replica that another data node sends is not taken");
    io::Error::other(error.to_string())
}

fn take(writer: &mut Writer, packet: &Packet, has_sums: bool) -> Result<(), ReplicaError> {
    let (header, bytes) = (packet.header, packet.bytes());
    let Ok(offset) = u64::try_from(header.offset) else {
        return Err(ReplicaError::Damaged(format!("expected an offset, came {}", header.offset)));
    };
    if !bytes.is_empty() {
        if has_sums && packet.sums().is_empty() {
            return Err(ReplicaError::Damaged("expected checksums of the bytes, came none".to_owned()));
        }
        writer.write(offset, bytes, if has_sums { packet.sums() } else { &[] })?;
    }
    if header.syncs == Some(true) && !header.is_last {
        writer.sync()?;
    }
    Ok(())
}
