//! Clients that come: who is let in, and what its connection is to be.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;
use savanna_identity::PendingClients;
use savanna_keys::actor::Actor;
use savanna_keys_host::{Admission, Bell};
use socket2::{SockRef, TcpKeepalive};

use super::eviction::Weight;
use super::{ACCEPT_PAUSE, Thread};
use crate::connection::Connection;
use crate::stream::Stream;

/// What a client from elsewhere is told where nobody has to say who it is.
const PROTECTED: &[u8] =
    b"-DENIED Savanna serves keys to other machines only if clients authenticate: set auth.users, \
requirepass or aclfile; or set protected-mode no, and everybody may do everything\r\n";
/// What a client is told that is one too many.
const FULL: &[u8] = b"-ERR max number of clients reached\r\n";
/// How often a silent client is asked whether it is still there before it is given up.
const KEEPALIVE_RETRIES: u32 = 3;

/// The connections of a thread, by the place of their sessions.
pub(crate) type Connections = Vec<Option<Box<Connection>>>;

/// So many clients may be above the limit until those that they displaced have gone.
const OVERLAP_MAX: usize = 64;

/// A client that came so lately is not displaced: it is about to say something.
const GRACE: Duration = Duration::from_secs(1);

/// A client that asked for nothing yet, or did not say who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingClient {
    /// Which client it is, of all that came.
    client: usize,
    /// Its number among the pending clients.
    number: u64,
}

/// A client that was accepted.
#[derive(Debug)]
struct Accepted {
    stream: TcpStream,
    door: Door,
    pending: PendingClient,
}

/// Where a client comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Plain,
    Encrypted,
    /// For clients of clusters.
    Cluster,
}

/// Listens at a door.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) door: Door,
    pub(crate) listener: Arc<TcpListener>,
}

/// What another thread did for a thread.
#[derive(Debug, Default)]
struct Letters {
    /// Clients that it accepted.
    clients: Vec<Accepted>,
    /// PendingClients that have to go for others.
    displaced: Vec<usize>,
}

/// Clients that come to a thread, or have to go, because of another one.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Held for a moment only.
    letters: Mutex<Letters>,
    /// Whether there may be some.
    are_there: AtomicBool,
    bell: Bell,
}

impl Arrivals {
    /// For the thread that `bell` wakes.
    pub(crate) fn new(bell: Bell) -> Self {
        Self { letters: Mutex::default(), are_there: AtomicBool::new(false), bell }
    }

    fn write(&self, letter: impl FnOnce(&mut Letters)) {
        letter(&mut self.letters());
        self.are_there.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Wakes the thread.
    pub(super) fn wake(&self) {
        self.bell.ring();
    }

    fn are_there(&self) -> bool {
        self.are_there.load(Ordering::SeqCst)
    }

    fn take(&self) -> Letters {
        if !self.are_there() {
            return Letters::default();
        }
        // Who puts one in now says so again.
        self.are_there.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.letters())
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where clients come in.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    /// The first thread accepts clients for all, the others have none.
    pub(crate) listeners: Vec<Listener>,
    /// What encrypted connections need.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Who is told what comes from a client.
    pub(crate) registry: Arc<Registry>,
    /// Which thread this is.
    pub(crate) thread: usize,
    /// Where the threads, this one too, find clients that others accepted for them.
    pub(crate) arrivals: Arc<[Arrivals]>,
    /// What the clients of each thread take.
    pub(crate) weights: Arc<[Weight]>,
    /// The clients of all threads.
    pub(crate) client_count: Arc<AtomicUsize>,
    /// Those of them who may have to go for others.
    pub(crate) pending: Arc<Mutex<PendingClients<(usize, Instant)>>>,
    /// Counts those that came.
    pub(crate) next_client: Arc<AtomicUsize>,
}

impl Thread {
    pub(super) fn accept(&mut self) {
        self.state.must_accept_again = false;
        self.state.accept_after = None;
        if let Err(error) = self.acceptor.accept(&mut self.worker.admission(), &mut self.state.connections) {
            if let Some(times) = self.state.failures_to_accept.happens(Instant::now()) {
                tracing::warn!(%error, times, "a client could not be accepted");
            }
            // A pending client gives its descriptor to who comes next.
            self.acceptor.displace_oldest(&mut self.worker.admission(), &mut self.state.connections);
            self.state.must_accept_again = true;
            self.state.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
        }
    }

    pub(super) fn take_arrivals(&mut self) {
        self.acceptor.take_arrivals(&mut self.worker.admission(), &mut self.state.connections);
    }
}

impl Acceptor {
    /// Takes the clients that wait, for all threads.
    ///
    /// # Errors
    /// If the operating system refuses one, for want of files mostly.
    pub(super) fn accept(&self, admission: &mut Admission<'_>, connections: &mut Connections) -> io::Result<()> {
        self.listeners.iter().try_for_each(|listener| self.accept_from(listener, admission, connections))
    }

    fn accept_from(
        &self,
        Listener { door, listener }: &Listener,
        admission: &mut Admission<'_>,
        connections: &mut Connections,
    ) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let Some(accepted) = self.let_in(stream, *door, admission, connections) else { continue };
                    let thread = self.thread_of(accepted.pending.client);
                    if thread == self.thread {
                        self.greet(accepted, admission, connections);
                    } else {
                        self.arrivals[thread].write(|letters| letters.clients.push(accepted));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether another thread has accepted or displaced clients of this one.
    pub(super) fn has_arrivals(&self) -> bool {
        self.arrivals[self.thread].are_there()
    }

    /// Takes the clients that another thread accepted, and lets those go that it displaced.
    pub(super) fn take_arrivals(&self, admission: &mut Admission<'_>, connections: &mut Connections) {
        let Letters { clients, displaced } = self.arrivals[self.thread].take();
        for accepted in clients {
            self.greet(accepted, admission, connections);
        }
        for client in displaced {
            self.send_away(client, admission, connections);
        }
    }

    /// Decides whether a client may come in, and tells it if not.
    fn let_in(
        &self,
        mut stream: TcpStream,
        door: Door,
        admission: &mut Admission<'_>,
        connections: &mut Connections,
    ) -> Option<Accepted> {
        let ip = stream.peer_addr().ok().map(|peer| peer.ip());
        let is_encrypted = door == Door::Encrypted;
        let refusal = if admission.actor().is_protected_from(ip, is_encrypted) {
            PROTECTED
        } else if self.take_place(admission, connections) {
            let client = self.next_client.fetch_add(1, Ordering::Relaxed);
            let (number, _) = self.pending().arrive((client, Instant::now()));
            return Some(Accepted { stream, door, pending: PendingClient { client, number } });
        } else {
            admission.note_rejected();
            FULL
        };
        // It is sent away, whether it hears why or not.
        if !is_encrypted {
            let _ = io::Write::write(&mut stream, refusal);
        }
        None
    }

    /// Which thread serves a client.
    fn thread_of(&self, client: usize) -> usize {
        client % self.arrivals.len()
    }

    /// Counts one more client if there is a place for it, or a pending client who goes for it.
    fn take_place(&self, admission: &mut Admission<'_>, connections: &mut Connections) -> bool {
        let max = admission.actor().clients_max();
        let count = self.client_count.fetch_add(1, Ordering::Relaxed);
        let has_place = count < max || count < max + OVERLAP_MAX && self.displace_oldest(admission, connections);
        if !has_place {
            self.client_count.fetch_sub(1, Ordering::Relaxed);
        }
        has_place
    }

    /// Lets the oldest pending client of all threads go, if it had its time.
    pub(super) fn displace_oldest(&self, admission: &mut Admission<'_>, connections: &mut Connections) -> bool {
        let Some((client, _)) = self.pending().displace_if(|(_, came)| came.elapsed() >= GRACE) else { return false };
        let thread = self.thread_of(client);
        if thread == self.thread {
            self.send_away(client, admission, connections);
        } else {
            self.arrivals[thread].write(|letters| letters.displaced.push(client));
        }
        true
    }

    /// Ends the connection of a displaced client, unless it is gone, or no longer pending. One that said something which was not heard
    /// yet is no silent one: it stays, as if it had come last.
    fn send_away(&self, client: usize, admission: &mut Admission<'_>, connections: &mut Connections) {
        let is_it = |connection: &Connection| connection.pending.is_some_and(|pending| pending.client == client);
        let Some(place) = connections.iter_mut().find(|place| place.as_deref().is_some_and(is_it)) else { return };
        if let Some(connection) = place.as_mut().filter(|connection| connection.stream.has_input()) {
            let (number, _) = self.pending().arrive((client, Instant::now()));
            connection.pending = Some(PendingClient { client, number });
        } else if let Some(mut connection) = place.take() {
            self.close(&mut connection, admission);
        }
    }

    /// Ends a connection.
    pub(super) fn close(&self, connection: &mut Connection, admission: &mut Admission<'_>) {
        if let Some(pending) = connection.pending.take() {
            self.pending().leave(pending.number);
        }
        self.weights[self.thread].put(connection, (0, false));
        connection.stream.say_goodbye();
        admission.close(connection.session);
        self.client_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that a client has asked for something, and is no longer pending if it may.
    pub(super) fn know(&self, connection: &mut Connection, actor: &Actor) {
        if connection.pending.is_some() && actor.limits_of(connection.session).is_known {
            let pending = connection.pending.take();
            pending.into_iter().for_each(|pending| self.pending().leave(pending.number));
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingClients<(usize, Instant)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session of a client that was accepted.
    fn greet(&self, accepted: Accepted, admission: &mut Admission<'_>, connections: &mut Connections) {
        let Accepted { mut stream, door, pending } = accepted;
        let is_encrypted = door == Door::Encrypted;
        let peer = stream.peer_addr();
        let ip = peer.as_ref().ok().map(|peer| peer.ip());
        // Without it replies are late, which is no reason to refuse a client.
        let _ = stream.set_nodelay(true);
        keep_alive(&stream, admission.actor().keepalive_seconds());
        let address = peer.map_or_else(|_| String::new(), |peer| peer.to_string());
        let local_address = stream.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
        let session = admission.open(address, local_address, ip, is_encrypted);
        if door == Door::Cluster {
            admission.note_cluster_port(session);
        }
        let place = session.place as usize;
        let registered = self.registry.register(&mut stream, Token(place), Interest::READABLE | Interest::WRITABLE);
        let tls = if is_encrypted { self.tls.clone() } else { None };
        let stream = registered.and_then(|()| Stream::new(stream, tls).map_err(io::Error::other));
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                admission.close(session);
                self.pending().leave(pending.number);
                self.client_count.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        };
        if connections.len() <= place {
            connections.resize_with(place + 1, || None);
        }
        let mut connection = Connection::new(stream, session, admission.actor().now());
        connection.pending = Some(pending);
        connections[place] = Some(Box::new(connection));
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
