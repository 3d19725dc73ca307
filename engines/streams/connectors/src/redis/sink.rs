//! Keys that are written: an epoch is a transaction.
//!
//! ```text
//!   start:    HSET judge owner <own>:0  --> transactions of a former owner fail    HGET judge epoch --> epochs up to it are there
//!   epoch:    WATCH judge   is the owner still this one?   MULTI, rows, HSET judge epoch e, EXEC
//!   again:    WATCH judge   is the owner still this one?   MULTI, HSET judge owner <own>:n+1, EXEC    HGET judge epoch
//! ```
//!
//! The owner has another number after each connection: what the former one has sent, and nobody has answered, is done by then, or never. Who was replaced takes
//! nothing back: only a start does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use redis::{Connection, ConnectionLike as _, RedisError, Value, cmd};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Remote, Sink};

use super::rows::{Commands, commands};
use super::settings::{Form, JUDGES, Settings};
use super::trying::{Failure, Trying, may_pass};

/// So many keys are asked for their types at once.
const KEYS_AT_ONCE: usize = 1_000;

/// Writes keys.
pub(super) struct RedisSink {
    settings: Settings,
    /// The table's name: two tables of one query have judges of their own.
    table: String,
    /// The query that this sink writes for, and its name as an owner.
    tenure: Option<(QueryId, String)>,
    /// How often it has connected.
    connections: u64,
    session: Option<Session>,
    given_up: Arc<AtomicBool>,
}

/// A connection of the only one who writes.
struct Session {
    connection: Connection,
    judge: String,
    /// The owner, with the number of its connection.
    owner: String,
    /// The epoch that the server holds.
    last: Epoch,
}

impl RedisSink {
    pub(super) fn new(settings: Settings, table: &str) -> Self {
        let (tenure, connections, session) = (None, 0, None);
        Self { settings, table: table.to_owned(), tenure, connections, session, given_up: Arc::default() }
    }

    /// Takes over from whoever wrote before.
    fn take_over(&mut self, query: &QueryId) -> Result<&mut Session, Failure> {
        (self.session, self.tenure) = (None, Some((query.clone(), format!("{:016x}", random_number()?))));
        self.open(true)
    }

    /// The connection, made anew if the former one broke.
    fn session(&mut self) -> Result<&mut Session, Failure> {
        match self.session {
            Some(ref mut session) => Ok(session),
            None => self.open(false),
        }
    }

    fn open(&mut self, takes_over: bool) -> Result<&mut Session, Failure> {
        let failed = |error: RedisError| self.sort(&error);
        let Some((query, name)) = &self.tenure else {
            return Err(Failure::Final(StreamError::Internal("a sink that was not asked what it holds".into())));
        };
        let mut connection = self.settings.connect().map_err(failed)?;
        let judge = format!("{JUDGES}{query}:{}", self.table);
        let owner = format!("{name}:{}", self.connections);
        if takes_over {
            cmd("HSET").arg(&judge).arg("owner").arg(&owner).exec(&mut connection).map_err(failed)?;
        } else {
            match go_on(&mut connection, &judge, name, &owner).map_err(failed)? {
                GoesOn::Yes => {}
                GoesOn::Raced => return Err(Failure::Again("its owner changed while it was asked".to_owned())),
                GoesOn::Replaced => return Err(Failure::Final(self.replaced(&judge))),
            }
        }
        let (held, refused): (Option<u64>, Option<String>) =
            cmd("HMGET").arg(&judge).arg("epoch").arg("refused").query(&mut connection).map_err(failed)?;
        if let Some(refused) = refused {
            return Err(Failure::Final(StreamError::invalid(format!(
                "{} has refused rows of epoch {} of the query, and holds the others ({refused}): DROP QUERY, or write these rows yourself, `HDEL {judge} refused`, and RESUME QUERY",
                self.settings.server,
                held.unwrap_or(0)
            ))));
        }
        self.connections += 1;
        let session = Session { connection, judge, owner, last: Epoch(held.unwrap_or(0)) };
        Ok(self.session.insert(session))
    }

    fn replaced(&self, judge: &str) -> StreamError {
        StreamError::invalid(format!(
            "{} is being written to by another process of the query, or key {judge} was removed; end the other process, or RESUME QUERY, which goes on where the server is",
            self.settings.server
        ))
    }

    /// What an error of the server means.
    fn sort(&self, error: &RedisError) -> Failure {
        let refused = |told| StreamError::invalid(format!("{} refuses rows: {told}", self.settings.server));
        Failure::of(error, refused)
    }

    /// Tries while that makes sense.
    fn patiently<T>(&mut self, what: &str, mut work: impl FnMut(&mut Self) -> Result<T, Failure>) -> Result<T> {
        let (server, given_up) = (self.settings.server.clone(), Arc::clone(&self.given_up));
        let patience = self.settings.retry_timeout;
        let trying = Trying { what, server: &server, patience, option: "retry.timeout", given_up: &given_up };
        trying.run(|| {
            let done = work(self);
            if matches!(done, Err(Failure::Again(_))) {
                // What was sent over it may be done or not: a new one asks.
                self.session = None;
            }
            done
        })
    }

    /// Writes an epoch once. `expected` is the last that the server has acknowledged.
    fn write(&mut self, (epoch, expected): (Epoch, Epoch), rows: &Commands) -> Result<(), Failure> {
        let (server, given_up) = (self.settings.server.clone(), Arc::clone(&self.given_up));
        let form = self.settings.form;
        let session = self.session()?;
        if session.last >= epoch {
            // Its answer was lost: nobody else has written since.
            return Ok(());
        }
        if session.last < expected {
            return Err(Failure::Final(StreamError::invalid(format!(
                "{server} holds epoch {} of the query, and had acknowledged epoch {expected}: it has lost what it had (let it write before it answers: appendfsync always), or somebody removed key {}. \
                 DROP QUERY, or put the data back and RESUME QUERY",
                session.last, session.judge
            ))));
        }
        let done = session.transaction(epoch, (form, rows), &given_up);
        let judge = session.judge.clone();
        match done {
            Ok(Done::Written) => {
                session.last = epoch;
                Ok(())
            }
            Ok(Done::NotOwner) => Err(Failure::Final(self.replaced(&judge))),
            Ok(Done::GivenUp) => Err(Failure::Final(StreamError::Cancelled)),
            Ok(Done::Refused(code, why)) if may_pass(&code) => Err(Failure::Again(format!("{code} {why}"))),
            Ok(Done::Refused(code, why)) => {
                Err(Failure::Final(StreamError::invalid(format!("{server} refuses rows: {code} {why}"))))
            }
            Err(error) => Err(self.sort(&error)),
        }
    }
}

/// What no other owner has.
fn random_number() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| Failure::Final(StreamError::Internal(format!("no random number: {error}"))))
}

/// Whether a sink that had a connection may write on.
enum GoesOn {
    Yes,
    /// Somebody changed something at the same time.
    Raced,
    /// Another process writes.
    Replaced,
}

/// Writes down the owner's next connection, if it is the owner still.
fn go_on(connection: &mut Connection, judge: &str, name: &str, owner: &str) -> Result<GoesOn, RedisError> {
    cmd("WATCH").arg(judge).exec(connection)?;
    let found: Option<String> = cmd("HGET").arg(judge).arg("owner").query(connection)?;
    if found.as_deref().and_then(|found| found.split(':').next()) != Some(name) {
        cmd("UNWATCH").exec(connection)?;
        return Ok(GoesOn::Replaced);
    }
    cmd("MULTI").exec(connection)?;
    cmd("HSET").arg(judge).arg("owner").arg(owner).exec(connection)?;
    let done: Option<Vec<i64>> = cmd("EXEC").query(connection)?;
    Ok(if done.is_some() { GoesOn::Yes } else { GoesOn::Raced })
}

/// What came of a transaction.
enum Done {
    Written,
    /// Somebody else is the owner; nothing of it was done.
    NotOwner,
    /// The query needs it no more; nothing of it was done.
    GivenUp,
    /// The server does not take a command: its code, and why.
    Refused(String, String),
}

impl Session {
    fn transaction(
        &mut self,
        epoch: Epoch,
        (form, rows): (Form, &Commands),
        given_up: &AtomicBool,
    ) -> Result<Done, RedisError> {
        let is_given_up = || given_up.load(Ordering::Acquire);
        let connection = &mut self.connection;
        cmd("WATCH").arg(&self.judge).exec(connection)?;
        let owner: Option<String> = cmd("HGET").arg(&self.judge).arg("owner").query(connection)?;
        if owner.as_ref() != Some(&self.owner) {
            cmd("UNWATCH").exec(connection)?;
            return Ok(Done::NotOwner);
        }
        // Redis undoes nothing: what it would refuse in the end is looked for before.
        if let Some(why) = other_types(connection, form, rows)? {
            cmd("UNWATCH").exec(connection)?;
            return Ok(Done::Refused("WRONGTYPE".to_owned(), why));
        }
        cmd("MULTI").exec(connection)?;
        for packed in &rows.packed {
            if is_given_up() {
                cmd("DISCARD").exec(connection)?;
                return Ok(Done::GivenUp);
            }
            let queued = connection.req_packed_commands(&packed.bytes, 0, packed.count)?;
            if let Some((code, why)) = queued.iter().find_map(refused) {
                cmd("DISCARD").exec(connection)?;
                return Ok(Done::Refused(code, why));
            }
        }
        cmd("HSET").arg(&self.judge).arg("epoch").arg(epoch.0).exec(connection)?;
        match connection.req_command(&cmd("EXEC"))? {
            Value::Nil => Ok(Done::NotOwner),
            Value::Array(answers) => match answers.iter().find_map(refused) {
                Some((code, why)) => {
                    // Nobody goes on as if all were there.
                    cmd("HSET").arg(&self.judge).arg("refused").arg(format!("{code} {why}")).exec(connection)?;
                    Ok(Done::Refused(code, format!("{why}; the other rows of the epoch are there")))
                }
                None => Ok(Done::Written),
            },
            Value::ServerError(error) => Err(error.into()),
            other => Ok(Done::Refused("EXEC".to_owned(), format!("was answered with {other:?}"))),
        }
    }
}

/// Which of the keys that are about to be written has another type, if one has.
fn other_types(connection: &mut Connection, form: Form, rows: &Commands) -> Result<Option<String>, RedisError> {
    let Some(expected) = form.appends_to() else { return Ok(None) };
    let keys: Vec<&Vec<u8>> = rows.keys.iter().collect();
    for keys in keys.chunks(KEYS_AT_ONCE) {
        let mut asked = redis::pipe();
        for key in keys {
            asked.cmd("TYPE").arg(key.as_slice());
        }
        let types: Vec<String> = asked.query(connection)?;
        let differs = |(_, found): &(_, &String)| *found != "none" && *found != expected;
        if let Some((key, found)) = keys.iter().zip(&types).find(differs) {
            return Ok(Some(format!("key {} is a {found}, and rows are a {expected}", String::from_utf8_lossy(key))));
        }
    }
    Ok(None)
}

/// Why a command was refused, if it was: the code, and the rest.
fn refused(answer: &Value) -> Option<(String, String)> {
    match answer {
        Value::ServerError(error) => Some((error.code().to_owned(), error.details().unwrap_or_default().to_owned())),
        _ => None,
    }
}

impl fmt::Debug for RedisSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSink")
            .field("settings", &self.settings)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl Sink for RedisSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        let last = match self.take_over(query) {
            Ok(session) => session.last,
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Again(cause)) => {
                return Err(StreamError::Io { what: format!("connect to {}", self.settings.server), cause });
            }
        };
        Ok((last > Epoch::ZERO).then_some(last))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let is_own = self.tenure.as_ref().is_some_and(|(own, _)| own == query);
        let expected = match &self.session {
            Some(session) if is_own => session.last,
            _ => self.last_committed(query)?.unwrap_or(Epoch::ZERO),
        };
        if epoch <= expected {
            return Ok(());
        }
        let rows = commands(&self.settings, rows)?;
        self.patiently("write keys of", |sink| sink.write((epoch, expected), &rows))
    }

    /// Every epoch is there when its commit has returned.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }

    fn remote(&self) -> Option<Remote> {
        let given_up = Arc::clone(&self.given_up);
        Some(Remote { renew_after: Duration::MAX, give_up: Arc::new(move || given_up.store(true, Ordering::Release)) })
    }
}
