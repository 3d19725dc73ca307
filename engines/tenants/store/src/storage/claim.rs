//! Which cluster a storage belongs to. Rows are whole only together with the records of the cluster whose nodes wrote them, so that any other
//! pair of a cluster and a storage is refused: neither serves somebody else's tenants, nor says that there are none.
//!
//! ```text
//! PREFIX/log                in the storage: an id
//! root tenant-store         in the coordinator's records: {"id":..,"confirmed":..}, the same id; confirmed if the storage is known to have it
//! DIRECTORY/store-id[.new]  beside the log of a former release: the same id; carried over to the coordinator's records
//! ```

use std::{fs, io, path::Path};

use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};
use savanna_manifest::WriterId;
use savanna_ownership::{ClusterView, CoordinatorError, Revision};
use serde::{Deserialize, Serialize};

use super::{Storage, StorageError};
use crate::shards::{self, Member, ShardsError};

const ROOT: &str = "tenant-store";
const FILE: &str = "store-id";
/// The file as long as it was not certain that the storage has the id.
const NEW: &str = "store-id.new";

/// The id of a cluster's storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    id: String,
    confirmed: bool,
}

impl Storage {
    /// Makes sure that this is the storage of the cluster; a new one becomes that. A former release may have noted in a directory whose it is.
    ///
    /// # Errors
    /// `Foreign` if it is another's, or another than before, `Gone` if it was there and is not any more; those of the store, the coordinator and
    /// the directory.
    pub async fn claim(&self, member: &Member, directory: &Path) -> Result<(), StorageError> {
        loop {
            // The cluster has an id before the storage has it, or nobody would know whose the storage is.
            let (claim, version) = match claimed(&member.view().await?)? {
                None => (former(directory)?, Revision::NONE),
                Some((claim, version)) => {
                    self.check(&claim).await?;
                    if claim.confirmed {
                        return forget(directory);
                    }
                    (Claim { confirmed: true, ..claim }, version)
                }
            };
            match member.propose(&shards::put(ROOT.to_owned(), version, &claim).into()).await {
                Ok(_) | Err(CoordinatorError::Conflict { .. }) => {}
                Err(error) => return Err(ShardsError::from(error).into()),
            }
        }
    }

    /// Whether the storage has an id; if it is not known that it had one, it gets it.
    async fn check(&self, Claim { id, confirmed }: &Claim) -> Result<(), StorageError> {
        let there = match self.id().await? {
            None if *confirmed => return Err(StorageError::Gone(self.place(&self.prefix))),
            None => self.put_id(id).await?,
            Some(there) => there,
        };
        if there == *id { Ok(()) } else { Err(StorageError::Foreign(self.place(&self.prefix))) }
    }

    /// Gives the storage an id, if it has none. Returns the one that it has.
    async fn put_id(&self, id: &str) -> Result<String, StorageError> {
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.store.put_opts(&self.id_path(), PutPayload::from(id.to_owned()), create).await {
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.id().await?.unwrap_or_default())
    }

    fn id_path(&self) -> object_store::path::Path {
        self.prefix.clone().join("log")
    }

    async fn id(&self) -> Result<Option<String>, StorageError> {
        match self.store.get(&self.id_path()).await {
            Ok(found) => Ok(Some(String::from_utf8_lossy(&found.bytes().await?).into_owned())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn claimed(view: &ClusterView) -> Result<Option<(Claim, Revision)>, ShardsError> {
    view.root(ROOT).map(|root| Ok((shards::decode(ROOT, &root.value)?, root.version))).transpose()
}

/// What a former release noted in a directory, or a new id.
fn former(directory: &Path) -> Result<Claim, StorageError> {
    if let Some(id) = read(&directory.join(FILE))? {
        return Ok(Claim { id, confirmed: true });
    }
    let noted = read(&directory.join(NEW))?;
    Ok(Claim { id: noted.unwrap_or_else(|| WriterId::random().to_string()), confirmed: false })
}

fn read(path: &Path) -> Result<Option<String>, StorageError> {
    match fs::read_to_string(path) {
        Ok(id) => Ok(Some(id)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::Directory(error)),
    }
}

/// The coordinator's records say it now: a former release finds another cluster's storage.
fn forget(directory: &Path) -> Result<(), StorageError> {
    for file in [FILE, NEW] {
        match fs::remove_file(directory.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StorageError::Directory(error)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::{ObjectStore, memory::InMemory};

    use super::*;
    use crate::shards::tests::member;

    fn storage(store: &Arc<dyn ObjectStore>) -> Arc<Storage> {
        Storage::new(Arc::clone(store), "tenants".into(), 1)
    }

    fn stores() -> [Arc<dyn ObjectStore>; 2] {
        [Arc::new(InMemory::new()), Arc::new(InMemory::new())]
    }

    #[tokio::test]
    async fn a_storage_belongs_to_one_cluster_and_a_cluster_to_one_storage() {
        let nowhere = Path::new("/nowhere");
        let (stores, clusters) = (stores(), [member("a").await, member("a").await]);
        for _ in 0..2 {
            storage(&stores[0]).claim(&clusters[0], nowhere).await.unwrap();
        }
        let claimed = storage(&stores[0]).claim(&clusters[1], nowhere).await;
        assert!(matches!(claimed, Err(StorageError::Foreign(_))), "{claimed:?}");
        let claimed = storage(&stores[1]).claim(&clusters[0], nowhere).await;
        assert!(matches!(claimed, Err(StorageError::Gone(_))), "{claimed:?}");
        storage(&stores[1]).claim(&clusters[1], nowhere).await.expect("it was refused another one before");
    }

    #[tokio::test]
    async fn a_claim_that_was_cut_short_is_finished() {
        let (stores, cluster) = (stores(), member("a").await);
        let claim = |id: &str| Claim { id: id.to_owned(), confirmed: false };
        let root = shards::put(ROOT.to_owned(), Revision::NONE, &claim("0123"));
        cluster.propose(&root.into()).await.unwrap();
        // The storage has it, the cluster does not know that yet.
        storage(&stores[0]).put_id("0123").await.unwrap();
        storage(&stores[0]).claim(&cluster, Path::new("/nowhere")).await.unwrap();
        let view = cluster.view().await.unwrap();
        assert_eq!(claimed(&view).unwrap().unwrap().0, Claim { confirmed: true, ..claim("0123") });
    }

    #[tokio::test]
    async fn what_a_former_release_noted_is_carried_over_or_refused_as_that_did() {
        let directory = tempfile::tempdir().unwrap();
        let (stores, file) = (stores(), directory.path().join(FILE));
        fs::write(&file, "0123").unwrap();
        let claimed = storage(&stores[0]).claim(&member("a").await, directory.path()).await;
        assert!(matches!(claimed, Err(StorageError::Gone(_))), "{claimed:?}");
        storage(&stores[0]).put_id("0123").await.unwrap();
        storage(&stores[1]).put_id("4567").await.unwrap();
        let claimed = storage(&stores[1]).claim(&member("a").await, directory.path()).await;
        assert!(matches!(claimed, Err(StorageError::Foreign(_))), "{claimed:?}");
        assert!(file.exists());
        let cluster = member("a").await;
        storage(&stores[0]).claim(&cluster, directory.path()).await.unwrap();
        assert!(!file.exists(), "a former release would write beside this one");
        storage(&stores[0]).claim(&cluster, directory.path()).await.unwrap();
    }
}
