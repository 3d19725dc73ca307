//! The threads of a server, from the beginning to the end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::thread::JoinHandle;

use mio::net::TcpListener;
use mio::{Interest, Poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ServerConfig;
use savanna_identity::PendingClients;
use savanna_keys::handle::SharedKeysHandle;
use savanna_keys::placement::Routes;
use savanna_keys_host::{Gauge, Hearer, HostError, HostOptions, Service, Stopper, Worker};

use crate::thread::eviction::{Scales, Weight};
use crate::thread::{
    Acceptor, Arrivals, Door, LISTEN, LISTEN_CLUSTER, LISTEN_TLS, Lent, Listener, State, Thread, ThreadError, WAKE,
};
use crate::tls::{self, TlsError};

/// What a server is to be.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where it listens; port 0 for any.
    pub address: SocketAddr,
    /// Its port for clients of clusters.
    pub cluster_port: ClusterPort,
    /// The keys behind it.
    pub host: HostOptions,
}

/// Where clients of clusters come in, beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterPort {
    /// Nowhere.
    None,
    /// At this port, 0 for any.
    At(u16),
    /// At this one if nobody else has it.
    IfFree(u16),
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The port cannot be listened to.
    #[error("could not listen on {address}: {source}; choose another port, or stop the process that uses it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("could not start a thread of the keys service: {0}; check the limits of threads and open files")]
    Start(#[source] io::Error),
    /// There can be no encrypted connections.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The keys could not be read, or not be kept.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A thread ended.
    #[error("a thread of the keys service ended: {0}")]
    Thread(#[from] ThreadError),
    /// A thread panicked.
    #[error("a thread of the keys service panicked; please report it with the log")]
    Panicked,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    cluster_address: Option<SocketAddr>,
    service: Service,
    threads: Vec<JoinHandle<Result<(), ThreadError>>>,
    client_count: Arc<AtomicUsize>,
}

/// Wakes a thread that waits for sockets.
struct PollWaker(mio::Waker);

impl Wake for PollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Err(error) = self.0.wake() {
            tracing::error!(%error, "could not wake a thread of the keys service");
        }
    }
}

/// A server that listens and has read its log, and serves nobody yet.
#[derive(Debug)]
pub struct Opened {
    address: SocketAddr,
    cluster_address: Option<SocketAddr>,
    listeners: Vec<(Door, TcpListener)>,
    tls: Option<Arc<ServerConfig>>,
    polls: Vec<Poll>,
    service: Service,
    workers: Vec<Worker>,
}

impl Opened {
    /// Listens, and reads the log. Blocks while it does; clients wait meanwhile.
    ///
    /// # Errors
    /// [`ServerError::Listen`], [`ServerError::Host`], [`ServerError::Tls`], [`ServerError::Start`].
    pub fn open(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { address, cluster_port, mut host } = options;
        let ip = address.ip();
        let tls = if host.config.tls.port == 0 { None } else { Some(tls::configuration(&host.config.tls)?) };
        let (listener, address) = listen(address)?;
        let mut listeners = vec![(Door::Plain, listener)];
        if tls.is_some() {
            listeners.push((Door::Encrypted, listen(SocketAddr::new(ip, host.config.tls.port))?.0));
        }
        let cluster = cluster_port.listen(ip)?;
        let cluster_address = cluster.as_ref().map(|(_, address)| *address);
        listeners.extend(cluster.map(|(listener, _)| (Door::Cluster, listener)));
        host.config.port = address.port();
        host.config.cluster_port = cluster_address.map_or(0, |address| address.port());
        allow_files(host.config.clients_max);
        let (mut polls, mut wakers) = (Vec::new(), Vec::new());
        for _ in Routes::over(host.threads).all() {
            let poll = Poll::new().map_err(ServerError::Start)?;
            let waker = mio::Waker::new(poll.registry(), WAKE).map_err(ServerError::Start)?;
            wakers.push(Arc::new(PollWaker(waker)).into());
            polls.push(poll);
        }
        let (service, workers) = Service::open(host, wakers)?;
        Ok(Self { address, cluster_address, listeners, tls, polls, service, workers })
    }

    /// Serves clients.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn serve(self) -> Result<Server, ServerError> {
        let Self { address, cluster_address, mut listeners, tls, polls, service, workers } = self;
        let arrivals: Arc<[Arrivals]> = service.bells().cloned().map(Arrivals::new).collect();
        let weights: Arc<[Weight]> = (0..arrivals.len()).map(|_| Weight::default()).collect();
        let pending = Arc::new(Mutex::new(PendingClients::new(usize::MAX)));
        let mut server =
            Server { address, cluster_address, service, threads: Vec::new(), client_count: Arc::default() };
        for (number, (worker, poll)) in workers.into_iter().zip(polls).enumerate() {
            let listeners = std::mem::take(&mut listeners).into_iter().map(|(door, mut listener)| {
                let token = match door {
                    Door::Plain => LISTEN,
                    Door::Encrypted => LISTEN_TLS,
                    Door::Cluster => LISTEN_CLUSTER,
                };
                poll.registry().register(&mut listener, token, Interest::READABLE)?;
                Ok(Listener { door, listener: Arc::new(listener) })
            });
            let acceptor = Acceptor {
                listeners: listeners.collect::<io::Result<_>>().map_err(ServerError::Start)?,
                tls: tls.clone(),
                registry: Arc::new(poll.registry().try_clone().map_err(ServerError::Start)?),
                thread: number,
                arrivals: Arc::clone(&arrivals),
                weights: Arc::clone(&weights),
                client_count: Arc::clone(&server.client_count),
                pending: Arc::clone(&pending),
                next_client: Arc::default(),
            };
            let scales = Scales::new(number, Arc::clone(&weights), Arc::clone(&arrivals));
            let mut thread = Thread { worker, poll, acceptor, lent: Lent::default(), scales, state: State::new() };
            let run = move || {
                let ended = thread.run();
                if let Err(error) = &ended {
                    tracing::error!(%error, "the keys service ends");
                }
                ended
            };
            let named = std::thread::Builder::new().name(format!("keys-{number}"));
            server.threads.push(named.spawn(run).map_err(ServerError::Start)?);
        }
        Ok(server)
    }
}

impl Server {
    /// Reads the log, then serves. Blocks while it reads.
    ///
    /// # Errors
    /// [`ServerError::Host`], [`ServerError::Tls`], [`ServerError::Listen`], [`ServerError::Start`].
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        Opened::open(options)?.serve()
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients of clusters come in, if they do.
    #[must_use]
    pub const fn cluster_address(&self) -> Option<SocketAddr> {
        self.cluster_address
    }

    /// How many clients there are.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.client_count.load(Ordering::Relaxed)
    }

    /// Its keys, as other nodes ask for them.
    #[must_use]
    pub fn handle(&self) -> SharedKeysHandle {
        self.service.handle()
    }

    /// Tells its figures while somebody else waits for its end.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        self.service.gauge()
    }

    /// What tells it which node has which keys, where each has some.
    #[must_use]
    pub fn hearer(&self) -> Hearer {
        self.service.hearer()
    }

    /// What stops it while somebody else waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.service.stopper()
    }

    /// Does this, once, when a client asks for the end of the process (`SHUTDOWN`).
    pub fn when_asked_to_end(&self, act: impl FnOnce() + Send + 'static) {
        self.service.when_asked_to_end(act);
    }

    /// Waits until the server ends, which it does by itself only if it cannot go on.
    ///
    /// # Errors
    /// [`ServerError::Thread`], [`ServerError::Panicked`].
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().map_err(|_| ServerError::Panicked).and_then(|ended| Ok(ended?));
            outcome = outcome.and(ended);
        }
        let closed = self.service.close().map_err(ServerError::Host);
        outcome.and(closed)
    }
}

impl ClusterPort {
    /// The same port again, where any was asked for before.
    #[must_use]
    pub const fn kept_at(self, address: Option<SocketAddr>) -> Self {
        match (self, address) {
            (Self::At(_), Some(address)) => Self::At(address.port()),
            (port, _) => port,
        }
    }

    fn listen(self, ip: IpAddr) -> Result<Option<(TcpListener, SocketAddr)>, ServerError> {
        match self {
            Self::None => Ok(None),
            Self::At(port) => listen(SocketAddr::new(ip, port)).map(Some),
            Self::IfFree(port) => Ok(listen(SocketAddr::new(ip, port))
                .inspect_err(|error| tracing::info!(%error, "there is no port for clients of clusters"))
                .ok()),
        }
    }
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Asks the operating system for as many files as there may be clients.
fn allow_files(clients_max: usize) {
    /// For the log, the threads, and what else the process has.
    const OTHERS: u64 = 256;
    let wanted = clients_max as u64 + OTHERS;
    // Where it refuses, clients that are too many wait until others go.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard)
    {
        tracing::warn!(%error, "the limit of open files stays at {soft}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper().stop();
        if let Err(error) = self.join() {
            tracing::error!(%error, "the keys service had ended before it was stopped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::time::Duration;

    use savanna_epoch::NodeEpoch;
    use savanna_journal::Options;
    use savanna_journal::sim::{Fault, SimDisk};
    use savanna_keys::config::Config;

    use super::*;

    #[test]
    fn who_has_to_say_who_it_is_and_does_not_has_to_go() {
        let mut config = Config { login_seconds_max: 1, ..Config::default() };
        config.set(b"requirepass", b"secret").unwrap();
        let server = Server::start(ServerOptions {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            cluster_port: ClusterPort::None,
            host: HostOptions { threads: 1, config, log: None, lease: None, seed: 1, elsewhere: None, spread: None },
        })
        .unwrap();
        let [mut silent, mut talking, mut known] = [(); 3].map(|()| TcpStream::connect(server.address()).unwrap());
        let known_is = |known: &mut TcpStream, request: &[u8], expected: &str| {
            known.write_all(request).unwrap();
            let mut reply = vec![0; expected.len()];
            known.read_exact(&mut reply).unwrap();
            assert_eq!(String::from_utf8(reply).unwrap(), expected);
        };
        known_is(&mut known, b"AUTH secret\r\nPING\r\n", "+OK\r\n+PONG\r\n");
        let mut replies = Vec::new();
        // What it says does not give it more time.
        while talking.write_all(b"PING\r\n").is_ok() {
            let mut reply = [0; 64];
            match talking.read(&mut reply) {
                Ok(0) | Err(_) => break,
                Ok(count) => replies.extend_from_slice(&reply[..count]),
            }
        }
        assert!(replies.is_empty() || replies.starts_with(b"-NOAUTH"));
        assert_eq!(silent.read(&mut [0; 64]).unwrap(), 0, "it is disconnected");
        known_is(&mut known, b"PING\r\nRESET\r\nAUTH secret\r\nPING\r\n", "+PONG\r\n+RESET\r\n+OK\r\n+PONG\r\n");
    }

    #[test]
    fn who_stops_it_hears_that_acknowledged_changes_are_not_on_the_disk() {
        let disk = SimDisk::new(1);
        let server = Server::start(ServerOptions {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            cluster_port: ClusterPort::None,
            host: HostOptions {
                threads: 1,
                config: Config::default(),
                log: Some((Options::disk(Arc::clone(&disk) as _), NodeEpoch(1))),
                lease: None,
                seed: 1,
                elsewhere: None,
                spread: None,
            },
        })
        .unwrap();
        let mut client = TcpStream::connect(server.address()).unwrap();
        let mut set = || {
            client.write_all(b"SET acknowledged early\r\n").unwrap();
            let mut reply = [0; 5];
            client.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"+OK\r\n");
        };
        // What is done once is done then: files, and space in them.
        set();
        let mut operations = 0;
        while operations < disk.operations() {
            operations = disk.operations();
            std::thread::sleep(Duration::from_millis(300));
        }
        // The change is staged by one operation, and another one looks for a fence behind it. All later ones fail.
        disk.fail(3, Fault::PowerCut);
        set();
        server.stopper().stop();
        assert!(server.wait().is_err());
    }
}
