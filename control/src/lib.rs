//! Who decides in a cluster, and what: the shards of a node that is gone get other owners.
//!
//! Pure: no I/O, no clock, and no memory either. Everything that a decision needs is in the records that a
//! [`ClusterView`](savanna_ownership::ClusterView) holds, and in what nodes say of their load; so a controller that dies is
//! replaced by one that knows as much, and two that believe to be the only one do no harm. Every intent is a proposal at a
//! version, or something that may be repeated.
//!
//! Time does not come in there, but for how old is what a node has said: whether a node is gone is decided by its lease alone, which the coordinator ends. Which node runs that coordinator is
//! decided from what each of them sees, with a memory and the time as an input.
//!
//! * [`balance`]: when a database goes to another node because its own is busier.
//! * [`candidacy`]: when a node takes the coordinator, and when it leaves it.
//! * [`reach`]: which nodes are beyond a cut network.
//! * [`failover`]: the logs and shards of nodes that are gone.
//! * [`placement`]: which node gets a shard, of those that are gone or a new one.
//! * [`drained`]: nodes that get nothing new, as somebody wants to stop them.
//! * [`moving`]: what the node proposes that a shard leaves, and what it takes of the answers and records.
//! * [`load`]: how busy nodes are, as they say themselves.

pub mod balance;
pub mod candidacy;
pub mod drained;
pub mod failover;
pub mod load;
pub mod moving;
pub mod placement;
pub mod reach;

pub use failover::{Decision, Intent, Stuck, step, step_in_batches};
pub use load::Loads;
