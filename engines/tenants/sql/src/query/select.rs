//! Plans of `SELECT`.

use std::sync::Arc;

use savanna_tenants_catalog::{Catalog, Table};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::{Context, style::Style},
};
use sqlparser::ast::{self, Query as Ast, SetExpr};

use crate::{
    bind::{Binder, Parameters, Sets, Windows},
    expression::{Expr, aggregate::Aggregate},
    interrupt::Interrupts,
    modify::{Overriding, conflict_target::ConflictTarget},
    parse::name::relation_name,
    plan::{
        OutputColumn, Part,
        query::{Body, Distinct, Grouping, Joined, Query, Select, SetCall, SortKey},
        window::WindowCall,
    },
    query::{
        from::{From, Inner},
        group::{GroupKeys, Grouped, group_keys, has_sets, regroup, without_grouping},
        index_order::{Wanted, in_order},
        items::Items,
        join::{Joiner, reads_below},
        min_max::{one_row, put},
        order::{distinct_on, sort_keys},
        scope::Scope,
        view::Views,
        with::Named,
    },
};

/// Plans the statements of one text.
pub struct Planner<'c> {
    pub(crate) catalog: &'c Catalog,
    pub(crate) parameters: Parameters,
    /// Where the session's clocks are.
    pub(crate) style: Style,
    /// Whether expressions of the statement are kept as they are written.
    pub(crate) defines: bool,
    /// What was numbered last in the statement.
    numbered: usize,
    /// Queries of WITH that can be named, the innermost last.
    pub(crate) with: Vec<Named>,
    /// Whether queries of WITH are planned where they are named.
    pub(crate) inlines: bool,
    /// How many were, and how many are one inside of the other.
    pub(crate) inlined: usize,
    pub(crate) inlining: usize,
    /// Statements in WITH that write; `None` where there may be none.
    pub(crate) parts: Option<Vec<Part>>,
    /// Whether queries in FROM that compute may become a part of the query around them.
    pub(crate) computes: bool,
    /// Whether what is planned stands in FROM, where the query around it may add conditions.
    pub(crate) is_in_from: bool,
    pub(crate) views: Views,
    /// Whether the statement asks what its session has prepared and declared.
    pub(crate) lists: bool,
    /// Whether it asks for all connections, or tells one something.
    pub(crate) asks_for_backends: bool,
    /// Whether it calls what is volatile, or locks rows.
    pub(crate) acts: bool,
    /// What an INSERT does about values for generated columns.
    pub(crate) overriding: Overriding,
    /// What it names behind ON CONFLICT.
    pub(crate) conflict_target: ConflictTarget,
    /// What ends the statement while it is planned.
    pub(crate) interrupts: Arc<Interrupts>,
}

/// A `SELECT` whose names are resolved.
pub(crate) struct Bound<'s> {
    pub(crate) from: From<'s>,
    /// Over the joined row. Those that are only sorted by come last.
    pub(crate) outputs: Vec<Expr>,
    pub(crate) columns: Vec<OutputColumn>,
    grouping: Option<Grouping>,
    windows: Vec<WindowCall>,
    sets: Vec<Vec<SetCall>>,
    distinct: Option<Distinct>,
    order: Vec<SortKey>,
}

impl Bound<'_> {
    /// Whether it only joins and filters, so that it can be a part of the query around it, which has columns up to `begin`; with
    /// `computed` it may also compute.
    pub(crate) fn is_simple(&self, computed: bool, begin: usize) -> bool {
        let own = |output: &Expr| matches!(output, Expr::Column(at) if *at >= begin);
        let plain = |output: &Expr| own(output) || computed && !output.is_volatile();
        self.grouping.is_none()
            && self.windows.is_empty()
            && self.sets.is_empty()
            && self.distinct.is_none()
            && self.order.is_empty()
            // What a full join keeps of its right side stays the same for all rows of the query that it is part of.
            && !self.from.joined.items.iter().any(|item| item.is_full() && reads_below(item, begin))
            && self.outputs.iter().all(plain)
    }

    /// Because of what its rows are not those of its tables, as messages about views say it.
    pub(crate) fn computes_rows(&self) -> Option<&'static str> {
        match self {
            Self { grouping: Some(_), .. } => Some("Views that return aggregate functions"),
            Self { windows, .. } if !windows.is_empty() => Some("Views that return window functions"),
            Self { sets, .. } if !sets.is_empty() => Some("Views that return set-returning functions"),
            _ => None,
        }
    }

    /// Refuses what has no rows of tables that could be locked.
    pub(crate) fn lockable(&self, clause: &str) -> Result<()> {
        let what = match self {
            Self { grouping: Some(grouping), .. } if grouping.keys.is_empty() => "aggregate functions",
            Self { grouping: Some(_), .. } => "GROUP BY clause",
            Self { windows, .. } if !windows.is_empty() => "window functions",
            Self { sets, .. } if !sets.is_empty() => "set-returning functions in the target list",
            Self { distinct: Some(_), .. } => "DISTINCT clause",
            _ => return Ok(()),
        };
        Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, format!("{clause} is not allowed with {what}")))
    }
}

impl<'c> Planner<'c> {
    /// What texts mean in the statement.
    pub(crate) fn context(&self) -> Context<'c> {
        self.catalog.context(self.style)
    }

    /// A planner over a catalog, of a statement with these parameters.
    pub fn new(catalog: &'c Catalog, parameters: Parameters) -> Self {
        Self {
            catalog,
            parameters,
            style: Style::PLAIN,
            defines: false,
            numbered: 0,
            with: Vec::new(),
            inlines: true,
            inlined: 0,
            inlining: 0,
            views: Views::default(),
            computes: true,
            is_in_from: false,
            lists: false,
            asks_for_backends: false,
            acts: false,
            parts: None,
            overriding: Overriding::Nothing,
            conflict_target: ConflictTarget::default(),
            interrupts: Arc::default(),
        }
    }

    /// A number that nothing else in the statement has.
    pub(crate) fn number(&mut self) -> usize {
        self.numbered += 1;
        self.numbered
    }

    /// A table by its name.
    pub(crate) fn table(&self, name: &ast::ObjectName) -> Result<Arc<Table>> {
        let name = relation_name(name)?;
        match self.catalog.table(&name) {
            Some(table) => Ok(Arc::clone(table)),
            None if self.catalog.has(&name) => {
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table")))
            }
            None => Err(SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
        }
    }

    /// Chooses how rows are joined.
    pub(crate) fn join(&mut self, joined: Inner, scope: &Scope<'_>, outer: usize) -> Joined {
        Joiner { outer, next: &mut self.numbered }.joined(joined, scope.width)
    }

    /// A query that is one SELECT and has no clause that applies to its rows as a whole.
    pub(crate) fn plain_select<'s>(&mut self, ast: &Ast, scope: &Scope<'s>) -> Result<Option<Bound<'s>>> {
        let SetExpr::Select(select) = &*ast.body else { return Ok(None) };
        let plain = ast.with.is_none()
            && ast.order_by.is_none()
            && ast.limit_clause.is_none()
            && ast.fetch.is_none()
            && ast.locks.is_empty()
            && ast.for_clause.is_none()
            && ast.settings.is_none()
            && ast.pipe_operators.is_empty();
        if plain { self.bind_select(select, None, scope, false).map(Some) } else { Ok(None) }
    }

    /// Resolves the names of a SELECT. With `open`, what has no type yet is left so.
    pub(crate) fn bind_select<'s>(
        &mut self,
        ast: &ast::Select,
        order: Option<&ast::OrderBy>,
        scope: &Scope<'s>,
        open: bool,
    ) -> Result<Bound<'s>> {
        let unsupported = |what: &str| Err(SqlError::unsupported(what));
        let odd = ast.top.is_some()
            || ast.into.is_some()
            || !ast.lateral_views.is_empty()
            || ast.prewhere.is_some()
            || ast.qualify.is_some()
            || ast.value_table_mode.is_some()
            || !ast.connect_by.is_empty()
            || !ast.cluster_by.is_empty()
            || !ast.distribute_by.is_empty()
            || !ast.sort_by.is_empty()
            || ast.select_modifiers.is_some()
            || ast.exclude.is_some();
        if odd {
            return unsupported("this clause of SELECT");
        }
        let outer = scope.width;
        let mut from = From::new(scope.clone());
        // What is NULL in some groups has to be a column.
        let computes = std::mem::replace(&mut self.computes, !has_sets(&ast.group_by));
        let added = self.add_from(&mut from, &ast.from);
        self.computes = computes;
        added?;
        let mut binder = Binder::plain(&from.scope, self, "WHERE");
        if let Some(filter) = &ast.selection {
            binder.condition(filter, "WHERE")?.conjuncts(&mut from.joined.conditions);
        }

        let mut aggregates: Vec<Aggregate> = Vec::new();
        let mut items = Items::default();
        let mut windows: Vec<WindowCall> = Vec::new();
        let mut sets = Sets::default();
        let calls = Windows { calls: &mut windows, named: &ast.named_window };
        let mut binder = Binder {
            aggregates: Ok(&mut aggregates),
            windows: Ok(calls),
            sets: Ok(&mut sets),
            ..Binder::plain(&from.scope, self, "")
        };
        items.add_all(&mut binder, &ast.projection, open)?;
        let Items { mut outputs, columns } = items;
        let calls = std::mem::replace(&mut binder.windows, Err("HAVING"));
        let met = std::mem::replace(&mut binder.sets, Err("HAVING"));
        let having = ast.having.as_ref().map(|having| binder.condition(having, "HAVING")).transpose()?;
        binder.sets = met;
        binder.windows = calls;
        let keys = group_keys(&ast.group_by, &mut binder, &outputs, &columns)?;
        let whole = matches!(ast.distinct, Some(ast::Distinct::Distinct));
        let order = match order {
            None => Vec::new(),
            Some(order) => sort_keys(order, &mut binder, &mut outputs, &columns, whole)?,
        };
        let distinct = match &ast.distinct {
            None | Some(ast::Distinct::All) => None,
            Some(ast::Distinct::Distinct) => Some(Distinct::All),
            Some(ast::Distinct::On(exprs)) => {
                let on = distinct_on(exprs, &mut binder, &mut outputs, &columns)?;
                // The first of each must be decided by the order.
                let leading = order.iter().take_while(|key| on.contains(&key.at)).count();
                if order.len() > leading && !on.iter().all(|at| order[..leading].iter().any(|key| key.at == *at)) {
                    let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
                    return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
                }
                Some(Distinct::On(on))
            }
        };

        // What is grouped by is computed before.
        let mut grouped = Vec::new();
        let mut width = from.scope.width;
        let grouping = if keys.is_some() || !aggregates.is_empty() || having.is_some() {
            let mut keys = keys.unwrap_or_default();
            add_dependent_keys(&mut keys, &from);
            let groups = Grouped { keys: &keys, aggregates: aggregates.len(), scope: &from.scope, outer };
            let calls = windows.iter_mut().flat_map(WindowCall::expressions_mut);
            for expr in outputs.iter_mut().chain(calls) {
                regroup(expr, &groups)?;
            }
            let before = sets.staged(&keys.keys, false, from.scope.width)?;
            grouped.clone_from(&keys.keys);
            for expr in sets.others_mut(&keys.keys) {
                regroup(expr, &groups)?;
            }
            let mut having = having;
            if let Some(having) = &mut having {
                regroup(having, &groups)?;
            }
            width = groups.width();
            let GroupKeys { mut keys, sets } = keys;
            keys.iter_mut().try_for_each(|key| before.place(key))?;
            Some(Grouping { functions: before.sets, keys, sets, aggregates, having })
        } else {
            outputs.iter().try_for_each(without_grouping)?;
            None
        };
        outputs.iter_mut().chain(sets.arguments_mut()).try_for_each(|output| place_windows(output, width))?;
        let staged = sets.staged(&grouped, true, width + windows.len())?;
        outputs.iter_mut().try_for_each(|output| staged.place(output))?;
        Ok(Bound { from, outputs, columns, grouping, windows, sets: staged.sets, distinct, order })
    }

    /// The plan of a SELECT, its columns and what is left to be sorted.
    pub(crate) fn plan_select(&mut self, bound: Bound<'_>, outer: usize, wanted: Wanted) -> Query {
        let Bound { mut from, mut outputs, columns, mut grouping, windows, sets, distinct, order } = bound;
        if let Some(grouping) = &mut grouping {
            from.joined.conditions.extend(grouping.before_groups(outer));
        }
        let computes_more = !windows.is_empty() || !sets.is_empty();
        let grouped = grouping.as_ref().filter(|_| !computes_more);
        let ends = grouped.and_then(|grouping| self.ends(&from, grouping, outer));
        // Another condition of a query whose order is asked for would lose that order; where aggregates are queries, it belongs to these.
        let joins = (self.is_in_from && order.is_empty() && ends.is_none()).then(|| from.joined.clone());
        let mut rows = match ends {
            Some(values) => {
                outputs.iter_mut().for_each(|output| put(output, &values, outer));
                one_row(grouping.take().and_then(|grouping| grouping.having), &values, outer)
            }
            None => self.join(from.joined, &from.scope, outer),
        };
        let (order, presorted) = match &grouping {
            None if distinct.is_none() && windows.is_empty() => {
                in_order(&mut rows, &outputs, order, (wanted, sets.is_empty()))
            }
            _ => (order, None),
        };
        if order.is_empty() && distinct.is_none() {
            outputs.truncate(columns.len());
        }
        let mut select = Select { rows, grouping, windows, sets, outputs, distinct, joins };
        select.want();
        let body = Body::Select(Box::new(select));
        Query { order, presorted, ..Query::new(outer, body, columns) }
    }
}

/// What window functions come to stands behind the row that they are computed over.
fn place_windows(expr: &mut Expr, width: usize) -> Result<()> {
    if let Expr::Window(at) = expr {
        *expr = Expr::Column(width + *at);
        return Ok(());
    }
    expr.children_mut(&mut |child| place_windows(child, width))
}

/// Whoever groups by a primary key groups by all columns of its table.
fn add_dependent_keys(keys: &mut GroupKeys, from: &From<'_>) {
    let mut dependent = Vec::new();
    from.tables(&mut |table, _, base| {
        let has = |column: usize| keys.has(&Expr::Column(base + column));
        if table.primary.as_ref().is_some_and(|primary| primary.columns.iter().all(|column| has(*column))) {
            let others = table.live_columns().map(|(at, _)| at).filter(|at| !has(*at));
            dependent.extend(others.map(|at| Expr::Column(base + at)));
        }
    });
    dependent.retain(|key| !keys.keys.contains(key));
    keys.add_dependent(dependent);
}
