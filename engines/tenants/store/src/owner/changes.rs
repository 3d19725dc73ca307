//! Tenants are made and removed: first in the records, then here, then in the storage.
//!
//! | after | a process that ends there leaves | the next owner |
//! |---|---|---|
//! | a number was taken | a number that nobody has | gives another |
//! | name and shard were made | a tenant without a log, of which nobody was told | says which log it is, serves it |
//! | the log was named | the tenant | serves it |
//! | a number was reserved | perhaps something in the storage | removes that, and the reservation |
//! | shard and name were removed | perhaps all of it in the storage, as garbage | removes that, and its note |
//! | the storage has nothing of it | a note of garbage | removes it |

use std::sync::Arc;

use parking_lot::Mutex;
use savanna_epoch::OwnerEpoch;
use savanna_ownership::{Batch, CoordinatorError, Revision, RootExpectation, ShardRecord, Tenure};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::{Result, SqlError, state};

use super::{Held, Owner, duplicate, is_gone};
use crate::{
    shards::{self, FIRST_EPOCH, Garbage, LogNote, Member, Named, ShardsError},
    storage::Storage,
};

/// Makes a tenant, which sleeps. It is there, or it is not there and nobody has its name.
///
/// # Errors
/// 42P04 if there is one, 53100 if the log has no space; those of the coordinator.
pub async fn create(owner: &Mutex<Owner>, name: &str) -> Result<TenantId> {
    create_while(owner, name, &[]).await
}

/// As [`create`], as long as these roots are as whoever has chosen the place has seen them.
///
/// # Errors
/// As [`create`], and 57P03 if one of them is not.
pub async fn create_while(owner: &Mutex<Owner>, name: &str, expects: &[RootExpectation]) -> Result<TenantId> {
    let member = {
        let owner = owner.lock();
        owner.expect_space()?;
        owner.expect_free(name)?;
        owner.member.clone()
    };
    let tenant = member.number().await?;
    make(owner, &member, (tenant, name), (None, expects)).await?;
    Ok(tenant)
}

/// Makes a tenant that another tenure is to have, as long as these roots are as whoever has chosen it has seen them. It is there, and its owner takes it in by and
/// by, or it is not there and nobody has its name.
///
/// # Errors
/// 42P04 if there is one, 57P03 if a root is not so; those of the coordinator, also if that tenure is over.
pub async fn create_elsewhere(
    owner: &Mutex<Owner>,
    name: &str,
    at: &Tenure,
    expects: &[RootExpectation],
) -> Result<TenantId> {
    let member = {
        let owner = owner.lock();
        owner.expect_free(name)?;
        owner.member.clone()
    };
    let tenant = member.number().await?;
    make_records(&member, (tenant, name), ShardRecord::serving(at.clone(), FIRST_EPOCH), (None, expects)).await?;
    Ok(tenant)
}

/// Gives a number to a tenant that is to be [made](create_as) when its rows are in the storage. If the process ends before, what is there is
/// removed.
///
/// # Errors
/// 53100 if the log has no space; those of the coordinator.
pub async fn reserve(owner: &Mutex<Owner>) -> Result<TenantId> {
    let member = {
        let owner = owner.lock();
        owner.expect_space()?;
        owner.member.clone()
    };
    let tenant = member.number().await?;
    let reserved = Garbage::Reserved { by: member.tenure.clone() };
    let root = shards::put(shards::garbage_key(tenant), Revision::NONE, &reserved);
    let version = member.propose(&root.into()).await.map_err(ShardsError::from)?;
    owner.lock().reserved.insert(tenant, version);
    Ok(tenant)
}

/// Makes a tenant of a reserved number, as [`create_while`].
///
/// # Errors
/// As [`create_while`].
pub async fn create_as(owner: &Mutex<Owner>, tenant: TenantId, name: &str, expects: &[RootExpectation]) -> Result<()> {
    let (member, reserved) = {
        let owner = owner.lock();
        owner.expect_free(name)?;
        (owner.member.clone(), owner.reserved.get(&tenant).copied())
    };
    make(owner, &member, (tenant, name), (reserved, expects)).await
}

/// What the records of a new tenant depend on: its reservation, if it has one, and roots that have to be as they were seen.
type Depends<'a> = (Option<Revision>, &'a [RootExpectation]);

async fn make(
    owner: &Mutex<Owner>,
    member: &Member,
    (tenant, name): (TenantId, &str),
    depends: Depends<'_>,
) -> Result<()> {
    owner.lock().making.insert(tenant);
    let made = make_here(owner, member, (tenant, name), depends).await;
    owner.lock().making.remove(&tenant);
    made
}

async fn make_here(
    owner: &Mutex<Owner>,
    member: &Member,
    (tenant, name): (TenantId, &str),
    depends: Depends<'_>,
) -> Result<()> {
    let record = ShardRecord::serving(member.tenure.clone(), FIRST_EPOCH);
    let named = make_records(member, (tenant, name), record.clone(), depends).await?;
    // A grant leaves the history as it is, so that it comes after.
    let record = record.with_history(Some(member.history(FIRST_EPOCH)));
    let begun = member.propose(&member.transition(tenant, named, record).into()).await;
    let shard = begun.map_err(ShardsError::from)?;
    owner.lock().note_created(tenant, Held { name: name.to_owned(), epoch: FIRST_EPOCH, shard, named });
    Ok(())
}

/// Makes the name and the shard of a tenant. Returns their version.
async fn make_records(
    member: &Member,
    (tenant, name): (TenantId, &str),
    record: ShardRecord,
    (reserved, expects): Depends<'_>,
) -> Result<Revision> {
    let key = shards::name_key(name);
    let named = shards::put(key.clone(), Revision::NONE, &Named { number: tenant });
    let reservation = reserved.map(|version| shards::delete(shards::garbage_key(tenant), version));
    let batch = Batch {
        transitions: vec![member.transition(tenant, Revision::NONE, record)],
        roots: std::iter::once(named).chain(reservation).collect(),
        expects: expects.to_vec(),
    };
    let refused = match member.propose(&batch).await {
        Err(refused @ CoordinatorError::Conflict { .. }) => refused,
        made => return Ok(made.map_err(ShardsError::from)?),
    };
    // A number is given once: if there is a tenant of it, an answer was lost, and whoever has the tenant has changed its record since.
    let made = shards::answered(|| member.coordinator.shard(&batch.transitions[0].shard)).await;
    match (made.map_err(ShardsError::from)?, refused) {
        (Some(made), _) => Ok(made.version),
        (None, CoordinatorError::Conflict { record, .. }) if record == key => Err(duplicate(name)),
        (None, CoordinatorError::Conflict { record, .. }) if expects.iter().any(|expects| expects.key == record) => {
            let message = format!(
                "where database \"{name}\" was to be has changed while it was made: `{record}` is not as it was"
            );
            Err(SqlError::new("57P03", message).hint("Try again."))
        }
        (None, refused) => Err(ShardsError::from(refused).into()),
    }
}

/// Removes a tenant that nobody uses, and that nobody begins to use.
///
/// # Errors
/// 3D000 if there is none, 53100 if the log has no space, 55006 if it has begun to move, or has moved; those of the coordinator.
pub async fn remove(owner: &Mutex<Owner>, tenant: TenantId) -> Result<()> {
    let (member, held) = {
        let owner = owner.lock();
        owner.expect_space()?;
        (owner.member.clone(), owner.tenants.get(&tenant).cloned())
    };
    let Some(Held { name, epoch, shard, named }) = held else {
        return Err(SqlError::new(state::INVALID_CATALOG_NAME, "the database was dropped"));
    };
    let batch = Batch {
        transitions: vec![member.transition(tenant, shard, ShardRecord::retired(epoch))],
        roots: vec![
            shards::delete(shards::name_key(&name), named),
            shards::put(shards::garbage_key(tenant), Revision::NONE, &Garbage::Removed),
        ],
        ..Batch::default()
    };
    let version = match member.propose(&batch).await {
        Err(CoordinatorError::Conflict { record, .. }) if record == batch.transitions[0].shard.0 => {
            note_version(owner, &member, (tenant, epoch)).await?;
            return Err(SqlError::new("55006", format!("database \"{name}\" is on its way to another node")));
        }
        proposed => proposed.map_err(ShardsError::from)?,
    };
    owner.lock().note_removed(tenant, version);
    Ok(())
}

/// Notes which version the record of a tenant has by now, if it is of this process still: whoever moves it has changed it, and may have ended without a word.
async fn note_version(owner: &Mutex<Owner>, member: &Member, (tenant, epoch): (TenantId, OwnerEpoch)) -> Result<()> {
    let record = member.coordinator.shard(&shards::shard(tenant)).await.map_err(ShardsError::from)?;
    if let Some(record) = record
        && record.value.owner() == Some(&member.tenure)
        && record.value.epoch == epoch
    {
        owner.lock().stay(tenant, record.version);
    }
    Ok(())
}

/// Removes from the storage what no tenant has any more, and notes where the log ends if it was cut.
///
/// # Errors
/// Those of the storage and of the coordinator; ask again.
pub async fn clean_up(owner: &Mutex<Owner>, storage: &Storage) -> Result<()> {
    remove_strays(owner, storage).await?;
    let (member, garbage) = {
        let owner = owner.lock();
        (owner.member.clone(), owner.garbage.clone())
    };
    for (tenant, version) in garbage {
        discard(&member, storage, tenant, version).await?;
        owner.lock().garbage.remove(&tenant);
    }
    if owner.lock().noted.1 {
        note_end(owner).await?;
    }
    Ok(())
}

/// Removes what the storage has of a tenant, as its note at this version asks. Nothing is removed if the note has changed: a tenant of that
/// number may be there by now. Its number stays known, so that nobody misses a tenant where something of it is left.
async fn discard(member: &Member, storage: &Storage, tenant: TenantId, version: Revision) -> Result<()> {
    let key = shards::garbage_key(tenant);
    let claimed = changed(member, &shards::put(key.clone(), version, &Garbage::Removed).into()).await?;
    let Some(version) = claimed else { return Ok(()) };
    storage.remove(tenant).await?;
    let shard = member.coordinator.shard(&shards::shard(tenant)).await.map_err(ShardsError::from)?;
    let retired = || member.transition(tenant, Revision::NONE, ShardRecord::retired(OwnerEpoch::NONE));
    let transitions = shard.is_none().then(retired).into_iter().collect();
    changed(member, &Batch { transitions, roots: vec![shards::delete(key, version)], ..Batch::default() }).await?;
    Ok(())
}

/// Changes records; none if they are not at the expected versions.
async fn changed(member: &Member, batch: &Batch) -> Result<Option<Revision>> {
    match member.coordinator.apply(batch).await {
        Ok(version) => Ok(Some(version)),
        Err(CoordinatorError::Conflict { .. }) => Ok(None),
        Err(error) => Err(ShardsError::from(error).into()),
    }
}

/// Notes the end of a log that nobody writes to any more: the next start misses what is deleted of it.
///
/// # Errors
/// Those of the coordinator and of the log.
pub async fn save_end(owner: &Mutex<Owner>) -> Result<()> {
    let journal = Arc::clone(owner.lock().journal());
    journal.wait_durable(journal.appended()).await?;
    note_end(owner).await?;
    if owner.lock().noted.1 { note_end(owner).await } else { Ok(()) }
}

/// Notes where the log ends, certainly under another version than before: what expected an earlier one is refused when it arrives.
pub(super) async fn renew_note(owner: &Mutex<Owner>) -> Result<()> {
    loop {
        note_end(owner).await?;
        if !owner.lock().noted.1 {
            return Ok(());
        }
    }
}

/// Notes where the log ends.
async fn note_end(owner: &Mutex<Owner>) -> Result<()> {
    let (member, journal, noted) = {
        let owner = owner.lock();
        (owner.member.clone(), Arc::clone(&owner.journal), owner.noted.0)
    };
    let end = LogNote { end: journal.durable().0 };
    let root = shards::put(shards::log_key(&member.log), noted, &end);
    let noted = match member.coordinator.apply(&root.into()).await {
        Ok(version) => (version, false),
        // The answer was lost, or a former owner had still to say how far it had come; this one says it the next time.
        Err(CoordinatorError::Conflict { current, .. }) => (current, true),
        Err(error) => return Err(ShardsError::from(error).into()),
    };
    owner.lock().noted = noted;
    Ok(())
}

/// Removes, once after the start, what former owners left of tenants after those were removed: one that did not know yet that it was
/// replaced may have flushed. No record says so.
async fn remove_strays(owner: &Mutex<Owner>, storage: &Storage) -> Result<()> {
    let Some((view, numbers)) = owner.lock().strays_of.clone() else { return Ok(()) };
    for tenant in storage.tenants().await? {
        if is_gone(&view, numbers, tenant) {
            storage.remove(tenant).await?;
        }
    }
    owner.lock().strays_of = None;
    Ok(())
}
