//! Runs queries: joined rows, then groups, then what is selected, in the order and number that is asked for.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use savanna_tenants_sql::{
    expression::{
        Env, Expr,
        aggregate::State,
        rows::{Take, fingerprint},
    },
    plan::query::{Arguments, Body, Distinct, Grouping, Locking, Patience, Query, Select},
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
    sorted::{Sorted, sort},
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
    pub fn query(&self, query: &Query) -> Result<Step<Vec<Vec<Value>>>> {
        let mut rows = Vec::new();
        let mut memory = self.memory();
        let result = self.produce(query, Vec::new(), None, &mut |row| {
            memory.take(&row)?;
            rows.push(row);
            Ok(ControlFlow::Continue(()))
        });
        self.step(result.map(|()| Step::Done(rows)))
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
                Distinct::All => None,
                Distinct::On(on) => Some(on.as_slice()),
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
        let mut sorted = Sorted::new(&query.order, wanted, self.memory());
        self.unordered(query, around, None, &mut |row| {
            sorted.add(row)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let (rows, _memory) = sorted.finish();
        let mut seen = Seen::new(self);
        for mut row in rows {
            if let Some(on) = distinct_on
                && !seen.is_first(on.iter().map(|at| &row[*at]))?
            {
                continue;
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
            Body::Select(select) if matches!(select.distinct, Some(Distinct::All)) => {
                let visible = query.columns.len();
                let mut seen = Seen::new(self);
                self.selected(select, around, None, &mut |row| match seen.is_first(&row[..visible])? {
                    true => take(row),
                    false => Ok(ControlFlow::Continue(())),
                })
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
        let mut rows = Vec::new();
        let mut memory = self.memory();
        self.computed(select, around, None, &mut |row| {
            memory.take(row)?;
            rows.push(row.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        self.windows(&select.windows, &mut rows)?;
        for row in rows {
            if give(&row)?.is_break() {
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
                groups.add(grouping, self.env().with_row(&row.values))?;
                return Ok(ControlFlow::Continue(()));
            }
            self.expanded(&grouping.functions, &row.values, &mut |row| {
                groups.add(grouping, self.env().with_row(row))?;
                Ok(ControlFlow::Continue(()))
            })
        })?;
        if let Some(counts) = &self.counts {
            counts.begin(grouping);
        }
        groups.finish(grouping, &around, &mut |group| match grouping
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
        })
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
        let mut found: Vec<(Vec<Value>, Vec<Vec<u8>>)> = Vec::new();
        let mut memory = self.memory();
        self.joined(&select.rows, around, None, &mut |row| {
            let values = outputs(&row.values)?;
            memory.take(&values)?;
            found.push((values, row.keys.clone()));
            Ok(ControlFlow::Continue(()))
        })?;
        sort(&mut found, &query.order, |(values, _)| values);
        for (values, keys) in found {
            if self.lock_all(&keys, locking)? && give(values)?.is_break() {
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
        self.memory.take_bytes(bytes.len())?;
        Ok(self.rows.insert(bytes))
    }
}

/// The keys of a group of a grouping set, and the set's number.
fn of_set(keys: &[Value], set: &[usize], number: usize) -> Vec<Value> {
    let key = |(at, key): (usize, &Value)| if set.contains(&at) { key.clone() } else { Value::Null };
    keys.iter().enumerate().map(key).chain([Value::Int(number as i64)]).collect()
}

/// Groups on the way, in the order in which they came.
struct Groups<'r> {
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<(Vec<Value>, Vec<State>)>,
    memory: Memory<'r>,
}

impl<'r> Groups<'r> {
    fn new(run: &'r Run<'_>, grouping: &Grouping) -> Self {
        let mut groups = Self { places: HashMap::new(), groups: Vec::new(), memory: run.memory() };
        // Without keys there is one group, also of no rows.
        match &grouping.sets {
            None if grouping.keys.is_empty() => groups.groups.push((Vec::new(), Self::states(grouping))),
            None => {}
            Some(sets) => {
                for (number, _) in sets.iter().enumerate().filter(|(_, set)| set.is_empty()) {
                    let keys = of_set(&vec![Value::Null; grouping.keys.len()], &[], number);
                    if let Ok(bytes) = fingerprint(&keys) {
                        groups.places.insert(bytes, groups.groups.len());
                        groups.groups.push((keys, Self::states(grouping)));
                    }
                }
            }
        }
        groups
    }

    fn states(grouping: &Grouping) -> Vec<State> {
        grouping.aggregates.iter().map(|_| State::default()).collect()
    }

    fn add(&mut self, grouping: &Grouping, env: Env<'_>) -> Result<()> {
        let keys = project(&grouping.keys, env)?;
        match &grouping.sets {
            None if keys.is_empty() => self.add_to(0, grouping, env),
            None => {
                let place = self.place(grouping, keys)?;
                self.add_to(place, grouping, env)
            }
            Some(sets) => sets.iter().enumerate().try_for_each(|(number, set)| {
                let place = self.place(grouping, of_set(&keys, set, number))?;
                self.add_to(place, grouping, env)
            }),
        }
    }

    fn place(&mut self, grouping: &Grouping, keys: Vec<Value>) -> Result<usize> {
        let next = self.groups.len();
        let place = *self.places.entry(fingerprint(&keys)?).or_insert(next);
        if place == next {
            self.memory.take(&keys)?;
            self.groups.push((keys, Self::states(grouping)));
        }
        Ok(place)
    }

    fn add_to(&mut self, place: usize, grouping: &Grouping, env: Env<'_>) -> Result<()> {
        for (state, aggregate) in self.groups[place].1.iter_mut().zip(&grouping.aggregates) {
            let before = state.bytes();
            state.add(aggregate, env)?;
            let after = state.bytes();
            self.memory.take_bytes(after.saturating_sub(before))?;
        }
        Ok(())
    }

    /// Gives the groups' rows to `take`: the columns around the query, keys, aggregates.
    fn finish(
        self,
        grouping: &Grouping,
        around: &[Value],
        take: &mut dyn FnMut(&[Value]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        for (keys, states) in self.groups {
            let mut row = [around, &keys[..grouping.keys.len()]].concat();
            for (state, aggregate) in states.into_iter().zip(&grouping.aggregates) {
                row.push(state.finish(aggregate)?);
            }
            // The number of the grouping set.
            row.extend_from_slice(&keys[grouping.keys.len()..]);
            if take(&row)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
