//! Where segments are: objects of a store, each tenant's under a manifest of its own. Everything in here waits for the store.
//!
//! ```text
//! PREFIX/tenants/NUMBER/manifest ..      which segments there are, newest commits first by their names:
//!                                        UPTO-AFTER-PART, twenty digits each, four of the part
//! PREFIX/tenants/NUMBER/objects ..       the segments
//! PREFIX/tenants/NUMBER/parts ..         what large transactions have written: see `parts`
//! PREFIX/stored/NUMBER                   up to which commit there are segments: see `stored`
//! PREFIX/log                             whose storage this is: see `claim`
//! PREFIX/roots/ ..                       which tenants there were, from a former release: see `roots`
//! ```
//!
//! All nodes of a cluster share a storage, and each tenant has one owner. A tenant's manifest is taken over under its owner's epoch before the
//! first segment is added to it: from then on the store refuses whoever owned the tenant under an older one.

mod archive;
mod claim;
mod compact;
mod counted;
mod home;
mod parts;
mod snapshot;
mod stored;
mod warm;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use parking_lot::Mutex;
use savanna_epoch::OwnerEpoch;
use savanna_manifest::{
    LocalStore, Manifest, ManifestError, Options, Reader, Retention, RetryPolicy, UnixMillis, WriterId,
};
use savanna_tenants_segments::{BlockCache, SegmentError, TenantId};
use savanna_tenants_values::error::{SqlError, state};
use savanna_transaction::Csn;

use self::counted::CountedStore;
pub use self::{
    archive::Archive,
    counted::{Asked, StoreFigures},
    home::Home,
    snapshot::{BlockPlace, Snapshot},
    warm::{BlockRounds, Cached, Since, WarmBlocks, Warmed},
};
use crate::{segments::damaged, shards::ShardsError};

/// Why the storage did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The manifest or the store.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A segment is none.
    #[error("could not read a segment: {0}")]
    Segment(#[from] SegmentError),
    /// The log, which the storage has to wait for.
    #[error("the log failed: {0}")]
    Log(#[from] savanna_journal::JournalError),
    /// The store itself.
    #[error("the store failed: {0}")]
    Store(#[from] object_store::Error),
    /// A manifest has what another program put there.
    #[error(
        "expected a manifest of a tenant's segments under `{prefix}`, found the entry `{entry}`; another program wrote it"
    )]
    Entry {
        /// Where.
        prefix: String,
        /// The entry.
        entry: String,
    },
    /// There is something already where a tenant was to be restored.
    #[error("expected an empty place under `{0}`, found a tenant's segments; another program wrote them")]
    Occupied(String),
    /// An archive is none.
    #[error("expected the backup of a tenant: {0}")]
    Archive(String),
    /// Whoever sends an archive has stopped.
    #[error("the backup ended too early: {0}; send it again")]
    Sender(#[source] std::io::Error),
    /// Another cluster's storage, or another storage than the cluster's.
    #[error(
        "expected the store of this cluster at `{0}`, found the store of another one, or the coordinator's records of this one were \
         deleted; name the right store, or start with an empty data directory and an empty store"
    )]
    Foreign(String),
    /// The cluster's storage is not there any more.
    #[error(
        "expected a store at `{0}`, because the tenants of this cluster are in it, found none: it was deleted or moved. Restore the data \
         directory and the store from one backup, or move both away to start empty"
    )]
    Gone(String),
    /// The coordinator, which knows whose storage it is.
    #[error(transparent)]
    Shards(#[from] ShardsError),
    /// A tenant's segments are not there any more, or older ones are.
    #[error(
        "expected a tenant's segments with its commits up to {noted} under `{place}`, found commits up to {found}: \
         the segments were deleted, or replaced by an older copy. Nothing was changed; restore the log and the \
         storage from one backup"
    )]
    Behind {
        /// Where they should be.
        place: String,
        /// The last commit that was in them.
        noted: Csn,
        /// The last commit that is in them.
        found: Csn,
    },
    /// A note of what a tenant's segments have is none.
    #[error("expected the number of a commit in `{0}`, came something else; restore the file from a backup")]
    Note(String),
    /// The directory of the log.
    #[error("could not use the directory of the log: {0}")]
    Directory(#[source] std::io::Error),
    /// The list of tenants of a former release is none.
    #[error("could not read the list of tenants of a former release: {0}; restore it from a backup")]
    Roots(String),
    /// The work on the storage ended without an answer.
    #[error("the work on the storage ended: {0}; try again")]
    Ended(String),
    /// The disk is full, or nearly.
    #[error(
        "no space is left in `{place}` for what a transaction writes: {free} MiB are free, and {left} MiB are left to others"
    )]
    Full {
        /// The directory.
        place: String,
        /// What is free.
        free: u64,
        /// What is to be left.
        left: u64,
    },
    /// A segment that was just built cannot be opened.
    #[error("a new segment of tenant {0} is not complete; please report this")]
    Incomplete(TenantId),
}

impl From<StorageError> for SqlError {
    fn from(error: StorageError) -> Self {
        match &error {
            StorageError::Segment(error) => damaged(error),
            StorageError::Full { .. } => Self::new(state::DISK_FULL, error.to_string())
                .hint("Nothing was changed. Write less in one transaction, or give the disk more space."),
            StorageError::Archive(_) => Self::new(state::BAD_COPY_FILE_FORMAT, error.to_string()),
            _ => Self::new(state::IO_ERROR, error.to_string()),
        }
    }
}

/// The storage of all tenants of a cluster, as a process uses it.
#[derive(Debug)]
pub struct Storage {
    store: Arc<dyn ObjectStore>,
    /// The same, for whoever watches it.
    counted: CountedStore,
    prefix: Path,
    /// What errors call the store.
    name: String,
    /// Where it is, if it is a directory.
    folder: Option<std::path::PathBuf>,
    cache: Arc<BlockCache>,
    /// Segments that were opened so far.
    opened: AtomicU64,
    /// Of tenants that are not here yet.
    expected: Mutex<warm::Expected>,
}

impl Storage {
    /// In a store, under a prefix that belongs to it, with a cache of so many bytes of blocks. Asks nothing yet.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path, cache_bytes: usize) -> Arc<Self> {
        let name = store.to_string();
        Self::named(store, prefix, (name, None), cache_bytes)
    }

    fn named(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        (name, folder): (String, Option<std::path::PathBuf>),
        cache_bytes: usize,
    ) -> Arc<Self> {
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let counted = CountedStore::new(store);
        let store = Arc::new(counted.clone());
        let expected = Mutex::default();
        Arc::new(Self { store, counted, prefix, name, folder, cache, opened: AtomicU64::new(0), expected })
    }

    /// In a local directory, as [`new`](Self::new).
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn local(directory: &std::path::Path, cache_bytes: usize) -> Result<Arc<Self>, StorageError> {
        let store = Arc::new(LocalStore::open(directory)?);
        let name = (directory.display().to_string(), Some(directory.to_owned()));
        Ok(Self::named(store, Path::default(), name, cache_bytes))
    }

    /// The blocks that are in memory.
    #[must_use]
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn figures(&self, asked: Asked) -> StoreFigures {
        self.counted.figures(asked)
    }

    /// Removes all that there is of a tenant, which nobody uses any more. May be asked again.
    ///
    /// # Errors
    /// Those of the store; some of it may be gone then.
    pub async fn remove(&self, tenant: TenantId) -> Result<(), StorageError> {
        self.forget_warm(tenant);
        self.cache.forget(tenant);
        let objects: Vec<_> = self.store.list(Some(&self.tenant_prefix(tenant))).try_collect().await?;
        for object in objects {
            match self.store.delete(&object.location).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.forget_stored(tenant).await
    }

    /// The numbers under which there is, or was, something of a tenant.
    pub(crate) async fn tenants(&self) -> Result<BTreeSet<TenantId>, StorageError> {
        let listed = self.store.list_with_delimiter(Some(&self.tenants_prefix())).await?;
        Ok(listed.common_prefixes.iter().filter_map(number).collect())
    }

    pub(crate) fn roots_prefix(&self) -> Path {
        self.prefix.clone().join("roots")
    }

    /// A path as errors tell it.
    fn place(&self, path: &Path) -> String {
        format!("{}/{path}", self.name)
    }

    fn tenant_prefix(&self, tenant: TenantId) -> Path {
        self.tenants_prefix().join(format!("{tenant:020}"))
    }

    fn tenants_prefix(&self) -> Path {
        self.prefix.clone().join("tenants")
    }

    pub(crate) fn reader(&self, prefix: &Path) -> Reader {
        Reader::new(Arc::clone(&self.store), prefix, RetryPolicy::default(), WriterId::random())
    }

    /// Takes the manifest of a tenant over for its owner.
    pub(crate) async fn take_over(&self, tenant: TenantId, epoch: OwnerEpoch) -> Result<Manifest, StorageError> {
        // Readers elsewhere pin what they read; nobody else needs an old version.
        let retention = Retention::default();
        let options = Options { retry: RetryPolicy::default(), retention };
        let prefix = self.tenant_prefix(tenant);
        Ok(Manifest::open(Arc::clone(&self.store), &prefix, epoch, options, now()).await?)
    }

    fn next_number(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }
}

/// The tenant's number that a path ends with.
fn number(path: &Path) -> Option<TenantId> {
    path.filename().and_then(|name| name.parse().ok())
}

/// The owner's clock: only the age of what is to be removed depends on it.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixMillis(since.as_millis() as u64)
}
