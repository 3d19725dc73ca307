//! Rows as values, `ROW(..)` and those of tables.

use std::sync::Arc;

use savanna_tenants_values::{
    composite::Composite,
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        cast::{self, Ease},
        record::{Field, Record},
    },
};
use sqlparser::ast::{self, AccessExpr};

use super::{Binder, Typed, convert::wrapped, not, operator::row_of};
use crate::{
    expression::{Comparison, Expr},
    function::{Function, RowFunction},
    query::scope::Visible,
};

/// Columns that a row may have.
const COLUMNS_MAX: usize = 1_664;

impl Binder<'_, '_> {
    /// `ROW(..)`, whose columns are called `f1` and so on.
    pub(super) fn row_value(&mut self, values: &[ast::Expr]) -> Result<Typed> {
        let field = |(at, value): (usize, &ast::Expr)| Ok((format!("f{}", at + 1), self.open(value)?));
        let fields = values.iter().enumerate().map(field).collect::<Result<_>>()?;
        self.record(fields)
    }

    /// A value of a row. What becomes of the row decides the type of a parameter that has none yet.
    fn open(&mut self, ast: &ast::Expr) -> Result<Typed> {
        let typed = self.expr(ast)?;
        if typed.of != Type::Unknown || matches!(typed.expr, Expr::Parameter(_)) {
            return Ok(typed);
        }
        Ok(Typed::new(self.implicit(typed, Type::Text)?, Type::Text))
    }

    /// The row of a table, if an expression is its name. That of an outer join that is not there is NULL.
    pub(super) fn whole_row(&mut self, ast: &ast::Expr) -> Result<Option<Typed>> {
        let Some(columns) = self.scope.row(ast) else { return Ok(None) };
        let missing = columns
            .iter()
            .all(|column| column.optional)
            .then(|| Expr::all(columns.iter().map(|column| Expr::IsNull(Box::new(column.expr.clone())))));
        let of = self.type_of_rows(&columns);
        let mut fields = Vec::with_capacity(columns.len());
        for column in columns {
            self.planner.names_column(column.origin);
            fields.push((column.name, Typed::new(column.expr, column.of)));
        }
        let row = Typed { of, ..self.record(fields)? };
        Ok(Some(match missing.flatten() {
            Some(missing) => Typed::new(Expr::Case(vec![(missing, Expr::NULL)], Box::new(row.expr)), row.of),
            None => row,
        }))
    }

    /// The type of a table's rows, if these are all of its columns.
    fn type_of_rows(&self, columns: &[Visible]) -> Type {
        let relation = columns.first().map_or(0, |column| column.origin.0);
        let Some(composite) = self.planner.catalog.own_types().composite(relation) else { return Type::Record };
        let named = columns.iter().map(|column| (column.origin.0, column.name.as_str(), column.of));
        let own = composite.live().map(|attribute| (relation, attribute.name.as_str(), attribute.of.exact()));
        if named.map(|(id, name, of)| (id, name, of.exact())).eq(own) {
            Type::Composite(relation)
        } else {
            Type::Record
        }
    }

    /// `ROW(..)` as a row of a composite type, whose attributes its values become.
    pub(super) fn row_of_type(&mut self, values: &[ast::Expr], id: u32) -> Result<Typed> {
        let mut typed = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            let of = self.composite(id)?.live().nth(at).map(|attribute| attribute.of);
            typed.push(match (of, row_of(value)) {
                (Some(Type::Composite(inner)), Some(values)) => self.row_of_type(&values, inner)?,
                _ => self.expr(value)?,
            });
        }
        let expr = self.as_row(typed, id, true)?;
        Ok(Typed::new(expr, Type::Composite(id)))
    }

    /// The composite type of a number.
    pub(super) fn composite(&self, id: u32) -> Result<Arc<Composite>> {
        let missing = || SqlError::new(state::UNDEFINED_OBJECT, format!("type with OID {id} does not exist"));
        self.planner.catalog.own_types().composite(id).map(Arc::clone).ok_or_else(missing)
    }

    /// A row as one of a composite type. What was written as a text may become anything.
    pub(super) fn row_as(&mut self, row: Expr, id: u32, explicit: bool) -> Result<Expr> {
        let open = |of: Type, expr: Expr| {
            let literal = of == Type::Text && matches!(expr, Expr::Constant(_));
            Typed::new(expr, if literal { Type::Unknown } else { of })
        };
        let values = match row {
            Expr::Constant(Value::Record(row)) => {
                row.fields.into_iter().map(|field| open(field.of, Expr::Constant(field.value))).collect()
            }
            Expr::Call(Function::Row(RowFunction::Make), mut values)
                if matches!(values.first(), Some(Expr::Constant(Value::Record(_)))) =>
            {
                let Expr::Constant(Value::Record(form)) = values.remove(0) else { return Ok(Expr::NULL) };
                form.fields.into_iter().zip(values).map(|(field, value)| open(field.of, value)).collect()
            }
            other => return Ok(wrapped(other, Type::Record, Type::Composite(id), explicit)),
        };
        self.as_row(values, id, explicit)
    }

    fn as_row(&mut self, values: Vec<Typed>, id: u32, explicit: bool) -> Result<Expr> {
        let composite = self.composite(id)?;
        let least = if explicit { Ease::Explicit } else { Ease::Assignment };
        let field = |typed: &Typed| Field { name: String::new(), of: typed.of, value: Value::Null };
        let row = Record { fields: values.iter().map(field).collect() };
        let becomes = |from, to| cast::ease(from, to).is_some_and(|ease| ease <= least);
        cast::fits(&row, &composite, becomes)?;
        let mut parts = vec![Expr::Constant(Value::Record(Box::new(composite.form())))];
        for (typed, attribute) in values.into_iter().zip(composite.live()) {
            parts.push(self.convert(typed, attribute.of, explicit)?);
        }
        self.folded(Expr::Call(Function::Row(RowFunction::Make), parts))
    }

    /// `(row).name`
    pub(super) fn field(&mut self, row: Typed, name: &str) -> Result<Typed> {
        let found = self.fields(&row)?.into_iter().enumerate().find(|(_, (own, _))| own == name);
        let Some((at, (_, of))) = found else {
            let message = match row.of {
                Type::Composite(_) => format!("column \"{name}\" not found in data type {}", self.named(row.of)),
                _ => format!("could not identify column \"{name}\" in record data type"),
            };
            return Err(SqlError::new(state::UNDEFINED_COLUMN, message));
        };
        self.field_at(row.expr, at, of)
    }

    /// `(row).*`: the columns with their names.
    pub(crate) fn all_fields(&mut self, row: &Typed) -> Result<Vec<(String, Typed)>> {
        let mut fields = Vec::new();
        for (at, (name, of)) in self.fields(row)?.into_iter().enumerate() {
            fields.push((name, self.field_at(row.expr.clone(), at, of)?));
        }
        Ok(fields)
    }

    fn field_at(&mut self, row: Expr, at: usize, of: Type) -> Result<Typed> {
        // What a row is made of just here need not be made a row.
        if let Expr::Call(Function::Row(RowFunction::Make), parts) = &row
            && let Some(part) = parts.get(at + 1)
        {
            return Ok(Typed::new(part.clone(), of.exact()));
        }
        Ok(Typed::new(self.folded(Expr::Call(Function::Row(RowFunction::Field(at)), vec![row]))?, of.exact()))
    }

    /// The names and types of a row's columns.
    fn fields(&self, row: &Typed) -> Result<Vec<(String, Type)>> {
        let of_form = |form: &Record| form.fields.iter().map(|field| (field.name.clone(), field.of)).collect();
        match (row.of, &row.expr) {
            (Type::Composite(id), _) => {
                Ok(self.composite(id)?.live().map(|attribute| (attribute.name.clone(), attribute.of)).collect())
            }
            (Type::Record, Expr::Constant(Value::Record(form))) => Ok(of_form(form)),
            (Type::Record, Expr::Call(Function::Row(RowFunction::Make), parts)) => match parts.first() {
                Some(Expr::Constant(Value::Record(form))) => Ok(of_form(form)),
                _ => Ok(Vec::new()),
            },
            (Type::Record, _) => Ok(Vec::new()),
            (of, _) => {
                let message =
                    format!("column notation applied to type {}, which is not a composite type", self.named(of));
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, message))
            }
        }
    }

    /// What a row becomes if a value is put at one of its columns.
    pub(super) fn put_field(
        &mut self,
        old: Expr,
        of: Type,
        name: &str,
        rest: &[AccessExpr],
        value: Expr,
    ) -> Result<Expr> {
        let (at, inner) = self.attribute_of(of, name)?;
        let Type::Composite(id) = of else { return Err(SqlError::internal("a column of no row")) };
        let value = match rest {
            [] => value,
            rest => {
                let field = self.field_at(old.clone(), at, inner)?;
                self.put(field.expr, inner, rest, value)?
            }
        };
        let form = Expr::Constant(Value::Record(Box::new(self.composite(id)?.form())));
        Ok(Expr::Call(Function::Row(RowFunction::Put(at)), vec![old, form, value]))
    }

    /// The place and the type of a column of rows that are written.
    pub(super) fn attribute_of(&self, of: Type, name: &str) -> Result<(usize, Type)> {
        let Type::Composite(id) = of else {
            let message = format!(
                "cannot assign to field \"{name}\" of a column because its type {} is not a composite type",
                self.named(of)
            );
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        };
        let composite = self.composite(id)?;
        let missing = || {
            let message = format!(
                "cannot assign to field \"{name}\" of a column because there is no such column in data type {}",
                self.named(of)
            );
            SqlError::new(state::UNDEFINED_COLUMN, message)
        };
        composite.find(name).map(|(at, attribute)| (at, attribute.of)).ok_or_else(missing)
    }

    fn record(&mut self, fields: Vec<(String, Typed)>) -> Result<Typed> {
        if fields.len() > COLUMNS_MAX {
            return Err(SqlError::new("54011", format!("ROW expressions can have at most {COLUMNS_MAX} entries")));
        }
        let (mut form, mut values) = (Record::default(), Vec::with_capacity(fields.len() + 1));
        for (name, Typed { expr, of }) in fields {
            form.fields.push(Field { name, of, value: Value::Null });
            values.push(expr);
        }
        values.insert(0, Expr::Constant(Value::Record(Box::new(form))));
        Ok(Typed::new(self.folded(Expr::Call(Function::Row(RowFunction::Make), values))?, Type::Record))
    }

    /// `IS NULL`, and `IS NOT NULL` if it is `negated`; a row is neither if only some of its values are NULL.
    pub(super) fn is_null(&mut self, ast: &ast::Expr, negated: bool) -> Result<Typed> {
        let typed = self.expr(ast)?;
        let value = match (typed.of.is_row(), negated) {
            (true, true) => Expr::Call(Function::Row(RowFunction::IsNotNull), vec![typed.expr]),
            (true, false) => Expr::Call(Function::Row(RowFunction::IsNull), vec![typed.expr]),
            (_, true) => not(Expr::IsNull(Box::new(typed.expr))),
            (_, false) => Expr::IsNull(Box::new(typed.expr)),
        };
        self.boolean(value)
    }

    /// `IS DISTINCT FROM`: of two rows that are written out, if the values of one place are.
    pub(super) fn is_distinct(&mut self, left: &ast::Expr, right: &ast::Expr) -> Result<Expr> {
        if let (Some(left), Some(right)) = (row_of(left), row_of(right))
            && left.len() == right.len()
        {
            let differ = |(a, b)| self.is_distinct(a, b);
            let differ = left.iter().zip(right.iter()).map(differ).collect::<Result<Vec<_>>>()?;
            return Ok(Expr::any(differ).unwrap_or(Expr::Constant(Value::Bool(false))));
        }
        let (left, right) = self.comparable(left, right, "IS DISTINCT FROM")?;
        Ok(Expr::IsDistinct(Box::new(left), Box::new(right)))
    }

    /// A comparison of two values of a type.
    pub(super) fn comparison(comparison: Comparison, of: Type, left: Expr, right: Expr) -> Expr {
        match of.is_row() {
            true => Expr::Call(Function::Row(RowFunction::Compare(comparison)), vec![left, right]),
            false => Expr::Compare(comparison, Box::new(left), Box::new(right)),
        }
    }
}
