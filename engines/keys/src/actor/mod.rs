//! An actor: a part of the keys, a part of the connections, and nothing shared.
//!
//! The actor is a state machine. Requests of its sessions and messages of other actors go in; replies and messages come
//! out and are taken by whoever drives it: a thread with sockets, or a simulation.
//!
//! ```text
//!               request                        deliver
//!  session ───────────────► place of the keys? ◄─────────── other actors
//!                            │ here: run                         ▲
//!                            │ one other actor: send the request ┤
//!                            │ several: a transaction borrows    ┤
//!                            └ all: gather                       ┘
//! ```

mod access;
mod arriving;
mod call_counts;
mod calls;
mod claims;
mod crossing;
mod databases;
mod departing;
mod elsewhere;
mod front;
mod gather;
pub mod gossip;
mod groups;
mod hosting;
mod hot_keys;
mod lanes;
mod lending;
mod libraries;
pub mod loading;
pub mod logbook;
mod meanwhile;
pub mod message;
mod monitors;
mod outbox;
mod pace;
pub mod pause;
pub mod program;
mod pubsub;
mod room;
pub mod saving;
mod scripts;
mod slots;
mod spread;
mod spreading;
mod terms;
pub mod tracking;
mod transaction;
mod waiting;
mod whole;
mod work;

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use hashbrown::HashMap;
use savanna_lattice::{UnixMillis, WriterId};

pub(crate) use self::access::context_of;
use self::arriving::Arriving;
use self::call_counts::CallCounts;
pub(crate) use self::call_counts::percentile;
use self::calls::Call;
use self::claims::Claims;
pub(crate) use self::databases::DatabaseChange;
use self::databases::Freeze;
use self::departing::Departing;
use self::elsewhere::{Copy, Place};
pub use self::front::Asked;
use self::front::Front;
use self::gather::Gather;
use self::gossip::{Joined, Rounds};
use self::groups::Groups;
pub use self::groups::{GroupLetter, GroupWay};
use self::hot_keys::HotKeys;
pub(crate) use self::hot_keys::KEPT as HOT_KEYS_KEPT;
pub use self::lanes::{About, Owner};
use self::loading::Loaded;
use self::logbook::Logbook;
pub use self::meanwhile::Attendant;
use self::message::{Destination, Message, Notice, Replies, Requests};
use self::pace::Pace;
pub use self::pace::Traffic;
use self::pause::Pause;
use self::program::{Program, ProgramUser};
use self::pubsub::Listeners;
pub(crate) use self::pubsub::Topic;
use self::room::out_of_memory;
use self::saving::Saves;
use self::slots::shown_to;
pub use self::spread::{Way, is_home};
use self::spreading::Spreading;
pub use self::terms::SessionLimits;
use self::tracking::Trackers;
use self::transaction::Transaction;
pub(crate) use self::waiting::Ending;
use self::waiting::Waiters;
use self::whole::{Execution, Held, is_refused_by_several, not_in_a_transaction};
use self::work::Work;
use crate::access::{Access, Users, permission_for};
use crate::command::{Class, Command, Flags, Group, Run};
use crate::commands;
use crate::commands::clients::asks_others;
use crate::commands::parse_cursor;
use crate::commands::sort::patterns;
use crate::config::Config;
use crate::error::CommandError;
use crate::error_counts::ErrorCounts;
use crate::handle::KeysReply;
use crate::keyspace::{self, Keyspace, NEAR_MAX};
use crate::memory;
use crate::placement::{ActorId, KeyHash, Routes};
use crate::reply::{REPLY_BYTES_MAX, Reply};
use crate::request::Args;
use crate::scripting::{Scripts, Watch};
use crate::session::{Session, SessionId, Sessions, Ticket};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The reply is there.
    Answered,
    /// The reply comes later, to this place among the session's replies. Later requests may go on.
    Later(Ticket),
    /// The reply comes later, and later requests have to wait for it.
    LaterAlone(Ticket),
    /// The reply is there, and the session ends with it.
    Closing,
    /// The reply comes later, and the session ends with it.
    LaterClosing(Ticket),
    /// The request did not run. It is to be given again when the actor is not paused any more.
    Held,
}

/// A part of the keys with a part of the sessions.
#[derive(Debug)]
pub struct Actor {
    id: ActorId,
    routes: Routes,
    /// The keys.
    pub(crate) keys: Keyspace,
    /// The sessions.
    pub(crate) sessions: Sessions,
    /// What is set.
    pub(crate) config: Config,
    /// What was set when it began, or was last written into the file of settings. Kept by the first actor.
    pub(crate) written_config: Box<Config>,
    /// What was counted.
    pub(crate) counters: Counters,
    /// How often commands ran.
    pub(crate) calls: CallCounts,
    /// The errors that its clients were told.
    pub(crate) errors: ErrorCounts,
    /// How much of that comes in a second.
    pace: Pace,
    /// What came and went over the network.
    pub(crate) traffic: Traffic,
    /// What time it is for those who want to know how long something takes.
    stopwatch: fn() -> Duration,
    users: Users,
    have_users_changed: bool,
    /// Sessions that have to end.
    dismissed: Vec<SessionId>,
    /// Sessions that end when they have been told what they asked for.
    closing: Vec<SessionId>,
    /// How many bytes the reply to a transaction of several actors may have, and what one of them says to its steps about all keys.
    reply_bytes_max: usize,
    /// Kept by the first actor.
    pub(crate) logbook: Logbook,
    /// Why the log has no space for changes, if it has none.
    log_full: Option<Box<str>>,
    /// Whether somebody asked for a rewrite of the log.
    pub(crate) is_rewrite_wanted: bool,
    /// Whether somebody asked for the end of the process.
    pub(crate) is_stop_wanted: bool,
    /// Whether what is answered in this turn waits until the disk has what it depends on.
    pub(crate) is_flush_awaited: bool,
    listeners: Listeners,
    trackers: Trackers,
    claims: Claims<Work>,
    transactions: HashMap<u64, Transaction>,
    gathers: HashMap<u64, Gather>,
    /// What the transaction has that runs, if it holds all keys.
    held: Option<Held>,
    /// Whether steps of a transaction are being run.
    runs_steps: bool,
    /// Transactions of sessions that have run, and wait for other actors.
    executions: HashMap<SessionId, Execution>,
    /// Requests of other nodes that are under way.
    asked: HashMap<u64, Call>,
    /// Those that are answered.
    answered: Vec<(u64, KeysReply)>,
    /// What is asked of other nodes, if they have keys.
    front: Option<Box<Front>>,
    /// Groups of keys at several nodes.
    groups: Groups,
    /// Virtual nodes that go to other nodes.
    departing: Vec<Departing>,
    /// Virtual nodes that come from other nodes.
    arriving: BTreeMap<u16, Arriving>,
    /// At the first actor.
    freezes: HashMap<u64, Freeze>,
    /// What was flushed, and takes longer to drop than a turn may.
    dropping: Vec<JoinHandle<()>>,
    /// What was read from a file at the start.
    pub(crate) loaded: Loaded,
    /// Whether the log had a part of such a file, which is void. Kept by the first actor.
    pub(crate) is_half_loaded: bool,
    /// Files with all keys.
    pub(crate) saves: Saves,
    rounds: Rounds,
    waiters: Waiters,
    pub(crate) scripts: Scripts,
    /// Over the scripts of all actors, which may be killed from here.
    watches: Vec<Watch>,
    /// For whom a script runs, if not for somebody who may do everything.
    script_user: Option<ProgramUser>,
    /// Whether there was room for what the commands of a script may need when it began.
    pub(crate) script_has_room: bool,
    hot_keys: HotKeys,
    /// Which keys have replicas by themselves.
    pub(crate) spreading: Spreading,
    /// What is held back, and until when.
    pause: Option<Pause>,
    /// Whether more keys are to be given up than one turn has time for.
    owes_room: bool,
    numbered: u64,
    /// Replies to sessions of this actor that did not come at once.
    replies: Replies,
    /// What is to be sent, by actor.
    outboxes: Vec<Vec<Message>>,
    /// What is to be sent from before the script that runs.
    said_before: Vec<Vec<Message>>,
    /// Whether there were changes that were not appended when the script that runs began.
    had_changes: bool,
    /// Serves clients while scripts run.
    attendant: Option<Box<dyn Attendant>>,
    /// Whether the script that runs has others wait for so long that they hear of it.
    is_busy: bool,
}

/// The actor that keeps what there is once, and puts what all are told in one order.
pub(crate) const FIRST: ActorId = ActorId(0);

/// What an actor counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Requests of its sessions.
    pub(crate) requests: u64,
    /// Requests that went to another actor.
    pub(crate) sent: u64,
    /// Transactions that borrowed keys.
    pub(crate) transactions: u64,
    /// When it began.
    pub(crate) started: UnixMillis,
    /// How many sessions had been opened when counting began.
    pub(crate) opened_before: u32,
    /// Clients that were sent away because there were too many.
    pub(crate) rejected: u64,
    /// Clients that were sent away because all together took too much memory.
    pub(crate) evicted_clients: u64,
}

/// Whether a command is not noted when it takes long: there may be a password among its words, or it runs several that are noted
/// themselves.
fn is_unnoted(command: &Command) -> bool {
    command.flags.has(Flags::SECRET) || matches!(command.name, "acl" | "auth" | "config" | "exec" | "hello" | "monitor")
}

impl Actor {
    /// An actor among `routes.actors()`, which all have the same configuration.
    #[must_use]
    pub fn new(id: ActorId, routes: Routes, config: Config, seed: u64) -> Self {
        let scripts = Scripts::default();
        let mut keys = Keyspace::new(routes.clone(), seed ^ u64::from(id.0));
        keys.belong_to(id, WriterId(0));
        keys.events.want(config.events);
        keys.encodings = config.encodings;
        keys.count_uses(config.counting());
        Self {
            id,
            keys,
            sessions: Sessions::default(),
            users: Users::new(&config),
            have_users_changed: false,
            dismissed: Vec::new(),
            closing: Vec::new(),
            reply_bytes_max: REPLY_BYTES_MAX,
            logbook: Logbook::default(),
            written_config: Box::new(config.clone()),
            config,
            counters: Counters::default(),
            calls: CallCounts::default(),
            errors: ErrorCounts::new(),
            pace: Pace::default(),
            traffic: Traffic::default(),
            stopwatch: || Duration::ZERO,
            is_rewrite_wanted: false,
            is_stop_wanted: false,
            is_flush_awaited: false,
            listeners: Listeners::default(),
            trackers: Trackers::default(),
            claims: Claims::default(),
            transactions: HashMap::new(),
            gathers: HashMap::new(),
            held: None,
            runs_steps: false,
            executions: HashMap::new(),
            asked: HashMap::new(),
            answered: Vec::new(),
            front: None,
            groups: Groups::default(),
            departing: Vec::new(),
            arriving: BTreeMap::new(),
            freezes: HashMap::new(),
            dropping: Vec::new(),
            loaded: Loaded::default(),
            is_half_loaded: false,
            saves: Saves::default(),
            rounds: Rounds::new(routes.actors()),
            waiters: Waiters::default(),
            watches: vec![scripts.watch().clone()],
            scripts,
            script_user: None,
            script_has_room: true,
            log_full: None,
            hot_keys: HotKeys::new(seed ^ u64::from(id.0)),
            spreading: Spreading::new(routes.actors()),
            pause: None,
            owes_room: false,
            numbered: 0,
            replies: Replies::default(),
            outboxes: routes.all().map(|_| Vec::new()).collect(),
            routes,
            said_before: Vec::new(),
            had_changes: false,
            attendant: None,
            is_busy: false,
        }
    }

    /// Counts what happens from 0 again.
    pub(crate) fn reset_counters(&mut self) {
        let (_, opened_before) = self.sessions.counts();
        self.counters = Counters { started: self.counters.started, opened_before, ..Counters::default() };
        self.keys.counters = keyspace::Counters::default();
        self.calls = CallCounts::default();
        self.spreading.reset_counters();
        self.errors = ErrorCounts::new();
        self.pace = Pace::beginning(self.keys.now());
        self.traffic = Traffic::default();
    }

    /// Which actor it is.
    #[must_use]
    pub const fn id(&self) -> ActorId {
        self.id
    }

    /// Begins a session of the client at `address`, which came to `local_address`.
    pub fn open_session(&mut self, address: String, local_address: String) -> SessionId {
        self.sessions.open((address, local_address), self.keys.now(), &self.users)
    }

    /// Ends a session. Transactions that it waits for run on.
    pub fn close_session(&mut self, id: SessionId) {
        self.abandon(id);
        self.executions.remove(&id);
        if let Some(mut session) = self.sessions.close(id) {
            self.end_session(&mut session);
        }
    }

    /// Ends what a session is told without asking.
    fn end_session(&mut self, session: &mut Session) {
        self.unsubscribe_all(session);
        self.end_monitor(session);
        self.end_tracking(session);
    }

    /// Brings the entries of keys near that a session's next requests are about, at most [`NEAR_MAX`], an empty one for a request without a
    /// key. Changes nothing.
    pub fn bring_near(&mut self, id: SessionId, keys: &[&[u8]]) {
        if let Some(session) = self.sessions.get(id) {
            self.keys.bring_near(session.database, keys);
        }
    }

    /// Brings the entries near that requests from elsewhere are about, from a place among them.
    fn bring_requested_near(&mut self, requests: &Requests, first: usize) {
        let mut next = requests.iter().skip(first).take(NEAR_MAX).peekable();
        let Some((_, database, ..)) = next.peek().copied() else { return };
        let (mut keys, mut count) = ([&[][..]; NEAR_MAX], 0);
        for (_, other, _, args) in next {
            keys[count] = args.from(1).next().filter(|_| other == database).unwrap_or_default();
            count += 1;
        }
        // One alone has nothing to be fetched beside it.
        if count > 1 {
            self.keys.bring_near(database, &keys[..count]);
        }
    }

    /// Takes a request of a session.
    pub fn request(&mut self, id: SessionId, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        self.keys.begin_turn();
        if args.is_empty() {
            return Progress::Answered;
        }
        let Some(mut session) = self.sessions.take(id) else { return Progress::Closing };
        self.counters.requests += 1;
        let progress = if session.tracking.is_none() {
            self.answer(&mut session, args, reply)
        } else {
            self.answer_tracked(&mut session, args, reply)
        };
        self.sessions.put_back(session);
        self.serve_ready();
        self.note_request();
        if self.have_users_changed {
            self.renew_sessions();
        }
        self.hear_own_parts();
        progress
    }

    #[inline]
    fn answer(&mut self, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        let outcome = match Command::find(&args[0]) {
            None => Err(unknown_command(args)),
            Some(command) => match self.admit(session, command, args, reply) {
                Ok(Some(progress)) => Ok(progress),
                Ok(None) => {
                    let outcome = self.dispatch(session, command, args, reply);
                    // After it: what counts from 0 counts itself.
                    self.calls.note(session.last);
                    outcome.inspect_err(|error| self.calls.note_failed(command, args, error))
                }
                Err(error) => {
                    self.calls.note_rejected(command, args);
                    Err(error)
                }
            },
        };
        outcome.unwrap_or_else(|error| session.refuse(&error, reply))
    }

    /// Whether a request may run: then it is neither held back nor queued, which is answered here.
    fn admit(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Option<Progress>, CommandError> {
        if !command.takes(args.len()) {
            return Err(CommandError::Arity(command.name.to_owned()));
        }
        let flags = command.flags;
        (session.last, session.heard_at) = (permission_for(command, args), self.keys.now());
        if session.access != Access::Full {
            self.check_access(session, command, args)?;
        }
        session.check_subscribed(command)?;
        if session.is_of_cluster {
            self.check_slot(session, command, args)?;
        }
        if self.pause.is_some() && self.holds_back(session, command, args) {
            return Ok(Some(Progress::Held));
        }
        self.tell_monitors(session.database, &session.address, command, args);
        if flags.has(Flags::WRITE) {
            self.check_log_space()?;
        }
        memory::ask_for_value(args.byte_count())?;
        let refusal_where_spread = if self.front.is_some() && session.queued.is_some() {
            self.check_is_spread(session, command, args).err()
        } else {
            None
        };
        if let Some(program) = &mut session.queued
            && !flags.has(Flags::UNQUEUED)
        {
            if flags.has(Flags::NO_MULTI) {
                return Err(CommandError::text("ERR Command not allowed inside a transaction"));
            }
            if self.front.is_some() && is_about_all(command, args) {
                return Err(not_in_a_transaction(command));
            }
            if self.routes.actors() > 1 {
                is_refused_by_several(command, args)?;
            }
            if let Some(refusal) = &refusal_where_spread {
                return Err(refusal.clone());
            }
            // What other threads have room for they say when it runs.
            let is_here = || command.keys.of(args).is_ok_and(|keys| matches!(self.place(keys, None), Place::Here));
            if flags.has(Flags::DENYOOM) && is_here() && command.is_refused(self.has_room_for(command), args) {
                return Err(out_of_memory());
            }
            if program.byte_count() + args.byte_count() > self.config.request_bytes_max {
                return Err(CommandError::text("ERR the transaction is longer than proto-max-bulk-len"));
            }
            program.push(command, args);
            reply.simple("QUEUED");
            return Ok(Some(Progress::Answered));
        }
        Ok(None)
    }

    fn dispatch(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        if self.front.is_some()
            && let Some(progress) = self.send_beyond(session, command, args, reply)?
        {
            return Ok(progress);
        }
        if args.len() == 2 && command.group == Group::Server && command.name == "memory" {
            return commands::memory::of_all(self, session, args, reply);
        }
        match command.run {
            Run::Session(run) => {
                let began = self.begin_timing(command, args);
                let outcome = run(self, session, args, reply);
                match began {
                    Some(began) if is_unnoted(command) => drop(self.took_since(began, command, args)),
                    Some(began) => self.end_timing(began, command, args, Some(session)),
                    None => {}
                }
                outcome
            }
            Run::Script(_) if session.access != Access::Full => {
                let program = Box::new(Program::single(session.database, command, args));
                self.execute(session, program, reply)
            }
            Run::Finds { .. } if self.routes.actors() > 1 && !patterns(args).is_empty() => {
                self.go_to_firsts(session, command.keys.of(args).into_iter().flatten());
                let program = Box::new(Program::single(session.database, command, args));
                let ticket = session.ticket();
                self.begin_transaction(Destination::Session(session.id, ticket), program);
                Ok(Progress::LaterAlone(ticket))
            }
            Run::Keys(_) | Run::Waits(..) | Run::Script(_) | Run::Finds { .. } => {
                if let Some(deadline) = command.deadline(args, self.keys.now()) {
                    return self.wait_for_something(session, command, args, deadline, reply);
                }
                // Before the place is looked for: a copy that is here may be given up.
                let has_room = self.has_room_for(command);
                let mut copy = Copy::Unfit;
                let place = match command.keys.of(args) {
                    Ok(keys) if self.routes.actors() > 1 => {
                        if self.keys.has_replicas() {
                            copy = self.look_for_copy(session, command, args);
                        }
                        self.place(keys, (copy == Copy::Fit).then_some(session.database))
                    }
                    // Words that name no keys are refused by the command itself.
                    _ => Place::Here,
                };
                match place {
                    Place::Here => {
                        if self.is_blocked(command, args) {
                            return Ok(self.wait_here(session, command, args));
                        }
                        if command.is_refused(has_room, args) {
                            return Err(out_of_memory());
                        }
                        self.keys.select(session.database);
                        self.remove_late_fields(command, args);
                        self.ask_for_log(command, args, 0)?;
                        if self.hot_keys.is_next() {
                            self.note_hot(command, args);
                        }
                        let began = self.begin_timing(command, args);
                        let outcome = match command.run {
                            Run::Keys(run) | Run::Waits(run, _) | Run::Finds { run, .. } => {
                                run(&mut self.keys, args, reply)
                            }
                            Run::Script(run) => run(self, args, reply),
                            _ => Ok(()),
                        };
                        if let Some(began) = began {
                            self.end_timing(began, command, args, Some(session));
                        }
                        outcome.map(|()| Progress::Answered)
                    }
                    Place::At(actor) => {
                        let progress = self.send_request(session, actor, command, args);
                        Ok(if copy == Copy::Behind {
                            self.catch_up(session, command, args, progress)
                        } else {
                            progress
                        })
                    }
                    Place::Several => {
                        let program = Box::new(Program::single(session.database, command, args));
                        let ticket = session.ticket();
                        self.begin_transaction(Destination::Session(session.id, ticket), program);
                        Ok(Progress::LaterAlone(ticket))
                    }
                }
            }
            Run::Scan(run) => {
                let cursor = KeyHash::from_cursor(parse_cursor(&args[1])?);
                if self.routes.actors() > 1 {
                    return Ok(self.begin_scan(session, self.routes.actor_of(cursor.group()), command, args));
                }
                if !self.claims.is_free() {
                    return Ok(self.wait_here(session, command, args));
                }
                self.keys.select(session.database);
                run(&mut self.keys, args, reply)?;
                Ok(Progress::Answered)
            }
            Run::Everywhere(..) => self.ask_everybody(session, shown_to(session, command), args, reply),
        }
    }

    /// The number of a client, unique in the node.
    #[must_use]
    pub fn client_number(&self, session: SessionId) -> i64 {
        i64::from(session.serial) * i64::from(self.routes.actors()) + i64::from(self.id.0)
    }

    /// Takes a message of another actor.
    pub fn deliver(&mut self, from: ActorId, message: Message) {
        match message {
            Message::Requests(requests) => {
                let mut replies = self.take_replies(from);
                for (place, (to, database, command, args)) in requests.iter().enumerate() {
                    if place % NEAR_MAX == 0 {
                        self.bring_requested_near(&requests, place);
                    }
                    self.keys.begin_turn();
                    if self.is_blocked(command, args) {
                        self.wait_for_keys(from, to, database, command, args);
                    } else {
                        self.note_author(from, to);
                        if matches!(command.run, Run::Script(_)) {
                            // Others need not wait for it.
                            self.put_replies(from, std::mem::take(&mut replies));
                        }
                        replies.push(to, |reply| self.run(database, command, args, reply));
                        self.keys.log.set_author(None);
                        self.serve_ready();
                        self.note_request();
                    }
                }
                self.put_replies(from, replies);
            }
            // The usual case: they are put to their sessions as they came.
            Message::Replies(replies) if self.replies.is_empty() && replies.are_for_sessions() => {
                self.replies = replies
            }
            Message::Replies(replies) => {
                for (to, part) in replies.iter() {
                    match to {
                        Destination::Gather(number) => self.hear_part(number, &part),
                        Destination::Waiter(number) => self.hear_outcome(number, &part.to_tape()),
                        Destination::Call { number, part: place } => self.hear_answer(number, place, &part),
                        Destination::Group(number) => self.hear_passed(number),
                        to => self.replies.push(to, |reply| part.play(reply)),
                    }
                }
            }
            Message::ForAll { to, database, command, args } => {
                if let Run::Everywhere(_, combine) = command.run {
                    self.begin_gather(from, to, database, command, args.args(), combine);
                }
            }
            Message::PauseAll { to, pause } => self.pause_all(from, to, pause),
            Message::Pause { gather, pause } => self.hear_pause(from, gather, pause),
            Message::ChangeDatabases { to, change } => self.begin_freeze(from, to, change),
            Message::Freeze { number, change } => self.begin(Work::Freeze { from, number, change }),
            Message::Frozen { number, latest, obstacle } => self.hear_frozen(number, latest, obstacle),
            Message::Thaw { thawed } => self.hear_thaw(thawed),
            Message::Noted(note) => self.note(note),
            Message::Program { to, program } => self.begin(Work::Program { from, to, program }),
            Message::Group { to, program } => self.begin_group(from, to, program),
            Message::Borrow { transaction, keys, needs_room, whole } => {
                self.begin(Work::Borrow { from, transaction, keys, needs_room, whole });
            }
            Message::Lent { transaction, loans, has_room, rest } => {
                self.hear_lent(from, transaction, loans, has_room, rest);
            }
            Message::Return { loans, changes } => self.take_back(loans, changes),
            Message::Gossip(gossip) => self.hear_gossip(from, gossip),
            Message::Heat(heat) => self.hear_heat(from, heat),
            Message::Quiet { departure } => self.hear_quiet(from, &departure),
            Message::Notice(notice) => self.hear_notice(from, notice),
            Message::Script { source } => self.hear_script(&source),
            Message::ChangeLibraries { to, request } => self.begin_library_change(from, to, &request),
            Message::Libraries { gather, change } => self.hear_libraries(gather, &change),
            Message::Await { waiter, database, command, key, wanted } => {
                self.hear_await((from, waiter), database, command, key, wanted);
            }
            Message::Ready { waiter, key, place } => self.hear_ready(waiter, key, place),
            Message::Forget { waiter, database, key } => self.hear_forget(from, waiter, database, key),
            Message::Save { to, wish } => self.hear_save(from, to, wish),
            Message::Copy(copy) => self.hear_copy(*copy),
            Message::Trackers { count } => self.hear_trackers(from, count),
            Message::Changed(changes) => self.hear_changes(changes),
            Message::Redirect { session, to } => self.hear_redirect(from, session, to),
            Message::Redirected { session, to, keys } => self.hear_redirected(from, session, to, keys.as_deref()),
            Message::NoRedirect { session, is_new } => self.hear_no_redirect(session, is_new),
        }
        self.serve_ready();
        self.note_request();
        if self.have_users_changed {
            self.renew_sessions();
        }
        self.hear_own_parts();
    }

    fn hear_notice(&mut self, from: ActorId, notice: Notice) {
        match notice {
            Notice::Join { database, key, vector, asked } => {
                self.begin(Work::Join { from, database, key, vector, asked });
            }
            Notice::Joined { database, key, vector, asked, seen } => {
                self.hear_joined(Joined { database, key, vector, asked, seen });
            }
            Notice::Published { channel, payload } => self.publish_here(&channel, &payload),
            Notice::Listeners { channel, count } => self.listeners.hear(from, &channel, count),
            Notice::PatternListeners { pattern, count } => self.listeners.hear_pattern(from, &pattern, count),
            Notice::Monitors { count } => self.listeners.hear_monitors(from, count),
            Notice::Monitored { line } => self.show_monitored(&line),
            Notice::PublishedToShard { channel, payload } => self.publish_to_shard_here(&channel, &payload),
            Notice::ShardListeners { channel, count } => self.listeners.hear_shard(from, &channel, count),
        }
    }

    /// Runs one command whose keys are this actor's.
    fn run(&mut self, database: u8, command: &'static Command, args: Args<'_>, reply: &mut dyn Reply) {
        let has_room = self.has_room_for(command);
        if command.is_refused(has_room, args) {
            self.calls.note_rejected(command, args);
            out_of_memory().answer(reply);
        } else {
            self.run_with_room(database, command, args, reply);
        }
    }

    /// Runs one command whose keys are here.
    fn run_with_room(&mut self, database: u8, command: &'static Command, args: Args<'_>, reply: &mut dyn Reply) {
        self.keys.select(database);
        self.remove_late_fields(command, args);
        if self.hot_keys.is_next() {
            self.note_hot(command, args);
        }
        // A part of a request of a session is noted with that.
        let is_part = matches!(command.run, Run::Everywhere(..))
            && !args.from(0).next().and_then(Command::find).is_some_and(|found| std::ptr::eq(found, command));
        let began = if is_part { None } else { self.begin_timing(command, args) };
        let outcome = self.ask_for_log(command, args, 0).and_then(|_| match command.run {
            Run::Keys(run) | Run::Waits(run, _) | Run::Scan(run) | Run::Finds { run, .. } => {
                run(&mut self.keys, args, reply)
            }
            Run::Everywhere(run, _) | Run::Script(run) => run(self, args, reply),
            Run::Session(_) => Err(CommandError::text("ERR this command needs its connection")),
        });
        if let Some(began) = began {
            self.end_timing(began, command, args, None);
        }
        if let Err(error) = outcome {
            self.calls.note_failed(command, args, &error);
            error.answer(reply);
        }
    }

    /// Notes errors that clients were told.
    pub fn note_errors(&mut self, errors: &ErrorCounts) {
        self.errors.add(errors);
    }

    /// Removes fields whose time has come from the hashes that a request is about, where that was not done at the turn's beginning.
    #[inline]
    fn remove_late_fields(&mut self, command: &'static Command, args: Args<'_>) {
        if self.keys.has_late_fields() && !self.is_still() {
            self.remove_late_fields_now(command, args);
        }
    }

    #[cold]
    fn remove_late_fields_now(&mut self, command: &'static Command, args: Args<'_>) {
        for key in command.keys.of(args).into_iter().flatten() {
            self.keys.expire_fields_of(key, usize::MAX);
        }
        if let Run::Finds { named, .. } = command.run {
            for key in named(&self.keys, args) {
                self.keys.expire_fields_of(&key, usize::MAX);
            }
        }
    }

    /// All actors.
    pub fn actors(&self) -> impl Iterator<Item = ActorId> + use<> {
        self.routes.all()
    }

    /// Says that what comes belongs to another request.
    fn note_request(&mut self) {
        if self.keys.has_replicas() {
            self.keys.translate_changes();
        }
        self.keys.log.note_request();
        if self.keys.events.are_noted() {
            self.publish_events();
        }
    }

    /// Does what is due at this time. Says when to come again; [`Actor::gossip_due`] may be earlier.
    pub fn tick(&mut self, now: UnixMillis) -> Option<UnixMillis> {
        /// Keys that may be deleted in one turn: about 1 ms.
        const PATIENCE: usize = 2_000;
        self.keys.set_now(now);
        self.note_pace();
        self.waiters.begin_turn();
        self.end_pause_by(now);
        self.look_at_far_keys(now);
        if self.end_overdue(now) {
            self.serve_ready();
            self.note_request();
        }
        let due = match &self.pause {
            Some(pause) => Some(pause.until),
            // Whoever holds the keys says when to go on.
            None if self.is_still() => None,
            None => self.keys.expire_due(PATIENCE),
        };
        let fields_due = if self.is_still() { None } else { self.keys.expire_fields_due(PATIENCE) };
        let absent = self.keys.end_absent(PATIENCE);
        // Who waits as one of a group of a stream that has expired hears of it.
        self.serve_ready();
        self.note_request();
        self.make_owed_room();
        self.tick_groups();
        self.hear_own_parts();
        let heat_due = self.spread_hot_keys(now);
        self.gossip();
        due.into_iter().chain(fields_due).chain(absent).chain(heat_due).min()
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }
}

/// Whether a request is about all keys, or about something of all actors: such are no part of a transaction that another node runs.
fn is_about_all(command: &Command, args: Args<'_>) -> bool {
    command.class == Class::Everywhere
        || matches!(command.run, Run::Scan(_))
        || asks_others(command, args)
        || matches!(command.run, Run::Finds { .. }) && !patterns(args).is_empty()
}

fn unknown_command(args: Args<'_>) -> CommandError {
    const SHOWN: usize = 128;
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).replace(['\r', '\n'], " ");
    let mut beginning = String::new();
    for word in args.from(1) {
        if beginning.len() >= SHOWN {
            break;
        }
        beginning.push_str(&format!("'{}' ", shown(word)));
    }
    CommandError::from(format!("ERR unknown command '{}', with args beginning with: {beginning}", shown(&args[0])))
}
