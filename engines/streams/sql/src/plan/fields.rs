//! Parts of values: `person.id`, a field of a `ROW`, which takes the name of the field; elements of arrays, values of maps.

use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::functions::core::get_field;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, cast, lit};
use savanna_streams_api::{StreamError, type_name};
use savanna_streams_functions::scalar;

use super::context::external;
use savanna_streams_model::names::hint;

/// Plans a compound identifier into `ROW` fields. Comes before DataFusion's own, which would name the result
/// `datagen.person[id]`.
#[derive(Debug)]
pub(super) struct RowFields;

impl ExprPlanner for RowFields {
    /// `map['key']`, `array[1]`, `row['field']`.
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let RawFieldAccessExpr { expr, field_access } = access;
        let data_type = expr.get_type(schema)?;
        let wrong = |message: String| Err(external(StreamError::invalid(message)));
        let value = called(&expr);
        match (&data_type, &field_access) {
            (DataType::Map(entries, _), GetFieldAccess::NamedStructField { .. } | GetFieldAccess::ListIndex { .. }) => {
                let DataType::Struct(entry) = entries.data_type() else {
                    return wrong(format!("{value} is not a MAP"));
                };
                let key = match field_access {
                    GetFieldAccess::NamedStructField { name } => lit(name),
                    GetFieldAccess::ListIndex { key } => *key,
                    GetFieldAccess::ListRange { .. } => return wrong(format!("{value} is a map and has no ranges")),
                };
                value_of(expr, key, entry[0].data_type(), schema).map(PlannerResult::Planned)
            }
            (DataType::Map(..), _) => wrong(format!("{value} is a map and has no ranges; read one value by its key")),
            (DataType::Struct(fields), GetFieldAccess::NamedStructField { name }) => {
                let name = name.to_string();
                if fields.iter().any(|field| *field.name() == name) {
                    return Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access }));
                }
                let known = fields.iter().map(|field| field.name().as_str());
                Err(external(StreamError::Unknown {
                    kind: "field".into(),
                    hint: hint(&name, known, "fields here"),
                    name,
                    position: None,
                }))
            }
            (DataType::Struct(_), _) => wrong(format!("{value} is a ROW; read a field of it by name, as in r.field")),
            (DataType::List(_) | DataType::LargeList(_), GetFieldAccess::NamedStructField { .. }) => {
                wrong(format!("{value} is an array; read an element of it by number, from 1, as in a[1]"))
            }
            (DataType::List(_) | DataType::LargeList(_), _) => {
                Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access }))
            }
            (other, _) => wrong(format!("{value} is {} and has no elements or fields", type_name(other))),
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

/// The value of a map's key. The key must have the type of the map's keys: DataFusion would compare others with them.
fn value_of(map: Expr, key: Expr, key_type: &DataType, schema: &DFSchema) -> Result<Expr> {
    let given = key.get_type(schema)?;
    if !same_kind(&given, key_type) {
        let (given, wanted) = (type_name(&given), type_name(key_type));
        let message = format!("the keys of {} are {wanted}, but {} is {given}", called(&map), called(&key));
        return Err(external(StreamError::invalid(message)));
    }
    match key {
        Expr::Literal(value, _) => Ok(get_field().call(vec![map, lit(value.cast_to(key_type)?)])),
        key => {
            let values = scalar("map_extract")?.call(vec![map, cast(key, key_type.clone())]);
            Ok(scalar("array_element")?.call(vec![values, lit(1_i64)]))
        }
    }
}

/// What a value is called in messages.
fn called(value: &Expr) -> String {
    match value {
        Expr::Column(column) => column.name.clone(),
        Expr::Alias(alias) => alias.name.clone(),
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => format!("'{text}'"),
        Expr::Literal(value, _) => value.to_string(),
        _ => "the value".into(),
    }
}

fn same_kind(one: &DataType, other: &DataType) -> bool {
    one == other || (one.is_string() && other.is_string()) || (one.is_integer() && other.is_integer())
}
