//! A tenant: its rows, its sessions, and the statements that they run. Nothing in here waits, reads a clock or touches a socket;
//! what has to wait says so, and is asked for again.

mod control;
mod fetch;

use std::{collections::HashMap, sync::Arc};

use savanna_journal::Lsn;
use savanna_transaction::{Event, TxnId};

use self::fetch::Fetch;
use crate::{
    activity::Activity,
    catalog::Catalog,
    database::{Database, Step},
    error::{Result, SqlError, state},
    interrupt::{Interrupts, Reason},
    sequence::Numbers,
    session::{Current, Interruption, Outcome, Portal, Prepared, Progress, Session, SessionId, Status},
    settings::Timeouts,
    sql::{
        effects::{Effects, too_large},
        parse,
        plan::{OutputColumn, Plan, Statement},
        prepare::prepare,
        reference::Deferral,
        run::Run,
        run_modify::Written,
        run_reference::Checks,
    },
    store::Reading,
    types::Type,
    value::{Value, binary, text},
};

/// Sessions of a tenant, and what each may keep.
const SESSIONS_MAX: usize = 100;
const STATEMENTS_MAX: usize = 1_000;
const PORTALS_MAX: usize = 1_000;
/// Plans of texts that are kept for whoever sends them again.
const PLANS_MAX: usize = 1_000;
/// Longer texts are not likely to come again.
const PLAN_TEXT_MAX: usize = 4_096;

/// Numbers of a sequence that are reserved at once, and at most if a statement needs many.
const NUMBERS_AT_ONCE: u64 = 32;
const NUMBERS_AT_ONCE_MAX: u64 = 1 << 20;

/// A parameter's value as a client sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given<'a> {
    /// No value.
    Null,
    /// Its text.
    Text(&'a [u8]),
    /// Its binary format.
    Binary(&'a [u8]),
}

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

/// A tenant that is being served.
#[derive(Debug)]
pub struct Tenant {
    database: Database,
    sessions: HashMap<SessionId, Session>,
    opened: u64,
    activity: Arc<Activity>,
    plans: HashMap<String, Arc<Statement>>,
    numbers: Numbers,
    waiting: HashMap<TxnId, SessionId>,
    fetches: Vec<Fetch>,
    woken: Vec<SessionId>,
    refuses_writes: bool,
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
            plans: HashMap::new(),
            numbers: Numbers::default(),
            waiting: HashMap::new(),
            fetches: Vec::new(),
            woken: Vec::new(),
            refuses_writes: false,
            now: 0,
        }
    }

    /// The rows below, for whoever looks after them.
    pub fn database(&mut self) -> &mut Database {
        &mut self.database
    }

    /// Says what time it is, in microseconds since 2000-01-01 UTC.
    pub fn set_now(&mut self, micros: i64) {
        self.now = micros;
    }

    /// Says whether there is room for what is written: if not, statements that write fail.
    pub fn refuse_writes(&mut self, refuse: bool) {
        self.refuses_writes = refuse;
    }

    /// Those whose statement may go on: ask for it again.
    pub fn woken(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.woken)
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Opens a session.
    ///
    /// # Errors
    /// 53300.
    pub fn open_session(&mut self, login: Login<'_>) -> Result<SessionId> {
        if self.sessions.len() == SESSIONS_MAX {
            return Err(SqlError::new(state::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        self.opened += 1;
        let id = SessionId(self.opened);
        let mut session = Session::new(login);
        session.facts.numbers = self.numbers.clone();
        self.sessions.insert(id, session);
        self.activity.has_sessions(self.sessions.len());
        Ok(id)
    }

    /// Closes a session and rolls its transaction back.
    pub fn close_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id)
            && let Some(txn) = session.txn
        {
            self.waiting.remove(&txn.id);
            self.database.abort(txn.id);
            self.activity.rolled_back();
        }
        self.activity.has_sessions(self.sessions.len());
        self.settle();
    }

    /// Sets a session's setting, as the startup message does.
    ///
    /// # Errors
    /// If there is no such setting or value.
    pub fn set(&mut self, id: SessionId, name: &str, value: &str) -> Result<()> {
        self.session(id)?.settings.set(&name.to_ascii_lowercase(), Some(value))
    }

    /// What a session is in.
    #[must_use]
    pub fn status(&self, id: SessionId) -> Status {
        self.sessions.get(&id).map_or(Status::Idle, Session::status)
    }

    /// The place in the log that everything depends on which the session was answered since the last call.
    pub fn reply_after(&mut self, id: SessionId) -> Lsn {
        self.sessions.get_mut(&id).map_or(Lsn::NONE, |session| std::mem::take(&mut session.reply_after))
    }

    /// Notices for the client.
    pub fn notices(&mut self, id: SessionId) -> Vec<String> {
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        let notices = std::mem::take(&mut session.notices);
        if session.settings.notices { notices } else { Vec::new() }
    }

    /// By what a session's statement is ended while it runs. If it waits, [`stop_waiting`](Self::stop_waiting) must be told, too.
    #[must_use]
    pub fn interrupts(&self, id: SessionId) -> Arc<Interrupts> {
        self.sessions.get(&id).map(|session| Arc::clone(&session.facts.interrupts)).unwrap_or_default()
    }

    /// How long a session's statements, waits and pauses may take.
    #[must_use]
    pub fn timeouts(&self, id: SessionId) -> Timeouts {
        self.sessions.get(&id).map(|session| session.settings.timeouts).unwrap_or_default()
    }

    /// Whether a session waits for a lock, and not for the storage.
    #[must_use]
    pub fn waits_for_lock(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.waits)
            && !self.fetches.iter().any(|fetch| fetch.is_for(id))
    }

    /// Ends a session's statement for a reason.
    pub fn interrupt(&mut self, id: SessionId, reason: Reason) {
        self.interrupts(id).interrupt(reason);
        self.stop_waiting(id);
    }

    /// Ends the wait of a session whose statement was interrupted.
    pub fn stop_waiting(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get(&id)
            && session.waits
            && session.facts.interrupts.reason().is_some()
            && let Some(txn) = &session.txn
            // Who does not wait any more is woken already.
            && (self.database.cancel_wait(txn.id).is_ok() || self.give_up_fetch(id))
        {
            self.woken.push(id);
        }
        self.settle();
    }

    /// The statements of a simple query's text.
    ///
    /// # Errors
    /// 42601; the transaction has failed then.
    pub fn split(&mut self, id: SessionId, text: &str) -> Result<Vec<String>> {
        parse::split(text).inspect_err(|_| self.fail(id))
    }

    /// Runs one statement of a simple query. After [`Step::Wait`], run it again when the session is woken.
    ///
    /// # Errors
    /// Those of the statement; the transaction has failed then.
    pub fn run(&mut self, id: SessionId, text: &str) -> Result<Step<(Outcome, Option<Vec<OutputColumn>>)>> {
        self.begin_statement(id);
        let step = self.run_simple(id, text);
        self.after(id, step)
    }

    /// Prepares a statement under a name; the empty name is always free.
    ///
    /// # Errors
    /// Those of parsing and planning; the transaction has failed then.
    pub fn parse(&mut self, id: SessionId, name: &str, text: &str, types: &[u32]) -> Result<()> {
        let parsed = self.parse_as(id, name, text, types);
        parsed.inspect_err(|_| self.fail(id))
    }

    /// Makes a portal of a prepared statement.
    ///
    /// # Errors
    /// If there is no such statement, or a parameter is not of its type; the transaction has failed then.
    pub fn bind(&mut self, id: SessionId, portal: &str, statement: &str, given: &[Given<'_>]) -> Result<()> {
        let bound = self.bind_as(id, portal, statement, given);
        bound.inspect_err(|_| self.fail(id))
    }

    /// The types of a prepared statement's parameters, and its result's columns.
    ///
    /// # Errors
    /// 26000; the transaction has failed then.
    pub fn describe_statement(&mut self, id: SessionId, name: &str) -> Result<(Vec<Type>, Option<Vec<OutputColumn>>)> {
        let found = self.session(id)?.prepared.get(name).map(|prepared| Arc::clone(&prepared.statement));
        match found {
            Some(statement) => Ok((statement.parameters.clone(), statement.output.clone())),
            None => {
                self.fail(id);
                Err(no_statement(name))
            }
        }
    }

    /// The columns of a portal's result.
    ///
    /// # Errors
    /// 34000; the transaction has failed then.
    pub fn describe_portal(&mut self, id: SessionId, name: &str) -> Result<Option<Vec<OutputColumn>>> {
        let found = self.session(id)?.portals.get(name).map(|portal| Arc::clone(&portal.prepared.statement));
        match found {
            Some(statement) => Ok(statement.output.clone()),
            None => {
                self.fail(id);
                Err(no_portal(name))
            }
        }
    }

    /// Executes a portal, for at most so many rows (0 for all). After [`Step::Wait`], execute it again when the session is
    /// woken.
    ///
    /// # Errors
    /// Those of the statement; the transaction has failed then.
    pub fn execute(&mut self, id: SessionId, name: &str, rows_max: usize) -> Result<Step<Outcome>> {
        self.begin_statement(id);
        let step = self.execute_portal(id, name, rows_max);
        self.after(id, step)
    }

    /// Forgets a prepared statement.
    pub fn close_statement(&mut self, id: SessionId, name: &str) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.prepared.remove(name);
        }
    }

    /// Forgets a portal.
    pub fn close_portal(&mut self, id: SessionId, name: &str) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.portals.remove(name);
        }
    }

    /// Takes the lines of a `COPY`, all at once, as the texts of their columns. After [`Step::Wait`], give them again when the
    /// session is woken.
    ///
    /// # Errors
    /// Those of inserting; the transaction has failed then.
    pub fn copy_in(&mut self, id: SessionId, lines: &[Vec<Option<String>>]) -> Result<Step<Outcome>> {
        self.begin_statement(id);
        let step = self.numbered(id, |tenant| tenant.copy_lines(id, lines));
        let step = self.after(id, step);
        if !matches!(step, Ok(Step::Wait))
            && let Some(session) = self.sessions.get_mut(&id)
        {
            session.copying = None;
        }
        step
    }

    /// Gives a `COPY` up.
    pub fn copy_fail(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.copying = None;
        }
        self.fail(id);
    }

    /// Ends what the client did not begin: the transaction of single statements, at the end of a query or at Sync. After
    /// [`Step::Wait`], ask again when the session is woken.
    ///
    /// # Errors
    /// 40001 and the like.
    pub fn finish(&mut self, id: SessionId) -> Result<Step<()>> {
        let explicit = match self.sessions.get(&id).and_then(|session| session.txn.as_ref()) {
            None => return Ok(Step::Done(())),
            Some(txn) => txn.explicit,
        };
        if explicit {
            return Ok(Step::Done(()));
        }
        self.begin_statement(id);
        let step = self.fetching(id, |tenant| tenant.commit(id));
        self.after(id, step)
    }

    /// Notes that something failed: the transaction is over, or waits for its rollback if the client began it.
    pub fn fail(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.simple = None;
            session.waits = false;
            session.facts.interrupts.end();
            session.reading = Reading::default();
            match &mut session.txn {
                Some(txn) if txn.explicit => {
                    txn.failed = true;
                    // Its statement is over; a snapshot that it may have holds up nothing. One that waits has none to end.
                    _ = self.database.end_statement(txn.id);
                }
                Some(_) => self.roll_back(id),
                None => {}
            }
        }
        self.settle();
    }

    fn session(&mut self, id: SessionId) -> Result<&mut Session> {
        self.sessions.get_mut(&id).ok_or_else(|| SqlError::internal("the session is closed"))
    }

    /// From here on a session's statement can be interrupted.
    fn begin_statement(&self, id: SessionId) {
        if let Some(session) = self.sessions.get(&id) {
            session.facts.interrupts.begin();
        }
    }

    /// Puts a session that waits among the waiting, and fails one whose step failed.
    fn after<T>(&mut self, id: SessionId, step: Result<Step<T>>) -> Result<Step<T>> {
        match &step {
            Ok(Step::Wait) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.waits = true;
                    if let Some(txn) = &session.txn
                        && !self.fetches.iter().any(|fetch| fetch.is_for(id))
                    {
                        self.waiting.insert(txn.id, id);
                    }
                }
            }
            Ok(Step::Done(_)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.waits = false;
                    session.facts.interrupts.end();
                }
            }
            Err(_) => self.fail(id),
        }
        self.settle();
        step
    }

    /// Wakes those whose wait is over.
    fn settle(&mut self) {
        for event in self.database.events() {
            let (txn, deadlock) = match event {
                Event::Granted(txn) => (txn, false),
                Event::Deadlocked(txn) => (txn, true),
            };
            let Some(id) = self.waiting.remove(&txn) else { continue };
            if let Some(session) = self.sessions.get_mut(&id)
                && deadlock
            {
                session.interrupted.get_or_insert(Interruption::Deadlock);
            }
            self.woken.push(id);
        }
    }

    /// The error of a wait that was ended.
    fn interruption(&mut self, id: SessionId) -> Result<()> {
        let session = self.session(id)?;
        session.waits = false;
        match session.interrupted.take() {
            None => session.facts.interrupts.check(),
            Some(Interruption::Failed(error)) => Err(error),
            Some(Interruption::Deadlock) => Err(SqlError::new(state::DEADLOCK_DETECTED, "deadlock detected")
                .detail("The transaction waits for others that wait for it, and is the youngest of them.")
                .hint("Roll back and try again.")),
        }
    }

    fn run_simple(&mut self, id: SessionId, text: &str) -> Result<Step<(Outcome, Option<Vec<OutputColumn>>)>> {
        self.interruption(id)?;
        let prepared = match self.session(id)?.simple.take() {
            Some(prepared) => prepared,
            None => self.prepared(id, text, Vec::new())?,
        };
        if !prepared.statement.parameters.is_empty() {
            return Err(SqlError::new(state::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        let mut statement = Arc::clone(&prepared.statement);
        let step = self.execute_statement(id, &prepared, &mut statement, &[])?;
        Ok(match step {
            Step::Wait => {
                self.session(id)?.simple = Some(prepared);
                Step::Wait
            }
            Step::Done(outcome) => Step::Done((outcome, statement.output.clone())),
        })
    }

    /// A text's plan, perhaps one that is there already.
    fn prepared(&mut self, id: SessionId, text: &str, declared: Vec<Type>) -> Result<Prepared> {
        let catalog = self.visible_catalog(id)?;
        let statement = self.planned(text, catalog, &declared)?;
        Ok(Prepared { text: text.into(), declared, statement })
    }

    fn planned(&mut self, text: &str, catalog: Arc<Catalog>, declared: &[Type]) -> Result<Arc<Statement>> {
        if let Some(statement) = self.plans.get(text)
            && declared.is_empty()
            && Arc::ptr_eq(&statement.catalog, &catalog)
        {
            return Ok(Arc::clone(statement));
        }
        let statement = Arc::new(prepare(text, catalog, declared)?);
        if declared.is_empty() && text.len() <= PLAN_TEXT_MAX {
            if self.plans.len() >= PLANS_MAX {
                self.plans.clear();
            }
            self.plans.insert(text.to_owned(), Arc::clone(&statement));
        }
        Ok(statement)
    }

    /// The catalog that a session's next statement sees.
    fn visible_catalog(&mut self, id: SessionId) -> Result<Arc<Catalog>> {
        let txn = match &self.session(id)?.txn {
            Some(txn) if !txn.failed && (txn.defines || txn.used) => (txn.id, txn.defines),
            _ => return Ok(self.database.newest_catalog()),
        };
        let snapshot = self.database.statement(txn.0)?;
        let catalog = self.catalog_at(txn, snapshot)?;
        self.database.end_statement(txn.0)?;
        Ok(catalog)
    }

    fn catalog_at(&mut self, (txn, defines): (TxnId, bool), at: savanna_transaction::Csn) -> Result<Arc<Catalog>> {
        match defines {
            true => Ok(Arc::new(self.database.read_catalog(txn, at)?)),
            false => self.database.catalog(at),
        }
    }

    fn parse_as(&mut self, id: SessionId, name: &str, text: &str, types: &[u32]) -> Result<()> {
        if parse::split(text)?.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let mut declared = Vec::with_capacity(types.len());
        let catalog = self.visible_catalog(id)?;
        for oid in types {
            let of = catalog.type_of_oid(*oid);
            declared
                .push(of.ok_or_else(|| SqlError::unsupported(format_args!("a parameter of the type with OID {oid}")))?);
        }
        let prepared = self.prepared(id, text, declared)?;
        let session = self.session(id)?;
        refuse_if_failed(session, &prepared.statement.plan)?;
        if !name.is_empty() {
            if session.prepared.contains_key(name) {
                let message = format!("prepared statement \"{name}\" already exists");
                return Err(SqlError::new(state::DUPLICATE_PREPARED_STATEMENT, message));
            }
            if session.prepared.len() >= STATEMENTS_MAX {
                let message = format!("a session prepares at most {STATEMENTS_MAX} statements");
                return Err(SqlError::new("53400", message).hint("Close some of them first."));
            }
        }
        session.prepared.insert(name.to_owned(), prepared);
        Ok(())
    }

    fn bind_as(&mut self, id: SessionId, portal: &str, statement: &str, given: &[Given<'_>]) -> Result<()> {
        let session = self.session(id)?;
        let prepared = session.prepared.get(statement).ok_or_else(|| no_statement(statement))?.clone();
        refuse_if_failed(session, &prepared.statement.plan)?;
        let types = &prepared.statement.parameters;
        if types.len() != given.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                given.len(),
                types.len()
            );
            return Err(SqlError::new(state::PROTOCOL_VIOLATION, message));
        }
        let context = prepared.statement.catalog.context();
        let value = |(given, of): (&Given<'_>, &Type)| match given {
            Given::Null => Ok(Value::Null),
            Given::Text(bytes) => text::parse(binary::utf8(bytes)?, *of, context),
            Given::Binary(bytes) => binary::parse(bytes, *of, context),
        };
        let parameters = given.iter().zip(types).map(value).collect::<Result<_>>()?;
        if !portal.is_empty() {
            if session.portals.contains_key(portal) {
                return Err(SqlError::new(state::DUPLICATE_CURSOR, format!("cursor \"{portal}\" already exists")));
            }
            if session.portals.len() >= PORTALS_MAX {
                let message = format!("a session opens at most {PORTALS_MAX} portals");
                return Err(SqlError::new("53400", message).hint("Close some of them first."));
            }
        }
        session.portals.insert(portal.to_owned(), Portal { prepared, parameters, progress: Progress::Ready });
        Ok(())
    }

    fn execute_portal(&mut self, id: SessionId, name: &str, rows_max: usize) -> Result<Step<Outcome>> {
        self.interruption(id)?;
        let Some(mut portal) = self.session(id)?.portals.remove(name) else { return Err(no_portal(name)) };
        if matches!(portal.progress, Progress::Ready) {
            let mut statement = Arc::clone(&portal.prepared.statement);
            let step = self.execute_statement(id, &portal.prepared, &mut statement, &portal.parameters)?;
            let outcome = match step {
                Step::Wait => {
                    self.session(id)?.portals.insert(name.to_owned(), portal);
                    return Ok(Step::Wait);
                }
                Step::Done(outcome) => outcome,
            };
            if !same_output(portal.prepared.statement.output.as_deref(), statement.output.as_deref()) {
                let message = "cached plan must not change result type";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
            }
            match outcome {
                Outcome::Rows { tag, rows, .. } => {
                    let verb = tag.rsplit_once(' ').map_or(tag.as_str(), |(verb, _)| verb).to_owned();
                    portal.progress = Progress::Sending { verb, rows: rows.into(), sent: 0 };
                }
                other => {
                    portal.progress = Progress::Over;
                    self.keep_portal(id, name, portal)?;
                    return Ok(Step::Done(other));
                }
            }
        } else {
            refuse_if_failed(self.session(id)?, &portal.prepared.statement.plan)?;
        }
        let Progress::Sending { verb, rows, sent } = &mut portal.progress else {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        };
        let count = if rows_max == 0 { rows.len() } else { rows_max.min(rows.len()) };
        let now: Vec<Vec<Value>> = rows.drain(..count).collect();
        // As in PostgreSQL, the end is known when fewer rows come than were asked for.
        let end = rows_max == 0 || now.len() < rows_max;
        *sent += now.len();
        let outcome = Outcome::Rows { tag: format!("{verb} {}", if end { now.len() } else { *sent }), rows: now, end };
        self.keep_portal(id, name, portal)?;
        Ok(Step::Done(outcome))
    }

    /// A portal is kept until its transaction ends, which may just have happened.
    fn keep_portal(&mut self, id: SessionId, name: &str, portal: Portal) -> Result<()> {
        let session = self.session(id)?;
        if session.txn.is_some() {
            session.portals.insert(name.to_owned(), portal);
        }
        Ok(())
    }

    fn execute_statement(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        statement: &mut Arc<Statement>,
        parameters: &[Value],
    ) -> Result<Step<Outcome>> {
        self.numbered(id, |tenant| tenant.execute_once(id, prepared, statement, parameters))
    }

    /// Runs what may take numbers of sequences. If one has none left, more are reserved and it runs again; it has done
    /// nothing.
    fn numbered(
        &mut self,
        id: SessionId,
        attempt: impl FnMut(&mut Self) -> Result<Step<Outcome>>,
    ) -> Result<Step<Outcome>> {
        self.fetching(id, |tenant| tenant.with_numbers(id, attempt))
    }

    fn with_numbers(
        &mut self,
        id: SessionId,
        mut attempt: impl FnMut(&mut Self) -> Result<Step<Outcome>>,
    ) -> Result<Step<Outcome>> {
        let mut count = NUMBERS_AT_ONCE;
        loop {
            let before = self.numbers.save();
            let step = attempt(self);
            if let Some(sequence) = self.numbers.wanted() {
                self.numbers.restore(before);
                let reserved = self.database.reserve(&sequence, count.max(sequence.cache.unsigned_abs()))?;
                self.numbers.add(&sequence, reserved);
                count = (2 * count).min(NUMBERS_AT_ONCE_MAX);
                continue;
            }
            if let Ok(Step::Wait) = step {
                self.numbers.restore(before);
                return step;
            }
            // As in PostgreSQL, what a statement did to sequences stays if it fails.
            let mut after = self.numbers.after();
            for (sequence, next) in self.numbers.taken_set() {
                after = after.max(self.database.set_sequence(&sequence, next)?);
            }
            let session = self.session(id)?;
            session.reply_after = session.reply_after.max(after);
            return step;
        }
    }

    /// Runs a statement; plans it again if the catalog is another than it was planned with.
    fn execute_once(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        statement: &mut Arc<Statement>,
        parameters: &[Value],
    ) -> Result<Step<Outcome>> {
        let now = self.now;
        let session = self.session(id)?;
        refuse_if_failed(session, &statement.plan)?;
        session.facts.statement_began = now;
        if let Some(step) = self.control(id, &statement.plan)? {
            return Ok(step);
        }
        let session = self.session(id)?;
        if session.txn.is_none() {
            let (isolation, read_only) = (session.settings.isolation, session.settings.read_only);
            self.begin(id, isolation, read_only, false)?;
        }
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(txn), .. }) = sessions.get_mut(&id) else {
            return Err(SqlError::internal("no transaction"));
        };
        txn.used = true;
        let (txn_id, isolation, defines, read_only) = (txn.id, txn.isolation, txn.defines, txn.read_only);
        let snapshot = database.statement(txn_id)?;
        let behind = database.is_behind(snapshot);
        let catalog = self.catalog_at((txn_id, defines), snapshot)?;
        if !Arc::ptr_eq(&catalog, &statement.catalog) {
            *statement = self.planned(&prepared.text, catalog, &prepared.declared)?;
            // The parameters were read as the types that were known then.
            if statement.parameters != prepared.statement.parameters {
                let message = "the types of a prepared statement's parameters have changed";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint("Prepare it again."));
            }
        }
        let plan = &statement.plan;
        if read_only && !matches!(plan, Plan::Query(_) | Plan::CopyOut(_)) {
            let message = format!("cannot execute {} in a read-only transaction", verb_of(plan));
            return Err(SqlError::new(state::READ_ONLY_SQL_TRANSACTION, message));
        }
        let Self { database, sessions, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return Err(SqlError::internal("the session is closed")) };
        session.facts.catalog = Arc::clone(&statement.catalog);
        let deferral = session.txn.as_ref().map(|txn| txn.deferral.clone()).unwrap_or_default();
        let run = Run::new(database, (txn_id, isolation), parameters, &session.facts, &deferral);
        let step = match plan {
            Plan::Query(query) => run
                .query(query)?
                .map(|rows| (Outcome::Rows { tag: format!("SELECT {}", rows.len()), rows, end: true }, None)),
            Plan::CopyOut(query) => {
                run.query(query)?.map(|rows| (Outcome::CopyOut { columns: query.columns.clone(), rows }, None))
            }
            Plan::Insert(insert) => {
                run.insert(insert)?.map(|written| written_outcome("INSERT 0", insert.returning.is_some(), written))
            }
            Plan::Update(update) => {
                run.update(update)?.map(|written| written_outcome("UPDATE", update.returning.is_some(), written))
            }
            Plan::Delete(delete) => {
                run.delete(delete)?.map(|written| written_outcome("DELETE", delete.returning.is_some(), written))
            }
            Plan::CopyIn(copy) => run.hold(&copy.target)?.map(|()| {
                session.copying = Some(Arc::clone(statement));
                (Outcome::CopyIn { columns: copy.columns.len() }, None)
            }),
            Plan::Define(define) => {
                let catalog = Arc::clone(&statement.catalog);
                run.define(define, &catalog, behind)?.map(|defined| {
                    session.notices.extend(defined.notices);
                    if let Some(txn) = &mut session.txn {
                        txn.defines = true;
                    }
                    (Outcome::Done { tag: defined.tag.to_owned() }, Some(defined.effects))
                })
            }
            other => return Err(SqlError::internal(format_args!("{} is run by nobody", verb_of(other)))),
        };
        match step {
            Step::Wait => Ok(Step::Wait),
            Step::Done((outcome, effects)) => {
                self.end_statement(id, effects)?;
                Ok(Step::Done(outcome))
            }
        }
    }

    /// Writes what a statement came to, and notes what its reply depends on.
    fn end_statement(&mut self, id: SessionId, effects: Option<Effects>) -> Result<()> {
        let Self { database, sessions, refuses_writes, .. } = self;
        let Some(Session { txn: Some(txn), reply_after, .. }) = sessions.get_mut(&id) else {
            return Err(SqlError::internal("no transaction"));
        };
        if let Some(mut effects) = effects {
            if *refuses_writes && !effects.is_empty() {
                return Err(no_room());
            }
            txn.deferred.append(&mut effects.touched.deferred);
            txn.bytes += effects.bytes();
            if txn.bytes > crate::database::TRANSACTION_BYTES_MAX {
                return Err(too_large());
            }
            effects.apply(database)?;
        }
        *reply_after = (*reply_after).max(database.reply_after(txn.id)?);
        database.end_statement(txn.id)
    }

    fn copy_lines(&mut self, id: SessionId, lines: &[Vec<Option<String>>]) -> Result<Step<Outcome>> {
        self.interruption(id)?;
        let Self { database, sessions, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return Err(SqlError::internal("the session is closed")) };
        let (Some(statement), Some(txn)) = (session.copying.clone(), &session.txn) else {
            return Err(SqlError::new(state::PROTOCOL_VIOLATION, "expected no lines, because there is no COPY"));
        };
        let Plan::CopyIn(plan) = &statement.plan else { return Err(SqlError::internal("a COPY of nothing")) };
        let (deferral, isolation, txn) = (&txn.deferral, txn.isolation, txn.id);
        database.statement(txn)?;
        let run = Run::new(database, (txn, isolation), &[], &session.facts, deferral);
        match run.copy_in(plan, lines)? {
            Step::Wait => Ok(Step::Wait),
            Step::Done(Written { count, effects, .. }) => {
                self.end_statement(id, Some(effects))?;
                Ok(Step::Done(Outcome::Done { tag: format!("COPY {count}") }))
            }
        }
    }

    fn begin(
        &mut self,
        id: SessionId,
        isolation: savanna_transaction::Isolation,
        read_only: bool,
        explicit: bool,
    ) -> Result<()> {
        let txn = self.database.begin(isolation);
        let now = self.now;
        let session = self.session(id)?;
        session.facts.transaction_began = now;
        session.txn = Some(Current {
            id: txn,
            isolation,
            read_only,
            explicit,
            failed: false,
            used: false,
            defines: false,
            bytes: 0,
            savepoints: Vec::new(),
            deferral: Deferral::default(),
            deferred: Checks::new(),
            settings_before: None,
            local_settings: Vec::new(),
        });
        Ok(())
    }

    /// Checks what the transaction has put off, on its newest state.
    fn check_deferred(&mut self, id: SessionId, checks: &Checks) -> Result<Step<()>> {
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(txn), facts, .. }) = sessions.get(&id) else { return Ok(Step::Done(())) };
        if checks.is_empty() {
            return Ok(Step::Done(()));
        }
        let snapshot = database.statement(txn.id)?;
        let catalog = if txn.defines {
            Arc::new(database.read_catalog(txn.id, snapshot)?)
        } else {
            database.catalog(snapshot)?
        };
        let (isolation, deferral) = (txn.isolation, &txn.deferral);
        let run = Run::new(database, (txn.id, isolation), &[], facts, deferral);
        let step = run.check_deferred(checks, &catalog);
        // What is not known yet is not violated.
        if database.reading().misses_block() { Ok(Step::Wait) } else { step }
    }

    fn commit(&mut self, id: SessionId) -> Result<Step<()>> {
        self.interruption(id)?;
        let deferred = self.session(id)?.txn.as_mut().map(|txn| std::mem::take(&mut txn.deferred)).unwrap_or_default();
        match self.check_deferred(id, &deferred) {
            Ok(Step::Done(())) => {}
            Ok(Step::Wait) => {
                if let Some(txn) = &mut self.session(id)?.txn {
                    txn.deferred = deferred;
                }
                return Ok(Step::Wait);
            }
            Err(error) => {
                self.roll_back(id);
                return Err(error);
            }
        }
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(txn), .. }) = sessions.get_mut(&id) else { return Ok(Step::Done(())) };
        let step = database.commit(txn.id);
        match step {
            Ok(Step::Wait) => Ok(Step::Wait),
            Ok(Step::Done(lsn)) => {
                let session = self.session(id)?;
                session.reply_after = session.reply_after.max(lsn);
                session.portals.clear();
                self.activity.committed();
                if let Some(txn) = self.session(id)?.txn.take() {
                    let session = self.session(id)?;
                    for (name, before) in txn.local_settings.into_iter().rev() {
                        session.settings.set(&name, Some(&before))?;
                    }
                }
                Ok(Step::Done(()))
            }
            Err(error) => {
                self.roll_back(id);
                Err(error)
            }
        }
    }

    fn roll_back(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.portals.clear();
        session.copying = None;
        if let Some(txn) = session.txn.take() {
            self.waiting.remove(&txn.id);
            if let Some(before) = txn.settings_before {
                session.settings = before;
            }
            self.database.abort(txn.id);
            self.activity.rolled_back();
        }
    }
}

impl<T> Step<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::Done(value) => Step::Done(f(value)),
            Self::Wait => Step::Wait,
        }
    }
}

fn written_outcome(verb: &str, returning: bool, written: Written) -> (Outcome, Option<Effects>) {
    let Written { count, rows, effects } = written;
    let tag = format!("{verb} {count}");
    let outcome = if returning { Outcome::Rows { tag, rows, end: true } } else { Outcome::Done { tag } };
    (outcome, Some(effects))
}

fn no_room() -> SqlError {
    SqlError::new(state::DISK_FULL, "the storage does not take what is written, and memory is full of it")
        .hint("Reading goes on. Try again when the storage works and has room; the server's log says what is wrong.")
}

fn refuse_if_failed(session: &Session, plan: &Plan) -> Result<()> {
    if session.status() == Status::Failed && !matches!(plan, Plan::Commit | Plan::Rollback | Plan::RollbackTo(_)) {
        let message = "current transaction is aborted, commands ignored until end of transaction block";
        return Err(SqlError::new(state::IN_FAILED_SQL_TRANSACTION, message));
    }
    Ok(())
}

fn same_output(a: Option<&[OutputColumn]>, b: Option<&[OutputColumn]>) -> bool {
    let types =
        |columns: Option<&[OutputColumn]>| columns.map(|columns| columns.iter().map(|c| c.of).collect::<Vec<_>>());
    types(a) == types(b)
}

fn verb_of(plan: &Plan) -> &'static str {
    match plan {
        Plan::Insert(_) => "INSERT",
        Plan::Update(_) => "UPDATE",
        Plan::Delete(_) => "DELETE",
        Plan::CopyIn(_) => "COPY FROM",
        Plan::Define(_) => "a change of tables",
        _ => "the statement",
    }
}

fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_owned(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(state::INVALID_SQL_STATEMENT_NAME, message)
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}
