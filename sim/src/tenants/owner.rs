//! An owner of several tenants over one log and a store that fails: tenants are made, reserved, removed, written to, flushed, put to
//! sleep; the list of tenants is saved, the log is cut, its disk runs full, the process ends. From one seed, but for how far the log's
//! own thread has come when the process ends: whatever that is, what was told has to be there.

use std::{collections::BTreeMap, sync::Arc};

use futures::TryStreamExt;
use object_store::{ObjectStore, path::Path};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::OwnerEpoch;
use savanna_journal::{
    Lsn, Options,
    sim::{Fault, SimDisk},
};
use savanna_tenants::{
    database::{Database, Step},
    flush::Flush,
    owner::{Owner, Recovery, save_roots, wake},
    roots::RootsFile,
    storage::{Home, Storage},
};
use savanna_transaction::{Change, Isolation};

use super::{
    rows::{key, rows},
    store::FailingStore,
};

const LOG_DISTANCE: u64 = 400;
const NAMES: u64 = 6;

/// What a driver may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// The log is cut where no tenant that is awake needs it, though the list of tenants does, and those who sleep.
    CutsForAwake,
    /// The thread does not say that its tenants need the log.
    CutsForSleepers,
    /// The log is not asked whether it has what is told.
    TellsAtOnce,
}

/// What is known of a tenant by somebody who was told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The last commit that is certain, and the last that was tried.
    certain: u64,
    tried: u64,
}

struct World {
    runtime: tokio::runtime::Runtime,
    disk: Arc<SimDisk>,
    store: Arc<FailingStore>,
    storage: Arc<Storage>,
    epoch: u64,
    owner: Arc<Mutex<Owner>>,
    roots: RootsFile,
    awake: BTreeMap<String, (Arc<Home>, Database)>,
    told: BTreeMap<String, Told>,
    /// Of what the log did not take, nobody knows whether it happened.
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
    /// Times that the list of tenants was saved.
    pub saved: u32,
    /// Cuts of the log.
    pub cuts: u32,
    /// Times that the disk ran full.
    pub full: u32,
    /// Ends of the process.
    pub crashes: u32,
}

fn storage(store: &Arc<FailingStore>, epoch: u64) -> Arc<Storage> {
    Storage::new(Arc::clone(store) as _, Path::from("here"), OwnerEpoch(epoch), 4_096)
}

impl World {
    fn new(seed: u64, variant: Variant) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        let (disk, store) = (SimDisk::new(seed), Arc::new(FailingStore::default()));
        let storage = storage(&store, 1);
        let (owner, roots) = open(&runtime, &disk, &storage, 1);
        Self {
            runtime,
            disk,
            store,
            storage,
            epoch: 1,
            owner,
            roots,
            awake: BTreeMap::new(),
            told: BTreeMap::new(),
            unsure: Vec::new(),
            dice: ChaCha8Rng::seed_from_u64(seed),
            variant,
            happened: Happened::default(),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let name = format!("t{}", self.dice.random_range(0..NAMES));
        match self.dice.random_range(0..1_000) {
            0..150 => return self.make(name),
            150..190 => self.remove(name),
            190..230 => self.reserve()?,
            230..600 => return self.commit(name),
            600..760 => self.flush(&name),
            760..820 => self.sleep(&name),
            820..880 => self.save(),
            880..940 => self.cut(),
            940..960 => self.store.fail_after(self.dice.random_range(0..4), self.dice.random()),
            960..970 => {
                self.happened.full += 1;
                self.disk.set_capacity(0);
            }
            970..980 => {
                let fault = if self.dice.random() { Fault::Error } else { Fault::PowerCut };
                self.disk.fail(self.dice.random_range(1..10), fault);
            }
            _ => return self.crash(),
        }
        Ok(())
    }

    /// Whether the log has it: only then anybody is told.
    fn is_durable(&self, lsn: Lsn) -> bool {
        let journal = Arc::clone(self.owner.lock().journal());
        self.variant == Variant::TellsAtOnce || self.runtime.block_on(journal.wait_durable(lsn)).is_ok()
    }

    fn make(&mut self, name: String) -> Result<(), String> {
        if self.told.contains_key(&name) || self.unsure.contains(&name) {
            return Ok(());
        }
        let Ok(lsn) = self.owner.lock().create(&name) else { return Ok(()) };
        if !self.is_durable(lsn) {
            self.unsure.push(name);
            return Ok(());
        }
        self.happened.made += 1;
        self.store.heal();
        self.told.insert(name.clone(), Told::default());
        match self.last_commit(&name)? {
            0 => Ok(()),
            other => Err(format!("{name} is new, and has commit {other} of somebody else")),
        }
    }

    fn remove(&mut self, name: String) {
        self.awake.remove(&name);
        let Ok(lsn) = self.owner.lock().remove(&name) else { return };
        self.told.remove(&name);
        if self.is_durable(lsn) {
            self.happened.removed += 1;
        } else {
            self.unsure.push(name);
        }
    }

    /// Somebody restores a tenant and does not come to the end of it.
    fn reserve(&mut self) -> Result<(), String> {
        let Ok((tenant, lsn)) = self.owner.lock().reserve() else { return Ok(()) };
        if !self.is_durable(lsn) {
            return Ok(());
        }
        self.happened.reserved += 1;
        let nothing = futures::stream::iter([Ok(bytes::Bytes::from_static(b"no archive"))]);
        let restored = self.runtime.block_on(self.storage.restore(tenant, Box::pin(nothing)));
        assert!(restored.is_err());
        if self.dice.random() {
            _ = self.owner.lock().give_up(tenant);
        }
        Ok(())
    }

    fn waken(&mut self, name: &str) -> Option<&mut Database> {
        if !self.awake.contains_key(name) {
            let (tenant, tail, journal) = {
                let mut owner = self.owner.lock();
                let tenant = owner.tenant(name)?;
                (tenant, owner.take_tail(tenant, 0), Arc::clone(owner.journal()))
            };
            match self.runtime.block_on(wake(&self.storage, &journal, tenant, &tail)) {
                Ok(awake) => {
                    self.awake.insert(name.to_owned(), awake);
                }
                Err(_) => self.owner.lock().put_back(tenant, tail),
            }
        }
        self.awake.get_mut(name).map(|(_, database)| database)
    }

    fn commit(&mut self, name: String) -> Result<(), String> {
        let Some(mut told) = self.told.get(&name).copied() else { return Ok(()) };
        let Some(database) = self.waken(&name) else { return Ok(()) };
        let number = told.tried + 1;
        let txn = database.begin(Isolation::Snapshot);
        database.statement(txn).expect("it lives");
        for end in [b'a', b'z'] {
            let value = Some(Box::from(number.to_be_bytes()));
            database.write(txn, &key(end, 0), value, Change::Existence).expect("it lives");
        }
        let Ok(Step::Done(lsn)) = database.commit(txn) else { return Ok(()) };
        told.tried = number;
        if self.is_durable(lsn) {
            told.certain = number;
        }
        self.told.insert(name, told);
        Ok(())
    }

    fn flush(&mut self, name: &str) {
        let Some((home, database)) = self.awake.get_mut(name) else { return };
        loop {
            match database.flush(2) {
                Ok(Flush::Sealed) => {
                    if self.runtime.block_on(home.save()).is_err() {
                        return;
                    }
                }
                Ok(Flush::More) => {}
                // The rest is for another time, or the log has ended.
                Ok(Flush::Clean | Flush::Done | Flush::Wait(_)) | Err(_) => return,
            }
        }
    }

    fn sleep(&mut self, name: &str) {
        if self.awake.get(name).is_some_and(|(_, database)| database.is_clean()) {
            self.awake.remove(name);
        }
    }

    fn save(&mut self) {
        let saved = self.runtime.block_on(save_roots(&self.owner, &self.storage, &self.roots));
        self.happened.saved += u32::from(saved.is_ok());
        if self.dice.random() {
            self.store.heal();
        }
    }

    fn cut(&mut self) {
        let mut owner = self.owner.lock();
        owner.note_log();
        let (durable, behind) = (owner.journal().durable().next(), owner.journal().appended().next());
        let awake = self.awake.values().filter(|_| self.variant != Variant::CutsForSleepers);
        let floor = awake.filter_map(|(_, database)| database.needs_log_from()).min().unwrap_or(behind);
        owner.truncation.set_floor(0, floor);
        let before = owner.truncation.horizon();
        let cut = match self.variant {
            Variant::CutsForAwake if floor >= durable => owner.journal().truncate_before(durable).is_ok(),
            _ => owner.cut().is_ok(),
        };
        self.happened.cuts += u32::from(cut && before > Lsn::NONE);
    }

    /// The process ends, wherever it was, and another takes over.
    fn crash(&mut self) -> Result<(), String> {
        self.happened.crashes += 1;
        // Whoever had the log may go on writing to what is nobody's disk any more.
        self.disk = self.disk.copy(self.dice.random());
        self.disk.crash();
        self.store.heal();
        self.awake.clear();
        self.epoch += 1;
        self.storage = storage(&self.store, self.epoch);
        (self.owner, self.roots) = open(&self.runtime, &self.disk, &self.storage, self.epoch);
        let names: Vec<String> = self.owner.lock().tenants().map(|(name, _)| name.to_owned()).collect();
        for name in std::mem::take(&mut self.unsure) {
            // What came of it is certain from now on; nothing is known of its rows.
            self.told.remove(&name);
            if names.contains(&name) {
                self.remove(name);
            }
        }
        let names: Vec<String> = self.owner.lock().tenants().map(|(name, _)| name.to_owned()).collect();
        if !names.iter().eq(self.told.keys()) {
            return Err(format!("there are {names:?}, expected {:?}", self.told));
        }
        // Some are asked at once, and others sleep on.
        for name in names {
            if self.dice.random() {
                self.check(&name)?;
            }
        }
        Ok(())
    }

    /// A tenant is as somebody was told, and stays so.
    fn check(&mut self, name: &str) -> Result<(), String> {
        let (found, told) = (self.last_commit(name)?, self.told[name]);
        if !(told.certain..=told.tried).contains(&found) {
            return Err(format!("{name} is after commit {found}, expected {told:?}"));
        }
        self.told.insert(name.to_owned(), Told { certain: found, tried: told.tried.max(found) });
        Ok(())
    }

    /// The number of a tenant's last commit.
    fn last_commit(&mut self, name: &str) -> Result<u64, String> {
        self.waken(name).ok_or_else(|| format!("{name} cannot wake"))?;
        let Some((home, database)) = self.awake.get_mut(name) else { return Err(format!("{name} sleeps")) };
        let rows = rows(&self.runtime, home, database);
        match rows[..] {
            [] => Ok(0),
            [(ref a, first), (ref z, last)] if *a == key(b'a', 0) && *z == key(b'z', 0) && first == last => Ok(first),
            _ => Err(format!("{name} has {rows:?}, which is half of a commit")),
        }
    }

    /// When all is saved, the storage has nothing of tenants that there are not.
    fn check_storage(&mut self) -> Result<(), String> {
        self.save();
        self.store.heal();
        self.save();
        let prefix = Path::from("here/tenants");
        let objects: Vec<_> = self.runtime.block_on(self.store.list(Some(&prefix)).try_collect()).expect("it works");
        let owner = self.owner.lock();
        let kept: Vec<String> = owner.tenants().map(|(_, tenant)| format!("{prefix}/{tenant:020}/")).collect();
        let left = objects.iter().find(|object| !kept.iter().any(|kept| object.location.as_ref().starts_with(kept)));
        left.map_or(Ok(()), |left| Err(format!("{} is nobody's", left.location)))
    }
}

fn open(
    runtime: &tokio::runtime::Runtime,
    disk: &Arc<SimDisk>,
    storage: &Arc<Storage>,
    epoch: u64,
) -> (Arc<Mutex<Owner>>, RootsFile) {
    let recovery = Recovery::read(Options::disk(Arc::clone(disk) as _), OwnerEpoch(epoch)).expect("a log");
    let opened = runtime.block_on(Owner::open(recovery, storage, (LOG_DISTANCE, 1)));
    let (owner, roots) = opened.expect("the log of tenants");
    (Arc::new(Mutex::new(owner)), roots)
}

/// A run, and what came of it.
///
/// # Errors
/// What did not hold, in words.
pub fn run(seed: u64, variant: Variant) -> Result<Happened, String> {
    let mut world = World::new(seed, variant);
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
