//! What the core is asked and what it answers.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::coordinator::{ClaimOutcome, Grant};
use crate::error::CoordinatorError;
use crate::event::Entry;
use crate::record::{NodeSpec, Revision, Tenure};

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
    /// See [`Coordinator::apply`](crate::coordinator::Coordinator::apply).
    Apply(Batch),
    /// See [`Coordinator::allocate`](crate::coordinator::Coordinator::allocate).
    Allocate {
        /// The sequence.
        name: String,
        /// How many ids.
        count: u64,
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
    /// To `Apply`: the new version of all records in the batch.
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
