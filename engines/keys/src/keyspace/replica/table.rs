//! Which keys have replicas here.

use hashbrown::{HashMap, HashSet};
use savanna_lattice::WriterId;

use super::Replica;
use crate::keyspace::DATABASES;
use crate::placement::{ActorId, KeyHash, Placement};

type Table = HashMap<Box<[u8]>, Replica>;
type Key = (u8, Box<[u8]>);

/// The keys of an actor that have several replicas, by database.
#[derive(Debug)]
pub(in crate::keyspace) struct Replicas {
    tables: [Table; DATABASES as usize],
    count: usize,
    pub(super) id: ActorId,
    /// In whose name this actor writes.
    pub(super) writer: WriterId,
    placement: Placement,
    /// The largest name that was read back from the log.
    pub(super) last_writer: WriterId,
    /// Those that have something to tell.
    listed: Vec<Key>,
    /// Those with something to be given up when all know.
    watched: HashSet<Key>,
}

impl Replicas {
    pub(in crate::keyspace) fn new(placement: Placement) -> Self {
        Self {
            tables: std::array::from_fn(|_| Table::default()),
            count: 0,
            id: ActorId(0),
            writer: WriterId(1),
            placement,
            last_writer: WriterId(0),
            listed: Vec::new(),
            watched: HashSet::new(),
        }
    }

    /// Says which actor this is, and after which name its own ones begin.
    pub(in crate::keyspace) fn belong_to(&mut self, id: ActorId, last: WriterId) {
        self.id = id;
        self.writer = WriterId(last.0 + 1 + u32::from(id.0));
    }

    /// Takes a name that no actor had before.
    pub(super) fn renew_writer(&mut self) {
        self.writer = WriterId(self.writer.0 + u32::from(self.placement.actors()));
    }

    pub(in crate::keyspace) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the actor's replica of a key is the first, or the key has only one.
    pub(in crate::keyspace) fn is_first(&self, key: &[u8]) -> bool {
        self.count == 0 || self.placement.actor_of(KeyHash::of(key).group()) == self.id
    }

    pub(in crate::keyspace) fn get(&self, database: u8, key: &[u8]) -> Option<&Replica> {
        if self.count == 0 { None } else { self.tables[usize::from(database)].get(key) }
    }

    pub(super) fn get_mut(&mut self, database: u8, key: &[u8]) -> Option<&mut Replica> {
        if self.count == 0 { None } else { self.tables[usize::from(database)].get_mut(key) }
    }

    pub(super) fn insert(&mut self, database: u8, key: &[u8], replica: Replica) -> Option<Replica> {
        let before = self.tables[usize::from(database)].insert(key.into(), replica);
        self.count += usize::from(before.is_none());
        before
    }

    pub(super) fn remove(&mut self, database: u8, key: &[u8]) -> Option<Replica> {
        let removed = self.tables[usize::from(database)].remove(key);
        self.count -= usize::from(removed.is_some());
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &[u8], &Replica)> {
        (0..)
            .zip(&self.tables)
            .flat_map(|(number, table)| table.iter().map(move |(key, replica)| (number, &**key, replica)))
    }

    pub(in crate::keyspace) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(database, key, _)| (database, key.into())).collect()
    }

    /// Notes that a replica has something to tell.
    pub(super) fn list(&mut self, database: u8, key: &[u8]) {
        if let Some(replica) = self.tables[usize::from(database)].get_mut(key)
            && !std::mem::replace(&mut replica.is_listed, true)
        {
            self.listed.push((database, key.into()));
        }
    }

    pub(super) const fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    pub(super) fn take_listed(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.listed)
    }

    /// Notes that a replica has something to be given up when all know.
    pub(super) fn watch(&mut self, database: u8, key: &[u8]) {
        self.watched.insert((database, key.into()));
    }

    pub(super) fn take_watched(&mut self) -> HashSet<Key> {
        std::mem::take(&mut self.watched)
    }
}
