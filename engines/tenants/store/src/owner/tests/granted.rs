//! Tenants that are this node's without a log that has their commits.

use super::*;

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
    let mut making = Box::pin(create_elsewhere(&maker, "new", &tenure, &[]));
    while awaited(&owner, &left.cluster.view().await) == (BTreeSet::new(), false) {
        assert!(futures::poll!(&mut making).is_pending(), "the answer is lost");
    }
    let arrived = adopt_new(&owner).await.expect("nothing is in its way");
    assert_eq!([making.await.expect("it is made")], arrived[..]);
}
