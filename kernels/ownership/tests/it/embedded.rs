//! The embedded coordinator on a journal in a directory.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use savanna_epoch::NodeEpoch;
use savanna_journal::Options;
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::{
    BootClock, Clock, Coordinator, CoordinatorError, LeaseGuard, LeaseHolder, LeaseTerms, Revision, RootValue,
};
use tempfile::TempDir;

use crate::suite::{LONG_TTL, suite};

fn options() -> EmbeddedOptions {
    EmbeddedOptions { ttl: Duration::from_millis(600), clock: Arc::new(BootClock), guard: None }
}

async fn open(directory: &TempDir, epoch: u64) -> EmbeddedCoordinator {
    let journal = Options::dir(directory.path().join("coordinator"));
    EmbeddedCoordinator::open(journal, NodeEpoch(epoch), options()).await.unwrap()
}

async fn start() -> Option<(Arc<dyn Coordinator>, TempDir)> {
    let directory = tempfile::tempdir().unwrap();
    let coordinator = open(&directory, 1).await;
    Some((Arc::new(coordinator), directory))
}

suite!(start);

async fn start_with_long_leases() -> Option<(Arc<dyn Coordinator>, TempDir)> {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { ttl: LONG_TTL, ..options() };
    let journal = Options::dir(directory.path().join("coordinator"));
    Some((Arc::new(EmbeddedCoordinator::open(journal, NodeEpoch(1), options).await.unwrap()), directory))
}

suite!(start_with_long_leases: random_batches_are_applied_as_the_model_says, a_history_is_set_to_a_log_that_is_open_and_held, no_history_is_set_to_a_log_once_it_is_sealed,);

#[tokio::test]
async fn a_newer_epoch_on_the_same_journal_stops_the_older_coordinator() {
    let directory = tempfile::tempdir().unwrap();
    let old = open(&directory, 1).await;
    old.allocate("x", 10).await.unwrap();
    let new = open(&directory, 2).await;
    assert_eq!(new.allocate("x", 1).await.unwrap(), 11..12);
    let mut changes = old.watch(Revision::NONE).await.unwrap();
    let error = old.allocate("x", 1).await.unwrap_err();
    assert!(matches!(error, CoordinatorError::Unavailable { .. }), "it may have been written: {error:?}");
    let message = error.to_string();
    assert!(message.contains("fenced") && message.contains("restart the process"), "{message}");
    // Stopped for good, for reads and watchers too.
    assert!(matches!(old.allocate("x", 1).await, Err(CoordinatorError::Stopped { .. })), "nothing of it is written");
    assert!(matches!(old.snapshot().await, Err(CoordinatorError::Stopped { .. })));
    assert!(matches!(changes.next().await, Some(Err(CoordinatorError::Stopped { .. }))));
    assert!(changes.next().await.is_none());
    assert_eq!(new.allocate("x", 1).await.unwrap(), 12..13);
}

#[tokio::test]
async fn a_long_history_is_replaced_by_an_image_and_reopens() {
    let directory = tempfile::tempdir().unwrap();
    let coordinator = open(&directory, 1).await;
    let mut version = Revision::NONE;
    for number in 0..300_u32 {
        let writes = (0..16).map(|_| coordinator.allocate("x", 1));
        futures::future::join_all(writes).await;
        version = coordinator.put_root("r", version, RootValue(number.to_le_bytes().to_vec())).await.unwrap();
    }
    drop(coordinator);
    for epoch in 2..5 {
        let coordinator = open(&directory, epoch).await;
        assert_eq!(coordinator.root("r").await.unwrap().unwrap().value.0, 299_u32.to_le_bytes());
        assert_eq!(coordinator.allocate("x", 1).await.unwrap().start, 4801 + epoch - 2);
    }
}

#[tokio::test]
async fn nothing_is_answered_while_the_lease_of_the_data_directory_does_not_cover_the_instant() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(BootClock);
    let guard = LeaseGuard::new(Arc::<BootClock>::clone(&clock));
    let terms = LeaseTerms::new(Duration::from_secs(3600), Duration::from_secs(1)).unwrap();
    let holder = LeaseHolder::new(terms, clock.now());
    guard.publish(&holder);
    let options = EmbeddedOptions { guard: Some(guard.clone()), ..options() };
    let journal = Options::dir(directory.path().join("coordinator"));
    let coordinator = EmbeddedCoordinator::open(journal, NodeEpoch(1), options).await.unwrap();
    assert_eq!(coordinator.allocate("x", 1).await.unwrap(), 1..2);
    guard.revoke();
    let reads_and_writes = [coordinator.allocate("x", 1).await.map(drop), coordinator.snapshot().await.map(drop)];
    for refused in reads_and_writes {
        assert!(matches!(refused, Err(CoordinatorError::Unavailable { .. })), "{refused:?}");
    }
    // A late renewal brings it back.
    guard.publish(&holder);
    assert_eq!(coordinator.allocate("x", 1).await.unwrap(), 2..3);
}
