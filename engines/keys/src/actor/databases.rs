//! Changing whole databases at all actors, as one: `SWAPDB`, `FLUSHDB`, `FLUSHALL`.
//!
//! The first actor does one change after the other. It lets all actors hold all their keys, in the order of a transaction's
//! stops, so that nobody waits in a circle. When all do, nothing is under way to keys, and all changes before are in the log:
//!
//! ```text
//!  first actor             actor 1              actor 2
//!   │ hold all               │                    │
//!   │ Freeze ───────────────►│ hold all           │
//!   │◄─────────────── Frozen │                    │
//!   │ Freeze ────────────────────────────────────►│ hold all
//!   │◄──────────────────────────────────── Frozen │
//!   │ change                 │                    │
//!   │ Thaw ─────────────────►│ change, release    │
//!   │ Thaw ──────────────────────────────────────►│ change, release
//! ```
//!
//! Whoever asks for a key meanwhile waits as for a lent one, so nobody sees one actor's keys before and another's after.
//! Each is one record of the log for all keys, which the first actor writes.

use savanna_lattice::Hlc;

use super::message::{Destination, Message};
use super::saving::SaveOrder;
use super::{Actor, FIRST, Progress, Work};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Database;
use crate::placement::ActorId;
use crate::reply::Reply;
use crate::session::Session;

/// What is to become of whole databases.
#[derive(Clone, Copy, Debug)]
pub enum DatabaseChange {
    /// Two are swapped.
    Swap(u8, u8),
    /// One is emptied, or all.
    Flush(Option<u8>),
    /// Nothing: all are saved as they are.
    Save(SaveOrder),
}

/// What has become of whole databases while all keys were held.
#[derive(Clone, Copy, Debug)]
pub enum Thawed {
    /// Nothing.
    Unchanged,
    /// Two were swapped, since this version.
    Swapped(u8, u8, Hlc),
    /// One was emptied, or all, at this version.
    Flushed(Option<u8>, Hlc),
    /// Nothing; from now on they are saved as they are.
    Saved(SaveOrder),
}

impl Thawed {
    /// Whether it emptied a database.
    pub(super) fn empties(self, number: u8) -> bool {
        matches!(self, Self::Flushed(database, _) if database.is_none_or(|database| database == number))
    }
}

/// A change that is under way, at the first actor.
#[derive(Debug)]
pub(super) struct Freeze {
    from: ActorId,
    to: Destination,
    change: DatabaseChange,
    /// How many actors hold all their keys.
    frozen: usize,
    /// Why it cannot be made, as one of them says.
    obstacle: Option<CommandError>,
}

impl Actor {
    /// Changes whole databases for one of this actor's sessions.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn change_databases(
        &mut self,
        session: &mut Session,
        change: DatabaseChange,
        reply: &mut dyn Reply,
    ) -> Result<Progress, CommandError> {
        if self.held.is_some() {
            return self.change_held(change, reply);
        }
        if self.changes_alone() {
            self.change_own_databases(change)?;
            reply.ok();
            return Ok(Progress::Answered);
        }
        let ticket = session.ticket();
        self.change_databases_for(Destination::Session(session.id, ticket), change);
        Ok(Progress::LaterAlone(ticket))
    }

    /// Changes whole databases for whoever hears what becomes of it.
    pub(super) fn change_databases_for(&mut self, to: Destination, change: DatabaseChange) {
        if self.changes_alone() {
            let changed = self.change_own_databases(change);
            self.replies.push(to, |reply| match &changed {
                Ok(()) => reply.ok(),
                Err(error) => error.answer(reply),
            });
        } else if self.id == FIRST {
            self.begin_freeze(FIRST, to, change);
        } else {
            self.send(FIRST, Message::ChangeDatabases { to, change });
        }
    }

    /// Whether whole databases can be changed at once: there is no other actor, and no group of keys at several nodes has any of the keys.
    fn changes_alone(&self) -> bool {
        self.routes.actors() == 1 && self.claims.is_free()
    }

    /// Changes whole databases, all of whose keys are this actor's.
    fn change_own_databases(&mut self, change: DatabaseChange) -> Outcome {
        self.may_change_databases(change)?;
        match change {
            DatabaseChange::Swap(one, other) => {
                self.keys.swap(one, other);
                self.look_again(|database| database == one || database == other);
            }
            DatabaseChange::Flush(flushed) => {
                self.flush(flushed);
                self.look_again(|database| flushed.is_none_or(|flushed| flushed == database));
            }
            DatabaseChange::Save(order) => self.begin_save(order),
        }
        Ok(())
    }

    /// Whether databases may be changed, as far as this actor's keys go.
    pub(super) fn may_change_databases(&mut self, change: DatabaseChange) -> Outcome {
        match change {
            // What replicas tell each other on the way has the databases' numbers.
            DatabaseChange::Swap(..) if self.keys.has_replicas() => Err(CommandError::text(
                "ERR keys with replicas cannot move to another database; set them to one replica with SAV.REPLICATE first",
            )),
            DatabaseChange::Swap(..) | DatabaseChange::Save(_) => Ok(()),
            DatabaseChange::Flush(database) => {
                self.check_departures(change)?;
                self.check_arrivals(change)?;
                self.keys.ask_for_flush(database)
            }
        }
    }

    pub(super) fn begin_freeze(&mut self, from: ActorId, to: Destination, change: DatabaseChange) {
        let number = self.number();
        self.freezes.insert(number, Freeze { from, to, change, frozen: 0, obstacle: None });
        self.begin(Work::Freeze { from: FIRST, number, change });
    }

    /// Holds all keys, of which nobody has any.
    pub(super) fn freeze(&mut self, from: ActorId, number: u64, change: DatabaseChange) {
        self.claims.hold_all();
        if from != self.id {
            self.put_gossip_off();
        }
        let (latest, obstacle) = (self.keys.latest_version(), self.may_change_databases(change).err());
        if from == self.id {
            self.hear_frozen(number, latest, obstacle);
        } else {
            self.send(from, Message::Frozen { number, latest, obstacle });
        }
    }

    pub(super) fn hear_frozen(&mut self, number: u64, latest: Hlc, obstacle: Option<CommandError>) {
        self.keys.observe(latest);
        let Some(freeze) = self.freezes.get_mut(&number) else { return };
        freeze.frozen += 1;
        freeze.obstacle = freeze.obstacle.take().or(obstacle);
        let change = freeze.change;
        match self.routes.all().nth(freeze.frozen) {
            Some(next) => self.send(next, Message::Freeze { number, change }),
            None => self.end_freeze(number),
        }
    }

    fn end_freeze(&mut self, number: u64) {
        let Some(Freeze { from, to, change, obstacle, .. }) = self.freezes.remove(&number) else { return };
        let thawed = match change {
            _ if obstacle.is_some() => Thawed::Unchanged,
            DatabaseChange::Swap(one, other) => Thawed::Swapped(one, other, self.keys.swap(one, other)),
            DatabaseChange::Flush(database) => Thawed::Flushed(database, self.flush(database)),
            DatabaseChange::Save(order) => Thawed::Saved(order),
        };
        for actor in self.routes.all().filter(|actor| *actor != FIRST) {
            self.send(actor, Message::Thaw { thawed });
        }
        // A save is acknowledged when the file is there.
        if !matches!(thawed, Thawed::Saved(_)) {
            let mut replies = self.take_replies(from);
            replies.push(to, |reply| match &obstacle {
                Some(obstacle) => obstacle.answer(reply),
                None => reply.ok(),
            });
            self.put_replies(from, replies);
        }
        self.thaw(thawed);
    }

    pub(super) fn hear_thaw(&mut self, thawed: Thawed) {
        self.hear_change(thawed);
        self.thaw(thawed);
    }

    pub(super) fn thaw(&mut self, thawed: Thawed) {
        if let Thawed::Saved(order) = thawed {
            self.begin_save(order);
        }
        self.release_all();
        self.look_after(thawed);
        self.resume();
    }

    /// Gives all keys up, behind what was done to whole databases.
    pub(super) fn release_all(&mut self) {
        self.claims.release_all();
        self.hear_gossip_put_off();
    }

    /// Does to whole databases what another actor did.
    pub(super) fn hear_change(&mut self, change: Thawed) {
        match change {
            Thawed::Swapped(one, other, version) => self.keys.hear_swap(one, other, version),
            Thawed::Flushed(database, version) => {
                self.hear_gossip_before(version);
                let flushed = self.keys.hear_flush(database, version);
                self.flush_arrivals();
                self.drop_later(flushed);
            }
            Thawed::Unchanged | Thawed::Saved(_) => {}
        }
    }

    /// Has those look who wait for keys of databases that were emptied or swapped.
    pub(super) fn look_after(&mut self, change: Thawed) {
        match change {
            Thawed::Swapped(one, other, _) => self.look_again(|database| database == one || database == other),
            Thawed::Flushed(flushed, _) => {
                self.look_again(|database| flushed.is_none_or(|flushed| flushed == database));
            }
            Thawed::Unchanged | Thawed::Saved(_) => {}
        }
    }

    /// Deletes all keys of a database, or of all. Gives the version of that, for the other actors.
    pub(super) fn flush(&mut self, database: Option<u8>) -> Hlc {
        let (version, flushed) = self.keys.flush(database);
        self.flush_arrivals();
        self.drop_later(flushed);
        version
    }

    /// Drops databases, elsewhere if they have many keys.
    #[expect(clippy::vec_box, reason = "they are in boxes where they come from")]
    pub(super) fn drop_later(&mut self, flushed: Vec<Box<Database>>) {
        /// Giving the memory of more keys back takes longer than a turn may.
        const FEW: usize = 10_000;
        if flushed.iter().map(|database| database.key_count()).sum::<usize>() > FEW {
            self.dropping.push(std::thread::spawn(move || drop(flushed)));
        }
    }

    /// Whether the memory of what was flushed is still being given back.
    pub fn is_dropping(&mut self) -> bool {
        self.dropping.retain(|thread| !thread.is_finished());
        !self.dropping.is_empty()
    }

    /// Whether nothing may be changed that nobody asks for: keys that are held are in the log as they are, and so are those that are about to be another
    /// node's.
    pub(crate) fn is_still(&self) -> bool {
        self.is_paused() || self.claims.holds_all() || self.gives_away()
    }
}
