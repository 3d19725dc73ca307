//! Identifiers that cross kernels: who owns, what is owned, and under which epoch.
//!
//! Several things in streaming and storage are called *epoch*; each has its own type in Savanna. Those here are fencing numbers: what
//! has seen one refuses a writer with an older one. A shard moves between nodes and takes its number along ([`OwnerEpoch`]); a node's
//! own logs stay where they are ([`NodeEpoch`]). The two are never compared.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Defines a fencing number.
macro_rules! epoch {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The epoch before anybody had anything; no grant ever carries it.
            pub const NONE: Self = Self(0);

            /// The epoch of the next grant.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

epoch! {
    /// The fencing number of a shard's owner. It grows by at least one each time ownership is granted; storage that has seen
    /// epoch `n` refuses every write under an epoch below `n`. The only epoch that manifests see.
    OwnerEpoch
}

epoch! {
    /// The fencing number of a process: of a node's tenure, or of its hold on a data directory. It grows with each grant of the name or
    /// the directory. What only the node itself writes, its logs, is opened under it, whichever shards they are about.
    NodeEpoch
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

/// The name of a log: the `number`-th that a node has begun for one of its services, written `n1.2/tenants`. A name is never used again,
/// so that a log that was sealed stays what it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogId {
    /// The node that appends to it.
    pub node: NodeId,
    /// Counts the node's logs.
    pub number: u64,
    /// The service whose shards it is about.
    pub service: String,
}

impl LogId {
    /// The name of a node's log.
    ///
    /// # Errors
    /// [`LogIdError`] if it would not read back: without a node or a service, or with a slash in the service.
    pub fn new(node: NodeId, number: u64, service: impl Into<String>) -> Result<Self, LogIdError> {
        let log = Self { node, number, service: service.into() };
        if log.reads_back() { Ok(log) } else { Err(LogIdError(log.to_string())) }
    }

    /// Whether its text names this log.
    #[must_use]
    pub fn reads_back(&self) -> bool {
        self.to_string().parse().as_ref() == Ok(self)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}/{}", self.node, self.number, self.service)
    }
}

impl From<LogId> for String {
    fn from(log: LogId) -> Self {
        log.to_string()
    }
}

/// Text that names no log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogIdError(String);

impl fmt::Display for LogIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected the name of a log, such as n1.2/tenants, came `{}`", self.0)
    }
}

impl std::error::Error for LogIdError {}

impl FromStr for LogId {
    type Err = LogIdError;

    /// The node's name may hold points and slashes; number and service are behind the last ones.
    fn from_str(text: &str) -> Result<Self, LogIdError> {
        let parts = || {
            let (log, service) = text.rsplit_once('/')?;
            let (node, number) = log.rsplit_once('.')?;
            let number = number.parse().ok()?;
            let (node, service) = (NodeId::new(node), service.to_owned());
            (!node.0.is_empty() && !service.is_empty()).then_some(Self { node, number, service })
        };
        // What is written in another way (`n1.02/keys`) would be another name for the same log.
        parts().filter(|log| log.to_string() == text).ok_or_else(|| LogIdError(text.to_owned()))
    }
}

impl TryFrom<String> for LogId {
    type Error = LogIdError;

    fn try_from(text: String) -> Result<Self, LogIdError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_named_in_one_way() {
        let log = LogId::new(NodeId::new("host.example/b"), 12, "tenants").expect("it reads back");
        assert_eq!(log.to_string(), "host.example/b.12/tenants");
        assert_eq!(log.to_string().parse(), Ok(log));
        for text in
            ["", "n1", "n1.2", "n1/tenants", "n1.02/tenants", "n1.+2/tenants", ".2/tenants", "n1.2/", "n1.x/keys"]
        {
            assert!(text.parse::<LogId>().is_err(), "{text}");
        }
        for (node, service) in [("", "tenants"), ("n1", ""), ("n1", "a/b")] {
            assert!(LogId::new(NodeId::new(node), 1, service).is_err(), "{node} {service}");
        }
    }

    #[test]
    fn a_grant_has_a_higher_epoch_than_the_one_before() {
        assert!(OwnerEpoch::NONE.next() > OwnerEpoch::NONE);
    }
}
