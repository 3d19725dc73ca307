//! Sockets: taken in, encrypted where that is asked for, and served by HTTP/1.1.
//!
//! A client that has not sent the head of a request is a pending client. They are so many at most, and each has its time, so
//! that those who send nothing keep nobody out; others have places of their own, and one too many is told so, but for health.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use savanna_identity::{Entrance, PendingClient, Tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::{Problem, api};

/// The head of a request has come by then, or the connection ends.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// A TLS handshake is done by then.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// What every connection shares.
struct Shared {
    router: Router,
    tls: Option<TlsAcceptor>,
    /// One for each client that has sent a request.
    places: Arc<Semaphore>,
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
    let shared = Arc::new(Shared { router, tls, places });
    let entrance = Entrance::new(listener);
    let (stopping, _) = watch::channel(false);
    let mut clients = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            (socket, _, pending) = entrance.next() => {
                clients.spawn(receive(Arc::clone(&shared), pending, socket, stopping.subscribe()));
            }
            Some(_) = clients.join_next() => {}
            () = &mut shutdown => break,
        }
    }
    drop(entrance);
    stopping.send_replace(true);
    while clients.join_next().await.is_some() {}
}

async fn receive(shared: Arc<Shared>, pending: PendingClient, socket: TcpStream, stopping: watch::Receiver<bool>) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "small answers to an HTTP client may wait");
    }
    let Some(tls) = &shared.tls else {
        return talk(&shared, pending, socket, stopping).await;
    };
    let displaced = pending.displaced();
    tokio::select! {
        encrypted = tokio::time::timeout(HANDSHAKE_TIME, tls.accept(socket)) => match encrypted {
            Ok(Ok(encrypted)) => talk(&shared, pending, encrypted, stopping).await,
            Ok(Err(error)) => tracing::debug!(%error, "an HTTP client went away in the TLS handshake"),
            Err(_) => tracing::debug!("an HTTP client took too long for the TLS handshake"),
        },
        () = displaced.notified() => {}
    }
}

/// What a client is: a pending client until its first request, which takes a place if there is one.
struct Standing {
    pending: Option<PendingClient>,
    place: Option<OwnedSemaphorePermit>,
}

impl Standing {
    /// Whether the client has a place from now on.
    fn come_in(&mut self, places: &Arc<Semaphore>) -> bool {
        if self.place.is_none() {
            self.place = Arc::clone(places).try_acquire_owned().ok();
            if self.place.is_some() {
                self.pending = None;
            }
        }
        self.place.is_some()
    }
}

/// Serves one client.
async fn talk<S>(shared: &Shared, pending: PendingClient, stream: S, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let displaced = pending.displaced();
    let router = TowerToHyperService::new(shared.router.clone());
    let (standing, places) = (Mutex::new(Standing { pending: Some(pending), place: None }), Arc::clone(&shared.places));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let has_place = standing.lock().come_in(&places);
        let is_answered = has_place || api::is_health(request.uri().path());
        let answer = is_answered.then(|| router.call(request.map(Body::new)));
        async move {
            let mut response = match answer {
                Some(answer) => answer.await?,
                None => no_place().into_response(),
            };
            if !has_place {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
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

/// What a client is told for whom there is no place.
fn no_place() -> Problem {
    let mut problem = Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "connections",
        "Too many connections",
        "the limit of connected clients is reached; try again when others have disconnected",
    );
    problem.retry_after_ms = Some(1000);
    problem
}
