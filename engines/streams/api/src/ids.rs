//! Names of queries, stages, members and epochs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A micro-batch of a query, from 1. Flock calls it EpochID. (Not the fencing epoch: that is `OwnerEpoch`.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before the first epoch: what a fresh member or sink has applied.
    pub const ZERO: Self = Self(0);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A running query: `<query code>-<job>`. The code is a hash of the statement, so that warm functions can be used
/// again; the job tells two runs of one statement apart (Flock, C4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueryId {
    /// Hash of the stage graph, 12 hexadecimal digits.
    pub code: String,
    /// Which run of it.
    pub job: u64,
}

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.code, self.job)
    }
}

/// A stage of a graph, by its position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StageId(pub u16);

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One instance of a stage's function group: the address of a payload. Printed as
/// `<query code>-<2-digit stage>-<member>` (Flock, C4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The query.
    pub query: QueryId,
    /// The stage.
    pub stage: StageId,
    /// The member within the stage's group, from 0.
    pub member: u16,
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:02}-{}", self.query.code, self.stage.0, self.member)
    }
}
