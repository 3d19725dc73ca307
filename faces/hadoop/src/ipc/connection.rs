//! A connection of calls.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Caller, Detail};
use super::decoder::{Call, Decoder, Event};
use crate::exception;
use crate::protocol::{self, Peer, Service};

/// How long a client may take until it has said who it is.
const LOGIN_TIME: Duration = Duration::from_secs(20);
/// How long a frame may take from its beginning to its end.
const FRAME_TIME: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 120 });
/// Calls of a client that may be under way: it is not read from as long as there are so many.
const CALLS_MAX: usize = 256;
/// How much is read at once.
const READ: usize = 64 << 10;

/// Something that leaves on a connection.
enum Outgoing {
    /// A frame. The permit is that of its call.
    Frame(Vec<u8>, Option<OwnedSemaphorePermit>),
    /// Nobody may be told anything: the connection ends.
    Gone,
}

/// The answer to a call, which is given once. Dropped, it ends the connection: the call is not answered.
pub(crate) struct Answerer {
    caller: Caller,
    outgoing: UnboundedSender<Outgoing>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Answerer {
    /// The call is done.
    pub(crate) fn done(self, body: &impl Message) {
        let frame = answer::success(&self.caller, body);
        self.send(frame);
    }

    /// The call is refused.
    pub(crate) fn refuse(self, class: &str, message: &str, detail: Detail) {
        let frame = answer::refused(&self.caller, class, message, detail);
        self.send(frame);
    }

    /// Who called.
    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    fn send(mut self, frame: Vec<u8>) {
        // Who has gone is told nothing.
        let _ = self.outgoing.send(Outgoing::Frame(frame, self.permit.take()));
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if self.permit.is_some() {
            let _ = self.outgoing.send(Outgoing::Gone);
        }
    }
}

/// Serves a client until it goes.
pub(crate) async fn serve(stream: TcpStream, service: Arc<Service>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
    let (mut reader, writer) = stream.into_split();
    let (outgoing, frames) = unbounded_channel();
    let mut writing = tokio::spawn(write(writer, frames));
    let mut connection = Connection {
        decoder: Decoder::default(),
        peer: Arc::new(Peer { user: String::new(), machine: remote.ip().to_string(), reached: local.ip(), by: "rpc" }),
        calls: Arc::new(Semaphore::new(CALLS_MAX)),
        service,
        outgoing,
    };
    let mut buffer = BytesMut::new();
    let login = Instant::now() + LOGIN_TIME;
    // When the frame has to be there of which a part is.
    let mut whole_by: Option<Instant> = None;
    loop {
        buffer.reserve(READ);
        let limit = if connection.decoder.is_open() { whole_by } else { Some(login) };
        let read = async {
            let read = reader.read_buf(&mut buffer);
            match limit {
                None => read.await,
                Some(limit) => timeout_at(limit, read).await?,
            }
        };
        let count = tokio::select! {
            count = read => count?,
            // It could not write, or has written the last.
            _ = &mut writing => return Ok(()),
        };
        let came = buffer.len();
        if count == 0 || !connection.take(&mut buffer).await {
            break;
        }
        // Byte for byte it takes no longer than at once.
        whole_by = match buffer.len() {
            0 => None,
            rest => whole_by.filter(|_| rest == came).or_else(|| Some(Instant::now() + FRAME_TIME)),
        };
    }
    // What is under way is answered: a client may have closed one direction only.
    drop(connection);
    writing.await?
}

struct Connection {
    decoder: Decoder,
    peer: Arc<Peer>,
    calls: Arc<Semaphore>,
    service: Arc<Service>,
    outgoing: UnboundedSender<Outgoing>,
}

impl Connection {
    /// Takes what has come. Whether there may be more.
    async fn take(&mut self, buffer: &mut BytesMut) -> bool {
        loop {
            match self.decoder.next(buffer) {
                Event::More => return true,
                Event::Send(frame) => drop(self.outgoing.send(Outgoing::Frame(frame, None))),
                Event::End(frame) => {
                    let _ = self.outgoing.send(Outgoing::Frame(frame, None));
                    return false;
                }
                Event::Call(call) => self.call(call).await,
            }
        }
    }

    async fn call(&mut self, call: Call) {
        if self.peer.user.is_empty() {
            let Peer { machine, reached, by, .. } = &*self.peer;
            let (user, machine, reached) = (self.decoder.user().to_owned(), machine.clone(), *reached);
            self.peer = Arc::new(Peer { user, machine, reached, by });
        }
        // It is never closed.
        let Ok(permit) = Arc::clone(&self.calls).acquire_owned().await else { return };
        let Call { caller, protocol, method, body } = call;
        let answerer = Answerer { caller, outgoing: self.outgoing.clone(), permit: Some(permit) };
        match protocol::find(&protocol) {
            Some(protocol) => protocol.call(&self.service, &self.peer, &method, body, answerer),
            None => {
                let words = format!("Unknown protocol: {protocol}");
                answerer.refuse(exception::NO_SUCH_PROTOCOL, &words, Detail::NoSuchProtocol);
            }
        }
    }
}

/// Writes frames, several at once where there are several.
async fn write(mut writer: OwnedWriteHalf, mut frames: UnboundedReceiver<Outgoing>) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut permits = Vec::new();
    while let Some(first) = frames.recv().await {
        let mut next = Some(first);
        let mut is_gone = false;
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Frame(frame, permit) => {
                    bytes.extend(frame);
                    permits.extend(permit);
                }
                Outgoing::Gone => {
                    is_gone = true;
                    break;
                }
            }
            next = if bytes.len() < READ { frames.try_recv().ok() } else { None };
        }
        writer.write_all(&bytes).await?;
        bytes.clear();
        permits.clear();
        if is_gone {
            break;
        }
    }
    writer.shutdown().await
}
