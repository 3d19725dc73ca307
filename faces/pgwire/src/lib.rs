//! The PostgreSQL protocol: `psql` and every driver can talk to the streams engine.
//!
//! ```text
//!   socket -- door: TLS, SCRAM, a place -- pgwire crate (messages) -- Connection -- StreamRequest --> engine
//! ```
//!
//! One [`connection`] per socket keeps the engine's session id, the open portals and what a cancel request needs; all
//! else is in the engine. Rows of a stream are sent as they come: each fetch from the engine is one write to the socket.
//!
//! What differs from PostgreSQL: transactions only bound the life of cursors; cursors are read forward only; the only
//! database is `savanna_streams`; a message may take [`MESSAGE_BYTES_MAX`].

mod ahead;
mod cancel;
mod client;
mod connection;
mod copy;
mod door;
mod error;
mod extended;
mod float;
mod limit;
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

use crate::connection::Connection;
use crate::door::Admitted;
pub use crate::door::Door;
pub use crate::limit::MESSAGE_BYTES_MAX;

/// The database that streams are in.
pub const DATABASE: &str = "savanna_streams";

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
        Some(Ok(Some(admitted))) => talk(admitted, address, handle, &door).await,
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
        Ok(Some(admitted)) => talk(admitted, address, handle, door).await,
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a PostgreSQL client went away at the door"),
    }
}

async fn talk<S>(admitted: Admitted<S>, address: SocketAddr, handle: SharedStreamHandle, door: &Door)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let connection = Connection::new(handle, Arc::clone(&door.cancellations));
    if let Err(error) = client::serve(admitted, address, &connection).await {
        tracing::debug!(%error, "a PostgreSQL client went away");
    }
    connection.close().await;
}
