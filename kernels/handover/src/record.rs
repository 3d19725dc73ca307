//! What both sides speak of: the move, the shard's record, and messages.

use std::fmt;

use savanna_epoch::{LogId, NodeId, OwnerEpoch};
use serde::{Deserialize, Serialize};

/// One attempt to move a shard. The source gives the number, and never the same one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MoveId(pub u64);

/// What does not change while a shard moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The attempt.
    pub id: MoveId,
    /// The owner.
    pub from: NodeId,
    /// The destination.
    pub to: NodeId,
    /// Under which the source owns the shard. The target will own it under the next one.
    pub epoch: OwnerEpoch,
    /// The source's log, which has the shard's history.
    pub log: LogId,
}

/// The shard's record, as far as a move asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// It has an owner and goes nowhere.
    Serving {
        /// Who serves it.
        owner: NodeId,
        /// Since when.
        epoch: OwnerEpoch,
        /// The log that has its history.
        log: LogId,
    },
    /// It has an owner, and may get another one.
    Moving {
        /// Who serves it.
        from: NodeId,
        /// The destination.
        to: NodeId,
        /// Since when `from` serves it.
        epoch: OwnerEpoch,
    },
}

/// A change of the record by the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It begins to move.
    Announce,
    /// The target owns it, and its history is in this log: the point of no return.
    Commit(LogId),
    /// It stays.
    GiveUp,
}

impl Handover {
    /// The record after a change.
    #[must_use]
    pub fn record(&self, change: &Change) -> Record {
        match change {
            Change::Announce => Record::Moving { from: self.from.clone(), to: self.to.clone(), epoch: self.epoch },
            Change::Commit(log) => {
                Record::Serving { owner: self.to.clone(), epoch: self.next_epoch(), log: log.clone() }
            }
            Change::GiveUp => Record::Serving { owner: self.from.clone(), epoch: self.epoch, log: self.log.clone() },
        }
    }

    /// The epoch under which the target will own the shard.
    #[must_use]
    pub fn next_epoch(&self) -> OwnerEpoch {
        OwnerEpoch(self.epoch.0 + 1)
    }
}

/// What became of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done; this is the record's version now.
    Won(u64),
    /// The record had another version.
    Lost,
    /// Nobody answered: it may have been done, or be done yet.
    Unknown,
}

/// Why a target does not take a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// It knows nothing of this move: it started anew, or gave up.
    UnknownMove,
    /// It cannot open, take or keep what came.
    Failed,
    /// It gets nothing new.
    Drained,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownMove => "it knows nothing of the move: it began anew, or gave it up",
            Self::Failed => "it cannot open, take or keep what came",
            Self::Drained => "it is drained, and gets nothing new",
        })
    }
}

/// What the source says, beside the move's number. Payloads go with it and are the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToTarget {
    /// Open the storage.
    Begin,
    /// Take this round.
    Round(u32),
    /// Make the state durable, behind so many rounds.
    Prepare(u32),
    /// The shard is yours.
    Commit,
    /// The shard stays.
    Abort,
}

impl ToTarget {
    /// What a node answers that gets nothing new: it takes nothing that is not decided yet. What is decided it is told like any other node.
    #[must_use]
    pub const fn answer_of_a_drained_node(self) -> Option<ToSource> {
        match self {
            Self::Begin | Self::Round(_) | Self::Prepare(_) => Some(ToSource::Refuse(Why::Drained)),
            Self::Commit | Self::Abort => None,
        }
    }
}

/// What the target says, beside the move's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSource {
    /// The storage is open.
    Opened,
    /// A round was taken.
    Synced(u32),
    /// Everything is durable in this log.
    Ready(LogId),
    /// It will not be.
    Refuse(Why),
    /// The shard is served, and its storage was taken over: nothing of the source is needed any more.
    Saved,
    /// What came was thrown away.
    Discarded,
}
