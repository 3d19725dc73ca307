//! What the core is asked and what it answers.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::coordinator::{ClaimOutcome, Grant};
use crate::error::CoordinatorError;
use crate::event::{Entry, RootValue};
use crate::record::{NodeSpec, Revision, Tenure, Transition};

/// A request that may change something. (Reads are methods of the core.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// See [`Coordinator::register`](crate::coordinator::Coordinator::register).
    Register(NodeSpec),
    /// See [`Coordinator::claim`](crate::coordinator::Coordinator::claim).
    Claim(NodeSpec),
    /// See [`EmbeddedCoordinator::reside`](crate::embedded::EmbeddedCoordinator::reside).
    Reside(NodeSpec),
    /// See [`Coordinator::heartbeat`](crate::coordinator::Coordinator::heartbeat).
    Heartbeat(Tenure),
    /// See [`Coordinator::deregister`](crate::coordinator::Coordinator::deregister).
    Deregister(Tenure),
    /// See [`Coordinator::transition`](crate::coordinator::Coordinator::transition).
    Transition(Transition),
    /// See [`Coordinator::allocate`](crate::coordinator::Coordinator::allocate).
    Allocate {
        /// The sequence.
        name: String,
        /// How many ids.
        count: u64,
    },
    /// See [`Coordinator::put_root`](crate::coordinator::Coordinator::put_root).
    PutRoot {
        /// The key.
        key: String,
        /// Its version.
        expected: Revision,
        /// The new value.
        value: RootValue,
    },
    /// See [`Coordinator::delete_root`](crate::coordinator::Coordinator::delete_root).
    DeleteRoot {
        /// The key.
        key: String,
        /// Its version.
        expected: Revision,
    },
    /// Nothing but the passing of time: ends leases that have run out.
    Tick,
}

/// The answer to a request that was fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To `Register`.
    Granted(Grant),
    /// To `Claim` and `Reside`.
    Claim(ClaimOutcome),
    /// To `Heartbeat`: the ttl.
    Renewed(Duration),
    /// To `Deregister` and `Tick`.
    Done,
    /// To `Transition`, `PutRoot`, `DeleteRoot`: the record's new version.
    Changed(Revision),
    /// To `Allocate`.
    Ids(Range<u64>),
}

/// What a step decided. The entries are applied already, also when the reply is a refusal (leases may have run out).
#[derive(Clone, Debug)]
pub struct Step {
    /// For the requester, once everything up to and including `entries` is durable.
    pub reply: Result<Reply, CoordinatorError>,
    /// For the journal, in this order.
    pub entries: Vec<Entry>,
}
