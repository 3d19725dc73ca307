//! Changes of several records at once.

use std::collections::BTreeSet;

use savanna_epoch::ShardId;
use serde::{Deserialize, Serialize};

use crate::error::{CoordinatorError, MAX_ROOT_BYTES, NameOf, check_name, check_root};
use crate::event::RootValue;
use crate::record::{Revision, Transition};

/// How many records one batch may change: with the nodes that they name, etcd compares twice as many in one transaction.
pub const MAX_BATCH_RECORDS: usize = 64;

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

/// Changes that happen together, at one revision, or not at all. Each is checked against the records as they are before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Of shards.
    pub transitions: Vec<Transition>,
    /// Of roots.
    pub roots: Vec<RootChange>,
}

impl From<Transition> for Batch {
    fn from(transition: Transition) -> Self {
        Self { transitions: vec![transition], roots: Vec::new() }
    }
}

impl From<RootChange> for Batch {
    fn from(root: RootChange) -> Self {
        Self { transitions: Vec::new(), roots: vec![root] }
    }
}

/// Checks what can be checked without any record.
pub(crate) fn check_batch(batch: &Batch) -> Result<(), CoordinatorError> {
    let invalid = |expected: String, came: String, advice: &str| {
        Err(CoordinatorError::Invalid { expected, came, advice: advice.to_owned() })
    };
    let records = batch.transitions.len() + batch.roots.len();
    if records == 0 || records > MAX_BATCH_RECORDS {
        let expected = format!("a batch of 1 to {MAX_BATCH_RECORDS} changes");
        return invalid(expected, records.to_string(), "make several batches of it");
    }
    let mut shards: BTreeSet<&ShardId> = BTreeSet::new();
    for Transition { shard, .. } in &batch.transitions {
        check_name(NameOf::Shard, &shard.0)?;
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
    for RootChange { key, value, .. } in &batch.roots {
        let value = value.as_ref().map_or(&[][..], |value| &value.0);
        check_root(key, value)?;
        bytes += value.len();
        if !keys.insert(key) {
            return invalid("each root once in a batch".to_owned(), format!("`{key}` twice"), "make one change of it");
        }
    }
    if bytes > MAX_ROOT_BYTES {
        let expected = format!("at most {MAX_ROOT_BYTES} bytes of values in a batch");
        return invalid(expected, format!("{bytes} bytes"), "make several batches of it");
    }
    Ok(())
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
