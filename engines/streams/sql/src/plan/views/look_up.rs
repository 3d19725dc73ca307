//! `SELECT columns FROM v WHERE key = literal`: the row of a key, without a plan.
//!
//! What is not plainly this is not answered here. So nothing here may give another answer than a plan would.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, Expr, Query as SqlQuery, Select, SelectItem, SetExpr, TableFactor, UnaryOperator, Value,
    WildcardAdditionalOptions,
};
use savanna_streams_api::Result;

use super::super::Catalog;
use crate::materialized::MaterializedView;
use crate::parse::{parse_query, single_name};

/// A query that is nothing but a table.
static PLAIN: LazyLock<Option<(SqlQuery, Select)>> = LazyLock::new(|| {
    let query = *parse_query("SELECT * FROM t").ok()?.ast;
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let select = select.as_ref().clone();
    Some((query, select))
});

/// The answer to a query that asks for the row of a key; none if it asks for something else.
pub(in crate::plan) fn look_up(query: &SqlQuery, catalog: &dyn Catalog) -> Result<Option<RecordBatch>> {
    let Some(asked) = Asked::of(query, catalog) else { return Ok(None) };
    let row = asked.view.row(&asked.key)?;
    let columns = match row {
        Some(row) => asked.columns.iter().map(|column| Arc::clone(row.column(*column))).collect(),
        None => asked.schema.fields().iter().map(|field| arrow::array::new_empty_array(field.data_type())).collect(),
    };
    let broken = |e: arrow::error::ArrowError| savanna_streams_api::StreamError::Internal(e.to_string());
    RecordBatch::try_new(asked.schema, columns).map(Some).map_err(broken)
}

/// A query for the row of a key.
struct Asked {
    view: Arc<dyn MaterializedView>,
    /// The columns that are asked for.
    columns: Vec<usize>,
    schema: SchemaRef,
    /// The values of the columns of the key.
    key: Vec<ArrayRef>,
}

impl Asked {
    fn of(query: &SqlQuery, catalog: &dyn Catalog) -> Option<Self> {
        let select = plain_select(query)?;
        let [from] = select.from.as_slice() else { return None };
        let TableFactor::Table { name, alias, .. } = &from.relation else { return None };
        let table = single_name(name)?;
        let view = catalog.materialized(&table)?;
        let known_as = match alias {
            Some(alias) if alias.columns.is_empty() => alias.name.value.as_str(),
            Some(_) => return None,
            None => table.as_str(),
        };
        let of = view.schema();
        let column = |expr: &Expr| match expr {
            Expr::Identifier(name) => of.index_of(&name.value).ok(),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] if table.value == known_as => of.index_of(&name.value).ok(),
                _ => None,
            },
            _ => None,
        };
        let key = key(select.selection.as_ref()?, view.as_ref(), &column)?;
        let (columns, schema) = columns(&select.projection, &of, &column)?;
        Some(Self { view, columns, schema, key })
    }
}

/// The `SELECT` of a query that has only columns, one table and a condition: without them it is as any other.
fn plain_select(query: &SqlQuery) -> Option<&Select> {
    let (plain_query, plain) = PLAIN.as_ref()?;
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let mut bare = select.as_ref().clone();
    bare.projection.clone_from(&plain.projection);
    bare.selection = None;
    let ([from], [plain_from]) = (bare.from.as_mut_slice(), plain.from.as_slice()) else { return None };
    let (TableFactor::Table { name, alias, .. }, TableFactor::Table { name: plain_name, .. }) =
        (&mut from.relation, &plain_from.relation)
    else {
        return None;
    };
    name.clone_from(plain_name);
    *alias = None;
    let rest = SqlQuery { body: plain_query.body.clone(), ..query.clone() };
    (bare == *plain && rest == *plain_query).then_some(select)
}

/// The columns that are asked for: all, or some by name, each once.
fn columns(
    projection: &[SelectItem],
    of: &SchemaRef,
    column: &impl Fn(&Expr) -> Option<usize>,
) -> Option<(Vec<usize>, SchemaRef)> {
    if let [SelectItem::Wildcard(options)] = projection {
        let is_plain = *options == WildcardAdditionalOptions::default();
        return is_plain.then(|| ((0..of.fields().len()).collect(), Arc::clone(of)));
    }
    let (mut columns, mut fields) = (Vec::new(), Vec::new());
    for item in projection {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value.as_str())),
            _ => return None,
        };
        let at = column(expr)?;
        let field = of.field(at);
        let name = name.unwrap_or(field.name());
        if fields.iter().any(|known: &arrow::datatypes::Field| known.name() == name) {
            return None;
        }
        fields.push(field.clone().with_name(name));
        columns.push(at);
    }
    Some((columns, Arc::new(Schema::new(fields))))
}

/// The values of a key that a condition equates, one for each column and for nothing else.
fn key(
    condition: &Expr,
    view: &dyn MaterializedView,
    column: &impl Fn(&Expr) -> Option<usize>,
) -> Option<Vec<ArrayRef>> {
    let schema = view.schema();
    let mut values: Vec<Option<ArrayRef>> = vec![None; view.key().len()];
    let mut open = vec![condition];
    while let Some(condition) = open.pop() {
        match condition {
            Expr::Nested(inner) => open.push(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([left.as_ref(), right.as_ref()]),
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let (at, literal) = match (column(left), column(right)) {
                    (Some(at), None) => (at, right),
                    (None, Some(at)) => (at, left),
                    _ => return None,
                };
                let place = view.key().iter().position(|key| *key == at)?;
                let value = value(literal, schema.field(at).data_type())?;
                if values[place].replace(value).is_some() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    if values.is_empty() { None } else { values.into_iter().collect() }
}

/// The value of a literal that is plainly of a type.
fn value(literal: &Expr, of: &DataType) -> Option<ArrayRef> {
    match literal {
        Expr::Nested(inner) => value(inner, of),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => whole(&format!("-{}", number(expr)?), of),
        Expr::Cast { kind: CastKind::Cast, expr, data_type, format: None, .. } => {
            (crate::types::data_type(data_type).ok()? == *of).then(|| text(expr)).flatten().and_then(|t| read(t, of))
        }
        Expr::TypedString(typed) => match &typed.value.value {
            Value::SingleQuotedString(text) if crate::types::data_type(&typed.data_type).ok()? == *of => read(text, of),
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => whole(digits, of),
            Value::SingleQuotedString(text) if *of == DataType::Utf8View => {
                Some(Arc::new(StringViewArray::from(vec![text.as_str()])))
            }
            Value::Boolean(value) if *of == DataType::Boolean => Some(Arc::new(BooleanArray::from(vec![*value]))),
            _ => None,
        },
        _ => None,
    }
}

fn number(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Some(digits),
            _ => None,
        },
        _ => None,
    }
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => text(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number that fits.
fn whole(digits: &str, of: &DataType) -> Option<ArrayRef> {
    if !of.is_integer() {
        return None;
    }
    converted(&Int64Array::from(vec![digits.parse::<i64>().ok()?]), of)
}

/// A text as a value of a type.
fn read(text: &str, of: &DataType) -> Option<ArrayRef> {
    match of {
        _ if of.is_integer() => whole(text, of),
        DataType::Utf8View => Some(Arc::new(StringViewArray::from(vec![text]))),
        DataType::Date32 | DataType::Timestamp(_, None) => converted(&StringArray::from(vec![text]), of),
        _ => None,
    }
}

fn converted(value: &dyn Array, of: &DataType) -> Option<ArrayRef> {
    let safe = CastOptions { safe: true, ..CastOptions::default() };
    cast_with_options(value, of, &safe).ok().filter(|value| value.is_valid(0))
}
