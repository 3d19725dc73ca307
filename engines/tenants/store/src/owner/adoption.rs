//! Tenants arrive whose commits are in another log: those are copied into the own log, then the records say so, then they are served.
//!
//! | a process that ends after | leaves | the next one |
//! |---|---|---|
//! | some of it was copied | records in its log that no history names | copies it again, from the same sealed log |
//! | all of it was copied and is durable | the same | the same |
//! | the histories of some name the own log | these tenants, complete | serves them; the others as before |

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use savanna_epoch::{LogId, OwnerEpoch};
use savanna_journal::{Draft, Filter, Journal, JournalError, Lsn, SealedLog};
use savanna_ownership::{ShardRecord, Transition, Versioned};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::Result;

use super::{Owner, RedoError, Tail, opening::propose, tails::Tails};
use crate::{
    log::{OWNED, TAIL},
    shards::{self, Member},
};

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

/// Takes in the tenants that were granted to this process and whose commits are in a log that was sealed. Blocks while it reads that log. Asked
/// again, it goes on with those that have not arrived.
///
/// # Errors
/// Those of the logs and of the coordinator; XX001 if the log is not one of tenants.
pub async fn adopt(owner: &Mutex<Owner>, name: &LogId, sealed: &SealedLog) -> Result<Vec<TenantId>> {
    let (member, journal) = {
        let owner = owner.lock();
        (owner.member.clone(), Arc::clone(owner.journal()))
    };
    let view = member.view().await?;
    let is_granted = |record: &Versioned<ShardRecord>| {
        record.value.owner() == Some(&member.tenure)
            && record.value.history.as_ref().is_some_and(|history| history.log == *name)
    };
    let granted: BTreeMap<_, _> =
        shards::tenants(&view)?.into_iter().filter(|(_, record)| is_granted(record)).collect();
    let mut commits = read(sealed, histories(&granted))?;
    let arriving: Vec<_> = granted
        .into_iter()
        .map(|(tenant, record)| {
            let commits = commits.remove(&tenant).unwrap_or_default().into_iter().map(|(_, commit)| commit);
            Arriving { tenant, record: record.clone(), commits: commits.collect() }
        })
        .collect();
    // Nobody else knows yet that the copies are needed.
    owner.lock().adopting = Some(journal.appended().next());
    let arrived = async {
        let tails = copy(&journal, &arriving).await?;
        let changes = arriving.iter().map(|arriving| arriving.arrives(&member)).collect();
        let view = propose(&member, changes, view).await?;
        let mut owner = owner.lock();
        owner.tails.extend(tails);
        owner.hold(&view)?;
        Ok(arriving.iter().map(|arriving| arriving.tenant).collect())
    };
    let arrived = arrived.await;
    owner.lock().adopting = None;
    arrived
}

/// The epochs that histories name.
pub(super) fn histories(records: &BTreeMap<TenantId, &Versioned<ShardRecord>>) -> BTreeMap<TenantId, OwnerEpoch> {
    let epoch = |record: &ShardRecord| record.history.as_ref().map_or(OwnerEpoch::NONE, |history| history.epoch);
    records.iter().map(|(tenant, record)| (*tenant, epoch(&record.value))).collect()
}

fn read(sealed: &SealedLog, since: BTreeMap<TenantId, OwnerEpoch>) -> Result<BTreeMap<TenantId, Tail>> {
    let filter = Filter { stream: None, shards: Some(since.keys().copied().collect()) };
    let mut tails = Tails::of(since);
    sealed.read(&filter, &mut |record| tails.take(record).map(drop).map_err(RedoError::Record))?;
    Ok(tails.into_tails())
}
