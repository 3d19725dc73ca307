//! How large a plan may be once its views and common table expressions stand in it.
//!
//! Each of them is written out where it is named: thirty views that name the one before twice make a plan of 2^30 tables.

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;
use savanna_streams_model::StreamError;

use super::context::external;

/// Tables, joins, projections, .. of a plan. The time to plan it grows with the square.
const NODES_MAX: usize = 500;

/// Gives the plan back if it is not too large.
///
/// # Errors
/// [`StreamError::TooComplex`].
pub(super) fn check(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut open = vec![&plan];
    let mut count = 0;
    while let Some(node) = open.pop() {
        count += 1;
        if count > NODES_MAX {
            return Err(external(StreamError::TooComplex {
                message: format!(
                    "the statement has more than {NODES_MAX} tables, joins and subqueries, those of its views included; write \
                     parts of it into tables with INSERT INTO"
                ),
            }));
        }
        open.extend(node.inputs());
    }
    Ok(plan)
}
