//! A folder of an object store, from a thread that may wait.

mod denied;
mod folder;

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, UpdateVersion};
use savanna_manifest::s3;
use savanna_streams_api::{Result, StreamError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::denied::{denied, without_credentials};
use self::folder::Folder;
use crate::roots::local;

/// After so long a failed request is made again, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// A request may take so long; what is large takes long.
const REQUEST_TIME: &str = "300s";

/// So long a machine may take to tell the credentials of its role, when they are asked for first.
const CREDENTIALS_TIME: Duration = Duration::from_secs(10);

/// So many objects are read or removed at the same time.
const AT_ONCE: usize = 16;

/// So many names are listed by one request.
const LISTED_AT_ONCE: usize = 5_000;

/// An object that is longer is no claim.
const CLAIM_MAX: u64 = 1 << 10;

/// A name that nobody else has.
///
/// # Errors
/// The operating system gives no random bytes.
pub fn unique() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| StreamError::io("ask for random bytes", &e))?;
    Ok(format!("{:032x}", u128::from_le_bytes(random)))
}

/// The folder. What a request came to is known: one whose answer is lost is made again, and what it finds then is told.
#[derive(Debug)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    /// How messages name it.
    place: String,
    /// There until the end.
    runtime: Option<Runtime>,
    /// A request is made again for so long.
    patience: Duration,
    signing: Signing,
    given_up: watch::Sender<bool>,
}

/// As whom requests are signed.
#[derive(Debug)]
enum Signing {
    /// As nobody, or nobody knows as whom.
    Unknown,
    /// As the owner of this access key.
    Key(String),
    /// By the role of this machine. Known when it was told once.
    Role(AwsCredentialProvider, OnceCell<()>),
}

impl Signing {
    fn key(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key),
            Self::Unknown | Self::Role(..) => None,
        }
    }

    /// Whether there is anybody to sign as, when that is asked first. A store is asked as often as it takes; a machine that has no role would
    /// be, too, although that does not pass by itself.
    async fn check(&self) -> Result<(), String> {
        let Self::Role(role, known) = self else { return Ok(()) };
        let ask = known.get_or_try_init(async || match timeout(CREDENTIALS_TIME, role.get_credential()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(words(&error)),
            Err(_) => Err("its service for credentials has not answered".to_owned()),
        });
        ask.await.map(|()| ())
    }
}

/// Whether an object was written.
#[derive(Debug, PartialEq, Eq)]
pub enum Created {
    /// By this request.
    Now,
    /// There is another one, or this one by an attempt whose answer was lost.
    Before,
}

/// What an object was when it was looked at.
#[derive(Debug)]
pub struct Tag(UpdateVersion);

impl Bucket {
    /// The folder that a URL names. A bucket is not asked for anything yet; a folder of a file system is made.
    ///
    /// # Errors
    /// The URL names none, or what the environment says of the store is not valid.
    pub fn of_url(url: &str, patience: Duration) -> Result<Self> {
        if let Some(folder) = local(url) {
            let store = Folder::open(folder);
            let store = store.map_err(|e| StreamError::io(format!("use {url}"), &words(&e)))?;
            return Self::new(Arc::new(store), Path::default(), url, patience);
        }
        let Some((bucket, folder)) = s3::Bucket::of_url(url) else {
            return Err(StreamError::invalid(format!("expected s3://BUCKET/FOLDER or file:///FOLDER, got '{url}'")));
        };
        let timeout = AmazonS3ConfigKey::Client(object_store::ClientConfigKey::Timeout);
        let builder = bucket.builder().with_config(timeout, REQUEST_TIME);
        let key = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId);
        let signs = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature).is_none_or(|skips| skips == "false");
        let store = builder.build();
        let store = store.map_err(|e| StreamError::invalid(format!("{url} cannot be used: {}", words(&e))))?;
        let signing = match key {
            Some(key) => Signing::Key(key),
            None if signs => Signing::Role(Arc::clone(store.credentials()), OnceCell::new()),
            None => Signing::Unknown,
        };
        let mut bucket = Self::new(Arc::new(store), folder, url, patience)?;
        bucket.signing = signing;
        Ok(bucket)
    }

    /// # Errors
    /// The operating system refuses what waiting needs.
    pub fn new(store: Arc<dyn ObjectStore>, folder: Path, place: &str, patience: Duration) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| StreamError::io("make a client of an object store", &e))?;
        let place = place.trim_end_matches('/').to_owned();
        let (signing, given_up) = (Signing::Unknown, watch::Sender::new(false));
        Ok(Self { store, folder, place, runtime: Some(runtime), patience, signing, given_up })
    }

    /// How messages name an object.
    pub fn describe(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }

    /// Ends waiting, now and later.
    pub fn give_up(&self) -> impl Fn() + Send + Sync + use<> {
        let given_up = self.given_up.clone();
        move || {
            given_up.send_replace(true);
        }
    }

    /// Creates an object, durably, if there is none of its name.
    ///
    /// # Errors
    /// The store refuses it, or does not take it for too long.
    pub fn create(&self, name: &str, bytes: &Bytes) -> Result<Created> {
        self.put(name, bytes, &PutMode::Create)
    }

    /// Creates an object that is this caller's alone. Tells whether there was none.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn claim(&self, name: &str) -> Result<bool> {
        let owner = Bytes::from(unique()?);
        if self.create(name, &owner)? == Created::Now {
            return Ok(true);
        }
        // Perhaps the answer of an attempt was lost.
        Ok(self.read(name, CLAIM_MAX)? == owner)
    }

    /// Writes over an object that is still the one of this tag.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn replace(&self, name: &str, bytes: &Bytes, tag: &Tag) -> Result<Created> {
        self.put(name, bytes, &PutMode::Update(tag.0.clone()))
    }

    fn put(&self, name: &str, bytes: &Bytes, mode: &PutMode) -> Result<Created> {
        let path = self.path(name)?;
        let is_new = matches!(mode, PutMode::Create);
        self.persist("write", name, async || {
            let refused = match self.store.put_opts(&path, bytes.clone().into(), mode.clone().into()).await {
                Ok(_) => return Ok(Created::Now),
                Err(refused @ (Error::AlreadyExists { .. } | Error::Precondition { .. })) => refused,
                Err(error) => return Err(error),
            };
            match self.store.head(&path).await {
                // It is refused beside a request that is under way, too, which may come to nothing.
                Err(Error::NotFound { .. }) if is_new => Err(refused),
                Ok(_) | Err(Error::NotFound { .. }) => Ok(Created::Before),
                Err(error) => Err(error),
            }
        })
    }

    /// What an object is at present; none if it is not there.
    ///
    /// # Errors
    /// The store does not tell.
    pub fn tag(&self, name: &str) -> Result<Option<Tag>> {
        let path = self.path(name)?;
        self.persist("look at", name, async || match self.store.head(&path).await {
            Ok(found) => Ok(Some(Tag(UpdateVersion { e_tag: found.e_tag, version: found.version }))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// An object, if it has at most so many bytes.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is longer.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Bytes> {
        let path = self.path(name)?;
        let read = self.persist("read", name, async || self.read_one(&path, bytes_max).await)?;
        read.map_err(|size| StreamError::Data {
            place: self.describe(name),
            message: format!("expected at most {bytes_max} bytes, got {size}"),
        })
    }

    /// An object, or its length if it is longer.
    async fn read_one(&self, path: &Path, bytes_max: u64) -> object_store::Result<Result<Bytes, u64>> {
        let found = self.store.get(path).await?;
        let size = found.meta.size;
        if size > bytes_max { Ok(Err(size)) } else { found.bytes().await.map(Ok) }
    }

    /// Some objects, in their order, as [`Self::read`] reads one.
    ///
    /// # Errors
    /// As [`Self::read`], of any of them.
    pub fn read_all(&self, names: &[String], bytes_max: u64) -> Result<Vec<Bytes>> {
        let paths = names.iter().map(|name| self.path(name)).collect::<Result<Vec<_>>>()?;
        let first = names.first().map_or("", String::as_str);
        let mut read = vec![None; paths.len()];
        self.persist("read what begins with", first, async || {
            // What has come is not asked for again.
            let left: Vec<usize> = (0..paths.len()).filter(|place| read[*place].is_none()).collect();
            let asked = left.into_iter().map(|place| {
                let path = &paths[place];
                async move { (place, self.read_one(path, bytes_max).await) }
            });
            let mut comes = stream::iter(asked).buffer_unordered(AT_ONCE);
            let mut failed = Ok(());
            while let Some((place, came)) = comes.next().await {
                match came {
                    Ok(came) => read[place] = Some(came.map_err(|size| (&paths[place], size))),
                    Err(error) => failed = failed.and(Err(error)),
                }
            }
            failed
        })?;
        read.into_iter().flatten().collect::<Result<_, _>>().map_err(|(path, size)| StreamError::Data {
            place: format!("{} ({path})", self.describe("")),
            message: format!("expected at most {bytes_max} bytes, got {size}"),
        })
    }

    /// The names of all objects in a folder within it, or the whole of it, that come behind a name.
    ///
    /// # Errors
    /// The store does not tell.
    pub fn list_behind(&self, within: &str, name: &str) -> Result<Vec<String>> {
        let (path, mut offset) = (self.path(within)?, self.path(name)?);
        let mut names = Vec::new();
        loop {
            // A store has its time for each portion of them.
            let listed: Vec<Path> = self.persist("list what is behind", name, async || {
                let listed = self.store.list_with_offset(Some(&path), &offset).take(LISTED_AT_ONCE);
                listed.map_ok(|object| object.location).try_collect().await
            })?;
            names.extend(listed.iter().filter_map(|path| self.name_of(path)));
            match listed.into_iter().max() {
                Some(last) if names.len().is_multiple_of(LISTED_AT_ONCE) => offset = last,
                _ => return Ok(names),
            }
        }
    }

    /// The names of the first objects in a folder within it, or the whole of it, that come behind a name: so many at most.
    ///
    /// # Errors
    /// The store does not tell.
    pub fn some_behind(&self, within: &str, name: &str, most: usize) -> Result<Vec<String>> {
        let (path, offset) = (self.path(within)?, self.path(name)?);
        let listed: Vec<Path> = self.persist("list what is behind", name, async || {
            let listed = self.store.list_with_offset(Some(&path), &offset).take(most);
            listed.map_ok(|object| object.location).try_collect().await
        })?;
        Ok(listed.iter().filter_map(|path| self.name_of(path)).collect())
    }

    /// How an object is named within the folder; none if it is not there.
    fn name_of(&self, path: &Path) -> Option<String> {
        let parts: Vec<_> = path.prefix_match(&self.folder)?.collect();
        Some(parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("/"))
    }

    /// Removes objects.
    ///
    /// # Errors
    /// The store refuses it.
    pub fn remove(&self, names: &[String]) -> Result<()> {
        let paths = names.iter().map(|name| self.path(name)).collect::<Result<Vec<_>>>()?;
        let first = names.first().map_or("", String::as_str);
        self.persist("remove", first, async || {
            let remove = paths.iter().map(|path| async move {
                match self.store.delete(path).await {
                    Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            });
            stream::iter(remove).buffer_unordered(AT_ONCE).try_collect().await
        })
    }

    fn path(&self, name: &str) -> Result<Path> {
        let parts = [self.folder.as_ref(), name].into_iter().filter(|part| !part.is_empty());
        let whole = parts.collect::<Vec<_>>().join("/");
        Path::parse(whole)
            .map_err(|e| StreamError::invalid(format!("{} is no name of an object: {e}", self.describe(name))))
    }

    /// Makes a request until it is answered.
    fn persist<T>(
        &self,
        what: &str,
        name: &str,
        mut request: impl AsyncFnMut() -> object_store::Result<T>,
    ) -> Result<T> {
        let failed =
            |cause: &dyn Display| StreamError::io(format!("{what} {}", self.describe(name)), &cause.to_string());
        self.wait(async {
            let signs = self.signing.check().await;
            signs.map_err(|cause| without_credentials(what, &self.describe(name), &cause))?;
            let deadline = Instant::now() + self.patience;
            let mut back_off = BACK_OFF.min(self.patience / 50);
            loop {
                let error = match timeout_at(deadline, request()).await {
                    Ok(Ok(done)) => return Ok(done),
                    Ok(Err(error)) => {
                        let words = words(&error);
                        if let Some(denied) = denied(what, &self.describe(name), self.signing.key(), &words) {
                            return Err(denied);
                        }
                        if !passes(&error) {
                            return Err(failed(&words));
                        }
                        words
                    }
                    Err(_) => "it has not answered".to_owned(),
                };
                if Instant::now() + back_off >= deadline {
                    let patience = self.patience;
                    return Err(failed(&format!("{error}; it was tried for {patience:?} ('retry.timeout')")));
                }
                tracing::warn!(
                    object = self.describe(name),
                    error,
                    "an object store does not do what it should; it is tried again"
                );
                sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF_MAX);
            }
        })
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(runtime) = &self.runtime else { return Err(StreamError::Cancelled) };
        let mut given_up = self.given_up.subscribe();
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = given_up.wait_for(|given_up| *given_up) => Err(StreamError::Cancelled),
                done = work => done,
            }
        })
    }
}

impl Drop for Bucket {
    /// What looks up a name is not waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whether an error may pass by itself.
fn passes(error: &Error) -> bool {
    !matches!(
        error,
        Error::NotFound { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::InvalidPath { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !words.contains(&told) {
            words += &format!(": {told}");
        }
        cause = error.source();
    }
    words
}
