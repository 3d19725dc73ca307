//! `COPY .. FROM STDIN`: lines that a client sends after the statement.

use savanna_tenants_execution::{PATIENCE_ROWS, Run, modify::Written};
use savanna_tenants_sql::{copy::CopyField, plan::Plan};
use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::error::{Result, SqlError, state};

use super::Tenant;
use crate::session::Outcome;

impl Tenant {
    /// Takes lines of a `COPY`, as the values of their columns: the last ones, or others that come before them and count as if they were a statement by
    /// themselves. After [`Step::Wait`], give them again when the session is woken.
    ///
    /// # Errors
    /// Those of inserting; the transaction has failed then, and the `COPY` is over.
    pub fn copy_in(&mut self, id: SessionId, lines: &[Vec<CopyField>], are_last: bool) -> Result<Step<Outcome>> {
        self.begin_statement(id);
        let step = self.numbered(id, |tenant| tenant.copy_lines(id, lines));
        let step = self.after(id, step);
        if let Some(session) = self.sessions.get_mut(&id)
            && (step.is_err() || are_last && matches!(step, Ok(Step::Done(_))))
        {
            session.copying = None;
        }
        step
    }

    /// Whether a `COPY` goes on, whose lines somebody takes from the client or reads. It counts as a statement that runs.
    ///
    /// # Errors
    /// 57014. Then it is to be [given up](Self::copy_fail).
    pub fn copy_goes_on(&self, id: SessionId) -> Result<()> {
        self.begin_statement(id);
        self.sessions.get(&id).map_or(Ok(()), |session| session.facts.interrupts.check())
    }

    fn copy_lines(&mut self, id: SessionId, lines: &[Vec<CopyField>]) -> Result<Step<Outcome>> {
        self.interruption(id)?;
        let Self { database, sessions, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return Err(SqlError::internal("the session is closed")) };
        let (Some((statement, before)), Some(txn)) = (session.copying.clone(), &session.txn) else {
            return Err(SqlError::new(state::PROTOCOL_VIOLATION, "expected no lines, because there is no COPY"));
        };
        let Plan::CopyIn(plan) = &statement.plan else { return Err(SqlError::internal("a COPY of nothing")) };
        if let Some(error) = &txn.ended {
            return Err(error.clone());
        }
        let (deferral, isolation, txn) = (&txn.deferral, txn.isolation, txn.id);
        database.statement(txn)?;
        let run = Run::new(database, (txn, isolation), &[], &session.facts, deferral)
            .give_way_after((!session.aside).then_some(PATIENCE_ROWS));
        match run.step(run.copy_in(plan, before, lines))? {
            Step::Wait => {
                session.gives_way = run.gives_way();
                Ok(Step::Wait)
            }
            Step::Done(Written { count, effects, .. }) => {
                self.end_statement(id, Some(effects))?;
                let count = before + count;
                if let Some((_, taken)) = &mut self.session(id)?.copying {
                    *taken = count;
                }
                Ok(Step::Done(Outcome::Done { tag: format!("COPY {count}") }))
            }
        }
    }

    /// Gives a `COPY` up.
    pub fn copy_fail(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.copying = None;
        }
        self.fail(id);
    }
}
