//! The tables of a query's look-ups as they were read, on a disk.
//!
//! ```text
//!   <look-up>-<version>     what was read, in the form of a state, and its CRC-32C
//! ```
//!
//! Nothing is written over. Which versions are needed is said by the records of epochs, and by the snapshot that counts: a version goes
//! when the records that name it have gone.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use savanna_journal::{Disk, DiskFile};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::LookupStore;
use savanna_streams_runtime::driver::EpochRecord;
use savanna_streams_runtime::snapshot::{State, read_state, write_state};

use super::snapshots::{Appended, Summed, WRITE_BYTES, numbers};

/// The tables of one query.
pub(crate) struct QueryLookups {
    disk: Arc<dyn Disk>,
    /// Makes the directory.
    make: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

impl fmt::Debug for QueryLookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryLookups").field("directory", &self.disk.describe("")).finish_non_exhaustive()
    }
}

fn named(lookup: u16, version: u64) -> String {
    format!("{lookup}-{version}")
}

/// The look-up and the version of a file; none if it is not one of these.
fn parse(name: &str) -> Option<(u16, u64)> {
    let [lookup, version] = numbers(name)?;
    Some((u16::try_from(lookup).ok()?, version))
}

impl QueryLookups {
    pub(crate) fn new(disk: Arc<dyn Disk>, make: Box<dyn Fn() -> Result<()> + Send + Sync>) -> Self {
        Self { disk, make }
    }

    /// Puts a version of another node in.
    ///
    /// # Errors
    /// It is there already, or cannot be written.
    pub(crate) fn put_in(&self, lookup: u16, version: u64, rows: &State) -> Result<()> {
        (self.make)()?;
        let name = named(lookup, version);
        let file = self.disk.create(&name).map_err(|e| self.failed(&name, &e))?;
        self.write(&name, file, rows)
    }

    /// Removes the versions of each look-up before these: no record names them any more.
    pub(crate) fn forget_before(&self, versions: &[u64]) {
        if versions.is_empty() {
            return;
        }
        self.remove(|lookup, version| versions.get(usize::from(lookup)).is_some_and(|first| version < *first));
    }

    /// Drops the records up to the last one that names a version which is not there: they had been forgotten, and the journal still
    /// has them after a crash. What the last record names must be there; where it is not, all of them stay, and who reads it says so.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn drop_forgotten(&self, records: &mut Vec<EpochRecord>) -> Result<()> {
        if records.iter().all(|record| record.lookups.is_empty()) {
            return Ok(());
        }
        let there: BTreeSet<(u16, u64)> = self.versions()?.into_iter().collect();
        let is_gone = |record: &EpochRecord| {
            (0_u16..).zip(&record.lookups).any(|(lookup, version)| !there.contains(&(lookup, *version)))
        };
        let kept = records.iter().rposition(is_gone).map_or(0, |last| last + 1);
        if kept < records.len() {
            records.drain(..kept);
        }
        Ok(())
    }

    fn versions(&self) -> Result<Vec<(u16, u64)>> {
        let names = self.disk.list().map_err(|e| self.unreadable("", &e.to_string()))?;
        Ok(names.iter().filter_map(|name| parse(name)).collect())
    }

    fn write(&self, name: &str, file: Box<dyn DiskFile>, rows: &State) -> Result<()> {
        let write = || -> io::Result<()> {
            let mut out = io::BufWriter::with_capacity(WRITE_BYTES, Summed::new(Appended { file, at: 0 }));
            write_state(rows, &mut out)?;
            let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            let checksum = file.checksum;
            file.out.write_all(&checksum.to_le_bytes())?;
            file.out.file.sync()?;
            self.disk.sync_dir()
        };
        write().map_err(|error| {
            if let Err(error) = self.disk.remove(name) {
                tracing::warn!(file = self.disk.describe(name), %error, "what is left of a table for look-ups stays");
            }
            self.failed(name, &error)
        })
    }

    fn remove(&self, is_over: impl Fn(u16, u64) -> bool) {
        let removed = self.versions().and_then(|versions| {
            let over = versions.into_iter().filter(|(lookup, version)| is_over(*lookup, *version));
            over.map(|(lookup, version)| named(lookup, version))
                .try_for_each(|name| self.disk.remove(&name).map_err(|e| self.failed(&name, &e)))
        });
        if let Err(error) = removed {
            tracing::warn!(%error, "tables for look-ups that are not needed any more stay");
        }
    }

    fn unreadable(&self, name: &str, cause: &str) -> StreamError {
        let cause = format!("{cause}; restore it, or drop the query and start it again");
        StreamError::io(format!("read the table for look-ups in {}", self.disk.describe(name)), &cause)
    }

    fn failed(&self, name: &str, error: &dyn fmt::Display) -> StreamError {
        StreamError::io(format!("write {}", self.disk.describe(name)), &error.to_string())
    }
}

impl LookupStore for QueryLookups {
    fn put(&self, lookup: u16, rows: &State) -> Result<u64> {
        (self.make)()?;
        let of_lookup = |(of, version): (u16, u64)| (of == lookup).then_some(version);
        let mut version = self.versions()?.into_iter().filter_map(of_lookup).max().unwrap_or(0) + 1;
        loop {
            let name = named(lookup, version);
            match self.disk.create(&name) {
                Ok(file) => return self.write(&name, file, rows).map(|()| version),
                // A former process that was paused has written late.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => version += 1,
                Err(error) => return Err(self.failed(&name, &error)),
            }
        }
    }

    fn read(&self, lookup: u16, version: u64) -> Result<State> {
        let name = named(lookup, version);
        let bytes = self.disk.read(&name, u64::MAX).map_err(|e| self.unreadable(&name, &e.to_string()))?;
        let state = match bytes.split_last_chunk::<4>() {
            Some((state, checksum)) if u32::from_le_bytes(*checksum) == crc32c::crc32c(state) => read_state(state),
            _ => Err(format!("it is damaged: its {} bytes do not have its checksum", bytes.len())),
        };
        state.map_err(|cause| self.unreadable(&name, &cause))
    }

    fn forget(&self, lookup: u16, version: u64) {
        self.remove(|of, other| (of, other) == (lookup, version));
    }

    fn keep_only(&self, lookup: u16, versions: &BTreeSet<u64>) {
        self.remove(|of, version| of == lookup && !versions.contains(&version));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use savanna_journal::sim::SimDisk;
    use savanna_streams_api::ids::Epoch;
    use savanna_streams_model::time::EventTime;

    use super::*;

    fn rows(numbers: &[i64]) -> State {
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut state = State::default();
        state.put("table t (n Int64)", [0; 2], rows);
        state
    }

    fn open(disk: &Arc<SimDisk>) -> QueryLookups {
        QueryLookups::new(Arc::clone(disk) as _, Box::new(|| Ok(())))
    }

    fn names(disk: &Arc<SimDisk>) -> Vec<String> {
        let mut names = disk.list().unwrap();
        names.sort_unstable();
        names
    }

    #[test]
    fn versions_are_durable_numbered_and_never_written_over() {
        let disk = SimDisk::new(1);
        let lookups = open(&disk);
        assert_eq!((lookups.put(0, &rows(&[1])).unwrap(), lookups.put(1, &rows(&[2])).unwrap()), (1, 1));
        assert_eq!(lookups.put(0, &rows(&[3, 4])).unwrap(), 2);
        disk.crash();
        let lookups = open(&disk);
        assert_eq!(lookups.read(0, 1).unwrap(), rows(&[1]));
        assert_eq!(lookups.read(0, 2).unwrap(), rows(&[3, 4]));
        assert!(lookups.put_in(0, 2, &rows(&[5])).is_err());
        assert_eq!(lookups.read(0, 2).unwrap(), rows(&[3, 4]));
        assert_eq!(lookups.put(0, &rows(&[])).unwrap(), 3);
        assert_eq!(lookups.read(0, 3).unwrap(), rows(&[]));
    }

    #[test]
    fn what_no_record_names_any_more_goes_and_nothing_else() {
        let disk = SimDisk::new(1);
        let lookups = open(&disk);
        for lookup in [0, 0, 0, 1, 1] {
            lookups.put(lookup, &rows(&[1])).unwrap();
        }
        lookups.forget_before(&[2, 1]);
        assert_eq!(names(&disk), ["0-2", "0-3", "1-1", "1-2"]);
        lookups.keep_only(0, &[2].into());
        assert_eq!(names(&disk), ["0-2", "1-1", "1-2"]);
        lookups.forget_before(&[]);
        assert_eq!(names(&disk).len(), 3);
        lookups.forget(1, 1);
        assert_eq!(names(&disk), ["0-2", "1-2"]);
    }

    #[test]
    fn records_whose_tables_were_forgotten_go_unless_the_last_is_one_of_them() {
        let disk = SimDisk::new(1);
        let lookups = open(&disk);
        for _ in 0..3 {
            lookups.put(0, &rows(&[1])).unwrap();
        }
        lookups.forget_before(&[3]);
        let record = |(epoch, version): (u64, u64)| EpochRecord {
            epoch: Epoch(epoch),
            processing_time: EventTime::MAX,
            sources: Vec::new(),
            committed: Epoch::ZERO,
            lookups: vec![version],
            layout: savanna_streams_runtime::driver::Layout::default(),
        };
        let left = |versions: &[(u64, u64)]| {
            let mut records = versions.iter().copied().map(record).collect();
            lookups.drop_forgotten(&mut records).unwrap();
            records.iter().map(|record| record.epoch.0).collect::<Vec<_>>()
        };
        assert_eq!(left(&[(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)]), [4, 5]);
        assert_eq!(left(&[(4, 3), (5, 3)]), [4, 5]);
        assert_eq!(left(&[(3, 2), (4, 3), (5, 4)]), [3, 4, 5], "its table was not forgotten, but lost");
    }

    #[test]
    fn a_table_that_is_damaged_or_gone_says_where() {
        let disk = SimDisk::new(1);
        let lookups = open(&disk);
        lookups.put(0, &rows(&[1, 2, 3])).unwrap();
        let bytes = disk.read("0-1", u64::MAX).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            disk.remove("0-1").unwrap();
            disk.create("0-1").unwrap().write_at(&damaged, 0).unwrap();
            let error = lookups.read(0, 1).unwrap_err().to_string();
            assert!(error.contains("0-1") && error.contains("it is damaged"), "{error}");
        }
        let error = lookups.read(0, 7).unwrap_err().to_string();
        assert!(error.contains("0-7") && error.contains("drop the query"), "{error}");
    }
}
