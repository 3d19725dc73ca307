//! The acceptor: clients say whom they want and prove who they are, and are taken to their tenant's thread.
//!
//! ```text
//!  encryption? ─► startup message ─► does anybody have a password here? ─ no ──► a client of this machine is trusted
//!                                                                       └ yes ─► SCRAM, whoever it is ─► is there a place?
//! ```

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use savanna_identity::{Entrance, Tls};
use savanna_pgwire_connection::Output;
use savanna_pgwire_login::{Admission, Handshake, Introduction, Nobody, Opening, Refusal, STARTUP_TIME, Socket as _};
use savanna_tenants_host::{
    self as host, Access, Claim, Identity, SqlError, TenantId, Tenants, cut_name, error::state,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};

use crate::{
    connection::{Beginning, Client},
    relay::Front,
    socket::{Arriving as _, Socket},
    wire::refusal,
};

/// Why a client does not come in.
enum Turned {
    /// It went away, or cannot be understood.
    Gone(io::Error),
    /// It is told why.
    Refused(Output),
}

impl From<savanna_pgwire_login::Turned> for Turned {
    fn from(turned: savanna_pgwire_login::Turned) -> Self {
        match turned {
            savanna_pgwire_login::Turned::Gone(error) => Self::Gone(error),
            savanna_pgwire_login::Turned::Refused(refusal) => refusal.into(),
        }
    }
}

impl From<Refusal> for Turned {
    fn from(refusal: Refusal) -> Self {
        let mut output = Output::default();
        output.fatal(&refusal.into());
        Self::Refused(output)
    }
}

impl From<SqlError> for Turned {
    fn from(error: SqlError) -> Self {
        Self::Refused(refusal(error))
    }
}

impl From<Output> for Turned {
    fn from(output: Output) -> Self {
        Self::Refused(output)
    }
}

type Heard<T> = Result<T, Turned>;

/// How often a database is looked for that was dropped when its node was asked: there may be another one of its name.
const LOOKS: u32 = 3;
/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Where clients come in.
pub(crate) struct Acceptor {
    pub(crate) tenants: Tenants,
    /// The way to databases on other nodes, if there may be any.
    pub(crate) front: Option<Arc<Front>>,
    pub(crate) tls: Option<Tls>,
    pub(crate) admission: Admission,
    /// One for each client that may be here at once.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) nobody: Nobody,
}

impl Acceptor {
    /// Takes clients in, for ever.
    pub(crate) async fn run(self: Arc<Self>, listener: std::net::TcpListener) -> io::Result<()> {
        let entrance = Entrance::new(TcpListener::from_std(listener)?);
        // Dropped with this, and with it every client that is relayed.
        let mut visits = JoinSet::new();
        loop {
            let (tcp, peer, pending) = entrance.next().await;
            while visits.try_join_next().is_some() {}
            let acceptor = Arc::clone(&self);
            visits.spawn(async move {
                let outcome = match pending.within(STARTUP_TIME, acceptor.receive(tcp, peer)).await {
                    Some(Ok(Some((handshake, admitted)))) => acceptor.take_in(handshake, admitted).await,
                    Some(Err(error)) => Err(error),
                    Some(Ok(None)) | None => Ok(()),
                };
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a client went away");
                }
            });
        }
    }

    /// Hears who a client is. `None` if it does not come in, and was told why.
    async fn receive(&self, tcp: TcpStream, peer: SocketAddr) -> io::Result<Option<(Handshake<Socket>, Admitted)>> {
        tcp.set_nodelay(true)?;
        let mut handshake = Handshake::new(Socket::plain(tcp));
        match self.admit(&mut handshake, peer).await {
            Ok(Some(admitted)) => return Ok(Some((handshake, admitted))),
            Ok(None) => {}
            Err(Turned::Gone(error)) => return Err(error),
            Err(Turned::Refused(output)) => handshake.socket.write_all(&output.bytes).await?,
        }
        handshake.socket.close().await;
        Ok(None)
    }

    /// Takes a client to its tenant's thread, or relays it to its tenant's node.
    async fn take_in(&self, handshake: Handshake<Socket>, admitted: Admitted) -> io::Result<()> {
        let Admitted { tenant, identity, settings, place } = admitted;
        let Handshake { socket, input } = handshake;
        let socket = socket.park()?;
        let Some(front) = self.front.as_ref().filter(|_| !self.tenants.has(tenant)) else {
            let (begins, front) = (Beginning::New(settings), self.front.clone());
            let client = Client { socket, input, identity, begins, place, front, since: None };
            self.tenants.connect(tenant, Box::new(client));
            return Ok(());
        };
        let (runtime, front) = (front.runtime(), Arc::clone(front));
        // Dropped with this, and with it the client.
        let mut relaying = JoinSet::new();
        let relay = async move {
            front.relay(socket.arrive()?, &input, tenant, identity, (Beginning::New(settings), None)).await
        };
        relaying.spawn_on(relay, runtime);
        relaying.join_next().await.map_or(Ok(()), |ended| ended.map_err(io::Error::other).flatten())
    }

    /// Decides whether a client may come in. `None` if it wanted something else, which is done.
    async fn admit(&self, handshake: &mut Handshake<Socket>, peer: SocketAddr) -> Heard<Option<Admitted>> {
        let startup = match handshake.open(self.tls.as_ref()).await? {
            Opening::Startup(startup) => startup,
            Opening::Cancel(request) => {
                if let Some(secret) = request.secret_key.as_i32() {
                    let key = (request.pid, secret);
                    self.tenants.cancel(key);
                    if let Some(front) = &self.front {
                        front.cancel(key).await;
                    }
                }
                return Ok(None);
            }
            Opening::Nothing => return Ok(None),
        };
        let Introduction { user, database, settings } = Introduction::of(&startup)?;
        let [user, database] = [user, database].map(|name| cut_name(&name).to_owned());
        if self.admission.requires_tls && !handshake.socket.is_encrypted() {
            return Err(Refusal::in_the_clear().into());
        }
        let is_local = peer.ip().to_canonical().is_loopback();
        let Entry { access, heard, tenant } = self.entry(&user, &database, is_local).await?;
        let administrator = self.authenticate(handshake, peer, &user, access).await?;
        self.tenants.came_in(&user, &heard);
        // That there is none is told to whom has come in.
        let tenant = tenant?;
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Refusal::no_place(self.admission.clients_max))?;
        let identity = Identity { user, database, administrator, is_inside: false, client: Some(peer) };
        Ok(Some(Admitted { tenant, identity, settings, place }))
    }

    /// How a client may come in, and where it goes then.
    async fn entry(&self, user: &str, database: &str, is_local: bool) -> Heard<Entry> {
        let mut looks = 0;
        loop {
            // Whoever proves to be a role of this one comes into no other that has its name by then.
            let tenant = self.tenants.tenant(database).await;
            let users = &self.admission.users;
            let claim = Claim { user, tenant: tenant.as_ref().ok().copied(), is_local, users };
            looks += 1;
            match self.tenants.access(claim).await {
                Ok((access, heard)) => return Ok(Entry { access, heard, tenant: tenant.map_err(refusal) }),
                Err(error) if error.state == state::INVALID_CATALOG_NAME && looks < LOOKS => {
                    tokio::time::sleep(LOOK_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes sure that a client is who it says. Whether it may do things outside of its database, too.
    async fn authenticate(
        &self,
        handshake: &mut Handshake<Socket>,
        peer: SocketAddr,
        user: &str,
        access: Access,
    ) -> Heard<bool> {
        let (verifier, administrator) = match access {
            Access::Trusted => return Ok(true),
            Access::Elsewhere => {
                let hint = "No user has a password yet. Run CREATE USER .. PASSWORD in database postgres, on the machine of the node.";
                return Err(Refusal::from_elsewhere(peer.ip(), hint).into());
            }
            Access::Password { verifier, administrator } => (verifier, administrator),
        };
        let verifier = verifier.unwrap_or_else(|| self.nobody.verifier(user));
        match handshake.proves(verifier, self.tls.as_ref()).await? {
            true => Ok(administrator),
            false => Err(Refusal::wrong_password(user).into()),
        }
    }
}

/// How a client may come in, and where it goes then.
struct Entry {
    access: Access,
    /// What the database of administrators has said of it.
    heard: host::Heard,
    /// Told once it has come in.
    tenant: Result<TenantId, Output>,
}

/// A client that may come in.
struct Admitted {
    tenant: TenantId,
    identity: Identity,
    settings: Vec<(String, String)>,
    place: OwnedSemaphorePermit,
}
