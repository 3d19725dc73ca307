//! The door: clients say whom they want and prove who they are, and are taken to their tenant's thread.
//!
//! ```text
//!  encryption? ─► startup message ─► does anybody have a password here? ─ no ──► a client of this machine is trusted
//!                                                                       └ yes ─► SCRAM, whoever it is ─► is there a place?
//! ```

use std::{io, net::SocketAddr, sync::Arc};

use savanna_identity::{Entrance, Tls};
use savanna_pgwire_login::{Admission, Introduction, Nobody, Opening, Refusal, STARTUP_TIME, Socket as _, Stranger};
use savanna_tenants::{SqlError, role::Acquaintance};
use savanna_tenants_segments::TenantId;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    output::Output,
    process::{ADMINISTRATION, Process},
    socket::Socket,
    thread::{Client, Order},
};

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
pub(crate) struct Door {
    pub(crate) process: Arc<Process>,
    pub(crate) tls: Option<Tls>,
    pub(crate) admission: Admission,
    /// One for each client that may be here at once.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) nobody: Nobody,
}

impl Door {
    /// Takes clients in, for ever.
    pub(crate) async fn open(self: Arc<Self>, listener: std::net::TcpListener) -> io::Result<()> {
        let entrance = Entrance::new(TcpListener::from_std(listener)?);
        loop {
            let (tcp, peer, visit) = entrance.next().await;
            let door = Arc::clone(&self);
            tokio::spawn(async move {
                if let Some(Err(error)) = visit.within(STARTUP_TIME, door.receive(tcp, peer)).await {
                    tracing::debug!(%error, "a client went away at the door");
                }
            });
        }
    }

    /// Hears who a client is, and takes it to its tenant's thread.
    async fn receive(&self, tcp: TcpStream, peer: SocketAddr) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        let mut stranger = Stranger::new(Socket::plain(tcp));
        let refusal = match self.admit(&mut stranger, peer).await {
            Ok(Some(client)) => return self.take_in(stranger, client),
            Ok(None) => {
                stranger.socket.close();
                return Ok(());
            }
            Err(refusal) => refusal,
        };
        match refusal {
            Turned::Gone(error) => Err(error),
            Turned::Refused(error) => {
                let mut output = Output::default();
                output.error("FATAL", &error);
                stranger.socket.write_all(&output.bytes).await?;
                stranger.socket.close();
                Ok(())
            }
        }
    }

    fn take_in(&self, stranger: Stranger<Socket>, admitted: Admitted) -> io::Result<()> {
        let Admitted { tenant, user, database, settings, administrator, place } = admitted;
        let key = random::<8>()?;
        let [process, secret] = [0, 4].map(|at| i32::from_be_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]));
        // A process's number is above 0.
        let key = ((process & i32::MAX).max(1), secret);
        let seed = u64::from_be_bytes(random()?);
        let (socket, input) = (stranger.socket.park()?, stranger.input);
        let client = Client { socket, input, user, database, settings, administrator, place, key, seed };
        self.process.tell(tenant, Order::Client { tenant, client: Box::new(client) });
        Ok(())
    }

    /// Decides whether a client may come in. `None` if it wanted something else, which is done.
    async fn admit(&self, stranger: &mut Stranger<Socket>, peer: SocketAddr) -> Heard<Option<Admitted>> {
        let startup = match stranger.open(self.tls.as_ref()).await? {
            Opening::Startup(startup) => startup,
            Opening::Cancel(request) => {
                if let Some(secret) = request.secret_key.as_i32() {
                    self.process.connections.cancel((request.pid, secret));
                }
                return Ok(None);
            }
            Opening::Nothing => return Ok(None),
        };
        let Introduction { user, database, settings } = Introduction::of(&startup)?;
        if self.admission.requires_tls && !stranger.socket.is_encrypted() {
            return Err(Refusal::in_the_clear().into());
        }
        // Whoever proves to be a role of this one comes into no other that has its name by then.
        let tenant = self.process.tenant(&database);
        let administrator = self.authenticate(stranger, peer, &user, tenant.as_ref().ok().copied()).await?;
        // That there is none is told to whom has come in.
        let tenant = tenant?;
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Refusal::no_place(self.admission.clients_max))?;
        Ok(Some(Admitted { tenant, user, database, settings, administrator, place }))
    }

    /// Makes sure that a client is who it says. Whether it may do things outside of its database, too.
    async fn authenticate(
        &self,
        stranger: &mut Stranger<Socket>,
        peer: SocketAddr,
        user: &str,
        tenant: Option<TenantId>,
    ) -> Heard<bool> {
        let administration = self.process.tenant(ADMINISTRATION)?;
        let administrators = self.process.ask(administration, user).await?;
        let own = match tenant {
            Some(tenant) => self.process.ask(tenant, user).await?,
            None => Acquaintance::default(),
        };
        if self.admission.users.is_empty() && !administrators.guarded && !own.guarded {
            let hint = "Nobody has a password here yet: CREATE USER .. PASSWORD in database postgres, on that machine.";
            return match peer.ip().to_canonical().is_loopback() {
                true => Ok(true),
                false => Err(Refusal::from_elsewhere(peer.ip(), hint).into()),
            };
        }
        // An administrator is one everywhere: a role that a database has made of the same name does not take its place.
        let configured = self.admission.users.get(user).map(|user| user.verifier.clone());
        let administering = configured.or(administrators.verifier);
        let administrator = administering.is_some();
        let verifier = administering.or(own.verifier);
        let verifier = verifier.unwrap_or_else(|| self.nobody.verifier(user));
        match stranger.proves(verifier, self.tls.as_ref()).await? {
            true => Ok(administrator),
            false => Err(Refusal::wrong_password(user).into()),
        }
    }
}

/// A client that may come in.
struct Admitted {
    tenant: TenantId,
    user: String,
    database: String,
    settings: Vec<(String, String)>,
    administrator: bool,
    place: OwnedSemaphorePermit,
}

/// Bytes that nobody can guess.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
