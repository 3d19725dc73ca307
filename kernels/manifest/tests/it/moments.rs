//! Something happens between two requests: another owner commits, a collector runs, or time passes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetResult, ObjectMeta, ObjectStore, PutOptions, PutPayload, PutResult, Result};
use parking_lot::Mutex;
use savanna_manifest::{Manifest, ManifestError, Options, OwnerEpoch, Reader, RetryPolicy, UnixMillis, WriterId};

use crate::layer::{Layer, list_from, store_of};

const START: UnixMillis = UnixMillis(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

/// What is to happen, and when.
type Event = Mutex<Option<(Moment, BoxFuture<'static, ()>)>>;

/// Lets an event happen before or after one request.
struct Interrupted {
    inner: Arc<dyn ObjectStore>,
    event: Arc<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Before the next pin is written.
    BeforePin,
    /// After so many more listings.
    AfterListings(u32),
}

impl Interrupted {
    async fn happen(&self, now: Moment) {
        let event = self.event.lock().take_if(|(moment, _)| *moment == now);
        if let Some((_, event)) = event {
            event.await;
        }
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupted")
    }
}

#[async_trait]
impl Layer for Interrupted {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    async fn put(&self, path: Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if path.as_ref().contains("/pins/") {
            self.happen(Moment::BeforePin).await;
        }
        self.inner.put_opts(&path, payload, options).await
    }

    async fn list(&self, folder: Option<Path>, offset: Option<Path>) -> Result<Vec<ObjectMeta>> {
        let listed = list_from(&self.inner, folder, offset).await;
        if let Some((Moment::AfterListings(left), _)) = &mut *self.event.lock() {
            *left -= 1;
        }
        self.happen(Moment::AfterListings(0)).await;
        listed
    }
}

/// A store, and the same store as somebody sees it to whom things happen.
struct Place {
    store: Arc<dyn ObjectStore>,
    interrupted: Arc<dyn ObjectStore>,
    event: Arc<Event>,
}

impl Place {
    fn new() -> Self {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let event: Arc<Event> = Arc::default();
        let interrupted = store_of(Interrupted { inner: Arc::clone(&store), event: Arc::clone(&event) });
        Self { store, interrupted, event }
    }

    fn at(&self, moment: Moment, event: impl Future<Output = ()> + Send + 'static) {
        *self.event.lock() = Some((moment, event.boxed()));
    }

    fn has_happened(&self) -> bool {
        self.event.lock().is_none()
    }

    /// A reader to whom things happen.
    fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.interrupted), &prefix(), RetryPolicy::default(), WriterId::random())
    }
}

fn prefix() -> Path {
    Path::from("moments")
}

async fn open(store: &Arc<dyn ObjectStore>) -> Manifest {
    Manifest::open(Arc::clone(store), &prefix(), OwnerEpoch(1), Options::default(), START).await.unwrap()
}

async fn publish(manifest: &Manifest, name: &str, content: &str) {
    let object = manifest.put_object(content.to_owned().into()).await.unwrap();
    manifest.commit(START, |draft| drop(draft.insert(name, object.clone()))).await.unwrap();
}

#[tokio::test]
async fn what_a_later_handle_of_the_same_epoch_commits_during_a_collection_stays() {
    for listings in 1..=3 {
        let place = Place::new();
        let older = open(&place.interrupted).await;
        publish(&older, "a", "one").await;
        publish(&older, "a", "two").await;
        let later = Arc::new(Mutex::new(None));
        let (store, opened) = (Arc::clone(&place.store), Arc::clone(&later));
        place.at(Moment::AfterListings(listings), async move {
            let newer = open(&store).await;
            publish(&newer, "b", "three").await;
            *opened.lock() = Some(newer);
        });
        // It learns that it is not the owner any more, or not yet.
        drop(older.collect_garbage(START.after(DAY)).await);
        let newer = later.lock().take().expect("a collection lists objects, versions and pins");
        for (name, object) in &newer.current().entries {
            newer.read(object).await.unwrap_or_else(|error| panic!("`{name}` after listing {listings}: {error}"));
        }
    }
}

#[tokio::test]
async fn a_version_that_is_collected_before_its_pin_is_written_is_not_pinned() {
    let place = Place::new();
    let owner = Arc::new(open(&place.store).await);
    publish(&owner, "a", "one").await;
    let collector = Arc::clone(&owner);
    place.at(Moment::BeforePin, async move {
        publish(&collector, "a", "two").await;
        collector.collect_garbage(START.after(DAY)).await.unwrap();
    });
    let pin = place.reader().pin(START, 2 * DAY).await.unwrap();
    assert!(place.has_happened());
    assert_eq!(pin.snapshot().version, owner.current().version);
    assert_eq!(pin.read(&pin.snapshot().entries["a"], START).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_confirmed_after_the_pin_expired_does_not_count() {
    let place = Place::new();
    let owner = open(&place.store).await;
    publish(&owner, "a", "one").await;
    let pin = place.reader().pin(START, Duration::from_secs(10)).await.unwrap();
    place.at(Moment::BeforePin, tokio::time::sleep(Duration::from_secs(20)));
    let renewed = pin.renew(START.after(Duration::from_secs(5)), DAY).await;
    assert!(place.has_happened());
    assert!(matches!(renewed, Err(ManifestError::PinExpired { .. })), "{renewed:?}");
    assert_eq!(pin.expires(), START.after(Duration::from_secs(10)), "the former expiry stands");
}

/// What becomes of a request for a version.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It takes effect and its answer is lost.
    AnswerLost,
    /// It is done as asked.
    Done,
    /// The store shows nothing, though something is there.
    Hidden,
    /// The store refuses it for good.
    Denied,
}

/// A store that treats requests for versions as it is told, and all others well.
#[derive(Debug)]
struct Fateful {
    inner: Arc<dyn ObjectStore>,
    fates: Arc<Mutex<VecDeque<Fate>>>,
}

impl Fateful {
    async fn request<T>(&self, path: &Path, effect: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let is_version = path.as_ref().contains("/manifest/");
        let fate = if is_version { self.fates.lock().pop_front() } else { None };
        let path = path.to_string();
        match fate.unwrap_or(Fate::Done) {
            Fate::Done => effect.await,
            Fate::AnswerLost => {
                effect.await.and_then(|_| Err(Error::Generic { store: "Fateful", source: "answer lost".into() }))
            }
            Fate::Hidden => Err(Error::NotFound { path, source: "hidden".into() }),
            Fate::Denied => Err(Error::PermissionDenied { path, source: "credentials expired".into() }),
        }
    }
}

#[async_trait]
impl Layer for Fateful {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    async fn put(&self, path: Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.request(&path, self.inner.put_opts(&path, payload, options)).await
    }

    async fn get(&self, path: Path, options: GetOptions) -> Result<GetResult> {
        self.request(&path, self.inner.get_opts(&path, options)).await
    }
}

/// What a commit is told whose requests come to this.
async fn commit_with(fates: &[Fate]) -> Result<(), ManifestError> {
    let queue = Arc::new(Mutex::default());
    let store = store_of(Fateful { inner: Arc::new(InMemory::new()), fates: Arc::clone(&queue) });
    let owner = open(&store).await;
    let object = owner.put_object("one".into()).await.unwrap();
    queue.lock().extend(fates);
    let told = owner.commit(START, |draft| drop(draft.insert("a", object.clone()))).await;
    assert!(queue.lock().is_empty(), "{fates:?}: not all were asked for: {told:?}");
    told.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_may_have_taken_effect_is_never_told_to_have_failed() {
    use Fate::{AnswerLost, Denied, Done, Hidden};
    let denied = commit_with(&[Denied]).await;
    assert!(matches!(denied, Err(ManifestError::Storage { .. })), "it has failed for certain: {denied:?}");
    // Written, and then refused when it was tried again; or found to be taken, not found, and refused.
    for fates in [&[AnswerLost, Denied][..], &[AnswerLost, Done, Hidden, Denied]] {
        let told = commit_with(fates).await;
        assert!(matches!(told, Err(ManifestError::InDoubt { .. })), "{fates:?}: {told:?}");
    }
}
