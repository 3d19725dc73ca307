//! The coordinator as one process of an owner sees it: an answer may be lost, and the process may end in the middle of several changes.

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use savanna_epoch::ShardId;
use savanna_ownership::{
    Batch, ChangeStream, ClaimOutcome, Coordinator, CoordinatorError, Grant, NodeSpec, Revision, RootValue,
    ShardRecord, Snapshot, Tenure, Transition, Versioned,
};
use tokio::sync::oneshot;

/// What happens to a change, which is made or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// Its answer is lost.
    Lost { is_made: bool },
    /// The process hears of nothing any more.
    Ends { is_made: bool },
    /// Likewise, and the change is on its way: it arrives later.
    Late,
    /// It is made, and arrives once more later.
    Doubled,
}

/// What becomes of a call that was under way for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives, and its answer.
    Arrives,
    /// It is lost, and whoever asks gives it up.
    Lost,
    /// It arrives, and whoever asks has given it up.
    AnsweredLate,
    /// Whoever asks gives it up, and it arrives later.
    Late,
}

/// What a process does wrong with the coordinator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flaws {
    /// It takes what it proposes of histories for done.
    pub(super) is_hasty: bool,
    /// It does not say that no later process of its tenure may have begun.
    pub(super) expects_nothing: bool,
}

/// A coordinator, and what happens after so many changes.
pub(super) struct Asked {
    coordinator: Arc<dyn Coordinator>,
    trouble: Mutex<Option<(u32, Trouble)>>,
    has_ended: Mutex<bool>,
    late: Mutex<Vec<Batch>>,
    way: Mutex<Way>,
    flaws: Flaws,
}

/// A call that takes its time.
#[derive(Default)]
struct Way {
    /// After so many calls one is under way until somebody says what becomes of it.
    slow_after: Option<u32>,
    /// Who waits for that, and with which change if it is one.
    waiting: Option<(oneshot::Sender<Fate>, Option<Batch>)>,
}

impl Asked {
    pub(super) fn new(coordinator: Arc<dyn Coordinator>, flaws: Flaws) -> Arc<Self> {
        let (trouble, has_ended, late, way) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { coordinator, trouble, has_ended, late, way, flaws })
    }

    /// After so many calls one is under way until it is said [what becomes](Self::become_of) of it.
    pub(super) fn slow_after(&self, calls: Option<u32>) {
        self.way.lock().slow_after = calls;
    }

    /// Whether a call is under way.
    pub(super) fn is_waiting(&self) -> bool {
        self.way.lock().waiting.is_some()
    }

    /// What becomes of the call that is under way.
    pub(super) fn become_of(&self, fate: Fate) {
        if let Some((waiting, batch)) = self.way.lock().waiting.take() {
            if let (Fate::Late, Some(batch)) = (fate, batch) {
                self.late.lock().push(batch);
            }
            // Whoever waited may have ended.
            let _ = waiting.send(fate);
        }
    }

    /// Whether changes are on their way.
    pub(super) fn is_any_late(&self) -> bool {
        !self.late.lock().is_empty()
    }

    async fn on_the_way(&self, batch: Option<&Batch>) -> Fate {
        let fate = {
            let mut way = self.way.lock();
            match way.slow_after {
                None => return Fate::Arrives,
                Some(0) => {
                    let (waiting, fate) = oneshot::channel();
                    way.slow_after = None;
                    way.waiting = Some((waiting, batch.cloned()));
                    fate
                }
                Some(calls) => {
                    way.slow_after = Some(calls - 1);
                    return Fate::Arrives;
                }
            }
        };
        fate.await.unwrap_or(Fate::Lost)
    }

    /// What a read comes to after its way.
    async fn arrives(&self) -> Result<(), CoordinatorError> {
        self.alive()?;
        match self.on_the_way(None).await {
            Fate::Arrives => Ok(()),
            _ => Err(unanswered()),
        }
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

    /// A change is on its way, and arrives later; whoever asks goes on without an answer.
    pub(super) fn arrives_late(&self, batch: Batch) {
        self.late.lock().push(batch);
    }

    /// The changes that are on their way. Nobody hears what becomes of them.
    pub(super) fn late(&self) -> Vec<Batch> {
        std::mem::take(&mut *self.late.lock())
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

fn unanswered() -> CoordinatorError {
    CoordinatorError::Unavailable { reason: "the simulation lost the answer".to_owned() }
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
        self.arrives().await?;
        self.coordinator.snapshot().await
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        self.arrives().await?;
        self.coordinator.shard(shard).await
    }

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        self.alive()?;
        let mut batch = batch.clone();
        if self.flaws.expects_nothing {
            batch.expects.clear();
        }
        let batch = &batch;
        if self.flaws.is_hasty && is_adoption(batch) {
            self.late.lock().push(batch.clone());
            return Ok(self.coordinator.snapshot().await?.revision);
        }
        match self.on_the_way(Some(batch)).await {
            Fate::Arrives => {}
            Fate::AnsweredLate => {
                self.coordinator.apply(batch).await?;
                return Err(unanswered());
            }
            Fate::Lost | Fate::Late => return Err(unanswered()),
        }
        let Some(trouble) = self.next() else { return self.coordinator.apply(batch).await };
        let made = match trouble {
            Trouble::Lost { is_made: true } | Trouble::Ends { is_made: true } | Trouble::Doubled => {
                Some(self.coordinator.apply(batch).await?)
            }
            Trouble::Lost { .. } | Trouble::Ends { .. } | Trouble::Late => None,
        };
        if matches!(trouble, Trouble::Late | Trouble::Doubled) {
            self.late.lock().push(batch.clone());
        }
        match (trouble, made) {
            (Trouble::Doubled, Some(made)) => Ok(made),
            (Trouble::Lost { .. } | Trouble::Doubled, _) => Err(unanswered()),
            (Trouble::Ends { .. } | Trouble::Late, _) => {
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
