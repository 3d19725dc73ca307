//! Sends replicas to other data nodes: where there are too few, and to those that are new in the pipeline of a client.

use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use prost::Message as _;
use savanna_files_host::blocks::{Copying, Holder, Liveness};
use savanna_files_host::request::BlockName;
use savanna_files_host::{Files, Reader};

use super::packet::{self, delimited};
use super::read::{PACKET, header};
use super::write::{CRC32C, CREATE, TRANSFER_BEGUN, TRANSFER_WHOLE};
use super::{Connection, HEADER_MAX, Next, PATIENCE, Shared, Status, VERSION, WRITE_BLOCK, decode, invalid};
use crate::leased::Leased;
use crate::protocol::named;
use crate::wire::hdfs::{Block, Node};
use crate::wire::transfer::{BaseHeader, Checksum, OperationHeader, OperationResponse, TransferBlock, WriteBlock};

/// How often it is looked for replicas that are to be sent.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long it is tried to reach a data node.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The number of the connection of the thread that sends; those of clients count from 1.
const OWN: u64 = 0;

/// Sends what is to be sent, until the server ends.
pub(super) fn run(shared: &Shared) {
    while !shared.is_stopping.load(Ordering::SeqCst) {
        for copy in shared.files.take_copies() {
            if shared.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            if let Err(error) = copy_one(shared, copy) {
                tracing::warn!(block = %copy.block.id, %error, "a replica could not be sent to another data node; it is tried again");
                shared.files.not_copied(copy);
            }
        }
        std::thread::park_timeout(INTERVAL);
    }
}

fn copy_one(shared: &Shared, copy: Copying) -> io::Result<()> {
    let nodes = shared.files.nodes();
    let node = nodes.iter().find(|node| node.holder == copy.to.holder && node.liveness != Liveness::Dead);
    let node = node.ok_or_else(|| invalid("expected a data node that is there, came one that has gone".to_owned()))?;
    let address = address(&node.registration.address, node.registration.transfer_port)?;
    let reader = opened(&shared.files, copy.block).inspect_err(|_| shared.files.is_lost_here(copy.block.id))?;
    if reader.length() != copy.block.length {
        let (expected, came) = (copy.block.length, reader.length());
        return Err(invalid(format!("expected a replica of {expected} bytes here, came one of {came}")));
    }
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIME)?;
    // Who ends the server ends this, too.
    shared.open.lock().push((OWN, stream.try_clone()?));
    let sent = send(&shared.files, &stream, &reader, (copy.block, CREATE, ""));
    shared.open.lock().retain(|(number, _)| *number != OWN);
    sent
}

fn address(host: &str, port: u32) -> io::Result<SocketAddr> {
    let words = || invalid(format!("expected the address of a data node, came {host}:{port}"));
    let port = u16::try_from(port).map_err(|_| words())?;
    Ok(SocketAddr::new(host.parse().map_err(|_| words())?, port))
}

/// A replica of exactly that generation.
fn opened(files: &Files, block: BlockName) -> io::Result<Reader> {
    let found = files.replicas().stamp(block.id);
    if found != Some(block.stamp) {
        let words = format!("expected block {} under {} here, came {found:?}", block.id, block.stamp);
        return Err(invalid(words));
    }
    files.replicas().read(block.id, block.stamp).map_err(|error| io::Error::other(error.to_string()))
}

/// Sends all that there is of a replica. A client's name is that of the pipeline for which it is; then it is waited for the answer.
fn send(
    files: &Files,
    stream: &TcpStream,
    reader: &Reader,
    (name, stage, client): (BlockName, i32, &str),
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (id, stamp, length) = (name.id.0, name.stamp.0, Some(reader.length()));
    let block = Block { pool: files.identity().pool.clone(), id, stamp, length };
    let operation = WriteBlock {
        header: OperationHeader { base: BaseHeader { block }, client: client.to_owned() },
        targets: Vec::new(),
        source: None,
        stage,
        nodes: 0,
        least: 0,
        most: 0,
        stamp: 0,
        checksum: Checksum { kind: CRC32C, chunk: reader.chunk() },
    };
    let mut writer = BufWriter::with_capacity(128 << 10, Leased::new(stream, || files.may_tell()));
    writer.write_all(&VERSION.to_be_bytes())?;
    writer.write_all(&[WRITE_BLOCK])?;
    writer.write_all(&operation.encode_length_delimited_to_vec())?;
    let chunk = reader.chunk() as usize;
    let step = (PACKET / chunk).max(1) * chunk;
    let (mut at, mut number) = (0, 0);
    while at < reader.length() {
        let (bytes, sums) = reader.read(at, step)?;
        // Who takes it would refuse it, and could not say so.
        let is_sound = |(bytes, sum): (&[u8], &[u8])| crc32c::crc32c(bytes).to_be_bytes() == *sum;
        if !bytes.chunks(chunk).zip(sums.chunks(4)).all(is_sound) {
            files.found_corrupt(name.id, Holder::HERE);
            return Err(invalid(format!(
                "the bytes of block {} behind {at} are not those of their checksums",
                name.id
            )));
        }
        packet::write(&mut writer, header(at, number, bytes.len(), false), &sums, &bytes)?;
        at += bytes.len() as u64;
        number += 1;
    }
    packet::write(&mut writer, header(at, number, 0, true), &[], &[])?;
    writer.flush()?;
    drop(writer);
    let mut rest = BufReader::new(stream);
    if client.is_empty() {
        // It says nothing, and closes the connection when it has all.
        stream.shutdown(Shutdown::Write)?;
        io::copy(&mut rest.by_ref().take(HEADER_MAX as u64), &mut io::sink())?;
        return Ok(());
    }
    let response: OperationResponse = decode(&delimited(&mut rest, HEADER_MAX)?)?;
    if response.status == Status::Success as i32 {
        return Ok(());
    }
    Err(invalid(format!(
        "expected that a data node takes a replica, came the status {}: {:?}",
        response.status, response.message
    )))
}

impl Connection<'_> {
    /// Sends a replica to a data node that is new in a client's pipeline.
    pub(super) fn transfer_block(&mut self, operation: &TransferBlock) -> io::Result<Next> {
        let TransferBlock { header, targets } = operation;
        let block = &header.base.block;
        if !self.knows(block) {
            return self.refuse(Status::Error, &format!("Block pool {} is not of this installation", block.pool));
        }
        let [target] = &**targets else {
            let words = format!("expected one data node to send a replica to, came {}", targets.len());
            return self.refuse(Status::Unsupported, &words);
        };
        if header.client.is_empty() {
            return self.refuse(Status::Error, "expected the name of a client, came none");
        }
        match self.sent(named(block), target, &header.client) {
            Ok(()) => {
                self.respond(&OperationResponse { status: Status::Success as i32, ..OperationResponse::default() })?;
                Ok(Next::Operation)
            }
            Err(error) => self.refuse(Status::Error, &error.to_string()),
        }
    }

    fn sent(&self, name: BlockName, target: &Node, client: &str) -> io::Result<()> {
        let others = self.files.nodes();
        // Or anybody who reaches this one could have it connect to anything.
        let node = others
            .iter()
            .find(|node| node.registration.uuid == target.id.uuid)
            .ok_or_else(|| invalid(format!("expected a data node that has registered, came {}", target.id.uuid)))?;
        let address = address(&node.registration.address, node.registration.transfer_port)?;
        let reader = opened(self.files, name)?;
        let stage = if reader.is_whole() { TRANSFER_WHOLE } else { TRANSFER_BEGUN };
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIME)?;
        send(self.files, &stream, &reader, (name, stage, client))
    }
}
