//! The coordinator of one process: [`CoordinatorCore`] with every change journaled.
//!
//! ```text
//! request --> core.step (under a lock) --> log.append (same lock: same order) --> wait until durable --> reply
//!                                                                                                  \--> watchers
//! ```
//!
//! Reads wait for the last append too: an answer may not depend on a record that a crash could take back. If the log
//! fails or refuses (a newer owner has fenced it), the coordinator stops for good: its state is ahead of the log then.
//! While the process does not hold its data directory's lease, nothing is answered at all.

mod journaled;
mod volatile;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use savanna_epoch::ShardId;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::batch::Batch;
use crate::coordinator::{ChangeStream, ClaimOutcome, Coordinator, Grant, Snapshot};
use crate::core::{CoordinatorCore, Reply, Request};
use crate::error::CoordinatorError;
use crate::event::{Change, RootValue};
use crate::guard::LeaseGuard;
use crate::record::{NodeSpec, Revision, ShardRecord, Tenure, Versioned};
use crate::time::{Clock, MonoTime};

pub use journaled::{EmbeddedOptions, OpenError};

/// A place in a [`Log`]; later records have higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition(pub u64);

/// Why a log takes no more records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// Where the coordinator's entries become durable. Once it has failed, it fails for ever.
#[async_trait]
pub trait Log: Send + Sync {
    /// Puts payloads, in this order, after all that were appended before, and returns at once with the place of the last
    /// one. A crash keeps a prefix of what was appended. Never called without payloads.
    ///
    /// # Errors
    /// [`LogError`]: nothing can be appended any more.
    fn append(&self, payloads: &[Vec<u8>]) -> Result<LogPosition, LogError>;

    /// Returns when everything up to `position` survives what the log survives.
    ///
    /// # Errors
    /// [`LogError`]: it is not known what survives, and nothing more will.
    async fn wait_durable(&self, position: LogPosition) -> Result<(), LogError>;
}

/// The embedded coordinator. Dropping it stops its expiry task; the log keeps what was acknowledged.
#[derive(Debug)]
pub struct EmbeddedCoordinator {
    shared: Arc<Shared>,
    expiry: JoinHandle<()>,
}

struct Shared {
    inner: Mutex<Inner>,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    guard: Option<LeaseGuard>,
    progress: watch::Sender<Progress>,
}

struct Inner {
    core: CoordinatorCore,
    /// Where the newest entry is; none before the first append of this process.
    appended: Option<LogPosition>,
}

#[derive(Clone, Debug)]
struct Progress {
    /// Watchers may see changes up to here.
    durable: Revision,
    stopped: Option<LogError>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("progress", &*self.progress.borrow()).finish_non_exhaustive()
    }
}

impl EmbeddedCoordinator {
    /// Starts a coordinator on a core that has replayed all of `log`. Every lease lasts a whole ttl from now. It answers
    /// only while `guard`, if there is one, says that the process may serve. Must be called in a tokio runtime.
    pub fn start(
        mut core: CoordinatorCore,
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        guard: Option<LeaseGuard>,
    ) -> Self {
        core.restart_leases(clock.now());
        let (progress, _) = watch::channel(Progress { durable: core.revision(), stopped: None });
        let inner = Mutex::new(Inner { core, appended: None });
        let shared = Arc::new(Shared { inner, log, clock, guard, progress });
        let expiry = tokio::spawn(end_expired_leases(Arc::clone(&shared)));
        Self { shared, expiry }
    }

    /// Registers the node that this process is. It needs no renewals: who may run the coordinator, may serve as its
    /// resident, and while the process may not, nobody is told anything. A former resident of the name is over at once;
    /// of a holder elsewhere the lease is waited for, at most one ttl. So is this process's own, if it is late.
    ///
    /// # Errors
    /// `Invalid`, `Stopped`.
    pub async fn reside(&self, spec: &NodeSpec) -> Result<Tenure, CoordinatorError> {
        loop {
            let pause = match self.shared.submit(&Request::Reside(spec.clone())).await {
                Ok(Reply::Claim(ClaimOutcome::Granted(grant))) => return Ok(grant.tenure),
                Ok(Reply::Claim(ClaimOutcome::Pending { retry_after })) => retry_after,
                Ok(other) => unreachable!("the core answered a request with {other:?}"),
                Err(CoordinatorError::Unavailable { .. }) => RESIDE_PAUSE,
                Err(error) => return Err(error),
            };
            tokio::time::sleep(pause.max(RESIDE_PAUSE)).await;
        }
    }
}

/// The least time until the resident asks again.
const RESIDE_PAUSE: Duration = Duration::from_millis(10);

impl Drop for EmbeddedCoordinator {
    fn drop(&mut self) {
        self.expiry.abort();
    }
}

/// How long the expiry task sleeps when no lease is held, and the least it sleeps.
const EXPIRY_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Ends leases for the watchers' sake; requests end them by themselves.
async fn end_expired_leases(shared: Arc<Shared>) {
    loop {
        let wake_at = shared.inner.lock().core.wake_at();
        let now = shared.clock.now();
        let pause = wake_at.map_or(EXPIRY_PAUSE.1, |at: MonoTime| at.since(now));
        tokio::time::sleep(pause.clamp(EXPIRY_PAUSE.0, EXPIRY_PAUSE.1)).await;
        match shared.submit(&Request::Tick).await {
            Ok(_) | Err(CoordinatorError::Unavailable { .. }) => {}
            Err(error) => {
                tracing::error!(%error, "the embedded coordinator stopped");
                return;
            }
        }
    }
}

impl Shared {
    async fn submit(&self, request: &Request) -> Result<Reply, CoordinatorError> {
        let has_written;
        let (reply, revision, position) = {
            let mut inner = self.inner.lock();
            self.running()?;
            let step = inner.core.step(request, self.clock.now());
            if !step.entries.is_empty() {
                let payloads: Vec<Vec<u8>> = step
                    .entries
                    .iter()
                    .map(|entry| serde_json::to_vec(entry).expect("entries have string keys and no failing parts"))
                    .collect();
                inner.appended = Some(self.log.append(&payloads).map_err(|error| self.stop(error))?);
            }
            has_written = !step.entries.is_empty();
            (step.reply, inner.core.revision(), inner.appended)
        };
        self.wait_durable(revision, position).await.map_err(|error| match error {
            // What was appended may be found when the process starts again.
            CoordinatorError::Stopped { .. } if has_written => {
                CoordinatorError::Unavailable { reason: error.to_string() }
            }
            error => error,
        })?;
        reply
    }

    async fn read<T>(&self, read: impl FnOnce(&CoordinatorCore) -> T) -> Result<T, CoordinatorError> {
        let (value, revision, position) = {
            let inner = self.inner.lock();
            self.running()?;
            (read(&inner.core), inner.core.revision(), inner.appended)
        };
        self.wait_durable(revision, position).await?;
        Ok(value)
    }

    async fn wait_durable(&self, revision: Revision, position: Option<LogPosition>) -> Result<(), CoordinatorError> {
        if let Some(position) = position
            && self.progress.borrow().durable < revision
        {
            self.log.wait_durable(position).await.map_err(|error| self.stop(error))?;
            self.progress.send_if_modified(|progress| {
                let advanced = revision > progress.durable;
                progress.durable = progress.durable.max(revision);
                advanced
            });
        }
        self.running()
    }

    fn running(&self) -> Result<(), CoordinatorError> {
        if let Some(error) = &self.progress.borrow().stopped {
            return Err(stopped(error));
        }
        match &self.guard {
            Some(guard) if !guard.serving() => Err(CoordinatorError::Unavailable {
                reason: "the lease of its data directory was not renewed in time".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Stops the coordinator for good, with the first error that did it.
    fn stop(&self, error: LogError) -> CoordinatorError {
        let mut first = error;
        self.progress.send_modify(|progress| first = progress.stopped.get_or_insert_with(|| first.clone()).clone());
        stopped(&first)
    }
}

fn stopped(error: &LogError) -> CoordinatorError {
    CoordinatorError::Stopped { reason: error.0.clone() }
}

/// The core answers each request with its own kind of reply.
macro_rules! expect_reply {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            other => unreachable!("the core answered a request with {other:?}"),
        }
    };
}

#[async_trait]
impl Coordinator for EmbeddedCoordinator {
    async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
        let reply = self.shared.submit(&Request::Register(spec.clone())).await?;
        expect_reply!(reply, Reply::Granted(grant) => grant)
    }

    async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
        let reply = self.shared.submit(&Request::Claim(spec.clone())).await?;
        expect_reply!(reply, Reply::Claim(outcome) => outcome)
    }

    async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
        let reply = self.shared.submit(&Request::Heartbeat(tenure.clone())).await?;
        expect_reply!(reply, Reply::Renewed(ttl) => ttl)
    }

    async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
        let reply = self.shared.submit(&Request::Deregister(tenure.clone())).await?;
        expect_reply!(reply, Reply::Done => ())
    }

    async fn snapshot(&self) -> Result<Snapshot, CoordinatorError> {
        self.shared.read(CoordinatorCore::snapshot).await
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        self.shared.read(|core| core.shard(shard).cloned()).await
    }

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        let reply = self.shared.submit(&Request::Apply(batch.clone())).await?;
        expect_reply!(reply, Reply::Changed(version) => version)
    }

    async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError> {
        let reply = self.shared.submit(&Request::Allocate { name: name.to_owned(), count }).await?;
        expect_reply!(reply, Reply::Ids(ids) => ids)
    }

    async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError> {
        self.shared.read(|core| core.root(key).cloned()).await
    }

    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        let watcher = Watcher {
            progress: self.shared.progress.subscribe(),
            shared: Arc::clone(&self.shared),
            seen: since,
            pending: VecDeque::new(),
            ended: false,
        };
        // Refuse at once what the stream would refuse at its first step.
        self.shared.read(|core| core.changes(since, since)).await??;
        Ok(futures::stream::unfold(watcher, Watcher::next).boxed())
    }
}

struct Watcher {
    shared: Arc<Shared>,
    progress: watch::Receiver<Progress>,
    /// Everything up to here was delivered or is pending.
    seen: Revision,
    pending: VecDeque<Change>,
    ended: bool,
}

impl Watcher {
    async fn next(mut self) -> Option<(Result<Change, CoordinatorError>, Self)> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(change) = self.pending.pop_front() {
                return Some((Ok(change), self));
            }
            let Progress { durable, stopped: failure } = self.progress.borrow_and_update().clone();
            if durable > self.seen {
                let changes = self.shared.inner.lock().core.changes(self.seen, durable);
                match changes {
                    Ok(changes) => self.pending = changes.into(),
                    Err(error) => {
                        return Some((Err(error), Self { ended: true, ..self }));
                    }
                }
                // No more than some of them come at once.
                self.seen = self.pending.back().map_or(durable, |last| last.revision);
                continue;
            }
            if let Some(error) = failure {
                return Some((Err(stopped(&error)), Self { ended: true, ..self }));
            }
            if self.progress.changed().await.is_err() {
                return None;
            }
        }
    }
}
