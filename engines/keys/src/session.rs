//! What is known of a connection: everything that outlives one request.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use savanna_lattice::{Hlc, UnixMillis};

use crate::access::{Access, User, Users};
use crate::actor::Progress;
use crate::actor::program::Program;
use crate::actor::tracking::Tracking;
use crate::error::CommandError;
use crate::placement::KeyHash;
use crate::reply::Reply;

/// A session of an actor. The number of its place is used again, its serial is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    /// Its place.
    pub place: u32,
    /// Counts the sessions of the actor.
    pub serial: u32,
}

/// Keeps a reply's place among those of its session: the n-th one that did not come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A key whose version was noted by WATCH.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The database.
    pub database: u8,
    /// The key.
    pub key: Box<[u8]>,
    /// Its version then.
    pub version: Hlc,
}

/// What a client's connection takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientMemory {
    /// Of requests that are not complete, or did not run.
    pub input: usize,
    /// Of what the client has not taken.
    pub output: usize,
    /// All, with what is reserved for more.
    pub total: usize,
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    /// Which session it is.
    pub id: SessionId,
    /// The selected database.
    pub database: u8,
    /// 2 or 3: the version of RESP that the client asked for.
    pub protocol: u8,
    /// Who the client is.
    pub user: Arc<User>,
    /// What is known of its rights without asking the user's rules.
    pub access: Access,
    /// The name that the client gave itself.
    pub name: Vec<u8>,
    /// The name and version of its library, as it said.
    pub library: (Vec<u8>, Vec<u8>),
    /// Where the client is, for lists of clients.
    pub address: String,
    /// Where it came to.
    pub local_address: String,
    /// Whether what it sends crosses a network in the clear.
    pub is_exposed: bool,
    /// Whether it came to the cluster port.
    pub is_of_cluster: bool,
    /// When it came.
    pub opened_at: UnixMillis,
    /// Since when it is nobody in particular, if it is: when it came, or the last `RESET`.
    pub unauthenticated_since: UnixMillis,
    /// When its last request came.
    pub heard_at: UnixMillis,
    /// The command or subcommand of its last request: a [permission](crate::access::permissions).
    pub(crate) last: Option<usize>,
    /// Whether its next request is held back by a pause.
    pub is_held: bool,
    /// What MULTI has queued.
    pub queued: Option<Program>,
    /// What WATCH noted.
    pub watched: Vec<Watched>,
    /// Channels listened to.
    pub channels: BTreeSet<Box<[u8]>>,
    /// Patterns of channels listened to.
    pub patterns: BTreeSet<Box<[u8]>>,
    /// Channels of shards listened to.
    pub shards: BTreeSet<Box<[u8]>>,
    /// Whether it hears of every request.
    pub is_monitor: bool,
    /// Whether it stays when clients take too much memory.
    pub is_kept: bool,
    /// What its connection takes.
    pub memory: ClientMemory,
    /// Of which keys it keeps copies, if of any.
    pub tracking: Option<Box<Tracking>>,
    /// When it went to keys' first replicas.
    visits: Visits,
    next_ticket: u64,
    /// How many keys were watched and topics listened to when their bytes were counted, and how many these were.
    named: (usize, usize),
}

/// Of how many keys a session knows one by one when it went to their first replicas.
const VISITS_MAX: usize = 4096;

/// When a session went to keys' first replicas last: before which of the questions of its actor to them.
#[derive(Debug, Default)]
struct Visits {
    known: HashMap<KeyHash, u64>,
    /// Of keys that are not known any more, for there were too many, the last of all.
    others: Option<u64>,
}

impl Session {
    fn new(id: SessionId, addresses: (String, String), now: UnixMillis, users: &Users) -> Self {
        let (user, access) = unauthenticated(users);
        let (address, local_address) = addresses;
        Self {
            id,
            database: 0,
            protocol: 2,
            user,
            access,
            name: Vec::new(),
            library: (Vec::new(), Vec::new()),
            address,
            local_address,
            is_exposed: false,
            is_of_cluster: false,
            opened_at: now,
            unauthenticated_since: now,
            heard_at: now,
            last: None,
            is_held: false,
            queued: None,
            watched: Vec::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shards: BTreeSet::new(),
            is_monitor: false,
            is_kept: false,
            memory: ClientMemory::default(),
            tracking: None,
            visits: Visits::default(),
            next_ticket: 0,
            named: (0, 0),
        }
    }

    /// Answers with an error, after which a transaction that is being collected does not run.
    pub(crate) fn refuse(&mut self, error: &CommandError, reply: &mut dyn Reply) -> Progress {
        if let Some(program) = &mut self.queued {
            program.is_broken = true;
        }
        error.answer(reply);
        Progress::Answered
    }

    /// Lets the client be a user.
    pub fn become_user(&mut self, user: Arc<User>) {
        self.access = user.access();
        self.user = user;
    }

    /// Lets the client be nobody in particular again.
    pub fn forget_user(&mut self, users: &Users, now: UnixMillis) {
        (self.user, self.access) = unauthenticated(users);
        self.unauthenticated_since = now;
    }

    /// The session of a script that runs.
    pub(crate) fn of_script(database: u8, users: &Users) -> Self {
        let id = SessionId { place: u32::MAX, serial: 0 };
        Self { database, ..Self::new(id, (String::new(), String::new()), UnixMillis(0), users) }
    }

    /// Before which question it was at a key's first replica last, if it may have been, where it saw what it did there.
    #[must_use]
    pub fn visit_of_first(&self, key: KeyHash) -> Option<u64> {
        self.visits.known.get(&key).copied().or(self.visits.others)
    }

    /// Notes that it goes to a key's first replica, before a question.
    pub fn note_visit(&mut self, key: KeyHash, before: u64) {
        let visits = &mut self.visits;
        visits.known.insert(key, before);
        if visits.known.len() > VISITS_MAX {
            visits.others = Some(before);
            visits.known = HashMap::new();
        }
    }

    /// The place of a reply that comes later.
    pub const fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// Bytes of the requests that MULTI has queued.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued.as_ref().map_or(0, Program::byte_count)
    }

    /// About how many bytes it takes beside itself: of what MULTI has queued, of watched keys, of channels listened to.
    #[inline]
    pub fn byte_count(&mut self) -> usize {
        let has_names = !self.watched.is_empty() || self.named.0 > 0 || self.is_subscribed();
        let names = if has_names { self.name_bytes() } else { 0 };
        self.queued.as_ref().map_or(0, Program::memory) + names + self.name.len()
    }

    /// Of watched keys, and channels listened to.
    #[cold]
    fn name_bytes(&mut self) -> usize {
        /// Of a name in a list or a tree, beside its bytes.
        const NAME: usize = 48;
        let count = self.watched.len() + self.channels.len() + self.patterns.len() + self.shards.len();
        // Most have none, and who has many rarely changes them.
        if count != self.named.0 {
            let topics = self.channels.iter().chain(&self.patterns).chain(&self.shards);
            let names = topics.chain(self.watched.iter().map(|watched| &watched.key));
            self.named = (count, names.map(|name| name.len() + NAME).sum());
        }
        self.named.1
    }

    /// Whether it listens to channels.
    #[must_use]
    #[inline]
    pub fn is_subscribed(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty() || !self.shards.is_empty()
    }

    /// Whether it is told what it did not ask for.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.is_monitor || self.is_subscribed()
    }
}

/// Who a client is before it said so.
fn unauthenticated(users: &Users) -> (Arc<User>, Access) {
    let user = users.default_user();
    let access = if users.is_open() { user.access() } else { Access::Unknown };
    (user, access)
}

/// The sessions of an actor.
#[derive(Debug, Default)]
pub struct Sessions {
    places: Vec<Option<Box<Session>>>,
    free: VecDeque<u32>,
    opened: u32,
    open: usize,
}

impl Sessions {
    /// Begins a session between two addresses, the client's and the one that it came to.
    pub fn open(&mut self, addresses: (String, String), now: UnixMillis, users: &Users) -> SessionId {
        let place = self.free.pop_front().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.opened += 1;
        self.open += 1;
        let id = SessionId { place, serial: self.opened };
        self.places[place as usize] = Some(Box::new(Session::new(id, addresses, now, users)));
        id
    }

    /// Ends a session, and gives it.
    pub fn close(&mut self, id: SessionId) -> Option<Box<Session>> {
        let session = self.take(id)?;
        self.free.push_back(id.place);
        self.open -= 1;
        Some(session)
    }

    /// Takes a session out, to be put back after its request ran.
    pub fn take(&mut self, id: SessionId) -> Option<Box<Session>> {
        let place = self.places.get_mut(id.place as usize)?;
        place.take_if(|session| session.id == id)
    }

    /// Puts a session back.
    pub fn put_back(&mut self, session: Box<Session>) {
        let place = session.id.place as usize;
        self.places[place] = Some(session);
    }

    /// A session.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.places.get(id.place as usize)?.as_deref().filter(|session| session.id == id)
    }

    /// A session, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.places.get_mut(id.place as usize)?.as_deref_mut().filter(|session| session.id == id)
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.places.iter().filter_map(Option::as_deref)
    }

    /// All sessions, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.places.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// How many there are, and how many there ever were.
    #[must_use]
    pub const fn counts(&self) -> (usize, u32) {
        (self.open, self.opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_session_knows_when_it_was_at_the_first_replicas_of_however_many_keys() {
        let mut sessions = Sessions::default();
        let id = sessions.open((String::new(), String::new()), UnixMillis(0), &Users::new(&Config::default()));
        let session = sessions.get_mut(id).expect("it was opened");
        let key = |number: usize| KeyHash::of(number.to_string().as_bytes());
        for number in 0..VISITS_MAX {
            assert_eq!(session.visit_of_first(key(number)), None);
            session.note_visit(key(number), number as u64);
        }
        assert_eq!(session.visit_of_first(key(7)), Some(7));
        session.note_visit(key(VISITS_MAX), 5_000);
        assert_eq!(session.visit_of_first(key(7)), Some(5_000), "not earlier than any of those that are forgotten");
        session.note_visit(key(7), 5_001);
        assert_eq!((session.visit_of_first(key(7)), session.visit_of_first(key(8))), (Some(5_001), Some(5_000)));
    }
}
