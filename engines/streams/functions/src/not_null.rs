//! `not_null(value, 'column ..')`: the value, which must be there. `INSERT` puts it around what goes into a column that is
//! `NOT NULL`.

use std::sync::Arc;

use arrow::array::Array;
use datafusion::common::{exec_err, plan_err};
use datafusion::logical_expr::{Expr, ScalarUDF, lit};

use super::definition::Definition;

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Definition::any(
        "not_null",
        2,
        |types| match types {
            [value, _] => Ok(value.clone()),
            other => plan_err!("not_null takes a value and what it is called, but got {} arguments", other.len()),
        },
        |call| {
            let values = call.column(0)?;
            if values.null_count() == 0 {
                return Ok(values);
            }
            let column = call.constant(1)?;
            exec_err!(
                "{column} is NOT NULL, but a row has NULL for it; leave such rows out, or give them a value with COALESCE"
            )
        },
    )
}

/// A value that must be there; `column` says where, in errors.
#[must_use]
pub fn not_null(value: Expr, column: &str) -> Expr {
    function().call(vec![value, lit(column)])
}
