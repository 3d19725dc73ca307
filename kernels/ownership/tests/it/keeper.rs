//! The task that keeps a lease, and the gate of the embedded coordinator, in virtual time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use savanna_ownership::core::CoordinatorCore;
use savanna_ownership::embedded::{EmbeddedCoordinator, Log, LogError, LogPosition};
use savanna_ownership::guard::LeaseStatus;
use savanna_ownership::keeper::LeaseKeeper;
use savanna_ownership::{Clock, Coordinator, LeaseTerms, MonoTime, Revision, RootValue};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::suite::spec;

const TTL: Duration = Duration::from_secs(3);

/// The time of the paused runtime.
struct VirtualClock(Instant);

impl VirtualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> MonoTime {
        MonoTime(0).after(Duration::from_secs(3600) + self.0.elapsed())
    }
}

/// A log whose records become durable when the test says so.
struct HeldLog(watch::Receiver<bool>);

#[async_trait]
impl Log for HeldLog {
    fn append(&self, _payloads: &[Vec<u8>]) -> Result<LogPosition, LogError> {
        Ok(LogPosition(1))
    }

    async fn wait_durable(&self, _position: LogPosition) -> Result<(), LogError> {
        let held = self.0.clone().wait_for(|flushes| *flushes).await.map(drop);
        held.map_err(|error| LogError(error.to_string()))
    }
}

/// A coordinator, and whether its log flushes.
fn coordinator(clock: &Arc<VirtualClock>, flushes: bool) -> (Arc<EmbeddedCoordinator>, watch::Sender<bool>) {
    let (flush, log) = watch::channel(flushes);
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let core = CoordinatorCore::new(TTL);
    (Arc::new(EmbeddedCoordinator::start(core, Arc::new(HeldLog(log)), clock, None)), flush)
}

async fn keeper(clock: &Arc<VirtualClock>, coordinator: &Arc<EmbeddedCoordinator>) -> LeaseKeeper {
    let coordinator: Arc<dyn Coordinator> = Arc::<EmbeddedCoordinator>::clone(coordinator);
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let terms = LeaseTerms::new(TTL, Duration::from_millis(500)).unwrap();
    LeaseKeeper::register(coordinator, &spec("n", 1), terms, clock).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_kept_lease_outlives_many_ttls() {
    let clock = VirtualClock::new();
    let (coordinator, _flush) = coordinator(&clock, true);
    let keeper = keeper(&clock, &coordinator).await;
    for step in 0..100 {
        tokio::time::sleep(TTL / 10).await;
        assert!(keeper.guard().serving(), "at step {step}");
        assert_eq!(*keeper.status().borrow(), LeaseStatus::Serving, "at step {step}");
    }
    assert_eq!(coordinator.snapshot().await.unwrap().nodes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_releases_a_lease_serves_nobody_from_then_on() {
    let clock = VirtualClock::new();
    let (coordinator, _flush) = coordinator(&clock, true);
    let keeper = keeper(&clock, &coordinator).await;
    let guard = keeper.guard();
    assert!(guard.serving());
    let mut release = pin!(keeper.release());
    assert!(release.as_mut().now_or_never().is_none(), "the coordinator has not heard of it yet");
    assert!(!guard.serving());
    release.await.unwrap();
    assert!(!guard.serving());
    assert!(coordinator.snapshot().await.unwrap().nodes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nobody_reads_what_is_not_durable_yet() {
    let clock = VirtualClock::new();
    let (coordinator, flush) = coordinator(&clock, false);
    let mut write = pin!(coordinator.put_root("r", Revision::NONE, RootValue(b"new".to_vec())));
    assert!(write.as_mut().now_or_never().is_none());
    let mut root = pin!(coordinator.root("r"));
    let mut snapshot = pin!(coordinator.snapshot());
    assert!(root.as_mut().now_or_never().is_none(), "it would see the new value");
    assert!(snapshot.as_mut().now_or_never().is_none(), "it would see the new value");
    flush.send_replace(true);
    let version = write.await.unwrap();
    let read = root.await.unwrap().unwrap();
    assert_eq!((read.version, read.value.0.as_slice()), (version, &b"new"[..]));
    assert_eq!(snapshot.await.unwrap().roots.len(), 1);
}
