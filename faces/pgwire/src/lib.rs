//! The PostgreSQL protocol: `psql` and every driver can talk to the streams engine.
//!
//! ```text
//!   socket -- pgwire crate (messages) -- Connection (this crate) -- StreamRequest --> engine
//! ```
//!
//! One [`connection`] per socket keeps the engine's session id, the open portals and what a cancel request needs; all
//! else is in the engine. Rows of a stream are sent as they come: each fetch from the engine is one write to the socket.
//!
//! What differs from PostgreSQL: transactions only bound the life of cursors; cursors are read forward only; the only
//! database is `savanna_streams`; a message may take [`MESSAGE_BYTES_MAX`].

mod cancel;
mod client;
mod connection;
mod copy;
mod error;
mod extended;
mod limit;
mod nested;
mod numeric;
mod parameters;
mod rows;
mod simple;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use savanna_streams_model::handle::SharedStreamHandle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cancel::Cancellations;
use crate::connection::Connection;
pub use crate::limit::MESSAGE_BYTES_MAX;

/// The database that streams are in.
pub const DATABASE: &str = "savanna_streams";

/// How many clients may be connected at once; more wait to be accepted.
pub const MAX_CONNECTIONS: usize = 512;

/// How long to wait after a failed accept (out of file descriptors, mostly) before the next.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// Serves clients until `shutdown` resolves; then drops every connection, which cancels their queries.
pub async fn serve(listener: TcpListener, handle: SharedStreamHandle, shutdown: impl Future<Output = ()>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let cancellations = Arc::new(Cancellations::default());
    let mut clients = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = clients.join_next() => continue,
            () = &mut shutdown => return,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a PostgreSQL client could not be accepted");
                tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
                continue;
            }
        };
        let (handle, cancellations) = (Arc::clone(&handle), Arc::clone(&cancellations));
        clients.spawn(async move {
            let _place = place;
            // Rows of a stream are small and wanted at once.
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "small messages to a PostgreSQL client may wait");
            }
            serve_client(socket, address, Connection::new(handle, cancellations)).await;
        });
    }
}

/// Serves one client over any stream of bytes, until it goes away.
pub async fn serve_stream<S>(stream: S, address: SocketAddr, handle: SharedStreamHandle)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    serve_client(stream, address, Connection::new(handle, Arc::default())).await;
}

async fn serve_client<S>(stream: S, address: SocketAddr, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    if let Err(error) = client::serve(stream, address, Arc::clone(&connection)).await {
        tracing::debug!(%error, "a PostgreSQL client went away");
    }
    connection.close().await;
}
