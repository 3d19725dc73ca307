//! Holding requests back for a time, at all actors: `CLIENT PAUSE`.
//!
//! A request is held back where it comes in, before anything of it ran. What was let in before may be under way to other
//! actors, or wait for keys there. So an actor that pauses asks all others, behind everything that it sent to them, to answer
//! when they hold no key for anybody; the pause is acknowledged when all have these answers. From then on nothing changes:
//! no waiter is called, no key expires or is given up.

use savanna_lattice::UnixMillis;

use super::message::{Destination, Message};
use super::{Actor, FIRST, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::commands::functions;
use crate::error::Outcome;
use crate::handle;
use crate::placement::ActorId;
use crate::reply::Reply;
use crate::request::{Args, OwnedArgs};
use crate::session::Session;

/// A time in which requests are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Until when.
    pub until: UnixMillis,
    /// Whether all requests are, not only those that may change something.
    pub is_for_all: bool,
}

impl Pause {
    /// Both: what either holds back, as long as either does.
    fn and(self, other: Self) -> Self {
        Self { until: self.until.max(other.until), is_for_all: self.is_for_all || other.is_for_all }
    }
}

/// What an actor is asked that is to have ended what it does for others.
static SETTLED: Command = Command {
    name: "client|pause",
    arity: 0,
    flags: Flags::NONE,
    keys: Keys::None,
    uses: KeyUses::NONE,
    class: Class::Everywhere,
    group: Group::Connection,
    since: "0.1.0",
    summary: "Answers when no key is held.",
    run: Run::Everywhere(settled, Combine::First),
};

fn settled(_: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.ok();
    Ok(())
}

impl Actor {
    /// Whether a pause lasts. Nothing is deleted then that nobody asks to be deleted.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// How many sessions have a request that is held back.
    #[must_use]
    pub fn held_count(&self) -> usize {
        if self.is_paused() { self.sessions.iter().filter(|session| session.is_held).count() } else { 0 }
    }

    /// Pauses all actors for one of its sessions.
    pub(crate) fn ask_for_pause(&mut self, session: &mut Session, pause: Pause, reply: &mut dyn Reply) -> Progress {
        if self.routes.actors() == 1 {
            self.begin_pause(pause);
            reply.ok();
            return Progress::Answered;
        }
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        if self.id == FIRST {
            self.pause_all(FIRST, to, pause);
        } else {
            self.send(FIRST, Message::PauseAll { to, pause });
        }
        Progress::LaterAlone(ticket)
    }

    pub(super) fn pause_all(&mut self, from: ActorId, to: Destination, pause: Pause) {
        let gather = self.gather_acknowledgements(from, to);
        for actor in self.routes.all().filter(|actor| *actor != FIRST) {
            self.send(actor, Message::Pause { gather, pause });
        }
        self.hear_pause(FIRST, gather, pause);
    }

    pub(super) fn hear_pause(&mut self, from: ActorId, gather: u64, pause: Pause) {
        self.begin_pause(pause);
        let nothing = OwnedArgs::default();
        self.begin_gather(from, Destination::Gather(gather), 0, &SETTLED, nothing.args(), Combine::First);
    }

    fn begin_pause(&mut self, pause: Pause) {
        self.pause = Some(self.pause.map_or(pause, |present| present.and(pause)));
    }

    /// Ends a pause before its time.
    pub(crate) fn end_pause(&mut self) {
        self.pause = None;
        self.sessions.iter_mut().for_each(|session| session.is_held = false);
        self.hear_ready_again();
    }

    /// Ends a pause whose time is over.
    pub(super) fn end_pause_by(&mut self, now: UnixMillis) {
        if self.pause.is_some_and(|pause| pause.until <= now) {
            self.end_pause();
            self.note_request();
        }
    }

    /// Whether a request is held back; notes it if so.
    #[cold]
    pub(super) fn holds_back(&mut self, session: &mut Session, command: &'static Command, args: Args<'_>) -> bool {
        let is_for_all = self.pause.is_some_and(|pause| pause.is_for_all);
        let is_held = if is_for_all {
            // Who wants to end the pause must be heard.
            command.name != "client" || !args[1].eq_ignore_ascii_case(b"unpause")
        } else {
            let queued = session.queued.iter().filter(|_| command.name == "exec");
            self.may_change(command, args)
                || queued.flat_map(|program| program.steps()).any(|(command, args)| self.may_change(command, args))
        };
        if is_held {
            session.is_held = true;
            self.counters.requests -= 1;
        }
        is_held
    }

    /// Whether a part of a request of another node is held back.
    pub(super) fn holds_back_part(&self, part: handle::Part<'_>) -> bool {
        let mut steps = part.steps();
        self.pause.is_some_and(|pause| pause.is_for_all || steps.any(|(command, args)| self.may_change(command, args)))
    }

    /// How many milliseconds the pause still lasts.
    pub(super) fn pause_left(&self) -> u64 {
        self.pause.map_or(0, |pause| pause.until.0.saturating_sub(self.keys.now().0))
    }

    /// Whether a request may change keys, or tell others something. A script may that does not declare otherwise.
    fn may_change(&self, command: &Command, args: Args<'_>) -> bool {
        match command.run {
            Run::Script(_) => !command.flags.has(Flags::READONLY) && !self.scripts.only_reads(command.name, &args[1]),
            Run::Session(_) if command.name == "function" => functions::may_change(args),
            // Redis notes in the value what it has counted.
            _ => command.may_change() || command.name == "pfcount",
        }
    }
}
