//! Runs queries: joined rows, then groups, then what is selected, in the order and number that is asked for.

use std::{borrow::Cow, collections::HashSet, ops::ControlFlow};

use savanna_tenants_sql::{
    expression::{
        Env, Expr,
        rows::{Take, fingerprint},
    },
    plan::query::{self as plan, Arguments, Body, Locking, Patience, Query, Select, SortKey},
    query,
};
use savanna_tenants_store::{database::Step, fault::Fault};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Memory,
    value::Value,
};
use savanna_transaction::Wait;

use crate::{
    Run,
    distinct::{Distinct, seen_bytes},
    explain::address,
    group::Groups,
    sorted::Sorted,
    spill::{Spool, Spooling, keeping},
};

/// How many rows a query has at most, and how many are left out.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) offset: usize,
    /// Rows up to the last one, those that are left out among them.
    pub(crate) end: Option<usize>,
}

impl Run<'_> {
    /// All rows of a statement's query.
    pub fn query(&self, query: &Query) -> Result<Step<Spool>> {
        self.step(self.all(query, Vec::new()).map(|(rows, _memory)| Step::Done(rows)))
    }

    /// All rows of a query, and the memory that they hold.
    pub(crate) fn all(&self, query: &Query, around: Vec<Value>) -> Result<(Spool, Memory<'_>)> {
        let mut rows = Spooling::new(self, address(&query.columns));
        self.produce(query, around, None, &mut keeping(&mut rows))?;
        rows.finish()
    }

    /// The columns around a query, as far as it reads them.
    pub(crate) fn around(&self, query: &Query, arguments: &Arguments, row: &[Value]) -> Result<Vec<Value>> {
        let mut around = vec![Value::Null; query.outer];
        for (place, value) in arguments {
            around[*place] = value.owned(self.env().with_row(row))?;
        }
        Ok(around)
    }

    /// Gives a query's rows to `take`. Whoever will take only so many says it `ahead`.
    pub(crate) fn produce(
        &self,
        query: &Query,
        around: Vec<Value>,
        ahead: Option<usize>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let Some(counts) = &self.counts else { return self.run_query(query, around, ahead, take) };
        counts.begin(query);
        self.run_query(query, around, ahead, &mut |row| {
            counts.row(query);
            take(row)
        })
    }

    fn run_query(&self, query: &Query, around: Vec<Value>, ahead: Option<usize>, take: &mut Take<'_>) -> Result<()> {
        let window = self.window(query, self.env().with_row(&around))?;
        if window.end == Some(window.offset) {
            return Ok(());
        }
        for cte in &query.with {
            self.run_again(cte, &around)?;
        }
        let visible = query.columns.len();
        let mut take = window.counted(self, take);
        if let (Some(locking), Body::Select(select)) = (query.locking, &query.body) {
            return self.locked(query, (locking, select), around, window.end.or(ahead), &mut take);
        }
        let distinct_on = match &query.body {
            Body::Select(select) => select.distinct.as_ref().and_then(|distinct| match distinct {
                plan::Distinct::All => None,
                plan::Distinct::On(on) => Some(on.as_slice()),
            }),
            _ => None,
        };
        if query.order.is_empty() && distinct_on.is_none() {
            return self.unordered(query, around, window.end.or(ahead), &mut |mut row| {
                row.truncate(visible);
                take(row)
            });
        }
        // How many rows those are that are distinct is not known before.
        let wanted = window.end.filter(|_| distinct_on.is_none());
        if let Some(presorted) = query.presorted {
            return self.presorted((query, presorted), around, wanted, &mut take);
        }
        let keys = order_with(&query.order, distinct_on.unwrap_or_default());
        let mut sorted = Sorted::new(self, address(&query.order), &keys, wanted);
        self.unordered(query, around, None, &mut |row| {
            sorted.add(row)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let mut rows = sorted.finish()?;
        // Those that are equal in some outputs are neighbours.
        let mut last: Option<Vec<u8>> = None;
        while let Some(mut row) = rows.next()? {
            if let Some(on) = distinct_on {
                let kind = fingerprint(on.iter().map(|at| &row[*at]))?;
                if last.as_ref() == Some(&kind) {
                    self.goes_on_after(0)?;
                    continue;
                }
                last = Some(kind);
            }
            row.truncate(visible);
            if take(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Which rows of a query are wanted.
    pub(crate) fn window(&self, query: &Query, env: Env<'_>) -> Result<Window> {
        let limit = query::limit(query.limit.as_ref(), env, (state::INVALID_ROW_COUNT_IN_LIMIT, "LIMIT"))?;
        let offset = query::limit(query.offset.as_ref(), env, (state::INVALID_ROW_COUNT_IN_OFFSET, "OFFSET"))?;
        let offset = offset.unwrap_or(0);
        Ok(Window { offset, end: limit.map(|limit| limit.saturating_add(offset)) })
    }

    /// A query's rows before they are sorted, with the columns that they are only sorted by.
    pub(crate) fn unordered(
        &self,
        query: &Query,
        around: Vec<Value>,
        ahead: Option<usize>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let Some(counts) = &self.counts else { return self.run_body(query, around, ahead, take) };
        counts.begin(&query.body);
        self.run_body(query, around, ahead, &mut |row| {
            counts.row(&query.body);
            take(row)
        })
    }

    fn run_body(&self, query: &Query, around: Vec<Value>, ahead: Option<usize>, take: &mut Take<'_>) -> Result<()> {
        match &query.body {
            Body::Values(rows) => {
                for row in rows {
                    if take(project(row, self.env().with_row(&around))?)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Body::Select(select) if matches!(select.distinct, Some(plan::Distinct::All)) => {
                let mut distinct = Distinct::new(self, address(&query.body), query.columns.len());
                self.selected(select, around, None, &mut |row| distinct.give(row, take))?;
                distinct.finish(take)
            }
            Body::Select(select) => self.selected(select, around, ahead, take),
            Body::Set(set) => self.set(set, around, ahead, take),
            Body::Recursive(recursive) => self.recursive(recursive, &around, take),
            Body::Cte(cte) => self.cte(cte, take),
            Body::Working(id) | Body::Written(id) => self.working(*id, take),
            Body::Function { function, arguments, ordinality } => {
                let arguments = project(arguments, self.env().with_row(&around))?;
                let mut number = 0;
                function.rows(&arguments, self.facts, &mut |mut row| {
                    number += 1;
                    if *ordinality {
                        row.push(Value::Int(number));
                    }
                    take(row)
                })
            }
        }
    }

    /// What a SELECT computes of its rows or groups.
    fn selected(&self, select: &Select, around: Vec<Value>, ahead: Option<usize>, take: &mut Take<'_>) -> Result<()> {
        let mut give = |row: &[Value]| match select.sets.is_empty() {
            true => take(project(&select.outputs, self.env().with_row(row))?),
            false => {
                self.expanded(&select.sets, row, &mut |row| take(project(&select.outputs, self.env().with_row(row))?))
            }
        };
        if select.windows.is_empty() {
            return self.computed(select, around, ahead, &mut give);
        }
        let mut rows = Spooling::new(self, address(&select.windows));
        self.computed(select, around, None, &mut |row| {
            rows.push(row.to_vec())?;
            Ok(ControlFlow::Continue(()))
        })?;
        let (rows, _memory) = rows.finish()?;
        let windowed = self.windows(&select.windows, rows)?;
        for row in windowed.rows.into_rows() {
            self.goes_on_after(0)?;
            if give(&row?[..windowed.width])?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The rows that a SELECT computes over: joined, or groups.
    fn computed(
        &self,
        select: &Select,
        around: Vec<Value>,
        ahead: Option<usize>,
        take: &mut dyn FnMut(&[Value]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Some(grouping) = &select.grouping else {
            return self.joined(&select.rows, around, ahead, &mut |row| take(&row.values));
        };
        let mut groups = Groups::new(self, grouping);
        self.joined(&select.rows, around.clone(), None, &mut |row| {
            if grouping.functions.is_empty() {
                groups.add(&row.values)?;
                return Ok(ControlFlow::Continue(()));
            }
            self.expanded(&grouping.functions, &row.values, &mut |row| {
                groups.add(row)?;
                Ok(ControlFlow::Continue(()))
            })
        })?;
        if let Some(counts) = &self.counts {
            counts.begin(grouping);
        }
        let _flow = groups.finish(&around, &mut |group| match grouping
            .having
            .as_ref()
            .map_or(Ok(true), |having| having.holds(self.env().with_row(group)))?
        {
            true => {
                if let Some(counts) = &self.counts {
                    counts.row(grouping);
                }
                take(group)
            }
            false => Ok(ControlFlow::Continue(())),
        })?;
        Ok(())
    }

    /// A query that locks what it returns: in its order, and no more than it returns.
    fn locked(
        &self,
        query: &Query,
        (locking, select): (Locking, &Select),
        around: Vec<Value>,
        ahead: Option<usize>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let outputs = |row: &[Value]| project(&select.outputs, self.env().with_row(row));
        let mut give = |mut values: Vec<Value>| {
            values.truncate(query.columns.len());
            take(values)
        };
        if query.order.is_empty() {
            return self.joined(&select.rows, around, ahead, &mut |row| match self.lock_all(&row.keys, locking)? {
                true => give(outputs(&row.values)?),
                false => Ok(ControlFlow::Continue(())),
            });
        }
        // The keys stand behind the outputs meanwhile.
        let mut found = Sorted::new(self, address(&query.order), &query.order, None);
        self.joined(&select.rows, around, None, &mut |row| {
            let mut values = outputs(&row.values)?;
            values.extend(row.keys.iter().cloned().map(Value::Bytes));
            found.add(values)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let mut found = found.finish()?;
        while let Some(mut values) = found.next()? {
            self.goes_on_after(0)?;
            let keys = values.split_off(select.outputs.len()).into_iter().map(key_of);
            if self.lock_all(&keys.collect::<Vec<_>>(), locking)? && give(values)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Locks the rows of these keys; `false` if one is somebody else's and is to be skipped.
    fn lock_all(&self, keys: &[Vec<u8>], locking: Locking) -> Result<bool> {
        let waits = locking.patience == Patience::Wait || !self.database().rules.exclude(Fault::EverybodyWaits);
        let wait = if waits { Wait::Queue } else { Wait::Never };
        for key in keys {
            if !self.lock(key, locking.mode, wait)? {
                return match locking.patience {
                    Patience::Skip => Ok(false),
                    _ => Err(SqlError::new(state::LOCK_NOT_AVAILABLE, "could not obtain lock on row")),
                };
            }
        }
        Ok(true)
    }
}

impl Window {
    /// Gives on the rows of the window, and stops behind it.
    fn counted<'t>(
        self,
        run: &'t Run<'_>,
        take: &'t mut Take<'_>,
    ) -> impl FnMut(Vec<Value>) -> Result<ControlFlow<()>> + 't {
        let mut count = 0_usize;
        move |row| {
            run.goes_on()?;
            count += 1;
            let flow = if count > self.offset { take(row)? } else { ControlFlow::Continue(()) };
            Ok(if self.end.is_some_and(|end| count >= end) { ControlFlow::Break(()) } else { flow })
        }
    }
}

/// A row's key that stood among values.
fn key_of(value: Value) -> Vec<u8> {
    match value {
        Value::Bytes(key) => key,
        _ => Vec::new(),
    }
}

/// An order in which rows are neighbours, too, that are equal in these columns.
fn order_with<'o>(order: &'o [SortKey], equal: &[usize]) -> Cow<'o, [SortKey]> {
    let missing = |at: &&usize| order.iter().all(|key| key.at != **at);
    let more: Vec<SortKey> =
        equal.iter().filter(missing).map(|at| SortKey { at: *at, descending: false, nulls_first: false }).collect();
    if more.is_empty() { Cow::Borrowed(order) } else { Cow::Owned([order, &more].concat()) }
}

/// A row of expressions' values.
pub(crate) fn project(outputs: &[Expr], env: Env<'_>) -> Result<Vec<Value>> {
    let mut memory = env.facts.lent.memory();
    let mut row = Vec::with_capacity(outputs.len());
    for output in outputs {
        let value = output.owned(env)?;
        if value.is_large() {
            memory.take_bytes(value.bytes())?;
        }
        row.push(value);
    }
    Ok(row)
}

/// Rows that were met, to know of others whether they are the first of their kind.
pub(crate) struct Seen<'r> {
    rows: HashSet<Vec<u8>>,
    memory: Memory<'r>,
}

impl<'r> Seen<'r> {
    pub(crate) fn new(run: &'r Run<'_>) -> Self {
        Self { rows: HashSet::new(), memory: run.memory() }
    }

    pub(crate) fn is_first<'v>(&mut self, values: impl IntoIterator<Item = &'v Value>) -> Result<bool> {
        let bytes = fingerprint(values)?;
        let takes = seen_bytes(&bytes);
        let is_first = self.rows.insert(bytes);
        if is_first {
            self.memory.take_bytes(takes)?;
        }
        Ok(is_first)
    }
}
