//! Keys with replicas at several actors.
//!
//! The ordinary value of such a key is as that of any other, so that commands do not know the difference. Beside it lies
//! the state that merges (`content`), in one incarnation after the other. Two ways keep them together (`translate`, and
//! [`Keyspace::show`] here):
//!
//! ```text
//!  a command changes the value ──► its delta in the log ──translate──► state, other replicas, log
//!  a delta of another replica ────────────────────────────► state ──show──► value
//! ```
//!
//! How many replicas a key has is its *vector*; the replicas are the key's own actor, the first replica, and those that
//! follow it in the ring. Only actors with a replica know of the vector: everybody else asks the first replica.
//!
//! An actor tells all other replicas itself what it changed, and never tells on what it was told. (Only the first replica
//! does, as long as the sender does not know yet that there are more.) What has to outlive its use, until nobody can refer to
//! it any more, notes the message since which all know of its end: see [`Keyspace::reclaim`].

mod bytes;
mod content;
mod loan;
mod reclaim;
mod recovery;
mod table;
mod tell;
mod translate;

use savanna_lattice::{Hlc, Incarnated, Lattice as _, Max, Pair, UnixMillis, WriterId, encode};
use serde::{Deserialize, Serialize};

pub(crate) use self::loan::Aside;
pub(super) use self::recovery::vector;
pub(super) use self::table::Replicas;
pub use self::{content::Content, loan::LentReplica, reclaim::ABSENCE};
use super::{Arrival, Entry, Keyspace, Value, log_whole};
use crate::delta::{DeltaLog, Header};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Database;
use crate::placement::ActorId;

/// What the replicas of a key merge.
pub type State = Incarnated<Content>;

/// How many replicas a key has; the last change wins. [`FULL`] for one at each actor.
pub type Vector = Pair<Hlc, Max<u16>>;

/// A replica at each actor, however many there are.
pub const FULL: u16 = u16::MAX;

/// One at each actor, as long as the key is asked for often: nobody has said how many it is to have.
pub const SPREAD: u16 = FULL - 1;

/// Instead of a number of replicas in the log: there are none any more, and the whole value follows.
const GIVEN_UP: u16 = 0;

/// A message by its sender and its number.
pub(super) type Told = (ActorId, u64);

/// What one replica tells another, of this node or another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The database's number.
    pub database: u8,
    /// The key.
    pub key: Box<[u8]>,
    /// How many replicas it has, as far as the sender knows.
    pub vector: Vector,
    /// What the sender changed, or all that it knows.
    pub state: Option<State>,
    /// Whether it is all that the sender knows.
    pub is_whole: bool,
    /// Whether the sender has given its copy up, to make room.
    pub has_given_up: bool,
}

/// What an actor may do with its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has not heard from the first replica; requests go there.
    Joining,
    /// It answers requests.
    Serving,
    /// It was given up, and what is heard of it is not kept.
    GivenUp,
}

/// What an actor knows of a key with several replicas besides its ordinary value.
#[derive(Debug)]
pub(super) struct Replica {
    vector: Vector,
    standing: Standing,
    /// The present life, or the deletion after which the next one begins; `None` until it is heard of.
    state: Option<State>,
    /// What was changed here and not told yet.
    unsent: Option<State>,
    /// About how many bytes that takes, before what is changed again is counted once.
    unsent_bytes: usize,
    /// About how many bytes both states take, as counted last.
    bytes: usize,
    /// Whether everybody is to be told of the vector, and new replicas all that is known.
    owes_vector: bool,
    /// How many replicas hold what was told before that.
    held: u16,
    /// Whether it was given up to make room, and the first replica is to be told.
    owes_notice: bool,
    /// Whether another replica said so of itself.
    is_missing_elsewhere: bool,
    /// Whether it is among those that have something to tell.
    is_listed: bool,
    /// Whether its state is with a transaction of another actor.
    is_lent: bool,
    /// In whose name it is changed.
    writer: WriterId,
    /// Whether it is another actor's, for a transaction.
    is_borrowed: bool,
    /// With which vector all was heard that the first replica knew; what was on its way to there then is waited for.
    heard_all_of: Option<Vector>,
    /// Whoever went to the first replica before this question sees here what it saw there.
    caught_up: u64,
    /// When the first replica was asked last.
    asked_at: UnixMillis,
    /// Since when the first replica has no value.
    absent_since: Option<UnixMillis>,
    /// The message that tells that this is not a replica any more.
    leaving_since: Option<Told>,
}

impl Replica {
    const fn new(vector: Vector, standing: Standing, writer: WriterId) -> Self {
        Self {
            vector,
            standing,
            state: None,
            unsent: None,
            unsent_bytes: 0,
            bytes: 0,
            owes_vector: false,
            held: 1,
            owes_notice: false,
            is_missing_elsewhere: false,
            is_listed: false,
            is_lent: false,
            writer,
            is_borrowed: false,
            heard_all_of: None,
            caught_up: 0,
            asked_at: UnixMillis(0),
            absent_since: None,
            leaving_since: None,
        }
    }

    fn is_dead(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.incarnation().tag.is_end())
    }

    /// Whether nothing is lost if it is dropped.
    pub(super) const fn may_be_given_up(&self) -> bool {
        !matches!(self.standing, Standing::GivenUp) && self.unsent.is_none()
    }

    /// Merges what was heard. Says whether anything changed. What is not told yet and of a life that ended is not told: who
    /// knows of the end must not speak of it any more.
    fn hear(&mut self, delta: Option<State>) -> bool {
        let changed = self.state.merge(delta);
        let life = self.state.as_ref().map(Incarnated::incarnation);
        self.unsent.take_if(|unsent| Some(unsent.incarnation()) < life);
        changed
    }

    /// Merges a change of this actor, of so many bytes in the log, to be told to the others.
    fn note_change(&mut self, delta: State, bytes: usize) {
        self.unsent_bytes += bytes;
        self.state.merge(Some(delta.clone()));
        self.unsent.merge(Some(delta));
    }
}

/// Of a tree's node, a change's number and a stamp, per element of a state.
const ELEMENT: usize = 96;

/// About how many bytes the state of a value takes. It has every element of the value once more, in a node of a tree and with who wrote it; of a
/// HyperLogLog every register that was raised.
fn state_bytes(value: &Value, parts: usize) -> usize {
    value.heap_bytes() + value.element_count().max(parts) * ELEMENT
}

impl Keyspace {
    /// Whether requests for a key of another actor can be answered here.
    #[must_use]
    pub fn serves(&self, database: u8, key: &[u8]) -> bool {
        self.replicas.get(database, key).is_some_and(|replica| replica.standing == Standing::Serving)
    }

    /// Whether a key of another actor has a replica here, or is about to have one.
    #[must_use]
    pub(crate) fn has_copy(&self, database: u8, key: &[u8]) -> bool {
        let replica = self.replicas.get(database, key);
        replica.is_some_and(|replica| replica.standing != Standing::GivenUp) && !self.is_first_replica(key)
    }

    /// Whether a key is a number with replicas. Only its first replica counts, so only there is known what it was counted to.
    pub(crate) fn is_counted(&self, database: u8, key: &[u8]) -> bool {
        let state = self.replicas.get(database, key).and_then(|replica| replica.state.as_ref());
        matches!(state.and_then(Incarnated::content), Some(Content::Number { .. }))
    }

    /// Whether any key here has replicas.
    #[must_use]
    pub const fn has_replicas(&self) -> bool {
        !self.replicas.is_empty()
    }

    /// Whether this actor's replica of a key is the first, or the key has only one.
    #[must_use]
    pub fn is_first_replica(&self, key: &[u8]) -> bool {
        self.replicas.is_first(key)
    }

    /// Whether a key that is here in the selected database is no copy of another actor's: it is this actor's, or borrowed.
    #[must_use]
    pub fn is_no_copy(&self, key: &[u8]) -> bool {
        let replica = || self.replicas.get(self.selected, key);
        self.replicas.is_first(key) || self.has_borrowed && replica().is_none_or(|replica| replica.is_borrowed)
    }

    /// The entries in a database that are copies of keys of other actors.
    pub(super) fn copies_in(&self, database: u8) -> impl Iterator<Item = &Entry> {
        let keys = self.replicas.iter().filter(move |(number, key, replica)| {
            *number == database && !replica.is_borrowed && !self.replicas.is_first(key)
        });
        keys.filter_map(move |(_, key, _)| self.peek_in(database, key))
    }

    /// Counts again what a replica takes besides its ordinary value.
    fn weigh(&mut self, database: u8, key: &[u8]) {
        let Some(replica) = self.replicas.get(database, key) else { return };
        let parts = replica.state.as_ref().and_then(Incarnated::content).map_or(0, Content::part_count);
        let state = self.peek_in(database, key).map_or(0, |entry| state_bytes(&entry.value, parts));
        let unsent = replica.unsent_bytes.min(state + ELEMENT);
        self.replicas.note_size(database, key, state + unsent);
    }

    /// How many replicas a key of this actor has.
    #[must_use]
    pub fn copies(&self, key: &[u8]) -> u16 {
        let vector = self.replicas.get(self.selected, key).map(|replica| replica.vector);
        vector.map_or(1, |vector| vector.value.0.min(self.routes.actors()))
    }

    /// Whether a key of this actor may get replicas by itself: one that is there, and has none.
    pub(crate) fn may_be_spread(&self, database: u8, key: &[u8]) -> bool {
        let is_there = self.peek_in(database, key).is_some_and(|entry| !entry.has_expired(self.now));
        is_there && !self.is_departing(key) && self.is_first_replica(key) && self.replicas.get(database, key).is_none()
    }

    /// The keys of this actor that have replicas by themselves.
    pub(crate) fn spread_keys(&self) -> Vec<(u8, Box<[u8]>)> {
        let all = self.replicas.iter().filter(|(_, key, replica)| {
            replica.vector.value.0 == SPREAD && self.replicas.is_first(key) && !replica.is_borrowed
        });
        all.map(|(database, key, _)| (database, key.into())).collect()
    }

    /// Whether nothing can happen to a key, as it is, that is refused to keys with replicas; and how many bytes it takes more with a replica at each
    /// actor than without.
    pub(crate) fn weigh_spread(&self, database: u8, key: &[u8]) -> (bool, usize) {
        let Some(entry) = self.peek_in(database, key) else { return (true, 0) };
        let is_fit = matches!(entry.value, Value::String(_) | Value::Buffer(_) | Value::Set(_) | Value::SortedSet(_));
        let (actors, state) = (usize::from(self.routes.actors()), state_bytes(&entry.value, 0));
        (is_fit, actors * state + (actors - 1) * entry.byte_count())
    }

    /// Whether fields of a hash of the selected database may expire.
    ///
    /// # Errors
    /// If the key has replicas.
    pub(crate) fn check_fields_may_expire(&self, key: &[u8]) -> Outcome {
        match self.replicas.get(self.selected, key) {
            Some(_) => Err(no_expiring_fields()),
            None => Ok(()),
        }
    }

    /// Whether a value may be that of a key.
    ///
    /// # Errors
    /// If the key has replicas, and the value is a hash whose fields expire.
    pub(crate) fn check_may_be_at(&self, database: u8, key: &[u8], value: &Value) -> Outcome {
        match (self.replicas.get(database, key), value.first_field_expiry()) {
            (Some(_), Some(_)) => Err(no_expiring_fields()),
            _ => Ok(()),
        }
    }

    /// Gives a key of this actor so many replicas, [`FULL`] for one at each actor.
    ///
    /// # Errors
    /// If it has a type that does not merge, or the log has no space.
    pub fn replicate(&mut self, key: &[u8], copies: u16) -> Result<(), CommandError> {
        if copies > 1 && self.peek(key).is_some_and(|entry| matches!(entry.value, Value::List(_) | Value::Stream(_))) {
            return Err(CommandError::text(
                "ERR expected a key without a value, or a string, hash, set or sorted set, came a list or a stream; these \
                 cannot have replicas, because several writers cannot keep their order",
            ));
        }
        if copies > 1 && self.peek(key).is_some_and(|entry| entry.value.first_field_expiry().is_some()) {
            return Err(no_expiring_fields());
        }
        if copies > 1 && self.is_departing(key) {
            return Err(CommandError::text("TRYAGAIN nothing was done: the key is on its way to another node"));
        }
        self.ask_for_log_of(std::iter::once(key))?;
        self.translate_changes();
        let database = self.selected;
        let version = self.next_version();
        let vector = Pair::new(version, Max(copies));
        let header = Header { database, key, base: version, version };
        match self.replicas.get_mut(database, key) {
            Some(replica) if replica.vector.value.0 == copies && !replica.is_missing_elsewhere => return Ok(()),
            Some(replica) => {
                let held = if replica.owes_vector { replica.held } else { FULL };
                let is_missing = std::mem::take(&mut replica.is_missing_elsewhere);
                replica.held = if is_missing { 1 } else { held.min(replica.vector.value.0) };
                replica.vector = vector;
            }
            None if copies == 1 => return Ok(()),
            None => {
                self.replicas.insert(database, key, Replica::new(vector, Standing::Serving, self.replicas.writer));
                self.log.enable(true);
            }
        }
        let (spot, writer) = (self.spot_of(key), self.replicas.writer);
        if let Some(replica) = self.replicas.get_mut(database, key) {
            replica.owes_vector = true;
            replica.leaving_since = None;
            self.log.replicated(header, version, copies, writer, &[]);
            self.log.note_seen();
            if replica.state.is_none() {
                match self.databases[usize::from(database)].as_ref().and_then(|all| all.find(spot, key)) {
                    Some(entry) => log_whole(&mut self.log, header, entry),
                    // Whoever writes first begins the life that follows a deletion all know, so that all begin the same.
                    None => self.log.delete(header),
                }
            }
        }
        self.translate_changes();
        self.replicas.list(database, key);
        self.note_presence(database, key);
        Ok(())
    }

    /// Gives up this actor's copy of a key whose first replica is elsewhere. Nobody else loses anything by it. Says whether
    /// there was one to give up: what was not told yet is told first, and what is being written into the log stays until then.
    pub fn give_up(&mut self, database: u8, key: &[u8]) -> bool {
        self.translate_changes();
        let replica = self.replicas.get(database, key).filter(|replica| replica.may_be_given_up());
        let is_copy = replica.is_some() && !self.is_first_replica(key) && !self.is_rewriting();
        if is_copy {
            self.forget(database, key);
            if let Some(replica) = self.replicas.get_mut(database, key) {
                replica.owes_notice = true;
            }
            self.replicas.list(database, key);
        }
        is_copy
    }

    /// Drops state and value of a replica; its last changes are told yet.
    fn forget(&mut self, database: u8, key: &[u8]) {
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        replica.standing = Standing::GivenUp;
        replica.heard_all_of = None;
        replica.state = None;
        // What was read here may be older than what the first replica told.
        self.log.note_changed(key);
        let spot = self.spot_of(key);
        if let Some(database) = self.databases[usize::from(database)].as_mut() {
            database.remove(spot, key);
        }
        self.weigh(database, key);
    }

    /// Deletes a key of a database that is emptied, as far as this replica has seen it, for the others to hear of. What a replica that
    /// was given up has not told is never told: whoever has seen it deletes it.
    pub(super) fn end_replica(&mut self, database: u8, key: &[u8]) {
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        if replica.standing == Standing::GivenUp {
            (replica.unsent, replica.unsent_bytes) = (None, 0);
            self.weigh(database, key);
        } else if replica.state.is_some() && !replica.is_dead() {
            let version = self.next_version();
            self.log.write_all(|log| log.delete(Header { database, key, base: version, version }));
            self.note_deletion(self.spot_of(key), version);
        }
    }

    /// Merges what another replica changed, and shows it.
    fn merge(&mut self, database: u8, key: &[u8], delta: State, version: Option<Hlc>) {
        self.observe(delta.incarnation().hlc);
        let (is_logged, now) = (self.logs_heard && self.replicas.is_first(key), self.latest_version());
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        let before = replica.state.as_ref().map(Incarnated::incarnation);
        let is_same = before == Some(delta.incarnation());
        let patch = delta.clone();
        if is_logged {
            let header = Header { database, key, base: now, version: now };
            log_state(&mut self.log, header, replica.vector, replica.writer, Some(&patch));
            self.log.note_seen();
        }
        if replica.hear(Some(delta)) && !replica.is_lent {
            self.show(database, key, is_same.then_some(&patch), version);
            self.note_presence(database, key);
            self.weigh(database, key);
        }
    }

    /// Brings the ordinary value up to date; only in what `patch` is about, if that is given.
    fn show(&mut self, number: u8, key: &[u8], patch: Option<&State>, version: Option<Hlc>) {
        let version = version.unwrap_or_else(|| self.next_version());
        self.log.note_changed(key);
        let spot = self.spot_of(key);
        self.keep(number, key);
        let used = self.use_now();
        let Some(replica) = self.replicas.get(number, key) else { return };
        let database =
            self.databases[usize::from(number)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let shown = replica.state.as_ref().and_then(|state| Some((state.value(self.now)?, state.expires_at())));
        let Some((content, expires_at)) = shown else {
            if database.remove(spot, key).is_some() {
                self.note_deletion(spot, version);
            }
            return;
        };
        if let (Some(entry), Some(patch)) = (database.find_mut(spot, key), patch) {
            let (size, expiry) = (entry.value.heap_bytes(), entry.expires_at());
            // A patch without content is about the expiry alone. One whose own expiry has passed may be of a life that goes on.
            if patch.content().is_none_or(|patch| content.patch(&mut entry.value, patch)) {
                entry.version = version.max(entry.version);
                entry.expire_at(expires_at);
                let (size_after, is_empty) = (entry.value.heap_bytes(), entry.value.is_empty_collection());
                database.note_size(size, size_after);
                if expiry != expires_at {
                    database.note_expiry(spot, expiry, expires_at);
                }
                if is_empty {
                    database.remove(spot, key);
                    self.note_deletion(spot, version);
                }
                return;
            }
        }
        match content.show() {
            Some(value) => {
                let mut entry = Box::new(Entry::new(key, value, version));
                entry.expire_at(expires_at);
                entry.touch(used);
                database.insert(spot, entry);
                if self.is_awaited {
                    self.ready.push(Arrival::alone(number, key.into()));
                }
            }
            None => {
                if database.remove(spot, key).is_some() {
                    self.note_deletion(spot, version);
                }
            }
        }
    }
}

fn no_expiring_fields() -> CommandError {
    CommandError::text(
        "ERR a key with replicas cannot have fields that expire; set it to one replica with SAV.REPLICATE first",
    )
}

/// Logs a state. Says how many bytes it has there.
fn log_state(log: &mut DeltaLog, header: Header<'_>, vector: Vector, writer: WriterId, state: Option<&State>) -> usize {
    let encoded = state.map(encode).transpose();
    // Plain data always has a form.
    let Ok(encoded) = encoded else { unreachable!("replicas keep plain data") };
    let encoded = encoded.unwrap_or_default();
    log.replicated(header, vector.version, vector.value.0, writer, &encoded);
    encoded.len()
}
