//! Where the keys of a request are, and asking the actors that have them.

use super::message::{Destination, Message, Notice, Requests};
use super::{Actor, FIRST, Progress};
use crate::command::{Class, Combine, Command, Run};
use crate::error::CommandError;
use crate::placement::{ActorId, KeyHash, group_of};
use crate::reply::{Reply, Tape};
use crate::request::{Args, OwnedArgs};
use crate::session::Session;

/// Where the keys of a request are.
pub(super) enum Place {
    Here,
    At(ActorId),
    Several,
}

/// A copy of a request's key, for this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// It answers.
    Fit,
    /// It would, if it had heard of all that the session saw at the first replica.
    Behind,
    /// There is none, or it does not answer such a request.
    Unfit,
}

impl Actor {
    /// Where keys are. With a database, replicas in it that are here count.
    pub(super) fn place<'a>(&self, keys: impl Iterator<Item = &'a [u8]>, replicas_of: Option<u8>) -> Place {
        let mut place = None;
        for key in keys {
            let mut actor = self.routes.actor_of(self.keys.group_of(key));
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

    /// Whether a copy here may answer a request. Not one that tests and returns, nor what belongs to a transaction; and who went
    /// to a key's first replica stays with it until the copy here has heard of that.
    pub(super) fn look_for_copy(&mut self, session: &mut Session, command: &'static Command, args: Args<'_>) -> Copy {
        let keys = || command.keys.of(args).into_iter().flatten();
        let Some(key) = keys().next() else { return Copy::Unfit };
        let is_one = keys().nth(1).is_none();
        // Counting is seen where it is done; what is to be deleted is what was counted.
        let ends_counting = matches!(command.name, "del" | "unlink") && self.keys.is_counted(session.database, key);
        let may_answer = is_one
            && session.watched.is_empty()
            && command.class_of(args) != Class::Primary
            && !ends_counting
            && self.keys.serves(session.database, key);
        let is_behind = || match session.visit_of_first(KeyHash::of(key)) {
            Some(visit) => !self.keys.has_caught_up(session.database, key, visit),
            None => false,
        };
        let copy = match may_answer {
            true if !is_behind() => return Copy::Fit,
            true => Copy::Behind,
            false => Copy::Unfit,
        };
        self.go_to_firsts(session, keys());
        copy
    }

    /// Behind a request to a key's first replica, asks that when the copy here has heard all that it answers with. What comes behind it in the session
    /// waits for the reply, so that nothing more is on its way there then.
    pub(super) fn catch_up(
        &mut self,
        session: &Session,
        command: &'static Command,
        args: Args<'_>,
        progress: Progress,
    ) -> Progress {
        let Some(key) = command.keys.of(args).into_iter().flatten().next() else { return progress };
        match (self.keys.ask_first_replica(session.database, key), progress) {
            (Some((vector, asked)), Progress::Later(ticket)) => {
                let first = self.routes.actor_of(group_of(key));
                let (database, key) = (session.database, key.into());
                self.send(first, Message::Notice(Notice::Join { database, key, vector, asked }));
                Progress::LaterAlone(ticket)
            }
            _ => progress,
        }
    }

    /// Says that a session goes to the first replicas of keys. What was changed here comes there before.
    pub(super) fn go_to_firsts<'a>(&mut self, session: &mut Session, keys: impl Iterator<Item = &'a [u8]>) {
        for key in keys {
            if self.keys.has_copy(session.database, key) {
                session.note_visit(KeyHash::of(key), self.keys.asked());
            }
            // Also what a copy that is given up has not told yet.
            if !self.keys.is_first_replica(key) && self.keys.has_unsent_of(session.database, key) {
                self.tell();
            }
        }
    }

    pub(super) fn send_request(
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
    pub(super) fn requests_to(&mut self, actor: ActorId) -> &mut Requests {
        let outbox = &mut self.outboxes[actor.index()];
        if !matches!(outbox.last(), Some(Message::Requests(requests)) if !requests.is_full()) {
            outbox.push(Message::Requests(Requests::default()));
        }
        match outbox.last_mut() {
            Some(Message::Requests(requests)) => requests,
            _ => unreachable!("it was put there"),
        }
    }

    /// Whether what all actors answer is put together, also if there is one only.
    pub(super) fn needs_parts(&self, combine: Combine) -> bool {
        self.routes.actors() > 1
            || matches!(combine, Combine::HotKeys | Combine::Histograms | Combine::MemoryStats | Combine::MemoryAdvice)
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
        if !self.needs_parts(combine) {
            self.keys.select(session.database);
            run(self, args, reply)?;
            return Ok(Progress::Answered);
        }
        if combine == Combine::First && self.runs_steps {
            // What comes behind it in the transaction finds it done here. All are told in one order, this one, too.
            self.keys.select(session.database);
            run(self, args, &mut Tape::new())?;
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
        let index = client.rem_euclid(i64::from(self.routes.actors()));
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
}
