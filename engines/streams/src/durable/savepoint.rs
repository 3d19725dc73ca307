//! Savepoints: a stopped query in a directory, with all that another node needs to go on with it.
//!
//! ```text
//!   savepoint                         the query, the records behind its snapshot, and the snapshot's manifest
//!   <owner>-<epoch>-<stage>-<part>    the state of a member
//! ```
//!
//! The query keeps its id, by which its sink knows it: what the sink holds is not written again, wherever the query goes on.

use std::path::Path;
use std::sync::Arc;

use savanna_journal::{Disk, OsDisk};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::driver::EpochRecord;
use savanna_streams_runtime::snapshot::{Manifest, Snapshot, write_state};
use serde::{Deserialize, Serialize};

use super::snapshots::{read_parts, write_file};
use super::stored::{StoredQuery, decode, encode};

const SAVEPOINT: &str = "savepoint";
const NEXT: &str = "savepoint.next";
/// A savepoint that is longer is none: it has 300 bytes for each epoch behind the snapshot.
const SAVEPOINT_MAX: u64 = 1 << 30;

/// What a savepoint has beside the parts of the snapshot.
#[derive(Serialize, Deserialize)]
struct Saved {
    query: StoredQuery,
    records: Vec<EpochRecord>,
    manifest: Option<Manifest>,
}

/// A query that was saved.
#[derive(Debug)]
pub(crate) struct Savepoint {
    pub(crate) query: StoredQuery,
    pub(crate) records: Vec<EpochRecord>,
    pub(crate) snapshot: Option<Snapshot>,
}

impl Savepoint {
    /// Writes it to a directory that has none. It is there as a whole or not at all.
    ///
    /// # Errors
    /// It cannot be written, or the directory has something in it.
    pub(crate) fn write(self, directory: &Path) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| {
            StreamError::io(format!("write the savepoint {}", directory.display()), &error.to_string())
        };
        let disk = OsDisk::new(directory);
        if !disk.list().map_err(|e| failed(&e))?.is_empty() {
            return Err(failed(&"there is something in it; name a directory that is empty or not there"));
        }
        let manifest = match self.snapshot {
            None => None,
            Some(Snapshot { mut manifest, states }) => {
                for (part, state) in manifest.parts.iter_mut().zip(&states) {
                    let written = write_file(&disk, &part.name, &mut |out| write_state(state, out));
                    (part.bytes, part.checksum) = written.map_err(|e| failed(&e))?;
                }
                Some(manifest)
            }
        };
        let record = encode(&Saved { query: self.query, records: self.records, manifest })?;
        let write = || {
            write_file(&disk, NEXT, &mut |out| {
                out.write_all(&crc32c::crc32c(&record).to_le_bytes())?;
                out.write_all(&record)
            })?;
            disk.sync_dir()?;
            disk.rename(NEXT, SAVEPOINT)?;
            disk.sync_dir()
        };
        write().map_err(|e| failed(&e))
    }

    /// Reads it.
    ///
    /// # Errors
    /// There is none, or it is damaged: with file and place.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let failed = |cause: &str| StreamError::io(format!("read the savepoint {}", directory.display()), &cause);
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory));
        let bytes = disk.read(SAVEPOINT, SAVEPOINT_MAX).map_err(|e| failed(&format!("{SAVEPOINT}: {e}")))?;
        let saved = match bytes.split_first_chunk::<4>() {
            Some((checksum, rest)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(rest) => decode(rest),
            _ => Err("it is damaged: its bytes do not have its checksum".to_owned()),
        };
        let Saved { query, records, manifest } = saved.map_err(|cause| failed(&format!("{SAVEPOINT}: {cause}")))?;
        let snapshot = manifest.map(|manifest| {
            let states =
                read_parts(disk.as_ref(), &manifest).map_err(|(name, cause)| failed(&format!("{name}: {cause}")))?;
            Ok(Snapshot { manifest, states })
        });
        Ok(Self { query, records, snapshot: snapshot.transpose()? })
    }
}
