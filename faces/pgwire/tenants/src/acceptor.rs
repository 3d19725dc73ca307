//! The acceptor: clients say whom they want and prove who they are, and are taken to their tenant's thread.
//!
//! ```text
//!  encryption? ─► startup message ─► does anybody have a password here? ─ no ──► a client of this machine is trusted
//!                                                                       └ yes ─► SCRAM, whoever it is ─► is there a place?
//! ```

use std::{io, net::SocketAddr, sync::Arc};

use savanna_identity::{Entrance, Tls};
use savanna_pgwire_login::{Admission, Handshake, Introduction, Nobody, Opening, Refusal, STARTUP_TIME, Socket as _};
use savanna_tenants_host::{Access, Claim, Identity, SqlError, TenantId, Tenants, cut_name};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{connection::Client, output::Output, socket::Socket};

/// Why a client does not come in.
enum Turned {
    /// It went away, or cannot be understood.
    Gone(io::Error),
    /// It is told why.
    Refused(SqlError),
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
    fn from(Refusal { state, message, hint }: Refusal) -> Self {
        let error = SqlError::new(state, message);
        Self::Refused(match hint {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }
}

impl From<SqlError> for Turned {
    fn from(error: SqlError) -> Self {
        Self::Refused(error)
    }
}

type Heard<T> = Result<T, Turned>;

/// Where clients come in.
pub(crate) struct Acceptor {
    pub(crate) tenants: Tenants,
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
        loop {
            let (tcp, peer, visit) = entrance.next().await;
            let acceptor = Arc::clone(&self);
            tokio::spawn(async move {
                if let Some(Err(error)) = visit.within(STARTUP_TIME, acceptor.receive(tcp, peer)).await {
                    tracing::debug!(%error, "a client went away before it was let in");
                }
            });
        }
    }

    /// Hears who a client is, and takes it to its tenant's thread.
    async fn receive(&self, tcp: TcpStream, peer: SocketAddr) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        let mut handshake = Handshake::new(Socket::plain(tcp));
        let refusal = match self.admit(&mut handshake, peer).await {
            Ok(Some(client)) => return self.take_in(handshake, client),
            Ok(None) => {
                handshake.socket.close();
                return Ok(());
            }
            Err(refusal) => refusal,
        };
        match refusal {
            Turned::Gone(error) => Err(error),
            Turned::Refused(error) => {
                let mut output = Output::default();
                output.error("FATAL", &error);
                handshake.socket.write_all(&output.bytes).await?;
                handshake.socket.close();
                Ok(())
            }
        }
    }

    fn take_in(&self, handshake: Handshake<Socket>, admitted: Admitted) -> io::Result<()> {
        let Admitted { tenant, identity, settings, place } = admitted;
        let (socket, input) = (handshake.socket.park()?, handshake.input);
        self.tenants.connect(tenant, Box::new(Client { socket, input, identity, settings, place }));
        Ok(())
    }

    /// Decides whether a client may come in. `None` if it wanted something else, which is done.
    async fn admit(&self, handshake: &mut Handshake<Socket>, peer: SocketAddr) -> Heard<Option<Admitted>> {
        let startup = match handshake.open(self.tls.as_ref()).await? {
            Opening::Startup(startup) => startup,
            Opening::Cancel(request) => {
                if let Some(secret) = request.secret_key.as_i32() {
                    self.tenants.cancel((request.pid, secret));
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
        // Whoever proves to be a role of this one comes into no other that has its name by then.
        let tenant = self.tenants.tenant(&database);
        let administrator = self.authenticate(handshake, peer, &user, tenant.as_ref().ok().copied()).await?;
        // That there is none is told to whom has come in.
        let tenant = tenant?;
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Refusal::no_place(self.admission.clients_max))?;
        let identity = Identity { user, database, administrator };
        Ok(Some(Admitted { tenant, identity, settings, place }))
    }

    /// Makes sure that a client is who it says. Whether it may do things outside of its database, too.
    async fn authenticate(
        &self,
        handshake: &mut Handshake<Socket>,
        peer: SocketAddr,
        user: &str,
        tenant: Option<TenantId>,
    ) -> Heard<bool> {
        let is_local = peer.ip().to_canonical().is_loopback();
        let claim = Claim { user, tenant, is_local, users: &self.admission.users };
        let (verifier, administrator) = match self.tenants.access(claim).await? {
            Access::Trusted => return Ok(true),
            Access::Elsewhere => {
                let hint =
                    "Nobody has a password here yet: CREATE USER .. PASSWORD in database postgres, on that machine.";
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

/// A client that may come in.
struct Admitted {
    tenant: TenantId,
    identity: Identity,
    settings: Vec<(String, String)>,
    place: OwnedSemaphorePermit,
}
