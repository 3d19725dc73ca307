//! What the threads of a process share: which tenants there are, their log and their storage; and what cuts the log.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use object_store::{ObjectStore, path::Path};
use parking_lot::Mutex;
use savanna_epoch::{NodeEpoch, NodeId};
use savanna_journal::{Disk, Journal, Options};
use savanna_ownership::{RootExpectation, Tenure, guard::LeaseGuard};
use savanna_tenants::{
    activity::{Activity, Counts},
    budget::Amounts,
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    large,
    owner::{Owner, Recovery, clean_up, create, create_elsewhere, create_while, save_end},
    role::Acquaintance,
    shards::Member,
    spills::Spills,
    storage::Storage,
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Pool,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    connections::Connections,
    known::{Heard, Known},
    log::truncate,
    others::{Others, Place},
    places::Places,
    policy::{Limits, MemoryPressure},
    retries::Retries,
    thread::Order,
};

/// The database that there always is. Its roles may come into every other one, and make and remove databases.
pub(crate) const ADMINISTRATION: &str = "postgres";
/// The longest name, PostgreSQL's.
const NAME_BYTES_MAX: usize = 63;
/// A tenant that has not said what it knows of somebody by then is not waited for. Two that are asked one after the other have
/// less than the time that a client has to come in, so that it hears why it does not.
const ANSWER_TIME: Duration = Duration::from_secs(25);
/// A node that has not answered by then is perhaps gone.
const REACHED_TIME: Duration = Duration::from_millis(500);
/// How often the log is cut.
const ROUND: Duration = Duration::from_millis(100);
/// What a server that stops waits for the storage at most.
const LAST_SAVE_TIME: Duration = Duration::from_secs(5);

/// Where tenants are kept, and what of them stays in memory.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The directory of the log, and of the storage if that is local.
    pub data_dir: PathBuf,
    /// Where the log is, if not in that directory.
    pub log: Option<Options>,
    /// Where it is noted how far the log in that directory has been durable, if anywhere.
    pub high_water: Option<Arc<dyn Disk>>,
    /// The storage, if it is not local.
    pub store: Option<(Arc<dyn ObjectStore>, Path)>,
    /// A statement that takes long has its place for so long if statements of other tenants wait for one, and who logs in waits so long
    /// for a tenant that such a statement keeps busy.
    pub patience: Duration,
    /// A tenant without clients for so long is flushed and forgotten.
    pub idle: Duration,
    /// A transaction with an older snapshot is ended if it holds up what was committed since.
    pub snapshot_age: Duration,
    /// Bytes of the log; whoever needs a record that is further back is flushed.
    pub log_distance: u64,
    /// Bytes of rows in memory, for all tenants together. Of twice as many, writers are refused that have more than their share.
    pub rows_bytes: u64,
    /// Bytes of rows and blocks that running statements keep, for all tenants together; what is more goes to files, or is refused.
    pub statements_bytes: usize,
    /// Rows that an operator of a statement keeps in memory at most, for tests.
    pub operator_rows: Option<usize>,
    /// Bytes of blocks in memory, for all tenants together.
    pub blocks_bytes: usize,
    /// A tenant with so many bytes that only memory and the log have is flushed.
    pub flush_bytes: u64,
    /// A tenant that something else in this process writes: clients may read it.
    pub only_read: Option<String>,
    /// Whether rows that statements have no memory for go to files.
    pub spills: bool,
    /// Bytes that these files of one tenant may have.
    pub spill_bytes: u64,
    /// How many of them all tenants together may have.
    pub spill_files: usize,
    /// How much transactions may write, and from where on that does not go to the log.
    pub transactions: large::Limits,
    /// What each thread's tenants share: microseconds of it, bytes of the log, requests to the store.
    pub per_second: Amounts,
}

impl Keeping {
    /// In a directory, with the limits that suit most.
    #[must_use]
    pub fn local(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            log: None,
            high_water: None,
            store: None,
            patience: Duration::from_secs(60),
            idle: Duration::from_secs(300),
            snapshot_age: Duration::from_secs(3_600),
            log_distance: 256 << 20,
            rows_bytes: 1 << 30,
            statements_bytes: machine_memory().map_or(1 << 30, |bytes| bytes / 4),
            operator_rows: None,
            blocks_bytes: 256 << 20,
            flush_bytes: 32 << 20,
            only_read: None,
            spills: true,
            spill_bytes: 16 << 30,
            spill_files: 1_024,
            transactions: large::Limits { parts_from: 16 << 20, most: 1 << 30 },
            per_second: Amounts::new(1_000_000, 256 << 20, 10_000),
        }
    }
}

/// A connection's number and secret: who knows both can cancel what it does.
pub type Key = (i32, i32);

/// What the threads of a process share.
pub(crate) struct Process {
    pub(crate) owner: Mutex<Owner>,
    /// Held by whoever cleans up behind the owner, or notes where its log ends.
    cleaning: tokio::sync::Mutex<()>,
    /// The other nodes that have tenants, if there may be any.
    others: Option<Arc<dyn Others>>,
    lease: Option<LeaseGuard>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) keeping: Keeping,
    /// Memory of running statements.
    pub(crate) statements: Arc<Pool>,
    /// Files for rows that these have no memory for.
    pub(crate) spills: Spills,
    /// Where the storage is waited for, and segments are merged.
    pub(crate) background: tokio::runtime::Handle,
    /// Tenants that may be aside at the same time, as many as there are threads, and never one alone.
    pub(crate) aside: Arc<Places>,
    /// Queries that may run beside their tenants at the same time.
    pub(crate) beside: Arc<Places>,
    /// How many of them one tenant may have: others find a place.
    pub(crate) beside_of_one: usize,
    threads: Vec<mpsc::UnboundedSender<Order>>,
    /// Rows in memory and tenants awake, as each thread counted last.
    usage: Vec<Usage>,
    /// What goes on in each tenant that was awake since the process began and is not removed.
    activities: Mutex<HashMap<TenantId, Arc<Activity>>>,
    /// What the database of administrators has said while it was elsewhere.
    known: Mutex<Known>,
    /// Who could not wake.
    pub(crate) retries: Mutex<Retries>,
    pub(crate) connections: Arc<Connections>,
}

#[derive(Debug, Default)]
struct Usage {
    rows_bytes: AtomicU64,
    awake: AtomicUsize,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("keeping", &self.keeping).finish_non_exhaustive()
    }
}

/// How many queries may run beside their tenants in a process with so many threads. They share the processors, and the memory of statements, with all others.
pub(crate) const fn places_beside(threads: usize) -> usize {
    if threads < 2 { 8 } else { 4 * threads }
}

impl Process {
    /// Reads the log, and looks after it from then on.
    pub(crate) fn open(
        keeping: Keeping,
        (member, epoch): (Member, NodeEpoch),
        (others, lease): (Option<Arc<dyn Others>>, Option<LeaseGuard>),
        threads: Vec<mpsc::UnboundedSender<Order>>,
        background: &tokio::runtime::Handle,
    ) -> Result<Arc<Self>> {
        let storage = match &keeping.store {
            None => Storage::local(&keeping.data_dir.join("store"), keeping.blocks_bytes)?,
            Some((store, prefix)) => Storage::new(Arc::clone(store), prefix.clone(), keeping.blocks_bytes),
        };
        let log = match (&keeping.log, &keeping.high_water) {
            (Some(log), _) => log.clone(),
            (None, None) => Options::dir(keeping.data_dir.join("log")),
            (None, Some(notes)) => Options::dir(keeping.data_dir.join("log")).high_water(Arc::clone(notes)),
        };
        let spills = spills_in(&keeping)?;
        let recovery = Recovery::read(log, epoch)?;
        let node = member.tenure.node.clone();
        background.block_on(storage.claim(&member, &keeping.data_dir))?;
        let opening = Owner::open(recovery, member, &storage, (keeping.log_distance, threads.len()));
        let owner = Mutex::new(background.block_on(opening)?);
        background.block_on(ensure_administration(&owner, others.as_deref()))?;
        let journal = Arc::clone(owner.lock().journal());
        let elsewhere = others.clone().map(|others| (others, background.clone()));
        let process = Arc::new(Self {
            journal,
            owner,
            others,
            lease,
            cleaning: tokio::sync::Mutex::default(),
            storage,
            statements: Pool::new(keeping.statements_bytes),
            spills,
            aside: Places::new(threads.len().max(2), keeping.patience),
            beside: Places::new(places_beside(threads.len()), keeping.patience),
            beside_of_one: places_beside(threads.len()) / 2,
            keeping,
            background: background.clone(),
            activities: Mutex::default(),
            known: Mutex::default(),
            retries: Mutex::default(),
            connections: Connections::new(&node, threads.clone(), elsewhere),
            usage: threads.iter().map(|_| Usage::default()).collect(),
            threads,
        });
        // Apart, so that the log is cut though the storage or the coordinator does not answer.
        background.spawn(maintain_log(Arc::downgrade(&process)));
        background.spawn(clean(Arc::downgrade(&process)));
        Ok(process)
    }

    /// The tenant of a name.
    ///
    /// # Errors
    /// 3D000.
    pub(crate) fn tenant(&self, name: &str) -> Result<TenantId> {
        self.owner.lock().tenant(name).ok_or_else(|| no_database(name))
    }

    /// The tenant of a name, wherever it is.
    ///
    /// # Errors
    /// 3D000, and 58000 if it is not known whether there is one.
    pub(crate) async fn locate(&self, name: &str) -> Result<TenantId> {
        match (self.tenant(name), &self.others) {
            (Err(_), Some(others)) => others.tenant(name).await?.ok_or_else(|| no_database(name)),
            (found, _) => found,
        }
    }

    /// The nodes to ask about a tenant; none if it is here, or would be if it were anywhere.
    pub(crate) fn elsewhere(&self, tenant: TenantId) -> Option<&Arc<dyn Others>> {
        self.others.as_ref().filter(|_| !self.has(tenant))
    }

    /// Where a new tenant is to be that some nodes did not take; none if no other node is left that gets anything new.
    fn place_for_new(&self, failed: &BTreeSet<NodeId>) -> Option<Place> {
        self.others.as_ref().map_or_else(|| Some(Place::default()), |others| others.place_for_new(failed))
    }

    /// What has to be so still when a new tenant is made on this node; none if this node gets nothing new.
    pub(crate) fn place_here(&self) -> Option<Vec<RootExpectation>> {
        self.others.as_ref().map_or_else(|| Some(Vec::new()), |others| others.place_here())
    }

    /// Makes sure that this node had a tenant until now: what it read of its storage is all that was committed before.
    ///
    /// # Errors
    /// 57P03 if another node may have it.
    pub(crate) fn expect_owned(&self, tenant: TenantId) -> Result<()> {
        if self.has(tenant) && self.lease.as_ref().is_none_or(LeaseGuard::serving) {
            return Ok(());
        }
        Err(SqlError::new("57P03", "this node may have lost the database to another one meanwhile").hint("Try again."))
    }

    /// Whether a tenant is here.
    pub(crate) fn has(&self, tenant: TenantId) -> bool {
        self.owner.lock().has(tenant)
    }

    /// All tenants here by name, with what goes on in them.
    pub(crate) fn list(&self) -> Vec<(String, Counts)> {
        let owner = self.owner.lock();
        let activities = self.activities.lock();
        let counts = |tenant| activities.get(&tenant).map(|activity| activity.counts()).unwrap_or_default();
        owner.tenants().map(|(name, tenant)| (name.to_owned(), counts(tenant))).collect()
    }

    /// What goes on in all that are here.
    pub(crate) fn counts(&self) -> Vec<(TenantId, Counts)> {
        let owner = self.owner.lock();
        let activities = self.activities.lock();
        let counts = |tenant| activities.get(&tenant).map(|activity| activity.counts()).unwrap_or_default();
        owner.tenants().map(|(_, tenant)| (tenant, counts(tenant))).collect()
    }

    /// When a tenant is flushed and put to sleep.
    pub(crate) const fn limits(&self) -> Limits {
        Limits { idle: self.keeping.idle, flush_bytes: self.keeping.flush_bytes }
    }

    /// What goes on in a tenant.
    pub(crate) fn activity(&self, tenant: TenantId) -> Arc<Activity> {
        Arc::clone(self.activities.lock().entry(tenant).or_default())
    }

    /// A tenant was removed.
    pub(crate) fn forget_activity(&self, tenant: TenantId) {
        self.activities.lock().remove(&tenant);
    }

    /// Makes a tenant, on the node that is to have it, whether or not anybody waits for that; the answer is durable. If that node does not take it, the next one does, which
    /// may be this one, unless it gets nothing new.
    ///
    /// # Errors
    /// 42602 if it cannot be called so, 42P04 if there is one, 57P03 if no node takes it now; those of the coordinator.
    pub(crate) async fn create(self: &Arc<Self>, name: &str) -> Result<()> {
        check_name(name)?;
        let (process, name) = (Arc::clone(self), name.to_owned());
        let creating = async move {
            let (mut failed, mut reasons) = (BTreeSet::new(), Vec::new());
            while let Some(Place { at, expects }) = process.place_for_new(&failed) {
                let Some(at) = at else { return create_while(&process.owner, &name, &expects).await };
                let error = match create_at(&process, &name, (&at, &expects)).await {
                    Err(error) if error.state != state::DUPLICATE_DATABASE => error,
                    made => return made,
                };
                tracing::warn!(%error, %at, name, "a database is not made on the node that does least, but on the next one");
                reasons.push(format!("node {}: {error}", at.node));
                if !failed.insert(at.node) {
                    break;
                }
            }
            Err(not_taken(&name, &reasons))
        };
        let created = self.background.spawn(creating).await.map_err(SqlError::internal)?;
        created.map(drop)
    }

    /// What a tenant knows of somebody, wherever it is.
    ///
    /// # Errors
    /// 57P03 if it cannot say so in time.
    pub(crate) async fn ask(&self, tenant: TenantId, user: &str) -> Result<Acquaintance> {
        match self.elsewhere(tenant) {
            Some(others) => others.acquaintance(tenant, user).await,
            None => self.ask_here(tenant, user).await,
        }
    }

    /// What the database of administrators knows of somebody. While no node has it, or its node is not reached, what it said shortly before counts.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) async fn administrators(&self, user: &str) -> Result<Heard> {
        let heard = |known| Heard { known, at: Instant::now() };
        let administration = self.locate(ADMINISTRATION).await?;
        if self.elsewhere(administration).is_none() {
            return self.ask_here(administration, user).await.map(heard);
        }
        let mut asking = std::pin::pin!(self.ask(administration, user));
        let recent = || self.known.lock().recent(user, Instant::now());
        let has_owner = || self.others.as_ref().is_none_or(|others| others.has_owner(administration));
        let answer = loop {
            match tokio::time::timeout(REACHED_TIME, &mut asking).await {
                Ok(answer) => break answer,
                // A database that answers late may have changed what it says.
                Err(_) if has_owner() => {}
                Err(_) => match recent() {
                    Some(heard) => return Ok(heard),
                    None => break asking.await,
                },
            }
        };
        match answer {
            Ok(known) => {
                if !known.guarded {
                    self.known.lock().forget(user);
                }
                Ok(heard(known))
            }
            Err(error) if error.state == "57P03" => recent().ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Somebody has come in by what the database of administrators has said of it.
    pub(crate) fn note_known(&self, user: &str, heard: &Heard) {
        // Where there are no others, nobody comes in by anything else.
        if self.others.is_some() {
            self.known.lock().note(user, heard);
        }
    }

    /// What a tenant that is here knows of somebody.
    ///
    /// # Errors
    /// 57P03 if it cannot say so in time.
    pub(crate) async fn ask_here(&self, tenant: TenantId, user: &str) -> Result<Acquaintance> {
        let (answer, known) = oneshot::channel();
        self.tell(tenant, Order::Identify { tenant, user: user.to_owned(), answer });
        match tokio::time::timeout(ANSWER_TIME, known).await {
            Ok(Ok(known)) => known,
            Ok(Err(_)) => Err(SqlError::new("57P01", "the server is stopping")),
            Err(_) => Err(SqlError::new("57P03", "the database could not be read in time to let anybody in")
                .hint("Its storage may be slow or unreachable. Try again.")),
        }
    }

    /// Tells the thread that a tenant lives on. One that has ended ends the server.
    pub(crate) fn tell(&self, tenant: TenantId, order: Order) {
        drop(self.threads[tenant as usize % self.threads.len()].send(order));
    }

    /// Whether a tenant lives on the thread of a number.
    pub(crate) fn is_on(&self, tenant: TenantId, thread: usize) -> bool {
        tenant as usize % self.threads.len() == thread
    }

    /// Notes what the tenants of a thread take. Says so if all of them together take too much.
    pub(crate) fn note_usage(&self, thread: usize, rows_bytes: u64, awake: usize) -> Option<MemoryPressure> {
        self.usage[thread].rows_bytes.store(rows_bytes, Ordering::Relaxed);
        self.usage[thread].awake.store(awake, Ordering::Relaxed);
        let total: u64 = self.usage.iter().map(|usage| usage.rows_bytes.load(Ordering::Relaxed)).sum();
        MemoryPressure::of(total, self.keeping.rows_bytes, self.awake())
    }

    /// Notes where the log ends, which nobody writes to any more, so that the next start misses what is deleted of it.
    /// Blocks for some seconds at most.
    pub(crate) fn save_end(self: &Arc<Self>) {
        let (done, saved) = std::sync::mpsc::channel();
        let process = Arc::clone(self);
        self.background.spawn(async move {
            let _alone = process.cleaning.lock().await;
            // Nobody waits for what takes too long.
            _ = done.send(save_end(&process.owner).await);
        });
        match saved.recv_timeout(LAST_SAVE_TIME) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "where the log of tenants ends is not noted"),
            Err(_) => {
                tracing::warn!("where the log of tenants ends is not noted: the coordinator did not answer in time")
            }
        }
    }

    /// The tenants that are awake.
    pub(crate) fn awake(&self) -> usize {
        self.usage.iter().map(|usage| usage.awake.load(Ordering::Relaxed)).sum()
    }
}

/// Makes a tenant on another node, if that has space for it.
async fn create_at(process: &Process, name: &str, (at, expects): (&Tenure, &[RootExpectation])) -> Result<TenantId> {
    if let Some(others) = &process.others {
        others.expect_space(at).await?;
    }
    create_elsewhere(&process.owner, name, at, expects).await
}

/// What whoever makes a tenant hears where no other node took it, and this one gets nothing new.
fn not_taken(name: &str, reasons: &[String]) -> SqlError {
    let reasons = reasons.join("; ");
    let message = format!("no node took the database \"{name}\", and this node is drained and gets none ({reasons})");
    SqlError::new("57P03", message)
        .hint("Try again, through any node, or end the drain of this one (`savanna drain NODE --undo`).")
}

/// Makes the database of administrators, if no node has it.
async fn ensure_administration(owner: &Mutex<Owner>, others: Option<&dyn Others>) -> Result<()> {
    if owner.lock().tenant(ADMINISTRATION).is_some() {
        return Ok(());
    }
    if let Some(others) = others
        && others.tenant(ADMINISTRATION).await?.is_some()
    {
        return Ok(());
    }
    match create(owner, ADMINISTRATION).await {
        // Another node was first.
        Err(error) if others.is_some() && error.state == state::DUPLICATE_DATABASE => Ok(()),
        made => made.map(drop),
    }
}

/// The folder for rows that statements have no memory for.
fn spills_in(keeping: &Keeping) -> Result<Spills> {
    let folder = keeping.data_dir.join("spills");
    let spills = Spills::open(&folder).map_err(|error| {
        let message = format!("could not make {} ready for rows of statements: {error}", folder.display());
        SqlError::new("58030", message)
            .hint("Look at who may write to it and whether it has something else than files in it.")
    })?;
    Ok(spills.keeping(keeping.operator_rows).limited_to(keeping.spill_bytes).sharing(keeping.spill_files))
}

/// Bytes of the machine's memory, if it says so.
fn machine_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?;
    kibibytes.parse::<usize>().ok()?.checked_mul(1_024)
}

/// Removes what is left of tenants that are gone, and notes where the log ends.
async fn clean(process: std::sync::Weak<Process>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(process) = process.upgrade() else { return };
        let _alone = process.cleaning.lock().await;
        if let Err(error) = clean_up(&process.owner, &process.storage).await {
            tracing::warn!(%error, "what is left of removed databases is not removed yet; it is tried again");
        }
    }
}

/// Cuts the log where nobody needs it, and wakes those who hold it up in their sleep.
async fn maintain_log(process: std::sync::Weak<Process>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(process) = process.upgrade() else { return };
        let truncated = truncate(&mut process.owner.lock());
        if let Err(error) = truncated.cut {
            tracing::error!(%error, "the log could not be cut");
        }
        let due = process.retries.lock().due(truncated.in_the_way, Instant::now());
        for tenant in due {
            process.tell(tenant, Order::Wake(tenant));
        }
    }
}

/// Refuses what no tenant can be called.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message = format!("expected a name of 1 to {NAME_BYTES_MAX} bytes, came one of {}", name.len());
        return Err(SqlError::new("42602", message).hint("A name must not contain control characters."));
    }
    Ok(())
}

pub(crate) fn no_database(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
}
