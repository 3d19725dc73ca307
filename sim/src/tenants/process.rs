//! An owner's process: its tenants, those of them that are awake, their log and their place in the store.

use std::{collections::BTreeMap, pin::pin, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use parking_lot::Mutex;
use savanna_epoch::OwnerEpoch;
use savanna_journal::{Disk, Lsn, Options};
use savanna_tenants::{
    database::{Database, Step},
    flush::Flush,
    owner::{Owner, Recovery, save_roots, wake},
    roots::RootsFile,
    storage::{Home, Storage},
};
use savanna_tenants_segments::TenantId;
use savanna_transaction::{Change, Isolation};
use tokio::{runtime::Runtime, time::timeout};

use super::{owner::Variant, rows::key, store::FailingStore};

const LOG_DISTANCE: u64 = 400;

pub(super) struct Process {
    runtime: Arc<Runtime>,
    variant: Variant,
    pub(super) storage: Arc<Storage>,
    pub(super) owner: Arc<Mutex<Owner>>,
    roots: RootsFile,
    pub(super) awake: BTreeMap<String, (Arc<Home>, Database)>,
}

impl Process {
    /// Takes over what is on the disk and in the store, which has to work.
    pub(super) fn open(
        runtime: &Arc<Runtime>,
        disk: Arc<dyn Disk>,
        store: &Arc<FailingStore>,
        epoch: OwnerEpoch,
        variant: Variant,
    ) -> Self {
        let storage = Storage::new(Arc::clone(store) as _, Path::from("here"), epoch, 4_096);
        let recovery = Recovery::read(Options::disk(disk), epoch).expect("a log");
        let opened = runtime.block_on(Owner::open(recovery, &storage, (LOG_DISTANCE, 1)));
        let (owner, roots) = opened.expect("the log of tenants");
        let owner = Arc::new(Mutex::new(owner));
        Self { runtime: Arc::clone(runtime), variant, storage, owner, roots, awake: BTreeMap::new() }
    }

    /// Whether the log has it: only then anybody is told.
    pub(super) fn is_durable(&self, lsn: Lsn) -> bool {
        let journal = Arc::clone(self.owner.lock().journal());
        self.variant == Variant::TellsAtOnce || self.unless_full(journal.wait_durable(lsn)).is_some_and(|it| it.is_ok())
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

    /// A tenant that is awake, or wakes; none if the store does not work or there is no such tenant.
    pub(super) fn waken(&mut self, name: &str) -> Option<&mut (Arc<Home>, Database)> {
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
        self.awake.get_mut(name)
    }

    /// Commits two rows that say which commit it was; none if the log has ended.
    pub(super) fn commit(&mut self, name: &str, number: u64) -> Option<Lsn> {
        let (_, database) = self.waken(name)?;
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

    pub(super) fn flush(&mut self, name: &str) {
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

    pub(super) fn sleep(&mut self, name: &str) {
        if self.awake.get(name).is_some_and(|(_, database)| database.is_clean()) {
            self.awake.remove(name);
        }
    }

    /// Saves the list of tenants; whether the store took it.
    pub(super) fn save(&self) -> bool {
        self.unless_full(save_roots(&self.owner, &self.storage, &self.roots)).is_some_and(|saved| saved.is_ok())
    }

    /// Cuts the log; whether there was something to be cut.
    pub(super) fn cut(&mut self) -> bool {
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
        cut && before > Lsn::NONE
    }
}
