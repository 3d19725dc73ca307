//! Tenants that change their node while both live: what the node writes first that one comes to, and what that forgets which one leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use savanna_epoch::{LogId, OwnerEpoch};
use savanna_journal::{Draft, JournalError, Lsn, Record};
use savanna_ownership::{ClusterView, Exclusive, Ownership, Revision, Tenure, Versioned};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::{Result, SqlError, state};
use serde::{Deserialize, Serialize};

use super::{Owner, RedoError, Tail};
use crate::{
    log::{OWNED, TAIL, append, owned, tail},
    shards::{self, Member},
    storage::Storage,
};

/// Writes into the log that a tenant begins there under an epoch, if its record comes to say so; until then that is inert. Durable when this returns.
/// The tenant's storage has all of its commits, so that nothing else of it is needed. Returns the log.
///
/// What is in the log before does not count then: a tenant that is here, or arrives, is refused, as this may have come late.
///
/// # Errors
/// 55006 if the tenant is here or arrives; those of the log, which is not waited for.
pub async fn expect(owner: &Mutex<Owner>, tenant: TenantId, epoch: OwnerEpoch) -> Result<LogId> {
    expect_with(owner, tenant, (epoch, 0), Moved::default()).await
}

/// What a tenant brings along that its storage has not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The records of commits, oldest first.
    pub tail: Vec<Vec<u8>>,
    /// What is open in it, in the words of whoever serves it; nothing if nothing is.
    pub image: Option<Vec<u8>>,
}

impl Moved {
    /// Its bytes.
    ///
    /// # Errors
    /// XX000, which cannot be.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(SqlError::internal)
    }

    /// What somebody has [encoded](Self::encode).
    ///
    /// # Errors
    /// XX001 if it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged =
            |error| format!("expected what goes along with a database that moves, came something else: {error}");
        postcard::from_bytes(bytes).map_err(|error| SqlError::new(state::DATA_CORRUPTED, damaged(error)))
    }
}

/// What came of a tenant that is about to move here, by the attempt that brought it.
#[derive(Debug)]
pub(super) struct Expected {
    attempt: u64,
    /// None as long as not all of it has come, or when it was given up.
    epoch: OwnerEpoch,
    /// Whether more of it comes.
    pub(super) is_coming: bool,
    /// From where on the log has it, if it has more than that it begins here.
    pub(super) first: Option<Lsn>,
    tail: Tail,
    image: Option<Bytes>,
}

/// As [`expect`], with commits that the storage has not: they are written into the log, too. Of two attempts to bring the tenant here the later one counts, whichever
/// comes last.
///
/// # Errors
/// As [`expect`]; 55006 if a later attempt has come.
pub async fn expect_with(
    owner: &Mutex<Owner>,
    tenant: TenantId,
    (epoch, attempt): (OwnerEpoch, u64),
    moved: Moved,
) -> Result<LogId> {
    let (journal, log) = {
        let owner = owner.lock();
        (Arc::clone(&owner.journal), owner.member.log.clone())
    };
    let begins = epoch.0.to_le_bytes();
    let Moved { tail, image } = moved;
    let has_tail = !tail.is_empty();
    let begun = Draft { shard: tenant, kind: OWNED, payload: &begins };
    append_unlocked(owner, (tenant, attempt), &begun, |owner, first| {
        let first = has_tail.then_some(first);
        let (epoch, tail) = (OwnerEpoch::NONE, Tail::new());
        owner.expected.insert(tenant, Expected { attempt, epoch, is_coming: true, first, tail, image: None });
    })
    .await?;
    for commit in tail {
        let payload = [&begins[..], &commit].concat();
        let commit = Bytes::from(commit);
        let comes = Draft { shard: tenant, kind: TAIL, payload: &payload };
        append_unlocked(owner, (tenant, attempt), &comes, |owner, lsn| {
            if let Some(expected) = owner.coming(tenant, attempt) {
                expected.tail.push((lsn, commit.clone()));
            }
        })
        .await?;
    }
    {
        let mut owner = owner.lock();
        let expected = owner.coming(tenant, attempt).ok_or_else(given_up)?;
        (expected.epoch, expected.is_coming, expected.image) = (epoch, false, image.map(Bytes::from));
    }
    journal.wait_durable(journal.appended()).await?;
    Ok(log)
}

/// What was read ahead of tenants that do not come here after all, as the records say, is needed no more.
pub fn forget_warm(owner: &Mutex<Owner>, storage: &Storage, view: &ClusterView) {
    let expected = storage.expected_warm();
    if expected.is_empty() {
        return;
    }
    let owner = owner.lock();
    let is_over = |(tenant, attempt): &(TenantId, u64)| {
        !owner.has(*tenant) && is_given_up(view, &owner.member.tenure, *tenant, *attempt)
    };
    expected.into_iter().filter(is_over).for_each(|(tenant, attempt)| storage.give_up_warm(tenant, attempt));
}

/// Whether an attempt to bring a tenant to a node was given up, as the records say.
fn is_given_up(view: &ClusterView, node: &Tenure, tenant: TenantId, attempt: u64) -> bool {
    // A view that is older than the attempt says nothing of it, nor does one that is older than the tenant.
    let Some(record) = view.shard(&shards::shard(tenant)) else { return view.revision().0 > attempt };
    let comes = match &record.value.ownership {
        Ownership::Exclusive(Exclusive::Moving { to, .. }) => to == node,
        _ => record.value.owner() == Some(node),
    };
    record.version.0 > attempt && !comes
}

fn given_up() -> SqlError {
    SqlError::new("55006", "the attempt to bring the database here was given up")
}

/// Appends a record of an attempt to bring a tenant here as long as nothing is against that, and does what belongs to it before anybody else does anything. While
/// too much waits before it, it waits, and the owner is free.
async fn append_unlocked(
    owner: &Mutex<Owner>,
    (tenant, attempt): (TenantId, u64),
    draft: &Draft<'_>,
    then: impl Fn(&mut Owner, Lsn),
) -> Result<()> {
    loop {
        let journal = {
            let mut owner = owner.lock();
            owner.expect_attempt(tenant, attempt, draft.kind == OWNED)?;
            match append(&owner.journal, std::slice::from_ref(draft)) {
                Ok(lsn) => {
                    then(&mut owner, lsn);
                    return Ok(());
                }
                Err(JournalError::Backlog { .. }) => Arc::clone(&owner.journal),
                Err(error) => return Err(error.into()),
            }
        };
        journal.wait_durable(journal.appended()).await?;
    }
}

/// What the log has of tenants that are about to come here: an earlier process of the tenure has said that it is there, so that they may come at any moment.
/// What was open in them has ended with that process.
pub(super) fn expected_again(
    member: &Member,
    view: &ClusterView,
    records: &[Record],
) -> Result<BTreeMap<TenantId, Expected>> {
    let mut all = BTreeMap::new();
    for (tenant, Versioned { version, value }) in shards::tenants(view) {
        match &value.ownership {
            Ownership::Exclusive(Exclusive::Moving { to, .. }) if *to == member.tenure => {}
            _ => continue,
        }
        let (attempt, comes) = (version.0, value.epoch.next());
        let mut expected = None;
        for record in records.iter().filter(|record| record.shard == tenant) {
            match record.kind {
                OWNED if owned(&record.payload).map_err(RedoError::Record)? == comes => {
                    let (first, tail) = (Some(record.lsn), Tail::new());
                    expected = Some(Expected { attempt, epoch: comes, is_coming: false, first, tail, image: None });
                }
                TAIL => {
                    let (epoch, commit) = tail(&record.payload).map_err(RedoError::Record)?;
                    if let Some(expected) = expected.as_mut().filter(|_| epoch == comes) {
                        expected.tail.push((record.lsn, commit));
                    }
                }
                _ => {}
            }
        }
        all.extend(expected.map(|expected| (tenant, expected)));
    }
    Ok(all)
}

impl Owner {
    /// Makes sure that a tenant of this process has nothing in the log that was not done again, nor anything open that came with it and was not taken up.
    ///
    /// # Errors
    /// 3D000 if there is none, 55006 if it has.
    pub fn expect_no_tail(&self, tenant: TenantId) -> Result<()> {
        let name = self.name(tenant).ok_or_else(|| SqlError::new("3D000", "the database is not here"))?;
        if self.images.contains_key(&tenant) {
            return Err(SqlError::new("55006", format!("database \"{name}\" has just come with open transactions")));
        }
        if self.tails.contains_key(&tenant) {
            return Err(SqlError::new("55006", format!("database \"{name}\" has commits that its storage has not")));
        }
        Ok(())
    }

    /// Makes sure that an attempt to bring a tenant here may write: when it `begins`, or goes on.
    pub(super) fn expect_attempt(&mut self, tenant: TenantId, attempt: u64, begins: bool) -> Result<()> {
        self.expect_space()?;
        if self.has(tenant) || self.arriving.contains(&tenant) {
            return Err(SqlError::new("55006", "the database is here already"));
        }
        if self.expected.get(&tenant).is_some_and(|expected| expected.attempt > attempt) {
            return Err(SqlError::new("55006", "the database comes here by a later attempt"));
        }
        if !begins && self.coming(tenant, attempt).is_none() {
            return Err(given_up());
        }
        Ok(())
    }

    /// What has come so far of a tenant by an attempt that goes on.
    fn coming(&mut self, tenant: TenantId, attempt: u64) -> Option<&mut Expected> {
        self.expected.get_mut(&tenant).filter(|expected| expected.attempt == attempt && expected.is_coming)
    }

    /// A tenant is another node's from now on: its record says so.
    pub fn leave(&mut self, tenant: TenantId) {
        if let Some(held) = self.tenants.remove(&tenant) {
            self.names.remove(&held.name);
            self.left.insert(tenant, held.epoch);
        }
        self.tails.remove(&tenant);
        self.images.remove(&tenant);
        self.arrived.remove(&tenant);
    }

    /// A tenant has arrived under an epoch: what it brought along is its tail, and what is open in it.
    pub(super) fn take_expected(&mut self, tenant: TenantId, epoch: OwnerEpoch) {
        let Some(expected) = self.expected.remove(&tenant).filter(|expected| expected.epoch == epoch) else { return };
        if !expected.tail.is_empty() {
            self.tails.insert(tenant, expected.tail);
            self.arrived.insert(tenant);
        }
        self.images.extend(expected.image.map(|image| (tenant, image)));
    }

    /// A tenant comes in another way, or by another attempt: what it brought along is needed no more.
    pub(super) fn forget_expected(&mut self, tenant: TenantId) {
        if let Some(expected) = self.expected.get_mut(&tenant) {
            (expected.first, expected.tail, expected.image) = (None, Tail::new(), None);
            (expected.epoch, expected.is_coming) = (OwnerEpoch::NONE, false);
        }
    }

    /// Attempts to bring tenants here that were given up, as the records say: what they brought is needed no more, and no longer keeps the log from being cut.
    pub(super) fn forget_given_up(&mut self, view: &ClusterView) {
        let is_over = |(tenant, expected): &(&TenantId, &Expected)| {
            is_given_up(view, &self.member.tenure, **tenant, expected.attempt)
        };
        let over: Vec<_> = self.expected.iter().filter(is_over).map(|(tenant, _)| *tenant).collect();
        over.into_iter().for_each(|tenant| self.forget_expected(tenant));
    }

    /// An attempt to bring a tenant here was given up.
    pub fn expect_no_more(&mut self, tenant: TenantId, attempt: u64) {
        if self.expected.get(&tenant).is_some_and(|expected| expected.attempt == attempt) {
            self.forget_expected(tenant);
        }
    }

    /// The tenants of which something is kept here that an attempt to bring them has brought, and that may come yet.
    #[must_use]
    pub fn expecting(&self) -> Vec<TenantId> {
        let is_kept = |expected: &Expected| expected.is_coming || expected.first.is_some() || expected.image.is_some();
        self.expected.iter().filter(|(_, expected)| is_kept(expected)).map(|(tenant, _)| *tenant).collect()
    }

    /// What was open in a tenant that has moved here, for whoever wakes it.
    pub fn take_image(&mut self, tenant: TenantId) -> Option<Bytes> {
        self.images.remove(&tenant)
    }

    /// Whether a tenant has moved here with something open, and has not woken since.
    #[must_use]
    pub fn has_image(&self, tenant: TenantId) -> bool {
        self.images.contains_key(&tenant)
    }

    /// The tenants that moved here with something that is not in the storage, and have not woken since: what is open is not to wait for ever, and commits are not to keep
    /// the log, nor the tenant from moving on asleep.
    #[must_use]
    pub fn due_to_wake(&self) -> Vec<TenantId> {
        let is_due = |tenant: &&TenantId| self.tails.contains_key(tenant) && !self.images.contains_key(tenant);
        self.images.keys().chain(self.arrived.iter().filter(is_due)).copied().collect()
    }

    /// A tenant could not wake: what is open in it is kept for the next time.
    pub fn put_image_back(&mut self, tenant: TenantId, image: Bytes) {
        if self.tenants.contains_key(&tenant) {
            self.images.insert(tenant, image);
        }
    }

    /// Whether a tenant went to another node from here, and is not here again.
    #[must_use]
    pub fn has_left(&self, tenant: TenantId) -> bool {
        self.left.contains_key(&tenant) && !self.has(tenant)
    }

    /// The log.
    #[must_use]
    pub const fn log_id(&self) -> &LogId {
        &self.member.log
    }

    /// The record of a tenant of this process has another version by now.
    pub fn stay(&mut self, tenant: TenantId, version: Revision) {
        if let Some(held) = self.tenants.get_mut(&tenant) {
            held.shard = version;
        }
    }
}
