//! The end of replication: what is kept until nobody can refer to it any more.

use savanna_lattice::UnixMillis;

use super::GIVEN_UP;
use crate::delta::Header;
use crate::keyspace::{Keyspace, log_whole};
use crate::placement::ActorId;

/// How long a key may be without a value, in milliseconds, until it has one replica again.
pub const ABSENCE: u64 = 60_000;

impl Keyspace {
    /// Gives up what nobody can refer to any more. `is_known` says of a message whether every actor has heard it, and this
    /// one has heard all that any of them said before it did.
    ///
    /// * The mark that this was a replica: nobody sends it anything any more.
    /// * The last of several replicas, with its deletions: all changes of the others have arrived, and the key becomes as
    ///   any other.
    pub(crate) fn reclaim(&mut self, is_known: &dyn Fn(ActorId, u64) -> bool) {
        for (told, (database, key)) in self.replicas.take_known(is_known) {
            let Some(replica) = self.replicas.get(database, &key) else { continue };
            if replica.leaving_since != Some(told) {
                continue;
            }
            // What was changed here last is told first.
            let owes = replica.unsent.is_some() && !self.replicas.is_first(&key);
            if replica.is_lent || owes {
                self.replicas.watch(told, database, &key);
            } else {
                self.leave(database, &key);
            }
        }
    }

    /// Whether anything is given up as soon as all know a message of this actor.
    pub(crate) fn awaits_all(&self, number: u64) -> bool {
        self.replicas.watches((self.replicas.id, number))
    }

    /// Notes whether the first replica of a key has a value.
    pub(super) fn note_presence(&mut self, database: u8, key: &[u8]) {
        if !self.replicas.is_first(key) {
            return;
        }
        let since = self.peek_in(database, key).is_none().then(|| self.now.max(self.clock.last().at()));
        let Some(replica) = self.replicas.get_mut(database, key).filter(|replica| !replica.is_lent) else { return };
        match (since, replica.absent_since) {
            (Some(since), None) => {
                replica.absent_since = Some(since);
                self.replicas.note_absent(since, database, key);
            }
            (None, Some(_)) => replica.absent_since = None,
            _ => {}
        }
    }

    /// Lets keys of this actor that have had no value for [`ABSENCE`] have one replica, so that nothing is left of them. Says
    /// when to come again.
    pub(crate) fn end_absent(&mut self, patience: usize) -> Option<UnixMillis> {
        for _ in 0..patience {
            let due = UnixMillis(self.replicas.absent_since()?.0 + ABSENCE);
            if self.now < due {
                return Some(due);
            }
            let (since, (database, key)) = self.replicas.take_absent()?;
            let Some(replica) = self.replicas.get_mut(database, &key) else { continue };
            if replica.absent_since != Some(since) {
                continue;
            }
            if replica.is_lent {
                replica.absent_since = Some(self.now);
                self.replicas.note_absent(self.now, database, &key);
                continue;
            }
            replica.absent_since = None;
            let selected = std::mem::replace(&mut self.selected, database);
            // One replica is refused to no key.
            let _ = self.replicate(&key, 1);
            self.selected = selected;
        }
        Some(self.now)
    }

    /// Forgets that a key has replicas, or had one here.
    pub(super) fn leave(&mut self, database: u8, key: &[u8]) {
        let is_first = self.is_first_replica(key);
        let Some(replica) = self.replicas.remove(database, key) else { return };
        if !is_first {
            return;
        }
        let (spot, version) = (self.spot_of(key), self.next_version());
        let header = Header { database, key, base: version, version };
        self.log.replicated(header, replica.vector.version, GIVEN_UP, replica.writer, &[]);
        match self.databases[usize::from(database)].as_mut().and_then(|all| all.find_mut(spot, key)) {
            Some(entry) => {
                entry.version = version;
                log_whole(&mut self.log, header, entry);
            }
            None => self.log.delete(header),
        }
        self.log.note_seen();
    }

    /// How many deletions of keys with replicas are remembered, and how many marks of replicas that were given up.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.replicas.iter().filter(|(_, _, replica)| replica.is_dead() || replica.leaving_since.is_some()).count()
    }
}
