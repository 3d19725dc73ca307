//! The loop of one thread: sockets and mail in, an actor in the middle, log, mail and sockets out.
//!
//! A turn reads each socket that has something once, runs what is complete, and takes the mail. Then, in this order: the
//! actor's changes are appended to the log, mail for other threads leaves, replies are put to their connections, and
//! each connection is written to once.

mod accept;
mod attend;
mod durability;
mod replies;
mod serve;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::{Events, Poll, Token};
use parking_lot::Mutex;
use savanna_journal::{Journal, JournalError, Lsn};
use savanna_keys::actor::Actor;
use savanna_keys::actor::message::Message;
use savanna_keys::figures::Figures;
use savanna_keys::session::Session;
use savanna_lattice::{Hlc, UnixMillis};
use savanna_ownership::guard::LeaseGuard;

use self::accept::Connections;
pub(crate) use self::accept::Door;
pub(crate) use self::attend::Lent;
use crate::connection::Connection;
use crate::mailbox::{Mail, Mailbox, Slot};
use crate::memory::Release;
use crate::parse::Parser;
use crate::rewrite::Rewrites;

pub(crate) const WAKE: Token = Token(usize::MAX);
pub(crate) const LISTEN: Token = Token(usize::MAX - 1);
pub(crate) const LISTEN_TLS: Token = Token(usize::MAX - 2);

/// How often that happens. The thread sleeps between: one that never does waits for its core when a request comes.
const REWRITE_PERIOD: Duration = Duration::from_millis(1);
/// How long a rewrite waits where there is no memory for the next key, or no space for the log.
const REWRITE_PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(10);
/// How long replies wait before the lease is looked at again.
const LEASE_PAUSE: Duration = Duration::from_millis(10);
/// How long who publishes waits before other threads are looked at again.
const PUBLISH_PAUSE: Duration = Duration::from_millis(1);
/// With more replies and messages for connections than this, a turn takes no more mail.
const HEARD_BYTES: usize = 8 << 20;
const READ_BYTES: usize = 64 << 10;
/// How often connections are looked through for those that have to go.
const INSPECTION_PERIOD: Duration = Duration::from_secs(1);
/// How old the figures of the service may be.
const FIGURES_PERIOD: Duration = Duration::from_secs(1);
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
    Log(#[from] JournalError),
}

/// One thread of the server.
pub(crate) struct Thread {
    pub(crate) actor: Actor,
    pub(crate) poll: Poll,
    pub(crate) door: Door,
    pub(crate) lent: Lent,
    pub(crate) mailbox: Mailbox,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) lease: Option<LeaseGuard>,
    /// Its figures, for whoever watches.
    pub(crate) figures: Arc<Mutex<Figures>>,
    pub(crate) state: State,
}

/// What a thread keeps from turn to turn.
pub(crate) struct State {
    connections: Connections,
    /// Connections that are to be served in this turn.
    listed: Vec<usize>,
    /// Connections that may have something to be sent.
    touched: Vec<usize>,
    /// What everything said from now on depends on.
    depends: Lsn,
    /// The position for which the log was asked to wake this thread.
    asked: Lsn,
    /// Up to where the log was durable when connections were last written to.
    durable: Lsn,
    has_log_failed: Arc<AtomicBool>,
    /// Whether clients wait whom the operating system could not give.
    must_accept_again: bool,
    /// When to try again, if the operating system refused.
    accept_after: Option<Instant>,
    /// Connections that wait until other threads have heard what they published.
    held_back: Vec<usize>,
    /// Connections that wait for the end of a pause.
    paused: Vec<usize>,
    inspected_at: UnixMillis,
    /// When the figures were told last, and whether they may have changed since.
    told_figures_at: UnixMillis,
    owes_figures: bool,
    /// Whether a connection is above its soft limit.
    is_any_over_soft: bool,
    buffer: Vec<u8>,
    /// Finds the requests that come next.
    scout: Parser,
    /// When keys may be written again next.
    rewrite_at: Instant,
    /// Used by the first thread.
    rewrites: Rewrites,
    /// Whether what was heard during a rewrite is to be appended.
    has_settled: bool,
    /// Whether the first thread is to hear that this one has appended what a rewrite needs, after what this one has told.
    is_rewritten: bool,
    release: Release,
    is_stopping: bool,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            connections: Vec::new(),
            listed: Vec::new(),
            touched: Vec::new(),
            depends: Lsn::NONE,
            asked: Lsn::NONE,
            durable: Lsn::NONE,
            has_log_failed: Arc::new(AtomicBool::new(false)),
            must_accept_again: false,
            accept_after: None,
            held_back: Vec::new(),
            paused: Vec::new(),
            inspected_at: UnixMillis(0),
            told_figures_at: UnixMillis(0),
            owes_figures: false,
            is_any_over_soft: false,
            buffer: vec![0; READ_BYTES],
            scout: Parser::default(),
            rewrite_at: Instant::now(),
            rewrites: Rewrites::default(),
            has_settled: false,
            is_rewritten: false,
            release: Release::new(),
            is_stopping: false,
        }
    }
}

/// What all threads count durations from.
static BEGIN: OnceLock<Instant> = OnceLock::new();

fn since_begin() -> Duration {
    BEGIN.get().map_or(Duration::ZERO, Instant::elapsed)
}

fn unix_now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(since.as_millis() as u64)
}

fn instant() -> Hlc {
    Hlc::of_instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl Thread {
    /// Serves until it is told to stop.
    pub(crate) fn run(&mut self) -> Result<(), ThreadError> {
        let mut events = Events::with_capacity(1024);
        self.actor.employ(self.lent.attendance(self));
        let mut due = self.tick();
        BEGIN.get_or_init(Instant::now);
        self.actor.stopwatch = since_begin;
        self.actor.keys.instant = instant;
        self.actor.counters.started = self.actor.keys.now();
        while !self.state.is_stopping {
            self.sleep(&mut events, due)?;
            due = self.tick();
            self.note_space();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    LISTEN | LISTEN_TLS => self.state.must_accept_again = true,
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
            self.take_mail();
            self.let_publishers_go_on();
            self.serve_listed();
            self.let_paused_go_on();
            self.dismiss();
            self.inspect();
            self.finish_turn()?;
        }
        self.append()
    }

    fn tick(&mut self) -> Option<UnixMillis> {
        self.lending(|actor| actor.tick(unix_now()))
    }

    /// Lets the actor run what may be a script; its attendant has the connections meanwhile.
    fn lending<T>(&mut self, run: impl FnOnce(&mut Actor) -> T) -> T {
        let depends = self.actor.keys.log.bytes().is_empty().then_some(self.state.depends);
        self.lent.lend(&mut self.state.connections, depends);
        let outcome = run(&mut self.actor);
        let served = self.lent.take_back(&mut self.state.connections);
        self.state.must_accept_again |= !served.is_empty();
        served.into_iter().for_each(|place| self.list(place));
        outcome
    }

    fn sleep(&mut self, events: &mut Events, due: Option<UnixMillis>) -> Result<(), ThreadError> {
        let now = unix_now();
        let due = due.into_iter().chain(self.actor.next_time_out()).min();
        let mut timeout = due.map_or(SLEEP_MAX, |due| Duration::from_millis(due.0.saturating_sub(now.0)));
        if !self.state.touched.is_empty() && !self.may_tell() {
            timeout = timeout.min(LEASE_PAUSE);
        }
        if self.actor.config.idle_seconds_max > 0 || self.state.is_any_over_soft {
            timeout = timeout.min(INSPECTION_PERIOD);
        }
        if self.state.owes_figures {
            timeout = timeout.min(FIGURES_PERIOD);
        }
        if self.state.must_accept_again {
            timeout = timeout.min(ACCEPT_PAUSE);
        }
        if !self.state.held_back.is_empty() {
            timeout = timeout.min(PUBLISH_PAUSE);
        }
        if let Some(due) = self.actor.gossip_due() {
            timeout = timeout.min(Duration::from_millis(due.0.saturating_sub(now.0)));
        }
        if self.actor.keys.is_rewriting() {
            timeout = timeout.min(self.state.rewrite_at.saturating_duration_since(Instant::now()));
        }
        if let Some(due) = self.state.release.due() {
            timeout = timeout.min(due);
        }
        if !self.state.listed.is_empty() || self.actor.owes_room() {
            timeout = Duration::ZERO;
        }
        self.mailbox.fall_asleep();
        let mail = self.mailbox.take();
        if mail.is_some() || self.may_release() {
            timeout = Duration::ZERO;
        }
        let begun = Instant::now();
        let polled = self.poll.poll(events, Some(timeout.min(SLEEP_MAX)));
        self.mailbox.wake_up();
        let is_busy = !events.is_empty() || mail.is_some() || self.actor.is_dropping();
        self.state.release.wake(begun.elapsed(), is_busy);
        if let Err(error) = polled
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error.into());
        }
        if let Some(mail) = mail {
            self.hear(mail);
        }
        Ok(())
    }

    /// Whether this process is the one that serves these keys. If not, another one may have changed them already.
    fn may_tell(&self) -> bool {
        self.lease.as_ref().is_none_or(LeaseGuard::serving)
    }

    /// Whether the log has become durable further than connections that wait for it know. Looked at after the thread said
    /// that it sleeps: what the log says later wakes it.
    fn may_release(&self) -> bool {
        !self.state.touched.is_empty()
            && self.may_tell()
            && self.journal.as_ref().is_some_and(|journal| journal.durable() > self.state.durable)
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
        for session in self.actor.take_dismissed() {
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
        let now = self.actor.keys.now();
        let idle = self.actor.config.idle_seconds_max;
        let is_due = now.0.saturating_sub(self.state.inspected_at.0) >= INSPECTION_PERIOD.as_millis() as u64;
        if !is_due || idle == 0 && !self.state.is_any_over_soft {
            return;
        }
        self.state.inspected_at = now;
        self.state.is_any_over_soft = false;
        for place in 0..self.state.connections.len() {
            let Some(mut connection) = self.state.connections[place].take() else { continue };
            let listens = self.actor.sessions.get(connection.session).is_some_and(Session::is_subscribed);
            let is_idle = idle > 0
                && now.0.saturating_sub(connection.heard_at.0) >= idle.saturating_mul(1000)
                && !listens
                && connection.is_quiet();
            connection.is_dismissed |= is_idle || self.leaves_too_much(&mut connection);
            let is_dismissed = connection.is_dismissed;
            self.state.connections[place] = Some(connection);
            if is_dismissed {
                self.touch(place);
            }
        }
    }

    fn leaves_too_much(&mut self, connection: &mut Connection) -> bool {
        let listens = self.actor.sessions.get(connection.session).is_some_and(Session::is_subscribed);
        let config = &self.actor.config;
        let limit = if listens { config.output_listening } else { config.output_normal };
        let leaves = connection.leaves_too_much(limit, self.actor.keys.now());
        self.state.is_any_over_soft |= connection.over_soft_since.is_some();
        leaves
    }

    fn take_mail(&mut self) {
        while self.actor.reply_bytes() < HEARD_BYTES
            && let Some(mail) = self.mailbox.take()
        {
            self.hear(mail);
        }
    }

    /// Lets those go on who published more than other threads could hear, once these have.
    fn let_publishers_go_on(&mut self) {
        if self.state.held_back.is_empty() || self.is_anybody_behind() {
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
        if self.state.paused.is_empty() || self.actor.is_paused() {
            return;
        }
        for place in std::mem::take(&mut self.state.paused) {
            if let Some(Some(connection)) = self.state.connections.get_mut(place) {
                connection.is_held = false;
                self.list(place);
            }
        }
    }

    fn is_anybody_behind(&self) -> bool {
        self.door.slots.iter().any(Slot::is_behind)
    }

    fn hear(&mut self, mail: Mail) {
        match mail {
            Mail::Messages { from, depends, messages, published } => {
                self.door.slots[self.actor.id().index()].note_heard(published);
                self.state.depends = self.state.depends.max(depends);
                for message in messages {
                    self.lending(|actor| actor.deliver(from, message));
                }
            }
            Mail::Client(stream, is_encrypted) => {
                self.door.greet_given(stream, is_encrypted, &mut self.actor, &mut self.state.connections);
            }
            Mail::WantRewrite => self.begin_rewrite(),
            Mail::Rewrite => self.actor.keys.begin_rewrite(),
            Mail::Rewritten(end) => {
                if self.state.rewrites.hear_done(end) {
                    self.door.slots.iter().for_each(|slot| slot.put(Mail::Settle));
                }
            }
            Mail::Settle => {
                self.actor.keys.settle_rewrite();
                self.state.has_settled = true;
            }
            Mail::Stop => self.state.is_stopping = true,
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
            connection.stream.say_goodbye();
            self.actor.close_session(connection.session);
            self.door.client_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn finish_turn(&mut self) -> Result<(), ThreadError> {
        self.rewrite()?;
        // Who reads a message may write what follows from it: the log has to have this thread's part first.
        self.append()?;
        for actor in self.actor.actors() {
            let messages = self.actor.take_outbox(actor);
            if !messages.is_empty() {
                let published = messages.iter().map(Message::published_bytes).sum();
                let mail = Mail::Messages { from: self.actor.id(), depends: self.state.depends, messages, published };
                self.door.slots[actor.index()].put(mail);
            }
        }
        if std::mem::take(&mut self.state.is_rewritten) {
            self.door.slots[0].put(Mail::Rewritten(self.state.depends));
        }
        self.put_replies();
        self.tell_figures();
        self.write_all()
    }

    /// Tells the figures, not at every turn: keys that have copies are counted one by one.
    fn tell_figures(&mut self) {
        let now = self.actor.keys.now();
        self.state.owes_figures =
            now.0.saturating_sub(self.state.told_figures_at.0) < FIGURES_PERIOD.as_millis() as u64;
        if !self.state.owes_figures {
            self.state.told_figures_at = now;
            *self.figures.lock() = self.actor.figures();
        }
    }
}
