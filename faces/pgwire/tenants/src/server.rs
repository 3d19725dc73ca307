//! The server: its threads, and the door where clients say whom they want.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use pgwire::messages::{
    DecodeContext, Message, PgWireFrontendMessage, ProtocolVersion, SslNegotiationMetaMessage, startup::Startup,
};
use savanna_epoch::OwnerEpoch;
use savanna_journal::{Journal, JournalError, Lsn, Options};
use savanna_tenants::{SqlError, error::state, owner::Owner};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};

use crate::{
    output::Output,
    thread::{self, Client, Order},
};

/// The database that there always is.
const DEFAULT_DATABASE: &str = "postgres";
/// A client that has not said who it is by then is sent away.
const STARTUP_TIME: Duration = Duration::from_secs(60);
/// What a tenants' thread may need for the deepest expression that is not refused. Memory is taken only as it is used.
const STACK_BYTES: usize = 256 << 20;
/// The longest startup message.
const STARTUP_BYTES_MAX: usize = 10_000;

/// Where a server listens and keeps its log.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address; port 0 is any that is free.
    pub listen: SocketAddr,
    /// The log's directory.
    pub data_dir: PathBuf,
    /// The epoch under which this process owns the log.
    pub epoch: OwnerEpoch,
    /// Threads that tenants live on.
    pub threads: usize,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It cannot listen, or start its threads.
    #[error("could not start the server of tenants: {0}")]
    Io(#[from] io::Error),
    /// Its log cannot be read.
    #[error("could not read the tenants' log: {0}")]
    Recovery(#[from] SqlError),
}

/// Which tenants there are, and on which thread each lives.
pub(crate) struct Registry {
    owner: Owner,
    threads: Vec<mpsc::UnboundedSender<Order>>,
    places: HashMap<String, usize>,
    next: usize,
}

impl Registry {
    /// Makes a tenant, on the thread that is next.
    pub(crate) fn create(&mut self, name: &str) -> Result<Lsn, SqlError> {
        let (database, lsn) = self.owner.create(name)?;
        self.place(name.to_owned(), database);
        Ok(lsn)
    }

    /// Asks a tenant's thread to let it go.
    pub(crate) fn retire(&self, name: &str) -> Result<oneshot::Receiver<bool>, SqlError> {
        let Some(place) = self.places.get(name) else {
            let message = format!("database \"{name}\" does not exist");
            return Err(SqlError::new(state::INVALID_CATALOG_NAME, message));
        };
        let (gone, answer) = oneshot::channel();
        drop(self.threads[*place].send(Order::Retire { name: name.to_owned(), gone }));
        Ok(answer)
    }

    /// Removes a tenant that its thread has let go.
    pub(crate) fn remove(&mut self, name: &str) -> Result<Lsn, SqlError> {
        self.places.remove(name);
        self.owner.remove(name)
    }

    fn place(&mut self, name: String, database: savanna_tenants::database::Database) {
        let place = self.next % self.threads.len();
        self.next += 1;
        drop(self.threads[place].send(Order::Adopt { name: name.clone(), database: Box::new(database) }));
        self.places.insert(name, place);
    }
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    journal: Arc<Journal>,
    stop: Option<oneshot::Sender<()>>,
    door: Option<JoinHandle<()>>,
}

impl Server {
    /// Reads the log, and serves.
    ///
    /// # Errors
    /// If the log cannot be read or the address not be listened at.
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { listen, data_dir, epoch, threads } = options;
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (owner, databases) = Owner::open(Options::dir(data_dir), epoch)?;
        let journal = Arc::clone(owner.journal());
        let registry = Registry { owner, threads: Vec::new(), places: HashMap::new(), next: 0 };
        let registry = Arc::new(Mutex::new(registry));
        for number in 0..threads.max(1) {
            let (sender, orders) = mpsc::unbounded_channel();
            let (journal, shared) = (Arc::clone(&journal), Arc::clone(&registry));
            let name = format!("tenants-{number}");
            let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES);
            thread.spawn(move || thread::run(journal, shared, orders))?;
            registry.lock().threads.push(sender);
        }
        {
            let mut registry = registry.lock();
            for (name, database) in databases {
                registry.place(name, database);
            }
            if !registry.owner.has(DEFAULT_DATABASE) {
                registry.create(DEFAULT_DATABASE)?;
            }
        }
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let door = std::thread::Builder::new().name("tenants-door".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    outcome = accept(listener, registry) => if let Err(error) = outcome {
                        tracing::error!(%error, "the server of tenants takes no more clients");
                    },
                    // The server was stopped or dropped.
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, journal, stop: Some(stop), door: Some(door) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more clients, and closes the log. Whoever is connected is told nothing more.
    ///
    /// # Errors
    /// Why the log ended earlier, if it did.
    pub fn stop(mut self) -> Result<(), JournalError> {
        self.close_door();
        self.journal.close()
    }

    fn close_door(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The door may be closed already.
            _ = stop.send(());
        }
        if let Some(door) = self.door.take()
            && door.join().is_err()
        {
            tracing::error!("the thread that takes clients panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close_door();
    }
}

async fn accept(listener: std::net::TcpListener, registry: Arc<Mutex<Registry>>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let processes = Arc::new(AtomicI32::new(1));
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let (registry, processes) = (Arc::clone(&registry), Arc::clone(&processes));
                tokio::spawn(async move {
                    match tokio::time::timeout(STARTUP_TIME, greet(socket, &registry, &processes)).await {
                        Ok(Ok(())) | Err(_) => {}
                        Ok(Err(error)) => tracing::debug!(%error, "a client went away at the door"),
                    }
                });
            }
            // Too many open files: those who are here may leave.
            Err(error) => {
                tracing::warn!(%error, "a client could not come in");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Hears who a client is, and takes it to its tenant's thread.
async fn greet(mut socket: TcpStream, registry: &Mutex<Registry>, processes: &AtomicI32) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut input = BytesMut::with_capacity(4096);
    let Some(startup) = startup(&mut socket, &mut input, registry).await? else { return Ok(()) };
    let mut settings: Vec<(String, String)> = startup.parameters.clone().into_iter().collect();
    let mut take = |name: &str| {
        let at = settings.iter().position(|(other, _)| other == name)?;
        Some(settings.swap_remove(at).1)
    };
    let user = take("user").unwrap_or_default();
    let database = take("database").filter(|name| !name.is_empty()).unwrap_or_else(|| user.clone());
    let replication = take("replication").is_some_and(|value| value != "false" && value != "0");
    let process = processes.fetch_add(1, Ordering::Relaxed);
    let mut secret = [0; 4];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    let place = registry.lock().places.get(&database).copied();
    let refusal = match (user.as_str(), place) {
        ("", _) => Some(SqlError::new("28000", "no PostgreSQL user name specified in startup packet")),
        _ if replication => Some(SqlError::unsupported("replication")),
        (_, None) => {
            Some(SqlError::new(state::INVALID_CATALOG_NAME, format!("database \"{database}\" does not exist")))
        }
        (_, Some(_)) => None,
    };
    let (None, Some(place)) = (&refusal, place) else {
        let mut output = Output::default();
        output.error("FATAL", &refusal.unwrap_or_else(|| SqlError::internal("no place for a client")));
        return socket.write_all(&output.bytes).await;
    };
    let secret = i32::from_be_bytes(secret);
    let client = Client { socket: socket.into_std()?, input, user, database, settings, process, secret };
    drop(registry.lock().threads[place].send(Order::Client(Box::new(client))));
    Ok(())
}

/// Reads up to the startup message. `None` if the client wanted something else, which is done.
async fn startup(
    socket: &mut TcpStream,
    input: &mut BytesMut,
    registry: &Mutex<Registry>,
) -> io::Result<Option<Startup>> {
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    loop {
        let length = input.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize);
        if length.is_some_and(|length| !(8..=STARTUP_BYTES_MAX).contains(&length)) {
            return Ok(None);
        }
        if length.is_some_and(|length| input.len() >= length) {
            match PgWireFrontendMessage::decode(input, &context).map_err(io::Error::other)? {
                // The loopback needs no encryption.
                Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::None)) => {
                    context.awaiting_frontend_ssl = false;
                }
                Some(PgWireFrontendMessage::SslNegotiation(_)) => socket.write_all(b"N").await?,
                Some(PgWireFrontendMessage::CancelRequest(request)) => {
                    if let Some(secret) = request.secret_key.as_i32() {
                        for thread in &registry.lock().threads {
                            drop(thread.send(Order::Cancel { process: request.pid, secret }));
                        }
                    }
                    return Ok(None);
                }
                Some(PgWireFrontendMessage::Startup(startup)) => {
                    negotiate(socket, &startup).await?;
                    return Ok(Some(startup));
                }
                _ => return Ok(None),
            }
            continue;
        }
        if socket.read_buf(input).await? == 0 {
            input.advance(input.len());
            return Ok(None);
        }
    }
}

/// Tells a client that speaks a later minor version which one is spoken here.
async fn negotiate(socket: &mut TcpStream, startup: &Startup) -> io::Result<()> {
    if startup.protocol_number_minor == 0 {
        return Ok(());
    }
    let mut bytes = BytesMut::new();
    let answer = pgwire::messages::startup::NegotiateProtocolVersion::new(0, Vec::new());
    answer.encode(&mut bytes).map_err(io::Error::other)?;
    socket.write_all(&bytes).await
}
