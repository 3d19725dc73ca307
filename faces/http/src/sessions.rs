//! Which engine sessions were opened over HTTP, and when each was last used. HTTP has no connection whose end would end
//! a session, so one that is idle for long is closed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use savanna_streams_api::handle::SessionId;

use crate::Problem;

#[derive(Debug)]
pub(crate) struct Sessions {
    idle_timeout: Duration,
    max: usize,
    last_used: Mutex<HashMap<SessionId, Instant>>,
}

impl Sessions {
    pub(crate) fn new(idle_timeout: Duration, max: usize) -> Self {
        Self { idle_timeout, max, last_used: Mutex::default() }
    }

    pub(crate) const fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    pub(crate) fn check_room(&self) -> Result<(), Problem> {
        if self.last_used.lock().len() < self.max {
            return Ok(());
        }
        let detail = format!("{} sessions are open over HTTP, which is the limit; delete one and try again", self.max);
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "limit", "Too many sessions", detail))
    }

    pub(crate) fn opened(&self, session: SessionId, now: Instant) {
        self.last_used.lock().insert(session, now);
    }

    /// Marks a session as used. Sessions of other faces cannot be reached through this one.
    pub(crate) fn touch(&self, session: SessionId, now: Instant) -> Result<(), Problem> {
        match self.last_used.lock().get_mut(&session) {
            Some(last_used) => {
                *last_used = now;
                Ok(())
            }
            None => Err(Problem::not_found(format!(
                "session {} is not open; it was deleted or idle for {} s; open another one",
                session.0,
                self.idle_timeout.as_secs()
            ))),
        }
    }

    pub(crate) fn closed(&self, session: SessionId) {
        self.last_used.lock().remove(&session);
    }

    /// Takes out the sessions that were idle for too long.
    pub(crate) fn expire(&self, now: Instant) -> Vec<SessionId> {
        let mut last_used = self.last_used.lock();
        last_used.extract_if(|_, used| now.duration_since(*used) >= self.idle_timeout).map(|(id, _)| id).collect()
    }

    /// Takes out all.
    pub(crate) fn drain(&self) -> Vec<SessionId> {
        self.last_used.lock().drain().map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_session_expires_and_a_used_one_does_not() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let sessions = Sessions::new(Duration::from_secs(10), 2);
        let (idle, used) = (SessionId(1), SessionId(2));
        sessions.opened(idle, at(0));
        sessions.opened(used, at(0));
        assert_eq!(sessions.check_room().unwrap_err().status, 503);
        sessions.touch(used, at(9)).unwrap();
        assert_eq!(sessions.expire(at(10)), [idle]);
        assert_eq!(sessions.touch(idle, at(10)).unwrap_err().status, 404);
        sessions.check_room().unwrap();
        assert_eq!(sessions.drain(), [used]);
    }
}
