//! Tenants of a node that is gone, out of its sealed log.

use super::*;

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
    let tenant = create_elsewhere(&maker, "new", &tenure, &[]).await.expect("nobody has it");
    assert!(!maker.lock().has(tenant));
    assert_eq!(create_elsewhere(&maker, "shop", &tenure, &[]).await.expect_err("it is there").state, "42P04");

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
