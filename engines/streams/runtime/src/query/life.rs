//! How a query begins and ends: its threads start, and the last of them to leave publishes the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::budget;

use super::Shared;
use super::drivers::{self, Mailbox, panicked};
use super::scan_thread::ScanThread;
use crate::clock::Clock;
use crate::driver::{Driver, Input, Outcome};
use crate::lookup::Loading;

/// Bytes of a thread's stack. Expressions are computed by going down into them, once for each operator of a chain, and views
/// add theirs to those of a statement. It is address space until it is used.
const STACK_BYTES: usize = 64 << 20;

/// A query that is about to run.
pub(super) struct Ready {
    pub(super) shared: Arc<Shared>,
    pub(super) mailbox: Mailbox,
    pub(super) driver: Driver,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) scans: Vec<ScanThread>,
}

impl Ready {
    /// Reads the tables of look-ups, on a thread for this alone, and starts the query.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(super) fn start(self, tables: Vec<Loading>) -> Result<()> {
        if tables.is_empty() {
            self.run();
            return Ok(());
        }
        let name = format!("{}-load", self.shared.id);
        let loading = move || {
            let shared = Arc::clone(&self.shared);
            let load = || budget::within(shared.memory.limit(), || shared.load(tables));
            let loaded = catch_unwind(AssertUnwindSafe(load))
                .unwrap_or_else(|panic| Err(panicked("a thread of the query", panic.as_ref())));
            match loaded {
                Ok(()) => self.run(),
                Err(StreamError::Cancelled) => self.give_up(Outcome::Cancelled),
                Err(error) => self.give_up(Outcome::Failed(error)),
            }
        };
        spawn(name, loading).map_err(|e| StreamError::io("starting a thread for the query", &e))
    }

    /// Starts the threads that read, and the driver.
    fn run(mut self) {
        let scans = std::mem::take(&mut self.scans);
        let mut started = Ok(());
        for scan in scans {
            let shared = Arc::clone(&self.shared);
            let name = format!("{}-scan-{}", shared.id, scan.source);
            match started.and_then(|()| spawn(name, move || shared.read(scan))) {
                Ok(()) => started = Ok(()),
                Err(error) => {
                    let what = "starting a thread for a source partition";
                    self.shared.stop(Outcome::Failed(StreamError::io(what, &error)));
                    self.shared.leave();
                    started = Err(error);
                }
            }
        }
        if started.is_ok() {
            self.mailbox.begin(self.shared, self.driver, self.clock);
        }
    }

    /// Ends the query before its threads have started.
    fn give_up(self, outcome: Outcome) {
        self.shared.stop(outcome);
        self.scans.iter().for_each(|_| self.shared.leave());
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // Nobody joins it: what ended threads leave is kept until somebody does.
    thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(work).map(drop)
}

impl Shared {
    fn load(&self, tables: Vec<Loading>) -> Result<()> {
        for table in tables {
            table.read(|rows| {
                self.progress.loaded(rows);
                !self.cancelled.load(Ordering::Acquire)
            })?;
        }
        self.progress.all_loaded();
        Ok(())
    }

    /// A thread that reads a source partition, until the query stops.
    fn read(&self, scan: ScanThread) {
        let (driver, control) = (scan.driver.clone(), Arc::clone(&scan.control));
        let result = catch_unwind(AssertUnwindSafe(|| budget::within(self.memory.limit(), || scan.run())))
            .unwrap_or_else(|panic| Err(panicked("a thread of the query", panic.as_ref())));
        if let Err(error) = result {
            driver.send(Input::Failed(error));
            control.wait_for_stop();
        }
        self.leave();
    }

    /// Has all threads leave. How the query ends is decided by the first to call it.
    pub(super) fn stop(&self, outcome: Outcome) {
        self.leaving.lock().outcome.get_or_insert(outcome);
        self.groups.stop();
        for control in &self.controls {
            control.stop();
        }
    }

    /// A thread leaves; all do so once the query was stopped. The last one ends the query.
    fn leave(&self) {
        let outcome = {
            let mut leaving = self.leaving.lock();
            leaving.threads -= 1;
            if leaving.threads > 0 {
                return;
            }
            leaving.outcome.take().unwrap_or(Outcome::Cancelled)
        };
        let finish = match &outcome {
            Outcome::Failed(_) => Ok(()),
            Outcome::Finished | Outcome::Cancelled => catch_unwind(AssertUnwindSafe(|| self.groups.finish()))
                .unwrap_or_else(|panic| Err(panicked("the sink", panic.as_ref()))),
        };
        let outcome = finish.err().map_or(outcome, Outcome::Failed);
        tracing::debug!(query = %self.id, ?outcome, "the query is over");
        self.publish_end(outcome);
        self.groups.dissolve();
        drivers::over(self.give_back);
        *self.gone.lock() = true;
        self.left.notify_all();
    }
}
