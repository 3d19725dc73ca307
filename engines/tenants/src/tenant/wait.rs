//! Sessions that wait, and how their waits end.

use std::{sync::Arc, time::Duration};

use savanna_tenants_sql::{
    backends::Backend,
    doing::Wait,
    interrupt::{Interrupts, Reason},
};
use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::Event;

use super::Tenant;
use crate::session::Interruption;

impl Tenant {
    /// Those whose statement may go on: ask for it again.
    pub fn woken(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.woken)
    }

    /// By what a session's statement is ended while it runs. If it waits, [`stop_waiting`](Self::stop_waiting) must be told, too.
    #[must_use]
    pub fn interrupts(&self, id: SessionId) -> Arc<Interrupts> {
        self.sessions.get(&id).map(|session| Arc::clone(&session.facts.interrupts)).unwrap_or_default()
    }

    /// Whether a session waits for a lock, and not for the storage.
    #[must_use]
    pub fn waits_for_lock(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.waits && session.waits_for_others())
            && !self.waits_for_blocks(id)
    }

    /// Whether a session waits for the storage.
    pub(super) fn waits_for_blocks(&self, id: SessionId) -> bool {
        self.fetches.iter().any(|fetch| fetch.is_for(id))
    }

    /// Whether a session's statement takes long, and is to be run again at once, on another thread if others wait for this one.
    #[must_use]
    pub fn gives_way(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.gives_way)
    }

    /// Whether a session's statement waits until other nodes were asked for their connections. Ask for it again when it
    /// [has heard](Self::hear_elsewhere).
    #[must_use]
    pub fn asks_elsewhere(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.asks_elsewhere)
    }

    /// A session's statement hears of the connections on other nodes; what it does not hear of in time is left out.
    pub fn hear_elsewhere(&mut self, id: SessionId, elsewhere: Vec<Backend>) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.facts.elsewhere = Some(elsewhere.into());
            session.asks_elsewhere = false;
        }
    }

    /// For how long a session's statement sleeps, if it does. Ask for it again when it [has slept](Self::has_slept).
    #[must_use]
    pub fn sleeps(&self, id: SessionId) -> Option<Duration> {
        self.sessions.get(&id).and_then(|session| session.facts.sleep.get().wanted)
    }

    /// A session's statement has slept.
    pub fn has_slept(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && let sleep = session.facts.sleep.get_mut()
            && sleep.wanted.take().is_some()
        {
            sleep.slept += 1;
        }
    }

    /// A session's statement runs where it is in nobody's way, and need not give way; or, of one that [may](Self::may_read_beside) run
    /// without the tenant, only if it misses blocks: there it reads by pages, and here it would keep all that it has read.
    pub fn runs_aside(&mut self, id: SessionId, until_it_misses: bool) {
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.aside, session.until_it_misses) = (true, until_it_misses);
        }
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
            // One that gives way looks itself, and is not to be woken when it waits for something later.
            && !session.gives_way
            && session.facts.interrupts.reason().is_some()
            && let Some(txn) = &session.txn
            // Who does not wait any more is woken already.
            && (self.database.cancel_wait(txn.id).is_ok() || self.give_up_fetch(id) || self.sleeps(id).is_some())
        {
            self.woken.push(id);
        }
        self.settle();
    }

    /// From here on a session's statement can be interrupted.
    pub(super) fn begin_statement(&self, id: SessionId) {
        if let Some(session) = self.sessions.get(&id) {
            session.facts.interrupts.begin();
        }
    }

    /// Others see that a session runs a statement. One that has waited goes on.
    pub(super) fn show_statement(&self, id: SessionId, text: impl FnOnce() -> Arc<str>) {
        let Some(session) = self.sessions.get(&id) else { return };
        session.facts.doing.note(|noted| match session.waits {
            true => noted.wait = None,
            false => noted.begin(text(), self.now),
        });
    }

    /// Others see for what a session's statement waits, and since when it is in a transaction.
    fn show_step<T>(&self, id: SessionId, step: &Result<Step<T>>) {
        let Some(session) = self.sessions.get(&id) else { return };
        let wait = match step {
            Ok(Step::Wait) if session.gives_way => Some(Wait::Place),
            Ok(Step::Wait) if session.asks_elsewhere => None,
            Ok(Step::Wait) if session.facts.sleep.get().wanted.is_some() => Some(Wait::Sleep),
            Ok(Step::Wait) if session.waits_for_parts() || self.waits_for_blocks(id) => Some(Wait::Storage),
            Ok(Step::Wait) => Some(Wait::Lock),
            _ => None,
        };
        let transaction = session.txn.as_ref().map(|_| session.facts.transaction_began);
        session.facts.doing.note(|noted| (noted.wait, noted.transaction) = (wait, transaction));
    }

    /// Puts a session that waits among the waiting, and fails one whose step failed.
    pub(super) fn after<T>(&mut self, id: SessionId, step: Result<Step<T>>) -> Result<Step<T>> {
        match &step {
            Ok(Step::Wait) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.waits = true;
                    if let Some(txn) = &session.txn
                        && session.waits_for_others()
                        && !self.fetches.iter().any(|fetch| fetch.is_for(id))
                    {
                        self.waiting.insert(txn.id, id);
                    }
                }
            }
            Ok(Step::Done(_)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.waits = false;
                    (session.aside, session.until_it_misses, session.reads) = (false, false, None);
                    session.facts.elsewhere = None;
                    session.facts.sleep.take();
                    session.facts.interrupts.end();
                }
                self.forget_place(id);
            }
            Err(_) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    (session.facts.elsewhere, session.asks_elsewhere) = (None, false);
                    session.facts.sleep.take();
                }
                self.forget_place(id);
                self.fail(id);
            }
        }
        self.show_step(id, &step);
        self.settle();
        step
    }

    /// A session's statement is over: if it was taken back before, it has no place to come back to.
    fn forget_place(&mut self, id: SessionId) {
        if let Some(txn) = self.sessions.get_mut(&id).and_then(|session| session.txn.as_mut())
            && txn.place.take().is_some()
        {
            self.database.forget_place(txn.id);
        }
    }

    /// Wakes those whose wait is over.
    pub(super) fn settle(&mut self) {
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
    pub(super) fn interruption(&mut self, id: SessionId) -> Result<()> {
        let session = self.session(id)?;
        session.waits = false;
        session.aside |= std::mem::take(&mut session.gives_way);
        match session.interrupted.take() {
            None => session.facts.interrupts.check(),
            Some(Interruption::Failed(error)) => Err(error),
            Some(Interruption::Deadlock) => Err(SqlError::new(state::DEADLOCK_DETECTED, "deadlock detected")
                .detail("The transaction waits for others that wait for it, and is the youngest of them.")
                .hint("Roll back and try again.")),
        }
    }
}
