//! The data node: blocks over connections of their own, `DataTransferProtocol` version 28. Each connection has a thread.

pub(crate) mod packet;
mod read;
mod send;
mod write;

use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prost::Message;
use savanna_files_host::blocks::Replica;
use savanna_files_host::{Files, SharedNamesHandle};

use crate::leased::Leased;
use crate::protocol;
use crate::wire::hdfs::Block;
use crate::wire::transfer::OperationResponse;

/// The version of the protocol.
const VERSION: u16 = 28;
/// How long a connection may be idle between operations; clients keep theirs for 3 to 4 s.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// How long a client may be silent inside of an operation; one that writes says every 30 s that it is there.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the end of transfers is waited for.
const END_TIME: Duration = Duration::from_secs(10);
/// The longest header of an operation.
const HEADER_MAX: usize = 1 << 20;

/// Operations, by number.
const WRITE_BLOCK: u8 = 80;
const READ_BLOCK: u8 = 81;
const BLOCK_CHECKSUM: u8 = 85;
const TRANSFER_BLOCK: u8 = 86;

/// How an operation went, by the number that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Success = 0,
    Error = 1,
    Checksum = 2,
    Unsupported = 7,
}

/// The connections of the data node.
#[derive(Debug)]
pub(crate) struct Transfer {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    sender: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    files: Files,
    /// Who has the names, and hears of replicas.
    names: SharedNamesHandle,
    /// Those that are open, so that they can be ended.
    open: Mutex<Vec<(u64, TcpStream)>>,
    connections_max: usize,
    is_stopping: AtomicBool,
    address: std::net::SocketAddr,
}

impl Transfer {
    /// Serves who connects.
    pub(crate) fn begin(
        listener: TcpListener,
        files: Files,
        names: SharedNamesHandle,
        connections_max: usize,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (open, is_stopping) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { files, names, open, connections_max, is_stopping, address });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("files-transfer".to_owned());
        let acceptor = thread.spawn(move || accept(&listener, &accepting))?;
        let sending = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("files-copies".to_owned());
        let sender = thread.spawn(move || send::run(&sending))?;
        Ok(Self { shared, acceptor: Some(acceptor), sender: Some(sender) })
    }

    /// Takes nobody more, and ends who is connected.
    pub(crate) fn stop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        // It waits for somebody: for this.
        let mut address = self.shared.address;
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        drop(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
        if self.acceptor.take().is_some_and(|acceptor| acceptor.join().is_err()) {
            tracing::error!("the thread that accepts transfers panicked");
        }
        for (_, stream) in &*self.shared.open.lock() {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(sender) = self.sender.take() {
            sender.thread().unpark();
            if sender.join().is_err() {
                tracing::error!("the thread that sends replicas panicked");
            }
        }
        // Who begins anew on the same directory must not meet one that still writes.
        let deadline = Instant::now() + END_TIME;
        while !self.shared.open.lock().is_empty() {
            if Instant::now() > deadline {
                tracing::warn!("a transfer does not end");
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    // Clients that know where blocks are wait, too.
    if !shared.files.wait_until_read(|| shared.is_stopping.load(Ordering::SeqCst)) {
        return;
    }
    let mut number = 0;
    while !shared.is_stopping.load(Ordering::SeqCst) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not accept a transfer");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        number += 1;
        if let Err(error) = serve(stream, number, shared) {
            tracing::warn!(%error, "a transfer was not begun");
        }
    }
}

/// Gives a connection its thread, if there may be one more.
fn serve(stream: TcpStream, number: u64, shared: &Arc<Shared>) -> io::Result<()> {
    let mut open = shared.open.lock();
    if open.len() >= shared.connections_max {
        tracing::warn!("{} transfers are under way; one more is refused", open.len());
        return Ok(());
    }
    stream.set_nodelay(true)?;
    open.push((number, stream.try_clone()?));
    drop(open);
    let serving = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("files-block".to_owned());
    let begun = thread.spawn(move || {
        let ended = Connection::new(stream, &serving).and_then(|mut connection| connection.run());
        if let Err(error) = ended {
            tracing::debug!(%error, "a transfer ended");
        }
        serving.open.lock().retain(|(other, _)| *other != number);
    });
    if begun.is_err() {
        shared.open.lock().retain(|(other, _)| *other != number);
    }
    begun.map(drop)
}

/// A connection for operations, one after the other.
struct Connection<'a> {
    reader: BufReader<TcpStream>,
    writer: BufWriter<Leased<TcpStream, Box<dyn Fn() -> bool>>>,
    files: &'a Files,
    names: &'a SharedNamesHandle,
}

/// Whether another operation may follow.
enum Next {
    Operation,
    End,
}

impl<'a> Connection<'a> {
    fn new(stream: TcpStream, shared: &'a Shared) -> io::Result<Self> {
        let Shared { files, names, .. } = shared;
        stream.set_write_timeout(Some(PATIENCE))?;
        let owner = files.clone();
        let writer = Leased::new(stream.try_clone()?, Box::new(move || owner.may_tell()) as Box<dyn Fn() -> bool>);
        let writer = BufWriter::with_capacity(128 << 10, writer);
        Ok(Self { reader: BufReader::with_capacity(128 << 10, stream), writer, files, names })
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            self.reader.get_ref().set_read_timeout(Some(IDLE_TIME))?;
            let mut head = [0; 3];
            match self.reader.read_exact(&mut head) {
                Ok(()) => {}
                // It has gone, or does not want anything.
                Err(_) => return Ok(()),
            }
            self.reader.get_ref().set_read_timeout(Some(PATIENCE))?;
            let [high, low, operation] = head;
            let version = u16::from_be_bytes([high, low]);
            if version != VERSION {
                return Err(invalid(format!("expected version {VERSION} of the transfer of blocks, came {version}")));
            }
            let header = packet::delimited(&mut self.reader, HEADER_MAX)?;
            let next = match operation {
                WRITE_BLOCK => self.write_block(&decode(&header)?)?,
                READ_BLOCK => self.read_block(&decode(&header)?)?,
                BLOCK_CHECKSUM => self.block_checksum(&decode(&header)?)?,
                TRANSFER_BLOCK => self.transfer_block(&decode(&header)?)?,
                other => self.refuse(
                    Status::Unsupported,
                    &format!("The operation {other} is not supported by this data node"),
                )?,
            };
            self.writer.flush()?;
            if matches!(next, Next::End) {
                return Ok(());
            }
        }
    }

    /// An operation is refused; what may follow it on the connection is not known.
    fn refuse(&mut self, status: Status, message: &str) -> io::Result<Next> {
        let message = Some(message.to_owned());
        self.respond(&OperationResponse { status: status as i32, message, ..OperationResponse::default() })?;
        Ok(Next::End)
    }

    fn respond(&mut self, response: &OperationResponse) -> io::Result<()> {
        self.writer.write_all(&response.encode_length_delimited_to_vec())?;
        self.writer.flush()
    }

    /// Whether replicas may be changed: another process may have the directory by now.
    fn may_tell(&self) -> io::Result<()> {
        if self.files.may_tell() { Ok(()) } else { Err(io::Error::other("the lease is over")) }
    }

    /// The name node hears of a replica.
    fn received(&self, replica: Replica) -> io::Result<()> {
        protocol::received(self.names, self.files, replica).map_err(|why| {
            io::Error::other(format!("the name node could not be told of block {}: {why:?}", replica.block))
        })
    }

    /// Whether a block is of this installation.
    fn knows(&self, block: &Block) -> bool {
        block.pool == self.files.identity().pool
    }
}

fn decode<M: Message + Default>(bytes: &[u8]) -> io::Result<M> {
    M::decode(bytes).map_err(|error| invalid(error.to_string()))
}

fn invalid(words: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}
