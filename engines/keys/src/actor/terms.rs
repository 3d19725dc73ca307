//! What clients may do before anything of them runs: come in, say so much, leave so much unread, be idle for so long.

use std::net::IpAddr;

use super::Actor;
use crate::access::Access;
use crate::config::{OutputLimit, TlsClients};
use crate::session::{ClientMemory, Session, SessionId};

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

/// What the clients of an actor take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientsMemoryNow {
    /// All of it, in bytes.
    pub(crate) total: usize,
    /// The most that one takes for what it asks.
    pub(crate) input_max: usize,
    /// The most that one takes for what it is told.
    pub(crate) output_max: usize,
}

impl Actor {
    /// Notes what a session's connection takes. Says how much that is with what the session has, and whether the client may be sent away
    /// when all together take too much.
    #[inline]
    pub fn note_client_memory(&mut self, session: SessionId, memory: ClientMemory) -> (usize, bool) {
        let Some(session) = self.sessions.get_mut(session) else { return (0, false) };
        session.memory = ClientMemory { total: memory.total + session.byte_count(), ..memory };
        (session.memory.total, !session.is_kept)
    }

    /// How many bytes all clients may take, if there is a limit.
    #[must_use]
    pub fn clients_bytes_max(&self) -> Option<usize> {
        self.config.clients_bytes_max()
    }

    /// What the clients take.
    pub(crate) fn client_memory(&self) -> ClientsMemoryNow {
        self.sessions.iter().fold(ClientsMemoryNow::default(), |now, session| ClientsMemoryNow {
            total: now.total + session.memory.total,
            input_max: now.input_max.max(session.memory.input),
            output_max: now.output_max.max(session.memory.output),
        })
    }
}

/// Whether a client is on this machine.
fn is_local(peer: Option<IpAddr>) -> bool {
    peer.is_some_and(|peer| peer.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::placement::{ActorId, Routes};
    use crate::reply::Tape;
    use crate::request::OwnedArgs;

    #[test]
    fn a_client_is_counted_with_what_it_has_queued_and_may_say_that_it_stays() {
        let mut actor = Actor::new(ActorId(0), Routes::over(1), Config::default(), 1);
        let session = actor.open_session(String::new(), String::new());
        let mut ask = |words: &[&[u8]]| {
            actor.request(session, OwnedArgs::of_words(words).args(), &mut Tape::new());
            actor.note_client_memory(session, ClientMemory { input: 1, output: 2, total: 1000 })
        };
        assert_eq!(ask(&[b"CLIENT", b"NO-EVICT", b"off"]), (1000, true));
        assert_eq!(ask(&[b"CLIENT", b"NO-EVICT", b"on"]), (1000, false));
        ask(&[b"MULTI"]);
        let (total, _) = ask(&[b"SET", b"key", &[b'x'; 5000]]);
        assert!(total > 6000);
        let now = actor.client_memory();
        assert_eq!((now.total, now.input_max, now.output_max), (total, 1, 2));
    }

    #[test]
    fn a_client_is_counted_with_what_it_watches_and_listens_to() {
        let mut actor = Actor::new(ActorId(0), Routes::over(1), Config::default(), 1);
        let session = actor.open_session(String::new(), String::new());
        let mut total_after = |words: &[&[u8]]| {
            actor.request(session, OwnedArgs::of_words(words).args(), &mut Tape::new());
            actor.note_client_memory(session, ClientMemory { input: 0, output: 0, total: 1000 }).0
        };
        let name = [b'n'; 5000];
        assert!(total_after(&[b"WATCH", &name]) > 6000);
        assert_eq!(total_after(&[b"UNWATCH"]), 1000);
        for command in [b"SUBSCRIBE".as_slice(), b"PSUBSCRIBE", b"SSUBSCRIBE"] {
            let before = total_after(&[b"PING"]);
            assert!(total_after(&[command, &name]) > before + 5000);
        }
        assert_eq!(total_after(&[b"RESET"]), 1000);
    }
}
