//! The driver's thread: feeds the state machine, does what it says, ends the query.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use savanna_streams_functions::budget;
use savanna_streams_model::StreamError;
use savanna_streams_model::time::Windows;

use super::Shared;
use super::control::Control;
use super::scan_thread::ScanThread;
use crate::clock::Clock;
use crate::cpu::thread_cpu;
use crate::driver::{Action, Driver, DriverOptions, Input, Outcome};
use crate::lookup::Loading;
use crate::options::RuntimeOptions;

/// Bytes of a thread's stack. Expressions are computed by going down into them, once for each operator of a chain, and views
/// add theirs to those of a statement. It is address space until it is used.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// How long the driver sleeps at most; only its CPU gauge waits for it.
const IDLE: Duration = Duration::from_secs(1);

/// The thread's belongings.
pub(crate) struct Supervisor {
    shared: Arc<Shared>,
    inputs: Receiver<Input>,
    /// For the scan threads' ends.
    failures: Sender<Input>,
    /// What is read before the first row of a stream.
    tables: Vec<Loading>,
    scans: Vec<ScanThread>,
    driver: Driver,
    clock: Arc<dyn Clock>,
    on_end: fn(),
}

impl Supervisor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inputs: Receiver<Input>,
        failures: Sender<Input>,
        tables: Vec<Loading>,
        scans: Vec<ScanThread>,
        clock_windows: Vec<Windows>,
        options: &RuntimeOptions,
    ) -> Self {
        let driver = DriverOptions {
            policy: options.epoch,
            max_in_flight: options.max_epochs_in_flight.max(1) as u64,
            replay_timeout: options.replay_timeout,
            replay_limit: options.replay_limit,
            clock_windows,
        };
        let driver = Driver::new(scans.len(), driver);
        let (clock, on_end) = (Arc::clone(&options.clock), options.on_end);
        Self { shared, inputs, failures, tables, scans, driver, clock, on_end }
    }

    /// Runs the query to its end.
    pub(crate) fn run(mut self) {
        let controls: Vec<Arc<Control>> = self.scans.iter().map(|scan| Arc::clone(&scan.control)).collect();
        let scans = std::mem::take(&mut self.scans);
        let mut threads = Vec::with_capacity(scans.len());
        let drive = catch_unwind(AssertUnwindSafe(|| {
            match budget::within(self.shared.memory.limit(), || self.load()) {
                Ok(()) => {}
                Err(StreamError::Cancelled) => return Outcome::Cancelled,
                Err(error) => return Outcome::Failed(error),
            }
            for scan in scans {
                match self.spawn(scan) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => return Outcome::Failed(error),
                }
            }
            self.drive(&controls)
        }));
        let outcome = drive.unwrap_or_else(|panic| Outcome::Failed(panicked("the driver", panic.as_ref())));
        self.shared.groups.stop();
        for control in &controls {
            control.stop();
        }
        for thread in threads {
            // A panic inside was caught and told.
            let _ = thread.join();
        }
        let finish = match &outcome {
            Outcome::Failed(_) => Ok(()),
            Outcome::Finished | Outcome::Cancelled => catch_unwind(AssertUnwindSafe(|| self.shared.groups.finish()))
                .unwrap_or_else(|panic| Err(panicked("the sink", panic.as_ref()))),
        };
        self.shared.progress.driver_cpu.set(thread_cpu());
        let outcome = finish.err().map_or(outcome, Outcome::Failed);
        tracing::debug!(query = %self.shared.id, ?outcome, "the query is over");
        self.shared.publish_end(outcome);
        self.shared.groups.dissolve();
        (self.on_end)();
        *self.shared.gone.lock() = true;
        self.shared.left.notify_all();
    }

    /// Reads the tables for look-ups. Until then nobody but the user sends inputs.
    fn load(&mut self) -> Result<(), StreamError> {
        for table in std::mem::take(&mut self.tables) {
            table.read(|rows| {
                self.shared.progress.loaded(rows);
                !matches!(self.inputs.try_recv(), Ok(Input::Cancel))
            })?;
        }
        self.shared.progress.all_loaded();
        Ok(())
    }

    fn spawn(&self, scan: ScanThread) -> Result<JoinHandle<()>, StreamError> {
        let failures = self.failures.clone();
        let name = format!("{}-scan-{}", self.shared.id, scan.source);
        let limit = self.shared.memory.limit();
        thread::Builder::new()
            .name(name)
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| budget::within(limit, || scan.run())))
                    .unwrap_or_else(|panic| Err(panicked("a thread of the query", panic.as_ref())));
                if let Err(error) = result {
                    // The driver is gone only when the query is over.
                    let _ = failures.send(Input::Failed(error));
                }
            })
            .map_err(|e| StreamError::io("starting a thread for a source partition", &e))
    }

    /// How long until a window of processing time ends that only waits for an epoch.
    fn fires_in(&self) -> Option<Duration> {
        self.driver.fires_at().map(|instant| self.clock.until(instant))
    }

    fn drive(&mut self, controls: &[Arc<Control>]) -> Outcome {
        let mut input = Input::Start;
        loop {
            for action in self.driver.step(input, self.shared.started.elapsed()) {
                match action {
                    Action::Open(epoch) => controls.iter().for_each(|control| control.open(epoch)),
                    Action::Cut(epoch) => controls.iter().for_each(|control| control.cut(epoch)),
                    Action::Replay(epoch) => {
                        tracing::warn!(query = %self.shared.id, %epoch, "an epoch is overdue and sent again");
                        controls.iter().for_each(|control| control.replay(epoch));
                    }
                    Action::Record(record) => *self.shared.record.lock() = Some(record),
                    Action::Stop(outcome) => return outcome,
                }
            }
            self.shared.progress.driver_cpu.set(thread_cpu());
            let deadline = self.driver.deadline();
            let wait = deadline.map_or(IDLE, |deadline| deadline.saturating_sub(self.shared.started.elapsed()));
            let fires = self.fires_in().unwrap_or(IDLE);
            input = match self.inputs.recv_timeout(wait.min(fires).min(IDLE)) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) if self.fires_in() == Some(Duration::ZERO) => Input::Fire,
                Err(RecvTimeoutError::Timeout) => Input::Tick,
                // This thread holds a sender itself.
                Err(RecvTimeoutError::Disconnected) => return Outcome::Cancelled,
            };
        }
    }
}

fn panicked(who: &str, panic: &(dyn Any + Send)) -> StreamError {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    StreamError::Internal(format!("{who} panicked: {}", text.unwrap_or("no message")))
}
