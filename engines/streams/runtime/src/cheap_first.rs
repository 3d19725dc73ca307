//! Conditions in which a regular expression stands beside something cheap: it is asked only where that leaves the answer open.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// A condition for a filter, which takes NULL for false: `dear OR cheap` becomes
/// `CASE WHEN cheap THEN TRUE ELSE dear END`, `dear AND cheap` becomes `CASE WHEN cheap THEN dear ELSE FALSE END`.
/// A `CASE` asks its branches only for the rows that come to them.
pub(crate) fn cheap_first(condition: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let Some(both) = condition.downcast_ref::<BinaryExpr>() else {
        return Ok(condition);
    };
    let (cheap, dear) = match (is_dear(both.left()), is_dear(both.right())) {
        (true, false) => (both.right(), both.left()),
        (false, true) => (both.left(), both.right()),
        _ => return Ok(condition),
    };
    let (cheap, dear) = (Arc::clone(cheap), cheap_first(Arc::clone(dear))?);
    let (then, otherwise) = match both.op() {
        Operator::Or => (lit(true), dear),
        Operator::And => (dear, lit(false)),
        _ => return Ok(condition),
    };
    Ok(Arc::new(CaseExpr::try_new(None, vec![(cheap, then)], Some(otherwise))?))
}

/// Whether a regular expression is matched somewhere in it.
fn is_dear(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| call.name().starts_with("regexp"))
        || expression.children().into_iter().any(is_dear)
}
