//! Cursors of SQL in a session.

use std::collections::HashMap;

use savanna_tenants_sql::{
    plan::{Call, OutputColumn, Plan, Statement},
    prepare::cursor::{CursorOptions, Direction},
};
use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};

use super::Tenant;
use crate::{
    cursor::Cursor,
    session::{Outcome, Session, Status},
};

/// Cursors that a session keeps.
const CURSORS_MAX: usize = 1_000;

impl Tenant {
    /// Whether a cursor of a name can be made now.
    pub(super) fn may_declare(&mut self, id: SessionId, name: &str, options: CursorOptions) -> Result<()> {
        let session = self.session(id)?;
        if !options.hold && session.status() == Status::Idle {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        if session.cursors.contains_key(name) || session.portals.contains_key(name) {
            return Err(SqlError::new(state::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        if session.cursors.len() >= CURSORS_MAX {
            let message = format!("a session has at most {CURSORS_MAX} cursors");
            return Err(SqlError::new("53400", message).hint("Close some of them first."));
        }
        Ok(())
    }

    pub(super) fn fetch_from(
        &mut self,
        id: SessionId,
        name: &str,
        direction: Direction,
        moves: bool,
    ) -> Result<Step<Outcome>> {
        let rows = match self.fetch_suspended(id, name, direction)? {
            Step::Wait => return Ok(Step::Wait),
            Step::Done(Some(rows)) => rows.into_rows(),
            Step::Done(None) => {
                let cursor = self.session(id)?.cursors.get_mut(name).ok_or_else(|| no_cursor(name))?;
                cursor.go(direction)?
            }
        };
        Ok(Step::Done(match moves {
            true => Outcome::Done { tag: format!("MOVE {}", rows.left()) },
            false => Outcome::Rows { tag: format!("FETCH {}", rows.left()), rows, end: true },
        }))
    }

    pub(super) fn close_cursor(&mut self, id: SessionId, name: Option<&str>) -> Result<()> {
        let session = self.session(id)?;
        match name {
            None => session.cursors.clear(),
            Some(name) if session.cursors.remove(name).is_none() => return Err(no_cursor(name)),
            Some(_) => {}
        }
        self.release_views(id);
        Ok(())
    }

    /// The columns of a statement's rows. Those of a `FETCH` are its cursor's, those of an `EXECUTE` its statement's.
    pub(super) fn output_of(&self, id: SessionId, statement: &Statement) -> Option<Vec<OutputColumn>> {
        match &statement.plan {
            Plan::Fetch { name, moves: false, .. } => {
                self.sessions.get(&id)?.cursors.get(name).map(|cursor| cursor.columns.clone())
            }
            Plan::Execute(Call { explain, name, .. }) if explain.is_empty() => {
                self.sessions.get(&id)?.prepared.get(name)?.statement.output.clone()
            }
            Plan::Execute(_) => {
                Some(vec![OutputColumn { name: "QUERY PLAN".to_owned(), of: Type::Text, origin: (0, 0) }])
            }
            _ => statement.output.clone(),
        }
    }
}

/// The rows of `pg_cursors`.
pub(super) fn listed_cursors(cursors: &HashMap<String, Cursor>) -> Vec<Vec<Value>> {
    let row = |(name, cursor): (&String, &Cursor)| {
        let (text, at) = &cursor.made_by;
        let [holdable, binary, scrollable] = [cursor.options.hold, false, cursor.options.scroll].map(Value::Bool);
        vec![Value::Text(name.clone()), Value::Text(text.clone()), holdable, binary, scrollable, Value::Timestamp(*at)]
    };
    cursors.iter().map(row).collect()
}

impl Session {
    /// Ends the cursors that end with a transaction that has committed.
    pub(super) fn release_cursors(&mut self) {
        self.cursors.retain(|_, cursor| cursor.options.hold || cursor.savepoints.is_none());
        self.cursors.values_mut().for_each(|cursor| cursor.savepoints = None);
    }

    /// Cursors that were made since there were so many savepoints are as if there had been no more of these.
    pub(super) fn keep_cursors(&mut self, savepoints: usize) {
        let since = self.cursors.values_mut().filter_map(|cursor| cursor.savepoints.as_mut());
        since.for_each(|before| *before = (*before).min(savepoints));
    }

    /// Ends the cursors that were made since there were so many savepoints.
    pub(super) fn undo_cursors(&mut self, savepoints: usize) {
        self.cursors.retain(|_, cursor| cursor.savepoints.is_none_or(|before| before < savepoints));
    }
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}
