//! Transactions with steps about all keys: `DBSIZE`, `KEYS`, `SCAN`, `FLUSHDB`, `SWAPDB`, ..
//!
//! Such a transaction stops at every actor, and there it holds all keys, not only those that it names. With the keys that
//! it borrows it gets an actor's parts of what it asks of all keys: what is not borrowed cannot change meanwhile, so these
//! parts are the same when they are looked at as when they were made, but for databases that the transaction empties or
//! swaps before. That is known when it begins, so the parts are made as if it had happened. What happens to whole
//! databases is in the log with what else the transaction changes, for all keys; other actors do it when they get their keys
//! back:
//!
//! ```text
//!  this actor                                actor 1
//!   │ Borrow {a}, DBSIZE behind FLUSHDB ───────►│ hold all
//!   │◄────────────────────────── Lent a, [0] ───│
//!   │ run; one append                           │
//!   │ Return a, flushed ───────────────────────►│ flush, take a back, release all
//!   │ reply                                     │
//! ```

use std::sync::Arc;

use hashbrown::HashMap;

use super::databases::{DatabaseChange, Thawed};
use super::gather::combined;
use super::message::Destination;
use super::program::Program;
use super::{Actor, Progress};
use crate::command::{Command, Run};
use crate::commands::cluster::looks_at_keys;
use crate::commands::generic::{ScannedPart, combine_scanned, flush_of, parse_database, scan_from};
use crate::commands::server::swap_of;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{DATABASES, View};
use crate::placement::ActorId;
use crate::reply::{Reply, TOO_LONG, Tape, Value};
use crate::request::{Args, OwnedArgs};
use crate::session::{SessionId, Ticket};

/// What a transaction asks of all keys, and what it does to whole databases, in its order.
#[derive(Debug)]
pub(super) struct Whole(Vec<WholeStep>);

#[derive(Debug)]
enum WholeStep {
    Ask { database: u8, command: &'static Command, args: OwnedArgs },
    Change(DatabaseChange),
}

/// What a transaction asks of all keys of an actor.
#[derive(Clone, Debug)]
pub struct Inquiry {
    pub(super) whole: Arc<Whole>,
    /// How many bytes the answers may have, so that those of all actors have no more than one reply.
    pub(super) room: usize,
}

impl Whole {
    /// That of a program, if it has any.
    pub(super) fn of(program: &Program) -> Option<Arc<Self>> {
        let mut database = program.database;
        let mut steps = Vec::new();
        for (command, args) in program.steps() {
            match (command.run, command.name) {
                (Run::Everywhere(..) | Run::Scan(_), _) => {
                    steps.push(WholeStep::Ask { database, command, args: OwnedArgs::of(args) });
                }
                (_, "select") => database = parse_database(&args[1]).unwrap_or(database),
                (_, "flushdb") => steps.extend(flush_of(args, Some(database)).map(WholeStep::Change)),
                (_, "flushall") => steps.extend(flush_of(args, None).map(WholeStep::Change)),
                (_, "swapdb") => steps.extend(swap_of(args).map(WholeStep::Change)),
                _ => {}
            }
        }
        (!steps.is_empty()).then(|| Arc::new(Self(steps)))
    }

    fn changes(&self) -> impl Iterator<Item = DatabaseChange> {
        self.0.iter().filter_map(|step| if let WholeStep::Change(change) = step { Some(*change) } else { None })
    }
}

/// What a transaction has while it runs that holds all keys.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// What other actors said to each of its questions.
    parts: Vec<(ActorId, Vec<Tape>)>,
    /// How many questions were put together.
    asked: usize,
    /// What others are to do to whole databases.
    pub(super) changes: Vec<Thawed>,
}

impl Held {
    pub(super) fn new(parts: Vec<(ActorId, Vec<Tape>)>) -> Self {
        Self { parts, ..Self::default() }
    }
}

/// A transaction that has run, while other actors do what it has asked them to.
#[derive(Debug)]
pub(super) struct Execution {
    to: Ticket,
    /// The replies of its steps, as far as they came.
    steps: Vec<Tape>,
    /// How many bytes the others may have.
    room: usize,
    missing: HashMap<Ticket, usize>,
    /// Whether the session ends with it.
    is_last: bool,
}

/// When the reply to a transaction is there that has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    There,
    /// When other actors have done their part.
    Later,
}

/// A step whose reply comes from other actors.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateStep {
    pub(super) step: usize,
    pub(super) ticket: Ticket,
    /// Whether the session ends with it.
    pub(super) is_last: bool,
}

impl Actor {
    /// Holds all keys for a transaction. Says why it cannot do what it wants to, as far as keys here go.
    pub(super) fn hold_all_for(&mut self, whole: &Whole) -> Option<CommandError> {
        let obstacle = whole.changes().find_map(|change| self.may_change_databases(change).err());
        self.claims.hold_all();
        obstacle
    }

    /// Gives all keys up that a transaction held, which has done this to whole databases.
    pub(super) fn release_whole(&mut self, changes: &[Thawed]) {
        self.release_all();
        changes.iter().for_each(|change| self.look_after(*change));
    }

    /// What this actor's keys say to what a transaction asks of all, with room for so many bytes.
    pub(super) fn parts_of(&mut self, whole: &Whole, mut room: usize) -> Vec<Tape> {
        let mut view = View::default();
        let mut parts = Vec::new();
        for step in &whole.0 {
            match step {
                WholeStep::Ask { database, command, args } => {
                    let tables = self.keys.rearrange(&view);
                    let mut tape = Tape::new();
                    tape.write_at_most(room, TOO_LONG, |reply| match room {
                        0 => reply.error(TOO_LONG),
                        _ => self.part_here(*database, command, args.args(), reply),
                    });
                    self.keys.arrange_back(&view, tables);
                    // What is asked behind that which is too long would only be made to be thrown away.
                    let is_too_long = tape.first() == Some(Value::Error(TOO_LONG));
                    room = if is_too_long { 0 } else { room - tape.position() };
                    parts.push(tape);
                }
                WholeStep::Change(DatabaseChange::Flush(None)) => view = View([None; DATABASES as usize]),
                WholeStep::Change(DatabaseChange::Flush(Some(number))) => view.0[usize::from(*number)] = None,
                WholeStep::Change(DatabaseChange::Swap(one, other)) => {
                    view.0.swap(usize::from(*one), usize::from(*other));
                }
                WholeStep::Change(DatabaseChange::Save(_)) => {}
            }
        }
        parts
    }

    /// This actor's part of what all answer. Of a walk it has one only if that comes here.
    fn part_here(&mut self, database: u8, command: &'static Command, args: Args<'_>, reply: &mut dyn Reply) {
        if !matches!(command.run, Run::Scan(_)) {
            return self.run_with_room(database, command, args, reply);
        }
        match scan_from(args, &self.routes, self.id) {
            Err(error) => error.answer(reply),
            Ok(None) => {}
            Ok(Some(own)) => self.run_with_room(database, command, own.args(), reply),
        }
    }

    /// Answers a step about all keys of a transaction that holds them.
    pub(super) fn answer_whole(
        &mut self,
        database: u8,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) {
        let Some(held) = &mut self.held else { return self.run_with_room(database, command, args, reply) };
        let place = held.asked;
        held.asked += 1;
        let mut parts: Vec<(ActorId, Tape)> = held
            .parts
            .iter_mut()
            .filter_map(|(actor, parts)| Some((*actor, parts.get_mut(place).map(std::mem::take)?)))
            .collect();
        let mut own = Tape::new();
        own.write_reply(|reply| self.part_here(database, command, args, reply));
        parts.push((self.id, own));
        parts.sort_by_key(|(actor, _)| *actor);
        match command.run {
            Run::Everywhere(_, combine) => {
                let parts: Vec<Tape> = parts.into_iter().map(|(_, part)| part).collect();
                combined(combine, &parts, &mut self.keys.random, reply);
            }
            _ => {
                self.keys.select(database);
                let parts = parts.iter().map(|(actor, part)| ScannedPart { actor: *actor, part });
                combine_scanned(&self.keys, self.id, args, &parts.collect::<Vec<_>>(), reply);
            }
        }
    }

    /// Changes whole databases in the midst of a transaction that holds all keys.
    pub(super) fn change_held(
        &mut self,
        change: DatabaseChange,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        let changed = match change {
            DatabaseChange::Swap(one, other) => Thawed::Swapped(one, other, self.keys.swap(one, other)),
            DatabaseChange::Flush(database) => Thawed::Flushed(database, self.flush(database)),
            DatabaseChange::Save(_) => return Err(CommandError::Syntax),
        };
        self.held.iter_mut().for_each(|held| held.changes.push(changed));
        reply.ok();
        Ok(Progress::Answered)
    }

    /// Waits for the replies of steps of a transaction that has run, if some come from other actors.
    pub(super) fn await_steps(&mut self, session: SessionId, to: Ticket, tape: &Tape, late: &[LateStep]) -> Answer {
        // Where the list is too long, there is an error in its place.
        if late.is_empty() || matches!(tape.first(), Some(Value::Error(_))) {
            return Answer::There;
        }
        let is_last = late.iter().any(|late| late.is_last);
        let missing = late.iter().map(|late| (late.ticket, late.step)).collect();
        let room = self.reply_bytes_max.saturating_sub(tape.position());
        self.executions.insert(session, Execution { to, steps: tape.elements(), room, missing, is_last });
        Answer::Later
    }

    /// What has expired is not among the keys that a transaction finds. Not while clients are paused: nothing is changed then.
    pub(super) fn expire_all(&mut self) {
        if !self.is_paused() {
            self.keys.expire_due(usize::MAX);
        }
    }

    /// Puts replies of steps to their transactions, and gives the reply of one that has all.
    #[cold]
    pub(super) fn hear_steps(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        for (to, part) in replies.iter() {
            let Destination::Session(session, ticket) = to else {
                self.replies.push(to, |reply| part.play(reply));
                continue;
            };
            let step = self.executions.get_mut(&session).and_then(|execution| {
                let step = execution.missing.remove(&ticket)?;
                Some((execution.steps.get_mut(step)?, &mut execution.room))
            });
            match step {
                Some((step, room)) => {
                    step.clear();
                    step.write_at_most(*room, TOO_LONG, |step| part.play(step));
                    *room = room.saturating_sub(step.position());
                }
                None => self.replies.push(to, |reply| part.play(reply)),
            }
        }
        let complete = self.executions.extract_if(|_, execution| execution.missing.is_empty());
        for (session, Execution { to, steps, is_last, .. }) in complete {
            self.replies.push(Destination::Session(session, to), |reply| {
                reply.array(steps.len());
                steps.iter().for_each(|step| step.play(reply));
            });
            if is_last {
                self.closing.push(session);
            }
        }
    }
}

/// Whether a request is about the memory of all keys, though its command is about one.
pub(super) fn is_of_memory(command: &Command, args: Args<'_>) -> bool {
    command.name == "memory" && args.len() == 2
}

/// Whether several actors refuse a request in a transaction: it is about what is not known when it is queued, or about replies.
pub(super) fn is_refused_by_several(command: &Command, args: Args<'_>) -> Outcome {
    let is_refused = matches!(command.run, Run::Finds { .. }) && !crate::commands::sort::patterns(args).is_empty()
        || command.name == "client" && args[1].eq_ignore_ascii_case(b"reply")
        || command.name == "cluster" && looks_at_keys(args);
    if is_refused { Err(not_in_a_transaction(command)) } else { Ok(()) }
}

/// What a request is told that is no part of a transaction.
pub(super) fn not_in_a_transaction(command: &Command) -> CommandError {
    CommandError::from(format!("ERR {} is not allowed in a transaction", command.name.to_uppercase()))
}

#[cfg(test)]
mod tests {
    use savanna_lattice::Hlc;

    use super::*;
    use crate::actor::message::{LentRest, Message};
    use crate::config::Config;
    use crate::keyspace::Expiry;
    use crate::placement::Routes;

    #[test]
    fn what_an_actor_says_to_all_steps_of_a_transaction_is_no_longer_than_one_reply() {
        let mut actor = Actor::new(ActorId(1), Routes::over(2), Config::default(), 1);
        for number in 0..10 {
            actor.keys.set_string(format!("{number:050}").as_bytes(), b"x", Expiry::Keep);
        }
        let mut program = Program::new(0);
        for words in [&[&b"KEYS"[..], b"*"][..], &[b"KEYS", b"*"], &[b"KEYS", b"*"], &[b"DBSIZE"]] {
            let command = Command::find(words[0]).expect("a command");
            program.push(command, OwnedArgs::of_words(words).args());
        }
        let whole = Whole::of(&program).expect("steps about all keys");
        let parts = actor.parts_of(&whole, 1500);
        let lengths: Vec<usize> = parts.iter().map(|part| part.values().count()).collect();
        assert_eq!(lengths, [11, 11, 1, 1]);
        assert!(parts[2..].iter().all(|part| part.first() == Some(Value::Error(TOO_LONG))), "{parts:?}");
    }

    #[test]
    fn what_one_actor_has_said_leaves_the_next_the_rest_of_the_room() {
        let mut actor = Actor::new(ActorId(0), Routes::over(3), Config::default(), 1);
        actor.reply_bytes_max = 1500;
        let mut program = Program::new(0);
        let words = [&b"KEYS"[..], b"*"];
        program.push(Command::find(words[0]).expect("a command"), OwnedArgs::of_words(&words).args());
        actor.begin_transaction(Destination::Waiter(1), Box::new(program));
        let mut said = Tape::new();
        said.bulk(&[b'x'; 1000]);
        let taken = said.position();
        for (to, left) in [(1, 1500), (2, 1500 - taken)] {
            let Some(Message::Borrow { transaction, whole: Some(Inquiry { room, .. }), .. }) = actor.outboxes[to].pop()
            else {
                panic!("expected that keys are asked for")
            };
            assert_eq!(room, left);
            let rest = LentRest { parts: vec![said.clone()], latest: Hlc::ZERO, obstacle: None };
            let lent = Message::Lent { transaction, loans: Vec::new(), has_room: true, rest: Some(rest) };
            actor.deliver(ActorId(to as u16), lent);
        }
    }

    #[test]
    fn a_walk_with_a_part_that_is_an_error_is_an_error() {
        let mut actor = Actor::new(ActorId(0), Routes::over(2), Config::default(), 1);
        actor.keys.set_string(b"a", b"x", Expiry::Keep);
        let mut part = Tape::new();
        part.error(TOO_LONG);
        actor.held = Some(Held::new(vec![(ActorId(1), vec![part])]));
        let words = [&b"SCAN"[..], b"0"];
        let mut reply = Tape::new();
        let command = Command::find(words[0]).expect("a command");
        actor.answer_whole(0, command, OwnedArgs::of_words(&words).args(), &mut reply);
        assert_eq!(reply.first(), Some(Value::Error(TOO_LONG)), "{reply}");
    }
}
