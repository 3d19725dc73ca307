//! The coordinator of several nodes: the product's, over a journal on a disk that all of them share. Its process ends and is followed by another,
//! or stands still while another takes over; what was not durable is forgotten.

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use savanna_epoch::{NodeEpoch, NodeId, ShardId};
use savanna_journal::{
    Disk, Options,
    sim::{Fault, SimDisk},
};
use savanna_ownership::{
    Batch, ChangeStream, ClaimOutcome, Coordinator, CoordinatorError, Grant, NodeSpec, Revision, RootValue,
    ShardRecord, Snapshot, Tenure, Versioned,
    embedded::{EmbeddedCoordinator, EmbeddedOptions, OpenError},
};

use crate::clock::SimClock;
use crate::fence_blind::FenceBlindDisk;

/// Of a file of its journal: no batch here is larger, and a file is zeroed ahead.
const SEGMENT_BYTES: usize = 64 << 10;

/// What is done wrong around the coordinator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flaws {
    /// What it has changed since it began is told, and not durable.
    pub(super) tells_at_once: bool,
    /// Its journal does not see that it was fenced.
    pub(super) fence_ignored: bool,
}

/// Where the coordinator is.
pub(super) struct Office {
    clock: Arc<SimClock>,
    ttl: Duration,
    flaws: Flaws,
    state: Mutex<State>,
}

struct State {
    disk: Arc<SimDisk>,
    /// The disk as it was when this coordinator began.
    began: Arc<SimDisk>,
    epoch: NodeEpoch,
    now: Option<Arc<EmbeddedCoordinator>>,
    /// One that was replaced, and does not know it.
    former: Option<Arc<EmbeddedCoordinator>>,
    /// The newest change that anybody was told of.
    told: Revision,
    /// What did not hold.
    wrong: Option<String>,
    /// How often it ended in the middle of something.
    ended: u32,
}

impl Office {
    /// A coordinator without any records.
    pub(super) async fn open(clock: Arc<SimClock>, ttl: Duration, flaws: Flaws, seed: u64) -> Arc<Self> {
        let disk = SimDisk::new(seed);
        let state = State {
            began: disk.copy(seed),
            disk,
            epoch: NodeEpoch::NONE,
            now: None,
            former: None,
            told: Revision::NONE,
            wrong: None,
            ended: 0,
        };
        let office = Self { clock, ttl, flaws, state: Mutex::new(state) };
        office.start().await;
        Arc::new(office)
    }

    async fn start(&self) {
        loop {
            if let Ok(started) = self.try_to_start().await {
                let started = Arc::new(started);
                let revision = started.snapshot().await.expect("it has just begun").revision;
                return self.note_started(started, revision);
            }
            // It was to lose its power soon, and did.
            self.lose_power();
        }
    }

    async fn try_to_start(&self) -> Result<EmbeddedCoordinator, OpenError> {
        let (disk, epoch) = {
            let mut state = self.state.lock();
            state.epoch = state.epoch.next();
            (Arc::clone(&state.disk), state.epoch)
        };
        let disk: Arc<dyn Disk> = match self.flaws.fence_ignored {
            true => Arc::new(FenceBlindDisk::new(disk)),
            false => disk,
        };
        let options = EmbeddedOptions { ttl: self.ttl, clock: Arc::clone(&self.clock) as _, guard: None };
        EmbeddedCoordinator::open(Options::disk(disk).segment_bytes(SEGMENT_BYTES), epoch, options).await
    }

    fn note_started(&self, started: Arc<EmbeddedCoordinator>, revision: Revision) {
        let mut state = self.state.lock();
        state.now = Some(started);
        state.began = state.disk.copy(state.epoch.0);
        if revision < state.told {
            let told = state.told;
            state.wrong.get_or_insert_with(|| format!("the coordinator is after {revision}, though {told} was told"));
        }
    }

    /// Its machine loses its power: whatever was not durable is gone. The next one has the same disk.
    pub(super) async fn end(&self) {
        self.lose_power();
        self.start().await;
    }

    fn lose_power(&self) {
        let mut state = self.state.lock();
        let seed = state.epoch.0;
        let left = if self.flaws.tells_at_once { &state.began } else { &state.disk };
        state.disk = left.copy(seed);
        state.disk.crash();
        (state.now, state.former) = (None, None);
    }

    /// It stands still, and another takes over.
    pub(super) async fn replace(&self) {
        {
            let mut state = self.state.lock();
            state.former = state.now.take();
        }
        self.start().await;
    }

    /// Somebody asks the one that was replaced for a number.
    pub(super) async fn ask_former(&self) {
        let former = self.state.lock().former.clone();
        if let Some(former) = former {
            self.expect_refused(former.allocate("of-nobody", 1).await.is_err());
        }
    }

    fn expect_refused(&self, is_refused: bool) {
        if !is_refused {
            let wrong = || "a coordinator that was replaced says that it has changed records".to_owned();
            self.state.lock().wrong.get_or_insert_with(wrong);
        }
    }

    /// Its machine loses its power when it writes the next time but so many.
    pub(super) fn ends_after(&self, operations: u64) {
        self.state.lock().disk.fail(operations + 1, Fault::PowerCut);
    }

    /// A change arrives that was on its way, perhaps at the one that was replaced. Whether it was made.
    pub(super) async fn arrive(&self, batch: &Batch, at_former: bool) -> bool {
        let former = self.state.lock().former.clone().filter(|_| at_former);
        let Some(former) = former else { return self.apply(batch).await.is_ok() };
        self.expect_refused(former.apply(batch).await.is_err());
        false
    }

    /// Ends the leases that have run out.
    pub(super) async fn end_leases(&self) {
        // Of nobody.
        let nobody = Tenure { node: NodeId::new("nobody"), epoch: NodeEpoch::NONE };
        while self.deregister(&nobody).await.is_err() {}
    }

    /// How often it has ended in the middle of something.
    pub(super) fn ended(&self) -> u32 {
        self.state.lock().ended
    }

    /// What did not hold, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        self.state.lock().wrong.clone().map_or(Ok(()), Err)
    }

    fn now(&self) -> Arc<EmbeddedCoordinator> {
        Arc::clone(self.state.lock().now.as_ref().expect("one is there"))
    }

    /// What an answer comes to. Who asks one that ends is answered by nobody, and the next one by the next.
    async fn answered<T>(&self, answer: Result<T, CoordinatorError>) -> Result<T, CoordinatorError> {
        match answer {
            Err(CoordinatorError::Stopped { reason } | CoordinatorError::Unavailable { reason }) => {
                self.state.lock().ended += 1;
                self.end().await;
                Err(CoordinatorError::Unavailable { reason })
            }
            answer => answer,
        }
    }
}

#[async_trait]
impl Coordinator for Office {
    async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
        self.answered(self.now().register(spec).await).await
    }

    async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
        self.answered(self.now().claim(spec).await).await
    }

    async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
        self.answered(self.now().heartbeat(tenure).await).await
    }

    async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
        self.answered(self.now().deregister(tenure).await).await
    }

    async fn snapshot(&self) -> Result<Snapshot, CoordinatorError> {
        self.answered(self.now().snapshot().await).await
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        self.answered(self.now().shard(shard).await).await
    }

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        let changed = self.answered(self.now().apply(batch).await).await?;
        let mut state = self.state.lock();
        state.told = state.told.max(changed);
        Ok(changed)
    }

    async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError> {
        self.answered(self.now().allocate(name, count).await).await
    }

    async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError> {
        self.answered(self.now().root(key).await).await
    }

    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        self.answered(self.now().watch(since).await).await
    }
}
