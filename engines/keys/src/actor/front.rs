//! Sessions here, keys at other nodes: the asker's side of [`crate::handle`].
//!
//! What is about the connection, its user and this process is answered here. What is about keys goes to their owner in the order in which
//! it came, whoever asked. What would have to wait there, or be told to others than who asked, is refused.
//!
//! What is asked goes by *lanes*: of each, one request is under way at a time. Where another node has all keys there is one lane; where keys are
//! spread ([`super::spread`]) there are two for each other node, one for what nobody has, and some for what is about to leave.

use std::collections::VecDeque;
use std::sync::Arc;

use super::lanes::{About, Spread};
use super::message::{Destination, Replies};
use super::program::Program;
use super::slots::shown_to;
use super::{Actor, Message, Progress};
use crate::access::Access;
use crate::cluster::ClusterNode;
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
pub(super) const REQUEST_BYTES_MAX: usize = 12 << 20;
/// Bytes that a word may take beside its own.
const WORD_BYTES: usize = 5;

/// What is to be asked, with where the replies go.
#[derive(Debug, Default)]
pub struct Asked {
    /// What is to be asked.
    pub request: KeysRequest,
    /// Where the reply to each part goes.
    pub to: Vec<Destination>,
    /// What each part is about, where keys are spread.
    pub about: Vec<About>,
}

/// What is to be asked of one node.
#[derive(Debug, Default)]
struct Lane(VecDeque<Asked>);

impl Lane {
    /// The request that is being filled.
    fn next(&mut self, bytes: usize) -> &mut Asked {
        let is_full =
            |asked: &Asked| asked.request.byte_count() + bytes > REQUEST_BYTES || asked.request.len() >= REQUEST_PARTS;
        if self.0.back().is_none_or(is_full) {
            self.0.push_back(Asked::default());
        }
        let last = self.0.len() - 1;
        &mut self.0[last]
    }
}

/// Who has keys that are not here.
#[derive(Debug)]
pub(super) enum Beyond {
    /// Another node has all. Where clients of clusters reach it, if that is known.
    Owner(Option<Arc<ClusterNode>>),
    /// Each node has some.
    Nodes(Spread),
}

/// What an actor asks for that does not have all keys of its node's clients.
#[derive(Debug)]
pub(super) struct Front {
    lanes: Vec<Lane>,
    pub(super) beyond: Beyond,
}

impl Front {
    pub(super) const fn new(beyond: Beyond) -> Self {
        Self { lanes: Vec::new(), beyond }
    }

    /// How many bytes of a lane are still to be asked.
    pub(super) fn waiting_bytes(&self, lane: usize) -> usize {
        self.lanes.get(lane).map_or(0, |lane| lane.0.iter().map(|asked| asked.request.byte_count()).sum())
    }

    /// The request of a lane that is being filled.
    fn next(&mut self, lane: usize, bytes: usize) -> &mut Asked {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        self.lanes[lane].next(bytes)
    }
}

impl Actor {
    /// Whether another node has the keys.
    pub(crate) fn has_keys_elsewhere(&self) -> bool {
        self.front.as_ref().is_some_and(|front| matches!(front.beyond, Beyond::Owner(_)))
    }

    /// Hears where clients of clusters reach the owner of the keys, if it is known.
    pub fn hear_owner(&mut self, owner: Option<Arc<ClusterNode>>) {
        if let Some(front) = &mut self.front
            && let Beyond::Owner(known) = &mut front.beyond
        {
            *known = owner;
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
        self.front = Some(Box::new(Front::new(Beyond::Owner(None))));
    }

    /// How many lanes there are by which other nodes are asked.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.front.as_ref().map_or(0, |front| front.lanes.len())
    }

    /// Takes what is to be asked next by a lane. It is to be answered before more is asked by that.
    pub fn take_asked(&mut self, lane: usize) -> Option<Asked> {
        self.front.as_mut()?.lanes.get_mut(lane)?.0.pop_front()
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
        self.ask_by(0, About::default(), session, command, args)
    }

    /// Asks by a lane for a command of a session, about what it names.
    pub(super) fn ask_by(
        &mut self,
        lane: usize,
        about: About,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<Progress, CommandError> {
        let number = CommandNumber::of(command).ok_or_else(|| elsewhere(command))?;
        let database = session.database;
        let ask = |request: &mut KeysRequest| request.push(database, number, args);
        self.ask(session, lane, about, byte_count(args), ask).map(Progress::Later)
    }

    /// Has the owner of the keys run what MULTI has queued.
    pub(super) fn ask_for_program(
        &mut self,
        session: &mut Session,
        lane: usize,
        about: About,
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
        let ask = |request: &mut KeysRequest| request.push_transaction(program.database, steps);
        self.ask(session, lane, about, bytes, ask).map(Progress::LaterAlone)
    }

    fn ask(
        &mut self,
        session: &mut Session,
        lane: usize,
        about: About,
        bytes: usize,
        push: impl FnOnce(&mut KeysRequest),
    ) -> Result<Ticket, CommandError> {
        if bytes > REQUEST_BYTES_MAX {
            return Err(CommandError::text("ERR the request is too long to go to another node"));
        }
        let ticket = session.ticket();
        self.counters.sent += 1;
        self.put_in_lane(lane, Destination::Session(session.id, ticket), about, bytes, push);
        Ok(ticket)
    }

    /// Asks by a lane for something whose answer goes anywhere.
    pub(super) fn put_in_lane(
        &mut self,
        lane: usize,
        to: Destination,
        about: About,
        bytes: usize,
        push: impl FnOnce(&mut KeysRequest),
    ) {
        let Some(front) = &mut self.front else { return };
        if let Beyond::Nodes(spread) = &mut front.beyond {
            spread.begin(lane, &about);
        }
        let asked = front.next(lane, bytes);
        push(&mut asked.request);
        asked.to.push(to);
        asked.about.push(about);
    }
}

/// How many bytes words may take in a message between nodes.
pub(super) fn byte_count(args: Args<'_>) -> usize {
    args.byte_count() + args.len() * WORD_BYTES
}

pub(super) fn elsewhere(command: &Command) -> CommandError {
    CommandError::from(format!(
        "ELSEWHERE the keys are on another node, and {} cannot be used from here yet; connect to that node",
        command.name.to_uppercase()
    ))
}
