//! A key with replicas in a transaction of another actor.
//!
//! The transaction borrows the first replica with its state and changes it *in its name*: while it is lent, nobody else
//! writes in this name, so numbers of changes do not repeat. An actor with a replica of its own puts that aside as
//! long. What was changed comes back with the loan and is told by the first replica.

use savanna_lattice::{Hlc, Lattice as _, WriterId};

use super::{Replica, Standing, State, Vector, log_state};
use crate::delta::Header;
use crate::keyspace::{Entry, Keyspace};

/// The first replica's state on its way.
#[derive(Debug)]
pub struct LentReplica {
    vector: Vector,
    state: Option<State>,
    /// In whose name it is changed.
    writer: WriterId,
    /// What the transaction changed.
    changed: Option<State>,
    /// The clock of who sent it.
    clock: Hlc,
}

/// An actor's own copy of a key that it has borrowed.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    entries: Vec<(u8, Box<Entry>)>,
    replicas: Vec<(u8, Box<[u8]>, Replica)>,
}

impl Keyspace {
    /// Lends the state of a key of this actor; its entry is lent by [`Keyspace::lend`].
    pub(crate) fn lend_replica(&mut self, database: u8, key: &[u8]) -> Option<LentReplica> {
        let clock = self.latest_version();
        let replica = self.replicas.get_mut(database, key)?;
        replica.is_lent = true;
        let (vector, writer) = (replica.vector, replica.writer);
        let lent = LentReplica { vector, state: replica.state.take(), writer, changed: None, clock };
        self.weigh(database, key);
        Some(lent)
    }

    /// Puts this actor's own copy of a key aside, to borrow the key.
    pub(crate) fn put_aside(&mut self, databases: impl Iterator<Item = u8>, key: &[u8]) -> Aside {
        let mut aside = Aside::default();
        for database in databases {
            aside.entries.extend(self.lend(database, key).map(|entry| (database, entry)));
            aside.replicas.extend(self.replicas.remove(database, key).map(|replica| (database, key.into(), replica)));
        }
        aside
    }

    /// Puts back what was put aside, but for what is of databases that were emptied meanwhile.
    pub(crate) fn put_back(&mut self, aside: Aside, was_emptied: impl Fn(u8) -> bool) {
        for (database, entry) in aside.entries {
            if !was_emptied(database) {
                self.adopt(database, entry);
            }
        }
        for (database, key, replica) in aside.replicas {
            self.replicas.insert(database, &key, replica);
            if was_emptied(database) {
                self.end_replica(database, &key);
            }
        }
        // Before another actor's replica of such a key is in its place again.
        self.translate_changes();
    }

    /// Takes in the state of a borrowed key.
    pub(crate) fn borrow_replica(&mut self, database: u8, key: &[u8], lent: LentReplica) {
        self.observe(lent.clock);
        let mut replica = Replica::new(lent.vector, Standing::Serving, lent.writer);
        replica.state = lent.state;
        replica.is_borrowed = true;
        self.replicas.insert(database, key, replica);
        self.log.enable(true);
    }

    /// Takes the state of a borrowed key out, to be given back.
    pub(crate) fn unborrow_replica(&mut self, database: u8, key: &[u8]) -> Option<LentReplica> {
        let replica = self.replicas.remove(database, key).filter(|replica| replica.is_borrowed)?;
        Some(LentReplica {
            vector: replica.vector,
            state: replica.state,
            writer: replica.writer,
            changed: replica.unsent,
            clock: self.latest_version(),
        })
    }

    /// Takes back the state of a key of this actor, after its entry.
    pub(crate) fn take_back_replica(&mut self, database: u8, key: &[u8], lent: LentReplica) {
        self.observe(lent.clock);
        let is_rewriting = self.is_rewriting();
        let version = self.latest_version();
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        replica.is_lent = false;
        let has_heard = replica.state.is_some();
        if lent.changed.is_some() {
            replica.unsent.merge(lent.changed);
        }
        replica.hear(lent.state);
        if is_rewriting {
            let header = Header { database, key, base: version, version };
            log_state(&mut self.log, header, replica.vector, lent.writer, replica.state.as_ref());
        }
        self.replicas.list(database, key);
        if has_heard {
            self.show(database, key, None, None);
        }
        self.note_presence(database, key);
        self.weigh(database, key);
    }
}
