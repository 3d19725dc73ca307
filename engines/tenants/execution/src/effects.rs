//! What a statement is about to write. Nothing is written before all of it is known, every lock is held and no constraint is
//! violated: a statement that fails or has to wait has changed nothing, and simply begins again.

use std::{collections::BTreeMap, ops::Bound};

use savanna_tenants_catalog::{
    Arbiter, OBJECTS, Part, Table,
    row::{self, Entry},
};
use savanna_tenants_sql::{
    define::index::shown_part,
    expression::{Env, index::ResolvedIndexes},
    modify::shown_row,
    plan::Target,
};
use savanna_tenants_store::database::{Database, RECORD_BYTES_MAX, Step, Visit, is_temporary};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Lent,
    types::Type,
    value::{Value, style::Style, text},
};
use savanna_transaction::{Change, Isolation, KeyRange, RowLock, TxnId, Wait};

use crate::{join::row_key, reference::Touched};

/// What a key takes that is written beside its bytes and its value's, about: places in tables and lists, its lock, allocations.
const KEY_MEMORY: usize = 300;

#[derive(Debug)]
struct Effect {
    value: Option<Box<[u8]>>,
    change: Change,
    /// The part of the statement that wrote it first.
    part: usize,
}

/// Keys with what becomes of them, and what that means for foreign keys.
#[derive(Debug)]
pub struct Effects {
    txn: TxnId,
    isolation: Isolation,
    by_key: BTreeMap<Vec<u8>, Effect>,
    bytes: usize,
    /// Bytes that a transaction may write.
    most: usize,
    /// Memory for what is more than any transaction may write, as soon as it is.
    lent: Option<Lent>,
    part: usize,
    /// Rows whose foreign keys are to be checked.
    pub touched: Touched,
}

/// What came of a row that was to be inserted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    Done,
    /// Another row has the same values under this constraint; the key of that row.
    Conflict(Arbiter, Vec<u8>),
}

/// Ends a function that has to wait, with nothing done. What the step borrowed is given back before its value is looked at.
macro_rules! ready {
    ($step:expr) => {{
        let step = $step?;
        match step {
            Step::Done(value) => value,
            Step::Wait => return Ok(Step::Wait),
        }
    }};
}

pub(crate) use ready;

impl Effects {
    pub(crate) fn new(txn: TxnId, isolation: Isolation, most: usize) -> Self {
        let (by_key, touched) = (BTreeMap::new(), Touched::default());
        Self { txn, isolation, by_key, bytes: 0, most, lent: None, part: 0, touched }
    }

    /// Sees to it that a table stays as it is until the transaction ends.
    pub(crate) fn hold_table(&self, database: &mut Database, table: &Table) -> Result<Step<()>> {
        self.hold(database, &table.lock_key())
    }

    /// Sees to it that an object of the catalog stays as it is until the transaction ends.
    pub(crate) fn hold(&self, database: &mut Database, key: &[u8]) -> Result<Step<()>> {
        if self.isolation == Isolation::ReadCommitted {
            ready!(database.lock(self.txn, key, RowLock::KeyShare, Wait::Queue));
        } else {
            database.probe(self.txn, key)?;
        }
        Ok(Step::Done(()))
    }

    /// Whether nothing will be written.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether objects change that other sessions have, too.
    pub fn change_catalog(&self) -> bool {
        self.by_key.keys().any(|key| key.starts_with(&OBJECTS.to_be_bytes()))
    }

    /// Bytes that will be written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// About how much memory it takes, also as a part of its transaction.
    pub fn memory(&self) -> usize {
        self.bytes + self.by_key.len() * KEY_MEMORY
    }

    /// Whether a key is among those that are written.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }

    /// What is written from now on is of another part of the statement.
    pub(crate) fn next_part(&mut self) {
        self.part += 1;
    }

    /// Whether any key of a range is among those that are written.
    pub(crate) fn touch(&self, range: &KeyRange) -> bool {
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.by_key.range::<[u8], _>((Bound::Included(range.start.as_slice()), end)).next().is_some()
    }

    /// Whether a key is written by an earlier part of the statement: a row is changed by one of them only.
    pub(crate) fn has_before(&self, key: &[u8]) -> bool {
        self.part > 0 && self.by_key.get(key).is_some_and(|effect| effect.part < self.part)
    }

    /// Whether a key will be there, if that is among the effects.
    pub(crate) fn will_be(&self, key: &[u8]) -> Option<bool> {
        self.by_key.get(key).map(|effect| effect.value.is_some())
    }

    /// A row as it will be.
    pub(crate) fn row(&self, database: &mut Database, key: &[u8]) -> Result<Vec<u8>> {
        let row = match self.by_key.get(key) {
            Some(effect) => effect.value.as_deref(),
            None => database.get(self.txn, key)?,
        };
        row.map(<[u8]>::to_vec).ok_or_else(|| SqlError::internal("an index has an entry without a row"))
    }

    /// Visits the keys of a range as they will be, for a constraint, in no order.
    pub(crate) fn probe_range(&self, database: &mut Database, range: &KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        for (key, effect) in self.by_key.range::<[u8], _>((Bound::Included(range.start.as_slice()), end)) {
            if let Some(value) = &effect.value
                && visit(key, value)?.is_break()
            {
                return Ok(());
            }
        }
        database.probe_range(self.txn, range, &mut |key, value| match self.by_key.contains_key(key) {
            true => Ok(std::ops::ControlFlow::Continue(())),
            false => visit(key, value),
        })
    }

    /// Adds a row, unless another one is in its way; computes its generated columns first.
    pub(crate) fn insert(
        &mut self,
        database: &mut Database,
        target: &Target,
        values: &mut [Value],
        env: Env<'_>,
    ) -> Result<Step<Inserted>> {
        compute(target, values, env)?;
        check(target, values, env)?;
        let inserted = ready!(self.place(database, &target.table, values, env));
        if inserted == Inserted::Done {
            self.touched.came(target, None, values)?;
        }
        Ok(Step::Done(inserted))
    }

    fn place(
        &mut self,
        database: &mut Database,
        table: &Table,
        values: &[Value],
        env: Env<'_>,
    ) -> Result<Step<Inserted>> {
        let key = match &table.primary {
            Some(primary) => {
                let key = row::primary_key(table, &primary.columns, values)?;
                if ready!(self.taken(database, &key)).is_some() {
                    return Ok(Step::Done(Inserted::Conflict(Arbiter::Primary, key)));
                }
                key
            }
            None => {
                let key = row::numbered_key(table.relation, database.new_row_number(self.txn, table.relation)?);
                ready!(self.lock(database, &key, Change::Existence));
                key
            }
        };
        let mut entries = Vec::with_capacity(table.indexes.len());
        for at in 0..table.indexes.len() {
            let Some(entry) = table.entry(at, values, &key, env)? else { continue };
            if let Some(other) = ready!(self.free_entry(database, table, &entry)) {
                return Ok(Step::Done(Inserted::Conflict(Arbiter::Index(at), other)));
            }
            entries.push(entry.key);
        }
        for entry in entries {
            self.put(database, entry, Some(key[4..].to_vec()), Change::Existence)?;
        }
        self.put(database, key, Some(row::encode(table, values)?), Change::Existence)?;
        Ok(Step::Done(Inserted::Done))
    }

    /// The key of the row that is in the way of a new one under a constraint.
    pub(crate) fn conflicting(
        &self,
        database: &mut Database,
        table: &Table,
        arbiter: Arbiter,
        values: &[Value],
        env: Env<'_>,
    ) -> Result<Step<Option<Vec<u8>>>> {
        match (arbiter, &table.primary) {
            (Arbiter::Primary, Some(primary)) => {
                let key = row::primary_key(table, &primary.columns, values)?;
                Ok(self.taken(database, &key)?.map(|taken| taken.map(|_| key)))
            }
            (Arbiter::Primary, None) => Ok(Step::Done(None)),
            // What tells entries apart that are not unique is not looked at.
            (Arbiter::Index(at), _) => match table.entry(at, values, &[0; 4], env)?.filter(|entry| entry.unique) {
                Some(entry) => self.free_entry(database, table, &entry),
                None => Ok(Step::Done(None)),
            },
        }
    }

    /// Changes a row; computes its generated columns first. `touched` are the other columns that may differ.
    pub(crate) fn update(
        &mut self,
        database: &mut Database,
        target: &Target,
        (key, old): (&[u8], &[Value]),
        (new, touched): (&mut [Value], &[usize]),
        env: Env<'_>,
    ) -> Result<Step<Inserted>> {
        compute(target, new, env)?;
        check(target, new, env)?;
        let touched: Vec<usize> = touched.iter().copied().chain(target.computed.iter().map(|(at, _)| *at)).collect();
        let updated = ready!(self.replace(database, &target.table, (key, old), (new, &touched), env));
        if updated == Inserted::Done {
            self.touched.came(target, Some(old), new)?;
            self.touched.moved(target, old, Some(new));
        }
        Ok(Step::Done(updated))
    }

    fn replace(
        &mut self,
        database: &mut Database,
        table: &Table,
        (key, old): (&[u8], &[Value]),
        (new, touched): (&[Value], &[usize]),
        env: Env<'_>,
    ) -> Result<Step<Inserted>> {
        let new_key = match &table.primary {
            Some(primary) if primary.columns.iter().any(|column| touched.contains(column)) => {
                row::primary_key(table, &primary.columns, new)?
            }
            _ => key.to_vec(),
        };
        if new_key != key {
            ready!(self.remove(database, table, key, old, env));
            return self.place(database, table, new, env);
        }
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        // What a foreign key without an index refers to is probed for by the rows themselves.
        let refers = table.foreign_keys.iter().flat_map(|foreign| &foreign.columns).any(|at| touched.contains(at));
        let mut change = if refers { Change::Existence } else { Change::Content };
        for (at, index) in table.indexes.iter().enumerate() {
            if index.is_apart_from(touched) {
                continue;
            }
            let (before, after) = (table.entry(at, old, key, env)?, table.entry(at, new, key, env)?);
            if before.as_ref().map(|entry| &entry.key) == after.as_ref().map(|entry| &entry.key) {
                continue;
            }
            if index.unique {
                change = Change::Existence;
            }
            if let Some(before) = before {
                ready!(self.lock(database, &before.key, Change::Existence));
                gone.push(before.key);
            }
            if let Some(after) = after {
                if let Some(other) = ready!(self.free_entry(database, table, &after)) {
                    return Ok(Step::Done(Inserted::Conflict(Arbiter::Index(at), other)));
                }
                come.push(after.key);
            }
        }
        ready!(self.lock(database, key, change));
        for entry in gone {
            self.put(database, entry, None, Change::Existence)?;
        }
        for entry in come {
            self.put(database, entry, Some(key[4..].to_vec()), Change::Existence)?;
        }
        self.put(database, key.to_vec(), Some(row::encode(table, new)?), change)?;
        Ok(Step::Done(Inserted::Done))
    }

    /// Removes a row.
    pub(crate) fn delete(
        &mut self,
        database: &mut Database,
        target: &Target,
        key: &[u8],
        values: &[Value],
        env: Env<'_>,
    ) -> Result<Step<()>> {
        ready!(self.remove(database, &target.table, key, values, env));
        self.touched.moved(target, values, None);
        Ok(Step::Done(()))
    }

    fn remove(
        &mut self,
        database: &mut Database,
        table: &Table,
        key: &[u8],
        values: &[Value],
        env: Env<'_>,
    ) -> Result<Step<()>> {
        ready!(self.lock(database, key, Change::Existence));
        let mut entries = Vec::with_capacity(table.indexes.len());
        for at in 0..table.indexes.len() {
            let Some(entry) = table.entry(at, values, key, env)? else { continue };
            ready!(self.lock(database, &entry.key, Change::Existence));
            entries.push(entry.key);
        }
        for entry in entries {
            self.put(database, entry, None, Change::Existence)?;
        }
        self.put(database, key.to_vec(), None, Change::Existence)?;
        Ok(Step::Done(()))
    }

    /// Sets a key that no table's row or entry is.
    pub(crate) fn set(&mut self, database: &mut Database, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<Step<()>> {
        ready!(self.lock(database, &key, Change::Existence));
        self.put(database, key, value, Change::Existence)?;
        Ok(Step::Done(()))
    }

    /// Whether a key is taken, and by what. The transaction then holds its lock.
    pub(crate) fn taken(&self, database: &mut Database, key: &[u8]) -> Result<Step<Option<Vec<u8>>>> {
        ready!(self.lock(database, key, Change::Existence));
        if let Some(effect) = self.by_key.get(key) {
            return Ok(Step::Done(effect.value.as_ref().map(|value| value.to_vec())));
        }
        Ok(Step::Done(database.probe(self.txn, key)?.map(<[u8]>::to_vec)))
    }

    /// Somebody else has memory for it.
    pub fn give_memory_back(&mut self) {
        self.lent = None;
    }

    /// Writes everything.
    pub fn apply(self, database: &mut Database) -> Result<()> {
        if self.by_key.keys().any(|key| is_temporary(key)) {
            database.may_write_temporary(self.bytes)?;
        }
        for (key, Effect { value, change, .. }) in self.by_key {
            database.write(self.txn, &key, value, change)?;
        }
        Ok(())
    }

    /// Locks an entry's key; the key of the row that has it, if it is unique and taken.
    fn free_entry(&self, database: &mut Database, table: &Table, entry: &Entry) -> Result<Step<Option<Vec<u8>>>> {
        if !entry.unique {
            ready!(self.lock(database, &entry.key, Change::Existence));
            return Ok(Step::Done(None));
        }
        let suffix = ready!(self.taken(database, &entry.key));
        Ok(Step::Done(suffix.map(|suffix| row_key(table, &suffix))))
    }

    /// At READ COMMITTED a key is locked before it is written; at the other levels the commit does that.
    fn lock(&self, database: &mut Database, key: &[u8], change: Change) -> Result<Step<()>> {
        if self.isolation == Isolation::ReadCommitted {
            ready!(database.lock(self.txn, key, change.lock(), Wait::Queue));
        }
        Ok(Step::Done(()))
    }

    fn put(&mut self, database: &Database, key: Vec<u8>, value: Option<Vec<u8>>, change: Change) -> Result<()> {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len) + 16;
        if self.bytes > self.most {
            return Err(too_large(self.most));
        }
        if self.bytes > RECORD_BYTES_MAX {
            let memory = self.memory() - RECORD_BYTES_MAX;
            self.lent.get_or_insert_with(|| database.lent()).cover(memory)?;
        }
        let value = value.map(Vec::into_boxed_slice);
        match self.by_key.get_mut(&key) {
            Some(effect) => *effect = Effect { value, change: effect.change.max(change), part: effect.part },
            None => {
                self.by_key.insert(key, Effect { value, change, part: self.part });
            }
        }
        Ok(())
    }
}

/// The error for a transaction that writes more than one may.
pub fn too_large(most: usize) -> SqlError {
    let message = format!("a transaction writes at most {} MiB", most >> 20);
    SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message)
        .hint("Commit more often, or start the server with a larger tenants.transaction_limit.")
}

/// Gives the columns of a row their values that are computed from the others.
pub(crate) fn compute(target: &Target, values: &mut [Value], env: Env<'_>) -> Result<()> {
    for (at, expr) in &target.computed {
        values[*at] = expr.owned(env.with_row(values))?;
    }
    Ok(())
}

/// Whether a row fulfils its table's conditions.
fn check(target: &Target, values: &[Value], env: Env<'_>) -> Result<()> {
    let table = &*target.table;
    for (at, rules) in &target.domains {
        rules.check(&values[*at], env)?;
    }
    for (at, column) in table.live_columns() {
        if column.not_null && values[at].is_null() {
            let message = format!(
                "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                column.name, table.name
            );
            let detail = format!("Failing row contains ({}).", shown_row(table, values));
            return Err(SqlError::new(state::NOT_NULL_VIOLATION, message).detail(detail));
        }
    }
    for (name, condition) in &target.checks {
        if *condition.value(env.with_row(values))? == Value::Bool(false) {
            let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
            let detail = format!("Failing row contains ({}).", shown_row(table, values));
            return Err(SqlError::new(state::CHECK_VIOLATION, message).detail(detail).constraint(name));
        }
    }
    Ok(())
}

/// The error of a row that is in the way of another.
pub(crate) fn duplicate(table: &Table, arbiter: Arbiter, row: &[Value], env: Env<'_>) -> SqlError {
    let (name, parts, values) = match arbiter {
        Arbiter::Primary => match &table.primary {
            Some(primary) => {
                let parts: Vec<Part> = primary.columns.iter().map(|column| Part::Column(*column)).collect();
                (&primary.name, parts, primary.columns.iter().map(|column| row[*column].clone()).collect())
            }
            None => return SqlError::internal("a duplicate of no key"),
        },
        Arbiter::Index(at) => {
            let index = &table.indexes[at];
            let parts: Vec<Part> = index.parts.iter().map(|(part, _)| part.clone()).collect();
            match table.part_values(at, row, env) {
                Ok(values) => (&index.name, parts, values),
                Err(error) => return error,
            }
        }
    };
    let of = |at: usize| match (arbiter, &parts[at]) {
        (_, Part::Column(column)) => table.columns[*column].of,
        (Arbiter::Index(index), _) => table.part_type(index, at),
        (Arbiter::Primary, Part::Expression(_)) => Type::Text,
    };
    let shown = values.iter().enumerate().map(|(at, value)| text::shown(value, of(at), Style::PLAIN));
    let shown: Vec<String> = shown.collect();
    let names: Vec<String> = parts.iter().map(|part| part_name(table, part)).collect();
    SqlError::new(state::UNIQUE_VIOLATION, format!("duplicate key value violates unique constraint \"{name}\""))
        .detail(format!("Key ({})=({}) already exists.", names.join(", "), shown.join(", ")))
        .constraint(name)
}

/// A part of a key as messages show it.
fn part_name(table: &Table, part: &Part) -> String {
    match part {
        Part::Column(column) => table.columns[*column].name.clone(),
        Part::Expression(text) => shown_part(text),
    }
}
