//! Clients that come and go.

use std::net::IpAddr;

use savanna_keys::actor::Actor;
use savanna_keys::session::SessionId;

/// Lets clients in: sessions begin and end here.
#[derive(Debug)]
pub struct Admission<'a>(&'a mut Actor);

impl<'a> Admission<'a> {
    pub(crate) const fn new(actor: &'a mut Actor) -> Self {
        Self(actor)
    }

    /// The actor, to be asked what clients may do.
    #[must_use]
    pub const fn actor(&self) -> &Actor {
        self.0
    }

    /// Whether a client from there is refused as long as nobody has to say who it is.
    #[must_use]
    pub fn is_protected_from(&self, peer: Option<IpAddr>, is_encrypted: bool) -> bool {
        self.0.is_protected_from(peer, is_encrypted)
    }

    /// Begins a session of the client at `address`, which came to `local_address`.
    pub fn open(
        &mut self,
        address: String,
        local_address: String,
        peer: Option<IpAddr>,
        is_encrypted: bool,
    ) -> SessionId {
        let session = self.0.open_session(address, local_address);
        self.0.note_peer(session, peer, is_encrypted);
        session
    }

    /// Notes that a session's client came to the cluster port.
    pub fn note_cluster_port(&mut self, session: SessionId) {
        self.0.note_cluster_port(session);
    }

    /// Notes a client that was sent away because there were too many.
    pub const fn note_rejected(&mut self) {
        self.0.note_rejected();
    }

    /// Notes a client that was sent away because all together took too much memory.
    pub const fn note_evicted(&mut self) {
        self.0.note_evicted_client();
    }

    /// Ends a session.
    pub fn close(&mut self, session: SessionId) {
        self.0.close_session(session);
    }
}
