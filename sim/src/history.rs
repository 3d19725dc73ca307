//! What was done and told in a run, in the order of true time.

use std::time::Duration;

use savanna_epoch::{NodeId, OwnerEpoch};

/// A client's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// The client's number.
    pub client: usize,
    /// The operation's number there.
    pub number: u64,
}

/// A register operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Sets the register to a value that is unique in the run.
    Write(u64),
    /// Reads the register.
    Read,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged; with the value for a read (0: never written).
    Ok(u64),
    /// It certainly had no effect.
    NotDone(String),
    /// It may have had an effect, or may have one later.
    Unknown(String),
}

/// What an actor tells the simulation; none of it is visible to other actors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A client begins an operation.
    Invoked {
        /// Which.
        op: OpId,
        /// The register's shard.
        shard: usize,
        /// The register.
        key: u32,
        /// What it does.
        kind: OpKind,
    },
    /// A client's operation has ended.
    Returned {
        /// Which.
        op: OpId,
        /// How.
        outcome: Outcome,
    },
    /// An owner lets an acknowledgement of a write leave the process.
    Acknowledged {
        /// The shard.
        shard: usize,
        /// The owner's epoch.
        epoch: OwnerEpoch,
        /// The value written.
        value: u64,
    },
    /// An owner lets the answer to a read leave the process.
    Answered {
        /// The shard.
        shard: usize,
        /// The owner's epoch.
        epoch: OwnerEpoch,
        /// The value read.
        value: u64,
    },
    /// An owner took a shard over and read its log back.
    Recovered {
        /// The shard.
        shard: usize,
        /// The new owner's epoch.
        epoch: OwnerEpoch,
        /// All values in the log.
        values: Vec<u64>,
    },
    /// A log cannot be read back.
    Unreadable {
        /// The shard.
        shard: usize,
        /// The journal's words.
        reason: String,
    },
    /// The process ends itself, with the reason.
    Exits(String),
}

/// Something told, by whom and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// True time.
    pub at: Duration,
    /// Who; the world itself for the recovery at the end.
    pub node: NodeId,
    /// The node's life.
    pub incarnation: u64,
    /// What.
    pub what: What,
}

/// Another name for [`Told`], as checkers read it.
pub type What = Told;

/// All events of a run.
pub type History = Vec<Event>;
