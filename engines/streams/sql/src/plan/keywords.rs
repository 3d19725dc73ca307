//! Calls that are written with keywords, `EXTRACT(HOUR FROM t)` and `SUBSTRING(s FROM 2 FOR 3)`, as calls of our functions.

use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};

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
