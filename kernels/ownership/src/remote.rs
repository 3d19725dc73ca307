//! A coordinator at another node, over rpc: [`service`] answers for any coordinator, [`RemoteCoordinator`] asks.
//!
//! A reply may be lost after the request was carried out. The asking side then asks again until its patience ends, which is safe for
//! each request in its own way:
//!
//! | request | asked again |
//! |---|---|
//! | register, heartbeat, deregister, reads | is the same as asked once |
//! | claim | is a claim of the same process: at worst it comes behind another's, as if made later |
//! | allocate | hands out other ids; the first ones are nobody's for ever |
//! | a batch | conflicts with itself; if its records are what was proposed, all since one revision, that was done |
//!
//! The last line holds although another may have proposed the same: the records are then as both wanted them.

mod client;
mod service;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use client::RemoteCoordinator;
pub use service::service;

/// The first part of the methods' names, by which a node's table of services finds [`service`].
pub const SERVICE: &str = "coordinator";

/// A value that crosses as JSON, which the coordinator's records are written for: their tags are inside, and rpc's own encoding does not
/// describe itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> Serialize for Json<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Json<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map(Self).map_err(D::Error::custom)
    }
}

/// The methods: what they take, what they give.
mod method {
    use std::ops::Range;
    use std::time::Duration;

    use savanna_epoch::ShardId;
    use savanna_rpc::Method;
    use serde::{Deserialize, Serialize};

    use super::Json;
    use crate::batch::Batch;
    use crate::coordinator::{ClaimOutcome, Grant, Snapshot};
    use crate::error::CoordinatorError;
    use crate::event::{Change, RootValue};
    use crate::record::{NodeSpec, Revision, ShardRecord, Tenure, Versioned};

    macro_rules! methods {
        ($($name:ident = $text:literal, $idempotent:literal: $request:ty => $reply:ty;)*) => {$(
            #[derive(Debug)]
            pub(crate) struct $name;

            impl Method for $name {
                const NAME: &'static str = $text;
                const IDEMPOTENT: bool = $idempotent;
                type Request = Json<$request>;
                type Reply = Json<Result<$reply, CoordinatorError>>;
            }
        )*};
    }

    methods! {
        Register = "coordinator/register.1", true: NodeSpec => Grant;
        Claim = "coordinator/claim.1", false: NodeSpec => ClaimOutcome;
        Heartbeat = "coordinator/heartbeat.1", true: Tenure => Duration;
        Deregister = "coordinator/deregister.1", true: Tenure => ();
        ReadAll = "coordinator/snapshot.1", true: () => Snapshot;
        ReadShard = "coordinator/shard.1", true: ShardId => Option<Versioned<ShardRecord>>;
        Apply = "coordinator/apply.1", false: Batch => Revision;
        Allocate = "coordinator/allocate.1", false: Ids => Range<u64>;
        ReadRoot = "coordinator/root.1", true: String => Option<Versioned<RootValue>>;
        Follow = "coordinator/changes.1", true: Since => Vec<Change>;
    }

    /// How many ids of which sequence.
    #[derive(Debug, Serialize, Deserialize)]
    pub(crate) struct Ids {
        pub(crate) name: String,
        pub(crate) count: u64,
    }

    /// Which changes, and how long to wait for one.
    #[derive(Debug, Serialize, Deserialize)]
    pub(crate) struct Since {
        pub(crate) since: Revision,
        pub(crate) wait: Duration,
    }
}
