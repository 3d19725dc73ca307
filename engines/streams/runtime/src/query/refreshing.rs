//! Tables of look-ups that are read anew while the query runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use savanna_streams_api::handle::QueryStatus;
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::budget;

use super::drivers::panicked;
use super::turns::STACK_BYTES;
use crate::lookup::Loading;

/// Reads tables anew, on a thread for this alone. One that cannot be read stays as it was.
#[derive(Debug, Default)]
pub(super) struct Refreshing {
    ends: Mutex<bool>,
    ended: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    refreshed: AtomicU64,
    failed: AtomicU64,
}

/// A table that is read anew, and when.
struct Due {
    table: Loading,
    every: Duration,
    at: Instant,
}

impl Refreshing {
    /// Begins with those of the tables that say how often they are read. `is_old` says of a table whether it was read by a former process.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(super) fn begin(
        self: &Arc<Self>,
        query: &QueryId,
        tables: Vec<(Loading, bool)>,
        limit: Option<u64>,
    ) -> Result<()> {
        let now = Instant::now();
        let due = |(table, is_old): (Loading, bool)| {
            let every = table.refresh?;
            Some(Due { table, every, at: if is_old { now } else { now + every } })
        };
        let mut tables: Vec<Due> = tables.into_iter().filter_map(due).collect();
        if tables.is_empty() {
            return Ok(());
        }
        let (refreshing, query) = (Arc::clone(self), query.clone());
        let name = format!("{query}-refresh");
        let refresh = move || {
            while let Some(next) = tables.iter_mut().min_by_key(|due| due.at) {
                if refreshing.ends_before(next.at) {
                    return;
                }
                let read = || budget::within(limit, || next.table.read(|_| !*refreshing.ends.lock()));
                let read = catch_unwind(AssertUnwindSafe(read))
                    .unwrap_or_else(|panic| Err(panicked("the thread that reads tables anew", panic.as_ref())));
                match read {
                    Ok(()) => drop(refreshing.refreshed.fetch_add(1, Ordering::Relaxed)),
                    Err(StreamError::Cancelled) => return,
                    Err(error) => {
                        refreshing.failed.fetch_add(1, Ordering::Relaxed);
                        let table = next.table.name();
                        tracing::warn!(%query, table, %error, "a table for look-ups could not be read anew; it stays as it was");
                    }
                }
                next.at = Instant::now() + next.every;
            }
        };
        let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(refresh);
        *self.thread.lock() = Some(thread.map_err(|e| StreamError::io("starting a thread for the query", &e))?);
        Ok(())
    }

    /// Waits for an instant. Tells whether the query was over before.
    fn ends_before(&self, at: Instant) -> bool {
        let mut ends = self.ends.lock();
        while !*ends && !self.ended.wait_until(&mut ends, at).timed_out() {}
        *ends
    }

    /// The query is over. What is being read is given up.
    pub(super) fn end(&self) {
        *self.ends.lock() = true;
        self.ended.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // Its panics were caught.
            let _ = thread.join();
        }
    }

    /// Shows how often tables were read anew.
    pub(super) fn fill(&self, status: &mut QueryStatus) {
        for (name, figure) in [("lookup_refreshes", &self.refreshed), ("lookup_refreshes_failed", &self.failed)] {
            status.more.insert(name.into(), figure.load(Ordering::Relaxed) as f64);
        }
    }
}
