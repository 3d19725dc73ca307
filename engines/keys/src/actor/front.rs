//! Sessions here, keys at another node: the asker's side of [`crate::handle`].
//!
//! What is about the connection, its user and this process is answered here. What is about keys goes to their owner in the order in which
//! it came, whoever asked. What would have to wait there, or be told to others than who asked, is refused.

use std::collections::VecDeque;
use std::sync::Arc;

use super::message::{Destination, Replies};
use super::program::Program;
use super::slots::shown_to;
use super::{Actor, Message, Progress};
use crate::access::Access;
use crate::cluster::{ClusterNode, SlotsOwner};
use crate::command::{Command, CommandNumber, Group, Run};
use crate::error::CommandError;
use crate::handle::KeysRequest;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::{Session, Ticket};

/// With more bytes than this, what comes goes in another request.
const REQUEST_BYTES: usize = 1 << 20;
/// With so many parts, too: the replies find room in a message between nodes.
const REQUEST_PARTS: usize = 10_000;
/// What has more bytes finds no room in a message between nodes.
const REQUEST_BYTES_MAX: usize = 12 << 20;
/// Bytes that a word may take beside its own.
const WORD_BYTES: usize = 5;

/// What is to be asked, with where the replies go.
#[derive(Debug, Default)]
pub struct Asked {
    /// What is to be asked.
    pub request: KeysRequest,
    /// Where the reply to each part goes.
    pub to: Vec<Destination>,
}

/// What an actor without keys asks for.
#[derive(Debug, Default)]
pub(super) struct Front {
    waiting: VecDeque<Asked>,
    /// Who has the keys, where clients of clusters reach it, if that is known.
    owner: Option<Arc<ClusterNode>>,
}

impl Front {
    /// The request that is being filled.
    fn next(&mut self, bytes: usize) -> &mut Asked {
        let is_full =
            |asked: &Asked| asked.request.byte_count() + bytes > REQUEST_BYTES || asked.request.len() >= REQUEST_PARTS;
        if self.waiting.back().is_none_or(is_full) {
            self.waiting.push_back(Asked::default());
        }
        let last = self.waiting.len() - 1;
        &mut self.waiting[last]
    }
}

impl Actor {
    /// Whether another node has the keys.
    pub(crate) const fn has_keys_elsewhere(&self) -> bool {
        self.front.is_some()
    }

    /// Hears where clients of clusters reach the owner of the keys, if it is known.
    pub fn hear_owner(&mut self, owner: Option<Arc<ClusterNode>>) {
        if let Some(front) = &mut self.front {
            front.owner = owner;
        }
    }

    /// Which node has the slots.
    pub(crate) fn slots_owner(&self) -> SlotsOwner {
        match &self.front {
            None => SlotsOwner::Myself,
            Some(front) => front.owner.clone().map_or(SlotsOwner::Nobody, SlotsOwner::Other),
        }
    }
}

/// Whether a command is about more than its connection, and its node, and cannot be sent to the owner of keys yet.
fn needs_keys_here(command: &Command) -> bool {
    matches!(command.group, Group::PubSub | Group::Scripting)
        || matches!(
            command.name,
            "watch"
                | "wait"
                | "flushdb"
                | "flushall"
                | "swapdb"
                | "bgrewriteaof"
                | "save"
                | "bgsave"
                | "lastsave"
                | "sync"
                | "psync"
        )
}

impl Actor {
    /// From now on all keys are at another node: what is about them is to be asked there ([`Actor::take_asked`]).
    pub fn face_elsewhere(&mut self) {
        self.front = Some(Box::default());
    }

    /// Takes what is to be asked next of the owner of the keys. It is to be answered before more is asked.
    pub fn take_asked(&mut self) -> Option<Asked> {
        self.front.as_mut()?.waiting.pop_front()
    }

    /// Takes what the owner of the keys answered.
    pub fn hear_answers(&mut self, replies: Replies) {
        self.deliver(self.id, Message::Replies(replies));
    }

    /// Runs a request of a session of an actor without keys.
    pub(super) fn ask_owner(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        match command.run {
            Run::Session(run) if !needs_keys_here(command) => return run(self, session, args, reply),
            Run::Session(_) => return Err(elsewhere(command)),
            Run::Script(_) if session.access != Access::Full => return Err(elsewhere(command)),
            Run::Waits(..) if command.deadline(args, self.keys.now()).is_some() => return Err(elsewhere(command)),
            // Its own figures.
            Run::Everywhere(..) if command.name == "info" => {
                return self.ask_everybody(session, shown_to(session, command), args, reply);
            }
            _ => {}
        }
        let number = CommandNumber::of(command).ok_or_else(|| elsewhere(command))?;
        let database = session.database;
        self.ask(session, byte_count(args), |request| request.push(database, number, args)).map(Progress::Later)
    }

    /// Has the owner of the keys run what MULTI has queued.
    pub(super) fn ask_for_program(
        &mut self,
        session: &mut Session,
        program: &Program,
    ) -> Result<Progress, CommandError> {
        let mut steps = Vec::with_capacity(program.step_count());
        let mut bytes = 0;
        for (command, args) in program.steps() {
            let may_go = match command.run {
                Run::Session(_) | Run::Everywhere(..) => false,
                Run::Script(_) => session.access == Access::Full,
                _ => true,
            };
            let number = CommandNumber::of(command).filter(|_| may_go).ok_or_else(|| elsewhere(command))?;
            steps.push((number, args));
            bytes += byte_count(args);
        }
        self.ask(session, bytes, |request| request.push_transaction(program.database, steps)).map(Progress::LaterAlone)
    }

    fn ask(
        &mut self,
        session: &mut Session,
        bytes: usize,
        push: impl FnOnce(&mut KeysRequest),
    ) -> Result<Ticket, CommandError> {
        if bytes > REQUEST_BYTES_MAX {
            return Err(CommandError::text("ERR the request is too long to go to another node"));
        }
        let ticket = session.ticket();
        self.counters.sent += 1;
        if let Some(front) = &mut self.front {
            let asked = front.next(bytes);
            push(&mut asked.request);
            asked.to.push(Destination::Session(session.id, ticket));
        }
        Ok(ticket)
    }
}

/// How many bytes words may take in a message between nodes.
fn byte_count(args: Args<'_>) -> usize {
    args.byte_count() + args.len() * WORD_BYTES
}

fn elsewhere(command: &Command) -> CommandError {
    CommandError::from(format!(
        "ELSEWHERE the keys are on another node, and {} cannot be used from here yet; connect to that node",
        command.name.to_uppercase()
    ))
}
