//! Changes of several records at once.

use std::collections::BTreeSet;

use savanna_epoch::ShardId;
use serde::{Deserialize, Serialize};

use crate::error::{CoordinatorError, MAX_ROOT_BYTES, NameOf, check_name, check_root};
use crate::event::RootValue;
use crate::logs;
use crate::record::{History, Ownership, Revision, ShardRecord, Transition};

/// How many records one batch may change and expect: with the nodes and logs that they name, etcd compares twice as many in one transaction.
pub const MAX_BATCH_RECORDS: usize = 64;

/// How many bytes the names in one batch may have. etcd gets each up to three times, and takes 1.5 MiB with the values.
const MAX_BATCH_NAME_BYTES: usize = 128 << 10;

/// A proposed change of a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootChange {
    /// Its key.
    pub key: String,
    /// The version that the proposer saw; [`Revision::NONE`] if there was none.
    pub expected: Revision,
    /// The new value; none to delete it.
    pub value: Option<RootValue>,
}

/// A root that a batch depends on and does not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootExpectation {
    /// Its key.
    pub key: String,
    /// What it has to be.
    pub expected: Expected,
}

/// What a root has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    /// At this version; [`Revision::NONE`]: not there.
    Version(Revision),
    /// There, with this value, since whenever.
    Value(RootValue),
}

/// Changes that happen together, at one revision, or not at all. Each is checked against the records as they are before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Of shards.
    pub transitions: Vec<Transition>,
    /// Of roots.
    pub roots: Vec<RootChange>,
    /// Other roots that have to be as the proposer believes.
    pub expects: Vec<RootExpectation>,
}

impl Batch {
    /// Whether it writes or deletes a root.
    pub(crate) fn changes_root(&self, key: &str) -> bool {
        self.roots.iter().any(|change| change.key == key)
    }
}

impl From<Transition> for Batch {
    fn from(transition: Transition) -> Self {
        Self { transitions: vec![transition], ..Self::default() }
    }
}

impl From<RootChange> for Batch {
    fn from(root: RootChange) -> Self {
        Self { roots: vec![root], ..Self::default() }
    }
}

/// Checks what can be checked without any record.
pub(crate) fn check_batch(batch: &Batch) -> Result<(), CoordinatorError> {
    let invalid = |expected: String, came: String, advice: &str| {
        Err(CoordinatorError::Invalid { expected, came, advice: advice.to_owned() })
    };
    let changes = batch.transitions.len() + batch.roots.len();
    let records = changes + batch.expects.len();
    if changes == 0 || records > MAX_BATCH_RECORDS {
        let expected = format!("a batch of at least one change, and at most {MAX_BATCH_RECORDS} records");
        return invalid(expected, format!("{changes} changes of {records} records"), "make several batches of it");
    }
    let mut shards: BTreeSet<&ShardId> = BTreeSet::new();
    for Transition { shard, record, .. } in &batch.transitions {
        check_name(NameOf::Shard, &shard.0)?;
        check_record(shard, record)?;
        if !shards.insert(shard) {
            return invalid(
                "each shard once in a batch".to_owned(),
                format!("`{shard}` twice"),
                "make one change of it",
            );
        }
    }
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    let mut bytes = 0;
    let changed = batch.roots.iter().map(|change| (&change.key, change.value.as_ref()));
    let expected = batch.expects.iter().map(|expects| match &expects.expected {
        Expected::Version(_) => (&expects.key, None),
        Expected::Value(value) => (&expects.key, Some(value)),
    });
    for (key, value) in changed.chain(expected) {
        let value = value.map_or(&[][..], |value| &value.0);
        check_root(key, value)?;
        bytes += value.len();
        if !keys.insert(key) {
            return invalid("each root once in a batch".to_owned(), format!("`{key}` twice"), "make one change of it");
        }
    }
    let names: usize =
        batch.transitions.iter().map(names_in).sum::<usize>() + keys.iter().map(|key| key.len()).sum::<usize>();
    if names > MAX_BATCH_NAME_BYTES {
        let expected = format!("at most {MAX_BATCH_NAME_BYTES} bytes of names in a batch");
        return invalid(expected, format!("{names} bytes"), "make several batches of it");
    }
    if bytes > MAX_ROOT_BYTES {
        let expected = format!("at most {MAX_ROOT_BYTES} bytes of values in a batch");
        return invalid(expected, format!("{bytes} bytes"), "make several batches of it");
    }
    Ok(())
}

/// The bytes of the names in a change.
fn names_in(change: &Transition) -> usize {
    let by = change.by.as_ref().map_or(0, |by| by.node.0.len());
    change.shard.0.len() + change.record.bytes() + by
}

/// The most tiers that a replication vector may name.
const MAX_TIERS: usize = 16;

/// Checks that the parts of a record are of bounded length and read back.
fn check_record(shard: &ShardId, record: &ShardRecord) -> Result<(), CoordinatorError> {
    if let Some(History { log, .. }) = &record.history {
        check_root(&logs::key(log), &[])?;
        if !log.reads_back() {
            return Err(CoordinatorError::Invalid {
                expected: format!("the name of a log in the history of `{shard}`, such as n1.2/tenants"),
                came: format!("`{log}`"),
                advice: "name a log that was begun".to_owned(),
            });
        }
    }
    match &record.ownership {
        Ownership::Replicated { vector, .. } if vector.0.len() > MAX_TIERS => Err(CoordinatorError::Invalid {
            expected: format!("at most {MAX_TIERS} tiers in the replication vector of `{shard}`"),
            came: vector.0.len().to_string(),
            advice: "name only the tiers that there are".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Fails unless a root is what a batch expects.
pub(crate) fn expect_root(
    current: Option<(Revision, &[u8])>,
    expectation: &RootExpectation,
) -> Result<(), CoordinatorError> {
    let version = current.map(|(version, _)| version);
    match &expectation.expected {
        Expected::Version(expected) => expect_version(version, *expected, &expectation.key),
        Expected::Value(expected) if current.is_some_and(|(_, value)| value == expected.0) => Ok(()),
        Expected::Value(_) => Err(CoordinatorError::OtherValue {
            record: expectation.key.clone(),
            current: version.unwrap_or(Revision::NONE),
        }),
    }
}

/// Fails unless a record is at the version that the proposer saw.
pub(crate) fn expect_version(
    current: Option<Revision>,
    expected: Revision,
    record: &str,
) -> Result<(), CoordinatorError> {
    let current = current.unwrap_or(Revision::NONE);
    if current == expected {
        Ok(())
    } else {
        Err(CoordinatorError::Conflict { record: record.to_owned(), expected, current })
    }
}

/// As [`expect_version`], and a root that does not exist cannot be deleted.
pub(crate) fn expect_root_version(current: Option<Revision>, change: &RootChange) -> Result<(), CoordinatorError> {
    if current.is_none() && change.value.is_none() {
        let (record, expected) = (change.key.clone(), change.expected);
        return Err(CoordinatorError::Conflict { record, expected, current: Revision::NONE });
    }
    expect_version(current, change.expected, &change.key)
}
