//! A condition is BOOLEAN: a number or a text in its place is refused, before DataFusion would make a truth value of it.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use savanna_streams_api::{StreamError, type_name};
use savanna_streams_model::foreign::in_sql;

use super::context::external;

/// Looks at all conditions of a plan, before types are settled.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let mut schema = merge_schema(&node.inputs());
        if let LogicalPlan::Join(join) = node
            && let Some(on) = &join.filter
        {
            check_one(on, &schema)?;
        }
        if node.inputs().is_empty() {
            schema.merge(node.schema());
        }
        node.apply_expressions(|expr| in_expression(expr, &schema).map(|()| TreeNodeRecursion::Continue))
    })?;
    Ok(())
}

/// Looks at the conditions inside an expression.
pub(super) fn in_expression(expr: &Expr, schema: &DFSchema) -> Result<()> {
    expr.apply(|part| {
        match part {
            Expr::Case(case) if case.expr.is_none() => {
                case.when_then_expr.iter().try_for_each(|(when, _)| check_one(when, schema))?;
            }
            Expr::AggregateFunction(call) => call.params.filter.iter().try_for_each(|only| check_one(only, schema))?,
            Expr::Not(condition)
            | Expr::IsTrue(condition)
            | Expr::IsNotTrue(condition)
            | Expr::IsFalse(condition)
            | Expr::IsNotFalse(condition)
            | Expr::IsUnknown(condition)
            | Expr::IsNotUnknown(condition) => check_one(condition, schema)?,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The operands of `AND` and `OR`, which DataFusion looks at as soon as it meets them.
#[derive(Debug)]
pub(super) struct Operands;

impl ExprPlanner for Operands {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if matches!(expr.op, BinaryOperator::And | BinaryOperator::Or) {
            check_one(&expr.left, schema)?;
            check_one(&expr.right, schema)?;
        }
        Ok(PlannerResult::Original(expr))
    }
}

fn check_one(condition: &Expr, schema: &DFSchema) -> Result<()> {
    match condition.get_type(schema) {
        // What has no type fails in words of its own.
        Err(_) | Ok(DataType::Boolean | DataType::Null) => Ok(()),
        Ok(other) => Err(external(StreamError::invalid(not_boolean(&condition.to_string(), &type_name(&other))))),
    }
}

/// The message about a condition of another type.
pub(super) fn not_boolean(condition: &str, data_type: &str) -> String {
    // `count(1) AS count(*)`: what is behind is what was written.
    let condition = in_sql(condition.rsplit(" AS ").next().unwrap_or(condition));
    format!("{CONDITION}{condition} is {data_type}, not BOOLEAN; compare it with something")
}

/// Whether an error is one of a condition of another type.
pub(super) fn is_about_one(error: &StreamError) -> bool {
    matches!(error, StreamError::Invalid { message, .. } if message.starts_with(CONDITION))
}

/// How the message about a condition begins.
const CONDITION: &str = "the condition ";
