//! What the coordinator keeps: nodes, shards, roots, and the revisions at which they last changed.

use std::collections::BTreeMap;
use std::fmt;

use savanna_epoch::{LogId, NodeEpoch, NodeId, OwnerEpoch, ShardId};
use serde::{Deserialize, Serialize};

/// A point in the coordinator's history; each change has a later one. As the version of a record: the revision at which
/// it last changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// Before all history; as a version: the record does not exist.
    pub const NONE: Self = Self(0);

    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A record and the revision at which it last changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    /// What to expect in the next compare-and-set.
    pub version: Revision,
    /// The record.
    pub value: T,
}

/// One life of a process: a number that it draws at random when it starts. Tells a node that asks again from another
/// process that wants the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a process says of itself when it wants to be a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The name that it wants.
    pub name: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Where other nodes reach it, as `host:port`.
    pub address: String,
    /// Zone, instance type, services that it runs.
    pub labels: BTreeMap<String, String>,
}

/// A node under one grant of its lease. Ownership is held by tenures, not by names: the next process of the same name
/// owns nothing that it has not been granted itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tenure {
    /// The node's name.
    pub node: NodeId,
    /// Grows with each grant of the name.
    pub epoch: NodeEpoch,
}

impl fmt::Display for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.epoch)
    }
}

/// A node that holds its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name and the epoch of its grant.
    pub tenure: Tenure,
    /// The process that holds it.
    pub incarnation: Incarnation,
    /// Where other nodes reach it.
    pub address: String,
    /// As it gave them.
    pub labels: BTreeMap<String, String>,
}

/// About how many bytes a record takes besides the texts in it.
pub(crate) const RECORD_BYTES: usize = 128;

impl NodeRecord {
    /// The bytes of the texts in it.
    pub(crate) fn bytes(&self) -> usize {
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.tenure.node.0.len() + self.address.len() + labels
    }

    /// The record of a process that was granted its name under `epoch`.
    #[must_use]
    pub fn granted(spec: &NodeSpec, epoch: NodeEpoch) -> Self {
        Self {
            tenure: Tenure { node: spec.name.clone(), epoch },
            incarnation: spec.incarnation,
            address: spec.address.clone(),
            labels: spec.labels.clone(),
        }
    }
}

/// The version of a hash ring's members and weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RingVersion(pub u64);

impl fmt::Display for RingVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How often one storage tier holds a key (Anna's `R_i` and `T_i`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TierReplicas {
    /// Nodes of the tier that hold it.
    pub nodes: u16,
    /// Threads that hold it on each of these nodes.
    pub threads: u16,
}

/// Anna's replication vector: replicas per tier, the fastest tier first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicationVector(pub Vec<TierReplicas>);

/// Who serves a shard that one owner holds as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exclusive {
    /// The owner serves it.
    Serving {
        /// Who that is.
        owner: Tenure,
    },
    /// `from` still serves all of it, while its content travels to `to`, which serves nothing.
    Moving {
        /// Owner and only server.
        from: Tenure,
        /// The destination.
        to: Tenure,
    },
    /// Both serve, and the engine divides the granules between them (Zephyr's pages, Rhino's virtual nodes). The record's
    /// epoch is that of `to`, the owner; `from` keeps the one before for the granules that it has not yet given away.
    Dual {
        /// The former owner.
        from: Tenure,
        /// The owner.
        to: Tenure,
    },
}

impl Exclusive {
    /// Who owns the shard under the record's epoch.
    #[must_use]
    pub const fn owner(&self) -> &Tenure {
        match self {
            Self::Serving { owner } => owner,
            Self::Moving { from, .. } => from,
            Self::Dual { to, .. } => to,
        }
    }

    /// Everybody who may serve some of it: the owner, and in dual mode the former owner.
    #[must_use]
    pub fn servers(&self) -> Vec<&Tenure> {
        match self {
            Self::Serving { owner } => vec![owner],
            Self::Moving { from, .. } => vec![from],
            Self::Dual { from, to } => vec![from, to],
        }
    }
}

/// How a shard is owned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ownership {
    /// One owner, fenced by the record's epoch.
    Exclusive(Exclusive),
    /// Many replicas at once, placed by a ring; values merge, nothing is fenced.
    Replicated {
        /// The ring that says where the replicas are.
        ring_version: RingVersion,
        /// How many there are.
        vector: ReplicationVector,
    },
    /// The shard is gone. The record stays, so that its epochs never repeat.
    Retired,
}

/// Ownership in text has its tags inside, as the first journals wrote it. Between nodes it has them in front, where serde puts them by
/// itself: what nodes send each other does not describe itself.
mod ownership_form {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Exclusive, Ownership, ReplicationVector, RingVersion, Tenure};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "Exclusive", tag = "state", rename_all = "snake_case")]
    enum ExclusiveText {
        Serving { owner: Tenure },
        Moving { from: Tenure, to: Tenure },
        Dual { from: Tenure, to: Tenure },
    }

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "Ownership", tag = "kind", rename_all = "snake_case")]
    enum OwnershipText {
        Exclusive(#[serde(with = "ExclusiveText")] Exclusive),
        Replicated { ring_version: RingVersion, vector: ReplicationVector },
        Retired,
    }

    pub(super) fn serialize<S: Serializer>(ownership: &Ownership, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            OwnershipText::serialize(ownership, serializer)
        } else {
            ownership.serialize(serializer)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ownership, D::Error> {
        if deserializer.is_human_readable() {
            OwnershipText::deserialize(deserializer)
        } else {
            Ownership::deserialize(deserializer)
        }
    }
}

/// Where a shard's commits are that only a log has: behind the last record of `log` that says that the shard is owned under `epoch`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct History {
    /// The log.
    pub log: LogId,
    /// The shard's epoch when its owner began to write them there.
    pub epoch: OwnerEpoch,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from epoch {} on", self.log, self.epoch)
    }
}

/// The coordinator's record of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// The newest epoch ever granted for this shard; [`OwnerEpoch::NONE`] if nobody ever owned it.
    pub epoch: OwnerEpoch,
    /// Who owns it now.
    #[serde(with = "ownership_form")]
    pub ownership: Ownership,
    /// Where its unflushed commits are; none if no log has any. An owner serves only while this is the log that it appends to itself: a
    /// grant leaves it at the former owner's, until the new owner has taken over what is there.
    #[serde(default)]
    pub history: Option<History>,
}

impl ShardRecord {
    /// A record of a shard with one owner.
    #[must_use]
    pub const fn exclusive(epoch: OwnerEpoch, state: Exclusive) -> Self {
        Self { epoch, ownership: Ownership::Exclusive(state), history: None }
    }

    /// The record in which `owner` serves the shard alone.
    #[must_use]
    pub const fn serving(owner: Tenure, epoch: OwnerEpoch) -> Self {
        Self::exclusive(epoch, Exclusive::Serving { owner })
    }

    /// A record of a shard that is gone.
    #[must_use]
    pub const fn retired(epoch: OwnerEpoch) -> Self {
        Self { epoch, ownership: Ownership::Retired, history: None }
    }

    /// The bytes of the texts in it.
    pub(crate) fn bytes(&self) -> usize {
        let nodes: usize = match &self.ownership {
            Ownership::Exclusive(state) => state.servers().iter().map(|server| server.node.0.len()).sum(),
            Ownership::Replicated { vector, .. } => size_of_val(&vector.0[..]),
            Ownership::Retired => 0,
        };
        nodes + self.history.as_ref().map_or(0, |history| history.log.node.0.len() + history.log.service.len())
    }

    /// The same record with another history.
    #[must_use]
    pub fn with_history(self, history: Option<History>) -> Self {
        Self { history, ..self }
    }

    /// Who owns the shard as a whole, if anybody does.
    #[must_use]
    pub const fn owner(&self) -> Option<&Tenure> {
        match &self.ownership {
            Ownership::Exclusive(state) => Some(state.owner()),
            Ownership::Replicated { .. } | Ownership::Retired => None,
        }
    }

    /// The epoch under which `tenure` may write some of the shard: the record's for its owner, the one before it for the
    /// former owner in dual mode, none for anybody else.
    #[must_use]
    pub fn epoch_of(&self, tenure: &Tenure) -> Option<OwnerEpoch> {
        match &self.ownership {
            Ownership::Exclusive(state) if state.owner() == tenure => Some(self.epoch),
            Ownership::Exclusive(Exclusive::Dual { from, .. }) if from == tenure => {
                Some(OwnerEpoch(self.epoch.0.saturating_sub(1)))
            }
            _ => None,
        }
    }
}

/// A proposed change of a shard's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// The shard.
    pub shard: ShardId,
    /// The version of the record that the proposer saw; [`Revision::NONE`] if there was none.
    pub expected: Revision,
    /// The new record.
    pub record: ShardRecord,
    /// On whose behalf: a server that proposes to lose the shard has stopped serving it. `None` for controllers.
    pub by: Option<Tenure>,
}
