//! Statements that are prepared under names, and portals: such a statement with its parameters and the rows that are still to be sent.

use std::{collections::HashMap, sync::Arc};

use savanna_tenants_catalog::name::cut;
use savanna_tenants_execution::spill::SpoolRows;
use savanna_tenants_sql::{
    doing,
    plan::{OutputColumn, Plan, Statement},
};
use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::row_bytes,
    types::Type,
    value::{Value, binary, text},
};

use super::{Tenant, execute::refuse_if_failed, suspended::resumable};
use crate::session::{Outcome, Portal, Prepared, Progress, Session};

/// What each session may keep.
const STATEMENTS_MAX: usize = 1_000;
const STATEMENTS_BYTES_MAX: usize = 64 << 20;
const PORTALS_MAX: usize = 1_000;
const PORTALS_BYTES_MAX: usize = 256 << 20;

/// What a client makes a portal of.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// The portal's name, empty for the one without.
    pub portal: &'a str,
    /// The statement's.
    pub statement: &'a str,
    /// Values of its parameters.
    pub given: &'a [Given<'a>],
    /// How the columns are to be written, by the protocol's codes: [`Tenant::describe_portal`] says it again.
    pub formats: &'a [i16],
}

/// A parameter's value as a client sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given<'a> {
    /// No value.
    Null,
    /// Its text.
    Text(&'a [u8]),
    /// Its binary format.
    Binary(&'a [u8]),
}

/// The rows of `pg_prepared_statements`.
pub(super) fn listed_statements(prepared: &HashMap<String, Prepared>) -> Vec<Vec<Value>> {
    let row = |(name, prepared): (&String, &Prepared)| {
        let types = prepared.statement.parameters.iter().map(|of| prepared.statement.catalog.type_name(*of));
        let types: Vec<Value> = types.map(Value::Text).collect();
        let text = Value::Text(prepared.made_by.as_ref().unwrap_or(&prepared.text).to_string());
        let none = Value::Int(0);
        vec![
            Value::Text(name.clone()),
            text,
            Value::Timestamp(prepared.at),
            Value::Array(Arc::new(types.into())),
            Value::Bool(prepared.made_by.is_some()),
            none.clone(),
            none,
        ]
    };
    prepared.iter().filter(|(name, _)| !name.is_empty()).map(row).collect()
}

impl Tenant {
    /// Prepares a statement under a name; the empty name is always free.
    ///
    /// # Errors
    /// Those of parsing and planning; the transaction has failed then.
    pub fn parse(&mut self, id: SessionId, name: &str, text: &str, types: &[u32]) -> Result<()> {
        self.begin_statement(id);
        let parsed = self.parse_as(id, cut(name), text, types);
        self.interrupts(id).end();
        parsed.inspect_err(|_| self.fail(id))
    }

    pub(super) fn parse_as(&mut self, id: SessionId, name: &str, text: &str, types: &[u32]) -> Result<()> {
        if self.statements_of(id, text)?.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let mut declared = Vec::with_capacity(types.len());
        let catalog = self.visible_catalog(id)?;
        for oid in types {
            let of = catalog.type_of_oid(*oid);
            declared
                .push(of.ok_or_else(|| SqlError::unsupported(format_args!("a parameter of the type with OID {oid}")))?);
        }
        let prepared = self.prepared(id, text, declared)?;
        refuse_if_failed(self.session(id)?, &prepared.statement.plan)?;
        self.keep_prepared(id, name, prepared)
    }

    /// Keeps a statement under a name that is free.
    pub(super) fn keep_prepared(&mut self, id: SessionId, name: &str, prepared: Prepared) -> Result<()> {
        let session = self.session(id)?;
        if !name.is_empty() {
            if session.prepared.contains_key(name) {
                let message = format!("prepared statement \"{name}\" already exists");
                return Err(SqlError::new(state::DUPLICATE_PREPARED_STATEMENT, message));
            }
            if session.prepared.len() >= STATEMENTS_MAX {
                let message = format!("a session prepares at most {STATEMENTS_MAX} statements");
                return Err(SqlError::new("53400", message).hint("Close some of them first."));
            }
            let bytes: usize = session.prepared.values().map(|other| other.text.len()).sum();
            if bytes + prepared.text.len() > STATEMENTS_BYTES_MAX {
                let message = format!(
                    "the statements that a session prepares have at most {} MiB of text",
                    STATEMENTS_BYTES_MAX >> 20
                );
                return Err(SqlError::new("53400", message)
                    .hint("Close some of them first, or send long values as parameters."));
            }
        }
        session.prepared.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// Makes a portal of a prepared statement.
    ///
    /// # Errors
    /// If there is no such statement, or a parameter is not of its type; the transaction has failed then.
    pub fn bind(&mut self, id: SessionId, binding: &Binding<'_>) -> Result<()> {
        let bound = self.bind_as(id, binding);
        bound.inspect_err(|_| self.fail(id))
    }

    fn bind_as(&mut self, id: SessionId, binding: &Binding<'_>) -> Result<()> {
        let Binding { portal, statement, given, formats } = *binding;
        let (portal, statement) = (cut(portal), cut(statement));
        let session = self.session(id)?;
        let prepared = session.prepared.get(statement).ok_or_else(|| no_statement(statement))?.clone();
        refuse_if_failed(session, &prepared.statement.plan)?;
        let types = &prepared.statement.parameters;
        if types.len() != given.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                given.len(),
                types.len()
            );
            return Err(SqlError::new(state::PROTOCOL_VIOLATION, message));
        }
        let context = prepared.statement.catalog.context(session.facts.settings.style);
        let value = |(given, of): (&Given<'_>, &Type)| match given {
            Given::Null => Ok(Value::Null),
            Given::Text(bytes) => text::parse(binary::utf8(bytes)?, *of, context),
            Given::Binary(bytes) => binary::parse(bytes, *of, context),
        };
        let parameters = given.iter().zip(types).map(value).collect::<Result<Vec<_>>>()?;
        if !portal.is_empty() {
            if session.portals.contains_key(portal) {
                return Err(SqlError::new(state::DUPLICATE_CURSOR, format!("cursor \"{portal}\" already exists")));
            }
            if session.portals.len() >= PORTALS_MAX {
                let message = format!("a session opens at most {PORTALS_MAX} portals");
                return Err(SqlError::new("53400", message).hint("Close some of them first."));
            }
        }
        let formats = formats.to_vec();
        let bytes = row_bytes(&parameters);
        session.may_keep(portal, bytes)?;
        let made = Portal { prepared, parameters, formats, bytes, progress: Progress::Ready };
        session.portals.insert(portal.to_owned(), made);
        self.release_views(id);
        Ok(())
    }

    /// The types of a prepared statement's parameters, and its result's columns.
    ///
    /// # Errors
    /// 26000; the transaction has failed then.
    pub fn describe_statement(&mut self, id: SessionId, name: &str) -> Result<(Vec<Type>, Option<Vec<OutputColumn>>)> {
        let name = cut(name);
        let found = self.session(id)?.prepared.get(name).map(|prepared| Arc::clone(&prepared.statement));
        match found {
            Some(statement) => Ok((statement.parameters.clone(), self.output_of(id, &statement))),
            None => {
                self.fail(id);
                Err(no_statement(name))
            }
        }
    }

    /// The columns of a portal's result, and their formats.
    ///
    /// # Errors
    /// 34000; the transaction has failed then.
    pub fn describe_portal(&mut self, id: SessionId, name: &str) -> Result<(Option<Vec<OutputColumn>>, Vec<i16>)> {
        let name = cut(name);
        let session = self.session(id)?;
        let found =
            session.portals.get(name).map(|portal| (Arc::clone(&portal.prepared.statement), portal.formats.clone()));
        match found {
            Some((statement, formats)) => Ok((self.output_of(id, &statement), formats)),
            // A cursor of SQL is one, too.
            None if self.session(id)?.cursors.contains_key(name) => {
                Ok((self.session(id)?.cursors.get(name).map(|cursor| cursor.columns.clone()), Vec::new()))
            }
            None => {
                self.fail(id);
                Err(no_portal(name))
            }
        }
    }

    /// Executes a portal, for at most so many rows (0 for all). After [`Step::Wait`], execute it again when the session is
    /// woken.
    ///
    /// # Errors
    /// Those of the statement; the transaction has failed then.
    pub fn execute(&mut self, id: SessionId, name: &str, rows_max: usize) -> Result<Step<Outcome>> {
        let name = cut(name);
        self.begin_statement(id);
        if let Some(portal) = self.sessions.get(&id).and_then(|session| session.portals.get(name)) {
            self.show_statement(id, || doing::kept(&portal.prepared.text));
        }
        let step = self.execute_portal(id, name, rows_max);
        self.after(id, step)
    }

    fn execute_portal(&mut self, id: SessionId, name: &str, rows_max: usize) -> Result<Step<Outcome>> {
        self.interruption(id)?;
        let Some(mut portal) = self.session(id)?.portals.remove(name) else { return Err(no_portal(name)) };
        if matches!(portal.prepared.statement.plan, Plan::Execute(_)) {
            (portal.prepared, portal.parameters) = self.called(id, portal.prepared)?;
        }
        if matches!(portal.progress, Progress::Ready) && rows_max > 0 && resumable(&portal.prepared.statement).is_some()
        {
            match self.numbered(id, |tenant| tenant.suspend(id, &portal.prepared, &portal.parameters))? {
                Step::Wait => {
                    self.session(id)?.portals.insert(name.to_owned(), portal);
                    return Ok(Step::Wait);
                }
                Step::Done(suspended) => {
                    same_output(&portal.prepared.statement, &suspended.statement)?;
                    portal.progress = Progress::Suspended(Box::new(suspended), 0);
                }
            }
        }
        if let Progress::Suspended(..) = portal.progress {
            return self.execute_suspended(id, name, portal, rows_max);
        }
        if matches!(portal.progress, Progress::Ready) {
            let mut statement = Arc::clone(&portal.prepared.statement);
            let step = self.execute_statement(id, &portal.prepared, &mut statement, &portal.parameters)?;
            let outcome = match step {
                Step::Wait => {
                    self.session(id)?.portals.insert(name.to_owned(), portal);
                    return Ok(Step::Wait);
                }
                Step::Done(outcome) => outcome,
            };
            same_output(&portal.prepared.statement, &statement)?;
            match outcome {
                Outcome::Rows { tag, mut rows, .. } => {
                    if rows_max > 0 && rows.left() > rows_max {
                        self.keep_rows(id, name, &mut portal.bytes, &mut rows)?;
                    }
                    let verb = tag.rsplit_once(' ').map(|(verb, _)| verb.to_owned());
                    let (counted, verb) = (verb.is_some(), verb.unwrap_or(tag));
                    portal.progress = Progress::Sending { verb, counted, rows, sent: 0 };
                }
                other => {
                    portal.progress = Progress::Over;
                    self.keep_portal(id, name, portal)?;
                    return Ok(Step::Done(other));
                }
            }
        } else {
            refuse_if_failed(self.session(id)?, &portal.prepared.statement.plan)?;
        }
        let Progress::Sending { verb, counted, rows, sent } = &mut portal.progress else {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        };
        // As in PostgreSQL, the end is known when fewer rows come than were asked for.
        let end = rows_max == 0 || rows.left() < rows_max;
        let now = match rows_max {
            0 => std::mem::take(rows),
            most => rows.split(most),
        };
        *sent += now.left();
        let count = if end { now.left() } else { *sent };
        let tag = if *counted { format!("{verb} {count}") } else { verb.clone() };
        let outcome = Outcome::Rows { tag, rows: now, end };
        self.keep_portal(id, name, portal)?;
        Ok(Step::Done(outcome))
    }

    /// Sends the next rows of a query that runs as far as they are wanted.
    fn execute_suspended(
        &mut self,
        id: SessionId,
        name: &str,
        mut portal: Portal,
        rows_max: usize,
    ) -> Result<Step<Outcome>> {
        refuse_if_failed(self.session(id)?, &portal.prepared.statement.plan)?;
        let Progress::Suspended(suspended, sent) = &mut portal.progress else {
            return Err(SqlError::internal("a portal that is not suspended"));
        };
        let count = if rows_max == 0 { usize::MAX } else { rows_max };
        let (rows, place) = match self.numbered(id, |tenant| tenant.part(id, suspended, count))? {
            Step::Wait => {
                self.session(id)?.portals.insert(name.to_owned(), portal);
                return Ok(Step::Wait);
            }
            Step::Done(part) => part,
        };
        suspended.place = place;
        *sent += rows.len();
        let end = rows.len() < count;
        let tag = format!("SELECT {}", if end { rows.len() } else { *sent });
        if end {
            let (verb, rows) = ("SELECT".to_owned(), SpoolRows::default());
            portal.progress = Progress::Sending { verb, counted: true, rows, sent: *sent };
        }
        self.keep_portal(id, name, portal)?;
        self.release_views(id);
        Ok(Step::Done(Outcome::Rows { tag, rows: rows.into_rows(), end }))
    }

    /// Counts the rows that a portal keeps. Those that memory is not for go to a file.
    fn keep_rows(&mut self, id: SessionId, name: &str, bytes: &mut usize, rows: &mut SpoolRows) -> Result<()> {
        let kept = rows.kept().iter().map(|row| row_bytes(row)).sum::<usize>();
        let spills = self.database.spills().cloned();
        let session = self.session(id)?;
        let may_keep = session.may_keep(name, *bytes + kept);
        // The file is written here: so only if the statement has given way, as one with so many rows has.
        if let (Err(_), Some(spills), true) = (&may_keep, &spills, session.aside) {
            return rows.put_away(spills, || session.facts.interrupts.check());
        }
        may_keep?;
        *bytes += kept;
        // A cursor that they are of may be closed before, and does not go along with the session for them.
        rows.own();
        Ok(())
    }

    /// A portal is kept until its transaction ends, which may just have happened.
    fn keep_portal(&mut self, id: SessionId, name: &str, portal: Portal) -> Result<()> {
        let session = self.session(id)?;
        if session.txn.is_some() {
            session.portals.insert(name.to_owned(), portal);
        }
        Ok(())
    }

    /// Forgets a prepared statement.
    pub fn close_statement(&mut self, id: SessionId, name: &str) {
        let name = cut(name);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.prepared.remove(name);
        }
    }

    /// Forgets a portal.
    pub fn close_portal(&mut self, id: SessionId, name: &str) {
        let name = cut(name);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.portals.remove(name);
        }
        self.release_views(id);
    }
}

impl Session {
    /// Whether a portal may take so much, beside others than what has its name.
    fn may_keep(&self, name: &str, bytes: usize) -> Result<()> {
        let others = self.portals.iter().filter(|(other, _)| *other != name);
        if others.map(|(_, portal)| portal.bytes).sum::<usize>() + bytes <= PORTALS_BYTES_MAX {
            return Ok(());
        }
        let message =
            format!("the portals of a session keep at most {} MiB of parameters and rows", PORTALS_BYTES_MAX >> 20);
        Err(SqlError::new(state::OUT_OF_MEMORY, message)
            .hint("Close some of them first, or read fewer rows or columns."))
    }
}

/// Refuses a statement that was planned again with other columns than the client was told.
fn same_output(told: &Statement, now: &Statement) -> Result<()> {
    let types = |statement: &Statement| {
        statement.output.as_ref().map(|columns| columns.iter().map(|column| column.of).collect::<Vec<_>>())
    };
    if types(told) == types(now) {
        return Ok(());
    }
    Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"))
}

pub(super) fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_owned(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(state::INVALID_SQL_STATEMENT_NAME, message)
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}
