//! The values that the system tables hold.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Ident, ObjectName};
use savanna_streams_api::{Result, StreamError};

/// A value. NULL is above all others, as `ORDER BY` has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    Boolean(bool),
    Integer(i64),
    Text(String),
    List(Vec<Value>),
    Null,
}

/// The type of a column or an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Boolean,
    Integer,
    Text,
    /// An array, whose elements travel as texts.
    List,
    /// That of NULL: what stands beside it.
    Unknown,
}

impl Type {
    pub(super) fn arrow(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Text | Self::Unknown => DataType::Utf8,
            Self::List => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
        }
    }

    /// What a column holds of which nothing is told.
    pub(super) fn nothing(self) -> Value {
        match self {
            Self::Boolean => false.into(),
            Self::Integer => 0.into(),
            Self::Text | Self::List | Self::Unknown => Value::Null,
        }
    }

    /// The type of what is either.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, known) | (known, Self::Unknown) => known,
            (one, other) if one == other => one,
            _ => Self::Text,
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<String>> for Value {
    fn from(values: Vec<String>) -> Self {
        Self::List(values.into_iter().map(Self::Text).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Value {
    pub(super) fn is_true(&self) -> bool {
        *self == Self::Boolean(true)
    }

    /// As PostgreSQL writes it; none for NULL.
    pub(super) fn text(&self) -> Option<String> {
        Some(match self {
            Self::Null => return None,
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Text(value) => value.clone(),
            Self::List(values) => {
                let values: Vec<String> = values.iter().map(element).collect();
                format!("{{{}}}", values.join(","))
            }
        })
    }

    /// A whole number, which may be written as a text; none for NULL.
    pub(super) fn integer(&self) -> Result<Option<i64>> {
        match self {
            Self::Null => Ok(None),
            Self::Integer(value) => Ok(Some(*value)),
            Self::Boolean(value) => Ok(Some(i64::from(*value))),
            Self::Text(text) => text.trim().parse().map(Some).map_err(|_| wrong("a whole number", text)),
            Self::List(_) => Err(wrong("a whole number", &self.text().unwrap_or_default())),
        }
    }

    /// A truth value, which may be written as a text; none for NULL.
    pub(super) fn truth(&self) -> Result<Option<bool>> {
        match self {
            Self::Null => Ok(None),
            Self::Boolean(value) => Ok(Some(*value)),
            Self::Integer(value) => Ok(Some(*value != 0)),
            Self::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
                "t" | "true" | "yes" | "on" | "1" => Ok(Some(true)),
                "f" | "false" | "no" | "off" | "0" => Ok(Some(false)),
                _ => Err(wrong("a truth value", text)),
            },
            Self::List(_) => Err(wrong("a truth value", &self.text().unwrap_or_default())),
        }
    }

    /// The elements of an array, which may be written as a text; none for NULL.
    pub(super) fn elements(&self) -> Result<Option<Vec<Value>>> {
        match self {
            Self::Null => Ok(None),
            Self::List(values) => Ok(Some(values.clone())),
            other => {
                let text = other.text().unwrap_or_default();
                let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
                let inner = inner.ok_or_else(|| wrong("an array such as {a,b}", &text))?;
                let parts = inner.split(',').filter(|_| !inner.is_empty());
                Ok(Some(parts.map(|part| Self::from(part.trim_matches('"'))).collect()))
            }
        }
    }

    /// Which of two comes first; none where one is NULL. A text beside a number or a truth value is read as one.
    pub(super) fn compared(&self, other: &Self) -> Result<Option<Ordering>> {
        Ok(match (self, other) {
            (Self::Null, _) | (_, Self::Null) => None,
            (Self::Integer(_), Self::Text(_)) | (Self::Text(_), Self::Integer(_)) => {
                self.integer()?.partial_cmp(&other.integer()?)
            }
            (Self::Boolean(_), _) | (_, Self::Boolean(_)) => self.truth()?.partial_cmp(&other.truth()?),
            (Self::List(_), _) | (_, Self::List(_)) => self.text().partial_cmp(&other.text()),
            _ => self.partial_cmp(other),
        })
    }
}

fn element(value: &Value) -> String {
    match value.text() {
        None => "NULL".to_owned(),
        Some(text) if text.is_empty() || text.contains([',', '{', '}', '"', '\\', ' ']) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        Some(text) => text,
    }
}

fn wrong(expected: &str, got: &str) -> StreamError {
    StreamError::invalid(format!("expected {expected}, got '{got}'"))
}

/// One column of rows as it is sent.
pub(super) fn column(rows: &[Vec<Value>], at: usize, of: Type) -> ArrayRef {
    let values = rows.iter().map(|row| &row[at]);
    match of {
        Type::Boolean => Arc::new(values.map(|v| v.truth().ok().flatten()).collect::<BooleanArray>()),
        Type::Integer => Arc::new(values.map(|v| v.integer().ok().flatten()).collect::<Int64Array>()),
        Type::Text | Type::Unknown => Arc::new(values.map(Value::text).collect::<StringArray>()),
        Type::List => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for value in values {
                let elements = value.elements().ok().flatten();
                for element in elements.iter().flatten() {
                    lists.values().append_option(element.text());
                }
                lists.append(elements.is_some());
            }
            Arc::new(lists.finish())
        }
    }
}

/// A name as PostgreSQL understands it: in small letters if it has no quotes.
pub(super) fn ident_name(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The schema of a type's name, if one is given, and the rest.
pub(super) fn type_name(data_type: &SqlType) -> (Option<String>, String) {
    match data_type {
        SqlType::Custom(name, _) => split_name(name),
        other => (None, other.to_string().to_lowercase()),
    }
}

/// The schema of a name, if one is given, and the rest.
pub(super) fn split_name(name: &ObjectName) -> (Option<String>, String) {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(ident_name).collect();
    match parts.as_slice() {
        [.., schema, name] => (Some(schema.clone()), name.clone()),
        [name] => (None, name.clone()),
        [] => (None, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_what_they_are_compared_with() {
        let compared = |a: Value, b: Value| a.compared(&b).unwrap();
        assert_eq!(compared(Value::from(9), Value::from("10")), Some(Ordering::Less));
        assert_eq!(compared(Value::from("t"), Value::from(true)), Some(Ordering::Equal));
        assert_eq!(compared(Value::from(vec!["0".to_owned()]), Value::from("{0}")), Some(Ordering::Equal));
        assert_eq!(compared(Value::Null, Value::from(1)), None);
        assert!(Value::from(1).compared(&Value::from("one")).is_err());
    }

    #[test]
    fn arrays_are_written_and_read_as_in_postgresql() {
        let list = Value::from(vec!["a".to_owned(), "b c".to_owned()]);
        assert_eq!(list.text().as_deref(), Some("{a,\"b c\"}"));
        assert_eq!(Value::from("{a,b}").elements().unwrap(), Some(vec![Value::from("a"), Value::from("b")]));
        assert_eq!(Value::from("{}").elements().unwrap(), Some(vec![]));
    }
}
