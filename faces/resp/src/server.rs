//! The threads of a server, from the beginning to the end.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use mio::net::TcpListener;
use mio::{Interest, Poll, Waker};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parking_lot::Mutex;
use savanna_epoch::OwnerEpoch;
use savanna_journal::{Journal, JournalError, Options, Stats as LogStats};
use savanna_keys::access::Users;
use savanna_keys::actor::Actor;
use savanna_keys::config::Config;
use savanna_keys::figures::Figures;
use savanna_keys::log::recover;
use savanna_keys::placement::Placement;
use savanna_ownership::guard::LeaseGuard;

use crate::mailbox::{Mail, Slot, mailbox};
use crate::thread::{Door, LISTEN, LISTEN_TLS, Lent, State, Thread, ThreadError, WAKE};
use crate::tls::{self, TlsError};

/// What a server is to be.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where it listens; port 0 for any.
    pub address: SocketAddr,
    /// How many threads it has.
    pub threads: u16,
    /// What is set.
    pub config: Config,
    /// Where its log is, and under which epoch it is written; none to keep nothing.
    pub log: Option<(Options, OwnerEpoch)>,
    /// The lease under which it may tell anybody anything; none where nobody else could have its keys.
    pub lease: Option<LeaseGuard>,
    /// A seed for what is left to chance.
    pub seed: u64,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The port cannot be listened to.
    #[error("could not listen on {address}: {source}; choose another port, or end what has it")]
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
    /// The users could not be read.
    #[error("{0}; correct the file that aclfile names (an empty one is a beginning), or start without")]
    Users(String),
    /// The log could not be opened.
    #[error("could not read the log of the keys service: {0}")]
    Log(#[from] JournalError),
    /// The last changes did not become durable when the server stopped.
    #[error(
        "the last changes of keys are not on the disk: {0}; what was acknowledged under another appendfsync than always may be lost"
    )]
    LastFlush(#[source] JournalError),
    /// A thread ended.
    #[error("a thread of the keys service ended: {0}")]
    Thread(#[from] ThreadError),
    /// A thread panicked.
    #[error("a thread of the keys service panicked; its keys are not served any more, restart the process")]
    Panicked,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    slots: Vec<Slot>,
    threads: Vec<JoinHandle<Result<(), ThreadError>>>,
    figures: Arc<[Arc<Mutex<Figures>>]>,
    journal: Option<Arc<Journal>>,
    client_count: Arc<AtomicUsize>,
}

impl Server {
    /// Reads the log, then listens. Blocks while it reads.
    ///
    /// # Errors
    /// [`ServerError::Log`], [`ServerError::Listen`], [`ServerError::Start`].
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { address, threads, mut config, log, lease, seed } = options;
        let placement = Placement::over(threads);
        config.is_logged = log.is_some();
        let tls = if config.tls.port == 0 { None } else { Some(tls::configuration(&config.tls)?) };
        let read = |path| Users::read(path, config.password.as_ref());
        let users = config.users_file.as_deref().map(read).transpose().map_err(ServerError::Users)?;
        allow_files(config.clients_max);
        let mut actors: Vec<Actor> =
            placement.all().map(|id| Actor::new(id, placement, config.clone(), seed)).collect();
        Actor::introduce(&mut actors);
        if let Some(users) = &users {
            actors.iter_mut().for_each(|actor| actor.change_users(|all| *all = users.clone()));
        }
        let tls_address = SocketAddr::new(address.ip(), config.tls.port);
        let journal = log
            .map(|(options, epoch)| {
                let mut keyspaces: Vec<_> = actors.iter_mut().map(|actor| &mut actor.keys).collect();
                recover(options, epoch, placement, &mut keyspaces)
            })
            .transpose()?;
        let bind = |address| {
            let listen = |source| ServerError::Listen { address, source };
            let listener = TcpListener::bind(address).map_err(listen)?;
            let address = listener.local_addr().map_err(listen)?;
            Ok::<_, ServerError>((listener, address))
        };
        let (listener, address) = bind(address)?;
        let mut listener = Some(listener);
        let mut tls_listener = tls.as_ref().map(|_| bind(tls_address)).transpose()?.map(|(listener, _)| listener);
        let client_count = Arc::new(AtomicUsize::new(0));
        let (mut polls, mut slots) = (Vec::new(), Vec::new());
        for _ in &actors {
            let poll = Poll::new().map_err(ServerError::Start)?;
            let waker = Waker::new(poll.registry(), WAKE).map_err(ServerError::Start)?;
            let (slot, mailbox) = mailbox(waker);
            slots.push(slot);
            polls.push((poll, mailbox));
        }
        let figures = actors.iter().map(|actor| Arc::new(Mutex::new(actor.figures()))).collect();
        let mut server = Self { address, slots, threads: Vec::new(), figures, journal: journal.clone(), client_count };
        for (actor, (poll, mailbox)) in actors.into_iter().zip(polls) {
            let (mut listener, mut tls_listener) = (listener.take(), tls_listener.take());
            for (listener, token) in [(&mut listener, LISTEN), (&mut tls_listener, LISTEN_TLS)] {
                if let Some(listener) = listener {
                    poll.registry().register(listener, token, Interest::READABLE).map_err(ServerError::Start)?;
                }
            }
            let name = format!("keys-{}", actor.id().0);
            let door = Door {
                listener: listener.map(Arc::new),
                tls_listener: tls_listener.map(Arc::new),
                tls: tls.clone(),
                registry: Arc::new(poll.registry().try_clone().map_err(ServerError::Start)?),
                slots: server.slots.clone(),
                client_count: Arc::clone(&server.client_count),
                next_client: Arc::default(),
            };
            let mut thread = Thread {
                actor,
                poll,
                door,
                lent: Lent::default(),
                mailbox,
                journal: journal.clone(),
                lease: lease.clone(),
                figures: Arc::clone(&server.figures[server.threads.len()]),
                state: State::new(),
            };
            let one_for_all = OneForAll(server.stopper());
            let run = move || {
                let _one_for_all = one_for_all;
                let ended = thread.run();
                if let Err(error) = &ended {
                    tracing::error!(%error, "the keys service ends");
                }
                ended
            };
            let thread = std::thread::Builder::new().name(name).spawn(run).map_err(ServerError::Start)?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many clients there are.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.client_count.load(Ordering::Relaxed)
    }

    /// Tells its figures while somebody else waits for its end.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        let journal = self.journal.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Gauge { threads: Arc::clone(&self.figures), journal }
    }

    /// What stops it while somebody else waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { slots: self.slots.clone() }
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
        let closed = self.journal.take().map_or(Ok(()), |journal| journal.close().map_err(ServerError::LastFlush));
        outcome.and(closed)
    }
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

/// Tells the figures of a server, which may be a second old. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gauge {
    threads: Arc<[Arc<Mutex<Figures>>]>,
    journal: Weak<Journal>,
}

impl Gauge {
    /// The figures of each thread.
    #[must_use]
    pub fn threads(&self) -> Vec<Figures> {
        self.threads.iter().map(|figures| *figures.lock()).collect()
    }

    /// What was written to the log since the server began, if it has one and goes on.
    #[must_use]
    pub fn log(&self) -> Option<LogStats> {
        Some(self.journal.upgrade()?.stats())
    }
}

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Stopper {
    slots: Vec<Slot>,
}

impl Stopper {
    /// Tells the server to stop: connections are closed, changes are handed to the log. It ends a little later.
    pub fn stop(&self) {
        self.slots.iter().for_each(|slot| slot.put(Mail::Stop));
    }
}

/// Stops all threads when one ends, by a panic too: its keys are nobody's then.
struct OneForAll(Stopper);

impl Drop for OneForAll {
    fn drop(&mut self) {
        self.0.stop();
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

    use savanna_journal::sim::{Fault, SimDisk};

    use super::*;

    #[test]
    fn a_panic_in_one_thread_stops_all() {
        let poll = Poll::new().unwrap();
        let (slot, mailbox) = mailbox(Waker::new(poll.registry(), WAKE).unwrap());
        let one_for_all = OneForAll(Stopper { slots: vec![slot] });
        let panicking = std::thread::spawn(move || {
            let _one_for_all = one_for_all;
            panic!("a bug");
        });
        assert!(panicking.join().is_err());
        assert!(matches!(mailbox.take(), Some(Mail::Stop)));
    }

    #[test]
    fn who_stops_it_hears_that_acknowledged_changes_are_not_on_the_disk() {
        let disk = SimDisk::new(1);
        let server = Server::start(ServerOptions {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            threads: 1,
            config: Config::default(),
            log: Some((Options::disk(Arc::clone(&disk) as _), OwnerEpoch(1))),
            lease: None,
            seed: 1,
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
        // The change is staged by one operation. All later ones fail.
        disk.fail(2, Fault::PowerCut);
        set();
        server.stopper().stop();
        assert!(server.wait().is_err());
    }
}
