//! Clients that come: who is let in, and what its connection is to be.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;
use savanna_keys_host::{Admission, Bell};
use socket2::{SockRef, TcpKeepalive};

use super::{ACCEPT_PAUSE, Thread};
use crate::connection::Connection;
use crate::stream::Stream;

/// What a client from elsewhere is told where nobody has to say who it is.
const PROTECTED: &[u8] =
    b"-DENIED Savanna serves keys to other machines only if clients authenticate: set auth.users, \
requirepass or aclfile; or set protected-mode no, and everybody may do everything\r\n";
/// How often a silent client is asked whether it is still there before it is given up.
const KEEPALIVE_RETRIES: u32 = 3;

/// The connections of a thread, by the place of their sessions.
pub(crate) type Connections = Vec<Option<Box<Connection>>>;

/// Clients that were accepted for a thread by another one.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// With whether their connections are encrypted. Held for a moment only.
    clients: Mutex<Vec<(TcpStream, bool)>>,
    /// Whether there may be some.
    are_there: AtomicBool,
    bell: Bell,
}

impl Arrivals {
    /// For the thread that `bell` wakes.
    pub(crate) fn new(bell: Bell) -> Self {
        Self { clients: Mutex::default(), are_there: AtomicBool::new(false), bell }
    }

    fn put(&self, stream: TcpStream, is_encrypted: bool) {
        self.clients().push((stream, is_encrypted));
        self.are_there.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    fn are_there(&self) -> bool {
        self.are_there.load(Ordering::SeqCst)
    }

    fn take(&self) -> Vec<(TcpStream, bool)> {
        if !self.are_there() {
            return Vec::new();
        }
        // Who puts one in now says so again.
        self.are_there.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.clients())
    }

    fn clients(&self) -> MutexGuard<'_, Vec<(TcpStream, bool)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where clients come in.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// The first thread accepts clients for all.
    pub(crate) listener: Option<Arc<TcpListener>>,
    /// As `listener`, for encrypted connections.
    pub(crate) tls_listener: Option<Arc<TcpListener>>,
    /// What encrypted connections need.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Who is told what comes from a client.
    pub(crate) registry: Arc<Registry>,
    /// Which thread this is.
    pub(crate) thread: usize,
    /// Where the threads, this one too, find clients that others accepted for them.
    pub(crate) arrivals: Arc<[Arrivals]>,
    /// The clients of all threads.
    pub(crate) client_count: Arc<AtomicUsize>,
    /// Counts those that came.
    pub(crate) next_client: Arc<AtomicUsize>,
}

impl Thread {
    pub(super) fn accept(&mut self) {
        self.state.must_accept_again = false;
        self.state.accept_after = None;
        if let Err(error) = self.door.accept(&mut self.worker.admission(), &mut self.state.connections) {
            if let Some(times) = self.state.failures_to_accept.happens(Instant::now()) {
                tracing::warn!(%error, times, "a client could not be accepted");
            }
            self.state.must_accept_again = true;
            self.state.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
        }
    }

    pub(super) fn take_arrivals(&mut self) {
        self.door.take_arrivals(&mut self.worker.admission(), &mut self.state.connections);
    }
}

impl Door {
    /// Takes the clients that wait, for all threads.
    ///
    /// # Errors
    /// If the operating system refuses one, for want of files mostly.
    pub(super) fn accept(&self, admission: &mut Admission<'_>, connections: &mut Connections) -> io::Result<()> {
        self.accept_from(false, admission, connections)?;
        self.accept_from(true, admission, connections)
    }

    fn accept_from(
        &self,
        is_encrypted: bool,
        admission: &mut Admission<'_>,
        connections: &mut Connections,
    ) -> io::Result<()> {
        let listener = if is_encrypted { &self.tls_listener } else { &self.listener };
        let Some(listener) = listener else { return Ok(()) };
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let thread = self.next_client.fetch_add(1, Ordering::Relaxed) % self.arrivals.len();
                    if thread == self.thread {
                        self.greet(stream, is_encrypted, admission, connections);
                    } else {
                        self.arrivals[thread].put(stream, is_encrypted);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether another thread accepted clients for this one.
    pub(super) fn has_arrivals(&self) -> bool {
        self.arrivals[self.thread].are_there()
    }

    /// Takes the clients that another thread accepted.
    pub(super) fn take_arrivals(&self, admission: &mut Admission<'_>, connections: &mut Connections) {
        for (stream, is_encrypted) in self.arrivals[self.thread].take() {
            self.greet(stream, is_encrypted, admission, connections);
        }
    }

    fn greet(
        &self,
        mut stream: TcpStream,
        is_encrypted: bool,
        admission: &mut Admission<'_>,
        connections: &mut Connections,
    ) {
        let peer = stream.peer_addr();
        let ip = peer.as_ref().ok().map(|peer| peer.ip());
        if admission.actor().is_protected_from(ip, is_encrypted) {
            if !is_encrypted {
                let _ = io::Write::write(&mut stream, PROTECTED);
            }
            return;
        }
        if self.client_count.fetch_add(1, Ordering::Relaxed) >= admission.actor().clients_max() {
            self.client_count.fetch_sub(1, Ordering::Relaxed);
            // It is sent away, whether it hears why or not.
            if !is_encrypted {
                let _ = io::Write::write(&mut stream, b"-ERR max number of clients reached\r\n");
            }
            return;
        }
        // Without it replies are late, which is no reason to refuse a client.
        let _ = stream.set_nodelay(true);
        keep_alive(&stream, admission.actor().keepalive_seconds());
        let address = peer.map_or_else(|_| String::new(), |peer| peer.to_string());
        let local_address = stream.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
        let session = admission.open(address, local_address, ip, is_encrypted);
        let place = session.place as usize;
        let registered = self.registry.register(&mut stream, Token(place), Interest::READABLE | Interest::WRITABLE);
        let tls = if is_encrypted { self.tls.clone() } else { None };
        let stream = registered.and_then(|()| Stream::new(stream, tls).map_err(io::Error::other));
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                admission.close(session);
                self.client_count.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        };
        if connections.len() <= place {
            connections.resize_with(place + 1, || None);
        }
        connections[place] = Some(Box::new(Connection::new(stream, session, admission.actor().now())));
    }
}

/// Lets the operating system find out whether a silent client is still there.
fn keep_alive(stream: &TcpStream, seconds: u32) {
    if seconds == 0 {
        return;
    }
    let between = Duration::from_secs(u64::from(seconds.div_ceil(KEEPALIVE_RETRIES)));
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(u64::from(seconds)))
        .with_interval(between)
        .with_retries(KEEPALIVE_RETRIES);
    // Without it a client that vanished is found out when it is written to.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}
