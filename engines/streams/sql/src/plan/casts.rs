//! Casts whose results may be large ask for room first, as functions do.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use savanna_streams_functions::bounded_cast;

/// Applies the rule to a whole plan, once all types are settled.
pub(super) fn bounded(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            if !expr.exists(|part| Ok(matches!(part, Expr::Cast(_) | Expr::TryCast(_))))? {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|part| bounded_cast(part, &schema).map(Transformed::yes))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(plan.data)
}
