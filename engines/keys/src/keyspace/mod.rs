//! An actor's private state: its databases, its clock, and the log of what it changes.
//!
//! Every change goes through a function of [`Keyspace`] or a method of [`Change`], which change the value and write the
//! delta in one step, so that neither can be forgotten. Keys whose time has come are gone for whoever looks.

pub mod adoption;
mod content;
mod database;
mod databases;
pub mod encodings;
pub mod entry;
pub mod events;
mod eviction;
mod expiry;
mod grouped;
pub(crate) mod leaving;
mod libraries;
pub mod payload;
mod registers;
mod replay;
pub mod replica;
mod rewrite;
mod saving;
mod scan;
mod spot;
mod types;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use savanna_lattice::{Hlc, HlcClock, UnixMillis};

pub(crate) use self::databases::View;
use self::encodings::EncodingLimits;
use self::events::{EventClasses, Events};
pub(crate) use self::libraries::is_of_library;
use self::replica::Replicas;
pub use self::saving::Saved;
pub use self::{
    content::log_whole,
    database::Database,
    entry::{Counting, Entry, PastUse, Use, Value},
    spot::{NEAR_MAX, Spot},
    types::{
        BlockLimits, Collection, End, Hash, Kept, List, Score, ScoreRange, Set, SortedSet, Stream, StreamEntry,
        StreamGroup, StreamId, StreamOperation, Trim,
    },
};
use crate::cluster::departure::Departure;
use crate::cluster::owners::Owners;
use crate::delta::{DeltaLog, Header, OpWriter, STRING_TAG};
use crate::error::{CommandError, Outcome};
use crate::group::Records;
use crate::log::LogSpace;
use crate::memory;
use crate::placement::Routes;
use crate::random::Random;

/// How many databases there are, as in Redis' default.
pub const DATABASES: u8 = 16;

/// The table behind those of the databases: libraries of functions by name. No client selects it.
const LIBRARIES: u8 = DATABASES;

/// How many tables of keys there are.
const TABLES: u8 = LIBRARIES + 1;

/// The longest string, as in Redis.
pub const STRING_BYTES_MAX: usize = 512 << 20;

/// How far an actor's clock may be led ahead of the wall clock by what it hears. Actors of one process share a wall
/// clock, so only a clock that was set back lets them differ.
const DRIFT_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// Keys deleted lately are told apart by WATCH in this many classes.
const DELETION_CLASSES: usize = 1024;

/// What the keyspace counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Keys that were looked up and found.
    pub hits: u64,
    /// Keys that were looked up and not found.
    pub misses: u64,
    /// Keys whose time came.
    pub expired: u64,
    /// Fields of hashes whose time came.
    pub expired_fields: u64,
    /// Keys that were deleted because memory was full.
    pub evicted: u64,
    /// Copies of other actors' keys that were given up because memory was full.
    pub given_up: u64,
    /// Changes.
    pub changes: u64,
}

/// A table for each database, and one for libraries.
type Tables = [Option<Box<Database>>; TABLES as usize];

/// The keys of one actor.
#[derive(Debug)]
pub struct Keyspace {
    databases: Tables,
    /// What spots in databases' tables depend on.
    table_seed: u64,
    near: spot::Near,
    /// The database of the present command.
    selected: u8,
    now: UnixMillis,
    /// What time it is at this instant, finer than [`Keyspace::now`].
    pub instant: fn() -> Hlc,
    /// Which node has which virtual node, where keys are spread: a walk ends where others have what follows.
    pub(crate) owners: Option<Arc<Owners>>,
    clock: HlcClock,
    /// The latest deletion in each class of keys: the version of a key that is not there.
    deleted: Box<[Hlc]>,
    /// When each database was swapped with another one the last time.
    swapped: [Hlc; DATABASES as usize],
    /// Deltas for the log.
    pub log: DeltaLog,
    /// Space in the log for what changes next.
    pub log_space: LogSpace,
    /// What was counted.
    pub counters: Counters,
    /// Chance, for commands that want some.
    pub random: Random,
    /// Keys that got elements; somebody may wait for them.
    pub ready: Vec<Arrival>,
    /// What became of keys, if anybody wants to hear of it.
    pub events: Events,
    /// Up to which size values are told to be in Redis' small forms.
    pub encodings: EncodingLimits,
    /// Whether anybody waits for keys, so that `ready` is worth filling.
    pub is_awaited: bool,
    /// Whether keys of other actors are here, for which somebody may wait there.
    pub has_borrowed: bool,
    /// Whether a script runs.
    pub is_in_script: bool,
    /// Where the log is being rewritten.
    rewriting: Option<rewrite::Place>,
    /// Whether what first replicas hear is logged.
    logs_heard: bool,
    /// How uses of keys are counted, if they are.
    counts_uses: Option<(u32, u8)>,
    /// All keys of one moment, while they are being written.
    saving: Option<Box<saving::Saving>>,
    /// The virtual nodes that leave.
    departures: Vec<Arc<Departure>>,
    /// What the log says of groups of keys at several nodes.
    pub(crate) groups: Records,
    routes: Routes,
    /// Keys that have replicas at other actors, too.
    replicas: Replicas,
}

/// A key that got something.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The database's number.
    pub database: u8,
    /// The key.
    pub key: Box<[u8]>,
    /// Its place among what one transaction brought to keys of several actors; `None` for what came alone.
    pub place: Option<Hlc>,
}

impl Arrival {
    /// Of a key to which something came alone, or which is to be looked at.
    #[must_use]
    pub const fn alone(database: u8, key: Box<[u8]>) -> Self {
        Self { database, key, place: None }
    }
}

/// What happens to a key's expiry when its value is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Keep,
    /// From now on it is this; [`UnixMillis::NEVER`] for none.
    At(UnixMillis),
}

impl Keyspace {
    /// An empty keyspace of an actor among `routes.actors()`, with a seed for chance.
    #[must_use]
    pub fn new(routes: Routes, seed: u64) -> Self {
        /// So that what is left to chance does not tell the other seed.
        const OF_TABLES: u64 = 0x7461_626c_6573_0000;
        let table_seed = Random::new(seed ^ OF_TABLES).next();
        Self {
            databases: [const { None }; TABLES as usize],
            table_seed,
            near: spot::Near::default(),
            selected: 0,
            now: UnixMillis(0),
            instant: || Hlc::ZERO,
            owners: None,
            clock: HlcClock::new(DRIFT_MAX),
            deleted: vec![Hlc::ZERO; DELETION_CLASSES].into(),
            swapped: [Hlc::ZERO; DATABASES as usize],
            log: DeltaLog::new(),
            log_space: LogSpace::default(),
            counters: Counters::default(),
            random: Random::new(seed),
            ready: Vec::new(),
            events: Events::default(),
            encodings: EncodingLimits::default(),
            is_awaited: false,
            has_borrowed: false,
            is_in_script: false,
            rewriting: None,
            logs_heard: false,
            counts_uses: None,
            saving: None,
            departures: Vec::new(),
            groups: Records::default(),
            replicas: Replicas::new(routes.clone()),
            routes,
        }
    }

    /// The time, as the loop read it last.
    #[must_use]
    pub const fn now(&self) -> UnixMillis {
        self.now
    }

    /// A use of a key now.
    pub(crate) fn use_now(&mut self) -> Use {
        let counting = self.counts_uses.map(|(log_factor, decay_minutes)| Counting {
            chance: self.random.next() as u32,
            log_factor,
            decay_minutes,
        });
        Use { now: self.now, counting }
    }

    /// Says whether uses of keys are counted, and how: how much rarer with each, and the minutes that take one away.
    pub const fn count_uses(&mut self, counts: Option<(u32, u8)>) {
        self.counts_uses = counts;
    }

    /// How often a key was used, where that is counted; see [`Entry::use_count`].
    #[must_use]
    pub fn use_count(&self, entry: &Entry) -> Option<u8> {
        self.counts_uses.map(|(_, decay_minutes)| entry.use_count(self.now, decay_minutes))
    }

    /// Says how a key was used before; what is not noted of keys has no effect.
    pub fn set_use(&mut self, key: &[u8], used: PastUse) {
        let (now, counts) = (self.now, self.counts_uses.is_some());
        let spot = self.spot_of(key);
        let Some(entry) = self.database_mut().and_then(|all| all.find_mut(spot, key)) else { return };
        match used {
            PastUse::Count(count) if counts => entry.set_use_count(now, count),
            PastUse::Idle(seconds) if !counts => entry.set_idle_seconds(now, seconds),
            PastUse::Count(_) | PastUse::Idle(_) => {}
        }
    }

    /// Hears what time it is.
    pub const fn set_now(&mut self, now: UnixMillis) {
        self.now = now;
    }

    /// The database that the next functions are about.
    #[must_use]
    pub const fn selected(&self) -> u8 {
        self.selected
    }

    /// Chooses the database that the next functions are about, below [`DATABASES`].
    pub const fn select(&mut self, database: u8) {
        self.selected = database % DATABASES;
    }

    /// How the keys are spread over actors.
    #[must_use]
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The selected database, if it ever held a key.
    #[must_use]
    pub fn database(&self) -> Option<&Database> {
        self.databases[usize::from(self.selected)].as_deref()
    }

    fn database_mut(&mut self) -> Option<&mut Database> {
        self.databases[usize::from(self.selected)].as_deref_mut()
    }

    /// All databases that ever held a key, with their numbers.
    pub fn databases(&self) -> impl Iterator<Item = (u8, &Database)> {
        (0..DATABASES).zip(&self.databases).filter_map(|(number, database)| Some((number, database.as_deref()?)))
    }

    /// The key groups of this actor.
    fn own_groups(&self) -> Range<u16> {
        self.routes.groups_of(self.replicas.id)
    }

    /// How many keys of this actor the selected database has.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.count_keys(self.selected).0
    }

    /// How many keys of this actor a database has, and how many of them expire some time.
    #[must_use]
    pub fn count_keys(&self, database: u8) -> (usize, usize) {
        let counted = self.databases[usize::from(database)].as_ref();
        let counted = counted.map_or((0, 0), |database| (database.key_count(), database.expiring()));
        self.copies_in(database).fold(counted, |(keys, expiring), copy| {
            (keys - 1, expiring - usize::from(copy.expires_at() != UnixMillis::NEVER))
        })
    }

    /// About how many bytes all keys here take, copies of other actors' keys and what replicas merge included.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.databases().map(|(_, database)| database.bytes()).sum::<usize>() + self.replicas.bytes()
    }

    /// About how many bytes a key takes, if it is there.
    #[must_use]
    pub fn bytes_of(&self, key: &[u8]) -> Option<usize> {
        let entry = self.peek(key)?;
        Some(entry.byte_count() + self.replicas.bytes_of(self.selected, key))
    }

    /// Asks for memory for what is made of the values of keys, each counted as often as it is named.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask_for_memory_of<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Outcome {
        let sizes = keys.filter_map(|key| self.peek(key)).map(Entry::whole_bytes);
        memory::ask_for_value(sizes.fold(0, usize::saturating_add))
    }

    /// Asks for space in the log for a change of so many bytes, and for memory until it is there.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask_for_log(&mut self, bytes: usize) -> Outcome {
        match self.log.moves(bytes) {
            0 => {}
            moved => memory::ask_for_change(bytes, moved)?,
        }
        self.log_space.ask(self.log.bytes().len() + bytes)
    }

    /// Asks for space in the log for what is made of the values of keys.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask_for_log_of<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> Outcome {
        let sizes = keys.filter_map(|key| self.peek(key)).map(Entry::whole_bytes);
        let bytes = sizes.fold(0, usize::saturating_add);
        self.ask_for_log(bytes)
    }

    /// Asks for space in the log for what is made of the values of those keys that have replicas. Others are not looked through.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask_for_log_of_replicas<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> Outcome {
        let replicated = keys.filter(|key| self.replicas.get(self.selected, key).is_some());
        let sizes = replicated.filter_map(|key| self.peek(key)).map(Entry::whole_bytes);
        let bytes = sizes.fold(0, usize::saturating_add);
        self.ask_for_log(bytes)
    }

    /// Asks for space in the log for naming so many elements of a collection.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask_for_log_of_elements(&mut self, key: &[u8], count: usize) -> Outcome {
        let Some(entry) = self.peek(key) else { return Ok(()) };
        let elements = entry.value.element_count().max(1);
        let each = entry.byte_count() / elements;
        self.ask_for_log(each.saturating_mul(count.min(elements)))
    }

    /// A key's entry, for those who want to know about it without using it.
    #[must_use]
    pub fn peek(&self, key: &[u8]) -> Option<&Entry> {
        self.database()?.find(self.spot_of(key), key).filter(|entry| !entry.has_expired(self.now))
    }

    /// A key's entry in a database, expired or not.
    fn peek_in(&self, database: u8, key: &[u8]) -> Option<&Entry> {
        self.databases[usize::from(database)].as_ref()?.find(self.spot_of(key), key)
    }

    /// Whether a key is there.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.peek(key).is_some()
    }

    /// The version of a key for WATCH: that of its last change, or of the last deletion of a key of its class.
    #[must_use]
    pub fn version(&self, key: &[u8]) -> Hlc {
        match self.peek(key) {
            Some(entry) => entry.version.max(self.swapped_at(self.selected)),
            None => self.deletion_version(key),
        }
    }

    /// A key's value, for those who read it. Counts a hit or a miss.
    pub fn get(&mut self, key: &[u8]) -> Option<&Value> {
        let spot = self.spot_of(key);
        let now = self.now;
        let used = self.use_now();
        let found = self.databases[usize::from(self.selected)].as_mut().and_then(|d| d.find_mut(spot, key));
        match found {
            Some(entry) if !entry.has_expired(now) => {
                self.counters.hits += 1;
                entry.touch(used);
                Some(&entry.value)
            }
            _ => {
                self.counters.misses += 1;
                self.events.note(EventClasses::MISS, "keymiss", self.selected, key);
                None
            }
        }
    }

    /// A key's entry, for those who tell whether or how it is there without using it. Counts a hit or a miss.
    pub fn look(&mut self, key: &[u8]) -> Option<&Entry> {
        if self.contains(key) {
            self.counters.hits += 1;
        } else {
            self.counters.misses += 1;
            self.note_event(EventClasses::MISS, "keymiss", key);
        }
        self.peek(key)
    }

    /// A string's bytes, for those who are about to change it.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    pub fn peek_string(&self, key: &[u8]) -> Result<Option<&[u8]>, CommandError> {
        self.peek(key).map(|entry| entry.value.as_string().ok_or(CommandError::WrongType)).transpose()
    }

    /// A collection, for those who are about to change it.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    pub fn peek_collection<T: Collection>(&self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        self.peek(key).map(|entry| T::of(&entry.value).ok_or(CommandError::WrongType)).transpose()
    }

    /// A string's bytes.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    pub fn string(&mut self, key: &[u8]) -> Result<Option<&[u8]>, CommandError> {
        self.get(key).map(|value| value.as_string().ok_or(CommandError::WrongType)).transpose()
    }

    /// A collection.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    pub fn collection<T: Collection>(&mut self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        self.get(key).map(|value| T::of(value).ok_or(CommandError::WrongType)).transpose()
    }

    /// Writes a string, whatever was there.
    pub fn set_string(&mut self, key: &[u8], bytes: &[u8], expiry: Expiry) {
        let spot = self.spot_of(key);
        if self.events.are_wanted() {
            self.note_arrival(spot, key);
        }
        self.keep(self.selected, key);
        let version = self.next_version();
        let now = self.now;
        let used = self.use_now();
        self.counters.changes += 1;
        let mut was_stream = false;
        let database =
            self.databases[usize::from(self.selected)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let (base, before, after) = match database.find_mut(spot, key) {
            Some(entry) => {
                let before = entry.expires_at();
                let after = match expiry {
                    Expiry::Keep if !entry.has_expired(now) => before,
                    Expiry::Keep => UnixMillis::NEVER,
                    Expiry::At(at) => at,
                };
                let size_before = entry.value.heap_bytes();
                let fields_before = entry.value.first_field_expiry();
                match &mut entry.value {
                    Value::String(mine) => mine.assign(bytes),
                    other => {
                        was_stream = matches!(other, Value::Stream(_));
                        *other = Value::String(bytes.into());
                    }
                }
                let size_after = entry.value.heap_bytes();
                let base = std::mem::replace(&mut entry.version, version);
                entry.expire_at(after);
                entry.touch(used);
                database.note_size(size_before, size_after);
                database.note_field_expiry(spot, fields_before, None);
                (base, before, after)
            }
            None => {
                let after = match expiry {
                    Expiry::Keep => UnixMillis::NEVER,
                    Expiry::At(at) => at,
                };
                let mut entry = Box::new(Entry::new(key, Value::String(bytes.into()), version));
                entry.expire_at(after);
                entry.touch(used);
                database.insert(spot, entry);
                (Hlc::ZERO, after, after)
            }
        };
        if before != after {
            database.note_expiry(spot, before, after);
        }
        let is_kept = expiry == Expiry::Keep;
        self.log.string(Header { database: self.selected, key, base, version }, after, bytes, is_kept);
        if was_stream {
            self.note_ready(key);
        }
    }

    /// Changes a part of a string: `change` gets the bytes, empty if there are none, and says which of them it wrote, `None` if
    /// none; it may lengthen them with zeros before that part. The expiry stays.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    pub fn change_string<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> (Option<Range<usize>>, R),
    ) -> Result<R, CommandError> {
        let spot = self.spot_of(key);
        self.expire_if_due(spot, key);
        self.keep(self.selected, key);
        let version = self.next_version();
        let used = self.use_now();
        let database =
            self.databases[usize::from(self.selected)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let Some(entry) = database.find_mut(spot, key) else {
            let mut bytes = Vec::new();
            let (changed, result) = change(&mut bytes);
            if changed.is_some() {
                let header = Header { database: self.selected, key, base: Hlc::ZERO, version };
                self.log.string(header, UnixMillis::NEVER, &bytes, false);
                let mut entry = Box::new(Entry::new(key, Value::Buffer(Box::new(bytes)), version));
                entry.touch(used);
                database.insert(spot, entry);
                self.counters.changes += 1;
                self.note_event(EventClasses::NEW, "new", key);
            }
            return Ok(result);
        };
        let size_before = entry.value.heap_bytes();
        let bytes = entry.value.as_buffer().ok_or(CommandError::WrongType)?;
        let (changed, result) = change(bytes);
        if let Some(part) = changed {
            let header = Header { database: self.selected, key, base: entry.version, version };
            self.log.begin_operations(header, STRING_TAG);
            self.log.operation(|operations| {
                operations.number(part.start as u64);
                operations.bytes(bytes.get(part).unwrap_or_default());
            });
            self.log.end();
            entry.version = version;
            self.counters.changes += 1;
        }
        entry.touch(used);
        let size_after = entry.value.heap_bytes();
        database.note_size(size_before, size_after);
        Ok(result)
    }

    /// Changes a collection; one that is not there begins empty, one that ends empty is no key.
    ///
    /// # Errors
    /// [`CommandError::WrongType`], or that of `change`.
    pub fn change<T: Collection, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Change<'_, T>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let spot = self.spot_of(key);
        self.expire_if_due(spot, key);
        self.keep(self.selected, key);
        let version = self.next_version();
        let used = self.use_now();
        let database =
            self.databases[usize::from(self.selected)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let Some(entry) = database.find_mut(spot, key) else {
            let mut value = T::default();
            let header = Header { database: self.selected, key, base: Hlc::ZERO, version };
            let mut beginning =
                Change { value: &mut value, log: &mut self.log, header, is_open: false, repeats: false };
            let result = change(&mut beginning);
            let is_open = beginning.is_open;
            if is_open {
                self.log.end();
                self.counters.changes += 1;
            }
            if !value.is_empty() {
                let mut entry = Box::new(Entry::new(key, value.into_value(), version));
                entry.touch(used);
                database.insert(spot, entry);
                self.note_event(EventClasses::NEW, "new", key);
                self.note_ready(key);
            }
            return result;
        };
        let size_before = entry.value.heap_bytes();
        let fields_before = entry.value.first_field_expiry();
        let header = Header { database: self.selected, key, base: entry.version, version };
        let value = T::of_mut(&mut entry.value).ok_or(CommandError::WrongType)?;
        let repeats = self.replicas.get(self.selected, key).is_some();
        let mut present = Change { value, log: &mut self.log, header, is_open: false, repeats };
        let result = change(&mut present);
        let is_open = present.is_open;
        let is_empty = value.is_empty();
        if is_open {
            self.log.end();
            entry.version = version;
            self.counters.changes += 1;
        }
        entry.touch(used);
        let size_after = entry.value.heap_bytes();
        let fields_after = entry.value.first_field_expiry();
        database.note_size(size_before, size_after);
        database.note_field_expiry(spot, fields_before, fields_after);
        if is_empty {
            database.remove(spot, key);
            self.note_deletion(spot, version);
        }
        result
    }

    /// Changes a collection that is there; `None` if it is not.
    ///
    /// # Errors
    /// [`CommandError::WrongType`], or that of `change`.
    pub fn change_present<T: Collection, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Change<'_, T>) -> Result<R, CommandError>,
    ) -> Result<Option<R>, CommandError> {
        if !self.contains(key) {
            return Ok(None);
        }
        self.change(key, change).map(Some)
    }

    /// Puts a whole value in the place of what is there.
    pub fn put(&mut self, key: &[u8], value: Value, expires_at: UnixMillis) {
        let spot = self.spot_of(key);
        if self.events.are_wanted() {
            self.note_arrival(spot, key);
        }
        self.keep(self.selected, key);
        let used = self.use_now();
        let version = self.next_version();
        let database =
            self.databases[usize::from(self.selected)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let base = database.find(spot, key).map_or(Hlc::ZERO, |entry| entry.version);
        let mut entry = Box::new(Entry::new(key, value, version));
        entry.expire_at(expires_at);
        entry.touch(used);
        let header = Header { database: self.selected, key, base, version };
        log_whole(&mut self.log, header, &entry);
        database.insert(spot, entry);
        self.counters.changes += 1;
        self.note_ready(key);
    }

    /// Puts a whole value in the place of what is there, as if that had been deleted before.
    pub fn put_as_new(&mut self, key: &[u8], value: Value, expires_at: UnixMillis) {
        if self.events.are_wanted() && self.contains(key) {
            self.note_event(EventClasses::NEW, "new", key);
        }
        self.put(key, value, expires_at);
    }

    /// Puts a result in the place of what is there, or deletes that if there is none; notes the event that goes with it.
    ///
    /// # Errors
    /// If the log has no space for it.
    pub fn store(&mut self, key: &[u8], value: Option<Value>, class: EventClasses, name: &'static str) -> Outcome {
        if let Some(value) = value {
            self.ask_for_log(value.heap_bytes())?;
            self.put(key, value, UnixMillis::NEVER);
            self.note_event(class, name, key);
        } else if self.delete(key) {
            self.note_event(EventClasses::GENERIC, "del", key);
        }
        Ok(())
    }

    /// Deletes a key. Says whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        self.take(key).is_some()
    }

    /// Deletes a key and gives what it was.
    pub fn take(&mut self, key: &[u8]) -> Option<Box<Entry>> {
        let spot = self.spot_of(key);
        self.keep(self.selected, key);
        let entry = self.database_mut()?.remove(spot, key)?;
        let version = self.next_version();
        self.log.delete(Header { database: self.selected, key, base: entry.version, version });
        self.note_deletion(spot, version);
        self.counters.changes += 1;
        if matches!(entry.value, Value::Stream(_)) {
            self.note_ready(key);
        }
        if entry.has_expired(self.now) {
            self.note_event(EventClasses::EXPIRED, "expired", key);
            return None;
        }
        Some(entry)
    }

    /// Notes that a key is to get a value, whatever it has.
    #[cold]
    fn note_arrival(&mut self, spot: Spot, key: &[u8]) {
        self.expire_if_due(spot, key);
        if !self.contains(key) {
            self.note_event(EventClasses::NEW, "new", key);
        }
    }

    /// Hears that a key has come to be, or has something new: who waits for one waits for that. Also that a stream is none any
    /// more, in which somebody may wait as one of a group.
    pub(crate) fn note_ready(&mut self, key: &[u8]) {
        if self.is_awaited || self.has_borrowed {
            let place = self.has_borrowed.then(|| self.latest_version());
            self.ready.push(Arrival { database: self.selected, key: key.into(), place });
        }
    }

    fn note_deletion(&mut self, spot: Spot, version: Hlc) {
        let class = &mut self.deleted[spot.class(DELETION_CLASSES)];
        *class = version.max(*class);
    }

    /// When a key of this key's class was last deleted.
    #[must_use]
    pub fn deletion_version(&self, key: &[u8]) -> Hlc {
        self.deleted[self.spot_of(key).class(DELETION_CLASSES)]
    }

    /// Gives a key's entry away, to another actor's transaction. Not a deletion: the log knows nothing of it.
    pub fn lend(&mut self, database: u8, key: &[u8]) -> Option<Box<Entry>> {
        let spot = self.spot_of(key);
        self.keep(database, key);
        self.databases[usize::from(database)].as_mut()?.remove(spot, key)
    }

    /// Takes an entry in, lent or given back.
    pub fn adopt(&mut self, database: u8, entry: Box<Entry>) {
        self.observe(entry.version);
        let spot = self.spot_of(&entry.key);
        self.keep(database, &entry.key);
        let database =
            self.databases[usize::from(database)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        database.insert(spot, entry);
    }

    /// Hears of a version, so that later changes are later than it.
    pub fn observe(&mut self, version: Hlc) {
        // The bound on drift is beyond all clocks of one process.
        let _ = self.clock.observe(version, self.now);
    }

    /// Hears that another actor deleted a key of this one.
    pub fn note_deleted_elsewhere(&mut self, key: &[u8], version: Hlc) {
        self.observe(version);
        self.note_deletion(self.spot_of(key), version);
    }

    /// The version of a change. Where replicas have to tell which of their changes was the last, it has the instant in it: the
    /// time that the loop read may be that of an earlier turn than another actor's.
    fn next_version(&mut self) -> Hlc {
        if !self.replicas.is_empty() {
            self.observe((self.instant)());
        }
        self.clock.now(self.now)
    }

    /// The latest version given out or heard of.
    #[must_use]
    pub const fn latest_version(&self) -> Hlc {
        self.clock.last()
    }
}

/// A collection that is being changed: each method changes the value and writes the delta.
#[derive(Debug)]
pub struct Change<'a, T> {
    value: &'a mut T,
    log: &'a mut DeltaLog,
    header: Header<'a>,
    is_open: bool,
    /// Whether what is there already is written all the same: a replica that has not heard of it may be removing it.
    repeats: bool,
}

impl<T: Collection> Change<'_, T> {
    fn log(&mut self, operation: impl FnOnce(&mut OpWriter<'_>)) {
        if !self.is_open {
            self.log.begin_operations(self.header, T::TAG);
            self.is_open = true;
        }
        self.log.operation(operation);
    }
}

impl<T> std::ops::Deref for Change<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}
