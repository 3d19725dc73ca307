//! Work on keys of several actors, as one.
//!
//! A transaction visits the actors of its keys in ascending order and borrows its keys of each, all or none. With this one
//! order nobody waits in a circle. Then it runs here, as if all keys were of this actor, and gives them back:
//!
//! ```text
//!  this actor              actor 1              actor 2
//!   │ Borrow {a, b} ────────►│ hold a, b            │
//!   │◄─────────── Lent a, b  │                      │
//!   │ Borrow {c} ───────────────────────────────────►│ c is held: the request for it waits
//!   │◄────────────────────────────────────── Lent c  │
//!   │ run; one append        │                      │
//!   │ Return a, b ──────────►│ release, go on       │
//!   │ Return c ─────────────────────────────────────►│
//! ```
//!
//! Between `Lent` and `Return` the entries are in the tables of the actor that runs the transaction, but only while it
//! runs is anything there looked at, so nobody sees them there.

use std::sync::Arc;

use hashbrown::HashSet;
use savanna_lattice::Hlc;

use super::databases::Thawed;
use super::lanes::About;
use super::message::{Destination, LentRest, Loan, Message};
use super::program::{Program, ProgramUser};
use super::room::out_of_memory;
use super::spread::Span;
use super::whole::{Answer, Held, Inquiry, LateStep, Whole, is_of_memory};
use super::{Actor, Place, Progress, Work};
use crate::access::{Access, permission_for};
use crate::command::{Flags, Run};
use crate::commands;
use crate::error::{CommandError, Outcome};
use crate::keyspace::replica::Aside;
use crate::keyspace::{Arrival, DATABASES};
use crate::placement::{ActorId, KeyHash, group_of};
use crate::reply::{Reply, TOO_LONG, Tape};
use crate::session::{Session, Watched};

/// A transaction that is under way.
#[derive(Debug)]
pub(super) struct Transaction {
    to: Destination,
    program: Box<Program>,
    /// Actors in ascending order, with the keys that are theirs.
    stops: Vec<(ActorId, Vec<Box<[u8]>>)>,
    /// How many stops were made.
    made: usize,
    loans: Vec<(ActorId, Vec<Loan>)>,
    /// What it asks of all keys, if it does: then it holds all.
    whole: Option<Arc<Whole>>,
    /// What other actors' keys say to that.
    parts: Vec<(ActorId, Vec<Tape>)>,
    /// Why it does not run.
    obstacle: Option<CommandError>,
    /// Whether everybody who lent keys has room for what may be added to them.
    has_room: bool,
}

impl Transaction {
    /// What is to run.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }
}

/// A key that a transaction has borrowed.
#[derive(Debug)]
struct Borrowed {
    from: ActorId,
    loan: Loan,
    /// When a key of its class was last deleted here before the transaction ran.
    deleted_here: Hlc,
    /// In which databases it has replicas.
    replicated: Vec<u8>,
    /// This actor's own copy.
    aside: Aside,
    /// In which databases the transaction made it beside other keys, and when.
    made: Vec<(u8, Hlc)>,
}

/// How often a program is tried whose keys turn out to be others than those at hand.
const TRIES_MAX: u32 = 16;

/// The keys that a program reads, changes or compares, each once. Where its words are wrong it has none; running it then
/// says so.
pub(super) fn keys_of(program: &Program) -> Vec<Box<[u8]>> {
    let mut keys: Vec<Box<[u8]>> = program.watched.iter().map(|watched| watched.key.clone()).collect();
    for (command, args) in program.steps() {
        if let Ok(named) = command.keys.of(args) {
            keys.extend(named.map(Box::from));
        }
    }
    keys.extend(program.found.iter().cloned());
    keys.sort();
    keys.dedup();
    keys
}

impl Actor {
    /// Runs a program as soon as all its keys are at hand.
    pub(super) fn begin_transaction(&mut self, to: Destination, program: Box<Program>) {
        let mut stops: Vec<(ActorId, Vec<Box<[u8]>>)> = Vec::new();
        let keys = keys_of(&program).into_iter();
        let mut placed: Vec<(ActorId, Box<[u8]>)> =
            keys.map(|key| (self.routes.actor_of(group_of(&key)), key)).collect();
        placed.sort();
        for (actor, key) in placed {
            match stops.last_mut() {
                Some((last, keys)) if *last == actor => keys.push(key),
                _ => stops.push((actor, vec![key])),
            }
        }
        let whole = if self.routes.actors() > 1 { Whole::of(&program) } else { None };
        if whole.is_some() {
            let mut named = stops.into_iter().peekable();
            let keys_at = |actor| named.next_if(|(next, _)| *next == actor).unwrap_or((actor, Vec::new()));
            stops = self.routes.all().map(keys_at).collect();
        }
        let number = self.number();
        self.counters.transactions += 1;
        let (loans, parts) = (Vec::new(), Vec::new());
        let begun = Transaction { to, program, stops, made: 0, loans, whole, parts, obstacle: None, has_room: true };
        self.transactions.insert(number, begun);
        self.next_stop(number);
    }

    fn next_stop(&mut self, number: u64) {
        let Some(transaction) = self.transactions.get(&number) else { return };
        match transaction.stops.get(transaction.made) {
            None => self.run_transaction(number),
            Some((actor, _)) if *actor == self.id => self.begin(Work::Transaction(number)),
            Some((actor, keys)) => {
                let (actor, keys, needs_room) = (*actor, keys.clone(), transaction.program.needs_room());
                let parts = transaction.parts.iter().flat_map(|(_, parts)| parts);
                let room = self.reply_bytes_max.saturating_sub(parts.map(Tape::position).sum());
                let whole = transaction.whole.clone().map(|whole| Inquiry { whole, room });
                self.send(actor, Message::Borrow { transaction: number, keys, needs_room, whole });
            }
        }
    }

    /// The keys of this actor that a transaction of its own needs.
    pub(super) fn own_keys_of(&self, number: u64) -> Vec<Box<[u8]>> {
        let stops = self.transactions.get(&number).map(|transaction| &transaction.stops);
        let own = stops.into_iter().flatten().find(|(actor, _)| *actor == self.id);
        own.map(|(_, keys)| keys.clone()).unwrap_or_default()
    }

    /// Whether a transaction of this actor wants all keys held.
    pub(super) fn holds_whole(&self, number: u64) -> bool {
        self.transactions.get(&number).is_some_and(|transaction| transaction.whole.is_some())
    }

    pub(super) fn hold_own(&mut self, number: u64) {
        let Some(transaction) = self.transactions.get(&number) else { return };
        let (needs_room, whole) = (transaction.program.needs_room(), transaction.whole.clone());
        let has_room = !needs_room || self.make_room();
        let mut obstacle = None;
        match whole {
            None => self.claims.hold(self.own_keys_of(number)),
            Some(whole) => {
                self.expire_all();
                obstacle = self.hold_all_for(&whole);
            }
        }
        if let Some(transaction) = self.transactions.get_mut(&number) {
            transaction.made += 1;
            transaction.has_room &= has_room;
            transaction.obstacle = transaction.obstacle.take().or(obstacle);
        }
        self.next_stop(number);
    }

    /// Lends keys to a transaction of another actor.
    pub(super) fn lend(
        &mut self,
        to: ActorId,
        transaction: u64,
        keys: Vec<Box<[u8]>>,
        needs_room: bool,
        whole: Option<&Inquiry>,
    ) {
        if whole.is_some() {
            self.expire_all();
        } else {
            self.claims.hold(keys.iter().cloned());
        }
        let has_room = !needs_room || self.make_room();
        let loans = keys.into_iter().map(|key| self.loan(key)).collect();
        let rest = whole.map(|Inquiry { whole, room }| {
            let obstacle = self.hold_all_for(whole);
            self.put_gossip_off();
            LentRest { parts: self.parts_of(whole, *room), latest: self.keys.latest_version(), obstacle }
        });
        self.send(to, Message::Lent { transaction, loans, has_room, rest });
    }

    /// Says to a transaction of another actor that it gets no keys, and why.
    pub(super) fn lend_nothing(&mut self, to: ActorId, transaction: u64, why: CommandError) {
        let rest = LentRest { parts: Vec::new(), latest: self.keys.latest_version(), obstacle: Some(why) };
        self.send(to, Message::Lent { transaction, loans: Vec::new(), has_room: true, rest: Some(rest) });
    }

    /// A transaction of this actor does not get the keys that it waits for here.
    pub(super) fn hold_nothing(&mut self, number: u64, why: CommandError) {
        let Some(transaction) = self.transactions.get_mut(&number) else { return };
        // What it does not hold it does not give back.
        if let Some((_, keys)) = transaction.stops.get_mut(transaction.made) {
            keys.clear();
        }
        transaction.made += 1;
        transaction.obstacle = transaction.obstacle.take().or(Some(why));
        self.next_stop(number);
    }

    fn loan(&mut self, key: Box<[u8]>) -> Loan {
        self.keys.translate_changes();
        let deleted = self.keys.deletion_version(&key);
        let entries = (0..DATABASES).filter_map(|database| Some((database, self.keys.lend(database, &key)?))).collect();
        let mut replicas = Vec::new();
        if self.keys.has_replicas() {
            replicas.extend(
                (0..DATABASES).filter_map(|database| Some((database, self.keys.lend_replica(database, &key)?))),
            );
        }
        Loan { entries, replicas, key, deleted, made: Vec::new() }
    }

    pub(super) fn hear_lent(
        &mut self,
        from: ActorId,
        number: u64,
        loans: Vec<Loan>,
        has_room: bool,
        rest: Option<LentRest>,
    ) {
        let Some(transaction) = self.transactions.get_mut(&number) else { return };
        transaction.has_room &= has_room;
        if let Some(LentRest { parts, latest, obstacle }) = rest {
            self.keys.observe(latest);
            transaction.parts.push((from, parts));
            transaction.obstacle = transaction.obstacle.take().or(obstacle);
        }
        transaction.loans.push((from, loans));
        transaction.made += 1;
        self.next_stop(number);
    }

    fn run_transaction(&mut self, number: u64) {
        let Some(transaction) = self.transactions.remove(&number) else { return };
        let Transaction { to, mut program, loans, stops, whole, parts, obstacle, has_room, .. } = transaction;
        // What ran before is of this actor's own copies.
        self.keys.translate_changes();
        let mut borrowed = Vec::new();
        for (actor, loans) in loans {
            for mut loan in loans {
                let mut aside = Aside::default();
                if self.keys.has_replicas() {
                    aside = self.keys.put_aside(0..DATABASES, &loan.key);
                }
                let replicated: Vec<u8> = loan.replicas.iter().map(|(database, _)| *database).collect();
                for (database, replica) in loan.replicas.drain(..) {
                    self.keys.borrow_replica(database, &loan.key, replica);
                }
                for (database, entry) in loan.entries.drain(..) {
                    self.keys.adopt(database, entry);
                }
                let deleted_here = self.keys.deletion_version(&loan.key);
                borrowed.push(Borrowed { from: actor, loan, deleted_here, replicated, aside, made: Vec::new() });
            }
        }
        let mut session = match to {
            Destination::Session(id, _) => self.sessions.take(id),
            _ => None,
        };
        self.held = whole.is_some().then(|| Held::new(parts));
        if let Some(session) = &mut session {
            // A copy here may begin to answer before it hears of what is done now.
            for Borrowed { loan, replicated, .. } in &borrowed {
                if replicated.contains(&session.database) {
                    session.note_visit(KeyHash::of(&loan.key), self.keys.asked());
                }
            }
        }
        // A waiter that is gone takes nothing.
        let is_abandoned = matches!(to, Destination::Waiter(number) if !self.waiters.has(number));
        if let Destination::Waiter(number) = to
            && let Some(narrowed) = self.attempt_at_first_called(number)
        {
            program = narrowed;
        }
        self.keys.has_borrowed = !borrowed.is_empty();
        let arrived_before = self.keys.ready.len();
        let mut tape = Tape::new();
        let mut absent: Vec<&Loan> = borrowed.iter().map(|borrowed| &borrowed.loan).collect();
        absent.sort_by(|a, b| a.key.cmp(&b.key));
        let is_complete = self.has_all_named(&mut program);
        let mut answer = Answer::There;
        if is_abandoned || !is_complete {
            // Nothing runs, and everything is given back.
        } else if let Err(refusal) = obstacle.map_or_else(|| self.admit_program(&program, has_room), Err) {
            refuse(&program, &refusal, &mut tape);
        } else {
            self.script_has_room = has_room;
            self.note_author(self.id, to);
            let mut late = Vec::new();
            tape.write_at_most(self.reply_bytes_max, TOO_LONG, |tape| match &mut session {
                Some(session) => late = self.run_program(&program, Some(session), &absent, tape),
                // What it asked before it went away is done all the same.
                None if matches!(to, Destination::Session(..)) => {
                    let mut gone = Session::of_script(program.database, &self.users);
                    self.run_program(&program, Some(&mut gone), &absent, tape);
                    self.end_session(&mut gone);
                }
                None => late = self.run_program(&program, None, &absent, tape),
            });
            self.keys.log.set_author(None);
            if let Destination::Session(session, ticket) = to {
                answer = self.await_steps(session, ticket, &tape, &late);
            }
        }
        let changes = self.held.take().map(|held| held.changes);
        self.keys.has_borrowed = false;
        self.keys.translate_changes();
        if let Some(session) = session {
            self.sessions.put_back(session);
        }
        self.part_arrivals(arrived_before, &mut borrowed);
        let mut borrowed = borrowed.into_iter().peekable();
        let (own, others): (Vec<_>, Vec<_>) = stops.into_iter().partition(|(actor, _)| *actor == self.id);
        for (actor, _) in others {
            let mut loans = Vec::new();
            while let Some(mut returned) = borrowed.next_if(|borrowed| borrowed.from == actor) {
                loans.push(self.give_back(&mut returned, changes.as_deref().unwrap_or_default()));
            }
            self.send(actor, Message::Return { loans, changes: changes.clone() });
        }
        for (_, keys) in own {
            match &changes {
                None => self.claims.release(keys.iter().map(|key| &**key)),
                Some(changes) => self.release_whole(changes),
            }
            self.serve_ready();
            self.resume();
        }
        match to {
            _ if matches!(answer, Answer::Later) => {}
            _ if !is_complete && program.tries < TRIES_MAX => self.begin_transaction(to, program),
            _ if !is_complete => self.replies.push(to, |reply| {
                reply.error("ERR the elements kept changing while SORT looked up the keys that they name; try again");
            }),
            Destination::Waiter(number) => self.hear_outcome(number, &tape),
            to => self.replies.add(to, tape),
        }
    }

    /// Whether all keys that a program's steps name are at hand; if not, they are noted in it.
    fn has_all_named(&mut self, program: &mut Program) -> bool {
        self.keys.select(program.database);
        let named: Vec<Box<[u8]>> = program
            .steps()
            .filter_map(|(command, args)| match command.run {
                Run::Finds { named, .. } => Some(named(&self.keys, args)),
                _ => None,
            })
            .flatten()
            .collect();
        if named.is_empty() {
            return true;
        }
        let at_hand: HashSet<Box<[u8]>> = keys_of(program).into_iter().collect();
        let is_complete = named.iter().all(|key| at_hand.contains(key));
        if !is_complete {
            program.found = named;
            program.tries += 1;
        }
        is_complete
    }

    /// Takes a borrowed key out, as it is now, behind what the transaction did to whole databases.
    fn give_back(&mut self, borrowed: &mut Borrowed, changes: &[Thawed]) -> Loan {
        let key = std::mem::take(&mut borrowed.loan.key);
        let databases = std::mem::take(&mut borrowed.replicated).into_iter();
        let replicas: Vec<_> =
            databases.filter_map(|database| Some((database, self.keys.unborrow_replica(database, &key)?))).collect();
        let mut loan = self.loan(key);
        let was_emptied = |number| changes.iter().any(|change| change.empties(number));
        self.keys.put_back(std::mem::take(&mut borrowed.aside), was_emptied);
        loan.replicas = replicas;
        loan.made = std::mem::take(&mut borrowed.made);
        if loan.deleted == borrowed.deleted_here {
            loan.deleted = Hlc::ZERO; // nothing was deleted, so nothing is to be told
        }
        loan
    }

    /// Notes with the keys that were borrowed which of them the transaction made, after how many that were made before it.
    fn part_arrivals(&mut self, before: usize, borrowed: &mut [Borrowed]) {
        let mut arrivals = self.keys.ready.split_off(before);
        if arrivals.len() == 1 {
            arrivals[0].place = None;
        }
        for arrival in arrivals {
            match borrowed.iter_mut().find(|borrowed| borrowed.loan.key == arrival.key) {
                Some(borrowed) => {
                    borrowed.made.extend(arrival.place.map(|place| (arrival.database, place)));
                }
                None if self.keys.is_awaited => self.keys.ready.push(arrival),
                None => {}
            }
        }
    }

    /// Takes keys back that were lent.
    pub(super) fn take_back(&mut self, loans: Vec<Loan>, changes: Option<Vec<Thawed>>) {
        changes.iter().flatten().for_each(|change| self.hear_change(*change));
        let mut arrivals = Vec::new();
        for Loan { key, entries, replicas, deleted, made } in loans {
            self.keys.note_deleted_elsewhere(&key, deleted);
            for (database, entry) in entries {
                if self.keys.is_awaited {
                    let place = made.iter().find(|(of, _)| *of == database).map(|(_, place)| *place);
                    arrivals.push(Arrival { database, key: key.clone(), place });
                }
                self.keys.take_back(database, entry);
            }
            for (database, replica) in replicas {
                self.keys.take_back_replica(database, &key, replica);
            }
            self.claims.release([&*key]);
        }
        arrivals.sort_by_key(|arrival| arrival.place);
        self.keys.ready.extend(arrivals);
        if let Some(changes) = changes {
            self.release_whole(&changes);
        }
        // Who is called hears of it before it gets the keys to look at them.
        self.serve_ready();
        self.resume();
    }

    /// Runs a program if there is room for what its steps may need; all its keys are this actor's.
    pub(super) fn run_own_program(
        &mut self,
        program: &Program,
        session: Option<&mut Session>,
        reply: &mut dyn Reply,
    ) -> Vec<LateStep> {
        let has_room = !program.needs_room() || self.make_room();
        if let Err(refusal) = self.admit_program(program, has_room) {
            refuse(program, &refusal, reply);
            return Vec::new();
        }
        self.script_has_room = has_room;
        self.run_program(program, session, &[], reply)
    }

    /// Whether there is memory and space in the log for all of a program.
    pub(super) fn admit_program(&mut self, program: &Program, has_room: bool) -> Outcome {
        if program.is_refused(has_room) {
            return Err(out_of_memory());
        }
        program.steps().try_fold(0, |before, (command, args)| self.ask_for_log(command, args, before)).map(|_| ())
    }

    /// Runs a program whose keys are all here; `borrowed`, in the order of the keys, tells the versions of
    /// those that are not there. Says which steps' replies come later.
    pub(super) fn run_program(
        &mut self,
        program: &Program,
        mut session: Option<&mut Session>,
        borrowed: &[&Loan],
        reply: &mut dyn Reply,
    ) -> Vec<LateStep> {
        let mut late = Vec::new();
        if self.has_changed(program, borrowed) {
            reply.null_array();
            return late;
        }
        if program.notes_versions {
            if let Some(session) = session {
                self.note_versions(program, session, borrowed);
            }
            reply.ok();
            return late;
        }
        if program.replies_with_list {
            reply.array(program.step_count());
        }
        let mut database = program.database;
        let user_before = std::mem::replace(&mut self.script_user, program.user.clone());
        self.runs_steps = true;
        for (step, (command, args)) in program.steps().enumerate() {
            // One request was noted when it came.
            if program.replies_with_list {
                self.calls.note(permission_for(command, args));
            }
            let run = match command.run {
                Run::Session(run) => Some(run),
                _ if is_of_memory(command, args) => Some(commands::memory::of_all as _),
                _ => None,
            };
            match (run, &mut session) {
                (Some(run), Some(session)) => {
                    session.database = database;
                    match run(self, session, args, reply) {
                        Ok(Progress::Answered) => {}
                        Ok(Progress::Closing) => self.closing.push(session.id),
                        Ok(Progress::Held) => {
                            reply.error("ERR this command cannot wait inside of a transaction");
                        }
                        Ok(Progress::Later(ticket) | Progress::LaterAlone(ticket)) => {
                            reply.null();
                            late.push(LateStep { step, ticket, is_last: false });
                        }
                        Ok(Progress::LaterClosing(ticket)) => {
                            reply.null();
                            late.push(LateStep { step, ticket, is_last: true });
                        }
                        Err(error) => {
                            self.calls.note_failed(command, args, &error);
                            error.answer(reply);
                        }
                    }
                    database = session.database;
                }
                _ if matches!(command.run, Run::Everywhere(..) | Run::Scan(_)) => {
                    self.answer_whole(database, command, args, reply);
                }
                _ => self.run_with_room(database, command, args, reply),
            }
        }
        self.runs_steps = false;
        self.script_user = user_before;
        late
    }

    fn has_changed(&mut self, program: &Program, borrowed: &[&Loan]) -> bool {
        let watched = program.watched.iter();
        watched.into_iter().any(|watched| self.version_of(watched.database, &watched.key, borrowed) != watched.version)
    }

    /// What WATCH does, with all keys here.
    pub(crate) fn note_versions(&mut self, program: &Program, session: &mut Session, borrowed: &[&Loan]) {
        let watched: HashSet<Box<[u8]>> = session
            .watched
            .iter()
            .filter(|watched| watched.database == program.database)
            .map(|watched| watched.key.clone())
            .collect();
        // The version that a key had first counts.
        for key in keys_of(program).into_iter().filter(|key| !watched.contains(key)) {
            let version = self.version_of(program.database, &key, borrowed);
            session.watched.push(Watched { database: program.database, key, version });
        }
    }

    fn version_of(&mut self, database: u8, key: &[u8], borrowed: &[&Loan]) -> Hlc {
        self.keys.select(database);
        match (self.keys.peek(key), borrowed.binary_search_by(|loan| (*loan.key).cmp(key))) {
            (Some(entry), _) => entry.version.max(self.keys.swapped_at(database)),
            (None, Ok(index)) => borrowed[index].deleted,
            (None, Err(_)) => self.keys.version(key),
        }
    }

    /// Notes the versions of keys, here or as a transaction.
    pub(crate) fn watch(
        &mut self,
        session: &mut Session,
        mut program: Box<Program>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        program.notes_versions = true;
        let keys = keys_of(&program);
        let keys = || keys.iter().map(|key| &**key);
        self.go_to_firsts(session, keys());
        if matches!(self.place(keys(), None), Place::Here) && !self.claims.blocks(keys()) {
            self.run_program(&program, Some(session), &[], reply);
            return Ok(Progress::Answered);
        }
        let ticket = session.ticket();
        self.begin_transaction(Destination::Session(session.id, ticket), program);
        Ok(Progress::LaterAlone(ticket))
    }

    /// What became of requests that have run at once: one of them may have ended the session, and nothing runs behind them then.
    fn end_of(&mut self, session: &Session) -> Progress {
        match self.closing.pop_if(|last| *last == session.id) {
            Some(_) => Progress::Closing,
            None => Progress::Answered,
        }
    }

    /// Runs what MULTI has queued, or a script for somebody who may not do everything: here, at the one actor that has all the keys, or as a transaction.
    pub(crate) fn execute(
        &mut self,
        session: &mut Session,
        mut program: Box<Program>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        if self.has_keys_elsewhere() {
            return self.ask_for_program(session, 0, About::default(), &program);
        }
        if self.is_spread() && self.goes_by_lanes(session) {
            let keys = keys_of(&program);
            let span = self.span(|| keys.iter().map(|key| &**key))?;
            if matches!(span, Span::Several) {
                return self.cross(session, &program);
            }
            if let Span::Beyond { lane, about } = span {
                // A key that is watched was here, and is on its way back at most.
                return match program.watched.is_empty() {
                    true => {
                        let program = self.with_scripts(&program)?;
                        self.ask_for_program(session, lane, about, &program)
                    }
                    false => Err(CommandError::text("TRYAGAIN nothing was done: a watched key is on its way")),
                };
            }
        }
        if program.steps().any(|(command, _)| command.flags.has(Flags::WRITE)) {
            self.check_log_space()?;
        }
        let has_script = program.steps().any(|(command, _)| matches!(command.run, Run::Script(_)));
        program.user = (has_script && session.access != Access::Full).then(|| ProgramUser {
            user: Arc::clone(&session.user),
            client: commands::clients::line(self, session).into(),
        });
        let keys = keys_of(&program);
        self.go_to_firsts(session, keys.iter().map(|key| &**key));
        let place = self.place(keys.iter().map(|key| &**key), None);
        let needs_session = program
            .steps()
            .any(|(command, args)| matches!(command.run, Run::Session(_)) || is_of_memory(command, args));
        let is_whole = self.routes.actors() > 1 && Whole::of(&program).is_some();
        match place {
            _ if is_whole => {
                let ticket = session.ticket();
                self.begin_transaction(Destination::Session(session.id, ticket), program);
                Ok(Progress::LaterAlone(ticket))
            }
            Place::Here
                if needs_session && self.routes.actors() > 1 && !self.claims.blocks(keys.iter().map(|key| &**key)) =>
            {
                let (mut tape, mut late) = (Tape::new(), Vec::new());
                tape.write_at_most(self.reply_bytes_max, TOO_LONG, |tape| {
                    late = self.run_own_program(&program, Some(session), tape);
                });
                let ticket = session.ticket();
                match self.await_steps(session.id, ticket, &tape, &late) {
                    Answer::Later => Ok(Progress::LaterAlone(ticket)),
                    Answer::There => {
                        tape.play(reply);
                        Ok(self.end_of(session))
                    }
                }
            }
            Place::Here if !self.claims.blocks(keys.iter().map(|key| &**key)) => {
                self.run_own_program(&program, Some(session), reply);
                Ok(self.end_of(session))
            }
            Place::At(actor) if !needs_session => {
                let ticket = session.ticket();
                self.send(actor, Message::Program { to: Destination::Session(session.id, ticket), program });
                Ok(Progress::LaterAlone(ticket))
            }
            _ => {
                let ticket = session.ticket();
                self.begin_transaction(Destination::Session(session.id, ticket), program);
                Ok(Progress::LaterAlone(ticket))
            }
        }
    }
}

/// Answers a program that finds no room.
pub(super) fn refuse(program: &Program, refusal: &CommandError, reply: &mut dyn Reply) {
    if program.replies_with_list {
        reply.error(&format!("EXECABORT Transaction discarded because of: {refusal}"));
    } else {
        refusal.answer(reply);
    }
}

#[cfg(test)]
mod tests {
    use savanna_lattice::UnixMillis;

    use super::*;
    use crate::config::Config;
    use crate::placement::Routes;
    use crate::request::OwnedArgs;
    use crate::session::SessionId;

    const NOW: u64 = 1_800_000_000_000;

    fn ask(actor: &mut Actor, session: SessionId, words: &[&[u8]]) -> String {
        let mut tape = Tape::new();
        actor.request(session, OwnedArgs::of_words(words).args(), &mut tape);
        tape.to_string()
    }

    /// Brings all messages where they belong.
    fn deliver_all(actors: &mut [Actor]) {
        let ids: Vec<ActorId> = actors[0].actors().collect();
        for _ in 0..10 {
            for (from, to) in ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to))) {
                for message in actors[from.index()].take_outbox(to) {
                    actors[to.index()].deliver(from, message);
                }
            }
        }
    }

    #[test]
    fn fields_whose_time_comes_while_a_transaction_borrows_their_hash_are_gone_for_it() {
        let routes = Routes::over(2);
        let mut actors: Vec<Actor> =
            routes.all().map(|id| Actor::new(id, routes.clone(), Config::default(), u64::from(id.0))).collect();
        Actor::introduce(&mut actors);
        let of = |actor: u16| {
            let names = (0..).map(|number: u32| number.to_string().into_bytes());
            let is_there = |name: &Vec<u8>| routes.actor_of(group_of(name)) == ActorId(actor);
            names.into_iter().find(is_there).expect("a name")
        };
        let (here, hash) = (of(0), of(1));
        for actor in &mut actors {
            actor.tick(UnixMillis(NOW));
        }
        let [one, other] = [0, 1].map(|actor: usize| actors[actor].open_session(String::new(), String::new()));
        ask(&mut actors[1], other, &[b"HSET", &hash, b"user", b"amina"]);
        ask(&mut actors[1], other, &[b"HSETEX", &hash, b"PX", b"10", b"FIELDS", b"1", b"token", b"81f2"]);
        for words in [
            &[&b"MULTI"[..]][..],
            &[b"SET", &here, b"1"],
            &[b"HPERSIST", &hash, b"FIELDS", b"1", b"token"],
            &[b"HKEYS", &hash],
            &[b"EXEC"],
        ] {
            ask(&mut actors[0], one, words);
        }
        // It waits for another thread. The hash comes in the midst of a turn.
        actors[0].tick(UnixMillis(NOW + 20));
        deliver_all(&mut actors);
        let mut told = Tape::new();
        actors[0].take_own_replies().iter().for_each(|(_, part)| part.play(&mut told));
        assert_eq!(told.to_string(), "[3] OK [1] -2 [1] \"user\"");
        // Where the clock is behind, it is gone, too.
        assert_eq!(ask(&mut actors[1], other, &[b"HLEN", &hash]), "1");
    }

    #[test]
    fn the_replies_to_the_steps_of_a_transaction_are_together_no_longer_than_one() {
        let routes = Routes::over(2);
        let mut actors: Vec<Actor> =
            routes.all().map(|id| Actor::new(id, routes.clone(), Config::default(), u64::from(id.0))).collect();
        Actor::introduce(&mut actors);
        actors[0].reply_bytes_max = 1000;
        let client = actors[0].open_session(String::new(), String::new());
        let mut exec = |steps: &[&[&[u8]]]| {
            ask(&mut actors[0], client, &[b"MULTI"]);
            steps.iter().for_each(|words| drop(ask(&mut actors[0], client, words)));
            let at_once = ask(&mut actors[0], client, &[b"EXEC"]);
            deliver_all(&mut actors);
            let mut told = Tape::new();
            actors[0].take_own_replies().iter().for_each(|(_, part)| part.play(&mut told));
            at_once + &told.to_string()
        };
        let long = [b'x'; 600];
        assert_eq!(exec(&[&[b"MSET", b"a", &long, b"b", &long, b"c", b"1"]]), "[1] OK");
        let too_long = format!("!{TOO_LONG}");
        assert_eq!(exec(&[&[b"INCR", b"c"], &[b"GET", b"a"], &[b"GET", b"b"]]), too_long);
        assert_eq!(exec(&[&[b"GET", b"c"], &[b"DBSIZE"]]), "[2] \"2\" 3");
        assert_eq!(exec(&[&[b"DBSIZE"], &[b"GET", b"a"], &[b"GET", b"b"]]), too_long);
        // Also what comes later, and where it comes to.
        let list: &[&[u8]] = &[b"CLIENT", b"LIST"];
        let lists = exec(&[list; 8]);
        assert!(lists.starts_with("[8]") && lists.ends_with(&too_long) && lists.len() < 2000, "{lists}");
        // The list comes all the same, to a place that nobody waits at.
        assert!(exec(&[list, &[b"GET", b"a"], &[b"GET", b"b"]]).starts_with(&too_long));
        assert_eq!(exec(&[&[b"DBSIZE"]]), "[1] 3");
    }
}
