//! What a process finds when it starts: its own tenants, what a former release left, and records that do not fit.

use super::*;

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
