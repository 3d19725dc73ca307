//! Sessions: one per connection of a face.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use savanna_streams_api::handle::{CursorId, SessionId};
use savanna_streams_api::{Result, StreamError};

use crate::cursor::Cursor;
use crate::settings;

/// A cursor that one fetch at a time may use.
pub(crate) type SharedCursor = Arc<tokio::sync::Mutex<Cursor>>;

/// What a connection has open.
#[derive(Default)]
struct Session {
    user: String,
    settings: BTreeMap<String, String>,
    cursors: HashMap<CursorId, Reading>,
    /// Cursors that `DECLARE` has made.
    named: HashMap<String, Named>,
    in_transaction: bool,
}

/// A cursor that has a name.
struct Named {
    cursor: SharedCursor,
    schema: SchemaRef,
    /// Whether it ends with the transaction.
    tied: bool,
}

/// A result that is being fetched.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) cursor: SharedCursor,
    /// How many rows of the cursor belong to the result, if not all.
    left: Option<Arc<Mutex<usize>>>,
    /// Until when it must have been read, and the setting that says so.
    deadline: Option<(Instant, Duration)>,
}

impl Reading {
    /// How long its statement may still take; none for as long as it likes.
    ///
    /// # Errors
    /// [`StreamError::TimedOut`].
    pub(crate) fn time_left(&self) -> Result<Option<Duration>> {
        let Some((deadline, limit)) = self.deadline else { return Ok(None) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(settings::timed_out(limit)) } else { Ok(Some(left)) }
    }

    /// How many rows may still be read.
    pub(crate) fn left(&self) -> usize {
        self.left.as_ref().map_or(usize::MAX, |left| *left.lock())
    }

    /// Counts rows that were read.
    pub(crate) fn took(&self, rows: usize) {
        if let Some(left) = &self.left {
            let mut left = left.lock();
            *left = left.saturating_sub(rows);
        }
    }

    /// Whether the cursor ends with the result.
    pub(crate) fn is_whole(&self) -> bool {
        self.left.is_none()
    }
}

impl Session {
    fn add(&mut self, id: CursorId, reading: Reading, max_cursors: usize) -> Result<()> {
        self.check_room(max_cursors)?;
        self.cursors.insert(id, reading);
        Ok(())
    }

    /// When a statement that begins now must have ended.
    fn deadline(&self) -> Option<(Instant, Duration)> {
        let limit = settings::statement_timeout(&self.settings)?;
        Some((Instant::now().checked_add(limit)?, limit))
    }

    fn named(&self, name: &str) -> Result<&Named> {
        self.named.get(name).ok_or_else(|| StreamError::Unknown {
            kind: "cursor".into(),
            name: name.into(),
            position: None,
            hint: "DECLARE opens one; COMMIT and ROLLBACK close those that were declared without WITH HOLD".into(),
        })
    }

    fn check_room(&self, max_cursors: usize) -> Result<()> {
        if self.cursors.len() + self.named.len() < max_cursors {
            return Ok(());
        }
        Err(StreamError::Limit {
            message: format!(
                "the session has {max_cursors} results open, which is the limit; fetch them to the end or close them"
            ),
        })
    }
}

/// All sessions, bounded in number.
pub(crate) struct Sessions {
    max_sessions: usize,
    max_cursors: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    sessions: HashMap<SessionId, Session>,
}

impl Sessions {
    pub(crate) fn new(max_sessions: usize, max_cursors: usize) -> Self {
        Self { max_sessions, max_cursors, state: Mutex::default() }
    }

    pub(crate) fn open(&self, user: String) -> Result<SessionId> {
        let mut state = self.state.lock();
        if state.sessions.len() >= self.max_sessions {
            return Err(StreamError::Limit {
                message: format!(
                    "{} sessions are open, which is the limit; close one or raise streams.max_sessions",
                    self.max_sessions
                ),
            });
        }
        state.next_id += 1;
        let id = SessionId(state.next_id);
        state.sessions.insert(id, Session { user, ..Session::default() });
        Ok(id)
    }

    /// Ends a session. Its cursors are dropped, which cancels their queries.
    pub(crate) fn close(&self, id: SessionId) {
        let session = self.state.lock().sessions.remove(&id);
        drop(session);
    }

    pub(crate) fn close_all(&self) {
        let sessions = std::mem::take(&mut self.state.lock().sessions);
        drop(sessions);
    }

    pub(crate) fn user(&self, id: SessionId) -> Result<String> {
        self.with(id, |session| Ok(session.user.clone()))
    }

    pub(crate) fn set(&self, id: SessionId, name: &str, value: &str) -> Result<()> {
        self.with(id, |session| {
            session.settings.insert(name.to_owned(), value.to_owned());
            Ok(())
        })
    }

    /// Forgets a setting, or all.
    pub(crate) fn reset(&self, id: SessionId, name: Option<&str>) -> Result<()> {
        self.with(id, |session| {
            match name {
                Some(name) => drop(session.settings.remove(name)),
                None => session.settings.clear(),
            }
            Ok(())
        })
    }

    pub(crate) fn settings(&self, id: SessionId) -> Result<BTreeMap<String, String>> {
        self.with(id, |session| Ok(session.settings.clone()))
    }

    /// How long a statement may take, if the session has said so.
    pub(crate) fn statement_timeout(&self, id: SessionId) -> Option<Duration> {
        self.with(id, |session| Ok(settings::statement_timeout(&session.settings))).ok().flatten()
    }

    pub(crate) fn add_cursor(&self, id: SessionId, cursor: Cursor) -> Result<CursorId> {
        let mut state = self.state.lock();
        state.next_id += 1;
        let cursor_id = CursorId(state.next_id);
        let session = state.sessions.get_mut(&id).ok_or_else(|| unknown(id))?;
        let reading = Reading { cursor: shared(cursor), left: None, deadline: session.deadline() };
        session.add(cursor_id, reading, self.max_cursors)?;
        Ok(cursor_id)
    }

    /// Whether a cursor of this name may be declared.
    pub(crate) fn check_name(&self, id: SessionId, name: &str) -> Result<()> {
        let max_cursors = self.max_cursors;
        self.with(id, |session| match session.named.contains_key(name) {
            true => Err(StreamError::Exists { kind: "cursor".into(), name: name.into(), position: None }),
            false => session.check_room(max_cursors),
        })
    }

    /// Gives a cursor a name. Without `hold` it ends with the transaction, if there is one.
    pub(crate) fn declare(
        &self,
        id: SessionId,
        name: &str,
        schema: SchemaRef,
        cursor: Cursor,
        hold: bool,
    ) -> Result<()> {
        self.check_name(id, name)?;
        self.with(id, |session| {
            let tied = session.in_transaction && !hold;
            session.named.insert(name.to_owned(), Named { cursor: shared(cursor), schema, tied });
            Ok(())
        })
    }

    /// The columns of a cursor by name.
    pub(crate) fn named_schema(&self, id: SessionId, name: &str) -> Result<SchemaRef> {
        self.with(id, |session| Ok(Arc::clone(&session.named(name)?.schema)))
    }

    /// The next `rows` rows of a cursor by name, as a result of their own.
    pub(crate) fn fetch_named(&self, id: SessionId, name: &str, rows: usize) -> Result<(SchemaRef, CursorId)> {
        let mut state = self.state.lock();
        state.next_id += 1;
        let cursor_id = CursorId(state.next_id);
        let session = state.sessions.get_mut(&id).ok_or_else(|| unknown(id))?;
        let named = session.named(name)?;
        let (schema, cursor) = (Arc::clone(&named.schema), Arc::clone(&named.cursor));
        // It is only there while it is fetched, and the cursor has its place already.
        let reading = Reading { cursor, left: Some(Arc::new(Mutex::new(rows))), deadline: session.deadline() };
        session.add(cursor_id, reading, self.max_cursors + 1)?;
        Ok((schema, cursor_id))
    }

    /// Closes a cursor by name, or all that have one. The queries behind them are cancelled.
    pub(crate) fn close_named(&self, id: SessionId, name: Option<&str>) -> Result<()> {
        let closed = self.with(id, |session| {
            let Some(name) = name else { return Ok(std::mem::take(&mut session.named)) };
            session.named(name)?;
            Ok(session.named.remove_entry(name).into_iter().collect())
        })?;
        drop(closed);
        Ok(())
    }

    pub(crate) fn begin(&self, id: SessionId) -> Result<()> {
        self.with(id, |session| {
            session.in_transaction = true;
            Ok(())
        })
    }

    /// Ends the transaction, and with it the cursors that belong to it.
    pub(crate) fn end_transaction(&self, id: SessionId) -> Result<()> {
        let ended: Vec<Named> = self.with(id, |session| {
            session.in_transaction = false;
            Ok(session.named.extract_if(|_, named| named.tied).map(|(_, named)| named).collect())
        })?;
        drop(ended);
        Ok(())
    }

    pub(crate) fn cursor(&self, id: SessionId, cursor: CursorId) -> Result<Reading> {
        self.with(id, |session| {
            session.cursors.get(&cursor).cloned().ok_or_else(|| {
                StreamError::invalid(format!("result {} is not open; it has ended or was closed", cursor.0))
            })
        })
    }

    pub(crate) fn remove_cursor(&self, id: SessionId, cursor: CursorId) -> Option<Reading> {
        self.state.lock().sessions.get_mut(&id)?.cursors.remove(&cursor)
    }

    fn with<T>(&self, id: SessionId, use_it: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        use_it(self.state.lock().sessions.get_mut(&id).ok_or_else(|| unknown(id))?)
    }
}

fn shared(cursor: Cursor) -> SharedCursor {
    Arc::new(tokio::sync::Mutex::new(cursor))
}

fn unknown(id: SessionId) -> StreamError {
    StreamError::invalid(format!("session {} is not open; open a new one", id.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_bounded_and_their_place_is_given_back() {
        let sessions = Sessions::new(1, 1);
        let first = sessions.open("ada".into()).unwrap();
        assert!(sessions.open("bob".into()).is_err());
        sessions.close(first);
        assert!(sessions.user(first).is_err());
        assert!(sessions.open("bob".into()).is_ok());
    }
}
