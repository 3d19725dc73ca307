//! The server from its beginning to its end.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use savanna_functions_host::{Functions, HostError, HostOptions};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use crate::access::{Access, Key};
use crate::route::{Bodies, Service};

/// A client has to say what it wants in this time.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// What a server is to be.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where clients connect; port 0 for any.
    pub address: SocketAddr,
    /// Threads for requests and for what instances ask.
    pub threads: u16,
    /// Clients that may be connected.
    pub clients_max: usize,
    /// Who may ask, by a signature; everybody who reaches the address if nobody is named.
    pub key: Option<Key>,
    /// The functions behind it.
    pub host: HostOptions,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The functions cannot be served.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A thread cannot be started.
    #[error("a thread for functions cannot be started: {0}")]
    Start(io::Error),
    /// The host has ended by itself.
    #[error("the host of functions has ended: {0}")]
    Ended(String),
}

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    functions: Functions,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
}

/// Stops a server while somebody else waits for its end.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: watch::Sender<bool>,
}

impl Stopper {
    /// Has the server end.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Server {
    /// Listens, reads the log, and serves. Blocks while it reads; clients wait meanwhile.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { address, threads, clients_max, key, host } = options;
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(ServerError::Start)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(usize::from(threads.max(1)))
            .thread_name("functions")
            .enable_all()
            .build()
            .map_err(ServerError::Start)?;
        let functions = Functions::open(host, runtime.handle())?;
        let access = Access { key, loopback_only: address.ip().is_loopback() };
        let service = Arc::new(Service { functions: functions.clone(), access, bodies: Bodies::default(), address });
        let (stop, stopping) = watch::channel(false);
        runtime.spawn(accept(listener, service, clients_max, stopping));
        Ok(Self { address, functions, runtime: Some(runtime), stop })
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The functions.
    #[must_use]
    pub const fn functions(&self) -> &Functions {
        &self.functions
    }

    /// What stops it while somebody else waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.stop.clone() }
    }

    /// Waits until the server ends, which it does by itself when its log does.
    ///
    /// # Errors
    /// It has ended by itself.
    pub fn wait(mut self) -> Result<(), ServerError> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let (functions, mut stopping) = (self.functions.clone(), self.stop.subscribe());
        let reason = runtime.block_on(async move {
            tokio::select! {
                reason = functions.ended() => Some(reason),
                // A closed channel means that the server is gone.
                _ = stopping.wait_for(|stop| *stop) => None,
            }
        });
        let closed = self.end();
        match reason {
            Some(reason) => Err(ServerError::Ended(reason)),
            None => closed,
        }
    }

    fn end(&mut self) -> Result<(), ServerError> {
        self.stop.send_replace(true);
        let closed = self.functions.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        Ok(closed?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.runtime.is_some()
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "functions had ended before they were stopped");
        }
    }
}

/// Serves who connects, until it is to stop.
async fn accept(listener: TcpListener, service: Arc<Service>, clients_max: usize, mut stopping: watch::Receiver<bool>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "clients of functions are not accepted"),
    };
    let places = Arc::new(Semaphore::new(clients_max.min(Semaphore::MAX_PERMITS)));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A closed channel means that the server is gone.
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not accept a client of functions");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!("{clients_max} clients of functions are connected; one more is refused");
            continue;
        };
        // Or the head of an answer waits 40 ms for its body.
        let _ = stream.set_nodelay(true);
        let (service, mut stopping) = (Arc::clone(&service), stopping.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve(service, stream) => {}
                _ = stopping.wait_for(|stop| *stop) => {}
            }
            drop(place);
        });
    }
}

/// Serves one client until it goes.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(service: Arc<Service>, stream: S) {
    let answers = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), answers);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a client of functions has gone");
    }
}

/// Serves one client that has come by something else than a port, until it goes.
pub async fn serve_client<S: AsyncRead + AsyncWrite + Unpin>(functions: Functions, key: Option<Key>, stream: S) {
    let access = Access { key, loopback_only: true };
    let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    serve(Arc::new(Service { functions, access, bodies: Bodies::default(), address }), stream).await;
}
