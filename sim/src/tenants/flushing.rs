//! Several tenants that commit, are flushed, sleep and crash over one log, which is cut, and a store that fails: from one seed.
//!
//! Every commit of a tenant leaves a state that shows which it was, so that half of one, a lost one and a row that has come back
//! are all noticed.

use std::sync::Arc;

use object_store::path::Path;
use parking_lot::{Mutex, MutexGuard};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::OwnerEpoch;
use savanna_journal::{JournalError, Lsn};
use savanna_tenants_host::policy::Flush;
use savanna_tenants_store::{
    database::{Replaying, Step},
    log::Log,
    storage::{Home, Storage},
    truncation::Truncation,
};
use savanna_transaction::{Change, Isolation};

use super::{
    awake::{Awake, Came},
    rows::{key, rows},
    store::FailingStore,
};

const TENANTS: usize = 3;
/// Notes that a tenant keeps: those of its last commits.
const NOTES: u64 = 5;

/// What a driver may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// The log is cut where one tenant does not need it any more, whoever else does.
    CutsForOne,
    /// What was collected counts as written down, though the store has not said so.
    CutsBeforeSaved,
    /// What is in the log is not redone.
    NoRedo,
    /// What a session has for itself is written where all have their rows.
    TemporaryForAll,
}

/// The log of all tenants.
#[derive(Debug, Default)]
struct Paper {
    records: Vec<(usize, Vec<u8>)>,
    durable: usize,
    /// Records before this one are gone.
    cut: usize,
}

#[derive(Clone, Debug)]
struct Pen {
    paper: Arc<Mutex<Paper>>,
    tenant: usize,
}

impl Log for Pen {
    fn append(&mut self, record: &[u8]) -> Result<Lsn, JournalError> {
        let mut paper = self.paper.lock();
        paper.records.push((self.tenant, record.to_vec()));
        Ok(Lsn(paper.records.len() as u64))
    }

    fn durable(&self) -> Lsn {
        Lsn(self.paper.lock().durable as u64)
    }
}

struct Served {
    awake: Awake,
    /// The number of its last commit.
    written: u64,
    /// Commits with their places that nobody was told of yet.
    untold: Vec<(u64, Lsn)>,
    /// Whether something is collected that the store does not have.
    unsaved: bool,
    /// The value of the session's temporary row, if it has one.
    temporary: Option<u64>,
}

struct World {
    runtime: tokio::runtime::Runtime,
    store: Arc<FailingStore>,
    storage: Arc<Storage>,
    epoch: u64,
    paper: Arc<Mutex<Paper>>,
    truncation: Truncation,
    tenants: Vec<Served>,
    /// The last commit of each tenant that anybody was told of.
    told: [u64; TENANTS],
    dice: ChaCha8Rng,
    variant: Variant,
    happened: Happened,
}

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Flushes that the store took.
    pub flushes: u32,
    /// Flushes that it did not take, as far as anybody knows.
    pub failed: u32,
    /// Cuts of the log.
    pub cuts: u32,
    /// Ends of the process.
    pub crashes: u32,
    /// Merges of segments.
    pub compactions: u32,
}

impl World {
    fn new(seed: u64, variant: Variant, happened: Happened) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let store = Arc::new(FailingStore::default());
        let mut world = Self {
            runtime: runtime.expect("a runtime"),
            storage: Storage::new(Arc::clone(&store) as _, Path::from("here"), 4_096),
            store,
            epoch: 1,
            paper: Arc::default(),
            truncation: Truncation::new(400, TENANTS),
            tenants: Vec::new(),
            told: [0; TENANTS],
            dice: ChaCha8Rng::seed_from_u64(seed),
            variant,
            happened,
        };
        world.recover().expect("there is nothing to be lost");
        world
    }

    fn paper(&self) -> MutexGuard<'_, Paper> {
        self.paper.lock()
    }

    fn step(&mut self) -> Result<(), String> {
        let at = self.dice.random_range(0..TENANTS);
        match self.dice.random_range(0..1_000) {
            0..300 => self.commit(at),
            300..450 => self.make_durable(),
            450..750 => {
                for _ in 0..self.dice.random_range(1..10) {
                    self.flush(at);
                }
                if self.dice.random_ratio(1, 3) {
                    self.store.heal();
                }
            }
            750..780 => self.tenants[at].awake.evict(0),
            780..820 => return self.check(at, self.tenants[at].written, self.tenants[at].written),
            820..940 => self.cut(),
            940..970 => self.store.fail_after(self.dice.random_range(0..6), self.dice.random()),
            970..990 => return self.sleep(at),
            _ => {
                self.happened.crashes += 1;
                return self.crash();
            }
        }
        Ok(())
    }

    fn commit(&mut self, at: usize) {
        let tenant = &mut self.tenants[at];
        let number = tenant.written + 1;
        let txn = tenant.awake.database.begin(Isolation::Snapshot);
        tenant.awake.database.statement(txn).expect("it lives");
        let mut write = |key: Vec<u8>, value: Option<u64>| {
            let value = value.map(|value| Box::from(value.to_be_bytes()));
            tenant.awake.database.write(txn, &key, value, Change::Existence).expect("it lives");
        };
        write(key(b'a', 0), Some(number));
        write(key(b'n', number), Some(number));
        if number > NOTES {
            write(key(b'n', number - NOTES), None);
        }
        write(key(b'z', 0), Some(number));
        write(if self.variant == Variant::TemporaryForAll { key(b'~', 0) } else { temporary_key() }, Some(number));
        let Step::Done(lsn) = tenant.awake.database.commit(txn).expect("nobody is in the way") else {
            panic!("it waits")
        };
        (tenant.written, tenant.temporary) = (number, Some(number));
        tenant.untold.push((number, lsn));
    }

    fn make_durable(&mut self) {
        let durable = {
            let mut paper = self.paper.lock();
            paper.durable = self.dice.random_range(paper.durable..=paper.records.len());
            paper.durable as u64
        };
        for (tenant, told) in self.tenants.iter_mut().zip(&mut self.told) {
            for (number, _) in tenant.untold.extract_if(.., |(_, lsn)| lsn.0 <= durable) {
                *told = (*told).max(number);
            }
        }
        self.truncation.note_end(Lsn(durable), durable * 40);
    }

    /// Goes on with a flush, or begins one.
    fn flush(&mut self, at: usize) -> Came {
        let tenant = &mut self.tenants[at];
        tenant.awake.begin_flush(Flush::default());
        let came = tenant.awake.flush(&self.runtime);
        match came {
            Came::Saved => self.happened.flushes += 1,
            Came::Unsaved => self.happened.failed += 1,
            Came::Merged => self.happened.compactions += 1,
            Came::Further | Came::Done | Came::Failed => {}
        }
        match came {
            Came::Saved => tenant.unsaved = false,
            Came::Unsaved => tenant.unsaved = true,
            _ => {}
        }
        came
    }

    fn cut(&mut self) {
        let (end, durable) = {
            let paper = self.paper();
            (Lsn(paper.records.len() as u64 + 1), Lsn(paper.durable as u64 + 1))
        };
        for (at, tenant) in self.tenants.iter().enumerate() {
            let is_forgotten = match self.variant {
                Variant::CutsForOne => at > 0,
                Variant::CutsBeforeSaved => tenant.unsaved,
                Variant::Sound | Variant::NoRedo | Variant::TemporaryForAll => false,
            };
            let needs = tenant.awake.database.needs_log_from().filter(|_| !is_forgotten);
            self.truncation.set_floor(at, needs.unwrap_or(end));
        }
        if let Some(lsn) = self.truncation.cut(Some(durable)) {
            self.paper().cut = lsn.0 as usize - 1;
            self.happened.cuts += 1;
        }
    }

    /// A tenant that is clean is forgotten, and wakes.
    fn sleep(&mut self, at: usize) -> Result<(), String> {
        if !self.tenants[at].awake.database.is_clean() {
            return Ok(());
        }
        self.store.heal();
        let written = self.tenants[at].written;
        let untold = std::mem::take(&mut self.tenants[at].untold);
        self.tenants[at] = self.wake(at, &[])?;
        self.tenants[at].untold = untold;
        self.tenants[at].written = written;
        self.check(at, written, written)
    }

    /// The process ends, wherever it was, and another takes over; perhaps it ends while it does.
    fn crash(&mut self) -> Result<(), String> {
        {
            let mut paper = self.paper.lock();
            let kept = self.dice.random_range(paper.durable..=paper.records.len());
            paper.records.truncate(kept);
            paper.durable = kept;
        }
        self.store.heal();
        self.recover()
    }

    fn recover(&mut self) -> Result<(), String> {
        let written: Vec<u64> = self.tenants.iter().map(|tenant| tenant.written).collect();
        self.epoch += 1;
        self.storage = Storage::new(Arc::clone(&self.store) as _, Path::from("here"), 4_096);
        let (mut tails, durable) = (vec![Vec::new(); TENANTS], self.paper().durable);
        if self.variant != Variant::NoRedo {
            let paper = self.paper();
            for (at, (tenant, record)) in paper.records.iter().enumerate().skip(paper.cut) {
                tails[*tenant].push((Lsn(at as u64 + 1), record.clone()));
            }
        }
        self.tenants.clear();
        self.truncation = Truncation::new(400, TENANTS);
        self.truncation.note_end(Lsn(durable as u64), durable as u64 * 40);
        for (at, tail) in tails.iter().enumerate() {
            let served = self.wake(at, tail)?;
            self.tenants.push(served);
            let newest = written.get(at).copied().unwrap_or(0);
            self.check(at, self.told[at], newest)?;
            // What came back stays: whoever reads it now is told of it.
            self.told[at] = self.tenants[at].written;
        }
        Ok(())
    }

    fn wake(&mut self, at: usize, tail: &[(Lsn, Vec<u8>)]) -> Result<Served, String> {
        let epoch = OwnerEpoch(self.epoch);
        let home = self.runtime.block_on(Home::open(&self.storage, at as u64 + 1, epoch)).expect("what was written");
        let mut rows = Replaying::over(home.store());
        for (lsn, record) in tail {
            rows.redo(*lsn, record).map_err(|error| error.to_string())?;
        }
        let pen = Pen { paper: Arc::clone(&self.paper), tenant: at };
        let mut database = rows.serve(Box::new(pen)).map_err(|error| error.to_string())?;
        while let Some(want) = database.load().expect("a catalog") {
            let blocks = self.runtime.block_on(home.fetch(&want)).expect("a store that works");
            database.chores().arrived(&blocks).expect("a few");
        }
        let awake = Awake::new((home, database));
        Ok(Served { awake, written: 0, untold: Vec::new(), unsaved: false, temporary: None })
    }

    /// A tenant's rows are those after one commit, which is not older or newer than these.
    fn check(&mut self, at: usize, oldest: u64, newest: u64) -> Result<(), String> {
        self.store.heal();
        let rows = self.rows(at);
        let number = rows.first().filter(|(key, _)| key[4] == b'a').map_or(0, |(_, value)| *value);
        let notes = (number.saturating_sub(NOTES - 1).max(1)..=number).map(|note| (key(b'n', note), note));
        let mut expected: Vec<(Vec<u8>, u64)> = notes.collect();
        if number > 0 {
            expected.insert(0, (key(b'a', 0), number));
            expected.push((key(b'z', 0), number));
        }
        if rows != expected {
            return Err(format!("tenant {at} has {rows:?}, expected {expected:?}"));
        }
        if !(oldest..=newest).contains(&number) {
            return Err(format!("tenant {at} is after commit {number}, expected {oldest} to {newest}"));
        }
        self.tenants[at].written = number;
        self.check_temporary(at)
    }

    /// A session has what it wrote since its tenant woke, and nothing else of that kind.
    fn check_temporary(&mut self, at: usize) -> Result<(), String> {
        let Served { awake: Awake { database, .. }, temporary, .. } = &mut self.tenants[at];
        let txn = database.begin(Isolation::ReadCommitted);
        database.statement(txn).expect("it lives");
        let found = database.get(txn, &temporary_key()).expect("it lives").map(<[u8]>::to_vec);
        database.abort(txn);
        if found.as_deref() != temporary.map(u64::to_be_bytes).as_ref().map(|bytes| &bytes[..]) {
            return Err(format!("the temporary row of tenant {at} is {found:?}, expected {temporary:?}"));
        }
        Ok(())
    }

    fn rows(&mut self, at: usize) -> Vec<(Vec<u8>, u64)> {
        let Awake { home, database, .. } = &mut self.tenants[at].awake;
        rows(&self.runtime, home, database)
    }

    /// Every tenant commits, tells and flushes everything in its turn, until the store is silent.
    fn commit_and_flush(&mut self, rounds: u32) {
        for _ in 0..rounds {
            for at in 0..TENANTS {
                self.commit(at);
                let records = self.paper().records.len();
                self.paper().durable = records;
                self.make_durable();
                while !matches!(self.flush(at), Came::Done) {
                    if self.store.is_silent() {
                        return;
                    }
                }
                self.cut();
            }
        }
    }
}

/// The key of a temporary row: its highest bit is set.
fn temporary_key() -> Vec<u8> {
    let mut key = key(b'a', 0);
    key[0] |= 0x80;
    key
}

/// A run, and what happened in it beside what had happened before.
///
/// # Errors
/// What did not hold, in words.
pub fn run(seed: u64, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut world = World::new(seed, variant, happened);
    for _ in 0..600 {
        world.step()?;
    }
    world.crash()?;
    Ok(world.happened)
}

/// A run in which the store stops answering after so many puts, of which the last is done or not, and the process ends. Whether
/// there were as many puts.
///
/// # Errors
/// What did not hold, in words.
pub fn run_until_put(puts: u32, is_done: bool) -> Result<bool, String> {
    let mut world = World::new(u64::from(puts), Variant::Sound, Happened::default());
    world.store.fail_after(puts, is_done);
    world.commit_and_flush(5);
    let is_silent = world.store.is_silent();
    for _ in 0..3 {
        world.crash()?;
    }
    if world.told == [0; TENANTS] {
        return Err("nobody was told of anything".to_owned());
    }
    Ok(is_silent)
}
