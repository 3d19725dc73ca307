//! What is tried again, and for how long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::RedisError;
use savanna_streams_api::{Result, StreamError};

use super::settings::told;

/// After so long it is tried again, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Waiting is looked at so often, to end with the query.
const LOOK: Duration = Duration::from_millis(50);

/// Why a server has not done something.
pub(super) enum Failure {
    /// It did not answer, or is not ready: what was asked of it may be done, or not.
    Again(String),
    /// It will not go.
    Final(StreamError),
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        Self::Final(error)
    }
}

impl Failure {
    /// What an error of the server means; `refused` says what it refuses, where it does.
    pub(super) fn of(error: &RedisError, refused: impl FnOnce(String) -> StreamError) -> Self {
        let told = told(error);
        let is_lost = error.is_io_error() || error.is_timeout() || error.is_connection_dropped();
        match is_lost || error.code().is_some_and(may_pass) {
            true => Self::Again(told),
            false => Self::Final(refused(told)),
        }
    }
}

/// Whether a server that refuses something so may not do so later.
pub(super) fn may_pass(code: &str) -> bool {
    ["LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "OOM", "NOREPLICAS", "MISCONF"]
        .contains(&code)
}

/// Something that is tried for a while.
pub(super) struct Trying<'t> {
    /// In words, as before the name of the server.
    pub(super) what: &'t str,
    pub(super) server: &'t str,
    pub(super) patience: Duration,
    /// The option that says for how long.
    pub(super) option: &'t str,
    /// True when nobody needs it any more.
    pub(super) given_up: &'t AtomicBool,
}

impl Trying<'_> {
    /// Tries while that makes sense.
    ///
    /// # Errors
    /// What is final, the last failure when patience is over, or [`StreamError::Cancelled`].
    pub(super) fn run<T>(&self, mut work: impl FnMut() -> Result<T, Failure>) -> Result<T> {
        let deadline = Instant::now() + self.patience;
        let mut back_off = BACK_OFF;
        loop {
            let why = match work() {
                Ok(done) => return Ok(done),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(why)) => why,
            };
            if Instant::now() + back_off >= deadline {
                let cause = format!("{why}; it was tried for {:?} ('{}')", self.patience, self.option);
                return Err(StreamError::Io { what: format!("{} {}", self.what, self.server), cause });
            }
            tracing::warn!(
                server = self.server,
                why,
                "a server of Redis does not answer as it should; it is asked again"
            );
            self.rest(back_off)?;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    fn rest(&self, back_off: Duration) -> Result<()> {
        let until = Instant::now() + back_off;
        while Instant::now() < until {
            if self.given_up.load(Ordering::Acquire) {
                return Err(StreamError::Cancelled);
            }
            thread::sleep(LOOK.min(back_off));
        }
        Ok(())
    }
}
