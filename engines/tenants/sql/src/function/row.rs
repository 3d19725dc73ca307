//! Rows as values: `ROW(..)`, and what is asked of them.

use savanna_tenants_values::{
    error::Result,
    value::{Value, record::Field},
};

use super::wrong_arguments;
use crate::expression::Comparison;

/// A function of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFunction {
    /// A comparison of two
    Compare(Comparison),
    /// Whether none of its values is NULL
    IsNotNull,
    /// Whether all of its values are NULL
    IsNull,
    /// The value of one of its columns
    Field(usize),
    /// A row with another value in a column; of the form of its second argument if there is none yet
    Put(usize),
    /// A row: of the form of its first argument, with the values of the others
    Make,
}

impl RowFunction {
    /// Whether it is NULL as soon as one of its arguments is.
    pub(super) fn is_strict(self) -> bool {
        matches!(self, Self::Compare(_) | Self::Field(_))
    }

    /// Its value.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        Ok(match (self, arguments) {
            (Self::Make, [Value::Record(form), values @ ..]) => {
                let mut row = form.clone();
                let filled = form.fields.iter().zip(values);
                row.fields = filled.map(|(field, value)| Field { value: (*value).clone(), ..field.clone() }).collect();
                Value::Record(row)
            }
            (Self::Field(at), [Value::Record(row)]) => {
                row.fields.get(at).ok_or_else(|| wrong_arguments(self))?.value.clone()
            }
            (Self::Put(at), [old, Value::Record(form), value]) => {
                let mut row = if let Value::Record(row) = old { row.clone() } else { form.clone() };
                row.fields.get_mut(at).ok_or_else(|| wrong_arguments(self))?.value = (*value).clone();
                Value::Record(row)
            }
            (Self::Compare(comparison), [Value::Record(a), Value::Record(b)]) => {
                Value::Bool(comparison.holds(a.compared(b)?))
            }
            (Self::IsNull, [Value::Null]) => Value::Bool(true),
            (Self::IsNotNull, [Value::Null]) => Value::Bool(false),
            (Self::IsNull, [Value::Record(row)]) => Value::Bool(row.fields.iter().all(|field| field.value.is_null())),
            (Self::IsNotNull, [Value::Record(row)]) => {
                Value::Bool(!row.fields.iter().any(|field| field.value.is_null()))
            }
            _ => return Err(wrong_arguments(self)),
        })
    }
}
