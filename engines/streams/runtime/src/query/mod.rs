//! A running query, from start to end.

mod again;
mod checks;
mod control;
mod drivers;
mod forgetting;
mod groups;
mod growth;
mod handed_out;
mod keeping;
mod life;
mod memory;
mod partition;
mod pauses;
mod progress;
mod refreshing;
mod sink_thread;
mod snapshots;
mod sources;
mod stages;
mod standings;
mod starting;
mod survival;
mod turns;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::execution::TaskContext;
use parking_lot::{Condvar, Mutex};
use savanna_streams_api::handle::{QueryState, QueryStatus};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::sink::{Delivery, GiveUp, Sink};
use savanna_streams_model::source::Connectors;

pub use self::again::{Again, Way};
use self::control::Control;
pub(crate) use self::drivers::Mailbox;
pub use self::forgetting::Forgetting;
use self::groups::FunctionGroups;
use self::growth::Growth;
use self::keeping::Keeping;
pub(crate) use self::memory::Memory;
pub(crate) use self::progress::Progress;
use self::refreshing::Refreshing;
pub(crate) use self::sink_thread::SinkThread;
use self::snapshots::Snapshotting;
pub use self::standings::{Standing, Standings};
use self::starting::Starting;
use self::survival::Recording;
pub use self::survival::{Survival, cannot_survive, delivery};
pub(crate) use self::turns::blocking;
use crate::driver::{EpochRecord, Input, Outcome};
use crate::lookup::Table;
use crate::options::RuntimeOptions;
use crate::records::{self, skippable};

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
    /// The tables of its look-ups, in the order of the stages.
    lookups: Vec<Table>,
    refreshing: Arc<Refreshing>,
    /// Keeps what tables were asked and answered, if its epochs are recorded.
    keeping: Keeping,
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
        for table in &self.lookups {
            if let Table::ByKey(asked) = table {
                asked.fill(&mut status);
            }
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
