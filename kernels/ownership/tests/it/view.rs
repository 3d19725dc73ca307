//! A view that follows a coordinator through changes that are no longer kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use savanna_epoch::NodeEpoch;
use savanna_journal::Options;
use savanna_journal::sim::SimDisk;
use savanna_ownership::core::CHANGES_KEPT;
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::view::Follower;
use savanna_ownership::{
    Batch, BootClock, Changed, ClusterView, Coordinator, MAX_BATCH_RECORDS, Revision, RootChange, RootValue,
};

use crate::suite::LONG_TTL;

/// Writes the same roots anew.
async fn write(coordinator: &dyn Coordinator, expected: Revision) -> Revision {
    let root = |number: usize| RootChange {
        key: format!("r/{number}"),
        expected,
        value: Some(RootValue(expected.0.to_le_bytes().to_vec())),
    };
    let batch = Batch { roots: (0..MAX_BATCH_RECORDS).map(root).collect(), ..Batch::default() };
    coordinator.apply(&batch).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_goes_over_to_a_snapshot_when_it_is_too_far_behind_and_misses_nothing() {
    let options = EmbeddedOptions { ttl: LONG_TTL, clock: Arc::new(BootClock), guard: None };
    let journal = Options::disk(SimDisk::new(1) as Arc<_>);
    let coordinator = Arc::new(EmbeddedCoordinator::open(journal, NodeEpoch(1), options).await.unwrap());
    let mut version = write(&*coordinator, Revision::NONE).await;
    let mut follower = Follower::new(Arc::clone(&coordinator) as Arc<dyn Coordinator>, ClusterView::default());
    assert_eq!(follower.next().await.unwrap().what.len(), MAX_BATCH_RECORDS);
    for _ in 0..=CHANGES_KEPT {
        version = coordinator
            .put_root("often", if version == Revision(1) { Revision::NONE } else { version }, RootValue::default())
            .await
            .unwrap();
    }
    let last = write(&*coordinator, Revision(1)).await;
    // The roots of the batch that it knows, and the one that is new.
    let change = follower.next().await.unwrap();
    assert_eq!((change.revision, change.what.len()), (last, MAX_BATCH_RECORDS + 1));
    let seen: BTreeMap<_, _> = change
        .what
        .into_iter()
        .map(|what| match what {
            Changed::Root(key, value) => (key, value),
            other => panic!("expected a root, came {other:?}"),
        })
        .collect();
    assert_eq!(seen["r/5"], RootValue(1_u64.to_le_bytes().to_vec()));
    assert_eq!(follower.view().snapshot(), coordinator.snapshot().await.unwrap());
    let put = coordinator.put_root("often", version, RootValue::default()).await.unwrap();
    assert_eq!(follower.next().await.unwrap().revision, put);
}
