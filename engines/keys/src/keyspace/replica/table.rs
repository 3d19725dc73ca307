//! Which keys have replicas here.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use savanna_lattice::{UnixMillis, WriterId};

use super::{Replica, Told};
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
    /// Those to be given up when all know a message.
    watched: BTreeMap<Told, Vec<Key>>,
    /// Those without a value, since when.
    absent: VecDeque<(UnixMillis, Key)>,
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
            watched: BTreeMap::new(),
            absent: VecDeque::new(),
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

    /// Notes that a replica is to be given up when all know a message.
    pub(super) fn watch(&mut self, told: Told, database: u8, key: &[u8]) {
        self.watched.entry(told).or_default().push((database, key.into()));
    }

    pub(super) fn watches(&self, told: Told) -> bool {
        self.watched.contains_key(&told)
    }

    /// Takes out those whose message all know.
    pub(super) fn take_known(&mut self, is_known: &dyn Fn(ActorId, u64) -> bool) -> Vec<(Told, Key)> {
        let known: Vec<Told> = self.watched.keys().copied().filter(|(from, number)| is_known(*from, *number)).collect();
        let keys = known.into_iter().filter_map(|told| Some((told, self.watched.remove(&told)?)));
        keys.flat_map(|(told, keys)| keys.into_iter().map(move |key| (told, key))).collect()
    }

    /// Notes that a key has no value since some time.
    pub(super) fn note_absent(&mut self, since: UnixMillis, database: u8, key: &[u8]) {
        self.absent.push_back((since, (database, key.into())));
    }

    /// Since when the first of those without a value has none.
    pub(super) fn absent_since(&self) -> Option<UnixMillis> {
        self.absent.front().map(|(since, _)| *since)
    }

    pub(super) fn take_absent(&mut self) -> Option<(UnixMillis, Key)> {
        self.absent.pop_front()
    }
}
