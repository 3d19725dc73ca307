//! Which log a storage belongs to. Rows are whole only together with the log that was written beside them, so that any other pair of
//! a directory and a storage is refused: neither serves somebody else's tenants, nor says that there are none.
//!
//! ```text
//! PREFIX/log          in the storage: an id
//! DIRECTORY/store-id  beside the log: the same id
//! ```

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};
use savanna_manifest::WriterId;

use super::{Storage, StorageError};

const FILE: &str = "store-id";
/// The file as long as it is not certain that the storage has the id.
const NEW: &str = "store-id.new";

impl Storage {
    /// Makes sure that this is the storage of the log beside which the directory is; a new one becomes that.
    ///
    /// # Errors
    /// `Foreign` if it is another's, or another than before, `Gone` if it was there and is not any more; those of the store and of the directory.
    pub async fn claim(&self, directory: &Path) -> Result<(), StorageError> {
        let foreign = || StorageError::Foreign(self.place(&self.prefix));
        let there = self.id().await?;
        if let Some(id) = read(&directory.join(FILE))? {
            return match there {
                Some(there) if there == id => Ok(()),
                Some(_) => Err(foreign()),
                None => Err(StorageError::Gone(self.place(&self.prefix))),
            };
        }
        let id = match read(&directory.join(NEW))? {
            Some(id) => id,
            None => write(directory, &WriterId::random().to_string())?,
        };
        let there = match there {
            Some(there) => there,
            None => {
                let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
                match self.store.put_opts(&self.id_path(), PutPayload::from(id.clone()), create).await {
                    Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                self.id().await?.unwrap_or_default()
            }
        };
        if there != id {
            return Err(foreign());
        }
        fs::rename(directory.join(NEW), directory.join(FILE)).and_then(|()| sync(directory)).map_err(local)
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

fn read(path: &Path) -> Result<Option<String>, StorageError> {
    match fs::read_to_string(path) {
        Ok(id) => Ok(Some(id)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(local(error)),
    }
}

/// Writes down an id, so that it is there after a crash: as a whole, or as one that no storage has.
fn write(directory: &Path, id: &str) -> Result<String, StorageError> {
    let write = || {
        fs::create_dir_all(directory)?;
        let mut file = File::create(directory.join(NEW))?;
        file.write_all(id.as_bytes())?;
        file.sync_all()?;
        sync(directory)
    };
    write().map_err(local)?;
    Ok(id.to_owned())
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn local(error: io::Error) -> StorageError {
    StorageError::Directory(error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::{ObjectStore, memory::InMemory};
    use savanna_epoch::OwnerEpoch;

    use super::*;

    fn storage(store: &Arc<dyn ObjectStore>) -> Arc<Storage> {
        Storage::new(Arc::clone(store), "tenants".into(), OwnerEpoch(1), 1)
    }

    #[tokio::test]
    async fn a_storage_belongs_to_one_directory_and_a_directory_to_one_storage() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let stores: [Arc<dyn ObjectStore>; 2] = [Arc::new(InMemory::new()), Arc::new(InMemory::new())];
        for _ in 0..2 {
            storage(&stores[0]).claim(directories[0].path()).await.unwrap();
        }
        let claimed = storage(&stores[0]).claim(directories[1].path()).await;
        assert!(matches!(claimed, Err(StorageError::Foreign(_))), "{claimed:?}");
        let claimed = storage(&stores[1]).claim(directories[0].path()).await;
        assert!(matches!(claimed, Err(StorageError::Gone(_))), "{claimed:?}");
        assert!(!directories[1].path().join(FILE).exists());
    }

    #[tokio::test]
    async fn a_claim_that_was_cut_short_is_finished() {
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let id = write(directory.path(), "0123").unwrap();
        storage(&store).claim(directory.path()).await.unwrap();
        // The storage has it, the directory does not say so yet.
        fs::rename(directory.path().join(FILE), directory.path().join(NEW)).unwrap();
        storage(&store).claim(directory.path()).await.unwrap();
        assert_eq!(read(&directory.path().join(FILE)).unwrap(), Some(id));
    }
}
