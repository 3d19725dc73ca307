//! A tenant: its rows, its sessions, and the statements that they run. Nothing in here waits, reads a clock or touches a socket;
//! what has to wait says so, and is asked for again.

mod control;
mod copy;
mod cursors;
mod execute;
mod fetch;
mod image;
pub(crate) mod notify;
mod numbers;
mod open;
mod parts;
mod plans;
mod portals;
mod prepared;
pub(crate) mod reader;
mod settled;
mod suspended;
mod transactions;
mod wait;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use savanna_journal::Lsn;
use savanna_tenants_catalog::{Catalog, Search, name, sequence::Numbers};
use savanna_tenants_sql::{
    backends::Backends,
    doing::Doing,
    plan::Statement,
    settings::{Encoding, Timeouts},
};
use savanna_tenants_store::{
    database::{Database, SessionId},
    spills::Spills,
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::{Lent, Pool},
    value::style::Style,
};
use savanna_transaction::TxnId;

use self::fetch::Fetch;
pub use self::{
    image::{Bound, InTransaction, SessionImage},
    notify::Notification,
    open::{OpenImage, Ticket},
    parts::Writes,
    portals::{Binding, Given},
    reader::{Read, Reader},
};
use crate::{
    activity::Activity,
    session::{Session, Status},
};

const SESSIONS_MAX: usize = 100;

/// Who opens a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login<'a> {
    /// Its name.
    pub user: &'a str,
    /// The tenant's name.
    pub database: &'a str,
    /// Whether it may make and remove tenants.
    pub administrator: bool,
    /// Where its random numbers begin; nobody else should know.
    pub seed: u64,
}

/// What a client is told beside an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is a warning: what happened is probably not what was meant.
    pub is_warning: bool,
    /// Five characters, as of an error.
    pub state: &'static str,
    /// What happened.
    pub message: String,
}

impl Notice {
    /// What was left out, or done besides.
    pub fn plain(message: impl Into<String>) -> Self {
        Self { is_warning: false, state: "00000", message: message.into() }
    }

    /// What is probably not what was meant.
    pub fn warning(state: &'static str, message: impl Into<String>) -> Self {
        Self { is_warning: true, state, message: message.into() }
    }

    /// A name is too long.
    pub(crate) fn cut(name: &str) -> Self {
        let message = format!("identifier \"{name}\" will be truncated to \"{}\"", name::cut(name));
        Self { is_warning: false, state: state::NAME_TOO_LONG, message }
    }
}

/// Why a tenant may not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The storage takes nothing, and much waits for it.
    Storage,
    /// The rows of all tenants fill the memory, this one has more than its share, and they cannot be moved out of it.
    Memory,
}

/// A tenant that is being served.
#[derive(Debug)]
pub struct Tenant {
    database: Database,
    sessions: HashMap<SessionId, Session>,
    opened: u64,
    activity: Arc<Activity>,
    /// By what is searched, and their texts.
    plans: BTreeMap<Search, HashMap<String, Arc<Statement>>>,
    plans_made: u64,
    /// Catalogs as sessions with other search paths look into them, with those that they are made of.
    searched: BTreeMap<Search, (Arc<Catalog>, Arc<Catalog>)>,
    numbers: Numbers,
    waiting: HashMap<TxnId, SessionId>,
    fetches: Vec<Fetch>,
    /// Transactions whose writes are to be written down before they commit.
    to_write: Vec<Writes>,
    woken: Vec<SessionId>,
    heard: Vec<SessionId>,
    /// What sessions have left that went away with what is open in them.
    left: BTreeMap<Ticket, open::Left>,
    refuses_writes: Option<NoRoom>,
    /// Where statements take their memory.
    memory: Option<Arc<Pool>>,
    /// Microseconds since 2000-01-01 UTC.
    now: i64,
}

impl Tenant {
    /// Serves a database, and counts what it does.
    #[must_use]
    pub fn new(database: Database, activity: Arc<Activity>) -> Self {
        Self {
            database,
            sessions: HashMap::new(),
            opened: 0,
            activity,
            plans: BTreeMap::new(),
            plans_made: 0,
            searched: BTreeMap::new(),
            numbers: Numbers::default(),
            waiting: HashMap::new(),
            fetches: Vec::new(),
            to_write: Vec::new(),
            woken: Vec::new(),
            heard: Vec::new(),
            left: BTreeMap::new(),
            refuses_writes: None,
            memory: None,
            now: 0,
        }
    }

    /// Lets its statements take their memory where those of others do.
    #[must_use]
    pub fn sharing(mut self, memory: Arc<Pool>) -> Self {
        self.database.share_memory(Pool::for_writes(&memory));
        self.memory = Some(memory);
        self
    }

    /// Lets its statements put rows into files that they have no memory for.
    #[must_use]
    pub fn spilling(mut self, spills: Arc<Spills>) -> Self {
        self.database.spill_to(spills);
        self
    }

    /// The rows below, for whoever looks after them.
    pub fn database(&mut self) -> &mut Database {
        &mut self.database
    }

    /// Says what time it is, in microseconds since 2000-01-01 UTC.
    pub fn set_now(&mut self, micros: i64) {
        self.now = micros;
    }

    /// Says why there is no room for what is written, if there is none: then statements that write fail.
    pub const fn refuse_writes(&mut self, why: Option<NoRoom>) {
        self.refuses_writes = why;
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// A session has the settings that its client begins with; `RESET` goes back to them.
    pub fn begin_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.facts.settings.begin();
        }
    }

    /// Tells a session its connection's number, and who knows all connections.
    pub fn connect(&mut self, id: SessionId, pid: i32, backends: Arc<dyn Backends>) {
        let now = self.now;
        if let Some(session) = self.sessions.get_mut(&id) {
            session.facts.pid = pid;
            session.facts.backends = Some(backends);
            session.facts.doing.note(|noted| noted.connected = Some(now));
            session.show_rest(now);
        }
    }

    /// What a session does, for those who watch it.
    #[must_use]
    pub fn doing(&self, id: SessionId) -> Arc<Doing> {
        self.sessions.get(&id).map(|session| Arc::clone(&session.facts.doing)).unwrap_or_default()
    }

    /// Opens a session, beside those that will come for what they have left.
    ///
    /// # Errors
    /// 53300.
    pub fn open_session(&mut self, login: Login<'_>) -> Result<SessionId> {
        self.open_beside(login, self.left.len())
    }

    /// Opens a session that was elsewhere, to be [restored](Self::restore).
    ///
    /// # Errors
    /// 53300.
    pub fn open_again(&mut self, login: Login<'_>) -> Result<SessionId> {
        self.open_beside(login, 0)
    }

    fn open_beside(&mut self, login: Login<'_>, expected: usize) -> Result<SessionId> {
        if self.sessions.len() + expected >= SESSIONS_MAX {
            return Err(SqlError::new(state::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        self.opened += 1;
        let id = SessionId(self.opened);
        let mut session = Session::new(login);
        session.facts.numbers = self.numbers.clone();
        session.facts.lent = Lent::of(self.memory.clone());
        self.sessions.insert(id, session);
        self.activity.has_sessions(self.sessions.len());
        Ok(id)
    }

    /// Closes a session and rolls its transaction back.
    pub fn close_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            if let Some(txn) = session.txn {
                self.waiting.remove(&txn.id);
                self.database.abort(txn.id);
                self.activity.rolled_back();
            }
            if let Some(holder) = session.facts.advisory.into_inner().holder {
                self.database.remove_holder(holder);
            }
        }
        self.database.drop_temporary(id);
        self.activity.has_sessions(self.sessions.len());
        self.settle();
    }

    /// Sets a session's setting, as the startup message does.
    ///
    /// # Errors
    /// If there is no such setting or value.
    pub fn set(&mut self, id: SessionId, name: &str, value: &str) -> Result<()> {
        self.session(id)?.facts.settings.set(&name.to_ascii_lowercase(), Some(value))
    }

    /// What a session is in.
    #[must_use]
    pub fn status(&self, id: SessionId) -> Status {
        self.sessions.get(&id).map_or(Status::Idle, Session::status)
    }

    /// The session's client was told what came of its statements: their rows are gone. What the session is in.
    pub fn told(&mut self, id: SessionId) -> Status {
        if let Some(session) = self.sessions.get(&id) {
            session.facts.lent.give_back();
            session.show_rest(self.now);
        }
        self.status(id)
    }

    /// The place in the log that everything depends on which the session was answered since the last call.
    pub fn reply_after(&mut self, id: SessionId) -> Lsn {
        self.sessions.get_mut(&id).map_or(Lsn::NONE, |session| std::mem::take(&mut session.reply_after))
    }

    /// Notices for the client, and warnings.
    pub fn notices(&mut self, id: SessionId) -> Vec<Notice> {
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        let mut notices = std::mem::take(&mut session.notices);
        notices.retain(|notice| notice.is_warning || session.facts.settings.notices);
        notices
    }

    /// How long a session's statements, waits and pauses may take.
    #[must_use]
    pub fn timeouts(&self, id: SessionId) -> Timeouts {
        self.sessions.get(&id).map(|session| session.facts.settings.timeouts).unwrap_or_default()
    }

    /// How a session shows dates and intervals.
    #[must_use]
    pub fn style(&self, id: SessionId) -> Style {
        self.sessions.get(&id).map(|session| session.facts.settings.style).unwrap_or_default()
    }

    /// How a session's texts are written.
    #[must_use]
    pub fn encoding(&self, id: SessionId) -> Encoding {
        self.sessions.get(&id).map(|session| session.facts.settings.encoding).unwrap_or_default()
    }

    fn session(&mut self, id: SessionId) -> Result<&mut Session> {
        self.sessions.get_mut(&id).ok_or_else(closed)
    }
}

fn closed() -> SqlError {
    SqlError::internal("the session is closed")
}
