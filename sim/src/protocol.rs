//! What the simulated cluster says: the coordinator's requests and a register service in the place of an engine.

use std::time::Duration;

use bytes::Bytes;
use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::{CoordinatorError, Revision, ShardRecord, Tenure};
use savanna_rpc::{Request, RequestHead, RpcError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Who owns a shard, for routers.
pub const LOCATE: &str = "coordinator/locate";
/// All nodes and shards.
pub const VIEW: &str = "coordinator/view";
/// A request that may change something.
pub const CHANGE: &str = "coordinator/change";
/// Sets a register.
pub const WRITE: &str = "register/write";
/// Reads a register.
pub const READ: &str = "register/read";

/// The body of a write or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterRequest {
    /// The register.
    pub key: u32,
    /// What to write; unique in a run, and above 0. Not looked at by a read.
    pub value: u64,
}

/// What owners read of the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The tenures that live.
    pub nodes: Vec<Tenure>,
    /// The shards and the versions of their records.
    pub shards: Vec<(ShardId, Revision, ShardRecord)>,
}

/// Why the coordinator did not do what was asked, as far as an owner has to tell the reasons apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The lease is over.
    TenureOver,
    /// Another process claimed the name.
    Claimed,
    /// The name is held.
    Held {
        /// How long yet.
        remaining: Duration,
    },
    /// Anything else, in words.
    Other(String),
}

impl From<CoordinatorError> for Refusal {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::TenureOver { .. } => Self::TenureOver,
            CoordinatorError::Claimed { .. } => Self::Claimed,
            CoordinatorError::Held { remaining, .. } => Self::Held { remaining },
            other => Self::Other(other.to_string()),
        }
    }
}

/// The answer to [`CHANGE`].
pub type ChangeReply = Result<savanna_ownership::core::Reply, Refusal>;

/// The coordinator's node.
#[must_use]
pub fn coordinator() -> NodeId {
    NodeId::new("coordinator")
}

/// The shard of a number.
#[must_use]
pub fn shard(number: usize) -> ShardId {
    ShardId::new(format!("registers/{number}"))
}

/// The number of a shard made by [`shard`].
#[must_use]
pub fn shard_number(shard: &ShardId) -> Option<usize> {
    shard.0.strip_prefix("registers/")?.parse().ok()
}

/// Encodes as JSON, which the coordinator's records are written for.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("the simulation's own values have a JSON form"))
}

/// Decodes what [`encode`] made.
///
/// # Errors
/// [`RpcError::Malformed`] with the reason.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RpcError> {
    serde_json::from_slice(bytes).map_err(|error| RpcError::Malformed { reason: error.to_string() })
}

/// A request not bound to a shard.
#[must_use]
pub fn request(method: &str, idempotent: bool, body: Bytes, timeout: Duration) -> Request {
    Request { head: RequestHead { method: method.to_owned(), shard: None, idempotent }, body, timeout }
}
