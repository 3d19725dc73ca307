//! What tenants bring along that move here: commits that their storage has not, and what is open in them.

use super::*;
use crate::owner::{Moved, expect_with, forget_warm};

/// Commits of these numbers, and something that is open.
fn moved(commits: &[u8]) -> Moved {
    Moved { tail: commits.iter().map(|number| vec![*number; 8]).collect(), image: Some(b"open".to_vec()) }
}

fn moving(both: &Both) -> Exclusive {
    let [from, to] = both.members.clone().map(|member| member.tenure);
    Exclusive::Moving { from, to }
}

fn serving(both: &Both, node: usize) -> Exclusive {
    Exclusive::Serving { owner: both.members[node].tenure.clone() }
}

/// The version of a tenant's record.
async fn version(both: &Both, tenant: TenantId) -> u64 {
    shards::tenants(&both.cluster.view().await)[&tenant].version.0
}

#[tokio::test(start_paused = true)]
async fn what_a_tenant_brings_along_is_its_tail_and_what_is_open_in_it() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let attempt = (FIRST_EPOCH.next(), version(&both, shop).await);
    expect_with(&there, shop, attempt, moved(&[1, 2])).await.expect("a log that works");
    assert_eq!(there.lock().take_image(shop), None, "it is not decided");
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 1)).await);
    let view = both.cluster.view().await;
    assert_eq!(there.lock().hold(&view), [shop]);
    assert_eq!(there.lock().due_to_wake(), [shop]);
    assert_eq!(there.lock().take_image(shop).as_deref(), Some(b"open".as_slice()));
    assert_eq!(there.lock().due_to_wake(), [shop], "it has commits that the storage lacks");
    assert_eq!(tail(&there, shop), [1, 2]);
    commit(&there, shop, 3);
    close(there);
    let there = both.open(1).await;
    assert_eq!(tail(&there, shop), [1, 2, 3], "the log has it");
    assert_eq!(there.lock().take_image(shop), None, "what was open has ended with the process");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_came_with_something_open_moves_on_only_when_that_was_taken_up() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let attempt = (FIRST_EPOCH.next(), version(&both, shop).await);
    expect_with(&there, shop, attempt, moved(&[])).await.expect("a log that works");
    assert_eq!(there.lock().expecting(), [shop]);
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 1)).await);
    let view = both.cluster.view().await;
    assert_eq!(there.lock().hold(&view), [shop]);
    assert!(there.lock().expecting().is_empty(), "it has come");
    assert_eq!(there.lock().expect_no_tail(shop).expect_err("it would be lost").state, "55006");
    let image = there.lock().take_image(shop).expect("it came along");
    there.lock().expect_no_tail(shop).expect("whoever wakes it has that");
    there.lock().put_image_back(shop, image);
    assert_eq!(there.lock().expect_no_tail(shop).expect_err("it did not wake").state, "55006");
}

#[tokio::test(start_paused = true)]
async fn of_two_attempts_the_later_one_counts_whichever_comes_last() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let epoch = FIRST_EPOCH.next();
    let first = version(&both, shop).await;
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 0)).await);
    let second = version(&both, shop).await;
    expect_with(&there, shop, (epoch, second), moved(&[1, 2])).await.expect("a log that works");
    let late = expect_with(&there, shop, (epoch, first), moved(&[1])).await.expect_err("it comes too late");
    assert_eq!(late.state, "55006");
    there.lock().expect_no_more(shop, first);
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 1)).await);
    let view = both.cluster.view().await;
    assert_eq!(there.lock().hold(&view), [shop]);
    assert_eq!(tail(&there, shop), [1, 2]);
    close(there);
    let there = both.open(1).await;
    assert_eq!(tail(&there, shop), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_late_of_an_attempt_that_was_given_up_is_not_written() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let (epoch, attempt) = (FIRST_EPOCH.next(), version(&both, shop).await);
    expect_with(&there, shop, (epoch, attempt), moved(&[1])).await.expect("a log that works");
    let goes_on = |attempt| there.lock().expect_attempt(shop, attempt, false).map_err(|error| error.state);
    let comes = |is_coming| there.lock().expected.get_mut(&shop).expect("it is expected").is_coming = is_coming;
    assert_eq!(goes_on(attempt), Err("55006"), "all of it has come");
    comes(true);
    assert_eq!(goes_on(attempt), Ok(()));
    assert_eq!([goes_on(attempt - 1), goes_on(attempt + 1)], [Err("55006"); 2], "another attempt has not begun");
    there.lock().expect_no_more(shop, attempt);
    assert_eq!(goes_on(attempt), Err("55006"));

    comes(true);
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 0)).await);
    drop(awaited(&there, &both.cluster.view().await));
    assert_eq!(goes_on(attempt), Err("55006"), "the records say that it was given up");
}

#[tokio::test(start_paused = true)]
async fn what_is_longer_than_may_wait_for_the_log_comes_all_the_same() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open_with(1, |options| options.backlog_bytes(2_000)).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let attempt = (FIRST_EPOCH.next(), version(&both, shop).await);
    let commits: Vec<u8> = (1..=200).collect();
    expect_with(&there, shop, attempt, moved(&commits)).await.expect("it waits until there is room");
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 1)).await);
    let view = both.cluster.view().await;
    assert_eq!(there.lock().hold(&view), [shop]);
    assert_eq!(tail(&there, shop).len(), commits.len());
}

#[tokio::test(start_paused = true)]
async fn the_log_is_kept_for_what_is_expected_until_the_records_say_that_it_was_given_up() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let old = both.cluster.view().await;
    let attempt = version(&both, shop).await;
    let first = there.lock().journal().appended().next();
    expect_with(&there, shop, (FIRST_EPOCH.next(), attempt), moved(&[1])).await.expect("a log that works");
    let is_kept = |there: &Mutex<Owner>| there.lock().expected.values().any(|expected| expected.first == Some(first));
    drop(awaited(&there, &old));
    assert!(is_kept(&there), "a view from before says nothing");
    assert!(both.propose(0, shop, moving(&both)).await);
    drop(awaited(&there, &both.cluster.view().await));
    assert!(is_kept(&there), "it comes");
    for number in 0..50 {
        commit(&there, 99, number);
    }
    let journal = Arc::clone(there.lock().journal());
    journal.wait_durable(journal.appended()).await.expect("a log that works");
    {
        let mut there = there.lock();
        there.note_log();
        there.truncation.set_floor(0, journal.appended().next());
        there.cut().expect("a log that works");
        assert!(there.truncation.cut(Some(first)).is_none(), "what it brought along is there");
    }
    assert!(both.propose(0, shop, serving(&both, 0)).await);
    drop(awaited(&there, &both.cluster.view().await));
    assert!(!is_kept(&there));
    there.lock().cut().expect("a log that works");
    assert!(there.lock().noted.1, "nobody needs it any more");
}

#[tokio::test(start_paused = true)]
async fn what_was_read_ahead_is_forgotten_when_the_records_say_that_the_tenant_does_not_come() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let (old, attempt, storage) = (both.cluster.view().await, version(&both, shop).await, both.cluster.storage());
    storage.expect_warm(shop, attempt);
    let is_kept = |view: &ClusterView| {
        forget_warm(&there, &storage, view);
        storage.expected_warm() == [(shop, attempt)]
    };
    assert!(is_kept(&old), "a view from before says nothing");
    assert!(both.propose(0, shop, moving(&both)).await);
    assert!(is_kept(&both.cluster.view().await), "it comes");
    assert!(both.propose(0, shop, serving(&both, 0)).await);
    assert!(!is_kept(&both.cluster.view().await), "nobody has said that it does not");
}

#[tokio::test(start_paused = true)]
async fn what_comes_out_of_another_log_takes_the_place_of_what_was_brought_along() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let attempt = version(&both, shop).await;
    expect_with(&there, shop, (FIRST_EPOCH.next(), attempt), moved(&[1, 2])).await.expect("a log that works");
    // It is being copied out of its node's log, as that has ended.
    there.lock().forget_expected(shop);
    there.lock().tails.insert(shop, vec![(Lsn(9), Bytes::from_static(&[7; 8]))]);
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 1)).await);
    let view = both.cluster.view().await;
    assert_eq!(there.lock().hold(&view), [shop]);
    assert_eq!((tail(&there, shop), there.lock().take_image(shop)), (vec![7], None));
}

#[tokio::test(start_paused = true)]
async fn what_a_tenant_brings_along_is_there_if_its_new_node_starts_again_before_it_is_decided() {
    for is_announced in [false, true] {
        let mut both = Both::new().await;
        let (here, there) = (both.open(0).await, both.open(1).await);
        let shop = create(&here, "shop").await.expect("nobody has it");
        let attempt = version(&both, shop).await;
        assert!(both.propose(0, shop, moving(&both)).await);
        // An attempt that was given up, and the one that counts.
        expect_with(&there, shop, (FIRST_EPOCH.next(), attempt), moved(&[9])).await.expect("a log that works");
        expect_with(&there, shop, (FIRST_EPOCH.next(), attempt), moved(&[1, 2])).await.expect("a log that works");
        if is_announced {
            close(there);
            let there = both.open(1).await;
            assert!(both.propose(0, shop, serving(&both, 1)).await);
            let view = both.cluster.view().await;
            assert_eq!(there.lock().hold(&view), [shop]);
            assert_eq!((tail(&there, shop), there.lock().take_image(shop)), (vec![1, 2], None));
            commit(&there, shop, 3);
            close(there);
        } else {
            assert!(both.propose(0, shop, serving(&both, 1)).await);
            close(there);
            let there = both.open(1).await;
            commit(&there, shop, 3);
            close(there);
        }
        let there = both.open(1).await;
        assert_eq!(tail(&there, shop), [1, 2, 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_from_before_the_tenant_was_made_says_nothing_of_what_it_brings_along() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let old = both.cluster.view().await;
    let shop = create(&here, "shop").await.expect("nobody has it");
    let attempt = version(&both, shop).await;
    assert!(both.propose(0, shop, moving(&both)).await);
    expect_with(&there, shop, (FIRST_EPOCH.next(), attempt), moved(&[1, 2])).await.expect("a log that works");
    drop(awaited(&there, &old));
    assert!(both.propose(0, shop, serving(&both, 1)).await);
    let view = both.cluster.view().await;
    assert_eq!(there.lock().hold(&view), [shop]);
    assert_eq!(tail(&there, shop), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_tail_that_is_longer_than_may_wait_for_the_disk_comes_as_a_whole() {
    let mut both = Both::new().await;
    let (here, there) = (both.open(0).await, both.open(1).await);
    let shop = create(&here, "shop").await.expect("nobody has it");
    let attempt = (FIRST_EPOCH.next(), version(&both, shop).await);
    let commits: Vec<u8> = (0..80).collect();
    let long = Moved { tail: commits.iter().map(|number| vec![*number; 1 << 20]).collect(), image: None };
    expect_with(&there, shop, attempt, long).await.expect("a log that works");
    assert!(both.propose(0, shop, moving(&both)).await && both.propose(0, shop, serving(&both, 1)).await);
    let view = both.cluster.view().await;
    assert_eq!(there.lock().hold(&view), [shop]);
    assert_eq!(tail(&there, shop), commits);
}
