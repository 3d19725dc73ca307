use std::collections::BTreeSet;

use object_store::{ObjectStoreExt, memory::InMemory, path::Path as ObjectPath};
use parking_lot::Mutex;
use savanna_epoch::LogId;
use savanna_journal::{Draft, SealedLog, seal};
use savanna_ownership::{
    Batch, Coordinator, Exclusive, RootChange, Tenure, Transition,
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

/// The changes that a start makes, once there is a log.
async fn changes_of_a_start(cluster: &mut Cluster) -> u32 {
    for changes in 0.. {
        if let Ok(owner) = cluster.open("a", (changes, Trouble::Ends { is_made: false })).await {
            close(owner);
            return changes;
        }
    }
    unreachable!("a start makes a few changes")
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_made_and_removed_whole_or_not_at_all_wherever_that_ends() {
    for (changes, trouble) in interruptions() {
        let mut cluster = Cluster::new();
        close(cluster.reopen().await);
        let start = changes_of_a_start(&mut cluster).await;
        let owner = cluster.open("a", (start + changes, trouble)).await.expect("that comes later");
        let made = create(&owner, "shop").await;
        let removed = match &made {
            Ok(tenant) => {
                cluster.store_of(*tenant).await;
                Some(remove(&owner, *tenant).await)
            }
            Err(_) => None,
        };
        let cleaned = clean_up(&owner, &cluster.storage()).await;
        if matches!(trouble, Trouble::Lost { .. }) {
            assert!(made.is_ok() && removed == Some(Ok(())), "{changes} {trouble:?}");
            assert!(cleaned.is_ok() || clean_up(&owner, &cluster.storage()).await.is_ok(), "it is asked again");
        }
        close(owner);
        let owner = cluster.reopen().await;
        check(&cluster, &owner).await;
        let is_there = owner.lock().tenant("shop").is_some();
        match (made, removed) {
            (Ok(_), Some(Ok(()))) => assert!(!is_there, "{changes} {trouble:?}"),
            (Ok(_), Some(Err(_))) => {}
            (Ok(_), None) => assert!(is_there, "{changes} {trouble:?}"),
            (Err(error), _) => assert_eq!(error.state, "58000"),
        }
        // Whatever came of it, the name can be had, and nothing of another is there.
        if !is_there {
            let shop = create(&owner, "shop").await.expect("nobody has the name");
            assert!(!cluster.stored().await.contains(&shop));
        }
        clean_up(&owner, &cluster.storage()).await.expect("it works");
        check(&cluster, &owner).await;
        assert!(shards::garbage(&cluster.view().await).is_empty());
        close(owner);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_reserved_by_a_process_that_ended_goes() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    let (lost, given_up, made) = (reserve(&owner).await, reserve(&owner).await, reserve(&owner).await);
    let [lost, given_up, made] = [lost, given_up, made].map(|reserved| reserved.expect("it works"));
    for tenant in [lost, given_up, made] {
        cluster.store_of(tenant).await;
    }
    owner.lock().give_up(given_up);
    create_as(&owner, made, "copy").await.expect("nobody has the name");
    clean_up(&owner, &cluster.storage()).await.expect("it works");
    assert_eq!(cluster.stored().await, BTreeSet::from([lost, made]), "one may still be restored");
    close(owner);
    let owner = cluster.reopen().await;
    clean_up(&owner, &cluster.storage()).await.expect("it works");
    assert_eq!(cluster.stored().await, BTreeSet::from([made]));
    // Whoever restored it has not noticed yet; and a file system keeps the empty folder.
    cluster.store_of(lost).await;
    close(owner);
    let owner = cluster.reopen().await;
    clean_up(&owner, &cluster.storage()).await.expect("it works");
    assert_eq!(cluster.stored().await, BTreeSet::from([made]), "its number stays known");
    check(&cluster, &owner).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_is_given_once() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    create(&owner, "shop").await.expect("nobody has it");
    assert_eq!(create(&owner, "shop").await.expect_err("it is there").state, "42P04");
    // Somebody else's, of whom this process does not know.
    cluster.put(shards::put(shards::name_key("other"), Revision::NONE, &shards::Named { number: 70 })).await;
    assert_eq!(create(&owner, "other").await.expect_err("it is there").state, "42P04");
    assert_eq!(names(&owner), [("shop".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn each_process_has_its_tenants_under_a_higher_epoch_and_finds_their_commits() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    let shop = create(&owner, "shop").await.expect("nobody has it");
    let mut epoch = owner.lock().epoch(shop).expect("it is there");
    assert_eq!(epoch, FIRST_EPOCH);
    let mut commits = vec![0];
    commit(&owner, shop, 0);
    close(owner);
    // A node of another name has the directory in between.
    for (number, name) in (1..).zip(["a", "a", "b", "b", "a"]) {
        let before = cluster.coordinator.snapshot().await.expect("it answers").nodes;
        for node in before {
            cluster.coordinator.deregister(&node.tenure).await.expect("it is there");
        }
        let owner = cluster.open(name, (0, Trouble::Over)).await.expect("nothing is wrong with it");
        check(&cluster, &owner).await;
        let next = owner.lock().epoch(shop).expect("it is there");
        assert!(next > epoch, "{name}");
        epoch = next;
        assert_eq!(tail(&owner, shop), commits, "{name}");
        commits.push(number);
        commit(&owner, shop, number);
        close(owner);
    }
}

/// A directory as a former release left it: a log that says which tenants there are, and the object that says it of what was cut off.
async fn former(cluster: &mut Cluster) {
    cluster.epoch = 40;
    let nothing = &mut |_: Record| Ok::<(), RedoError>(());
    let journal = Journal::open(Options::dir(cluster.directory.path()), NodeEpoch(40), nothing).expect("a new log");
    let records: [(u64, u16, &[u8]); 9] = [
        (1, CREATED, b"postgres"),
        (2, CREATED, b"gone"),
        (2, COMMIT, &[0; 8]),
        (2, DROPPED, b""),
        (3, CREATED, b"shop"),
        (3, COMMIT, &[0; 8]),
        (4, RESERVED, b""),
        (70, CREATED, b"late"),
        (3, UNLINKED, &[0; 8]),
    ];
    for (shard, kind, payload) in records {
        append(&journal, &[Draft { shard, kind, payload }]).expect("a log that works");
    }
    journal.close().expect("a log that works");
    for tenant in [2, 3, 4] {
        cluster.store_of(tenant).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_former_release_kept_is_carried_over_once_wherever_that_is_interrupted() {
    for way in [false, true].map(|is_made| Trouble::Ends { is_made }) {
        for changes in 0.. {
            let mut cluster = Cluster::new();
            former(&mut cluster).await;
            let opened = cluster.open("a", (changes, way)).await;
            let is_uninterrupted = opened.is_ok();
            drop(opened);
            let view = cluster.view().await;
            if shards::are_kept(&view).expect("records") {
                // Others begin logs of their own from then on, and read what histories name.
                let tenants = shards::tenants(&view);
                let are_named = tenants.values().all(|record| record.value.history.is_some());
                assert!(are_named && tenants.len() == 3, "{changes} {way:?} {tenants:?}");
            }
            let owner = cluster.reopen().await;
            let named = [("late", 70), ("postgres", 1), ("shop", 3)].map(|(name, id)| (name.to_owned(), id));
            assert_eq!(names(&owner), named);
            check(&cluster, &owner).await;
            let above = owner.lock().tenants().all(|(_, id)| owner_epoch(&cluster, id) > OwnerEpoch(40));
            assert!(above, "the storage was written under epoch 40");
            assert_eq!(owner.lock().take_tail(3, 0).len(), 2);
            clean_up(&owner, &cluster.storage()).await.expect("it works");
            assert_eq!(cluster.stored().await, BTreeSet::from([3]));
            assert!(create(&owner, "new").await.expect("nobody has it") > 70, "numbers are not given twice");
            remove(&owner, 3).await.expect("it is there");
            close(owner);
            // What the log says of tenants does not count again.
            let owner = cluster.reopen().await;
            assert_eq!(owner.lock().tenant("shop"), None);
            check(&cluster, &owner).await;
            if is_uninterrupted {
                assert!(changes > 4);
                break;
            }
        }
    }
}

fn owner_epoch(cluster: &Cluster, tenant: TenantId) -> OwnerEpoch {
    let record = futures::executor::block_on(cluster.coordinator.shard(&shards::shard(tenant)));
    record.expect("it answers").expect("it is there").value.epoch
}

#[tokio::test(start_paused = true)]
async fn a_log_that_became_shorter_or_whose_records_are_gone_is_refused() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    let shop = create(&owner, "shop").await.expect("nobody has it");
    commit(&owner, shop, 1);
    save_end(&owner).await.expect("it works");
    close(owner);
    let log = std::mem::replace(&mut cluster.directory, tempfile::tempdir().expect("a directory"));
    let refused = cluster.open("a", (0, Trouble::Over)).await.expect_err("the log is gone");
    assert!(refused.message.contains("where it ended before"), "{refused}");
    cluster.directory = log;
    close(cluster.reopen().await);

    cluster.store_of(9).await;
    let refused = cluster.open("a", (0, Trouble::Over)).await.expect_err("nobody knows tenant 9");
    assert!(refused.message.contains("segments of tenant 9"), "{refused}");
    let stranger = ObjectPath::from("tenants/00000000000000000009/objects/a");
    cluster.store.delete(&stranger).await.expect("memory");

    cluster.coordinator = coordinator();
    let refused = cluster.open("a", (0, Trouble::Over)).await.expect_err("the records are gone");
    assert!(refused.message.contains("of whom neither the log nor the coordinator knows"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn tenants_of_a_node_that_lives_are_left_alone() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    create(&owner, "shop").await.expect("nobody has it");
    let tenure = node(&cluster.coordinator, "b", 70).await;
    let other = tempfile::tempdir().expect("a directory");
    let place = LogPlace::Folder("elsewhere".to_owned());
    let member = Member::join(Arc::clone(&cluster.coordinator) as _, tenure, place).await.expect("a new log");
    let recovery = Recovery::read(Options::dir(other.path()), NodeEpoch(1)).expect("a log");
    let beside = Owner::open(recovery, member, &cluster.storage(), (64, 1)).await.expect("nothing is wrong with it");
    assert_eq!(beside.tenants().count(), 0);
    let beside = Mutex::new(beside);
    assert_eq!(create(&beside, "shop").await.expect_err("it is there").state, "42P04");
    assert_eq!(create(&beside, "yard").await.expect("nobody has it"), 3, "a number was lost to the refusal");
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

#[tokio::test(start_paused = true)]
async fn tenants_of_a_sealed_log_arrive_whole_however_often_that_is_interrupted() {
    for is_made in [false, true] {
        for changes in 0..3 {
            let mut left = Left::new().await;
            let [shop, yard] = left.tenants;
            close(left.open((0, Trouble::Over)).await.expect("a new log"));
            for _ in 0..3 {
                // A start of this node changes its log's record, and grants itself again what it had been granted.
                let Ok(owner) = left.open((changes + 1, Trouble::Ends { is_made })).await else { continue };
                let tenure = owner.lock().member.tenure.clone();
                left.grant(&tenure).await;
                let before = names(&owner);
                let view = left.cluster.view().await;
                owner.lock().hold(&view);
                assert_eq!(names(&owner), before, "the histories of others name another log");
                _ = adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await;
                close(owner);
            }
            let owner = left.open((0, Trouble::Over)).await.expect("nothing is wrong with it");
            let tenure = owner.lock().member.tenure.clone();
            left.grant(&tenure).await;
            adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await.expect("nothing is in its way");
            check(&left.cluster, &owner).await;
            assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2], vec![9]), "{changes} {is_made}");
            assert_eq!(logs::shards_in(&left.cluster.view().await, &left.name).count(), 0, "nobody needs it any more");
            commit(&owner, shop, 3);
            close(owner);
            // From now on its own log has all.
            let owner = left.open((0, Trouble::Over)).await.expect("nothing is wrong with it");
            check(&left.cluster, &owner).await;
            assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2, 3], vec![9]), "{changes} {is_made}");
            close(owner);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_copied_is_not_cut_before_anybody_knows_that_it_is_needed() {
    let mut left = Left::new().await;
    let [shop, yard] = left.tenants;
    let owner = left.open((0, Trouble::Over)).await.expect("a new log");
    let tenure = owner.lock().member.tenure.clone();
    left.grant(&tenure).await;
    let (name, sealed, storage) = (left.name.clone(), left.sealed.clone(), left.cluster.storage());
    let mut adopting = Box::pin(adopt(&owner, &storage, &name, &sealed));
    while futures::poll!(&mut adopting).is_pending() {
        std::thread::sleep(std::time::Duration::from_millis(20));
        // As if the thread's tenants needed nothing, and the log were long.
        let mut owner = owner.lock();
        let behind = owner.journal.appended().next();
        owner.truncation.set_floor(0, behind);
        owner.note_log();
        owner.cut().expect("a log that works");
    }
    drop(adopting);
    close(owner);
    let owner = left.open((0, Trouble::Over)).await.expect("nothing is wrong with it");
    assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2], vec![9]));
}

#[tokio::test(start_paused = true)]
async fn many_tenants_arrive_in_batches_and_those_that_have_arrived_stay() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    for number in 0..70_u8 {
        let tenant = create(&owner, &format!("t{number}")).await.expect("nobody has it");
        commit(&owner, tenant, number);
    }
    let member = owner.lock().member.clone();
    close(owner);
    cluster.coordinator.deregister(&member.tenure).await.expect("it is there");
    cluster.put(logs::seal(&cluster.view().await, &member.log).expect("nobody has it")).await;
    let log = std::mem::replace(&mut cluster.directory, tempfile::tempdir().expect("a directory"));
    let sealed = seal(&Options::dir(log.path()), NodeEpoch(1_000)).expect("nobody has it");
    let mut left = Left { cluster, name: member.log, sealed, _log: log, tenants: [1, 2], asked: None };
    // Its log's record and the note of its end; then one batch is made, and the process ends at the second.
    let owner = left.open((3, Trouble::Ends { is_made: false })).await.expect("a new log");
    left.grant(&tenure_of(&owner)).await;
    adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await.expect_err("the coordinator is lost");
    assert_eq!(owner.lock().tenants().count(), 63, "these are served");
    close(owner);
    let owner = left.open((0, Trouble::Over)).await.expect("nothing is wrong with it");
    assert_eq!(owner.lock().tenants().count(), 63);
    left.grant(&tenure_of(&owner)).await;
    let (logs, has_new) = awaited(&owner, &left.cluster.view().await);
    assert_eq!((logs.into_iter().collect::<Vec<_>>(), has_new), (vec![left.name.clone()], false));
    assert_eq!(
        adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await.expect("nothing is in its way").len(),
        7
    );
    check(&left.cluster, &owner).await;
    for (tenant, number) in (1..).zip(0..70_u8) {
        assert_eq!(tail(&owner, tenant), [number]);
    }
    assert_eq!(awaited(&owner, &left.cluster.view().await), (BTreeSet::new(), false));
}

#[tokio::test(start_paused = true)]
async fn who_was_granted_a_tenant_that_no_log_has_commits_of_takes_it_in() {
    let mut left = Left::new().await;
    let owner = left.open((0, Trouble::Over)).await.expect("a new log");
    let tenure = owner.lock().member.tenure.clone();
    // Another node makes one for it.
    let other = node(&left.cluster.coordinator, "c", 90).await;
    let place = LogPlace::Folder("of c".to_owned());
    let coordinator = Arc::clone(&left.cluster.coordinator) as _;
    let (member, at) = Member::begin(coordinator, other, |_| place.clone()).await.expect("a new log");
    assert_eq!(at, place);
    let directory = tempfile::tempdir().expect("a directory");
    let recovery = Recovery::read(Options::dir(directory.path()), NodeEpoch(1)).expect("a log");
    let maker =
        Owner::open(recovery, member, &left.cluster.storage(), (64, 1)).await.expect("nothing is wrong with it");
    let maker = Mutex::new(maker);
    let tenant = create_elsewhere(&maker, "new", &tenure).await.expect("nobody has it");
    assert!(!maker.lock().has(tenant));
    assert_eq!(create_elsewhere(&maker, "shop", &tenure).await.expect_err("it is there").state, "42P04");

    let view = left.cluster.view().await;
    assert_eq!(awaited(&owner, &view), (BTreeSet::new(), true));
    assert_eq!(awaited(&maker, &view), (BTreeSet::new(), false));
    // What a process makes itself it does not take in beside that.
    owner.lock().making.insert(tenant);
    assert_eq!(awaited(&owner, &view), (BTreeSet::new(), false));
    assert!(adopt_new(&owner).await.expect("nothing is in its way").is_empty());
    owner.lock().making.remove(&tenant);
    assert_eq!(adopt_new(&owner).await.expect("nothing is in its way"), [tenant]);
    assert!(owner.lock().has(tenant));
    commit(&owner, tenant, 5);
    close(owner);
    let owner = left.open((0, Trouble::Over)).await.expect("nothing is wrong with it");
    assert_eq!(tail(&owner, tenant), [5]);
    close(owner);
    close(maker);
}

/// The tenure of a process.
fn tenure_of(owner: &Mutex<Owner>) -> Tenure {
    owner.lock().member.tenure.clone()
}

/// What the last process has proposed, and nobody has heard.
fn proposal(left: &Left) -> Batch {
    let asked = left.asked.as_ref().expect("it was opened");
    asked.troubled.lock().take().expect("it has proposed something")
}

#[tokio::test(start_paused = true)]
async fn a_proposal_that_arrives_when_the_next_process_of_the_tenure_has_begun_loses_nothing() {
    for is_late in [false, true] {
        let mut left = Left::new().await;
        let [shop, yard] = left.tenants;
        close(left.open((0, Trouble::Over)).await.expect("a new log"));
        let owner = left.open((1, Trouble::Ends { is_made: false })).await.expect("it goes on with its log");
        let member = owner.lock().member.clone();
        left.grant(&member.tenure).await;
        adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await.expect_err("the process ends");
        let late = proposal(&left);
        close(owner);
        if is_late {
            let owner = left.open_again(&member).await;
            // It begins to copy them again, and ends: were the proposal done now, half of a copy would count.
            let payload = owner_epoch(&left.cluster, shop).0.to_le_bytes();
            let begins = Draft { shard: shop, kind: OWNED, payload: &payload };
            owner.lock().journal.append(&[begins]).expect("a log that works");
            left.cluster.coordinator.apply(&late).await.expect_err("another process has begun");
            close(owner);
        } else {
            left.cluster.coordinator.apply(&late).await.expect("nobody has changed the records");
        }
        let owner = left.open_again(&member).await;
        let (name, sealed, storage) = (left.name.clone(), left.sealed.clone(), left.cluster.storage());
        let view = left.cluster.view().await;
        if is_late {
            assert_eq!(awaited(&owner, &view), (BTreeSet::from([name.clone()]), false));
            assert_eq!(adopt(&owner, &storage, &name, &sealed).await.expect("nothing is in its way"), [shop, yard]);
        } else {
            assert_eq!(names(&owner).len(), 2, "an earlier process has taken them in");
        }
        check(&left.cluster, &owner).await;
        commit(&owner, shop, 3);
        close(owner);
        let owner = left.open_again(&member).await;
        assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2, 3], vec![9]), "{is_late}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_became_of_a_proposal_is_known_before_its_tenants_are_copied_again() {
    for is_made in [false, true] {
        let mut left = Left::new().await;
        let [shop, yard] = left.tenants;
        close(left.open((0, Trouble::Over)).await.expect("a new log"));
        let owner = left.open((1, Trouble::Ends { is_made: false })).await.expect("it goes on with its log");
        let member = owner.lock().member.clone();
        left.grant(&member.tenure).await;
        let (name, sealed, storage) = (left.name.clone(), left.sealed.clone(), left.cluster.storage());
        adopt(&owner, &storage, &name, &sealed).await.expect_err("the coordinator does not answer");
        let late = proposal(&left);
        owner.lock().member.coordinator = Arc::clone(&left.cluster.coordinator) as _;
        // Meanwhile the log is cut where the process needs it no more.
        owner.lock().truncation.set_floor(0, Lsn(1_000));
        owner.lock().note_log();
        owner.lock().cut().expect("a log that works");
        if is_made {
            left.cluster.coordinator.apply(&late).await.expect("nobody has changed the records");
            assert_eq!(adopt_new(&owner).await.expect("nothing is in its way"), [shop, yard]);
        } else {
            let mut adopting = Box::pin(adopt(&owner, &storage, &name, &sealed));
            assert!(futures::poll!(&mut adopting).is_pending(), "it waits for the log");
            left.cluster.coordinator.apply(&late).await.expect_err("the process has given it up");
            assert_eq!(adopting.await.expect("nothing is in its way"), [shop, yard]);
        }
        check(&left.cluster, &owner).await;
        assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2], vec![9]), "{is_made}");
        commit(&owner, shop, 3);
        close(owner);
        let owner = left.open_again(&member).await;
        assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2, 3], vec![9]), "{is_made}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_was_removed_does_not_come_back_by_what_was_known_before() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    let shop = create(&owner, "shop").await.expect("nobody has it");
    let before = cluster.view().await;
    remove(&owner, shop).await.expect("it is there");
    assert_eq!(awaited(&owner, &before), (BTreeSet::new(), false));
    assert!(owner.lock().hold(&before).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_of_which_a_log_has_what_nobody_knows_is_not_adopted_and_the_others_are() {
    for (kind, payload, why) in [(TAIL + 1, &b""[..], "a later release wrote it"), (TAIL, b"short", "an epoch")] {
        let mut left = Left::new().await;
        let owner = left.open((0, Trouble::Over)).await.expect("a new log");
        left.grant(&tenure_of(&owner)).await;
        let [shop, yard] = left.tenants;
        let directory = tempfile::tempdir().expect("a directory");
        let nothing = &mut |_: Record| Ok::<(), RedoError>(());
        let journal = Journal::open(Options::dir(directory.path()), NodeEpoch(1), nothing).expect("a new log");
        let record =
            |shard, kind, payload| append(&journal, &[Draft { shard, kind, payload }]).expect("a log that works");
        record(shop, COMMIT, &[1; 8]);
        record(shop, kind, payload);
        record(yard, COMMIT, &[9; 8]);
        journal.close().expect("a log that works");
        let later = seal(&Options::dir(directory.path()), NodeEpoch(2)).expect("nobody has it");
        let refused =
            adopt(&owner, &left.cluster.storage(), &left.name, &later).await.expect_err("it has what nobody knows");
        assert!(refused.message.contains(why) && refused.message.contains(&format!("tenant {shop}")), "{refused}");
        assert_eq!((names(&owner), tail(&owner, yard)), (vec![("yard".to_owned(), yard)], vec![9]));
        // It is not read again and again.
        assert_eq!(awaited(&owner, &left.cluster.view().await), (BTreeSet::new(), false));
        let view = left.cluster.view().await;
        let history = view.shard(&shards::shard(shop)).and_then(|record| record.value.history.clone());
        assert_eq!(history.expect("its own").log, left.name, "which keeps the log");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_became_shorter_is_not_adopted() {
    let mut left = Left::new().await;
    let owner = left.open((0, Trouble::Over)).await.expect("a new log");
    left.grant(&tenure_of(&owner)).await;
    let view = left.cluster.view().await;
    let (_, version) = shards::log_note(&view, &left.name).expect("records").expect("it is noted");
    let end = left.sealed.last().0 + 1;
    left.cluster.put(shards::put(shards::log_key(&left.name), version, &shards::LogNote { end })).await;
    let refused =
        adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await.expect_err("its end is missing");
    assert!(refused.message.contains("where it ended before"), "{refused}");
    assert_eq!(names(&owner), []);
}

#[tokio::test(start_paused = true)]
async fn what_the_storage_has_already_is_not_copied() {
    let mut left = Left::new().await;
    let owner = left.open((0, Trouble::Over)).await.expect("a new log");
    left.grant(&tenure_of(&owner)).await;
    let [shop, yard] = left.tenants;
    let directory = tempfile::tempdir().expect("a directory");
    let nothing = &mut |_: Record| Ok::<(), RedoError>(());
    let journal = Journal::open(Options::dir(directory.path()), NodeEpoch(1), nothing).expect("a new log");
    for (shard, csn) in [(shop, 1), (shop, 2), (yard, 1), (shop, 3)] {
        let payload = [csn - 1, csn].map(u64::to_le_bytes).concat();
        append(&journal, &[Draft { shard, kind: COMMIT, payload: &payload }]).expect("a log that works");
    }
    journal.close().expect("a log that works");
    let log = seal(&Options::dir(directory.path()), NodeEpoch(2)).expect("nobody has it");
    let storage = left.cluster.storage();
    storage.note_stored(shop, savanna_transaction::Csn(2)).await.expect("a store that works");
    // The log has lost the end of what the storage has: all of it is kept, and waking notices.
    storage.note_stored(yard, savanna_transaction::Csn(2)).await.expect("a store that works");
    let before = owner.lock().journal().appended();
    adopt(&owner, &storage, &left.name, &log).await.expect("nothing is in its way");
    let copied = |tenant| {
        let tail = owner.lock().take_tail(tenant, 0);
        tail.iter().map(|(_, commit)| crate::log::commit_number(commit).expect("a commit").0).collect::<Vec<_>>()
    };
    assert_eq!((copied(shop), copied(yard)), (vec![3], vec![1]));
    // That they are owned, and two commits.
    assert_eq!(owner.lock().journal().appended().0 - before.0, 4);
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_read_keep_nobody_from_the_others() {
    let mut left = Left::new().await;
    for key in ["logs/n9.1/tenants", "tenant-names/odd", "tenant-garbage/x", "tenant-garbage/900"] {
        let value = Some(savanna_ownership::RootValue(b"a later release".to_vec()));
        left.cluster.put(RootChange { key: key.to_owned(), expected: Revision::NONE, value }).await;
    }
    let part = savanna_epoch::ShardId::new("tenants/7/1");
    let tenure = node(&left.cluster.coordinator, "z", 900).await;
    let record = ShardRecord::serving(tenure.clone(), OwnerEpoch(1));
    let made = Transition { shard: part, expected: Revision::NONE, record, by: Some(tenure) };
    left.cluster.coordinator.transition(&made).await.expect("nobody has it");
    let (member, place) = begin(&mut left, "b").await;
    let place = match place {
        LogPlace::Folder(folder) => folder,
        place => panic!("{place:?}"),
    };
    assert_eq!(place, "of b");
    let recovery = Recovery::read(Options::dir(left.cluster.directory.path()), NodeEpoch(90)).expect("a new log");
    let owner = Mutex::new(Owner::open(recovery, member, &left.cluster.storage(), (64, 1)).await.expect("a start"));
    left.grant(&tenure_of(&owner)).await;
    let view = left.cluster.view().await;
    assert_eq!(awaited(&owner, &view), ([left.name.clone()].into(), false));
    let arrived = adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await;
    assert_eq!(arrived.expect("nothing is in its way"), left.tenants);
    assert_eq!(shards::by_name(&view).into_keys().collect::<Vec<_>>(), ["shop", "yard"]);
    let [shop, _] = left.tenants;
    remove(&owner, shop).await.expect("it is there");
    clean_up(&owner, &left.cluster.storage()).await.expect("what cannot be read stays");
    assert!(left.cluster.view().await.root("tenant-garbage/900").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_name_cannot_be_read_stays_in_its_log_and_is_told_once() {
    let mut left = Left::new().await;
    let owner = left.open((0, Trouble::Over)).await.expect("a new log");
    left.grant(&tenure_of(&owner)).await;
    let [shop, yard] = left.tenants;
    let view = left.cluster.view().await;
    let version = view.root("tenant-names/shop").expect("it is there").version;
    let value = Some(savanna_ownership::RootValue(b"a later release".to_vec()));
    left.cluster.put(RootChange { key: "tenant-names/shop".to_owned(), expected: version, value }).await;
    let arrived = adopt(&owner, &left.cluster.storage(), &left.name, &left.sealed).await;
    assert_eq!(arrived.expect("nothing is in its way"), [yard]);
    let view = left.cluster.view().await;
    assert_eq!(awaited(&owner, &view), (BTreeSet::new(), false));
    let history = view.shard(&shards::shard(shop)).and_then(|record| record.value.history.clone());
    assert_eq!(history.expect("its own").log, left.name, "which keeps the log");
    assert!(owner.lock().take_tail(shop, 0).is_empty(), "nothing of it holds this log up");
}

#[tokio::test]
async fn what_a_later_release_has_cut_into_parts_is_not_removed() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    let shop = create(&owner, "shop").await.expect("nobody has it");
    remove(&owner, shop).await.expect("it is there");
    clean_up(&owner, &cluster.storage()).await.expect("a store that works");
    let numbers = Numbers { carried: 0 };
    assert!(is_gone(&cluster.view().await, numbers, shop));
    let tenure = tenure_of(&owner);
    let part = savanna_epoch::ShardId::new(format!("tenants/{shop}/1"));
    let record = ShardRecord::serving(tenure.clone(), OwnerEpoch(1));
    let made = Transition { shard: part, expected: Revision::NONE, record, by: Some(tenure) };
    cluster.coordinator.transition(&made).await.expect("nobody has it");
    assert!(!is_gone(&cluster.view().await, numbers, shop));
}

/// The next process of a node begins a log of its own.
async fn begin(left: &mut Left, name: &str) -> (Member, LogPlace) {
    left.cluster.epoch += 1;
    let tenure = node(&left.cluster.coordinator, name, left.cluster.epoch).await;
    let coordinator = Arc::clone(&left.cluster.coordinator) as _;
    let place = |log: &LogId| LogPlace::Folder(format!("of {}", log.node));
    Member::begin(coordinator, tenure, place).await.expect("a coordinator that works")
}

#[tokio::test(start_paused = true)]
async fn what_a_former_release_made_is_not_taken_for_new() {
    let mut left = Left::new().await;
    let owner = left.open((0, Trouble::Over)).await.expect("a new log");
    let view = left.cluster.view().await;
    let version = view.root("tenant-numbers").expect("it is there").version;
    let carried = shards::put("tenant-numbers".to_owned(), version, &Numbers { carried: 900 });
    left.cluster.put(carried).await;
    let tenure = owner.lock().member.tenure.clone();
    for (tenant, name) in [(900, "old"), (901, "new")] {
        let expected = Revision::NONE;
        let record = ShardRecord::serving(tenure.clone(), FIRST_EPOCH);
        let made = Batch {
            transitions: vec![Transition { shard: shards::shard(tenant), expected, record, by: None }],
            roots: vec![shards::put(shards::name_key(name), expected, &shards::Named { number: tenant })],
            ..Batch::default()
        };
        left.cluster.coordinator.apply(&made).await.expect("it is new");
    }
    let refused = adopt_new(&owner).await.expect_err("its commits are in some log");
    assert!(refused.message.contains("tenant 900"), "{refused}");
    assert_eq!(names(&owner), [("new".to_owned(), 901)]);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_owner_has_taken_it_in_before_its_maker_heard_of_it_is_made() {
    let mut left = Left::new().await;
    let owner = left.open((0, Trouble::Over)).await.expect("a new log");
    let other = node(&left.cluster.coordinator, "c", 90).await;
    let inner = Arc::clone(&left.cluster.coordinator);
    // Its log's record and the note of its end are made before.
    let coordinator = Arc::new(Fragile {
        inner,
        trouble: Mutex::new((2, Trouble::Lost { is_made: true })),
        troubled: Mutex::default(),
    });
    let (member, _) =
        Member::begin(coordinator, other, |_| LogPlace::Folder("of c".to_owned())).await.expect("a new log");
    let directory = tempfile::tempdir().expect("a directory");
    let recovery = Recovery::read(Options::dir(directory.path()), NodeEpoch(1)).expect("a log");
    let maker = Owner::open(recovery, member, &left.cluster.storage(), (64, 1)).await;
    let maker = Mutex::new(maker.expect("nothing is wrong with it"));
    let tenure = owner.lock().member.tenure.clone();
    let mut making = Box::pin(create_elsewhere(&maker, "new", &tenure));
    while awaited(&owner, &left.cluster.view().await) == (BTreeSet::new(), false) {
        assert!(futures::poll!(&mut making).is_pending(), "the answer is lost");
    }
    let arrived = adopt_new(&owner).await.expect("nothing is in its way");
    assert_eq!([making.await.expect("it is made")], arrived[..]);
}

/// Two nodes that live, each with a log of its own.
struct Both {
    cluster: Cluster,
    members: [Member; 2],
    directories: [tempfile::TempDir; 2],
    opened: u64,
}

impl Both {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let begin = async |name: &str, epoch| {
            let tenure = node(&cluster.coordinator, name, epoch).await;
            let place = LogPlace::Folder(format!("of {name}"));
            Member::begin(Arc::clone(&cluster.coordinator) as _, tenure, |_| place.clone()).await.expect("a new log").0
        };
        let members = [begin("a", 1).await, begin("b", 2).await];
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        Self { cluster, members, directories, opened: 0 }
    }

    /// The next process of a node's tenure.
    async fn open(&mut self, node: usize) -> Mutex<Owner> {
        self.opened += 1;
        let recovery = Recovery::read(Options::dir(self.directories[node].path()), NodeEpoch(self.opened));
        let member = self.members[node].clone();
        let owner = Owner::open(recovery.expect("a log"), member, &self.cluster.storage(), (64, 1)).await;
        Mutex::new(owner.expect("nothing is wrong with it"))
    }

    /// A node proposes that a tenant is in a state: if that is another's, under the next epoch, with the history in its log.
    async fn propose(&self, by: usize, tenant: TenantId, state: Exclusive) -> bool {
        let view = self.cluster.view().await;
        self.propose_at(shards::tenants(&view)[&tenant], by, tenant, state).await
    }

    async fn propose_at(&self, at: &Versioned<ShardRecord>, by: usize, tenant: TenantId, state: Exclusive) -> bool {
        let by = &self.members[by].tenure;
        let (epoch, history) = match self.members.iter().find(|member| member.tenure == *state.owner()) {
            Some(member) if member.tenure != *by => {
                let epoch = at.value.epoch.next();
                (epoch, Some(member.history(epoch)))
            }
            _ => (at.value.epoch, at.value.history.clone()),
        };
        let record = ShardRecord::exclusive(epoch, state).with_history(history);
        let (shard, by) = (shards::shard(tenant), Some(by.clone()));
        self.cluster.coordinator.transition(&Transition { shard, expected: at.version, record, by }).await.is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_moved_has_in_each_log_what_was_committed_there_since_it_came_last() {
    let mut both = Both::new().await;
    let [a, b] = both.members.clone().map(|member| (member.tenure, member.log));
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    commit(&here, shop, 1);
    // The storage has that, and it is expected elsewhere.
    assert_eq!(expect(&there, shop, FIRST_EPOCH.next()).await.expect("a log that works"), b.1);
    let moving = |from: &Tenure, to: &Tenure| Exclusive::Moving { from: from.clone(), to: to.clone() };
    let serving = |owner: &Tenure| Exclusive::Serving { owner: owner.clone() };
    assert!(both.propose(0, shop, moving(&a.0, &b.0)).await);
    let view = both.cluster.view().await;
    assert!(there.lock().hold(&view).is_empty() && !there.lock().has(shop), "it is not decided");
    assert!(both.propose(0, shop, serving(&b.0)).await);
    let before = both.cluster.view().await;
    here.lock().leave(shop);
    assert!(!here.lock().has(shop) && here.lock().tenant("shop").is_none());
    assert!(here.lock().hold(&view).is_empty(), "an old view says that it is here");
    assert_eq!(there.lock().hold(&before), [shop]);
    commit(&there, shop, 2);
    close(there);
    let there = both.open(1).await;
    assert_eq!(tail(&there, shop), [2]);

    // It comes back.
    expect(&here, shop, OwnerEpoch(3)).await.expect("a log that works");
    assert!(both.propose(1, shop, moving(&b.0, &a.0)).await);
    assert!(both.propose(1, shop, serving(&a.0)).await);
    there.lock().leave(shop);
    let view = both.cluster.view().await;
    assert_eq!(here.lock().hold(&view), [shop], "under a later epoch than it left");
    commit(&here, shop, 3);
    close(here);
    let here = both.open(0).await;
    assert_eq!(tail(&here, shop), [3], "what it had before is in the storage");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_gives_up_the_moves_of_the_one_before_whose_proposal_comes_late_then() {
    let mut both = Both::new().await;
    let [a, b] = both.members.clone().map(|member| (member.tenure, member.log));
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    expect(&there, shop, FIRST_EPOCH.next()).await.expect("a log that works");
    assert!(both.propose(0, shop, Exclusive::Moving { from: a.0.clone(), to: b.0.clone() }).await);
    let before = both.cluster.view().await;
    close(here);

    let here = both.open(0).await;
    commit(&here, shop, 1);
    let moved = Exclusive::Serving { owner: b.0.clone() };
    assert!(!both.propose_at(shards::tenants(&before)[&shop], 0, shop, moved).await, "it serves already");
    let view = both.cluster.view().await;
    let record = &shards::tenants(&view)[&shop].value;
    assert_eq!(record.ownership, Ownership::Exclusive(Exclusive::Serving { owner: a.0 }));
    assert!(here.lock().has(shop) && there.lock().hold(&view).is_empty());
    remove(&here, shop).await.expect("its record has the version that it knows");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_commits_that_were_not_done_again_does_not_move() {
    let mut both = Both::new().await;
    let here = both.open(0).await;
    let shop = create(&here, "shop").await.expect("nobody has it");
    here.lock().expect_no_tail(shop).expect("it has none");
    commit(&here, shop, 1);
    close(here);
    let here = both.open(0).await;
    assert_eq!(here.lock().expect_no_tail(shop).expect_err("the storage has not got it").state, "55006");
    assert_eq!(here.lock().expect_no_tail(99).expect_err("there is none").state, "3D000");
}

#[tokio::test(start_paused = true)]
async fn what_is_expected_too_late_hides_nothing_that_was_committed() {
    let mut both = Both::new().await;
    let here = both.open(0).await;
    let shop = create(&here, "shop").await.expect("nobody has it");
    commit(&here, shop, 1);
    let refused = expect(&here, shop, FIRST_EPOCH).await.expect_err("it is here");
    assert_eq!(refused.state, "55006");
    here.lock().arriving.insert(99);
    assert_eq!(expect(&here, 99, FIRST_EPOCH).await.expect_err("it is being copied").state, "55006");
    close(here);
    let here = both.open(0).await;
    assert_eq!(tail(&here, shop), [1]);
}
