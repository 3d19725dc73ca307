//! Who owns what: nodes and leases, shards and their owners, hash rings and key groups.
//!
//! Ownership is kept apart from storage. Whatever is owned as a whole is a *shard*; the [`Coordinator`](coordinator::Coordinator)
//! says which node owns it, under which [`OwnerEpoch`](savanna_epoch::OwnerEpoch), and storage refuses older epochs. A
//! node lives by one lease and stops serving *before* the lease can be granted again.
//!
//! ```text
//!  pure, always there                                   drivers, by feature
//!  ------------------                                   -------------------
//!  hash, key_group, virtual_node, ring   placement
//!  lease        LeaseClock, LeaseHolder  ---------->    keeper       renews a node's lease       (either feature)
//!  transition   allowed moves of ownership              data_dir     lease of a data directory   (`embedded`)
//!  batch        changes of several records
//!  view, logs   the records as a node knows them; which log is whose
//!  core         CoordinatorCore          ---------->    embedded     journaled, in one process   (`embedded`)
//!  coordinator  the trait                ---------->    etcd         on an etcd cluster          (`etcd`)
//!                                                       remote       another node's, over rpc    (`remote`)
//! ```
//!
//! The pure parts take the time as input and do no I/O; the simulation in `tests/` runs the same cores.

pub mod batch;
pub mod coordinator;
pub mod core;
#[cfg(feature = "embedded")]
pub mod data_dir;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod event;
pub mod guard;
pub mod hash;
#[cfg(any(feature = "embedded", feature = "etcd"))]
pub mod keeper;
pub mod key_group;
pub mod lease;
pub mod logs;
pub mod record;
#[cfg(feature = "remote")]
pub mod remote;
pub mod ring;
pub mod time;
pub mod transition;
pub mod view;
pub mod virtual_node;

pub use batch::{Batch, Expected, MAX_BATCH_RECORDS, RootChange, RootExpectation};
pub use coordinator::{ChangeStream, ClaimOutcome, Coordinator, Grant, Snapshot};
pub use error::CoordinatorError;
pub use event::{Change, Changed, RootValue};
pub use guard::{LeaseGuard, LeaseStatus};
pub use hash::stable_hash;
pub use key_group::{KEY_GROUPS, KeyGroup, KeyGroupError, KeyGroupSet, key_group_of};
pub use lease::{LeaseHolder, LeaseTerms};
pub use record::{
    Exclusive, History, Incarnation, NodeRecord, NodeSpec, Ownership, ReplicationVector, Revision, RingVersion,
    ShardRecord, Tenure, TierReplicas, Transition, Versioned,
};
pub use ring::{Direction, HashRing, RingMember, Walk};
pub use time::{BootClock, Clock, MonoTime};
pub use view::ClusterView;
pub use virtual_node::{Placement, VirtualNode, VirtualNodeError, VirtualNodes};
