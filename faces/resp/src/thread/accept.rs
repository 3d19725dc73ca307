//! Clients that come: who is let in, and what its connection is to be.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Token};
use savanna_keys::config::TlsClients;
use socket2::{SockRef, TcpKeepalive};

use super::{ACCEPT_PAUSE, Thread};
use crate::connection::Connection;
use crate::mailbox::Mail;
use crate::stream::Stream;

/// What a client from elsewhere is told where nobody has to say who it is.
const PROTECTED: &[u8] =
    b"-DENIED Savanna serves keys to other machines only if clients have to say who they are: set \
requirepass, or users with aclfile; or let anybody do everything with protected-mode no\r\n";
/// How often a silent client is asked whether it is still there before it is given up.
const KEEPALIVE_RETRIES: u32 = 3;

impl Thread {
    pub(super) fn accept(&mut self) {
        self.state.must_accept_again = false;
        self.state.accept_after = None;
        self.accept_from(false);
        self.accept_from(true);
    }

    fn accept_from(&mut self, is_encrypted: bool) {
        loop {
            let listener = if is_encrypted { &self.tls_listener } else { &self.listener };
            let accepted = match listener {
                Some(listener) => listener.accept(),
                None => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let thread = self.state.next_client % self.slots.len();
                    self.state.next_client += 1;
                    if thread == self.actor.id().index() {
                        self.greet(stream, is_encrypted);
                    } else {
                        self.slots[thread].put(Mail::Client(stream.into(), is_encrypted));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "could not accept a client");
                    self.state.must_accept_again = true;
                    self.state.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    pub(super) fn greet(&mut self, mut stream: TcpStream, is_encrypted: bool) {
        let peer = stream.peer_addr();
        if self.is_protected_from(peer.as_ref().ok(), is_encrypted) {
            if !is_encrypted {
                let _ = io::Write::write(&mut stream, PROTECTED);
            }
            return;
        }
        if self.client_count.fetch_add(1, Ordering::Relaxed) >= self.actor.config.clients_max {
            self.client_count.fetch_sub(1, Ordering::Relaxed);
            // It is sent away, whether it hears why or not.
            if !is_encrypted {
                let _ = io::Write::write(&mut stream, b"-ERR max number of clients reached\r\n");
            }
            return;
        }
        // Without it replies are late, which is no reason to refuse a client.
        let _ = stream.set_nodelay(true);
        self.keep_alive(&stream);
        let address = peer.map_or_else(|_| String::new(), |address| address.to_string());
        let local_address = stream.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
        let session = self.actor.open_session(address, local_address);
        let place = session.place as usize;
        let registered =
            self.poll.registry().register(&mut stream, Token(place), Interest::READABLE | Interest::WRITABLE);
        let tls = if is_encrypted { self.tls.clone() } else { None };
        let stream = registered.and_then(|()| Stream::new(stream, tls).map_err(io::Error::other));
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not take a client");
                self.actor.close_session(session);
                self.client_count.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        };
        if self.state.connections.len() <= place {
            self.state.connections.resize_with(place + 1, || None);
        }
        self.state.connections[place] = Some(Box::new(Connection::new(stream, session, self.actor.keys.now())));
    }

    /// Whether nobody has said who may come from elsewhere: no password is set, and no certificate is asked for.
    fn is_protected_from(&self, peer: Option<&SocketAddr>, is_encrypted: bool) -> bool {
        let config = &self.actor.config;
        let shows_certificate = is_encrypted && config.tls.clients == TlsClients::Required;
        config.is_protected
            && !shows_certificate
            && self.actor.users().is_open()
            && peer.is_none_or(|peer| !peer.ip().to_canonical().is_loopback())
    }

    /// Lets the operating system find out whether a silent client is still there.
    fn keep_alive(&self, stream: &TcpStream) {
        let seconds = self.actor.config.keepalive_seconds;
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
}
