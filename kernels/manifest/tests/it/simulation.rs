//! Two owners who take over from each other, readers and collectors over a store that delays, reorders, fails and
//! loses answers, in virtual time. One seed is one interleaving.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetResult, ObjectMeta, ObjectStore, PutOptions, PutPayload, PutResult, Result};
use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use savanna_manifest::{
    CommitId, Manifest, ManifestError, Options, OwnerEpoch, Pin, Reader, Retention, RetryPolicy, Snapshot, UnixMillis,
    Version, WriterId,
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::layer::{EpochBlind, Hidden, Layer, ListBlind, delete_from, list_from, store_of};

const SIMULATED: Duration = Duration::from_secs(15);
const SKEW_MAX_MS: u64 = 40;
const RETENTION: Retention =
    Retention { grace: Duration::from_millis(300), clock_margin: Duration::from_millis(2 * SKEW_MAX_MS) };
const RETRY: RetryPolicy = RetryPolicy {
    attempts_max: 2,
    backoff_first: Duration::from_millis(5),
    backoff_max: Duration::from_millis(20),
    request_timeout: Duration::from_millis(200),
};

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    Nothing,
    NoEpochCheck,
    CollectorIgnoresPins,
    WriterDoesNotLookAbove,
}

/// All randomness of one run, in the order in which the single thread asks.
#[derive(Clone, Debug)]
struct Dice(Arc<Mutex<ChaCha8Rng>>);

impl Dice {
    fn below(&self, limit: u64) -> u64 {
        self.0.lock().next_u64() % limit
    }

    fn one_in(&self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn writer(&self) -> WriterId {
        WriterId(u128::from(self.below(u64::MAX)) << 64 | u128::from(self.below(u64::MAX)))
    }

    async fn pause(&self, limit_ms: u64) {
        sleep(Duration::from_millis(self.below(limit_ms))).await;
    }
}

/// The store of the simulation. It remembers every version ever created.
#[derive(Debug)]
struct Unreliable {
    memory: Arc<dyn ObjectStore>,
    dice: Dice,
    /// How many requests there are to each kind of fault, on average.
    requests_per_fault: u64,
    healthy: AtomicU64,
    created: Mutex<Vec<Snapshot>>,
}

impl Unreliable {
    /// Lets a request take effect after a while, or never, or after its failure was reported.
    async fn request<T: Send + 'static>(
        self: &Arc<Self>,
        effect: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if self.healthy.load(Ordering::Relaxed) == 1 {
            return effect.await;
        }
        let failure = || Err(Error::Generic { store: "Unreliable", source: "simulated failure".into() });
        self.dice.pause(20).await;
        match self.dice.below(self.requests_per_fault) {
            0 => failure(),
            1 => {
                let dice = self.dice.clone();
                tokio::spawn(async move {
                    dice.pause(3000).await;
                    drop(effect.await);
                });
                failure()
            }
            2 => effect.await.and_then(|_| failure()),
            _ => {
                let answer = effect.await;
                self.dice.pause(20).await;
                answer
            }
        }
    }
}

#[derive(Debug)]
struct Simulated(Arc<Unreliable>);

#[async_trait]
impl Layer for Simulated {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.0.memory
    }

    async fn put(&self, path: Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let store = Arc::clone(&self.0);
        let effect = async move {
            let put = store.memory.put_opts(&path, payload.clone(), options).await?;
            if path.as_ref().contains("/manifest/") {
                let file: Vec<u8> = payload.iter().flatten().copied().collect();
                store
                    .created
                    .lock()
                    .push(Snapshot::decode(path.as_ref(), &file).expect("a writer writes sound versions"));
            }
            Ok(put)
        };
        self.0.request(effect).await
    }

    async fn get(&self, path: Path, options: GetOptions) -> Result<GetResult> {
        let memory = Arc::clone(&self.0.memory);
        self.0.request(async move { memory.get_opts(&path, options).await }).await
    }

    async fn delete(&self, path: Path) -> Result<()> {
        let memory = Arc::clone(&self.0.memory);
        self.0.request(async move { delete_from(&memory, path).await }).await
    }

    async fn list(&self, folder: Option<Path>, offset: Option<Path>) -> Result<Vec<ObjectMeta>> {
        let memory = Arc::clone(&self.0.memory);
        self.0.request(async move { list_from(&memory, folder, offset).await }).await
    }
}

/// What the actors of a run share.
#[derive(Clone)]
struct World {
    unreliable: Arc<Unreliable>,
    store: Arc<dyn ObjectStore>,
    dice: Dice,
    sabotage: Sabotage,
    started: Instant,
    epochs: Arc<AtomicU64>,
    acknowledged: Arc<Mutex<Vec<Arc<Snapshot>>>>,
    violations: Arc<Mutex<Vec<String>>>,
    tally: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl World {
    fn new(seed: u64, sabotage: Sabotage) -> Self {
        let dice = Dice(Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(seed))));
        let unreliable = Arc::new(Unreliable {
            memory: Arc::new(InMemory::new()),
            dice: dice.clone(),
            requests_per_fault: [12, 40, 200][(seed % 3) as usize],
            healthy: AtomicU64::new(0),
            created: Mutex::default(),
        });
        Self {
            store: store_of(Simulated(Arc::clone(&unreliable))),
            unreliable,
            dice,
            sabotage,
            started: Instant::now(),
            epochs: Arc::default(),
            acknowledged: Arc::default(),
            violations: Arc::default(),
            tally: Arc::default(),
        }
    }

    /// The time by a clock that is off by a constant.
    fn now(&self, skew_ms: u64) -> UnixMillis {
        UnixMillis(1_000_000 + skew_ms).after(self.started.elapsed())
    }

    fn prefix() -> Path {
        Path::from("sim/shard")
    }

    fn count(&self, event: &'static str) {
        *self.tally.lock().entry(event).or_default() += 1;
    }

    fn violation(&self, text: String) {
        self.violations.lock().push(text);
    }

    fn running(&self) -> bool {
        self.started.elapsed() < SIMULATED
    }

    fn owner_store(&self, writer: WriterId) -> Arc<dyn ObjectStore> {
        let inner = Arc::clone(&self.store);
        match self.sabotage {
            Sabotage::Nothing => inner,
            Sabotage::NoEpochCheck => store_of(EpochBlind { inner, writer }),
            Sabotage::CollectorIgnoresPins => store_of(ListBlind { inner, hidden: Hidden::Pins }),
            Sabotage::WriterDoesNotLookAbove => store_of(ListBlind { inner, hidden: Hidden::VersionsAbove }),
        }
    }

    async fn open(&self, epoch: OwnerEpoch, skew_ms: u64) -> Result<Manifest, ManifestError> {
        let writer = self.dice.writer();
        let options = Options { retry: RETRY, retention: RETENTION };
        Manifest::open_as(writer, self.owner_store(writer), &Self::prefix(), epoch, options, self.now(skew_ms)).await
    }
}

/// An owner that is granted the manifest from time to time and works until it is fenced.
async fn own(world: World) {
    let skew_ms = world.dice.below(SKEW_MAX_MS);
    while world.running() {
        world.dice.pause(1500).await;
        let epoch = OwnerEpoch(world.epochs.fetch_add(1, Ordering::Relaxed) + 1);
        world.dice.pause(300).await;
        match world.open(epoch, skew_ms).await {
            Ok(manifest) => {
                world.count("opened");
                serve(&world, &manifest, skew_ms).await;
            }
            Err(ManifestError::Fenced { .. }) => world.count("refused to open"),
            Err(_) => world.count("failed to open"),
        }
    }
}

async fn serve(world: &World, manifest: &Manifest, skew_ms: u64) {
    // Now and then the whole owner stands still, as a suspended machine does.
    let stalled_until = Mutex::new(Instant::now());
    let wait = async |limit_ms| {
        world.dice.pause(limit_ms).await;
        let until = *stalled_until.lock();
        sleep_until(until).await;
    };
    let work = async {
        while world.running() {
            if world.dice.one_in(12) {
                *stalled_until.lock() = Instant::now() + Duration::from_millis(world.dice.below(5000));
            }
            wait(60).await;
            match work_once(world, manifest, skew_ms).await {
                Ok(committed) => {
                    world.count("committed");
                    world.acknowledged.lock().push(committed);
                }
                Err(ManifestError::Fenced { .. }) => return world.count("fenced"),
                Err(ManifestError::InDoubt { .. }) => world.count("in doubt"),
                Err(ManifestError::Storage { .. } | ManifestError::Contended { .. }) => world.count("storage failed"),
                Err(error) => return world.violation(format!("owner: {error}")),
            }
        }
    };
    let collect = async {
        while world.running() {
            wait(400).await;
            match manifest.collect_garbage(world.now(skew_ms)).await {
                Ok(_) => world.count("collected"),
                Err(ManifestError::Fenced { .. }) => return,
                Err(_) => world.count("collection failed"),
            }
        }
    };
    futures::future::select(std::pin::pin!(work), std::pin::pin!(collect)).await;
}

async fn work_once(world: &World, manifest: &Manifest, skew_ms: u64) -> Result<Arc<Snapshot>, ManifestError> {
    let name = format!("entry-{}", world.dice.below(4));
    let content = format!("{name} of {} at {:?}", manifest.epoch(), world.started.elapsed());
    let object = manifest.put_object(content.into()).await?;
    if world.dice.one_in(8) {
        manifest.abandon(&object);
        return manifest.commit(world.now(skew_ms), |draft| drop(draft.remove(&name))).await;
    }
    world.dice.pause(200).await;
    manifest.commit(world.now(skew_ms), |draft| drop(draft.insert(name.clone(), object.clone()))).await
}

/// A reader that pins what is current and reads it again and again.
async fn read(world: World) {
    let skew_ms = world.dice.below(SKEW_MAX_MS);
    let reader = Reader::new(Arc::clone(&world.store), &World::prefix(), RETRY, world.dice.writer());
    while world.running() {
        world.dice.pause(200).await;
        if let Ok(pin) = reader.pin(world.now(skew_ms), Duration::from_millis(500 + world.dice.below(1500))).await {
            world.count("pinned");
            read_pinned(&world, &pin, skew_ms).await;
            if world.dice.one_in(2) {
                drop(pin.release().await);
            }
        }
    }
}

async fn read_pinned(world: &World, pin: &Pin, skew_ms: u64) {
    loop {
        for object in pin.snapshot().entries.values() {
            match pin.read(object, world.now(skew_ms)).await {
                Ok(_) => world.count("read"),
                Err(ManifestError::PinExpired { .. }) => return,
                Err(ManifestError::Storage { .. }) => {}
                Err(error) => {
                    return world.violation(format!("reader of version {}: {error}", pin.snapshot().version));
                }
            }
        }
        if world.dice.one_in(6) {
            return;
        }
        if world.dice.one_in(4) && pin.renew(world.now(skew_ms), Duration::from_millis(1000)).await.is_ok() {
            world.count("renewed");
        }
        world.dice.pause(200).await;
    }
}

/// Runs one interleaving; returns what went wrong, and what happened.
async fn simulate(seed: u64, sabotage: Sabotage) -> (Vec<String>, BTreeMap<&'static str, u64>) {
    let world = World::new(seed, sabotage);
    let actors = [
        tokio::spawn(own(world.clone())),
        tokio::spawn(own(world.clone())),
        tokio::spawn(read(world.clone())),
        tokio::spawn(read(world.clone())),
    ];
    for actor in actors {
        actor.await.expect("an actor ends without panic");
    }
    // What was delayed arrives; then storage is well again.
    sleep(Duration::from_secs(5)).await;
    world.unreliable.healthy.store(1, Ordering::Relaxed);
    check_history(&world);
    if sabotage == Sabotage::Nothing {
        check_end(&world).await;
    }
    let found = world.violations.lock().clone();
    let tally = world.tally.lock().clone();
    (found, tally)
}

/// One winner per version; epochs never fall; what was acknowledged is part of the history.
fn check_history(world: &World) {
    let mut winners: BTreeMap<Version, &Arc<Snapshot>> = BTreeMap::new();
    let acknowledged = world.acknowledged.lock();
    for commit in acknowledged.iter() {
        if let Some(other) = winners.insert(commit.version, commit) {
            world.violation(format!(
                "two winners of version {}: {:?} and {:?}",
                commit.version, other.commit, commit.commit
            ));
        }
    }
    let created = world.unreliable.created.lock();
    for (first, second) in winners.values().zip(winners.values().skip(1)) {
        if first.epoch > second.epoch {
            world.violation(format!(
                "the older epoch {} committed version {} after epoch {}",
                second.epoch, second.version, first.epoch
            ));
        }
    }
    let by_commit: BTreeMap<CommitId, &Snapshot> = created.iter().map(|snapshot| (snapshot.commit, snapshot)).collect();
    let mut history: BTreeMap<Version, CommitId> = BTreeMap::new();
    let mut next = created.iter().max_by_key(|snapshot| snapshot.version);
    while let Some(snapshot) = next {
        history.insert(snapshot.version, snapshot.commit);
        let parent = snapshot.parent.and_then(|parent| by_commit.get(&parent).copied());
        next = parent.filter(|parent| parent.version < snapshot.version);
    }
    for commit in winners.values() {
        if history.get(&commit.version) != Some(&commit.commit) {
            world.violation(format!(
                "version {} was acknowledged to {:?} and is not in the history",
                commit.version, commit.commit
            ));
        }
    }
}

/// Everything current can be read, and one collection leaves nothing else.
async fn check_end(world: &World) {
    let epoch = OwnerEpoch(world.epochs.load(Ordering::Relaxed) + 1);
    let manifest = world.open(epoch, 0).await.expect("a healthy store opens for the highest epoch");
    let current = manifest.current();
    for object in current.entries.values() {
        if let Err(error) = manifest.read(object).await {
            world.violation(format!("at the end: {error}"));
        }
    }
    let much_later = world.now(0).after(Duration::from_secs(3600));
    manifest.collect_garbage(much_later).await.expect("a healthy store collects");
    let left: Vec<_> =
        world.unreliable.memory.list(None).map_ok(|meta| meta.location).try_collect().await.expect("memory lists");
    if left.len() != 1 + current.entries.len() {
        world.violation(format!("garbage at the end: {left:?}"));
    }
}

fn run(seed: u64, sabotage: Sabotage) -> (Vec<String>, BTreeMap<&'static str, u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    runtime.block_on(simulate(seed, sabotage))
}

/// `SAVANNA_SEEDS=1000` runs more, `SAVANNA_SEED=7` runs one.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("SAVANNA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SAVANNA_SEEDS").unwrap_or(60),
    }
}

#[test]
fn no_interleaving_breaks_a_guarantee() {
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds() {
        let (violations, tally) = run(seed, Sabotage::Nothing);
        assert!(violations.is_empty(), "SAVANNA_SEED={seed}: {violations:#?}\n{tally:?}");
        for (event, count) in tally {
            *total.entry(event).or_default() += count;
        }
    }
    println!("{total:?}");
    if seeds().count() > 1 {
        for event in ["committed", "fenced", "in doubt", "collected", "pinned", "renewed", "read"] {
            assert!(
                total.contains_key(event),
                "never happened: {event}; the simulation proves nothing about it: {total:?}"
            );
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(3, Sabotage::Nothing), run(3, Sabotage::Nothing));
}

/// The checker has to find the sabotage, and by the right sign.
fn expect_detection(sabotage: Sabotage, sign: &str) {
    let detected = (0..100).any(|seed| run(seed, sabotage).0.iter().any(|violation| violation.contains(sign)));
    assert!(detected, "100 interleavings with {sabotage:?} and no violation with `{sign}`: the checker does not check");
}

#[test]
fn the_checker_notices_an_owner_that_does_not_check_epochs() {
    expect_detection(Sabotage::NoEpochCheck, "older epoch");
}

#[test]
fn the_checker_notices_a_collector_that_ignores_pins() {
    expect_detection(Sabotage::CollectorIgnoresPins, "reader of version");
}

#[test]
fn the_checker_notices_a_writer_that_does_not_look_above() {
    expect_detection(Sabotage::WriterDoesNotLookAbove, "is not in the history");
}
