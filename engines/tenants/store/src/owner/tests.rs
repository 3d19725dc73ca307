//! What the parts of these tests share: a cluster of owners over a coordinator and a store in memory, and what a node that is gone has left.

mod adoption;
mod granted;
mod making;
mod moves;
mod proposals;
mod starts;
mod unreadable;

use std::collections::BTreeSet;

use object_store::{ObjectStoreExt, memory::InMemory, path::Path as ObjectPath};
use parking_lot::Mutex;
use savanna_epoch::LogId;
use savanna_journal::{Draft, SealedLog, seal};
use savanna_ownership::{
    Batch, Coordinator, Exclusive, Expected, RootChange, RootExpectation, Tenure, Transition,
    embedded::EmbeddedCoordinator,
    logs::{self, LogPlace},
};

use super::*;
use crate::{
    log::{COMMIT, OWNED, TAIL, UNLINKED, append},
    shards::{
        FIRST_EPOCH,
        tests::{Fragile, Trouble, coordinator, node, place},
    },
};

/// A cluster: its coordinator and store, and a directory for the log.
struct Cluster {
    coordinator: Arc<EmbeddedCoordinator>,
    store: Arc<InMemory>,
    directory: tempfile::TempDir,
    /// Counts the processes.
    epoch: u64,
}

impl Cluster {
    fn new() -> Self {
        let (coordinator, store) = (coordinator(), Arc::default());
        Self { coordinator, store, directory: tempfile::tempdir().expect("a directory"), epoch: 0 }
    }

    fn storage(&self) -> Arc<Storage> {
        Storage::new(Arc::clone(&self.store) as _, ObjectPath::default(), 1 << 20)
    }

    /// The next process of a node takes over, and something happens after so many changes.
    async fn open(&mut self, name: &str, trouble: (u32, Trouble)) -> Result<Mutex<Owner>> {
        self.epoch += 1;
        let tenure = node(&self.coordinator, name, self.epoch).await;
        let trouble = Mutex::new(trouble);
        let coordinator =
            Arc::new(Fragile { inner: Arc::clone(&self.coordinator), trouble, troubled: Mutex::default() });
        let member = Member::join(coordinator, tenure, place()).await?;
        let recovery = Recovery::read(Options::dir(self.directory.path()), NodeEpoch(self.epoch))?;
        Ok(Mutex::new(Owner::open(recovery, member, &self.storage(), (64, 1)).await?))
    }

    async fn reopen(&mut self) -> Mutex<Owner> {
        self.open("a", (0, Trouble::Over)).await.expect("nothing is wrong with it")
    }

    async fn view(&self) -> ClusterView {
        ClusterView::new(self.coordinator.snapshot().await.expect("it answers"))
    }

    async fn put(&self, root: RootChange) {
        self.coordinator.apply(&root.into()).await.expect("it is new");
    }

    /// Puts something where the storage has a tenant.
    async fn store_of(&self, tenant: TenantId) {
        let path = ObjectPath::from(format!("tenants/{tenant:020}/objects/a"));
        self.store.put(&path, "rows".into()).await.expect("memory");
    }

    async fn stored(&self) -> BTreeSet<TenantId> {
        self.storage().tenants().await.expect("memory")
    }
}

fn names(owner: &Mutex<Owner>) -> Vec<(String, TenantId)> {
    owner.lock().tenants().map(|(name, tenant)| (name.to_owned(), tenant)).collect()
}

fn commit(owner: &Mutex<Owner>, tenant: TenantId, number: u8) {
    let journal = Arc::clone(owner.lock().journal());
    append(&journal, &[Draft { shard: tenant, kind: COMMIT, payload: &[number; 8] }]).expect("a log that works");
}

/// The first bytes of what is to be done again of a tenant.
fn tail(owner: &Mutex<Owner>, tenant: TenantId) -> Vec<u8> {
    let tail = owner.lock().take_tail(tenant, 0);
    assert!(tail.is_sorted_by_key(|(lsn, _)| *lsn));
    tail.iter().map(|(_, commit)| commit[0]).collect()
}

fn close(owner: Mutex<Owner>) {
    owner.into_inner().journal.close().expect("a log that works");
}

/// What the records say is what an owner says, and every tenant is served by it from its log.
async fn check(cluster: &Cluster, owner: &Mutex<Owner>) {
    let view = cluster.view().await;
    let mut named: Vec<_> = shards::names(&view).into_iter().map(|(id, (name, _))| (name, id)).collect();
    named.sort();
    assert_eq!(named, names(owner));
    for (tenant, record) in shards::tenants(&view) {
        let owner = owner.lock();
        match &record.value.ownership {
            Ownership::Retired => assert_eq!(owner.epoch(tenant), None),
            Ownership::Exclusive(Exclusive::Serving { owner: tenure }) => {
                assert_eq!((tenure, owner.epoch(tenant)), (&owner.member.tenure, Some(record.value.epoch)));
                let history = record.value.history.as_ref().expect("its commits are in a log");
                assert_eq!(history.log, owner.member.log);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Each way in which a change can be interrupted, at each of the first changes.
fn interruptions() -> impl Iterator<Item = (u32, Trouble)> {
    let ways = [false, true].into_iter().flat_map(|is_made| [Trouble::Ends { is_made }, Trouble::Lost { is_made }]);
    ways.flat_map(|way| (0..4).map(move |changes| (changes, way)))
}

fn owner_epoch(cluster: &Cluster, tenant: TenantId) -> OwnerEpoch {
    let record = futures::executor::block_on(cluster.coordinator.shard(&shards::shard(tenant)));
    record.expect("it answers").expect("it is there").value.epoch
}

/// The tenure of a process.
fn tenure_of(owner: &Mutex<Owner>) -> Tenure {
    owner.lock().member.tenure.clone()
}

/// A cluster whose node `a` is gone: its log is sealed, its tenants are another's, and what it had of the tenants `shop` and `yard`.
struct Left {
    cluster: Cluster,
    name: LogId,
    sealed: SealedLog,
    _log: tempfile::TempDir,
    tenants: [TenantId; 2],
    /// What the last process asks.
    asked: Option<Arc<Fragile>>,
}

impl Left {
    async fn new() -> Self {
        let mut cluster = Cluster::new();
        let owner = cluster.reopen().await;
        let [shop, yard] =
            [create(&owner, "shop").await, create(&owner, "yard").await].map(|made| made.expect("nobody has it"));
        [1, 2].into_iter().for_each(|number| commit(&owner, shop, number));
        commit(&owner, yard, 9);
        let member = owner.lock().member.clone();
        close(owner);
        cluster.coordinator.deregister(&member.tenure).await.expect("it is there");
        let ends = logs::seal(&cluster.view().await, &member.log).expect("nobody has it");
        cluster.put(ends).await;
        let log = std::mem::replace(&mut cluster.directory, tempfile::tempdir().expect("a directory"));
        let sealed = seal(&Options::dir(log.path()), NodeEpoch(1_000)).expect("nobody has it");
        Self { cluster, name: member.log, sealed, _log: log, tenants: [shop, yard], asked: None }
    }

    /// The next process of the node `b`, which has a log of its own.
    async fn open(&mut self, trouble: (u32, Trouble)) -> Result<Mutex<Owner>> {
        self.cluster.epoch += 1;
        let tenure = node(&self.cluster.coordinator, "b", self.cluster.epoch).await;
        let coordinator = Arc::new(Fragile {
            inner: Arc::clone(&self.cluster.coordinator),
            trouble: Mutex::new(trouble),
            troubled: Mutex::default(),
        });
        self.asked = Some(Arc::clone(&coordinator));
        let place = LogPlace::Folder("elsewhere".to_owned());
        let member = Member::join(coordinator, tenure, place).await?;
        let recovery = Recovery::read(Options::dir(self.cluster.directory.path()), NodeEpoch(self.cluster.epoch))?;
        Ok(Mutex::new(Owner::open(recovery, member, &self.cluster.storage(), (64, 1)).await?))
    }

    /// The next process of a tenure, whose earlier one has ended.
    async fn open_again(&mut self, member: &Member) -> Mutex<Owner> {
        self.cluster.epoch += 1;
        let member = Member { coordinator: Arc::clone(&self.cluster.coordinator) as _, ..member.clone() };
        let options = Options::dir(self.cluster.directory.path());
        let recovery = Recovery::read(options, NodeEpoch(self.cluster.epoch)).expect("a log");
        let owner = Owner::open(recovery, member, &self.cluster.storage(), (64, 1)).await;
        Mutex::new(owner.expect("nothing is wrong with it"))
    }

    /// Somebody grants all tenants whose owners are gone.
    async fn grant(&self, to: &Tenure) {
        let view = self.cluster.view().await;
        for (tenant, Versioned { version, value }) in shards::tenants(&view) {
            if value.owner().is_some_and(|owner| !view.lives(owner)) {
                let record = ShardRecord::serving(to.clone(), value.epoch.next()).with_history(value.history.clone());
                let (shard, expected) = (shards::shard(tenant), *version);
                let grant = Transition { shard, expected, record, by: None };
                self.cluster.coordinator.transition(&grant).await.expect("nobody lives who has it");
            }
        }
    }
}
