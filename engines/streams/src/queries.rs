//! The queries of the engine: those that run, and the last of those that have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use savanna_streams_api::handle::{QueryState, QueryStatus};
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::Query;

/// A query. Of one that has ended only the status is kept: what little a query leaves pins pages of memory all over.
enum Entry {
    Running { statement: String, query: Arc<Query> },
    Ended(Box<QueryStatus>),
}

/// A status of a query that does not run.
pub(crate) fn at_rest(id: &QueryId, statement: &str, error: Option<StreamError>) -> QueryStatus {
    QueryStatus {
        query: id.clone(),
        state: if error.is_some() { QueryState::Failed } else { QueryState::Cancelled },
        statement: statement.to_owned(),
        error,
        events: 0,
        result_rows: 0,
        late_rows: 0,
        skipped_rows: 0,
        epoch: 0,
        watermark: None,
        windows: 0,
        state_bytes: 0,
        seconds: 0.0,
        cpu_seconds: 0.0,
        generator_cpu_seconds: 0.0,
        invocations: 0,
        billed_ms: 0,
        more: BTreeMap::new(),
    }
}

/// A status of a query that is about to go on.
pub(crate) fn going_on(id: &QueryId, statement: &str) -> QueryStatus {
    QueryStatus { state: QueryState::Loading, ..at_rest(id, statement, None) }
}

impl Entry {
    fn status(&self) -> QueryStatus {
        match self {
            Self::Running { statement, query } => QueryStatus { statement: statement.clone(), ..query.status() },
            Self::Ended(status) => status.as_ref().clone(),
        }
    }
}

/// All queries, by the order in which they started.
pub(crate) struct Queries {
    max_running: usize,
    keep_ended: usize,
    next_job: AtomicU64,
    entries: Mutex<BTreeMap<u64, Entry>>,
}

impl Queries {
    pub(crate) fn new(max_running: usize, keep_ended: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_millis() as u64);
        Self { max_running, keep_ended, next_job: AtomicU64::new(now), entries: Mutex::default() }
    }

    /// A name for a query that is about to start, unless too many run already.
    pub(crate) fn next_id(&self, code: String) -> Result<QueryId> {
        let running = self.entries().values().filter(|entry| matches!(entry, Entry::Running { .. })).count();
        if running >= self.max_running {
            return Err(StreamError::Limit {
                message: format!("{running} queries run, which is the limit; stop one or raise streams.max_queries"),
            });
        }
        Ok(QueryId { code, job: self.next_job.fetch_add(1, Ordering::Relaxed) })
    }

    /// Later names are none of a query that was started before.
    pub(crate) fn begin_after(&self, job: u64) {
        self.next_job.fetch_max(job + 1, Ordering::Relaxed);
    }

    /// A query that does not run, and is known from a former process.
    pub(crate) fn add_at_rest(&self, status: QueryStatus) {
        self.entries.lock().insert(status.query.job, Entry::Ended(Box::new(status)));
    }

    /// A query that was about to go on does not.
    pub(crate) fn end_going_on(&self, id: &QueryId) {
        if let Some(Entry::Ended(status)) = self.entries.lock().get_mut(&id.job)
            && status.state == QueryState::Loading
        {
            status.state = QueryState::Cancelled;
        }
    }

    /// A query that runs.
    pub(crate) fn running(&self, id: &QueryId) -> Option<Arc<Query>> {
        match self.entries().get(&id.job) {
            Some(Entry::Running { query, .. }) => Some(Arc::clone(query)),
            _ => None,
        }
    }

    /// The process of a query, over or not.
    pub(crate) fn wait(&self, id: &QueryId) {
        let query = match self.entries.lock().get(&id.job) {
            Some(Entry::Running { query, .. }) => Arc::clone(query),
            _ => return,
        };
        if let Err(error) = query.wait() {
            tracing::debug!(query = %id, %error, "a query ended");
        }
    }

    pub(crate) fn add(&self, id: &QueryId, statement: String, query: Arc<Query>) {
        let mut entries = self.entries();
        entries.insert(id.job, Entry::Running { statement, query });
        let is_over = |entry: &Entry| matches!(entry, Entry::Ended(status) if status.state != QueryState::Loading);
        let ended: Vec<u64> = entries.iter().filter(|(_, entry)| is_over(entry)).map(|(job, _)| *job).collect();
        for job in ended.iter().take(ended.len().saturating_sub(self.keep_ended)) {
            entries.remove(job);
        }
    }

    /// All queries, those that have ended as such.
    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        let mut entries = self.entries.lock();
        for entry in entries.values_mut() {
            if let Entry::Running { query, .. } = entry
                && query.status().state.is_over()
            {
                *entry = Entry::Ended(Box::new(entry.status()));
            }
        }
        entries
    }

    /// Cancels a query, if it runs. Tells whether it is known.
    pub(crate) fn cancel(&self, id: &QueryId) -> bool {
        match self.entries().get(&id.job) {
            Some(Entry::Running { query, .. }) => query.cancel(),
            Some(Entry::Ended(_)) => {}
            None => return false,
        }
        true
    }

    /// Finds a query by the text that `SHOW QUERIES` prints for it, or by its job number alone.
    pub(crate) fn parse_id(&self, text: &str) -> Result<QueryId> {
        self.list()
            .into_iter()
            .map(|status| status.query)
            .find(|id| id.to_string() == text || id.job.to_string() == text)
            .ok_or_else(|| unknown(text))
    }

    /// All queries, newest first.
    pub(crate) fn list(&self) -> Vec<QueryStatus> {
        self.entries().values().rev().map(Entry::status).collect()
    }

    /// Cancels every query and waits until their threads have ended.
    pub(crate) fn stop_all(&self) {
        let running = |entry: &Entry| match entry {
            Entry::Running { query, .. } => Some(Arc::clone(query)),
            Entry::Ended(_) => None,
        };
        let queries: Vec<Arc<Query>> = self.entries().values().filter_map(running).collect();
        for query in &queries {
            query.cancel();
        }
        for query in &queries {
            if let Err(error) = query.wait() {
                tracing::debug!(%error, "a query ended while the engine stopped");
            }
        }
    }
}

pub(crate) fn unknown(id: &str) -> StreamError {
    StreamError::Unknown {
        kind: "query".into(),
        name: id.into(),
        position: None,
        hint: "SHOW QUERIES lists those that exist".into(),
    }
}
