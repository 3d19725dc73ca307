//! Sessions: one per connection of a face.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use savanna_streams_model::handle::{CursorId, SessionId};
use savanna_streams_model::{Result, StreamError};

use crate::cursor::Cursor;

/// A cursor that one fetch at a time may use.
pub(crate) type SharedCursor = Arc<tokio::sync::Mutex<Cursor>>;

/// What a connection has open.
#[derive(Default)]
struct Session {
    user: String,
    settings: BTreeMap<String, String>,
    cursors: HashMap<CursorId, SharedCursor>,
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

    pub(crate) fn add_cursor(&self, id: SessionId, cursor: Cursor) -> Result<CursorId> {
        let mut state = self.state.lock();
        state.next_id += 1;
        let cursor_id = CursorId(state.next_id);
        let session = state.sessions.get_mut(&id).ok_or_else(|| unknown(id))?;
        if session.cursors.len() >= self.max_cursors {
            return Err(StreamError::Limit {
                message: format!(
                    "the session has {} results open, which is the limit; fetch them to the end or close them",
                    self.max_cursors
                ),
            });
        }
        session.cursors.insert(cursor_id, Arc::new(tokio::sync::Mutex::new(cursor)));
        Ok(cursor_id)
    }

    pub(crate) fn cursor(&self, id: SessionId, cursor: CursorId) -> Result<SharedCursor> {
        self.with(id, |session| {
            session.cursors.get(&cursor).map(Arc::clone).ok_or_else(|| {
                StreamError::invalid(format!("result {} is not open; it has ended or was closed", cursor.0))
            })
        })
    }

    pub(crate) fn remove_cursor(&self, id: SessionId, cursor: CursorId) -> Option<SharedCursor> {
        self.state.lock().sessions.get_mut(&id)?.cursors.remove(&cursor)
    }

    fn with<T>(&self, id: SessionId, use_it: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        use_it(self.state.lock().sessions.get_mut(&id).ok_or_else(|| unknown(id))?)
    }
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
