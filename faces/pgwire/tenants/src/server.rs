//! The server: from the moment it listens to its end.

use std::{io, net::SocketAddr, sync::Arc, thread::JoinHandle};

use savanna_identity::{Tls, TlsError, TlsFiles};
use savanna_pgwire_login::{Admission, Nobody};
use savanna_tenants_host::{Host, HostError, Stopper};
use tokio::sync::Semaphore;

use crate::{acceptor::Acceptor, relay::Front};

/// Where a server listens, and whom it lets in.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address; port 0 is any that is free.
    pub listen: SocketAddr,
    /// What clients can encrypt their connections with; nothing if none.
    pub tls: Option<TlsFiles>,
    /// Who is let in.
    pub admission: Admission,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The port cannot be listened to.
    #[error("could not listen on {address}: {source}; choose another port, or stop the program that uses this one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("could not start a thread of the tenants service: {0}; check the limits of threads and open files")]
    Start(#[source] io::Error),
    /// There can be no encrypted connections.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The thread that takes clients in panicked.
    #[error("the thread that accepts clients of tenants panicked; restart the process")]
    Panicked,
    /// Its tenants' host did not start, or ended.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// A port on which nobody is served yet.
#[derive(Debug)]
pub struct Listener {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    admission: Admission,
}

impl Listener {
    /// Listens. Clients wait from then on.
    ///
    /// # Errors
    /// [`ServerError::Listen`], [`ServerError::Tls`].
    pub fn bind(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { listen, tls, admission } = options;
        let tls = tls.as_ref().map(Tls::read).transpose()?;
        let (listener, address) = bind(listen).map_err(|source| ServerError::Listen { address: listen, source })?;
        Ok(Self { listener, address, tls, admission })
    }

    /// Where clients wait.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the tenants of a host that is alone, until that stops.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn serve(self, host: Host) -> Result<Server, ServerError> {
        self.serve_all(host, None)
    }

    /// Serves the tenants of a host and those of other nodes, until the host stops.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn serve_among(self, host: Host, front: Arc<Front>) -> Result<Server, ServerError> {
        self.serve_all(host, Some(front))
    }

    fn serve_all(self, host: Host, front: Option<Arc<Front>>) -> Result<Server, ServerError> {
        let Self { listener, address, tls, admission } = self;
        let nobody = Nobody::new().map_err(ServerError::Start)?;
        let places = Arc::new(Semaphore::new(admission.clients_max));
        let tenants = host.tenants();
        let acceptor = Arc::new(Acceptor { tenants: tenants.clone(), front, tls, admission, places, nobody });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Start)?;
        let run = move || {
            runtime.block_on(async move {
                tokio::select! {
                    outcome = acceptor.run(listener) => outcome.map_err(ServerError::Start),
                    () = tenants.stopped() => Ok(()),
                }
            })
        };
        let thread = std::thread::Builder::new().name("tenants-acceptor".to_owned());
        let acceptor = thread.spawn(run).map_err(ServerError::Start)?;
        Ok(Server { address, stopper: host.stopper(), host: Some(host), acceptor: Some(acceptor) })
    }
}

/// A running server. Dropping it stops it and its host.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stopper: Stopper,
    host: Option<Host>,
    acceptor: Option<JoinHandle<Result<(), ServerError>>>,
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What stops its host, and with it the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the host is stopped, which it is by itself only if it cannot go on. Whoever is connected then is told
    /// nothing more.
    ///
    /// # Errors
    /// [`ServerError::Host`], [`ServerError::Panicked`].
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let mut outcome = Ok(());
        if let Some(acceptor) = self.acceptor.take() {
            outcome = acceptor.join().unwrap_or(Err(ServerError::Panicked));
        }
        let stopped = self.host.take().map_or(Ok(()), |host| host.stop().map_err(ServerError::Host));
        outcome.and(stopped)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Err(error) = self.join() {
            tracing::error!(%error, "the tenants service had ended before it was stopped");
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
