//! Records that a later release, or damage, has left.

use super::*;

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
