//! Runs what reads rows.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

use savanna_transaction::{Direction, Isolation, TxnId, Wait};

use crate::{
    catalog::Table,
    database::{Database, Step},
    error::{Result, SqlError, state},
    row,
    sql::{
        access::{self, Access},
        aggregate::{self, State},
        expression::{Env, Expr, Facts},
        plan::{Grouping, Level, Patience, Select, SortKey, Source},
        reference::Deferral,
        select,
    },
    value::Value,
};

/// Entries of an index that are read ahead of their rows.
const ENTRIES_AHEAD: usize = 256;
/// Bytes of rows that one statement keeps.
const RESULT_BYTES_MAX: usize = 512 << 20;

/// A statement that runs.
pub(crate) struct Run<'a> {
    pub(crate) database: &'a mut Database,
    pub(crate) txn: TxnId,
    pub(crate) isolation: Isolation,
    pub(crate) parameters: &'a [Value],
    pub(crate) facts: &'a Facts,
    pub(crate) deferral: &'a Deferral,
}

/// A row with what was found on the way: the key of each table's row.
pub(crate) struct Found {
    pub(crate) row: Vec<Value>,
    pub(crate) keys: Vec<Vec<u8>>,
}

/// Whom rows are given to; it may stop their coming.
type Emit<'a> = dyn FnMut(&[Value], &[Vec<u8>]) -> Result<ControlFlow<()>> + 'a;
/// Whom a table's rows are given to, with their keys.
type Each<'a> = dyn FnMut(&[u8], &[Value]) -> Result<ControlFlow<()>> + 'a;
/// Rows of one table, each after its key.
pub(crate) type Rows = Vec<(Vec<u8>, Vec<Value>)>;

impl<'a> Run<'a> {
    pub(crate) fn env(&self) -> Env<'a> {
        Env { row: &[], parameters: self.parameters, facts: self.facts }
    }

    /// The rows of a query.
    pub(crate) fn select(&mut self, select: &Select) -> Result<Step<Vec<Vec<Value>>>> {
        let limit = select::limit(
            select.limit.as_ref(),
            self.parameters,
            self.facts,
            (state::INVALID_ROW_COUNT_IN_LIMIT, "LIMIT"),
        )?;
        let offset = select::limit(
            select.offset.as_ref(),
            self.parameters,
            self.facts,
            (state::INVALID_ROW_COUNT_IN_OFFSET, "OFFSET"),
        )?
        .unwrap_or(0);
        let end = limit.map(|limit| limit.saturating_add(offset));
        if limit == Some(0) {
            return Ok(Step::Done(Vec::new()));
        }
        let env = self.env();
        let mut budget = Budget::default();
        let mut rows: Vec<Vec<Value>> = Vec::new();
        if let Some(grouping) = &select.grouping {
            let mut groups = Groups::new(grouping);
            self.source(select, &mut |row, _| {
                groups.add(grouping, env.with_row(row))?;
                Ok(ControlFlow::Continue(()))
            })?;
            for group in groups.finish(grouping)? {
                let env = env.with_row(&group);
                if grouping.having.as_ref().map_or(Ok(true), |having| having.holds(env))? {
                    rows.push(project(&select.outputs, env)?);
                }
            }
        } else if select.locking.is_some() {
            return self.locked(select, (end, offset));
        } else {
            let early = end.filter(|_| select.order.is_empty() && !select.distinct);
            self.source(select, &mut |row, _| {
                let row = project(&select.outputs, env.with_row(row))?;
                budget.take(&row)?;
                rows.push(row);
                let enough = early.is_some_and(|end| rows.len() >= end);
                Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        if select.distinct {
            let mut seen = BTreeSet::new();
            let visible = select.columns.len();
            let mut distinct = Vec::new();
            for row in rows {
                if seen.insert(fingerprint(&row[..visible])?) {
                    distinct.push(row);
                }
            }
            rows = distinct;
        }
        sort(&mut rows, &select.order, |row| row);
        if let Some(end) = end {
            rows.truncate(end);
        }
        rows.drain(..offset.min(rows.len()));
        for row in &mut rows {
            row.truncate(select.columns.len());
        }
        Ok(Step::Done(rows))
    }

    /// A query that locks what it returns: in its order, and no more than it returns.
    fn locked(&mut self, select: &Select, (end, offset): (Option<usize>, usize)) -> Result<Step<Vec<Vec<Value>>>> {
        let (Some(locking), Source::Tables(_)) = (select.locking, &select.source) else {
            return Err(SqlError::internal("nothing to lock"));
        };
        let env = self.env();
        let mut found: Vec<Found> = Vec::new();
        let mut budget = Budget::default();
        self.source(select, &mut |row, keys| {
            let row = project(&select.outputs, env.with_row(row))?;
            budget.take(&row)?;
            found.push(Found { row, keys: keys.to_vec() });
            Ok(ControlFlow::Continue(()))
        })?;
        sort(&mut found, &select.order, |found| &found.row);
        let wait = if locking.patience == Patience::Wait { Wait::Queue } else { Wait::Never };
        let mut rows = Vec::new();
        'rows: for found in found {
            if end.is_some_and(|end| rows.len() >= end) {
                break;
            }
            for key in &found.keys {
                match (self.database.lock(self.txn, key, locking.mode, wait)?, locking.patience) {
                    (Step::Wait, _) => return Ok(Step::Wait),
                    (Step::Done(true), _) => {}
                    (Step::Done(false), Patience::Skip) => continue 'rows,
                    (Step::Done(false), _) => {
                        return Err(SqlError::new(state::LOCK_NOT_AVAILABLE, "could not obtain lock on row"));
                    }
                }
            }
            rows.push(found.row);
        }
        rows.drain(..offset.min(rows.len()));
        for row in &mut rows {
            row.truncate(select.columns.len());
        }
        Ok(Step::Done(rows))
    }

    /// Gives the rows of a query's source to `emit`, before they are grouped or projected.
    fn source(&mut self, select: &Select, emit: &mut Emit<'_>) -> Result<()> {
        match &select.source {
            Source::Values(rows) => {
                let env = self.env();
                for row in rows {
                    let row = row.iter().map(|value| value.owned(env)).collect::<Result<Vec<_>>>()?;
                    if emit(&row, &[])?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Source::Tables(levels) => {
                let direction = if select.backwards { Direction::Descending } else { Direction::Ascending };
                self.join(levels, select.width, select.condition.as_ref(), direction, emit)
            }
        }
    }

    /// Gives the joined rows of tables to `emit`.
    pub(crate) fn join(
        &mut self,
        levels: &[Level],
        width: usize,
        condition: Option<&Expr>,
        direction: Direction,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        if let Some(condition) = condition
            && !condition.holds(self.env())?
        {
            return Ok(());
        }
        if self.isolation == Isolation::Serializable {
            // A table that is changed or emptied meanwhile was not as it was read.
            for level in levels {
                self.database.get(self.txn, &level.table.lock_key())?;
            }
        }
        let mut row = vec![Value::Null; width];
        let mut kept = (0..levels.len()).map(|_| None).collect::<Vec<_>>();
        let _stopped = self.join_from(levels, &mut kept, direction, &mut row, &mut Vec::new(), emit)?;
        Ok(())
    }

    fn join_from(
        &mut self,
        levels: &[Level],
        kept: &mut [Option<Rows>],
        direction: Direction,
        row: &mut Vec<Value>,
        keys: &mut Vec<Vec<u8>>,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>> {
        let Some((level, inner)) = levels.split_first() else { return emit(row, keys) };
        let (mine, kept) = kept.split_at_mut(1);
        let end = level.base + level.table.columns.len();
        let env = self.env();
        // The rows of the innermost table are used as they are read.
        if inner.is_empty() && !level.optional && (level.base == 0 || !level.access.is_fixed()) {
            let keyed = std::cell::RefCell::new(std::mem::take(keys));
            let flow = self.rows(level, row, direction, &mut |key, row| {
                let mut keys = keyed.borrow_mut();
                keys.push(key.to_vec());
                let flow = emit(row, &keys);
                keys.pop();
                flow
            });
            *keys = keyed.into_inner();
            return flow;
        }
        // What does not depend on the rows before is read once.
        let again = level.access.is_fixed() && level.base > 0;
        let rows = match mine[0].take() {
            Some(rows) => rows,
            None => self.collect(level, row, direction, again)?,
        };
        let mut any = false;
        let mut flow = ControlFlow::Continue(());
        for (key, values) in &rows {
            row[level.base..end].clone_from_slice(values);
            if again && !level.filter.as_ref().map_or(Ok(true), |filter| filter.holds(env.with_row(row)))? {
                continue;
            }
            any = true;
            if level.after.as_ref().map_or(Ok(true), |after| after.holds(env.with_row(row)))? {
                keys.push(key.clone());
                flow = self.join_from(inner, kept, Direction::Ascending, row, keys, emit)?;
                keys.pop();
            }
            if flow.is_break() {
                break;
            }
        }
        row[level.base..end].fill(Value::Null);
        if level.optional && !any && level.after.as_ref().map_or(Ok(true), |after| after.holds(env.with_row(row)))? {
            keys.push(Vec::new());
            flow = self.join_from(inner, kept, Direction::Ascending, row, keys, emit)?;
            keys.pop();
        }
        if again {
            mine[0] = Some(rows);
        }
        Ok(flow)
    }

    /// The rows of a table for a row of those before; with `unfiltered`, for any such row.
    fn collect(&mut self, level: &Level, row: &mut [Value], direction: Direction, unfiltered: bool) -> Result<Rows> {
        let mut rows = Vec::new();
        let mut budget = Budget::default();
        let end = level.base + level.table.columns.len();
        let mut keep = |key: &[u8], row: &[Value]| {
            let values = row[level.base..end].to_vec();
            budget.take(&values)?;
            rows.push((key.to_vec(), values));
            Ok(ControlFlow::Continue(()))
        };
        let _ =
            self.rows_where(level, if unfiltered { None } else { level.filter.as_ref() }, row, direction, &mut keep)?;
        Ok(rows)
    }

    fn rows(
        &mut self,
        level: &Level,
        row: &mut [Value],
        direction: Direction,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        self.rows_where(level, level.filter.as_ref(), row, direction, each)
    }

    /// Reads a table's rows into their part of `row`, and gives those that fit to `each`.
    fn rows_where(
        &mut self,
        level: &Level,
        filter: Option<&Expr>,
        row: &mut [Value],
        direction: Direction,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        let (table, env) = (&*level.table, self.env());
        let part = level.base..level.base + table.columns.len();
        let mut flow = ControlFlow::Continue(());
        let mut take = |key: &[u8], bytes: &[u8], row: &mut [Value]| -> Result<ControlFlow<()>> {
            row::decode(table, bytes, &level.wanted, &mut row[part.clone()])?;
            match filter.map_or(Ok(true), |filter| filter.holds(env.with_row(row)))? {
                true => each(key, row),
                false => Ok(ControlFlow::Continue(())),
            }
        };
        match &level.access {
            Access::Key(key) => {
                let columns = primary_columns(table);
                if let Some(key) = access::key(table.relation, &columns, key, env.with_row(row))?
                    && let Some(bytes) = self.database.get(self.txn, &key)?
                {
                    flow = take(&key, bytes, row)?;
                }
            }
            Access::Unique { index, key } => {
                let index = &table.indexes[*index];
                if let Some(entry) = access::key(index.relation, &index.columns, key, env.with_row(row))?
                    && let Some(suffix) = self.database.get(self.txn, &entry)?
                {
                    let key = row_key(table, suffix);
                    if let Some(bytes) = self.database.get(self.txn, &key)? {
                        flow = take(&key, bytes, row)?;
                    }
                }
            }
            Access::Range { index: None, equal, lower, upper } => {
                let columns = primary_columns(table);
                let range = access::range(table.relation, &columns, equal, (lower, upper), env.with_row(row))?;
                if let Some(range) = range {
                    self.database.scan(self.txn, &range, direction, &mut |key, bytes| {
                        flow = take(key, bytes, row)?;
                        Ok(flow)
                    })?;
                }
            }
            Access::Range { index: Some(index), equal, lower, upper } => {
                let index = &table.indexes[*index];
                let range = access::range(index.relation, &index.columns, equal, (lower, upper), env.with_row(row))?;
                let Some(mut range) = range else { return Ok(flow) };
                loop {
                    let mut keys: Vec<Vec<u8>> = Vec::new();
                    let mut last = Vec::new();
                    self.database.scan(self.txn, &range, direction, &mut |entry, suffix| {
                        keys.push(row_key(table, suffix));
                        if keys.len() < ENTRIES_AHEAD {
                            return Ok(ControlFlow::Continue(()));
                        }
                        last = entry.to_vec();
                        Ok(ControlFlow::Break(()))
                    })?;
                    for key in keys {
                        let bytes = self.database.get(self.txn, &key)?.ok_or_else(|| {
                            let message = format!("index \"{}\" has an entry without a row", index.name);
                            SqlError::new(state::DATA_CORRUPTED, message)
                        })?;
                        flow = take(&key, bytes, row)?;
                        if flow.is_break() {
                            return Ok(flow);
                        }
                    }
                    if last.is_empty() {
                        break;
                    }
                    match direction {
                        Direction::Ascending => {
                            last.push(0);
                            range.start = last;
                        }
                        Direction::Descending => range.end = Some(last),
                    }
                }
            }
        }
        Ok(flow)
    }
}

fn primary_columns(table: &Table) -> Vec<(usize, bool)> {
    let columns = table.primary.iter().flat_map(|primary| &primary.columns);
    columns.map(|column| (*column, false)).collect()
}

/// The key of the row that an entry of an index leads to.
pub(crate) fn row_key(table: &Table, suffix: &[u8]) -> Vec<u8> {
    [&table.relation.to_be_bytes()[..], suffix].concat()
}

/// A row of expressions' values.
pub(crate) fn project(outputs: &[Expr], env: Env<'_>) -> Result<Vec<Value>> {
    outputs.iter().map(|output| output.owned(env)).collect()
}

/// The memory that a statement's rows may take.
#[derive(Default)]
pub(crate) struct Budget {
    bytes: usize,
}

impl Budget {
    pub(crate) fn take(&mut self, row: &[Value]) -> Result<()> {
        self.bytes += row.iter().map(Value::bytes).sum::<usize>();
        if self.bytes <= RESULT_BYTES_MAX {
            return Ok(());
        }
        let message = format!("the rows of one statement take more than {} MiB", RESULT_BYTES_MAX >> 20);
        Err(SqlError::new("53200", message).hint("Read fewer rows or columns at once."))
    }
}

fn sort<T>(rows: &mut [T], order: &[SortKey], row_of: impl Fn(&T) -> &Vec<Value>) {
    if order.is_empty() {
        return;
    }
    rows.sort_by(|a, b| {
        let (a, b) = (row_of(a), row_of(b));
        for key in order {
            let (a, b) = (&a[key.at], &b[key.at]);
            let order = match (a.is_null(), b.is_null()) {
                (false, false) if key.descending => b.compare(a),
                (false, false) => a.compare(b),
                (a, b) if key.nulls_first => b.cmp(&a),
                (a, b) => a.cmp(&b),
            };
            if order.is_ne() {
                return order;
            }
        }
        std::cmp::Ordering::Equal
    });
}

/// Bytes that are equal for equal rows.
fn fingerprint(row: &[Value]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for value in row {
        bytes.extend(aggregate::fingerprint(value)?);
    }
    Ok(bytes)
}

/// Groups on the way, in the order in which they came.
struct Groups {
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<(Vec<Value>, Vec<State>)>,
    budget: Budget,
}

impl Groups {
    fn new(grouping: &Grouping) -> Self {
        let mut groups = Self { places: HashMap::new(), groups: Vec::new(), budget: Budget::default() };
        // Without keys there is one group, also of no rows.
        if grouping.keys.is_empty() {
            groups.groups.push((Vec::new(), Self::states(grouping)));
        }
        groups
    }

    fn states(grouping: &Grouping) -> Vec<State> {
        grouping.aggregates.iter().map(|_| State::default()).collect()
    }

    fn add(&mut self, grouping: &Grouping, env: Env<'_>) -> Result<()> {
        let place = if grouping.keys.is_empty() {
            0
        } else {
            let keys = project(&grouping.keys, env)?;
            let next = self.groups.len();
            let place = *self.places.entry(fingerprint(&keys)?).or_insert(next);
            if place == next {
                self.budget.take(&keys)?;
                self.groups.push((keys, Self::states(grouping)));
            }
            place
        };
        for (state, aggregate) in self.groups[place].1.iter_mut().zip(&grouping.aggregates) {
            state.add(aggregate, env)?;
        }
        Ok(())
    }

    fn finish(self, grouping: &Grouping) -> Result<Vec<Vec<Value>>> {
        let finish = |(mut row, states): (Vec<Value>, Vec<State>)| {
            for (state, aggregate) in states.into_iter().zip(&grouping.aggregates) {
                row.push(state.finish(aggregate)?);
            }
            Ok(row)
        };
        self.groups.into_iter().map(finish).collect()
    }
}
