//! Which keys have replicas here.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;
use savanna_lattice::{UnixMillis, WriterId};

use super::{Replica, Told, Vector};
use crate::keyspace::TABLES;
use crate::placement::{ActorId, Routes, group_of};

type Table = IndexMap<Box<[u8]>, Replica, DefaultHashBuilder>;
type Key = (u8, Box<[u8]>);

/// The keys of an actor that have several replicas, by database.
#[derive(Debug)]
pub(in crate::keyspace) struct Replicas {
    tables: [Table; TABLES as usize],
    count: usize,
    /// Whose turn it is to be looked at: a table and a place in it.
    hand: (usize, usize),
    /// About how many bytes they take besides their ordinary values.
    bytes: usize,
    pub(in crate::keyspace) id: ActorId,
    /// In whose name this actor writes to first replicas.
    pub(super) writer: WriterId,
    /// The last name that it took.
    given: WriterId,
    routes: Routes,
    /// The largest name that was read back from the log.
    pub(super) last_writer: WriterId,
    /// Those that have something to tell.
    listed: Vec<Key>,
    /// Those that have just heard all from the first replica.
    arrivals: Vec<(u8, Box<[u8]>, Vector)>,
    /// How many questions the first replicas of keys were asked.
    asked: u64,
    /// Those to be given up when all know a message.
    watched: BTreeMap<Told, Vec<Key>>,
    /// Those without a value, since when.
    absent: VecDeque<(UnixMillis, Key)>,
}

/// About how many bytes a replica takes in the table, with its states.
const fn byte_count(key: &[u8], replica: &Replica) -> usize {
    size_of::<(Box<[u8]>, Replica)>() + key.len() + replica.bytes
}

impl Replicas {
    pub(in crate::keyspace) fn new(routes: Routes) -> Self {
        Self {
            tables: std::array::from_fn(|_| Table::default()),
            count: 0,
            hand: (0, 0),
            bytes: 0,
            id: ActorId(0),
            writer: WriterId(1),
            given: WriterId(1),
            routes,
            last_writer: WriterId(0),
            listed: Vec::new(),
            arrivals: Vec::new(),
            asked: 0,
            watched: BTreeMap::new(),
            absent: VecDeque::new(),
        }
    }

    /// Says which actor this is, and after which name its own ones begin.
    pub(in crate::keyspace) fn belong_to(&mut self, id: ActorId, last: WriterId) {
        self.id = id;
        self.writer = WriterId(last.0 + 1 + u32::from(id.0));
        self.given = self.writer;
    }

    /// A name that no actor had before: what is written to a replica that was dropped and came again must not be taken
    /// for what was written before, of which nothing is known here.
    pub(super) fn fresh_writer(&mut self) -> WriterId {
        self.given = WriterId(self.given.0 + u32::from(self.routes.actors()));
        self.given
    }

    /// The last name that this actor took.
    pub(super) const fn last_given(&self) -> WriterId {
        self.given
    }

    pub(in crate::keyspace) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the actor's replica of a key is the first, or the key has only one.
    pub(in crate::keyspace) fn is_first(&self, key: &[u8]) -> bool {
        self.count == 0 || self.routes.actor_of(group_of(key)) == self.id
    }

    pub(in crate::keyspace) fn get(&self, database: u8, key: &[u8]) -> Option<&Replica> {
        if self.count == 0 { None } else { self.tables[usize::from(database)].get(key) }
    }

    pub(super) fn get_mut(&mut self, database: u8, key: &[u8]) -> Option<&mut Replica> {
        if self.count == 0 { None } else { self.tables[usize::from(database)].get_mut(key) }
    }

    pub(super) fn insert(&mut self, database: u8, key: &[u8], replica: Replica) -> Option<Replica> {
        let before = self.remove(database, key);
        self.count += 1;
        self.bytes += byte_count(key, &replica);
        self.tables[usize::from(database)].insert(key.into(), replica);
        before
    }

    pub(super) fn remove(&mut self, database: u8, key: &[u8]) -> Option<Replica> {
        let removed = self.tables[usize::from(database)].swap_remove(key)?;
        self.count -= 1;
        self.bytes -= byte_count(key, &removed);
        Some(removed)
    }

    /// Forgets that a key has replicas, whoever has not heard something.
    pub(in crate::keyspace) fn forget(&mut self, database: u8, key: &[u8]) {
        self.remove(database, key);
    }

    pub(in crate::keyspace) const fn len(&self) -> usize {
        self.count
    }

    /// The place whose turn it is, each in turn. There must be any.
    pub(in crate::keyspace) fn next_turn(&mut self) -> (usize, usize) {
        while self.hand.1 >= self.tables[self.hand.0].len() {
            self.hand = ((self.hand.0 + 1) % self.tables.len(), 0);
        }
        let place = self.hand;
        self.hand.1 += 1;
        place
    }

    /// The copy of another actor's key at a place, if there is one that can be given up.
    pub(in crate::keyspace) fn copy_at(&self, (table, index): (usize, usize)) -> Option<(u8, &[u8])> {
        let (key, replica) = self.tables[table].get_index(index)?;
        (replica.may_be_given_up() && !self.is_first(key)).then_some((table as u8, key))
    }

    /// About how many bytes all take besides their ordinary values.
    pub(in crate::keyspace) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// About how many bytes a key's replica takes besides its ordinary value.
    pub(in crate::keyspace) fn bytes_of(&self, database: u8, key: &[u8]) -> usize {
        self.get(database, key).map_or(0, |replica| byte_count(key, replica))
    }

    /// Hears how many bytes the states of a replica take now.
    pub(super) fn note_size(&mut self, database: u8, key: &[u8], bytes: usize) {
        if let Some(replica) = self.tables[usize::from(database)].get_mut(key) {
            let before = std::mem::replace(&mut replica.bytes, bytes);
            self.bytes = self.bytes + bytes - before;
        }
    }

    pub(in crate::keyspace) fn iter(&self) -> impl Iterator<Item = (u8, &[u8], &Replica)> {
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

    /// Notes that a replica has heard all from the first one.
    pub(super) fn note_arrival(&mut self, database: u8, key: &[u8], vector: Vector) {
        self.arrivals.push((database, key.into(), vector));
    }

    pub(super) fn take_arrivals(&mut self) -> Vec<(u8, Box<[u8]>, Vector)> {
        std::mem::take(&mut self.arrivals)
    }

    /// How many questions were asked.
    pub(super) const fn asked(&self) -> u64 {
        self.asked
    }

    /// Counts one more, and gives its number.
    pub(super) const fn next_question(&mut self) -> u64 {
        self.asked += 1;
        self.asked
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
