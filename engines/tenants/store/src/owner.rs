//! All tenants of one process: which there are, their common log, and how they come back after a crash.
//!
//! Which there are the [coordinator's records](crate::shards) say. When the log was opened, and nobody else writes to it any more, the
//! tenants that have their commits in it are taken over from the node's former tenure, each under a higher epoch.
//!
//! The log is redone in two passes. The first, when it is opened, sorts its records by tenant: their *tails*. The second is
//! each tenant's own, when it wakes: it reads its manifest, which says up to which commit its storage has everything, and does
//! the later commits of its tail again. Nothing is written meanwhile, so that a recovery which is cut short simply begins again; and a
//! process that owns thousands of tenants serves at once.

mod adoption;
mod changes;
mod moving;
mod opening;
mod tails;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use savanna_epoch::{NodeEpoch, OwnerEpoch};
use savanna_journal::{Journal, Lsn, Options, Record};
use savanna_ownership::{ClusterView, Ownership, Revision, ShardRecord, Transition, Versioned};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::{
    database::{Database, DatabaseImage, ReplayError, Replaying},
    log::{CREATED, DROPPED, RESERVED, RecordError, Shard, is_kind},
    shards::{self, Member, Numbers, ShardsError},
    storage::{Home, Storage},
    truncation::Truncation,
};

pub use self::adoption::{adopt, adopt_new, awaited};
pub use self::changes::{clean_up, create, create_as, create_elsewhere, create_while, remove, reserve, save_end};
pub use self::moving::{Moved, expect, expect_with, forget_warm};
use self::{
    adoption::{Arriving, copy, histories, only_now},
    moving::{Expected, expected_again},
    opening::{carry_over, collectable, former_tenants, give_up_moves, log_end, propose, take_over},
    tails::Tails,
};

/// Why a log cannot be redone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedoError {
    /// A tenant's commits are not there as they were written.
    #[error("tenant {tenant}: {error}")]
    Replay {
        /// The tenant.
        tenant: TenantId,
        /// What is wrong.
        error: ReplayError,
    },
    /// A commit of a tenant that was never made.
    #[error(
        "expected a commit of a tenant that there is or was, came one of tenant {0}, of whom neither the log nor the coordinator \
         knows; restore the data directory and the storage from one backup"
    )]
    NoTenant(TenantId),
    /// A record of a tenant is none.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A kind of record that there is not.
    #[error("expected a record of a tenant, came one of kind {0}; a later release wrote it: use that release")]
    Kind(u16),
    /// A log has something of a tenant that cannot be read.
    #[error(
        "tenant {tenant} is not taken over, as the log has something of it that cannot be read: {error}. The others are; nothing of the log is \
         deleted"
    )]
    Unread {
        /// The tenant.
        tenant: TenantId,
        /// What it is.
        error: Box<Self>,
    },
    /// The log ends before where it is known to have ended.
    #[error(
        "expected the log to end at LSN {listed} or later, where it ended before, but it ends at LSN {last}: its end was deleted, or \
         it was replaced by an older copy. Restore the data directory and the storage from one backup, or move both away to start empty"
    )]
    LogBehind {
        /// Up to where the log is known.
        listed: Lsn,
        /// Where it ends.
        last: Lsn,
    },
    /// The log has records, and nobody knows whose.
    #[error(
        "expected an empty log, or records of its tenants beside it, but the log begins at LSN {0} and there are no such records: they were \
         deleted. Restore the data directory and the storage from one backup, or move both away to start empty"
    )]
    NoRecords(Lsn),
    /// A tenant of a former release of which no record says which log has its commits.
    #[error(
        "expected the record of tenant {0} to name the log that has its commits, as a former release made it, but it names none; restore the \
         data directory and the storage from one backup"
    )]
    NoHistory(TenantId),
    /// The storage has a tenant that nobody knows.
    #[error(
        "the storage has segments of tenant {0}, of whom neither the log nor the coordinator knows: they were deleted, or replaced by an older \
         copy. Restore the data directory and the storage from one backup, or move both away to start empty"
    )]
    Unknown(TenantId),
    /// A tenant's name that is no text.
    #[error("expected a tenant's name, came bytes that are not UTF-8")]
    Name,
}

impl From<RedoError> for SqlError {
    fn from(error: RedoError) -> Self {
        Self::new(state::DATA_CORRUPTED, error.to_string())
    }
}

/// Commits of a tenant that are in the log and perhaps not in its storage, with their places.
pub type Tail = Vec<(Lsn, Bytes)>;

/// A log that was read.
#[derive(Debug)]
pub struct Recovery {
    journal: Arc<Journal>,
    records: Vec<Record>,
}

impl Recovery {
    /// Opens the log and reads it, so that it blocks. An older owner is told nothing more from then on.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn read(options: Options, epoch: NodeEpoch) -> Result<Self> {
        let mut records = Vec::new();
        let journal = Journal::open(options, epoch, &mut |record: Record| {
            records.push(record);
            Ok::<(), RedoError>(())
        })?;
        Ok(Self { journal: Arc::new(journal), records })
    }
}

/// A tenant of this process.
#[derive(Clone, Debug)]
struct Held {
    name: String,
    epoch: OwnerEpoch,
    /// The versions of the shard's record and of the name's root.
    shard: Revision,
    named: Revision,
}

/// The tenants of a process, by name, their tails, and their log.
#[derive(Debug)]
pub struct Owner {
    journal: Arc<Journal>,
    member: Member,
    names: BTreeMap<String, TenantId>,
    tenants: BTreeMap<TenantId, Held>,
    tails: BTreeMap<TenantId, Tail>,
    /// What came of tenants that are about to move here.
    expected: BTreeMap<TenantId, Expected>,
    /// What is open in tenants that moved here and have not woken since.
    images: BTreeMap<TenantId, Bytes>,
    /// Tenants that moved here with commits that the storage lacks.
    arrived: BTreeSet<TenantId>,
    /// When the log may be cut.
    pub truncation: Truncation,
    /// Where the log is to be cut, when that has failed.
    planned_cut: Option<Lsn>,
    /// From where on the log has what is copied of other logs, as long as nobody else knows that it is needed.
    adopting: Option<Lsn>,
    /// Tenants whose commits are being copied.
    arriving: BTreeSet<TenantId>,
    bytes_before: u64,
    /// The version of the note of where the log ends, and whether the log was cut since.
    noted: (Revision, bool),
    /// Tenants that this process is making: their records are there before it has them.
    making: BTreeSet<TenantId>,
    /// Tenants that this process has removed.
    removed: BTreeSet<TenantId>,
    /// Tenants that went to other nodes, with the epochs under which this process had them.
    left: BTreeMap<TenantId, OwnerEpoch>,
    /// Numbers that tenants are being restored under, with the versions of their roots.
    reserved: BTreeMap<TenantId, Revision>,
    /// Numbers of which the storage perhaps has something that is to go, likewise.
    garbage: BTreeMap<TenantId, Revision>,
    /// Tenants that were granted to this process under records of these versions, and of which a log has something that it cannot read.
    unreadable: BTreeMap<TenantId, Revision>,
    /// Whether it is not known what became of a proposal that says that tenants have arrived.
    is_unsure: bool,
    /// The records as they were at the start, as long as former owners may have left something in the storage of tenants that were
    /// removed by then.
    strays_of: Option<(ClusterView, Numbers)>,
}

impl Owner {
    /// Takes over the tenants of a log. What former releases kept beside it is carried over to the coordinator's records.
    ///
    /// # Errors
    /// Those of the storage and the coordinator; XX001 if the log is not one of tenants.
    pub async fn open(
        recovery: Recovery,
        member: Member,
        storage: &Storage,
        (log_distance, threads): (u64, usize),
    ) -> Result<Self> {
        let Recovery { journal, records } = recovery;
        // Listed before the records are read: whoever made them is in these.
        let (stored, noted) = (storage.tenants().await?, storage.noted().await?);
        let mut view = member.view().await?;
        let known = shards::numbers(&view)?;
        let numbers = match known {
            Some(numbers) => numbers,
            None => {
                let former = former_tenants(storage, &journal, &records).await?;
                let numbers = carry_over(&member, former, OwnerEpoch(journal.epoch().0), &view).await?;
                view = member.view().await?;
                numbers
            }
        };
        let noted_end = log_end(&member, &view, &journal, &records).await?;
        // What earlier processes of the tenure have proposed has been done by now, or never will be.
        let view = take_over(&member, member.view().await?).await?;
        let mut view = give_up_moves(&member, view).await?;
        let mut truncation = Truncation::new(log_distance, threads);
        let mut bytes_before = 0;
        for record in &records {
            bytes_before += record.payload.len() as u64;
            truncation.note_end(record.lsn, bytes_before);
        }
        let expected = expected_again(&member, &view, &records)?;
        let mut tails = tails_here(&member, &view, numbers, records)?;
        let arriving = arriving(&member, &view, &mut tails);
        tails.extend(copy(&journal, &arriving).await?);
        let arrived = arriving.iter().map(|arriving| arriving.arrives(&member));
        let only_now = (!arriving.is_empty()).then(|| only_now(&member, &view)).transpose()?;
        view = propose(&member, arrived.chain(unnamed(&member, &view)).collect(), only_now, view).await?;
        if known.is_none() {
            // Others serve as soon as it is there, and adopt what is here: by then the records say what that is.
            member.propose(&shards::put_numbers(numbers).into()).await.map_err(ShardsError::from)?;
        }
        let mut owner = Self {
            names: BTreeMap::new(),
            tenants: BTreeMap::new(),
            tails,
            expected,
            images: BTreeMap::new(),
            arrived: BTreeSet::new(),
            truncation,
            planned_cut: None,
            adopting: None,
            arriving: BTreeSet::new(),
            bytes_before,
            noted: (noted_end, false),
            making: BTreeSet::new(),
            removed: BTreeSet::new(),
            left: BTreeMap::new(),
            reserved: BTreeMap::new(),
            garbage: collectable(&view, &member.tenure),
            unreadable: BTreeMap::new(),
            is_unsure: false,
            strays_of: None,
            journal,
            member,
        };
        owner.hold(&view);
        // Were such a number given again, somebody would have another's rows.
        for tenant in stored.union(&noted) {
            if !is_known(&view, numbers, *tenant) {
                return Err(RedoError::Unknown(*tenant).into());
            }
        }
        owner.miss(noted.difference(&stored));
        owner.strays_of = Some((view, numbers));
        Ok(owner)
    }

    /// Takes in the tenants that this node serves, whose commits are in its log, and that this process has not. Returns which.
    fn hold(&mut self, view: &ClusterView) -> Vec<TenantId> {
        let mut names = shards::names(view);
        let mut held = Vec::new();
        let granted: Vec<_> = self.granted(view).collect();
        for (tenant, record) in granted {
            if record.value.history.as_ref().is_some_and(|history| history.log == self.member.log) {
                let Some((name, named)) = names.remove(&tenant) else {
                    self.leave_unnamed(tenant, record.version);
                    continue;
                };
                let epoch = record.value.epoch;
                self.note_created(tenant, Held { name, epoch, shard: record.version, named });
                self.take_expected(tenant, epoch);
                held.push(tenant);
            }
        }
        held
    }

    /// Leaves a tenant where it is whose name is not in the records, or cannot be read, as long as its own record is this one. Always `false`: it is
    /// not taken in.
    fn leave_unnamed(&mut self, tenant: TenantId, version: Revision) -> bool {
        tracing::error!(
            tenant,
            "expected a name of the tenant in the coordinator's records, found none that can be read"
        );
        self.unreadable.insert(tenant, version);
        false
    }

    /// Says of which tenants the storage has lost everything.
    fn miss<'t>(&self, lost: impl Iterator<Item = &'t TenantId>) {
        for tenant in lost {
            if let Some(name) = self.name(*tenant) {
                tracing::error!(
                    tenant,
                    name,
                    "expected the tenant's segments, found none: its folder was deleted or moved. Nobody is let in to it; restore the log and \
                     the storage from one backup, or drop it"
                );
            }
        }
    }

    fn note_created(&mut self, tenant: TenantId, held: Held) {
        self.reserved.remove(&tenant);
        self.names.insert(held.name.clone(), tenant);
        self.tenants.insert(tenant, held);
    }

    fn note_removed(&mut self, tenant: TenantId, version: Revision) {
        if let Some(held) = self.tenants.remove(&tenant) {
            self.names.remove(&held.name);
        }
        self.tails.remove(&tenant);
        self.images.remove(&tenant);
        self.arrived.remove(&tenant);
        self.removed.insert(tenant);
        self.garbage.insert(tenant, version);
    }

    /// The log.
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// The number of the tenant of a name.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Option<TenantId> {
        self.names.get(name).copied()
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, TenantId)> {
        self.names.iter().map(|(name, tenant)| (name.as_str(), *tenant))
    }

    /// Whether this process has a tenant.
    #[must_use]
    pub fn has(&self, tenant: TenantId) -> bool {
        self.tenants.contains_key(&tenant)
    }

    /// The epoch under which this process has a tenant.
    #[must_use]
    pub fn epoch(&self, tenant: TenantId) -> Option<OwnerEpoch> {
        self.tenants.get(&tenant).map(|held| held.epoch)
    }

    /// Gives a reserved number up: what the storage has under it is removed.
    pub fn give_up(&mut self, tenant: TenantId) {
        if let Some(version) = self.reserved.remove(&tenant) {
            self.garbage.insert(tenant, version);
        }
    }

    fn expect_free(&self, name: &str) -> Result<()> {
        if self.names.contains_key(name) { Err(duplicate(name)) } else { Ok(()) }
    }

    /// Refuses what would wait for space, as the log does.
    fn expect_space(&self) -> Result<()> {
        self.journal.full().map_or(Ok(()), |full| Err(full.into()))
    }

    /// A tenant wakes on a thread: what is to be redone of it.
    pub fn take_tail(&mut self, tenant: TenantId, thread: usize) -> Tail {
        let tail = self.tails.remove(&tenant).unwrap_or_default();
        if let Some((lsn, _)) = tail.first() {
            self.truncation.lower_floor(thread, *lsn);
        }
        tail
    }

    /// A tenant could not wake: its tail is kept for the next time.
    pub fn put_back(&mut self, tenant: TenantId, tail: Tail) {
        if !tail.is_empty() && self.tenants.contains_key(&tenant) {
            self.tails.insert(tenant, tail);
        }
    }

    /// Tenants that sleep and need the log further back than its distance: they are to be woken and flushed.
    #[must_use]
    pub fn sleepers_in_the_way(&self) -> Vec<TenantId> {
        let horizon = self.truncation.horizon();
        let first = |tail: &Tail| tail.first().map_or(horizon, |(lsn, _)| *lsn);
        let sleepers = self.tails.iter().filter(|(tenant, _)| self.tenants.contains_key(tenant));
        sleepers.filter(|(_, tail)| first(tail) < horizon).map(|(tenant, _)| *tenant).collect()
    }

    /// The name of a tenant.
    #[must_use]
    pub fn name(&self, tenant: TenantId) -> Option<&str> {
        self.tenants.get(&tenant).map(|held| held.name.as_str())
    }

    /// Notes how long the log is by now.
    pub fn note_log(&mut self) {
        let bytes = self.bytes_before + self.journal.read_cost();
        self.truncation.note_end(self.journal.durable(), bytes);
    }

    /// Cuts the log where nobody needs it.
    ///
    /// # Errors
    /// Those of the journal; it is tried again then.
    pub fn cut(&mut self) -> Result<()> {
        if self.planned_cut.is_none() {
            let tails = self.tails.values().filter_map(|tail| tail.first()).map(|(lsn, _)| *lsn);
            let expected = self.expected.values().filter_map(|expected| expected.first);
            let others = tails.chain(expected).chain(self.adopting).chain([self.journal.durable().next()]).min();
            self.planned_cut = self.truncation.cut(others);
        }
        if let Some(lsn) = self.planned_cut {
            self.journal.truncate_before(lsn)?;
            self.planned_cut = None;
            self.noted.1 = true;
        }
        Ok(())
    }
}

/// Wakes a tenant that is owned under an epoch: opens its place in the storage and does the commits of its tail again that are not there. The database has
/// its catalog, and can be used at once.
///
/// # Errors
/// Those of the storage; XX001 if a record or the catalog cannot be read.
pub async fn wake(
    storage: &Arc<Storage>,
    journal: &Arc<Journal>,
    (tenant, epoch): (TenantId, OwnerEpoch),
    tail: &Tail,
) -> Result<(Arc<Home>, Database)> {
    let home = Home::open(storage, tenant, epoch).await?;
    let mut rows = Replaying::over(home.store());
    for (lsn, record) in tail {
        home.redo(&mut rows, *lsn, record).await?;
    }
    let database = serve(rows, &home, journal, tenant).await?;
    Ok((home, database))
}

/// A tenant with its catalog.
async fn serve(rows: Replaying, home: &Home, journal: &Arc<Journal>, tenant: TenantId) -> Result<Database> {
    let shard = Shard { journal: Arc::clone(journal), shard: tenant };
    let mut database = rows.serve(Box::new(shard)).map_err(|error| RedoError::Replay { tenant, error })?;
    while let Some(want) = database.load()? {
        let blocks = home.fetch(&want).await?;
        database.chores().arrived(&blocks)?;
    }
    Ok(database)
}

/// As [`wake`], of a tenant that has moved here with what was open in it.
///
/// # Errors
/// As [`wake`]; XX001 if the image cannot be read.
pub async fn wake_moved(
    storage: &Arc<Storage>,
    journal: &Arc<Journal>,
    (tenant, epoch): (TenantId, OwnerEpoch),
    (tail, image): (&Tail, &DatabaseImage),
) -> Result<(Arc<Home>, Database)> {
    let home = Home::open(storage, tenant, epoch).await?;
    let rows = Replaying::taking_over(home.store(), image)?;
    let mut database = serve(rows, &home, journal, tenant).await?;
    database.go_on(image, tail)?;
    Ok((home, database))
}

/// What the log has of the tenants that this node serves and whose histories are here.
fn tails_here(
    member: &Member,
    view: &ClusterView,
    numbers: Numbers,
    records: Vec<Record>,
) -> Result<BTreeMap<TenantId, Tail>> {
    let mut here = shards::tenants(view);
    here.retain(|_, record| {
        let history = record.value.history.as_ref();
        record.value.owner() == Some(&member.tenure) && history.is_none_or(|history| member.is_here(&history.log))
    });
    let mut tails = Tails::of(histories(&here));
    for record in records {
        let (tenant, kind) = (record.shard, record.kind);
        if !is_kind(kind) {
            return Err(RedoError::Kind(kind).into());
        }
        // What former releases said of tenants was carried over.
        let is_said = matches!(kind, CREATED | DROPPED | RESERVED);
        if !tails.take(record).map_err(RedoError::Record)? && !is_said && !is_known(view, numbers, tenant) {
            return Err(RedoError::NoTenant(tenant).into());
        }
    }
    Ok(tails.into_tails())
}

/// Tenants that this node serves and whose histories are in its log as that was called when others had it.
fn arriving(member: &Member, view: &ClusterView, tails: &mut BTreeMap<TenantId, Tail>) -> Vec<Arriving> {
    let is_before = |record: &ShardRecord| {
        let log = record.history.as_ref().map(|history| &history.log);
        record.owner() == Some(&member.tenure) && log.is_some_and(|log| member.before.contains(log))
    };
    let before = shards::tenants(view).into_iter().filter(|(_, record)| is_before(&record.value));
    let arriving = before.map(|(tenant, record)| {
        let commits = tails.remove(&tenant).unwrap_or_default().into_iter().map(|(_, commit)| commit).collect();
        Arriving { tenant, record: record.clone(), commits }
    });
    arriving.collect()
}

/// The histories of tenants that were made, or carried over, and are served by nobody yet: whatever the log has of them counts.
fn unnamed(member: &Member, view: &ClusterView) -> Vec<Transition> {
    let is_unnamed = |record: &ShardRecord| record.owner() == Some(&member.tenure) && record.history.is_none();
    let unnamed = shards::tenants(view).into_iter().filter(|(_, record)| is_unnamed(&record.value));
    let named = unnamed.map(|(tenant, Versioned { version, value })| {
        member.transition(tenant, *version, value.clone().with_history(Some(member.history(value.epoch))))
    });
    named.collect()
}

/// Whether there is or was a tenant of this number, or one is to come.
fn is_known(view: &ClusterView, numbers: Numbers, tenant: TenantId) -> bool {
    let is_garbage = view.root(&shards::garbage_key(tenant)).is_some();
    tenant <= numbers.carried || is_garbage || view.shard(&shards::shard(tenant)).is_some()
}

/// Whether there was a tenant of this number, and nothing of it is to be there.
fn is_gone(view: &ClusterView, numbers: Numbers, tenant: TenantId) -> bool {
    let is_served = |record: &Versioned<ShardRecord>| record.value.ownership != Ownership::Retired;
    let is_there = view.shard(&shards::shard(tenant)).is_some_and(is_served);
    // What is garbage goes by its own record.
    let is_garbage = view.root(&shards::garbage_key(tenant)).is_some();
    // A later release may have cut it into parts, which have its rows.
    let of_parts = [shards::shard(tenant).0, shards::garbage_key(tenant)].map(|whole| format!("{whole}/"));
    let has_parts = view.shards(&of_parts[0]).next().is_some() || view.roots(&of_parts[1]).next().is_some();
    is_known(view, numbers, tenant) && !is_there && !is_garbage && !has_parts
}

fn duplicate(name: &str) -> SqlError {
    SqlError::new(state::DUPLICATE_DATABASE, format!("database \"{name}\" already exists"))
}

#[cfg(test)]
mod tests;
