//! The asking side.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use savanna_epoch::{NodeId, ShardId};
use savanna_rpc::{Delivery, Method, Request, RpcError, Transport, decode_value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::method::{
    Allocate, Apply, Claim, Deregister, Follow, Heartbeat, Ids, Part, ReadAll, ReadRoot, ReadShard, Register, Since,
    SnapshotPart,
};
use crate::batch::{Batch, check_batch};
use crate::coordinator::{ChangeStream, ClaimOutcome, Coordinator, Grant, Snapshot};
use crate::error::CoordinatorError;
use crate::event::{Change, RootValue};
use crate::record::{NodeSpec, Revision, ShardRecord, Tenure, Versioned};

/// How long a request waits for its reply before it is asked again.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The pause before it is.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the coordinator waits for a change before it says that there is none.
const WAIT: Duration = Duration::from_secs(10);

/// The coordinator of node `at`, which another node may become: the transport's addresses say where it is.
#[derive(Clone)]
pub struct RemoteCoordinator {
    transport: Arc<dyn Transport>,
    at: NodeId,
    patience: Duration,
}

impl std::fmt::Debug for RemoteCoordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteCoordinator")
            .field("at", &self.at)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// Why an attempt brought no result.
enum Failure {
    /// The coordinator says no.
    Refused(CoordinatorError),
    /// Nothing of it was done.
    NotBegun { reason: String },
    /// It may have been carried out.
    Unknown { reason: String },
}

impl Failure {
    fn of_call(error: &RpcError) -> Self {
        let reason = error.to_string();
        match (error.delivery(), error) {
            // A handler that ran may have had no words for its reply.
            (Delivery::Unknown, _) | (_, RpcError::Malformed { .. }) => Self::Unknown { reason },
            (Delivery::NotStarted, _) => Self::NotBegun { reason },
        }
    }

    fn of_reply(error: CoordinatorError) -> Self {
        match error {
            // What it has written to its journal last may be durable.
            CoordinatorError::Stopped { reason } | CoordinatorError::Unavailable { reason } => Self::Unknown { reason },
            error => Self::Refused(error),
        }
    }
}

impl From<Failure> for CoordinatorError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error,
            Failure::NotBegun { reason } | Failure::Unknown { reason } => Self::Unavailable { reason },
        }
    }
}

impl RemoteCoordinator {
    /// Asks node `at` over `transport`, again and again for at most `patience` while there is no answer.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, at: NodeId, patience: Duration) -> Self {
        Self { transport, at, patience }
    }

    /// Asks until there is an answer, or patience ends.
    async fn ask<M, T>(&self, request: &M::Request) -> Result<T, CoordinatorError>
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Sync,
        T: Serialize + DeserializeOwned + Send,
    {
        self.ask_while::<M, T>(|failure| !matches!(failure, Failure::Refused(_)), request).await
    }

    /// As [`Self::ask`], but never again once it may have been carried out.
    async fn ask_once<M, T>(&self, request: &M::Request) -> Result<T, CoordinatorError>
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Sync,
        T: Serialize + DeserializeOwned + Send,
    {
        self.ask_while::<M, T>(|failure| matches!(failure, Failure::NotBegun { .. }), request).await
    }

    async fn ask_while<M, T>(
        &self,
        may_repeat: fn(&Failure) -> bool,
        request: &M::Request,
    ) -> Result<T, CoordinatorError>
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Sync,
        T: Serialize + DeserializeOwned + Send,
    {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.attempt::<M, T>(request, ATTEMPT).await {
                Err(failure) if may_repeat(&failure) && Instant::now() + PAUSE < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer.map_err(CoordinatorError::from),
            }
        }
    }

    async fn attempt<M, T>(&self, request: &M::Request, timeout: Duration) -> Result<T, Failure>
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Sync,
        T: Serialize + DeserializeOwned + Send,
    {
        let request =
            Request::of::<M>(request, timeout).map_err(|error| Failure::NotBegun { reason: error.to_string() })?;
        let reply = self.transport.call(&self.at, request).await.map_err(|error| Failure::of_call(&error))?;
        let reply: M::Reply =
            decode_value(M::NAME, &reply).map_err(|error| Failure::Unknown { reason: error.to_string() })?;
        reply.map_err(Failure::of_reply)
    }

    async fn changes(&self, since: Revision, wait: Duration) -> Result<Vec<Change>, CoordinatorError> {
        Ok(self.attempt::<Follow, _>(&Since { since, wait }, wait + ATTEMPT).await?)
    }

    /// A snapshot, part by part; `Compacted` if the service keeps it no longer.
    async fn snapshot_in_parts(&self) -> Result<Snapshot, CoordinatorError> {
        let SnapshotPart { records: mut snapshot, mut has_more } =
            self.ask::<ReadAll, _>(&Part { of: None, behind: 0 }).await?;
        while has_more {
            let behind = snapshot.nodes.len() + snapshot.shards.len() + snapshot.roots.len();
            let part = self.ask::<ReadAll, _>(&Part { of: Some(snapshot.revision), behind }).await?;
            if part.records.revision != snapshot.revision {
                // It is no part of what came before.
                let (since, oldest) = (snapshot.revision, part.records.revision);
                return Err(CoordinatorError::Compacted { since, oldest });
            }
            has_more = part.has_more;
            snapshot.nodes.extend(part.records.nodes);
            snapshot.shards.extend(part.records.shards);
            snapshot.roots.extend(part.records.roots);
        }
        Ok(snapshot)
    }
}

#[async_trait]
impl Coordinator for RemoteCoordinator {
    async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
        self.ask::<Register, _>(&spec.clone()).await
    }

    async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
        self.ask::<Claim, _>(&spec.clone()).await
    }

    async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
        self.ask::<Heartbeat, _>(&tenure.clone()).await
    }

    async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
        self.ask::<Deregister, _>(&tenure.clone()).await
    }

    async fn snapshot(&self) -> Result<Snapshot, CoordinatorError> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.snapshot_in_parts().await {
                Err(CoordinatorError::Compacted { .. }) if Instant::now() + PAUSE < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error @ CoordinatorError::Compacted { .. }) => {
                    return Err(CoordinatorError::Unavailable { reason: error.to_string() });
                }
                snapshot => return snapshot,
            }
        }
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        self.ask::<ReadShard, _>(&shard.clone()).await
    }

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        check_batch(batch)?;
        self.ask_once::<Apply, _>(&batch.clone()).await
    }

    async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError> {
        self.ask::<Allocate, _>(&Ids { name: name.to_owned(), count }).await
    }

    async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError> {
        self.ask::<ReadRoot, _>(&key.to_owned()).await
    }

    /// Ends with `Unavailable` when the coordinator is not reached: whoever follows begins again from where it was.
    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        let deadline = Instant::now() + self.patience;
        // Refuse at once what the stream would refuse at its first step.
        let pending = loop {
            match self.changes(since, Duration::ZERO).await {
                Err(CoordinatorError::Unavailable { .. }) if Instant::now() + PAUSE < deadline => {
                    tokio::time::sleep(PAUSE).await
                }
                first => break first?,
            }
        };
        let follower = Follower { coordinator: self.clone(), seen: since, pending: pending.into(), is_ended: false };
        Ok(futures::stream::unfold(follower, Follower::next).boxed())
    }
}

struct Follower {
    coordinator: RemoteCoordinator,
    /// Everything up to here was delivered.
    seen: Revision,
    pending: VecDeque<Change>,
    is_ended: bool,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Change, CoordinatorError>, Self)> {
        let mut patient_until = None;
        while !self.is_ended {
            if let Some(change) = self.pending.pop_front() {
                self.seen = change.revision;
                return Some((Ok(change), self));
            }
            match self.coordinator.changes(self.seen, WAIT).await {
                Ok(changes) => {
                    patient_until = None;
                    self.pending = changes.into();
                }
                Err(CoordinatorError::Unavailable { .. })
                    if *patient_until.get_or_insert_with(|| Instant::now() + self.coordinator.patience)
                        > Instant::now() =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Some((Err(error), Self { is_ended: true, ..self })),
            }
        }
        None
    }
}
