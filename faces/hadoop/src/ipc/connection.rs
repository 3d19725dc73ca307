//! A connection of calls.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use prost::Message;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Caller, Detail};
use super::decoder::{Call, Decoder, Event};
use super::outbox::{Outbox, outbox};
use crate::exception;
use crate::leased::Leased;
use crate::protocol::{self, Peer, Service};

/// How long a client may take until it has said who it is.
const LOGIN_TIME: Duration = Duration::from_secs(20);
/// How long a frame may take from its beginning to its end.
const FRAME_TIME: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 120 });
/// Calls of a client that may be under way: it is not read from as long as there are so many.
const CALLS_MAX: usize = 256;
/// How much is read at once.
const READ: usize = 64 << 10;

/// The answer to a call, which is given once. Dropped, it ends the connection: the call is not answered.
pub(crate) struct Answerer {
    caller: Caller,
    outbox: Outbox,
    is_answered: bool,
}

impl Answerer {
    /// The call is done.
    pub(crate) fn done(mut self, body: &impl Message) {
        self.outbox.answer(|bytes| answer::success(bytes, &self.caller, body));
        self.is_answered = true;
    }

    /// The call is refused.
    pub(crate) fn refuse(mut self, class: &str, message: &str, detail: Detail) {
        self.outbox.answer(|bytes| answer::refused(bytes, &self.caller, class, message, detail));
        self.is_answered = true;
    }

    /// Who called.
    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if !self.is_answered {
            self.outbox.end();
        }
    }
}

/// The number of the next connection.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// Serves a client until it goes. Its connection is numbered where it is accepted: tasks begin in any order.
pub(crate) fn serve(stream: TcpStream, service: Arc<Service>) -> impl Future<Output = io::Result<()>> {
    run(stream, service, CONNECTIONS.fetch_add(1, Ordering::Relaxed))
}

async fn run(stream: TcpStream, service: Arc<Service>, connection: u64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
    let (mut reader, writer) = stream.into_split();
    let (outbox, writes) = outbox(CALLS_MAX);
    let files = service.files.clone();
    let mut writing = tokio::spawn(writes.run(Leased::new(writer, move || files.may_tell())));
    let (user, machine, reached) = (String::new(), remote.ip().to_string(), local.ip());
    let mut connection = Connection {
        decoder: Decoder::default(),
        peer: Arc::new(Peer { user, machine, reached, by: "rpc", connection }),
        service,
        outbox,
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
            ended = &mut writing => return ended?,
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
    service: Arc<Service>,
    outbox: Outbox,
}

impl Connection {
    /// Takes what has come. Whether there may be more.
    async fn take(&mut self, buffer: &mut BytesMut) -> bool {
        loop {
            match self.decoder.next(buffer) {
                Event::More => return true,
                Event::Send(frame) => self.outbox.send(|bytes| bytes.extend(frame)),
                Event::End(frame) => {
                    self.outbox.send(|bytes| bytes.extend(frame));
                    return false;
                }
                Event::Call(call) if self.outbox.begin_call().await => self.call(call),
                // Nobody would hear of it.
                Event::Call(_) => return false,
            }
        }
    }

    fn call(&mut self, call: Call) {
        if self.peer.user.is_empty() {
            let Peer { machine, reached, by, connection, .. } = &*self.peer;
            let (user, machine, reached) = (self.decoder.user().to_owned(), machine.clone(), *reached);
            self.peer = Arc::new(Peer { user, machine, reached, by, connection: *connection });
        }
        let Call { caller, protocol, method, body } = call;
        let answerer = Answerer { caller, outbox: self.outbox.clone(), is_answered: false };
        match protocol::find(&protocol) {
            Some(protocol) => protocol.call(&self.service, &self.peer, &method, body, answerer),
            None => {
                let words = format!("Unknown protocol: {protocol}");
                answerer.refuse(exception::NO_SUCH_PROTOCOL, &words, Detail::NoSuchProtocol);
            }
        }
    }
}
