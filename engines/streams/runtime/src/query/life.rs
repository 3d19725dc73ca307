//! How a query begins and ends: its source partitions get turns, and the last of them to leave publishes the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::budget;

use super::Shared;
use super::drivers::{self, Mailbox, panicked};
use super::keeping::Keeping;
use super::partition::ScanPartition;
use super::turns::{Next, STACK_BYTES, Waker, blocking};
use crate::clock::Clock;
use crate::driver::{Driver, Input, Outcome};
use crate::lookup::{Loading, Table};

/// A query that is about to run.
pub(super) struct Ready {
    pub(super) shared: Arc<Shared>,
    pub(super) mailbox: Mailbox,
    pub(super) driver: Driver,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) scans: Vec<ScanPartition>,
    /// The tables of its look-ups.
    pub(super) tables: Vec<Loading>,
}

impl Ready {
    /// Reads those tables of look-ups that no former process has read, on a thread for this alone, and starts the query.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(super) fn start(mut self) -> Result<()> {
        let tables = std::mem::take(&mut self.tables).into_iter();
        let (old, new): (Vec<Loading>, Vec<Loading>) = tables.partition(|table| table.versions.is_known());
        let (shared, limit) = (Arc::clone(&self.shared), self.shared.memory.limit());
        let refresh = move |new: Vec<Loading>| {
            let old = old.into_iter().map(|table| (table, true));
            let tables = old.chain(new.into_iter().map(|table| (table, false))).collect();
            shared.refreshing.begin(&shared.id, tables, limit)
        };
        if new.is_empty() {
            refresh(new)?;
            self.run();
            return Ok(());
        }
        let name = format!("{}-load", self.shared.id);
        let loading = move || {
            let shared = Arc::clone(&self.shared);
            let load = || budget::within(limit, || shared.load(&new).and_then(|()| refresh(new)));
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

    /// Starts to read, and the driver.
    fn run(mut self) {
        if let Err(error) = Keeping::begin(&self.shared) {
            self.give_up(Outcome::Failed(error));
            return;
        }
        let scans = std::mem::take(&mut self.scans);
        let mut started = Ok(());
        for scan in scans {
            match started.and_then(|()| Arc::clone(&self.shared).read(scan)) {
                Ok(()) => started = Ok(()),
                Err(error) => {
                    let what = "starting a thread for source partitions";
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
    fn load(&self, tables: &[Loading]) -> Result<()> {
        for table in tables {
            table.read(|rows| {
                self.progress.loaded(rows);
                !self.cancelled.load(Ordering::Acquire)
            })?;
        }
        self.progress.all_loaded();
        Ok(())
    }

    /// Has a source partition read in turns, until the query stops.
    pub(super) fn read(self: Arc<Self>, scan: ScanPartition) -> std::io::Result<()> {
        let (driver, control) = (scan.driver.clone(), Arc::clone(&scan.control));
        let of_waker = Arc::clone(&control);
        // None once it has failed.
        let mut scan = Some(scan.begin());
        let waker = Waker::new(move || {
            let Some(filling) = &mut scan else {
                if !control.is_stopped() {
                    return Next::WhenWoken;
                }
                self.leave();
                return Next::Never;
            };
            let turn = || budget::within(self.memory.limit(), || filling.turn());
            let next = catch_unwind(AssertUnwindSafe(turn))
                .unwrap_or_else(|panic| Err(panicked("a thread of the query", panic.as_ref())));
            match next {
                Ok(Next::Never) => {
                    scan = None;
                    self.leave();
                    Next::Never
                }
                Ok(next) => next,
                Err(error) => {
                    filling.publish();
                    scan = None;
                    driver.send(Input::Failed(error));
                    Next::Again
                }
            }
        });
        of_waker.wakes(waker.clone());
        waker.begin()
    }

    /// Has all partitions leave. How the query ends is decided by the first to call it.
    pub(super) fn stop(&self, outcome: Outcome) {
        let is_over = matches!(self.leaving.lock().outcome.get_or_insert(outcome), Outcome::Finished);
        self.groups.stop();
        if let Some(give_up) = self.give_up.as_ref().filter(|_| !is_over) {
            give_up();
        }
        if let Some(recording) = &self.recording {
            recording.gate.stop();
        }
        if !is_over {
            self.ask_no_more();
        }
        self.controls.lock().iter().for_each(|control| control.stop());
    }

    /// Nobody waits for tables that are asked.
    fn ask_no_more(&self) {
        for table in &self.lookups {
            if let Table::ByKey(asked) = table {
                asked.give_up();
            }
        }
    }

    /// A partition leaves; all do so once the query was stopped. The last one ends the query.
    pub(super) fn leave(&self) {
        let outcome = {
            let mut leaving = self.leaving.lock();
            leaving.partitions -= 1;
            if leaving.partitions > 0 {
                return;
            }
            leaving.outcome.take().unwrap_or(Outcome::Cancelled)
        };
        blocking(|| self.end(outcome));
    }

    fn end(&self, outcome: Outcome) {
        let finish = match &outcome {
            Outcome::Failed(_) => Ok(()),
            Outcome::Finished | Outcome::Cancelled => catch_unwind(AssertUnwindSafe(|| self.groups.finish()))
                .unwrap_or_else(|panic| Err(panicked("the sink", panic.as_ref()))),
        };
        let outcome = finish.err().map_or(outcome, Outcome::Failed);
        tracing::debug!(query = %self.id, ?outcome, "the query is over");
        if let Some(snapshots) = &self.snapshots {
            snapshots.end();
        }
        self.refreshing.end();
        self.ask_no_more();
        self.keeping.end();
        self.note_end(&outcome);
        self.publish_end(outcome);
        self.groups.dissolve();
        self.growth.end();
        drivers::over(self.give_back);
        *self.gone.lock() = true;
        self.left.notify_all();
    }
}
