//! Records, snapshots and a sink in memory, which outlive queries.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_runtime::driver::{EpochRecord, Outcome};
use savanna_streams_runtime::records::{EpochLog, WhenDurable};
use savanna_streams_runtime::snapshot::{Manifest, Part, PartFile, Snapshot, SnapshotStore, State};
use savanna_streams_runtime::{LookupStore, Query, RuntimeOptions, Survival};

use crate::graphs::functions;
use crate::memory::Memory;

/// Far beyond what any of these tests needs; only a hang reaches it.
pub(crate) const FOREVER: Duration = Duration::from_secs(600);

/// What outlives a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) records: Arc<Mutex<Vec<EpochRecord>>>,
    pub(crate) sink: Arc<Mutex<BTreeMap<Epoch, Vec<RecordBatch>>>>,
    pub(crate) parts: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    pub(crate) manifest: Arc<Mutex<Option<Manifest>>>,
    /// No part can be written.
    pub(crate) is_full: Arc<AtomicBool>,
    /// The snapshot cannot be read.
    pub(crate) is_damaged: Arc<AtomicBool>,
    /// The stages of which a member has gone on from changes.
    pub(crate) behind_changes: Arc<Mutex<BTreeSet<StageId>>>,
    /// The sink takes nothing.
    pub(crate) is_shut: Arc<AtomicBool>,
    /// Without a snapshot, all records are needed.
    pub(crate) needs_all: bool,
    /// What must not be.
    pub(crate) wrong: Arc<Mutex<Vec<String>>>,
    /// Which snapshots have counted.
    pub(crate) switched: Arc<Mutex<Vec<Epoch>>>,
}

impl EpochLog for Disk {
    fn append(&self, record: &EpochRecord, when_durable: WhenDurable) {
        self.records.lock().push(record.clone());
        when_durable(Ok(()));
    }

    fn forget_before(&self, epoch: Epoch) {
        let mut records = self.records.lock();
        records.retain(|record| record.epoch >= epoch);
    }

    fn ended(&self, _: &Outcome) {}
}

impl SnapshotStore for Disk {
    fn put(
        &self,
        epoch: Epoch,
        stage: StageId,
        shuffle: u16,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PartFile> {
        if self.is_full.load(Ordering::Acquire) {
            return Err(StreamError::io("writing a part", &"the disk is full"));
        }
        let (name, mut bytes) = (format!("{epoch}-{stage}-{shuffle}"), Vec::new());
        write(&mut bytes).map_err(|e| StreamError::io("writing a part", &e))?;
        let length = bytes.len() as u64;
        self.parts.lock().insert(name.clone(), bytes);
        Ok(PartFile { name, bytes: length, checksum: 0 })
    }

    fn switch(&self, manifest: &Manifest) -> Result<()> {
        let epoch = manifest.record.epoch;
        let held = self.sink.lock().last_key_value().map(|(epoch, _)| *epoch);
        if held < Some(epoch) {
            self.wrong.lock().push(format!("the snapshot of {epoch} counts, and the sink holds {held:?}"));
        }
        let before = self.manifest.lock().as_ref().map_or(Epoch::ZERO, |manifest| manifest.record.epoch);
        let first = self.records.lock().first().map(|record| record.epoch);
        if self.needs_all && first > Some(before.next()) {
            self.wrong.lock().push(format!("records up to {first:?} went while the snapshot of {before} counted"));
        }
        *self.manifest.lock() = Some(manifest.clone());
        self.switched.lock().push(manifest.record.epoch);
        self.tidy();
        Ok(())
    }

    fn tidy(&self) {
        let named =
            |name: &String| self.manifest.lock().iter().any(|manifest| manifest.files().any(|file| file.name == *name));
        self.parts.lock().retain(|name, _| named(name));
    }
}

impl Disk {
    /// The snapshot that counts.
    pub(crate) fn found(&self) -> Result<Option<Snapshot>> {
        if self.is_damaged.load(Ordering::Acquire) {
            return Err(StreamError::io("reading the snapshot", &"it is damaged"));
        }
        let Some(manifest) = self.manifest.lock().clone() else { return Ok(None) };
        let parts = self.parts.lock();
        let bytes = |file: &PartFile| parts.get(&file.name).cloned().ok_or_else(|| "it is gone".to_owned());
        let state = |part: &Part| {
            part.read(bytes).map_err(|(name, e)| StreamError::io("reading the snapshot", &format!("{name}: {e}")))
        };
        let states = manifest.parts.iter().map(state).collect::<Result<_>>()?;
        self.behind_changes.lock().extend(with_changes(&manifest));
        Ok(Some(Snapshot { manifest, states }))
    }

    /// What the sink holds.
    pub(crate) fn rows(&self) -> Vec<RecordBatch> {
        assert_eq!(self.wrong.lock().as_slice(), [""; 0]);
        self.sink.lock().values().flatten().cloned().collect()
    }

    /// Goes on with the query of a graph, or begins it.
    pub(crate) fn start(&self, memory: &Arc<Memory>, graph: StageGraph, options: RuntimeOptions) -> Result<Arc<Query>> {
        let id = QueryId { code: "0123456789ab".into(), job: 1 };
        self.start_as(id, memory, graph, options)
    }

    pub(crate) fn start_as(
        &self,
        id: QueryId,
        memory: &Arc<Memory>,
        graph: StageGraph,
        options: RuntimeOptions,
    ) -> Result<Arc<Query>> {
        let records = self.records.lock().clone();
        let found = self.found();
        let log = Arc::new(self.clone());
        let survival = Survival {
            log: Arc::clone(&log) as _,
            records,
            snapshots: Some(log),
            lookups: Arc::new(NoLookups),
            found,
            taking: None,
        };
        let sink = Box::new(Judge(self.clone()));
        Query::start_recorded(id, graph, functions(), Arc::clone(memory) as _, sink, options, survival)
    }
}

/// The stages of which a member has changes in a snapshot.
pub(crate) fn with_changes(manifest: &Manifest) -> impl Iterator<Item = StageId> {
    manifest.parts.iter().filter(|part| !part.changes.is_empty()).map(|part| part.stage)
}

/// None of the queries looks rows up.
#[derive(Debug)]
struct NoLookups;

impl LookupStore for NoLookups {
    fn put(&self, _: u16, _: &State) -> Result<u64> {
        unreachable!("nothing is read for a look-up")
    }

    fn read(&self, _: u16, _: u64) -> Result<State> {
        unreachable!("nothing was read for a look-up")
    }

    fn forget(&self, _: u16, _: u64) {}
    fn keep_only(&self, _: u16, _: &BTreeSet<u64>) {}
}

/// A sink that stores epochs with their rows.
struct Judge(Disk);

impl Sink for Judge {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(self.0.sink.lock().last_key_value().map(|(epoch, _)| *epoch))
    }

    fn commit(&mut self, _: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if self.0.is_shut.load(Ordering::Acquire) {
            return Err(StreamError::io("writing the test's sink", &"it is shut"));
        }
        let mut held = self.0.sink.lock();
        if held.last_key_value().is_none_or(|(last, _)| epoch > *last) {
            held.insert(epoch, rows.to_vec());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < FOREVER, "{what}");
        thread::sleep(Duration::from_micros(50));
    }
}
