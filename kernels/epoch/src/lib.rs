//! Identifiers that cross kernels: who owns, what is owned, and under which epoch.
//!
//! Several things in streaming and storage are called *epoch*; each has its own type in Savanna. The one here is
//! [`OwnerEpoch`], the fencing number: storage refuses a writer whose epoch is older than the newest it has seen.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The fencing number of an owner. It grows by at least one each time ownership is granted; storage that has seen
/// epoch `n` refuses every write under an epoch below `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnerEpoch(pub u64);

impl OwnerEpoch {
    /// The epoch before anybody owned anything; no grant ever carries it.
    pub const NONE: Self = Self(0);

    /// The epoch of the next grant.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for OwnerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The name of a node, unique in its cluster (`dev` for the embedded node, a host name or pod name elsewhere).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub String);

impl NodeId {
    /// A node's id from its name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a shard: whatever is owned as a whole. Written as a path whose first part is the service that owns it,
/// such as `tenants/acme` or `streams/q5/stage-1/3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub String);

impl ShardId {
    /// A shard's id from its path.
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_has_a_higher_epoch_than_the_one_before() {
        assert!(OwnerEpoch::NONE.next() > OwnerEpoch::NONE);
    }
}
