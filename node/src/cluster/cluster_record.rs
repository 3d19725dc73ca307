//! The record of a cluster over several machines: root `cluster` of its coordinator says what all nodes have to agree on.
//!
//! ```text
//! format, lease_ttl_us, lease_margin_us     as in the file of a cluster on one machine; 2 if the keys are spread
//! id                                        follows from the secret: a node that has another one is refused
//! store                                     where logs and rows are
//! store_id, is_marked                       what object `cluster` there says, and whether it is known to be there
//! ```
//!
//! The secret itself is in no record: who can read etcd is not thereby a node. Each node has it in a file of its own.
//!
//! The first node writes the record, then marks the store, then says that it did. A store that does not have the mark which it had is another
//! one, or was emptied: a node that began there would have lost everything.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use savanna_epoch::NodeEpoch;
use savanna_ownership::{Coordinator, CoordinatorError, LeaseTerms, Revision, RootValue};
use savanna_rpc::Cluster;
use serde::{Deserialize, Serialize};

use super::cluster_file::ClusterFile;
use super::shared::{PlaceError, StoreUrl};
use crate::config::NodeConfig;

const ROOT: &str = "cluster";
/// The object in the store that says whose it is.
const MARK: &str = "cluster";
const FORMAT: u32 = 1;
/// That of a cluster whose keys are spread.
const SPREAD_FORMAT: u32 = 2;

/// What all nodes have to agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClusterRecord {
    format: u32,
    id: String,
    store: String,
    store_id: String,
    is_marked: bool,
    lease_ttl_us: u64,
    lease_margin_us: u64,
}

/// Why a node is none of a cluster over several machines.
#[derive(Debug, thiserror::Error)]
pub enum ClusterRecordError {
    /// It has no secret.
    #[error(
        "nodes over several machines prove to each other that they know a secret: expected cluster.secret_file, the path of a file with it, such as one that `openssl rand -hex 32` has written, the same for all nodes"
    )]
    NoSecret,
    /// The file with the secret cannot be read.
    #[error("{path}: reading the secret of the cluster failed: {source}")]
    Secret {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Others can read it.
    #[error("{path}: expected a file that only its owner can read, as it holds the cluster's secret; `chmod 600` it")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It may be guessed.
    #[error("{path}: {source}; write a random one, such as `openssl rand -hex 32`")]
    Short {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: savanna_rpc::ShortSecret,
    },
    /// The node has another secret than the cluster.
    #[error(
        "{path}: expected the secret of cluster {expected}, came that of {came}; give this node the same file as the others"
    )]
    OtherSecret {
        /// The file.
        path: PathBuf,
        /// The cluster's id.
        expected: String,
        /// The id that the secret gives.
        came: String,
    },
    /// Nobody has said where logs and rows are to be.
    #[error(
        "the first node of a cluster over several machines says where all keep logs and rows: expected cluster.store, s3://BUCKET/PATH"
    )]
    NoStore,
    /// The node was told of another store.
    #[error(
        "expected cluster.store = {expected}, where the cluster has its logs and rows, came {came}; set it to that, or leave it out"
    )]
    OtherStore {
        /// The cluster's.
        expected: String,
        /// The node's.
        came: String,
    },
    /// What the node reaches is not the store of the cluster.
    #[error(
        "{store}: expected object `{MARK}` with the id of this cluster, {expected}, came {came}; it is another cluster's store, or another one than the cluster had, or was emptied: look at the endpoint and the credentials in the environment"
    )]
    Foreign {
        /// The store.
        store: String,
        /// What it should say.
        expected: String,
        /// What it says.
        came: String,
    },
    /// The store overwrites where it was asked to create.
    #[error(
        "{store}: the store overwrote object `{MARK}` although it was asked to create it only if it is not there, so that no node that lost its lease would be kept from writing; expected a store that honours `If-None-Match: *` (S3 does)"
    )]
    Careless {
        /// The store.
        store: String,
    },
    /// The store does not answer.
    #[error(
        "{url} cannot be used as the store of the cluster: {source}; check cluster.store and the credentials in the environment"
    )]
    Store {
        /// The store.
        url: String,
        /// Why.
        source: object_store::Error,
    },
    /// This node would count its lease by another time than others do.
    #[error(
        "expected the lease of the cluster, lease.ttl = {ttl:?} and lease.margin = {margin:?}, came {came_ttl:?} and {came_margin:?}; give this node the same settings as the others"
    )]
    Lease {
        /// The cluster's.
        ttl: Duration,
        /// The cluster's.
        margin: Duration,
        /// The node's.
        came_ttl: Duration,
        /// The node's.
        came_margin: Duration,
    },
    /// It holds something else.
    #[error(
        "root `{ROOT}`: expected the record of a cluster in format {FORMAT} or {SPREAD_FORMAT}, came: {came}; a later release wrote it"
    )]
    Malformed {
        /// What is wrong with it.
        came: String,
    },
    /// The coordinator.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
}

/// Reads the secret of a cluster out of the file of this node.
///
/// # Errors
/// [`ClusterRecordError`].
pub(super) fn secret(file: Option<&Path>) -> Result<Cluster, ClusterRecordError> {
    let path = file.ok_or(ClusterRecordError::NoSecret)?.to_owned();
    let read = || Ok::<_, io::Error>((fs::metadata(&path)?.permissions().mode(), fs::read(&path)?));
    let (mode, secret) = read().map_err(|source| ClusterRecordError::Secret { path: path.clone(), source })?;
    if mode & 0o077 != 0 {
        return Err(ClusterRecordError::Open { path });
    }
    Cluster::of_secret(secret.trim_ascii()).map_err(|source| ClusterRecordError::Short { path, source })
}

/// Agrees with the other nodes on the record, and makes it if there is none. To be asked again when the coordinator does not answer.
///
/// # Errors
/// [`ClusterRecordError`].
pub(super) async fn agree(
    coordinator: &dyn Coordinator,
    cluster: &Cluster,
    config: &NodeConfig,
) -> Result<(ClusterFile, StoreUrl), ClusterRecordError> {
    loop {
        let (record, version) = match coordinator.root(ROOT).await? {
            None => (ClusterRecord::of(cluster, config)?, Revision::NONE),
            Some(root) => {
                let record = ClusterRecord::decode(&root.value)?;
                record.check(cluster, config)?;
                if record.is_marked || !record.is_replaced_by(config) {
                    let store = record.store()?;
                    record.mark(&store).await?;
                    if record.is_marked {
                        return Ok((record.file(cluster)?, store));
                    }
                    (ClusterRecord { is_marked: true, ..record }, root.version)
                } else {
                    // One id for all stores that are tried, so that one that has been marked can still be the cluster's.
                    (ClusterRecord { store_id: record.store_id, ..ClusterRecord::of(cluster, config)? }, root.version)
                }
            }
        };
        match coordinator.put_root(ROOT, version, record.encode()).await {
            Ok(_) | Err(CoordinatorError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl ClusterRecord {
    /// A new one.
    fn of(cluster: &Cluster, config: &NodeConfig) -> Result<Self, ClusterRecordError> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Ok(Self {
            format: if config.keys_spread { SPREAD_FORMAT } else { FORMAT },
            id: cluster.id().to_owned(),
            store: config.cluster_store.as_ref().ok_or(ClusterRecordError::NoStore)?.to_string(),
            store_id: format!("{:032x}", rand::random::<u128>()),
            is_marked: false,
            lease_ttl_us: micros(config.lease.ttl()),
            lease_margin_us: micros(config.lease.margin()),
        })
    }

    fn decode(value: &RootValue) -> Result<Self, ClusterRecordError> {
        let malformed = |came: String| ClusterRecordError::Malformed { came };
        let record: Self = serde_json::from_slice(&value.0).map_err(|error| malformed(error.to_string()))?;
        if [FORMAT, SPREAD_FORMAT].contains(&record.format) {
            Ok(record)
        } else {
            Err(malformed(format!("format {}", record.format)))
        }
    }

    fn encode(&self) -> RootValue {
        RootValue(serde_json::to_vec(self).unwrap_or_else(|error| unreachable!("it has plain fields: {error}")))
    }

    /// Whether a node may be one of this cluster.
    fn check(&self, cluster: &Cluster, config: &NodeConfig) -> Result<(), ClusterRecordError> {
        if self.id != cluster.id() {
            let path = config.cluster_secret.clone().unwrap_or_default();
            let (expected, came) = (self.id.clone(), cluster.id().to_owned());
            return Err(ClusterRecordError::OtherSecret { path, expected, came });
        }
        let [(ttl, margin), (came_ttl, came_margin)] =
            [self.lease()?, config.lease].map(|lease| (lease.ttl(), lease.margin()));
        if (ttl.as_micros(), margin.as_micros()) != (came_ttl.as_micros(), came_margin.as_micros()) {
            return Err(ClusterRecordError::Lease { ttl, margin, came_ttl, came_margin });
        }
        match &config.cluster_store {
            Some(store) if self.is_marked && store.to_string() != self.store => {
                Err(ClusterRecordError::OtherStore { expected: self.store.clone(), came: store.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Whether the node has another store, and nobody has used that of the record.
    fn is_replaced_by(&self, config: &NodeConfig) -> bool {
        !self.is_marked && config.cluster_store.as_ref().is_some_and(|store| store.to_string() != self.store)
    }

    fn store(&self) -> Result<StoreUrl, ClusterRecordError> {
        StoreUrl::parse(&self.store)
            .ok_or_else(|| ClusterRecordError::Malformed { came: format!("store {}", self.store) })
    }

    fn lease(&self) -> Result<LeaseTerms, ClusterRecordError> {
        let [ttl, margin] = [self.lease_ttl_us, self.lease_margin_us].map(Duration::from_micros);
        LeaseTerms::new(ttl, margin).map_err(|error| ClusterRecordError::Malformed { came: error.to_string() })
    }

    /// Logs in a store begin with the cluster, and so do the epochs under which they are opened.
    fn file(&self, cluster: &Cluster) -> Result<ClusterFile, ClusterRecordError> {
        Ok(ClusterFile::new(cluster.clone(), NodeEpoch::NONE, self.lease()?, self.format == SPREAD_FORMAT))
    }

    /// Makes sure that the store has the mark, and keeps what was created; one that is known to have had the mark gets none.
    async fn mark(&self, url: &StoreUrl) -> Result<(), ClusterRecordError> {
        let store = url.connect().map_err(|error| match error {
            PlaceError::Store { source, .. } => ClusterRecordError::Store { url: url.to_string(), source },
            other => unreachable!("a store is not a log: {other}"),
        })?;
        self.mark_in(&*store, url).await
    }

    async fn mark_in(&self, store: &dyn ObjectStore, url: &StoreUrl) -> Result<(), ClusterRecordError> {
        let failed = |source| ClusterRecordError::Store { url: url.to_string(), source };
        let path = url.path(MARK);
        let mut came = read(store, &path).await.map_err(failed)?;
        if came.is_none() && !self.is_marked {
            self.create_mark(store, &path).await.map_err(failed)?;
            came = read(store, &path).await.map_err(failed)?;
        }
        if came.as_ref() != Some(&self.store_id) {
            let came = came.unwrap_or_else(|| "nothing".to_owned());
            return Err(ClusterRecordError::Foreign { store: url.to_string(), expected: self.store_id.clone(), came });
        }
        // The same bytes, so that a store that does overwrite loses nothing.
        if self.create_mark(store, &path).await.map_err(failed)? {
            return Err(ClusterRecordError::Careless { store: url.to_string() });
        }
        Ok(())
    }

    /// Whether the store has taken the mark as a new object.
    async fn create_mark(&self, store: &dyn ObjectStore, path: &ObjectPath) -> Result<bool, object_store::Error> {
        let (mark, create) = (PutPayload::from(self.store_id.clone()), PutOptions::from(PutMode::Create));
        match store.put_opts(path, mark, create).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What an object says, if it is there.
async fn read(store: &dyn ObjectStore, path: &ObjectPath) -> Result<Option<String>, object_store::Error> {
    match store.get(path).await {
        Ok(found) => Ok(Some(String::from_utf8_lossy(&found.bytes().await?).into_owned())),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;

    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions, PutResult,
        Result,
    };
    use savanna_epoch::NodeEpoch;
    use savanna_journal::{Options as JournalOptions, sim::SimDisk};
    use savanna_ownership::BootClock;
    use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};

    use super::*;
    use crate::config::{Config, Sources};

    async fn coordinator() -> EmbeddedCoordinator {
        let options = EmbeddedOptions { ttl: Duration::from_secs(3600), clock: Arc::new(BootClock), guard: None };
        let journal = JournalOptions::disk(SimDisk::new(0));
        EmbeddedCoordinator::open(journal, NodeEpoch(1), options).await.unwrap()
    }

    fn config(settings: &[(&'static str, &str)]) -> NodeConfig {
        let sources = settings.iter().fold(Sources::none(), |sources, (key, value)| sources.flag(key, value, "--set"));
        Config::load(&sources).unwrap().node().clone()
    }

    fn cluster(secret: &str) -> Cluster {
        Cluster::of_secret(secret.as_bytes()).unwrap()
    }

    const SECRET: &str = "0123456789abcdef";

    #[tokio::test]
    async fn the_first_node_says_where_the_store_is_and_the_others_find_it() {
        let (coordinator, folder) = (coordinator().await, tempfile::tempdir().unwrap());
        let url = format!("file://{}", folder.path().display());
        let ours = cluster(SECRET);
        let refused = agree(&coordinator, &ours, &config(&[])).await.unwrap_err();
        assert!(matches!(refused, ClusterRecordError::NoStore), "{refused}");
        let (file, store) = agree(&coordinator, &ours, &config(&[("cluster.store", &url)])).await.unwrap();
        assert_eq!((store.to_string(), file.cluster.id()), (url.clone(), ours.id()));
        assert_eq!(file.log_epoch(savanna_epoch::OwnerEpoch(1)), NodeEpoch(1));
        let (_, again) = agree(&coordinator, &ours, &config(&[])).await.unwrap();
        assert_eq!(again, store);

        let refused = |settings: &[(&'static str, &str)], secret: &str| {
            let (config, cluster, coordinator) = (config(settings), cluster(secret), &coordinator);
            async move { agree(coordinator, &cluster, &config).await.map(|(_, store)| store).unwrap_err() }
        };
        let other = refused(&[("cluster.store", "file:///elsewhere")], SECRET).await;
        assert!(matches!(other, ClusterRecordError::OtherStore { .. }), "{other}");
        let other = refused(&[], "another secret, as long").await;
        assert!(matches!(other, ClusterRecordError::OtherSecret { .. }), "{other}");
        let other = refused(&[("lease.ttl", "4s")], SECRET).await;
        assert!(matches!(other, ClusterRecordError::Lease { .. }), "{other}");

        fs::remove_file(folder.path().join(MARK)).unwrap();
        let gone = refused(&[], SECRET).await;
        assert!(matches!(&gone, ClusterRecordError::Foreign { came, .. } if came == "nothing"), "{gone}");
    }

    #[tokio::test]
    async fn a_store_is_one_clusters_and_one_that_was_not_marked_can_be_replaced() {
        let (first, second, folder) = (coordinator().await, coordinator().await, tempfile::tempdir().unwrap());
        let url = |name: &str| format!("file://{}/{name}", folder.path().display());
        agree(&first, &cluster(SECRET), &config(&[("cluster.store", &url("a"))])).await.unwrap();
        let taken = agree(&second, &cluster(SECRET), &config(&[("cluster.store", &url("a"))])).await.unwrap_err();
        assert!(matches!(taken, ClusterRecordError::Foreign { .. }), "{taken}");
        let (_, store) = agree(&second, &cluster(SECRET), &config(&[("cluster.store", &url("b"))])).await.unwrap();
        assert_eq!(store.to_string(), url("b"));
    }

    #[tokio::test]
    async fn two_first_nodes_with_two_stores_leave_both_of_use() {
        let (coordinator, folder) = (coordinator().await, tempfile::tempdir().unwrap());
        let of = |name: &str| config(&[("cluster.store", &format!("file://{}/{name}", folder.path().display()))]);
        let first = ClusterRecord::of(&cluster(SECRET), &of("a")).unwrap();
        coordinator.put_root(ROOT, Revision::NONE, first.encode()).await.unwrap();
        first.mark(&first.store().unwrap()).await.unwrap();
        let (_, store) = agree(&coordinator, &cluster(SECRET), &of("b")).await.unwrap();
        assert_eq!(Some(store), of("b").cluster_store);
        let mark = |name: &str| fs::read_to_string(folder.path().join(name).join(MARK)).unwrap();
        assert_eq!([mark("a"), mark("b")], [first.store_id.clone(), first.store_id]);
        let other = agree(&coordinator, &cluster(SECRET), &of("a")).await.unwrap_err();
        assert!(matches!(other, ClusterRecordError::OtherStore { .. }), "{other}");
    }

    /// A store that overwrites what it should create.
    #[derive(Debug, Default)]
    struct Careless(InMemory);

    impl fmt::Display for Careless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a careless store")
        }
    }

    #[async_trait]
    impl ObjectStore for Careless {
        async fn put_opts(&self, path: &ObjectPath, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
            self.0.put_opts(path, payload, PutOptions::default()).await
        }

        async fn put_multipart_opts(
            &self,
            path: &ObjectPath,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(path, options).await
        }

        async fn get_opts(&self, path: &ObjectPath, options: GetOptions) -> Result<GetResult> {
            self.0.get_opts(path, options).await
        }

        fn delete_stream(
            &self,
            paths: BoxStream<'static, Result<ObjectPath>>,
        ) -> BoxStream<'static, Result<ObjectPath>> {
            self.0.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &ObjectPath, to: &ObjectPath, options: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }

    #[tokio::test]
    async fn a_store_that_overwrites_what_it_should_create_is_refused_and_anothers_mark_stays() {
        let (store, url) = (Careless::default(), StoreUrl::parse("file:///careless").unwrap());
        let of = || ClusterRecord::of(&cluster(SECRET), &config(&[("cluster.store", "file:///careless")])).unwrap();
        let (one, other) = (of(), of());
        let refused = one.mark_in(&store, &url).await.unwrap_err();
        assert!(matches!(refused, ClusterRecordError::Careless { .. }), "{refused}");
        let refused = other.mark_in(&store, &url).await.unwrap_err();
        assert!(matches!(refused, ClusterRecordError::Foreign { .. }), "{refused}");
        assert_eq!(read(&store, &url.path(MARK)).await.unwrap(), Some(one.store_id));
    }

    #[test]
    fn a_secret_is_its_owners_alone_and_long() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        assert!(matches!(secret(None), Err(ClusterRecordError::NoSecret)));
        assert!(matches!(secret(Some(&path)), Err(ClusterRecordError::Secret { .. })));
        fs::write(&path, format!("{SECRET}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(secret(Some(&path)), Err(ClusterRecordError::Open { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret(Some(&path)).unwrap().id(), cluster(SECRET).id());
        fs::write(&path, "short\n").unwrap();
        assert!(matches!(secret(Some(&path)), Err(ClusterRecordError::Short { .. })));
    }
}
