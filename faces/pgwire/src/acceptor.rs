//! The acceptor: clients say who they are, and come in if there is a place.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use savanna_identity::Tls;
use savanna_pgwire_connection::Output;
use savanna_pgwire_login::{Admission, Handshake, Introduction, Nobody, Opening, Refusal, Socket as _, Turned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cancel::{Cancellations, OtherFaces};
use crate::line::Line;

/// Who is let in, and what connections are encrypted with.
#[derive(Debug)]
pub struct Acceptor {
    admission: Admission,
    tls: Option<Tls>,
    /// One for each client that may be here at once.
    places: Arc<Semaphore>,
    nobody: Nobody,
    pub(crate) cancellations: Arc<Cancellations>,
    /// The other nodes, if there may be any.
    others: Option<Arc<dyn OtherFaces>>,
}

/// A client that has come in.
pub(crate) struct Admitted<S> {
    pub(crate) line: Line<S>,
    /// What it has sent after its login.
    pub(crate) input: BytesMut,
    pub(crate) introduction: Introduction,
    pub(crate) place: OwnedSemaphorePermit,
}

impl Acceptor {
    /// An acceptor for these clients. Without users it trusts those of this machine, under any name, and lets no others in.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub fn new(admission: Admission, tls: Option<Tls>) -> io::Result<Self> {
        let places = Arc::new(Semaphore::new(admission.clients_max));
        Ok(Self { admission, tls, places, nobody: Nobody::new()?, cancellations: Arc::default(), others: None })
    }

    /// The same on a node of several: its clients are cancelled through others, too, and those of others through this one.
    #[must_use]
    pub fn among(self, cancellations: Arc<Cancellations>, others: Arc<dyn OtherFaces>) -> Self {
        Self { cancellations, others: Some(others), ..self }
    }

    /// Hears who a client is. `None` if it does not come in, and was told why.
    pub(crate) async fn receive<S>(&self, stream: S, peer: SocketAddr) -> io::Result<Option<Admitted<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut handshake = Handshake::new(Line::Plain(stream));
        match self.admit(&mut handshake, peer).await {
            Ok(Some((introduction, place))) => {
                return Ok(Some(Admitted { line: handshake.socket, input: handshake.input, introduction, place }));
            }
            Ok(None) => {}
            Err(Turned::Gone(error)) => return Err(error),
            Err(Turned::Refused(refusal)) => {
                let mut output = Output::default();
                output.fatal(&refusal.into());
                handshake.socket.write_all(&output.bytes).await?;
            }
        }
        handshake.socket.close().await;
        Ok(None)
    }

    /// Decides whether a client may come in. `None` if it wanted something else, which is done.
    async fn admit<S>(
        &self,
        handshake: &mut Handshake<Line<S>>,
        peer: SocketAddr,
    ) -> Result<Option<(Introduction, OwnedSemaphorePermit)>, Turned>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let startup = match handshake.open(self.tls.as_ref()).await? {
            Opening::Startup(startup) => startup,
            Opening::Cancel(request) => {
                if let Some(secret) = request.secret_key.as_i32() {
                    let key = (request.pid, secret);
                    let is_here = self.cancellations.cancel(key);
                    if let Some(others) = self.others.as_ref().filter(|_| !is_here) {
                        others.cancel(key).await;
                    }
                }
                return Ok(None);
            }
            Opening::Nothing => return Ok(None),
        };
        let introduction = Introduction::of(&startup)?;
        let user = introduction.user.as_str();
        if self.admission.requires_tls && !handshake.socket.is_encrypted() {
            return Err(Refusal::in_the_clear().into());
        }
        if self.admission.users.is_empty() {
            if !peer.ip().to_canonical().is_loopback() {
                let hint = "No passwords are configured; name a file of users in auth.users.";
                return Err(Refusal::from_elsewhere(peer.ip(), hint).into());
            }
        } else {
            let known = self.admission.users.get(user).map(|user| user.verifier.clone());
            let verifier = known.unwrap_or_else(|| self.nobody.verifier(user));
            if !handshake.proves(verifier, self.tls.as_ref()).await? {
                return Err(Refusal::wrong_password(user).into());
            }
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Refusal::no_place(self.admission.clients_max))?;
        Ok(Some((introduction, place)))
    }
}
