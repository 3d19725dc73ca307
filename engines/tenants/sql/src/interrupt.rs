//! Statements that are ended from outside, also while they run: a flag that any thread may set, and that whoever runs the
//! statement looks at every few rows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use savanna_tenants_values::error::{Result, SqlError, state};

/// Why a statement ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its client asked for it.
    Cancelled,
    /// It took longer than `statement_timeout`.
    StatementTimeout,
    /// It waited for a lock longer than `lock_timeout`.
    LockTimeout,
    /// It has had a place for statements that take long, and those of other databases wait for one.
    PlaceWanted,
}

/// Bits of the state that say what goes on; the others have the statement's number.
const PHASE_BITS: u32 = 3;
const IDLE: u64 = 0;
const RUNNING: u64 = 1;

/// The statement of a session, for whoever wants to end it. What is meant for one statement never ends another.
#[derive(Debug, Default)]
pub struct Interrupts {
    state: AtomicU64,
    /// Whether the statement that runs is to give way, so that its session can leave.
    called_away: AtomicBool,
}

impl Interrupts {
    /// The number that the next statement will have, or the one that runs has.
    #[must_use]
    pub fn statement(&self) -> u64 {
        let state = self.state.load(Ordering::Relaxed);
        (state >> PHASE_BITS) + u64::from(phase(state) == IDLE)
    }

    /// Ends the statement that runs, if there is one.
    pub fn interrupt(&self, reason: Reason) {
        let state = self.state.load(Ordering::Relaxed);
        self.replace(state, reason);
    }

    /// Ends a statement if it still runs.
    pub fn interrupt_statement(&self, statement: u64, reason: Reason) {
        self.replace(statement << PHASE_BITS | RUNNING, reason);
    }

    fn replace(&self, state: u64, reason: Reason) {
        if phase(state) == RUNNING {
            let interrupted = state - RUNNING + reason as u64 + 2;
            // If it has ended, or somebody else has ended it, that is as good.
            _ = self.state.compare_exchange(state, interrupted, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Has a statement that runs where it is in nobody's way give way once more: it has done nothing then, and may be run again elsewhere.
    pub fn call_away(&self) {
        self.called_away.store(true, Ordering::Relaxed);
    }

    /// Whether the statement that runs was called away since it was asked last.
    #[must_use]
    pub fn take_call(&self) -> bool {
        self.called_away.load(Ordering::Relaxed) && self.called_away.swap(false, Ordering::Relaxed)
    }

    /// A statement begins, unless it has begun and was waiting.
    pub fn begin(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if phase(state) == IDLE {
            self.state.store(((state >> PHASE_BITS) + 1) << PHASE_BITS | RUNNING, Ordering::Relaxed);
        }
    }

    /// The statement is over.
    pub fn end(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state - phase(state), Ordering::Relaxed);
        self.called_away.store(false, Ordering::Relaxed);
    }

    /// Whether a statement runs or waits.
    #[must_use]
    pub fn is_running(&self) -> bool {
        phase(self.state.load(Ordering::Relaxed)) != IDLE
    }

    /// Whether the statement is to end.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.reason().is_some()
    }

    /// Why the statement is to end, if it is.
    pub fn reason(&self) -> Option<Reason> {
        let reasons = [Reason::Cancelled, Reason::StatementTimeout, Reason::LockTimeout, Reason::PlaceWanted];
        let at = phase(self.state.load(Ordering::Relaxed)).checked_sub(2)?;
        reasons.get(at as usize).copied()
    }

    /// Whether the statement goes on.
    ///
    /// # Errors
    /// 57014, 55P03.
    pub fn check(&self) -> Result<()> {
        match self.reason() {
            None => Ok(()),
            Some(reason) => Err(reason.error()),
        }
    }
}

const fn phase(state: u64) -> u64 {
    state & ((1 << PHASE_BITS) - 1)
}

impl Reason {
    #[cold]
    fn error(self) -> SqlError {
        let (state, what) = match self {
            Self::Cancelled => (state::QUERY_CANCELED, "user request"),
            Self::StatementTimeout => (state::QUERY_CANCELED, "statement timeout"),
            Self::LockTimeout => (state::LOCK_NOT_AVAILABLE, "lock timeout"),
            Self::PlaceWanted => {
                let message = "canceling statement because statements of other databases wait for its place";
                return SqlError::new(state::QUERY_CANCELED, message)
                    .hint("Divide it into several statements, or run it when fewer long statements run.");
            }
        };
        SqlError::new(state, format!("canceling statement due to {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_statement_that_runs_is_ended() {
        let interrupts = Interrupts::default();
        interrupts.interrupt(Reason::Cancelled);
        let first = interrupts.statement();
        interrupts.begin();
        assert_eq!((interrupts.check(), interrupts.statement()), (Ok(()), first));
        interrupts.interrupt_statement(first, Reason::StatementTimeout);
        interrupts.interrupt(Reason::Cancelled);
        interrupts.begin();
        assert_eq!(interrupts.reason(), Some(Reason::StatementTimeout), "the first reason stays, also while it waits");
        interrupts.end();
        interrupts.begin();
        interrupts.interrupt_statement(first, Reason::StatementTimeout);
        assert_eq!(interrupts.check(), Ok(()), "it came too late");
        interrupts.interrupt(Reason::LockTimeout);
        assert_eq!(interrupts.check().map_err(|error| error.state), Err(state::LOCK_NOT_AVAILABLE));
    }
}
