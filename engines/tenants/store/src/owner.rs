//! All tenants of one process: which there are, their common log, and how they come back after a crash.
//!
//! The log is redone in two passes. The first, when it is opened, sorts its records by tenant: their *tails*. The second is
//! each tenant's own, when it wakes: it reads its manifest, which says up to which commit its storage has everything, and does
//! the later commits of its tail again. Nothing is written meanwhile, so that a recovery which is cut short simply begins again; and a
//! process that owns thousands of tenants serves at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options, Record};
use savanna_tenants_segments::TenantId;
use savanna_tenants_values::error::{Result, SqlError, state};

use crate::{
    database::{Database, ReplayError, Replaying},
    log::{COMMIT, CREATED, DROPPED, RESERVED, Shard, UNLINKED, append, link},
    roots::{Roots, RootsFile},
    storage::{Home, Storage, StorageError},
    truncation::Truncation,
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
        "expected a commit of a tenant that the log created before, came one of tenant {0}; the beginning of the \
         log is missing"
    )]
    NoTenant(TenantId),
    /// A kind of record that there is not.
    #[error("expected a record of a tenant, came one of kind {0}; a later release wrote it: use that release")]
    Kind(u16),
    /// The log ends before where it ended when the list of tenants was saved.
    #[error(
        "expected the log to end at LSN {listed} or later, where it ended when the list of tenants was saved, but \
         it ends at LSN {last}: its end was deleted, or it was replaced by an older copy. Restore the log and the \
         storage from one backup, or move both away to start empty"
    )]
    LogBehind {
        /// Up to where the list of tenants knows of the log.
        listed: Lsn,
        /// Where the log ends.
        last: Lsn,
    },
    /// The log was cut, which is only done when the list of tenants is saved, and there is no list.
    #[error(
        "expected a list of tenants, because the log begins at LSN {0}, found none: the list was deleted. Restore \
         the log and the storage from one backup, or move both away to start empty"
    )]
    NoRoots(Lsn),
    /// The storage has a tenant of whom neither the log nor the list of tenants knows.
    #[error(
        "the storage has segments of tenant {0}, but neither the log nor the list of tenants names that tenant: \
         the log was deleted, or replaced by an older copy. Restore the log and the storage from one backup, or \
         move both away to start empty"
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

/// The tenants of a process, by name, their tails, and their log.
#[derive(Debug)]
pub struct Owner {
    journal: Arc<Journal>,
    names: BTreeMap<String, TenantId>,
    roots: Roots,
    /// The first record that the saved roots do not have.
    unsaved_from: Option<Lsn>,
    tails: BTreeMap<TenantId, Tail>,
    /// When the log may be cut.
    pub truncation: Truncation,
    /// Where the log is to be cut when what was said of tenants up to the other place is durable.
    planned_cut: Option<(Lsn, Lsn)>,
    bytes_before: u64,
    /// Of tenants up to this number a former owner may have left something in the storage after they were removed.
    strays_upto: Option<TenantId>,
}

impl Owner {
    /// The tenants of a log and their storage.
    ///
    /// # Errors
    /// Those of the storage; XX001 if the log is not one of tenants.
    pub async fn open(
        recovery: Recovery,
        storage: &Arc<Storage>,
        (log_distance, threads): (u64, usize),
    ) -> Result<(Self, RootsFile)> {
        let Recovery { journal, records } = recovery;
        // Read after the log was opened: nobody changes it any more.
        let (file, roots) = RootsFile::open(storage).await?;
        let mut owner = Self {
            journal,
            names: BTreeMap::new(),
            roots,
            unsaved_from: None,
            tails: BTreeMap::new(),
            truncation: Truncation::new(log_distance, threads),
            planned_cut: None,
            bytes_before: 0,
            strays_upto: None,
        };
        let last = owner.journal.appended();
        let first = records.first().map_or_else(|| last.next(), |record| record.lsn);
        let listed = Lsn(owner.roots.at.max(owner.roots.end));
        if listed > last {
            return Err(RedoError::LogBehind { listed, last }.into());
        }
        if owner.roots.at == 0 && first > Lsn(1) {
            return Err(RedoError::NoRoots(first).into());
        }
        for record in records {
            owner.bytes_before += record.payload.len() as u64;
            owner.truncation.note_end(record.lsn, owner.bytes_before);
            owner.redo(record)?;
        }
        owner.compare(storage).await?;
        // Whoever they were reserved for ended before the tenant was there.
        let left = std::mem::take(&mut owner.roots.reserved);
        owner.roots.removed.extend(left);
        owner.strays_upto = Some(owner.roots.last);
        owner.names = owner.roots.tenants.iter().map(|(id, name)| (name.clone(), *id)).collect();
        Ok((owner, file))
    }

    /// Whether the storage is that of this log, as far as numbers say so.
    async fn compare(&self, storage: &Storage) -> Result<()> {
        let (stored, noted) = (storage.tenants().await?, storage.noted().await?);
        // Were such a number given again, somebody would have another's rows.
        if let Some(unknown) = stored.union(&noted).find(|tenant| **tenant > self.roots.last) {
            return Err(RedoError::Unknown(*unknown).into());
        }
        for tenant in noted.difference(&stored) {
            if let Some(name) = self.name(*tenant) {
                tracing::error!(
                    tenant,
                    name,
                    "expected the tenant's segments, found none: its folder was deleted or moved. Nobody is let in to it; restore the log and \
                     the storage from one backup, or drop it"
                );
            }
        }
        Ok(())
    }

    fn redo(&mut self, record: Record) -> std::result::Result<(), RedoError> {
        let Record { shard, lsn, kind, .. } = record;
        let is_in_roots = self.roots.has(lsn);
        match kind {
            COMMIT | UNLINKED => {
                if self.roots.tenants.contains_key(&shard) {
                    let commit = if kind == COMMIT { record.payload } else { link(&record.payload).into() };
                    self.tails.entry(shard).or_default().push((lsn, commit));
                } else if !is_in_roots && !self.roots.removed.contains(&shard) {
                    return Err(RedoError::NoTenant(shard));
                }
            }
            CREATED | DROPPED | RESERVED if is_in_roots => {}
            CREATED => {
                let name = str::from_utf8(&record.payload).map_err(|_| RedoError::Name)?;
                self.note_created(shard, name, lsn);
            }
            DROPPED => self.note_removed(shard, lsn),
            RESERVED => self.note_reserved(shard, lsn),
            kind => return Err(RedoError::Kind(kind)),
        }
        Ok(())
    }

    fn note_created(&mut self, tenant: TenantId, name: &str, lsn: Lsn) {
        self.roots.last = self.roots.last.max(tenant);
        self.roots.reserved.remove(&tenant);
        self.roots.tenants.insert(tenant, name.to_owned());
        self.note_change(lsn);
    }

    fn note_removed(&mut self, tenant: TenantId, lsn: Lsn) {
        self.roots.tenants.remove(&tenant);
        self.roots.reserved.remove(&tenant);
        self.roots.removed.insert(tenant);
        self.tails.remove(&tenant);
        self.note_change(lsn);
    }

    fn note_reserved(&mut self, tenant: TenantId, lsn: Lsn) {
        self.roots.last = self.roots.last.max(tenant);
        self.roots.reserved.insert(tenant);
        self.note_change(lsn);
    }

    fn note_change(&mut self, lsn: Lsn) {
        self.roots.at = lsn.0;
        self.unsaved_from.get_or_insert(lsn);
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

    /// Makes a tenant, which sleeps. It may be told of when the log is durable up to the answer.
    ///
    /// # Errors
    /// 42P04 if there is one; those of the journal.
    pub fn create(&mut self, name: &str) -> Result<Lsn> {
        self.create_as(self.roots.last + 1, name)
    }

    /// Gives a number to a tenant that is to be [made](Self::create_as) when its rows are in the storage. If the process ends
    /// before, what is there is removed.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn reserve(&mut self) -> Result<(TenantId, Lsn)> {
        let tenant = self.roots.last + 1;
        let lsn = self.append(tenant, RESERVED, &[])?;
        self.note_reserved(tenant, lsn);
        Ok((tenant, lsn))
    }

    /// Gives a reserved number up: what the storage has under it is removed.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn give_up(&mut self, tenant: TenantId) -> Result<Lsn> {
        let lsn = self.append(tenant, DROPPED, &[])?;
        self.note_removed(tenant, lsn);
        Ok(lsn)
    }

    /// Makes a tenant of a reserved number, as [`create`](Self::create).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_as(&mut self, tenant: TenantId, name: &str) -> Result<Lsn> {
        if self.names.contains_key(name) {
            let message = format!("database \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_DATABASE, message));
        }
        let lsn = self.append(tenant, CREATED, name.as_bytes())?;
        self.note_created(tenant, name, lsn);
        self.names.insert(name.to_owned(), tenant);
        Ok(lsn)
    }

    /// Removes a tenant that nobody uses. It may be told of when the log is durable up to the answer.
    ///
    /// # Errors
    /// 3D000 if there is none; those of the journal.
    pub fn remove(&mut self, name: &str) -> Result<Lsn> {
        let Some(tenant) = self.tenant(name) else {
            let message = format!("database \"{name}\" does not exist");
            return Err(SqlError::new(state::INVALID_CATALOG_NAME, message));
        };
        let lsn = self.give_up(tenant)?;
        self.names.remove(name);
        Ok(lsn)
    }

    fn append(&self, shard: u64, kind: u16, payload: &[u8]) -> std::result::Result<Lsn, JournalError> {
        append(&self.journal, &[Draft { shard, kind, payload }])
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
        if !tail.is_empty() && self.roots.tenants.contains_key(&tenant) {
            self.tails.insert(tenant, tail);
        }
    }

    /// Tenants that sleep and need the log further back than its distance: they are to be woken and flushed.
    #[must_use]
    pub fn sleepers_in_the_way(&self) -> Vec<TenantId> {
        let horizon = self.truncation.horizon();
        let first = |tail: &Tail| tail.first().map_or(horizon, |(lsn, _)| *lsn);
        self.tails.iter().filter(|(_, tail)| first(tail) < horizon).map(|(tenant, _)| *tenant).collect()
    }

    /// The name of a tenant.
    #[must_use]
    pub fn name(&self, tenant: TenantId) -> Option<&str> {
        self.roots.tenants.get(&tenant).map(String::as_str)
    }

    /// Notes how long the log is by now.
    pub fn note_log(&mut self) {
        let bytes = self.bytes_before + self.journal.stats().bytes;
        self.truncation.note_end(self.journal.durable(), bytes);
    }

    /// Plans where to cut the log, and cuts it there when what had been said of tenants by then is durable: until then a crash may bring
    /// back one that was removed, with all that it needs. What is said meanwhile needs nothing before that place.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn cut(&mut self) -> Result<()> {
        let durable = self.journal.durable();
        if self.planned_cut.is_none() {
            let tails = self.tails.values().filter_map(|tail| tail.first()).map(|(lsn, _)| *lsn);
            let others = tails.chain(self.unsaved_from).chain([durable.next()]).min();
            self.planned_cut = self.truncation.cut(others).map(|lsn| (lsn, Lsn(self.roots.at)));
        }
        if let Some((lsn, settled)) = self.planned_cut
            && settled <= durable
        {
            self.journal.truncate_before(lsn)?;
            self.planned_cut = None;
        }
        Ok(())
    }

    /// The list of tenants, if it is to be saved: it holds up the log, or there is something to be removed.
    fn unsaved_roots(&self) -> Option<Roots> {
        let is_in_the_way = self.unsaved_from.is_some_and(|lsn| lsn < self.truncation.horizon());
        (is_in_the_way || !self.roots.removed.is_empty()).then(|| self.roots_now())
    }

    fn roots_now(&self) -> Roots {
        Roots { end: self.journal.durable().0, ..self.roots.clone() }
    }

    pub(crate) fn roots_saved(&mut self, roots: &Roots, forgotten: &BTreeSet<TenantId>) {
        self.roots.removed.retain(|tenant| !forgotten.contains(tenant));
        // Others may have come or gone while it was saved.
        self.unsaved_from = (self.roots.at > roots.at).then(|| Lsn(roots.at).next());
    }
}

/// Wakes a tenant: opens its place in the storage and does the commits of its tail again that are not there. The database has
/// its catalog, and can be used at once.
///
/// # Errors
/// Those of the storage; XX001 if a record or the catalog cannot be read.
pub async fn wake(
    storage: &Arc<Storage>,
    journal: &Arc<Journal>,
    tenant: TenantId,
    tail: &Tail,
) -> Result<(Arc<Home>, Database)> {
    let home = Home::open(storage, tenant).await?;
    let mut rows = Replaying::over(home.store());
    let refused = |error| RedoError::Replay { tenant, error };
    for (lsn, record) in tail {
        rows.redo(*lsn, record).map_err(refused)?;
    }
    let shard = Shard { journal: Arc::clone(journal), shard: tenant };
    let mut database = rows.serve(Box::new(shard)).map_err(refused)?;
    while let Some(want) = database.load()? {
        let blocks = home.fetch(&want).await?;
        database.chores().arrived(&blocks)?;
    }
    Ok((home, database))
}

/// Saves the list of tenants if it has changed, and removes from the storage what no tenant has any more: as the list is when this
/// begins, once that is durable. However many come and go meanwhile, it is saved.
///
/// # Errors
/// Those of the storage and of the log; ask again.
pub async fn save_roots(
    owner: &parking_lot::Mutex<Owner>,
    storage: &Storage,
    file: &RootsFile,
) -> std::result::Result<(), StorageError> {
    remove_strays(owner, storage).await?;
    let Some(mut roots) = owner.lock().unsaved_roots() else { return Ok(()) };
    settled(owner, Lsn(roots.at)).await?;
    let forgotten = std::mem::take(&mut roots.removed);
    for tenant in &forgotten {
        storage.remove(*tenant).await?;
    }
    file.save(&roots).await?;
    owner.lock().roots_saved(&roots, &forgotten);
    Ok(())
}

/// Saves the list of tenants with the end of a log that nobody writes to any more: the next start misses what is deleted of it.
///
/// # Errors
/// Those of the storage and of the log.
pub async fn save_end(owner: &parking_lot::Mutex<Owner>, file: &RootsFile) -> std::result::Result<(), StorageError> {
    let journal = Arc::clone(owner.lock().journal());
    journal.wait_durable(journal.appended()).await?;
    let roots = owner.lock().roots_now();
    file.save(&roots).await
}

/// Waits until what was said of tenants up to a place is durable. Until then a crash may bring back one that was removed.
async fn settled(owner: &parking_lot::Mutex<Owner>, upto: Lsn) -> std::result::Result<(), StorageError> {
    let journal = Arc::clone(owner.lock().journal());
    Ok(journal.wait_durable(upto).await?)
}

/// Removes, once after the start, what former owners left of tenants after those were removed: one that did not know yet that it was
/// replaced may have flushed. The list of tenants has nothing of that.
async fn remove_strays(owner: &parking_lot::Mutex<Owner>, storage: &Storage) -> std::result::Result<(), StorageError> {
    let Some(upto) = owner.lock().strays_upto else { return Ok(()) };
    for tenant in storage.tenants().await? {
        let (is_gone, said) = {
            let owner = owner.lock();
            (owner.name(tenant).is_none(), Lsn(owner.roots.at))
        };
        if tenant <= upto && is_gone {
            settled(owner, said).await?;
            storage.remove(tenant).await?;
        }
    }
    owner.lock().strays_upto = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use object_store::{memory::InMemory, path::Path};
    use savanna_epoch::OwnerEpoch;

    use super::*;

    #[tokio::test]
    async fn tenants_that_are_made_while_the_list_is_saved_hold_up_the_log_from_there_on_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let storage = Storage::new(Arc::new(InMemory::new()), Path::default(), OwnerEpoch(1), 1 << 20);
        let recovery = Recovery::read(Options::dir(directory.path()), NodeEpoch(1)).expect("a log");
        let (mut owner, _) = Owner::open(recovery, &storage, (1 << 20, 1)).await.expect("a new log");
        let first = owner.create("first").expect("there is none");
        assert_eq!(owner.unsaved_from, Some(first));
        let saved = owner.roots.clone();
        let second = owner.create("second").expect("there is none");
        owner.roots_saved(&saved, &BTreeSet::new());
        assert_eq!(owner.unsaved_from, Some(first.next()));
        assert!(first.next() <= second);
        let saved = owner.roots.clone();
        owner.roots_saved(&saved, &BTreeSet::new());
        assert_eq!(owner.unsaved_from, None);
    }

    /// An owner of two tenants whose log has a commit of each, and takes an hour to make anything durable that is not as large as
    /// [`flush`] makes it.
    async fn slow_owner(directory: &std::path::Path) -> (parking_lot::Mutex<Owner>, Arc<Storage>, RootsFile) {
        let storage = Storage::new(Arc::new(InMemory::new()), Path::default(), OwnerEpoch(2), 1 << 20);
        {
            let recovery = Recovery::read(Options::dir(directory), NodeEpoch(1)).expect("a log");
            let (mut owner, _) = Owner::open(recovery, &storage, (64, 1)).await.expect("a new log");
            for name in ["kept", "gone"] {
                owner.create(name).expect("there is none");
                let shard = owner.tenant(name).expect("it was made");
                owner.append(shard, COMMIT, &[0; 100]).expect("a log that works");
            }
            owner.journal.close().expect("a log that works");
        }
        let slow = Options::dir(directory).linger(std::time::Duration::from_secs(3_600)).batch_bytes(FULL);
        let recovery = Recovery::read(slow, NodeEpoch(2)).expect("the log");
        let (owner, file) = Owner::open(recovery, &storage, (64, 1)).await.expect("it can be redone");
        (parking_lot::Mutex::new(owner), storage, file)
    }

    /// Bytes that are not waited with.
    const FULL: usize = 16 << 10;

    /// Makes everything durable.
    async fn flush(owner: &parking_lot::Mutex<Owner>) {
        let (journal, lsn) = {
            let owner = owner.lock();
            let lsn = owner.append(owner.tenant("kept").expect("it was made"), COMMIT, &[0; FULL]);
            (Arc::clone(&owner.journal), lsn.expect("a log that works"))
        };
        journal.wait_durable(lsn).await.expect("a log that works");
    }

    #[tokio::test]
    async fn the_log_keeps_what_a_removed_tenant_needs_until_its_removal_is_durable() {
        let directory = tempfile::tempdir().expect("a directory");
        let (owner, ..) = slow_owner(directory.path()).await;
        flush(&owner).await;
        {
            let mut owner = owner.lock();
            assert!(!owner.take_tail(1, 0).is_empty(), "it wakes");
            owner.remove("gone").expect("it is there");
            owner.note_log();
            let behind = owner.journal.appended().next();
            owner.truncation.set_floor(0, behind);
            // As if the list was saved: that is another test's.
            owner.unsaved_from = None;
            owner.cut().expect("a log that works");
            assert!(owner.planned_cut.is_some(), "it waits for the removal");
        }
        flush(&owner).await;
        let mut owner = owner.lock();
        owner.remove("kept").expect("it is there");
        owner.cut().expect("a log that works");
        assert_eq!(owner.planned_cut, None, "a later removal does not hold it up");
    }

    #[tokio::test]
    async fn nothing_of_a_removed_tenant_goes_before_its_removal_is_durable_and_later_ones_do_not_hold_that_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let (owner, storage, file) = slow_owner(directory.path()).await;
        let removed = owner.lock().remove("gone").expect("it is there");
        let mut saving = Box::pin(save_roots(&owner, &storage, &file));
        assert!(futures::poll!(&mut saving).is_pending(), "it waits for the removal");
        assert!(owner.lock().journal.durable() < removed);
        flush(&owner).await;
        owner.lock().create("new").expect("there is none");
        saving.await.expect("what it saves is durable");
        let owner = owner.lock();
        assert!(owner.roots.removed.is_empty() && owner.unsaved_from.is_some_and(|from| from > removed));
    }
}
