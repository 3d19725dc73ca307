//! Keys that are written: an epoch is a transaction.
//!
//! ```text
//!   start:   HSET judge owner <own>  --> transactions of a former owner fail    HGET judge epoch --> epochs up to it are there
//!   epoch:   WATCH judge   is the owner still this one, and the epoch the one before?   MULTI, rows, HSET judge epoch e, EXEC
//! ```
//!
//! A new owner is written down whenever the server is connected to: what the former connection has sent, and nobody has answered, is done by then, or never.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use redis::{Connection, ConnectionLike as _, RedisError, Value, cmd};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Remote, Sink};

use super::rows::{Commands, commands};
use super::settings::Settings;

/// How long the server may take for one step.
const STEP: Duration = Duration::from_secs(10);
/// After so long a failed epoch is tried again, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Waiting is looked at so often, to end with the query.
const LOOK: Duration = Duration::from_millis(50);

/// Writes keys.
pub(super) struct RedisSink {
    settings: Settings,
    /// The table's name: two tables of one query have judges of their own.
    table: String,
    session: Option<Session>,
    given_up: Arc<AtomicBool>,
}

/// A connection of the only one who writes.
struct Session {
    query: QueryId,
    connection: Connection,
    judge: String,
    owner: String,
    /// The epoch that the server holds.
    last: Epoch,
}

/// Why an epoch was not written.
enum Failure {
    /// The server did not answer, or is not ready: it may be there, or not.
    Again(String),
    /// It will not go.
    Final(StreamError),
}

impl RedisSink {
    pub(super) fn new(settings: Settings, table: &str) -> Self {
        Self { settings, table: table.to_owned(), session: None, given_up: Arc::default() }
    }

    fn session(&mut self, query: &QueryId) -> Result<&mut Session, Failure> {
        if self.session.as_ref().is_none_or(|session| session.query != *query) {
            self.session = None;
            self.session = Some(self.open(query)?);
        }
        self.session
            .as_mut()
            .ok_or_else(|| Failure::Final(StreamError::Internal("a sink without its connection".into())))
    }

    fn open(&self, query: &QueryId) -> Result<Session, Failure> {
        let failed = |error: RedisError| self.sort(&error);
        let mut connection = self.settings.client.get_connection_with_timeout(STEP).map_err(failed)?;
        connection.set_read_timeout(Some(STEP)).map_err(failed)?;
        connection.set_write_timeout(Some(STEP)).map_err(failed)?;
        let judge = format!("savanna:epochs:{query}:{}", self.table);
        let owner = format!("{:016x}", random_number()?);
        cmd("HSET").arg(&judge).arg("owner").arg(&owner).exec(&mut connection).map_err(failed)?;
        let held: Option<u64> = cmd("HGET").arg(&judge).arg("epoch").query(&mut connection).map_err(failed)?;
        Ok(Session { query: query.clone(), connection, judge, owner, last: Epoch(held.unwrap_or(0)) })
    }

    /// What an error of the server means.
    fn sort(&self, error: &RedisError) -> Failure {
        let told = told(error);
        let may_pass = matches!(error.code(), Some("LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN"));
        if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() || may_pass {
            return Failure::Again(told);
        }
        Failure::Final(StreamError::invalid(format!("{} refuses rows: {told}", self.settings.server)))
    }

    /// Tries while that makes sense.
    fn patiently<T>(&mut self, what: &str, mut work: impl FnMut(&mut Self) -> Result<T, Failure>) -> Result<T> {
        let deadline = Instant::now() + self.settings.retry_timeout;
        let mut back_off = BACK_OFF;
        loop {
            let why = match work(self) {
                Ok(done) => return Ok(done),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(why)) => why,
            };
            // What was sent over it may be done or not: a new one asks.
            self.session = None;
            if Instant::now() + back_off >= deadline {
                let cause = format!("{why}; it was tried for {:?} ('retry.timeout')", self.settings.retry_timeout);
                return Err(StreamError::Io { what: format!("{what} {}", self.settings.server), cause });
            }
            tracing::warn!(
                server = self.settings.server,
                why,
                "a server of Redis does not answer as it should; it is asked again"
            );
            let until = Instant::now() + back_off;
            while Instant::now() < until {
                if self.given_up.load(Ordering::Acquire) {
                    return Err(StreamError::Cancelled);
                }
                thread::sleep(LOOK.min(back_off));
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    /// Writes an epoch once. `expected` is the last that the server has acknowledged.
    fn write(&mut self, query: &QueryId, (epoch, expected): (Epoch, Epoch), rows: &Commands) -> Result<(), Failure> {
        let server = self.settings.server.clone();
        let session = self.session(query)?;
        if session.last >= epoch {
            // Its answer was lost.
            return Ok(());
        }
        if session.last < expected {
            return Err(Failure::Final(StreamError::invalid(format!(
                "{server} holds epoch {} of the query, and had acknowledged epoch {expected}: it has lost what it had (let it write before it answers: appendfsync always), or somebody removed key {}. \
                 DROP QUERY, or put the data back and RESUME QUERY",
                session.last, session.judge
            ))));
        }
        let judge = session.judge.clone();
        let done = session.transaction(epoch, rows);
        match done {
            Ok(Done::Written) => {
                self.session(query)?.last = epoch;
                Ok(())
            }
            Ok(Done::NotOwner) => Err(Failure::Final(StreamError::invalid(format!(
                "{server} is being written to by another process of the query, or key {judge} was removed; end the other process, or RESUME QUERY, which goes on where the server is"
            )))),
            Ok(Done::Refused(why)) => {
                Err(Failure::Final(StreamError::invalid(format!("{server} refuses rows: {why}"))))
            }
            Err(error) => Err(self.sort(&error)),
        }
    }
}

/// What no other owner has.
fn random_number() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| Failure::Final(StreamError::Internal(format!("no random number: {error}"))))
}

/// What came of a transaction.
enum Done {
    Written,
    /// Somebody else is the owner; nothing of it was done.
    NotOwner,
    /// The server does not take a command.
    Refused(String),
}

impl Session {
    fn transaction(&mut self, epoch: Epoch, rows: &Commands) -> Result<Done, RedisError> {
        let connection = &mut self.connection;
        cmd("WATCH").arg(&self.judge).exec(connection)?;
        let owner: Option<String> = cmd("HGET").arg(&self.judge).arg("owner").query(connection)?;
        if owner.as_ref() != Some(&self.owner) {
            cmd("UNWATCH").exec(connection)?;
            return Ok(Done::NotOwner);
        }
        cmd("MULTI").exec(connection)?;
        for packed in &rows.0 {
            let queued = connection.req_packed_commands(&packed.bytes, 0, packed.count)?;
            if let Some(refused) = queued.iter().find_map(refused) {
                cmd("DISCARD").exec(connection)?;
                return Ok(Done::Refused(refused));
            }
        }
        cmd("HSET").arg(&self.judge).arg("epoch").arg(epoch.0).exec(connection)?;
        match connection.req_command(&cmd("EXEC"))? {
            Value::Nil => Ok(Done::NotOwner),
            Value::Array(answers) => match answers.iter().find_map(refused) {
                // Redis undoes nothing.
                Some(why) => Ok(Done::Refused(format!("{why}; the other rows of the epoch, which counts, are there"))),
                None => Ok(Done::Written),
            },
            Value::ServerError(error) => Err(error.into()),
            other => Ok(Done::Refused(format!("EXEC was answered with {other:?}"))),
        }
    }
}

/// Why a command was refused, if it was.
fn refused(answer: &Value) -> Option<String> {
    match answer {
        Value::ServerError(error) => Some(format!("{} {}", error.code(), error.details().unwrap_or_default())),
        _ => None,
    }
}

/// An error in words.
fn told(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
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
        self.session = None;
        let last = match self.session(query) {
            Ok(session) => session.last,
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Again(cause)) => {
                return Err(StreamError::Io { what: format!("connect to {}", self.settings.server), cause });
            }
        };
        Ok((last > Epoch::ZERO).then_some(last))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let expected = match &self.session {
            Some(session) if session.query == *query => session.last,
            _ => self.last_committed(query)?.unwrap_or(Epoch::ZERO),
        };
        if epoch <= expected {
            return Ok(());
        }
        let rows = commands(&self.settings, rows)?;
        self.patiently("write keys of", |sink| sink.write(query, (epoch, expected), &rows))
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
