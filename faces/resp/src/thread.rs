//! The loop of one thread: sockets in, a worker of the host in the middle, sockets out.
//!
//! A turn takes the mail, puts what it brought for clients to their connections, reads each socket that has something once, and runs what
//! is complete. Then, in this order: the worker appends what was changed to the log and sends mail to other threads, replies are put to
//! their connections, and each connection is written to once.

mod accept;
mod ahead;
mod attend;
pub(crate) mod eviction;
mod replies;
mod serve;

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use savanna_identity::Throttle;
use savanna_keys_host::{HostError, Worker};
use savanna_lattice::UnixMillis;

use self::accept::Connections;
pub(crate) use self::accept::{Acceptor, Arrivals, Door, Listener, PendingClient};
use self::ahead::Ahead;
pub(crate) use self::attend::Lent;
use self::eviction::Scales;
use crate::connection::Connection;

pub(crate) const WAKE: Token = Token(usize::MAX);
pub(crate) const LISTEN: Token = Token(usize::MAX - 1);
pub(crate) const LISTEN_TLS: Token = Token(usize::MAX - 2);
pub(crate) const LISTEN_CLUSTER: Token = Token(usize::MAX - 3);

/// How long who publishes waits before other threads are looked at again.
const PUBLISH_PAUSE: Duration = Duration::from_millis(1);
const READ_BYTES: usize = 64 << 10;
/// How often connections are looked through for those that have to go.
const INSPECTION_PERIOD: Duration = Duration::from_secs(1);
/// How long to wait before clients are accepted again after the operating system refused, for want of files mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a thread ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The operating system refused something without which it cannot go on.
    #[error("could not wait for sockets: {0}; check the limits of open files and memory")]
    Poll(#[from] io::Error),
    /// The log ended. Nothing more is told to anybody.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// One thread of the server.
pub(crate) struct Thread {
    pub(crate) worker: Worker,
    pub(crate) poll: Poll,
    pub(crate) acceptor: Acceptor,
    pub(crate) lent: Lent,
    pub(crate) scales: Scales,
    pub(crate) state: State,
}

/// What a thread keeps from turn to turn.
pub(crate) struct State {
    connections: Connections,
    /// Connections that are to be served in this turn.
    listed: Vec<usize>,
    /// Connections that may have something to be sent.
    touched: Vec<usize>,
    /// Whether clients wait whom the operating system could not give.
    must_accept_again: bool,
    /// When to try again, if the operating system refused.
    accept_after: Option<Instant>,
    /// How often it refused.
    failures_to_accept: Throttle,
    /// Connections that wait until other threads have heard what they published.
    held_back: Vec<usize>,
    /// Connections that wait for the end of a pause.
    paused: Vec<usize>,
    inspected_at: UnixMillis,
    /// Whether a connection is above its soft limit.
    is_any_over_soft: bool,
    buffer: Vec<u8>,
    /// The requests of a pipeline that come next.
    ahead: Option<Box<Ahead>>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            connections: Vec::new(),
            listed: Vec::new(),
            touched: Vec::new(),
            must_accept_again: false,
            accept_after: None,
            failures_to_accept: Throttle::default(),
            held_back: Vec::new(),
            paused: Vec::new(),
            inspected_at: UnixMillis(0),
            is_any_over_soft: false,
            buffer: vec![0; READ_BYTES],
            ahead: None,
        }
    }
}

impl Thread {
    /// Serves until it is told to stop.
    pub(crate) fn run(&mut self) -> Result<(), ThreadError> {
        let mut events = Events::with_capacity(1024);
        let mut due = self.worker.begin(self.lent.attendance(self));
        while !self.worker.is_stopping() {
            self.sleep(&mut events, due)?;
            due = self.lending(Worker::begin_turn);
            // What was published before a request came stands before the reply to it.
            self.put_replies();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    LISTEN | LISTEN_TLS | LISTEN_CLUSTER => self.state.must_accept_again = true,
                    Token(place) => {
                        if let Some(Some(connection)) = self.state.connections.get_mut(place) {
                            connection.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                            connection.is_writable |= event.is_writable();
                            connection.is_hung_up |= event.is_read_closed() || event.is_error();
                            self.list(place);
                        }
                    }
                }
            }
            if self.state.must_accept_again && self.state.accept_after.is_none_or(|after| after <= Instant::now()) {
                self.accept();
            }
            self.take_arrivals();
            self.let_publishers_go_on();
            self.serve_listed();
            self.let_paused_go_on();
            self.dismiss();
            self.inspect();
            self.worker.finish_turn()?;
            self.put_replies();
            self.begin_copies();
            self.write_all()?;
            self.evict_clients();
        }
        Ok(self.worker.finish()?)
    }

    /// Lets the actor run what may be a script; its attendant has the connections meanwhile.
    fn lending<T>(&mut self, run: impl FnOnce(&mut Worker) -> T) -> T {
        self.lent.lend(&mut self.state.connections);
        let outcome = run(&mut self.worker);
        let served = self.lent.take_back(&mut self.state.connections);
        self.state.must_accept_again |= !served.is_empty();
        served.into_iter().for_each(|place| self.list(place));
        outcome
    }

    fn sleep(&mut self, events: &mut Events, due: Option<UnixMillis>) -> Result<(), ThreadError> {
        let waits = !self.state.touched.is_empty();
        let mut timeout = self.worker.timeout(due, waits).min(self.patience());
        if !self.worker.fall_asleep(waits) || self.acceptor.has_arrivals() {
            timeout = Duration::ZERO;
        }
        let begun = Instant::now();
        let polled = self.poll.poll(events, Some(timeout));
        self.worker.wake_up(begun.elapsed(), !events.is_empty());
        match polled {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// How long connections can wait for the next turn.
    fn patience(&self) -> Duration {
        if !self.state.listed.is_empty() {
            return Duration::ZERO;
        }
        let mut patience = Duration::MAX;
        if self.worker.actor().idle_seconds_max() > 0 || self.state.is_any_over_soft {
            patience = patience.min(INSPECTION_PERIOD);
        }
        if self.scales.are_wanted() {
            patience = patience.min(INSPECTION_PERIOD);
        }
        if self.state.must_accept_again {
            patience = patience.min(ACCEPT_PAUSE);
        }
        if !self.state.held_back.is_empty() {
            patience = patience.min(PUBLISH_PAUSE);
        }
        patience
    }

    fn list(&mut self, place: usize) {
        if let Some(Some(connection)) = self.state.connections.get_mut(place)
            && !connection.is_listed
        {
            connection.is_listed = true;
            self.state.listed.push(place);
        }
    }

    /// Marks the connections of sessions that have to end.
    fn dismiss(&mut self) {
        for session in self.worker.take_dismissed() {
            let place = session.place as usize;
            if let Some(Some(connection)) = self.state.connections.get_mut(place)
                && connection.session == session
            {
                connection.is_dismissed = true;
                self.touch(place);
            }
        }
    }

    /// Marks, once a period, the connections that are idle, or leave too much unread, for too long.
    fn inspect(&mut self) {
        let (now, idle) = (self.worker.actor().now(), self.worker.actor().idle_seconds_max());
        if now.0.saturating_sub(self.state.inspected_at.0) < INSPECTION_PERIOD.as_millis() as u64 {
            return;
        }
        self.state.inspected_at = now;
        self.state.is_any_over_soft = false;
        for place in 0..self.state.connections.len() {
            let Some(mut connection) = self.state.connections[place].take() else { continue };
            let listens = self.worker.actor().listens(connection.session);
            let is_idle = idle > 0
                && now.0.saturating_sub(connection.heard_at.0) >= idle.saturating_mul(1000)
                && !listens
                && connection.is_quiet();
            connection.is_dismissed |= is_idle
                || connection.neglects_copy(now)
                || self.worker.actor().is_late(connection.session, connection.stream.is_established())
                || self.leaves_too_much(&mut connection);
            self.weigh(&mut connection);
            let is_dismissed = connection.is_dismissed;
            self.state.connections[place] = Some(connection);
            if is_dismissed {
                self.touch(place);
            }
        }
    }

    fn leaves_too_much(&mut self, connection: &mut Connection) -> bool {
        let actor = self.worker.actor();
        let limit = actor.output_limit(actor.listens(connection.session));
        let leaves = connection.leaves_too_much(limit, actor.now());
        self.state.is_any_over_soft |= connection.over_soft_since.is_some();
        leaves
    }

    /// Lets those go on who published more than other threads could hear, once these have.
    fn let_publishers_go_on(&mut self) {
        if self.state.held_back.is_empty() || self.worker.is_anybody_behind() {
            return;
        }
        for place in std::mem::take(&mut self.state.held_back) {
            if let Some(Some(connection)) = self.state.connections.get_mut(place) {
                connection.is_held_back = false;
                self.list(place);
            }
        }
    }

    /// Lets those go on whose requests were held back by a pause that is over.
    fn let_paused_go_on(&mut self) {
        if self.state.paused.is_empty() || self.worker.actor().is_paused() {
            return;
        }
        for place in std::mem::take(&mut self.state.paused) {
            if let Some(Some(connection)) = self.state.connections.get_mut(place) {
                connection.is_held = false;
                self.list(place);
            }
        }
    }

    /// Notes that a connection may have something to be sent.
    fn touch(&mut self, place: usize) {
        if let Some(Some(connection)) = self.state.connections.get_mut(place)
            && !connection.is_touched
        {
            connection.is_touched = true;
            self.state.touched.push(place);
        }
    }

    /// Puts a connection back, or ends it.
    fn settle(&mut self, place: usize, mut connection: Box<Connection>, stays: bool) {
        if stays {
            self.state.connections[place] = Some(connection);
        } else {
            self.acceptor.close(&mut connection, &mut self.worker.admission());
        }
    }
}
