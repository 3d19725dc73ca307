//! What is answered while a script runs for long.
//!
//! A script has its actor for itself. When it has run for a while, it lets the actor look up now and then: who asks whether
//! the server is there, how it does, or wants the script to end is answered; who wants anything else hears that the actor is
//! busy. Nothing that is answered here depends on what the script has changed.

use std::fmt::Debug;

use super::message::{Destination, Message, Replies, Requests};
use super::{Actor, Progress, unknown_command};
use crate::access::Access;
use crate::command::{Combine, Command, Flags, Run};
use crate::error::CommandError;
use crate::placement::ActorId;
use crate::reply::{Reply, Tape};
use crate::request::Args;
use crate::session::{Session, SessionId};

/// Serves clients while a script runs: with sockets, or in a simulation.
pub trait Attendant: Send + Debug {
    /// Gives the actor what has come, by [`Actor::request_meanwhile`] and [`Actor::deliver_meanwhile`], and sends what it says.
    fn attend(&mut self, actor: &mut Actor);
}

impl Actor {
    /// Has somebody serve clients while scripts run.
    pub fn employ(&mut self, attendant: Box<dyn Attendant>) {
        self.attendant = Some(attendant);
    }

    /// Puts aside what is to be sent, before a script runs.
    pub(crate) fn begin_script(&mut self) {
        self.had_changes = self.has_changes();
        if self.has_messages() {
            let none = self.outboxes.iter().map(|_| Vec::new()).collect();
            self.said_before = std::mem::replace(&mut self.outboxes, none);
        }
    }

    /// Puts what was put aside before what the script has said.
    pub(crate) fn end_script(&mut self) {
        for (outbox, before) in self.outboxes.iter_mut().zip(self.said_before.drain(..)) {
            let said = std::mem::replace(outbox, before);
            outbox.extend(said);
        }
    }

    /// Takes what is to be sent to an actor from before the script that runs. It may leave if there were no
    /// [changes](Actor::had_changes) then that were not appended.
    #[must_use]
    pub fn take_said_before(&mut self, to: ActorId) -> Vec<Message> {
        self.said_before.get_mut(to.index()).map(std::mem::take).unwrap_or_default()
    }

    /// Lets clients be served before the script goes on; `is_busy` says whether it has run for as long as others wait.
    pub(crate) fn look_up(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
        let Some(mut attendant) = self.attendant.take() else { return };
        // What the script has said so far is not to be told before its changes are in the log.
        let outboxes = self.routes.all().map(|_| Vec::new()).collect();
        let outboxes = std::mem::replace(&mut self.outboxes, outboxes);
        let replies = std::mem::take(&mut self.replies);
        let database = self.keys.selected();
        attendant.attend(self);
        self.keys.select(database);
        self.attendant = Some(attendant);
        (self.outboxes, self.replies) = (outboxes, replies);
    }

    /// Takes a request of a session while a script runs.
    pub fn request_meanwhile(&mut self, id: SessionId, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        if args.is_empty() {
            return Progress::Answered;
        }
        let Some(mut session) = self.sessions.take(id) else { return Progress::Closing };
        self.counters.requests += 1;
        let outcome = match Command::find(&args[0]) {
            None => Err(unknown_command(args)),
            Some(command) if !command.takes(args.len()) => Err(CommandError::Arity(command.name.to_owned())),
            Some(command) => self.admit_meanwhile(&mut session, command, args, reply),
        };
        let progress = outcome.unwrap_or_else(|error| session.refuse(&error, reply));
        self.sessions.put_back(session);
        progress
    }

    fn admit_meanwhile(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        if session.access != Access::Full {
            self.check_access(session, command, args)?;
        }
        session.check_subscribed(command)?;
        if command.name == "exec" && session.queued.take().is_some() {
            session.watched.clear();
            return Err(CommandError::from(format!("EXECABORT Transaction discarded because of: {}", busy())));
        }
        let is_queued = session.queued.is_some() && !command.flags.has(Flags::UNQUEUED);
        if is_queued || !self.answers_meanwhile(command, args) {
            return Err(busy());
        }
        match command.run {
            Run::Session(run) => run(self, session, args, reply),
            Run::Everywhere(run, _) => {
                let mut own = Tape::new();
                self.keys.select(session.database);
                run(self, args, &mut own)?;
                self.ask_others(session, command, args, own, reply)
            }
            _ => Err(busy()),
        }
    }

    /// Takes a message of another actor while a script runs. Gives back what is to be delivered when it has ended.
    #[must_use]
    pub fn deliver_meanwhile(&mut self, from: ActorId, message: Message) -> Option<Message> {
        match message {
            Message::Requests(requests) => self.answer_meanwhile(from, &requests).map(Message::Requests),
            Message::Replies(replies) if replies.has_parts() => self.hear_meanwhile(&replies).map(Message::Replies),
            other => Some(other),
        }
    }

    fn answer_meanwhile(&mut self, from: ActorId, requests: &Requests) -> Option<Requests> {
        let mut later = Requests::default();
        let mut replies = self.take_replies(from);
        for (to, database, command, args) in requests.iter() {
            match (command.run, to) {
                (Run::Everywhere(run, Combine::Info), _) => {
                    self.keys.select(database);
                    replies.push(to, |reply| {
                        if let Err(error) = run(self, args, reply) {
                            error.answer(reply);
                        }
                    });
                }
                (Run::Everywhere(..) | Run::Session(_), _)
                | (_, Destination::Gather(_) | Destination::Waiter(_) | Destination::Group(_)) => {
                    later.push(to, database, command, args);
                }
                _ => replies.push(to, |reply| busy().answer(reply)),
            }
        }
        self.put_replies(from, replies);
        (!later.is_empty()).then_some(later)
    }

    fn hear_meanwhile(&mut self, replies: &Replies) -> Option<Replies> {
        let mut later = Replies::default();
        for (to, part) in replies.iter() {
            match to {
                Destination::Gather(number) if self.gathers_figures(number) => self.hear_part(number, &part),
                to => later.push(to, |reply| part.play(reply)),
            }
        }
        (!later.is_empty()).then_some(later)
    }

    /// Whether a request is answered although a script runs.
    fn answers_meanwhile(&self, command: &Command, args: Args<'_>) -> bool {
        let subcommand = || args.from(1).next().unwrap_or_default().to_ascii_lowercase();
        match command.name {
            "info" | "auth" | "hello" | "quit" | "multi" | "discard" | "unwatch" => true,
            // Whoever waits is answered as if the script were over, until the time comes to say that it is not.
            "ping" | "echo" | "select" => !self.is_busy,
            "client" => matches!(subcommand().as_slice(), b"id" | b"getname" | b"setname" | b"setinfo"),
            "script" | "function" => subcommand() == b"kill",
            _ => false,
        }
    }
}

fn busy() -> CommandError {
    CommandError::text(
        "BUSY Savanna is busy running a script. It ends after script-time-limit; SCRIPT KILL ends one that has changed nothing.",
    )
}
