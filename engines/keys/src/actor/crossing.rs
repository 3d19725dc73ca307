//! Requests of this actor's sessions about keys of several nodes, until they go to whoever leads the group that is made for them.
//!
//! ```text
//!  MSET a 1 b 2 ── all that was asked before about a and b is answered, and somebody has both ──► the node that has the first of them
//! ```
//!
//! What a session has asked before about one of the keys may be on its way there still, or wait there for somebody else: a group does not go by those
//! ways. So each is asked about its keys once more, behind that; whatever the answer is, what came before is answered.

use super::front::{REQUEST_BYTES_MAX, byte_count, elsewhere};
use super::groups::on_its_way;
use super::lanes::{About, lane_to};
use super::message::{Destination, Message};
use super::program::{Program, ProgramUser};
use super::transaction::keys_of;
use super::{Actor, Place, Progress};
use crate::access::Access;
use crate::cluster::owners::{Whose, virtual_node_of};
use crate::command::{Command, CommandNumber, Flags, Run};
use crate::commands;
use crate::error::CommandError;
use crate::handle::KeysRequest;
use crate::placement::group_of;
use crate::request::{Args, OwnedArgs};
use crate::session::Session;

/// After so many milliseconds a client hears that nothing was done, if some of its keys have no node.
const PATIENCE: u64 = 10_000;
/// How often it is looked whether they have one, beside whenever that is heard.
const PERIOD: u64 = 100;

/// A request about keys of several nodes that has not gone yet.
#[derive(Debug)]
pub(super) struct Crossing {
    to: Destination,
    program: Box<Program>,
    /// How much of what was asked before may not be answered.
    missing: usize,
    since: u64,
    /// When it is looked at again.
    due: u64,
}

impl Crossing {
    pub(super) const fn due(&self) -> u64 {
        self.due
    }
}

impl Actor {
    /// Runs a request about keys of several nodes.
    pub(super) fn cross_with(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<Progress, CommandError> {
        let program = Program::single(session.database, command, args);
        self.cross(session, &program)
    }

    /// Runs what MULTI has queued, or a request, about keys of several nodes.
    pub(super) fn cross(&mut self, session: &mut Session, program: &Program) -> Result<Progress, CommandError> {
        let may_go = |command: &Command| !matches!(command.run, Run::Session(_) | Run::Everywhere(..) | Run::Scan(_));
        if let Some((command, _)) = program.steps().find(|(command, _)| !may_go(command)) {
            return Err(elsewhere(command));
        }
        if !program.watched.is_empty() {
            return Err(CommandError::text(
                "ELSEWHERE EXEC behind WATCH is not there yet where the keys are on several nodes: nothing was done",
            ));
        }
        if program.steps().map(|(_, args)| byte_count(args)).sum::<usize>() > REQUEST_BYTES_MAX {
            return Err(CommandError::text("ERR the request is too long to go to another node"));
        }
        if program.steps().any(|(command, _)| command.flags.has(Flags::WRITE)) {
            self.check_log_space()?;
        }
        let has_script = program.steps().any(|(command, _)| matches!(command.run, Run::Script(_)));
        let mut sent = Box::new(self.with_scripts(program)?);
        sent.replies_with_list = program.replies_with_list;
        sent.user = (has_script && session.access != Access::Full).then(|| ProgramUser {
            user: std::sync::Arc::clone(&session.user),
            client: commands::clients::line(self, session).into(),
        });
        let (ticket, number, now) = (session.ticket(), self.number(), self.elapsed());
        let keys = keys_of(&sent);
        self.go_to_firsts(session, keys.iter().map(|key| &**key));
        let to = Destination::Session(session.id, ticket);
        let (missing, since, due) = (0, now, now + PERIOD);
        self.groups.crossings.insert(number, Crossing { to, program: sent, missing, since, due });
        let missing = self.ask_behind_all(number, session.database, &keys);
        if let Some(crossing) = self.groups.crossings.get_mut(&number) {
            crossing.missing = missing;
        }
        self.depart_crossing(number, now);
        Ok(Progress::LaterAlone(ticket))
    }

    /// Asks about keys, behind all that was asked about them before. Gives how many answers are to come.
    fn ask_behind_all(&mut self, number: u64, database: u8, keys: &[Box<[u8]>]) -> usize {
        let to = Destination::Group(number);
        let Some(command) = Command::find(b"exists") else { return 0 };
        let Some(name) = CommandNumber::of(command) else { return 0 };
        let (mut missing, mut asked) = (0, None);
        // The keys of a virtual node go one way.
        let mut keys: Vec<(u16, &[u8])> = keys.iter().map(|key| (virtual_node_of(group_of(key)), &**key)).collect();
        keys.sort_unstable();
        for (node, key) in keys {
            let args = OwnedArgs::of_words(&[b"EXISTS", key]);
            let args = args.args();
            let lane = self.lane_asked(node);
            let is_next = asked.replace(node) != Some(node);
            match (lane, self.place(std::iter::once(key), None)) {
                (Some(lane), _) if is_next => {
                    let push = |request: &mut KeysRequest| request.push(database, name, args);
                    self.put_in_lane(lane, to, About::one(node), byte_count(args), push);
                }
                (Some(_), _) => continue,
                // Of a single key another one of its actor says nothing.
                (None, Place::At(actor)) if self.is_of_this_node(key) => {
                    self.requests_to(actor).push(to, database, command, args);
                }
                (None, Place::Here) if self.claims.blocks([key]) => {
                    self.wait_for_keys(self.id, to, database, command, args);
                }
                _ => continue,
            }
            missing += 1;
        }
        missing
    }

    /// Hears that something which was asked before is answered.
    pub(super) fn hear_passed(&mut self, number: u64) {
        let now = self.elapsed();
        if let Some(crossing) = self.groups.crossings.get_mut(&number) {
            crossing.missing = crossing.missing.saturating_sub(1);
            self.depart_crossing(number, now);
        }
    }

    /// It is known anew who has what, or time has passed.
    pub(super) fn depart_crossings(&mut self, now: u64) {
        let numbers: Vec<u64> = self.groups.crossings.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.depart_crossing(number, now));
    }

    /// Sends a request on its way if nothing that came before is under way, and each of its keys has a node.
    fn depart_crossing(&mut self, number: u64, now: u64) {
        let Some(crossing) = self.groups.crossings.get_mut(&number) else { return };
        let nodes = keys_of(&crossing.program).into_iter().map(|key| virtual_node_of(group_of(&key)));
        let nodes: std::collections::BTreeSet<u16> = nodes.collect();
        let Some(owners) = self.keys.owners.clone() else { return };
        let has_node = |node: &u16| match owners.of(*node) {
            Whose::Here => true,
            Whose::There(peer) => owners.peer(peer).is_some_and(|peer| peer.is_there),
            Whose::Leaving | Whose::Nobody => false,
        };
        let is_late = now >= crossing.since + PATIENCE;
        crossing.due = now + PERIOD;
        let may_go = crossing.missing == 0 && nodes.iter().all(has_node);
        if !may_go && !is_late {
            return;
        }
        let Some(Crossing { to, program, .. }) = self.groups.crossings.remove(&number) else { return };
        let first = nodes.first().copied().filter(|_| may_go);
        match first.map(|node| (node, owners.of(node))) {
            Some((node, Whose::Here)) => self.lead_from(node, to, program),
            Some((node, Whose::There(peer))) => {
                if let Some(refusal) = self.send_crossing(node, lane_to(peer), to, &program) {
                    self.replies.push(to, |reply| refusal.answer(reply));
                }
            }
            _ => self.replies.push(to, |reply| {
                let what = if nodes.iter().all(has_node) { on_its_way() } else { without_a_node() };
                what.answer(reply);
            }),
        }
    }

    /// Has the actor lead a group that has its first virtual node.
    pub(super) fn lead_from(&mut self, node: u16, to: Destination, program: Box<Program>) {
        match self.actor_of_node(node) {
            Some(actor) if actor != self.id => self.send(actor, Message::Group { to, program }),
            _ => self.begin_group(self.id, to, program),
        }
    }

    /// Sends a request to the node that leads. Says why it cannot go.
    fn send_crossing(&mut self, node: u16, lane: usize, to: Destination, program: &Program) -> Option<CommandError> {
        let script = program.steps().find(|(command, _)| matches!(command.run, Run::Script(_)));
        if let (Some(_), Some((command, _))) = (&program.user, script) {
            return Some(elsewhere(command));
        }
        let mut steps = Vec::with_capacity(program.step_count());
        let mut bytes = 0;
        for (command, args) in program.steps() {
            let Some(number) = CommandNumber::of(command) else { return Some(elsewhere(command)) };
            steps.push((number, args));
            bytes += byte_count(args);
        }
        // What others have asked about that virtual node and is not answered keeps its lane.
        let lane = self.lane_asked(node).unwrap_or(lane);
        self.counters.sent += 1;
        self.put_in_lane(lane, to, About::one(node), bytes, |request| match program.replies_with_list {
            true => request.push_transaction(program.database, steps),
            false => steps.into_iter().for_each(|(number, args)| request.push(program.database, number, args)),
        });
        None
    }
}

fn without_a_node() -> CommandError {
    CommandError::text("TRYAGAIN nothing was done: some of the keys have no node for the moment")
}
