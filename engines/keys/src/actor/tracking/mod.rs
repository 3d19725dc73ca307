//! Clients that keep copies of values and hear when these change (`CLIENT TRACKING`).
//!
//! An actor knows what its own sessions have read. Each actor notes the keys that it changes while any session anywhere keeps
//! copies, and tells the actors of these sessions at the end of its turn, behind its replies:
//!
//! ```text
//!  actor of the session          actor of the key
//!   │ begin; request ──────────────►│ reads
//!   │ keeps ◄───────────────── reply│
//!   │                               │ changes, appends
//!   │ tells the session ◄─── Changed│
//! ```
//!
//! A key may be changed by a transaction of a third actor, whose word overtakes the reply. So a read is noted when it begins:
//! the session hears of a change behind the reply that it may be newer than. What a session is told comes behind the
//! replies of the turn, and leaves as they do: when the change is as durable as its answer has to be.

mod table;

use std::collections::VecDeque;

use hashbrown::HashMap;

use self::table::{Concern, Table};
use super::message::{Destination, Message};
use super::{Actor, Progress};
use crate::changed::Changes;
use crate::command::{Command, Flags, Run};
use crate::placement::ActorId;
use crate::reply::{Reply, Tape};
use crate::request::Args;
use crate::session::{Session, SessionId, Ticket};

/// Which keys a client keeps copies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All that it reads.
    Read,
    /// Those that it reads right after `CLIENT CACHING YES`.
    OptIn,
    /// All that it reads but right after `CLIENT CACHING NO`.
    OptOut,
    /// All that begin with one of its prefixes, read or not.
    Broadcast,
}

/// What a client said about the copies that it keeps.
#[derive(Debug)]
pub struct Tracking {
    /// Of which keys.
    pub mode: Mode,
    /// Whether it does not hear of its own changes.
    pub skips_own: bool,
    /// The number of the client that hears in its place, 0 for none.
    pub redirect: i64,
    /// Whether that client is gone.
    pub is_broken: bool,
    /// Whether it has just said `CLIENT CACHING`.
    pub is_said: bool,
    /// The beginnings of keys that it hears of; all, if one is empty.
    pub prefixes: Vec<Box<[u8]>>,
    /// Its reads that are under way.
    reads: VecDeque<(Ticket, Vec<Box<[u8]>>)>,
}

impl Tracking {
    /// A client that has read nothing yet.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self {
            mode,
            skips_own: false,
            redirect: 0,
            is_broken: false,
            is_said: false,
            prefixes: Vec::new(),
            reads: VecDeque::new(),
        }
    }

    const fn notes_reads(&self) -> bool {
        match self.mode {
            Mode::Read => true,
            Mode::OptIn => self.is_said,
            Mode::OptOut => !self.is_said,
            Mode::Broadcast => false,
        }
    }
}

/// What an actor knows of sessions that keep copies.
#[derive(Debug, Default)]
pub(super) struct Trackers {
    /// Sessions of this actor.
    here: Vec<SessionId>,
    /// How many there are at others.
    elsewhere: Vec<(ActorId, usize)>,
    table: Table,
    /// How many reads are under way.
    reads: usize,
    /// What was changed here and elsewhere, and is not told.
    heard: Vec<Changes>,
    /// Sessions of this actor that hear in the place of others, by their number.
    targets: HashMap<i64, SessionId>,
}

/// The figures of what is tracked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrackingFigures {
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) items: usize,
    pub(crate) prefixes: usize,
}

impl Actor {
    /// Lets a session keep copies as it says, or not any more. Others know when they have heard what is sent.
    pub(crate) fn track(&mut self, session: &mut Session, tracking: Option<Tracking>) {
        let was = self.end_reads(session).is_some();
        session.tracking = tracking.map(Box::new);
        let here = &mut self.trackers.here;
        match (was, session.tracking.is_some()) {
            (false, true) => here.push(session.id),
            (true, false) => here.retain(|other| *other != session.id),
            _ => return,
        }
        let (id, count) = (self.id, here.len());
        if count == 0 {
            self.trackers.table = Table::default();
        }
        for actor in self.routes.all().filter(|actor| *actor != id) {
            self.send(actor, Message::Trackers { count });
        }
        self.note_trackers();
    }

    /// Takes out what a session said; its reads that are under way leave no copies.
    fn end_reads(&mut self, session: &mut Session) -> Option<Box<Tracking>> {
        let tracking = session.tracking.take()?;
        for (_, keys) in &tracking.reads {
            self.trackers.reads -= 1;
            for key in keys {
                self.trackers.table.end(key, session.id, false);
            }
        }
        Some(tracking)
    }

    /// Hears how many sessions of another actor keep copies.
    pub(super) fn hear_trackers(&mut self, from: ActorId, count: usize) {
        self.trackers.elsewhere.retain(|(other, _)| *other != from);
        if count > 0 {
            self.trackers.elsewhere.push((from, count));
        }
        self.note_trackers();
    }

    fn note_trackers(&mut self) {
        let is_wanted = !self.trackers.here.is_empty() || !self.trackers.elsewhere.is_empty();
        self.keys.log.note_changed_keys(is_wanted);
    }

    /// As [`Actor::answer`], for a session that keeps copies.
    #[cold]
    pub(super) fn answer_tracked(&mut self, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        let command = Command::find(&args[0]);
        let was_queuing = session.queued.is_some();
        let reads = command.map(|command| reads_of(session, command, args)).unwrap_or_default();
        self.keys.log.set_author(Some(self.client_number(session.id)));
        let progress = self.answer(session, args, reply);
        self.keys.log.set_author(None);
        let (session_id, ticket) = (
            session.id,
            match progress {
                Progress::Held => return progress,
                Progress::Later(ticket) | Progress::LaterAlone(ticket) | Progress::LaterClosing(ticket) => Some(ticket),
                Progress::Answered | Progress::Closing => None,
            },
        );
        let is_queuing = session.queued.is_some();
        if let Some(tracking) = &mut session.tracking {
            // What it said holds for the next request, or the next transaction.
            let ends = !is_queuing && command.is_none_or(|command| command.name != "client");
            tracking.is_said &= !ends;
            match ticket {
                _ if reads.is_empty() || is_queuing && was_queuing => {}
                None => reads.iter().for_each(|key| self.trackers.table.read(key, session_id)),
                Some(ticket) => {
                    reads.iter().for_each(|key| self.trackers.table.begin(key, session_id));
                    tracking.reads.push_back((ticket, reads));
                    self.trackers.reads += 1;
                }
            }
        }
        progress
    }

    /// Says for whom what follows is done, if anybody wants to hear of changes.
    #[inline]
    pub(super) fn note_author(&mut self, from: ActorId, to: Destination) {
        if self.keys.log.notes_changed_keys() {
            let author = match to {
                Destination::Session(session, _) => {
                    Some(i64::from(session.serial) * i64::from(self.routes.actors()) + i64::from(from.0))
                }
                _ => None,
            };
            self.keys.log.set_author(author);
        }
    }

    /// Hears what another actor changed.
    pub(super) fn hear_changes(&mut self, changes: Changes) {
        if !self.trackers.here.is_empty() {
            self.trackers.heard.push(changes);
        }
    }

    /// Tells of what was changed, here to sessions, and to other actors that have some to be told. To be called when what was changed is
    /// in the log, and before messages are sent.
    pub fn tell_trackers(&mut self) {
        if self.keys.log.notes_changed_keys() {
            self.tell_changes();
        }
    }

    #[cold]
    fn tell_changes(&mut self) {
        self.end_answered_reads();
        let changes = self.keys.log.take_changed_keys();
        if !changes.is_empty() {
            for (actor, _) in self.trackers.elsewhere.clone() {
                self.listeners.note_told_elsewhere();
                self.send(actor, Message::Changed(changes.clone()));
            }
            self.hear_changes(changes);
        }
        for changes in std::mem::take(&mut self.trackers.heard) {
            self.tell_sessions(&changes);
        }
        let keys_max = match self.config.tracked_keys_max {
            0 => usize::MAX,
            all => all.div_ceil(usize::from(self.routes.actors())),
        };
        while let Some(key) = self.trackers.table.one_too_many(keys_max) {
            for session in self.trackers.table.change(&key, |_| Concern::Hears) {
                self.invalidate(session, Some(&[&key]));
            }
        }
    }

    /// Notes which reads are answered by the replies that came.
    pub(super) fn end_answered_reads(&mut self) {
        if self.trackers.reads == 0 {
            return;
        }
        let answered: Vec<(SessionId, Ticket)> = self
            .replies
            .iter()
            .filter_map(|(to, _)| match to {
                Destination::Session(session, ticket) => Some((session, ticket)),
                _ => None,
            })
            .collect();
        for (id, ticket) in answered {
            let Some(mut session) = self.sessions.take(id) else { continue };
            if let Some(tracking) = &mut session.tracking
                && let Some(place) = tracking.reads.iter().position(|(other, _)| *other == ticket)
            {
                let (_, keys) = tracking.reads.remove(place).unwrap_or((ticket, Vec::new()));
                self.trackers.reads -= 1;
                self.sessions.put_back(session);
                for key in keys {
                    if self.trackers.table.end(&key, id, true) {
                        self.invalidate(id, Some(&[&key]));
                    }
                }
            } else {
                self.sessions.put_back(session);
            }
        }
    }

    fn tell_sessions(&mut self, changes: &Changes) {
        if changes.has_all {
            self.trackers.table.change_all();
            for session in self.trackers.here.clone() {
                self.invalidate(session, None);
            }
            return;
        }
        for (key, by) in &changes.keys {
            let (sessions, actors, own) = (&self.sessions, self.routes.actors(), self.id);
            let number = |session: SessionId| number_of(session, actors, own);
            let concern = |session: SessionId| match sessions.get(session).and_then(|session| session.tracking.as_ref())
            {
                None => Concern::Gone,
                Some(tracking) if tracking.skips_own && *by == Some(number(session)) => Concern::IsAuthor,
                Some(_) => Concern::Hears,
            };
            for session in self.trackers.table.change(key, concern) {
                self.invalidate(session, Some(&[&**key]));
            }
        }
        for session in self.trackers.here.clone() {
            let Some(tracking) = self.sessions.get(session).and_then(|session| session.tracking.as_ref()) else {
                continue;
            };
            if tracking.mode != Mode::Broadcast {
                continue;
            }
            let number = self.client_number(session);
            let is_told = |key: &[u8]| tracking.prefixes.iter().any(|prefix| key.starts_with(prefix));
            let told =
                changes.keys.iter().filter(|(key, by)| is_told(key) && !(tracking.skips_own && *by == Some(number)));
            let mut keys: Vec<&[u8]> = told.map(|(key, _)| &**key).collect();
            keys.dedup();
            if !keys.is_empty() {
                self.invalidate(session, Some(&keys));
            }
        }
    }

    /// Tells a session, or who hears in its place, that its copies of these keys are old, or of all.
    fn invalidate(&mut self, id: SessionId, keys: Option<&[&[u8]]>) {
        let Some(session) = self.sessions.get(id) else { return };
        let Some(tracking) = &session.tracking else { return };
        let to = tracking.redirect;
        if to == 0 {
            if session.protocol > 2 {
                self.replies.push(Destination::Push(id), |reply| write_invalidation(keys, true, reply));
            }
            return;
        }
        let actor = self.actor_of_client(to);
        if actor == self.id {
            if !self.invalidate_in_place(to, keys) {
                self.hear_no_redirect(id, false);
            }
            return;
        }
        let keys = keys.map(|keys| keys.iter().map(|key| Box::from(*key)).collect());
        self.send(actor, Message::Redirected { session: id, to, keys });
    }

    /// Tells the client of a number in the place of another one. Says whether it is there.
    fn invalidate_in_place(&mut self, number: i64, keys: Option<&[&[u8]]>) -> bool {
        let Some(session) = self.trackers.targets.get(&number).and_then(|id| self.sessions.get(*id)) else {
            return false;
        };
        let (id, is_pushed) = (session.id, session.protocol > 2);
        if is_pushed || session.is_subscribed() {
            self.replies.push(Destination::Push(id), |reply| write_invalidation(keys, is_pushed, reply));
        }
        true
    }

    /// Hears that a session of another actor has a client of this one told in its place.
    pub(super) fn hear_redirected(&mut self, from: ActorId, session: SessionId, to: i64, keys: Option<&[Box<[u8]>]>) {
        let keys: Option<Vec<&[u8]>> = keys.map(|keys| keys.iter().map(|key| &**key).collect());
        if !self.invalidate_in_place(to, keys.as_deref()) {
            self.send(from, Message::NoRedirect { session, is_new: false });
        }
    }

    /// Hears that a session wants a client of this actor to be told in its place.
    pub(super) fn hear_redirect(&mut self, from: ActorId, session: SessionId, to: i64) {
        if !self.redirect_to(to) {
            self.send(from, Message::NoRedirect { session, is_new: true });
        }
    }

    /// Lets a client of this actor be told in the place of others. Says whether it is there.
    pub(crate) fn redirect_to(&mut self, number: i64) -> bool {
        let serial = u32::try_from(number.div_euclid(i64::from(self.routes.actors())));
        let found = self.sessions.iter().find(|session| Ok(session.id.serial) == serial).map(|session| session.id);
        if let Some(session) = found {
            self.trackers.targets.insert(number, session);
        }
        found.is_some()
    }

    /// As [`Actor::redirect_to`], of the session whose request runs.
    pub(crate) fn redirect_to_itself(&mut self, session: SessionId) {
        self.trackers.targets.insert(self.client_number(session), session);
    }

    /// Hears that nobody is told in the place of a session: it hears of that itself, or keeps no copies if that is new.
    pub(super) fn hear_no_redirect(&mut self, id: SessionId, is_new: bool) {
        let Some(mut session) = self.sessions.take(id) else { return };
        if is_new {
            self.track(&mut session, None);
        } else if let Some(tracking) = &mut session.tracking {
            tracking.is_broken = true;
            let redirect = tracking.redirect;
            if session.protocol > 2 {
                self.replies.push(Destination::Push(id), |reply| {
                    reply.push(2);
                    reply.bulk(b"tracking-redir-broken");
                    reply.integer(redirect);
                });
            }
        }
        self.sessions.put_back(session);
    }

    /// Has a client elsewhere be told in the place of a session.
    pub(crate) fn ask_for_redirect(&mut self, session: SessionId, to: i64) {
        let actor = self.actor_of_client(to);
        self.send(actor, Message::Redirect { session, to });
    }

    /// The actor that a client of this number has, if there is one.
    pub(crate) fn actor_of_client(&self, number: i64) -> ActorId {
        ActorId(number.rem_euclid(i64::from(self.routes.actors())) as u16)
    }

    /// A session ends.
    pub(super) fn end_tracking(&mut self, session: &mut Session) {
        if session.tracking.is_some() {
            self.track(session, None);
        }
        if !self.trackers.targets.is_empty() {
            let number = self.client_number(session.id);
            self.trackers.targets.remove(&number);
        }
    }

    /// The figures of what is tracked here.
    pub(crate) fn tracking_figures(&self) -> TrackingFigures {
        let sessions = self.trackers.here.iter().filter_map(|session| self.sessions.get(*session));
        let prefixes = sessions.filter_map(|session| session.tracking.as_ref()).map(|tracking| tracking.prefixes.len());
        TrackingFigures {
            clients: self.trackers.here.len(),
            keys: self.trackers.table.key_count(),
            items: self.trackers.table.item_count(),
            prefixes: prefixes.sum(),
        }
    }
}

/// The number of a client among all of the node.
fn number_of(session: SessionId, actors: u16, actor: ActorId) -> i64 {
    i64::from(session.serial) * i64::from(actors) + i64::from(actor.0)
}

/// The keys that a request of a session reads, of those that it keeps copies of.
fn reads_of(session: &Session, command: &'static Command, args: Args<'_>) -> Vec<Box<[u8]>> {
    if !session.tracking.as_ref().is_some_and(|tracking| tracking.notes_reads()) || !command.takes(args.len()) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    match &session.queued {
        Some(program) if command.name == "exec" => {
            program.steps().for_each(|(command, args)| add_reads(command, args, &mut keys));
        }
        Some(_) => {}
        None => add_reads(command, args, &mut keys),
    }
    keys.sort();
    keys.dedup();
    keys
}

/// What a script reads are, as far as is known before it runs, the keys that it declares.
fn add_reads(command: &'static Command, args: Args<'_>, keys: &mut Vec<Box<[u8]>>) {
    if command.flags.has(Flags::READONLY) || matches!(command.run, Run::Script(_)) {
        keys.extend(command.keys.of(args).into_iter().flatten().map(Box::from));
    }
}

/// The channel on which clients of RESP2 are told.
const CHANNEL: &[u8] = b"__redis__:invalidate";

fn write_invalidation(keys: Option<&[&[u8]]>, is_pushed: bool, reply: &mut Tape) {
    if is_pushed {
        reply.push(2);
        reply.bulk(b"invalidate");
    } else {
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(CHANNEL);
    }
    match keys {
        None => reply.null(),
        Some(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
    }
}
