//! Parts of what large transactions write: objects under a tenant's prefix that no manifest has.
//!
//! ```text
//! PREFIX/tenants/NUMBER/parts/EEEEEEEEEEEEEEEEEEEE-WRITER-SSSSSSSSSS    the S-th part that transaction WRITER (32 hex digits) has
//!                                                                      under the owner's epoch E
//! ```
//!
//! **What may be removed.** A part is needed if a commit names it that the segments lack. Which commits these are knows the tenant's owner alone: they are
//! in its log. An owner that wakes the tenant has all of them that were made under earlier epochs, so that what it finds of those and does not know is
//! litter; nobody under such an epoch adds a commit any more. What is of its own epoch it has made itself and knows one by one; what is of a later one is
//! somebody else's.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{ObjectStoreExt, PutPayload, path::Path};
use savanna_journal::Lsn;
use savanna_manifest::ObjectRef;
use savanna_tenants_values::error::Result as SqlResult;

use super::{Home, StorageError};
use crate::{
    database::Replaying,
    large::{Litter, Part, Parts},
    owner::RedoError,
    points,
};

const FOLDER: &str = "parts";
/// Bytes of a disk that are left to others: the log, above all.
const RESERVE: u64 = 1 << 30;

impl Home {
    /// What is to be removed.
    #[must_use]
    pub fn litter(&self) -> &Arc<Litter> {
        &self.litter
    }

    /// Parts of a transaction, none yet.
    #[must_use]
    pub fn new_parts(&self) -> Parts {
        Parts::new(Arc::clone(&self.litter))
    }

    /// Writes a part down. It is durable then.
    ///
    /// # Errors
    /// `Full`, and those of the store.
    pub async fn put_part(&self, parts: &mut Parts, part: Part) -> Result<(), StorageError> {
        let Part { content, keys, .. } = part;
        let (bytes, crc32c) = (content.len() as u64, crc32c::crc32c(&content));
        self.storage.expect_space(bytes)?;
        let path = format!("{FOLDER}/{:020}-{}-{:010}", self.epoch.0, parts.name, parts.objects.len());
        let place = self.place_of(&path);
        // Whatever becomes of it, somebody knows of it.
        parts.objects.push(ObjectRef { path, bytes, crc32c });
        (parts.keys, parts.bytes) = (parts.keys + keys, parts.bytes + bytes);
        self.storage.store.put(&place, PutPayload::from(Bytes::from(content))).await?;
        Ok(())
    }

    /// Does a commit's record again that is at a place in the log, with its parts, if it has any and the segments lack them.
    ///
    /// # Errors
    /// Those of the store, also if a part is not what was written; XX001 if the record is none, or the commit before it is missing.
    pub async fn redo(&self, rows: &mut Replaying, lsn: Lsn, record: &[u8]) -> SqlResult<()> {
        let refused = |error| RedoError::Replay { tenant: self.tenant, error };
        let Some(named) = rows.wants_parts(record).map_err(refused)? else {
            return Ok(rows.redo(lsn, record).map_err(refused)?);
        };
        let mut keys = 0;
        for object in &named.objects {
            let part = self.reader.read(object).await.map_err(StorageError::from)?;
            keys += rows.redo_part(&named, &part).map_err(refused)?;
            points::reached("a part is done again");
        }
        Ok(rows.redone(lsn, named, keys).map_err(refused)?)
    }

    /// Removes the litter. What could not be removed is still there.
    ///
    /// # Errors
    /// The last of those of the store.
    pub async fn remove_litter(&self) -> Result<(), StorageError> {
        let mut done = Ok(());
        for path in self.litter.take() {
            if let Err(error) = self.remove_part(&self.place_of(&path)).await {
                self.litter.add([path]);
                done = Err(error);
            }
        }
        done
    }

    /// Removes the parts that were made under earlier epochs, but for those that are `needed`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn remove_old_parts(&self, needed: &BTreeSet<String>) -> Result<(), StorageError> {
        let folder = self.prefix.clone().join(FOLDER);
        let found: Vec<_> = self.storage.store.list(Some(&folder)).try_collect().await?;
        for object in found {
            let Some(name) = object.location.filename() else { continue };
            let is_old = name
                .split('-')
                .next()
                .and_then(|epoch| epoch.parse().ok())
                .is_some_and(|epoch: u64| epoch < self.epoch.0);
            if is_old && !needed.contains(&format!("{FOLDER}/{name}")) {
                self.remove_part(&object.location).await?;
            }
        }
        Ok(())
    }

    async fn remove_part(&self, place: &Path) -> Result<(), StorageError> {
        match self.storage.store.delete(place).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn place_of(&self, path: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(Path::from(path).parts()))
    }
}

impl super::Storage {
    /// Refuses what would fill the disk, if the storage is a directory.
    fn expect_space(&self, bytes: u64) -> Result<(), StorageError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        // Whoever writes hears of it if it cannot be used.
        let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < RESERVE.saturating_add(bytes) {
            return Err(StorageError::Full {
                place: folder.display().to_string(),
                free: free >> 20,
                left: RESERVE >> 20,
            });
        }
        Ok(())
    }
}
