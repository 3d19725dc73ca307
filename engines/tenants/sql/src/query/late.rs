//! What is computed of a query's rows after they are sorted, as in PostgreSQL: a sequence gives its numbers in their order and only to rows
//! that are taken, and a function that returns rows does so for what `DISTINCT ON` leaves.

use std::sync::Arc;

use savanna_tenants_values::types::Type;

use crate::{
    expression::Expr,
    plan::{
        OutputColumn,
        query::{Body, Distinct, Joined, Node, Query, Rows, Select},
    },
};

/// A query whose volatile outputs, and functions that return rows, are computed by one around it, if it sorts its rows by others.
pub(crate) fn postponed(mut query: Query) -> Query {
    let outer = query.outer;
    let (keys, visible) = (keys_of(&query), query.columns.len());
    let Body::Select(select) = &mut query.body else { return query };
    let Some(keys) = keys else { return query };
    let width = select.width(outer);
    let of_sets = |expr: &Expr| expr.columns_end() > width;
    let is_key = |at: usize| keys.contains(&at);
    let arguments = || select.sets.iter().flatten().flat_map(|set| &set.arguments);
    let sets = !select.sets.is_empty()
        && !keys.iter().any(|at| of_sets(&select.outputs[*at]))
        && !select.outputs.iter().any(|output| of_sets(output) && output.asks())
        && !arguments().any(Expr::asks);
    let is_late = |at: usize, output: &Expr| {
        at < visible && !is_key(at) && !output.asks() && (output.is_volatile() || sets && of_sets(output))
    };
    if !select.outputs.iter().enumerate().any(|(at, output)| is_late(at, output)) {
        return query;
    }
    // What is inside gives what is early, and the columns that the rest is computed from.
    let late: Vec<bool> = select.outputs.iter().enumerate().map(|(at, output)| is_late(at, output)).collect();
    let mut outputs = std::mem::take(&mut select.outputs);
    let sets = if sets { std::mem::take(&mut select.sets) } else { Vec::new() };
    let mut inner: Vec<Expr> = Vec::new();
    for (output, late) in outputs.iter().zip(&late) {
        inner.push(if *late { Expr::NULL } else { output.clone() });
    }
    let from_sets = if sets.is_empty() { usize::MAX } else { width };
    let mut read = Vec::new();
    let arguments = sets.iter().flatten().flat_map(|set| &set.arguments);
    for expr in outputs.iter().zip(&late).filter_map(|(output, late)| late.then_some(output)).chain(arguments) {
        expr.columns(&mut |column| read.push(column));
    }
    read.retain(|column| (outer..from_sets).contains(column));
    read.sort_unstable();
    read.dedup();
    let begin = outer + inner.len();
    inner.extend(read.iter().map(|column| Expr::Column(*column)));
    let around = outer + inner.len();
    let moved = |column: usize| match read.binary_search(&column) {
        _ if column < outer => column,
        _ if column >= from_sets => column - from_sets + around,
        Ok(at) => begin + at,
        Err(_) => column,
    };
    let mut sets = sets;
    sets.iter_mut().flatten().flat_map(|set| &mut set.arguments).for_each(|argument| place(argument, &moved));
    outputs.truncate(visible);
    for (at, output) in outputs.iter_mut().enumerate() {
        match late[at] {
            true => place(output, &moved),
            // What reads no row is the same outside.
            false if matches!(output, Expr::Constant(_) | Expr::Parameter(_)) => {}
            false => *output = Expr::Column(outer + at),
        }
    }
    select.outputs = inner;
    let more = select.outputs.len() - visible;
    let shown = query.columns.clone();
    query.columns.extend((0..more).map(|_| OutputColumn { name: String::new(), of: Type::Unknown, origin: (0, 0) }));
    let arguments = query.arguments();
    let rows = Rows { query: Arc::new(query), alias: String::new(), base: outer, arguments };
    let rows = Joined { condition: None, node: Node::Rows(rows), width: around, keys: 0, in_order: false };
    let select = Select { sets, ..Select::of(rows, outputs) };
    Query::new(outer, Body::Select(Box::new(select)), shown)
}

/// The outputs by which a query's rows are sorted or distinct; `None` if it does not sort them before all else.
fn keys_of(query: &Query) -> Option<Vec<usize>> {
    let Body::Select(select) = &query.body else { return None };
    let on = match &select.distinct {
        None => &[],
        Some(Distinct::On(on)) => on.as_slice(),
        Some(Distinct::All) => return None,
    };
    let sorts = query.locking.is_none() && (!query.order.is_empty() || !on.is_empty());
    sorts.then(|| query.order.iter().map(|key| key.at).chain(on.iter().copied()).collect())
}

fn place(expr: &mut Expr, moved: &impl Fn(usize) -> usize) {
    if let Expr::Column(column) = expr {
        *column = moved(*column);
    }
    // Nothing fails in it.
    _ = expr.children_mut(&mut |child| {
        place(child, moved);
        Ok(())
    });
}

impl Select {
    /// Columns of the row that functions that return rows are computed over.
    fn width(&self, outer: usize) -> usize {
        let rows = match &self.grouping {
            None => self.rows.width,
            Some(grouping) => {
                outer + grouping.keys.len() + grouping.aggregates.len() + usize::from(grouping.sets.is_some())
            }
        };
        rows + self.windows.len()
    }
}
