//! Groups of keys that are at several nodes, for one program: G-Store's key groups, gone with what they were made for.
//!
//! The node that has the first virtual node of the keys leads. It borrows the keys of one virtual node after the other, in ascending order, runs the
//! program as if all were here, and says in its log what is written, in one record with its own changes: that is the commit. Then each of the others
//! is told what is written of its keys, and they are free again.
//!
//! ```text
//!  leader: has 3                   has 7                      has 9
//!   │ hold its own keys              │                          │
//!   │ Lend ─────────────────────────►│ hold; Lent in the log    │
//!   │◄───────────── number, values ──│                          │
//!   │ Lend ────────────────────────────────────────────────────►│ hold; Lent in the log
//!   │◄──────────────────────────────────────── number, values ──│
//!   │ run; Committed in the log      │                          │
//!   │ Return, by its number ────────►│ write; Returned; free    │
//!   │ Return, by its number ───────────────────────────────────►│ write; Returned; free
//!   │ Ended in the log               │                          │
//! ```
//!
//! A group of which no log says that it is committed has not happened. So whoever has lent keys frees them when it is told so by whoever has the virtual
//! node that leads, and by nothing else: that node's log, or the sealed log out of which it took that virtual node, has every commit.
//!
//! | what may come late, or twice | what it does |
//! |---|---|
//! | `Lend` of keys that are lent to the group | the same answer, with the same number |
//! | `Lend` behind the end of its group | lends keys to nobody; they are free when the leader is asked |
//! | `Return` by the number of an earlier loan | nothing |
//! | `Return` without a number, of a group that was given up | frees what was lent to it, or was to be |
//! | `Lent` by another number than the one that was heard first | nothing |
//!
//! [`leader`] and [`follower`] decide, without I/O and clock; [`Records`] is what the log keeps of both.

pub mod follower;
pub mod leader;
#[cfg(test)]
mod races;
mod records;

use savanna_lattice::Hlc;
use serde::{Deserialize, Serialize};

pub use self::records::{Commit, Lend, Owed, Records};

/// A group. None has the identity of another one that ever was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// The first virtual node of its keys: whoever has it knows what became of the group.
    pub node: u16,
    /// Of the service that leads it, by chance: one that begins anew counts from 1 again.
    pub life: u64,
    /// Its number at the actor that leads it.
    pub number: u64,
}

/// The keys of one virtual node that a group has, or wants.
pub type Unit = (GroupId, u16);

/// What nodes ask each other about groups. Each may be asked any number of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupRequest {
    /// A group is to have these keys of a virtual node, all or none.
    Lend {
        /// The group.
        group: GroupId,
        /// The virtual node.
        node: u16,
        /// The keys.
        keys: Vec<Box<[u8]>>,
        /// Whether it may need more memory.
        needs_room: bool,
    },
    /// A group has ended: its keys of a virtual node are free.
    Return {
        /// The group.
        group: GroupId,
        /// The virtual node.
        node: u16,
        /// The number under which they were lent, if the group is committed; one that was given up may not know it.
        number: Option<Hlc>,
        /// Where `writes` begin among all that is written of these keys.
        from: u64,
        /// Whether they are the last.
        is_last: bool,
        /// Deltas: whole values, and deletions. They may be cut anywhere.
        writes: Vec<u8>,
    },
    /// Whoever has lent keys wants to know what became of the group.
    Ask {
        /// The group.
        group: GroupId,
        /// The virtual node of the keys.
        node: u16,
        /// The number under which they were lent.
        number: Hlc,
    },
}

impl GroupRequest {
    /// The virtual node whose owner is asked.
    #[must_use]
    pub const fn to(&self) -> u16 {
        match self {
            Self::Lend { node, .. } | Self::Return { node, .. } => *node,
            Self::Ask { group, .. } => group.node,
        }
    }

    /// Whether what it leads to depends on what its sender has in the log.
    #[must_use]
    pub const fn says_something(&self) -> bool {
        matches!(self, Self::Return { .. })
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupReply {
    /// The keys are the group's.
    Lent {
        /// The number of the loan.
        number: Hlc,
        /// The values of those that are there, as deltas.
        values: Vec<u8>,
        /// Whether there is memory for what may be added to them.
        has_room: bool,
    },
    /// It was asked again meanwhile: that is answered.
    Waits,
    /// Somebody waits for all keys: the group is to give up what it has, and to begin anew.
    Busy,
    /// So many bytes of what is written have come, and are kept until the last have.
    Has(u64),
    /// The keys are free, or were not the group's any more.
    Returned,
    /// It goes on.
    Pending,
    /// Nothing became of it, as far as that loan goes: the keys are free.
    Void,
    /// It cannot be done.
    Refused(String),
}
