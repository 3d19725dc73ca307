//! The two numbers of a transaction: what it is called, and where it stands in the order of commits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A commit sequence number: the place of an update in the one serial order of its database. Commits are numbered 1, 2,
/// 3, ..; `Csn(0)` is the state before the first. A number whose commit was given up is never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Csn(pub u64);

impl Csn {
    /// Before the first commit.
    pub const NONE: Self = Self(0);

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Csn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A transaction while it lives. Later ones have higher numbers; numbers begin again when the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxnId(pub u64);

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Somebody who holds locks over the ends of transactions, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HolderId(pub(crate) TxnId);
