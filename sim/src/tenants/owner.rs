//! An owner of several tenants over one log, a coordinator and a store that fails: tenants are made, reserved, removed, written to, flushed,
//! put to sleep; what is left of those that are gone is removed, the log is cut, its disk runs full, answers of the coordinator are lost, the
//! process ends. From one seed, but for how far the log's own thread has come when the process ends: whatever that is, what was told has to
//! be there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::TryStreamExt;
use object_store::{ObjectStore, path::Path};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{NodeEpoch, NodeId};
use savanna_journal::{
    Disk,
    sim::{Fault, SimDisk},
};
use savanna_ownership::{BootClock, Incarnation, NodeSpec, embedded::EmbeddedCoordinator, logs::LogPlace};
use savanna_tenants_host::policy::MemoryPressure;
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::shards::Member;
use tokio::runtime::Runtime;

use super::{
    coordinator::{Asked, Flaws, Trouble},
    process::{Process, Seat},
    store::FailingStore,
};
use crate::fence_blind::FenceBlindDisk;

const NAMES: u64 = 6;
const LEASE: Duration = Duration::from_secs(3);
/// The commit of an owner that was replaced: nobody may ever see it.
const FORMER: u64 = u64::MAX;

/// What a driver may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// The log is cut where no tenant that is awake needs it, though those do who sleep.
    CutsForAwake,
    /// The thread does not say that its tenants need the log.
    CutsForSleepers,
    /// The log is not asked whether it has what is told.
    TellsAtOnce,
    /// The journal does not see that a newer owner has fenced it.
    FenceIgnored,
    /// A tenant that is restored has its name before it has its rows.
    NamedBeforeRestored,
    /// The log is cut though a tenant that wakes needs it.
    CutsForWaking,
    /// A tenant falls asleep though the storage does not have everything of it.
    SleepsUnflushed,
}

/// What is known of a tenant by somebody who was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// The last commit that is certain, and the last that was tried.
    pub(super) certain: u64,
    pub(super) tried: u64,
}

/// The next process on the one log, whoever had it before.
fn seat(runtime: &Runtime, coordinator: &Arc<EmbeddedCoordinator>, epoch: NodeEpoch) -> Seat {
    let spec = NodeSpec {
        name: NodeId::new("owner"),
        incarnation: Incarnation(epoch.0),
        address: "here".to_owned(),
        labels: BTreeMap::new(),
    };
    let asked = Asked::new(Arc::clone(coordinator) as _, Flaws::default());
    let member = runtime.block_on(async {
        let tenure = coordinator.reside(&spec).await.expect("nobody else has the name");
        let place = LogPlace::Folder("log".to_owned());
        Member::join(Arc::clone(&asked) as _, tenure, place).await.expect("its own log")
    });
    Seat { asked, member, epoch }
}

struct World {
    runtime: Arc<Runtime>,
    disk: Arc<SimDisk>,
    /// Whether operations of the disk fail, or are going to.
    disk_fails: bool,
    store: Arc<FailingStore>,
    coordinator: Arc<EmbeddedCoordinator>,
    epoch: u64,
    process: Process,
    /// An owner that goes on and does not know that it was replaced.
    former: Option<Process>,
    told: BTreeMap<String, Told>,
    /// Of what was not answered, nobody knows whether it happened.
    unsure: Vec<String>,
    dice: ChaCha8Rng,
    variant: Variant,
    happened: Happened,
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Tenants that were made.
    pub made: u32,
    /// Tenants that were removed.
    pub removed: u32,
    /// Numbers that were given to tenants which were never made.
    pub reserved: u32,
    /// Tenants that were made of a backup of another.
    pub copied: u32,
    /// Times that what is left of tenants was removed.
    pub saved: u32,
    /// Answers of the coordinator that were lost, and processes that ended in the middle of changes.
    pub unanswered: u32,
    /// Cuts of the log.
    pub cuts: u32,
    /// Tenants that fell asleep.
    pub slept: u32,
    /// Tenants that had begun to wake, because they held up the log, when something else happened.
    pub woken_later: u32,
    /// Times that the disk ran full.
    pub full: u32,
    /// Ends of the process.
    pub crashes: u32,
    /// Times that an owner was replaced and went on.
    pub replaced: u32,
    /// Commits that a former owner tried.
    pub tried_late: u32,
}

impl World {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = Arc::new(runtime.expect("a runtime"));
        let (disk, store) = (SimDisk::new(seed), Arc::new(FailingStore::default()));
        let coordinator = {
            let _inside = runtime.enter();
            Arc::new(EmbeddedCoordinator::volatile(LEASE, Arc::new(BootClock)))
        };
        let first = seat(&runtime, &coordinator, NodeEpoch(1));
        Self {
            process: Process::open(&runtime, on(&disk, variant), &store, first, variant),
            coordinator,
            runtime,
            disk,
            disk_fails: false,
            store,
            epoch: 1,
            former: None,
            told: BTreeMap::new(),
            unsure: Vec::new(),
            dice: ChaCha8Rng::seed_from_u64(seed),
            variant,
            happened,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let name = format!("t{}", self.dice.random_range(0..NAMES));
        self.former_goes_on(&name)?;
        match self.dice.random_range(0..1_000) {
            0..150 => return self.make(name),
            150..190 => self.remove(name),
            190..210 => self.reserve()?,
            210..250 => return self.copy(&name),
            250..600 => return self.commit(name),
            600..740 => {
                let steps = self.dice.random_range(1..12);
                self.process.flush(&name, steps);
            }
            740..760 => self.happened.woken_later += self.process.end_wakings() as u32,
            760..820 => {
                let idle_for = self.dice.random_ratio(2, 3).then_some(Duration::MAX);
                let bytes = self.dice.random_range(0..3_000);
                let pressure = MemoryPressure::of(bytes, 1_000, NAMES as usize);
                self.happened.slept += u32::from(self.process.maintain(&name, idle_for, pressure));
            }
            820..870 => self.clean_up(),
            870..880 => self.lose_answers(),
            880..930 => self.happened.cuts += u32::from(self.process.cut()),
            930..940 => return self.replace(),
            940..960 => self.store.fail_after(self.dice.random_range(0..4), self.dice.random()),
            960..970 => {
                self.happened.full += 1;
                self.disk_fails = true;
                self.disk.set_capacity(0);
            }
            970..980 => {
                self.disk_fails = true;
                let fault = if self.dice.random() { Fault::Error } else { Fault::PowerCut };
                self.disk.fail(self.dice.random_range(1..10), fault);
            }
            _ => return self.crash(),
        }
        Ok(())
    }

    fn make(&mut self, name: String) -> Result<(), String> {
        if self.told.contains_key(&name) || self.unsure.contains(&name) {
            return Ok(());
        }
        if self.process.create(&name).is_err() {
            self.unsure.push(name);
            return Ok(());
        }
        self.happened.made += 1;
        self.store.heal();
        self.told.insert(name.clone(), Told::default());
        match self.process.last_commit(&name)? {
            0 => Ok(()),
            other => Err(format!("{name} is new, and has commit {other} of somebody else")),
        }
    }

    fn remove(&mut self, name: String) {
        let Some(removed) = self.process.remove(&name) else { return };
        self.told.remove(&name);
        if removed.is_ok() {
            self.happened.removed += 1;
        } else {
            self.unsure.push(name);
        }
    }

    /// Somebody restores a tenant and does not come to the end of it.
    fn reserve(&mut self) -> Result<(), String> {
        let Ok(tenant) = self.process.reserve() else { return Ok(()) };
        self.happened.reserved += 1;
        let nothing = futures::stream::iter([Ok(bytes::Bytes::from_static(b"no archive"))]);
        let restored = self.runtime.block_on(self.process.storage.restore(tenant, Box::pin(nothing)));
        assert!(restored.is_err());
        if self.dice.random() {
            self.process.owner.lock().give_up(tenant);
        }
        Ok(())
    }

    /// Somebody makes a tenant of a backup of another, while the store may stop answering.
    fn copy(&mut self, from: &str) -> Result<(), String> {
        let is_free = |name: &String| !self.told.contains_key(name) && !self.unsure.contains(name);
        let Some(to) = (0..NAMES).map(|number| format!("t{number}")).find(is_free) else { return Ok(()) };
        if !self.told.contains_key(from) {
            return Ok(());
        }
        self.store.heal();
        let number = self.process.last_commit(from)?;
        if !self.process.flush_all(from) {
            return Ok(());
        }
        let archive = self.process.back_up(from);
        let Ok(tenant) = self.process.reserve() else { return Ok(()) };
        self.store.fail_after(self.dice.random_range(0..8), self.dice.random());
        if self.variant == Variant::NamedBeforeRestored {
            self.name_copy(tenant, &to, number);
        }
        if self.process.restore(tenant, archive) && self.variant != Variant::NamedBeforeRestored {
            self.name_copy(tenant, &to, number);
        } else if self.dice.random() {
            self.process.owner.lock().give_up(tenant);
        }
        Ok(())
    }

    fn name_copy(&mut self, tenant: TenantId, name: &str, number: u64) {
        if self.process.create_as(tenant, name).is_ok() {
            self.happened.copied += 1;
            self.told.insert(name.to_owned(), Told { certain: number, tried: number });
        } else {
            self.unsure.push(name.to_owned());
        }
    }

    fn commit(&mut self, name: String) -> Result<(), String> {
        let Some(mut told) = self.told.get(&name).copied() else { return Ok(()) };
        let number = told.tried + 1;
        let Some(lsn) = self.process.commit(&name, number) else { return Ok(()) };
        told.tried = number;
        if self.process.is_durable(lsn) {
            told.certain = number;
        }
        self.told.insert(name, told);
        Ok(())
    }

    /// Something happens to a change of the records, soon.
    fn lose_answers(&mut self) {
        self.happened.unanswered += 1;
        let is_made = self.dice.random();
        let trouble = if self.dice.random() { Trouble::Lost { is_made } } else { Trouble::Ends { is_made } };
        self.process.asked.trouble_after(self.dice.random_range(0..4), trouble);
    }

    fn clean_up(&mut self) {
        self.happened.saved += u32::from(self.process.clean_up());
        if self.dice.random() {
            self.store.heal();
        }
    }

    /// The process ends, wherever it was, and another takes over.
    fn crash(&mut self) -> Result<(), String> {
        self.happened.crashes += 1;
        // Whoever had the log may go on writing to what is nobody's disk any more.
        self.disk = self.disk.copy(self.dice.random());
        self.disk.crash();
        self.disk_fails = false;
        self.former = None;
        self.take_over().map(drop)
    }

    /// Another takes over, and the owner does not know it yet.
    fn replace(&mut self) -> Result<(), String> {
        if self.disk_fails {
            return self.crash();
        }
        self.happened.replaced += 1;
        self.former = Some(self.take_over()?);
        Ok(())
    }

    /// A former owner does what it would do. It has nothing to tell any more.
    fn former_goes_on(&mut self, name: &str) -> Result<(), String> {
        let Some(former) = &mut self.former else { return Ok(()) };
        match self.dice.random_range(0..6) {
            0 if former.awake(name).is_some() => {
                let Some(lsn) = former.commit(name, FORMER) else { return Ok(()) };
                self.happened.tried_late += 1;
                if former.is_durable(lsn) {
                    return Err(format!("a former owner tells of a commit of {name}"));
                }
            }
            1 | 2 => former.flush(name, 4),
            3 => _ = former.clean_up(),
            4 => _ = former.cut(),
            _ => {}
        }
        Ok(())
    }

    /// A new owner finds what anybody was told. Returns the former.
    fn take_over(&mut self) -> Result<Process, String> {
        self.store.heal();
        self.epoch += 1;
        let next = seat(&self.runtime, &self.coordinator, NodeEpoch(self.epoch));
        let process = Process::open(&self.runtime, on(&self.disk, self.variant), &self.store, next, self.variant);
        let former = std::mem::replace(&mut self.process, process);
        let names = self.process.names();
        for name in std::mem::take(&mut self.unsure) {
            // What came of it is certain from now on; nothing is known of its rows.
            self.told.remove(&name);
            if names.contains(&name) {
                self.remove(name);
            }
        }
        let names = self.process.names();
        if !names.iter().eq(self.told.keys()) {
            return Err(format!("there are {names:?}, expected {:?}", self.told));
        }
        // Some are asked at once, and others sleep on.
        for name in names {
            if self.dice.random() {
                self.check(&name)?;
            }
        }
        Ok(former)
    }

    /// A tenant is as somebody was told, and stays so.
    fn check(&mut self, name: &str) -> Result<(), String> {
        let (found, told) = (self.process.last_commit(name)?, self.told[name]);
        if !(told.certain..=told.tried).contains(&found) {
            return Err(format!("{name} is after commit {found}, expected {told:?}"));
        }
        self.told.insert(name.to_owned(), Told { certain: found, tried: told.tried.max(found) });
        Ok(())
    }

    /// When all is saved, the storage has nothing of tenants that there are not.
    fn check_storage(&mut self) -> Result<(), String> {
        self.clean_up();
        self.store.heal();
        self.clean_up();
        let prefix = Path::from("here/tenants");
        let objects: Vec<_> = self.runtime.block_on(self.store.list(Some(&prefix)).try_collect()).expect("it works");
        let owner = self.process.owner.lock();
        let kept: Vec<String> = owner.tenants().map(|(_, tenant)| format!("{prefix}/{tenant:020}/")).collect();
        let left = objects.iter().find(|object| !kept.iter().any(|kept| object.location.as_ref().starts_with(kept)));
        left.map_or(Ok(()), |left| Err(format!("{} is nobody's", left.location)))
    }
}

fn on(disk: &Arc<SimDisk>, variant: Variant) -> Arc<dyn Disk> {
    match variant {
        Variant::FenceIgnored => Arc::new(FenceBlindDisk::new(Arc::clone(disk))),
        _ => Arc::clone(disk) as _,
    }
}

/// A run, and what happened in it beside what had happened before.
///
/// # Errors
/// What did not hold, in words.
pub fn run(seed: u64, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut world = World::new(seed, variant, happened);
    for _ in 0..400 {
        world.step()?;
    }
    world.crash()?;
    for name in world.told.keys().cloned().collect::<Vec<_>>() {
        world.check(&name)?;
    }
    world.check_storage()?;
    Ok(world.happened)
}
