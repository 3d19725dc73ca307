//! A tenant as one file: what a backup is, and a new tenant is made of.
//!
//! ```text
//! archive    "SVTENANT" | format version, 1 byte | length of the contents, 4 bytes | contents, as postcard writes them
//!            | CRC-32C of all that, 4 bytes | the segments one after the other, as they are in the storage
//! contents   the last commit that is in it | the segments: name, length, CRC-32C
//! ```
//!
//! The contents come first, so that an archive which was cut short is never taken for a whole one, and whoever reads it knows how much
//! is still to come. All numbers before and after the contents are little-endian.

use std::{io, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use object_store::path::Path;
use savanna_manifest::{ManifestError, ObjectRef};
use savanna_tenants_segments::TenantId;
use savanna_transaction::Csn;
use serde::{Deserialize, Serialize};

use super::{Snapshot, Storage, StorageError, now};
use crate::shards::FIRST_EPOCH;

const MAGIC: &[u8; 8] = b"SVTENANT";
const FORMAT: u8 = 1;
const PREFIX_BYTES: usize = MAGIC.len() + 1 + 4;
const CRC_BYTES: usize = 4;
/// A longer list of segments is none.
const CONTENTS_BYTES_MAX: usize = 16 << 20;
/// A segment is read as a whole; a longer one is none.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// A snapshot is kept for so long after each segment that was read of it.
const KEEP: Duration = Duration::from_secs(3_600);

/// What an archive has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    csn: u64,
    segments: Vec<Part>,
}

/// A segment in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    name: String,
    bytes: u64,
    crc32c: u32,
}

impl Contents {
    fn encode(&self) -> Result<Bytes, StorageError> {
        let contents = postcard::to_stdvec(self).map_err(|error| damaged(format_args!("no contents: {error}")))?;
        let mut head = BytesMut::from(&MAGIC[..]);
        head.put_u8(FORMAT);
        head.put_u32_le(contents.len() as u32);
        head.extend(contents);
        head.put_u32_le(crc32c::crc32c(&head));
        Ok(head.freeze())
    }

    async fn read(incoming: &mut Incoming) -> Result<Self, StorageError> {
        let prefix = incoming.take(PREFIX_BYTES).await?;
        let (magic, rest) = prefix.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(damaged("it does not begin as one; name a file that `savanna tenants backup` wrote"));
        }
        if rest[0] != FORMAT {
            return Err(damaged(format_args!("expected format {FORMAT}, came {}; use a later release", rest[0])));
        }
        let length = u32::from_le_bytes([rest[1], rest[2], rest[3], rest[4]]) as usize;
        if length > CONTENTS_BYTES_MAX {
            return Err(damaged("its contents are longer than any"));
        }
        let rest = incoming.take(length + CRC_BYTES).await?;
        let (contents, crc) = rest.split_at(length);
        if crc32c::crc32c_append(crc32c::crc32c(&prefix), contents).to_le_bytes() != crc {
            return Err(damaged("the checksum of its contents is wrong"));
        }
        postcard::from_bytes(contents).map_err(|error| damaged(format_args!("its contents cannot be read: {error}")))
    }
}

fn damaged(what: impl std::fmt::Display) -> StorageError {
    StorageError::Archive(what.to_string())
}

/// A tenant as it was at one commit, as a stream of bytes.
#[derive(Debug)]
pub struct Archive {
    head: Bytes,
    csn: Csn,
    bytes: u64,
    /// What it is read from, and the segments in their order; nothing of a tenant that was never flushed.
    from: Option<(Snapshot, Vec<ObjectRef>)>,
}

impl Archive {
    fn of(snapshot: Option<Snapshot>) -> Result<Self, StorageError> {
        let csn = snapshot.as_ref().map_or(Csn::NONE, Snapshot::csn);
        let named = snapshot.iter().flat_map(Snapshot::objects);
        let part = |(name, object): (&str, &ObjectRef)| Part {
            name: name.to_owned(),
            bytes: object.bytes,
            crc32c: object.crc32c,
        };
        let (segments, objects): (Vec<_>, Vec<_>) = named.map(|entry| (part(entry), entry.1.clone())).unzip();
        let head = Contents { csn: csn.0, segments }.encode()?;
        let bytes = head.len() as u64 + objects.iter().map(|object| object.bytes).sum::<u64>();
        Ok(Self { head, csn, bytes, from: snapshot.map(|snapshot| (snapshot, objects)) })
    }

    /// The last commit that is in it.
    #[must_use]
    pub const fn csn(&self) -> Csn {
        self.csn
    }

    /// Whether nothing was ever flushed of the tenant, or it was dropped.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from.is_none()
    }

    /// How long it is.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its bytes. What it is read from is kept until all of them have been read, or nobody has read on for an hour.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, StorageError>> {
        let Self { head, from, .. } = self;
        let rest = futures::stream::try_unfold((from, 0), |(from, at)| async move {
            let Some((snapshot, objects)) = from else { return Ok(None) };
            let Some(object) = objects.get(at) else {
                snapshot.release().await?;
                return Ok(None);
            };
            snapshot.renew(KEEP).await?;
            let bytes = snapshot.read(object).await?;
            Ok(Some((bytes, (Some((snapshot, objects)), at + 1))))
        });
        futures::stream::iter([Ok(head)]).chain(rest)
    }
}

/// An archive as it comes in.
struct Incoming {
    stream: BoxStream<'static, io::Result<Bytes>>,
    /// What came and was not taken yet.
    ahead: BytesMut,
    taken: u64,
}

impl Incoming {
    async fn take(&mut self, bytes: usize) -> Result<Bytes, StorageError> {
        while self.ahead.len() < bytes {
            match self.stream.try_next().await.map_err(StorageError::Sender)? {
                Some(more) => self.ahead.extend_from_slice(&more),
                None => {
                    let (end, wanted) = (self.taken + self.ahead.len() as u64, self.taken + bytes as u64);
                    return Err(damaged(format_args!("it ends after {end} bytes, and has at least {wanted}")));
                }
            }
        }
        self.taken += bytes as u64;
        Ok(self.ahead.split_to(bytes).freeze())
    }

    async fn end(&mut self) -> Result<(), StorageError> {
        loop {
            if !self.ahead.is_empty() {
                return Err(damaged(format_args!("there is something after its {} bytes", self.taken)));
            }
            match self.stream.try_next().await.map_err(StorageError::Sender)? {
                Some(more) => self.ahead.extend_from_slice(&more),
                None => return Ok(()),
            }
        }
    }
}

impl Storage {
    /// A tenant as it was when it was last flushed, as an archive.
    ///
    /// # Errors
    /// Those of the store, and if a segment is not what was written.
    pub async fn archive(&self, tenant: TenantId) -> Result<Archive, StorageError> {
        match self.snapshot(tenant, KEEP).await {
            Ok(snapshot) => Archive::of(Some(snapshot)),
            Err(StorageError::Manifest(ManifestError::NoManifest { .. })) => Archive::of(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an archive the place of a tenant that nobody uses yet: all of it, or nothing that counts.
    ///
    /// # Errors
    /// `Archive` if it is none; those of the store, and of whoever sends it. Remove the tenant then.
    pub async fn restore(
        self: &Arc<Self>,
        tenant: TenantId,
        archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Csn, StorageError> {
        let mut incoming = Incoming { stream: archive, ahead: BytesMut::new(), taken: 0 };
        let contents = Contents::read(&mut incoming).await?;
        let prefix: Path = self.tenant_prefix(tenant);
        let manifest = self.take_over(tenant, FIRST_EPOCH).await?;
        if !manifest.current().entries.is_empty() {
            return Err(StorageError::Occupied(self.place(&prefix)));
        }
        let mut entries = Vec::new();
        for Part { name, bytes, crc32c } in contents.segments {
            if bytes > SEGMENT_BYTES_MAX {
                return Err(damaged(format_args!("its segment {name} is longer than any")));
            }
            let segment = incoming.take(bytes as usize).await?;
            if crc32c::crc32c(&segment) != crc32c {
                return Err(damaged(format_args!("the checksum of its segment {name} is wrong")));
            }
            entries.push((name, manifest.put_object(segment).await?));
        }
        incoming.end().await?;
        let committed = manifest.commit(now(), |draft| {
            for (name, object) in &entries {
                draft.insert(name.clone(), object.clone());
            }
        });
        committed.await?;
        Ok(Csn(contents.csn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_an_archive_is_this() {
        let contents = Contents { csn: 300, segments: vec![Part { name: "a".to_owned(), bytes: 5, crc32c: 1 }] };
        let body = [&b"SVTENANT"[..], &[1, 7, 0, 0, 0], &[0xac, 2, 1, 1, b'a', 5, 1]].concat();
        let whole = [&body[..], &crc32c::crc32c(&body).to_le_bytes()].concat();
        assert_eq!(contents.encode().unwrap(), whole);
    }
}
