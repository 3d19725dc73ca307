//! A coordinator at another node, over rpc: [`service`] answers for any coordinator, [`RemoteCoordinator`] asks.
//!
//! A request that certainly did not begin is asked again until the patience of the asking side ends. A reply may be lost after the request was
//! carried out; then it depends:
//!
//! | request | when its outcome is not known |
//! |---|---|
//! | register, heartbeat, deregister, reads | it is asked again: the same as asked once |
//! | claim | it is asked again: a claim of the same process, at worst behind another's, as if made later |
//! | allocate | it is asked again: hands out other ids; the first ones are nobody's for ever |
//! | a batch | it is `Unavailable`, as with every coordinator |
//!
//! A batch is not asked again, for no answer to the second attempt says what became of the first: a conflict may be with itself, or with
//! what followed it; what is refused now may have been allowed before, or be once the first attempt arrives at last; and another may have written
//! the same. A coordinator that has stopped does not know what of its journal is durable: that is `Unavailable` too.
//!
//! No answer is longer than a frame of rpc: changes and snapshots come in parts of some MiB. The service keeps a snapshot until its parts were
//! asked for, so that all are of one revision, or newer ones push it out; then the asking side begins again.

mod client;
mod service;

pub use client::RemoteCoordinator;
pub use service::service;

/// The first part of the methods' names, by which a node's table of services finds [`service`].
pub const SERVICE: &str = "coordinator";

/// The methods: what they take, what they give.
mod method {
    use std::ops::Range;
    use std::time::Duration;

    use savanna_epoch::ShardId;
    use savanna_rpc::Method;
    use serde::{Deserialize, Serialize};

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
                type Request = $request;
                type Reply = Result<$reply, CoordinatorError>;
            }
        )*};
    }

    methods! {
        Register = "coordinator/register.1", true: NodeSpec => Grant;
        Claim = "coordinator/claim.1", false: NodeSpec => ClaimOutcome;
        Heartbeat = "coordinator/heartbeat.1", true: Tenure => Duration;
        Deregister = "coordinator/deregister.1", true: Tenure => ();
        ReadAll = "coordinator/snapshot.2", true: Part => SnapshotPart;
        ReadShard = "coordinator/shard.1", true: ShardId => Option<Versioned<ShardRecord>>;
        Apply = "coordinator/apply.2", false: Batch => Revision;
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

    /// Which part of a snapshot.
    #[derive(Debug, Serialize, Deserialize)]
    pub(crate) struct Part {
        /// The revision of the snapshot; none for a new one.
        pub(crate) of: Option<Revision>,
        /// How many of its records are there already.
        pub(crate) behind: usize,
    }

    /// Some records of a snapshot, in the order of its fields.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    pub(crate) struct SnapshotPart {
        pub(crate) records: Snapshot,
        /// Whether more follow.
        pub(crate) has_more: bool,
    }

    /// Which changes, and how long to wait for one.
    #[derive(Debug, Serialize, Deserialize)]
    pub(crate) struct Since {
        pub(crate) since: Revision,
        pub(crate) wait: Duration,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Debug;
    use std::sync::Arc;
    use std::time::Duration;

    use savanna_epoch::{LogId, NodeEpoch, NodeId, OwnerEpoch, ShardId};
    use savanna_rpc::{Method, decode_value, encode_value};
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::method::{
        Allocate, Apply, Claim, Deregister, Follow, Heartbeat, Ids, Part, ReadAll, ReadRoot, ReadShard, Register,
        Since, SnapshotPart,
    };
    use super::service::methods;
    use crate::batch::{Batch, Expected, RootChange, RootExpectation};
    use crate::coordinator::{ClaimOutcome, Coordinator, Grant, Snapshot};
    use crate::core::CoordinatorCore;
    use crate::embedded::{EmbeddedCoordinator, Log, LogError, LogPosition};
    use crate::error::CoordinatorError;
    use crate::event::{Change, Changed, RootValue};
    use crate::record::{
        Exclusive, History, Incarnation, NodeRecord, NodeSpec, Ownership, ReplicationVector, Revision, RingVersion,
        ShardRecord, Tenure, TierReplicas, Transition, Versioned,
    };
    use crate::time::BootClock;
    use crate::transition::TransitionError;

    fn node(name: &str) -> NodeId {
        NodeId::new(name)
    }

    fn tenure(name: &str) -> Tenure {
        Tenure { node: node(name), epoch: NodeEpoch(3) }
    }

    fn spec() -> NodeSpec {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        NodeSpec { name: node("n1"), incarnation: Incarnation(u64::MAX), address: "10.0.0.1:7400".to_owned(), labels }
    }

    fn grant() -> Grant {
        Grant { tenure: tenure("n1"), ttl: Duration::from_millis(3001) }
    }

    /// Records of each kind.
    fn records() -> Vec<ShardRecord> {
        let (from, to) = (tenure("a"), tenure("b"));
        let log = LogId::new(node("a"), 2, "tenants").unwrap();
        let vector = ReplicationVector(vec![TierReplicas { nodes: 2, threads: 1 }]);
        let states = [
            Ownership::Exclusive(Exclusive::Serving { owner: from.clone() }),
            Ownership::Exclusive(Exclusive::Moving { from: from.clone(), to: to.clone() }),
            Ownership::Exclusive(Exclusive::Dual { from, to }),
            Ownership::Replicated { ring_version: RingVersion(9), vector },
            Ownership::Retired,
        ];
        let histories = [None, Some(History { log, epoch: OwnerEpoch(7) })];
        let record = |ownership: Ownership| {
            histories.clone().map(|history| ShardRecord { epoch: OwnerEpoch(8), ownership: ownership.clone(), history })
        };
        states.into_iter().flat_map(record).collect()
    }

    /// Each error, and each reason of one.
    fn errors() -> Vec<CoordinatorError> {
        let text = |text: &str| text.to_owned();
        let (from, to) = ("Serving".into(), "Dual".into());
        let reasons = [
            TransitionError::NotAllowed { from, to },
            TransitionError::WrongEpoch {
                from: "Moving".into(),
                to: "Serving".into(),
                expected: OwnerEpoch(2),
                came: OwnerEpoch(1),
            },
            TransitionError::StillServing { server: tenure("a") },
            TransitionError::NotLiving { tenure: tenure("a") },
            TransitionError::History { expected: text("none"), came: text("n1.1/tenants from epoch 1 on") },
            TransitionError::NotOwner { owner: tenure("a") },
            TransitionError::OldRing { current: RingVersion(2), came: RingVersion(1) },
            TransitionError::LogNotHeld { log: LogId::new(node("a"), 2, "tenants").unwrap(), tenure: tenure("a") },
            TransitionError::LeftBehind { log: LogId::new(node("a"), 2, "tenants").unwrap(), former: tenure("a") },
            TransitionError::DualHistory { came: text("n1.1/tenants from epoch 1 on") },
        ];
        let mut errors = vec![
            CoordinatorError::Held { node: node("a"), tenure: Some(NodeEpoch(1)), remaining: Duration::from_secs(1) },
            CoordinatorError::Claimed { tenure: tenure("a"), by: Incarnation(4) },
            CoordinatorError::TenureOver { tenure: tenure("a") },
            CoordinatorError::Conflict { record: text("s"), expected: Revision(1), current: Revision(2) },
            CoordinatorError::Invalid { expected: text("a"), came: text("b"), advice: text("c") },
            CoordinatorError::IdsExhausted { name: text("x"), wanted: 5, left: 1 },
            CoordinatorError::Compacted { since: Revision(1), oldest: Revision(2) },
            CoordinatorError::Unavailable { reason: text("r") },
            CoordinatorError::Stopped { reason: text("r") },
            CoordinatorError::Corrupt { place: text("p"), reason: text("r") },
            CoordinatorError::OtherValue { record: text("r"), current: Revision(3) },
            CoordinatorError::Format { place: text("p"), supported: text("1"), found: text("2") },
            CoordinatorError::Refused { reason: text("r") },
        ];
        errors.extend(reasons.map(|source| CoordinatorError::Transition { shard: text("s"), source }));
        // Whoever adds one, adds it above too.
        let kind = |error: &CoordinatorError| match error {
            CoordinatorError::Held { .. } => 0,
            CoordinatorError::Claimed { .. } => 1,
            CoordinatorError::TenureOver { .. } => 2,
            CoordinatorError::Conflict { .. } => 3,
            CoordinatorError::Invalid { .. } => 4,
            CoordinatorError::IdsExhausted { .. } => 5,
            CoordinatorError::Compacted { .. } => 6,
            CoordinatorError::Unavailable { .. } => 7,
            CoordinatorError::Stopped { .. } => 8,
            CoordinatorError::Corrupt { .. } => 9,
            CoordinatorError::Transition { source, .. } => match source {
                TransitionError::NotAllowed { .. } => 10,
                TransitionError::WrongEpoch { .. } => 11,
                TransitionError::StillServing { .. } => 12,
                TransitionError::NotLiving { .. } => 13,
                TransitionError::History { .. } => 14,
                TransitionError::NotOwner { .. } => 15,
                TransitionError::OldRing { .. } => 16,
                TransitionError::LogNotHeld { .. } => 17,
                TransitionError::LeftBehind { .. } => 20,
                TransitionError::DualHistory { .. } => 21,
            },
            CoordinatorError::OtherValue { .. } => 18,
            CoordinatorError::Format { .. } => 19,
            CoordinatorError::Refused { .. } => 22,
        };
        assert_eq!(errors.iter().map(kind).collect::<BTreeSet<_>>().len(), 23);
        errors
    }

    fn changes() -> Vec<Change> {
        let mut what: Vec<Changed> =
            records().into_iter().map(|record| Changed::Shard(ShardId::new("tenants/7"), record)).collect();
        what.extend([
            Changed::NodeUp(NodeRecord::granted(&spec(), NodeEpoch(2))),
            Changed::NodeDown(node("a")),
            Changed::Root("r".to_owned(), RootValue(vec![0, 255, 10])),
            Changed::RootDeleted("r".to_owned()),
        ]);
        let kind = |what: &Changed| match what {
            Changed::Shard(..) => 0,
            Changed::NodeUp(_) => 1,
            Changed::NodeDown(_) => 2,
            Changed::Root(..) => 3,
            Changed::RootDeleted(_) => 4,
        };
        assert_eq!(what.iter().map(kind).collect::<BTreeSet<_>>().len(), 5);
        vec![Change { revision: Revision(1), what: what.clone() }, Change { revision: Revision(2), what }]
    }

    fn round_trip<T: Serialize + DeserializeOwned + Debug>(name: &str, value: &T) {
        let bytes = encode_value(name, value).unwrap();
        let read: T = decode_value(name, &bytes).unwrap_or_else(|error| panic!("{error}: {value:?}"));
        assert_eq!(format!("{read:?}"), format!("{value:?}"));
    }

    /// Lets requests and replies of a method cross, and errors in place of replies.
    fn cross<M, T>(requests: &[M::Request], replies: Vec<T>) -> &'static str
    where
        M: Method<Reply = Result<T, CoordinatorError>>,
        M::Request: Debug,
        T: Serialize + DeserializeOwned + Debug,
    {
        requests.iter().for_each(|request| round_trip(M::NAME, request));
        replies.into_iter().for_each(|reply| round_trip::<M::Reply>(M::NAME, &Ok(reply)));
        errors().into_iter().for_each(|error| round_trip::<M::Reply>(M::NAME, &Err(error)));
        M::NAME
    }

    struct NoLog;

    #[async_trait::async_trait]
    impl Log for NoLog {
        fn append(&self, _payloads: &[Vec<u8>]) -> Result<LogPosition, LogError> {
            Ok(LogPosition(1))
        }

        async fn wait_durable(&self, _position: LogPosition) -> Result<(), LogError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn everything_that_crosses_comes_as_it_was_sent() {
        let version = Revision(7);
        let root = Versioned { version, value: RootValue(vec![1, 2, 3]) };
        let shards: Vec<_> = records().into_iter().map(|value| Versioned { version, value }).collect();
        let snapshot = Snapshot {
            revision: version,
            nodes: vec![NodeRecord::granted(&spec(), NodeEpoch(1))],
            shards: shards.iter().map(|record| (ShardId::new("s"), record.clone())).collect(),
            roots: vec![("r".to_owned(), root.clone())],
        };
        let transition = |(number, record)| {
            let by = (number == 0).then(|| tenure("a"));
            Transition { shard: ShardId::new("s"), expected: Revision(number), record, by }
        };
        let batch = Batch {
            transitions: (0..).zip(records()).map(transition).collect(),
            roots: [Some(RootValue(vec![9])), None]
                .map(|value| RootChange { key: "r".to_owned(), expected: version, value })
                .into(),
            expects: [Expected::Version(version), Expected::Value(RootValue(vec![8]))]
                .map(|expected| RootExpectation { key: "s".to_owned(), expected })
                .into(),
        };
        let part = |records, has_more| SnapshotPart { records, has_more };
        let claims =
            vec![ClaimOutcome::Granted(grant()), ClaimOutcome::Pending { retry_after: Duration::from_nanos(1) }];
        let shard_replies: Vec<_> = shards.into_iter().map(Some).chain([None]).collect();
        let crossed = [
            cross::<Register, _>(&[spec()], vec![grant()]),
            cross::<Claim, _>(&[spec()], claims),
            cross::<Heartbeat, _>(&[tenure("a")], vec![Duration::MAX]),
            cross::<Deregister, _>(&[tenure("a")], vec![()]),
            cross::<ReadAll, _>(
                &[Part { of: None, behind: 0 }, Part { of: Some(version), behind: 7 }],
                vec![part(snapshot, true), part(Snapshot::default(), false)],
            ),
            cross::<ReadShard, _>(&[ShardId::new("s")], shard_replies),
            cross::<Apply, _>(&[batch], vec![version]),
            cross::<Allocate, _>(&[Ids { name: "x".to_owned(), count: 5 }], vec![1..6, 7..9]),
            cross::<ReadRoot, _>(&["r".to_owned()], vec![Some(root), None]),
            cross::<Follow, _>(&[Since { since: version, wait: Duration::from_secs(10) }], vec![changes(), Vec::new()]),
        ];
        let core = CoordinatorCore::new(Duration::from_secs(3));
        let embedded = EmbeddedCoordinator::start(core, Arc::new(NoLog), Arc::new(BootClock), None);
        let coordinator: Arc<dyn Coordinator> = Arc::new(embedded);
        let offered: BTreeSet<_> = methods(&coordinator).names().collect();
        assert_eq!(BTreeSet::from(crossed), offered, "a method whose values were not tried");
    }
}
