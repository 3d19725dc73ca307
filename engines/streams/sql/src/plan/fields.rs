//! `person.id`: a field of a `ROW` column, which takes the name of the field.

use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, Result, TableReference};
use datafusion::functions::core::get_field;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, lit};

/// Plans a compound identifier into `ROW` fields. Comes before DataFusion's own, which would name the result
/// `datagen.person[id]`.
#[derive(Debug)]
pub(super) struct RowFields;

impl ExprPlanner for RowFields {
    /// `map['key']`: the key in the type that the map has. (DataFusion would compare another text type with it.)
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let (DataType::Map(entries, _), GetFieldAccess::NamedStructField { name }) =
            (access.expr.get_type(schema)?, &access.field_access)
        else {
            return Ok(PlannerResult::Original(access));
        };
        match entries.data_type() {
            DataType::Struct(entry) if !entry.is_empty() => {
                let key = lit(name.cast_to(entry[0].data_type())?);
                Ok(PlannerResult::Planned(get_field().call(vec![access.expr, key])))
            }
            _ => Ok(PlannerResult::Original(access)),
        }
    }

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
