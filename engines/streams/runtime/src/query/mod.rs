//! A running query, from start to end.

mod again;
mod control;
mod drivers;
mod forgetting;
mod groups;
mod growth;
mod life;
mod memory;
mod partition;
mod progress;
mod refreshing;
mod sink_thread;
mod snapshots;
mod standings;
mod survival;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::execution::TaskContext;
use parking_lot::{Condvar, Mutex};
use savanna_streams_api::handle::{QueryState, QueryStatus};
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::{Alignment, Operator, Output, ProcessingTime, Scan, Stage, StageGraph, Waiting};
use savanna_streams_model::sink::{Delivery, GiveUp, Room, Sink};
use savanna_streams_model::source::{Connectors, Repeats, Source, SourceReader};
use savanna_streams_model::time::{EventTime, Windows};

pub use self::again::{Again, Way};
use self::control::Control;
pub(crate) use self::drivers::Mailbox;
pub use self::forgetting::Forgetting;
use self::groups::{FunctionGroups, Seat};
use self::growth::{Growing, Growth, Later, Parts};
use self::life::Ready;
pub(crate) use self::memory::Memory;
use self::partition::{ScanLimits, ScanPartition};
pub(crate) use self::progress::Progress;
use self::refreshing::Refreshing;
pub(crate) use self::sink_thread::SinkThread;
use self::snapshots::Snapshotting;
pub use self::standings::{Standing, Standings};
use self::survival::{Beginning, Recording};
pub use self::survival::{Survival, cannot_survive, delivery};
use crate::chain::Chain;
use crate::clock::Instants;
use crate::cloud::remote::{self, Deploying};
use crate::driver::{Driver, DriverOptions, EpochRecord, Input, Layout, Outcome};
use crate::error::broken;
use crate::join_stage::JoinOperator;
use crate::lookup::{Loading, LookupRows, Versions};
use crate::member::{Member, StageOperator};
use crate::merge_stage::MergeOperator;
use crate::options::{Mode, RuntimeOptions};
use crate::output::OutputOperator;
use crate::records::{self, skippable};
use crate::scan::ScanOperator;
use crate::scan_output::{ReadOutput, ScanOutput};
use crate::sink_stage::{SideTable, SinkOperator};
use crate::snapshot::Due;
use crate::topology::{Topology, keeps_late_rows};
use crate::window_stage::WindowOperator;

/// A running query. Dropping it cancels the query and waits for its end.
pub struct Query {
    shared: Arc<Shared>,
    driver: Mailbox,
}

/// What the query's source partitions and its users share.
pub(crate) struct Shared {
    id: QueryId,
    /// The table that it writes to; none if its rows go to a client, who is told how it ends.
    table: Option<String>,
    started: Instant,
    progress: Arc<Progress>,
    memory: Arc<Memory>,
    groups: Arc<FunctionGroups>,
    /// Those of the source partitions.
    controls: Mutex<Vec<Arc<Control>>>,
    /// How partitions join.
    growth: Arc<Growth>,
    /// Whether somebody has asked it to stop.
    cancelled: AtomicBool,
    leaving: Mutex<Leaving>,
    give_back: fn(),
    record: Mutex<Option<EpochRecord>>,
    /// Where its epochs are recorded, if it outlives its process.
    recording: Option<Recording>,
    /// The versions of the tables of its look-ups, in the order of the stages.
    lookups: Vec<Arc<Versions>>,
    refreshing: Arc<Refreshing>,
    /// Snapshots of it, if there are any.
    snapshots: Option<Arc<Snapshotting>>,
    /// Why there are none, if it outlives its process.
    no_snapshots: String,
    /// What it promises of each row.
    delivery: Delivery,
    /// Ends the waiting of a sink on other machines.
    give_up: Option<GiveUp>,
    end: Mutex<Option<End>>,
    ended: Condvar,
    /// Whether its source partitions are gone, and what they held.
    gone: Mutex<bool>,
    left: Condvar,
}

/// Who is still there, and how the query ends once nobody is.
struct Leaving {
    /// Source partitions.
    partitions: usize,
    outcome: Option<Outcome>,
}

#[derive(Clone)]
struct End {
    outcome: Outcome,
    after: Duration,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

/// A source partition that is about to be read.
struct Partition<'g> {
    stage: &'g Stage,
    scan: &'g Scan,
    /// Its number within its scan.
    number: u32,
    /// Its source ends: it is never slow because the world is.
    bounded: bool,
    repeats: Repeats,
    reader: Box<dyn SourceReader>,
}

/// How far the partitions of bounded sources run ahead of one another where streams meet, unless their tables say otherwise.
/// What one is ahead waits in the state of a join, and would grow without end if one source is quicker to read.
const DRIFT_US: i64 = 10_000_000;

impl Query {
    /// Starts a query. A few threads of the process read the source partitions of all queries, in turns, and one drives them.
    ///
    /// `functions` knows every function that the graph's plans name. `sink` gets the result; side tables of late rows are
    /// opened through `connectors`, as the sources are.
    ///
    /// # Errors
    /// A source or sink cannot be opened, the graph cannot be decoded, or the sink knows this query already.
    pub fn start(
        id: QueryId,
        graph: StageGraph,
        functions: Arc<TaskContext>,
        connectors: Arc<dyn Connectors>,
        sink: Box<dyn Sink>,
        options: RuntimeOptions,
    ) -> Result<Arc<Self>> {
        Starting::new(id, graph, functions, connectors, options).start(sink)
    }

    /// Starts a query that outlives its process, or goes on with it: epochs that are recorded are read and computed again, and the sink
    /// leaves out those that it holds. `id` is the one that the sink knows it by.
    ///
    /// # Errors
    /// As [`Query::start`]; the query is none of those that can go on, or the records, the sources and the sink contradict each other.
    pub fn start_recorded(
        id: QueryId,
        graph: StageGraph,
        functions: Arc<TaskContext>,
        connectors: Arc<dyn Connectors>,
        sink: Box<dyn Sink>,
        options: RuntimeOptions,
        survival: Survival,
    ) -> Result<Arc<Self>> {
        if let Some(reason) = cannot_survive(&graph, connectors.as_ref(), sink.delivery())? {
            return Err(StreamError::invalid(format!("the query cannot outlive its process: {reason}")));
        }
        let starting = Starting::new(id, graph, functions, connectors, options);
        Starting { survival: Some(survival), ..starting }.start(sink)
    }

    /// Behind which epoch a query begins that is computed from these records alone, if its sink holds no more than they know of.
    ///
    /// # Errors
    /// They do not reach back far enough, or a source cannot be asked for its partitions.
    pub fn replays_behind(
        id: QueryId,
        graph: StageGraph,
        functions: Arc<TaskContext>,
        connectors: Arc<dyn Connectors>,
        options: RuntimeOptions,
        records: &[EpochRecord],
    ) -> Result<Epoch> {
        let starting = Starting::new(id, graph, functions, connectors, options);
        let mut sources = starting.sources()?;
        starting.lay_out(&mut sources, records)?;
        let reach = starting.reach(&sources)?;
        let held = records.iter().map(|record| record.committed).max().unwrap_or_default();
        let skipped = skippable(records, held, &reach)?;
        Ok(records[..skipped].last().map_or(Epoch::ZERO, |record| record.epoch))
    }

    /// Whether a query can go on from these records with the partitions that its sources have now. Nothing is opened, and no sink is asked.
    ///
    /// # Errors
    /// It cannot, or a source cannot be asked for its partitions.
    pub fn check_records(
        id: QueryId,
        graph: StageGraph,
        functions: Arc<TaskContext>,
        connectors: Arc<dyn Connectors>,
        options: RuntimeOptions,
        records: &[EpochRecord],
    ) -> Result<()> {
        let starting = Starting::new(id, graph, functions, connectors, options);
        let mut sources = starting.sources()?;
        starting.lay_out(&mut sources, records)?;
        let held = records.iter().map(|record| record.committed).max().unwrap_or_default();
        records::check(records, sources.total(), "the sink", held)
    }

    /// Where the query stands. The statement is empty: whoever started the query knows it.
    pub fn status(&self) -> QueryStatus {
        self.shared.status()
    }

    /// Which snapshot of its state counts, or why there is none, in words; nothing for a query that ends with its process.
    pub fn snapshots(&self) -> String {
        match &self.shared.snapshots {
            Some(snapshots) => snapshots.words(),
            None if self.shared.no_snapshots.is_empty() => String::new(),
            None => format!("none: {}", self.shared.no_snapshots),
        }
    }

    /// What it promises of each row.
    pub fn delivery(&self) -> Delivery {
        self.shared.delivery
    }

    /// The last epoch that was sealed.
    pub fn last_record(&self) -> Option<EpochRecord> {
        self.shared.record.lock().clone()
    }

    /// Asks the query to stop. Epochs that are committed stay; open windows are not fired. Does not wait.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Release);
        self.driver.send(Input::Cancel);
    }

    /// Waits for the end of the query and of what it holds.
    ///
    /// # Errors
    /// The error that the query failed with.
    pub fn wait(&self) -> Result<QueryStatus> {
        let mut end = self.shared.end.lock();
        while end.is_none() {
            self.shared.ended.wait(&mut end);
        }
        drop(end);
        self.join();
        self.result()
    }

    /// Waits at most so long; none if the query still runs then.
    ///
    /// # Errors
    /// The error that the query failed with.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<QueryStatus>> {
        let deadline = Instant::now() + timeout;
        let mut end = self.shared.end.lock();
        while end.is_none() {
            if self.shared.ended.wait_until(&mut end, deadline).timed_out() && end.is_none() {
                return Ok(None);
            }
        }
        drop(end);
        self.join();
        self.result().map(Some)
    }

    fn result(&self) -> Result<QueryStatus> {
        let status = self.status();
        status.error.clone().map_or(Ok(status), Err)
    }

    fn join(&self) {
        let mut gone = self.shared.gone.lock();
        while !*gone {
            self.shared.left.wait(&mut gone);
        }
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.cancel();
        self.join();
    }
}

impl Shared {
    fn status(&self) -> QueryStatus {
        let end = self.end.lock().clone();
        let (state, error) = match end.as_ref().map(|end| &end.outcome) {
            None if self.progress.is_loading() => (QueryState::Loading, None),
            None => (QueryState::Running, None),
            Some(Outcome::Finished) => (QueryState::Finished, None),
            Some(Outcome::Cancelled) => (QueryState::Cancelled, None),
            Some(Outcome::Failed(error)) => (QueryState::Failed, Some(error.clone())),
        };
        let ended = end.is_some();
        let seconds = end.map_or_else(|| self.started.elapsed(), |end| end.after).as_secs_f64();
        let mut status = QueryStatus {
            query: self.id.clone(),
            state,
            statement: String::new(),
            error,
            events: 0,
            result_rows: 0,
            late_rows: 0,
            skipped_rows: 0,
            epoch: 0,
            watermark: None,
            windows: 0,
            state_bytes: if ended { 0 } else { self.memory.total() },
            seconds,
            cpu_seconds: 0.0,
            generator_cpu_seconds: 0.0,
            invocations: 0,
            billed_ms: 0,
            more: BTreeMap::new(),
        };
        status.more.insert("peak_bytes".into(), self.memory.peak() as f64);
        self.progress.fill(&mut status);
        if let Some(snapshots) = &self.snapshots {
            snapshots.fill(&mut status);
        }
        if !self.lookups.is_empty() {
            self.refreshing.fill(&mut status);
        }
        status
    }

    fn publish_end(&self, outcome: Outcome) {
        if let Outcome::Failed(StreamError::Internal(what)) = &outcome {
            tracing::error!(query = %self.id, what, "an invariant of the streams engine is broken");
        }
        if let (Some(table), Outcome::Failed(cause)) = (&self.table, &outcome) {
            tracing::error!(query = %self.id, into = %table, %cause, "a query failed");
        }
        *self.end.lock() = Some(End { outcome, after: self.started.elapsed() });
        self.ended.notify_all();
    }
}

/// How far partitions have come, where one of them has to know of the others.
fn standings(graph: &StageGraph, partitions: &[Partition<'_>]) -> Option<Standings> {
    let waiting = |partition: &Partition<'_>| {
        partition.scan.watermark.as_ref().is_some_and(|watermark| watermark.waiting != Waiting::default())
    };
    let declared = partitions.iter().any(waiting);
    let in_step = !declared && keep_step(graph, partitions);
    (declared || in_step).then(|| {
        let drift = in_step.then(|| Alignment { group: "the query".into(), max_drift: DRIFT_US });
        Standings::new(partitions.iter().map(|partition| standing(partition.scan, drift.as_ref())).collect())
    })
}

/// A partition of a scan that has not begun, which keeps step by `drift` if its table does not say otherwise.
fn standing(scan: &Scan, drift: Option<&Alignment>) -> Standing {
    match &scan.watermark {
        Some(watermark) => Standing::new(true, watermark.waiting.alignment.clone().or_else(|| drift.cloned())),
        None => Standing::new(false, None),
    }
}

/// The sources of a query's scans, and how many partitions each has, without those that have joined.
struct Sources(BTreeMap<StageId, (Arc<dyn Source>, usize)>);

impl Sources {
    /// Partitions of all scans.
    fn total(&self) -> usize {
        self.0.values().map(|(_, count)| count).sum()
    }

    fn of(&self, stage: &Stage) -> Result<(&Arc<dyn Source>, usize)> {
        let found = self.0.get(&stage.id).map(|(source, count)| (source, *count));
        found.ok_or_else(|| broken(format!("stage {} has no source", stage.id)))
    }
}

/// Whether streams that end meet in this query.
fn keep_step(graph: &StageGraph, partitions: &[Partition<'_>]) -> bool {
    let meets = |stage: &Stage| matches!(stage.operator, Operator::Window(_) | Operator::IntervalJoin(_));
    graph.stages.iter().any(meets)
        && partitions.iter().all(|partition| partition.bounded && partition.scan.watermark.is_some())
        && partitions.iter().any(|partition| partition.stage.id != partitions[0].stage.id)
}

/// What all source partitions of a query have in common.
struct Common {
    topology: Topology,
    groups: Arc<FunctionGroups>,
    driver: Mailbox,
    progress: Arc<Progress>,
    memory: Arc<Memory>,
    instants: Arc<Instants>,
    standings: Option<Arc<Standings>>,
    room: Option<Room>,
    without_time: WithoutTime,
    limits: ScanLimits,
    growing: Growing,
}

/// By scan and partition, rows that functions left out because they had no event time.
type WithoutTime = BTreeMap<StageId, Vec<Arc<AtomicU64>>>;

/// A query that is being put together.
struct Starting {
    id: QueryId,
    graph: StageGraph,
    functions: Arc<TaskContext>,
    connectors: Arc<dyn Connectors>,
    options: RuntimeOptions,
    /// The tables of each stage's look-ups.
    lookups: BTreeMap<StageId, Vec<Arc<Versions>>>,
    survival: Option<Survival>,
    /// The epoch of which a snapshot is made.
    due: Due,
    /// The epoch of the snapshot that counts.
    counts: Epoch,
}

impl Starting {
    /// A query that ends with its process.
    fn new(
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

    fn start(mut self, mut sink: Box<dyn Sink>) -> Result<Arc<Query>> {
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
        let tables = self.open_lookups(from)?;
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
        let snapshots = self.snapshots(&topology, &mut members, &sources, snapshot, recorded, &forgetting)?;
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
            lookups: tables.iter().map(|table| Arc::clone(&table.versions)).collect(),
            refreshing: Arc::default(),
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
    fn scan_partition(
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
    fn table(&self) -> Option<String> {
        self.graph.stages.iter().find_map(|stage| match &stage.operator {
            Operator::Sink(sink) => sink.table.as_ref().map(|table| table.name.clone()),
            _ => None,
        })
    }

    /// # Errors
    /// A table for late rows is the one that the query writes: two sinks would be at it, each of which would undo what the other did.
    fn check_late_tables(&self) -> Result<()> {
        let written = self.table();
        for stage in &self.graph.stages {
            let Operator::Scan(Scan { source, watermark: Some(watermark), .. }) = &stage.operator else { continue };
            let late = watermark.late_rows.as_ref().map(|late| &late.table.name);
            if let Some(late) = late.filter(|late| written.as_ref() == Some(*late)) {
                return Err(StreamError::invalid(format!(
                    "table {late} is written by the query, so that it cannot get late rows of table {} as well; name another one in 'late-data'",
                    source.table.name
                )));
            }
        }
        Ok(())
    }

    /// The sources of all scans, and how many partitions each has. Asked once: what follows has to go by the same numbers.
    fn sources(&self) -> Result<Sources> {
        let mut sources = BTreeMap::new();
        for stage in &self.graph.stages {
            if let Operator::Scan(scan) = &stage.operator {
                let source = self.connectors.source(&scan.source.table)?;
                let count = source.partitions(self.options.source_partitions.max(1))?.max(1);
                sources.insert(stage.id, (source, count));
            }
        }
        Ok(Sources(sources))
    }

    /// Opens all source partitions, those that have joined behind the others, at their starts or where a record says.
    fn open_sources(
        &self,
        sources: &Sources,
        layout: &Layout,
        behind: Option<&EpochRecord>,
    ) -> Result<Vec<Partition<'_>>> {
        let mut places = Vec::new();
        for stage in &self.graph.stages {
            if let Operator::Scan(scan) = &stage.operator {
                places.extend((0..sources.of(stage)?.1).map(|number| (stage, scan, number)));
            }
        }
        for joined in &layout.joined {
            let (stage, scan) = self.scan_at(joined.scan)?;
            places.push((stage, scan, joined.number as usize));
        }
        let mut partitions = Vec::with_capacity(places.len());
        for (place, (stage, scan, number)) in places.iter().enumerate() {
            let source = sources.of(stage)?.0;
            let count = places.iter().filter(|(other, ..)| other.id == stage.id).count();
            let mark = behind.and_then(|record| record.sources.get(place));
            let reader = source.open(&scan.source, *number, count, mark.map(|mark| &mark.offset))?;
            let (bounded, repeats) = (source.bounded(), source.repeats());
            partitions.push(Partition { stage, scan, number: *number as u32, bounded, repeats, reader });
        }
        Ok(partitions)
    }

    /// A partition's share of an epoch.
    fn limits(&self, partitions: usize) -> ScanLimits {
        let epoch = &self.options.epoch;
        let share = |events: u64| events.div_ceil(partitions.max(1) as u64).max(1);
        let max_events = epoch.fixed_events.map_or_else(|| share(epoch.max_events), |fixed| fixed.max(1));
        ScanLimits { batch_rows: self.options.batch_rows.max(1), min_events: share(epoch.min_events), max_events }
    }

    /// All members by stage, and what ends the waiting of a sink on other machines.
    fn members(
        &self,
        topology: &Topology,
        progress: &Arc<Progress>,
        driver: &Mailbox,
        sink: Box<dyn Sink>,
        recording: Option<&Recording>,
        sources: usize,
    ) -> Result<(Vec<Vec<Member>>, Option<GiveUp>)> {
        let (mut sink, mut give_up) = (Some(sink), None);
        let mut stages = Vec::with_capacity(self.graph.stages.len());
        for stage in &self.graph.stages {
            let mut members = BTreeMap::new();
            let is_here = self.options.cloud.is_none() || matches!(stage.operator, Operator::Sink(_));
            for shuffle in 0..if is_here { topology.members(stage.id) } else { 0 } {
                let operator: Box<dyn StageOperator> = match &stage.operator {
                    Operator::Scan(_) => return Err(broken("a scan is no member of a group")),
                    Operator::Sink(_) => {
                        let mut operator = self.sink_operator(sink.take(), progress, driver)?;
                        match (&self.survival, recording) {
                            (Some(survival), Some(recording)) => {
                                operator.check_records(&survival.records, sources)?;
                                operator.gate = Some(Arc::clone(&recording.gate));
                            }
                            _ => operator.check_fresh()?,
                        }
                        let (operator, gives_up) = operator.placed(self.options.max_epochs_in_flight)?;
                        give_up = gives_up;
                        operator
                    }
                    _ => self.operator(stage, topology, shuffle, progress)?,
                };
                let member = Member::new(topology.inputs(stage.id, shuffle), operator, self.options.rules);
                members.insert(topology.member(stage.id, shuffle).member, member);
            }
            stages.push(members.into_values().collect());
        }
        Ok((stages, give_up))
    }

    fn operator(
        &self,
        stage: &Stage,
        topology: &Topology,
        shuffle: u16,
        progress: &Arc<Progress>,
    ) -> Result<Box<dyn StageOperator>> {
        // A member that collected part s sends sequence s (Flock, C8).
        let output = self.output(stage, topology, u32::from(shuffle))?;
        // Windows that go on to a window stage are counted there, once, whatever the epochs in which the stages close them.
        let next = stage.next.and_then(|next| self.graph.stages.get(usize::from(next.0)));
        let counted = !next.is_some_and(|next| matches!(next.operator, Operator::Window(_)));
        let progress = counted.then(|| Arc::clone(progress));
        Ok(match &stage.operator {
            Operator::Aggregate(aggregate) => {
                Box::new(MergeOperator::decode(aggregate, &self.functions, output, progress)?)
            }
            Operator::Window(window) => Box::new(WindowOperator::decode(window, &self.functions, output, progress)?),
            Operator::IntervalJoin(join) => Box::new(JoinOperator::decode(join, &self.functions, output)?),
            Operator::Scan(_) | Operator::Sink(_) => {
                return Err(broken("a scan or sink in the middle of a graph"));
            }
        })
    }

    /// What becomes of the rows of a source partition.
    fn scan_output(
        &self,
        partition: &Partition<'_>,
        topology: &Topology,
        without_time: &WithoutTime,
    ) -> Result<ScanOutput> {
        let (stage, number) = (partition.stage, partition.number);
        let counter = without_time.get(&stage.id).and_then(|stage| stage.get(number as usize));
        let (Some(counter), Some(output)) = (counter, &stage.output) else {
            return Ok(ScanOutput::Here(Box::new(self.output(stage, topology, number)?)));
        };
        let chain = Chain::decode(&output.chain, &self.functions)?;
        let outlet = topology.read_outlet(stage.id, number);
        Ok(ScanOutput::There(ReadOutput::new(chain, outlet, Arc::clone(counter))))
    }

    /// Counters of the source partitions whose rows go to functions.
    fn without_time(&self, partitions: &[Partition<'_>]) -> WithoutTime {
        let mut counters = WithoutTime::new();
        for partition in partitions.iter().filter(|_| self.options.cloud.is_some()) {
            counters.entry(partition.stage.id).or_default().push(Arc::default());
        }
        counters
    }

    /// # Errors
    /// The query cannot run on functions, where it is to.
    fn check_cloud(&self) -> Result<()> {
        if self.options.cloud.is_none() {
            return Ok(());
        }
        let refused = match (&self.survival, self.options.mode) {
            (Some(_), _) => "a query with a name",
            (None, Mode::Provisioned) => "the mode provisioned",
            (None, Mode::Serverless) => return Ok(()),
        };
        Err(StreamError::Unsupported {
            what: format!("{refused} on functions"),
            position: None,
            instead: "RESET 'query.name' and 'mode', or run it in this process or on a node".into(),
        })
    }

    /// The output of instance `sequence` of a stage.
    fn output(&self, stage: &Stage, topology: &Topology, sequence: u32) -> Result<OutputOperator> {
        let (Some(output), Some(outlet)) = (&stage.output, topology.outlet(stage.id, sequence)) else {
            return Err(broken(format!("stage {} sends to nobody", stage.id)));
        };
        let tables = self.lookups.get(&stage.id).into_iter().flatten();
        let lookups = output.lookups.iter().zip(tables);
        let lookups = lookups.map(|(lookup, table)| LookupRows::decode(lookup, Arc::clone(table), &self.functions));
        let lookups = lookups.collect::<Result<Vec<_>>>()?;
        let output = OutputOperator::decode(output, lookups, &stage.exchange, &self.functions, &self.options, outlet)?;
        Ok(output.with_snapshots(self.due.clone()))
    }

    /// Opens the tables of all look-ups, once for all instances of a stage, and what is known of them behind an epoch. Those of which
    /// nothing is known are read before the query runs.
    fn open_lookups(&mut self, behind: Epoch) -> Result<Vec<Loading>> {
        let (store, records) = match &self.survival {
            Some(survival) => (Some(Arc::clone(&survival.lookups)), survival.records.as_slice()),
            None => (None, [].as_slice()),
        };
        let mut tables = Vec::new();
        for stage in &self.graph.stages {
            for lookup in stage.output.iter().flat_map(|output| &output.lookups) {
                let number = u16::try_from(tables.len()).map_err(|_| broken("a query with too many look-ups"))?;
                let store = store.as_ref().map(Arc::clone);
                let versions = Versions::new(number, lookup, &self.functions, store, records)?;
                versions.tidy();
                versions.passed(behind);
                let table = Loading::open(lookup, Arc::clone(&self.connectors), versions)?;
                self.lookups.entry(stage.id).or_default().push(Arc::clone(&table.versions));
                tables.push(table);
            }
        }
        Ok(tables)
    }

    /// The windows of processing time, whose ends cut epochs.
    fn clock_windows(&self) -> Vec<Windows> {
        let by_clock = |stage: &&Stage| match &stage.operator {
            Operator::Scan(scan) => scan.processing_time == Some(ProcessingTime::Watermark),
            _ => false,
        };
        let outputs = self.graph.stages.iter().filter(by_clock).filter_map(|stage| stage.output.as_ref());
        outputs.filter_map(Output::windows).collect()
    }

    fn sink_operator(
        &self,
        sink: Option<Box<dyn Sink>>,
        progress: &Arc<Progress>,
        driver: &Mailbox,
    ) -> Result<SinkOperator> {
        let sink = sink.ok_or_else(|| broken("a stage graph with two sinks"))?;
        Ok(SinkOperator {
            query: self.id.clone(),
            sink,
            side_tables: self.side_tables()?,
            progress: Arc::clone(progress),
            driver: driver.clone(),
            gate: None,
        })
    }

    /// One sink per table for late rows, however many scans write to it.
    fn side_tables(&self) -> Result<Vec<SideTable>> {
        let mut tables: BTreeMap<&str, (&TableDef, Arc<arrow::datatypes::Schema>, Vec<StageId>)> = BTreeMap::new();
        for stage in self.graph.stages.iter().filter(|stage| keeps_late_rows(&stage.operator)) {
            let Operator::Scan(Scan { watermark: Some(watermark), .. }) = &stage.operator else {
                continue;
            };
            let Some(late) = &watermark.late_rows else {
                continue;
            };
            let schema = Arc::clone(Chain::decode(&late.projection, &self.functions)?.output());
            let entry = tables.entry(&late.table.name).or_insert_with(|| (&late.table, schema, Vec::new()));
            entry.2.push(stage.id);
        }
        let open = |(table, schema, scans)| Ok(SideTable { scans, sink: self.connectors.sink(table, schema)? });
        tables.into_values().map(open).collect()
    }
}
