//! The coordinator as the rest of a node sees it.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use savanna_epoch::ShardId;
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, RootChange};
use crate::error::CoordinatorError;
use crate::event::{Change, RootValue};
use crate::record::{NodeRecord, NodeSpec, Revision, ShardRecord, Tenure, Transition, Versioned};

/// A name that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The name and the epoch of this grant.
    pub tenure: Tenure,
    /// How long the lease lasts, from when the coordinator received the request; may be longer than asked for.
    pub ttl: Duration,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimOutcome {
    /// The name is the claimant's.
    Granted(Grant),
    /// Another process holds it; its lease is not renewed any more. Claim again when it has run out.
    Pending {
        /// How long the holder's lease lasts.
        retry_after: Duration,
    },
}

/// The coordinator's records at one revision: where a cache starts, before it watches from that revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// Nodes that hold their lease, by name.
    pub nodes: Vec<NodeRecord>,
    /// Shards with their versions, by name.
    pub shards: Vec<(ShardId, Versioned<ShardRecord>)>,
    /// Roots with their versions, by key.
    pub roots: Vec<(String, Versioned<RootValue>)>,
}

/// Changes as they become durable, in order of their revisions.
pub type ChangeStream = BoxStream<'static, Result<Change, CoordinatorError>>;

/// Keeper of the roots of a cluster: nodes and their leases, owners of shards, id ranges, and a few small values.
///
/// Every answer depends on durable records only. No request of a client should wait for a coordinator: nodes follow
/// [`Coordinator::watch`] and answer from their caches, as what they own is fenced by epoch and lease.
///
/// After [`CoordinatorError::Unavailable`] it is not known whether a request was carried out, and a request that was
/// delayed may still be. A server that proposed to lose a shard must therefore not serve it again until it has seen the
/// record at a later version than the one it expected; any other change of it brings that about.
#[async_trait]
pub trait Coordinator: Send + Sync {
    /// Asks for a name. Asked again by the same incarnation, it returns the same grant and renews it. Read the clock
    /// *before* calling: the lease counts from there for the holder.
    ///
    /// # Errors
    /// `Held` if another process has it or claimed it; `Invalid`.
    async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError>;

    /// Asks for a name that may be held: from now on its holder is not renewed, and a later call gets the name under a
    /// higher epoch, at most one lease later. The latest claimant wins. Read the clock before calling.
    ///
    /// # Errors
    /// `Invalid`.
    async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError>;

    /// Renews a lease and returns its ttl. Read the clock before calling.
    ///
    /// # Errors
    /// `Claimed`: not renewed, what was granted holds. `TenureOver`: stop at once.
    async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError>;

    /// Gives a name up; the node has stopped serving. Succeeds if the tenure was over already.
    ///
    /// # Errors
    /// None of its own.
    async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError>;

    /// All records at one revision.
    ///
    /// # Errors
    /// `Corrupt`.
    async fn snapshot(&self) -> Result<Snapshot, CoordinatorError>;

    /// A shard's record.
    ///
    /// # Errors
    /// `Corrupt`.
    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError>;

    /// Changes shards and roots together, if all of them are at the expected versions and each change of a shard is allowed
    /// ([`check_transition`](crate::transition::check_transition)), and the roots that it expects are as they should be; otherwise none
    /// of them. Returns the version that all of them have now.
    ///
    /// # Errors
    /// `Conflict` (also of a root that is to be deleted and does not exist), `OtherValue` of a root that is expected to have another one,
    /// `Transition`, `Invalid`: of the first that is not as it should be, versions and values before rules.
    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError>;

    /// Changes one shard's record; see [`Coordinator::apply`].
    ///
    /// # Errors
    /// `Conflict`, `Transition`, `Invalid`.
    async fn transition(&self, transition: &Transition) -> Result<Revision, CoordinatorError> {
        self.apply(&transition.clone().into()).await
    }

    /// Hands out the next `count` ids of a sequence; nobody ever gets one of them again. The first is 1.
    ///
    /// # Errors
    /// `Invalid` for none or too many, `IdsExhausted`.
    async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError>;

    /// A root's value.
    ///
    /// # Errors
    /// None of its own.
    async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError>;

    /// Writes a root that is at version `expected` ([`Revision::NONE`]: that does not exist). Returns its new version.
    ///
    /// # Errors
    /// `Conflict`, `Invalid`.
    async fn put_root(&self, key: &str, expected: Revision, value: RootValue) -> Result<Revision, CoordinatorError> {
        self.apply(&RootChange { key: key.to_owned(), expected, value: Some(value) }.into()).await
    }

    /// Deletes a root that is at version `expected`.
    ///
    /// # Errors
    /// `Conflict`; a root that does not exist is at [`Revision::NONE`] and conflicts too.
    async fn delete_root(&self, key: &str, expected: Revision) -> Result<Revision, CoordinatorError> {
        self.apply(&RootChange { key: key.to_owned(), expected, value: None }.into()).await
    }

    /// The changes after revision `since`, as they become durable. Ends with an error when it cannot be continued.
    ///
    /// # Errors
    /// `Compacted`, here or later in the stream: take a snapshot and start again.
    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError>;
}
