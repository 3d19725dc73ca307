//! Calls that are written with keywords or operators, `EXTRACT(HOUR FROM t)`, `SUBSTRING(s FROM 2 FOR 3)` and `a || b`, as calls
//! of our functions.

use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use savanna_streams_functions::scalar;

/// Comes before DataFusion's own.
#[derive(Debug)]
pub(super) struct Keywords;

impl ExprPlanner for Keywords {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(scalar("extract")?.call(args)))
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(scalar("substr")?.call(args)))
    }
}

/// `||` of texts is `CONCAT`, whose result is bounded.
#[derive(Debug)]
pub(super) struct Joined;

impl ExprPlanner for Joined {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_text = |side: &Expr| side.get_type(schema).is_ok_and(|data_type| data_type.is_string());
        if expr.op != BinaryOperator::StringConcat || !is_text(&expr.left) || !is_text(&expr.right) {
            return Ok(PlannerResult::Original(expr));
        }
        // A chain is one call, so that it is not deep.
        let mut parts = match expr.left {
            Expr::ScalarFunction(call) if call.name() == "concat" => call.args,
            other => vec![other],
        };
        parts.push(expr.right);
        Ok(PlannerResult::Planned(scalar("concat")?.call(parts)))
    }
}
