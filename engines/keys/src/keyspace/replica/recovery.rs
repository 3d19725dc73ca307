//! Replicas and the log: read back, and written once more.
//!
//! Each actor logs what it changed itself. Read back, all changes merge at the first replica, and the others get copies: so
//! they are equal from the beginning. Every actor takes a name that is not in the log, because changes that it made in an older one may be lost.

use savanna_lattice::{Hlc, Lattice as _, Max, Pair, Stamp, WriterId, decode};

use super::{GIVEN_UP, Replica, Standing, State, Vector, log_state};
use crate::delta::{Header, Malformed};
use crate::keyspace::Keyspace;
use crate::placement::{ActorId, group_of};

/// A key with its replicas, as it was read back.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    database: u8,
    key: Box<[u8]>,
    vector: Vector,
    state: Option<State>,
    version: Hlc,
}

impl Keyspace {
    /// Takes back a change of a key with replicas.
    pub(in crate::keyspace) fn replay_replicated(
        &mut self,
        header: Header<'_>,
        vector: Vector,
        writer: WriterId,
        state: &[u8],
    ) -> Result<(), Malformed> {
        let Header { database, key, version, .. } = header;
        self.replicas.last_writer = self.replicas.last_writer.max(writer);
        if self.replicas.get(database, key).is_none() {
            if self.peek_in(database, key).is_some_and(|entry| entry.version > version) {
                return Ok(()); // of replicas that were given up since
            }
            self.replicas.insert(database, key, Replica::new(vector, Standing::Serving, self.replicas.writer));
        }
        let Some(replica) = self.replicas.get_mut(database, key) else { return Ok(()) };
        replica.vector.merge(vector);
        if vector.value.0 == GIVEN_UP {
            self.replicas.remove(database, key);
        } else if !state.is_empty() {
            let delta = decode(state).map_err(|error| Malformed::new(error.to_string()))?;
            self.merge(database, key, delta, Some(version));
        }
        Ok(())
    }

    /// Takes back that all keys of a database were deleted: those with replicas end as each replica ended them.
    pub(in crate::keyspace) fn end_lives(&mut self, database: u8, version: Hlc) {
        let now = self.now;
        for (_, key) in self.replicas.keys().into_iter().filter(|(number, _)| *number == database) {
            let Some(replica) = self.replicas.get_mut(database, &key) else { continue };
            let ended = replica.deleted(Stamp::new(version, replica.writer), now);
            self.merge(database, &key, ended, Some(version));
        }
    }

    /// Which actor this is.
    pub(crate) fn actor(&self) -> ActorId {
        self.replicas.id
    }

    /// Says which actor this is. Names of writers begin after `last`.
    pub(crate) fn belong_to(&mut self, id: ActorId, last: WriterId) {
        self.replicas.belong_to(id, last);
    }

    /// The last name of a writer that was read back.
    pub(crate) const fn last_writer(&self) -> WriterId {
        self.replicas.last_writer
    }

    /// Keys of this actor with replicas, for the other actors.
    pub(crate) fn recovered(&mut self) -> Vec<Recovered> {
        let (mut recovered, own) = (Vec::new(), self.replicas.writer);
        for (database, key) in self.replicas.keys() {
            let version = self.peek_in(database, &key).map_or(Hlc::ZERO, |entry| entry.version);
            let Some(replica) = self.replicas.get_mut(database, &key) else { continue };
            if replica.vector.value.0 == 1 || self.routes.actors() == 1 {
                // All that the others changed is merged.
                self.leave(database, &key);
                continue;
            }
            replica.writer = own;
            let (vector, state) = (replica.vector, replica.state.clone());
            self.note_presence(database, &key);
            recovered.push(Recovered { database, key, vector, state, version });
        }
        recovered
    }

    /// Takes a copy of a key's state that another actor read back, if this actor has a replica.
    pub(crate) fn take_copy(&mut self, first: ActorId, recovered: &Recovered) {
        let Recovered { database, key, vector, state, version } = recovered;
        let holds = self.routes.holds(self.replicas.id, group_of(key), vector.value.0);
        if self.replicas.id == first || !holds {
            return;
        }
        let mut replica = Replica::new(*vector, Standing::Serving, self.replicas.writer);
        replica.state.clone_from(state);
        self.replicas.insert(*database, key, replica);
        self.show(*database, key, None, Some(*version));
        self.weigh(*database, key);
    }

    /// Writes the state of a replica here once more, if there is one.
    pub(in crate::keyspace) fn rewrite_replica(&mut self, database: u8, key: &[u8]) {
        let version = self.latest_version();
        // The last name that was given here: no other may be in a state that is read back.
        let writer = self.replicas.last_given();
        let Some(replica) = self.replicas.get(database, key).filter(|it| it.standing != Standing::GivenUp) else {
            return;
        };
        let header = Header { database, key, base: version, version };
        log_state(&mut self.log, header, replica.vector, writer, replica.state.as_ref());
    }
}

/// A vector as the log has it.
pub(in crate::keyspace) const fn vector(since: Hlc, copies: u16) -> Vector {
    Pair::new(since, Max(copies))
}
