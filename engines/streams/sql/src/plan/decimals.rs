//! Literals such as `0.5` are decimals, so that `0.5 * price` is exact. Beside a DOUBLE they are doubles: without this rule
//! DataFusion would turn the *column* into a decimal of 15 digits.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan};

/// Applies the rule to a whole plan, before types are settled.
pub(super) fn beside_doubles(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let mut schema = merge_schema(&node.inputs());
        if node.inputs().is_empty() {
            schema.merge(node.schema());
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = in_expression(expr, &schema)?;
            Ok(rewritten.update_data(|e| name.restore(e)))
        })?
        .map_data(|node| node.recompute_schema())
    })?;
    Ok(plan.data)
}

/// Applies the rule to one expression.
pub(super) fn in_expression(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_double = |e: &Expr| e.get_type(schema).is_ok_and(|t| t.is_floating());
    expr.transform_up(|e| {
        Ok(match e {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_double(&left) && is_decimal(&right) => {
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right: Box::new(double(*right)) }))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_decimal(&left) && is_double(&right) => {
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: Box::new(double(*left)), op, right }))
            }
            Expr::Between(Between { expr, negated, low, high }) if is_double(&expr) => {
                Transformed::yes(Expr::Between(Between {
                    expr,
                    negated,
                    low: Box::new(double(*low)),
                    high: Box::new(double(*high)),
                }))
            }
            Expr::InList(InList { expr, list, negated }) if is_double(&expr) => {
                let list = list.into_iter().map(double).collect();
                Transformed::yes(Expr::InList(InList { expr, list, negated }))
            }
            other => Transformed::no(other),
        })
    })
}

fn is_decimal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.data_type().is_decimal(),
        Expr::Negative(inner) => is_decimal(inner),
        _ => false,
    }
}

/// A decimal literal as a double; anything else as it is.
fn double(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(value, metadata) if value.data_type().is_decimal() => {
            match value.cast_to(&arrow::datatypes::DataType::Float64) {
                Ok(double @ ScalarValue::Float64(_)) => Expr::Literal(double, metadata),
                _ => Expr::Literal(value, metadata),
            }
        }
        Expr::Negative(inner) => Expr::Negative(Box::new(double(*inner))),
        other => other,
    }
}
