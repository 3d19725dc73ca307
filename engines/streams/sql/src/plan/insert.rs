//! `INSERT INTO`: the query's columns as the table's.

use std::sync::Arc;

use arrow::datatypes::{DataType, Fields};
use datafusion::common::Column;
use datafusion::functions::core::{get_field, named_struct};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Projection, lit};
use datafusion::scalar::ScalarValue;
use savanna_streams_api::{Position, Result, StreamError};
use savanna_streams_model::catalog::{ColumnDef, TableDef};

use super::chain::broken;
use crate::types::{assignable, is_unnamed};
use savanna_streams_api::type_name;
use savanna_streams_functions::not_null;
use savanna_streams_model::names::hint;

/// Puts a projection on a query that gives a table's columns in order, cast where that loses nothing silently.
/// `place` tells where a column of the query is written.
pub(super) fn coerce(
    plan: LogicalPlan,
    table: &TableDef,
    columns: &[String],
    place: &dyn Fn(usize) -> Option<Position>,
) -> Result<LogicalPlan> {
    let targets: Vec<&ColumnDef> = table.columns.iter().filter(|c| c.computed.is_none()).collect();
    let given = given(table, &targets, columns)?;
    let have = plan.schema().fields().len();
    if have != given.len() {
        let names: Vec<&str> = given.iter().map(|c| c.name.as_str()).collect();
        let message = format!(
            "INSERT INTO {} needs {} columns ({}), but the query has {have}; select as many, or name those that you fill: INSERT INTO {} (..)",
            table.name,
            given.len(),
            names.join(", "),
            table.name
        );
        let first_too_many = if have > given.len() { given.len() } else { 0 };
        return Err(StreamError::Invalid { message, position: place(first_too_many) });
    }
    let mut exprs = Vec::with_capacity(targets.len());
    for target in &targets {
        let Some(at) = given.iter().position(|g| g.name == target.name) else {
            if !target.nullable {
                return Err(StreamError::invalid(format!(
                    "INSERT INTO {} gives column {} no value, but it is NOT NULL; name it and select a value for it",
                    table.name, target.name
                )));
            }
            let null = ScalarValue::try_from(&target.data_type).map_err(broken)?;
            exprs.push(lit(null).alias(&target.name));
            continue;
        };
        let (qualifier, field) = plan.schema().qualified_field(at);
        if !assignable(field.data_type(), &target.data_type) {
            let message = format!(
                "column {} of {} is {}, but column {} of the query ({}) is {}; CAST it",
                target.name,
                table.name,
                type_name(&target.data_type),
                at + 1,
                field.name(),
                type_name(field.data_type())
            );
            return Err(StreamError::Invalid { message, position: place(at) });
        }
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let cast = match (field.data_type(), &target.data_type) {
            (DataType::Struct(from), DataType::Struct(to)) if is_unnamed(from) => named(&column, from, to),
            (_, to) => column.cast_to(to, plan.schema().as_ref()).map_err(broken)?,
        };
        let may_be_null = !target.nullable && cast.nullable(plan.schema().as_ref()).map_err(broken)?;
        let value = match may_be_null {
            true => not_null(cast, &format!("column {} of {}", target.name, table.name)),
            false => cast,
        };
        exprs.push(value.alias(&target.name));
    }
    Projection::try_new(exprs, Arc::new(plan)).map(LogicalPlan::Projection).map_err(broken)
}

/// The fields of `ROW(..)` under the names of the column that takes them.
fn named(row: &Expr, from: &Fields, to: &Fields) -> Expr {
    let fields = from.iter().zip(to).flat_map(|(from, to)| {
        let value = get_field().call(vec![row.clone(), lit(from.name().as_str())]);
        [lit(to.name().as_str()), Expr::Cast(Cast::new(Box::new(value), to.data_type().clone()))]
    });
    named_struct().call(fields.collect())
}

fn given<'t>(table: &TableDef, targets: &[&'t ColumnDef], columns: &[String]) -> Result<Vec<&'t ColumnDef>> {
    if columns.is_empty() {
        return Ok(targets.to_vec());
    }
    let mut given: Vec<&ColumnDef> = Vec::new();
    for name in columns {
        match targets.iter().find(|t| t.name == *name) {
            Some(target) => given.push(target),
            None if table.columns.iter().any(|c| c.name == *name) => {
                return Err(StreamError::invalid(format!(
                    "column {name} of {} is computed and cannot be written; leave it out",
                    table.name
                )));
            }
            None => {
                return Err(StreamError::Unknown {
                    kind: "column".into(),
                    name: name.clone(),
                    position: None,
                    hint: hint(name, targets.iter().map(|t| t.name.as_str()), "columns of the table"),
                });
            }
        }
    }
    Ok(given)
}
