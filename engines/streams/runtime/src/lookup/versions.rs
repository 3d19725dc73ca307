//! Which version of a look-up's table holds in which epoch.
//!
//! A table is read when the query begins, and anew as often as it says. What was read is a version. An epoch has one version in all
//! instances of a stage: that of its record if it was recorded, otherwise the newest when somebody first asks for it. A version is
//! durable before any epoch has it, and the record of an epoch names it: so a replay looks rows up in what they were looked up in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use parking_lot::Mutex;
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::Lookup;
use savanna_streams_model::source::ScanSpec;

use super::LookupTable;
use crate::chain::Chain;
use crate::driver::EpochRecord;
use crate::error::broken;
use crate::snapshot::{State, check_columns, columns};

/// Where the tables of a query's look-ups are kept as they were read.
pub trait LookupStore: Debug + Send + Sync {
    /// Keeps what was read of a look-up's table, which is durable then. Tells its number, which is above all others of this look-up.
    ///
    /// # Errors
    /// It cannot be written.
    fn put(&self, lookup: u16, rows: &State) -> Result<u64>;

    /// What was kept under a number.
    ///
    /// # Errors
    /// It is gone, damaged, or cannot be read: with file and place.
    fn read(&self, lookup: u16, version: u64) -> Result<State>;

    /// Removes a version that nothing names.
    fn forget(&self, lookup: u16, version: u64);

    /// Removes all others than these of a look-up.
    fn keep_only(&self, lookup: u16, versions: &BTreeSet<u64>);
}

/// The versions of the table of one look-up. Shared by all instances of a stage.
pub(crate) struct Versions {
    /// The look-up's number in its query.
    lookup: u16,
    store: Option<Arc<dyn LookupStore>>,
    making: Mutex<Making>,
    known: Mutex<Known>,
    /// How many look rows up here.
    instances: AtomicUsize,
}

/// Makes tables of what was read.
struct Making {
    chain: Chain,
    keys: Vec<usize>,
    /// What the rows are, in words.
    words: String,
}

#[derive(Default)]
struct Known {
    /// The versions of epochs: each from its epoch on, until the next one.
    since: Vec<(Epoch, u64)>,
    /// Of epochs up to this one it is known.
    decided: Epoch,
    newest: u64,
    tables: BTreeMap<u64, Arc<LookupTable>>,
}

impl Versions {
    /// The versions that the epochs of these records had; they follow each other.
    ///
    /// # Errors
    /// A record names none, or what the last of them had cannot be read.
    pub(crate) fn new(
        number: u16,
        lookup: &Lookup,
        functions: &Arc<TaskContext>,
        store: Option<Arc<dyn LookupStore>>,
        records: &[EpochRecord],
    ) -> Result<Self> {
        let (chain, keys) = (Chain::decode(&lookup.chain, functions)?, lookup.table_keys.clone());
        let making = Mutex::new(Making { chain, keys, words: words(&lookup.table) });
        let known = Known::of(recorded_versions(number, &lookup.table, records)?);
        Ok(Self { lookup: number, store, making, known: Mutex::new(known), instances: AtomicUsize::new(0) })
    }

    /// Whether a version is there already, so that none need be read first.
    pub(crate) fn is_known(&self) -> bool {
        self.known.lock().newest > 0
    }

    /// One more that looks rows up here.
    pub(crate) fn join(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
    }

    /// An instance's share of the memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let all: usize = self.known.lock().tables.values().map(|table| table.bytes).sum();
        all / self.instances.load(Ordering::Relaxed).max(1)
    }

    /// What was read is the newest version from now on, unless it is what the newest is. It is kept before anybody sees it.
    ///
    /// # Errors
    /// A value cannot be computed, or it cannot be kept.
    pub(crate) fn add(&self, rows: Vec<RecordBatch>) -> Result<()> {
        let (words, table) = {
            let mut making = self.making.lock();
            (making.words.clone(), Arc::new(making.table(&rows)?))
        };
        if self.known.lock().newest_is(&table) {
            return Ok(());
        }
        let version = match &self.store {
            Some(store) => {
                let mut state = State::default();
                rows.into_iter().for_each(|rows| state.put(&words, [0; 2], rows));
                Some(store.put(self.lookup, &state)?)
            }
            None => None,
        };
        let unused = {
            let mut known = self.known.lock();
            let newest = version.unwrap_or(known.newest + 1);
            known.add(newest, table)
        };
        if let (Some(store), Some(unused)) = (&self.store, unused) {
            store.forget(self.lookup, unused);
        }
        Ok(())
    }

    /// The version of an epoch. If it is not known yet, it is the newest from now on.
    pub(crate) fn version_of(&self, epoch: Epoch) -> u64 {
        self.known.lock().version_of(epoch)
    }

    /// The table as it is in an epoch.
    ///
    /// # Errors
    /// There is none yet, or it was kept and cannot be read.
    pub(crate) fn of(&self, epoch: Epoch) -> Result<Arc<LookupTable>> {
        let mut known = self.known.lock();
        let version = known.version_of(epoch);
        if let Some(table) = known.tables.get(&version) {
            return Ok(Arc::clone(table));
        }
        let Some(store) = self.store.as_ref().filter(|_| version > 0) else {
            return Err(broken("a row came before the table that it is looked up in"));
        };
        let table = Arc::new(self.making.lock().restored(store.read(self.lookup, version)?)?);
        known.tables.insert(version, Arc::clone(&table));
        Ok(table)
    }

    /// How many rows the table has in an epoch.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn rows_in(&self, epoch: Epoch) -> Result<u64> {
        Ok(self.of(epoch)?.rows.num_rows() as u64)
    }

    /// No epoch before this one is computed any more.
    pub(crate) fn passed(&self, epoch: Epoch) {
        self.known.lock().passed(epoch);
    }

    /// What was kept and no epoch from the first known one on has goes.
    pub(crate) fn tidy(&self) {
        if let Some(store) = &self.store {
            let versions = self.known.lock().since.iter().map(|(_, version)| *version).collect();
            store.keep_only(self.lookup, &versions);
        }
    }
}

/// What the rows of a look-up's table are, in words.
pub(super) fn words(table: &ScanSpec) -> String {
    let mut words = format!("table {} ({})", table.table.name, columns(&table.schema()));
    for condition in &table.equal_to {
        words += &format!(", {} = {:?}", condition.path.0.join("."), condition.value);
    }
    words
}

/// Which versions of a look-up's table the epochs of records had.
///
/// # Errors
/// A record names none.
pub(super) fn recorded_versions(number: u16, table: &ScanSpec, records: &[EpochRecord]) -> Result<Vec<(Epoch, u64)>> {
    let version = |record: &EpochRecord| {
        let version = record.lookups.get(usize::from(number)).copied().ok_or_else(|| {
            StreamError::invalid(format!(
                "the record of epoch {} does not say in which version of table {} rows were looked up; drop the query and start it again",
                record.epoch, table.table.name
            ))
        })?;
        Ok((record.epoch, version))
    };
    records.iter().map(version).collect()
}

impl Making {
    fn table(&mut self, rows: &[RecordBatch]) -> Result<LookupTable> {
        let mut batches = Vec::new();
        for rows in rows {
            batches.extend(self.chain.apply(rows.clone())?);
        }
        LookupTable::new(self.chain.output(), &batches, &self.keys)
    }

    fn restored(&mut self, state: State) -> Result<LookupTable> {
        let rows: Vec<RecordBatch> = (state.tables.into_iter())
            .map(|table| match table.name == self.words {
                true => check_columns(&table.rows, self.chain.input()).map(|()| table.rows),
                false => Err(StreamError::invalid(format!(
                    "what was read for look-ups does not fit what this release would look up in (expected {}, got {}); go on with the \
                     release that read it, or drop the query and start it again",
                    self.words, table.name
                ))),
            })
            .collect::<Result<_>>()?;
        self.table(&rows)
    }
}

impl Known {
    /// What records say of epochs that follow each other.
    fn of(recorded: Vec<(Epoch, u64)>) -> Self {
        let mut known = Self::default();
        for (epoch, version) in recorded {
            known.newest = known.newest.max(version);
            known.note(epoch, version);
        }
        known
    }

    fn newest_is(&self, table: &LookupTable) -> bool {
        self.tables.get(&self.newest).is_some_and(|newest| newest.rows == table.rows)
    }

    /// Takes a newest version. Tells the former one if no epoch has it: it is not needed.
    fn add(&mut self, version: u64, table: Arc<LookupTable>) -> Option<u64> {
        let former = std::mem::replace(&mut self.newest, version);
        self.tables.insert(version, table);
        match self.since.last() {
            // Whichever epoch asks first, those before it have a version as well.
            None => self.since.push((Epoch::ZERO, version)),
            Some((_, last)) if *last != former => {
                self.tables.remove(&former);
                return Some(former);
            }
            Some(_) => {}
        }
        None
    }

    fn note(&mut self, epoch: Epoch, version: u64) {
        self.decided = epoch;
        if self.since.last().is_none_or(|(_, last)| *last != version) {
            self.since.push((epoch, version));
        }
    }

    fn version_of(&mut self, epoch: Epoch) -> u64 {
        if epoch > self.decided && self.newest > 0 {
            self.note(epoch, self.newest);
        }
        self.place(epoch).map_or(0, |place| self.since[place].1)
    }

    /// Where the version of an epoch stands.
    fn place(&self, epoch: Epoch) -> Option<usize> {
        self.since.partition_point(|(from, _)| *from <= epoch).checked_sub(1)
    }

    fn passed(&mut self, epoch: Epoch) {
        if let Some(place) = self.place(epoch) {
            self.since.drain(..place);
            let first = self.since[0].1;
            self.tables.retain(|version, _| *version >= first);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn table(number: i64) -> Arc<LookupTable> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![number]));
        let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        Arc::new(LookupTable::new(&rows.schema(), &[rows], &[0]).unwrap())
    }

    #[test]
    fn a_recorded_epoch_has_the_version_of_its_record_and_a_later_one_the_newest() {
        let recorded = [(5, 2), (6, 2), (7, 3), (8, 6)].map(|(epoch, version)| (Epoch(epoch), version));
        let mut known = Known::of(recorded.to_vec());
        for (epoch, version) in recorded.into_iter().chain([(Epoch(9), 6)]) {
            assert_eq!(known.version_of(epoch), version, "epoch {epoch}");
        }
    }

    #[test]
    fn an_epoch_that_asks_behind_a_later_one_has_a_version_too() {
        let mut known = Known::default();
        known.add(4, table(4));
        assert_eq!((known.version_of(Epoch(2)), known.version_of(Epoch(1))), (4, 4));
        known.add(5, table(5));
        assert_eq!((known.version_of(Epoch(3)), known.version_of(Epoch(1))), (5, 4));
    }

    #[test]
    fn a_version_that_no_epoch_had_goes_with_the_next_one() {
        let mut known = Known::default();
        assert_eq!((known.add(1, table(1)), known.version_of(Epoch(1))), (None, 1));
        assert_eq!(known.add(2, table(2)), None, "the first epoch has the former");
        for version in 3..100 {
            assert_eq!(known.add(version, table(0)), Some(version - 1));
            assert_eq!(known.tables.len(), 2);
        }
        assert_eq!((known.version_of(Epoch(2)), known.version_of(Epoch(1))), (99, 1));
        assert!(known.newest_is(&table(0)) && !known.newest_is(&table(1)));
    }
}
