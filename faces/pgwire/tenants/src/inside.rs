//! Connections from inside of this process, which nobody else can make: they are trusted.

use std::{io, sync::Arc};

use bytes::BytesMut;
use rustls::ServerConfig;
use savanna_pgwire_login::{Handshake, Introduction, Opening, STARTUP_TIME, Turned};
use savanna_tenants_host::{Identity, SqlError, TenantId, Tenants, error::state};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    connection::{Beginning, Client},
    relay::Front,
    socket::Arriving,
};

/// Bytes that one side has said and the other has not read.
const BUFFER: usize = 256 << 10;
/// Connections that may be there at once.
const PLACES: usize = 16;

/// The way from inside of the process to one of its tenants. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inside {
    tenants: Tenants,
    database: Arc<str>,
    places: Arc<Semaphore>,
}

impl Inside {
    /// To the tenant of this name.
    #[must_use]
    pub fn new(tenants: Tenants, database: &str) -> Self {
        Self { tenants, database: database.into(), places: Arc::new(Semaphore::new(PLACES)) }
    }

    /// Connects. The tenant is made if there is none. What the client says first is its startup message.
    ///
    /// # Errors
    /// The tenants of this process do not run, or have no place.
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| io::Error::other(format!("expected {PLACES} connections at most")))?;
        let tenant = self.tenant().await.map_err(|error| io::Error::other(error.to_string()))?;
        let (here, there) = tokio::io::duplex(BUFFER);
        let inside = self.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(STARTUP_TIME, inside.receive(here, tenant, place)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a client in this process went away"),
                Err(_) => tracing::debug!("a client in this process did not say who it is"),
            }
        });
        Ok(there)
    }

    async fn tenant(&self) -> Result<TenantId, SqlError> {
        match self.tenants.tenant(&self.database).await {
            Err(error) if error.state == state::INVALID_CATALOG_NAME => {}
            found => return found,
        }
        match self.tenants.create(&self.database).await {
            // Somebody else was first.
            Err(error) if error.state != state::DUPLICATE_DATABASE => return Err(error),
            _ => {}
        }
        self.tenants.tenant(&self.database).await
    }

    /// Hears who a client is, and takes it to its tenant's thread.
    async fn receive(&self, stream: DuplexStream, tenant: TenantId, place: OwnedSemaphorePermit) -> io::Result<()> {
        let mut handshake = Handshake::new(Pipe(stream));
        let turned = |turned: Turned| match turned {
            Turned::Gone(error) => error,
            Turned::Refused(_) => io::Error::new(io::ErrorKind::InvalidData, "expected a startup message"),
        };
        let Opening::Startup(startup) = handshake.open(None).await.map_err(turned)? else { return Ok(()) };
        let introduction = Introduction::of(&startup);
        let Introduction { user, settings, .. } =
            introduction.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "expected a user"))?;
        let Handshake { socket, input } = handshake;
        let identity =
            Identity { user, database: self.database.to_string(), administrator: true, is_inside: true, client: None };
        let begins = Beginning::New(settings);
        let client = Client { socket, input, identity, begins, place, front: None, since: None };
        self.tenants.connect(tenant, Box::new(client));
        Ok(())
    }
}

/// One end of a connection within a process.
#[derive(Debug)]
struct Pipe(DuplexStream);

impl Arriving for Pipe {
    type Socket = Self;

    const IS_OF_THIS_NODE: bool = true;

    fn arrive(self) -> io::Result<Self> {
        Ok(self)
    }

    fn park(socket: Self) -> io::Result<Self> {
        Ok(socket)
    }

    /// Its tenant stays where it is; otherwise it connects again.
    async fn follow(_: Client<Self>, _: Arc<Front>, _: TenantId) -> io::Result<()> {
        Ok(())
    }
}

impl savanna_pgwire_login::Socket for Pipe {
    async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        self.0.read_buf(into).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    async fn encrypt(&mut self, _: Arc<ServerConfig>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a connection within a process is not encrypted"))
    }

    fn is_encrypted(&self) -> bool {
        false
    }

    /// The end of the connection is all that there is to say.
    async fn close(self) {}
}
