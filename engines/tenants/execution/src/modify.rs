//! Runs what writes rows.

use std::{collections::HashSet, ops::ControlFlow};

use savanna_tenants_catalog::{Table, row};
use savanna_tenants_sql::{
    copy::CopyField,
    expression::{Env, Expr},
    modify::{shown_row, written::ViewCheck},
    plan::{ConflictUpdate, CopyIn, Delete, Insert, OnConflict, Target, Update, query::Joined},
};
use savanna_tenants_store::{database::Step, fault::Fault};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Memory,
    value::{Value, binary, text},
};

use crate::{
    Run,
    effects::{Effects, Inserted, duplicate, ready, too_large},
    explain::address,
    query::project,
    spill::{Spool, Spooling},
};

/// What a key takes beside its bytes in a set of keys, about.
const SEEN_BYTES: usize = 64;

/// Rows of one table, each after its key.
pub(crate) type KeyedRows = Vec<(Vec<u8>, Vec<Value>)>;

/// What a statement wrote.
pub struct Written {
    /// How many rows.
    pub count: usize,
    /// Rows for `RETURNING`.
    pub rows: Spool,
    /// What is to be written.
    pub effects: Effects,
}

/// How many rows were written, and what is returned of them.
pub(crate) type Returned = (usize, Spool);

impl Run<'_> {
    /// What a statement comes to that writes rows of `targets`, or has these written by referential actions.
    fn written<'t>(
        &self,
        targets: &(impl Iterator<Item = &'t Target> + Clone),
        write: impl FnOnce(&mut Effects) -> Result<Step<Returned>>,
    ) -> Result<Step<Written>> {
        let mut effects = self.new_effects();
        let (count, rows) = ready!(write(&mut effects));
        ready!(self.settle(targets, &mut effects));
        Ok(Step::Done(Written { count, rows, effects }))
    }

    /// Effects of a statement, none yet.
    pub(crate) fn new_effects(&self) -> Effects {
        let most = self.database().transaction_bytes_max();
        Effects::new(self.txn, self.isolation, most)
    }

    /// Works out an `INSERT`.
    pub fn insert(&self, plan: &Insert) -> Result<Step<Written>> {
        self.step(self.written(&plan.targets(), |effects| self.insert_rows(plan, effects)))
    }

    /// The number of rows, and what is returned of them.
    pub(crate) fn insert_rows(&self, plan: &Insert, effects: &mut Effects) -> Result<Step<Returned>> {
        let table = &*plan.target.table;
        ready!(effects.hold_table(&mut self.database(), table));
        let source = ready!(self.query(&plan.source));
        let env = self.env();
        let (mut count, mut rows, mut memory) = (0, Vec::new(), self.memory());
        for given in source.into_rows() {
            self.goes_on()?;
            let given = given?;
            let mut values = project(&plan.values, env.with_row(&given))?;
            let mut shown = None;
            let inserted = ready!(effects.insert(&mut self.database(), &plan.target, &mut values, env));
            match inserted {
                Inserted::Done => shown = Some(values),
                Inserted::Conflict(arbiter, key) => {
                    let error = || Err(duplicate(table, arbiter, &values, env));
                    let Some(OnConflict { arbiter: wanted, update }) = &plan.conflict else { return error() };
                    // Several constraints may be in the way: the one that is named counts.
                    let key = match wanted {
                        Some(wanted) if *wanted != arbiter => {
                            let database = &mut self.database();
                            let named = effects.conflicting(database, table, *wanted, &values, env);
                            let Some(key) = ready!(named) else { return error() };
                            key
                        }
                        _ => key,
                    };
                    if let Some(update) = update {
                        shown = ready!(self.update_instead(effects, plan, update, (&key, values)));
                    }
                }
            }
            let Some(values) = shown else { continue };
            self.check_views(&plan.checks, &values, table, env)?;
            count += 1;
            if let Some(returning) = &plan.returning {
                let returned = project(&returning.outputs, env.with_row(&values))?;
                memory.take(&returned)?;
                rows.push(returned);
            }
        }
        memory.keep();
        Ok(Step::Done((count, rows.into())))
    }

    /// `DO UPDATE` of the row that is in the way; the row that comes of it, unless its filter lets it be.
    fn update_instead(
        &self,
        effects: &mut Effects,
        plan: &Insert,
        update: &ConflictUpdate,
        (key, proposed): (&[u8], Vec<Value>),
    ) -> Result<Step<Option<Vec<Value>>>> {
        let table = &*plan.target.table;
        if effects.has(key) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(state::CARDINALITY_VIOLATION, message)
                .hint("Ensure that no rows proposed for insertion have duplicate constrained values."));
        }
        let all: Vec<usize> = table.live_columns().map(|(at, _)| at).collect();
        let mut old = vec![Value::Null; table.columns.len()];
        // The row's lock comes first: what is there may be somebody's who is about to change it.
        if ready!(effects.taken(&mut self.database(), key)).is_none() {
            return Err(SqlError::internal("the row of an index's entry is not there"));
        }
        match self.database().get(self.txn, key)? {
            Some(bytes) => row::decode(table, bytes, &all, &mut old)?,
            None => {
                // It came after the snapshot.
                let message = "could not serialize access due to concurrent update";
                return Err(SqlError::new(state::SERIALIZATION_FAILURE, message));
            }
        }
        let env = self.env();
        if let Some(hidden) = first_broken(&update.shows, &old, env)? {
            let message = format!("conflicting row is not visible through view \"{hidden}\"");
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let both: Vec<Value> = old.iter().cloned().chain(proposed).collect();
        if !update.filter.as_ref().map_or(Ok(true), |filter| filter.holds(env.with_row(&both)))? {
            return Ok(Step::Done(None));
        }
        let (mut new, touched) = assigned(&old, &update.assignments, |value| value.owned(env.with_row(&both)))?;
        let updated =
            ready!(effects.update(&mut self.database(), &plan.target, (key, &old), (&mut new, &touched), env));
        match updated {
            Inserted::Done => Ok(Step::Done(Some(new))),
            Inserted::Conflict(arbiter, _) => Err(duplicate(table, arbiter, &new, env)),
        }
    }

    /// Works out an `UPDATE`.
    pub fn update(&self, plan: &Update) -> Result<Step<Written>> {
        self.step(self.written(&plan.targets(), |effects| self.update_rows(plan, effects)))
    }

    /// The number of rows, and what is returned of them.
    pub(crate) fn update_rows(&self, plan: &Update, effects: &mut Effects) -> Result<Step<Returned>> {
        let table = &*plan.target.table;
        ready!(effects.hold_table(&mut self.database(), table));
        let env = self.env();
        let (mut count, mut rows, mut memory) = (0, Vec::new(), self.memory());
        let (targets, _held) = ready!(self.targets(&plan.rows));
        for row in targets.into_rows() {
            self.goes_on()?;
            let (key, mut row) = keyed(row?)?;
            if effects.has_before(&key) {
                continue;
            }
            let old = row[..table.columns.len()].to_vec();
            let (mut new, touched) = assigned(&old, &plan.assignments, |value| value.owned(env.with_row(&row)))?;
            let step = effects.update(&mut self.database(), &plan.target, (&key, &old), (&mut new, &touched), env);
            if let Inserted::Conflict(arbiter, _) = ready!(step) {
                return Err(duplicate(table, arbiter, &new, env));
            }
            self.check_views(&plan.checks, &new, table, env)?;
            count += 1;
            if let Some(returning) = &plan.returning {
                row[..new.len()].clone_from_slice(&new);
                let returned = project(&returning.outputs, env.with_row(&row))?;
                memory.take(&returned)?;
                rows.push(returned);
            }
        }
        memory.keep();
        Ok(Step::Done((count, rows.into())))
    }

    /// Works out a `DELETE`.
    pub fn delete(&self, plan: &Delete) -> Result<Step<Written>> {
        self.step(self.written(&plan.targets(), |effects| self.delete_rows(plan, effects)))
    }

    /// The number of rows, and what is returned of them.
    pub(crate) fn delete_rows(&self, plan: &Delete, effects: &mut Effects) -> Result<Step<Returned>> {
        let table = &*plan.target.table;
        ready!(effects.hold_table(&mut self.database(), table));
        let env = self.env();
        let (mut count, mut rows, mut memory) = (0, Vec::new(), self.memory());
        let (targets, _held) = ready!(self.targets(&plan.rows));
        for row in targets.into_rows() {
            self.goes_on()?;
            let (key, row) = keyed(row?)?;
            if effects.has_before(&key) {
                continue;
            }
            ready!(effects.delete(&mut self.database(), &plan.target, &key, &row[..table.columns.len()], env));
            count += 1;
            if let Some(returning) = &plan.returning {
                let returned = project(&returning.outputs, env.with_row(&row))?;
                memory.take(&returned)?;
                rows.push(returned);
            }
        }
        memory.keep();
        Ok(Step::Done((count, rows.into())))
    }

    /// The rows that are to be written, each once, though it may be joined with several, with their keys behind them; and the memory that they hold.
    fn targets(&self, rows: &Joined) -> Result<Step<(Spool, Memory<'_>)>> {
        let mut found = Spooling::new(self, address(rows));
        let mut seen = HashSet::new();
        let (mut memory, mut bytes, most) = (self.memory(), 0, self.database().transaction_bytes_max());
        let alone = rows.node.is_one_table();
        let result = self.joined(rows, Vec::new(), None, &mut |row| {
            let key = &row.keys[0];
            if alone || seen.insert(key.clone()) {
                // Each of them is written, under its key.
                bytes += key.len() + 16;
                if bytes > most {
                    return Err(too_large(most));
                }
                if !alone {
                    memory.take_bytes(key.len() + SEEN_BYTES)?;
                }
                let mut values = Vec::with_capacity(row.values.len() + 1);
                values.extend_from_slice(&row.values);
                values.push(Value::Bytes(key.clone()));
                found.push(values)?;
            }
            Ok(ControlFlow::Continue(()))
        });
        self.step(result.and_then(|()| found.finish().map(Step::Done)))
    }

    /// Rows of `COPY`, as the values of their columns, `before` which so many came.
    pub fn copy_in(&self, plan: &CopyIn, before: usize, lines: &[Vec<CopyField>]) -> Result<Step<Written>> {
        let mut effects = self.new_effects();
        let table = &*plan.target.table;
        ready!(effects.hold_table(&mut self.database(), table));
        let env = self.env();
        for (number, line) in (before..).zip(lines) {
            self.goes_on()?;
            if line.len() > plan.columns.len() {
                return Err(bad_row("extra data after last expected column", table, number));
            }
            let mut values = vec![Value::Null; table.columns.len()];
            for (at, column) in plan.columns.iter().enumerate() {
                let Some(content) = line.get(at) else {
                    let message = format!("missing data for column \"{}\"", table.columns[*column].name);
                    return Err(bad_row(&message, table, number));
                };
                let of = table.columns[*column].of;
                values[*column] = match content {
                    CopyField::Null => Value::Null,
                    CopyField::Text(content) => text::parse(content, of, self.facts.context())?,
                    CopyField::Binary(bytes) => binary::parse(bytes, of, self.facts.context())?,
                };
            }
            for (column, default) in &plan.defaults {
                values[*column] = default.owned(env)?;
            }
            if let Inserted::Conflict(arbiter, _) =
                ready!(effects.insert(&mut self.database(), &plan.target, &mut values, env))
            {
                return Err(duplicate(table, arbiter, &values, env));
            }
        }
        ready!(self.settle(&std::iter::once(&plan.target).chain(&plan.reached), &mut effects));
        Ok(Step::Done(Written { count: lines.len(), rows: Spool::default(), effects }))
    }

    /// Whether a row that was written fulfils what views want of it.
    fn check_views(&self, checks: &[ViewCheck], row: &[Value], table: &Table, env: Env<'_>) -> Result<()> {
        if let Some(view) = first_broken(checks, row, env)?
            && self.database().rules.exclude(Fault::ViewsCheckNothing)
        {
            let message = format!("new row violates check option for view \"{view}\"");
            let detail = format!("Failing row contains ({}).", shown_row(table, row));
            return Err(SqlError::new(state::CHECK_OPTION_VIOLATION, message).detail(detail));
        }
        Ok(())
    }
}

/// A row and its key, which stands behind it.
fn keyed(mut row: Vec<Value>) -> Result<(Vec<u8>, Vec<Value>)> {
    match row.pop() {
        Some(Value::Bytes(key)) => Ok((key, row)),
        _ => Err(SqlError::internal("a row that is to be written has no key")),
    }
}

/// The first view whose condition a row does not fulfil.
fn first_broken<'a>(checks: &'a [ViewCheck], row: &[Value], env: Env<'_>) -> Result<Option<&'a str>> {
    for check in checks {
        if !check.condition.holds(env.with_row(row))? {
            return Ok(Some(&check.view));
        }
    }
    Ok(None)
}

fn bad_row(message: &str, table: &Table, at: usize) -> SqlError {
    let row = format!("Row {} of the COPY into {}.", at + 1, table.name);
    SqlError::new(state::BAD_COPY_FILE_FORMAT, message).detail(row)
}

/// A row with some columns replaced, and which.
fn assigned(
    old: &[Value],
    assignments: &[(usize, Expr)],
    value: impl Fn(&Expr) -> Result<Value>,
) -> Result<(Vec<Value>, Vec<usize>)> {
    let mut new = old.to_vec();
    for (column, expr) in assignments {
        new[*column] = value(expr)?;
    }
    Ok((new, assignments.iter().map(|(column, _)| *column).collect()))
}
