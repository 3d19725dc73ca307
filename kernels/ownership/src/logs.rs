//! The logs of a cluster: who appends to which, where it is, and whether it has ended.
//!
//! The root `logs/<node>.<n>/<service>` holds a [`LogRecord`]. Each arrow is a function of what is known, which gives the change to
//! propose; the coordinator refuses it if the record has changed since.
//!
//! ```text
//!                          take_over: a later tenure of the same node
//!                                     ┌──┐
//!            begin                    ▼  │        seal: the holder's tenure is over                remove: no record names it
//!  nothing ─────────► Open, held by X@t ─┘ ──────────────────────────────────────► Sealed, X@t ─────────────────────────► nothing
//! ```
//!
//! Names come from [`NewLog`], which takes a number that no other log of the node ever has: a log that was removed is not mistaken for a later one.
//!
//! The record changes first, and the log itself after it: whoever opens a log for appending has taken over its record before, and
//! whoever seals it has sealed its record before, so that of a node that comes back and a controller that gives its shards
//! away one has lost before either touches the log. The history of a shard is set to a log only while its record says that it is open and its
//! new owner's ([`check_transition`](crate::transition::check_transition)); so that of a sealed log, it is known for ever which shards it has
//! commits of: those that name it, and never one more. What a view says of a tenure that it has met is final once it is over,
//! so that an old view errs on the side of refusing.

use std::collections::BTreeMap;
use std::ops::Range;

use savanna_epoch::{LogId, NodeEpoch, NodeId, ShardId};
use serde::{Deserialize, Serialize};

use crate::batch::RootChange;
use crate::coordinator::Coordinator;
use crate::error::CoordinatorError;
use crate::event::RootValue;
use crate::record::{Revision, Tenure};
use crate::view::ClusterView;

/// What all keys of these roots begin with.
pub const PREFIX: &str = "logs/";

/// Where a log is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogPlace {
    /// In a folder of the cluster's shared data directory, by its path there.
    Folder(String),
    /// In the cluster's object store, under this prefix.
    Prefix(String),
    /// On the node's own disk, where only the node itself can seal and read it.
    Private(String),
}

/// Whether a log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    /// Its holder may append.
    Open,
    /// Nothing is ever added to it.
    Sealed,
}

/// The coordinator's record of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogRecord {
    /// Where it is.
    pub place: LogPlace,
    /// Who alone may append to it, under the epoch of this tenure.
    pub holder: Tenure,
    /// Whether it goes on.
    pub state: LogState,
}

impl LogRecord {
    /// The epoch under which the log is sealed: above the one of its holder, which it fences.
    #[must_use]
    pub const fn seal_epoch(&self) -> NodeEpoch {
        self.holder.epoch.next()
    }
}

/// Why a log's record cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogRecordError {
    /// There is no such log.
    #[error("expected a record of log {log}, but there is none; it was removed, or never begun")]
    Unknown {
        /// The log.
        log: LogId,
    },
    /// A log belongs to the node in its name.
    #[error("expected a running node to hold log {log}, which it is named after and has not held later, came {tenure}")]
    NotHolder {
        /// The log.
        log: LogId,
        /// Who was to hold it.
        tenure: Tenure,
    },
    /// Its holder may be appending.
    #[error(
        "expected the holder of log {log} to have lost its lease, but {holder} has it; wait until its lease runs out"
    )]
    InUse {
        /// The log.
        log: LogId,
        /// Who holds it.
        holder: Tenure,
    },
    /// It has ended.
    #[error("expected an open log, but {log} is sealed; begin another one")]
    Sealed {
        /// The log.
        log: LogId,
    },
    /// It may be appended to.
    #[error("expected a sealed log, but {log} is open; seal it first")]
    Open {
        /// The log.
        log: LogId,
    },
    /// Shards have commits in it.
    #[error("expected that no shard has commits in log {log}, but {shard} has; its owner takes them over first")]
    Named {
        /// The log.
        log: LogId,
        /// One of them.
        shard: ShardId,
    },
    /// The root holds something else.
    #[error("expected a record of a log at root `{key}`, came: {reason}; it is damaged, or a later release wrote it")]
    Corrupt {
        /// The root.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The name of a log that is to begin: nobody had it before, and nobody gets it again.
#[derive(Debug, PartialEq, Eq)]
pub struct NewLog(LogId);

impl NewLog {
    /// A name for a log of a node's service.
    ///
    /// # Errors
    /// `Invalid` for a service that no log can be named after, and the errors of [`Coordinator::allocate`].
    pub async fn allocate(
        coordinator: &dyn Coordinator,
        node: &NodeId,
        service: &str,
    ) -> Result<Self, CoordinatorError> {
        // Numbers are not used up by a name that cannot be.
        Self::numbered(node, service, &(1..2))?;
        Self::numbered(node, service, &coordinator.allocate(&Self::sequence(node), 1).await?)
    }

    /// The sequence that the numbers of a node's logs come from.
    #[must_use]
    pub fn sequence(node: &NodeId) -> String {
        format!("{PREFIX}{node}")
    }

    /// The name with the first of the numbers that [`NewLog::sequence`] gave.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn numbered(node: &NodeId, service: &str, numbers: &Range<u64>) -> Result<Self, CoordinatorError> {
        LogId::new(node.clone(), numbers.start, service).map(Self).map_err(|error| CoordinatorError::Invalid {
            expected: "a node and a service that a log can be named after".to_owned(),
            came: format!("node `{node}` and service `{service}`: {error}"),
            advice: "choose a service without a slash".to_owned(),
        })
    }

    /// The name.
    #[must_use]
    pub const fn id(&self) -> &LogId {
        &self.0
    }
}

/// The key of a log's root.
#[must_use]
pub fn key(log: &LogId) -> String {
    format!("{PREFIX}{log}")
}

/// A log's record and its version, if there is one.
///
/// # Errors
/// `Corrupt`.
pub fn get(view: &ClusterView, log: &LogId) -> Result<Option<(Revision, LogRecord)>, LogRecordError> {
    let key = key(log);
    view.root(&key).map(|root| Ok((root.version, decode(&key, &root.value)?))).transpose()
}

/// All logs.
///
/// # Errors
/// `Corrupt`.
pub fn all(view: &ClusterView) -> Result<BTreeMap<LogId, LogRecord>, LogRecordError> {
    each(view).map(|(log, record)| Ok((log?, record?))).collect()
}

/// The records of all logs that can be read, and why the others cannot be.
pub fn readable(view: &ClusterView) -> (BTreeMap<LogId, LogRecord>, Vec<LogRecordError>) {
    let (mut readable, mut unreadable) = (BTreeMap::new(), Vec::new());
    for (log, record) in each(view) {
        match (log, record) {
            (Ok(log), Ok(record)) => drop(readable.insert(log, record)),
            (Err(error), _) | (_, Err(error)) => unreadable.push(error),
        }
    }
    (readable, unreadable)
}

/// The names and the records of all logs, as far as they can be read.
pub fn each(
    view: &ClusterView,
) -> impl Iterator<Item = (Result<LogId, LogRecordError>, Result<LogRecord, LogRecordError>)> {
    view.roots(PREFIX).map(|(key, root)| {
        let corrupt = |error: savanna_epoch::LogIdError| LogRecordError::Corrupt {
            key: key.to_owned(),
            reason: error.to_string(),
        };
        (key[PREFIX.len()..].parse::<LogId>().map_err(corrupt), decode(key, &root.value))
    })
}

/// The shards that have commits in a log.
pub fn shards_in<'v>(view: &'v ClusterView, log: &'v LogId) -> impl Iterator<Item = &'v ShardId> {
    view.shards("")
        .filter(move |(_, record)| record.value.history.as_ref().is_some_and(|history| history.log == *log))
        .map(|(shard, _)| shard)
}

/// A new log of the node that `holder` is.
///
/// # Errors
/// `NotHolder`.
pub fn begin(view: &ClusterView, log: NewLog, place: LogPlace, holder: Tenure) -> Result<RootChange, LogRecordError> {
    let NewLog(log) = log;
    expect_holder(view, &log, None, &holder)?;
    Ok(change(&log, Revision::NONE, Some(&LogRecord { place, holder, state: LogState::Open })))
}

/// The log of a node that has come back goes on under its new tenure.
///
/// # Errors
/// `Unknown`, `Sealed`, `NotHolder`.
pub fn take_over(view: &ClusterView, log: &LogId, holder: Tenure) -> Result<RootChange, LogRecordError> {
    let (version, record) = known(view, log)?;
    expect_open(log, &record)?;
    expect_holder(view, log, Some(&record.holder), &holder)?;
    Ok(change(log, version, Some(&LogRecord { holder, ..record })))
}

/// The log of a node that is gone ends. Then, and only then, it is sealed itself, under [`LogRecord::seal_epoch`].
///
/// # Errors
/// `Unknown`, `Sealed` (which a repeated attempt may take for success), `InUse`.
pub fn seal(view: &ClusterView, log: &LogId) -> Result<RootChange, LogRecordError> {
    let (version, record) = known(view, log)?;
    expect_open(log, &record)?;
    if view.lives(&record.holder) {
        return Err(LogRecordError::InUse { log: log.clone(), holder: record.holder });
    }
    Ok(change(log, version, Some(&LogRecord { state: LogState::Sealed, ..record })))
}

/// A sealed log that no shard needs is forgotten, and its name with it for ever. The log itself goes first: what is without a record is never found again.
///
/// # Errors
/// `Unknown`, `Open`, `Named`.
pub fn remove(view: &ClusterView, log: &LogId) -> Result<RootChange, LogRecordError> {
    let (version, record) = known(view, log)?;
    if record.state != LogState::Sealed {
        return Err(LogRecordError::Open { log: log.clone() });
    }
    match shards_in(view, log).next() {
        Some(shard) => Err(LogRecordError::Named { log: log.clone(), shard: shard.clone() }),
        None => Ok(change(log, version, None)),
    }
}

/// Whether a log's root says that it is open and a tenure's.
pub(crate) fn is_held(root: Option<&[u8]>, holder: &Tenure) -> bool {
    let record = root.and_then(|value| serde_json::from_slice::<LogRecord>(value).ok());
    record.is_some_and(|record| record.state == LogState::Open && record.holder == *holder)
}

fn known(view: &ClusterView, log: &LogId) -> Result<(Revision, LogRecord), LogRecordError> {
    get(view, log)?.ok_or_else(|| LogRecordError::Unknown { log: log.clone() })
}

fn expect_open(log: &LogId, record: &LogRecord) -> Result<(), LogRecordError> {
    match record.state {
        LogState::Open => Ok(()),
        LogState::Sealed => Err(LogRecordError::Sealed { log: log.clone() }),
    }
}

/// Checks that a tenure may hold a log, after `former`.
fn expect_holder(
    view: &ClusterView,
    log: &LogId,
    former: Option<&Tenure>,
    holder: &Tenure,
) -> Result<(), LogRecordError> {
    let is_later = former.is_none_or(|former| former.epoch < holder.epoch);
    if log.node == holder.node && is_later && view.lives(holder) {
        Ok(())
    } else {
        Err(LogRecordError::NotHolder { log: log.clone(), tenure: holder.clone() })
    }
}

fn change(log: &LogId, expected: Revision, record: Option<&LogRecord>) -> RootChange {
    let encode = |record| serde_json::to_vec(record).expect("records of logs have no failing parts");
    RootChange { key: key(log), expected, value: record.map(|record| RootValue(encode(record))) }
}

fn decode(key: &str, value: &RootValue) -> Result<LogRecord, LogRecordError> {
    serde_json::from_slice(&value.0)
        .map_err(|error| LogRecordError::Corrupt { key: key.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use savanna_epoch::OwnerEpoch;

    use super::*;
    use crate::core::{CoordinatorCore, Reply, Request};
    use crate::record::{History, Incarnation, NodeSpec, ShardRecord, Transition};
    use crate::time::MonoTime;

    /// A coordinator and the view of it.
    struct Cluster(CoordinatorCore);

    impl Cluster {
        fn new() -> Self {
            Self(CoordinatorCore::new(Duration::from_secs(3600)))
        }

        fn node(&mut self, name: &str, incarnation: u64) -> Tenure {
            let spec = NodeSpec {
                name: NodeId::new(name),
                incarnation: Incarnation(incarnation),
                address: String::new(),
                labels: BTreeMap::new(),
            };
            match self.0.step(&Request::Register(spec), MonoTime(0)).reply {
                Ok(Reply::Granted(grant)) => grant.tenure,
                other => panic!("expected a grant, came {other:?}"),
            }
        }

        fn end(&mut self, tenure: &Tenure) {
            self.0.step(&Request::Deregister(tenure.clone()), MonoTime(0)).reply.unwrap();
        }

        fn view(&self) -> ClusterView {
            ClusterView::new(self.0.snapshot())
        }

        fn apply(&mut self, change: RootChange) -> bool {
            self.0.step(&Request::Apply(change.into()), MonoTime(0)).reply.is_ok()
        }

        /// The next number of the node's logs.
        fn new_log(&mut self, node: &str) -> NewLog {
            let node = NodeId::new(node);
            let allocate = Request::Allocate { name: NewLog::sequence(&node), count: 1 };
            match self.0.step(&allocate, MonoTime(0)).reply {
                Ok(Reply::Ids(numbers)) => NewLog::numbered(&node, "tenants", &numbers).unwrap(),
                other => panic!("expected numbers, came {other:?}"),
            }
        }

        /// Begins the next log of the node that `holder` is.
        fn begin(&mut self, holder: &Tenure) -> LogId {
            let new = self.new_log(&holder.node.0);
            let log = new.id().clone();
            let begun = begin(&self.view(), new, place(), holder.clone()).unwrap();
            assert!(self.apply(begun.clone()) && !self.apply(begun));
            log
        }

        fn own(&mut self, shard: &str, record: ShardRecord, by: Option<&Tenure>) {
            let shard = ShardId::new(shard);
            let expected = self.0.shard(&shard).map_or(Revision::NONE, |record| record.version);
            let transition = Transition { shard, expected, record, by: by.cloned() };
            self.0.step(&Request::Apply(transition.into()), MonoTime(0)).reply.unwrap();
        }
    }

    fn log(number: u64) -> LogId {
        LogId::new(NodeId::new("n1"), number, "tenants").unwrap()
    }

    fn place() -> LogPlace {
        LogPlace::Folder("logs/n1.1/tenants".to_owned())
    }

    #[test]
    fn a_record_is_written_as_version_0_2_wrote_it_and_read_back() {
        let record = LogRecord {
            place: place(),
            holder: Tenure { node: NodeId::new("n1"), epoch: NodeEpoch(4) },
            state: LogState::Sealed,
        };
        let text = r#"{"place":{"folder":"logs/n1.1/tenants"},"holder":{"node":"n1","epoch":4},"state":"sealed"}"#;
        let written = change(&log(1), Revision(3), Some(&record));
        assert_eq!(written.key, "logs/n1.1/tenants");
        assert_eq!(written.value, Some(RootValue(text.as_bytes().to_vec())));
        assert_eq!(decode("", &written.value.unwrap()), Ok(record));
        assert!(matches!(decode("", &RootValue::default()), Err(LogRecordError::Corrupt { .. })));
    }

    #[test]
    fn a_log_is_begun_and_taken_over_by_its_own_node_alone() {
        let mut cluster = Cluster::new();
        let (first, other) = (cluster.node("n1", 1), cluster.node("n2", 1));
        let not_holder = |result| matches!(result, Err(LogRecordError::NotHolder { .. }));
        let of_another = NewLog(log(1));
        assert!(not_holder(begin(&cluster.view(), of_another, place(), other.clone())));
        assert_eq!(cluster.begin(&first), log(1));
        assert!(not_holder(take_over(&cluster.view(), &log(1), first.clone())), "it has it");
        assert!(not_holder(take_over(&cluster.view(), &log(1), other)));
        cluster.end(&first);
        let second = cluster.node("n1", 2);
        assert!(not_holder(take_over(&cluster.view(), &log(1), first)), "its tenure is over");
        let taken = take_over(&cluster.view(), &log(1), second.clone()).unwrap();
        assert!(cluster.apply(taken));
        let (_, record) = get(&cluster.view(), &log(1)).unwrap().unwrap();
        assert_eq!(record, LogRecord { place: place(), holder: second, state: LogState::Open });
        assert_eq!(record.seal_epoch(), NodeEpoch(3));
    }

    #[test]
    fn of_a_node_that_comes_back_and_a_controller_that_seals_one_has_lost() {
        for node_first in [true, false] {
            let mut cluster = Cluster::new();
            let first = cluster.node("n1", 1);
            cluster.begin(&first);
            assert!(matches!(seal(&cluster.view(), &log(1)), Err(LogRecordError::InUse { .. })));
            cluster.end(&first);
            let sealing = seal(&cluster.view(), &log(1)).unwrap();
            let second = cluster.node("n1", 2);
            let taking = take_over(&cluster.view(), &log(1), second.clone()).unwrap();
            let (won, lost) = if node_first { (taking, sealing) } else { (sealing, taking) };
            assert!(cluster.apply(won) && !cluster.apply(lost));
            let again = (take_over(&cluster.view(), &log(1), second), seal(&cluster.view(), &log(1)));
            if node_first {
                assert!(matches!(again, (Err(LogRecordError::NotHolder { .. }), Err(LogRecordError::InUse { .. }))));
            } else {
                assert!(matches!(again, (Err(LogRecordError::Sealed { .. }), Err(LogRecordError::Sealed { .. }))));
            }
        }
    }

    #[test]
    fn a_log_is_removed_when_it_is_sealed_and_no_shard_has_commits_in_it() {
        let mut cluster = Cluster::new();
        let (n1, n2) = (cluster.node("n1", 1), cluster.node("n2", 1));
        let unknown = remove(&cluster.view(), &log(1));
        assert!(matches!(unknown, Err(LogRecordError::Unknown { .. })));
        cluster.begin(&n1);
        let own = cluster.begin(&n2);
        let history = |log, epoch| Some(History { log, epoch: OwnerEpoch(epoch) });
        let at = |owner: &Tenure, epoch, history| {
            ShardRecord::serving(owner.clone(), OwnerEpoch(epoch)).with_history(history)
        };
        cluster.own("tenants/1", at(&n1, 1, None), None);
        cluster.own("tenants/1", at(&n1, 1, history(log(1), 1)), Some(&n1));
        assert!(matches!(remove(&cluster.view(), &log(1)), Err(LogRecordError::Open { .. })));
        cluster.end(&n1);
        let sealing = seal(&cluster.view(), &log(1)).unwrap();
        assert!(cluster.apply(sealing));
        assert!(matches!(remove(&cluster.view(), &log(1)), Err(LogRecordError::Named { .. })));
        cluster.own("tenants/1", at(&n2, 2, history(log(1), 1)), None);
        assert_eq!(shards_in(&cluster.view(), &log(1)).collect::<Vec<_>>(), [&ShardId::new("tenants/1")]);
        assert!(matches!(remove(&cluster.view(), &log(1)), Err(LogRecordError::Named { .. })));
        cluster.own("tenants/1", at(&n2, 2, history(own, 2)), Some(&n2));
        assert_eq!(all(&cluster.view()).unwrap().len(), 2);
        let removed = remove(&cluster.view(), &log(1)).unwrap();
        assert!(cluster.apply(removed));
        assert_eq!(
            all(&cluster.view()).unwrap().into_keys().collect::<Vec<_>>(),
            [LogId::new(n2.node, 1, "tenants").unwrap()]
        );
        // The name does not come again.
        let n1 = cluster.node("n1", 2);
        assert_eq!(cluster.begin(&n1), log(2));
    }

    #[test]
    fn a_service_that_no_log_can_be_named_after_is_refused() {
        for (node, service) in [("n1", "a/b"), ("n1", ""), ("", "tenants")] {
            let error = NewLog::numbered(&NodeId::new(node), service, &(1..2)).unwrap_err();
            assert!(matches!(error, CoordinatorError::Invalid { .. }), "{error}");
        }
        // Nor is there a root that looks like a log's and is none.
        let mut cluster = Cluster::new();
        let value = Some(RootValue::default());
        assert!(!cluster.apply(RootChange { key: "logs/a".to_owned(), expected: Revision::NONE, value }));
    }
}
