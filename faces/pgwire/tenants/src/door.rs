//! The door: clients say whom they want and prove who they are, and are taken to their tenant's thread.
//!
//! ```text
//!  encryption? ─► startup message ─► does anybody have a password here? ─ no ──► a client of this machine is trusted
//!                                                                       └ yes ─► SCRAM, whoever it is ─► is there a place?
//! ```

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::BytesMut;
use parking_lot::Mutex;
use pgwire::messages::{
    DecodeContext, Message, PgWireFrontendMessage, ProtocolVersion, SslNegotiationMetaMessage,
    startup::{NegotiateProtocolVersion, Startup},
};
use savanna_identity::{
    Strangers, Tls, Users,
    scram::{self, Exchange, Malformed},
};
use savanna_pgwire_frames::Body;
use savanna_tenants::{
    SqlError,
    error::state,
    role::{Acquaintance, Verifier},
};
use savanna_tenants_segments::TenantId;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};

use crate::{
    output::Output,
    process::{ADMINISTRATION, Process},
    socket::Socket,
    thread::{Client, Order},
};

/// A client that has not said who it is by then is sent away.
const STARTUP_TIME: Duration = Duration::from_secs(60);
/// Clients that have not said who they are yet; for one more, the oldest is sent away.
pub(crate) const STRANGERS_MAX: usize = 256;
/// The longest message of somebody who has not proved who it is.
const MESSAGE_BYTES_MAX: usize = 10_000;
/// How long to wait after somebody could not come in, mostly for want of files.
const PAUSE: Duration = Duration::from_millis(100);

/// Who is let in.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Administrators beside the roles of database `postgres`, who count before roles of the same name.
    pub users: Users,
    /// Whether only encrypted connections are taken.
    pub requires_tls: bool,
    /// Clients that may be here at once.
    pub clients_max: usize,
}

impl Default for Admission {
    fn default() -> Self {
        Self { users: Users::default(), requires_tls: false, clients_max: 10_000 }
    }
}

/// Why a client does not come in.
enum Turned {
    /// It went away, or cannot be understood.
    Gone(io::Error),
    /// It is told why.
    Refused(SqlError),
}

impl From<io::Error> for Turned {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl From<Malformed> for Turned {
    fn from(error: Malformed) -> Self {
        Self::Refused(SqlError::new(state::PROTOCOL_VIOLATION, error.to_string()))
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
    pub(crate) strangers: Mutex<Strangers<AbortHandle>>,
    /// From this comes what is asked of those who name a role that there is not, the same each time.
    pub(crate) secret: [u8; 32],
}

/// Somebody at the door.
struct Stranger {
    socket: Socket,
    input: BytesMut,
    peer: SocketAddr,
}

impl Door {
    /// Takes clients in, for ever.
    pub(crate) async fn open(self: Arc<Self>, listener: std::net::TcpListener) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        loop {
            match listener.accept().await {
                Ok((tcp, peer)) => {
                    let oldest = self.strangers.lock().arrive(|number| {
                        let door = Arc::clone(&self);
                        let receive = async move {
                            match tokio::time::timeout(STARTUP_TIME, door.receive(tcp, peer)).await {
                                Ok(Ok(())) | Err(_) => {}
                                Ok(Err(error)) => tracing::debug!(%error, "a client went away at the door"),
                            }
                            door.strangers.lock().leave(number);
                        };
                        tokio::spawn(receive).abort_handle()
                    });
                    if let Some(oldest) = oldest {
                        oldest.abort();
                    }
                }
                // Too many open files: those who are here may leave.
                Err(error) => {
                    tracing::warn!(%error, "a client could not come in");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Hears who a client is, and takes it to its tenant's thread.
    async fn receive(&self, tcp: TcpStream, peer: SocketAddr) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        let mut stranger = Stranger { socket: Socket::plain(tcp), input: BytesMut::with_capacity(4096), peer };
        let refusal = match self.startup(&mut stranger).await {
            Ok(None) => {
                stranger.socket.close();
                return Ok(());
            }
            Ok(Some(startup)) => match self.admit(&mut stranger, startup).await {
                Ok(client) => return self.take_in(stranger, client),
                Err(refusal) => refusal,
            },
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

    fn take_in(&self, stranger: Stranger, admitted: Admitted) -> io::Result<()> {
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

    /// Reads up to the startup message. `None` if the client wanted something else, which is done.
    async fn startup(&self, stranger: &mut Stranger) -> Heard<Option<Startup>> {
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        loop {
            let Some(mut message) = stranger.untyped().await? else { return Ok(None) };
            follow(&message)?;
            loop {
                match PgWireFrontendMessage::decode(&mut message, &context).map_err(io::Error::other)? {
                    Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::None)) => {
                        context.awaiting_frontend_ssl = false;
                        continue;
                    }
                    Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_))) => {
                        self.encrypt(stranger).await?;
                    }
                    Some(PgWireFrontendMessage::SslNegotiation(_)) => stranger.socket.write_all(b"N").await?,
                    Some(PgWireFrontendMessage::CancelRequest(request)) => {
                        if let Some(secret) = request.secret_key.as_i32() {
                            self.process.connections.cancel((request.pid, secret));
                        }
                        return Ok(None);
                    }
                    Some(PgWireFrontendMessage::Startup(startup)) => {
                        negotiate(&mut stranger.socket, &startup).await?;
                        return Ok(Some(startup));
                    }
                    _ => return Ok(None),
                }
                break;
            }
        }
    }

    async fn encrypt(&self, stranger: &mut Stranger) -> io::Result<()> {
        match &self.tls {
            Some(tls) if !stranger.socket.is_encrypted() => {
                // What came in the clear before the answer may be somebody else's.
                if !stranger.input.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes before encryption was agreed on"));
                }
                stranger.socket.write_all(b"S").await?;
                stranger.socket.encrypt(Arc::clone(&tls.configuration)).await
            }
            _ => stranger.socket.write_all(b"N").await,
        }
    }

    /// Decides whether a client may come in.
    async fn admit(&self, stranger: &mut Stranger, startup: Startup) -> Heard<Admitted> {
        let mut settings: Vec<(String, String)> = startup.parameters.into_iter().collect();
        let mut take = |name: &str| {
            let at = settings.iter().position(|(other, _)| other == name)?;
            Some(settings.swap_remove(at).1)
        };
        let user = take("user").unwrap_or_default();
        let database = take("database").filter(|name| !name.is_empty()).unwrap_or_else(|| user.clone());
        let replication = take("replication").is_some_and(|value| value != "false" && value != "0");
        if user.is_empty() {
            return Err(SqlError::new(AUTHORIZATION, "no PostgreSQL user name specified in startup packet").into());
        }
        if replication {
            return Err(SqlError::unsupported("replication").into());
        }
        if self.admission.requires_tls && !stranger.socket.is_encrypted() {
            let error = SqlError::new(AUTHORIZATION, "expected an encrypted connection, came one in the clear");
            return Err(error.hint("Connect with sslmode=require, or better verify-full.").into());
        }
        // Whoever proves to be a role of this one comes into no other that has its name by then.
        let tenant = self.process.tenant(&database);
        let administrator = self.authenticate(stranger, &user, tenant.as_ref().ok().copied()).await?;
        // That there is none is told to whom has come in.
        let tenant = tenant?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let error = SqlError::new("53300", "sorry, too many clients already");
            error.hint(format!("There are {}; try again when others have gone.", self.admission.clients_max))
        })?;
        Ok(Admitted { tenant, user, database, settings, administrator, place })
    }

    /// Makes sure that a client is who it says. Whether it may do things outside of its database, too.
    async fn authenticate(&self, stranger: &mut Stranger, user: &str, tenant: Option<TenantId>) -> Heard<bool> {
        let administration = self.process.tenant(ADMINISTRATION)?;
        let administrators = self.process.ask(administration, user).await?;
        let own = match tenant {
            Some(tenant) => self.process.ask(tenant, user).await?,
            None => Acquaintance::default(),
        };
        if self.admission.users.is_empty() && !administrators.guarded && !own.guarded {
            return match stranger.peer.ip().to_canonical().is_loopback() {
                true => Ok(true),
                false => {
                    let message = format!("expected a client of this machine, came one of {}", stranger.peer.ip());
                    let error = SqlError::new(AUTHORIZATION, message);
                    let hint = "Nobody has a password here yet: CREATE USER .. PASSWORD in database postgres, on that machine.";
                    Err(error.hint(hint).into())
                }
            };
        }
        // An administrator is one everywhere: a role that a database has made of the same name does not take its place.
        let configured = self.admission.users.get(user).map(|user| user.verifier.clone());
        let administering = configured.or(administrators.verifier);
        let administrator = administering.is_some();
        let verifier = administering.or(own.verifier);
        let verifier = verifier.unwrap_or_else(|| Verifier::of_nobody(&self.secret, user));
        let end_point = self.tls.as_ref().and_then(|tls| tls.end_point.as_deref());
        if stranger.proves(verifier, end_point.filter(|_| stranger.socket.is_encrypted())).await? {
            return Ok(administrator);
        }
        let message = format!("password authentication failed for user \"{user}\"");
        Err(SqlError::new("28P01", message).into())
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

/// SQLSTATE of clients that may not be who they say.
const AUTHORIZATION: &str = "28000";

impl Stranger {
    /// The next message without a type, its length included; `None` if there is none.
    async fn untyped(&mut self) -> io::Result<Option<BytesMut>> {
        let Some(length) = self.length(0).await? else { return Ok(None) };
        self.take(length, 8).await
    }

    /// The body of the next message, which must be of the type.
    async fn typed(&mut self, kind: u8) -> io::Result<BytesMut> {
        let length = self.length(1).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let message = self.take(length + 1, 5).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match message.first() {
            Some(first) if *first == kind => Ok(message),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "expected a client's proof, came another message")),
        }
    }

    /// The length of a message, which it says itself.
    async fn length(&mut self, at: usize) -> io::Result<Option<usize>> {
        while self.input.len() < at + 4 {
            if self.socket.read(&mut self.input).await? == 0 {
                return Ok(None);
            }
        }
        let bytes = &self.input[at..at + 4];
        Ok(Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize))
    }

    async fn take(&mut self, length: usize, least: usize) -> io::Result<Option<BytesMut>> {
        if !(least..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of a length that none has"));
        }
        while self.input.len() < length {
            if self.socket.read(&mut self.input).await? == 0 {
                return Ok(None);
            }
        }
        Ok(Some(self.input.split_to(length)))
    }

    /// Lets a client prove that it knows a password. Over TLS the proof can be bound to the certificate.
    async fn proves(&mut self, verifier: Verifier, end_point: Option<&[u8]>) -> Heard<bool> {
        let malformed = || SqlError::new(state::PROTOCOL_VIOLATION, "malformed SASL message");
        let mut output = Output::default();
        output.offer(&scram::mechanisms(end_point));
        self.socket.write_all(&output.bytes).await?;
        let message = self.typed(b'p').await?;
        let (mechanism, first) = scram::initial_response(&message[5..])?;
        let nonce = scram::nonce().map_err(io::Error::other)?;
        let (exchange, answer) = Exchange::begin(verifier, mechanism, first, &nonce, end_point)?;
        output.bytes.clear();
        output.challenge(answer);
        self.socket.write_all(&output.bytes).await?;
        let message = self.typed(b'p').await?;
        let last = str::from_utf8(&message[5..]).map_err(|_| malformed())?;
        let Some(answer) = exchange.end(last)? else { return Ok(false) };
        output.bytes.clear();
        output.proved(answer);
        self.socket.write_all(&output.bytes).await?;
        Ok(true)
    }
}

/// Makes sure that a message without a type is what it says.
fn follow(message: &[u8]) -> io::Result<()> {
    let Some((head, fields)) = message.split_first_chunk::<8>() else { return Ok(()) };
    let mut body = Body::untyped(u32::from_be_bytes([head[4], head[5], head[6], head[7]]));
    body.advance(fields).and_then(|()| body.end()).map_err(io::Error::other)
}

/// Bytes that nobody can guess.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Tells a client that speaks a later minor version which one is spoken here.
async fn negotiate(socket: &mut Socket, startup: &Startup) -> io::Result<()> {
    if startup.protocol_number_minor == 0 {
        return Ok(());
    }
    let mut bytes = BytesMut::new();
    NegotiateProtocolVersion::new(0, Vec::new()).encode(&mut bytes).map_err(io::Error::other)?;
    socket.write_all(&bytes).await
}
