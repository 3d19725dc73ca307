//! A client's socket, perhaps with encryption on top. It can be handed from one thread's runtime to another's.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use bytes::BytesMut;
use rustls::{ServerConfig, ServerConnection};
use savanna_tenants_host::TenantId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{connection::Client, relay::Front};

/// Bytes that are decrypted at once.
const READ_BYTES: usize = 16 << 10;

/// A socket that is read and written on the runtime of the thread that has it.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

/// A client's connection on its way to another thread.
pub(crate) trait Arriving: Send + 'static {
    /// What it is there.
    type Socket: savanna_pgwire_login::Socket + 'static;

    /// Whether the client is connected to this node itself.
    const IS_OF_THIS_NODE: bool;

    /// Takes it to this thread's runtime.
    fn arrive(self) -> io::Result<Self::Socket>;

    /// Takes it from this thread's runtime again.
    fn park(socket: Self::Socket) -> io::Result<Self>
    where
        Self: Sized;

    /// Serves a client whose database went to another node.
    fn follow(client: Client<Self>, front: Arc<Front>, tenant: TenantId) -> impl Future<Output = io::Result<()>> + Send
    where
        Self: Sized;
}

/// A socket on its way to another thread.
#[derive(Debug)]
pub(crate) struct Parked {
    tcp: std::net::TcpStream,
    tls: Option<Box<ServerConnection>>,
}

impl Arriving for Parked {
    type Socket = Socket;

    const IS_OF_THIS_NODE: bool = true;

    fn arrive(self) -> io::Result<Socket> {
        Ok(Socket { tcp: TcpStream::from_std(self.tcp)?, tls: self.tls })
    }

    fn park(socket: Socket) -> io::Result<Self> {
        socket.park()
    }

    async fn follow(client: Client<Self>, front: Arc<Front>, tenant: TenantId) -> io::Result<()> {
        let Client { socket, input, identity, begins, place: _place, since, .. } = client;
        front.relay(socket.arrive()?, &input, tenant, identity, (begins, since)).await
    }
}

/// Reads and writes what the operating system takes at once.
struct Now<'a>(&'a TcpStream);

impl Read for Now<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl savanna_pgwire_login::Socket for Socket {
    async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        Self::read(self, into).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Self::write_all(self, bytes).await
    }

    async fn encrypt(&mut self, configuration: Arc<ServerConfig>) -> io::Result<()> {
        Self::encrypt(self, configuration).await
    }

    fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The goodbye is not waited for.
    async fn close(mut self) {
        let Some(tls) = &mut self.tls else { return };
        tls.send_close_notify();
        if let Err(error) = tls.write_tls(&mut Now(&self.tcp)) {
            tracing::debug!(%error, "a client went away before the goodbye");
        }
    }
}

impl Socket {
    pub(crate) const fn plain(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }

    /// Leaves this thread's runtime.
    pub(crate) fn park(self) -> io::Result<Parked> {
        Ok(Parked { tcp: self.tcp.into_std()?, tls: self.tls })
    }

    /// Agrees with the client on keys; everything after that is encrypted.
    async fn encrypt(&mut self, configuration: Arc<ServerConfig>) -> io::Result<()> {
        let connection = ServerConnection::new(configuration).map_err(io::Error::other)?;
        self.tls = Some(Box::new(connection));
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            if self.take_in().await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client ended in the TLS handshake"));
            }
            self.flush().await?;
        }
        Ok(())
    }

    /// Waits for bytes and adds them; 0 if the client will send no more. Nothing is lost if nobody waits any more.
    pub(crate) async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else { return self.tcp.read_buf(into).await };
            let start = into.len();
            into.resize(start + READ_BYTES, 0);
            let read = tls.reader().read(&mut into[start..]);
            into.truncate(start + read.as_ref().copied().unwrap_or(0));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The connection was cut without a goodbye, as clients do.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.take_in().await? == 0 {
                return Ok(0);
            }
        }
    }

    /// Waits for encrypted bytes, and decrypts them; 0 if the client will send no more. What the protocol itself answers is
    /// sent with the next answer, or at once if it can be.
    async fn take_in(&mut self) -> io::Result<usize> {
        let Self { tcp, tls: Some(tls) } = self else { return Ok(0) };
        let count = loop {
            tcp.readable().await?;
            match tls.read_tls(&mut Now(tcp)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok(count) => break count,
            }
        };
        let outcome = tls.process_new_packets();
        match tls.write_tls(&mut Now(tcp)) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        outcome.map(|_| count).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Writes all of the bytes.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.tls.is_none() {
            return self.tcp.write_all(bytes).await;
        }
        let mut rest = bytes;
        while let (Some(tls), false) = (&mut self.tls, rest.is_empty()) {
            let taken = tls.writer().write(rest)?;
            rest = &rest[taken..];
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what is encrypted.
    async fn flush(&mut self) -> io::Result<()> {
        let Self { tcp, tls: Some(tls) } = self else { return Ok(()) };
        while tls.wants_write() {
            tcp.writable().await?;
            match tls.write_tls(&mut Now(tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
