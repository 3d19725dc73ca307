//! A day is no number: the library makes one of the other by itself where both come together, as days since 1970.

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan};
use savanna_streams_api::{StreamError, type_name};

use super::context::external;

/// Refuses a plan in which days became numbers, or numbers days, when every expression got its type. Where the query itself says so
/// with a CAST, that counts for all of it.
pub(super) fn checked(written: &LogicalPlan, typed: LogicalPlan) -> Result<LogicalPlan> {
    match cast(&typed)? {
        Some((from, to)) if cast(written)?.is_none() => Err(external(StreamError::invalid(format!(
            "{} and {} come together, and have no type in common; CAST one of them to the type of the other",
            type_name(&from),
            type_name(&to)
        )))),
        _ => Ok(typed),
    }
}

/// A cast between days and whole numbers.
fn cast(plan: &LogicalPlan) -> Result<Option<(DataType, DataType)>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::Cast(Cast { expr, field }) = part {
                    let (from, to) = (expr.get_type(&schema)?, field.data_type());
                    let is_day = |of: &DataType| *of == DataType::Date32;
                    if is_day(&from) && to.is_integer() || from.is_integer() && is_day(to) {
                        found = Some((from, to.clone()));
                        return Ok(TreeNodeRecursion::Stop);
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}
