//! The PostgreSQL protocol: `psql` and every driver can talk to the streams engine.
//!
//! ```text
//!   socket -- acceptor: TLS, SCRAM, a place -- savanna-pgwire-connection: messages -- Client -- StreamRequest --> engine
//! ```
//!
//! One [`client`] per socket keeps the engine's session id, the open portals and what a cancel request needs; all
//! else is in the engine. Rows of a stream are sent as they come: each fetch from the engine is one write to the socket.
//!
//! What differs from PostgreSQL: transactions only bound the life of cursors; cursors are read forward only; the only
//! database is `savanna_streams`; a message may take [`MESSAGE_BYTES_MAX`].

mod acceptor;
mod cancel;
mod client;
mod copy;
mod error;
mod extended;
mod float;
mod line;
mod nested;
mod numeric;
mod parameters;
mod rows;
mod simple;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use savanna_identity::{Entrance, PendingClient};
pub use savanna_pgwire_login::Admission;
use savanna_pgwire_login::STARTUP_TIME;
use savanna_streams_api::handle::SharedStreamHandle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use crate::acceptor::Acceptor;
pub use crate::cancel::{Cancellations, OtherFaces};

/// The database that streams are in.
pub const DATABASE: &str = "savanna_streams";

/// The longest message that is taken from a client, in bytes, without its type.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// How many clients a node lets be connected at once.
pub const CLIENTS_MAX: usize = 512;

/// Serves clients until `shutdown` resolves; then drops every connection, which cancels their queries.
pub async fn serve(
    listener: TcpListener,
    handle: SharedStreamHandle,
    acceptor: Acceptor,
    shutdown: impl Future<Output = ()>,
) {
    let acceptor = Arc::new(acceptor);
    let entrance = Entrance::new(listener);
    let mut clients = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            (socket, address, pending) = entrance.next() => {
                clients.spawn(receive(socket, address, pending, Arc::clone(&handle), Arc::clone(&acceptor)));
            }
            Some(_) = clients.join_next() => {}
            () = &mut shutdown => return,
        }
    }
}

async fn receive(
    socket: TcpStream,
    address: SocketAddr,
    pending: PendingClient,
    handle: SharedStreamHandle,
    acceptor: Arc<Acceptor>,
) {
    // Rows of a stream are small and wanted at once.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "small messages to a PostgreSQL client may wait");
    }
    match pending.within(STARTUP_TIME, acceptor.receive(socket, address)).await {
        Some(Ok(Some(admitted))) => client::talk(admitted, handle, &acceptor.cancellations).await,
        Some(Err(error)) => tracing::debug!(%error, "a PostgreSQL client went away before it was logged in"),
        Some(Ok(None)) | None => {}
    }
}

/// Serves one client over any stream of bytes, until it goes away.
pub async fn serve_stream<S>(stream: S, address: SocketAddr, handle: SharedStreamHandle, acceptor: &Acceptor)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    match acceptor.receive(stream, address).await {
        Ok(Some(admitted)) => client::talk(admitted, handle, &acceptor.cancellations).await,
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a PostgreSQL client went away before it was logged in"),
    }
}
