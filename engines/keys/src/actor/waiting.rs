//! Requests that wait until a key has something for them.
//!
//! No actor waits: a waiter is a record at the actor of its session. It stands in a queue at the actor of each key that it
//! waits for; who came first is called first, and while somebody is called, those behind are not.
//!
//! ```text
//!  session's actor        key's actor
//!   │ try ──────────────────►│ nothing there
//!   │ Await k ──────────────►│ stands in the queue of k
//!   │                        │ something is pushed to k
//!   │◄────────────── Ready k │ the first one is called
//!   │ try ──────────────────►│ takes an element
//!   │ Forget k ─────────────►│ the next one is called, if something is left
//! ```
//!
//! What one transaction brings to keys of several actors has an order, and its first key is taken from: the calls say their
//! places in it, and who is called borrows all its keys before it chooses, so that all calls have come.
//!
//! Where another node has the keys, it does not know of the waiter: that looks again and again, and nobody is called before others.
//!
//! Whoever finds nothing says `Await` again and keeps its place; the key's actor looks at the key whenever it hears that, so
//! that no call is missed. A time-out that comes during a try waits for its outcome, so that nothing is taken in vain.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashMap;
use savanna_lattice::{Hlc, UnixMillis};

use super::front::elsewhere;
use super::message::{Destination, Message, Wanted};
use super::program::Program;
use super::spread::Span;
use super::transaction::keys_of;
use super::{Actor, Place, Progress};
use crate::cluster::owners::virtual_node_of;
use crate::command::{Command, Group, Run, WaitsFor};
use crate::commands::streams::{LAST_IDS, names_last, wanted_of, with_last_ids};
use crate::error::CommandError;
use crate::keyspace::{Arrival, Stream, Value as KeyValue};
use crate::placement::{ActorId, group_of};
use crate::reply::{Reply, Tape, Value};
use crate::request::{Args, OwnedArgs};
use crate::session::{Session, SessionId, Ticket};

/// After so many milliseconds a waiter looks again at keys of another node.
const LOOK_PERIOD: u64 = 20;

/// Waiters of an actor's sessions, and the queues at its keys.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_number: HashMap<u64, Waiter>,
    by_session: HashMap<SessionId, u64>,
    deadlines: BTreeSet<(UnixMillis, u64)>,
    /// When those look again whose keys are at another node.
    looks: BTreeSet<(UnixMillis, u64)>,
    queues: HashMap<(u8, Box<[u8]>), Queue>,
    /// Those that have come to stand in all their queues in this turn.
    entering: Vec<u64>,
    /// Who was called for which key while nothing may be taken.
    called_in_pause: Vec<(u64, Box<[u8]>, Option<Hlc>)>,
}

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    session: SessionId,
    ticket: Ticket,
    database: u8,
    command: &'static Command,
    args: OwnedArgs,
    deadline: UnixMillis,
    /// Whether its keys are at another node.
    is_far: bool,
    /// Whether it was called and looks at the key.
    is_trying: bool,
    /// Keys of one transaction for which it was called besides, with their places in it.
    called: Vec<(Hlc, Box<[u8]>)>,
    /// How it ends if it finds nothing.
    ending: Option<Ending>,
    /// Whether it asks first which entries of its streams are the last, because it waits for what comes behind.
    asks_last: bool,
    /// Whether it stood in the queues of its keys.
    has_stood: bool,
    /// Whether all its keys' actors hear of it before anything that is said from now on: nothing that comes to its keys is missed.
    is_blocked: bool,
}

/// How waiting ends without an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As if the time were over.
    TimeOut,
    /// With an error.
    Unblocked,
}

/// A waiter: its actor, and its number there.
type WaiterId = (ActorId, u64);

/// A waiter in the queue of a key.
#[derive(Debug)]
struct Standing {
    waiter: WaiterId,
    command: &'static Command,
    wanted: Wanted,
    is_called: bool,
}

/// Who waits for a key, in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    standing: BTreeMap<u64, Standing>,
    places: HashMap<WaiterId, u64>,
    came: u64,
}

impl Queue {
    /// Puts a waiter at the end, or calls it back to its place.
    fn enter(&mut self, standing: Standing) {
        let place = *self.places.entry(standing.waiter).or_insert(self.came);
        self.came += u64::from(place == self.came);
        self.standing.insert(place, standing);
    }

    fn leave(&mut self, waiter: WaiterId) -> Option<Standing> {
        self.standing.remove(&self.places.remove(&waiter)?)
    }

    /// Calls the first one who takes elements of such a value, unless it is called already.
    fn call_for_element(&mut self, value: &KeyValue) -> Option<WaiterId> {
        let first = self.standing.values_mut().find(|standing| is_served_by(standing.command, value))?;
        let is_free = !std::mem::replace(&mut first.is_called, true);
        is_free.then_some(first.waiter)
    }

    /// Calls all for whom a stream, if there is one, has something: what is there is for all, but one of each group. Who waits as one
    /// of a group that is not there hears so.
    fn call_for_entries(&mut self, stream: Option<&Stream>) -> Vec<WaiterId> {
        let top = stream.and_then(Stream::top);
        let mut are_called: BTreeSet<&[u8]> = BTreeSet::new();
        let mut called = Vec::new();
        for standing in self.standing.values_mut() {
            let is_served = match &standing.wanted {
                Wanted::Element => false,
                Wanted::After(id) => top.is_some_and(|top| top > *id),
                Wanted::New(group) => match stream.and_then(|stream| stream.group(group)) {
                    None => true,
                    Some(at) => top.is_some_and(|top| top > at.last) && are_called.insert(group),
                },
            };
            if is_served && !std::mem::replace(&mut standing.is_called, true) {
                called.push(standing.waiter);
            }
        }
        called
    }
}

impl Waiters {
    /// What was said in the last turn is on its way.
    pub(super) fn begin_turn(&mut self) {
        for number in std::mem::take(&mut self.entering) {
            if let Some(waiter) = self.by_number.get_mut(&number) {
                waiter.is_blocked = true;
            }
        }
    }

    /// Whether a waiter is still there.
    pub(super) fn has(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }
}

impl Waiter {
    /// The keys that it waits for, each once.
    fn awaited(&self) -> Vec<Box<[u8]>> {
        let mut awaited: Vec<Box<[u8]>> = Vec::new();
        for key in self.command.keys.of(self.args.args()).into_iter().flatten() {
            if !awaited.iter().any(|other| **other == *key) {
                awaited.push(key.into());
            }
            if matches!(self.command.run, Run::Waits(_, WaitsFor::FirstKey)) {
                break;
            }
        }
        awaited
    }

    /// The first key of a transaction for which it was called; it is not called for that any more.
    fn first_called(&mut self) -> Option<Box<[u8]>> {
        let first = (0..self.called.len()).min_by_key(|index| self.called[*index].0)?;
        Some(self.called.swap_remove(first).1)
    }

    /// What one of a group hears that stood in queues, if what it waited for is no longer there.
    fn lost(&self, outcome: &Tape) -> Option<&'static str> {
        if !self.has_stood || self.command.name != "xreadgroup" {
            return None;
        }
        if is_refusal(outcome, "NOGROUP") {
            return Some("NOGROUP the consumer group this client was blocked on no longer exists");
        }
        is_refusal(outcome, "WRONGTYPE").then_some("UNBLOCKED the stream key no longer exists")
    }

    /// What it does when it is called for a key, or to begin with.
    fn attempt(&self, key: Option<&[u8]>) -> Box<Program> {
        let args = self.args.args();
        if self.asks_last {
            return Box::new(Program::single(self.database, &LAST_IDS, args));
        }
        let narrowed = match (key, self.command.run) {
            (Some(key), Run::Waits(_, WaitsFor::AnyKey)) => self.command.keys.only(args, key),
            _ => self.args.clone(),
        };
        Box::new(Program::single(self.database, self.command, narrowed.args()))
    }
}

/// Whether a reply says that there was nothing.
fn is_nothing(reply: &Tape) -> bool {
    matches!(reply.first(), Some(Value::Null | Value::NullArray))
}

/// Whether a reply is an error with this code.
fn is_refusal(reply: &Tape, code: &str) -> bool {
    matches!(reply.first(), Some(Value::Error(text)) if text.starts_with(code))
}

/// Whether a command takes its elements out of such values.
fn is_served_by(command: &Command, value: &KeyValue) -> bool {
    match value {
        KeyValue::List(_) => command.group == Group::List,
        KeyValue::SortedSet(_) => command.group == Group::SortedSet,
        _ => false,
    }
}

impl Actor {
    /// Runs a command that waits if there is nothing for it.
    pub(super) fn wait_for_something(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        deadline: UnixMillis,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        let is_far = matches!(self.span(|| command.keys.of(args).into_iter().flatten())?, Span::Beyond { .. });
        if is_far && names_last(command, args) {
            return Err(elsewhere(command));
        }
        self.go_to_firsts(session, command.keys.of(args).into_iter().flatten());
        let is_here = command.keys.of(args).is_ok_and(|keys| matches!(self.place(keys, None), Place::Here));
        let tries_here = is_here && !is_far && !self.is_blocked(command, args);
        if tries_here {
            let mut tape = Tape::new();
            self.run(session.database, command, args, &mut tape);
            if !is_nothing(&tape) {
                tape.play(reply);
                return Ok(Progress::Answered);
            }
        }
        let mut args = OwnedArgs::of(args);
        let mut asks_last = names_last(command, args.args());
        if tries_here && asks_last {
            let mut last = Tape::new();
            self.run(session.database, &LAST_IDS, args.args(), &mut last);
            args = with_last_ids(args.args(), &last).unwrap_or(args);
            asks_last = false;
        }
        let (number, ticket) = (self.number(), session.ticket());
        let waiter = Waiter {
            session: session.id,
            ticket,
            database: session.database,
            command,
            args,
            deadline,
            is_far,
            is_trying: false,
            called: Vec::new(),
            ending: None,
            asks_last,
            has_stood: false,
            is_blocked: false,
        };
        self.waiters.by_number.insert(number, waiter);
        self.waiters.by_session.insert(session.id, number);
        if deadline != UnixMillis::NEVER {
            self.waiters.deadlines.insert((deadline, number));
        }
        if tries_here {
            self.stand_in_queues(number);
        } else {
            self.try_for(number, None);
        }
        Ok(Progress::LaterAlone(ticket))
    }

    /// Looks for something, in one key or in all.
    fn try_for(&mut self, number: u64, key: Option<&[u8]>) {
        let Some(waiter) = self.waiters.by_number.get_mut(&number) else { return };
        waiter.is_trying = true;
        let program = waiter.attempt(key);
        if waiter.is_far {
            return self.look_beyond(number, &program);
        }
        let to = Destination::Waiter(number);
        let keys = keys_of(&program);
        let keys = || keys.iter().map(|key| &**key);
        match self.place(keys(), None) {
            Place::Here if !self.claims.blocks(keys()) => {
                let mut tape = Tape::new();
                self.run_program(&program, None, &[], &mut tape);
                self.hear_outcome(number, &tape);
            }
            Place::At(actor) => self.send(actor, Message::Program { to, program }),
            _ => self.begin_transaction(to, program),
        }
    }

    /// Looks for something in those keys of a transaction for which a waiter was called.
    fn try_for_called(&mut self, number: u64) {
        let Some(waiter) = self.waiters.by_number.get(&number) else { return };
        let keys = waiter.awaited();
        if matches!(self.place(keys.iter().map(|key| &**key), None), Place::Several) {
            return self.try_for(number, None);
        }
        let first = self.waiters.by_number.get_mut(&number).and_then(Waiter::first_called);
        self.try_for(number, first.as_deref());
    }

    /// What a waiter does that was called for keys of a transaction and has all its keys at hand.
    pub(super) fn attempt_at_first_called(&mut self, number: u64) -> Option<Box<Program>> {
        let waiter = self.waiters.by_number.get_mut(&number)?;
        let first = waiter.first_called()?;
        Some(waiter.attempt(Some(&first)))
    }

    /// Hears what came of a try.
    pub(super) fn hear_outcome(&mut self, number: u64, outcome: &Tape) {
        let Some(waiter) = self.waiters.by_number.get_mut(&number) else { return };
        waiter.is_trying = false;
        // Also if its time is over meanwhile: it has not looked yet.
        if std::mem::take(&mut waiter.asks_last)
            && let Some(args) = with_last_ids(waiter.args.args(), outcome)
        {
            waiter.args = args;
            return self.try_for(number, None);
        }
        match waiter.ending {
            // Nobody has its keys for the moment: it goes on waiting.
            None if waiter.is_far && is_refusal(outcome, "TRYAGAIN") => self.stand_in_queues(number),
            _ if !is_nothing(outcome) => {
                let (id, keys) = (waiter.session, waiter.awaited());
                let lost = waiter.lost(outcome);
                if let Some(mut session) = self.sessions.take(id) {
                    // Copies may have come to be here since it began to wait.
                    self.go_to_firsts(&mut session, keys.iter().map(|key| &**key));
                    self.sessions.put_back(session);
                }
                if let Some(to) = self.leave_queues(number) {
                    self.replies.push(to, |reply| match lost {
                        Some(refusal) => reply.error(refusal),
                        None => outcome.play(reply),
                    });
                }
            }
            Some(ending) => self.end_waiting(number, ending),
            None if !waiter.called.is_empty() => self.try_for_called(number),
            None => self.stand_in_queues(number),
        }
    }

    /// Those who wait for keys of a virtual node that leaves look for them from now on, wherever they are.
    pub(super) fn look_far_for(&mut self, node: u16) {
        let concerns = |waiter: &Waiter| {
            !waiter.is_far && waiter.awaited().iter().any(|key| virtual_node_of(group_of(key)) == node)
        };
        let concerned = self.waiters.by_number.iter().filter(|(_, waiter)| concerns(waiter));
        for number in concerned.map(|(number, _)| *number).collect::<Vec<_>>() {
            let Some(waiter) = self.waiters.by_number.get_mut(&number) else { continue };
            waiter.is_far = true;
            waiter.called.clear();
            let (database, awaited, is_trying) = (waiter.database, waiter.awaited(), waiter.is_trying);
            self.forget_waiter(number, database, awaited);
            if !is_trying {
                self.stand_in_queues(number);
            }
        }
    }

    fn stand_in_queues(&mut self, number: u64) {
        let Some(waiter) = self.waiters.by_number.get_mut(&number) else { return };
        if waiter.is_far {
            self.waiters.looks.insert((UnixMillis(self.keys.now().0 + LOOK_PERIOD), number));
            return;
        }
        if !std::mem::replace(&mut waiter.has_stood, true) {
            self.waiters.entering.push(number);
        }
        let (database, command) = (waiter.database, waiter.command);
        for key in waiter.awaited() {
            let wanted =
                self.waiters.by_number.get(&number).and_then(|waiter| wanted_of(command, waiter.args.args(), &key));
            let wanted = wanted.unwrap_or(Wanted::Element);
            match self.owner_of(&key) {
                actor if actor == self.id => self.hear_await((actor, number), database, command, key, wanted),
                actor => self.send(actor, Message::Await { waiter: number, database, command, key, wanted }),
            }
        }
    }

    /// Takes a waiter out of everything. Returns where its reply goes.
    fn leave_queues(&mut self, number: u64) -> Option<Destination> {
        let waiter = self.waiters.by_number.remove(&number)?;
        self.waiters.by_session.remove(&waiter.session);
        self.waiters.deadlines.remove(&(waiter.deadline, number));
        if waiter.is_far {
            return Some(Destination::Session(waiter.session, waiter.ticket));
        }
        self.forget_waiter(number, waiter.database, waiter.awaited());
        Some(Destination::Session(waiter.session, waiter.ticket))
    }

    /// Takes a waiter out of the queues of keys.
    fn forget_waiter(&mut self, number: u64, database: u8, awaited: Vec<Box<[u8]>>) {
        for key in awaited {
            match self.owner_of(&key) {
                actor if actor == self.id => self.hear_forget(actor, number, database, key),
                actor => self.send(actor, Message::Forget { waiter: number, database, key }),
            }
        }
    }

    pub(super) fn owner_of(&self, key: &[u8]) -> ActorId {
        self.routes.actor_of(group_of(key))
    }

    fn end_waiting(&mut self, number: u64, ending: Ending) {
        let Some(waiter) = self.waiters.by_number.get_mut(&number) else { return };
        if waiter.is_trying {
            waiter.ending = Some(ending);
            return;
        }
        if let Some(to) = self.leave_queues(number) {
            self.replies.push(to, |reply| match ending {
                Ending::TimeOut => reply.null_array(),
                Ending::Unblocked => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            });
        }
    }

    /// Ends the waiting of those whose time is over. Says whether there were any.
    pub(super) fn end_overdue(&mut self, now: UnixMillis) -> bool {
        let mut were_any = false;
        while let Some((deadline, number)) = self.waiters.deadlines.first().copied()
            && deadline <= now
        {
            self.waiters.deadlines.pop_first();
            self.end_waiting(number, Ending::TimeOut);
            were_any = true;
        }
        were_any
    }

    /// Those look again at keys of another node that looked some time ago.
    pub(super) fn look_at_far_keys(&mut self, now: UnixMillis) {
        while let Some((due, number)) = self.waiters.looks.first().copied()
            && due <= now
        {
            self.waiters.looks.pop_first();
            // One that has gone is known no more. Who is looking does not look twice at once: what the second look takes finds nobody.
            if self.waiters.by_number.get(&number).is_some_and(|waiter| !waiter.is_trying) {
                self.try_for(number, None);
            }
        }
    }

    /// When the next waiter's time is over, or it looks again.
    #[must_use]
    pub fn next_time_out(&self) -> Option<UnixMillis> {
        let [deadline, look] = [&self.waiters.deadlines, &self.waiters.looks].map(|dues| dues.first());
        deadline.into_iter().chain(look).map(|(due, _)| *due).min()
    }

    /// Whether a session waits for a key.
    #[must_use]
    pub fn is_waiting(&self, session: SessionId) -> bool {
        self.waiters.by_session.contains_key(&session)
    }

    /// Whether a session waits for a key, and gets what comes to it from now on.
    pub(crate) fn is_blocked_session(&self, session: SessionId) -> bool {
        let waiter = self.waiters.by_session.get(&session).and_then(|number| self.waiters.by_number.get(number));
        waiter.is_some_and(|waiter| waiter.is_blocked)
    }

    /// How many sessions wait for keys, and get what comes to them from now on.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiters.by_number.values().filter(|waiter| waiter.is_blocked).count()
    }

    /// Lets a client of this actor wait no longer. Says whether it waited.
    pub(crate) fn unblock(&mut self, client: i64, ending: Ending) -> bool {
        let mut waiting = self.waiters.by_session.iter();
        let Some((_, number)) = waiting.find(|(session, _)| self.client_number(**session) == client) else {
            return false;
        };
        self.end_waiting(*number, ending);
        true
    }

    /// Hears that a session has ended.
    pub(super) fn abandon(&mut self, session: SessionId) {
        if let Some(number) = self.waiters.by_session.get(&session) {
            self.leave_queues(*number);
        }
    }

    /// Hears that a waiter is called for a key.
    pub(super) fn hear_ready(&mut self, number: u64, key: Box<[u8]>, place: Option<Hlc>) {
        if self.is_paused() {
            return self.waiters.called_in_pause.push((number, key, place));
        }
        let Some(waiter) = self.waiters.by_number.get_mut(&number) else { return };
        // It was called before its key began to leave: it looks by itself from then on.
        if waiter.is_far {
            return;
        }
        // Who is trying says `Await` afterwards, and is called again if something is left.
        let is_trying = waiter.is_trying;
        match place {
            Some(place) => {
                waiter.called.push((place, key));
                if !is_trying {
                    self.try_for_called(number);
                }
            }
            None if !is_trying => self.try_for(number, Some(&key)),
            None => {}
        }
    }

    /// Puts a waiter into the queue of a key, or calls it back to its place.
    pub(super) fn hear_await(
        &mut self,
        waiter: WaiterId,
        database: u8,
        command: &'static Command,
        key: Box<[u8]>,
        wanted: Wanted,
    ) {
        self.keys.is_awaited = true;
        let standing = Standing { waiter, command, wanted, is_called: false };
        self.waiters.queues.entry((database, key.clone())).or_default().enter(standing);
        self.look_at(database, key);
    }

    /// Looks whether somebody is to be called for a key; once, however many ask for it one after the other.
    fn look_at(&mut self, database: u8, key: Box<[u8]>) {
        let is_meant =
            |arrival: &Arrival| (arrival.database, &arrival.key) == (database, &key) && arrival.place.is_none();
        if !self.keys.ready.last().is_some_and(is_meant) {
            self.keys.ready.push(Arrival::alone(database, key));
        }
    }

    /// Takes a waiter out of the queue of a key.
    pub(super) fn hear_forget(&mut self, from: ActorId, number: u64, database: u8, key: Box<[u8]>) {
        let place = (database, key);
        let Some(queue) = self.waiters.queues.get_mut(&place) else { return };
        let left = queue.leave((from, number));
        if queue.standing.is_empty() {
            self.waiters.queues.remove(&place);
            self.keys.is_awaited = !self.waiters.queues.is_empty();
        } else if left.is_some_and(|left| left.is_called && !matches!(left.wanted, Wanted::After(_))) {
            // The next one's turn has come.
            self.look_at(place.0, place.1);
        }
    }

    /// Lets those who wait for keys of databases hear of what is there, and what is there no more.
    pub(super) fn look_again(&mut self, is_meant: impl Fn(u8) -> bool) {
        let awaited = self.waiters.queues.keys().filter(|(database, _)| is_meant(*database));
        self.keys.ready.extend(awaited.map(|(database, key)| Arrival::alone(*database, key.clone())));
    }

    /// Lets those look for something who were called in a pause that is over.
    pub(super) fn hear_ready_again(&mut self) {
        for (number, key, place) in std::mem::take(&mut self.waiters.called_in_pause) {
            self.hear_ready(number, key, place);
        }
        self.serve_ready();
    }

    /// Calls waiters of keys that got something.
    #[inline]
    pub(super) fn serve_ready(&mut self) {
        if !self.keys.ready.is_empty() {
            self.serve_arrivals();
        }
    }

    fn serve_arrivals(&mut self) {
        let mut arrivals = VecDeque::from(std::mem::take(&mut self.keys.ready));
        while !self.is_paused()
            && let Some(arrival) = arrivals.pop_front()
        {
            self.call_first(arrival);
            // Who is served first leaves something for those behind, before the next key is looked at.
            for next in std::mem::take(&mut self.keys.ready).into_iter().rev() {
                arrivals.push_front(next);
            }
        }
        self.keys.ready.extend(arrivals);
    }

    fn call_first(&mut self, Arrival { database, key, place }: Arrival) {
        self.keys.select(database);
        let entry = self.keys.peek(&key);
        let awaited = (database, key);
        let Some(queue) = self.waiters.queues.get_mut(&awaited) else { return };
        let stream = entry.and_then(|entry| match &entry.value {
            KeyValue::Stream(stream) => Some(&**stream),
            _ => None,
        });
        let called = queue.call_for_entries(stream);
        let taken = entry.and_then(|entry| queue.call_for_element(&entry.value));
        called.into_iter().chain(taken).for_each(|waiter| self.call(waiter, awaited.1.clone(), place));
    }

    fn call(&mut self, (from, number): WaiterId, key: Box<[u8]>, place: Option<Hlc>) {
        if from == self.id {
            self.hear_ready(number, key, place);
        } else {
            self.send(from, Message::Ready { waiter: number, key, place });
        }
    }
}
