//! How a query is run.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::cloud::Cloud;
use crate::invoker::{FaultPlan, FaultyInvoker, InProcessInvoker, Invoker};
use crate::member::MemberRules;

/// How a query is run: parallelism, epochs, delivery. None of it changes results, except where a query asks for
/// processing time.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Partitions asked of each source; a source may have fewer.
    pub source_partitions: usize,
    /// Members of the function group of each stage that is fed by key group.
    pub members: u16,
    /// When partial aggregates leave the stage that made them.
    pub mode: Mode,
    /// How many bytes the query's operators may hold; above, the query fails.
    pub memory_limit: Option<u64>,
    /// When epochs are cut.
    pub epoch: EpochPolicy,
    /// How many epochs may be under way beyond the last committed one, the one being filled included. This is the
    /// back-pressure: sources wait when it is reached.
    pub max_epochs_in_flight: usize,
    /// Rows per batch asked of sources, and the size to which small filtered batches are joined.
    pub batch_rows: usize,
    /// How often a snapshot is made of a query that outlives its process; never, if none.
    pub snapshot_interval: Option<Duration>,
    /// How payloads reach members.
    pub invoker: InvokerChoice,
    /// Where the stages between sources and sink run as functions; in this process, if nowhere.
    pub cloud: Option<Arc<dyn Cloud>>,
    /// How long a complete epoch may take to be committed before its payloads are sent again.
    pub replay_timeout: Duration,
    /// How often an epoch is replayed before the query fails.
    pub replay_limit: u32,
    /// The longest wait between two attempts to invoke a busy function (the `max_backoff` of Flock, C9).
    pub max_backoff: Duration,
    /// How to wait between two attempts; tests do not.
    pub backoff_sleep: fn(Duration),
    /// Where processing time comes from.
    pub clock: Arc<dyn Clock>,
    /// Gives back memory that is free, to the process's allocator or beyond. Called when queries have ended and their threads too.
    pub give_back: fn(),
    /// For tests that show that the checks find a broken protocol.
    #[doc(hidden)]
    pub rules: MemberRules,
}

/// When partial aggregates leave the stage that made them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At the end of each epoch. A function holds nothing that cannot be made again from one epoch's rows.
    #[default]
    Serverless,
    /// When a window needs them. A pipeline is a thread that stays: it adds rows to the panes that it has, whatever the
    /// epoch, and they are merged once per window (late merge) instead of once per epoch.
    Provisioned,
}

/// When an epoch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochPolicy {
    /// How long rows are gathered, counted from the first. An epoch grows beyond it while later stages are behind.
    pub target: Duration,
    /// With fewer events an epoch stays open up to four times the target.
    pub min_events: u64,
    /// An epoch is cut at the latest when it has so many events.
    pub max_events: u64,
    /// For tests: every partition gives exactly so many events to each epoch (fewer at its end), whatever the time.
    pub fixed_events: Option<u64>,
}

/// How payloads reach members.
#[derive(Clone, Debug)]
pub enum InvokerChoice {
    /// Members run on the thread that sends; batches are handed over by reference.
    InProcess,
    /// The same with seeded faults.
    Faulty(FaultPlan),
    /// Something else.
    Custom(Arc<dyn Invoker>),
}

impl InvokerChoice {
    pub(crate) fn build(&self) -> Arc<dyn Invoker> {
        match self {
            Self::InProcess => Arc::new(InProcessInvoker),
            Self::Faulty(plan) => Arc::new(FaultyInvoker::new(*plan)),
            Self::Custom(invoker) => Arc::clone(invoker),
        }
    }
}

impl Default for EpochPolicy {
    fn default() -> Self {
        Self { target: Duration::from_millis(200), min_events: 1, max_events: 1_000_000, fixed_events: None }
    }
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            source_partitions: 1,
            members: 1,
            mode: Mode::default(),
            memory_limit: None,
            epoch: EpochPolicy::default(),
            max_epochs_in_flight: 4,
            batch_rows: 8192,
            snapshot_interval: None,
            invoker: InvokerChoice::InProcess,
            cloud: None,
            replay_timeout: Duration::from_secs(30),
            replay_limit: 20,
            max_backoff: Duration::from_secs(5),
            backoff_sleep: std::thread::sleep,
            clock: Arc::new(SystemClock),
            give_back: || {},
            rules: MemberRules::default(),
        }
    }
}
