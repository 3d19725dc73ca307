//! Tenants in the coordinator's records: which there are, who serves each under which epoch, and what is to be removed from the storage.
//!
//! ```text
//! shard  tenants/NUMBER         who serves the tenant, and which log has commits of it; retired when it was removed
//! root   tenant-names/NAME      {"number":7}, the tenant of that name
//! root   tenant-garbage/NUMBER  {"state":"removed"}, or {"state":"reserved","by":..} for one that is being restored: what the storage has is
//!                               to go, of a reserved one when that tenure is over
//! root   tenant-logs/LOG        {"end":300}, where the log ended at least
//! root   tenant-hosts/NODE      {"node":"n1","epoch":3}, the tenure under which the node serves tenants: it has opened its log
//! root   tenant-numbers         {"carried":9}: numbers up to here were given before there were records of tenants
//! root   tenant-store           whose storage this is: see `storage::claim`
//! ids    tenants                numbers that nobody was given yet
//! ```
//!
//! Each change is one batch: a name is never there without its shard, nor a shard retired while its name is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use savanna_epoch::{LogId, OwnerEpoch, ShardId};
use savanna_ownership::{
    Batch, ClusterView, Coordinator, CoordinatorError, History, Revision, RootChange, RootValue, ShardRecord, Tenure,
    Transition, Versioned,
    logs::{self, LogPlace, LogRecord, LogRecordError, LogState, NewLog},
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::SqlError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The service in the names of logs, and in those of shards.
const SERVICE: &str = "tenants";
const SHARDS: &str = "tenants/";
const NAMES: &str = "tenant-names/";
const GARBAGE: &str = "tenant-garbage/";
const LOGS: &str = "tenant-logs/";
const HOSTS: &str = "tenant-hosts/";
const NUMBERS: &str = "tenant-numbers";
/// The epoch under which a tenant is made.
pub const FIRST_EPOCH: OwnerEpoch = OwnerEpoch::NONE.next();
/// After this time a coordinator that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Batches that are under way beside each other.
const BATCHES: usize = 16;

/// What comes of reading or changing records.
pub(crate) type ShardsResult<T> = Result<T, ShardsError>;

/// Why the records of tenants could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ShardsError {
    /// The coordinator did not do what it was asked.
    #[error("the coordinator did not change or read the records of tenants: {0}")]
    Coordinator(#[from] CoordinatorError),
    /// The record of the log.
    #[error("the log of tenants cannot be held: {0}")]
    Log(#[from] LogRecordError),
    /// A root has something else.
    #[error("expected a record of tenants at root `{key}`, came: {reason}; it is damaged, or a later release wrote it")]
    Corrupt {
        /// The root.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl From<ShardsError> for SqlError {
    fn from(error: ShardsError) -> Self {
        Self::new("58000", error.to_string())
    }
}

/// What the name of a tenant says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) number: TenantId,
}

/// Why what the storage has of a number is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Garbage {
    /// The tenant was removed.
    Removed,
    /// A tenant is being restored under the number, as long as this tenure lasts.
    Reserved { by: Tenure },
}

/// How far a log came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogNote {
    pub(crate) end: u64,
}

/// Numbers that were given before there were records of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbers {
    pub(crate) carried: TenantId,
}

/// The shard of a tenant.
#[must_use]
pub fn shard(tenant: TenantId) -> ShardId {
    ShardId::new(format!("{SHARDS}{tenant}"))
}

pub(crate) fn name_key(name: &str) -> String {
    format!("{NAMES}{name}")
}

pub(crate) fn garbage_key(tenant: TenantId) -> String {
    format!("{GARBAGE}{tenant}")
}

pub(crate) fn log_key(log: &LogId) -> String {
    format!("{LOGS}{log}")
}

/// A root that is to have a value.
pub(crate) fn put(key: String, expected: Revision, value: &impl Serialize) -> RootChange {
    let value = serde_json::to_vec(value).expect("records of tenants have no failing parts");
    RootChange { key, expected, value: Some(RootValue(value)) }
}

/// A root that is to go.
pub(crate) const fn delete(key: String, expected: Revision) -> RootChange {
    RootChange { key, expected, value: None }
}

/// The root that says which numbers were given before.
pub(crate) fn put_numbers(numbers: Numbers) -> RootChange {
    put(NUMBERS.to_owned(), Revision::NONE, &numbers)
}

pub(crate) fn decode<T: DeserializeOwned>(key: &str, value: &RootValue) -> Result<T, ShardsError> {
    serde_json::from_slice(&value.0)
        .map_err(|error| ShardsError::Corrupt { key: key.to_owned(), reason: error.to_string() })
}

/// The number that a shard or a root is named after.
fn number(name: &str, prefix: &str) -> Result<TenantId, ShardsError> {
    let digits = name.strip_prefix(prefix).unwrap_or(name);
    digits.parse().map_err(|_| ShardsError::Corrupt {
        key: name.to_owned(),
        reason: format!("expected the number of a tenant, came `{digits}`"),
    })
}

/// What could be read; that the rest could not is told.
fn told<T>(read: Result<T, ShardsError>) -> Option<T> {
    read.inspect_err(tell_unreadable).ok()
}

/// Tells that a record cannot be read, once as long as that is so for the same reason. One record keeps nobody from the others.
pub fn tell_unreadable(error: &impl Display) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let error = error.to_string();
    if TOLD.lock().insert(error.clone()) {
        tracing::error!(error, "a record is left out; what it is about stays as it is");
    }
}

/// All tenants that there are or were, as far as their records can be read.
pub fn tenants(view: &ClusterView) -> BTreeMap<TenantId, &Versioned<ShardRecord>> {
    view.shards(SHARDS).filter_map(|(shard, record)| Some((told(number(&shard.0, SHARDS))?, record))).collect()
}

/// The names of tenants that can be read, with the versions of their roots.
pub fn names(view: &ClusterView) -> BTreeMap<TenantId, (String, Revision)> {
    let named = |(key, root): (&str, &Versioned<RootValue>)| {
        let Named { number } = decode(key, &root.value)?;
        Ok((number, (key[NAMES.len()..].to_owned(), root.version)))
    };
    view.roots(NAMES).filter_map(|root| told(named(root))).collect()
}

/// Numbers of which the storage may have something that is to go. What cannot be read stays.
pub(crate) fn garbage(view: &ClusterView) -> BTreeMap<TenantId, (Garbage, Revision)> {
    let noted = |(key, root): (&str, &Versioned<RootValue>)| {
        Ok((number(key, GARBAGE)?, (decode(key, &root.value)?, root.version)))
    };
    view.roots(GARBAGE).filter_map(|root| told(noted(root))).collect()
}

/// Which numbers were given before there were records; none if nobody has looked yet.
pub(crate) fn numbers(view: &ClusterView) -> Result<Option<Numbers>, ShardsError> {
    view.root(NUMBERS).map(|root| decode(NUMBERS, &root.value)).transpose()
}

/// Where a log ended at least, if it was noted.
pub(crate) fn log_note(view: &ClusterView, log: &LogId) -> Result<Option<(LogNote, Revision)>, ShardsError> {
    let key = log_key(log);
    view.root(&key).map(|root| Ok((decode(&key, &root.value)?, root.version))).transpose()
}

/// Whether there are records of tenants, or somebody has yet to look what a former release kept instead.
///
/// # Errors
/// `Corrupt`.
pub fn are_kept(view: &ClusterView) -> Result<bool, ShardsError> {
    Ok(numbers(view)?.is_some())
}

/// The log that a tenure has begun, and where it is: there is one at most.
#[must_use]
pub fn own_log(view: &ClusterView, tenure: &Tenure) -> Option<(LogId, LogPlace)> {
    // What a node keeps for itself is none of the engine's.
    let is_own = |log: &LogId, record: &LogRecord| {
        log.service == SERVICE
            && record.holder == *tenure
            && record.state == LogState::Open
            && !matches!(record.place, LogPlace::Private(_))
    };
    let own = logs::readable(view).0.into_iter().find(|(log, record)| is_own(log, record));
    own.map(|(log, record)| (log, record.place))
}

/// The logs of tenants at a place.
///
/// # Errors
/// That the record of a log cannot be read that may be one of them.
fn logs_at(view: &ClusterView, place: &LogPlace) -> Result<BTreeMap<LogId, LogRecord>, LogRecordError> {
    let mut there = BTreeMap::new();
    for (log, record) in logs::each(view) {
        let log = log?;
        if log.service == SERVICE {
            let record = record?;
            if record.place == *place {
                there.insert(log, record);
            }
        }
    }
    Ok(there)
}

/// Whether a tenure serves tenants: others may be granted to it.
#[must_use]
pub fn is_ready(view: &ClusterView, tenure: &Tenure) -> bool {
    let root = view.root(&host_key(tenure));
    root.is_some_and(|root| serde_json::from_slice::<Tenure>(&root.value.0).is_ok_and(|ready| ready == *tenure))
}

/// Says that a tenure serves tenants.
#[must_use]
pub fn say_ready(view: &ClusterView, tenure: &Tenure) -> RootChange {
    let key = host_key(tenure);
    let expected = view.root(&key).map_or(Revision::NONE, |root| root.version);
    put(key, expected, tenure)
}

/// Says that a tenure serves no tenants any more; nothing if that is said.
#[must_use]
pub fn say_closed(view: &ClusterView, tenure: &Tenure) -> Option<RootChange> {
    let key = host_key(tenure);
    view.root(&key).filter(|_| is_ready(view, tenure)).map(|root| delete(key.clone(), root.version))
}

fn host_key(tenure: &Tenure) -> String {
    format!("{HOSTS}{}", tenure.node)
}

/// The tenant that a shard is; none if it is another kind of shard.
#[must_use]
pub fn tenant_of(shard: &ShardId) -> Option<TenantId> {
    shard.0.strip_prefix(SHARDS)?.parse().ok()
}

/// All tenants that there are, by name, as far as their records can be read.
#[must_use]
pub fn by_name(view: &ClusterView) -> BTreeMap<String, TenantId> {
    names(view).into_iter().map(|(tenant, (name, _))| (name, tenant)).collect()
}

/// The tenant of a name, as far as the view knows.
///
/// # Errors
/// `Corrupt`.
pub fn named(view: &ClusterView, name: &str) -> Result<Option<TenantId>, ShardsError> {
    let key = name_key(name);
    view.root(&key).map(|root| Ok(decode::<Named>(&key, &root.value)?.number)).transpose()
}

/// The tenant of a name as the coordinator knows it now, and since which revision.
///
/// # Errors
/// Those of the coordinator, and `Corrupt`.
pub async fn look_up(coordinator: &dyn Coordinator, name: &str) -> Result<Option<(TenantId, Revision)>, ShardsError> {
    let key = name_key(name);
    let Some(root) = coordinator.root(&key).await? else { return Ok(None) };
    Ok(Some((decode::<Named>(&key, &root.value)?.number, root.version)))
}

/// What removes the note of where a log ended, which is to be removed itself; nothing if there is none.
#[must_use]
pub fn forget_end(view: &ClusterView, log: &LogId) -> Option<RootChange> {
    let key = log_key(log);
    view.root(&key).map(|root| delete(key.clone(), root.version))
}

/// Asks until the coordinator answers.
pub(crate) async fn answered<T, A: Future<Output = Result<T, CoordinatorError>>>(
    ask: impl Fn() -> A,
) -> Result<T, CoordinatorError> {
    loop {
        match ask().await {
            Err(CoordinatorError::Unavailable { reason }) => {
                tracing::warn!(reason, "the coordinator did not answer; it is asked again");
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// A node that serves tenants, as their records know it.
#[derive(Clone)]
pub struct Member {
    /// Keeps the records.
    pub coordinator: Arc<dyn Coordinator>,
    /// The node's tenure, under which it serves.
    pub tenure: Tenure,
    /// The log that has the commits of its tenants.
    pub log: LogId,
    /// What the same log was called when other nodes had it, whose tenures are over.
    pub before: Vec<LogId>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { coordinator: _, tenure, log, before: _ } = self;
        f.debug_struct("Member").field("tenure", tenure).field("log", log).finish_non_exhaustive()
    }
}

impl Member {
    /// Takes over the log of tenants at a place, or begins one there. To be done before the log is opened: if it was another node's, that
    /// node's right to it ends here.
    ///
    /// # Errors
    /// Those of the coordinator, and if somebody who lives holds a log at the place.
    pub async fn join(coordinator: Arc<dyn Coordinator>, tenure: Tenure, place: LogPlace) -> Result<Self, ShardsError> {
        loop {
            let view = ClusterView::new(answered(|| coordinator.snapshot()).await?);
            let (own, before): (Vec<_>, Vec<_>) = logs_at(&view, &place)?
                .into_iter()
                .partition(|(log, record)| log.node == tenure.node && record.state == LogState::Open);
            let (log, change) = match own.into_iter().next_back() {
                Some((log, record)) if record.holder == tenure => (log, None),
                Some((log, _)) => {
                    let change = logs::take_over(&view, &log, tenure.clone())?;
                    (log, Some(change))
                }
                None => {
                    let new = answered(|| NewLog::allocate(&*coordinator, &tenure.node, SERVICE)).await?;
                    let log = new.id().clone();
                    let change = logs::begin(&view, new, place.clone(), tenure.clone())?;
                    (log, Some(change))
                }
            };
            let open = before.iter().filter(|(_, record)| record.state == LogState::Open);
            let ends = open.map(|(log, _)| logs::seal(&view, log)).collect::<Result<Vec<_>, _>>()?;
            let roots: Vec<_> = change.into_iter().chain(ends).collect();
            let before = before.into_iter().map(|(log, _)| log).collect();
            let member = Self { coordinator: Arc::clone(&coordinator), tenure: tenure.clone(), log, before };
            if roots.is_empty() {
                return Ok(member);
            }
            match member.propose(&Batch { roots, ..Batch::default() }).await {
                Err(CoordinatorError::Conflict { .. }) => {}
                done => return Ok(done.map(|_| member)?),
            }
        }
    }

    /// Begins a log of this tenure's own, at the place that belongs to its name, or goes on with the one that the tenure has begun. To be done
    /// before the log is opened. Returns where it is.
    ///
    /// # Errors
    /// Those of the coordinator.
    pub async fn begin(
        coordinator: Arc<dyn Coordinator>,
        tenure: Tenure,
        place_of: impl Fn(&LogId) -> LogPlace,
    ) -> Result<(Self, LogPlace), ShardsError> {
        loop {
            let view = ClusterView::new(answered(|| coordinator.snapshot()).await?);
            let holding =
                |log, before| Self { coordinator: Arc::clone(&coordinator), tenure: tenure.clone(), log, before };
            if let Some((log, place)) = own_log(&view, &tenure) {
                // A place that belongs to its name has no other.
                let there = if place == place_of(&log) { BTreeMap::new() } else { logs_at(&view, &place)? };
                let before = there.into_keys().filter(|other| *other != log).collect();
                return Ok((holding(log, before), place));
            }
            let new = answered(|| NewLog::allocate(&*coordinator, &tenure.node, SERVICE)).await?;
            let member = holding(new.id().clone(), Vec::new());
            let place = place_of(&member.log);
            let begun = logs::begin(&view, new, place.clone(), tenure.clone())?;
            match member.propose(&begun.into()).await {
                Err(CoordinatorError::Conflict { .. }) => {}
                done => return Ok(done.map(|_| (member, place))?),
            }
        }
    }

    /// Whether the commits of a tenant that nobody living owns are in the log that this node holds.
    pub(crate) fn inherits(&self, view: &ClusterView, record: &ShardRecord) -> bool {
        let Some(owner) = record.owner().filter(|owner| **owner != self.tenure && !view.lives(owner)) else {
            return false;
        };
        match &record.history {
            Some(history) => self.is_here(&history.log),
            // It was made, and its owner ended before it wrote anything.
            None => owner.node == self.tenure.node || self.before.iter().any(|log| log.node == owner.node),
        }
    }

    /// Whether a log is the one that this node holds, whatever it was called.
    pub(crate) fn is_here(&self, log: &LogId) -> bool {
        *log == self.log || self.before.contains(log)
    }

    /// All records as they are now.
    pub(crate) async fn view(&self) -> Result<ClusterView, ShardsError> {
        Ok(ClusterView::new(answered(|| self.coordinator.snapshot()).await?))
    }

    /// A number that nobody has.
    pub(crate) async fn number(&self) -> Result<TenantId, ShardsError> {
        Ok(answered(|| self.coordinator.allocate(SERVICE, 1)).await?.start)
    }

    /// Sees to it that nobody is given a number up to this one.
    pub(crate) async fn skip_numbers(&self, upto: TenantId) -> Result<(), ShardsError> {
        if upto > 0 {
            let given = self.number().await?;
            if given < upto {
                answered(|| self.coordinator.allocate(SERVICE, upto - given)).await?;
            }
        }
        Ok(())
    }

    /// Where this node's commits of a tenant are that it serves under an epoch.
    pub(crate) fn history(&self, epoch: OwnerEpoch) -> History {
        History { log: self.log.clone(), epoch }
    }

    /// A change of a tenant's record that this node proposes.
    pub(crate) fn transition(&self, tenant: TenantId, expected: Revision, record: ShardRecord) -> Transition {
        Transition { shard: shard(tenant), expected, record, by: Some(self.tenure.clone()) }
    }

    /// Changes records, all or none, and asks until it is known what came of it. Nobody else may propose the same.
    ///
    /// # Errors
    /// Those of the coordinator, but for `Unavailable`.
    pub(crate) async fn propose(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        let mut is_repeated = false;
        loop {
            let refused = match self.coordinator.apply(batch).await {
                Err(CoordinatorError::Unavailable { reason }) => {
                    tracing::warn!(
                        reason,
                        "it is not known whether records of tenants were changed; it is tried again"
                    );
                    is_repeated = true;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(refused @ CoordinatorError::Conflict { .. }) if is_repeated => refused,
                known => return known,
            };
            match self.changed(batch).await {
                Ok(Some(revision)) => return Ok(revision),
                Ok(None) => return Err(refused),
                Err(CoordinatorError::Unavailable { .. }) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// At which revision the records came to be as a batch was to make them, if they are.
    async fn changed(&self, batch: &Batch) -> Result<Option<Revision>, CoordinatorError> {
        let mut newest = Revision::NONE;
        for Transition { shard, expected, record, .. } in &batch.transitions {
            match self.coordinator.shard(shard).await? {
                Some(read) if read.value == *record && read.version > *expected => newest = newest.max(read.version),
                _ => return Ok(None),
            }
        }
        for RootChange { key, expected, value } in &batch.roots {
            match (self.coordinator.root(key).await?, value) {
                (Some(read), Some(value)) if read.value == *value && read.version > *expected => {
                    newest = newest.max(read.version);
                }
                (None, None) => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(newest))
    }

    /// Since when a shard's record is as a change was to make it, if it is.
    pub(crate) async fn version_of(&self, change: &Transition) -> Result<Option<Revision>, CoordinatorError> {
        let read = answered(|| self.coordinator.shard(&change.shard)).await?;
        let is_made = |read: &Versioned<ShardRecord>| read.value == change.record && read.version > change.expected;
        Ok(read.filter(is_made).map(|read| read.version))
    }

    /// Makes batches that do not depend on each other, several at a time.
    pub(crate) async fn propose_batches(&self, batches: impl IntoIterator<Item = Batch>) -> Result<(), ShardsError> {
        let proposals = batches.into_iter().map(|batch| async move { self.propose(&batch).await.map(drop) });
        Ok(futures::stream::iter(proposals).buffer_unordered(BATCHES).try_collect().await?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ops::Range;

    use async_trait::async_trait;
    use parking_lot::Mutex;
    use savanna_epoch::{NodeEpoch, NodeId};
    use savanna_ownership::{
        BootClock, ChangeStream, ClaimOutcome, Grant, Incarnation, NodeSpec, Snapshot, embedded::EmbeddedCoordinator,
    };

    use super::*;

    /// A coordinator that one process asks, until something happens to one of its changes.
    pub(crate) struct Fragile {
        pub(crate) inner: Arc<EmbeddedCoordinator>,
        /// So many changes are made; what happens to the next one.
        pub(crate) trouble: Mutex<(u32, Trouble)>,
        /// The change that something happened to.
        pub(crate) troubled: Mutex<Option<Batch>>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Trouble {
        /// It is made or not, and its answer is lost.
        Lost { is_made: bool },
        /// It is made or not, and the process ends.
        Ends { is_made: bool },
        /// It has ended.
        Ended,
        /// Nothing any more.
        Over,
    }

    #[async_trait]
    impl Coordinator for Fragile {
        async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
            self.inner.register(spec).await
        }
        async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
            self.inner.claim(spec).await
        }
        async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
            self.inner.heartbeat(tenure).await
        }
        async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
            self.inner.deregister(tenure).await
        }
        async fn snapshot(&self) -> Result<Snapshot, CoordinatorError> {
            self.inner.snapshot().await
        }
        async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
            self.inner.shard(shard).await
        }
        async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError> {
            self.inner.allocate(name, count).await
        }
        async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError> {
            self.inner.root(key).await
        }
        async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
            self.inner.watch(since).await
        }
        async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
            let trouble = {
                let mut trouble = self.trouble.lock();
                match *trouble {
                    (0, now @ Trouble::Lost { .. }) => {
                        *trouble = (0, Trouble::Over);
                        now
                    }
                    (0, now) => {
                        *trouble = (0, if now == Trouble::Over { now } else { Trouble::Ended });
                        now
                    }
                    (left, later) => {
                        *trouble = (left - 1, later);
                        Trouble::Over
                    }
                }
            };
            let is_made = match trouble {
                Trouble::Over => return self.inner.apply(batch).await,
                Trouble::Ended => false,
                Trouble::Lost { is_made } | Trouble::Ends { is_made } => is_made,
            };
            *self.troubled.lock() = Some(batch.clone());
            if is_made {
                self.inner.apply(batch).await?;
            }
            let reason = "of the test".to_owned();
            Err(match trouble {
                Trouble::Lost { .. } => CoordinatorError::Unavailable { reason },
                _ => CoordinatorError::Stopped { reason },
            })
        }
    }

    pub(crate) async fn node(coordinator: &EmbeddedCoordinator, name: &str, incarnation: u64) -> Tenure {
        let spec = NodeSpec {
            name: NodeId::new(name),
            incarnation: Incarnation(incarnation),
            address: "here".to_owned(),
            labels: BTreeMap::new(),
        };
        coordinator.reside(&spec).await.expect("nobody else is there")
    }

    pub(crate) fn coordinator() -> Arc<EmbeddedCoordinator> {
        Arc::new(EmbeddedCoordinator::volatile(Duration::from_secs(3), Arc::new(BootClock)))
    }

    pub(crate) fn place() -> LogPlace {
        LogPlace::Folder("tenants/log".to_owned())
    }

    /// The only node of a new cluster.
    pub(crate) async fn member(name: &str) -> Member {
        let coordinator = coordinator();
        let tenure = node(&coordinator, name, 1).await;
        Member::join(coordinator, tenure, place()).await.expect("a new log")
    }

    #[test]
    fn the_formats_of_records_are_these() {
        let text = |change: RootChange| {
            let value = change.value.expect("it is put");
            format!("{} {}", change.key, String::from_utf8(value.0).expect("JSON"))
        };
        let version = Revision::NONE;
        let by = Tenure { node: NodeId::new("n1"), epoch: NodeEpoch(3) };
        let log = LogId::new(NodeId::new("n1"), 2, SERVICE).unwrap();
        let put = |key, value: &dyn Fn(String) -> RootChange| text(value(key));
        assert_eq!(
            put(name_key("shop"), &|key| super::put(key, version, &Named { number: 7 })),
            r#"tenant-names/shop {"number":7}"#
        );
        assert_eq!(
            put(garbage_key(7), &|key| super::put(key, version, &Garbage::Removed)),
            r#"tenant-garbage/7 {"state":"removed"}"#
        );
        assert_eq!(
            put(garbage_key(8), &|key| super::put(key, version, &Garbage::Reserved { by: by.clone() })),
            r#"tenant-garbage/8 {"state":"reserved","by":{"node":"n1","epoch":3}}"#
        );
        assert_eq!(
            put(log_key(&log), &|key| super::put(key, version, &LogNote { end: 300 })),
            r#"tenant-logs/n1.2/tenants {"end":300}"#
        );
        assert_eq!(text(put_numbers(Numbers { carried: 9 })), r#"tenant-numbers {"carried":9}"#);
        assert_eq!(shard(7), ShardId::new("tenants/7"));
    }

    #[tokio::test]
    async fn a_log_goes_on_under_later_tenures_and_ends_when_another_node_has_its_place() {
        let coordinator = coordinator();
        let join = async |tenure| Member::join(Arc::clone(&coordinator) as _, tenure, place()).await;
        let first = join(node(&coordinator, "a", 1).await).await.expect("a new log");
        let again = join(first.tenure.clone()).await.expect("its own");
        assert_eq!((&again.log, again.before.len()), (&first.log, 0));
        let next = join(node(&coordinator, "a", 2).await).await.expect("its former tenure is over");
        assert_eq!(next.log, first.log);
        let held = join(node(&coordinator, "b", 3).await).await;
        assert!(matches!(held, Err(ShardsError::Log(LogRecordError::InUse { .. }))), "{held:?}");
        coordinator.deregister(&next.tenure).await.expect("it is there");
        let other = join(node(&coordinator, "b", 3).await).await.expect("nobody lives there");
        assert_eq!((other.log.to_string(), other.before), ("b.2/tenants".to_owned(), vec![first.log.clone()]));
        coordinator.deregister(&other.tenure).await.expect("it is there");
        let back = join(node(&coordinator, "a", 4).await).await.expect("nobody lives there");
        assert_eq!(back.log.to_string(), "a.2/tenants");
        assert_eq!(back.before, [first.log, other.log]);
        // The start is repeated within its tenure.
        let elsewhere = |_: &LogId| LogPlace::Folder("elsewhere".to_owned());
        let begin = Member::begin(Arc::clone(&coordinator) as _, back.tenure.clone(), elsewhere);
        let (again, at) = begin.await.expect("its own");
        assert_eq!((again.log, again.before, at), (back.log, back.before, place()));
    }

    #[tokio::test]
    async fn a_tenure_is_ready_from_when_it_says_so_until_it_says_otherwise() {
        let coordinator = coordinator();
        let view = async || ClusterView::new(coordinator.snapshot().await.expect("it answers"));
        let first = node(&coordinator, "a", 1).await;
        assert!(!is_ready(&view().await, &first) && say_closed(&view().await, &first).is_none());
        let said = say_ready(&view().await, &first);
        let text = String::from_utf8(said.value.clone().expect("it is put").0).expect("JSON");
        assert_eq!(format!("{} {text}", said.key), r#"tenant-hosts/a {"node":"a","epoch":1}"#);
        coordinator.apply(&said.into()).await.expect("nobody else says so");
        assert!(is_ready(&view().await, &first));
        coordinator.deregister(&first).await.expect("it is there");
        let next = node(&coordinator, "a", 2).await;
        assert!(!is_ready(&view().await, &next), "it has yet to open its log");
        coordinator.apply(&say_ready(&view().await, &next).into()).await.expect("nobody else says so");
        assert!(is_ready(&view().await, &next) && !is_ready(&view().await, &first));
        let closed = say_closed(&view().await, &next).expect("it is ready");
        coordinator.apply(&closed.into()).await.expect("nobody else says so");
        assert!(!is_ready(&view().await, &next));
    }
}
