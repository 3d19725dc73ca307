//! Rows as values, `ROW(..)` and those of tables.

use savanna_tenants_values::{
    error::{Result, SqlError},
    types::Type,
    value::{
        Value,
        record::{Field, Record},
    },
};
use sqlparser::ast;

use super::{Binder, Typed, not, operator::row_of};
use crate::{
    expression::{Comparison, Expr},
    function::{Function, RowFunction},
};

/// Columns that a row may have.
const COLUMNS_MAX: usize = 1_664;

impl Binder<'_, '_> {
    /// `ROW(..)`, whose columns are called `f1` and so on.
    pub(super) fn row_value(&mut self, values: &[ast::Expr]) -> Result<Typed> {
        let field = |(at, value): (usize, &ast::Expr)| Ok((format!("f{}", at + 1), self.settled(value)?));
        let fields = values.iter().enumerate().map(field).collect::<Result<_>>()?;
        self.record(fields)
    }

    /// The row of a table, if an expression is its name. That of an outer join that is not there is NULL.
    pub(super) fn whole_row(&mut self, ast: &ast::Expr) -> Result<Option<Typed>> {
        let Some(columns) = self.scope.row(ast) else { return Ok(None) };
        let missing = columns
            .iter()
            .all(|column| column.optional)
            .then(|| Expr::all(columns.iter().map(|column| Expr::IsNull(Box::new(column.expr.clone())))));
        let mut fields = Vec::with_capacity(columns.len());
        for column in columns {
            self.planner.names_column(column.origin);
            fields.push((column.name, Typed::new(column.expr, column.of)));
        }
        let row = self.record(fields)?;
        Ok(Some(match missing.flatten() {
            Some(missing) => Typed::new(Expr::Case(vec![(missing, Expr::NULL)], Box::new(row.expr)), row.of),
            None => row,
        }))
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
        let value = match (typed.of, negated) {
            (Type::Record, true) => Expr::Call(Function::Row(RowFunction::IsNotNull), vec![typed.expr]),
            (Type::Record, false) => Expr::Call(Function::Row(RowFunction::IsNull), vec![typed.expr]),
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
        match of {
            Type::Record => Expr::Call(Function::Row(RowFunction::Compare(comparison)), vec![left, right]),
            _ => Expr::Compare(comparison, Box::new(left), Box::new(right)),
        }
    }
}
