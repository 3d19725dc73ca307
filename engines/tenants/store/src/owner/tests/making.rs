//! Tenants that are made, removed, or reserved, wherever that is interrupted.

use super::*;

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
    create_as(&owner, made, "copy", &[]).await.expect("nobody has the name");
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
async fn a_tenant_is_made_only_while_what_its_place_was_chosen_by_is_so() {
    let mut cluster = Cluster::new();
    let owner = cluster.reopen().await;
    let tenure = owner.lock().member.tenure.clone();
    let unsaid = RootExpectation { key: "drained/n1".to_owned(), expected: Expected::Version(Revision::NONE) };
    let expects = std::slice::from_ref(&unsaid);
    create_while(&owner, "before", expects).await.expect("nobody has said anything");
    let reserved = reserve(&owner).await.expect("it works");
    cluster.put(shards::put(unsaid.key.clone(), Revision::NONE, &shards::Named { number: 1 })).await;
    let refused = [
        create_while(&owner, "shop", expects).await.map(drop),
        create_elsewhere(&owner, "shop", &tenure, expects).await.map(drop),
        create_as(&owner, reserved, "shop", expects).await,
    ];
    for refused in refused {
        let error = refused.expect_err("it was drained meanwhile");
        assert!(error.state == "57P03" && error.message.contains("drained/n1"), "{error}");
    }
    // A name that somebody has is told as that, whatever else there is to say.
    assert_eq!(create_while(&owner, "before", expects).await.expect_err("it is there").state, "42P04");
    assert_eq!(names(&owner).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["before"]);
    create(&owner, "shop").await.expect("whoever expects nothing is not refused");
    check(&cluster, &owner).await;
    // Also a name of which this process does not know that somebody has it.
    cluster.put(shards::put(shards::name_key("other"), Revision::NONE, &shards::Named { number: 70 })).await;
    assert_eq!(create_while(&owner, "other", expects).await.expect_err("it is there").state, "42P04");
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
