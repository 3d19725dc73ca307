//! The coordinator as one process of an owner sees it: an answer may be lost, and the process may end in the middle of several changes.

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use savanna_epoch::ShardId;
use savanna_ownership::{
    Batch, ChangeStream, ClaimOutcome, Coordinator, CoordinatorError, Grant, NodeSpec, Revision, RootValue,
    ShardRecord, Snapshot, Tenure, Transition, Versioned,
};

/// What happens to a change, which is made or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// Its answer is lost.
    Lost { is_made: bool },
    /// The process hears of nothing any more.
    Ends { is_made: bool },
    /// Likewise, and the change is on its way: it arrives later.
    Late,
}

/// A coordinator, and what happens after so many changes.
pub(super) struct Asked {
    coordinator: Arc<dyn Coordinator>,
    trouble: Mutex<Option<(u32, Trouble)>>,
    has_ended: Mutex<bool>,
    late: Mutex<Option<Batch>>,
    /// Whether a process takes what it proposes of histories for done.
    is_hasty: bool,
}

impl Asked {
    pub(super) fn new(coordinator: Arc<dyn Coordinator>, is_hasty: bool) -> Arc<Self> {
        let (trouble, has_ended, late) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { coordinator, trouble, has_ended, late, is_hasty })
    }

    /// After so many changes something happens.
    pub(super) fn trouble_after(&self, changes: u32, trouble: Trouble) {
        *self.trouble.lock() = Some((changes, trouble));
    }

    /// Nothing happens any more that has not happened yet.
    pub(super) fn trouble_is_over(&self) {
        *self.trouble.lock() = None;
    }

    /// Whether the process hears of nothing any more.
    pub(super) fn has_ended(&self) -> bool {
        *self.has_ended.lock()
    }

    /// A change that was on its way arrives, if there is one. It is made if it can be; nobody hears of it.
    pub(super) async fn arrive(&self) -> bool {
        let Some(late) = self.late.lock().take() else { return false };
        self.coordinator.apply(&late).await.is_ok()
    }

    fn next(&self) -> Option<Trouble> {
        let mut trouble = self.trouble.lock();
        match trouble.take() {
            Some((0, now)) => Some(now),
            later => {
                *trouble = later.map(|(changes, later)| (changes - 1, later));
                None
            }
        }
    }

    fn alive(&self) -> Result<(), CoordinatorError> {
        if self.has_ended() { Err(ended()) } else { Ok(()) }
    }
}

/// Whether it only says where the commits of shards are.
fn is_adoption(batch: &Batch) -> bool {
    let says = |transition: &Transition| transition.record.history.is_some();
    !batch.transitions.is_empty() && batch.roots.is_empty() && batch.transitions.iter().all(says)
}

fn ended() -> CoordinatorError {
    CoordinatorError::Stopped { reason: "of the simulation".to_owned() }
}

#[async_trait]
impl Coordinator for Asked {
    async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
        self.coordinator.register(spec).await
    }

    async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
        self.coordinator.claim(spec).await
    }

    async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
        self.coordinator.heartbeat(tenure).await
    }

    async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
        self.coordinator.deregister(tenure).await
    }

    async fn snapshot(&self) -> Result<Snapshot, CoordinatorError> {
        self.alive()?;
        self.coordinator.snapshot().await
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        self.alive()?;
        self.coordinator.shard(shard).await
    }

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        self.alive()?;
        if self.is_hasty && is_adoption(batch) {
            *self.late.lock() = Some(batch.clone());
            return Ok(self.coordinator.snapshot().await?.revision);
        }
        let Some(trouble) = self.next() else { return self.coordinator.apply(batch).await };
        match trouble {
            Trouble::Lost { is_made: true } | Trouble::Ends { is_made: true } => {
                self.coordinator.apply(batch).await?;
            }
            Trouble::Lost { .. } | Trouble::Ends { .. } => {}
            Trouble::Late => *self.late.lock() = Some(batch.clone()),
        }
        match trouble {
            Trouble::Lost { .. } => {
                Err(CoordinatorError::Unavailable { reason: "the simulation lost the answer".to_owned() })
            }
            Trouble::Ends { .. } | Trouble::Late => {
                *self.has_ended.lock() = true;
                Err(ended())
            }
        }
    }

    async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError> {
        self.alive()?;
        self.coordinator.allocate(name, count).await
    }

    async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError> {
        self.alive()?;
        self.coordinator.root(key).await
    }

    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        self.coordinator.watch(since).await
    }
}
