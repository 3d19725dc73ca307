//! `GROUP BY TUMBLE(c, INTERVAL ..)`, `HOP`, `SESSION`: the older forms of windows, rewritten to the table functions.
//!
//! ```text
//!   SELECT k, TUMBLE_START(c, i), count(*) FROM t GROUP BY k, TUMBLE(c, i)
//!   SELECT k, window_start, count(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), i))
//!     GROUP BY k, window_start, window_end, window_time
//! ```
//!
//! A session has the other keys of `GROUP BY` as its own, and sees the rows that `WHERE` leaves.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, GroupByExpr, Ident, Query,
    Select, SelectItem, SetExpr, Spanned, TableAlias, TableFactor, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::WINDOW_COLUMNS;

use super::chain::unsupported;
use super::walk::{self, NodeMut};
use crate::parse::{PARTITION_BY, position};

/// The functions that group by windows.
const GROUP_WINDOWS: [&str; 3] = ["TUMBLE", "HOP", "SESSION"];

/// Rewrites all windows of a query that are grouped by.
///
/// # Errors
/// A `SELECT` groups by two windows, over a join, or asks for another window than it groups by.
pub(super) fn rewrite(query: &mut Query) -> Result<()> {
    walk::change(query, &mut |node| match node {
        NodeMut::Select(select) => rewrite_select(select),
        NodeMut::Expr(_) | NodeMut::WholeExpr(_) => Ok(()),
    })
}

fn rewrite_select(select: &mut Select) -> Result<()> {
    let GroupByExpr::Expressions(group, _) = &mut select.group_by else {
        return Ok(());
    };
    let mut windows = group.iter().enumerate().filter_map(|(at, expr)| Some((at, group_window(expr)?.clone())));
    let Some((at, call)) = windows.next() else {
        return Ok(());
    };
    if let Some((_, second)) = windows.next() {
        return refused(
            "a second window in GROUP BY",
            second.name.span(),
            "put the first in a subquery, by its TUMBLE_ROWTIME",
        );
    }
    drop(windows);
    group.remove(at);
    let keys = group.clone();
    drop(group.splice(at..at, WINDOW_COLUMNS.map(|name| Expr::Identifier(Ident::new(name)))));
    let name = call.name.to_string().to_ascii_uppercase();
    let is_session = name == "SESSION";
    let filtered = (is_session && select.selection.is_some()).then(|| all_of(select));
    if filtered.is_some() {
        select.selection = None;
    }
    let [from] = select.from.as_mut_slice() else {
        return refused(&format!("GROUP BY {name} over several tables"), call.name.span(), IN_A_SUBQUERY);
    };
    if !from.joins.is_empty() {
        return refused(&format!("GROUP BY {name} over a join"), call.name.span(), IN_A_SUBQUERY);
    }
    let keys = if is_session { keys } else { Vec::new() };
    from.relation = table_function(&call, &from.relation, &keys, filtered)?;
    let properties = Properties { name, arguments: arguments(&call) };
    let mut replace = |node: NodeMut<'_>| match node {
        NodeMut::Expr(expr) => properties.replace(expr),
        NodeMut::Select(_) | NodeMut::WholeExpr(_) => Ok(()),
    };
    walk::change(&mut select.projection, &mut replace)?;
    walk::change(&mut select.having, &mut replace)
}

const IN_A_SUBQUERY: &str = "put the join in a subquery or view, and use FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(c), INTERVAL '10' SECOND)) over it";

fn refused<T>(what: &str, span: Span, instead: &str) -> Result<T> {
    Err(unsupported(what, position(span.start), instead))
}

fn group_window(expr: &Expr) -> Option<&Function> {
    match expr {
        Expr::Function(f) if GROUP_WINDOWS.contains(&f.name.to_string().to_ascii_uppercase().as_str()) => Some(f),
        _ => None,
    }
}

fn arguments(call: &Function) -> Vec<FunctionArg> {
    match &call.args {
        FunctionArguments::List(list) => list.args.clone(),
        _ => Vec::new(),
    }
}

/// `SELECT * FROM .. WHERE ..` of a `SELECT`.
fn all_of(select: &Select) -> Query {
    let mut all = select.clone();
    all.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    all.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    all.having = None;
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(all))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// `TABLE(TUMBLE(relation PARTITION BY keys, time, ..))`, or over `filtered`, which has the relation's rows.
fn table_function(
    call: &Function,
    relation: &TableFactor,
    keys: &[Expr],
    filtered: Option<Query>,
) -> Result<TableFactor> {
    let (mut data, mut alias, called) = match relation {
        TableFactor::Table { name, alias, args: None, .. } => {
            let parts: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
            let called = alias.as_ref().map(|a| a.name.clone()).or_else(|| parts.last().cloned());
            (Expr::CompoundIdentifier(parts), alias.clone(), called)
        }
        TableFactor::Derived { subquery, alias, .. } => {
            (Expr::Subquery(subquery.clone()), alias.clone(), alias.as_ref().map(|a| a.name.clone()))
        }
        other => {
            let what = format!("GROUP BY {} over this form of FROM", call.name);
            return refused(&what, other.span(), "group by window_start and window_end of the window in FROM");
        }
    };
    if let Some(filtered) = filtered {
        let named = called.clone().map(|name| TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        alias = alias.or(named);
        data = Expr::Subquery(Box::new(filtered));
    }
    let own = |expr: &Expr| unqualified(expr, called.as_ref());
    let unnamed = |expr: Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    let mut args = vec![unnamed(data)];
    if !keys.is_empty() {
        args.push(FunctionArg::Named {
            name: Ident::with_quote('"', PARTITION_BY),
            arg: FunctionArgExpr::Expr(Expr::Tuple(keys.iter().map(own).collect())),
            operator: FunctionArgOperator::RightArrow,
        });
    }
    for (at, arg) in arguments(call).into_iter().enumerate() {
        args.push(match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(time)) if at == 0 => unnamed(own(&time)),
            other => other,
        });
    }
    let mut function = call.clone();
    if let FunctionArguments::List(list) = &mut function.args {
        list.args = args;
    }
    Ok(TableFactor::TableFunction { expr: Expr::Function(function), alias })
}

/// A column without the name of its table, which the table function does not know.
fn unqualified(column: &Expr, table: Option<&Ident>) -> Expr {
    match column {
        Expr::CompoundIdentifier(parts)
            if parts.len() > 1 && parts.first().map(|p| &p.value) == table.map(|t| &t.value) =>
        {
            match &parts[1..] {
                [only] => Expr::Identifier(only.clone()),
                rest => Expr::CompoundIdentifier(rest.to_vec()),
            }
        }
        other => other.clone(),
    }
}

/// Replaces `TUMBLE_START(..)` and its like by the window's columns.
struct Properties {
    name: String,
    arguments: Vec<FunctionArg>,
}

impl Properties {
    fn replace(&self, expr: &mut Expr) -> Result<()> {
        let Expr::Function(call) = expr else {
            return Ok(());
        };
        let called = call.name.to_string().to_ascii_uppercase();
        let Some(property) = called.strip_prefix(&self.name) else {
            return Ok(());
        };
        let column = match property {
            "_START" => WINDOW_COLUMNS[0],
            "_END" => WINDOW_COLUMNS[1],
            "_ROWTIME" => WINDOW_COLUMNS[2],
            _ => return Ok(()),
        };
        let text = |args: &[FunctionArg]| args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if text(&arguments(call)) != text(&self.arguments) {
            return Err(StreamError::Invalid {
                message: format!(
                    "{called} must have the arguments of {} in GROUP BY: {called}({})",
                    self.name,
                    text(&self.arguments)
                ),
                position: position(call.name.span().start),
            });
        }
        *expr = Expr::Identifier(Ident::new(column));
        Ok(())
    }
}
