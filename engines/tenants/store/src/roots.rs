//! Which tenants there are, as it is kept beside the log, so that the log can be cut: one object under a manifest of its own.
//!
//! ```text
//! roots    format version, 1 byte | as postcard writes it | where the log ended, as postcard writes it; not in format 1
//! ```

use std::collections::{BTreeMap, BTreeSet};

use savanna_journal::Lsn;
use savanna_manifest::{Manifest, ManifestError};
use savanna_tenants_segments::TenantId;
use serde::{Deserialize, Serialize};

use crate::storage::{Storage, StorageError, now};

const FORMAT: u8 = 2;
/// Without the end of the log.
const FORMAT_WITHOUT_END: u8 = 1;
const ENTRY: &str = "roots";

/// Which tenants there are after a place in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roots {
    /// Records up to here are in it.
    pub(crate) at: u64,
    /// The number that was given last.
    pub(crate) last: TenantId,
    /// The names of tenants.
    pub(crate) tenants: BTreeMap<TenantId, String>,
    /// Tenants that were removed, and whose segments perhaps were not yet.
    pub(crate) removed: BTreeSet<TenantId>,
    /// Numbers that are given to tenants which are not there yet.
    pub(crate) reserved: BTreeSet<TenantId>,
    /// The log was durable up to here when they were saved.
    #[serde(skip)]
    pub(crate) end: u64,
}

impl Roots {
    /// Whether a record of the log is in it already.
    pub(crate) fn has(&self, lsn: Lsn) -> bool {
        lsn.0 <= self.at
    }

    fn encode(&self) -> Result<Vec<u8>, StorageError> {
        let mut bytes = vec![FORMAT];
        bytes.extend(postcard::to_stdvec(&(self, self.end)).map_err(|error| StorageError::Roots(error.to_string()))?);
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        let unreadable = |error: postcard::Error| StorageError::Roots(error.to_string());
        match bytes.split_first() {
            Some((&FORMAT, rest)) => {
                let (roots, end) = postcard::from_bytes(rest).map_err(unreadable)?;
                Ok(Self { end, ..roots })
            }
            Some((&FORMAT_WITHOUT_END, rest)) => postcard::from_bytes(rest).map_err(unreadable),
            Some((format, _)) => Err(StorageError::Roots(format!("expected format {FORMAT}, came {format}"))),
            None => Err(StorageError::Roots("it is empty".to_owned())),
        }
    }
}

/// Where roots are kept.
#[derive(Debug)]
pub struct RootsFile {
    manifest: Manifest,
}

impl RootsFile {
    /// Takes the roots of a storage over, and reads them.
    pub(crate) async fn open(storage: &Storage) -> Result<(Self, Roots), StorageError> {
        let manifest = storage.take_over(&storage.roots_prefix()).await?;
        let snapshot = manifest.current();
        let roots = match snapshot.entries.get(ENTRY) {
            Some(object) => Roots::decode(&manifest.read(object).await?)?,
            None => Roots::default(),
        };
        Ok((Self { manifest }, roots))
    }

    pub(crate) async fn save(&self, roots: &Roots) -> Result<(), StorageError> {
        let object = self.manifest.put_object(roots.encode()?.into()).await?;
        let committed = self.manifest.commit(now(), |draft| {
            draft.insert(ENTRY, object.clone());
        });
        committed.await?;
        match self.manifest.collect_garbage(now()).await {
            Ok(_) | Err(ManifestError::Storage { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_roots_is_this() {
        let roots = Roots {
            at: 300,
            last: 9,
            tenants: BTreeMap::from([(7, "shop".to_owned())]),
            removed: BTreeSet::from([8]),
            reserved: BTreeSet::from([9]),
            end: 400,
        };
        let bytes = [&[2, 0xac, 2, 9, 1, 7, 4][..], b"shop", &[1, 8, 1, 9, 0x90, 3]].concat();
        assert_eq!(roots.encode().unwrap(), bytes);
        assert_eq!(Roots::decode(&bytes).unwrap(), roots);
        assert!(Roots::decode(&[3]).is_err() && Roots::decode(&[]).is_err() && Roots::decode(&bytes[..5]).is_err());
        let former = [&[1], &bytes[1..bytes.len() - 2]].concat();
        assert_eq!(Roots::decode(&former).unwrap(), Roots { end: 0, ..roots });
    }
}
