//! The thread that drives all queries of the process: feeds their state machines, and does what they say.
//!
//! A step is short and waits for nothing. What may take long is done on the threads that read: they send, and the last of them
//! to leave ends the query.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_streams_api::{Result, StreamError};

use super::Shared;
use super::control::Control;
use crate::clock::Clock;
use crate::cpu::thread_cpu;
use crate::driver::{Action, Driver, Input, Outcome};

/// How long a driver sleeps at most: its clock may be moved by hand.
const IDLE: Duration = Duration::from_secs(1);

/// Where the thread hears from queries; none before the first.
static DRIVERS: Mutex<Option<Sender<Mail>>> = Mutex::new(None);

/// After the end of queries, what they held is given back once there was none for this long: their threads are gone then, and
/// so are the results that clients were reading.
const TIDY_AFTER: Duration = Duration::from_secs(1);

/// What the thread hears of a query.
enum Mail {
    Begin(u64, Box<Driven>),
    Input(u64, Input),
    /// A query is over. The function gives memory back.
    Over(fn()),
}

/// The way to a query's driver.
#[derive(Clone)]
pub(crate) struct Mailbox {
    query: u64,
    drivers: Sender<Mail>,
}

impl Mailbox {
    /// That of a new query.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut drivers = DRIVERS.lock();
        let drivers = match &mut *drivers {
            Some(drivers) => drivers.clone(),
            none => none.insert(start()?).clone(),
        };
        Ok(Self { query: NEXT.fetch_add(1, Ordering::Relaxed), drivers })
    }

    /// Tells the driver something. Before it has begun, and when the query is over, it hears nothing.
    pub(crate) fn send(&self, input: Input) {
        // The thread never ends.
        let _ = self.drivers.send(Mail::Input(self.query, input));
    }

    /// Begins to drive the query.
    pub(crate) fn begin(&self, shared: Arc<Shared>, driver: Driver, clock: Arc<dyn Clock>) {
        let driven = Driven { shared, driver, clock, wakes: Instant::now(), cpu: Duration::ZERO };
        let _ = self.drivers.send(Mail::Begin(self.query, Box::new(driven)));
    }
}

/// A query is over, and its threads have let go of what they held.
pub(super) fn over(give_back: fn()) {
    if let Some(drivers) = &*DRIVERS.lock() {
        let _ = drivers.send(Mail::Over(give_back));
    }
}

fn start() -> Result<Sender<Mail>> {
    let (sender, mail) = channel();
    thread::Builder::new()
        .name("query-drivers".into())
        .spawn(move || Drivers::default().run(&mail))
        .map_err(|e| StreamError::io("starting the thread that drives queries", &e))?;
    Ok(sender)
}

/// A query that is driven.
struct Driven {
    shared: Arc<Shared>,
    driver: Driver,
    clock: Arc<dyn Clock>,
    /// When its driver wants to be asked again.
    wakes: Instant,
    cpu: Duration,
}

impl Driven {
    /// One step. Returns how the query ends, if it does.
    fn step(&mut self, input: Input) -> Option<Outcome> {
        let before = thread_cpu();
        let ends = catch_unwind(AssertUnwindSafe(|| self.act(input)))
            .unwrap_or_else(|panic| Some(Outcome::Failed(panicked("the driver", panic.as_ref()))));
        self.cpu += thread_cpu().saturating_sub(before);
        self.shared.progress.driver_cpu.set(self.cpu);
        ends
    }

    fn act(&mut self, input: Input) -> Option<Outcome> {
        let controls = &self.shared.controls;
        let each = |tell: &dyn Fn(&Control)| controls.lock().iter().for_each(|control| tell(control));
        if let (Input::Committed { epoch }, Some(snapshots)) = (&input, &self.shared.snapshots) {
            snapshots.held(*epoch);
        }
        for action in self.driver.step(input, self.shared.started.elapsed()) {
            match action {
                Action::Join { epoch, count } => {
                    if let Err(error) = self.shared.join(epoch, count) {
                        return Some(Outcome::Failed(error));
                    }
                }
                Action::Open(epoch) => each(&|control| control.open(epoch)),
                Action::Cut(epoch) => {
                    if let Some(snapshots) = &self.shared.snapshots {
                        snapshots.cut(epoch);
                    }
                    each(&|control| control.cut(epoch));
                }
                Action::Replay(epoch) => {
                    tracing::warn!(query = %self.shared.id, %epoch, "an epoch is overdue and sent again");
                    each(&|control| control.replay(epoch));
                }
                Action::Record(record) => self.shared.sealed(record),
                Action::Stop(outcome) => return Some(outcome),
            }
        }
        let deadline = self.driver.deadline();
        let wait = deadline.map_or(IDLE, |deadline| deadline.saturating_sub(self.shared.started.elapsed()));
        self.wakes = Instant::now() + wait.min(self.fires_in().unwrap_or(IDLE)).min(IDLE);
        None
    }

    /// How long until a window of processing time ends that only waits for an epoch.
    fn fires_in(&self) -> Option<Duration> {
        self.driver.fires_at().map(|instant| self.clock.until(instant))
    }

    /// What the driver is told when its time has come.
    fn alarm(&self) -> Input {
        if self.fires_in() == Some(Duration::ZERO) { Input::Fire } else { Input::Tick }
    }
}

/// All queries that are driven.
#[derive(Default)]
struct Drivers {
    driven: HashMap<u64, Box<Driven>>,
    alarms: BTreeSet<(Instant, u64)>,
    /// When memory is given back, if queries have ended, and how.
    tidies: Option<(Instant, fn())>,
}

impl Drivers {
    fn run(mut self, mail: &Receiver<Mail>) {
        loop {
            // However much there is to hear.
            self.ring();
            let heard = match self.next_alarm() {
                Some(at) => mail.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => mail.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match heard {
                Ok(Mail::Begin(query, driven)) => self.begin(query, driven),
                Ok(Mail::Input(query, input)) => self.step(query, input),
                Ok(Mail::Over(give_back)) => self.tidies = Some((Instant::now() + TIDY_AFTER, give_back)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn next_alarm(&self) -> Option<Instant> {
        let driver = self.alarms.first().map(|(at, _)| *at);
        driver.into_iter().chain(self.tidies.map(|(at, _)| at)).min()
    }

    fn begin(&mut self, query: u64, driven: Box<Driven>) {
        let shared = Arc::clone(&driven.shared);
        self.driven.insert(query, driven);
        self.step(query, Input::Start);
        // It was told before there was somebody to hear it.
        if shared.cancelled.load(Ordering::Acquire) {
            self.step(query, Input::Cancel);
        }
    }

    /// Asks the drivers whose time has come, and tidies.
    fn ring(&mut self) {
        let now = Instant::now();
        if let Some((_, give_back)) = self.tidies.take_if(|(at, _)| *at <= now) {
            give_back();
        }
        while let Some(&(at, query)) = self.alarms.first().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, query));
            if let Some(alarm) = self.driven.get(&query).map(|driven| driven.alarm()) {
                self.step(query, alarm);
            }
        }
    }

    fn step(&mut self, query: u64, input: Input) {
        let Some(driven) = self.driven.get_mut(&query) else { return };
        self.alarms.remove(&(driven.wakes, query));
        match driven.step(input) {
            None => drop(self.alarms.insert((driven.wakes, query))),
            Some(outcome) => {
                driven.shared.stop(outcome);
                self.driven.remove(&query);
            }
        }
    }
}

/// That a thread of a query panicked.
pub(super) fn panicked(who: &str, panic: &(dyn Any + Send)) -> StreamError {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    StreamError::Internal(format!("{who} panicked: {}", text.unwrap_or("no message")))
}
