//! The server from its beginning to its end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use savanna_files_host::{Files, HostError, HostOptions, SharedNamesHandle, Upkeep};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use crate::audit::AuditLog;
use crate::ipc::connection;
use crate::protocol::Service;
use crate::transfer::Transfer;
use crate::web::{Web, Writes};

/// What a server is to be.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where calls come; port 0 for any.
    pub address: SocketAddr,
    /// Where blocks come and go; port 0 for any.
    pub transfer_address: SocketAddr,
    /// Where requests of WebHDFS come; port 0 for any.
    pub http_address: SocketAddr,
    /// Threads for calls and requests.
    pub threads: u16,
    /// Connections that there may be, of calls, of transfers and of requests each.
    pub clients_max: usize,
    /// Names by which clients may reach it over HTTP, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Addresses of machines whose data nodes are admitted.
    pub datanodes: Vec<IpAddr>,
    /// Replicas of a file if its client does not say how many.
    pub replication: u16,
    /// The file of the audit log, if there is to be one.
    pub audit: Option<PathBuf>,
    /// The files behind it.
    pub host: HostOptions,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The files cannot be served.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The audit log cannot be written.
    #[error("the audit log {path} cannot be written: {source}; check its folder, or set files.audit = false")]
    Audit {
        /// Its file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("a thread for files cannot be started: {0}")]
    Start(io::Error),
}

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    transfer_address: SocketAddr,
    http_address: SocketAddr,
    files: Files,
    audit: Option<AuditLog>,
    upkeep: Option<Upkeep>,
    transfer: Transfer,
    writes: Arc<Writes>,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
}

/// Stops a server while somebody else waits for its end.
#[derive(Clone, Debug)]
pub struct Stopper {
    files: Files,
    writes: Arc<Writes>,
    stop: watch::Sender<bool>,
}

impl Stopper {
    /// Has the server end, perhaps a moment later: what clients write over HTTP is given up before.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        let (files, writes) = (self.files.clone(), Arc::clone(&self.writes));
        let close = move || {
            writes.wait();
            // What went wrong is told to who waits for the end.
            let _ = files.close();
        };
        if self.writes.are_done() || std::thread::Builder::new().name("files-end".to_owned()).spawn(close).is_err() {
            let _ = self.files.close();
        }
    }
}

impl Server {
    /// Listens, reads the log and the replicas, and serves. Blocks while it reads; clients wait meanwhile.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        Self::start_with(options, |files| Arc::new(files.clone()))
    }

    /// The same with names that somebody else may have.
    pub(crate) fn start_with(
        options: ServerOptions,
        names: impl FnOnce(&Files) -> SharedNamesHandle,
    ) -> Result<Self, ServerError> {
        let ServerOptions {
            address,
            transfer_address,
            http_address,
            threads,
            clients_max,
            hosts,
            datanodes,
            replication,
            audit,
            host,
        } = options;
        let (listener, address) = listen(address)?;
        let (transfer_listener, transfer_address) = listen(transfer_address)?;
        let (http_listener, http_address) = listen(http_address)?;
        for listener in [&listener, &http_listener] {
            listener.set_nonblocking(true).map_err(ServerError::Start)?;
        }
        let opened = |path: PathBuf| AuditLog::open(path.clone()).map_err(|source| ServerError::Audit { path, source });
        let audit = audit.map(opened).transpose()?;
        let (files, upkeep) = Files::open(host)?;
        let names = names(&files);
        let transfer = Transfer::begin(transfer_listener, files.clone(), Arc::clone(&names), clients_max)
            .map_err(ServerError::Start)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(usize::from(threads.max(1)))
            .thread_name("files")
            .enable_all()
            .build()
            .map_err(ServerError::Start)?;
        let writes = Arc::new(Writes::default());
        let service = Arc::new(Service {
            files: files.clone(),
            names,
            audit: audit.clone(),
            transfer_port: transfer_address.port(),
            ipc_port: address.port(),
            http_port: http_address.port(),
            writes: Arc::clone(&writes),
            checks: Service::checks(),
            reports: Service::reports(),
            datanodes,
            replication,
            runtime: runtime.handle().clone(),
        });
        let (stop, stopping) = watch::channel(false);
        let (service_of_web, begun) = (Arc::clone(&service), SystemTime::now());
        let web = Web { service: service_of_web, address: http_address, hosts: hosts.into(), begun };
        let calls = move |stream| connection::serve(stream, Arc::clone(&service));
        runtime.spawn(accept(listener, clients_max, stopping.clone(), calls));
        runtime.spawn(accept(http_listener, clients_max, stopping, move |stream| web.clone().accepted(stream)));
        let (upkeep, runtime) = (Some(upkeep), Some(runtime));
        Ok(Self { address, transfer_address, http_address, files, audit, upkeep, transfer, writes, runtime, stop })
    }

    /// Where calls come.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where blocks come and go.
    #[must_use]
    pub const fn transfer_address(&self) -> SocketAddr {
        self.transfer_address
    }

    /// Where requests of WebHDFS come.
    #[must_use]
    pub const fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// The files.
    #[must_use]
    pub const fn files(&self) -> &Files {
        &self.files
    }

    /// The audit log, if there is one.
    #[must_use]
    pub const fn audit(&self) -> Option<&AuditLog> {
        self.audit.as_ref()
    }

    /// What stops it while somebody else waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { files: self.files.clone(), writes: Arc::clone(&self.writes), stop: self.stop.clone() }
    }

    /// Waits until the server ends, which it does by itself when its log does.
    ///
    /// # Errors
    /// [`ServerError::Host`].
    pub fn wait(mut self) -> Result<(), ServerError> {
        if let Some(upkeep) = self.upkeep.take() {
            upkeep.wait();
        }
        self.end()
    }

    fn end(&mut self) -> Result<(), ServerError> {
        self.stop.send_replace(true);
        self.transfer.stop();
        self.writes.wait();
        self.writes.end();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        Ok(self.files.close()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.runtime.is_some()
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "files had ended before they were stopped");
        }
    }
}

/// Serves who connects, until it is to stop.
async fn accept<F>(
    listener: TcpListener,
    clients_max: usize,
    mut stopping: watch::Receiver<bool>,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "clients of files are not accepted"),
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
                tracing::warn!(%error, "could not accept a client of files");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!("{clients_max} clients of files are connected; one more is refused");
            continue;
        };
        let (serving, mut stopping) = (serve(stream), stopping.clone());
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = serving => ended,
                _ = stopping.wait_for(|stop| *stop) => Ok(()),
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a client of files has gone");
            }
            drop(place);
        });
    }
}

/// Serves one client of WebHDFS that has come by something else than a port, until it goes.
pub async fn serve_client<S: AsyncRead + AsyncWrite + Unpin>(files: Files, stream: S) {
    let here = IpAddr::from(Ipv4Addr::LOCALHOST);
    let service = Arc::new(Service::alone(files));
    let (hosts, begun) = ([].into(), SystemTime::now());
    let web = Web { service, address: SocketAddr::new(here, 0), hosts, begun };
    web.serve(stream, here, here).await;
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}
