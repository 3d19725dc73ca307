//! What a call can end with besides its reply, and what a caller may do about it.

use std::time::Duration;

use savanna_epoch::{NodeId, OwnerEpoch};
use serde::{Deserialize, Serialize};

/// Whether a request that failed can have reached its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Delivery {
    /// The handler certainly did not start: asking again cannot do the work twice.
    NotStarted,
    /// The request had been sent; its handler may have run, wholly or in part.
    Unknown,
}

/// How a call fails. The same set comes from every transport, and travels over the wire as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum RpcError {
    /// The node asked is not the owner of the shard; `to` is, under `epoch`.
    #[error("the shard is owned by node {to} under epoch {epoch}: send the request there")]
    Moved {
        /// The owner that the answering node knows of.
        to: NodeId,
        /// The epoch of that owner. A router follows only to an epoch above the one it knows.
        epoch: OwnerEpoch,
    },
    /// The shard is being moved and accepts nothing for the moment.
    #[error("the shard is frozen while it moves: ask again in {retry_after:?}")]
    Frozen {
        /// When another attempt makes sense.
        retry_after: Duration,
    },
    /// No answer within the time the caller gave. Whether the handler ran is unknown.
    #[error(
        "no answer within {limit:?}: the request may still have taken effect; ask again if the method is idempotent"
    )]
    TimedOut {
        /// The time the caller had given.
        limit: Duration,
    },
    /// A bounded queue or window is full. The handler did not start.
    #[error("{what} is full (limit {limit}): ask again later, or raise the limit")]
    Overloaded {
        /// The queue or window that is full.
        what: String,
        /// Its bound.
        limit: u64,
    },
    /// There is no connection to the node, or it was lost before the answer came.
    #[error("node {node} cannot be reached: {reason}")]
    Unreachable {
        /// The node that was to be reached.
        node: NodeId,
        /// What happened.
        reason: String,
        /// Whether the handler can have run.
        delivery: Delivery,
    },
    /// The node understood the request and will not do it; asking again will not change that.
    #[error("refused: {reason}")]
    Refused {
        /// Why, and what would be accepted.
        reason: String,
    },
    /// The bytes are not what the protocol or the method expects.
    #[error("malformed: {reason}")]
    Malformed {
        /// What was expected and what came.
        reason: String,
    },
    /// The handler broke off (it panicked). Whether it took effect is unknown.
    #[error("the handler of {method} broke off: see the log of the node that ran it")]
    Failed {
        /// The method whose handler broke off.
        method: String,
    },
}

impl RpcError {
    /// Whether a later attempt, possibly at another node, may succeed.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Moved { .. }
            | Self::Frozen { .. }
            | Self::TimedOut { .. }
            | Self::Overloaded { .. }
            | Self::Unreachable { .. } => true,
            Self::Refused { .. } | Self::Malformed { .. } | Self::Failed { .. } => false,
        }
    }

    /// Whether the handler can have run. A method that is not idempotent is repeated only on
    /// [`Delivery::NotStarted`].
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        match self {
            Self::Moved { .. }
            | Self::Frozen { .. }
            | Self::Overloaded { .. }
            | Self::Refused { .. }
            | Self::Malformed { .. } => Delivery::NotStarted,
            Self::TimedOut { .. } | Self::Failed { .. } => Delivery::Unknown,
            Self::Unreachable { delivery, .. } => *delivery,
        }
    }

    /// Whether a router may send the request again: it can succeed, and it cannot do harm.
    #[must_use]
    pub fn may_repeat(&self, idempotent: bool) -> bool {
        self.is_retriable() && (idempotent || self.delivery() == Delivery::NotStarted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idempotent_method_is_repeated_when_it_may_have_run() {
        let unknown = RpcError::TimedOut { limit: Duration::from_secs(1) };
        assert!(unknown.may_repeat(true));
        assert!(!unknown.may_repeat(false));
        let not_started = RpcError::Frozen { retry_after: Duration::from_millis(5) };
        assert!(not_started.may_repeat(false));
        let final_word = RpcError::Refused { reason: "no such shard".into() };
        assert!(!final_word.may_repeat(true));
    }
}
