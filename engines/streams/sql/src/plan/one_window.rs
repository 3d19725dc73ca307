//! What a plan over each closed window need not compute because it sees one window at a time: there, columns that carry the
//! window are constants.
//!
//! ```text
//!   SELECT max(n), s, e .. GROUP BY s, e   ->   SELECT max(n), min(s), min(e) ..       of no groups; no row of no rows
//!   a JOIN b ON a.e = b.e AND a.n >= b.m   ->   b JOIN a ON a.n >= b.m                 if b has one row
//! ```
//!
//! Without this, all rows of a window would have one value of the hashes by which they are grouped and joined.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, Result as DfResult};
use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion::logical_expr::{Aggregate, Expr, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder, col, lit};

use super::chain::Base;
use super::region::Leaf;

/// How many rows the only group has.
const ROWS: &str = "rows";

/// An aggregate whose groups are windows, as one without groups.
pub(super) fn ungrouped(aggregate: &Aggregate) -> DfResult<LogicalPlan> {
    let windows = aggregate.group_expr.iter().map(|window| min(window.clone()));
    let functions = aggregate.aggr_expr.iter().map(|function| function.clone().unalias_nested().data);
    let values: Vec<Expr> = windows.chain(functions).collect();
    let name = |place: usize| format!("value{place}");
    let named = values.into_iter().enumerate().map(|(place, value)| value.alias(name(place)));
    let computed = named.chain([count(lit(1_i64)).alias(ROWS)]).collect::<Vec<_>>();
    let one = Aggregate::try_new(Arc::clone(&aggregate.input), Vec::new(), computed)?;
    let columns = aggregate.schema.iter().enumerate();
    let columns = columns.map(|(place, (q, field))| col(name(place)).alias_qualified(q.cloned(), field.name()));
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(one)).filter(col(ROWS).gt(lit(0_i64)))?.project(columns)?.build()
}

/// An inner join with the side on the left that has one row, if only the right has: the left is kept in a table, by which the
/// rows of the right pass.
pub(super) fn one_row_first(join: Join) -> DfResult<LogicalPlan> {
    if join.join_type != JoinType::Inner || !has_one_row(&join.right) || has_one_row(&join.left) {
        return Ok(LogicalPlan::Join(join));
    }
    let columns = join.schema.iter().map(|(q, field)| Expr::Column(Column::new(q.cloned(), field.name())));
    let columns: Vec<Expr> = columns.collect();
    let swapped = Join::try_new(
        join.right,
        join.left,
        join.on.into_iter().map(|(left, right)| (right, left)).collect(),
        join.filter,
        JoinType::Inner,
        JoinConstraint::On,
        join.null_equality,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(swapped)).project(columns)?.build()
}

/// Whether a plan gives at most one row for each window.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().iter().all(|input| has_one_row(input))
        }
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::TableScan(scan) => scan.source.downcast_ref::<Leaf>().is_some_and(|leaf| match &leaf.chain.base {
            Base::Aggregate(aggregate) => leaf.chain.window.is_none() && aggregate.keys == 0,
            _ => false,
        }),
        _ => false,
    }
}
