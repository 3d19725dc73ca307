//! The coordinator's journaled facts, and the part of them that watchers see.
//!
//! A journal payload is one [`Entry`] as JSON: `{"revision":7,"event":"ids_allocated","name":"tenants","next":101}`. The
//! text form costs little, as entries are rare, and later versions can add fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use savanna_epoch::{NodeId, ShardId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::batch::{Batch, RootChange};
use crate::record::{Incarnation, NodeRecord, RECORD_BYTES, Revision, ShardRecord, Tenure, Transition};

/// Something that happened, at its place in history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// One more than the entry before.
    pub revision: Revision,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Why a tenure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenureEnd {
    /// The lease ran out.
    Expired,
    /// The node gave it up.
    Deregistered,
}

/// A fact that the core's state is made of. For journals; nodes send each other [`Change`]s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A node got its name.
    NodeGranted {
        /// Under which tenure, and what it said of itself.
        node: NodeRecord,
        /// Whether it is the process that the coordinator itself runs in.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        resident: bool,
    },
    /// A node lost its name.
    NodeEnded {
        /// The tenure that is over.
        tenure: Tenure,
        /// Why.
        reason: TenureEnd,
    },
    /// A process claimed a name that another holds; the latest claim counts.
    ClaimPlaced {
        /// The name.
        node: NodeId,
        /// Who wants it.
        claimant: Incarnation,
    },
    /// A shard has a new record.
    ShardChanged {
        /// The shard.
        shard: ShardId,
        /// Its record.
        record: ShardRecord,
    },
    /// Ids were handed out.
    IdsAllocated {
        /// The sequence.
        name: String,
        /// The first id that has not been handed out.
        next: u64,
    },
    /// A root was written, or deleted.
    RootChanged {
        /// Its key.
        key: String,
        /// Its value; none if it was deleted.
        value: Option<RootValue>,
    },
    /// Several shards and roots changed together.
    BatchApplied {
        /// The new records of shards.
        shards: Vec<(ShardId, ShardRecord)>,
        /// The values of roots; none of one that was deleted.
        roots: Vec<(String, Option<RootValue>)>,
    },
}

impl Event {
    /// That a batch was applied; of a single change as version 0.1 wrote it.
    pub(crate) fn of(batch: &Batch) -> Self {
        let shard = |change: &Transition| (change.shard.clone(), change.record.clone());
        let root = |change: &RootChange| (change.key.clone(), change.value.clone());
        match (&batch.transitions[..], &batch.roots[..]) {
            ([change], []) => {
                let (shard, record) = shard(change);
                Self::ShardChanged { shard, record }
            }
            ([], [change]) => {
                let (key, value) = root(change);
                Self::RootChanged { key, value }
            }
            (shards, roots) => Self::BatchApplied {
                shards: shards.iter().map(shard).collect(),
                roots: roots.iter().map(root).collect(),
            },
        }
    }
}

/// The bytes of a root, opaque to the coordinator. In JSON: base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RootValue(pub Vec<u8>);

impl Serialize for RootValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&BASE64.encode(&self.0))
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for RootValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            BASE64.decode(String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
        } else {
            Vec::deserialize(deserializer).map(Self)
        }
    }
}

/// A change that caches follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// When it happened; ascending in a watch.
    pub revision: Revision,
    /// All that changed then: one thing, unless it was a batch.
    pub what: Vec<Changed>,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// A node got its name.
    NodeUp(NodeRecord),
    /// A name is held by nobody any more.
    NodeDown(NodeId),
    /// A shard has a new record.
    Shard(ShardId, ShardRecord),
    /// A root was written.
    Root(String, RootValue),
    /// A root was deleted.
    RootDeleted(String),
}

impl Changed {
    fn root(key: &str, value: Option<&RootValue>) -> Self {
        match value {
            Some(value) => Self::Root(key.to_owned(), value.clone()),
            None => Self::RootDeleted(key.to_owned()),
        }
    }
}

impl Changed {
    /// About how many bytes it takes, here and between nodes.
    fn bytes(&self) -> usize {
        match self {
            Self::NodeUp(node) => node.bytes(),
            Self::NodeDown(NodeId(name)) | Self::RootDeleted(name) => name.len(),
            Self::Shard(shard, record) => shard.0.len() + record.bytes(),
            Self::Root(key, value) => key.len() + value.0.len(),
        }
    }
}

impl Change {
    /// About how many bytes it takes, here and between nodes.
    pub(crate) fn bytes(&self) -> usize {
        self.what.iter().map(|what| RECORD_BYTES + what.bytes()).sum()
    }
}

impl Entry {
    /// What watchers see of this entry, if anything: claims and id ranges are nobody else's business.
    #[must_use]
    pub fn change(&self) -> Option<Change> {
        let what = match &self.event {
            Event::NodeGranted { node, .. } => vec![Changed::NodeUp(node.clone())],
            Event::NodeEnded { tenure, .. } => vec![Changed::NodeDown(tenure.node.clone())],
            Event::ShardChanged { shard, record } => vec![Changed::Shard(shard.clone(), record.clone())],
            Event::RootChanged { key, value } => vec![Changed::root(key, value.as_ref())],
            Event::BatchApplied { shards, roots } => {
                let shards = shards.iter().map(|(shard, record)| Changed::Shard(shard.clone(), record.clone()));
                shards.chain(roots.iter().map(|(key, value)| Changed::root(key, value.as_ref()))).collect()
            }
            Event::ClaimPlaced { .. } | Event::IdsAllocated { .. } => return None,
        };
        Some(Change { revision: self.revision, what })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use savanna_epoch::{LogId, NodeEpoch, OwnerEpoch};

    use super::*;
    use crate::record::{Exclusive, History, Ownership, ReplicationVector, RingVersion, TierReplicas};

    /// What version 0.1 wrote, before shards had a history and changes came in batches. A later version must read these lines.
    const FIXTURE_0_1: &str = include_str!("../fixtures/journal-0.1.jsonl");
    /// What version 0.2 writes. A later version must read these lines; add new ones, never change one.
    const FIXTURE: &str = include_str!("../fixtures/journal-0.2.jsonl");

    /// All kinds that version 0.1 knew.
    fn entries_of_0_1() -> Vec<Entry> {
        let tenure = |node: &str, epoch| Tenure { node: NodeId::new(node), epoch: NodeEpoch(epoch) };
        let shard = |ownership| Event::ShardChanged {
            shard: ShardId::new("tenants/acme"),
            record: ShardRecord { epoch: OwnerEpoch(2), ownership, history: None },
        };
        let (from, to) = (tenure("n1", 3), tenure("n2", 1));
        let events = vec![
            Event::NodeGranted {
                node: NodeRecord {
                    tenure: from.clone(),
                    incarnation: Incarnation(u64::MAX),
                    address: "10.0.0.1:7400".to_owned(),
                    labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
                },
                resident: false,
            },
            Event::NodeEnded { tenure: from.clone(), reason: TenureEnd::Expired },
            Event::NodeEnded { tenure: from.clone(), reason: TenureEnd::Deregistered },
            Event::ClaimPlaced { node: NodeId::new("n1"), claimant: Incarnation(7) },
            shard(Ownership::Exclusive(Exclusive::Serving { owner: from.clone() })),
            shard(Ownership::Exclusive(Exclusive::Moving { from: from.clone(), to: to.clone() })),
            shard(Ownership::Exclusive(Exclusive::Dual { from, to })),
            shard(Ownership::Replicated {
                ring_version: RingVersion(9),
                vector: ReplicationVector(vec![TierReplicas { nodes: 1, threads: 1 }]),
            }),
            shard(Ownership::Retired),
            Event::IdsAllocated { name: "tenants".to_owned(), next: 101 },
            Event::RootChanged { key: "catalog".to_owned(), value: Some(RootValue(vec![0, 255, 10])) },
            Event::RootChanged { key: "catalog".to_owned(), value: None },
        ];
        (1..).zip(events).map(|(revision, event)| Entry { revision: Revision(revision), event }).collect()
    }

    fn entries() -> Vec<Entry> {
        let mut entries = entries_of_0_1();
        let owner = Tenure { node: NodeId::new("n1"), epoch: NodeEpoch(3) };
        let log = LogId::new(owner.node.clone(), 2, "tenants").unwrap();
        let history = Some(History { log, epoch: OwnerEpoch(7) });
        let record = ShardRecord::serving(owner, OwnerEpoch(8)).with_history(history);
        let events = vec![
            Event::ShardChanged { shard: ShardId::new("tenants/7"), record: record.clone() },
            Event::BatchApplied {
                shards: vec![
                    (ShardId::new("tenants/7"), record),
                    (ShardId::new("tenants/8"), ShardRecord::retired(OwnerEpoch(1))),
                ],
                roots: vec![
                    ("logs/n1.2/tenants".to_owned(), Some(RootValue(vec![1, 2, 3]))),
                    ("catalog".to_owned(), None),
                ],
            },
        ];
        let first = entries.len() as u64 + 1;
        entries.extend((first..).zip(events).map(|(revision, event)| Entry { revision: Revision(revision), event }));
        entries
    }

    fn read(lines: &str) -> Vec<Entry> {
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn entries_of_version_0_1_are_read() {
        assert_eq!(read(FIXTURE_0_1), entries_of_0_1());
    }

    #[test]
    fn entries_are_written_as_version_0_2_wrote_them_and_read_back() {
        let written: Vec<String> = entries().iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        assert_eq!(written, FIXTURE.lines().collect::<Vec<_>>(), "written:\n{}", written.join("\n"));
        assert_eq!(read(FIXTURE), entries());
    }

    #[test]
    fn watchers_see_all_of_a_batch_at_once() {
        let change = entries().pop().unwrap().change().unwrap();
        assert_eq!((change.revision, change.what.len()), (Revision(14), 4));
    }

    #[test]
    fn watchers_do_not_see_claims_and_id_ranges() {
        let hidden = entries().iter().filter(|entry| entry.change().is_none()).count();
        assert_eq!(hidden, 2);
    }
}
