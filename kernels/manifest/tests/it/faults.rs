//! One fault at a time, at every request in turn: what was acknowledged stays, and garbage goes in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload, PutResult, Result,
};
use savanna_manifest::{
    Manifest, ManifestError, Options, OwnerEpoch, Reader, RetryPolicy, Snapshot, UnixMillis, WriterId,
};

use crate::layer::{Layer, delete_from, list_from, store_of};

const HOUR_MS: u64 = 3_600_000;

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The request does nothing and fails.
    Refuse,
    /// The request takes effect and its answer is lost.
    LoseAnswer,
    /// This request and all later ones fail.
    RefuseFromHere,
}

/// Fails the N-th request.
#[derive(Debug)]
struct Failing {
    inner: Arc<dyn ObjectStore>,
    fault: Fault,
    at: u64,
    requests: Arc<AtomicU64>,
}

impl Failing {
    async fn request<T>(&self, effect: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let failure =
            || Error::Generic { store: "Failing", source: format!("request {number} {:?}", self.fault).into() };
        match self.fault {
            Fault::Refuse if number == self.at => Err(failure()),
            Fault::RefuseFromHere if number >= self.at => Err(failure()),
            Fault::LoseAnswer if number == self.at => effect.await.and_then(|_| Err(failure())),
            _ => effect.await,
        }
    }
}

#[async_trait]
impl Layer for Failing {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }
    async fn put(&self, path: Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.request(self.inner.put_opts(&path, payload, options)).await
    }
    async fn get(&self, path: Path, options: GetOptions) -> Result<GetResult> {
        self.request(self.inner.get_opts(&path, options)).await
    }
    async fn delete(&self, path: Path) -> Result<()> {
        self.request(delete_from(&self.inner, path)).await
    }
    async fn list(&self, folder: Option<Path>, offset: Option<Path>) -> Result<Vec<ObjectMeta>> {
        self.request(list_from(&self.inner, folder, offset)).await
    }
}

/// What the caller was told about each entry.
#[derive(Debug, Default)]
struct Told {
    /// Entries of which a commit was acknowledged.
    acknowledged: BTreeSet<String>,
    /// What an entry may hold: the content acknowledged last, and those that came into doubt after it.
    possible: BTreeMap<String, Vec<String>>,
}

impl Told {
    fn note(&mut self, name: &str, content: String, outcome: &Result<(), ManifestError>) {
        let possible = self.possible.entry(name.to_owned()).or_default();
        match outcome {
            Ok(()) => {
                *possible = vec![content];
                self.acknowledged.insert(name.to_owned());
            }
            Err(ManifestError::InDoubt { .. }) => possible.push(content),
            Err(_) => {}
        }
    }
}

fn options(attempts_max: u32) -> Options {
    let retry = RetryPolicy { attempts_max, backoff_first: Duration::from_millis(1), ..RetryPolicy::default() };
    Options { retry, ..Options::default() }
}

fn at_hour(hour: u64) -> UnixMillis {
    UnixMillis(hour * HOUR_MS)
}

/// Two owners one after the other, commits, a pin, a collection. Ends at the first error if `strict`.
async fn scenario(
    store: &Arc<dyn ObjectStore>,
    attempts_max: u32,
    told: &mut Told,
    strict: bool,
) -> Result<(), ManifestError> {
    let prefix = Path::from("faults");
    let reader = Reader::new(Arc::clone(store), &prefix, options(attempts_max).retry, WriterId::random());
    for epoch in 1..=2 {
        let opened =
            Manifest::open(Arc::clone(store), &prefix, OwnerEpoch(epoch), options(attempts_max), at_hour(epoch)).await;
        let owner = match opened {
            Err(error) if strict => return Err(error),
            Err(_) => continue,
            Ok(owner) => owner,
        };
        for round in 0..3 {
            let (name, content) = (format!("entry-{}", round % 2), format!("{epoch}.{round}"));
            let outcome = match owner.put_object(content.clone().into()).await {
                Ok(object) => owner
                    .commit(at_hour(epoch), |draft| drop(draft.insert(name.clone(), object.clone())))
                    .await
                    .map(drop),
                Err(error) => Err(error),
            };
            told.note(&name, content, &outcome);
            if strict {
                outcome?;
            }
            let pinned = async { reader.pin(at_hour(epoch), Duration::from_secs(60)).await?.release().await }.await;
            let collected = owner.collect_garbage(at_hour(epoch + 1)).await.map(drop);
            if strict {
                pinned.and(collected)?;
            }
        }
    }
    Ok(())
}

/// Whatever a collection has come to, no version that is there names an object that is not.
async fn check_versions(store: &Arc<dyn ObjectStore>, prefix: &Path, context: &str) {
    let versions: Vec<_> = store.list(Some(&prefix.clone().join("manifest"))).try_collect().await.unwrap();
    for ObjectMeta { location, .. } in versions {
        let file = store.get(&location).await.unwrap().bytes().await.unwrap();
        for (name, object) in Snapshot::decode(location.as_ref(), &file).unwrap().entries {
            let path = Path::from(format!("{prefix}/{}", object.path));
            assert!(store.head(&path).await.is_ok(), "{context}: `{name}` of {location} is gone");
        }
    }
}

/// A healthy owner takes over: acknowledged contents are there, and one collection leaves nothing unreferenced.
async fn check(store: Arc<dyn ObjectStore>, told: &Told, context: &str) {
    let prefix = Path::from("faults");
    check_versions(&store, &prefix, context).await;
    let owner = Manifest::open(Arc::clone(&store), &prefix, OwnerEpoch(9), options(1), at_hour(9)).await.unwrap();
    let current = owner.current();
    for (name, possible) in &told.possible {
        match current.entries.get(name) {
            None => assert!(!told.acknowledged.contains(name), "{context}: `{name}` was acknowledged and is missing"),
            Some(object) => {
                let found = String::from_utf8(owner.read(object).await.unwrap().to_vec()).unwrap();
                assert!(possible.contains(&found), "{context}: `{name}` holds `{found}`, expected one of {possible:?}");
            }
        }
    }
    owner.collect_garbage(at_hour(99)).await.unwrap();
    let left: Vec<_> = store.list(Some(&prefix)).try_collect().await.unwrap();
    assert_eq!(left.len(), 1 + current.entries.len(), "{context}: {left:?}");
}

async fn fail_each_request(fault: Fault, attempts_max: u32, strict: bool) {
    for at in 1.. {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let requests = Arc::new(AtomicU64::new(0));
        let failing = store_of(Failing { inner: Arc::clone(&memory), fault, at, requests: Arc::clone(&requests) });
        let mut told = Told::default();
        let context = format!("{fault:?} at request {at}");
        let outcome = scenario(&failing, attempts_max, &mut told, strict).await;
        assert!(outcome.is_ok(), "{context}: {outcome:?}");
        check(memory, &told, &context).await;
        if requests.load(Ordering::Relaxed) < at {
            assert!(at > 50, "the scenario made only {at} requests");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_once_is_repeated_and_nobody_notices() {
    fail_each_request(Fault::Refuse, 2, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_recognised_as_our_own_success_and_nobody_notices() {
    fail_each_request(Fault::LoseAnswer, 2, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_surfaces_loses_nothing_acknowledged() {
    fail_each_request(Fault::Refuse, 1, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_that_surfaces_loses_nothing_acknowledged() {
    fail_each_request(Fault::LoseAnswer, 1, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_good_loses_nothing_acknowledged() {
    fail_each_request(Fault::RefuseFromHere, 1, false).await;
}
