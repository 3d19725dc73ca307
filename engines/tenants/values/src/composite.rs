//! Composite types: rows whose columns a definition names. The rows of each table are of such a type, too.

use serde::{Deserialize, Serialize};

use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        record::{Field, Record},
        size::check_structure,
    },
};

/// A column of a composite type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// Whether it was dropped. It keeps its place in what is stored.
    pub dropped: bool,
    /// What is said about it.
    pub comment: Option<String>,
}

impl Attribute {
    /// One that there is, and nothing is said about.
    pub fn new(name: String, of: Type) -> Self {
        Self { name, of, dropped: false, comment: None }
    }
}

/// A type that was made by `CREATE TYPE .. AS (..)`, or that the rows of a table or view are of. A value has what is there now; where it is
/// stored it has a place for each attribute that there ever was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Composite {
    /// Its number, for ever; that of the table, if it is of one.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The number of its schema.
    pub schema: u32,
    /// Its attributes, those among them that were dropped.
    pub attributes: Vec<Attribute>,
    /// What is said about it.
    pub comment: Option<String>,
}

impl Composite {
    /// The attributes that there are.
    pub fn live(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(|attribute| !attribute.dropped)
    }

    /// The attribute of a name, with its place among those that there are.
    pub fn find(&self, name: &str) -> Option<(usize, &Attribute)> {
        self.live().enumerate().find(|(_, attribute)| attribute.name == name)
    }

    /// Whether its values have values of a type of some number.
    pub fn uses(&self, id: u32) -> bool {
        self.live().any(|attribute| attribute.of.own() == Some(id))
    }

    /// A row of NULLs.
    pub fn form(&self) -> Record {
        let field = |of: &Attribute| Field { name: of.name.clone(), of: of.of, value: Value::Null };
        Record { fields: self.live().map(field).collect() }
    }

    /// A row of these values, one for each attribute that there is.
    pub(crate) fn row(&self, values: Vec<Value>) -> Value {
        let mut row = self.form();
        row.fields.iter_mut().zip(values).for_each(|(field, value)| field.value = value);
        Value::Record(Box::new(row))
    }

    /// Appends what is stored of a row: how many places, and for each the length of its bytes, the largest for NULL, and the bytes.
    ///
    /// # Errors
    /// XX000 for a row that has not as many values as the type has attributes.
    pub fn to_bytes(
        &self,
        row: &Record,
        out: &mut Vec<u8>,
        write: &dyn Fn(&Value, Type, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let (came, expected) = (row.fields.len(), self.live().count());
        if came != expected {
            let message = format!("expected a row of type {} with {expected} values, came {came}", self.name);
            return Err(SqlError::new(state::INTERNAL_ERROR, message));
        }
        out.extend((self.attributes.len() as u16).to_le_bytes());
        let mut fields = row.fields.iter();
        for attribute in &self.attributes {
            let begin = out.len();
            out.extend(u32::MAX.to_le_bytes());
            if attribute.dropped {
                continue;
            }
            if let Some(Field { value, .. }) = fields.next().filter(|field| !field.value.is_null()) {
                write(value, attribute.of, out)?;
                let length = (out.len() - begin - 4) as u32;
                out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
            }
        }
        Ok(())
    }

    /// The row that was stored. It has no places for attributes that came later: they are NULL.
    pub fn from_bytes(&self, bytes: &[u8], read: &dyn Fn(&[u8], Type) -> Result<Value>) -> Result<Value> {
        let damaged = || {
            let message = format!("expected a row of type {}, came {} other bytes", self.name, bytes.len());
            SqlError::new(state::DATA_CORRUPTED, message)
        };
        let (count, mut rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let count = usize::from(u16::from_le_bytes(*count));
        if count > self.attributes.len() {
            return Err(damaged());
        }
        let (mut values, mut taken) = (Vec::with_capacity(self.attributes.len()), 0);
        for (at, attribute) in self.attributes.iter().enumerate() {
            let mut value = Value::Null;
            if at < count {
                let (length, after) = rest.split_first_chunk().ok_or_else(damaged)?;
                rest = after;
                let length = u32::from_le_bytes(*length);
                if length != u32::MAX {
                    let (stored, after) = rest.split_at_checked(length as usize).ok_or_else(damaged)?;
                    rest = after;
                    if !attribute.dropped {
                        value = read(stored, attribute.of)?;
                    }
                }
            }
            if !attribute.dropped {
                taken += size_of::<Field>() + attribute.name.len() + value.bytes();
                check_structure(taken)?;
                values.push(value);
            }
        }
        if rest.is_empty() { Ok(self.row(values)) } else { Err(damaged()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composite(attributes: &[(&str, bool)]) -> Composite {
        let attribute = |(name, dropped): &(&str, bool)| Attribute {
            dropped: *dropped,
            ..Attribute::new((*name).to_owned(), Type::Text)
        };
        let attributes = attributes.iter().map(attribute).collect();
        Composite { id: 1, name: "c".to_owned(), schema: 0, attributes, comment: None }
    }

    fn stored(of: &Composite, values: &[&str]) -> Vec<u8> {
        let values = values.iter().map(|value| Value::Text((*value).to_owned())).collect();
        let Value::Record(row) = of.row(values) else { panic!("a row") };
        let mut out = Vec::new();
        of.to_bytes(&row, &mut out, &|value, _, out| {
            if let Value::Text(text) = value {
                out.extend(text.as_bytes());
            }
            Ok(())
        })
        .unwrap();
        out
    }

    fn read(of: &Composite, bytes: &[u8]) -> Result<Vec<(String, Value)>> {
        let text = |bytes: &[u8], _| Ok(Value::Text(String::from_utf8_lossy(bytes).into_owned()));
        let Value::Record(row) = of.from_bytes(bytes, &text)? else { panic!("a row") };
        Ok(row.fields.into_iter().map(|field| (field.name, field.value)).collect())
    }

    #[test]
    fn rows_that_were_stored_have_the_attributes_of_now() {
        let bytes = stored(&composite(&[("a", false), ("b", false)]), &["1", "2"]);
        let text = |name: &str, text: &str| (name.to_owned(), Value::Text(text.to_owned()));
        let null = |name: &str| (name.to_owned(), Value::Null);
        let of_now = composite(&[("a", true), ("renamed", false), ("new", false)]);
        assert_eq!(read(&of_now, &bytes), Ok(vec![text("renamed", "2"), null("new")]));
        let again = stored(&of_now, &["3", "4"]);
        assert_eq!(read(&of_now, &again), Ok(vec![text("renamed", "3"), text("new", "4")]));
        let later = composite(&[("a", true), ("renamed", true), ("new", false), ("last", false)]);
        assert_eq!(read(&later, &again), Ok(vec![text("new", "4"), null("last")]));
    }

    #[test]
    fn a_row_with_another_number_of_values_is_not_stored() {
        let (of, other) = (composite(&[("a", false)]), composite(&[("a", false), ("b", false)]));
        for (of, row) in [(&of, &other), (&other, &of)] {
            let refused = of.to_bytes(&row.form(), &mut Vec::new(), &|_, _, _| Ok(()));
            assert_eq!(refused.unwrap_err().state, state::INTERNAL_ERROR);
        }
    }

    #[test]
    fn damaged_rows_are_told() {
        let of = composite(&[("a", false)]);
        let whole = stored(&of, &["1"]);
        for damaged in [&[][..], &[9, 0], &whole[..whole.len() - 1], &[&whole[..], &[0]].concat()] {
            assert_eq!(read(&of, damaged).unwrap_err().state, state::DATA_CORRUPTED, "{damaged:?}");
        }
    }
}
