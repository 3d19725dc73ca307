//! Queries that run as far as their rows are wanted: of what a client fetches in parts only the place is kept in between, and what it
//! sees.

use std::sync::Arc;

use savanna_tenants_execution::{
    PATIENCE_ROWS, Run,
    part::{Place, is_resumable},
    spill::Spool,
};
use savanna_tenants_sql::{
    plan::{Plan, Statement, query::Query},
    prepare::cursor::Direction,
};
use savanna_tenants_store::{
    database::{SessionId, Step},
    fault::Fault,
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};
use savanna_transaction::View;

use super::{Tenant, execute::refuse_if_failed};
use crate::{
    cursor::{Around, Cursor},
    session::{Outcome, Prepared, Progress, Session, Suspended},
};

/// Rows, and the query that stopped behind them.
type Part = (Spool, Place);

/// The query that a statement runs as far as rows are wanted, if it is one that can be.
pub(super) fn resumable(statement: &Statement) -> Option<&Query> {
    match &statement.plan {
        Plan::Query(query) => Some(query),
        Plan::Declare { options, query, .. } if !options.hold => Some(query),
        _ => None,
    }
    .filter(|query| is_resumable(query))
    .map(|query| &**query)
}

impl Tenant {
    /// Suspends a portal's query before its first row.
    pub(super) fn suspend(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        parameters: &[Value],
    ) -> Result<Step<Suspended>> {
        refuse_if_failed(self.session(id)?, &prepared.statement.plan)?;
        let mut statement = Arc::clone(&prepared.statement);
        self.take_snapshot(id, prepared, &mut statement)?;
        let suspended = self.suspended(id, prepared, &statement, parameters)?;
        self.end_statement(id, None)?;
        Ok(Step::Done(suspended))
    }

    /// Makes a cursor of a query that can be suspended; `None` if the statement is something else.
    pub(super) fn declare_suspended(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        statement: &Arc<Statement>,
        parameters: &[Value],
    ) -> Result<Option<Outcome>> {
        let (Plan::Declare { name, options, text, .. }, Some(query)) = (&statement.plan, resumable(statement)) else {
            return Ok(None);
        };
        let suspended = self.suspended(id, prepared, statement, parameters)?;
        let session = self.session(id)?;
        let savepoints = session.txn.as_ref().map_or(0, |txn| txn.savepoints.len());
        let mut cursor = Cursor::suspended(query.columns.clone(), suspended, *options, savepoints);
        cursor.made_by = (text.clone(), session.facts.statement_began);
        session.cursors.insert(name.clone(), cursor);
        self.end_statement(id, None)?;
        Ok(Some(Outcome::Done { tag: "DECLARE CURSOR".to_owned() }))
    }

    /// A query with what the statement sees that runs now.
    fn suspended(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        statement: &Arc<Statement>,
        parameters: &[Value],
    ) -> Result<Suspended> {
        let (now, txn) = (self.now, self.session(id)?.txn.as_ref().map(|txn| txn.id));
        let view = self.database.keep_view(txn.ok_or_else(no_transaction)?)?;
        if let Some(txn) = &mut self.session(id)?.txn {
            txn.views.push((view, now));
        }
        let (text, declared) = (Arc::clone(&prepared.text), prepared.declared.clone());
        let (statement, parameters) = (Arc::clone(statement), parameters.to_vec());
        Ok(Suspended { text, declared, statement, parameters, view, place: Place::default(), began: now })
    }

    /// Runs a suspended query for so many rows at most. It changes nothing.
    pub(super) fn part(&mut self, id: SessionId, suspended: &Suspended, count: usize) -> Result<Step<Part>> {
        let query = resumable(&suspended.statement).ok_or_else(|| SqlError::internal("a query that is run at once"))?;
        let Self { database, sessions, .. } = self;
        let session = sessions.get_mut(&id).ok_or_else(no_transaction)?;
        if session.waits_for_elsewhere(&suspended.statement) {
            return Ok(Step::Wait);
        }
        let Session { txn: Some(txn), facts, aside, gives_way, .. } = session else {
            return Err(no_transaction());
        };
        if !database.statement_in(txn.id, suspended.view)? {
            let message = "a portal whose savepoint was rolled back cannot be run";
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        facts.statement_began = suspended.began;
        facts.catalog = Arc::clone(&suspended.statement.catalog);
        facts.modes = Some((txn.isolation, txn.read_only));
        let run = Run::new(database, (txn.id, txn.isolation), &suspended.parameters, facts, &txn.deferral)
            .give_way_after((!*aside).then_some(PATIENCE_ROWS));
        let step = run.rows_behind(query, &suspended.place, count)?;
        *gives_way |= run.gives_way();
        if let Step::Done(_) = step {
            self.end_statement(id, None)?;
        }
        Ok(step)
    }

    /// Rows of a cursor that are still to come; from then on those of a cursor that does not only go on are kept.
    pub(super) fn fetch_suspended(
        &mut self,
        id: SessionId,
        name: &str,
        direction: Direction,
    ) -> Result<Step<Option<Spool>>> {
        let Some(Cursor { coming: Some(coming), .. }) = self.session(id)?.cursors.get(name) else {
            return Ok(Step::Done(None));
        };
        let mut coming = coming.clone();
        let count = match direction {
            Direction::Forward(steps) if steps > 0 => Some(usize::try_from(steps).unwrap_or(usize::MAX)),
            Direction::ForwardAll => Some(usize::MAX),
            _ => None,
        };
        if count.is_none() {
            coming.place = Place::default();
        }
        let part = self.part(id, &coming, count.unwrap_or(usize::MAX));
        let is_done = matches!(part, Ok(Step::Done(_)));
        if !is_done && !self.database.rules.exclude(Fault::RetriesBeginAgain) {
            let cursor = self.session(id)?.cursors.get_mut(name);
            cursor
                .into_iter()
                .filter_map(|cursor| cursor.coming.as_mut())
                .for_each(|coming| coming.place = Place::default());
        }
        let (rows, place) = match part? {
            Step::Wait => return Ok(Step::Wait),
            Step::Done(part) => part,
        };
        let spills = self.database.spills().cloned();
        let Session { cursors, facts, aside, gives_way, .. } = self.session(id)?;
        let (others, savepoints) = (cursors.values().map(Cursor::bytes).sum(), 0);
        if count.is_none() && spills.is_some() && !*aside && Cursor::are_too_many(&rows, others) {
            *gives_way = true;
            return Ok(Step::Wait);
        }
        let Some(cursor) = cursors.get_mut(name) else { return Ok(Step::Done(None)) };
        Ok(Step::Done(match count {
            Some(count) => {
                coming.place = place;
                cursor.coming = Some(coming);
                cursor.passed(rows.len(), rows.len() < count);
                Some(rows)
            }
            None => {
                let interrupts = &facts.interrupts;
                cursor.keep(rows, Around { savepoints, others, spills: spills.as_ref(), interrupts })?;
                self.release_views(id);
                None
            }
        }))
    }

    /// Ends views that nobody may use any more.
    pub(super) fn end_views(&mut self, id: SessionId, over: impl Fn(View) -> bool) {
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(txn), .. }) = sessions.get_mut(&id) else { return };
        txn.views.retain(|(view, _)| {
            let over = over(*view);
            if over {
                database.drop_view(txn.id, *view);
            }
            !over
        });
    }

    /// Ends the views of portals and cursors that are gone.
    pub(super) fn release_views(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.txn.as_ref().is_none_or(|txn| txn.views.is_empty()) {
            return;
        }
        let portals = session.portals.values().filter_map(|portal| match &portal.progress {
            Progress::Suspended(suspended, _) => Some(suspended.view),
            _ => None,
        });
        let cursors = session.cursors.values().filter_map(|cursor| Some(cursor.coming.as_ref()?.view));
        let used: Vec<View> = portals.chain(cursors).collect();
        self.end_views(id, |view| !used.contains(&view));
    }
}

fn no_transaction() -> SqlError {
    SqlError::internal("no transaction")
}
