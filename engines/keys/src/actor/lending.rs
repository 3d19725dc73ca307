//! Keys of this actor that groups of other actors and nodes borrow: what [`crate::group::follower`] decides is carried out here.
//!
//! What is lent stays where it is, and whoever asks for it waits as for keys of a transaction. It is in the log before the group hears of it, so that
//! whoever takes the virtual node out of the log knows that it is not free.

use savanna_lattice::Hlc;

use super::groups::Asked;
use super::{Actor, Work};
use crate::cluster::owners::{Whose, virtual_node_of};
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
