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

mod claims;
mod gather;
pub mod gossip;
pub mod logbook;
pub mod message;
pub mod program;
mod pubsub;
mod scripts;
mod transaction;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use savanna_lattice::{UnixMillis, WriterId};

use self::claims::{Claims, Wants};
use self::gather::Gather;
use self::gossip::Rounds;
use self::logbook::{DeniedRequest, Logbook, Note};
use self::message::{Destination, Message, Replies, Requests};
use self::program::Program;
use self::pubsub::Listeners;
pub(crate) use self::pubsub::Topic;
use self::transaction::Transaction;
pub(crate) use self::waiting::Ending;
use self::waiting::Waiters;
use crate::access::{Access, Denial, User, Users};
use crate::command::{Class, Combine, Command, Flags, Run};
use crate::config::Config;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::number::integer;
use crate::placement::{ActorId, KeyHash, Placement};
use crate::reply::Reply;
use crate::request::{Args, OwnedArgs};
use crate::scripting::Scripts;
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
}

/// A part of the keys with a part of the sessions.
#[derive(Debug)]
pub struct Actor {
    id: ActorId,
    placement: Placement,
    /// The keys.
    pub keys: Keyspace,
    /// The sessions.
    pub sessions: Sessions,
    /// What is set.
    pub config: Config,
    /// What was counted.
    pub counters: Counters,
    /// What time it is for those who want to know how long something takes.
    pub stopwatch: fn() -> Duration,
    users: Users,
    have_users_changed: bool,
    /// Sessions that have to end.
    dismissed: Vec<SessionId>,
    /// Kept by the first actor.
    pub(crate) logbook: Logbook,
    /// Whether somebody asked for a rewrite of the log.
    pub is_rewrite_wanted: bool,
    listeners: Listeners,
    claims: Claims<Work>,
    transactions: HashMap<u64, Transaction>,
    gathers: HashMap<u64, Gather>,
    rounds: Rounds,
    waiters: Waiters,
    pub(crate) scripts: Scripts,
    /// For whom a script runs, if not for somebody who may do everything.
    script_user: Option<Arc<User>>,
    numbered: u64,
    /// Replies to sessions of this actor that did not come at once.
    replies: Replies,
    /// What is to be sent, by actor.
    outboxes: Vec<Vec<Message>>,
}

/// The actor that keeps what there is once, and puts what all are told in one order.
pub(crate) const FIRST: ActorId = ActorId(0);

/// What an actor counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Requests of its sessions.
    pub requests: u64,
    /// Requests that went to another actor.
    pub sent: u64,
    /// Transactions that borrowed keys.
    pub transactions: u64,
    /// When it began.
    pub started: UnixMillis,
}

/// Work that may have to wait for keys.
#[derive(Debug)]
enum Work {
    Task { from: ActorId, to: Destination, database: u8, command: &'static Command, args: OwnedArgs },
    Program { from: ActorId, to: Destination, program: Box<Program> },
    Borrow { from: ActorId, transaction: u64, keys: Vec<Box<[u8]>> },
    Transaction(u64),
}

/// Where the keys of a request are.
enum Place {
    Here,
    At(ActorId),
    Several,
}

impl Actor {
    /// An actor among `placement.actors()`, which all have the same configuration.
    #[must_use]
    pub fn new(id: ActorId, placement: Placement, config: Config, seed: u64) -> Self {
        let mut keys = Keyspace::new(placement, seed ^ u64::from(id.0));
        keys.belong_to(id, WriterId(0));
        Self {
            id,
            placement,
            keys,
            sessions: Sessions::default(),
            users: Users::new(config.password.as_ref()),
            have_users_changed: false,
            dismissed: Vec::new(),
            logbook: Logbook::default(),
            config,
            counters: Counters::default(),
            stopwatch: || Duration::ZERO,
            is_rewrite_wanted: false,
            listeners: Listeners::default(),
            claims: Claims::default(),
            transactions: HashMap::new(),
            gathers: HashMap::new(),
            rounds: Rounds::new(placement.actors()),
            waiters: Waiters::default(),
            scripts: Scripts::default(),
            script_user: None,
            numbered: 0,
            replies: Replies::default(),
            outboxes: placement.all().map(|_| Vec::new()).collect(),
        }
    }

    /// Which actor it is.
    #[must_use]
    pub const fn id(&self) -> ActorId {
        self.id
    }

    /// Begins a session.
    pub fn open_session(&mut self, address: String) -> SessionId {
        self.sessions.open(address, &self.users)
    }

    /// Ends a session. Transactions that it waits for run on.
    pub fn close_session(&mut self, id: SessionId) {
        self.abandon(id);
        if let Some(mut session) = self.sessions.close(id) {
            self.unsubscribe_all(&mut session);
        }
    }

    /// Takes a request of a session.
    pub fn request(&mut self, id: SessionId, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        if args.is_empty() {
            return Progress::Answered;
        }
        let Some(mut session) = self.sessions.take(id) else { return Progress::Closing };
        self.counters.requests += 1;
        let outcome = match Command::find(&args[0]) {
            None => Err(unknown_command(args)),
            Some(command) if !command.takes(args.len()) => Err(CommandError::Arity(command.name.to_owned())),
            Some(command) => self.admit(&mut session, command, args, reply),
        };
        let progress = outcome.unwrap_or_else(|error| {
            if let Some(program) = &mut session.queued {
                program.is_broken = true;
            }
            error.answer(reply);
            Progress::Answered
        });
        self.sessions.put_back(session);
        self.serve_ready();
        self.note_request();
        if self.have_users_changed {
            self.renew_sessions();
        }
        progress
    }

    fn admit(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        let flags = command.flags;
        if session.access != Access::Full {
            self.check_access(session, command, args)?;
        }
        if session.protocol == 2 && session.is_subscribed() && !pubsub::may_run_subscribed(command) {
            return Err(CommandError::from(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )));
        }
        if flags.has(Flags::DENYOOM) && self.is_full() {
            return Err(CommandError::text("OOM command not allowed when used memory > 'maxmemory'."));
        }
        if let Some(program) = &mut session.queued
            && !flags.has(Flags::UNQUEUED)
        {
            // A transaction borrows keys, not the whole of what other threads have.
            let is_about_all = command.class == Class::Everywhere || matches!(command.run, Run::Scan(_));
            if flags.has(Flags::NO_MULTI) || is_about_all && self.placement.actors() > 1 {
                return Err(CommandError::from(format!(
                    "ERR {} is not allowed in a transaction",
                    command.name.to_uppercase()
                )));
            }
            if program.byte_count() + args.byte_count() > self.config.request_bytes_max {
                return Err(CommandError::text("ERR the transaction is longer than proto-max-bulk-len"));
            }
            program.push(command, args);
            reply.simple("QUEUED");
            return Ok(Progress::Answered);
        }
        self.dispatch(session, command, args, reply)
    }

    /// Whether the session's user may run a request: this is the place where requests are admitted.
    fn check_access(
        &mut self,
        session: &Session,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), CommandError> {
        if session.access == Access::Unknown {
            if command.flags.has(Flags::NO_AUTH) {
                return Ok(());
            }
            return Err(CommandError::text("NOAUTH Authentication required."));
        }
        session.user.check(command, args).map_err(|denial| {
            let text = match &denial {
                Denial::Command(name) => format!("NOPERM this user has no permissions to run the '{name}' command"),
                Denial::Key(_) => {
                    "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
                }
                Denial::Channel(_) => {
                    "NOPERM this user has no permissions to access one of the channels used as arguments".to_owned()
                }
            };
            self.note_denied(session, session.user.name(), denial.reason(), denial.object());
            CommandError::from(text)
        })
    }

    /// Whether the session's user may still run what was queued.
    pub(crate) fn check_queued(&mut self, session: &Session, program: &Program) -> Result<(), CommandError> {
        if session.access == Access::Full {
            return Ok(());
        }
        program.steps().try_for_each(|(command, args)| self.check_access(session, command, args))
    }

    pub(crate) fn note_denied(&mut self, session: &Session, user: &[u8], reason: &'static str, object: &[u8]) {
        let context = if session.queued.is_some() { "multi" } else { "toplevel" };
        let client = crate::commands::connection::line(self, session);
        let (object, user) = (logbook::shortened(object).into(), logbook::shortened(user).into());
        self.note(Note::Denied(DeniedRequest { at: self.keys.now(), reason, context, object, user, client }));
    }

    /// All users.
    #[must_use]
    pub const fn users(&self) -> &Users {
        &self.users
    }

    /// Changes users; sessions have what they may do from before the next request on.
    pub fn change_users<R>(&mut self, change: impl FnOnce(&mut Users) -> R) -> R {
        self.have_users_changed = true;
        change(&mut self.users)
    }

    /// Gives sessions their users as they are now. Who is no user any more, or listens to what it may not, has to go.
    fn renew_sessions(&mut self) {
        self.have_users_changed = false;
        for session in self.sessions.iter_mut() {
            match self.users.get(session.user.name()) {
                None => {
                    session.access = Access::Unknown;
                    self.dismissed.push(session.id);
                }
                Some(user) => {
                    let may_listen = session.channels.iter().all(|name| user.may_use_channel(name))
                        && session.patterns.iter().all(|name| user.may_listen_to_pattern(name));
                    if !may_listen {
                        self.dismissed.push(session.id);
                    }
                    session.user = Arc::clone(user);
                    if session.access != Access::Unknown {
                        session.access = user.access();
                    }
                }
            }
        }
    }

    /// Takes the sessions that have to end.
    #[must_use]
    pub fn take_dismissed(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.dismissed)
    }

    fn dispatch(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        match command.run {
            Run::Session(run) => run(self, session, args, reply),
            Run::Script(_) if session.access != Access::Full => {
                let program = Box::new(Program::single(session.database, command, args));
                self.execute(session, program, reply)
            }
            Run::Keys(_) | Run::Waits(..) | Run::Script(_) => {
                if let Some(deadline) = command.deadline(args, self.keys.now()) {
                    return self.wait_for_something(session, command, args, deadline, reply);
                }
                let place = match command.keys.of(args) {
                    Ok(keys) if self.placement.actors() > 1 => {
                        let is_copied = self.keys.has_replicas() && self.may_use_copy(session, command, args);
                        self.place(keys, is_copied.then_some(session.database))
                    }
                    // Words that name no keys are refused by the command itself.
                    _ => Place::Here,
                };
                match place {
                    Place::Here => {
                        if self.is_blocked(command, args) {
                            return Ok(self.wait_here(session, command, args));
                        }
                        self.keys.select(session.database);
                        let began = self.begin_timing(command);
                        let outcome = match command.run {
                            Run::Keys(run) | Run::Waits(run, _) => run(&mut self.keys, args, reply),
                            Run::Script(run) => run(self, args, reply),
                            _ => Ok(()),
                        };
                        if let Some(began) = began {
                            self.end_timing(began, command, args, Some(session));
                        }
                        outcome.map(|()| Progress::Answered)
                    }
                    Place::At(actor) => Ok(self.send_request(session, actor, command, args)),
                    Place::Several => {
                        let program = Box::new(Program::single(session.database, command, args));
                        let ticket = session.ticket();
                        self.begin_transaction(Destination::Session(session.id, ticket), program);
                        Ok(Progress::LaterAlone(ticket))
                    }
                }
            }
            Run::Scan(run) => {
                let cursor = integer(&args[1]).and_then(|cursor| u64::try_from(cursor).ok());
                let cursor = cursor.ok_or(CommandError::text("ERR invalid cursor"))?;
                let actor = self.placement.actor_of(KeyHash::from_cursor(cursor).group());
                if actor != self.id {
                    return Ok(self.send_request(session, actor, command, args));
                }
                if !self.claims.is_free() {
                    return Ok(self.wait_here(session, command, args));
                }
                self.keys.select(session.database);
                run(&mut self.keys, args, reply)?;
                Ok(Progress::Answered)
            }
            Run::Everywhere(..) => self.ask_everybody(session, command, args, reply),
        }
    }

    /// Whether a copy here may answer a request. Not one that tests and returns, nor what belongs to a transaction; and who went
    /// to a key's first replica once stays with it, for the copy here may not have heard of that yet.
    fn may_use_copy(&mut self, session: &mut Session, command: &'static Command, args: Args<'_>) -> bool {
        let keys = || command.keys.of(args).into_iter().flatten();
        let Some(key) = keys().next() else { return false };
        let is_one = keys().nth(1).is_none();
        if is_one
            && session.watched.is_empty()
            && command.class_of(args) != Class::Primary
            && !session.stays_with_first(KeyHash::of(key))
        {
            return true;
        }
        keys().for_each(|key| self.go_to_first(session, key));
        false
    }

    /// Says that a session goes to a key's first replica. What was changed here comes there before.
    fn go_to_first(&mut self, session: &mut Session, key: &[u8]) {
        if !self.keys.is_first_replica(key) && self.keys.serves(session.database, key) {
            session.stay_with_first(KeyHash::of(key));
            if self.keys.has_unsent_of(session.database, key) {
                self.tell();
            }
        }
    }

    /// Runs a command on all actors.
    pub(crate) fn ask_everybody(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        let Run::Everywhere(run, combine) = command.run else { return Err(CommandError::Syntax) };
        if self.placement.actors() == 1 {
            self.keys.select(session.database);
            run(self, args, reply)?;
            return Ok(Progress::Answered);
        }
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        if combine == Combine::First && self.id != FIRST {
            // What changes all actors reaches them in one order.
            let (database, args) = (session.database, OwnedArgs::of(args));
            self.send(FIRST, Message::ForAll { to, database, command, args });
        } else {
            self.begin_gather(self.id, to, session.database, command, args, combine);
        }
        Ok(Progress::LaterAlone(ticket))
    }

    /// Runs a command on the actor that has a client of this number, if any has.
    pub(crate) fn ask_actor_of(
        &mut self,
        client: i64,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        let index = client.rem_euclid(i64::from(self.placement.actors()));
        let actor = ActorId(index as u16);
        if actor != self.id {
            return Ok(self.send_request(session, actor, command, args));
        }
        self.run(session.database, command, args, reply);
        Ok(Progress::Answered)
    }

    /// Runs a command on the first actor.
    pub(crate) fn ask_first(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        match command.run {
            Run::Everywhere(run, _) if self.id == FIRST => {
                run(self, args, reply)?;
                Ok(Progress::Answered)
            }
            _ => Ok(self.send_request(session, FIRST, command, args)),
        }
    }

    /// The number of a client, unique in the node.
    #[must_use]
    pub fn client_number(&self, session: SessionId) -> i64 {
        i64::from(session.serial) * i64::from(self.placement.actors()) + i64::from(self.id.0)
    }

    fn wait_here(&mut self, session: &mut Session, command: &'static Command, args: Args<'_>) -> Progress {
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        self.wait_for_keys(self.id, to, session.database, command, args);
        Progress::Later(ticket)
    }

    fn wait_for_keys(
        &mut self,
        from: ActorId,
        to: Destination,
        database: u8,
        command: &'static Command,
        args: Args<'_>,
    ) {
        let wants = wants_of(command, args);
        self.claims.wait(wants, Work::Task { from, to, database, command, args: OwnedArgs::of(args) });
    }

    fn send_request(
        &mut self,
        session: &mut Session,
        actor: ActorId,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progress {
        let ticket = session.ticket();
        self.counters.sent += 1;
        self.requests_to(actor).push(Destination::Session(session.id, ticket), session.database, command, args);
        Progress::Later(ticket)
    }

    /// The batch of requests that is being filled for an actor.
    fn requests_to(&mut self, actor: ActorId) -> &mut Requests {
        let outbox = &mut self.outboxes[actor.index()];
        if !matches!(outbox.last(), Some(Message::Requests(requests)) if !requests.is_full()) {
            outbox.push(Message::Requests(Requests::default()));
        }
        match outbox.last_mut() {
            Some(Message::Requests(requests)) => requests,
            _ => unreachable!("it was put there"),
        }
    }

    /// Where keys are. With a database, replicas in it that are here count.
    fn place<'a>(&self, keys: impl Iterator<Item = &'a [u8]>, replicas_of: Option<u8>) -> Place {
        let mut place = None;
        for key in keys {
            let mut actor = self.placement.actor_of(KeyHash::of(key).group());
            if actor != self.id && replicas_of.is_some_and(|database| self.keys.serves(database, key)) {
                actor = self.id;
            }
            match place {
                None => place = Some(actor),
                Some(other) if other == actor => {}
                Some(_) => return Place::Several,
            }
        }
        match place {
            Some(actor) if actor != self.id => Place::At(actor),
            _ => Place::Here,
        }
    }

    /// Takes a message of another actor.
    pub fn deliver(&mut self, from: ActorId, message: Message) {
        match message {
            Message::Requests(requests) => {
                let mut replies = self.take_replies(from);
                for (to, database, command, args) in requests.iter() {
                    if self.is_blocked(command, args) {
                        self.wait_for_keys(from, to, database, command, args);
                    } else {
                        replies.push(to, |reply| self.run(database, command, args, reply));
                        self.serve_ready();
                        self.note_request();
                    }
                }
                self.put_replies(from, replies);
            }
            Message::Replies(replies) => {
                for (to, part) in replies.iter() {
                    match to {
                        Destination::Gather(number) => self.hear_part(number, &part),
                        Destination::Waiter(number) => self.hear_outcome(number, &part.to_tape()),
                        to => self.replies.push(to, |reply| part.play(reply)),
                    }
                }
            }
            Message::ForAll { to, database, command, args } => {
                if let Run::Everywhere(_, combine) = command.run {
                    self.begin_gather(from, to, database, command, args.args(), combine);
                }
            }
            Message::Noted(note) => self.note(note),
            Message::Program { to, program } => self.begin(Work::Program { from, to, program }),
            Message::Borrow { transaction, keys } => self.begin(Work::Borrow { from, transaction, keys }),
            Message::Lent { transaction, loans } => self.hear_lent(from, transaction, loans),
            Message::Return { loans } => self.take_back(loans),
            Message::Gossip(gossip) => self.hear_gossip(from, gossip),
            Message::Published { channel, payload } => self.publish_here(&channel, &payload),
            Message::Listeners { channel, count } => self.listeners.hear(from, &channel, count),
            Message::PatternListeners { pattern, count } => self.listeners.hear_pattern(from, &pattern, count),
            Message::Script { source } => self.hear_script(&source),
            Message::Await { waiter, database, command, key } => self.hear_await(from, waiter, database, command, key),
            Message::Ready { waiter, key } => self.hear_ready(waiter, &key),
            Message::Forget { waiter, database, key } => self.hear_forget(from, waiter, database, key),
        }
        self.serve_ready();
        self.note_request();
        if self.have_users_changed {
            self.renew_sessions();
        }
        self.hear_own_parts();
    }

    fn is_blocked(&self, command: &'static Command, args: Args<'_>) -> bool {
        !self.claims.is_free()
            && match command.run {
                Run::Keys(_) | Run::Waits(..) | Run::Script(_) => {
                    command.keys.of(args).is_ok_and(|keys| self.claims.blocks(keys))
                }
                _ => true,
            }
    }

    /// Does work, now or when its keys are free.
    fn begin(&mut self, work: Work) {
        let wants = match &work {
            Work::Task { command, args, .. } => wants_of(command, args.args()),
            Work::Program { program, .. } => Wants::Keys(transaction::keys_of(program)),
            Work::Borrow { keys, .. } => Wants::Keys(keys.clone()),
            Work::Transaction(number) => Wants::Keys(self.own_keys_of(*number)),
        };
        let is_blocked = match &wants {
            Wants::Keys(keys) => self.claims.blocks(keys.iter().map(|key| &**key)),
            Wants::Everything => !self.claims.is_free(),
        };
        if is_blocked { self.claims.wait(wants, work) } else { self.perform(work) }
    }

    fn perform(&mut self, work: Work) {
        match work {
            Work::Task { from, to, database, command, args } => {
                if let Some(actor) = self.moved_to(database, command, args.args()) {
                    // The copy that was here was given up meanwhile.
                    return self.requests_to(actor).push(to, database, command, args.args());
                }
                let mut replies = self.take_replies(from);
                replies.push(to, |reply| self.run(database, command, args.args(), reply));
                self.put_replies(from, replies);
            }
            Work::Program { from, to, program } => {
                let mut replies = self.take_replies(from);
                replies.push(to, |reply| self.run_program(&program, None, &[], reply));
                self.put_replies(from, replies);
            }
            Work::Borrow { from, transaction, keys } => self.lend(from, transaction, keys),
            Work::Transaction(number) => self.hold_own(number),
        }
    }

    /// Which other actor has the key of a request that waited here.
    fn moved_to(&self, database: u8, command: &'static Command, args: Args<'_>) -> Option<ActorId> {
        let keys = command.keys.of(args).ok().filter(|_| wants_of(command, args) != Wants::Everything)?;
        match self.place(keys, Some(database)) {
            Place::At(actor) => Some(actor),
            _ => None,
        }
    }

    /// Does the work that became possible.
    fn resume(&mut self) {
        while let Some(work) = self.claims.next() {
            self.perform(work);
        }
    }

    /// Runs one command whose keys are here.
    fn run(&mut self, database: u8, command: &'static Command, args: Args<'_>, reply: &mut dyn Reply) {
        self.keys.select(database);
        let began = self.begin_timing(command);
        let outcome = match command.run {
            Run::Keys(run) | Run::Waits(run, _) | Run::Scan(run) => run(&mut self.keys, args, reply),
            Run::Everywhere(run, _) | Run::Script(run) => run(self, args, reply),
            Run::Session(_) => Err(CommandError::text("ERR this command needs its connection")),
        };
        if let Some(began) = began {
            self.end_timing(began, command, args, None);
        }
        if let Err(error) = outcome {
            error.answer(reply);
        }
    }

    /// The replies that are being collected for an actor, to be put back.
    fn take_replies(&mut self, to: ActorId) -> Replies {
        if to == self.id {
            return std::mem::take(&mut self.replies);
        }
        match self.outboxes[to.index()].pop_if(|message| matches!(message, Message::Replies(_))) {
            Some(Message::Replies(replies)) => replies,
            _ => Replies::default(),
        }
    }

    fn put_replies(&mut self, to: ActorId, replies: Replies) {
        if to == self.id {
            // What ran may have published something.
            let meanwhile = std::mem::replace(&mut self.replies, replies);
            meanwhile.iter().for_each(|(to, part)| self.replies.push(to, |reply| part.play(reply)));
        } else if !replies.is_empty() {
            self.outboxes[to.index()].push(Message::Replies(replies));
        }
    }

    fn send(&mut self, to: ActorId, message: Message) {
        self.outboxes[to.index()].push(message);
    }

    /// Bytes of replies and messages for sessions of this actor, for each session that gets them.
    #[must_use]
    pub const fn reply_bytes(&self) -> usize {
        self.replies.byte_count()
    }

    /// Takes the replies that came for sessions of this actor; to be given back cleared.
    #[must_use]
    pub fn take_own_replies(&mut self) -> Replies {
        self.hear_own_parts();
        std::mem::take(&mut self.replies)
    }

    /// Gives the memory of replies back that were taken.
    pub fn recycle(&mut self, mut replies: Replies) {
        if self.replies.is_empty() {
            replies.clear();
            self.replies = replies;
        }
    }

    /// Whether anything is to be sent. What the actor changed must be in the log first, or the log would have what follows
    /// from a change before the change.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.outboxes.iter().any(|outbox| !outbox.is_empty())
    }

    /// Takes what is to be sent to an actor. What the actor changed must be in the log first.
    #[must_use]
    pub fn take_outbox(&mut self, to: ActorId) -> Vec<Message> {
        std::mem::take(&mut self.outboxes[to.index()])
    }

    /// All actors.
    pub fn actors(&self) -> impl Iterator<Item = ActorId> + use<> {
        self.placement.all()
    }

    /// Says that what comes belongs to another request.
    fn note_request(&mut self) {
        if self.keys.has_replicas() {
            self.keys.translate_changes();
        }
        self.keys.log.note_request();
    }

    /// Does what is due at this time. Says when to come again; [`Actor::gossip_due`] may be earlier.
    pub fn tick(&mut self, now: UnixMillis) -> Option<UnixMillis> {
        /// Keys that may be deleted in one turn: about 1 ms.
        const PATIENCE: usize = 2_000;
        self.keys.set_now(now);
        if self.end_overdue(now) {
            self.serve_ready();
            self.note_request();
        }
        let due = self.keys.expire_due(PATIENCE);
        let absent = self.keys.end_absent(PATIENCE);
        self.note_request();
        self.gossip();
        due.into_iter().chain(absent).min()
    }

    /// Goes on with a rewrite of the log (see [`crate::log`]) by about `bytes`. Says whether this actor is done.
    pub fn rewrite_some(&mut self, bytes: usize) -> bool {
        self.note_request();
        // A key that is lent is written when it comes back.
        let is_done = self.keys.rewrite_some(bytes) && self.claims.holds_nothing();
        if is_done {
            self.keys.end_rewrite();
        }
        is_done
    }

    fn is_full(&self) -> bool {
        self.config.memory_max != 0
            && self.keys.databases().map(|(_, database)| database.bytes()).sum::<usize>()
                > self.config.memory_max / usize::from(self.placement.actors())
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }
}

fn wants_of(command: &'static Command, args: Args<'_>) -> Wants {
    match (command.run, command.keys.of(args)) {
        (Run::Keys(_) | Run::Waits(..) | Run::Script(_), Ok(keys)) => Wants::Keys(keys.map(Box::from).collect()),
        _ => Wants::Everything,
    }
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
