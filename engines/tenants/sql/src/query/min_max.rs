//! The smallest and the largest value of a column, which stand at the ends of an index.

use std::sync::Arc;

use savanna_tenants_values::value::Value;

use crate::{
    expression::{
        Expr,
        aggregate::{Aggregate, Kind},
    },
    plan::{
        OutputColumn,
        query::{Body, Grouping, Joined, Node, Query, Select, SortKey, Test},
    },
    query::{
        from::{From, Item},
        index_order::{Wanted, in_order, without_null},
        select::Planner,
    },
};

impl Planner<'_> {
    /// Queries for the aggregates of rows that are not grouped, if each is the first of a table's rows in the order of an index.
    pub(crate) fn ends(&mut self, from: &From<'_>, grouping: &Grouping, outer: usize) -> Option<Vec<Expr>> {
        let whole = grouping.keys.is_empty() && grouping.sets.is_none() && !grouping.aggregates.is_empty();
        let one_table = matches!(from.joined.items.as_slice(), [Item::Table { .. }]);
        let volatile = from.joined.conditions.iter().any(Expr::is_volatile);
        if !whole || !one_table || volatile {
            return None;
        }
        grouping.aggregates.iter().map(|aggregate| self.end(from, aggregate, outer)).collect()
    }

    /// The first row in an order, as a value.
    fn end(&mut self, from: &From<'_>, aggregate: &Aggregate, outer: usize) -> Option<Expr> {
        let descending = match aggregate.kind {
            Kind::Min => false,
            Kind::Max => true,
            _ => return None,
        };
        let (Some(argument), None) = (&aggregate.argument, &aggregate.filter) else { return None };
        let mut joined = from.joined.clone();
        if descending {
            // NULL is the largest in an index.
            joined.conditions.push(Expr::Not(Box::new(Expr::IsNull(Box::new(argument.clone())))));
        }
        let mut rows = self.join(joined, &from.scope, outer);
        let outputs = vec![argument.clone()];
        let order = vec![SortKey { at: 0, descending, nulls_first: descending }];
        if !in_order(&mut rows, &outputs, order, (Wanted::FirstInOrder, true)).0.is_empty() {
            return None;
        }
        if descending && let Some(scan) = rows.node.leading_scan() {
            without_null(scan, argument);
        }
        rows.want(&outputs);
        let select = Select::of(rows, outputs);
        let columns = vec![OutputColumn { name: String::new(), of: aggregate.of, origin: (0, 0) }];
        let limit = Some(Expr::Constant(Value::Int(1)));
        let query = Arc::new(Query { limit, ..Query::new(outer, Body::Select(Box::new(select)), columns) });
        Some(self.answer(Test::Scalar(0), query))
    }
}

/// One row without tables, if a condition over aggregates holds whose values these are.
pub(crate) fn one_row(having: Option<Expr>, values: &[Expr], outer: usize) -> Joined {
    let condition = having.map(|mut having| {
        put(&mut having, values, outer);
        having
    });
    Joined { condition, node: Node::One, width: outer, keys: 0, in_order: false }
}

/// Puts values in the place of aggregates.
pub(crate) fn put(expr: &mut Expr, values: &[Expr], outer: usize) {
    if let Expr::Column(at) = expr
        && let Some(value) = at.checked_sub(outer).and_then(|at| values.get(at))
    {
        *expr = value.clone();
        return;
    }
    // Nothing fails in it.
    _ = expr.children_mut(&mut |child| {
        put(child, values, outer);
        Ok(())
    });
}
