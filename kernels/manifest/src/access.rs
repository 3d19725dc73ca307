//! Requests to storage: bounded in time and number, with the answers that the protocol distinguishes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::error::{ManifestError, Result};
use crate::format::{ObjectRef, Snapshot, Version};
use crate::layout::{Layout, parse_version};
use crate::switch::{Answer, Outcome, Request, Step, Switch};

/// How often and how long storage is asked before an operation fails.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Requests per operation, the first included; at least one is made.
    pub attempts_max: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub backoff_first: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// How long one request may take.
    pub request_timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            backoff_first: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            request_timeout: Duration::from_secs(30),
        }
    }
}

/// How often the newest version is looked for again when it was collected between listing and reading it.
const NEWEST_ATTEMPTS_MAX: u32 = 8;
/// How often an object that is said to exist and is not found is written again.
const CREATES_MAX: u32 = 4;
/// Requests of one operation that are under way at a time.
const PARALLEL_READS: usize = 16;
const OBJECT_ADVICE: &str =
    "Restore the object from a backup of the bucket or directory, or drop the entry that refers to it.";

/// A switch that ended without an outcome.
#[derive(Debug)]
pub(crate) struct Undecided {
    /// Whether the version may have been written, or may still be.
    pub(crate) possibly_written: bool,
    pub(crate) error: ManifestError,
}

struct CreateFailure {
    possibly_written: bool,
    error: StoreError,
}

/// The store as the protocol sees it.
#[derive(Debug)]
pub(crate) struct Access {
    store: Arc<dyn ObjectStore>,
    layout: Layout,
    retry: RetryPolicy,
}

impl Access {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: &Path, retry: RetryPolicy) -> Self {
        Self { store, layout: Layout::new(prefix), retry }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The version with the highest number.
    pub(crate) async fn newest(&self) -> Result<Option<Arc<Snapshot>>> {
        for _ in 0..NEWEST_ATTEMPTS_MAX {
            let Some(version) = self.list_versions(None).await?.into_iter().max() else {
                return Ok(None);
            };
            if let Some(snapshot) = self.read_version(version).await? {
                return Ok(Some(snapshot));
            }
        }
        Err(ManifestError::Contended { operation: "reading the newest version", attempts: NEWEST_ATTEMPTS_MAX })
    }

    /// The version of this number; `None` if it is not there.
    pub(crate) async fn read_version(&self, version: Version) -> Result<Option<Arc<Snapshot>>> {
        let path = self.layout.version(version);
        let Some(file) = self.get(&path).await? else {
            return Ok(None);
        };
        let snapshot = Snapshot::decode(path.as_ref(), &file)?;
        if snapshot.version != version {
            return Err(ManifestError::Corrupt {
                path: path.to_string(),
                expected: format!("version {version}"),
                found: format!("version {}", snapshot.version),
                advice: "Somebody copied or renamed manifest files: restore the folder from a backup.",
            });
        }
        Ok(Some(Arc::new(snapshot)))
    }

    /// All versions that are there, except those in `known`, which are taken from it.
    pub(crate) async fn read_versions(
        &self,
        known: &BTreeMap<Version, Arc<Snapshot>>,
    ) -> Result<BTreeMap<Version, Arc<Snapshot>>> {
        let listed = self.list_versions(None).await?;
        let reads = listed.into_iter().map(|version| async move {
            match known.get(&version) {
                Some(snapshot) => Ok(Some(Arc::clone(snapshot))),
                None => self.read_version(version).await,
            }
        });
        let read: Vec<_> = futures::stream::iter(reads).buffered(PARALLEL_READS).try_collect().await?;
        Ok(read.into_iter().flatten().map(|snapshot| (snapshot.version, snapshot)).collect())
    }

    /// The numbers of the versions, those above `above` if given.
    pub(crate) async fn list_versions(&self, above: Option<Version>) -> Result<Vec<Version>> {
        let offset = above.map(|version| self.layout.version(version));
        let names = self.list(&self.layout.versions(), offset.as_ref()).await?;
        Ok(names.iter().filter_map(|name| parse_version(name)).collect())
    }

    /// The file names in a folder.
    pub(crate) async fn list(&self, folder: &Path, offset: Option<&Path>) -> Result<Vec<String>> {
        let listed: Vec<_> = self
            .retrying(|| match offset {
                Some(offset) => self.store.list_with_offset(Some(folder), offset).try_collect().boxed(),
                None => self.store.list(Some(folder)).try_collect().boxed(),
            })
            .await
            .map_err(|error| storage("list", folder, error))?;
        let name = |meta: object_store::ObjectMeta| meta.location.filename().map(str::to_owned);
        Ok(listed.into_iter().filter_map(name).collect())
    }

    /// Runs a switch to its outcome. `file` is the encoded proposal.
    pub(crate) async fn run(&self, mut switch: Switch, version: Version, file: &Bytes) -> Result<Outcome, Undecided> {
        let mut possibly_written = false;
        let mut request = switch.first();
        loop {
            let answer = match request {
                Request::Create => {
                    self.create(&self.layout.version(version), file).await.map_err(|failure| Undecided {
                        possibly_written: possibly_written || failure.possibly_written,
                        error: storage("create", &self.layout.version(version), failure.error),
                    })
                }
                Request::ReadOccupant => self.read_version(version).await.map(Answer::Read).map_err(undecided),
                Request::ListAbove => self.list_versions(Some(version)).await.map(Answer::Above).map_err(undecided),
                Request::ReadChild => self.read_version(version.next()).await.map(Answer::Read).map_err(undecided),
            }?;
            possibly_written = true;
            match switch.step(answer) {
                Step::Ask(next) => request = next,
                Step::Done(outcome) => return Ok(outcome),
            }
        }
    }

    /// Whether the store refuses to create a version again that is there. Writes the same bytes, so nothing is harmed
    /// if it does not.
    pub(crate) async fn refuses_to_create_again(&self, version: Version, file: &Bytes) -> Result<bool> {
        let path = self.layout.version(version);
        match self.create(&path, file).await {
            Ok(answer) => Ok(matches!(answer, Answer::Exists)),
            Err(failure) => Err(storage("create", &path, failure.error)),
        }
    }

    /// Writes an object whose name nobody else uses, so that one that exists is our own, written by a request whose
    /// answer was lost.
    pub(crate) async fn create_unique(&self, path: &Path, content: &Bytes) -> Result<()> {
        for _ in 0..CREATES_MAX {
            let answer = self.create(path, content).await.map_err(|failure| storage("create", path, failure.error))?;
            if matches!(answer, Answer::Created) {
                return Ok(());
            }
            match self.retrying(|| self.store.head(path).boxed()).await {
                Ok(meta) if meta.size == content.len() as u64 => return Ok(()),
                Ok(meta) => {
                    return Err(ManifestError::Corrupt {
                        path: path.to_string(),
                        expected: format!("{} bytes written by this handle", content.len()),
                        found: format!("{} bytes", meta.size),
                        advice: "Another program writes below this prefix: give the manifest a prefix of its own.",
                    });
                }
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(storage("look at", path, error)),
            }
        }
        Err(ManifestError::Contended { operation: "writing an object", attempts: CREATES_MAX })
    }

    /// The content of an object, checked against its reference.
    pub(crate) async fn read_object(&self, object: &ObjectRef) -> Result<Bytes> {
        let path = self.layout.resolve(&object.path);
        let Some(content) = self.get(&path).await? else {
            return Err(ManifestError::ObjectMissing { path: path.to_string() });
        };
        let found = (content.len() as u64, crc32c::crc32c(&content));
        if found != (object.bytes, object.crc32c) {
            return Err(ManifestError::Corrupt {
                path: path.to_string(),
                expected: format!("{} bytes with crc32c {:08x}", object.bytes, object.crc32c),
                found: format!("{} bytes with crc32c {:08x}", found.0, found.1),
                advice: OBJECT_ADVICE,
            });
        }
        Ok(content)
    }

    /// A part of an object's content.
    pub(crate) async fn read_range(&self, object: &ObjectRef, range: Range<u64>) -> Result<Bytes> {
        let path = self.layout.resolve(&object.path);
        match self.retrying(|| async { self.store.get_range(&path, range.clone()).await }.boxed()).await {
            Ok(content) => Ok(content),
            Err(StoreError::NotFound { .. }) => Err(ManifestError::ObjectMissing { path: path.to_string() }),
            Err(error) => Err(storage("read", &path, error)),
        }
    }

    /// Deletes what is there of these paths.
    pub(crate) async fn delete(&self, paths: Vec<Path>) -> Result<()> {
        let Some(first) = paths.first().cloned() else {
            return Ok(());
        };
        self.retrying(|| self.delete_once(paths.clone()).boxed())
            .await
            .map_err(|error| storage("delete", &first, error))
    }

    async fn delete_once(&self, paths: Vec<Path>) -> object_store::Result<()> {
        let paths = futures::stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut deleted = self.store.delete_stream(paths);
        let mut failed = None;
        while let Some(result) = deleted.next().await {
            match result {
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn get(&self, path: &Path) -> Result<Option<Bytes>> {
        let request = || async { self.store.get(path).await?.bytes().await }.boxed();
        match self.retrying(request).await {
            Ok(content) => Ok(Some(content)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(storage("read", path, error)),
        }
    }

    async fn create(&self, path: &Path, content: &Bytes) -> Result<Answer, CreateFailure> {
        let attempts = AtomicU32::new(0);
        let request = || {
            attempts.fetch_add(1, Ordering::Relaxed);
            self.store.put_opts(path, PutPayload::from(content.clone()), PutMode::Create.into())
        };
        match self.retrying(request).await {
            Ok(_) => Ok(Answer::Created),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(Answer::Exists),
            // A request is repeated only after one whose effect is unknown.
            Err(error) => Err(CreateFailure { possibly_written: attempts.into_inner() > 1 || may_pass(&error), error }),
        }
    }

    /// Repeats a request while its failure may pass.
    async fn retrying<'a, T>(
        &self,
        mut request: impl FnMut() -> BoxFuture<'a, object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let mut pause = self.retry.backoff_first;
        let mut attempt = 1;
        loop {
            let answer = tokio::time::timeout(self.retry.request_timeout, request())
                .await
                .unwrap_or_else(|_| Err(timed_out(self.retry.request_timeout)));
            match answer {
                Err(error) if may_pass(&error) && attempt < self.retry.attempts_max => {
                    tracing::debug!(%error, attempt, "storage failed, trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(self.retry.backoff_max);
                    attempt += 1;
                }
                answer => return answer,
            }
        }
    }
}

fn undecided(error: ManifestError) -> Undecided {
    Undecided { possibly_written: true, error }
}

pub(crate) fn storage(operation: &'static str, path: &Path, error: StoreError) -> ManifestError {
    ManifestError::Storage { operation, path: path.to_string(), source: Box::new(error) }
}

fn timed_out(limit: Duration) -> StoreError {
    StoreError::Generic { store: "savanna-manifest", source: format!("no answer within {limit:?}").into() }
}

/// Whether asking again may help.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. } | StoreError::JoinError { .. })
}
