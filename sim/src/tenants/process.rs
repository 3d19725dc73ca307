//! An owner's process: its tenants, those of them that wake or are awake, their log and their place in the store. What is done with them
//! the host's own code decides.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Disk, Lsn, Options};
use savanna_tenants_host::{
    log::truncate,
    policy::{Flush, Found, Limits, MemoryPressure, Plan, plan},
    retries::Retries,
    slots::Slots,
};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    database::Step,
    owner::{Owner, Recovery, Tail, clean_up, create, create_as, remove, reserve, wake, wake_moved},
    shards::Member,
    storage::Storage,
};
use savanna_tenants_values::error::{Result, SqlError};
use savanna_transaction::{Change, Isolation};
use tokio::{runtime::Runtime, time::timeout};

use super::{
    awake::{Awake, Came},
    coordinator::Asked,
    image::Image,
    owner::Variant,
    rows::{key, rows},
    store::FailingStore,
};

const LOG_DISTANCE: u64 = 400;
/// So many bytes become durable at once: few, so that a loss of power takes halves of what belongs together.
const BATCH_BYTES: usize = 128;
/// Of a file of the log: nothing here is larger, and a file is zeroed ahead.
const SEGMENT_BYTES: usize = 32 << 10;
const LIMITS: Limits = Limits { idle: Duration::from_secs(300), flush_bytes: 300 };
/// Between two looks at the log.
const ROUND: Duration = Duration::from_millis(100);

/// What a process is to the coordinator, how it asks that, and the epoch under which it opens its log.
pub(super) struct Seat {
    pub(super) asked: Arc<Asked>,
    pub(super) member: Member,
    pub(super) epoch: NodeEpoch,
}

pub(super) struct Process {
    runtime: Arc<Runtime>,
    variant: Variant,
    pub(super) storage: Arc<Storage>,
    pub(super) asked: Arc<Asked>,
    pub(super) owner: Arc<Mutex<Owner>>,
    pub(super) slots: Slots<Awake, ()>,
    /// What is to be redone of those who wake, and what was open in them where they were before.
    waking: BTreeMap<TenantId, (Tail, Option<Bytes>)>,
    retries: Retries,
    now: Instant,
}

impl Process {
    /// Takes over what is on the disk and in the store, which has to work.
    pub(super) fn open(
        runtime: &Arc<Runtime>,
        disk: Arc<dyn Disk>,
        store: &Arc<FailingStore>,
        seat: Seat,
        variant: Variant,
    ) -> Self {
        let Seat { asked, member, epoch } = seat;
        let storage = Storage::new(Arc::clone(store) as _, Path::from("here"), 4_096);
        let owner = runtime.block_on(async {
            let recovery =
                Recovery::read(Options::disk(disk).batch_bytes(BATCH_BYTES).segment_bytes(SEGMENT_BYTES), epoch)
                    .expect("a log");
            Owner::open(recovery, member, &storage, (LOG_DISTANCE, 1)).await.expect("the log of tenants")
        });
        Self {
            asked,
            runtime: Arc::clone(runtime),
            variant,
            storage,
            owner: Arc::new(Mutex::new(owner)),
            slots: Slots::new(0),
            waking: BTreeMap::new(),
            retries: Retries::default(),
            now: Instant::now(),
        }
    }

    /// Whether the log has it: only then anybody is told.
    pub(super) fn is_durable(&self, lsn: Lsn) -> bool {
        self.variant == Variant::TellsAtOnce || self.becomes_durable(lsn)
    }

    /// Does what waits for the log, unless that waits for space on its disk: here, there is none before the process ends.
    fn unless_full<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        const PATIENCE: Duration = Duration::from_millis(1);
        let journal = Arc::clone(self.owner.lock().journal());
        let mut work = pin!(work);
        loop {
            // Time stands still here but for timers; the log's thread has the machine's.
            match self.runtime.block_on(async { timeout(PATIENCE, &mut work).await }) {
                Ok(done) => return Some(done),
                Err(_) if journal.full().is_some() => return None,
                Err(_) => thread::sleep(PATIENCE / 20),
            }
        }
    }

    /// The names of all tenants.
    pub(super) fn names(&self) -> Vec<String> {
        self.owner.lock().tenants().map(|(name, _)| name.to_owned()).collect()
    }

    /// A tenant begins to wake, if it sleeps.
    fn begin_waking(&mut self, tenant: TenantId) {
        let mut owner = self.owner.lock();
        if self.slots.is_asleep(tenant) && owner.name(tenant).is_some() {
            let tail = self.slots.begin_waking(tenant, Vec::new(), &mut owner);
            self.waking.insert(tenant, (tail, owner.take_image(tenant)));
        }
    }

    /// A tenant that wakes has woken, or could not.
    fn end_waking(&mut self, tenant: TenantId) {
        let Some((tail, image)) = self.waking.remove(&tenant) else { return };
        let (journal, epoch) = {
            let owner = self.owner.lock();
            (Arc::clone(owner.journal()), owner.epoch(tenant))
        };
        let epoch = epoch.expect("it is there");
        let woken = self.runtime.block_on(async {
            let Some(image) = &image else {
                return Ok(Awake::new(wake(&self.storage, &journal, (tenant, epoch), &tail).await?));
            };
            let Image { database, left } = Image::decode(image);
            let woken = wake_moved(&self.storage, &journal, (tenant, epoch), (&tail, &database)).await?;
            Ok::<_, SqlError>(Awake::with(woken, left))
        });
        match woken {
            Ok(awake) => {
                self.retries.forget(tenant);
                self.slots.woken(tenant, awake);
            }
            Err(_) => {
                let mut owner = self.owner.lock();
                image.into_iter().for_each(|image| owner.put_image_back(tenant, image));
                self.slots.cannot_wake(tenant, tail, &mut owner);
                self.retries.failed(tenant, self.now);
            }
        }
    }

    /// Those who wake have woken, or could not, and those that have moved here with something open. How many they were.
    pub(super) fn end_wakings(&mut self) -> usize {
        let moved = self.owner.lock().due_to_wake();
        for tenant in self.retries.due(moved, self.now) {
            self.begin_waking(tenant);
        }
        let waking: Vec<TenantId> = self.waking.keys().copied().collect();
        waking.iter().for_each(|tenant| self.end_waking(*tenant));
        waking.len()
    }

    /// A tenant that is awake, or wakes; none if the store does not work or there is no such tenant.
    pub(super) fn waken(&mut self, name: &str) -> Option<&mut Awake> {
        let tenant = self.owner.lock().tenant(name)?;
        self.begin_waking(tenant);
        self.end_waking(tenant);
        self.slots.awake_mut(tenant)
    }

    /// A tenant if it is awake.
    pub(super) fn awake(&mut self, name: &str) -> Option<&mut Awake> {
        let tenant = self.owner.lock().tenant(name)?;
        self.slots.awake_mut(tenant)
    }

    /// Whether a tenant lets nobody in, as it moves.
    pub(super) fn is_frozen(&self, name: &str) -> bool {
        let tenant = self.owner.lock().tenant(name);
        tenant.is_some_and(|tenant| self.slots.attempt(tenant).is_some())
    }

    /// A tenant if it is awake, whether or not it lets anybody in.
    pub(super) fn inside(&mut self, tenant: TenantId) -> Option<&mut Awake> {
        match self.slots.attempt(tenant) {
            Some(attempt) => self.slots.moving_mut(tenant, attempt),
            None => self.slots.awake_mut(tenant),
        }
    }

    /// Whether the log comes to have something: it waits for that.
    pub(super) fn becomes_durable(&self, lsn: Lsn) -> bool {
        let journal = Arc::clone(self.owner.lock().journal());
        self.unless_full(journal.wait_durable(lsn)).is_some_and(|done| done.is_ok())
    }

    /// A tenant is another node's.
    pub(super) fn release(&mut self, tenant: TenantId, attempt: u64) {
        self.owner.lock().leave(tenant);
        self.storage.forget_warm(tenant);
        if self.slots.is_moving(tenant, attempt) {
            self.retries.forget(tenant);
            self.slots.removed(tenant);
        }
    }

    /// Removes a tenant that nobody uses; none if it is not there, or is in use.
    pub(super) fn remove(&mut self, name: &str) -> Option<Result<()>> {
        let tenant = {
            let owner = self.owner.lock();
            let tenant = owner.tenant(name).filter(|tenant| !owner.has_image(*tenant))?;
            self.slots.begin_removing(tenant, &owner, |awake| !awake.is_flushing() && !awake.is_used()).ok()?;
            tenant
        };
        let removed = self.runtime.block_on(remove(&self.owner, tenant));
        if removed.is_ok() {
            self.slots.removed(tenant);
            self.retries.forget(tenant);
        } else {
            self.slots.stays(tenant);
        }
        Some(removed)
    }

    /// Makes a tenant.
    pub(super) fn create(&self, name: &str) -> Result<TenantId> {
        self.runtime.block_on(create(&self.owner, name))
    }

    /// Makes a tenant of a reserved number.
    pub(super) fn create_as(&self, tenant: TenantId, name: &str) -> Result<()> {
        self.runtime.block_on(create_as(&self.owner, tenant, name, &[]))
    }

    /// Gives a number to a tenant that is to be restored.
    pub(super) fn reserve(&self) -> Result<TenantId> {
        self.runtime.block_on(reserve(&self.owner))
    }

    /// Commits two rows that say which commit it was; none if the log has ended.
    pub(super) fn commit(&mut self, name: &str, number: u64) -> Option<Lsn> {
        let Awake { database, .. } = self.waken(name)?;
        let txn = database.begin(Isolation::Snapshot);
        database.statement(txn).expect("it lives");
        for end in [b'a', b'z'] {
            let value = Some(Box::from(number.to_be_bytes()));
            database.write(txn, &key(end, 0), value, Change::Existence).expect("it lives");
        }
        match database.commit(txn) {
            Ok(Step::Done(lsn)) => Some(lsn),
            _ => None,
        }
    }

    /// The number of a tenant's last commit, of which there must not be a half.
    pub(super) fn last_commit(&mut self, name: &str) -> std::result::Result<u64, String> {
        let runtime = Arc::clone(&self.runtime);
        let Awake { home, database, .. } = self.waken(name).ok_or_else(|| format!("{name} cannot wake"))?;
        let rows = rows(&runtime, home, database);
        match rows[..] {
            [] => Ok(0),
            [(ref a, first), (ref z, last)] if *a == key(b'a', 0) && *z == key(b'z', 0) && first == last => Ok(first),
            _ => Err(format!("{name} has {rows:?}, which is half of a commit")),
        }
    }

    /// Goes on with a tenant's flush for some steps, or begins one.
    pub(super) fn flush(&mut self, name: &str, steps: u32) {
        let runtime = Arc::clone(&self.runtime);
        let Some(awake) = self.awake(name) else { return };
        awake.begin_flush(Flush::default());
        for _ in 0..steps {
            if !matches!(awake.flush(&runtime), Came::Further | Came::Saved | Came::Merged) {
                return;
            }
        }
    }

    /// Flushes a tenant as far as the log lets it. Whether the storage has everything.
    pub(super) fn flush_all(&mut self, name: &str) -> bool {
        let runtime = Arc::clone(&self.runtime);
        let Some(awake) = self.awake(name) else { return false };
        // One that has begun may have begun before the last commit.
        for _ in 0..2 {
            awake.begin_flush(Flush::default());
            awake.flush_on(&runtime);
        }
        awake.database.is_clean()
    }

    /// A round of maintenance with a tenant that nobody has been connected to for so long. Whether it fell asleep.
    pub(super) fn maintain(
        &mut self,
        name: &str,
        idle_for: Option<Duration>,
        pressure: Option<MemoryPressure>,
    ) -> bool {
        let Some(tenant) = self.owner.lock().tenant(name) else { return false };
        let horizon = self.owner.lock().truncation.horizon();
        let Some(awake) = self.slots.awake_mut(tenant) else { return false };
        let idle_for = idle_for.filter(|_| !awake.is_used());
        match plan(&Found { idle_for, ..awake.found() }, &LIMITS, horizon, pressure) {
            Plan::Sleep => self.slots.sleep(tenant),
            Plan::Stay { .. } if self.variant == Variant::SleepsUnflushed && idle_for.is_some() => {
                self.slots.sleep(tenant);
            }
            Plan::Stay { flush, .. } => flush.into_iter().for_each(|how| awake.begin_flush(how)),
        }
        self.slots.is_asleep(tenant)
    }

    /// What the store, which has to work, has of a tenant.
    pub(super) fn back_up(&self, name: &str) -> Vec<Bytes> {
        let tenant = self.owner.lock().tenant(name).expect("it is there");
        let archive = async { self.storage.archive(tenant).await?.stream().try_collect().await };
        self.runtime.block_on(archive).expect("a store that works")
    }

    /// Makes a backup the place of a tenant; whether the store took it.
    pub(super) fn restore(&self, tenant: TenantId, archive: Vec<Bytes>) -> bool {
        let archive = futures::stream::iter(archive.into_iter().map(Ok));
        self.runtime.block_on(self.storage.restore(tenant, Box::pin(archive))).is_ok()
    }

    /// Removes what is left of tenants that are gone; whether the store and the coordinator took it.
    pub(super) fn clean_up(&self) -> bool {
        self.runtime.block_on(clean_up(&self.owner, &self.storage)).is_ok()
    }

    /// Says from where on the log is needed.
    fn log_floor(&self, behind: Lsn) -> Lsn {
        let needs = |awake: &Awake| awake.database.needs_log_from();
        match self.variant {
            Variant::CutsForSleepers => self.slots.log_floor(behind, |_| None),
            Variant::CutsForWaking => {
                self.slots.all_awake().filter_map(|(_, awake)| needs(awake)).min().unwrap_or(behind)
            }
            _ => self.slots.log_floor(behind, needs),
        }
    }

    /// Cuts the log, and begins to wake who holds it up; whether there was something to be cut.
    pub(super) fn cut(&mut self) -> bool {
        self.now += ROUND;
        let (cut, before, in_the_way) = {
            let mut owner = self.owner.lock();
            let (durable, behind) = (owner.journal().durable().next(), owner.journal().appended().next());
            let floor = self.log_floor(behind);
            owner.truncation.set_floor(0, floor);
            owner.note_log();
            let before = owner.truncation.horizon();
            match self.variant {
                Variant::CutsForAwake if floor >= durable => {
                    (owner.journal().truncate_before(durable).is_ok(), before, Vec::new())
                }
                _ => {
                    let truncated = truncate(&mut owner);
                    (truncated.cut.is_ok(), before, truncated.in_the_way)
                }
            }
        };
        for tenant in self.retries.due(in_the_way, self.now) {
            self.begin_waking(tenant);
        }
        cut && before > Lsn::NONE
    }
}
