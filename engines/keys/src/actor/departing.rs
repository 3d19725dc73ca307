//! Virtual nodes that leave this node while they are used.
//!
//! ```text
//!  every actor                           the actor that has the keys
//!   begin: note what is appended
//!                                         write: the keys as they are, some per turn
//!   freeze: requests wait in their lane
//!   │ nothing of its own under way
//!   │ Quiet ─────────────────────────────►│ all are quiet, no key is held: at rest
//!   go: send them on, or stay: go on      │ go: the keys are dropped, and void in the log
//! ```
//!
//! What an actor has asked for before it is quiet comes before that word, so that at rest nothing is on its way to a key. Who waits for
//! keys looks for them from now on, wherever they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_ownership::KeyGroup;

use super::lanes::Owner;
use super::message::Message;
use super::transaction::keys_of;
use super::{Actor, DatabaseChange};
use crate::cluster::departure::Departure;
use crate::cluster::owners::{GROUPS, virtual_node_of};
use crate::error::{CommandError, Outcome};
use crate::keyspace::leaving::Unwritten;
use crate::placement::{ActorId, group_of};

/// About as much is written of a virtual node in one turn.
const WRITE_BYTES: usize = 256 << 10;

/// A virtual node that leaves, as an actor sees it.
#[derive(Debug)]
pub(super) struct Departing {
    departure: Arc<Departure>,
    /// Whether it was said that this actor notes what it appends.
    is_noted: bool,
    /// What is to be written, at the actor that has the keys.
    unwritten: Option<Unwritten>,
    /// Whether that was begun.
    is_begun: bool,
    is_frozen: bool,
    /// Whether this actor has said that nothing of its own is under way.
    is_quiet: bool,
    /// Who has said so.
    quiet: BTreeSet<ActorId>,
    is_at_rest: bool,
}

impl Actor {
    /// A virtual node is to leave: what is appended from now on is noted.
    pub fn begin_departure(&mut self, departure: Arc<Departure>) {
        self.departing.retain(|other| other.departure.node() != departure.node());
        self.keys.begin_noting(&departure);
        self.departing.push(Departing {
            departure,
            is_noted: false,
            unwritten: None,
            is_begun: false,
            is_frozen: false,
            is_quiet: false,
            quiet: BTreeSet::new(),
            is_at_rest: false,
        });
    }

    /// All actors note what they append: this one writes the keys as they are.
    pub fn write_departure(&mut self, node: u16) {
        if let Some(departing) = self.departing_of(node) {
            (departing.unwritten, departing.is_begun) = (Some(Unwritten::default()), true);
        }
    }

    /// Nobody begins anything with its keys any more.
    pub fn freeze_departure(&mut self, node: u16) {
        let Some(departing) = self.departing_of(node) else { return };
        departing.is_frozen = true;
        self.freeze_node(node);
        self.look_far_for(node);
    }

    /// A virtual node stays.
    pub fn end_departure(&mut self, node: u16) {
        self.keys.end_noting(node);
        self.thaw_node(node);
        self.departing.retain(|departing| departing.departure.node() != node);
    }

    /// A virtual node is another node's since an epoch: what waits for it goes there.
    pub fn complete_departure(&mut self, node: u16, to: NodeId, epoch: OwnerEpoch) {
        if self.owns_node(node) {
            self.keys.give_away(node);
            self.note_request();
        }
        self.learn_owner(node, Owner::Other(to), epoch);
        self.end_departure(node);
    }

    /// A virtual node is not this node's any more, as its record says, and did not go by this departure. The log says nothing of that: whoever
    /// has it may have to read its keys there.
    pub fn lose_departing(&mut self, node: u16, epoch: OwnerEpoch) {
        self.learn_owner(node, Owner::NotMyself, epoch);
        self.end_departure(node);
    }

    /// Hears that an actor has nothing under way to keys of a virtual node. What it has said of an earlier departure may come behind the beginning of
    /// this one, which it has not heard of.
    pub(super) fn hear_quiet(&mut self, from: ActorId, departure: &Arc<Departure>) {
        let node = departure.node();
        if let Some(departing) = self.departing_of(node).filter(|known| Arc::ptr_eq(&known.departure, departure)) {
            departing.quiet.insert(from);
        }
    }

    fn departing_of(&mut self, node: u16) -> Option<&mut Departing> {
        self.departing.iter_mut().find(|departing| departing.departure.node() == node)
    }

    /// Whether the keys of a virtual node are this actor's, as long as they are this node's.
    pub(super) fn owns_node(&self, node: u16) -> bool {
        owner_of_node(self, node) == Some(self.id)
    }

    /// The actor whose the keys of a virtual node are, as long as they are this node's.
    pub(super) fn actor_of_node(&self, node: u16) -> Option<ActorId> {
        owner_of_node(self, node)
    }

    /// Goes on with virtual nodes that leave. What was changed is not appended yet.
    pub fn go_on_departing(&mut self) {
        for place in 0..self.departing.len() {
            self.write_some_of(place);
            self.become_quiet(place);
        }
    }

    /// Whether there is something to do about virtual nodes that leave, though nobody says anything.
    #[must_use]
    pub fn is_departing(&self) -> bool {
        self.departing.iter().any(|departing| departing.unwritten.is_some())
    }

    fn write_some_of(&mut self, place: usize) {
        let departing = &mut self.departing[place];
        let departure = Arc::clone(&departing.departure);
        if !departing.is_begun || departing.is_at_rest {
            return;
        }
        // The log may have a flush already of which this actor has not heard: then the departure has failed.
        if let Some(left) = departing.unwritten
            && departure.takes_more()
        {
            departing.unwritten = self.keys.write_departing(&departure, left, WRITE_BYTES);
        }
        self.keys.gather_departing(departure.node());
        self.note_request();
    }

    /// Says so once nothing of this actor's own is under way to keys of a virtual node.
    fn become_quiet(&mut self, place: usize) {
        let Departing { departure, is_frozen, is_quiet, .. } = &self.departing[place];
        let node = departure.node();
        if !is_frozen || *is_quiet || self.has_under_way(node) {
            return;
        }
        let departure = Arc::clone(departure);
        self.departing[place].is_quiet = true;
        match owner_of_node(self, node) {
            Some(owner) if owner != self.id => self.send(owner, Message::Quiet { departure }),
            _ => self.hear_quiet(self.id, &departure),
        }
    }

    fn has_under_way(&self, node: u16) -> bool {
        let concerns = |key: &[u8]| virtual_node_of(group_of(key)) == node;
        let transactions = self.transactions.values();
        transactions.flat_map(|transaction| keys_of(transaction.program())).any(|key| concerns(&key))
            || self.claims.concern(concerns)
    }

    /// Tells how far virtual nodes that leave have come. All that was changed is appended, and noted.
    pub fn tell_departures(&mut self) {
        for place in 0..self.departing.len() {
            let Departing { departure, .. } = &self.departing[place];
            let departure = Arc::clone(departure);
            let is_at_rest = self.is_at_rest(place, departure.node());
            let departing = &mut self.departing[place];
            if !std::mem::replace(&mut departing.is_noted, true) {
                departure.note_noting();
            }
            if departing.is_begun && departing.unwritten.is_none() {
                departure.note_written();
            }
            if is_at_rest && !std::mem::replace(&mut departing.is_at_rest, true) {
                departure.note_at_rest();
            }
        }
    }

    fn is_at_rest(&mut self, place: usize, node: u16) -> bool {
        let Departing { quiet, is_begun, unwritten, is_frozen, .. } = &self.departing[place];
        let is_written = *is_begun && unwritten.is_none();
        *is_frozen
            && is_written
            && quiet.len() == usize::from(self.routes.actors())
            && !self.claims.holds_all()
            && !self.claims.concern(|key| virtual_node_of(group_of(key)) == node)
            && !self.groups_concern(node)
            && !self.has_changes()
            && self.keys.gather_departing(node)
            && !self.has_changes()
    }

    /// Whether keys are at rest that are about to be another node's: nothing is changed that nobody asks for.
    pub(super) fn gives_away(&self) -> bool {
        self.departing.iter().any(|departing| departing.is_at_rest)
    }

    /// What is at rest is in no flush, and not behind one either.
    ///
    /// # Errors
    /// If all keys are to be flushed while some are about to be another node's.
    pub(super) fn check_departures(&self, change: DatabaseChange) -> Outcome {
        let is_frozen = self.departing.iter().any(|departing| departing.is_frozen);
        match change {
            DatabaseChange::Flush(_) if is_frozen => Err(CommandError::text(
                "TRYAGAIN nothing was done here: some keys are on their way to another node at this moment",
            )),
            _ => Ok(()),
        }
    }
}

fn owner_of_node(actor: &Actor, node: u16) -> Option<ActorId> {
    node.checked_mul(GROUPS).and_then(|group| KeyGroup::new(group).ok()).map(|group| actor.routes.actor_of(group))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::departure::Stage;
    use crate::config::Config;
    use crate::placement::Routes;

    /// What an actor does at the end of a turn. Gives what it says to another one.
    fn turn(actor: &mut Actor, other: ActorId) -> Vec<Message> {
        actor.go_on_departing();
        actor.tell_departures();
        actor.take_outbox(other)
    }

    #[test]
    fn who_was_quiet_in_a_departure_that_was_given_up_is_heard_again_in_the_next() {
        let ids = [ActorId(0), ActorId(1)];
        let [mut owner, mut other] = ids.map(|id| Actor::new(id, Routes::over(2), Config::default(), 1));
        let of_owner = |node: &u16| owner_of_node(&owner, *node) == Some(ids[0]);
        let node = (0..).find(of_owner).expect("each has some");
        let [first, second] = [0; 2].map(|_| Arc::new(Departure::new(node, 2)));
        owner.begin_departure(Arc::clone(&first));
        other.begin_departure(Arc::clone(&first));
        owner.freeze_departure(node);
        other.freeze_departure(node);
        let said = turn(&mut other, ids[0]);
        assert!(matches!(said[..], [Message::Quiet { .. }]), "{said:?}");
        // The first is given up and the second begins, where they are heard of before what was said about the first.
        owner.end_departure(node);
        owner.begin_departure(Arc::clone(&second));
        said.into_iter().for_each(|message| owner.deliver(ids[1], message));
        other.end_departure(node);
        other.begin_departure(Arc::clone(&second));
        owner.write_departure(node);
        owner.freeze_departure(node);
        let is_at_rest = |owner: &mut Actor| {
            assert!(turn(owner, ids[1]).is_empty());
            second.wait(Stage::AtRest, Duration::ZERO)
        };
        for _ in 0..3 {
            assert_eq!(
                is_at_rest(&mut owner),
                Ok(false),
                "the other may have begun something of which it has not heard"
            );
        }
        other.freeze_departure(node);
        turn(&mut other, ids[0]).into_iter().for_each(|message| owner.deliver(ids[1], message));
        assert_eq!(is_at_rest(&mut owner), Ok(true));
    }
}
