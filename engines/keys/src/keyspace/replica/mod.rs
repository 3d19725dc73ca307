//! Keys with replicas at several actors.
//!
//! The ordinary value of such a key is as that of any other, so that commands do not know the difference. Beside it lies
//! the state that merges (`content`), in one incarnation after the other. Two translations keep them together:
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

mod content;
mod loan;
mod recovery;
mod table;

use savanna_lattice::{
    Hlc, Incarnated, Incarnation, Lattice as _, Max, Pair, Stamp, TypeTag, UnixMillis, WriterId, encode,
};

pub(crate) use self::loan::Aside;
pub(super) use self::recovery::vector;
pub(super) use self::table::Replicas;
pub use self::{content::Content, loan::LentReplica};
use super::{Entry, Keyspace, List, Value, log_whole};
use crate::delta::{Body, DeltaLog, Header, Malformed, STRING_TAG, read_all, read_each};
use crate::error::CommandError;
use crate::keyspace::Database;
use crate::keyspace::types::Collection as _;
use crate::number::integer;
use crate::placement::{ActorId, KeyHash};

/// What the replicas of a key merge.
pub type State = Incarnated<Content>;

/// How many replicas a key has; the last change wins. [`FULL`] for one at each actor.
pub type Vector = Pair<Hlc, Max<u16>>;

/// A replica at each actor, however many there are.
pub const FULL: u16 = u16::MAX;

/// Instead of a number of replicas in the log: there are none any more, and the whole value follows.
const GIVEN_UP: u16 = 0;

/// How long a key may be without a value, in milliseconds, until it has one replica again.
pub const ABSENCE: u64 = 60_000;

/// A message by its sender and its number.
pub(super) type Told = (ActorId, u64);

/// What one replica tells another.
#[derive(Clone, Debug)]
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
    /// Whether everybody is to be told of the vector, and new replicas all that is known.
    owes_vector: bool,
    /// How many replicas hold what was told before that.
    held: u16,
    /// Whether it is among those that have something to tell.
    is_listed: bool,
    /// Whether its state is with a transaction of another actor.
    is_lent: bool,
    /// In whose name it is changed; `None` for the actor's own.
    name: Option<WriterId>,
    /// Since when the first replica has no value.
    absent_since: Option<UnixMillis>,
    /// The message that tells that this is not a replica any more.
    leaving_since: Option<Told>,
}

impl Replica {
    const fn new(vector: Vector, standing: Standing) -> Self {
        Self {
            vector,
            standing,
            state: None,
            unsent: None,
            owes_vector: false,
            held: 1,
            is_listed: false,
            is_lent: false,
            name: None,
            absent_since: None,
            leaving_since: None,
        }
    }

    fn is_dead(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.incarnation().tag.is_end())
    }

    /// Merges what was heard. Says whether anything changed. What is not told yet and of a life that ended is not told: who
    /// knows of the end must not speak of it any more.
    fn hear(&mut self, delta: Option<State>) -> bool {
        let changed = self.state.merge(delta);
        let life = self.state.as_ref().map(Incarnated::incarnation);
        self.unsent.take_if(|unsent| Some(unsent.incarnation()) < life);
        changed
    }

    /// Merges a change of this actor, to be told to the others.
    fn note_change(&mut self, delta: State) {
        self.state.merge(Some(delta.clone()));
        self.unsent.merge(Some(delta));
    }
}

/// The beginning of an incarnation that expires at a time.
fn begin(stamp: Stamp, content: Content, expires_at: UnixMillis) -> State {
    let mut state = Incarnated::begin(Incarnation::new(stamp, content.tag()), content);
    if expires_at != UnixMillis::NEVER {
        state.merge(state.expiring(stamp.hlc, expires_at));
    }
    state
}

impl Keyspace {
    /// Whether requests for a key of another actor can be answered here.
    #[must_use]
    pub fn serves(&self, database: u8, key: &[u8]) -> bool {
        self.replicas.get(database, key).is_some_and(|replica| replica.standing == Standing::Serving)
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

    /// How many keys of other actors have a copy in a database.
    pub(super) fn copies_in(&self, database: u8) -> usize {
        let keys = self.replicas.iter().filter(|(number, key, _)| *number == database && !self.replicas.is_first(key));
        keys.filter(|(_, key, _)| self.peek_in(database, key).is_some()).count()
    }

    /// How many replicas a key of this actor has.
    #[must_use]
    pub fn copies(&self, key: &[u8]) -> u16 {
        let vector = self.replicas.get(self.selected, key).map(|replica| replica.vector);
        vector.map_or(1, |vector| vector.value.0.min(self.placement.actors()))
    }

    /// Gives a key of this actor so many replicas, [`FULL`] for one at each actor.
    ///
    /// # Errors
    /// If it has a type that does not merge.
    pub fn replicate(&mut self, key: &[u8], copies: u16) -> Result<(), CommandError> {
        if copies > 1 && self.peek(key).is_some_and(|entry| matches!(entry.value, Value::List(_))) {
            return Err(CommandError::text(
                "ERR a list has an order that several writers cannot agree on: it has no replicas; expected a key \
                 without a value, or a string, hash, set or sorted set",
            ));
        }
        self.translate_changes();
        let database = self.selected;
        let version = self.clock.now(self.now);
        let vector = Pair::new(version, Max(copies));
        let header = Header { database, key, base: version, version };
        match self.replicas.get_mut(database, key) {
            Some(replica) if replica.vector.value.0 == copies => return Ok(()),
            Some(replica) => {
                let held = if replica.owes_vector { replica.held } else { FULL };
                replica.held = held.min(replica.vector.value.0);
                replica.vector = vector;
            }
            None if copies == 1 => return Ok(()),
            None => {
                self.replicas.insert(database, key, Replica::new(vector, Standing::Serving));
                self.log.enable(true);
            }
        }
        let writer = self.replicas.writer;
        if let Some(replica) = self.replicas.get_mut(database, key) {
            replica.owes_vector = true;
            replica.leaving_since = None;
            self.log.replicated(header, version, copies, writer, &[]);
            self.log.note_seen();
            if replica.state.is_none() {
                let entry = self.databases[usize::from(database)].as_ref().and_then(|d| d.find(KeyHash::of(key), key));
                match entry {
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
    /// there was one to give up: what was not told yet is told first.
    pub fn give_up(&mut self, database: u8, key: &[u8]) -> bool {
        if self.is_first_replica(key) {
            return false;
        }
        let Some(replica) = self.replicas.get_mut(database, key) else { return false };
        if replica.standing == Standing::GivenUp || replica.unsent.is_some() {
            return false;
        }
        self.forget(database, key);
        true
    }

    /// Drops state and value of a replica; its last changes are told yet.
    fn forget(&mut self, database: u8, key: &[u8]) {
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        replica.standing = Standing::GivenUp;
        replica.state = None;
        if let Some(database) = self.databases[usize::from(database)].as_mut() {
            database.remove(KeyHash::of(key), key);
        }
        // What this actor writes, should it get the replica again, must not be taken for what it wrote before.
        self.replicas.renew_writer();
    }

    /// Tells replicas what changed since the last call, if it was about keys with replicas.
    pub fn translate_changes(&mut self) {
        if self.replicas.is_empty() || self.log.unseen().is_empty() {
            return self.log.note_seen();
        }
        let mut concerns_any = false;
        // These are this actor's own deltas: they are read as they were written.
        let _ = read_all(self.log.unseen(), &mut |header, _| {
            concerns_any |= self.replicas.get(header.database, header.key).is_some();
            Ok(())
        });
        if concerns_any {
            let changes = self.log.take_unseen();
            let _ = read_each(&changes, |delta, header, body| {
                if matches!(body, Body::Replicated { .. }) || !self.translate(header, body)? {
                    self.log.copy(delta);
                }
                Ok(())
            });
        }
        self.log.note_seen();
    }

    /// Turns a delta of an ordinary value into one of the replicas' state. Says whether the key has any.
    fn translate(&mut self, header: Header<'_>, body: Body<'_>) -> Result<bool, Malformed> {
        let entry = self.databases[usize::from(header.database)].as_ref();
        let entry = entry.and_then(|database| database.find(KeyHash::of(header.key), header.key));
        let own = self.replicas.writer;
        let Some(replica) = self.replicas.get_mut(header.database, header.key) else { return Ok(false) };
        let writer = replica.name.unwrap_or(own);
        let stamp = Stamp::new(header.version, writer);
        let is_living = replica.state.as_ref().is_some_and(|state| state.value(self.now).is_some());
        let living = replica.state.as_mut().filter(|state| state.value(self.now).is_some());
        let delta = match body {
            Body::Delete => match (&replica.state, is_living) {
                // Its time had come: only this life ends.
                (Some(state), false) if !state.incarnation().tag.is_end() => Some(state.ended()),
                _ => Some(Incarnated::deleted(stamp)),
            },
            Body::Expiry(at) => replica.state.as_ref().map(|state| state.expiring(header.version, at)),
            Body::Whole { is_kept, tag, expires_at, content } => {
                let counted = living.filter(|_| is_kept && tag == STRING_TAG).and_then(|state| {
                    let change = state.value_mut()?.count_to(integer(content)?, stamp)?;
                    Some(state.delta(change))
                });
                match counted {
                    Some(counted) => Some(counted),
                    None => Some(begin(stamp, Content::of_whole(tag, content, stamp)?, expires_at)),
                }
            }
            // Changed in parts, but merged as a whole.
            Body::Operations { tag: STRING_TAG | List::TAG, .. } => match entry {
                Some(entry) => restated(entry, stamp)?,
                None => Some(Incarnated::deleted(stamp)),
            },
            Body::Operations { tag, operations } => {
                let same =
                    living.filter(|state| state.incarnation().tag == TypeTag(tag)).map(|state| state.incarnation());
                let incarnation = match same {
                    Some(same) => same,
                    None => {
                        let before = replica.state.as_ref().map(Incarnated::incarnation);
                        let revived = before.filter(|before| before.tag == TypeTag::NONE);
                        let begun = revived
                            .map_or_else(|| Incarnation::new(stamp, TypeTag(tag)), |dead| dead.revived(TypeTag(tag)));
                        replica.state.merge(Some(Incarnated::begin(begun, Content::empty(tag)?)));
                        begun
                    }
                };
                let mut state = Incarnated::begin(incarnation, Content::empty(tag)?);
                if let Some(content) = replica.state.as_mut().and_then(Incarnated::value_mut) {
                    state = state.delta(content.change(operations, stamp)?);
                }
                // It had become empty, so that there was no key; the one that begins does not expire.
                let expires = replica.state.as_ref().is_some_and(|state| state.expires_at() != UnixMillis::NEVER);
                if header.base == Hlc::ZERO && expires {
                    state.merge(state.expiring(header.version, UnixMillis::NEVER));
                }
                Some(state)
            }
            Body::Replicated { .. } => None,
        };
        if let Some(delta) = delta {
            log_state(&mut self.log, header, replica.vector, writer, Some(&delta));
            replica.note_change(delta);
            if replica.name.is_none() {
                self.replicas.list(header.database, header.key);
                self.note_presence(header.database, header.key);
            }
        }
        Ok(true)
    }

    /// Whether there is something to tell.
    pub(crate) const fn has_unsent(&self) -> bool {
        self.replicas.has_listed()
    }

    /// What is to be told, and to whom, in the message of this number to each.
    pub(crate) fn take_unsent(&mut self, number: u64) -> Vec<(ActorId, Item)> {
        self.translate_changes();
        let mut items = Vec::new();
        for (database, key) in self.replicas.take_listed() {
            let (placement, own) = (self.placement, self.replicas.id);
            let group = KeyHash::of(&key).group();
            let Some(replica) = self.replicas.get_mut(database, &key) else { continue };
            replica.is_listed = false;
            // All that is known is with the transaction that has the key.
            let tells_all = replica.owes_vector && !replica.is_lent;
            for actor in placement.all().filter(|actor| *actor != own) {
                let holds = placement.holds(actor, group, replica.vector.value.0);
                let is_new = tells_all && !placement.holds(actor, group, replica.held);
                let state = match (holds, is_new) {
                    (true, true) => replica.state.clone(),
                    (true, false) => replica.unsent.clone(),
                    (false, _) => None,
                };
                if state.is_some() || tells_all {
                    let item = Item { database, key: key.clone(), vector: replica.vector, state, is_whole: is_new };
                    items.push((actor, item));
                }
            }
            replica.unsent = None;
            let told = (own, number);
            if tells_all {
                replica.leaving_since = (replica.vector.value.0 == 1).then_some(told);
                replica.owes_vector = false;
            }
            let (leaves, owes) = (tells_all && replica.leaving_since.is_some(), replica.owes_vector);
            if leaves {
                self.replicas.watch(told, database, &key);
            }
            if owes {
                self.replicas.list(database, &key);
            }
        }
        items
    }

    /// Hears what another replica tells in its message of this number.
    pub(crate) fn hear_item(&mut self, from: ActorId, number: u64, item: Item) {
        let Item { database, key, vector, state, is_whole } = item;
        let group = KeyHash::of(&key).group();
        let (own, first) = (self.replicas.id, self.placement.actor_of(group));
        let placement = self.placement;
        let holds = |vector: Vector| own == first || placement.holds(own, group, vector.value.0);
        self.observe(vector.version);
        if self.replicas.get(database, &key).is_none() {
            // That this is no replica is kept, too, as long as older words may come that say it is.
            let standing = match (holds(vector), from == first) {
                (true, _) => Standing::Joining,
                (false, true) => Standing::GivenUp,
                (false, false) => return,
            };
            self.replicas.insert(database, &key, Replica::new(vector, standing));
            self.log.enable(true);
        }
        let Some(replica) = self.replicas.get_mut(database, &key) else { return };
        let is_new = replica.vector.merge(vector);
        if !holds(replica.vector) {
            let knows = from == first && replica.vector == vector;
            if replica.standing != Standing::GivenUp {
                self.forget(database, &key);
            }
            if knows && let Some(replica) = self.replicas.get_mut(database, &key) {
                replica.leaving_since = Some((from, number));
                self.replicas.watch((from, number), database, &key);
            }
            return;
        }
        if is_new {
            replica.leaving_since = None;
            if replica.standing == Standing::GivenUp {
                replica.standing = Standing::Joining;
                // What was written before and is not told yet is this replica's, too.
                replica.state.clone_from(&replica.unsent);
            }
        }
        let Some(replica) = self.replicas.get_mut(database, &key) else { return };
        if replica.standing == Standing::GivenUp {
            return;
        }
        if is_whole && from == first {
            replica.standing = Standing::Serving;
        }
        if let Some(delta) = state {
            if own == first && vector != replica.vector {
                // Its sender did not know of all replicas yet; the first one does.
                replica.unsent.merge(Some(delta.clone()));
                self.replicas.list(database, &key);
            }
            self.merge(database, &key, delta, None);
        }
    }

    /// Merges what another replica changed, and shows it.
    fn merge(&mut self, database: u8, key: &[u8], delta: State, version: Option<Hlc>) {
        self.observe(delta.incarnation().hlc);
        let Some(replica) = self.replicas.get_mut(database, key) else { return };
        let before = replica.state.as_ref().map(Incarnated::incarnation);
        let is_same = before == Some(delta.incarnation());
        let patch = delta.clone();
        if replica.hear(Some(delta)) && !replica.is_lent {
            self.show(database, key, is_same.then_some(&patch), version);
            self.note_presence(database, key);
        }
    }

    /// Brings the ordinary value up to date; only in what `patch` is about, if that is given.
    fn show(&mut self, number: u8, key: &[u8], patch: Option<&State>, version: Option<Hlc>) {
        let version = version.unwrap_or_else(|| self.clock.now(self.now));
        let hash = KeyHash::of(key);
        let Some(replica) = self.replicas.get(number, key) else { return };
        let database =
            self.databases[usize::from(number)].get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let shown = replica.state.as_ref().and_then(|state| Some((state.value(self.now)?, state.expires_at())));
        let Some((content, expires_at)) = shown else {
            if database.remove(hash, key).is_some() {
                self.note_deletion(hash, version);
            }
            return;
        };
        if let (Some(entry), Some(patch)) = (database.find_mut(hash, key), patch) {
            let (size, expiry) = (entry.value.heap_bytes(), entry.expires_at());
            // A patch without content is about the expiry alone. One whose own expiry has passed may be of a life that goes on.
            if patch.content().is_none_or(|patch| content.patch(&mut entry.value, patch)) {
                entry.version = version.max(entry.version);
                entry.expire_at(expires_at);
                let (size_after, is_empty) = (entry.value.heap_bytes(), entry.value.is_empty_collection());
                database.note_size(size, size_after);
                if expiry != expires_at {
                    database.note_expiry(hash, key, expiry, expires_at);
                }
                if is_empty {
                    database.remove(hash, key);
                    self.note_deletion(hash, version);
                }
                return;
            }
        }
        match content.show() {
            Some(value) => {
                let mut entry = Box::new(Entry::new(key, value, version));
                entry.expire_at(expires_at);
                entry.touch(self.now);
                database.insert(hash, entry);
                if self.is_awaited {
                    self.ready.push((number, key.into()));
                }
            }
            None => {
                if database.remove(hash, key).is_some() {
                    self.note_deletion(hash, version);
                }
            }
        }
    }

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
    fn note_presence(&mut self, database: u8, key: &[u8]) {
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

    /// Whether other replicas are still to be told of changes that were made here.
    pub(crate) fn has_unsent_of(&self, database: u8, key: &[u8]) -> bool {
        self.replicas.get(database, key).is_some_and(|replica| replica.unsent.is_some())
    }

    /// Forgets that a key has replicas, or had one here.
    fn leave(&mut self, database: u8, key: &[u8]) {
        let is_first = self.is_first_replica(key);
        let Some(replica) = self.replicas.remove(database, key) else { return };
        if !is_first {
            return;
        }
        let version = self.clock.now(self.now);
        let header = Header { database, key, base: version, version };
        self.log.replicated(header, replica.vector.version, GIVEN_UP, self.replicas.writer, &[]);
        match self.databases[usize::from(database)].as_mut().and_then(|d| d.find_mut(KeyHash::of(key), key)) {
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

/// A value that was changed in parts, written anew as a whole.
fn restated(entry: &Entry, stamp: Stamp) -> Result<Option<State>, Malformed> {
    let mut scratch = DeltaLog::new();
    scratch.enable(true);
    let header = Header { database: 0, key: &entry.key, base: Hlc::ZERO, version: stamp.hlc };
    log_whole(&mut scratch, header, entry);
    let mut state = None;
    read_all(scratch.bytes(), &mut |_, body| {
        if let Body::Whole { tag, expires_at, content, .. } = body {
            state = Some(begin(stamp, Content::of_whole(tag, content, stamp)?, expires_at));
        }
        Ok(())
    })?;
    Ok(state)
}

fn log_state(log: &mut DeltaLog, header: Header<'_>, vector: Vector, writer: WriterId, state: Option<&State>) {
    let encoded = state.map(encode).transpose();
    // Plain data always has a form.
    let Ok(encoded) = encoded else { unreachable!("replicas keep plain data") };
    log.replicated(header, vector.version, vector.value.0, writer, &encoded.unwrap_or_default());
}
