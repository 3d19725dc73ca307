//! What arithmetic gives is looked at.
//!
//! There is one NaN. A processor gives 0 / 0 another sign than a NaN that was read, and comparisons, groups and joins go by bits:
//! so what arithmetic gives, and what a text is cast to, gets the sign that all have.
//!
//! A decimal has 38 digits. Arithmetic looks at the 128 bits only, in which there is room for some numbers of 39.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast};
use savanna_streams_functions::{in_digits, may_overflow, one_nan};

use super::rewrite;

/// Applies the rule to a whole plan.
pub(super) fn checked(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        rewrite::expressions(node, |expr, schema| in_expression(expr, schema, false))
    })?;
    Ok(plan.data)
}

/// Applies the rule to an expression; within arithmetic, the outermost operator is enough.
fn in_expression(expr: Expr, schema: &DFSchema, within: bool) -> Result<Transformed<Expr>> {
    let check = check_of(&expr, schema);
    let rewritten = expr.map_children(|child| in_expression(child, schema, check.is_some()))?;
    Ok(match check {
        Some(check) if !within => Transformed::yes(check(rewritten.data)),
        _ => rewritten,
    })
}

/// What looks at the value of an expression, if it may be none that there is.
fn check_of(expr: &Expr, schema: &DFSchema) -> Option<fn(Expr) -> Expr> {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    let is_text = |inner: &Expr| inner.get_type(schema).is_ok_and(|data_type| data_type.is_string());
    let computes = match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => matches!(op, Plus | Minus | Multiply | Divide | Modulo),
        Expr::Negative(_) => true,
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => is_text(expr),
        _ => false,
    };
    match expr.get_type(schema).ok().filter(|_| computes)? {
        DataType::Float32 | DataType::Float64 => Some(one_nan),
        decimal if may_overflow(&decimal) => Some(in_digits),
        _ => None,
    }
}
