//! Statements that are ended from outside, also while they run: a flag that any thread may set, and that whoever runs the
//! statement looks at every few rows.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// The number of the statement that is to give way, so that its session can leave; 0 if none is.
    called_away: AtomicU64,
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

    /// Has the statement that runs where it is in nobody's way give way once more: it has done nothing then, and may be run again elsewhere. Whether there is one.
    pub fn call_away(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let runs = phase(state) == RUNNING;
        if runs {
            self.called_away.store(state >> PHASE_BITS, Ordering::Relaxed);
        }
        runs
    }

    /// Whether the statement that runs was called away since it was asked last.
    #[must_use]
    pub fn take_call(&self) -> bool {
        let called = self.called_away.load(Ordering::Relaxed);
        // What was meant for a statement that has ended is not for the next one.
        let is_meant = called != 0 && called == self.state.load(Ordering::Relaxed) >> PHASE_BITS;
        if is_meant {
            self.called_away.store(0, Ordering::Relaxed);
        }
        is_meant
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
    }

    /// The statement is over as if it had not begun, unless somebody has ended it by now, whose reason is told. Whether it is.
    #[must_use]
    pub fn end_unless_interrupted(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let over = state - phase(state);
        phase(state) <= RUNNING
            && self.state.compare_exchange(state, over, Ordering::Relaxed, Ordering::Relaxed).is_ok()
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
    #[test]
    fn a_statement_that_was_interrupted_is_not_over_as_if_it_had_not_begun() {
        let interrupts = Interrupts::default();
        interrupts.begin();
        assert!(interrupts.end_unless_interrupted() && !interrupts.is_running());
        interrupts.begin();
        interrupts.interrupt(Reason::Cancelled);
        assert!(!interrupts.end_unless_interrupted());
        assert_eq!(interrupts.reason(), Some(Reason::Cancelled), "its client is to hear of it");
    }

    #[test]
    fn only_the_statement_that_runs_is_called_away_and_once() {
        let interrupts = Interrupts::default();
        assert!(!interrupts.call_away() && !interrupts.take_call(), "none runs");
        interrupts.begin();
        assert!(!interrupts.take_call() && interrupts.call_away());
        assert!(interrupts.take_call() && !interrupts.take_call());
        assert!(interrupts.call_away());
        interrupts.end();
        interrupts.begin();
        assert!(!interrupts.take_call(), "it was meant for the one before");
    }
}
