//! Expressions on their own: types of computed columns, lengths of intervals, simplification.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::{DFSchema, DFSchemaRef, ScalarValue};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::ColumnDef;

use super::context::{Names, NoTables};
use super::errors;
use savanna_streams_functions::session;

/// The type and nullability of an expression over the columns that a table reads.
pub(crate) fn typed(sql: &ast::Expr, physical: &[ColumnDef]) -> Result<(DataType, bool)> {
    super::refuse::check_expression(sql)?;
    let fields: Vec<_> =
        physical.iter().map(|c| arrow::datatypes::Field::new(&c.name, c.data_type.clone(), c.nullable)).collect();
    let derive = || {
        let schema = Arc::new(DFSchema::try_from(Schema::new(fields))?);
        let expr = Names::new(&NoTables).expression(sql.clone(), &schema)?;
        super::conditions::in_expression(&expr, &schema)?;
        let expr = super::decimals::in_expression(expr, &schema)?.data;
        let expr = simplifier(&schema).coerce(expr, &schema)?;
        Ok((expr.get_type(schema.as_ref())?, expr.nullable(schema.as_ref())?))
    };
    derive().map_err(|e| errors::map(&e, None, &NoTables))
}

/// The length of a constant interval in microseconds. `what` names it in errors.
pub(crate) fn interval_micros(sql: &ast::Expr, what: &str) -> Result<i64> {
    let empty = DFSchema::empty();
    let wrong = || {
        StreamError::invalid(format!(
            "{what} must be a constant interval of fixed length, such as INTERVAL '10' SECOND, but is {sql}"
        ))
    };
    let expr = Names::new(&NoTables).expression(sql.clone(), &empty).map_err(|_| wrong())?;
    let expr = simplify(expr, &Arc::new(empty)).map_err(|_| wrong())?;
    let Expr::Literal(value, _) = expr else {
        return Err(wrong());
    };
    literal_micros(&value).ok_or_else(wrong)
}

pub(super) fn literal_micros(value: &ScalarValue) -> Option<i64> {
    const DAY_MS: i64 = 86_400_000;
    match value {
        ScalarValue::IntervalMonthDayNano(Some(i)) if i.months == 0 && i.nanoseconds % 1_000 == 0 => {
            i64::from(i.days).checked_mul(DAY_MS * 1_000)?.checked_add(i.nanoseconds / 1_000)
        }
        ScalarValue::IntervalDayTime(Some(i)) => {
            (i64::from(i.days) * DAY_MS + i64::from(i.milliseconds)).checked_mul(1_000)
        }
        _ => None,
    }
}

/// Folds constants and drops what they decide.
pub(super) fn simplify(expr: Expr, schema: &DFSchemaRef) -> Result<Expr> {
    simplifier(schema).simplify(expr).map_err(|e| errors::map(&e, None, &NoTables))
}

fn simplifier(schema: &DFSchemaRef) -> ExprSimplifier {
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(schema))
        .with_config_options(Arc::clone(session().config_options()))
        .build();
    ExprSimplifier::new(context)
}
