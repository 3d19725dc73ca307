//! The application under load: terminals that run transactions at a fixed rate or one after the other, and go on with a new version
//! when the schema was switched.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::statements::Schema;
use crate::transactions::{Input, Kind, Session};

/// A transaction that was done.
pub(crate) struct Done {
    /// When, since the switch was due, in seconds.
    pub(crate) at: f64,
    /// From its arrival to its commit.
    pub(crate) latency: Duration,
    pub(crate) kind: Kind,
}

/// When transactions arrive.
pub(crate) enum Arrivals {
    /// As soon as a terminal is free.
    Closed,
    /// So many per second, at random moments, whether a terminal is free or not.
    Open { rate: f64, next: Cell<Instant>, rng: RefCell<SmallRng> },
}

impl Arrivals {
    /// So many per second, or as many as terminals can do.
    pub(crate) fn new(rate: Option<f64>, seed: u64) -> Self {
        match rate {
            None => Self::Closed,
            Some(rate) => {
                Self::Open { rate, next: Cell::new(Instant::now()), rng: RefCell::new(SmallRng::seed_from_u64(seed)) }
            }
        }
    }

    /// When the next transaction arrives; it may have arrived already, and waited for a terminal.
    fn next(&self) -> Instant {
        match self {
            Self::Closed => Instant::now(),
            Self::Open { rate, next, rng } => {
                let due = next.get();
                let gap = -(1.0 - rng.borrow_mut().random::<f64>()).ln() / rate;
                next.set(due + Duration::from_secs_f64(gap));
                due
            }
        }
    }
}

/// What all terminals share.
pub(crate) struct Application {
    warehouses: i32,
    arrivals: Arrivals,
    /// When the switch is due.
    switch: Instant,
    end: Instant,
    schema: Cell<Schema>,
    deployed: Notify,
    done: RefCell<Vec<Done>>,
    waiting: Cell<u64>,
    retries: Cell<u64>,
    events: RefCell<Vec<(String, f64)>>,
}

impl Application {
    /// An application over so many warehouses whose schema is to be switched at some time.
    pub(crate) fn new(warehouses: i32, arrivals: Arrivals, switch: Instant, window: Duration) -> Self {
        Self {
            warehouses,
            arrivals,
            switch,
            end: switch + window,
            schema: Cell::new(Schema::Original),
            deployed: Notify::new(),
            done: RefCell::default(),
            waiting: Cell::default(),
            retries: Cell::default(),
            events: RefCell::default(),
        }
    }

    /// When the window begins and ends.
    pub(crate) fn window(&self) -> (Instant, Instant) {
        (self.switch, self.end)
    }

    /// What was done.
    pub(crate) fn done(&self) -> std::cell::Ref<'_, Vec<Done>> {
        self.done.borrow()
    }

    /// Transactions that had arrived before the end and that no terminal had begun.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.get()
    }

    /// How often a transaction was tried again.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.get()
    }

    /// What happened when, in seconds since the switch was due.
    pub(crate) fn events(&self) -> Vec<(String, f64)> {
        self.events.borrow().clone()
    }

    fn since_switch(&self, now: Instant) -> f64 {
        if now < self.switch { -(self.switch - now).as_secs_f64() } else { (now - self.switch).as_secs_f64() }
    }

    /// Notes that something happened now.
    pub(crate) fn note(&self, event: &str) {
        self.events.borrow_mut().push((event.to_owned(), self.since_switch(Instant::now())));
    }

    /// Lets terminals go on with the version that knows a schema.
    pub(crate) fn deploy(&self, schema: Schema) {
        self.note("switched");
        self.schema.set(schema);
        self.deployed.notify_waiters();
    }

    /// Runs transactions until the end.
    ///
    /// # Errors
    /// Those that have nothing to do with the switch, and would come again.
    pub(crate) async fn terminal(self: Rc<Self>, mut session: Session, seed: u64) -> Result<(), Error> {
        let mut rng = SmallRng::seed_from_u64(seed);
        loop {
            let mut arrived = self.arrivals.next();
            if arrived >= self.end {
                return Ok(());
            }
            if arrived > Instant::now() {
                sleep_until(arrived).await;
                // That a timer is late is not the server's fault.
                arrived = Instant::now();
            }
            if Instant::now() >= self.end {
                self.waiting.set(self.waiting.get() + 1);
                continue;
            }
            let input = Input::draw(&mut rng, self.warehouses);
            self.run(&mut session, &input).await?;
            let now = Instant::now();
            self.done.borrow_mut().push(Done {
                at: self.since_switch(now),
                latency: now - arrived,
                kind: input.kind(),
            });
        }
    }

    /// Runs a transaction, again if it lost against others or if its schema is gone.
    async fn run(&self, session: &mut Session, input: &Input) -> Result<(), Error> {
        loop {
            session.deploy(self.schema.get());
            let Err(error) = session.run(input).await else { return Ok(()) };
            let is_gone =
                matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE));
            if is_gone && session.schema() == Schema::Original {
                self.switched().await;
            } else if !is_retriable(&error) {
                return Err(error);
            }
            self.retries.set(self.retries.get() + 1);
        }
    }

    /// Waits until the new version is there.
    async fn switched(&self) {
        loop {
            let deployed = self.deployed.notified();
            if self.schema.get() != Schema::Original {
                return;
            }
            deployed.await;
        }
    }
}

/// Whether a transaction lost against another one, and may be tried again.
pub(crate) fn is_retriable(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}
