//! Keys of this actor that groups of other actors and nodes borrow: what [`crate::group::follower`] decides is carried out here.
//!
//! What is lent stays where it is, and whoever asks for it waits as for keys of a transaction. It is in the log before the group hears of it, so that
//! whoever takes the virtual node out of the log knows that it is not free.

use hashbrown::HashSet;
use savanna_lattice::Hlc;

use super::groups::Asked;
use super::transaction::refuse;
use super::{Actor, Work};
use crate::cluster::owners::{Whose, virtual_node_of};
use crate::error::CommandError;
use crate::group::follower::{OnLend, OnReturn};
use crate::group::{GroupReply, GroupRequest, Unit};
use crate::handle::HandleError;
use crate::placement::group_of;

/// After this time somebody may have what nobody has, in milliseconds.
const OWNERLESS_PAUSE_MS: u64 = 50;
/// After this time keys may be free that are gathered from several actors, or about to leave, or the log has space.
const PAUSE_MS: u64 = 5;
/// About how many bytes the end of a loan takes in the log, beside what is written.
const RETURN_BYTES: usize = 256;
/// More bytes of values find no room in a message between nodes.
const VALUES_BYTES_MAX: usize = 12 << 20;

impl Actor {
    /// Begins what somebody asks about a group. Says under which number it is answered among [`Actor::take_group_letters`].
    pub fn serve_group(&mut self, request: GroupRequest) -> u64 {
        let number = self.number();
        if let Some(refusal) = self.refusal_of_group(&request) {
            self.answer_about_group(number, Err(refusal));
            return number;
        }
        match request {
            GroupRequest::Lend { group, node, keys, needs_room } => {
                self.hear_lend((group, node), keys, needs_room, number);
            }
            GroupRequest::Return { group, node, number: loan, from, is_last, writes } => {
                self.hear_return((group, node), loan, (from, is_last, writes), number);
            }
            GroupRequest::Ask { group, node, number: loan } => {
                let fate = self.fate_of((group, node), loan);
                self.answer_about_group(number, Ok(fate));
            }
        }
        self.serve_ready();
        self.note_request();
        number
    }

    /// Why somebody else is to be asked, or later.
    fn refusal_of_group(&self, request: &GroupRequest) -> Option<HandleError> {
        let frozen = HandleError::Frozen { retry_after_ms: OWNERLESS_PAUSE_MS };
        let Some(owners) = &self.keys.owners else { return Some(frozen) };
        let node = request.to();
        match owners.of(node) {
            Whose::Here if self.owns_node(node) => {}
            // What was lent comes back before it leaves.
            Whose::Leaving if self.owns_node(node) && !matches!(request, GroupRequest::Lend { .. }) => {}
            Whose::There(peer) => {
                let to = owners.peer(peer).map(|peer| peer.node.clone());
                return Some(to.map_or(frozen, |to| HandleError::Moved { to, epoch: owners.epoch(node) }));
            }
            _ => return Some(frozen),
        }
        let is_of_it = |key: &[u8]| virtual_node_of(group_of(key)) == node;
        match request {
            GroupRequest::Lend { keys, .. } if keys.is_empty() || !keys.iter().all(|key| is_of_it(key)) => {
                let reason = format!("expected keys of virtual node {node}, came others");
                Some(HandleError::Unavailable { reason, may_have_run: false })
            }
            _ => None,
        }
    }

    fn hear_lend(&mut self, unit: Unit, keys: Vec<Box<[u8]>>, needs_room: bool, request: u64) {
        if !self.makes_groups() {
            let why = "CROSSNODE keys.groups is false at the node that has some of the keys".to_owned();
            return self.answer_about_group(request, Ok(GroupReply::Refused(why)));
        }
        match self.groups.follower.hear_lend(&self.keys.groups, unit, request) {
            OnLend::Again(number) => {
                let values = self.keys.values_of(&keys);
                let has_room = !needs_room || self.make_room();
                self.answer_about_group(request, Ok(GroupReply::Lent { number, values, has_room }));
            }
            OnLend::Waits(before) => self.answer_about_group(before, Ok(GroupReply::Waits)),
            OnLend::Begins => {
                // Who waits for all keys is not to wait for one group after the other. One that has some of them cannot wait for that.
                let has_some = self.keys.groups.lends.keys().any(|(group, _)| *group == unit.0);
                if self.claims.is_all_wanted() && !has_some {
                    let _ = self.groups.follower.begin_lend(unit);
                    return self.answer_about_group(request, Ok(GroupReply::Busy));
                }
                self.begin(Work::GroupLend { unit, keys, needs_room });
            }
        }
    }

    /// Lends keys to a group that are free.
    pub(super) fn lend_to_group(&mut self, unit: Unit, keys: Vec<Box<[u8]>>, needs_room: bool) {
        // Whoever gave up in the meantime gets nothing.
        let Some(request) = self.groups.follower.begin_lend(unit) else { return };
        if !self.keys.gather_for_group(&keys) {
            let later = HandleError::Frozen { retry_after_ms: PAUSE_MS };
            return self.answer_about_group(request, Err(later));
        }
        let has_room = !needs_room || self.make_room();
        if self.keys.bytes_of_values(&keys) > VALUES_BYTES_MAX {
            let why = "ERR the values are too long to go to another node".to_owned();
            return self.answer_about_group(request, Ok(GroupReply::Refused(why)));
        }
        let reply = match self.keys.lend_to_group(unit, keys.clone()) {
            Err(refusal) => GroupReply::Refused(refusal.to_string()),
            Ok(number) => {
                let values = self.keys.values_of(&keys);
                self.claims.hold(keys);
                GroupReply::Lent { number, values, has_room }
            }
        };
        self.answer_about_group(request, Ok(reply));
    }

    fn hear_return(&mut self, unit: Unit, loan: Option<Hlc>, part: (u64, bool, Vec<u8>), request: u64) {
        let outcome = match self.groups.follower.hear_return(&self.keys.groups, unit, loan, part) {
            OnReturn::Write(writes) => self.end_lend(unit, &writes),
            OnReturn::Has(bytes) => Ok(GroupReply::Has(bytes)),
            OnReturn::Nothing(waiting) => {
                if let Some(waiting) = waiting {
                    self.answer_about_group(waiting, Ok(GroupReply::Void));
                }
                Ok(GroupReply::Returned)
            }
        };
        self.answer_about_group(request, outcome);
    }

    /// Writes what a group has written of keys that were lent to it, and frees them.
    fn end_lend(&mut self, unit: Unit, writes: &[u8]) -> Result<GroupReply, HandleError> {
        if self.keys.ask_for_log(writes.len() + RETURN_BYTES).is_err() {
            return Err(HandleError::Frozen { retry_after_ms: OWNERLESS_PAUSE_MS });
        }
        let ended = self.keys.take_return(unit, writes).map_err(|error| error.to_string());
        let lend = ended.map_err(|reason| HandleError::Unavailable { reason, may_have_run: false })?;
        self.groups.follower.end(unit);
        self.claims.release(lend.keys.iter().map(|key| &**key));
        // Who is called hears of it before it gets the keys to look at them.
        self.serve_ready();
        self.resume();
        Ok(GroupReply::Returned)
    }

    /// Whoever knows says that nothing came of a group.
    pub(super) fn free_void(&mut self, unit: Unit, number: Hlc) {
        if self.groups.follower.hear_void(&self.keys.groups, unit, number) {
            // If the log has no space, it is asked again.
            let _ = self.end_lend(unit, &[]);
        }
    }

    /// Asks what became of groups that have had keys for long.
    pub(super) fn ask_for_fates(&mut self, now: u64) {
        for (unit, number) in self.groups.follower.due(&self.keys.groups, now) {
            let (group, node) = unit;
            if self.leads_for(node) {
                self.ask_about_group(Asked::Fate(unit, number), GroupRequest::Ask { group, node, number });
            }
        }
    }

    /// Tells those who wait for keys that a group has had for long that nothing was done.
    pub(super) fn end_long_waits(&mut self, now: u64) {
        let overdue: Vec<Unit> = self.groups.follower.overdue(now).collect();
        let lends = overdue.iter().filter_map(|unit| self.keys.groups.lends.get(unit));
        let keys: HashSet<&[u8]> = lends.flat_map(|lend| &lend.keys).map(|key| &**key).collect();
        if keys.is_empty() {
            return;
        }
        let given_up = self.claims.give_up(|key| keys.contains(key), Work::may_be_given_up);
        drop(keys);
        for work in given_up {
            self.give_up_work(work);
        }
        // What they waited for keeps nobody else.
        self.resume();
        self.serve_ready();
    }

    fn give_up_work(&mut self, work: Work) {
        let refusal = || {
            CommandError::text(
                "TRYAGAIN nothing was done: a transaction over several nodes has a key, and is not heard of",
            )
        };
        match work {
            Work::Task { from, to, .. } => {
                let mut replies = self.take_replies(from);
                replies.push(to, |reply| refusal().answer(reply));
                self.put_replies(from, replies);
            }
            Work::Program { from, to, program } => {
                let mut replies = self.take_replies(from);
                replies.push(to, |reply| refuse(&program, &refusal(), reply));
                self.put_replies(from, replies);
            }
            Work::Borrow { from, transaction, .. } => self.lend_nothing(from, transaction, refusal()),
            Work::Transaction(number) => self.hold_nothing(number, refusal()),
            Work::GroupLend { unit, .. } => {
                if let Some(request) = self.groups.follower.begin_lend(unit) {
                    let later = HandleError::Frozen { retry_after_ms: OWNERLESS_PAUSE_MS };
                    self.answer_about_group(request, Err(later));
                }
            }
            // Its group is given up in time.
            Work::GroupStop { .. } | Work::Freeze { .. } | Work::Join { .. } => {}
        }
    }

    /// Holds the keys that are lent, as the log says.
    pub(crate) fn hold_lent(&mut self) {
        let keys: Vec<Box<[u8]>> = self.keys.groups.lent_keys().map(Box::from).collect();
        self.claims.hold(keys);
    }

    /// What was lent of a virtual node that is not here any more is not held.
    pub(super) fn release_lent_of(&mut self, node: u16) {
        let gone = self.keys.groups.take(|other| other == node);
        for (unit, lend) in gone.lends {
            self.groups.follower.end(unit);
            self.claims.release(lend.keys.iter().map(|key| &**key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use savanna_epoch::OwnerEpoch;
    use savanna_lattice::UnixMillis;

    use super::*;
    use crate::actor::GroupLetter;
    use crate::cluster::owners::Owners;
    use crate::cluster::table::VIRTUAL_NODES;
    use crate::config::Config;
    use crate::group::GroupId;
    use crate::group::follower::WAITED_FOR;
    use crate::placement::{ActorId, Routes};
    use crate::reply::Tape;
    use crate::request::OwnedArgs;
    use crate::session::SessionId;

    static NOW: AtomicU64 = AtomicU64::new(0);

    fn at(actor: &mut Actor, ms: u64) -> Vec<String> {
        NOW.store(ms, Ordering::Relaxed);
        actor.tick(UnixMillis(1));
        actor.take_own_replies().iter().map(|(_, part)| part.to_tape().to_string()).collect()
    }

    fn ask(actor: &mut Actor, session: SessionId, request: &str) -> String {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let mut reply = Tape::new();
        actor.request(session, OwnedArgs::of_words(&words).args(), &mut reply);
        reply.to_string()
    }

    fn answer(actor: &mut Actor, request: GroupRequest) -> Result<GroupReply, HandleError> {
        let number = actor.serve_group(request);
        let answers = actor.take_group_letters().into_iter().find_map(|letter| match letter {
            GroupLetter::Answer { number: of, outcome } if of == number => Some(outcome),
            _ => None,
        });
        answers.expect("it is answered at once")
    }

    #[test]
    fn who_waits_for_a_key_whose_group_is_not_heard_of_is_told_that_nothing_was_done_and_the_key_is_lent_still() {
        let mut actor = Actor::new(ActorId(0), Routes::over(1), Config::default(), 1);
        actor.keep_time(|| Duration::from_millis(NOW.load(Ordering::Relaxed)), || Hlc::ZERO, UnixMillis(0));
        actor.join_nodes(false);
        actor.join_groups(true, 7);
        let mut owners = Owners::among(Vec::new());
        (0..VIRTUAL_NODES).for_each(|node| owners.set(node, Whose::Here, OwnerEpoch(1)));
        actor.hear_owners(&std::sync::Arc::new(owners));
        let [reader, writer, other] = [0; 3].map(|_| actor.open_session(String::new(), String::new()));
        let node = virtual_node_of(group_of(b"key"));
        let group = GroupId { node, life: 1, number: 1 };
        let keys: Vec<Box<[u8]>> = vec![b"key"[..].into()];
        let lend = GroupRequest::Lend { group, node, keys, needs_room: false };
        let Ok(GroupReply::Lent { number, .. }) = answer(&mut actor, lend) else { panic!("it is free") };
        assert_eq!(ask(&mut actor, reader, "GET key"), "");
        for request in ["MULTI", "SET key 1", "SET {key}2 1"] {
            ask(&mut actor, writer, request);
        }
        assert_eq!(ask(&mut actor, writer, "EXEC"), "");
        assert_eq!(at(&mut actor, 0), [""; 0]);
        assert_eq!(at(&mut actor, WAITED_FOR - 1), [""; 0]);
        let told = at(&mut actor, WAITED_FOR);
        assert_eq!(told.len(), 2);
        assert!(told.iter().any(|reply| reply.starts_with("!TRYAGAIN nothing was done")), "{told:?}");
        assert!(told.iter().any(|reply| reply.starts_with("!EXECABORT")), "{told:?}");
        assert!(actor.claims.holds(b"key"), "it is the group's, however long that takes");
        assert_eq!(ask(&mut actor, other, "SET {key}2 2"), "OK", "and nobody waits for what was given up");
        let number = Some(number);
        let ended = GroupRequest::Return { group, node, number, from: 0, is_last: true, writes: Vec::new() };
        assert_eq!(answer(&mut actor, ended), Ok(GroupReply::Returned));
        assert_eq!(ask(&mut actor, reader, "GET key"), "nil");
    }
}
