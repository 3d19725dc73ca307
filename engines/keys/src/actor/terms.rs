//! What clients may do before anything of them runs: come in, say so much, leave so much unread, be idle for so long.

use std::net::IpAddr;

use super::Actor;
use crate::access::Access;
use crate::config::{OutputLimit, TlsClients};
use crate::session::{Session, SessionId};

/// What a session may say at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Whether it has said who it is, or need not. Who has not is given less than what follows.
    pub is_known: bool,
    /// Bytes of a word.
    pub word_bytes: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
    /// What it may leave unread.
    pub output: OutputLimit,
}

impl Actor {
    /// How long a session's requests may be, and what it may leave unread.
    #[must_use]
    pub fn limits_of(&self, session: SessionId) -> SessionLimits {
        let session = self.sessions.get(session);
        SessionLimits {
            is_known: session.is_none_or(|session| session.access != Access::Unknown),
            word_bytes: self.config.request_bytes_max,
            request_bytes: self.config.query_bytes_max,
            output: self.output_limit(session.is_some_and(Session::listens)),
        }
    }

    /// What a client may leave unread that listens to channels, or one that does not.
    #[must_use]
    pub const fn output_limit(&self, listens: bool) -> OutputLimit {
        if listens { self.config.output_listening } else { self.config.output_normal }
    }

    /// Whether a session listens to channels, or to requests.
    #[must_use]
    pub fn listens(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(Session::listens)
    }

    /// How many clients there may be at all actors.
    #[must_use]
    pub const fn clients_max(&self) -> usize {
        self.config.clients_max
    }

    /// After how many seconds of silence a client is asked whether it is there; 0 for never.
    #[must_use]
    pub const fn keepalive_seconds(&self) -> u32 {
        self.config.keepalive_seconds
    }

    /// After how many seconds without a request a client has to go; 0 for never.
    #[must_use]
    pub const fn idle_seconds_max(&self) -> u64 {
        self.config.idle_seconds_max
    }

    /// Whether a client at `peer` is refused, because nobody has said who may come from elsewhere: no password is set, and no
    /// certificate is asked for.
    #[must_use]
    pub fn is_protected_from(&self, peer: Option<IpAddr>, is_encrypted: bool) -> bool {
        let shows_certificate = is_encrypted && self.config.tls.clients == TlsClients::Required;
        self.config.is_protected && !shows_certificate && self.users.is_open() && !is_local(peer)
    }

    /// Whether a client had time enough to say who it is, and has not; or to finish the handshake of its connection.
    #[must_use]
    pub fn is_late(&self, session: SessionId, is_connection_established: bool) -> bool {
        self.sessions.get(session).is_some_and(|session| {
            let is_unauthenticated = session.access == Access::Unknown || !is_connection_established;
            let since = self.now().0.saturating_sub(session.unauthenticated_since.0);
            is_unauthenticated && since >= self.config.login_seconds_max.saturating_mul(1000)
        })
    }

    /// Notes where a session's client is: whether what it sends crosses a network in the clear.
    pub fn note_peer(&mut self, session: SessionId, peer: Option<IpAddr>, is_encrypted: bool) {
        if let Some(mut session) = self.sessions.take(session) {
            session.is_exposed = !is_encrypted && !is_local(peer);
            self.sessions.put_back(session);
        }
    }
}

/// Whether a client is on this machine.
fn is_local(peer: Option<IpAddr>) -> bool {
    peer.is_some_and(|peer| peer.to_canonical().is_loopback())
}
