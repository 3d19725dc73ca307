//! `person.id`: a field of a `ROW` column, which takes the name of the field.

use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, Result, TableReference};
use datafusion::functions::core::get_field;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::{Expr, lit};

/// Plans a compound identifier into `ROW` fields. Comes before DataFusion's own, which would name the result
/// `datagen.person[id]`.
#[derive(Debug)]
pub(super) struct RowFields;

impl ExprPlanner for RowFields {
    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        nested_names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let mut data_type = field.data_type();
        let mut expr = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        for (depth, name) in nested_names.iter().enumerate() {
            let inner = match data_type {
                DataType::Struct(fields) => fields.iter().find(|f| f.name() == name),
                _ => None,
            };
            let Some(inner) = inner else {
                // An error here would be swallowed; a column that cannot exist is found by name later.
                let path = std::iter::once(field.name()).chain(&nested_names[..=depth]).map(String::as_str);
                let missing = path.collect::<Vec<_>>().join(".");
                return Ok(PlannerResult::Planned(Expr::Column(Column::new_unqualified(missing))));
            };
            data_type = inner.data_type();
            expr = get_field().call(vec![expr, lit(name.as_str())]);
        }
        let name = nested_names.last().map_or_else(|| field.name().as_str(), String::as_str);
        Ok(PlannerResult::Planned(expr.alias(name)))
    }
}
