//! The PostgreSQL protocol: `psql` and every driver can talk to the streams engine.
//!
//! ```text
//!   socket -- door: TLS, SCRAM, a place -- savanna-pgwire-connection: messages -- Client -- StreamRequest --> engine
//! ```
//!
//! One [`client`] per socket keeps the engine's session id, the open portals and what a cancel request needs; all
//! else is in the engine. Rows of a stream are sent as they come: each fetch from the engine is one write to the socket.
//!
//! What differs from PostgreSQL: transactions only bound the life of cursors; cursors are read forward only; the only
//! database is `savanna_streams`; a message may take [`MESSAGE_BYTES_MAX`].

mod cancel;
mod client;
mod copy;
mod door;
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

use savanna_identity::{Entrance, Visit};
pub use savanna_pgwire_login::Admission;
use savanna_pgwire_login::STARTUP_TIME;
use savanna_streams_api::handle::SharedStreamHandle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use crate::door::Door;

/// The database that streams are in.
pub const DATABASE: &str = "savanna_streams";

/// The longest message that is taken from a client, in bytes, without its type.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// How many clients a node lets be connected at once.
pub const CLIENTS_MAX: usize = 512;

/// Serves clients until `shutdown` resolves; then drops every connection, which cancels their queries.
pub async fn serve(listener: TcpListener, handle: SharedStreamHandle, door: Door, shutdown: impl Future<Output = ()>) {
    let door = Arc::new(door);
    let entrance = Entrance::new(listener);
    let mut clients = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            (socket, address, visit) = entrance.next() => {
                clients.spawn(receive(socket, address, visit, Arc::clone(&handle), Arc::clone(&door)));
            }
            Some(_) = clients.join_next() => {}
            () = &mut shutdown => return,
        }
    }
}

async fn receive(socket: TcpStream, address: SocketAddr, visit: Visit, handle: SharedStreamHandle, door: Arc<Door>) {
    // Rows of a stream are small and wanted at once.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "small messages to a PostgreSQL client may wait");
    }
    match visit.within(STARTUP_TIME, door.receive(socket, address)).await {
        Some(Ok(Some(admitted))) => client::talk(admitted, handle, &door.cancellations).await,
        Some(Err(error)) => tracing::debug!(%error, "a PostgreSQL client went away at the door"),
        Some(Ok(None)) | None => {}
    }
}

/// Serves one client over any stream of bytes, until it goes away.
pub async fn serve_stream<S>(stream: S, address: SocketAddr, handle: SharedStreamHandle, door: &Door)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    match door.receive(stream, address).await {
        Ok(Some(admitted)) => client::talk(admitted, handle, &door.cancellations).await,
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a PostgreSQL client went away at the door"),
    }
}
