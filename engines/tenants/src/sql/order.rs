//! GROUP BY and ORDER BY: what they mean by a number or a name.

use sqlparser::ast::{self, GroupByExpr, OrderByKind};

use crate::{
    error::{Result, SqlError, state},
    sql::{bind::Binder, expression::Expr, name::name_of, plan::OutputColumn, query_plan::SortKey, scope::Scope},
};

/// A place in the SELECT list, if that is what a number in GROUP BY or ORDER BY is.
fn ordinal(ast: &ast::Expr, visible: usize, clause: &str) -> Result<Option<usize>> {
    let ast::Expr::Value(value) = ast else { return Ok(None) };
    let ast::Value::Number(digits, _) = &value.value else { return Ok(None) };
    match digits.parse::<usize>() {
        Ok(place) if (1..=visible).contains(&place) => Ok(Some(place - 1)),
        _ => {
            let message = format!("{clause} position {digits} is not in select list");
            Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message))
        }
    }
}

/// What rows are grouped by, if they are.
pub(crate) fn group_keys(
    ast: &GroupByExpr,
    binder: &mut Binder<'_, '_>,
    outputs: &[Expr],
    columns: &[OutputColumn],
) -> Result<Option<Vec<Expr>>> {
    let exprs = match ast {
        GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
        _ => return Err(SqlError::unsupported("this kind of GROUP BY")),
    };
    if exprs.is_empty() {
        return Ok(None);
    }
    let mut keys = Vec::new();
    for ast in exprs {
        if let Some(at) = ordinal(ast, columns.len(), "GROUP BY")? {
            keys.push(outputs[at].clone());
            continue;
        }
        // A column of the tables comes before a name in the SELECT list.
        let mut inner = Binder::plain(binder.scope, &mut *binder.planner, "GROUP BY");
        match (inner.settled(ast), ast) {
            (Ok(typed), _) => keys.push(typed.expr),
            (Err(error), ast::Expr::Identifier(ident)) => {
                let name = name_of(ident);
                match columns.iter().position(|column| column.name == name) {
                    Some(at) if error.state == state::UNDEFINED_COLUMN => keys.push(outputs[at].clone()),
                    _ => return Err(error),
                }
            }
            (Err(error), _) => return Err(error),
        }
    }
    let mut aggregate = false;
    for key in &keys {
        contains_aggregate(key, &mut aggregate);
    }
    if aggregate {
        return Err(SqlError::new(state::GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY"));
    }
    Ok(Some(keys))
}

fn contains_aggregate(expr: &Expr, found: &mut bool) {
    *found |= matches!(expr, Expr::Aggregate(_));
    expr.children(&mut |child| contains_aggregate(child, found));
}

/// What rows are sorted by; expressions that are not selected are added to the outputs, unless what is selected is `distinct`.
pub(crate) fn sort_keys(
    order: &ast::OrderBy,
    binder: &mut Binder<'_, '_>,
    outputs: &mut Vec<Expr>,
    columns: &[OutputColumn],
    distinct: bool,
) -> Result<Vec<SortKey>> {
    let mut keys = Vec::new();
    for by in order_exprs(order)? {
        let at = match output(&by.expr, Some(outputs), columns, "ORDER BY")? {
            Some(at) => at,
            None => {
                let before = outputs.len();
                let at = added(&by.expr, binder, outputs)?;
                if distinct && at == before {
                    let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                    return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
                }
                at
            }
        };
        keys.push(sort_key(at, by));
    }
    Ok(keys)
}

/// What rows of a set operation or of VALUES are sorted by.
pub(crate) fn sort_outputs(order: &ast::OrderBy, columns: &[OutputColumn]) -> Result<Vec<SortKey>> {
    let mut keys = Vec::new();
    for by in order_exprs(order)? {
        let at = output(&by.expr, None, columns, "ORDER BY")?.ok_or_else(|| match &by.expr {
            ast::Expr::Identifier(ident) => {
                let message = format!("column \"{}\" does not exist", name_of(ident));
                SqlError::new(state::UNDEFINED_COLUMN, message)
            }
            _ => SqlError::new(state::FEATURE_NOT_SUPPORTED, "invalid UNION/INTERSECT/EXCEPT ORDER BY clause")
                .detail("Only result column names can be used, not expressions or functions."),
        })?;
        keys.push(sort_key(at, by));
    }
    Ok(keys)
}

/// The outputs of `DISTINCT ON`.
pub(crate) fn distinct_on(
    exprs: &[ast::Expr],
    binder: &mut Binder<'_, '_>,
    outputs: &mut Vec<Expr>,
    columns: &[OutputColumn],
) -> Result<Vec<usize>> {
    let mut on = Vec::new();
    for expr in exprs {
        on.push(match output(expr, Some(outputs), columns, "SELECT DISTINCT ON")? {
            Some(at) => at,
            None => added(expr, binder, outputs)?,
        });
    }
    Ok(on)
}

fn order_exprs(order: &ast::OrderBy) -> Result<&[ast::OrderByExpr]> {
    match &order.kind {
        OrderByKind::Expressions(exprs) if exprs.iter().all(|by| by.with_fill.is_none()) => Ok(exprs),
        _ => Err(SqlError::unsupported("this kind of ORDER BY")),
    }
}

fn sort_key(at: usize, by: &ast::OrderByExpr) -> SortKey {
    let descending = by.options.asc == Some(false);
    SortKey { at, descending, nulls_first: by.options.nulls_first.unwrap_or(descending) }
}

/// The output that an expression means by its name or number. Two of the same name must be the same.
fn output(
    ast: &ast::Expr,
    outputs: Option<&Vec<Expr>>,
    columns: &[OutputColumn],
    clause: &str,
) -> Result<Option<usize>> {
    let ast::Expr::Identifier(ident) = ast else { return ordinal(ast, columns.len(), clause) };
    let name = name_of(ident);
    let mut named = (0..columns.len()).filter(|at| columns[*at].name == name);
    let first = named.next();
    let same = |a: usize, b: usize| outputs.is_some_and(|outputs| outputs[a] == outputs[b]);
    if let Some(first) = first
        && named.any(|other| !same(first, other))
    {
        let message = format!("{clause} \"{name}\" is ambiguous");
        return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
    }
    Ok(first)
}

/// The place of an expression among the outputs; it is added if it is none of them.
fn added(ast: &ast::Expr, binder: &mut Binder<'_, '_>, outputs: &mut Vec<Expr>) -> Result<usize> {
    let expr = binder.settled(ast)?.expr;
    Ok(outputs.iter().position(|output| *output == expr).unwrap_or_else(|| {
        outputs.push(expr);
        outputs.len() - 1
    }))
}

/// Turns an expression over rows into one over groups: the columns around the query, then keys, then aggregates.
pub(crate) fn regroup(expr: &mut Expr, keys: &[Expr], scope: &Scope<'_>, outer: usize) -> Result<()> {
    if let Some(at) = keys.iter().position(|key| key == expr) {
        *expr = Expr::Column(outer + at);
        return Ok(());
    }
    match expr {
        Expr::Aggregate(at) => {
            *expr = Expr::Column(outer + keys.len() + *at);
            Ok(())
        }
        Expr::Column(at) if *at < outer => Ok(()),
        Expr::Column(at) => {
            let message = format!(
                "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                scope.name_of(*at)
            );
            Err(SqlError::new(state::GROUPING_ERROR, message))
        }
        other => other.children_mut(&mut |child| regroup(child, keys, scope, outer)),
    }
}
