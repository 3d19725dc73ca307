//! A tenant at one commit: pinned, so that it stays as it is while the tenant goes on, listed block by block, copied
//! elsewhere and back. A copy is a tenant's place like any other: segments under a manifest.

use std::{ops::Range, sync::Arc, time::Duration};

use object_store::{ObjectStore, path::Path};
use savanna_epoch::OwnerEpoch;
use savanna_manifest::{Manifest, ObjectRef, Options, Pin, Reader, RetryPolicy, WriterId};
use savanna_tenants_segments::{Segment, TenantId};
use savanna_transaction::Csn;

use super::{Storage, StorageError, home::open_segment, now};

/// A tenant as it was when it was last flushed.
#[derive(Debug)]
pub struct Snapshot {
    pin: Pin,
    /// Newest first, with the names that the manifest has for them.
    segments: Vec<(String, ObjectRef, Segment)>,
}

/// A block of a snapshot: where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// The object, below the tenant's prefix.
    pub object: String,
    /// The bytes.
    pub range: Range<u64>,
    /// The first key.
    pub first_key: Vec<u8>,
}

impl Snapshot {
    /// The last commit that is in it.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.segments.first().map_or(Csn::NONE, |(.., segment)| segment.footer().upto)
    }

    /// Every block, the newest segments first.
    pub fn blocks(&self) -> impl Iterator<Item = BlockPlace> + '_ {
        self.segments.iter().flat_map(|(_, object, segment)| {
            (0..segment.blocks()).map(|block| BlockPlace {
                object: object.path.clone(),
                range: segment.range(block..block + 1),
                first_key: segment.first_key(block).unwrap_or_default().to_vec(),
            })
        })
    }

    /// Keeps it for longer: so long from now on.
    ///
    /// # Errors
    /// `PinExpired` if it is too late; those of the store.
    pub async fn renew(&self, keep: Duration) -> Result<(), StorageError> {
        Ok(self.pin.renew(now(), keep).await?)
    }

    /// Copies it to another place, which must be empty. The copy is there as a whole or not at all.
    ///
    /// # Errors
    /// Those of both stores; what was copied by then only takes space.
    pub async fn copy_to(&self, store: Arc<dyn ObjectStore>, prefix: &Path) -> Result<(), StorageError> {
        let copy = Manifest::open(store, prefix, OwnerEpoch(1), Options::default(), now()).await?;
        if !copy.current().entries.is_empty() {
            return Err(StorageError::Occupied(prefix.to_string()));
        }
        let mut entries = Vec::new();
        for (name, object, _) in &self.segments {
            let bytes = self.pin.read(object, now()).await?;
            entries.push((name.clone(), copy.put_object(bytes).await?));
        }
        copy.commit(now(), |draft| {
            for (name, object) in &entries {
                draft.insert(name.clone(), object.clone());
            }
        })
        .await?;
        Ok(())
    }

    /// Gives it up.
    ///
    /// # Errors
    /// Those of the store; it is then given up when its time is over.
    pub async fn release(self) -> Result<(), StorageError> {
        Ok(self.pin.release().await?)
    }
}

impl Storage {
    /// What was last flushed of a tenant, kept for so long. A tenant that was never flushed has nothing.
    ///
    /// # Errors
    /// `NoManifest` if it was never flushed; those of the store, and if a segment is not what was written.
    pub async fn snapshot(&self, tenant: TenantId, keep: Duration) -> Result<Snapshot, StorageError> {
        self.snapshot_at(self.reader(&self.tenant_prefix(tenant)), keep).await
    }

    /// Copies a copy back, as a tenant that nobody uses yet.
    ///
    /// # Errors
    /// `NoManifest` if there is no copy; those of both stores. Remove the tenant then, and try again.
    pub async fn restore(
        &self,
        tenant: TenantId,
        store: Arc<dyn ObjectStore>,
        prefix: &Path,
    ) -> Result<Csn, StorageError> {
        let reader = Reader::new(store, prefix, RetryPolicy::default(), WriterId::random());
        let copy = self.snapshot_at(reader, COPY_TIME).await?;
        let (store, prefix) = (Arc::clone(&self.store), self.tenant_prefix(tenant));
        copy.copy_to(store, &prefix).await?;
        let csn = copy.csn();
        copy.release().await?;
        Ok(csn)
    }

    async fn snapshot_at(&self, reader: Reader, keep: Duration) -> Result<Snapshot, StorageError> {
        let pin = reader.pin(now(), keep).await?;
        let entries = pin.snapshot().entries.clone();
        let mut segments = Vec::new();
        for (name, object) in entries.into_iter().rev() {
            let segment = open_segment(self, &reader, object.clone()).await?;
            segments.push((name, object, segment));
        }
        Ok(Snapshot { pin, segments })
    }
}

/// How long a copy is kept while it is copied back. Nobody else changes it.
const COPY_TIME: Duration = Duration::from_secs(24 * 3_600);
