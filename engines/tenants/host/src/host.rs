//! The host: its threads, from the beginning to the end.

use std::{io, sync::Arc, thread::JoinHandle};

use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Journal, JournalError, Lsn};
use savanna_ownership::guard::LeaseGuard;
use savanna_tenants_store::shards::Member;
use savanna_tenants_values::error::SqlError;
use tokio::{
    runtime::Runtime,
    sync::{mpsc, watch},
};

use crate::{
    others::Others,
    process::{Keeping, Process, places_beside},
    tenants::Tenants,
    thread::{self, Order},
};

/// What a tenants' thread may need for the deepest expression that is not refused. Memory is taken only as it is used.
const STACK_BYTES: usize = 256 << 20;

/// Threads that wait for the file system at most. Each has a part of the allocator's memory for itself.
const STORE_THREADS: usize = 8;

/// What tenants are hosted with.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Where tenants are kept.
    pub keeping: Keeping,
    /// The node in its cluster, and the log that it holds.
    pub member: Member,
    /// The epoch under which this process opens that log.
    pub epoch: NodeEpoch,
    /// Threads that tenants live on.
    pub threads: usize,
    /// The lease under which anybody may be told anything; none where nobody else could have the tenants.
    pub lease: Option<LeaseGuard>,
    /// The other nodes that have tenants, if there may be any.
    pub others: Option<Arc<dyn Others>>,
}

/// Why a host did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A thread could not be started.
    #[error("could not start a thread of the tenants service: {0}; check the limits of threads and open files")]
    Start(#[source] io::Error),
    /// Its log or storage cannot be read.
    #[error("could not read the tenants' log and storage: {0}")]
    Recovery(#[from] SqlError),
    /// Its log failed while it served. Nobody was told what is not in it.
    #[error("the tenants' log failed: {0}")]
    Log(#[from] JournalError),
    /// A thread panicked.
    #[error("a thread of the tenants service panicked and serves its tenants no longer; restart the process")]
    Panicked,
}

/// Threads with tenants. Dropping it stops them.
#[derive(Debug)]
pub struct Host {
    tenants: Tenants,
    journal: Arc<Journal>,
    stopper: Stopper,
    /// How the log failed, if it did.
    log_failed: Arc<Mutex<Option<JournalError>>>,
    orders: Vec<mpsc::UnboundedSender<Order>>,
    threads: Vec<JoinHandle<()>>,
    /// Where the storage is waited for.
    background: Option<Runtime>,
}

impl Host {
    /// Reads the log, and is ready for clients. Blocks while it reads.
    ///
    /// # Errors
    /// [`HostError::Recovery`], [`HostError::Start`].
    pub fn start(options: HostOptions) -> Result<Self, HostError> {
        let HostOptions { keeping, member, epoch, threads, lease, others } = options;
        let mut background = tokio::runtime::Builder::new_multi_thread();
        // Its blocking threads run the statements that take long, too: one for each thread, and queries beside their tenants.
        let statements = threads.max(1) + places_beside(threads);
        let background = background.worker_threads(1).max_blocking_threads(statements + STORE_THREADS);
        let background = background.thread_name("tenants-store").thread_stack_size(STACK_BYTES);
        let background = background.enable_all().build();
        let background = background.map_err(HostError::Start)?;
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads.max(1)).map(|_| mpsc::unbounded_channel()).unzip();
        let others = (others, lease.clone());
        let process = Process::open(keeping, (member, epoch), others, senders.clone(), background.handle())?;
        let stopper = Stopper(watch::Sender::new(false));
        let mut host = Self {
            tenants: Tenants::new(Arc::clone(&process), stopper.clone()),
            journal: Arc::clone(&process.journal),
            stopper,
            log_failed: Arc::default(),
            orders: senders,
            threads: Vec::new(),
            background: Some(background),
        };
        host.stop_with_log();
        for (number, orders) in receivers.into_iter().enumerate() {
            host.start_thread(number, orders, Arc::clone(&process), lease.clone())?;
        }
        Ok(host)
    }

    /// Stops when the log fails.
    fn stop_with_log(&self) {
        let (failed, stopper) = (Arc::clone(&self.log_failed), self.stopper.clone());
        // No place in the log is so late: this is heard only when the log ends.
        self.journal.gate().hold(Lsn(u64::MAX), move |ended| {
            *failed.lock() = ended.err();
            stopper.stop();
        });
    }

    /// A thread that tenants can live on. All stop when one ends, by a panic too: its tenants are nobody's then.
    fn start_thread(
        &mut self,
        number: usize,
        orders: mpsc::UnboundedReceiver<Order>,
        process: Arc<Process>,
        lease: Option<LeaseGuard>,
    ) -> Result<(), HostError> {
        let stops_all = StopsAll(self.stopper.clone());
        let thread = std::thread::Builder::new().name(format!("tenants-{number}")).stack_size(STACK_BYTES);
        let run = move || {
            let _stops_all = stops_all;
            thread::run(number, process, lease, orders);
        };
        self.threads.push(thread.spawn(run).map_err(HostError::Start)?);
        Ok(())
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

    /// Stops the threads and gives the log up. Whoever is connected is told nothing more.
    ///
    /// # Errors
    /// [`HostError::Log`] if the log had failed, [`HostError::Panicked`].
    pub fn stop(mut self) -> Result<(), HostError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), HostError> {
        // Without, it has been stopped: that its log is closed is no failure then.
        let Some(background) = self.background.take() else { return Ok(()) };
        self.stopper.stop();
        let mut outcome = self.log_failed.lock().take().map_or(Ok(()), |error| Err(error.into()));
        for orders in self.orders.drain(..) {
            // The thread may have ended.
            drop(orders.send(Order::Stop));
        }
        for thread in self.threads.drain(..) {
            let ended = thread.join().map_err(|_| HostError::Panicked);
            outcome = outcome.and(ended);
        }
        if outcome.is_ok() {
            self.tenants.save_end();
        }
        // What is being written down is written again by whoever opens the log next.
        background.shutdown_background();
        let closed = self.journal.close().map_err(HostError::Log);
        outcome.and(closed)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::error!(%error, "the tenants service had ended before it was stopped");
        }
    }
}

/// Stops a host.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Tells the host to stop: connections are closed, the log is made durable. It ends a little later.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is to stop, or cannot go on.
    pub async fn stopped(&self) {
        let mut told = self.0.subscribe();
        // There is a sender as long as this is here.
        drop(told.wait_for(|stopped| *stopped).await);
    }
}

/// Stops all threads when one ends.
struct StopsAll(Stopper);

impl Drop for StopsAll {
    fn drop(&mut self) {
        self.0.stop();
    }
}
