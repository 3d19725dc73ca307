//! The server: its threads, from the beginning to the end.

use std::{io, net::SocketAddr, sync::Arc, thread::JoinHandle};

use savanna_epoch::OwnerEpoch;
use savanna_identity::{Tls, TlsError, TlsFiles};
use savanna_journal::{Journal, JournalError, Lsn};
use savanna_ownership::guard::LeaseGuard;
use savanna_pgwire_login::{Admission, Nobody};
use savanna_tenants::SqlError;
use tokio::{
    runtime::Runtime,
    sync::{Notify, Semaphore, mpsc, oneshot},
};

use crate::{
    door::Door,
    process::{Keeping, Process},
    tenants::Tenants,
    thread::{self, Order},
};

/// What a tenants' thread may need for the deepest expression that is not refused. Memory is taken only as it is used.
const STACK_BYTES: usize = 256 << 20;

/// Threads that wait for the file system at most. Each has a part of the allocator's memory for itself.
const STORE_THREADS: usize = 8;

/// Where a server listens and keeps its tenants.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address; port 0 is any that is free.
    pub listen: SocketAddr,
    /// Where tenants are kept.
    pub keeping: Keeping,
    /// The epoch under which this process owns them.
    pub epoch: OwnerEpoch,
    /// Threads that tenants live on.
    pub threads: usize,
    /// The lease under which anybody may be told anything; none where nobody else could have the tenants.
    pub lease: Option<LeaseGuard>,
    /// What clients can encrypt their connections with; nothing if none.
    pub tls: Option<TlsFiles>,
    /// Who is let in.
    pub admission: Admission,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The port cannot be listened to.
    #[error("could not listen on {address}: {source}; choose another port, or end what has it")]
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
    /// Its log or storage cannot be read.
    #[error("could not read the tenants' log and storage: {0}")]
    Recovery(#[from] SqlError),
    /// Its log failed while it served. Nobody was told what is not in it.
    #[error("the tenants' log failed: {0}")]
    Log(#[from] JournalError),
    /// A thread panicked.
    #[error("a thread of the tenants service panicked; its tenants are not served any more, restart the process")]
    Panicked,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    tenants: Tenants,
    journal: Arc<Journal>,
    stopper: Stopper,
    orders: Vec<mpsc::UnboundedSender<Order>>,
    threads: Vec<JoinHandle<()>>,
    door: Option<JoinHandle<Result<(), ServerError>>>,
    /// Where the storage is waited for.
    background: Option<Runtime>,
}

impl Server {
    /// Listens, reads the log, and serves. Blocks while it reads.
    ///
    /// # Errors
    /// [`ServerError::Listen`], [`ServerError::Recovery`], [`ServerError::Start`].
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { listen, keeping, epoch, threads, lease, tls, admission } = options;
        let tls = tls.as_ref().map(Tls::read).transpose()?;
        let (listener, address) = bind(listen).map_err(|source| ServerError::Listen { address: listen, source })?;
        let mut background = tokio::runtime::Builder::new_multi_thread();
        // Its blocking threads run the statements that take long, too, one for each thread.
        let background = background.worker_threads(1).max_blocking_threads(threads.max(1) + STORE_THREADS);
        let background = background.thread_name("tenants-store").thread_stack_size(STACK_BYTES);
        let background = background.enable_all().build();
        let background = background.map_err(ServerError::Start)?;
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads.max(1)).map(|_| mpsc::unbounded_channel()).unzip();
        let process = Process::open(keeping, epoch, senders.clone(), background.handle())?;
        let mut server = Self {
            address,
            tenants: Tenants::new(Arc::clone(&process)),
            journal: Arc::clone(&process.journal),
            stopper: Stopper(Arc::default()),
            orders: senders,
            threads: Vec::new(),
            door: None,
            background: Some(background),
        };
        for (number, orders) in receivers.into_iter().enumerate() {
            server.start_thread(number, orders, Arc::clone(&process), lease.clone())?;
        }
        server.open_door(listener, process, tls, admission)?;
        Ok(server)
    }

    /// A thread that tenants can live on. All stop when one ends, by a panic too: its tenants are nobody's then.
    fn start_thread(
        &mut self,
        number: usize,
        orders: mpsc::UnboundedReceiver<Order>,
        process: Arc<Process>,
        lease: Option<LeaseGuard>,
    ) -> Result<(), ServerError> {
        let one_for_all = OneForAll(self.stopper.clone());
        let thread = std::thread::Builder::new().name(format!("tenants-{number}")).stack_size(STACK_BYTES);
        let run = move || {
            let _one_for_all = one_for_all;
            thread::run(number, process, lease, orders);
        };
        self.threads.push(thread.spawn(run).map_err(ServerError::Start)?);
        Ok(())
    }

    /// The thread that takes clients in, until the server is stopped or its log fails.
    fn open_door(
        &mut self,
        listener: std::net::TcpListener,
        process: Arc<Process>,
        tls: Option<Tls>,
        admission: Admission,
    ) -> Result<(), ServerError> {
        let nobody = Nobody::new().map_err(ServerError::Start)?;
        let places = Arc::new(Semaphore::new(admission.clients_max));
        let door = Arc::new(Door { process, tls, admission, places, nobody });
        let (failed, log_failed) = oneshot::channel();
        // No place in the log is so late: this is heard only when the log ends.
        self.journal.gate().hold(Lsn(u64::MAX), move |ended| drop(failed.send(ended)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Start)?;
        let stopped = self.stopper.clone();
        let run = move || {
            runtime.block_on(async move {
                tokio::select! {
                    outcome = door.open(listener) => outcome.map_err(ServerError::Start),
                    () = stopped.0.notified() => Ok(()),
                    ended = log_failed => Ok(ended.unwrap_or(Ok(()))?),
                }
            })
        };
        let thread = std::thread::Builder::new().name("tenants-door".to_owned());
        self.door = Some(thread.spawn(run).map_err(ServerError::Start)?);
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its tenants.
    #[must_use]
    pub fn tenants(&self) -> Tenants {
        self.tenants.clone()
    }

    /// What stops it while somebody else waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the server ends, which it does by itself only if it cannot go on. Whoever is connected then is told
    /// nothing more.
    ///
    /// # Errors
    /// [`ServerError::Log`], [`ServerError::Panicked`].
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let mut outcome = Ok(());
        if let Some(door) = self.door.take() {
            outcome = door.join().unwrap_or(Err(ServerError::Panicked));
        }
        for orders in self.orders.drain(..) {
            // The thread may have ended.
            drop(orders.send(Order::Stop));
        }
        for thread in self.threads.drain(..) {
            let ended = thread.join().map_err(|_| ServerError::Panicked);
            outcome = outcome.and(ended);
        }
        if let Some(background) = self.background.take() {
            if outcome.is_ok() {
                self.tenants.save_end();
            }
            // What is being written down is written again by whoever opens the log next.
            background.shutdown_background();
        }
        let closed = self.journal.close().map_err(ServerError::Log);
        outcome.and(closed)
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

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Notify>);

impl Stopper {
    /// Tells the server to stop: connections are closed, the log is made durable. It ends a little later.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

/// Stops all threads when one ends.
struct OneForAll(Stopper);

impl Drop for OneForAll {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn bind(address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
