//! The asking side.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use savanna_epoch::{NodeId, ShardId};
use savanna_rpc::{Method, Transport, call};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::method::{
    Allocate, Apply, Claim, Deregister, Follow, Heartbeat, Ids, ReadAll, ReadRoot, ReadShard, Register, Since,
};
use crate::batch::Batch;
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

/// A reply, and whether the request may have been carried out before the attempt that brought it.
struct Answer<T> {
    reply: Result<T, CoordinatorError>,
    is_repeated: bool,
}

impl RemoteCoordinator {
    /// Asks node `at` over `transport`, again and again for at most `patience` while there is no answer.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, at: NodeId, patience: Duration) -> Self {
        Self { transport, at, patience }
    }

    async fn ask<M, T>(&self, request: &M::Request) -> Result<T, CoordinatorError>
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Sync,
        T: Serialize + DeserializeOwned + Send,
    {
        self.ask_until_answered::<M, T>(request).await.reply
    }

    /// Asks until there is an answer, or patience ends: then the answer is `Unavailable`.
    async fn ask_until_answered<M, T>(&self, request: &M::Request) -> Answer<T>
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Sync,
        T: Serialize + DeserializeOwned + Send,
    {
        let deadline = Instant::now() + self.patience;
        let mut is_repeated = false;
        loop {
            let reply = self.attempt::<M, T>(request, ATTEMPT).await;
            let is_answered = !matches!(reply, Err(CoordinatorError::Unavailable { .. }));
            if is_answered || Instant::now() + PAUSE >= deadline {
                return Answer { reply, is_repeated };
            }
            is_repeated = true;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn attempt<M, T>(&self, request: &M::Request, timeout: Duration) -> Result<T, CoordinatorError>
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Sync,
        T: Serialize + DeserializeOwned + Send,
    {
        call::<M>(&*self.transport, &self.at, request, timeout)
            .await
            .unwrap_or_else(|error| Err(CoordinatorError::Unavailable { reason: error.to_string() }))
    }

    /// The version that all records of a batch have, if they are what it was to make of them.
    async fn applied_at(&self, batch: &Batch) -> Result<Option<Revision>, CoordinatorError> {
        let mut versions = BTreeSet::new();
        for change in &batch.transitions {
            match self.shard(&change.shard).await? {
                Some(found) if found.value == change.record => versions.insert(found.version),
                _ => return Ok(None),
            };
        }
        for change in &batch.roots {
            match (self.root(&change.key).await?, &change.value) {
                (Some(found), Some(wanted)) if found.value == *wanted => drop(versions.insert(found.version)),
                // A root that was not there cannot have been deleted.
                (None, None) if change.expected != Revision::NONE => {}
                _ => return Ok(None),
            }
        }
        Ok((versions.len() <= 1).then(|| versions.pop_last().unwrap_or(Revision::NONE)))
    }

    async fn changes(&self, since: Revision, wait: Duration) -> Result<Vec<Change>, CoordinatorError> {
        self.attempt::<Follow, _>(&Since { since, wait }, wait + ATTEMPT).await
    }
}

impl<T> Answer<T> {
    /// Whether an earlier attempt may be what this one conflicts with.
    const fn may_conflict_with_itself(&self) -> bool {
        self.is_repeated && matches!(self.reply, Err(CoordinatorError::Conflict { .. }))
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
        self.ask::<ReadAll, _>(&()).await
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        self.ask::<ReadShard, _>(&shard.clone()).await
    }

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        let answer = self.ask_until_answered::<Apply, _>(&batch.clone()).await;
        if !answer.may_conflict_with_itself() {
            return answer.reply;
        }
        match self.applied_at(batch).await? {
            Some(version) => Ok(version),
            None => answer.reply,
        }
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
