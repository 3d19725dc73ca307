//! Adoptions that one process proposes, and that are decided when the next one has begun.

use std::task::Poll;

use super::*;

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
            // It waits for the log, unless the disk is faster.
            let adopted = futures::poll!(&mut adopting);
            left.cluster.coordinator.apply(&late).await.expect_err("the process has given it up");
            let adopted = if let Poll::Ready(adopted) = adopted { adopted } else { adopting.await };
            assert_eq!(adopted.expect("nothing is in its way"), [shop, yard]);
        }
        check(&left.cluster, &owner).await;
        assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2], vec![9]), "{is_made}");
        commit(&owner, shop, 3);
        close(owner);
        let owner = left.open_again(&member).await;
        assert_eq!((tail(&owner, shop), tail(&owner, yard)), (vec![1, 2, 3], vec![9]), "{is_made}");
    }
}
