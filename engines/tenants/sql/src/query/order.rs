//! `ORDER BY` and `DISTINCT ON`: what they mean by a number or a name.

use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::ast::{self, OrderByKind};

use crate::{
    bind::Binder,
    expression::Expr,
    parse::name::name_of,
    plan::{OutputColumn, query::SortKey},
};

/// A place in the SELECT list, if that is what a number in GROUP BY or ORDER BY is.
pub(crate) fn ordinal(ast: &ast::Expr, visible: usize, clause: &str) -> Result<Option<usize>> {
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
