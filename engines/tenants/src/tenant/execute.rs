//! A statement, from its text to its effects.

use std::sync::Arc;

use savanna_tenants_execution::{
    PATIENCE_ROWS, Run,
    effects::{Effects, too_large},
    modify::Written,
};
use savanna_tenants_sql::{
    doing,
    expression::Listing,
    parse,
    plan::{OutputColumn, Plan, Statement},
};
use savanna_tenants_store::database::{RECORD_BYTES_MAX, SessionId, Step};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};
use savanna_transaction::Isolation;

use super::{NoRoom, Notice, Tenant, cursors::listed_cursors, portals::listed_statements, reader::Reads};
use crate::{
    cursor::{Around, Cursor},
    session::{Current, Outcome, Prepared, Session, Status},
};

impl Tenant {
    /// The statements of a simple query's text.
    ///
    /// # Errors
    /// 42601, 57014; the transaction has failed then.
    pub fn split(&mut self, id: SessionId, text: &str) -> Result<Vec<String>> {
        self.begin_statement(id);
        let statements = self.statements_of(id, text);
        self.interrupts(id).end();
        statements.inspect_err(|_| self.fail(id))
    }

    /// The statements of a text. The client is told of names that are cut.
    pub(super) fn statements_of(&mut self, id: SessionId, text: &str) -> Result<Vec<String>> {
        let interrupts = self.interrupts(id);
        let split = parse::split(text, &interrupts).or_else(|error| interrupts.check().and(Err(error)))?;
        self.session(id)?.notices.extend(split.too_long.iter().map(|name| Notice::cut(name)));
        Ok(split.statements)
    }

    /// Runs one statement of a simple query. After [`Step::Wait`], run it again when the session is woken.
    ///
    /// # Errors
    /// Those of the statement; the transaction has failed then.
    pub fn run(&mut self, id: SessionId, text: &str) -> Result<Step<(Outcome, Option<Vec<OutputColumn>>)>> {
        self.begin_statement(id);
        self.show_statement(id, || doing::cut(text).into());
        #[cfg(feature = "faults")]
        crate::panics::panic_if_asked(text);
        let step = self.run_simple(id, text);
        self.after(id, step)
    }

    fn run_simple(&mut self, id: SessionId, text: &str) -> Result<Step<(Outcome, Option<Vec<OutputColumn>>)>> {
        self.interruption(id)?;
        let (prepared, parameters) = match self.session(id)?.simple.take() {
            Some(waiting) => waiting,
            None => {
                let prepared = self.prepared(id, text, Vec::new())?;
                if !prepared.statement.parameters.is_empty() {
                    return Err(SqlError::new(state::UNDEFINED_PARAMETER, "there is no parameter $1"));
                }
                self.called(id, prepared)?
            }
        };
        let mut statement = Arc::clone(&prepared.statement);
        let step = self.execute_statement(id, &prepared, &mut statement, &parameters)?;
        Ok(match step {
            Step::Wait => {
                self.session(id)?.simple = Some((prepared, parameters));
                Step::Wait
            }
            Step::Done(outcome) => Step::Done((self.owing(id, outcome)?, self.output_of(id, &statement))),
        })
    }

    /// Rows that may be told when a transaction is over that the client has not begun: nobody stops them if it has written or said anything, also before them.
    fn owing(&mut self, id: SessionId, outcome: Outcome) -> Result<Outcome> {
        let session = self.session(id)?;
        let implicit = session.txn.as_ref().filter(|txn| !txn.explicit);
        let has_done =
            implicit.is_some_and(|txn| txn.bytes > 0 || txn.defines || session.facts.notifying.borrow().is_changed());
        Ok(match outcome {
            Outcome::Rows { tag, rows, end } if has_done => Outcome::Rows { tag, rows: rows.owed(), end },
            Outcome::CopyOut { columns, rows, format } if has_done => {
                Outcome::CopyOut { columns, rows: rows.owed(), format }
            }
            other => other,
        })
    }

    pub(super) fn execute_statement(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        statement: &mut Arc<Statement>,
        parameters: &[Value],
    ) -> Result<Step<Outcome>> {
        self.numbered(id, |tenant| tenant.execute_once(id, prepared, statement, parameters))
    }

    /// Runs a statement; plans it again if the catalog is another than it was planned with.
    fn execute_once(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        statement: &mut Arc<Statement>,
        parameters: &[Value],
    ) -> Result<Step<Outcome>> {
        let now = self.now;
        let session = self.session(id)?;
        refuse_if_failed(session, &statement.plan)?;
        if let Some((ran, came)) = self.take_read(id)? {
            *statement = ran;
            let outcome = came?;
            self.end_statement(id, None)?;
            return Ok(Step::Done(outcome));
        }
        let session = self.session(id)?;
        session.facts.statement_began = now;
        session.facts.configured.borrow_mut().clear();
        session.facts.advisory.get_mut().begin();
        session.facts.notifying.get_mut().begin();
        if let Some(step) = self.control(id, &statement.plan)? {
            return Ok(step);
        }
        let behind = self.take_snapshot(id, prepared, statement)?;
        if let Some(outcome) = self.declare_suspended(id, prepared, statement, parameters)? {
            return Ok(Step::Done(outcome));
        }
        match self.run_plan(id, statement, parameters, behind)? {
            Step::Wait => Ok(Step::Wait),
            Step::Done((outcome, effects)) => {
                self.end_statement(id, effects)?;
                self.configure(id)?;
                Ok(Step::Done(outcome))
            }
        }
    }

    /// Takes a snapshot for a statement, in a transaction of its own if there is none, and makes sure that it is planned with
    /// the catalog that is seen there. Whether the snapshot is older than the newest commit.
    pub(super) fn take_snapshot(
        &mut self,
        id: SessionId,
        prepared: &Prepared,
        statement: &mut Arc<Statement>,
    ) -> Result<bool> {
        let now = self.now;
        self.in_transaction(id)?;
        let Self { database, sessions, .. } = self;
        let Some(Session { txn: Some(txn), facts, .. }) = sessions.get_mut(&id) else {
            return Err(SqlError::internal("no transaction"));
        };
        let only_reads = facts.only_reads;
        txn.used = true;
        if txn.isolation == Isolation::Serializable {
            database.refuse_overtaken(txn.id, txn.savepoints.first().map(|savepoint| savepoint.rows))?;
        }
        if txn.isolation == Isolation::ReadCommitted || txn.snapshot_taken.is_none() {
            txn.snapshot_taken = Some(now);
        }
        let (txn, defines, read_only) = (txn.id, txn.defines, txn.read_only);
        let snapshot = database.statement(txn)?;
        let behind = database.is_behind(snapshot);
        let catalog = self.catalog_at(id, (txn, defines), snapshot)?;
        if !Arc::ptr_eq(&catalog, &statement.catalog) {
            let style = self.session(id)?.facts.settings.style;
            *statement = self.planned(id, &prepared.text, (catalog, style), &prepared.declared)?;
            // The parameters were read as the types that were known then.
            if statement.parameters != prepared.statement.parameters {
                let message = "the types of a prepared statement's parameters have changed";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint("Prepare it again."));
            }
        }
        let plan = match &statement.plan {
            Plan::Explain(explain) if explain.analyze => &explain.plan,
            plan => plan,
        };
        if read_only
            && !matches!(
                plan,
                Plan::LockTable(_) | Plan::Query(_) | Plan::CopyOut(..) | Plan::Explain(_) | Plan::Declare { .. }
            )
        {
            let message = format!("cannot execute {} in a read-only transaction", verb_of(plan));
            return Err(SqlError::new(state::READ_ONLY_SQL_TRANSACTION, message));
        }
        // Locks would keep its writer waiting.
        let locks = match plan {
            Plan::LockTable(_) => true,
            Plan::Query(query) | Plan::CopyOut(query, _) | Plan::Declare { query, .. } => query.locking.is_some(),
            _ => false,
        };
        if only_reads && locks {
            return Err(super::transactions::only_reads());
        }
        Ok(behind)
    }

    /// Works out what a statement comes to, and writes nothing.
    fn run_plan(
        &mut self,
        id: SessionId,
        statement: &Arc<Statement>,
        parameters: &[Value],
        behind: bool,
    ) -> Result<Step<(Outcome, Option<Effects>)>> {
        let Self { database, sessions, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return Err(SqlError::internal("no session")) };
        if session.waits_for_elsewhere(statement) {
            return Ok(Step::Wait);
        }
        let Session {
            txn: Some(txn),
            facts,
            copying,
            notices,
            aside,
            until_it_misses,
            gives_way,
            reads,
            cursors,
            prepared,
            ..
        } = session
        else {
            return Err(SqlError::internal("no transaction"));
        };
        facts.catalog = Arc::clone(&statement.catalog);
        facts.modes = Some((txn.isolation, txn.read_only));
        if statement.lists {
            facts.listing = Listing { statements: listed_statements(prepared), cursors: listed_cursors(cursors) };
        }
        if !*aside && statement.is_long() {
            *gives_way = true;
            *reads = Reads::of(statement, parameters, txn.isolation);
            return Ok(Step::Wait);
        }
        if *until_it_misses {
            *reads = Reads::of(statement, parameters, txn.isolation);
        }
        let mut run = Run::new(database, (txn.id, txn.isolation), parameters, facts, &txn.deferral)
            .give_way_after((!*aside).then_some(PATIENCE_ROWS));
        let step = match &statement.plan {
            plan @ (Plan::Query(_) | Plan::CopyOut(..)) => rows_of(&run, plan)?.map(|outcome| (outcome, None)),
            Plan::Declare { name, options, query, text } => {
                let (made_by, columns) = ((text.clone(), facts.statement_began), query.columns.clone());
                let (spills, interrupts) = (run.spills().cloned(), &facts.interrupts);
                let others = cursors.values().map(Cursor::bytes).sum();
                let declare = |rows| -> Result<(Outcome, Option<Effects>)> {
                    let savepoints = txn.savepoints.len();
                    let around = Around { savepoints, others, spills: spills.as_ref(), interrupts };
                    let mut cursor = Cursor::new(columns, rows, *options, around)?;
                    cursor.made_by = made_by;
                    cursors.insert(name.clone(), cursor);
                    Ok((Outcome::Done { tag: "DECLARE CURSOR".to_owned() }, None))
                };
                match run.query(query)? {
                    Step::Wait => Step::Wait,
                    Step::Done(rows) if spills.is_some() && !*aside && Cursor::are_too_many(&rows, others) => {
                        *gives_way = true;
                        Step::Wait
                    }
                    Step::Done(rows) => Step::Done(declare(rows)?),
                }
            }
            Plan::Explain(explain) => run.explain(explain)?.map(|(lines, effects)| {
                let rows: Vec<_> = lines.into_iter().map(|line| vec![Value::Text(line)]).collect();
                (Outcome::Rows { tag: "EXPLAIN".to_owned(), rows: rows.into(), end: true }, effects)
            }),
            Plan::Insert(insert) => {
                run.insert(insert)?.map(|written| written_outcome("INSERT 0", insert.returning.is_some(), written))
            }
            Plan::Update(update) => {
                run.update(update)?.map(|written| written_outcome("UPDATE", update.returning.is_some(), written))
            }
            Plan::Delete(delete) => {
                run.delete(delete)?.map(|written| written_outcome("DELETE", delete.returning.is_some(), written))
            }
            Plan::With(with) => {
                let returning = statement.output.is_some();
                let verb = match &with.main {
                    Plan::Query(_) => "SELECT",
                    Plan::Insert(_) => "INSERT 0",
                    Plan::Update(_) => "UPDATE",
                    _ => "DELETE",
                };
                run.with(with)?.map(|written| written_outcome(verb, returning, written))
            }
            Plan::CopyIn(copy) => run.hold(&copy.target)?.map(|()| {
                *copying = Some((Arc::clone(statement), 0));
                let column = |at: &usize| copy.target.table.columns[*at].name.clone();
                let columns = copy.columns.iter().map(column).collect();
                let in_pieces = !copy.target.refers_to_itself();
                (Outcome::CopyIn { columns, format: copy.format.clone(), in_pieces }, None)
            }),
            Plan::LockTable(lock) => run
                .lock_tables(lock, &statement.catalog)?
                .map(|()| (Outcome::Done { tag: "LOCK TABLE".to_owned() }, None)),
            Plan::Define(define) => run.step(run.define(define, &statement.catalog, behind))?.map(|defined| {
                notices.extend(defined.notices.into_iter().map(Notice::plain));
                txn.defines |= defined.effects.change_catalog();
                (Outcome::Done { tag: defined.tag }, Some(defined.effects))
            }),
            other => return Err(SqlError::internal(format_args!("{} is run by nobody", verb_of(other)))),
        };
        if run.gives_way() {
            *gives_way = true;
            *reads = Reads::of(statement, parameters, txn.isolation);
            statement.note_long();
        }
        Ok(step)
    }

    /// Writes what a statement came to, and notes what its reply depends on.
    pub(super) fn end_statement(&mut self, id: SessionId, effects: Option<Effects>) -> Result<()> {
        let Self { database, sessions, refuses_writes, .. } = self;
        let Some(Session { txn: Some(txn), reply_after, .. }) = sessions.get_mut(&id) else {
            return Err(SqlError::internal("no transaction"));
        };
        if let Some(mut effects) = effects {
            if let (Some(why), false) = (*refuses_writes, effects.is_empty()) {
                return Err(no_room(why));
            }
            txn.deferred.append(&mut effects.touched.deferred);
            let most = database.transaction_bytes_max();
            txn.bytes += effects.bytes();
            if txn.bytes > most {
                return Err(too_large(most));
            }
            // From now on it is the transaction's, and the statement gives it back.
            effects.give_memory_back();
            txn.memory += effects.memory();
            if txn.bytes > RECORD_BYTES_MAX {
                txn.lent.get_or_insert_with(|| database.lent()).cover(txn.memory - RECORD_BYTES_MAX)?;
            }
            effects.apply(database)?;
        }
        *reply_after = (*reply_after).max(database.reply_after(txn.id)?);
        if txn.isolation == Isolation::ReadCommitted {
            txn.snapshot_taken = None;
        }
        database.end_statement(txn.id)
    }
}

/// The rows of a query, or what `COPY` sends of them.
pub(super) fn rows_of(run: &Run<'_>, plan: &Plan) -> Result<Step<Outcome>> {
    Ok(match plan {
        Plan::Query(query) => run.query(query)?.map(|rows| Outcome::Rows {
            tag: format!("SELECT {}", rows.len()),
            rows: rows.into(),
            end: true,
        }),
        Plan::CopyOut(query, format) => run.query(query)?.map(|rows| Outcome::CopyOut {
            columns: query.columns.clone(),
            rows: rows.into(),
            format: format.clone(),
        }),
        other => return Err(SqlError::internal(format_args!("{} has no rows", verb_of(other)))),
    })
}

fn written_outcome(verb: &str, returning: bool, written: Written) -> (Outcome, Option<Effects>) {
    let Written { count, rows, effects } = written;
    let tag = format!("{verb} {count}");
    let rows = rows.into_rows().owed();
    let outcome = if returning { Outcome::Rows { tag, rows, end: true } } else { Outcome::Done { tag } };
    (outcome, Some(effects))
}

fn no_room(why: NoRoom) -> SqlError {
    match why {
        NoRoom::Storage => {
            let message = "the store refuses writes, and the memory for waiting rows is full";
            SqlError::new(state::DISK_FULL, message)
                .hint("Reads are still answered. Try again when the store works and has space; the server's log has the cause.")
        }
        NoRoom::Memory => {
            let message = "the memory for rows is full, and this database has more than its share";
            SqlError::new(state::OUT_OF_MEMORY, message).hint(
                "Reads are still answered. End transactions with an old snapshot, because rows written since then stay in \
         memory. If the store is slow, wait.",
            )
        }
    }
}

pub(super) fn refuse_if_failed(session: &Session, plan: &Plan) -> Result<()> {
    if let Some(Current { ended: Some(error), .. }) = &session.txn
        && !matches!(plan, Plan::Commit | Plan::Rollback)
    {
        return Err(error.clone());
    }
    if session.status() == Status::Failed && !matches!(plan, Plan::Commit | Plan::Rollback | Plan::RollbackTo(_)) {
        return Err(in_failed_transaction());
    }
    Ok(())
}

pub(super) fn in_failed_transaction() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(state::IN_FAILED_SQL_TRANSACTION, message)
}

fn verb_of(plan: &Plan) -> &'static str {
    match plan {
        Plan::With(_) => "WITH",
        Plan::Insert(_) => "INSERT",
        Plan::Update(_) => "UPDATE",
        Plan::Delete(_) => "DELETE",
        Plan::CopyIn(_) => "COPY FROM",
        Plan::Define(_) => "a change of tables",
        _ => "the statement",
    }
}
