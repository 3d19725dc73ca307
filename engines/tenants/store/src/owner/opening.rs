//! The start of an owner: what it finds in the records, takes over from former tenures, and carries over from former releases.

use std::collections::{BTreeMap, BTreeSet};

use savanna_epoch::OwnerEpoch;
use savanna_journal::{Journal, Lsn, Record};
use savanna_ownership::{
    Batch, ClusterView, CoordinatorError, Exclusive, MAX_BATCH_RECORDS, Ownership, Revision, RootExpectation,
    ShardRecord, Tenure, Transition, Versioned,
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::Result;

use super::RedoError;
use crate::{
    roots::Roots,
    shards::{self, Garbage, LogNote, Member, Named, Numbers, ShardsError, ShardsResult},
    storage::Storage,
};

/// What the storage has of these is to go at a start: what was reserved under this tenure, too, was reserved before this process opened the log.
pub(super) fn collectable(view: &ClusterView, own: &Tenure) -> BTreeMap<TenantId, Revision> {
    garbage_if(view, |by| by == own || !view.lives(by))
}

/// What the storage has of these is to go while others work: they were removed, or whoever was restoring them is gone.
pub(super) fn left_behind(view: &ClusterView) -> BTreeMap<TenantId, Revision> {
    garbage_if(view, |by| !view.lives(by))
}

fn garbage_if(view: &ClusterView, is_over: impl Fn(&Tenure) -> bool) -> BTreeMap<TenantId, Revision> {
    let is_garbage = |garbage: &Garbage| match garbage {
        Garbage::Removed => true,
        Garbage::Reserved { by } => is_over(by),
    };
    let garbage = shards::garbage(view).into_iter().filter(|(_, (garbage, _))| is_garbage(garbage));
    garbage.map(|(tenant, (_, version))| (tenant, version)).collect()
}

/// Which tenants there are as a former release kept them.
pub(super) async fn former_tenants(storage: &Storage, journal: &Journal, records: &[Record]) -> Result<Roots> {
    // Read after the log was opened: nobody changes it any more.
    let mut roots = Roots::read(storage).await?;
    let (last, listed) = (journal.appended(), roots.listed());
    if listed > last {
        return Err(RedoError::LogBehind { listed, last }.into());
    }
    let first = records.first().map_or_else(|| last.next(), |record| record.lsn);
    if roots.at == 0 && first > Lsn(1) {
        return Err(RedoError::NoRecords(first).into());
    }
    roots.follow(records)?;
    Ok(roots)
}

/// Makes records of tenants that a former release kept. Interrupted, it is begun again: nothing was served meanwhile, and what is there
/// already stays. It is over when the numbers that it returns are in the records, which is to be done last, when all these tenants have
/// histories. `epoch` is above those under which their storage was ever written.
pub(super) async fn carry_over(
    member: &Member,
    former: Roots,
    epoch: OwnerEpoch,
    view: &ClusterView,
) -> ShardsResult<Numbers> {
    member.skip_numbers(former.last).await?;
    let is_new = |tenant: &TenantId| view.shard(&shards::shard(*tenant)).is_none();
    let tenants: Vec<_> = former.tenants.into_iter().filter(|(tenant, _)| is_new(tenant)).collect();
    let batches = tenants.chunks(MAX_BATCH_RECORDS / 2).map(|tenants| {
        let served = |(tenant, _): &(TenantId, String)| {
            member.transition(*tenant, Revision::NONE, ShardRecord::serving(member.tenure.clone(), epoch))
        };
        let named = |(tenant, name): &(TenantId, String)| {
            shards::put(shards::name_key(name), Revision::NONE, &Named { number: *tenant })
        };
        Batch {
            transitions: tenants.iter().map(served).collect(),
            roots: tenants.iter().map(named).collect(),
            ..Batch::default()
        }
    });
    member.propose_batches(batches).await?;
    let garbage: BTreeSet<TenantId> = former.removed.into_iter().chain(former.reserved).collect();
    let garbage: Vec<_> = garbage
        .into_iter()
        .map(shards::garbage_key)
        .filter(|key| view.root(key).is_none())
        .map(|key| shards::put(key, Revision::NONE, &Garbage::Removed))
        .collect();
    let batches = garbage.chunks(MAX_BATCH_RECORDS);
    member.propose_batches(batches.map(|roots| Batch { roots: roots.to_vec(), ..Batch::default() })).await?;
    if shards::log_note(view, &member.log)?.is_none() {
        let end = LogNote { end: former.at.max(former.end) };
        member.propose(&shards::put(shards::log_key(&member.log), Revision::NONE, &end).into()).await?;
    }
    Ok(Numbers { carried: former.last })
}

/// Checks that the log has not become shorter, whatever it was called. Returns the version of the note that says so, which is written anew: what an
/// earlier process of the tenure has proposed of this log expects the one before.
pub(super) async fn log_end(
    member: &Member,
    view: &ClusterView,
    journal: &Journal,
    records: &[Record],
) -> Result<Revision> {
    let last = journal.appended();
    let notes = member.before.iter().chain([&member.log]).map(|log| shards::log_note(view, log));
    let notes = notes.filter_map(ShardsResult::transpose);
    let notes = notes.collect::<ShardsResult<Vec<_>>>()?;
    let listed = notes.iter().map(|(note, _)| Lsn(note.end)).max();
    if let Some(listed) = listed.filter(|listed| *listed > last) {
        return Err(RedoError::LogBehind { listed, last }.into());
    }
    if let (None, Some(record)) = (listed, records.first()) {
        return Err(RedoError::NoRecords(record.lsn).into());
    }
    let note = LogNote { end: listed.map_or(0, |listed| listed.0) };
    let mut before = shards::log_note(view, &member.log)?.map_or(Revision::NONE, |(_, version)| version);
    loop {
        let root = shards::put(shards::log_key(&member.log), before, &note);
        match member.propose(&root.into()).await {
            // An earlier process had still to say how far it had come.
            Err(CoordinatorError::Conflict { current, .. }) => before = current,
            done => return Ok(done.map_err(ShardsError::from)?),
        }
    }
}

/// Takes over the tenants whose commits are in the log, from former tenures of this or another node. Returns the records as they are then.
pub(super) async fn take_over(member: &Member, view: ClusterView) -> ShardsResult<ClusterView> {
    let grant = |(tenant, Versioned { version, value }): (TenantId, &Versioned<ShardRecord>)| {
        let record = ShardRecord::serving(member.tenure.clone(), value.epoch.next());
        member.transition(tenant, *version, record.with_history(value.history.clone()))
    };
    let inherited = shards::tenants(&view).into_iter().filter(|(_, record)| member.inherits(&view, &record.value));
    // A grant leaves the history as it is.
    propose(member, inherited.map(grant).collect(), None, view).await
}

/// Gives up the moves that an earlier process of this tenure had begun, before anybody is served: of its own proposal that one has moved, which may be
/// under way, and of this one, one is done. Returns the records as they are then.
pub(super) async fn give_up_moves(member: &Member, view: ClusterView) -> ShardsResult<ClusterView> {
    let stays = |(tenant, Versioned { version, value }): (TenantId, &Versioned<ShardRecord>)| {
        let record = ShardRecord::serving(member.tenure.clone(), value.epoch);
        member.transition(tenant, *version, record.with_history(value.history.clone()))
    };
    let is_moving = |record: &ShardRecord| matches!(&record.ownership, Ownership::Exclusive(Exclusive::Moving { from, .. }) if *from == member.tenure);
    let moving = shards::tenants(&view).into_iter().filter(|(_, record)| is_moving(&record.value));
    propose(member, moving.map(stays).collect(), None, view).await
}

/// Changes records, if what is expected beside them is so. Returns them as they are then.
pub(super) async fn propose(
    member: &Member,
    transitions: Vec<Transition>,
    expects: Option<RootExpectation>,
    view: ClusterView,
) -> ShardsResult<ClusterView> {
    if transitions.is_empty() {
        return Ok(view);
    }
    let batches = transitions.chunks(MAX_BATCH_RECORDS - usize::from(expects.is_some()));
    let batches = batches.map(|transitions| Batch {
        transitions: transitions.to_vec(),
        expects: expects.iter().cloned().collect(),
        ..Batch::default()
    });
    member.propose_batches(batches).await?;
    member.view().await
}
