//! Swapping two databases at all actors, as one.
//!
//! The first actor does one swap after the other. It lets all actors hold all their keys, in the order of a transaction's
//! stops, so that nobody waits in a circle. When all do, nothing is under way to keys, and all changes before are in the log:
//!
//! ```text
//!  first actor             actor 1              actor 2
//!   │ hold all               │                    │
//!   │ Freeze ───────────────►│ hold all           │
//!   │◄─────────────── Frozen │                    │
//!   │ Freeze ────────────────────────────────────►│ hold all
//!   │◄──────────────────────────────────── Frozen │
//!   │ swap; one append       │                    │
//!   │ Thaw ─────────────────►│ swap, release      │
//!   │ Thaw ──────────────────────────────────────►│ swap, release
//! ```
//!
//! Whoever asks for a key meanwhile waits as for a lent one, so nobody sees one actor's keys before and another's after.

use savanna_lattice::Hlc;

use super::message::{Destination, Message};
use super::{Actor, FIRST, Progress, Work};
use crate::placement::ActorId;
use crate::reply::Reply;
use crate::session::Session;

/// A swap that is under way, at the first actor.
#[derive(Debug)]
pub(super) struct Swap {
    from: ActorId,
    to: Destination,
    databases: (u8, u8),
    /// How many actors hold all their keys.
    frozen: usize,
    has_replicas: bool,
}

impl Actor {
    /// Swaps two databases for one of this actor's sessions.
    pub(crate) fn swap(&mut self, session: &mut Session, databases: (u8, u8), reply: &mut dyn Reply) -> Progress {
        if self.placement.actors() == 1 {
            self.keys.swap(databases.0, databases.1);
            self.look_again(databases);
            reply.ok();
            return Progress::Answered;
        }
        let ticket = session.ticket();
        let to = Destination::Session(session.id, ticket);
        if self.id == FIRST {
            self.begin_swap(FIRST, to, databases);
        } else {
            self.send(FIRST, Message::Swap { to, databases });
        }
        Progress::LaterAlone(ticket)
    }

    pub(super) fn begin_swap(&mut self, from: ActorId, to: Destination, databases: (u8, u8)) {
        let number = self.number();
        self.swaps.insert(number, Swap { from, to, databases, frozen: 0, has_replicas: false });
        self.begin(Work::Freeze { from: FIRST, swap: number });
    }

    /// Holds all keys, of which nobody has any.
    pub(super) fn freeze(&mut self, from: ActorId, swap: u64) {
        self.claims.hold_all();
        let (latest, has_replicas) = (self.keys.latest_version(), self.keys.has_replicas());
        if from == self.id {
            self.hear_frozen(swap, latest, has_replicas);
        } else {
            self.send(from, Message::Frozen { swap, latest, has_replicas });
        }
    }

    pub(super) fn hear_frozen(&mut self, number: u64, latest: Hlc, has_replicas: bool) {
        self.keys.observe(latest);
        let Some(swap) = self.swaps.get_mut(&number) else { return };
        swap.frozen += 1;
        swap.has_replicas |= has_replicas;
        match self.placement.all().nth(swap.frozen) {
            Some(next) => self.send(next, Message::Freeze { swap: number }),
            None => self.end_swap(number),
        }
    }

    fn end_swap(&mut self, number: u64) {
        let Some(Swap { from, to, databases: (one, other), has_replicas, .. }) = self.swaps.remove(&number) else {
            return;
        };
        // What replicas tell each other on the way has the databases' numbers.
        let swapped = (!has_replicas).then(|| (one, other, self.keys.swap(one, other)));
        let others: Vec<ActorId> = self.placement.all().filter(|actor| *actor != FIRST).collect();
        others.into_iter().for_each(|actor| self.send(actor, Message::Thaw { swapped }));
        let mut replies = self.take_replies(from);
        replies.push(to, |reply| match swapped {
            Some(_) => reply.ok(),
            None => reply
                .error("ERR keys with replicas keep their database: give them one replica with SAV.REPLICATE first"),
        });
        self.put_replies(from, replies);
        self.thaw(swapped);
    }

    pub(super) fn hear_thaw(&mut self, swapped: Option<(u8, u8, Hlc)>) {
        if let Some((one, other, version)) = swapped {
            self.keys.hear_swap(one, other, version);
        }
        self.thaw(swapped);
    }

    fn thaw(&mut self, swapped: Option<(u8, u8, Hlc)>) {
        self.claims.release_all();
        if let Some((one, other, _)) = swapped {
            self.look_again((one, other));
        }
        self.resume();
    }

    /// Whether nothing may be changed that nobody asks for: keys that are held are in the log as they are.
    pub(super) const fn is_still(&self) -> bool {
        self.is_paused() || self.claims.holds_all()
    }
}
