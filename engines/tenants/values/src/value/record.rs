//! Rows as values.

mod read;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{Value, binary, size, style::Style, text};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
};

/// A column of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// What it has.
    pub value: Value,
}

/// A row that is a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its columns.
    pub fields: Vec<Field>,
}

impl Record {
    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.fields.iter().map(|field| size_of::<Field>() + field.name.len() + field.value.bytes()).sum::<usize>()
    }

    /// How rows are sorted: by their first values that differ, NULL as the largest. Rows of other types are in an order, too.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let pairs = self.fields.iter().zip(&other.fields);
        let mut differ = pairs.map(|(a, b)| match kinds(a.of, b.of) {
            Ordering::Equal => a.value.compare(&b.value),
            other => other,
        });
        differ.find(|order| order.is_ne()).unwrap_or_else(|| self.fields.len().cmp(&other.fields.len()))
    }

    /// How they are compared where a statement says so.
    ///
    /// # Errors
    /// 42804 if they have other types or another number of columns.
    pub fn compared(&self, other: &Self) -> Result<Ordering> {
        for (at, (a, b)) in self.fields.iter().zip(&other.fields).enumerate() {
            if kinds(a.of, b.of).is_ne() {
                let (a, b) = (a.of.base_name(), b.of.base_name());
                let message = format!("cannot compare dissimilar column types {a} and {b} at record column {}", at + 1);
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
            let order = a.value.compare(&b.value);
            if order.is_ne() {
                return Ok(order);
            }
        }
        if self.fields.len() != other.fields.len() {
            let message = "cannot compare record types with different numbers of columns";
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        Ok(Ordering::Equal)
    }

    /// Appends its text; of one that would be too long, only that it is too long.
    pub(crate) fn write(&self, style: Style, out: &mut String) {
        let begin = out.len();
        out.push('(');
        for (at, Field { of, value, .. }) in self.fields.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            if value.is_null() {
                continue;
            }
            let shown = text::shown(value, *of, style);
            let quoted = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',') || c.is_ascii_whitespace() || c == '\x0b';
            // Each level doubles the quotes of those within it.
            let doubled = || shown.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
            let length = out.len() - begin + shown.len();
            if size::check_written(length).and_then(|()| size::check_written(length + doubled())).is_err() {
                out.truncate(begin);
                return out.push_str(&size::overlong(shown));
            }
            if shown.is_empty() || shown.contains(quoted) {
                out.push('"');
                out.push_str(&shown.replace('\\', "\\\\").replace('"', "\"\""));
                out.push('"');
            } else {
                out.push_str(&shown);
            }
        }
        out.push(')');
    }

    /// Appends its bytes in the binary format.
    pub(crate) fn to_wire(&self, out: &mut Vec<u8>) {
        out.extend((self.fields.len() as i32).to_be_bytes());
        for Field { of, value, .. } in &self.fields {
            out.extend(of.oid().to_be_bytes());
            let begin = out.len();
            out.extend((-1_i32).to_be_bytes());
            if !value.is_null() {
                binary::write(value, *of, out);
                let length = (out.len() - begin - 4) as i32;
                out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
    }
}

/// What no row can be made of: nothing says of which columns it is.
pub(crate) fn anonymous() -> SqlError {
    SqlError::new(state::FEATURE_NOT_SUPPORTED, "input of anonymous composite types is not implemented")
}

/// The order of two types of values; those that are compared with one another are equal.
fn kinds(a: Type, b: Type) -> Ordering {
    let kind = |of: Type| match of.unbounded() {
        of if of.is_text() || of == Type::Unknown => Type::Text.oid(),
        of => of.oid(),
    };
    kind(a).cmp(&kind(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: &[(Type, Value)]) -> Record {
        let field = |(of, value): &(Type, Value)| Field { name: "f".to_owned(), of: *of, value: value.clone() };
        Record { fields: fields.iter().map(field).collect() }
    }

    fn text(text: &str) -> (Type, Value) {
        (Type::Text, Value::Text(text.to_owned()))
    }

    #[test]
    fn rows_are_written_as_postgresql_writes_them() {
        let row =
            record(&[(Type::Int4, Value::Int(1)), (Type::Text, Value::Null), text(""), text("a b"), text("q\"\\")]);
        let mut out = String::new();
        row.write(Style::PLAIN, &mut out);
        assert_eq!(out, r#"(1,,"","a b","q""\\")"#);
    }

    #[test]
    fn rows_are_compared_by_the_first_columns_that_differ_and_only_with_their_like() {
        let (a, b) =
            (record(&[(Type::Int4, Value::Int(1)), text("a")]), record(&[(Type::Int4, Value::Int(1)), text("b")]));
        let (null, other) = (record(&[(Type::Int4, Value::Int(1)), (Type::Text, Value::Null)]), record(&[text("a")]));
        assert_eq!((a.compared(&b), a.compared(&a)), (Ok(Ordering::Less), Ok(Ordering::Equal)));
        assert!(
            null.compare(&b).is_gt() && a.compare(&other).is_ne() && other.compare(&a) == a.compare(&other).reverse()
        );
        assert_eq!(a.compared(&other).unwrap_err().state, state::DATATYPE_MISMATCH);
        assert_eq!(a.compared(&record(&[(Type::Int4, Value::Int(1))])).unwrap_err().state, state::DATATYPE_MISMATCH);
    }
}
