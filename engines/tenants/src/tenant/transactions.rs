//! The transactions of sessions: how they begin and end.

use savanna_journal::Lsn;
use savanna_tenants_execution::{Run, reference::Checks};
use savanna_tenants_sql::define::reference::Deferral;
use savanna_tenants_store::{
    Reading,
    database::{SessionId, Step},
};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::Isolation;

use super::{Tenant, closed};
use crate::session::{Current, InParts, Interruption, Session};

/// What those hear who would change a database that they may only read.
pub(super) fn only_reads() -> SqlError {
    let message = "this database can only be read: the service that it belongs to writes it";
    SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
}

impl Tenant {
    /// A session may read and do nothing else, whatever it sets.
    pub fn only_reads(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.facts.only_reads = true;
        }
    }

    pub(super) fn begin(&mut self, id: SessionId, isolation: Isolation, read_only: bool, explicit: bool) -> Result<()> {
        let txn = self.database.begin(isolation);
        let now = self.now;
        let session = self.sessions.get_mut(&id).ok_or_else(closed)?;
        let read_only = read_only || session.facts.only_reads;
        if let Some(holder) = session.facts.advisory.get_mut().holder {
            self.database.run_for(txn, holder)?;
        }
        session.facts.transaction_began = now;
        session.txn = Some(Current {
            id: txn,
            isolation,
            read_only,
            explicit,
            failed: false,
            ended: None,
            snapshot_taken: None,
            views: Vec::new(),
            used: false,
            defines: false,
            bytes: 0,
            savepoints: Vec::new(),
            deferral: Deferral::default(),
            deferred: Checks::new(),
            settings_before: None,
            local_settings: Vec::new(),
            place: None,
            parts: InParts::Not,
            memory: 0,
            lent: None,
        });
        Ok(())
    }

    /// Begins a transaction for a statement that is in none.
    pub(super) fn in_transaction(&mut self, id: SessionId) -> Result<()> {
        let session = self.session(id)?;
        if session.txn.is_some() {
            return Ok(());
        }
        let (isolation, read_only) = (session.facts.settings.isolation, session.facts.settings.read_only);
        self.begin(id, isolation, read_only, false)
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

    pub(super) fn commit(&mut self, id: SessionId) -> Result<Step<()>> {
        self.interruption(id)?;
        if let Some(error) = self.session(id)?.txn.as_mut().and_then(|txn| txn.ended.take()) {
            self.roll_back(id);
            return Err(error);
        }
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
        if let Err(error) = self.may_say(id) {
            self.roll_back(id);
            return Err(error);
        }
        match self.writes_are_durable(id) {
            Ok(Step::Done(())) => {}
            Ok(Step::Wait) => {
                // What has changed when it goes on counts.
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
        let (mut parts, upto) = match std::mem::take(&mut txn.parts) {
            InParts::Here(parts, upto) => (Some(parts), upto),
            InParts::Not | InParts::Coming | InParts::Refused => (None, 0),
        };
        let step = database.commit_with(txn.id, &mut parts);
        // It waits for a lock.
        if let Some(parts) = parts {
            txn.parts = InParts::Here(parts, upto);
        }
        match step {
            Ok(Step::Wait) => Ok(Step::Wait),
            Ok(Step::Done(lsn)) => {
                database.commit_temporary(id)?;
                let session = self.session(id)?;
                session.reply_after = session.reply_after.max(lsn);
                session.portals.clear();
                session.release_cursors();
                self.activity.committed();
                if let Some(txn) = self.session(id)?.txn.take() {
                    let session = self.session(id)?;
                    for (name, before) in txn.local_settings.into_iter().rev() {
                        session.facts.settings.set(&name, Some(&before))?;
                    }
                }
                self.say(id, lsn);
                Ok(Step::Done(()))
            }
            Err(error) => {
                self.roll_back(id);
                Err(error)
            }
        }
    }

    /// Checks what the transaction has put off, on its newest state.
    pub(super) fn check_deferred(&mut self, id: SessionId, checks: &Checks) -> Result<Step<()>> {
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(txn), .. }) = sessions.get(&id) else { return Ok(Step::Done(())) };
        if checks.is_empty() {
            return Ok(Step::Done(()));
        }
        let snapshot = database.statement(txn.id)?;
        let txn = (txn.id, txn.defines);
        let catalog = self.catalog_at(id, txn, snapshot)?;
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(txn), facts, .. }) = sessions.get(&id) else { return Ok(Step::Done(())) };
        let (isolation, deferral) = (txn.isolation, &txn.deferral);
        let run = Run::new(database, (txn.id, isolation), &[], facts, deferral);
        let step = run.check_deferred(checks, &catalog);
        // What is not known yet is not violated.
        if database.reading().misses_block() { Ok(Step::Wait) } else { step }
    }

    /// Notes that something failed: the transaction is over, or waits for its rollback if the client began it. What it locked and
    /// wrote since its last savepoint, if it has any, is in nobody's way meanwhile.
    pub fn fail(&mut self, id: SessionId) {
        self.settle_statement(id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.simple = None;
            session.waits = false;
            (session.aside, session.gives_way, session.reads) = (false, false, None);
            session.until_it_misses = false;
            session.facts.interrupts.end();
            session.reading = Reading::default();
            match &mut session.txn {
                Some(txn) if txn.explicit => {
                    txn.failed = true;
                    txn.parts = InParts::Not;
                    if txn.isolation == Isolation::ReadCommitted {
                        txn.snapshot_taken = None;
                    }
                    let savepoint = txn.savepoints.last().map(|savepoint| savepoint.rows);
                    if savepoint.is_none() {
                        txn.views.clear();
                    }
                    // Its rows are gone, back to its savepoint.
                    let (bytes, memory) =
                        txn.savepoints.last().map_or((0, 0), |last| last.written.unwrap_or((txn.bytes, txn.memory)));
                    txn.go_back_to(bytes, memory);
                    let txn = txn.id;
                    self.waiting.remove(&txn);
                    match savepoint {
                        // Its statement is over; a snapshot that it may have holds up nothing. One that waits has none to end.
                        Some(savepoint) => {
                            _ = self.database.end_statement(txn);
                            _ = self.database.roll_back_to(txn, savepoint);
                        }
                        None => self.database.abort(txn),
                    }
                }
                Some(_) => self.roll_back(id),
                None => {}
            }
        }
        self.settle();
    }

    pub(super) fn roll_back(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.portals.clear();
        session.undo_cursors(0);
        session.copying = None;
        session.facts.notifying.get_mut().forget();
        session.said_after = Lsn::NONE;
        if let Some(txn) = session.txn.take() {
            self.waiting.remove(&txn.id);
            if let Some(before) = txn.settings_before {
                session.facts.settings = before;
            }
            self.database.abort(txn.id);
            self.database.roll_back_temporary(id, 0);
            self.activity.rolled_back();
        }
    }

    /// Ends transactions whose snapshot is older than so many microseconds, if something was committed since: as long as they are
    /// there it cannot be flushed, and the log not be cut. Their clients hear of it with their next statement.
    pub fn end_old_snapshots(&mut self, age: i64) {
        if !self.database.has_old_snapshot() {
            return;
        }
        let oldest = self.now.saturating_sub(age);
        let is_old = |session: &Session| {
            let Some(txn) = &session.txn else { return false };
            txn.snapshot_taken.into_iter().chain(txn.views.iter().map(|(_, taken)| *taken)).any(|taken| taken < oldest)
        };
        let old: Vec<_> = self.sessions.iter().filter(|(_, session)| is_old(session)).map(|(id, _)| *id).collect();
        for id in old {
            self.end_transaction(id, &snapshot_too_old());
        }
        self.settle();
    }

    fn end_transaction(&mut self, id: SessionId, error: &SqlError) {
        let (waited_for_blocks, slept) = (self.give_up_fetch(id), self.sleeps(id).is_some());
        let waited_for_parts = self.sessions.get(&id).is_some_and(Session::waits_for_parts);
        let Some(Session { txn: Some(txn), interrupted, waits, .. }) = self.sessions.get_mut(&id) else { return };
        (txn.failed, txn.ended, txn.snapshot_taken) = (true, Some(error.clone()), None);
        txn.views.clear();
        txn.parts = InParts::Not;
        txn.go_back_to(0, 0);
        let waited_for_lock = self.waiting.remove(&txn.id).is_some();
        self.database.abort(txn.id);
        if *waits && (waited_for_lock || waited_for_blocks || waited_for_parts || slept) {
            *interrupted = Some(Interruption::Failed(error.clone()));
            self.woken.push(id);
        }
    }
}

pub(super) fn snapshot_too_old() -> SqlError {
    SqlError::new(state::SNAPSHOT_TOO_OLD, "snapshot too old")
        .detail("The transaction has kept its snapshot for longer than the storage can wait.")
        .hint("Begin a new transaction. Read less in one transaction, or raise the server's snapshot age.")
}
