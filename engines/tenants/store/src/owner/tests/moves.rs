//! Tenants that move between two nodes that live.

mod moved;

use super::*;

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
        self.open_with(node, |options| options).await
    }

    async fn open_with(&mut self, node: usize, set: impl FnOnce(Options) -> Options) -> Mutex<Owner> {
        self.opened += 1;
        let recovery = Recovery::read(set(Options::dir(self.directories[node].path())), NodeEpoch(self.opened));
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
async fn who_drops_a_tenant_that_has_begun_to_move_tries_again() {
    let mut both = Both::new().await;
    let here = both.open(0).await;
    let shop = create(&here, "shop").await.expect("nobody has it");
    let [a, b] = both.members.clone().map(|member| member.tenure);
    assert!(both.propose(0, shop, Exclusive::Moving { from: a, to: b }).await);
    assert_eq!(remove(&here, shop).await.expect_err("its record is another one").state, "55006");
    assert!(here.lock().has(shop));
    remove(&here, shop).await.expect("who moves it finds that it is gone");
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
