//! Sockets: taken in, encrypted where that is asked for, and served by HTTP/1.1.
//!
//! A client that has not sent the head of a request is a stranger. Strangers are so many at most, and each has its time, so
//! that those who send nothing keep nobody out; others have places of their own, and one too many is told so.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use savanna_identity::{Strangers, Tls};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The head of a request has come by then, or the connection ends.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// A TLS handshake is done by then.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Clients that have sent no request; for one more, the oldest is sent away.
const STRANGERS_MAX: usize = 256;
/// How long to wait after a failed accept (out of file descriptors, mostly) before the next.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);
/// What a client is told for whom there is no place.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 83\r\n\r\n{\"status\":503,\"title\":\"Too many connections\",\"detail\":\"come back when others left\"}";

/// What every connection shares.
struct Shared {
    router: Router,
    tls: Option<TlsAcceptor>,
    /// One for each client that has sent a request.
    places: Arc<Semaphore>,
    strangers: Mutex<Strangers<Arc<Notify>>>,
}

/// Serves until `shutdown` is ready and the requests under way are answered.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    connections_max: usize,
    shutdown: impl Future<Output = ()>,
) {
    let tls = tls.map(|tls| TlsAcceptor::from(tls.configuration));
    let places = Arc::new(Semaphore::new(connections_max));
    let shared = Arc::new(Shared { router, tls, places, strangers: Mutex::new(Strangers::new(STRANGERS_MAX)) });
    let (stopping, _) = watch::channel(false);
    let mut clients = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = clients.join_next() => continue,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((socket, _)) => {
                let mut begun = None;
                let displaced = shared.strangers.lock().arrive(|number| {
                    let displaced = Arc::new(Notify::new());
                    begun = Some((number, Arc::clone(&displaced)));
                    displaced
                });
                if let Some(oldest) = displaced {
                    oldest.notify_one();
                }
                if let Some((number, displaced)) = begun {
                    let stranger = Stranger { shared: Arc::clone(&shared), number, displaced };
                    clients.spawn(receive(stranger, socket, stopping.subscribe()));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "an HTTP client could not be accepted");
                tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    while clients.join_next().await.is_some() {}
}

/// A client that has sent no request yet.
struct Stranger {
    shared: Arc<Shared>,
    number: u64,
    /// Told when it has to go for another one.
    displaced: Arc<Notify>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.shared.strangers.lock().leave(self.number);
    }
}

async fn receive(stranger: Stranger, socket: TcpStream, stopping: watch::Receiver<bool>) {
    let Ok(place) = Arc::clone(&stranger.shared.places).try_acquire_owned() else {
        return refuse(socket).await;
    };
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "small answers to an HTTP client may wait");
    }
    let Some(tls) = stranger.shared.tls.clone() else {
        return talk(stranger, place, socket, stopping).await;
    };
    let displaced = Arc::clone(&stranger.displaced);
    tokio::select! {
        encrypted = tokio::time::timeout(HANDSHAKE_TIME, tls.accept(socket)) => match encrypted {
            Ok(Ok(encrypted)) => talk(stranger, place, encrypted, stopping).await,
            Ok(Err(error)) => tracing::debug!(%error, "an HTTP client went away in the TLS handshake"),
            Err(_) => tracing::debug!("an HTTP client took too long for the TLS handshake"),
        },
        () = displaced.notified() => {}
    }
}

/// Serves one client. It is a stranger until its first request has come.
async fn talk<S>(stranger: Stranger, place: OwnedSemaphorePermit, stream: S, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _place = place;
    let displaced = Arc::clone(&stranger.displaced);
    let router = TowerToHyperService::new(stranger.shared.router.clone());
    let stranger = Arc::new(Mutex::new(Some(stranger)));
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        // Known from now on.
        drop(stranger.lock().take());
        hyper::service::Service::call(&router, request.map(axum::body::Body::new))
    });
    let mut protocol = hyper::server::conn::http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service));
    let mut is_stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP client went away");
                }
                return;
            }
            // Who is known by then is told of it too late to go.
            () = displaced.notified() => return,
            _ = stopping.wait_for(|stop| *stop), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Says that there is no place, if the client takes it at once.
async fn refuse(mut socket: TcpStream) {
    let told: io::Result<()> = match tokio::time::timeout(HEAD_TIME, socket.write_all(NO_PLACE)).await {
        Ok(written) => written,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    if let Err(error) = told {
        tracing::debug!(%error, "a client that has no place was not told so");
    }
}
