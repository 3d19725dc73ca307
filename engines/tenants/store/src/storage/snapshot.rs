//! A tenant at one commit: pinned, so that it stays as it is while the tenant goes on, and listed block by block.

use std::{ops::Range, time::Duration};

use bytes::Bytes;
use savanna_manifest::{ObjectRef, Pin};
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

    /// Its segments, newest first, with the names that the manifest has for them.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, &ObjectRef)> {
        self.segments.iter().map(|(name, object, _)| (name.as_str(), object))
    }

    /// The bytes of one of its segments.
    pub(super) async fn read(&self, object: &ObjectRef) -> Result<Bytes, StorageError> {
        Ok(self.pin.read(object, now()).await?)
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
        let reader = self.reader(&self.tenant_prefix(tenant));
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
