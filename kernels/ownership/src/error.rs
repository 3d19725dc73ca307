//! What a coordinator answers when it cannot do what was asked.

use std::time::Duration;

use savanna_epoch::{LogId, NodeEpoch, NodeId};
use serde::{Deserialize, Serialize};

use crate::logs;
use crate::record::{Incarnation, Revision, Tenure};
use crate::transition::TransitionError;

/// A request that the coordinator did not fulfil.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CoordinatorError {
    /// Another process holds the name.
    #[error("expected the node name `{node}` to be free, but {}; stop the other process, choose another name, or claim this one", held_by(*.tenure, *.remaining))]
    Held {
        /// The name.
        node: NodeId,
        /// Under which grant it is held; `None` if it is free but claimed.
        tenure: Option<NodeEpoch>,
        /// How long its lease lasts, unless it is renewed.
        remaining: Duration,
    },
    /// The lease is not renewed because another process claimed the name.
    #[error(
        "expected to renew the lease of {tenure}, but process {by} claimed the name; stop serving when the lease runs out"
    )]
    Claimed {
        /// The grant that is not renewed.
        tenure: Tenure,
        /// Who claimed it.
        by: Incarnation,
    },
    /// The lease has run out or was given up.
    #[error("expected {tenure} to hold its lease, but it is over; stop serving and register again")]
    TenureOver {
        /// The grant that is over.
        tenure: Tenure,
    },
    /// The record has changed since it was read.
    #[error("expected `{record}` at version {expected}, came version {current}; read it again and decide anew")]
    Conflict {
        /// Which record.
        record: String,
        /// The version that the request expected, 0 for no record.
        expected: Revision,
        /// The version that it has, 0 for no record.
        current: Revision,
    },
    /// The move of ownership is not allowed.
    #[error("shard `{shard}`: {source}")]
    Transition {
        /// The shard.
        shard: String,
        /// The rule that it breaks.
        source: TransitionError,
    },
    /// A name, key or value outside of the limits.
    #[error("expected {expected}, came {came}; {advice}")]
    Invalid {
        /// What is accepted.
        expected: String,
        /// What came.
        came: String,
        /// What to do.
        advice: String,
    },
    /// The ids of a sequence are used up.
    #[error("expected {wanted} more ids of `{name}`, but only {left} are left of 2^63; use another sequence")]
    IdsExhausted {
        /// The sequence.
        name: String,
        /// How many were asked for.
        wanted: u64,
        /// How many there are.
        left: u64,
    },
    /// The changes after a revision are no longer kept.
    #[error(
        "expected changes since revision {since}, but only those after {oldest} are kept; take a snapshot and watch from its revision"
    )]
    Compacted {
        /// From where changes were asked for.
        since: Revision,
        /// The earliest revision from where they can be had.
        oldest: Revision,
    },
    /// The coordinator did not answer; the request may or may not have been carried out.
    #[error(
        "expected an answer from the coordinator, came: {reason}; the request may have been carried out: read the \
         record before you try again"
    )]
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// The coordinator of this process has stopped, because its journal failed or refused it; nothing of the request was done.
    #[error("expected a running coordinator, but it has stopped: {reason}; restart the process")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// A stored record does not make sense.
    #[error(
        "expected a record of the coordinator at `{place}`, came: {reason}; it is damaged, or a later release wrote \
         it: restore it from a backup"
    )]
    Corrupt {
        /// Where it is stored.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A root has another value than the one that a change depends on.
    #[error(
        "expected `{record}` to have the value that the change depends on, but at version {current} it has not; read it again \
         and decide anew"
    )]
    OtherValue {
        /// The root.
        record: String,
        /// The version that it has, 0 if it is not there.
        current: Revision,
    },
    /// Another release keeps its records there.
    #[error(
        "expected the coordinator's records under `{place}` in format {supported}, came format {found}; another release wrote \
         them: run that one, or choose another prefix"
    )]
    Format {
        /// Under which prefix.
        place: String,
        /// The format of this release.
        supported: String,
        /// The format that is there.
        found: String,
    },
    /// The coordinator knows who asks, or that nobody it knows does, and will not do it.
    #[error("expected to be let in by the coordinator, came: {reason}")]
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}

fn held_by(tenure: Option<NodeEpoch>, remaining: Duration) -> String {
    match tenure {
        Some(epoch) => format!("another process holds it under epoch {epoch} for {remaining:?} unless it renews"),
        None => "another process claimed it".to_owned(),
    }
}

/// The longest name or key, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// The largest value of a root, in bytes; what etcd takes in one request, less some space for the rest of it.
pub const MAX_ROOT_BYTES: usize = 1 << 20;

/// The largest description of a node (address and labels), in bytes.
pub const MAX_NODE_BYTES: usize = 16 << 10;

/// How many ids one request may take.
pub const MAX_IDS_PER_REQUEST: u64 = 1 << 32;

/// The kinds of names that requests carry, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NameOf {
    Node,
    Shard,
    Ids,
    Root,
}

impl NameOf {
    const fn text(self) -> &'static str {
        match self {
            Self::Node => "node name",
            Self::Shard => "shard",
            Self::Ids => "id sequence",
            Self::Root => "root key",
        }
    }
}

pub(crate) fn check_name(kind: NameOf, name: &str) -> Result<(), CoordinatorError> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let shown: String = name.chars().take(40).flat_map(char::escape_default).collect();
        return Err(CoordinatorError::Invalid {
            expected: format!("a {} of 1 to {MAX_NAME_BYTES} bytes without control characters", kind.text()),
            came: format!("{} bytes, `{shown}`", name.len()),
            advice: "choose another name".to_owned(),
        });
    }
    Ok(())
}

pub(crate) fn check_node(spec: &crate::record::NodeSpec) -> Result<(), CoordinatorError> {
    check_name(NameOf::Node, &spec.name.0)?;
    // Nodes greet any other by that name.
    if spec.name.0 == "*" {
        return Err(CoordinatorError::Invalid {
            expected: "the name of a node".to_owned(),
            came: "`*`, which means any node".to_owned(),
            advice: "choose another name".to_owned(),
        });
    }
    let labels: usize = spec.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    let came = spec.address.len() + labels;
    if came > MAX_NODE_BYTES {
        return Err(CoordinatorError::Invalid {
            expected: format!("at most {MAX_NODE_BYTES} bytes of address and labels for node `{}`", spec.name),
            came: format!("{came} bytes"),
            advice: "shorten the labels".to_owned(),
        });
    }
    Ok(())
}

pub(crate) fn check_root(key: &str, value: &[u8]) -> Result<(), CoordinatorError> {
    check_name(NameOf::Root, key)?;
    if let Some(name) = key.strip_prefix(logs::PREFIX)
        && name.parse::<LogId>().is_err()
    {
        return Err(CoordinatorError::Invalid {
            expected: format!(
                "a root that begins with `{}` to be named after a log, such as n1.2/tenants",
                logs::PREFIX
            ),
            came: format!("`{name}`"),
            advice: "choose another key".to_owned(),
        });
    }
    if value.len() > MAX_ROOT_BYTES {
        return Err(CoordinatorError::Invalid {
            expected: format!("at most {MAX_ROOT_BYTES} bytes for root `{key}`"),
            came: format!("{} bytes", value.len()),
            advice: "keep the bytes in the engine's own store and their location here".to_owned(),
        });
    }
    Ok(())
}

/// The range of ids that follows `next`, and what follows the range.
pub(crate) fn next_ids(name: &str, next: u64, count: u64) -> Result<std::ops::Range<u64>, CoordinatorError> {
    check_name(NameOf::Ids, name)?;
    if count == 0 || count > MAX_IDS_PER_REQUEST {
        return Err(CoordinatorError::Invalid {
            expected: format!("between 1 and {MAX_IDS_PER_REQUEST} ids of `{name}` at once"),
            came: count.to_string(),
            advice: "ask for fewer, more often".to_owned(),
        });
    }
    let left = (1_u64 << 63).saturating_sub(next);
    if count > left {
        return Err(CoordinatorError::IdsExhausted { name: name.to_owned(), wanted: count, left });
    }
    Ok(next..next + count)
}

/// The first id of every sequence: 0 stays free for "none".
pub(crate) const FIRST_ID: u64 = 1;
