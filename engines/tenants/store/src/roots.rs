//! Which tenants there were, as former releases kept it: in records of the log, and in an object of the storage for what the log had been cut
//! behind. It is read once, and carried over to the coordinator's records.
//!
//! ```text
//! roots    format version, 1 byte | as postcard writes it | where the log ended, as postcard writes it; not in format 1
//! ```

use std::collections::{BTreeMap, BTreeSet};

use savanna_journal::{Lsn, Record};
use savanna_manifest::ManifestError;
use savanna_tenants_segments::TenantId;
use serde::{Deserialize, Serialize};

use crate::{
    log::{COMMIT, CREATED, DROPPED, RESERVED, UNLINKED},
    owner::RedoError,
    storage::{Storage, StorageError},
};

const FORMAT: u8 = 2;
/// Without the end of the log.
const FORMAT_WITHOUT_END: u8 = 1;
const ENTRY: &str = "roots";

/// Which tenants there were after a place in the log.
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
    /// What a storage has of them; nothing if it has none.
    pub(crate) async fn read(storage: &Storage) -> Result<Self, StorageError> {
        let reader = storage.reader(&storage.roots_prefix());
        let snapshot = match reader.current().await {
            Ok(snapshot) => snapshot,
            Err(ManifestError::NoManifest { .. }) => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        match snapshot.entries.get(ENTRY) {
            Some(object) => Self::decode(&reader.read(object).await?),
            None => Ok(Self::default()),
        }
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

    /// Takes in what the log says of tenants behind them.
    pub(crate) fn follow(&mut self, records: &[Record]) -> Result<(), RedoError> {
        for record in records.iter().filter(|record| record.lsn.0 > self.at) {
            let tenant = record.shard;
            match record.kind {
                CREATED => {
                    let name = str::from_utf8(&record.payload).map_err(|_| RedoError::Name)?;
                    self.reserved.remove(&tenant);
                    self.tenants.insert(tenant, name.to_owned());
                }
                DROPPED => {
                    self.tenants.remove(&tenant);
                    self.reserved.remove(&tenant);
                    self.removed.insert(tenant);
                }
                RESERVED => drop(self.reserved.insert(tenant)),
                COMMIT | UNLINKED if !self.tenants.contains_key(&tenant) && !self.removed.contains(&tenant) => {
                    return Err(RedoError::NoTenant(tenant));
                }
                _ => continue,
            }
            self.last = self.last.max(tenant);
        }
        Ok(())
    }

    /// Up to where they know of the log.
    pub(crate) fn listed(&self) -> Lsn {
        Lsn(self.at.max(self.end))
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
        assert_eq!(Roots::decode(&bytes).unwrap(), roots);
        assert!(Roots::decode(&[3]).is_err() && Roots::decode(&[]).is_err() && Roots::decode(&bytes[..5]).is_err());
        let former = [&[1], &bytes[1..bytes.len() - 2]].concat();
        assert_eq!(Roots::decode(&former).unwrap(), Roots { end: 0, ..roots });
    }
}
