//! A query is put together, and begins.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use datafusion::execution::TaskContext;
use parking_lot::{Condvar, Mutex};
use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_model::graph::{Operator, StageGraph};
use savanna_streams_model::sink::{Room, Sink};
use savanna_streams_model::source::{Connectors, Repeats};
use savanna_streams_model::time::EventTime;

use super::again::Again;
use super::control::Control;
use super::drivers::Mailbox;
use super::forgetting::Forgetting;
use super::groups::{FunctionGroups, Seat};
use super::growth::{Growing, Growth, Later, Parts};
use super::keeping::Keeping;
use super::life::Ready;
use super::memory::Memory;
use super::partition::{ScanLimits, ScanPartition};
use super::progress::Progress;
use super::snapshots::Snapshotting;
use super::sources::{Partition, standings};
use super::stages::WithoutTime;
use super::standings::Standings;
use super::survival::{Beginning, Recording, Survival, delivery};
use super::{Leaving, Query, Shared};
use crate::clock::Instants;
use crate::cloud::remote::{self, Deploying};
use crate::driver::{Driver, DriverOptions};
use crate::lookup::Table;
use crate::options::RuntimeOptions;
use crate::scan::ScanOperator;
use crate::snapshot::Due;
use crate::topology::Topology;

/// What all source partitions of a query have in common.
pub(super) struct Common {
    pub(super) topology: Topology,
    pub(super) groups: Arc<FunctionGroups>,
    pub(super) driver: Mailbox,
    pub(super) progress: Arc<Progress>,
    pub(super) memory: Arc<Memory>,
    pub(super) snapshots: Option<Arc<Snapshotting>>,
    pub(super) instants: Arc<Instants>,
    pub(super) standings: Option<Arc<Standings>>,
    pub(super) room: Option<Room>,
    pub(super) without_time: WithoutTime,
    pub(super) limits: ScanLimits,
    pub(super) growing: Growing,
}

/// A query that is being put together.
pub(super) struct Starting {
    pub(super) id: QueryId,
    pub(super) graph: StageGraph,
    pub(super) functions: Arc<TaskContext>,
    pub(super) connectors: Arc<dyn Connectors>,
    pub(super) options: RuntimeOptions,
    /// The tables of each stage's look-ups.
    pub(super) lookups: BTreeMap<StageId, Vec<Table>>,
    pub(super) survival: Option<Survival>,
    /// The epoch of which a snapshot is made.
    pub(super) due: Due,
    /// The epoch of the snapshot that counts.
    pub(super) counts: Epoch,
}

impl Starting {
    /// A query that ends with its process.
    pub(super) fn new(
        id: QueryId,
        graph: StageGraph,
        functions: Arc<TaskContext>,
        connectors: Arc<dyn Connectors>,
        options: RuntimeOptions,
    ) -> Self {
        Self {
            id,
            graph,
            functions,
            connectors,
            options,
            lookups: BTreeMap::new(),
            survival: None,
            due: Due::default(),
            counts: Epoch::ZERO,
        }
    }

    pub(super) fn start(mut self, mut sink: Box<dyn Sink>) -> Result<Arc<Query>> {
        self.check_late_tables()?;
        self.check_cloud()?;
        let delivery = delivery(&self.graph, self.connectors.as_ref(), sink.delivery())?;
        self.begin_at_snapshot()?;
        let mut sources = self.sources()?;
        let (layout, more) = match &self.survival {
            Some(survival) => self.lay_out(&mut sources, &survival.records)?,
            None => self.lay_out(&mut sources, &[])?,
        };
        let Beginning { behind, records, snapshot } = self.records(sink.as_mut(), &sources)?;
        let from = behind.as_ref().map_or(Epoch::ZERO, |record| record.epoch);
        let (lookups, tables) = self.open_lookups(from)?;
        let later = Later::new(sources.total(), &layout, behind.as_ref(), &records);
        let partitions = self.open_sources(&sources, &layout, behind.as_ref())?;
        let of_stage = |partitions: &[Partition<'_>], stage: StageId| {
            partitions.iter().filter(|partition| partition.stage.id == stage).count()
        };
        let first = &partitions[..later.first.min(partitions.len())];
        let at_first: Vec<usize> = self.graph.stages.iter().map(|stage| of_stage(first, stage.id)).collect();
        let per_stage: Vec<usize> = self.graph.stages.iter().map(|stage| of_stage(&partitions, stage.id)).collect();
        let topology = Topology::new(&self.id, &self.graph, &at_first, self.options.members)?;
        for (place, partition) in partitions.iter().enumerate() {
            if let Some((epoch, _)) = later.of(place) {
                topology.join(partition.stage.id, epoch);
            }
        }
        let loads = tables.iter().any(|table| !table.versions.is_known());
        let progress = Arc::new(Progress::new(partitions.len(), loads));
        progress.begin_behind(from);
        for table in tables.iter().filter(|table| table.versions.is_known()) {
            // An error of the disk is one of going on.
            progress.loaded(table.versions.rows_in(from.next())?);
        }
        let instances = |stage: StageId| usize::from(topology.members(stage)).max(per_stage[usize::from(stage.0)]);
        let memory = Arc::new(Memory::new(&self.graph, instances, self.options.memory_limit));
        let driver = Mailbox::new()?;
        let room = sink.room();
        let forgetting =
            Arc::new(Forgetting::new(partitions.iter().map(|partition| partition.reader.forgets()).collect()));
        let recording = match &self.survival {
            Some(survival) => {
                Some(Recording::new(survival, self.reach(&sources)?, behind.as_ref(), Arc::clone(&forgetting)))
            }
            None => None,
        };
        let recorded = recording.as_ref().map_or(Epoch::ZERO, |recording| recording.recorded);
        let (mut members, give_up) =
            self.members(&topology, &progress, &driver, sink, recording.as_ref(), sources.total())?;
        let rows_at = snapshot.as_ref().map_or(EventTime::MIN, |snapshot| snapshot.manifest.rows_at);
        let snapshots = self.snapshots(&topology, &mut members, &sources, snapshot, recorded, &forgetting, &memory)?;
        let (snapshots, no_snapshots) = match snapshots {
            Ok(snapshots) => (Some(snapshots), String::new()),
            Err(reason) => (None, reason),
        };
        let stopped = Arc::new(AtomicBool::new(false));
        let without_time = self.without_time(&partitions);
        let remotes = remote::deploy(&Deploying {
            query: &self.id,
            graph: &self.graph,
            topology: &topology,
            functions: &self.functions,
            options: &self.options,
            progress: &progress,
            stopped: &stopped,
            without_time: &without_time,
        })?;
        let here = members
            .into_iter()
            .map(|stage| stage.into_iter().map(|member| Seat::Here(Box::new(member.behind(from)))).collect::<Vec<_>>());
        let mut seats: Vec<_> = here.collect();
        for (seats, remotes) in seats.iter_mut().zip(remotes) {
            seats.extend(remotes.into_iter().map(Seat::There));
        }
        let groups = Arc::new(FunctionGroups::new(
            seats,
            self.options.invoker.build(),
            Arc::clone(&progress),
            Arc::clone(&memory),
            self.options.max_backoff,
            self.options.backoff_sleep,
            stopped,
        ));
        let limits = self.limits(partitions.len());
        // That of the epoch behind which it begins, too: time does not go back.
        let known = behind.iter().chain(&records).map(|record| (record.epoch, record.processing_time)).collect();
        let instants = Arc::new(Instants::new(Arc::clone(&self.options.clock), known));
        let standings = standings(&self.graph, &partitions).map(Arc::new);
        let mark_of = |source: usize| behind.as_ref().and_then(|record| record.sources.get(source));
        let ended: Vec<bool> =
            (0..partitions.len()).map(|source| mark_of(source).is_some_and(|mark| mark.ended)).collect();
        let sealed_at = behind.as_ref().map_or(EventTime::MIN, |record| record.processing_time);
        let common = Common {
            topology,
            groups: Arc::clone(&groups),
            driver: driver.clone(),
            progress: Arc::clone(&progress),
            memory: Arc::clone(&memory),
            snapshots: snapshots.clone(),
            instants,
            standings,
            room,
            without_time,
            limits,
            growing: Growing::default(),
        };
        let mut scans = Vec::with_capacity(partitions.len());
        for (source, mut partition) in partitions.into_iter().enumerate() {
            let marks: VecDeque<_> = records.iter().filter_map(|record| record.sources.get(source).cloned()).collect();
            let again = Again::new(marks, partition.repeats == Repeats::ByEvents);
            if let Some(end) = again.end() {
                partition.reader.hurry(end);
            }
            let mut scan = self.scan_partition(partition, &common, source, again, from)?;
            if let Some(mark) = mark_of(source) {
                scan.operator.splits().begin_at(mark);
            }
            if let Some((epoch, reached)) = later.of(source) {
                scan.operator.splits().join_at(reached);
                scan.behind = Epoch(epoch.0.saturating_sub(1));
            }
            scan.ended = ended[source];
            scans.push(scan);
        }
        let of_driver = Driver::going_on(later.first, self.driver_options(), from, recorded)
            .with_rows_at(&ended, sealed_at, rows_at)
            .with_joined(later.counts());
        let (id, table, clock) = (self.id.clone(), self.table(), Arc::clone(&self.options.clock));
        let give_back = self.options.give_back;
        // Its records are not needed any more.
        self.survival = None;
        let growing = common.growing.clone();
        let growth = Arc::new(Growth::new(Parts { starting: self, sources, common }, layout, behind));
        growing.begin(&growth);
        let of_driver = of_driver.with_joining(growth.begin(&more)?);
        let shared = Arc::new(Shared {
            id,
            table,
            started: Instant::now(),
            progress,
            memory,
            groups,
            controls: Mutex::new(scans.iter().map(|scan| Arc::clone(&scan.control)).collect()),
            growth,
            cancelled: AtomicBool::new(false),
            leaving: Mutex::new(Leaving { partitions: scans.len(), outcome: None }),
            give_back,
            record: Mutex::new(None),
            recording,
            lookups,
            refreshing: Arc::default(),
            keeping: Keeping::default(),
            snapshots,
            no_snapshots,
            delivery,
            give_up,
            end: Mutex::new(None),
            ended: Condvar::new(),
            gone: Mutex::new(false),
            left: Condvar::new(),
        });
        let ready =
            Ready { shared: Arc::clone(&shared), mailbox: driver.clone(), driver: of_driver, clock, scans, tables };
        ready.start()?;
        Ok(Arc::new(Query { shared, driver }))
    }

    /// A source partition that is about to be read, from the first epoch behind `behind` on. `source` is its place among all.
    pub(super) fn scan_partition(
        &self,
        partition: Partition<'_>,
        common: &Common,
        source: usize,
        again: Again,
        behind: Epoch,
    ) -> Result<ScanPartition> {
        let Partition { stage, scan, number, bounded, .. } = partition;
        let output = self.scan_output(&partition, &common.topology, &common.without_time)?;
        let late_outlet = common.topology.late_outlet(stage.id, number);
        let splits = partition.reader.splits();
        Ok(ScanPartition {
            source,
            operator: ScanOperator::decode(scan, output, &self.functions, late_outlet, splits)?,
            reader: partition.reader,
            control: Arc::new(Control::default()),
            groups: Arc::clone(&common.groups),
            driver: common.driver.clone(),
            progress: Arc::clone(&common.progress),
            counters: common.progress.scan(source),
            growing: common.growing.clone(),
            memory: Arc::clone(&common.memory),
            snapshots: common.snapshots.clone(),
            stage: stage.id,
            number,
            instants: Arc::clone(&common.instants),
            standings: common.standings.clone(),
            clock: Arc::clone(&self.options.clock),
            may_idle: scan.watermark.as_ref().is_some_and(|watermark| watermark.waiting.idle_after.is_some()),
            limits: common.limits,
            again,
            behind,
            ended: false,
            gathers: !bounded,
            room: common.room.clone(),
        })
    }

    fn driver_options(&self) -> DriverOptions {
        DriverOptions {
            policy: self.options.epoch,
            max_in_flight: self.options.max_epochs_in_flight.max(1) as u64,
            replay_timeout: self.options.replay_timeout,
            replay_limit: self.options.replay_limit,
            clock_windows: self.clock_windows(),
        }
    }

    /// The table that the query writes to.
    pub(super) fn table(&self) -> Option<String> {
        self.graph.stages.iter().find_map(|stage| match &stage.operator {
            Operator::Sink(sink) => sink.table.as_ref().map(|table| table.name.clone()),
            _ => None,
        })
    }
}
