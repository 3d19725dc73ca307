//! The loop of one thread: sockets and mail in, an actor in the middle, log, mail and sockets out.
//!
//! A turn reads each socket that has something once, runs what is complete, and takes the mail. Then, in this order: the
//! actor's changes are appended to the log, mail for other threads leaves, replies are put to their connections, and
//! each connection is written to once.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;
use savanna_journal::{Journal, JournalError, Lsn};
use savanna_keys::access::Access;
use savanna_keys::actor::message::{Destination, Message};
use savanna_keys::actor::{Actor, Progress};
use savanna_keys::config::{OutputLimit, Sync, TlsClients};
use savanna_keys::keyspace::NEAR_MAX;
use savanna_keys::log::append_changes;
use savanna_keys::reply::{Answering, Reply};
use savanna_keys::request::Args;
use savanna_keys::session::{Session, SessionId};
use savanna_lattice::UnixMillis;
use savanna_ownership::guard::LeaseGuard;
use socket2::{SockRef, TcpKeepalive};

use crate::connection::{Connection, REPLY_BYTES_MAX, ReadOutcome};
use crate::encode::Encoder;
use crate::mailbox::{Mail, Mailbox, Slot};
use crate::parse::{Limits, Parser, ProtocolError};
use crate::rewrite::Rewrites;
use crate::stream::Stream;

pub(crate) const WAKE: Token = Token(usize::MAX);
pub(crate) const LISTEN: Token = Token(usize::MAX - 1);
pub(crate) const LISTEN_TLS: Token = Token(usize::MAX - 2);

/// How long changes may wait for company before they are appended, where replies do not wait for them.
const APPEND_PERIOD: Duration = Duration::from_millis(50);
/// More changes than this are appended at once.
const APPEND_BYTES: usize = 1 << 20;
/// Bytes of keys that are written again at once: a fraction of a millisecond.
const REWRITE_BYTES: usize = 256 << 10;
/// How often that happens. The thread sleeps between: one that never does waits for its core when a request comes.
const REWRITE_PERIOD: Duration = Duration::from_millis(1);
/// No key is written again while the disk is so many bytes behind: what clients change goes first.
const REWRITE_AHEAD: usize = 4 << 20;
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(10);
/// How long to wait before a log that takes nothing more is tried again.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);
/// How long replies wait before the lease is looked at again.
const LEASE_PAUSE: Duration = Duration::from_millis(10);
/// How long who publishes waits before other threads are looked at again.
const PUBLISH_PAUSE: Duration = Duration::from_millis(1);
/// With more replies and messages for connections than this, a turn takes no more mail.
const HEARD_BYTES: usize = 8 << 20;
const READ_BYTES: usize = 64 << 10;
/// How often connections are looked through for those that have to go.
const INSPECTION_PERIOD: Duration = Duration::from_secs(1);
/// How long to wait before clients are accepted again after the operating system refused, for want of files mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What a client from elsewhere is told where nobody has to say who it is.
const PROTECTED: &[u8] =
    b"-DENIED Savanna serves keys to other machines only if clients have to say who they are: set \
requirepass, or users with aclfile; or let anybody do everything with protected-mode no\r\n";
/// How often a silent client is asked whether it is still there before it is given up.
const KEEPALIVE_RETRIES: u32 = 3;

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
    /// The first thread accepts clients for all.
    pub(crate) listener: Option<TcpListener>,
    /// As `listener`, for encrypted connections.
    pub(crate) tls_listener: Option<TcpListener>,
    /// What encrypted connections need.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) mailbox: Mailbox,
    /// The threads' mailboxes, this one's too, by actor.
    pub(crate) slots: Vec<Slot>,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) lease: Option<LeaseGuard>,
    pub(crate) client_count: Arc<AtomicUsize>,
    pub(crate) state: State,
}

/// What a thread keeps from turn to turn.
pub(crate) struct State {
    /// By the place of their sessions.
    connections: Vec<Option<Box<Connection>>>,
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
    appended_at: Instant,
    next_client: usize,
    /// Whether clients wait whom the operating system could not give.
    must_accept_again: bool,
    /// When to try again, if the operating system refused.
    accept_after: Option<Instant>,
    /// Connections that wait until other threads have heard what they published.
    held_back: Vec<usize>,
    /// Connections that wait for the end of a pause.
    paused: Vec<usize>,
    inspected_at: UnixMillis,
    /// Whether a connection is above its soft limit.
    is_any_over_soft: bool,
    buffer: Vec<u8>,
    /// Finds the requests that come next.
    scout: Parser,
    /// When keys were written again last.
    rewrote_at: Instant,
    /// Used by the first thread.
    rewrites: Rewrites,
    /// Whether what was heard during a rewrite is to be appended.
    has_settled: bool,
    /// Whether the first thread is to hear that this one has appended what a rewrite needs, after what this one has told.
    is_rewritten: bool,
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
            appended_at: Instant::now(),
            next_client: 0,
            must_accept_again: false,
            accept_after: None,
            held_back: Vec::new(),
            paused: Vec::new(),
            inspected_at: UnixMillis(0),
            is_any_over_soft: false,
            buffer: vec![0; READ_BYTES],
            scout: Parser::default(),
            rewrote_at: Instant::now(),
            rewrites: Rewrites::default(),
            has_settled: false,
            is_rewritten: false,
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

impl Thread {
    /// Serves until it is told to stop.
    pub(crate) fn run(&mut self) -> Result<(), ThreadError> {
        let mut events = Events::with_capacity(1024);
        let mut due = self.actor.tick(unix_now());
        BEGIN.get_or_init(Instant::now);
        self.actor.stopwatch = since_begin;
        self.actor.counters.started = self.actor.keys.now();
        while !self.state.is_stopping {
            self.sleep(&mut events, due)?;
            due = self.actor.tick(unix_now());
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
        self.append(true)
    }

    fn sleep(&mut self, events: &mut Events, due: Option<UnixMillis>) -> Result<(), ThreadError> {
        let now = unix_now();
        let due = due.into_iter().chain(self.actor.next_time_out()).min();
        let mut timeout = due.map_or(SLEEP_MAX, |due| Duration::from_millis(due.0.saturating_sub(now.0)));
        if !self.actor.keys.log.bytes().is_empty() {
            timeout = timeout.min(APPEND_PERIOD);
        }
        if !self.state.touched.is_empty() && !self.may_tell() {
            timeout = timeout.min(LEASE_PAUSE);
        }
        if self.actor.config.idle_seconds_max > 0 || self.state.is_any_over_soft {
            timeout = timeout.min(INSPECTION_PERIOD);
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
            timeout = timeout.min(REWRITE_PERIOD);
        }
        if !self.state.listed.is_empty() || self.actor.owes_room() {
            timeout = Duration::ZERO;
        }
        self.mailbox.fall_asleep();
        let mail = self.mailbox.take();
        if mail.is_some() || self.may_release() {
            timeout = Duration::ZERO;
        }
        let polled = self.poll.poll(events, Some(timeout.min(SLEEP_MAX)));
        self.mailbox.wake_up();
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

    fn accept(&mut self) {
        self.state.must_accept_again = false;
        self.state.accept_after = None;
        self.accept_from(false);
        self.accept_from(true);
    }

    fn accept_from(&mut self, is_encrypted: bool) {
        loop {
            let listener = if is_encrypted { &self.tls_listener } else { &self.listener };
            let accepted = match listener {
                Some(listener) => listener.accept(),
                None => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let thread = self.state.next_client % self.slots.len();
                    self.state.next_client += 1;
                    if thread == self.actor.id().index() {
                        self.greet(stream, is_encrypted);
                    } else {
                        self.slots[thread].put(Mail::Client(stream.into(), is_encrypted));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "could not accept a client");
                    self.state.must_accept_again = true;
                    self.state.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn greet(&mut self, mut stream: TcpStream, is_encrypted: bool) {
        let peer = stream.peer_addr();
        if self.is_protected_from(peer.as_ref().ok(), is_encrypted) {
            if !is_encrypted {
                let _ = io::Write::write(&mut stream, PROTECTED);
            }
            return;
        }
        if self.client_count.fetch_add(1, Ordering::Relaxed) >= self.actor.config.clients_max {
            self.client_count.fetch_sub(1, Ordering::Relaxed);
            // It is sent away, whether it hears why or not.
            if !is_encrypted {
                let _ = io::Write::write(&mut stream, b"-ERR max number of clients reached\r\n");
            }
            return;
        }
        // Without it replies are late, which is no reason to refuse a client.
        let _ = stream.set_nodelay(true);
        self.keep_alive(&stream);
        let address = peer.map_or_else(|_| String::new(), |address| address.to_string());
        let local_address = stream.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
        let session = self.actor.open_session(address, local_address);
        let place = session.place as usize;
        let registered =
            self.poll.registry().register(&mut stream, Token(place), Interest::READABLE | Interest::WRITABLE);
        let tls = if is_encrypted { self.tls.clone() } else { None };
        let stream = registered.and_then(|()| Stream::new(stream, tls).map_err(io::Error::other));
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not take a client");
                self.actor.close_session(session);
                self.client_count.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        };
        if self.state.connections.len() <= place {
            self.state.connections.resize_with(place + 1, || None);
        }
        self.state.connections[place] = Some(Box::new(Connection::new(stream, session, self.actor.keys.now())));
    }

    /// Whether nobody has said who may come from elsewhere: no password is set, and no certificate is asked for.
    fn is_protected_from(&self, peer: Option<&SocketAddr>, is_encrypted: bool) -> bool {
        let config = &self.actor.config;
        let shows_certificate = is_encrypted && config.tls.clients == TlsClients::Required;
        config.is_protected
            && !shows_certificate
            && self.actor.users().is_open()
            && peer.is_none_or(|peer| !peer.ip().to_canonical().is_loopback())
    }

    /// Lets the operating system find out whether a silent client is still there.
    fn keep_alive(&self, stream: &TcpStream) {
        let seconds = self.actor.config.keepalive_seconds;
        if seconds == 0 {
            return;
        }
        let between = Duration::from_secs(u64::from(seconds.div_ceil(KEEPALIVE_RETRIES)));
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(u64::from(seconds)))
            .with_interval(between)
            .with_retries(KEEPALIVE_RETRIES);
        // Without it a client that vanished is found out when it is written to.
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
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
        self.slots.iter().any(Slot::is_behind)
    }

    fn hear(&mut self, mail: Mail) {
        match mail {
            Mail::Messages { from, depends, messages, published } => {
                self.slots[self.actor.id().index()].note_heard(published);
                self.state.depends = self.state.depends.max(depends);
                messages.into_iter().for_each(|message| self.actor.deliver(from, message));
            }
            Mail::Client(stream, is_encrypted) => {
                if stream.set_nonblocking(true).is_ok() {
                    self.greet(TcpStream::from_std(stream), is_encrypted);
                }
            }
            Mail::WantRewrite => self.begin_rewrite(),
            Mail::Rewrite => self.actor.keys.begin_rewrite(),
            Mail::Rewritten(end) => {
                if self.state.rewrites.hear_done(end) {
                    self.slots.iter().for_each(|slot| slot.put(Mail::Settle));
                }
            }
            Mail::Settle => {
                self.actor.keys.settle_rewrite();
                self.state.has_settled = true;
            }
            Mail::Stop => self.state.is_stopping = true,
        }
    }

    fn serve_listed(&mut self) {
        // Who is listed again while it is served comes in the next turn.
        let listed = std::mem::take(&mut self.state.listed);
        for place in &listed {
            let Some(mut connection) = self.state.connections.get_mut(*place).and_then(Option::take) else { continue };
            connection.is_listed = false;
            let stays = self.serve(&mut connection);
            self.settle(*place, connection, stays);
        }
        for place in listed {
            self.touch(place);
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
            self.client_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Runs what a client asked for. Says whether the client is still there.
    fn serve(&mut self, connection: &mut Connection) -> bool {
        let is_there = self.read_and_run(connection);
        // Who hung up waits for nobody.
        is_there && !(connection.is_hung_up && (connection.is_held || self.actor.is_waiting(connection.session)))
    }

    fn read_and_run(&mut self, connection: &mut Connection) -> bool {
        self.run_input(connection);
        if !connection.is_readable || !connection.may_run() {
            return true;
        }
        let mut buffer = std::mem::take(&mut self.state.buffer);
        let stays = match connection.read(&mut buffer) {
            ReadOutcome::Gone => false,
            ReadOutcome::End => {
                // It may still be waiting for replies.
                connection.is_closing = true;
                true
            }
            ReadOutcome::Nothing => true,
            ReadOutcome::Bytes(count) => {
                connection.heard_at = self.actor.keys.now();
                if connection.input.is_empty() {
                    let ran = self.run_bytes(connection, &buffer[..count]);
                    connection.input.extend_from_slice(&buffer[ran..count]);
                    connection.was_stopped = !connection.input.is_empty() && !connection.may_run();
                } else {
                    connection.input.extend_from_slice(&buffer[..count]);
                    self.run_input(connection);
                }
                true
            }
        };
        self.state.buffer = buffer;
        if stays && connection.is_readable && !connection.is_listed {
            connection.is_listed = true;
            self.state.listed.push(connection.session.place as usize);
        }
        stays
    }

    fn run_input(&mut self, connection: &mut Connection) {
        if connection.input.is_empty() || !connection.may_run() {
            return;
        }
        let input = std::mem::take(&mut connection.input);
        let ran = self.run_bytes(connection, &input);
        connection.input = input;
        connection.input.drain(..ran);
        // What is left is the beginning of a request, unless something stopped before it.
        connection.was_stopped = !connection.input.is_empty() && !connection.may_run();
        if connection.input.is_empty() {
            connection.input.shrink_to(READ_BYTES);
        }
    }

    /// Runs the complete requests in `bytes`, as far as they may run. Says how many bytes they had.
    fn run_bytes(&mut self, connection: &mut Connection, bytes: &[u8]) -> usize {
        let (mut limits, output_limit) = self.limits_of(connection.session);
        let (mut ran, mut near) = (0, 0);
        while connection.may_run() {
            // Of a pipeline: one request alone has nothing to be fetched beside it.
            if ran > 0 && ran >= near && ran < bytes.len() {
                near = ran + self.look_ahead(connection.session, &bytes[ran..], &limits);
            }
            match connection.parser.next(&bytes[ran..], &limits) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let args = Args::new(&bytes[ran..], connection.parser.spans());
                    let room = connection.room(output_limit);
                    let mut encoder = Encoder::new(connection.output.next(), connection.protocol).at_most(room);
                    encoder.answering = connection.answering;
                    let progress = self.actor.request(connection.session, args, &mut encoder);
                    let had_room = encoder.finish();
                    connection.protocol = encoder.protocol;
                    connection.is_dismissed |= !had_room && room < REPLY_BYTES_MAX;
                    let mut protocol = Some(connection.protocol);
                    if let Some(answering) = encoder.answering
                        && progress != Progress::Held
                    {
                        if answering != Answering::On {
                            encoder.keep_quiet();
                            protocol = None;
                        }
                        connection.note_answering(answering);
                    }
                    match progress {
                        Progress::Answered => {}
                        Progress::Later(ticket) => connection.output.wait(ticket, protocol),
                        Progress::LaterAlone(ticket) => {
                            connection.output.wait(ticket, protocol);
                            connection.awaits = Some(ticket);
                        }
                        Progress::Closing => connection.is_closing = true,
                        Progress::LaterClosing(ticket) => {
                            connection.output.wait(ticket, protocol);
                            connection.is_closing = true;
                        }
                        Progress::Held => {
                            connection.is_held = true;
                            self.state.paused.push(connection.session.place as usize);
                            break;
                        }
                    }
                    ran += length;
                    if limits.words == Limits::OF_STRANGERS.words {
                        limits = self.limits_of(connection.session).0;
                    }
                    if self.actor.has_published_elsewhere() && self.is_anybody_behind() {
                        connection.is_held_back = true;
                        self.state.held_back.push(connection.session.place as usize);
                    }
                }
                Err(error) => {
                    if error == ProtocolError::Http {
                        tracing::warn!(
                            "a client of the keys service speaks HTTP, maybe for a web page; it is sent away"
                        );
                    }
                    Encoder::new(connection.output.next(), connection.protocol).error(&format!("ERR {error}"));
                    connection.is_closing = true;
                    return bytes.len();
                }
            }
        }
        connection.parser.shrink();
        ran
    }

    /// Lets the memory come near that the next requests in `bytes` are going to ask for, many at a time: one after the other,
    /// each would wait for it. Says how many bytes they have.
    fn look_ahead(&mut self, session: SessionId, bytes: &[u8], limits: &Limits) -> usize {
        let (mut keys, mut count, mut end) = ([&[][..]; NEAR_MAX], 0, 0);
        let mut scout = std::mem::take(&mut self.state.scout);
        while count < NEAR_MAX
            && let Ok(Some(length)) = scout.next(&bytes[end..], limits)
        {
            // Of nearly all commands, a key.
            if let Some(word) = scout.spans().get(1) {
                keys[count] = &bytes[end + word.start as usize..][..word.length as usize];
                count += 1;
            }
            end += length;
        }
        self.actor.bring_near(session, &keys[..count]);
        scout.forget();
        scout.shrink();
        self.state.scout = scout;
        end.max(1)
    }

    /// How long a session's requests may be, and what it may leave unread.
    fn limits_of(&self, session: SessionId) -> (Limits, OutputLimit) {
        let config = &self.actor.config;
        let session = self.actor.sessions.get(session);
        let limits = match session.map(|session| session.access) {
            Some(Access::Unknown) => Limits::OF_STRANGERS,
            _ => Limits {
                word_bytes: config.request_bytes_max,
                request_bytes: config.query_bytes_max,
                ..Limits::default()
            },
        };
        let listens = session.is_some_and(Session::is_subscribed);
        (limits, if listens { config.output_listening } else { config.output_normal })
    }

    fn finish_turn(&mut self) -> Result<(), ThreadError> {
        self.rewrite()?;
        // Who reads a message may write what follows from it: the log has to have this thread's part first.
        self.append(self.actor.has_messages())?;
        for actor in self.actor.actors() {
            let messages = self.actor.take_outbox(actor);
            if !messages.is_empty() {
                let published = messages.iter().map(Message::published_bytes).sum();
                let mail = Mail::Messages { from: self.actor.id(), depends: self.state.depends, messages, published };
                self.slots[actor.index()].put(mail);
            }
        }
        if std::mem::take(&mut self.state.is_rewritten) {
            self.slots[0].put(Mail::Rewritten(self.state.depends));
        }
        self.put_replies();
        self.write_all()
    }

    /// Appends what the actor changed, if it is time.
    fn append(&mut self, at_once: bool) -> Result<(), ThreadError> {
        let Some(journal) = &self.journal else {
            self.actor.keys.log.clear();
            return Ok(());
        };
        let waiting = self.actor.keys.log.bytes().len();
        let is_due = at_once
            || self.actor.config.sync == Sync::Always
            || waiting > APPEND_BYTES
            || self.state.appended_at.elapsed() >= APPEND_PERIOD;
        if waiting == 0 || !is_due {
            return Ok(());
        }
        self.state.appended_at = Instant::now();
        loop {
            match append_changes(journal, &mut self.actor.keys) {
                Ok(Some(lsn)) => self.state.depends = lsn,
                Ok(None) => {}
                Err(JournalError::Backlog { .. }) => {
                    // The disk is behind: clients wait with this thread.
                    std::thread::sleep(BACKLOG_PAUSE);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
    }

    /// Goes on with a rewrite of the log, if there is one; the first thread also sees whether one is due or done.
    fn rewrite(&mut self) -> Result<(), ThreadError> {
        let Some(journal) = self.journal.clone() else { return Ok(()) };
        if std::mem::take(&mut self.actor.is_rewrite_wanted) {
            self.slots[0].put(Mail::WantRewrite);
        }
        let is_written = self.may_rewrite(&journal) && self.rewrite_some();
        if is_written || std::mem::take(&mut self.state.has_settled) {
            self.append(true)?;
            self.state.is_rewritten = true;
        }
        if self.actor.id().index() != 0 {
            return Ok(());
        }
        let appended = journal.stats().bytes;
        if self.state.rewrites.is_due(appended) {
            self.begin_rewrite();
        }
        if let Some(oldest) = self.state.rewrites.finish(journal.durable(), appended) {
            journal.truncate_before(oldest)?;
            tracing::info!(%oldest, "the log of the keys service was shortened");
        }
        Ok(())
    }

    /// Whether keys are to be written again now.
    fn may_rewrite(&self, journal: &Journal) -> bool {
        self.actor.keys.is_rewriting()
            && self.state.rewrote_at.elapsed() >= REWRITE_PERIOD
            && journal.backlog() < REWRITE_AHEAD
    }

    /// Writes some keys again. Says whether that were the last.
    fn rewrite_some(&mut self) -> bool {
        let is_written = self.actor.rewrite_some(REWRITE_BYTES);
        self.state.rewrote_at = Instant::now();
        is_written
    }

    fn begin_rewrite(&mut self) {
        let Some(journal) = &self.journal else { return };
        if self.state.rewrites.begin(journal.appended(), journal.stats().bytes, self.slots.len()) {
            self.slots.iter().for_each(|slot| slot.put(Mail::Rewrite));
        }
    }

    /// Puts replies that came from elsewhere to their connections.
    fn put_replies(&mut self) {
        let replies = self.actor.take_own_replies();
        for (to, part) in replies.iter() {
            let (session, ticket) = match to {
                Destination::Session(session, ticket) => (session, Some(ticket)),
                Destination::Push(session) => (session, None),
                Destination::Gather(_) | Destination::Waiter(_) => continue,
            };
            let place = session.place as usize;
            let Some(Some(connection)) = self.state.connections.get_mut(place) else { continue };
            if connection.session != session {
                continue;
            }
            if connection.is_dismissed {
                continue;
            }
            match ticket {
                Some(ticket) => {
                    let room = connection.room(self.actor.config.output_normal);
                    let mut had_room = true;
                    let count = connection.output.fill(ticket, |bytes, protocol| {
                        let mut encoder = Encoder::new(bytes, protocol).at_most(room);
                        part.play(&mut encoder);
                        had_room = encoder.finish();
                    });
                    connection.is_dismissed |= !had_room && room < REPLY_BYTES_MAX;
                    connection.note_awaited(count);
                    if connection.awaits == Some(ticket) {
                        connection.awaits = None;
                    }
                }
                None => {
                    let (room, protocol) = (connection.room(self.actor.config.output_listening), connection.protocol);
                    let mut encoder = Encoder::new(connection.output.next(), protocol).at_most(room);
                    part.play(&mut encoder);
                    // There is nobody to be told that a message is missing.
                    connection.is_dismissed |= !encoder.finish();
                }
            }
            self.touch(place);
            self.go_on(place);
        }
        self.actor.recycle(replies);
    }

    /// Writes to the connections that have something to be sent.
    fn write_all(&mut self) -> Result<(), ThreadError> {
        let gate = self.gate()?;
        let may_tell = self.may_tell();
        let durable = self.journal.as_ref().map(|journal| journal.durable());
        self.state.durable = durable.unwrap_or(Lsn::NONE);
        let mut places = std::mem::take(&mut self.state.touched);
        places.retain(|place| {
            let Some(mut connection) = self.state.connections.get_mut(*place).and_then(Option::take) else {
                return false;
            };
            if !may_tell {
                let stays = !connection.is_dismissed;
                self.settle(*place, connection, stays);
                return stays;
            }
            connection.output.release(gate);
            if let Some(durable) = durable {
                connection.output.hear_durable(durable);
            }
            let is_there = connection.write(self.actor.keys.now());
            let leaves_too_much = !connection.output.is_empty() && self.leaves_too_much(&mut connection);
            let stays = is_there && !connection.is_finished() && !connection.is_dismissed && !leaves_too_much;
            connection.is_touched = connection.output.is_held();
            let is_touched = connection.is_touched;
            self.settle(*place, connection, stays);
            if stays {
                self.go_on(*place);
            }
            stays && is_touched
        });
        self.state.touched = places;
        Ok(())
    }

    /// Lists a connection whose requests had to wait and may run now.
    fn go_on(&mut self, place: usize) {
        if let Some(Some(connection)) = self.state.connections.get(place)
            && connection.may_run()
            && (connection.is_readable || connection.was_stopped)
        {
            self.list(place);
        }
    }

    /// What replies of this turn wait for; asks the log to wake this thread when it is durable.
    fn gate(&mut self) -> Result<Option<Lsn>, ThreadError> {
        let Some(journal) = &self.journal else { return Ok(None) };
        if self.state.has_log_failed.load(Ordering::Acquire) {
            return Err(JournalError::Stopped { reason: "a flush failed".to_owned() }.into());
        }
        let depends = self.state.depends;
        if self.actor.config.sync != Sync::Always || depends <= journal.durable() {
            return Ok(None);
        }
        if self.state.asked < depends {
            self.state.asked = depends;
            let (bell, failed) = (self.mailbox.bell(), Arc::clone(&self.state.has_log_failed));
            journal.gate().hold(depends, move |outcome| {
                if outcome.is_err() {
                    failed.store(true, Ordering::Release);
                }
                bell.ring();
            });
        }
        Ok(Some(depends))
    }
}
