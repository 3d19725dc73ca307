//! Groups of keys at several nodes that this actor leads: what [`crate::group::leader`] decides is carried out here.
//!
//! The actor that has the first virtual node of a program's keys leads: whoever asks what became of a group asks whoever has that. Its own keys it holds as
//! a transaction does; keys of other actors of this node it borrows as those of other nodes.

mod run;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use savanna_epoch::NodeId;
use savanna_lattice::Hlc;

use super::claims::Wants;
use super::crossing::Crossing;
use super::message::Destination;
use super::program::Program;
use super::transaction::keys_of;
use super::{Actor, Work};
use crate::cluster::owners::{Whose, virtual_node_of};
use crate::error::CommandError;
use crate::group::follower::Follower;
use crate::group::leader::{Heard, Leader, PATIENCE, Step, Why};
use crate::group::{GroupId, GroupReply, GroupRequest, Owed, Unit};
use crate::handle::HandleError;
use crate::placement::{ActorId, group_of};
use crate::reply::{Reply, Tape};

/// So many bytes of what is written go in one message.
const WRITES_BYTES: usize = 8 << 20;
/// Before a group begins anew that found somebody waiting for all keys, in milliseconds.
const BUSY_PAUSE: u64 = 10;

/// What goes to whoever has a virtual node, or back to who asked.
#[derive(Debug)]
pub enum GroupLetter {
    /// A question.
    Ask {
        /// Under which the answer is heard.
        number: u64,
        /// What is asked.
        request: GroupRequest,
    },
    /// The answer to a request.
    Answer {
        /// The request's number, as [`Actor::serve_group`] gave it.
        number: u64,
        /// What is answered.
        outcome: Result<GroupReply, HandleError>,
    },
}

/// Who is asked about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupWay {
    /// An actor of this node.
    At(ActorId),
    /// Another node.
    To(NodeId),
    /// Nobody, for the moment.
    Nowhere,
}

/// What was asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// Something of a group that this actor leads.
    Stop(GroupId, usize),
    /// What became of a group that has keys of this actor.
    Fate(Unit, Hlc),
}

/// How the keys of a stop are got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Got {
    #[default]
    Not,
    /// They are this actor's, and somebody has them.
    Awaited,
    /// They are this actor's, and held.
    Held,
    /// Whoever has their virtual node is asked.
    Asked,
}

/// A virtual node of whose keys a group has some, or is to have.
#[derive(Debug, Default)]
struct Place {
    node: u16,
    keys: Vec<Box<[u8]>>,
    got: Got,
    /// Their values, as they were lent.
    values: Vec<u8>,
}

/// What is to run, and who is told.
#[derive(Debug)]
struct Wish {
    from: ActorId,
    to: Destination,
    program: Box<Program>,
    /// When it was first tried.
    since: u64,
}

/// A group that this actor leads.
#[derive(Debug)]
pub(super) struct Leading {
    leader: Leader,
    places: Vec<Place>,
    /// Until it has run, or is given up.
    wish: Option<Wish>,
    has_room: bool,
    /// Why somebody cannot lend its keys.
    refusal: Option<String>,
}

/// Groups of keys at several nodes, as an actor sees them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Whether groups are made here.
    pub(super) may_begin: bool,
    /// Tells this actor's groups from those of all others.
    life: u64,
    leading: BTreeMap<GroupId, Leading>,
    /// Those whose keys are all there.
    ready: VecDeque<GroupId>,
    /// What is tried again, and when.
    again: Vec<(u64, Wish)>,
    pub(super) follower: Follower,
    pub(super) crossings: BTreeMap<u64, Crossing>,
    asked: HashMap<u64, Asked>,
    letters: Vec<GroupLetter>,
}

impl Groups {
    fn is_idle(&self) -> bool {
        self.leading.is_empty() && self.again.is_empty() && self.crossings.is_empty()
    }
}

impl Actor {
    /// Whether requests about keys of several nodes are run, as groups. `life` tells this actor's groups from those of all others, also from those of
    /// the same node before.
    pub const fn join_groups(&mut self, may_begin: bool, life: u64) {
        (self.groups.may_begin, self.groups.life) = (may_begin, life);
    }

    /// Whether requests about keys of several nodes are run.
    pub(super) const fn makes_groups(&self) -> bool {
        self.groups.may_begin
    }

    /// Milliseconds since any moment.
    pub(super) fn elapsed(&self) -> u64 {
        (self.stopwatch)().as_millis() as u64
    }

    /// Takes what goes to others about groups. What the actor changed must be in the log first.
    #[must_use]
    pub fn take_group_letters(&mut self) -> Vec<GroupLetter> {
        std::mem::take(&mut self.groups.letters)
    }

    /// Whether anything is to be said about groups, or to be run.
    #[must_use]
    pub fn has_groups_to_run(&self) -> bool {
        !self.groups.ready.is_empty()
    }

    /// When to come again for groups, by the clock of [`Actor::keep_time`].
    #[must_use]
    pub fn groups_due(&self) -> Option<Duration> {
        if self.groups.is_idle() && self.keys.groups.is_empty() {
            return None;
        }
        let now = self.elapsed();
        let leading = self.groups.leading.values().filter_map(|leading| leading.leader.due());
        let again = self.groups.again.iter().map(|(due, _)| *due);
        let crossings = self.groups.crossings.values().map(Crossing::due);
        let due = leading.chain(again).chain(crossings);
        let due = due.chain(self.groups.follower.next_due(&self.keys.groups, now)).min();
        due.map(Duration::from_millis)
    }

    /// Who is asked about a group by whoever wants to ask the owner of a virtual node.
    #[must_use]
    pub fn way_of_group(&self, node: u16) -> GroupWay {
        let Some(owners) = &self.keys.owners else { return GroupWay::Nowhere };
        match owners.of(node) {
            Whose::Here | Whose::Leaving => self.actor_of_node(node).map_or(GroupWay::Nowhere, GroupWay::At),
            Whose::There(peer) => match owners.peer(peer).filter(|peer| peer.is_there) {
                Some(peer) => GroupWay::To(peer.node.clone()),
                None => GroupWay::Nowhere,
            },
            Whose::Nobody => GroupWay::Nowhere,
        }
    }

    /// Asks whoever has a virtual node.
    pub(super) fn ask_about_group(&mut self, asked: Asked, request: GroupRequest) {
        let number = self.number();
        self.groups.asked.insert(number, asked);
        self.groups.letters.push(GroupLetter::Ask { number, request });
    }

    pub(super) fn answer_about_group(&mut self, number: u64, outcome: Result<GroupReply, HandleError>) {
        self.groups.letters.push(GroupLetter::Answer { number, outcome });
    }

    /// Runs a program whose keys are at several nodes, the first virtual node of which is this actor's.
    pub(super) fn begin_group(&mut self, from: ActorId, to: Destination, program: Box<Program>) {
        let since = self.elapsed();
        self.begin_wish(Wish { from, to, program, since });
    }

    fn begin_wish(&mut self, wish: Wish) {
        let mut by_node: BTreeMap<u16, Vec<Box<[u8]>>> = BTreeMap::new();
        for key in keys_of(&wish.program) {
            by_node.entry(virtual_node_of(group_of(&key))).or_default().push(key);
        }
        let places: Vec<Place> =
            by_node.into_iter().map(|(node, keys)| Place { node, keys, ..Place::default() }).collect();
        // Whoever has it decides: it cannot go before the group is over.
        let node = match places.first() {
            Some(first) if self.leads_for(first.node) => first.node,
            _ => return self.answer_wish(wish, |reply| on_its_way().answer(reply)),
        };
        let id = GroupId { node, life: self.groups.life, number: self.number() };
        self.counters.transactions += 1;
        let (leader, steps) = Leader::new(places.len(), self.elapsed());
        let leading = Leading { leader, places, wish: Some(wish), has_room: true, refusal: None };
        self.groups.leading.insert(id, leading);
        self.carry_out(id, steps);
    }

    /// Whether a virtual node is this actor's to decide about.
    pub(super) fn leads_for(&self, node: u16) -> bool {
        let whose = self.keys.owners.as_ref().map_or(Whose::Nobody, |owners| owners.of(node));
        self.owns_node(node) && matches!(whose, Whose::Here | Whose::Leaving)
    }

    fn answer_wish(&mut self, wish: Wish, write: impl FnOnce(&mut Tape)) {
        let mut tape = Tape::new();
        write(&mut tape);
        let mut replies = self.take_replies(wish.from);
        replies.add(wish.to, tape);
        self.put_replies(wish.from, replies);
    }

    fn carry_out(&mut self, id: GroupId, steps: Vec<Step>) {
        let mut steps = VecDeque::from(steps);
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Borrow(place) => {
                    if let Some(heard) = self.borrow_for(id, place) {
                        steps.extend(self.tell_leader(id, place, heard));
                    }
                }
                // Not within what frees the keys of another one.
                Step::Run => self.groups.ready.push_back(id),
                Step::Return(place) => self.return_for(id, place),
                Step::GiveUp(why) => self.give_up(id, why),
                Step::End => self.end_group(id),
            }
        }
    }

    fn tell_leader(&mut self, id: GroupId, place: usize, heard: Heard) -> Vec<Step> {
        let now = self.elapsed();
        self.groups.leading.get_mut(&id).map(|leading| leading.leader.hear(now, place, heard)).unwrap_or_default()
    }

    /// Gets the keys of a stop, or asks for them.
    fn borrow_for(&mut self, id: GroupId, number: usize) -> Option<Heard> {
        let is_first = number == 0;
        let place = self.groups.leading.get(&id)?.places.get(number)?;
        let is_here = || self.keys.owners.as_ref().is_some_and(|owners| owners.of(place.node) == Whose::Here);
        let is_own = place.got != Got::Asked && self.owns_node(place.node) && (is_first || is_here());
        let keys = place.keys.clone();
        match place.got {
            Got::Held => Some(Heard::Held),
            Got::Awaited => Some(Heard::Waits),
            _ if is_own => {
                let names = keys.iter().map(|key| &**key);
                // Who has nothing yet overtakes nobody.
                let is_blocked = if is_first { self.claims.blocks(names) } else { self.claims.blocks_urgent(names) };
                let work = Work::GroupStop { group: id, place: number };
                match (is_blocked, is_first) {
                    (false, _) => self.claims.hold(keys),
                    (true, true) => self.claims.wait(Wants::Keys(keys), work),
                    (true, false) => self.claims.wait_urgently(Wants::Keys(keys), work),
                }
                let (got, heard) = if is_blocked { (Got::Awaited, Heard::Waits) } else { (Got::Held, Heard::Held) };
                self.groups.leading.get_mut(&id)?.places.get_mut(number)?.got = got;
                Some(heard)
            }
            _ => {
                let leading = self.groups.leading.get_mut(&id)?;
                let needs_room = leading.wish.as_ref().is_some_and(|wish| wish.program.needs_room());
                let place = leading.places.get_mut(number)?;
                place.got = Got::Asked;
                let request = GroupRequest::Lend { group: id, node: place.node, keys, needs_room };
                self.ask_about_group(Asked::Stop(id, number), request);
                None
            }
        }
    }

    /// The keys of a stop, which are this actor's, are free.
    pub(super) fn hold_for_group(&mut self, id: GroupId, number: usize) {
        let Some(leading) = self.groups.leading.get_mut(&id) else { return };
        let Some(place) = leading.places.get_mut(number).filter(|_| leading.leader.is_borrowing()) else { return };
        place.got = Got::Held;
        let keys = place.keys.clone();
        self.claims.hold(keys);
        let steps = self.tell_leader(id, number, Heard::Held);
        self.carry_out(id, steps);
    }

    /// Says to whoever lent keys that the group has ended, and what is written of them.
    fn return_for(&mut self, id: GroupId, number: usize) {
        let Some(leading) = self.groups.leading.get(&id) else { return };
        let Some(node) = leading.places.get(number).map(|place| place.node) else { return };
        let (loan, has) = leading.leader.loan(number);
        let owed =
            self.keys.groups.commits.get(&id).and_then(|commit| commit.owed.iter().find(|owed| owed.node == node));
        let all: &[u8] = match (loan, owed) {
            (Some(_), Some(owed)) => &owed.writes,
            _ => &[],
        };
        let from = usize::try_from(has).unwrap_or(usize::MAX).min(all.len());
        let writes = &all[from..all.len().min(from + WRITES_BYTES)];
        let request = GroupRequest::Return {
            group: id,
            node,
            number: loan,
            from: from as u64,
            is_last: from + writes.len() == all.len(),
            writes: writes.to_vec(),
        };
        self.ask_about_group(Asked::Stop(id, number), request);
    }

    /// Gives this actor's own keys back that a group has.
    fn release_own(&mut self, id: GroupId) {
        let Some(leading) = self.groups.leading.get_mut(&id) else { return };
        for place in &mut leading.places {
            if place.got == Got::Held {
                place.got = Got::Not;
                self.claims.release(place.keys.iter().map(|key| &**key));
            }
        }
        self.serve_ready();
        self.resume();
    }

    fn give_up(&mut self, id: GroupId, why: Why) {
        let now = self.elapsed();
        let Some(leading) = self.groups.leading.get_mut(&id) else { return };
        let (wish, refusal) = (leading.wish.take(), leading.refusal.take());
        self.release_own(id);
        let Some(wish) = wish else { return };
        match (why, refusal) {
            (Why::Busy, _) if now < wish.since + PATIENCE => self.groups.again.push((now + BUSY_PAUSE, wish)),
            (Why::Refused, Some(refusal)) => self.answer_wish(wish, |reply| reply.error(&refusal)),
            _ => self.answer_wish(wish, |reply| {
                reply.error("TRYAGAIN nothing was done: keys of other nodes were not to be had in time");
            }),
        }
    }

    /// All have heard what became of a group.
    fn end_group(&mut self, id: GroupId) {
        self.groups.leading.remove(&id);
        self.keys.end_commit(id);
        self.note_request();
    }

    /// Hears what was answered about a group.
    pub fn hear_group(&mut self, number: u64, outcome: Result<GroupReply, HandleError>) {
        match self.groups.asked.remove(&number) {
            Some(Asked::Stop(id, place)) => {
                let heard = self.heard_of(id, place, outcome);
                let steps = self.tell_leader(id, place, heard);
                self.carry_out(id, steps);
            }
            Some(Asked::Fate(unit, number)) if matches!(outcome, Ok(GroupReply::Void)) => {
                self.free_void(unit, number);
            }
            _ => {}
        }
        self.note_request();
    }

    fn heard_of(&mut self, id: GroupId, number: usize, outcome: Result<GroupReply, HandleError>) -> Heard {
        let Some(leading) = self.groups.leading.get_mut(&id) else { return Heard::Failed };
        match outcome {
            Ok(GroupReply::Lent { number: loan, values, has_room }) => {
                if leading.leader.awaits(number)
                    && let Some(place) = leading.places.get_mut(number)
                {
                    place.values = values;
                    leading.has_room &= has_room;
                }
                Heard::Lent(loan)
            }
            Ok(GroupReply::Waits) => Heard::Waits,
            Ok(GroupReply::Busy) => Heard::Busy,
            Ok(GroupReply::Has(bytes)) => Heard::Has(bytes),
            Ok(GroupReply::Returned) => Heard::Returned,
            Ok(GroupReply::Refused(why)) => {
                leading.refusal = Some(why);
                Heard::Refused
            }
            Ok(GroupReply::Pending | GroupReply::Void) | Err(_) => Heard::Failed,
        }
    }

    /// What becomes of keys that were lent to a group which this actor leads, or led when the virtual node was elsewhere.
    pub(super) fn fate_of(&mut self, (group, node): Unit, number: Hlc) -> GroupReply {
        let now = self.elapsed();
        if let Some(leading) = self.groups.leading.get_mut(&group) {
            let place = leading.places.iter().position(|place| place.node == node);
            let Some(place) = place.filter(|place| leading.leader.wants(*place, number)) else {
                return GroupReply::Void;
            };
            let steps = leading.leader.remind(now, place);
            self.carry_out(group, steps);
            return GroupReply::Pending;
        }
        let is_owed = |owed: &Owed| owed.node == node && owed.number == number;
        match self.keys.groups.commits.get(&group) {
            Some(commit) if commit.owed.iter().any(is_owed) => GroupReply::Pending,
            _ => GroupReply::Void,
        }
    }

    /// It is known anew who has what.
    pub(super) fn hurry_groups(&mut self) {
        let now = self.elapsed();
        self.groups.leading.values_mut().for_each(|leading| leading.leader.hurry(now));
        self.groups.follower.hurry(now);
        self.depart_crossings(now);
    }

    /// Goes on with groups as far as it is time.
    pub(super) fn tick_groups(&mut self) {
        if self.groups.is_idle() && self.keys.groups.is_empty() {
            return;
        }
        let now = self.elapsed();
        self.resume_commits(now);
        let is_due = |leading: &Leading| leading.leader.due().is_some_and(|due| due <= now);
        let due: Vec<GroupId> =
            self.groups.leading.iter().filter(|(_, leading)| is_due(leading)).map(|(id, _)| *id).collect();
        for id in due {
            let steps = self.groups.leading.get_mut(&id).map(|leading| leading.leader.tick(now));
            self.carry_out(id, steps.unwrap_or_default());
        }
        let again: Vec<(u64, Wish)> = self.groups.again.extract_if(.., |(due, _)| *due <= now).collect();
        again.into_iter().for_each(|(_, wish)| self.begin_wish(wish));
        self.depart_crossings(now);
        self.ask_for_fates(now);
        self.end_long_waits(now);
        self.note_request();
    }

    /// Goes on with groups that were committed before this service began, or where their first virtual node was before.
    fn resume_commits(&mut self, now: u64) {
        let ids = self.keys.groups.commits.keys().copied();
        let ids: Vec<GroupId> =
            ids.filter(|id| !self.groups.leading.contains_key(id) && self.leads_for(id.node)).collect();
        for id in ids {
            let Some(commit) = self.keys.groups.commits.get(&id) else { continue };
            let (leader, steps) = Leader::committed(commit.owed.iter().map(|owed| owed.number), now);
            let place = |owed: &Owed| Place { node: owed.node, got: Got::Asked, ..Place::default() };
            let places = commit.owed.iter().map(place).collect();
            let leading = Leading { leader, places, wish: None, has_room: true, refusal: None };
            self.groups.leading.insert(id, leading);
            self.carry_out(id, steps);
        }
    }

    /// Whether a group that goes on is led from a virtual node, or has keys of it, or waits for some.
    pub(super) fn groups_concern(&self, node: u16) -> bool {
        self.groups.leading.keys().chain(self.keys.groups.commits.keys()).any(|id| id.node == node)
            || self.groups.follower.concerns(&self.keys.groups, node)
    }

    /// Whether nothing is held but what groups have: such keys are where they were.
    pub(super) fn holds_for_groups_alone(&self) -> bool {
        let held = self.groups.leading.values().flat_map(|leading| &leading.places);
        let held = held.filter(|place| place.got == Got::Held).flat_map(|place| &place.keys).map(|key| &**key);
        let of_groups: HashSet<&[u8]> = held.chain(self.keys.groups.lent_keys()).collect();
        self.claims.holds_only(|key| of_groups.contains(key))
    }
}

/// What is said of keys whose virtual node is about to be another node's.
pub(super) fn on_its_way() -> CommandError {
    CommandError::text("TRYAGAIN nothing was done: some of the keys are on their way to another node")
}
