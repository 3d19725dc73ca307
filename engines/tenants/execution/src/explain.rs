//! `EXPLAIN`: the steps of a plan, with the names and in the form that PostgreSQL has for them. There are no estimates and no times.
//!
//! A step of `EXPLAIN` is a node of a join or one of the things that a query does with the joined rows; conditions are shown at the step
//! that they are asked at.

mod expression;
mod format;
mod joined;

use std::{cell::RefCell, collections::HashMap, ops::Range};

use savanna_tenants_sql::{
    expression::Expr,
    plan::{
        OnConflict, Plan,
        query::{Body, Distinct, Grouping, Query, Select, SetKind, SortKey},
    },
    prepare::explain::Explain,
};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::Result;

use self::expression::Names;
use crate::{
    Run,
    effects::{Effects, ready},
};

/// How often the steps of a plan ran, and how many rows came of them, by their parts of the plan: types and addresses.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    steps: RefCell<HashMap<Part, Count>>,
    /// Bytes that they have put into files.
    spilled: RefCell<HashMap<Part, u64>>,
}

/// A part of a plan: its type and address.
pub(crate) type Part = (&'static str, usize);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    loops: u64,
    rows: u64,
}

impl Counts {
    pub(crate) fn begin<T>(&self, part: &T) {
        self.steps.borrow_mut().entry(address(part)).or_default().loops += 1;
    }

    pub(crate) fn row<T>(&self, part: &T) {
        self.steps.borrow_mut().entry(address(part)).or_default().rows += 1;
    }

    pub(crate) fn spilled(&self, part: Part, bytes: u64) {
        *self.spilled.borrow_mut().entry(part).or_default() += bytes;
    }
}

pub(crate) fn address<T>(part: &T) -> Part {
    (std::any::type_name::<T>(), std::ptr::from_ref(part) as usize)
}

/// A step as it is shown.
#[derive(Debug, Default)]
struct Shown {
    /// What it is.
    kind: String,
    /// The indexes that it uses.
    indexes: Option<String>,
    /// The table that it is on.
    relation: Option<String>,
    /// Its name in the statement, if that is another one.
    alias: Option<String>,
    details: Vec<(&'static str, String)>,
    /// `None` if the plan was not run.
    actual: Option<Count>,
    /// What it is to the step above, if it gives it no rows.
    role: Option<String>,
    inputs: Vec<Shown>,
}

impl Shown {
    fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    fn over(self, input: Self) -> Self {
        let mut step = self;
        step.inputs.insert(0, input);
        step
    }

    fn detail(mut self, name: &'static str, text: String) -> Self {
        self.details.push((name, text));
        self
    }
}

/// The plan as lines, or as one JSON.
fn lines(explain: &Explain, counts: Option<&Counts>) -> Vec<String> {
    let mut explainer = Explainer { names: Names::default(), counts, queries: Vec::new(), shown: Vec::new() };
    let step = explainer.statement(&explain.plan);
    if explain.json { vec![format::json(&step)] } else { format::text(&step) }
}

impl Run<'_> {
    /// The lines of EXPLAIN, and what the statement came to if it ran.
    pub fn explain(&mut self, explain: &Explain) -> Result<Step<(Vec<String>, Option<Effects>)>> {
        let mut effects = None;
        if explain.analyze {
            self.counts = Some(Counts::default());
            match &explain.plan {
                Plan::Query(query) => drop(ready!(self.query(query))),
                Plan::Insert(insert) => effects = Some(ready!(self.insert(insert)).effects),
                Plan::Update(update) => effects = Some(ready!(self.update(update)).effects),
                Plan::Delete(delete) => effects = Some(ready!(self.delete(delete)).effects),
                _ => {}
            }
        }
        Ok(Step::Done((lines(explain, self.counts.as_ref()), effects)))
    }
}

/// Makes steps of plans.
struct Explainer<'a> {
    /// What the columns of the row are called that expressions are over.
    names: Names,
    counts: Option<&'a Counts>,
    /// Queries in expressions that were met and are yet to be shown below a step, with their names.
    queries: Vec<(String, &'a Query)>,
    /// Queries of WITH that were shown.
    shown: Vec<usize>,
}

impl<'a> Explainer<'a> {
    fn count<T>(&self, part: &T) -> Option<Count> {
        let counts = self.counts?;
        Some(counts.steps.borrow().get(&address(part)).copied().unwrap_or_default())
    }

    /// Kilobytes that a step has put into files, if it has.
    fn spilled<T>(&self, part: &T) -> Option<u64> {
        let spilled = self.counts?.spilled.borrow().get(&address(part)).copied()?;
        (spilled > 0).then(|| spilled.div_ceil(1_024))
    }

    /// A step of which a part of the plan may have put rows into files.
    fn with_spilled<T>(&self, step: Shown, part: &T) -> Shown {
        match self.spilled(part) {
            Some(kilobytes) => step.detail("Disk Usage", format!("{kilobytes}kB")),
            None => step,
        }
    }

    fn text(&mut self, expr: &'a Expr) -> String {
        self.names.text(expr, &mut self.queries)
    }

    fn texts(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) -> String {
        exprs.into_iter().map(|expr| self.text(expr)).collect::<Vec<_>>().join(", ")
    }

    fn statement(&mut self, plan: &'a Plan) -> Shown {
        let (kind, table, input, details) = match plan {
            Plan::Query(query) => return self.query(query),
            Plan::Insert(insert) => {
                let details =
                    insert.conflict.iter().flat_map(|conflict| conflict_details(conflict, &insert.target.table));
                ("Insert", &insert.target.table, self.query(&insert.source), details.collect())
            }
            Plan::Update(update) => ("Update", &update.target.table, self.joined(&update.rows, 0), Vec::new()),
            Plan::Delete(delete) => ("Delete", &delete.target.table, self.joined(&delete.rows, 0), Vec::new()),
            _ => return Shown::new("Result"),
        };
        Shown { relation: Some(table.name.clone()), details, ..Shown::new(kind) }.over(input)
    }

    fn query(&mut self, query: &'a Query) -> Shown {
        let mut step = self.body(query);
        let body = self.count(&query.body);
        let limited = query.limit.is_some() || query.offset.is_some();
        let top = self.count(query);
        let below = if limited || query.locking.is_some() { body } else { top };
        if let Body::Select(select) = &query.body
            && let Some(Distinct::All) = select.distinct
        {
            let keys = self.outputs(select, 0..query.columns.len());
            let distinct = Shown { actual: body, ..Shown::new("HashAggregate") }.detail("Group Key", keys);
            step = self.with_spilled(distinct, &query.body).over(step);
        }
        if !query.order.is_empty() {
            let keys = self.sort_keys(query, &query.order);
            let kind = if query.presorted.is_some() { "Incremental Sort" } else { "Sort" };
            let mut sort = Shown { actual: below, ..Shown::new(kind) }.detail("Sort Key", keys);
            if let Some(presorted) = query.presorted {
                let keys = self.sort_keys(query, &query.order[..presorted.keys]);
                sort = sort.detail("Presorted Key", keys);
            }
            if let Some(kilobytes) = self.spilled(&query.order) {
                sort = sort.detail("Sort Method", format!("external merge  Disk: {kilobytes}kB"));
            }
            step = sort.over(step);
        }
        if let Body::Select(select) = &query.body
            && let Some(Distinct::On(_)) = select.distinct
        {
            step = Shown { actual: below, ..Shown::new("Unique") }.over(step);
        }
        if query.locking.is_some() {
            step = Shown { actual: top, ..Shown::new("LockRows") }.over(step);
        }
        if limited {
            step = Shown { actual: top, ..Shown::new("Limit") }.over(step);
        }
        step
    }

    fn body(&mut self, query: &'a Query) -> Shown {
        let actual = self.count(&query.body);
        match &query.body {
            Body::Select(select) => {
                let input = self.joined(&select.rows, query.outer);
                self.select(select, input, actual)
            }
            Body::Values(rows) if rows.len() == 1 => Shown { actual, ..Shown::new("Result") },
            Body::Values(_) => Shown { actual, ..Shown::new("Values Scan") },
            Body::Function { function, .. } => {
                Shown { relation: Some(function.name().to_owned()), actual, ..Shown::new("Function Scan") }
            }
            Body::Written(_) => Shown { actual, ..Shown::new("CTE Scan") },
            Body::Working(_) => Shown { actual, ..Shown::new("WorkTable Scan") },
            Body::Cte(cte) => {
                let mut step = Shown { actual, ..Shown::new("CTE Scan") };
                if !self.shown.contains(&cte.id) {
                    self.shown.push(cte.id);
                    let names = self.names.clone();
                    let query = self.query(&cte.query);
                    self.names = names;
                    step = step.over(Shown { role: Some(format!("CTE {}", cte.id)), ..query });
                }
                self.with_spilled(step.detail("CTE", cte.id.to_string()), &cte.query.columns)
            }
            Body::Set(set) => {
                let kind = match (set.kind, set.all) {
                    (SetKind::Union, true) => "Append",
                    (SetKind::Union, false) => "HashAggregate (Append)",
                    (SetKind::Intersect, false) => "HashSetOp Intersect",
                    (SetKind::Intersect, true) => "HashSetOp Intersect All",
                    (SetKind::Except, false) => "HashSetOp Except",
                    (SetKind::Except, true) => "HashSetOp Except All",
                };
                let inputs = [&set.left, &set.right].map(|side| self.inner(side)).into();
                self.with_spilled(Shown { actual, inputs, ..Shown::new(kind) }, &**set)
            }
            Body::Recursive(recursive) => {
                let inputs = [&recursive.first, &recursive.step].map(|side| self.inner(side)).into();
                Shown { actual, inputs, ..Shown::new("Recursive Union") }
            }
        }
    }

    /// A query whose names are its own.
    fn inner(&mut self, query: &'a Query) -> Shown {
        let names = self.names.clone();
        let step = self.query(query);
        self.names = names;
        step
    }

    fn select(&mut self, select: &'a Select, mut step: Shown, actual: Option<Count>) -> Shown {
        if let Some(grouping) = &select.grouping {
            step = self.grouped(grouping, step);
        }
        if !select.windows.is_empty() {
            step = self.with_spilled(Shown { actual, ..Shown::new("WindowAgg") }, &select.windows).over(step);
            for window in &select.windows {
                let name = self.names.window(window, &mut self.queries);
                self.names.0.push(name);
            }
        }
        for set in select.sets.iter() {
            step = Shown { actual, ..Shown::new("ProjectSet") }.over(step);
            let texts: Vec<String> = set.iter().map(|set| self.texts(&set.arguments)).collect();
            let names = set.iter().zip(texts).map(|(set, arguments)| format!("{}({arguments})", set.function.name()));
            self.names.0.extend(names);
        }
        for output in &select.outputs {
            // Only for the queries in it.
            self.text(output);
        }
        self.with_queries(step)
    }

    fn grouped(&mut self, grouping: &'a Grouping, input: Shown) -> Shown {
        let kind = if grouping.keys.is_empty() { "Aggregate" } else { "HashAggregate" };
        let mut step = Shown { actual: self.count(grouping), ..Shown::new(kind) }.over(input);
        let keys: Vec<String> = grouping.keys.iter().map(|key| self.text(key)).collect();
        if !keys.is_empty() {
            step = step.detail("Group Key", keys.join(", "));
        }
        let aggregates: Vec<String> =
            grouping.aggregates.iter().map(|one| self.names.aggregate(one, &mut self.queries)).collect();
        self.names.0.truncate(self.names.1);
        self.names.0.extend(keys);
        self.names.0.extend(aggregates);
        if let Some(having) = &grouping.having {
            let text = self.text(having);
            step = step.detail("Filter", text);
        }
        self.with_spilled(step, grouping)
    }

    /// Some of a SELECT's outputs.
    fn outputs(&mut self, select: &'a Select, range: Range<usize>) -> String {
        self.texts(select.outputs.get(range).unwrap_or_default())
    }

    fn sort_keys(&mut self, query: &'a Query, order: &[SortKey]) -> String {
        let key = |of: &mut Self, key: &SortKey| {
            let mut text = match &query.body {
                Body::Select(select) => select.outputs.get(key.at).map_or_else(String::new, |output| of.text(output)),
                _ => query.columns.get(key.at).map_or_else(String::new, |column| column.name.clone()),
            };
            if key.descending {
                text.push_str(" DESC");
            }
            if key.nulls_first != key.descending {
                text.push_str(if key.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
            }
            text
        };
        order.iter().map(|one| key(self, one)).collect::<Vec<_>>().join(", ")
    }

    /// A step with the queries below it that its expressions ask.
    fn with_queries(&mut self, mut step: Shown) -> Shown {
        // Those that the queries ask belong to steps of theirs.
        let mut asked = std::mem::take(&mut self.queries);
        while let Some((name, query)) = asked.pop() {
            let inner = self.inner(query);
            step.inputs.push(Shown { role: Some(name), ..inner });
        }
        step
    }
}

fn conflict_details(conflict: &OnConflict, table: &savanna_tenants_catalog::Table) -> Vec<(&'static str, String)> {
    use savanna_tenants_catalog::Arbiter;
    let resolution = if conflict.update.is_some() { "UPDATE" } else { "NOTHING" };
    let arbiter = match conflict.arbiter {
        None => None,
        Some(Arbiter::Primary) => table.primary.as_ref().map(|primary| primary.name.clone()),
        Some(Arbiter::Index(at)) => Some(table.indexes[at].name.clone()),
    };
    let resolution = std::iter::once(("Conflict Resolution", resolution.to_owned()));
    resolution.chain(arbiter.map(|arbiter| ("Conflict Arbiter Indexes", arbiter))).collect()
}
