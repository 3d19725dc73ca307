//! Tenants arrive whose commits are in another log: those are copied into the own log, then the records say so, then they are served.
//!
//! | a process that ends after | leaves | the next one |
//! |---|---|---|
//! | some of it was copied | records in its log that no history names | copies it again, from the same sealed log |
//! | all of it was copied and is durable | the same | the same |
//! | the histories of some name the own log | these tenants, complete | serves them; the others as before |
//!
//! What is copied again counts in the place of what was copied before, so that no earlier proposal may arrive while it is half copied. Each
//! proposal therefore expects the note of the log's end at a version that its process has read, and each process writes that note anew before it
//! copies anything: when it has opened the log, and when it does not know what became of a proposal of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::try_join_all};
use parking_lot::Mutex;
use savanna_epoch::{LogId, OwnerEpoch};
use savanna_journal::{Draft, Filter, Journal, JournalError, Lsn, SealedLog};
use savanna_ownership::{
    Batch, ClusterView, CoordinatorError, Expected, History, MAX_BATCH_RECORDS, Revision, RootExpectation, ShardRecord,
    Transition, Versioned,
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::Result;
use savanna_transaction::Csn;

use super::{Held, Owner, RedoError, Tail, changes::renew_note, opening::left_behind, tails::Tails};
use crate::{
    log::{OWNED, TAIL, commit_number, is_kind},
    shards::{self, Member, ShardsError},
    storage::Storage,
};

/// How long the storage is asked what it has of tenants that arrive. What it does not say is copied.
const STORED_TIME: Duration = Duration::from_secs(2);
/// So many tenants are asked for at once.
const STORED_AT_ONCE: usize = 16;

/// A tenant that this process owns, and what another log has of it.
pub(super) struct Arriving {
    pub(super) tenant: TenantId,
    pub(super) record: Versioned<ShardRecord>,
    pub(super) commits: Vec<Bytes>,
}

impl Arriving {
    /// The change with which it has arrived.
    pub(super) fn arrives(&self, member: &Member) -> Transition {
        let Versioned { version, value } = &self.record;
        let record = value.clone().with_history(Some(member.history(value.epoch)));
        member.transition(self.tenant, *version, record)
    }
}

/// That no later process of the tenure has begun, and that this one knows what became of all that it proposed: else the note of the log's end
/// was written anew.
pub(super) fn only_now(member: &Member, view: &ClusterView) -> Result<RootExpectation> {
    let version = shards::log_note(view, &member.log)?.map_or(Revision::NONE, |(_, version)| version);
    Ok(RootExpectation { key: shards::log_key(&member.log), expected: Expected::Version(version) })
}

/// Copies the commits of tenants into a log; when they are durable, their new places.
pub(super) async fn copy(journal: &Journal, arriving: &[Arriving]) -> Result<BTreeMap<TenantId, Tail>> {
    let mut tails = BTreeMap::new();
    for Arriving { tenant, record, commits } in arriving {
        let epoch = record.value.epoch.0.to_le_bytes();
        append(journal, Draft { shard: *tenant, kind: OWNED, payload: &epoch }).await?;
        let mut tail = Tail::new();
        for commit in commits {
            let payload = [&epoch[..], commit].concat();
            let lsn = append(journal, Draft { shard: *tenant, kind: TAIL, payload: &payload }).await?;
            tail.push((lsn, commit.clone()));
        }
        tails.insert(*tenant, tail);
    }
    journal.wait_durable(journal.appended()).await?;
    Ok(tails)
}

/// Appends a record, and waits until not too much waits before it.
async fn append(journal: &Journal, draft: Draft<'_>) -> Result<Lsn> {
    loop {
        match crate::log::append(journal, &[draft]) {
            Err(JournalError::Backlog { .. }) => journal.wait_durable(journal.appended()).await?,
            appended => return Ok(appended?),
        }
    }
}

/// What was granted to a process and has not arrived: the logs that have commits of such tenants, and whether there are others, of which no
/// other log has any.
///
#[must_use]
pub fn awaited(owner: &Mutex<Owner>, view: &ClusterView) -> (BTreeSet<LogId>, bool) {
    let mut owner = owner.lock();
    owner.forget_given_up(view);
    let other = |record: &ShardRecord| {
        let log = record.history.as_ref().map(|history| &history.log);
        log.filter(|log| **log != owner.member.log).cloned()
    };
    let logs = owner.granted(view).map(|(_, record)| other(&record.value));
    let logs: BTreeSet<Option<LogId>> = logs.collect();
    let has_new = logs.contains(&None);
    (logs.into_iter().flatten().collect(), has_new)
}

/// Takes in the tenants that were granted to this process and whose commits are in a log that was sealed, but for those that the storage has
/// already. Blocks while it reads that log. Asked again, it goes on with those that have not arrived. A tenant of which the log has something
/// that cannot be read keeps none of the others; it is told once, and not tried again.
///
/// # Errors
/// Those of the logs and of the coordinator; XX001 if the log has something else of a tenant, when the others have arrived.
pub async fn adopt(owner: &Mutex<Owner>, storage: &Storage, name: &LogId, sealed: &SealedLog) -> Result<Vec<TenantId>> {
    arrive(owner, Some((name, storage)), |since, end| read(sealed, since, end)).await
}

/// Takes in the tenants that were granted to this process and of which no other log has commits: whoever made them ended before it could say
/// which log it would be, or an earlier process of this tenure said that it is this one, and ended.
///
/// # Errors
/// Those of the log and of the coordinator.
pub async fn adopt_new(owner: &Mutex<Owner>) -> Result<Vec<TenantId>> {
    arrive(owner, None, |_, _| Ok(Found::default())).await
}

/// What a log has of tenants.
#[derive(Default)]
struct Found {
    tails: BTreeMap<TenantId, Tail>,
    /// Of these it has something that cannot be read.
    unreadable: BTreeMap<TenantId, RedoError>,
}

async fn arrive(
    owner: &Mutex<Owner>,
    log: Option<(&LogId, &Storage)>,
    read: impl FnOnce(BTreeMap<TenantId, OwnerEpoch>, Lsn) -> Result<Found>,
) -> Result<Vec<TenantId>> {
    let (log, storage) = log.unzip();
    let member = owner.lock().member.clone();
    let was_unsure = owner.lock().is_unsure;
    if was_unsure {
        renew_note(owner).await?;
    }
    let view = member.view().await?;
    let only_now = only_now(&member, &view)?;
    if was_unsure {
        owner.lock().forget_copies(&view);
    }
    let mut arrived = if log.is_none() { owner.lock().hold(&view) } else { Vec::new() };
    let mut granted: BTreeMap<_, _> = owner
        .lock()
        .granted(&view)
        .filter(|(_, record)| record.value.history.as_ref().map(|history| &history.log) == log)
        .collect();
    let end = log.map(|log| shards::log_note(&view, log)).transpose()?.flatten();
    let found = read(histories(&granted), end.map_or(Lsn::NONE, |(note, _)| Lsn(note.end)))?;
    let Found { tails: mut commits, unreadable } = found;
    for tenant in unreadable.keys() {
        let record = granted.remove(tenant).map(|record| (*tenant, record.version));
        owner.lock().unreadable.extend(record);
    }
    if let Some(storage) = storage {
        leave_out_stored(storage, &mut commits).await;
    }
    let names = shards::names(&view);
    granted.retain(|tenant, record| names.contains_key(tenant) || owner.lock().leave_unnamed(*tenant, record.version));
    // Those of former releases have histories before anybody can be granted them.
    let carried = shards::numbers(&view)?.map_or(0, |numbers| numbers.carried);
    let lost = granted.keys().copied().find(|tenant| log.is_none() && *tenant <= carried);
    granted.retain(|tenant, _| log.is_some() || *tenant > carried);
    let granted: Vec<_> = granted.into_iter().collect();
    // With what is expected beside them.
    for some in granted.chunks(MAX_BATCH_RECORDS - 1) {
        let arriving: Vec<_> = some
            .iter()
            .map(|(tenant, record)| {
                let commits = commits.remove(tenant).unwrap_or_default().into_iter().map(|(_, commit)| commit);
                Arriving { tenant: *tenant, record: (*record).clone(), commits: commits.collect() }
            })
            .collect();
        // Nobody else knows yet that the copies are needed.
        let journal = {
            let mut owner = owner.lock();
            owner.expect_space()?;
            owner.adopting = Some(owner.journal.appended().next());
            owner.arriving = arriving.iter().map(|arriving| arriving.tenant).collect();
            // What came of them for a move counts for nothing behind that.
            arriving.iter().for_each(|arriving| owner.forget_expected(arriving.tenant));
            Arc::clone(&owner.journal)
        };
        let done = serve(owner, (&member, &only_now), &journal, &arriving, &names).await;
        {
            let mut owner = owner.lock();
            owner.adopting = None;
            owner.arriving.clear();
        }
        arrived.extend(done?);
    }
    owner.lock().garbage.extend(left_behind(&view));
    let unread = unreadable.into_iter().map(|(tenant, error)| RedoError::Unread { tenant, error: error.into() });
    match unread.chain(lost.map(RedoError::NoHistory)).next() {
        Some(error) => Err(error.into()),
        None => Ok(arrived),
    }
}

/// Leaves out the commits that the storage has, as far as it says so in time.
async fn leave_out_stored(storage: &Storage, commits: &mut BTreeMap<TenantId, Tail>) {
    let stored = commits.keys().copied().map(|tenant| async move { (tenant, storage.stored(tenant).await) });
    let stored = futures::stream::iter(stored.collect::<Vec<_>>()).buffer_unordered(STORED_AT_ONCE);
    let mut stored = std::pin::pin!(stored.take_until(tokio::time::sleep(STORED_TIME)));
    while let Some((tenant, stored)) = stored.next().await {
        match (stored, commits.get_mut(&tenant)) {
            (Ok(stored), Some(tail)) if reaches(tail, stored) => tail.retain(|(_, commit)| !is_stored(commit, stored)),
            // A log that ends before what the storage has is looked at when the tenant wakes.
            (Ok(_), _) => {}
            (Err(error), _) => tracing::debug!(tenant, %error, "what the storage has of a tenant is copied, too"),
        }
    }
}

/// Whether a tail comes up to what the storage has: else its log has lost its end.
fn reaches(tail: &Tail, stored: Csn) -> bool {
    tail.last().and_then(|(_, commit)| commit_number(commit)).is_some_and(|last| last >= stored)
}

/// Whether the storage has a commit, which it has with all before it.
fn is_stored(commit: &[u8], stored: Csn) -> bool {
    commit_number(commit).is_some_and(|csn| csn <= stored)
}

/// Copies what tenants have, says so in their records, and has them from then on. If a record has changed meanwhile, only those whose records
/// an earlier process of this tenure has changed in the same way.
async fn serve(
    owner: &Mutex<Owner>,
    (member, only_now): (&Member, &RootExpectation),
    journal: &Journal,
    arriving: &[Arriving],
    names: &BTreeMap<TenantId, (String, Revision)>,
) -> Result<Vec<TenantId>> {
    let tails = copy(journal, arriving).await?;
    let transitions: Vec<_> = arriving.iter().map(|arriving| arriving.arrives(member)).collect();
    let expects = vec![only_now.clone()];
    let batch = Batch { transitions: transitions.clone(), expects, ..Batch::default() };
    {
        // If it arrives after all, they are served out of this copy.
        let mut owner = owner.lock();
        owner.is_unsure = true;
        owner.tails.extend(tails);
    }
    let versions = match member.propose(&batch).await {
        Ok(version) => vec![Some(version); arriving.len()],
        Err(error @ CoordinatorError::Conflict { .. }) => {
            tracing::debug!(%error, "the view of what was granted was old");
            let read = transitions.iter().map(|transition| member.version_of(transition));
            try_join_all(read).await.map_err(ShardsError::from)?
        }
        Err(error) => return Err(ShardsError::from(error).into()),
    };
    let mut owner = owner.lock();
    owner.is_unsure = false;
    let mut arrived = Vec::new();
    for (Arriving { tenant, record, .. }, version) in arriving.iter().zip(versions) {
        let Some(shard) = version else {
            owner.tails.remove(tenant);
            continue;
        };
        let Some((name, named)) = names.get(tenant).cloned() else {
            tracing::error!(tenant, "expected a name of the tenant in the coordinator's records, found none");
            continue;
        };
        owner.note_created(*tenant, Held { name, epoch: record.value.epoch, shard, named });
        arrived.push(*tenant);
    }
    Ok(arrived)
}

impl Owner {
    /// What became of all proposals is known: what was copied of tenants that have not arrived is needed no more.
    fn forget_copies(&mut self, view: &ClusterView) {
        let is_here = |tenant: TenantId| {
            let record = view.shard(&shards::shard(tenant)).map(|record| &record.value);
            record.is_some_and(|record| {
                let is_here = |history: &History| history.log == self.member.log;
                record.owner() == Some(&self.member.tenure) && record.history.as_ref().is_some_and(is_here)
            })
        };
        self.tails.retain(|tenant, _| self.tenants.contains_key(tenant) || is_here(*tenant));
        self.is_unsure = false;
    }

    /// The tenants that were granted to this process and that it has not, nor makes. The view may be older than that it removed one.
    pub(super) fn granted<'v>(
        &self,
        view: &'v ClusterView,
    ) -> impl Iterator<Item = (TenantId, &'v Versioned<ShardRecord>)> + use<'v, '_> {
        let is_granted = |(tenant, record): &(TenantId, &'v Versioned<ShardRecord>)| {
            record.value.owner() == Some(&self.member.tenure)
                && self.unreadable.get(tenant) != Some(&record.version)
                && !self.making.contains(tenant)
                && !self.tenants.contains_key(tenant)
                && !self.removed.contains(tenant)
                && self.left.get(tenant).is_none_or(|left| record.value.epoch > *left)
        };
        shards::tenants(view).into_iter().filter(is_granted)
    }
}

/// The epochs that histories name.
pub(super) fn histories(records: &BTreeMap<TenantId, &Versioned<ShardRecord>>) -> BTreeMap<TenantId, OwnerEpoch> {
    let epoch = |record: &ShardRecord| record.history.as_ref().map_or(OwnerEpoch::NONE, |history| history.epoch);
    records.iter().map(|(tenant, record)| (*tenant, epoch(&record.value))).collect()
}

/// What a log has of tenants, which is known to have ended at `listed` or later.
fn read(sealed: &SealedLog, since: BTreeMap<TenantId, OwnerEpoch>, listed: Lsn) -> Result<Found> {
    let last = sealed.last();
    if last < listed {
        return Err(RedoError::LogBehind { listed, last }.into());
    }
    let filter = Filter { stream: None, shards: Some(since.keys().copied().collect()) };
    let mut tails = Tails::of(since);
    let mut unreadable = BTreeMap::new();
    sealed.read(&filter, &mut |record| {
        let tenant = record.shard;
        let taken = match record.kind {
            kind if is_kind(kind) => tails.take(record).map(drop).map_err(RedoError::Record),
            kind => Err(RedoError::Kind(kind)),
        };
        if let Err(error) = taken {
            unreadable.entry(tenant).or_insert(error);
        }
        Ok::<(), RedoError>(())
    })?;
    let mut tails = tails.into_tails();
    tails.retain(|tenant, _| !unreadable.contains_key(tenant));
    Ok(Found { tails, unreadable })
}
