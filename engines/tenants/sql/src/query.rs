//! Plans of queries: `SELECT`, `VALUES` and set operations, with the clauses that apply to their rows as a whole.

pub(crate) mod ask_inside;
pub(crate) mod from;
pub(crate) mod group;
pub(crate) mod hashed;
pub(crate) mod index_order;
pub(crate) mod items;
pub(crate) mod join;
pub(crate) mod late;
pub(crate) mod min_max;
pub(crate) mod order;
pub mod scope;
pub mod select;
pub(crate) mod view;
pub(crate) mod with;

use std::sync::Arc;

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use savanna_transaction::RowLock;
use sqlparser::ast::{
    self, LimitClause, LockClause, LockType, NonBlock, ObjectName, ObjectNamePart, Query as Ast, SetExpr, SetOperator,
    SetQuantifier,
};

use crate::{
    bind::{Binder, Typed, common_type},
    expression::{Env, Expr},
    function,
    parse::{AND, WEAKER, name::name_of},
    plan::{
        OutputColumn,
        query::{Body, Joined, Locking, Node, Patience, Query, Rows, Select, SetKind, SetOperation},
    },
    query::{
        index_order::{Wanted, is_low},
        items::check_width,
        order::sort_outputs,
        scope::Scope,
        select::{Bound, Planner},
    },
    system,
};

impl Planner<'_> {
    /// A query inside of another one.
    pub(crate) fn query(&mut self, ast: &Ast, outer: &Scope<'_>) -> Result<Query> {
        self.query_at(ast, &Scope::inside(outer))
    }

    /// A query whose row begins as a scope says.
    pub(crate) fn query_at(&mut self, ast: &Ast, scope: &Scope<'_>) -> Result<Query> {
        self.query_of(ast, scope, false)
    }

    /// A query whose columns may, with `open`, have no type yet, because they get one from where they go.
    pub(crate) fn query_of(&mut self, ast: &Ast, scope: &Scope<'_>, open: bool) -> Result<Query> {
        let named = self.with.len();
        let with = self.add_with(ast, scope)?;
        let query = self.clauses(ast, scope, open);
        self.forget_with(named);
        let mut query = query?;
        query.with.extend(with);
        Ok(query)
    }

    fn clauses(&mut self, ast: &Ast, scope: &Scope<'_>, open: bool) -> Result<Query> {
        if let SetExpr::Query(inner) = &*ast.body {
            return self.query_of(&without_brackets(ast, inner)?, scope, open);
        }
        match &*ast.body {
            SetExpr::Select(select) => {
                self.or_without_rows(select, scope, |planner| planner.clauses_of(ast, scope, open))
            }
            _ => self.clauses_of(ast, scope, open),
        }
    }

    /// The plan of a query, or one without rows if there is none for sure: it may compute what there is not.
    fn or_without_rows(
        &mut self,
        select: &ast::Select,
        scope: &Scope<'_>,
        plan: impl FnOnce(&mut Self) -> Result<Query>,
    ) -> Result<Query> {
        let without_rows = system::without_rows(select, scope)?.map(|query| (query, self.parameters.clone()));
        match (plan(self), without_rows) {
            // Who was told to end does so, and what is too much is too much.
            (Err(error), Some((query, parameters))) if !error.state.starts_with('5') => {
                self.parameters = parameters;
                Ok(query)
            }
            (planned, _) => planned,
        }
    }

    fn clauses_of(&mut self, ast: &Ast, scope: &Scope<'_>, open: bool) -> Result<Query> {
        let unsupported = |what: &str| Err(SqlError::unsupported(what));
        if ast.fetch.as_ref().is_some_and(|fetch| fetch.with_ties || fetch.percent) {
            return unsupported("FETCH .. WITH TIES");
        }
        if ast.for_clause.is_some() || ast.settings.is_some() || !ast.pipe_operators.is_empty() {
            return unsupported("this clause of a query");
        }
        let (query, (limit, offset)) = match &*ast.body {
            SetExpr::Select(select) => {
                // Rows of a query of WITH are not locked.
                let inlines = self.inlines;
                self.inlines &= ast.locks.is_empty();
                let bound = self.bind_select(select, ast.order_by.as_ref(), scope, open);
                self.inlines = inlines;
                let bound = bound?;
                let lock = locking(&ast.locks, &bound)?;
                self.acts |= lock.is_some();
                let limits = self.limits(ast, scope)?;
                let wanted = match limits.0.as_ref().is_some_and(is_low) {
                    false => Wanted::All,
                    // Rows are locked in their whole order.
                    true if lock.is_some() => Wanted::FirstInOrder,
                    true => Wanted::First,
                };
                let mut query = self.plan_select(bound, scope.width, wanted);
                if let (Some((locking, tables)), Body::Select(select)) = (lock, &mut query.body) {
                    query.locking = Some(locking);
                    let keys = &mut select.rows.keys;
                    select.rows.node.scans(&mut |scan| {
                        if tables.contains(&scan.base) {
                            scan.key = Some(*keys);
                            *keys += 1;
                        }
                    });
                }
                (late::postponed(query), limits)
            }
            body => {
                if !ast.locks.is_empty() {
                    return unsupported("FOR UPDATE of something else than a SELECT");
                }
                let mut query = self.set_expr(body, scope, open)?;
                if let Some(order) = &ast.order_by {
                    query.order = sort_outputs(order, &query.columns)?;
                }
                (query, self.limits(ast, scope)?)
            }
        };
        Ok(Query { limit: limit.or(query.limit), offset: offset.or(query.offset), ..query })
    }

    /// What LIMIT, or FETCH, and OFFSET say.
    fn limits(&mut self, ast: &Ast, scope: &Scope<'_>) -> Result<(Option<Expr>, Option<Expr>)> {
        // FETCH without a number fetches one row.
        let one = ast::Expr::value(ast::Value::Number("1".to_owned(), false));
        let fetched = ast.fetch.as_ref().map(|fetch| fetch.quantity.as_ref().unwrap_or(&one));
        let (limit, offset) = match &ast.limit_clause {
            None => (fetched, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref().or(fetched), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => return Err(SqlError::unsupported("this kind of LIMIT")),
        };
        let mut count = |ast: Option<&ast::Expr>, place: &'static str| -> Result<Option<Expr>> {
            let Some(ast) = ast else { return Ok(None) };
            let mut binder = Binder::plain(scope, self, place);
            let typed = binder.expr(ast)?;
            Ok(Some(binder.implicit(typed, Type::Int8)?))
        };
        Ok((count(limit, "LIMIT")?, count(offset, "OFFSET")?))
    }

    /// What stands in a query before the clauses that apply to all of its rows.
    pub(crate) fn set_expr(&mut self, ast: &SetExpr, scope: &Scope<'_>, open: bool) -> Result<Query> {
        match ast {
            SetExpr::Select(select) => self.or_without_rows(select, scope, |planner| {
                let bound = planner.bind_select(select, None, scope, open)?;
                Ok(planner.plan_select(bound, scope.width, Wanted::All))
            }),
            SetExpr::Values(values) => {
                let rows: Vec<&[ast::Expr]> = values.rows.iter().map(|row| row.content.as_slice()).collect();
                self.values(&rows, scope)
            }
            SetExpr::Query(inner) => self.query_of(inner, scope, open),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let kind = match op {
                    SetOperator::Union => SetKind::Union,
                    SetOperator::Intersect => SetKind::Intersect,
                    SetOperator::Except => SetKind::Except,
                    SetOperator::Minus => return Err(SqlError::unsupported("MINUS")),
                };
                let all = match set_quantifier {
                    SetQuantifier::All => true,
                    SetQuantifier::None | SetQuantifier::Distinct => false,
                    other => return Err(SqlError::unsupported(format_args!("{op} {other}"))),
                };
                let mut left = self.set_expr(left, scope, true)?;
                let mut right = self.set_expr(right, scope, true)?;
                let types = self.common_types(kind, &left, &right, open)?;
                self.coerce(&mut left, &types)?;
                self.coerce(&mut right, &types)?;
                let columns = left.columns.iter().map(|column| OutputColumn { origin: (0, 0), ..column.clone() });
                let columns = columns.collect();
                let set = SetOperation { kind, all, left, right };
                Ok(Query::new(scope.width, Body::Set(Box::new(set)), columns))
            }
            SetExpr::Table(_) => Err(SqlError::unsupported("TABLE")),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(SqlError::unsupported("a statement that writes inside of a query"))
            }
        }
    }

    /// The types in which the rows of both sides of a set operation are alike.
    fn common_types(&mut self, kind: SetKind, left: &Query, right: &Query, open: bool) -> Result<Vec<Type>> {
        let name = match kind {
            SetKind::Union => "UNION",
            SetKind::Intersect => "INTERSECT",
            SetKind::Except => "EXCEPT",
        };
        if left.columns.len() != right.columns.len() {
            let message = format!("each {name} query must have the same number of columns");
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let common = |(a, b): (&OutputColumn, &OutputColumn)| match (a.of, b.of) {
            (Type::Unknown, Type::Unknown) if open => Ok(Type::Unknown),
            (Type::Unknown, Type::Unknown) => Ok(Type::Text),
            (a, b) if a == b => Ok(a),
            // Of several kinds of text the first stays.
            (a, b) if a.is_text() && b.is_text() => Ok(a.unbounded()),
            (a, b) => common_type(a, b).ok_or_else(|| {
                let message = format!(
                    "{name} types {} and {} cannot be matched",
                    self.catalog.type_name(a),
                    self.catalog.type_name(b)
                );
                SqlError::new(state::DATATYPE_MISMATCH, message)
            }),
        };
        left.columns.iter().zip(&right.columns).map(common).collect()
    }

    /// Rows that are written down.
    pub(crate) fn values(&mut self, rows: &[&[ast::Expr]], scope: &Scope<'_>) -> Result<Query> {
        let width = rows.first().map_or(0, |row| row.len());
        if rows.iter().any(|row| row.len() != width) {
            return Err(SqlError::new(state::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        check_width(width)?;
        let mut binder = Binder::plain(scope, self, "VALUES");
        let mut columns: Vec<Vec<Expr>> = Vec::new();
        let mut outputs = Vec::new();
        for column in 0..width {
            let typed = rows.iter().map(|row| binder.expr(&row[column])).collect::<Result<Vec<_>>>()?;
            let (exprs, of) = binder.common(typed, "VALUES")?;
            columns.push(exprs);
            outputs.push(OutputColumn { name: format!("column{}", column + 1), of, origin: (0, 0) });
        }
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        let rows = (0..rows.len())
            .map(|_| columns.iter_mut().map(|column| column.next().unwrap_or(Expr::NULL)).collect())
            .collect();
        Ok(Query::of_values(rows, outputs, scope.width))
    }

    /// Makes a query's columns be of other types, which they become by themselves.
    pub(crate) fn coerce(&mut self, query: &mut Query, types: &[Type]) -> Result<()> {
        let nothing = Scope::default();
        let mut binder = Binder::plain(&nothing, self, "");
        let Query { body, columns, .. } = query;
        let mut coerce = |expr: &mut Expr, from: Type, to: Type| -> Result<()> {
            if from != to {
                let typed = Typed::new(std::mem::replace(expr, Expr::NULL), from);
                *expr = binder.implicit(typed, to)?;
            }
            Ok(())
        };
        for (at, (column, of)) in columns.iter_mut().zip(types).enumerate() {
            match body {
                Body::Select(select) => coerce(&mut select.outputs[at], column.of, *of)?,
                Body::Values(rows) => rows.iter_mut().try_for_each(|row| coerce(&mut row[at], column.of, *of))?,
                _ => {}
            }
            if matches!(body, Body::Select(_) | Body::Values(_)) {
                column.of = *of;
            }
        }
        if columns.iter().zip(types).all(|(column, of)| column.of == *of) {
            return Ok(());
        }
        match &mut query.body {
            Body::Set(set) => {
                self.coerce(&mut set.left, types)?;
                self.coerce(&mut set.right, types)?;
            }
            _ => return self.coerce_outside(query, types),
        }
        query.columns.iter_mut().zip(types).for_each(|(column, of)| column.of = *of);
        Ok(())
    }

    /// Computes other types of a query's columns in a query around it.
    fn coerce_outside(&mut self, query: &mut Query, types: &[Type]) -> Result<()> {
        let nothing = Scope::default();
        let mut columns = query.columns.clone();
        let inner = std::mem::replace(query, Query::new(0, Body::Values(Vec::new()), Vec::new()));
        let (outer, width) = (inner.outer, inner.outer + inner.columns.len());
        let mut binder = Binder::plain(&nothing, self, "");
        let mut outputs = Vec::new();
        for (at, (column, of)) in columns.iter_mut().zip(types).enumerate() {
            outputs.push(binder.implicit(Typed::new(Expr::Column(outer + at), column.of), *of)?);
            column.of = *of;
        }
        let arguments = inner.arguments();
        let rows = Rows { query: Arc::new(inner), alias: String::new(), base: outer, arguments };
        let rows = Joined { condition: None, node: Node::Rows(rows), width, keys: 0, in_order: false };
        let select = Select::of(rows, outputs);
        *query = Query::new(outer, Body::Select(Box::new(select)), columns);
        Ok(())
    }
}

/// A query in brackets, with the clauses behind them: each may be there once.
fn without_brackets(outside: &Ast, inside: &Ast) -> Result<Ast> {
    let twice = |what: &str| Err(SqlError::new(state::SYNTAX_ERROR, format!("multiple {what} clauses not allowed")));
    let mut whole = inside.clone();
    if outside.order_by.is_some() && whole.order_by.is_some() {
        return twice("ORDER BY");
    }
    let limits = |ast: &Ast| ast.limit_clause.is_some() || ast.fetch.is_some();
    if limits(outside) && limits(inside) {
        return twice("LIMIT");
    }
    whole.order_by = whole.order_by.or_else(|| outside.order_by.clone());
    whole.limit_clause = whole.limit_clause.or_else(|| outside.limit_clause.clone());
    whole.fetch = whole.fetch.or_else(|| outside.fetch.clone());
    whole.locks.extend(outside.locks.iter().cloned());
    Ok(whole)
}

impl Query {
    /// Rows of these values.
    pub(crate) fn of_values(rows: Vec<Vec<Expr>>, columns: Vec<OutputColumn>, outer: usize) -> Self {
        Self::new(outer, Body::Values(rows), columns)
    }
}

/// `FOR UPDATE`, with the places of the tables whose rows are locked.
fn locking(locks: &[LockClause], bound: &Bound<'_>) -> Result<Option<(Locking, Vec<usize>)>> {
    let Some(lock) = locks.first() else { return Ok(None) };
    let mut of = lock.of.clone();
    let is_mark = |part: &ObjectNamePart| part.as_ident().is_some_and(|name| name.value == WEAKER);
    let weaker = of.as_ref().is_some_and(|of| of.0.first().is_some_and(is_mark));
    if let (true, Some(of)) = (weaker, &mut of) {
        of.0.remove(0);
    }
    let (name, mode) = match (&lock.lock_type, weaker) {
        (LockType::Share, true) => ("FOR KEY SHARE", RowLock::KeyShare),
        (LockType::Share, false) => ("FOR SHARE", RowLock::Share),
        (LockType::Update, true) => ("FOR NO KEY UPDATE", RowLock::NoKeyUpdate),
        (LockType::Update, false) => ("FOR UPDATE", RowLock::Update),
    };
    if locks.len() > 1 {
        return Err(SqlError::unsupported("more than one clause of row locks"));
    }
    let of = of.filter(|of| !of.0.is_empty()).map(|of| locked_names(&of, name)).transpose()?;
    bound.lockable(name)?;
    let optional = bound.from.optional_tables();
    let mut tables = Vec::new();
    let mut met = Vec::new();
    let mut nullable = false;
    bound.from.tables(&mut |_, alias, base| {
        if of.as_ref().is_none_or(|of| of.iter().any(|name| name == alias)) {
            met.push(alias.to_owned());
            tables.push(base);
            nullable |= optional.iter().any(|name| name == alias);
        }
    });
    if nullable {
        let message = format!("{name} cannot be applied to the nullable side of an outer join");
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    if let Some(of) = of.iter().flatten().find(|of| !met.contains(of)) {
        let message = format!("relation \"{of}\" in {name} clause not found in FROM clause");
        return Err(SqlError::new(state::UNDEFINED_TABLE, message));
    }
    let patience = match lock.nonblock {
        None => Patience::Wait,
        Some(NonBlock::Nowait) => Patience::Fail,
        Some(NonBlock::SkipLocked) => Patience::Skip,
    };
    Ok(Some((Locking { mode, patience }, tables)))
}

/// The tables that a row lock names.
fn locked_names(of: &ObjectName, clause: &str) -> Result<Vec<String>> {
    let is_mark = |part: &ObjectNamePart| part.as_ident().is_some_and(|name| name.value == AND);
    let name = |parts: &[ObjectNamePart]| match parts {
        [ObjectNamePart::Identifier(name)] => Ok(name_of(name)),
        _ => Err(SqlError::new(state::SYNTAX_ERROR, format!("{clause} must specify unqualified relation names"))),
    };
    of.0.split(is_mark).map(name).collect()
}

/// What `LIMIT` and `OFFSET` say, before the query runs.
pub fn limit(expr: Option<&Expr>, env: Env<'_>, negative: (&'static str, &str)) -> Result<Option<usize>> {
    let Some(expr) = expr else { return Ok(None) };
    match function::count(&*expr.value(env)?) {
        None => Ok(None),
        Some(count) => match usize::try_from(count) {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(SqlError::new(negative.0, format!("{} must not be negative", negative.1))),
        },
    }
}
